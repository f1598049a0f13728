use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::contract::{LABEL, exact_toleration};
use crate::features::needs_field;
use crate::fence::Fence;
use crate::findings::{
    refusal, request, request_outside, toleration, toleration_broad, toleration_idle, toleration_outside,
};
use crate::objects::{Pod, completed, exact_tolerations};

/// What the API server alone makes of the spec of a pod.
fn untouched_spec(fence: &Fence, pod: &Pod) -> Value {
    admin().create(&pod.in_namespace(&fence.unfenced_namespace())).stored()["spec"].take()
}

/// The tolerations that pass the pool's taint, and how each does it.
fn passing() -> [(&'static str, Value); 8] {
    [
        ("exact", exact_toleration()),
        ("missing-operator", json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"})),
        ("no-effect", json!({"key": "dedicated", "operator": "Equal", "value": "gpu"})),
        ("no-operator-no-effect", json!({"key": "dedicated", "value": "gpu"})),
        ("exists", json!({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"})),
        ("exists-no-effect", json!({"key": "dedicated", "operator": "Exists"})),
        ("no-key", json!({"operator": "Exists", "effect": "NoSchedule"})),
        ("everything", json!({"operator": "Exists"})),
    ]
}

/// Tolerations that look like it and do not pass.
fn near_misses() -> [(&'static str, Value); 9] {
    [
        ("other-value", json!({"key": "dedicated", "operator": "Equal", "value": "cpu", "effect": "NoSchedule"})),
        ("other-case", json!({"key": "dedicated", "operator": "Equal", "value": "GPU", "effect": "NoSchedule"})),
        ("no-value", json!({"key": "dedicated", "operator": "Equal", "effect": "NoSchedule"})),
        ("longer-key", json!({"key": "dedicated-gpu", "operator": "Exists"})),
        ("prefixed-key", json!({"key": "example.com/dedicated", "operator": "Exists"})),
        ("no-execute", json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute"})),
        ("prefer", json!({"key": "dedicated", "operator": "Exists", "effect": "PreferNoSchedule"})),
        ("all-no-execute", json!({"operator": "Exists", "effect": "NoExecute"})),
        (
            "for-a-minute",
            json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}),
        ),
    ]
}

#[test]
fn a_gpu_pod_in_an_allowed_namespace_is_stored_with_exactly_the_toleration_and_the_node_selector_added() {
    let fence = Fence::enforcing();
    let ml = fence.namespace("ml");
    let cases = [
        Pod::named("plain").with_gpu(),
        Pod::named("limits-only").limiting("nvidia.com/gpu", 1),
        Pod::named("text-quantity").requesting("nvidia.com/gpu", "2"),
        Pod::named("mig").requesting("nvidia.com/mig-1g.5gb", 1),
        Pod::named("init").with_init_container("nvidia.com/gpu", None),
        Pod::named("other-toleration").with_gpu().tolerating(&json!({"key": "spot", "operator": "Exists"})),
        Pod::named("other-selector").with_gpu().selecting("disk", "ssd"),
    ];
    for pod in cases {
        let object = pod.in_namespace(&ml);
        admin().create(&object).quietly();
        let stored = admin().read(&object).stored();
        assert_eq!(stored["spec"], completed(&untouched_spec(&fence, &pod)), "{object:#}");
        assert_eq!(stored["metadata"]["labels"], object["metadata"]["labels"]);
        assert_eq!(stored["metadata"]["annotations"], Value::Null);
    }
}

#[test]
fn a_gpu_pod_that_has_its_placement_already_is_left_as_it_is() {
    let fence = Fence::enforcing();
    let pod = Pod::named("complete")
        .with_gpu()
        .tolerating(&exact_toleration())
        .selecting(LABEL, "nvidia")
        .in_namespace(&fence.namespace("ml"));
    let stored = admin().create(&pod).quietly();
    assert_eq!(exact_tolerations(&stored), 1);
    assert_eq!(stored["spec"]["nodeSelector"], pod["spec"]["nodeSelector"]);
}

#[test]
fn an_ordinary_pod_is_stored_as_if_no_webhook_looked() {
    let fence = Fence::enforcing();
    for word in ["ml", "web"] {
        let namespace = fence.namespace(word);
        for pod in [
            Pod::named("ordinary").requesting("cpu", "100m"),
            Pod::named("no-gpu").requesting("nvidia.com/gpu", 0),
            Pod::named("other-device").requesting("example.com/fpga", 1),
        ] {
            let object = pod.in_namespace(&namespace);
            admin().create(&object).quietly();
            assert_eq!(admin().read(&object).stored()["spec"], untouched_spec(&fence, &pod), "{object:#}");
        }
    }
}

#[test]
fn every_toleration_that_passes_the_taint_is_refused_outside() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    for (name, tolerated) in passing() {
        let pod = Pod::named(name).tolerating(&tolerated).in_namespace(&web);
        let reply = admin().create(&pod);
        assert_eq!(reply.refusal(), refusal(&toleration_outside(&toleration(0), &web)), "{tolerated}");
        let cause = &reply.body["details"]["causes"][0];
        assert_eq!(cause["reason"], "toleration-outside-allowlist");
        assert_eq!(cause["field"], "spec.tolerations[0]");
        assert!(admin().read(&pod).is_missing(), "{tolerated}");
    }
}

#[test]
fn the_toleration_that_passes_is_named_among_others() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let pod = Pod::named("mixed")
        .tolerating(&json!({"key": "spot", "operator": "Exists"}))
        .tolerating(&exact_toleration())
        .in_namespace(&web);
    assert_eq!(admin().create(&pod).refusal(), refusal(&toleration_outside(&toleration(1), &web)));
}

#[test]
fn a_toleration_that_only_looks_like_a_passing_one_is_admitted_outside() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    for (name, tolerated) in near_misses() {
        admin().create(&Pod::named(name).tolerating(&tolerated).in_namespace(&web)).quietly();
    }
}

#[test]
fn a_gpu_request_is_refused_outside_wherever_it_stands() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let cases = [
        (Pod::named("requests").with_gpu(), request("containers", "nvidia.com/gpu")),
        // The API server makes the request from the limit.
        (Pod::named("limits-only").limiting("nvidia.com/gpu", 1), request("containers", "nvidia.com/gpu")),
        (Pod::named("mig").limiting("nvidia.com/mig-3g.20gb", 1), request("containers", "nvidia.com/mig-3g.20gb")),
        (Pod::named("init").with_init_container("nvidia.com/gpu", None), request("initContainers", "nvidia.com/gpu")),
    ];
    for (pod, field) in cases {
        let pod = pod.in_namespace(&web);
        assert_eq!(admin().create(&pod).refusal(), refusal(&request_outside(&field, &web)));
        assert!(admin().read(&pod).is_missing());
    }
}

#[test]
fn a_sidecar_that_asks_for_a_gpu_counts_like_any_container() {
    let fence = Fence::enforcing();
    let (ml, web) = (fence.namespace("ml"), fence.namespace("web"));
    let pod = Pod::named("sidecar").with_init_container("nvidia.com/gpu", Some("Always"));
    let unfenced = pod.in_namespace(&fence.unfenced_namespace());
    if !needs_field(&unfenced, "/spec/initContainers/0/restartPolicy", "GPU requests of sidecars") {
        return;
    }
    let stored = admin().create(&pod.in_namespace(&ml)).quietly();
    assert_eq!(stored["spec"], completed(&untouched_spec(&fence, &pod)));
    let field = request("initContainers", "nvidia.com/gpu");
    assert_eq!(admin().create(&pod.in_namespace(&web)).refusal(), refusal(&request_outside(&field, &web)));
}

#[test]
fn a_pod_that_breaks_two_rules_is_told_of_both() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let pod = Pod::named("both").with_gpu().tolerating(&exact_toleration()).in_namespace(&web);
    let reply = admin().create(&pod);
    let first = toleration_outside(&toleration(0), &web);
    let second = request_outside(&request("containers", "nvidia.com/gpu"), &web);
    assert_eq!(reply.refusal(), refusal(&format!("{first} Also: {second}")));
}

