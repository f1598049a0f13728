//! Pools that share a taint and differ by label: where a pod goes, and who may bring it there.

use std::collections::BTreeMap;

use gpufence::policy::{DAEMON_SET_CONTROLLER, Decision, Kind, NodeFact, Phase, Policy, Purpose};
use serde_json::{Value, json};

use crate::support::{Nodes, Request, gpu_pod, node, pod, policy};

/// `ml` may use the A100s, `llm` both.
fn fence() -> Policy {
    policy(
        "mode: enforce
templates: deny
selection: {annotation: pool}
pools:
- name: a100
  resources: [nvidia.com/gpu]
  taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
  nodeSelector: {accelerator: a100}
  namespaces: {names: [ml, llm]}
- name: h100
  resources: [nvidia.com/gpu]
  taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
  nodeSelector: {accelerator: h100}
  namespaces: {names: [llm]}
  models: {annotation: model, nodeLabel: model, values: [sxm]}",
    )
}

/// Decides where there is a node for each pool and one for none; what is known of `gone` is that it is not there.
fn decide(namespace: &str, username: &str, phase: Phase, kind: Kind, object: &Value) -> Decision {
    let gpu_node = |pool: &str| node(&[("accelerator", pool)], &[["nvidia.com/gpu", "present", "NoSchedule"]]);
    let known = BTreeMap::from([
        ("a", gpu_node("a100")),
        ("h", gpu_node("h100")),
        ("other", node(&[], &[])),
        ("gone", NodeFact::Absent),
    ]);
    let object = object.to_string();
    let object = kind.read(&object).unwrap();
    let request = Request { namespace, username, groups: &[], object: &object, old: None };
    request.decide_with(&fence(), phase, &Nodes { known, others: NodeFact::Unknown })
}

fn told(decision: &Decision) -> Vec<String> {
    decision.findings.iter().map(|finding| format!("{} {finding}", finding.action.as_str())).collect()
}

fn tolerating(more: &Value) -> Value {
    let mut spec = more.clone();
    spec["tolerations"] = json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]);
    spec
}

/// A DaemonSet's pod as its controller makes it for a node.
fn pinned(node: &str, mut pod: Value) -> Value {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    pod["spec"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "trainer", "controller": true}]);
    pod
}

/// No label is injected into such a pod, and its controller knows nothing of namespaces.
#[test]
fn a_daemon_sets_pod_is_judged_by_the_node_to_which_it_is_pinned() {
    let by_controller = |namespace: &str, node: &str, pod: Value| {
        decide(namespace, DAEMON_SET_CONTROLLER, Phase::Validating, Kind::Pod, &pinned(node, pod))
    };
    let gpu = || gpu_pod(&tolerating(&json!({})));
    assert_eq!(
        told(&by_controller("ml", "h", gpu())),
        [
            "deny toleration-outside-allowlist: spec.tolerations[0] passes the taint nvidia.com/gpu=present:NoSchedule of pool \
          h100, and its DaemonSet's controller puts it onto node h: pool h100 is closed to namespace ml (allowed: llm). Select \
          the nodes of pool a100 with nodeSelector accelerator=a100."
        ]
    );
    // Ordinary pods as well.
    assert!(by_controller("ml", "h", pod(&json!({}), &tolerating(&json!({})))).denies());
    for (namespace, node) in [("ml", "a"), ("llm", "h"), ("ml", "other"), ("ml", "gone")] {
        assert_eq!(told(&by_controller(namespace, node, gpu())), [""; 0], "{namespace} {node}");
    }
    let unknown = by_controller("ml", "new", gpu());
    assert_eq!(unknown.node_unknown.as_deref(), Some("new"));
    assert!(told(&unknown)[0].starts_with("warn toleration-outside-allowlist: "), "{unknown:?}");
    // Who only says to be one is not taken at that word, and placed by the scheduler.
    let forged = decide("ml", "jane", Phase::Validating, Kind::Pod, &pinned("h", gpu()));
    assert!(!forged.denies(), "{forged:?}");
}

