use std::time::Duration;

use serde_json::{Value, json};

use crate::api::admin;
use crate::contract::{Contract, LABEL};
use crate::features::{has_resource, skip};
use crate::fence::{Fence, Registration};
use crate::findings::selector_missing;
use crate::objects::{Pod, exact_tolerations};
use crate::poll;
use crate::rival::{Order, Rival};

/// A fence that wants to be called again after others.
fn fence() -> Fence {
    let fence = Fence::serving(&Contract::enforcing());
    fence.register(&Registration { reinvocation_policy: "IfNeeded", ..Registration::default() });
    fence
}

/// Adds a toleration that is no business of ours, unless it is there.
fn add_toleration(pod: &Value) -> Value {
    let spot = json!({"key": "spot", "operator": "Exists"});
    match pod["spec"]["tolerations"].as_array() {
        Some(list) if list.contains(&spot) => json!([]),
        Some(_) => json!([{"op": "add", "path": "/spec/tolerations/0", "value": spot}]),
        None => json!([{"op": "add", "path": "/spec/tolerations", "value": [spot]}]),
    }
}

/// Removes the nodeSelector.
fn remove_selector(pod: &Value) -> Value {
    match pod["spec"]["nodeSelector"] {
        Value::Null => json!([]),
        _ => json!([{"op": "remove", "path": "/spec/nodeSelector"}]),
    }
}

fn assert_placed_once(pod: &Value) {
    assert_eq!(exact_tolerations(pod), 1, "{pod:#}");
    assert_eq!(pod["spec"]["nodeSelector"], json!({LABEL: "nvidia"}));
}

fn tolerates_spot(pod: &Value) -> bool {
    pod["spec"]["tolerations"].as_array().unwrap().iter().any(|toleration| toleration["key"] == "spot")
}

#[test]
fn with_rivals_before_and_after_there_is_one_copy_of_the_toleration() {
    for orders in [&[Order::Before][..], &[Order::After], &[Order::Before, Order::After]] {
        let fence = fence();
        let rival = Rival::serving(add_toleration);
        for order in orders {
            rival.register(&fence, *order, "IfNeeded");
        }
        let pod = Pod::named("gpu").with_gpu().in_namespace(&fence.namespace("ml"));
        admin().create(&pod).quietly();
        let stored = admin().read(&pod).stored();
        assert_placed_once(&stored);
        assert!(tolerates_spot(&stored), "{orders:?}: {stored:#}");
    }
}

#[test]
fn after_a_rival_that_changed_the_pod_the_webhook_is_called_again() {
    let fence = fence();
    let rival = Rival::serving(add_toleration);
    rival.register(&fence, Order::After, "Never");
    let calls = || fence.count("admission_requests_total", &[("webhook", "mutate"), ("dry_run", "false")]);
    assert_eq!(calls(), 0);
    let stored = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&fence.namespace("ml"))).quietly();
    assert_placed_once(&stored);
    assert_eq!(calls(), 2);
    assert_eq!(fence.count("decisions_total", &[("action", "inject"), ("dry_run", "false")]), 1);
}

#[test]
fn what_a_rival_removed_once_is_injected_again() {
    let fence = fence();
    let rival = Rival::serving(remove_selector);
    rival.register(&fence, Order::After, "Never");
    let stored = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&fence.namespace("ml"))).quietly();
    assert_placed_once(&stored);
}

#[test]
fn what_a_rival_removed_last_is_warned_of() {
    let fence = fence();
    let rival = Rival::serving(remove_selector);
    rival.register(&fence, Order::After, "IfNeeded");
    let reply = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&fence.namespace("ml")));
    assert_eq!(reply.our_warnings(), [selector_missing()]);
    assert_eq!(reply.stored()["spec"]["nodeSelector"], Value::Null);
}

#[test]
fn with_a_mutating_admission_policy_there_is_one_copy_of_the_toleration() {
    const GROUP: &str = "admissionregistration.k8s.io";
    let served = ["v1", "v1beta1"]
        .into_iter()
        .find(|version| has_resource(&format!("/apis/{GROUP}/{version}"), "mutatingadmissionpolicies"));
    let Some(version) = served else {
        return skip("a MutatingAdmissionPolicy beside the webhook", "this API server serves no such resource");
    };
    let fence = fence();
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": format!("{GROUP}/{version}"),
            "kind": kind,
            "metadata": {"name": fence.unique("rival")},
            "spec": spec,
        })
    };
    let selector = fence.webhook("any.example.com", 443, "/")["namespaceSelector"].take();
    fence.make(&object(
        "MutatingAdmissionPolicy",
        json!({
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "namespaceSelector": selector,
                "resourceRules":
                    [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: 'add', path: '/metadata/labels/policy', value: 'seen'}]",
            }}],
        }),
    ));
    fence.make(&object("MutatingAdmissionPolicyBinding", json!({"policyName": fence.unique("rival")})));
    let ml = fence.namespace("ml");
    let pod = Pod::named("gpu").with_gpu().in_namespace(&ml);
    poll::until("the policy is in force", Duration::from_secs(20), || {
        let reply = admin().dry_run().create(&pod);
        if reply.body["metadata"]["labels"]["policy"] == "seen" { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    assert_placed_once(&admin().create(&pod).quietly());
}