#[test]
fn an_allowed_namespace_is_warned_of_what_is_wider_than_it_needs() {
    let fence = Fence::enforcing();
    let ml = fence.namespace("ml");
    let wide = Pod::named("wide").with_gpu().tolerating(&json!({"operator": "Exists"})).in_namespace(&ml);
    let reply = admin().create(&wide);
    assert_eq!(reply.our_warnings(), [toleration_broad()]);
    assert_eq!(exact_tolerations(&reply.stored()), 1, "the exact one is there too");
    let idle = Pod::named("idle").tolerating(&exact_toleration()).in_namespace(&ml);
    let reply = admin().create(&idle);
    assert_eq!(reply.our_warnings(), [toleration_idle()]);
    reply.stored();
}

#[test]
fn a_dry_run_is_decided_in_full_and_stores_nothing() {
    let fence = Fence::enforcing();
    let (ml, web) = (fence.namespace("ml"), fence.namespace("web"));
    let admitted = Pod::named("gpu").with_gpu();
    let object = admitted.in_namespace(&ml);
    let would_be = admin().dry_run().create(&object).quietly();
    assert_eq!(would_be["spec"], completed(&untouched_spec(&fence, &admitted)));
    assert!(admin().read(&object).is_missing());
    let refused = Pod::named("refused").tolerating(&exact_toleration()).in_namespace(&web);
    let reply = admin().dry_run().create(&refused);
    assert_eq!(reply.refusal(), refusal(&toleration_outside(&toleration(0), &web)));
    assert!(admin().read(&refused).is_missing());
    let count = |dry_run| fence.count("decisions_total", &[("action", "deny"), ("dry_run", dry_run)]);
    assert_eq!((count("true"), count("false")), (1, 0));
}

#[test]
fn a_gated_pod_is_judged_like_any_other() {
    let fence = Fence::enforcing();
    let (ml, web) = (fence.namespace("ml"), fence.namespace("web"));
    let gates = json!([{"name": "e2e.gpufence.example/gate"}]);
    let pod = |name| Pod::named(name).with(&["spec", "schedulingGates"], gates.clone());
    let unfenced = pod("gated").in_namespace(&fence.unfenced_namespace());
    if !needs_field(&unfenced, "/spec/schedulingGates", "pods with scheduling gates") {
        return;
    }
    let stored = admin().create(&pod("gpu").with_gpu().in_namespace(&ml)).quietly();
    assert_eq!(exact_tolerations(&stored), 1);
    let ordinary = pod("ordinary").in_namespace(&web);
    let ordinary_path = path(&ordinary);
    let stored = admin().create(&ordinary).quietly();
    let add = |tolerations: Value| json!({"spec": {"tolerations": tolerations}});
    let mut tolerations = stored["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let field = toleration(tolerations.len());
    tolerations.push(exact_toleration());
    let reply = admin().patch(Patch::Merge, &ordinary_path, &add(tolerations.into()));
    assert_eq!(reply.refusal(), refusal(&toleration_outside(&field, &web)));
    let selector = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    admin().patch(Patch::Merge, &ordinary_path, &selector).quietly();
    admin().patch(Patch::Merge, &ordinary_path, &json!({"spec": {"schedulingGates": null}})).quietly();
}
