use serde_json::{Value, json};

use crate::api::{Patch, Reply, admin, path};
use crate::contract::{Contract, exact_toleration};
use crate::features::{has_resource, needs_resource};
use crate::fence::{Fence, Registration};
use crate::objects::{Pod, node};

/// A fence, and a pod outside that tolerates everything and is older than the fence.
fn old_pod() -> (Fence, Value) {
    let fence = Fence::serving(&Contract::enforcing());
    let pod = Pod::named("old").tolerating(&json!({"operator": "Exists"})).requesting("cpu", "100m");
    let pod = admin().create(&pod.in_namespace(&fence.namespace("web"))).stored();
    fence.register(&Registration::default());
    (fence, pod)
}

/// How often the webhooks were asked in earnest, whatever they answered.
fn calls(fence: &Fence, operation: &str) -> u64 {
    fence.count("admission_requests_total", &[("operation", operation), ("dry_run", "false")])
}

/// That both webhooks were asked, and neither had a word to say.
#[track_caller]
fn assert_passed(fence: &Fence, operation: &str, before: u64, reply: &Reply) {
    assert_eq!(calls(fence, operation), before + 2, "{reply:#?}");
    assert!(!reply.message().contains("admission webhook"), "{reply:#?}");
    assert!(!reply.message().contains("failed calling webhook"), "{reply:#?}");
    assert_eq!(reply.our_warnings(), [""; 0]);
}

#[test]
fn a_pod_is_bound_to_a_node() {
    let (fence, pod) = old_pod();
    let node = node(&fence.unique("node"));
    fence.make(&node);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"]},
    });
    let before = calls(&fence, "CREATE");
    let reply = admin().post(&format!("{}/binding", path(&pod)), &binding);
    assert_passed(&fence, "CREATE", before, &reply);
    reply.stored();
    assert_eq!(admin().read(&pod).stored()["spec"]["nodeName"], node["metadata"]["name"]);
}

#[test]
fn a_pod_is_evicted() {
    let (fence, pod) = old_pod();
    let version = if has_resource("/apis/policy/v1", "poddisruptionbudgets") { "policy/v1" } else { "policy/v1beta1" };
    let eviction = json!({"apiVersion": version, "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}});
    let before = calls(&fence, "CREATE");
    let reply = admin().post(&format!("{}/eviction", path(&pod)), &eviction);
    assert_passed(&fence, "CREATE", before, &reply);
    reply.stored();
    assert!(admin().read(&pod).is_missing());
}

#[test]
fn the_status_of_a_pod_is_written() {
    let (fence, pod) = old_pod();
    let before = calls(&fence, "UPDATE");
    let reply = admin().patch(Patch::Merge, &format!("{}/status", path(&pod)), &json!({"status": {"reason": "E2e"}}));
    assert_passed(&fence, "UPDATE", before, &reply);
    assert_eq!(reply.stored()["status"]["reason"], "E2e");
}

#[test]
fn connections_to_a_pod_pass_the_webhook() {
    let (fence, pod) = old_pod();
    for subresource in ["exec?command=true&stdout=true", "attach?stdout=true", "portforward?ports=80", "proxy"] {
        let before = calls(&fence, "CONNECT");
        // It gets no further than to the node that the pod does not have.
        let reply = admin().post(&format!("{}/{subresource}", path(&pod)), &Value::Null);
        assert_passed(&fence, "CONNECT", before, &reply);
    }
}

#[test]
fn an_ephemeral_container_is_added() {
    if !needs_resource("/api/v1", "pods/ephemeralcontainers", "ephemeral containers") {
        return;
    }
    let (fence, pod) = old_pod();
    let before = calls(&fence, "UPDATE");
    let debugger = json!({"name": "debugger", "image": "registry.invalid/e2e:1"});
    let reply = admin().patch(
        Patch::Strategic,
        &format!("{}/ephemeralcontainers", path(&pod)),
        &json!({"spec": {"ephemeralContainers": [debugger]}}),
    );
    assert_passed(&fence, "UPDATE", before, &reply);
    assert_eq!(reply.stored()["spec"]["ephemeralContainers"][0]["name"], "debugger");
}

#[test]
fn a_pod_is_resized() {
    if !needs_resource("/api/v1", "pods/resize", "resizing a pod in place") {
        return;
    }
    let (fence, pod) = old_pod();
    let before = calls(&fence, "UPDATE");
    let resources = json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "200m"}});
    let reply = admin().patch(
        Patch::Strategic,
        &format!("{}/resize", path(&pod)),
        &json!({"spec": {"containers": [{"name": "main", "resources": resources}]}}),
    );
    assert_passed(&fence, "UPDATE", before, &reply);
    assert_eq!(reply.stored()["spec"]["containers"][0]["resources"], resources);
}

#[test]
fn no_subresource_brings_a_toleration_in() {
    let fence = Fence::enforcing();
    let pod = Pod::named("ordinary").requesting("cpu", "100m").in_namespace(&fence.namespace("web"));
    let before = admin().create(&pod).quietly();
    let mut tolerations = before["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    tolerations.push(exact_toleration());
    for subresource in ["status", "ephemeralcontainers", "resize"] {
        // Where there is one, it takes the rest of the patch or refuses all of it.
        let patch = json!({"spec": {"tolerations": tolerations}, "status": {"reason": "E2e"}});
        admin().patch(Patch::Merge, &format!("{}/{subresource}", path(&pod)), &patch);
        assert_eq!(admin().read(&pod).stored()["spec"], before["spec"], "{subresource}");
    }
}
