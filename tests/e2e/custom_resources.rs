use std::time::Duration;

use gpufence::manifest::{self, Options};
use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::cluster::cluster;
use crate::contract::{Contract, exact_toleration};
use crate::fence::Fence;
use crate::findings::{refusal, toleration, toleration_outside};
use crate::objects::{Pod, api_server_object};
use crate::poll;

const START: Duration = Duration::from_secs(20);

/// A kind like Argo's, in a group of its own: in the cluster there may be Argo.
fn definition(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("rollouts.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Rollout", "plural": "rollouts"},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            }],
        },
    })
}

fn rollout(group: &str, namespace: &str, name: &str, pod: &Pod) -> Value {
    let mut template = pod.in_namespace(namespace);
    template["metadata"] = json!({"labels": {"app": name}});
    json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": "Rollout",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 1, "template": {"metadata": template["metadata"], "spec": template["spec"]}},
    })
}

/// A fence with the hook that the contract renders for custom resources, its rules and conditions as they are.
///
/// Also whether the API server knows of the conditions: one that is too old asks about every update.
fn registered(group: &str, templates: &str) -> (Fence, bool) {
    let custom =
        json!([{"group": group, "kind": "Rollout", "resource": "rollouts", "templates": ["{.spec.template}"]}]);
    let contract = Contract::enforcing().with("templates", templates).with("customResources", custom);
    let fence = Fence::serving(&contract);
    let file = cluster().folder(&fence.unique("rendered")).join("contract.yaml");
    // As in a cluster, where the ports are chosen.
    let listeners = json!({"listen": "0.0.0.0:8443", "metrics": "0.0.0.0:9090", "drain": "0s"});
    let installed = contract.with("server", listeners).with("tls", json!({"source": "managed"}));
    std::fs::write(&file, installed.text()).unwrap();
    let contract = gpufence::contract::Contract::load(Some(&file), []).unwrap();
    let rendered = manifest::render(&contract, &Options::default()).unwrap();
    let hooks = rendered.objects.iter().flat_map(|object| object["webhooks"].as_array().into_iter().flatten());
    let hook = hooks.into_iter().find(|hook| hook["name"] == "customresources.validate.gpufence.io").unwrap();
    let mut webhook = fence.webhook("customresources.validate.gpufence.io", fence.port(), "/validate");
    for field in ["rules", "matchConditions", "matchPolicy", "timeoutSeconds"] {
        webhook[field] = hook[field].clone();
    }
    webhook["failurePolicy"] = "Fail".into();
    let fields = json!({"webhooks": [webhook]});
    let stored = fence.make(&api_server_object("ValidatingWebhookConfiguration", &fence.unique("custom"), &fields));
    let probe = rollout(group, &fence.namespace("probe"), "probe", &Pod::named("p").tolerating(&exact_toleration()));
    poll::until("the API server calls the webhook", START, || {
        let reply = admin().dry_run().create(&probe);
        let told = reply.code == 403 || !reply.our_warnings().is_empty();
        if told { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    let has_conditions = stored["webhooks"][0]["matchConditions"].is_array();
    (fence, has_conditions)
}

#[test]
fn a_violating_template_is_warned_of_or_refused_and_what_does_not_touch_it_passes() {
    let owner = Fence::serving(&Contract::enforcing());
    let group = format!("{}.example.com", owner.unique("argoproj"));
    owner.make(&definition(&group));
    let violating = Pod::named("shop").tolerating(&exact_toleration());
    let finding = |namespace: &str| toleration_outside(&format!("spec.template.{}", toleration(0)), namespace);

    let (fence, has_conditions) = registered(&group, "warn");
    let web = fence.namespace("web");
    let object = rollout(&group, &web, "shop", &violating);
    let apply = |change: &Value| admin().patch(Patch::Apply, &path(&object), change);
    let reply = apply(&object);
    assert_eq!(reply.our_warnings(), [finding(&web)]);
    reply.stored();
    let reviews = || fence.count("admission_requests_total", &[("webhook", "validate")]);
    let before = reviews();
    // None of these is worth a call.
    admin().patch(Patch::Merge, &path(&object), &json!({"metadata": {"labels": {"edited": "yes"}}})).quietly();
    let status = json!({"status": {"replicas": 1}});
    admin().patch(Patch::Merge, &format!("{}/status", path(&object)), &status).quietly();
    let scale = json!({"spec": {"replicas": 4}});
    admin().patch(Patch::Merge, &format!("{}/scale", path(&object)), &scale).quietly();
    assert_eq!(reviews(), if has_conditions { before } else { before + 1 });
    let before = reviews();
    // This is, and what was there is not held against it.
    admin().patch(Patch::Merge, &path(&object), &json!({"spec": {"replicas": 5}})).quietly();
    assert_eq!(reviews(), before + 1);
    assert_eq!(admin().read(&object).stored()["spec"]["replicas"], 5);
    drop(fence);

    let (fence, _) = registered(&group, "deny");
    let web = fence.namespace("web");
    let object = rollout(&group, &web, "shop", &violating);
    let reply = admin().patch(Patch::Apply, &path(&object), &object);
    let expected = refusal(&finding(&web)).replace(crate::fence::VALIDATE, "customresources.validate.gpufence.io");
    assert_eq!(reply.refusal(), expected);
    assert!(admin().read(&object).is_missing());
    let fine = rollout(&group, &web, "fine", &Pod::named("shop"));
    admin().create(&fine).quietly();
    let change = json!({"spec": {"template": {"spec": {"tolerations": [exact_toleration()]}}}});
    assert_eq!(admin().patch(Patch::Merge, &path(&fine), &change).refusal(), expected);
    let ml = rollout(&group, &fence.namespace("ml"), "gpu", &Pod::named("trainer").with_gpu());
    admin().create(&ml).quietly();
}
