//! What the contract can add beside the taint: ordinary pods kept off by affinity, a priority class for GPU pods.

use gpufence::policy::{DAEMON_SET_CONTROLLER, Decision, Kind, MIRROR_ANNOTATION, Phase, Policy, Purpose};
use serde_json::{Value, json};

use crate::support::{Request, gpu_pod, pod, policy, try_contract};

const LABEL: &str = "workload.example.com/accelerator";
const FENCED: &str = "injection: {fenceOrdinary: [workload.example.com/accelerator]}";

fn decide(policy: &Policy, namespace: &str, username: &str, pod: &Value) -> Decision {
    let object = pod.to_string();
    let object = Kind::Pod.read(&object).unwrap();
    let groups = &["system:nodes"];
    Request { namespace, username, groups, object: &object, old: None }.decide(policy, Phase::Mutating)
}

fn enforcing(more: &str) -> Policy {
    policy(&format!("mode: enforce\n{more}"))
}

/// The pod after the patch, which changes nothing the second time.
fn patched(policy: &Policy, namespace: &str, pod: &Value) -> Value {
    let mut after = pod.clone();
    if let Some(injection) = decide(policy, namespace, "jane", pod).injection {
        json_patch::patch(&mut after, &injection.patch).unwrap();
    }
    assert_eq!(decide(policy, namespace, "jane", &after).injection, None, "{after}");
    after
}

fn absent() -> Value {
    json!({"key": LABEL, "operator": "DoesNotExist"})
}

fn required(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn ordinary_pods_are_kept_off_by_every_term_of_their_affinity() {
    let policy = enforcing(FENCED);
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let host = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let anti = json!({"requiredDuringSchedulingIgnoredDuringExecution": []});
    let only = required(&json!([{"matchExpressions": [absent()]}]));
    let mut beside = only.clone();
    beside["podAntiAffinity"] = anti.clone();
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [zone]}}]);
    let mut preferring = only.clone();
    preferring["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred.clone();
    for (before, after) in [
        (Value::Null, only.clone()),
        (json!({}), only.clone()),
        (json!({"nodeAffinity": null}), only.clone()),
        (json!({"podAntiAffinity": anti}), beside),
        (json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": null}}), only.clone()),
        (json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}), preferring),
        (only.clone(), only),
        // Terms are alternatives: each is narrowed.
        (
            required(
                &json!([{"matchExpressions": [zone]}, {"matchFields": [host]}, {"matchExpressions": null, "matchFields": [host]}]),
            ),
            required(&json!([
                {"matchExpressions": [zone, absent()]},
                {"matchFields": [host], "matchExpressions": [absent()]},
                {"matchFields": [host], "matchExpressions": [absent()]},
            ])),
        ),
        (
            required(&json!([{"matchExpressions": [absent(), zone]}, {"matchExpressions": [zone]}])),
            required(&json!([{"matchExpressions": [absent(), zone]}, {"matchExpressions": [zone, absent()]}])),
        ),
        // A term that asks for nothing matches no node, and must not begin to.
        (
            required(&json!([{}, {"matchExpressions": []}, {"matchExpressions": [zone]}])),
            required(&json!([{}, {"matchExpressions": []}, {"matchExpressions": [zone, absent()]}])),
        ),
        (required(&json!([{}])), required(&json!([{}]))),
        (required(&json!([])), required(&json!([]))),
    ] {
        let mut ordinary = pod(&json!({}), &json!({"affinity": before}));
        if before.is_null() {
            ordinary["spec"].as_object_mut().unwrap().remove("affinity");
        }
        assert_eq!(patched(&policy, "web", &ordinary)["spec"]["affinity"], after, "{before}");
    }
}

