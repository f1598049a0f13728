use serde_json::json;

use crate::api::{Patch, admin, path};
use crate::features;
use crate::installed::{ACT, Installed, NAMESPACE, configuration, contract, stored};
use crate::poll;
use crate::requests::{gpu, ordinary, tolerating};

/// Nothing of gpufence runs, and both webhooks insist on being asked.
#[test]
fn without_a_replica_the_cluster_itself_still_works() {
    let Some(installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    for kind in ["validating", "mutating"] {
        let armed = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]);
        admin().patch(Patch::Json, &configuration(kind), &armed).stored();
    }
    let (ml, web) = (installed.namespace("ml", &json!({})), installed.namespace("web", &json!({})));

    // gpufence's own pods, which would end the outage, and those of the cluster.
    let deployments = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    for name in ["gpufence", "gpufence-controller"] {
        let deployment = admin().get(&format!("{deployments}/{name}")).stored();
        let template = &deployment["spec"]["template"];
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "own-", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        });
        admin().create(&pod).quietly();
    }
    let mut agent = ordinary("kube-system");
    agent["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let agent = admin().create(&agent).quietly();
    admin().delete(&path(&agent)).stored();

    // What keeps nodes alive.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{ml}")}});
    installed.make(&node);
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    admin().patch(Patch::Merge, &format!("{}/status", path(&node)), &status).stored();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": format!("lease-{ml}"), "namespace": "kube-system"},
        "spec": {"holderIdentity": "somebody"},
    });
    installed.make(&lease);

    // The tenants of the GPU nodes do as the failurePolicy says.
    for pod in [tolerating(&web), gpu(&ml)] {
        let reply = admin().create(&pod);
        assert_eq!(reply.code, 500, "{reply:#?}");
        assert!(reply.message().contains("failed calling webhook"), "{reply:#?}");
    }
    if stored("validating")["webhooks"][0].get("matchConditions").is_some() {
        admin().create(&ordinary(&web)).quietly();
    } else {
        features::skip("ordinary pods during an outage", "this API server knows no matchConditions");
    }
    for kind in ["validating", "mutating"] {
        let disarmed = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
        admin().patch(Patch::Json, &configuration(kind), &disarmed).stored();
    }
    for pod in [tolerating(&web), gpu(&ml), ordinary(&web)] {
        // The API server takes a moment to see the change.
        poll::until("nobody is asked any more", ACT, || {
            let reply = admin().create(&pod);
            if reply.code == 201 { Ok(()) } else { Err(format!("{reply:#?}")) }
        });
    }
}
