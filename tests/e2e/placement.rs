use serde_json::json;

use crate::api::admin;
use crate::contract::{LABEL, MODEL};
use crate::fence::Fence;
use crate::findings::{affinity_conflict, model_unknown, refusal, selector_conflict};
use crate::objects::{Pod, exact_tolerations};

#[test]
fn a_gpu_pod_that_selects_other_nodes_than_the_pools_is_refused() {
    let fence = Fence::enforcing();
    let pod = Pod::named("conflict").with_gpu().selecting(LABEL, "amd").in_namespace(&fence.namespace("ml"));
    assert_eq!(admin().create(&pod).refusal(), refusal(&selector_conflict("amd")));
    assert!(admin().read(&pod).is_missing());
}

#[test]
fn a_gpu_pod_whose_affinity_shuts_out_the_pool_is_refused() {
    let fence = Fence::enforcing();
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}],
    }}});
    let pod =
        Pod::named("affinity").with_gpu().with(&["spec", "affinity"], affinity).in_namespace(&fence.namespace("ml"));
    assert_eq!(admin().create(&pod).refusal(), refusal(&affinity_conflict()));
}

#[test]
fn the_model_that_a_pod_names_becomes_a_node_selector() {
    let fence = Fence::enforcing();
    let pod = Pod::named("a100")
        .with_gpu()
        .with(&["metadata", "annotations", MODEL], "a100")
        .in_namespace(&fence.namespace("ml"));
    admin().create(&pod).quietly();
    let stored = admin().read(&pod).stored();
    assert_eq!(stored["spec"]["nodeSelector"], json!({LABEL: "nvidia", MODEL: "a100"}));
    assert_eq!(exact_tolerations(&stored), 1);
}

#[test]
fn a_model_that_the_pool_does_not_have_is_refused() {
    let fence = Fence::enforcing();
    let pod = Pod::named("h1000")
        .with_gpu()
        .with(&["metadata", "annotations", MODEL], "h1000")
        .in_namespace(&fence.namespace("ml"));
    assert_eq!(admin().create(&pod).refusal(), refusal(&model_unknown("h1000")));
    assert!(admin().read(&pod).is_missing());
}