#[test]
fn who_belongs_on_gpu_nodes_is_not_kept_off() {
    let policy = enforcing(FENCED);
    let ordinary = pod(&json!({}), &json!({}));
    let tolerating = pod(&json!({}), &json!({"tolerations": [{"operator": "Exists"}]}));
    let injection =
        |policy: &Policy, namespace, username, pod: &Value| decide(policy, namespace, username, pod).injection;
    let fence = Some(Purpose::Fence(vec![LABEL.to_owned()]));
    let purpose =
        |namespace, username, pod: &Value| injection(&policy, namespace, username, pod).map(|given| given.purpose);
    assert_eq!(purpose("web", "jane", &ordinary), fence);
    assert_eq!(purpose("ml-team", "jane", &ordinary), fence);
    assert_eq!(purpose("web", "jane", &tolerating), fence);
    // Whoever may use the pool and lets the pod in means it to go there.
    assert_eq!(purpose("ml-team", "jane", &tolerating), None);
    assert_eq!(purpose("ml-team", "jane", &gpu_pod(&json!({}))), Some(Purpose::Complete("nvidia".to_owned())));
    let mut agent = ordinary.clone();
    agent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]);
    assert_eq!(purpose("web", DAEMON_SET_CONTROLLER, &agent), None);
    assert_eq!(purpose("web", "jane", &agent), fence, "a reference alone proves nothing");
    let mut mirror = ordinary.clone();
    mirror["metadata"]["annotations"] = json!({MIRROR_ANNOTATION: "x"});
    mirror["spec"]["nodeName"] = json!("n");
    assert_eq!([purpose("web", "system:node:n", &mirror), purpose("web", "jane", &mirror)], [None, fence.clone()]);
    // Whom the contract trusts to choose a node has chosen, and a kubelet would reject what it must not run.
    let mut placed = ordinary.clone();
    placed["spec"]["nodeName"] = json!("n");
    assert_eq!([purpose("web", "system:kube-scheduler", &placed), purpose("web", "jane", &placed)], [None, fence]);
    let exempting = enforcing(&format!("{FENCED}\nexemptions: [{{name: e, reason: r, namespaces: [web]}}]"));
    let exempt = decide(&exempting, "web", "jane", &ordinary);
    assert_eq!((exempt.injection, exempt.exempted[0].exemption.as_str()), (None, "e"));
    assert_eq!(injection(&enforcing(""), "web", "jane", &ordinary), None);
    let audited = injection(&super::support::policy(FENCED), "web", "jane", &ordinary).unwrap();
    assert!(!audited.enforced);
}

/// An exemption for one pool says nothing of the labels of another.
#[test]
fn who_is_exempt_for_one_pool_is_kept_off_the_others() {
    let two = "mode: enforce
pools:
- name: gpu
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: nvidia}
- name: tpu
  resources: [google.com/tpu]
  taints: [{key: google.com/tpu, effect: NoSchedule}]
  nodeSelector: {tpu: 'true'}
injection: {fenceOrdinary: [accelerator, tpu]}
exemptions: [{name: joe, reason: r, users: [joe], pools: [tpu]}]";
    let decision = decide(&policy(two), "web", "joe", &pod(&json!({}), &json!({})));
    assert_eq!(decision.injection.unwrap().purpose, Purpose::Fence(vec!["accelerator".to_owned()]));
    assert_eq!(decision.exempted[0].exemption, "joe");
}

#[test]
fn only_labels_of_pools_fence() {
    let error = try_contract("injection: {fenceOrdinary: [kubernetes.io/arch]}").unwrap_err().to_string();
    assert!(
        error.ends_with(
            "injection.fenceOrdinary[0]: found \"kubernetes.io/arch\"; valid is a label of a pool's nodeSelector: \
             workload.example.com/accelerator"
        ),
        "{error}"
    );
    let error = try_contract(&priority("GPU")).unwrap_err().to_string();
    assert!(
        error.ends_with("pools[0].priorityClassName: found \"GPU\"; valid is an object's name, such as gpu-batch"),
        "{error}"
    );
}

fn priority(class: &str) -> String {
    format!(
        "mode: enforce
pools:
- name: nvidia
  resources: [nvidia.com/gpu]
  taints: [{{key: dedicated, value: gpu, effect: NoSchedule}}]
  nodeSelector: {{accelerator: nvidia}}
  namespaces: {{names: [ml-team]}}
  priorityClassName: {class}"
    )
}

/// The Priority plugin has written priority and preemptionPolicy before any webhook is asked, comes again after it, and
/// then refuses a pod in which they are not those of its class.
#[test]
fn gpu_pods_without_a_priority_class_are_given_the_pools() {
    let policy = policy(&priority("gpu-batch"));
    let after =
        patched(&policy, "ml-team", &gpu_pod(&json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})));
    assert_eq!(after["spec"]["priorityClassName"], "gpu-batch");
    assert_eq!((after["spec"].get("priority"), after["spec"].get("preemptionPolicy")), (None, None));
    let after = patched(&policy, "ml-team", &gpu_pod(&json!({"priorityClassName": ""})));
    assert_eq!(after["spec"]["priorityClassName"], "gpu-batch");
    let own = json!({"priorityClassName": "own", "priority": 7, "preemptionPolicy": "Never"});
    let after = patched(&policy, "ml-team", &gpu_pod(&own));
    assert_eq!(after["spec"]["nodeSelector"], json!({"accelerator": "nvidia"}));
    for field in ["priorityClassName", "priority", "preemptionPolicy"] {
        assert_eq!(after["spec"][field], own[field]);
    }
    let ordinary = pod(&json!({}), &json!({"priority": 0}));
    assert_eq!(patched(&policy, "ml-team", &ordinary), ordinary);
    assert_eq!(patched(&policy, "web", &gpu_pod(&json!({"priority": 0})))["spec"]["priorityClassName"], Value::Null);
}