/// Otherwise its author would hear of it from the events of a controller that never stops trying.
#[test]
fn a_daemon_set_that_would_run_on_a_closed_pool_is_refused() {
    let of = |spec: &Value| {
        let set = json!({"metadata": {"name": "trainer"}, "spec": {"template": {"spec": gpu_pod(spec)["spec"]}}});
        decide("ml", "jane", Phase::Validating, Kind::DaemonSet, &set)
    };
    let message = &told(&of(&tolerating(&json!({}))))[0];
    assert!(
        message.starts_with(
            "deny toleration-outside-allowlist: spec.template.spec.tolerations[0] passes the taint \
             nvidia.com/gpu=present:NoSchedule of pool h100, and its pods will run on all nodes of it: pool h100 is closed"
        ),
        "{message}"
    );
    assert!(!of(&tolerating(&json!({"nodeSelector": {"accelerator": "a100"}}))).denies());
    let terms = json!([{"matchExpressions": [{"key": "accelerator", "operator": "In", "values": ["a100"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    assert!(!of(&tolerating(&json!({"affinity": affinity}))).denies());
}

#[test]
fn an_ordinary_pod_that_selects_a_closed_pool_is_refused() {
    let selecting = |pool: &str| pod(&json!({}), &tolerating(&json!({"nodeSelector": {"accelerator": pool}})));
    let of = |pool: &str| decide("ml", "jane", Phase::Validating, Kind::Pod, &selecting(pool));
    assert!(
        told(&of("h100"))[0].contains("of pool h100, and its nodeSelector names that pool: pool h100 is closed to")
    );
    assert!(!of("a100").denies());
}

#[test]
fn required_node_affinity_chooses_a_pool_as_well() {
    let wanting = |operator: &str, pool: &str| {
        let terms = json!([{"matchExpressions": [{"key": "accelerator", "operator": operator, "values": [pool]}]}]);
        gpu_pod(&json!({
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        }))
    };
    let given = |namespace: &str, pod: &Value| {
        decide(namespace, "jane", Phase::Mutating, Kind::Pod, pod).injection.map(|injection| injection.purpose)
    };
    let complete = |pool: &str| Some(Purpose::Complete(pool.to_owned()));
    assert_eq!(given("llm", &wanting("In", "h100")), complete("h100"));
    assert_eq!(given("llm", &wanting("NotIn", "a100")), complete("h100"));
    assert_eq!(given("llm", &wanting("In", "a100")), complete("a100"));
    let closed = decide("ml", "jane", Phase::Validating, Kind::Pod, &wanting("In", "h100"));
    assert!(told(&closed)[0].starts_with("deny gpu-request-outside-allowlist: "), "{closed:?}");
    // What no pool meets is a conflict with the one that is meant otherwise.
    let nowhere = decide("llm", "jane", Phase::Validating, Kind::Pod, &wanting("In", "b200"));
    assert!(told(&nowhere)[0].starts_with("deny placement-conflict: "), "{nowhere:?}");
}

#[test]
fn a_model_that_the_chosen_pool_does_not_tell_apart_is_said() {
    let mut pod = gpu_pod(&json!({}));
    pod["metadata"]["annotations"] = json!({"model": "sxm", "pool": "a100"});
    assert_eq!(
        told(&decide("llm", "jane", Phase::Validating, Kind::Pod, &pod))[0],
        "deny placement-conflict: metadata.annotations[\"model\"] is \"sxm\", and pool a100 tells no models apart. Leave it out, \
         or choose a pool that does."
    );
    pod["metadata"]["annotations"]["pool"] = json!("h100");
    let chosen = decide("llm", "jane", Phase::Validating, Kind::Pod, &pod);
    assert!(!chosen.denies(), "{chosen:?}");
}
