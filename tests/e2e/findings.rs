use crate::contract::{LABEL, MODEL, exact_toleration};
use crate::fence::VALIDATE;

/// What kubectl prints of a refusal for a finding.
pub fn refusal(finding: &str) -> String {
    format!("admission webhook \"{VALIDATE}\" denied the request: {finding}")
}

/// The finding about a toleration outside, of which this is the field.
pub fn toleration_outside(field: &str, namespace: &str) -> String {
    format!(
        "toleration-outside-allowlist: {field} passes the taint dedicated=gpu:NoSchedule of pool nvidia, closed to \
         namespace {namespace} (allowed: ml-*). Remove it or use an allowed namespace."
    )
}

/// The finding about a pod put past the scheduler, by this field, onto a node of the pool that is closed to its namespace.
pub fn placed_outside(field: &str, node: &str, namespace: &str) -> String {
    format!(
        "node-name-bypass: {field} puts this pod onto node {node} of pool nvidia past the scheduler, closed to namespace \
         {namespace} (allowed: ml-*). Remove it or use an allowed namespace."
    )
}

/// The finding about one that the namespace could let the scheduler put there.
pub fn placed_untolerated(node: &str) -> String {
    format!(
        "node-name-bypass: spec.nodeName puts this pod onto node {node} of pool nvidia past the scheduler and its taint \
         dedicated=gpu:NoSchedule, which the pod does not tolerate. Leave it out: the scheduler places the pod."
    )
}

/// The finding about a Binding that somebody else than a scheduler makes.
pub fn bound_by_hand(node: &str) -> String {
    format!(
        "node-name-bypass: target.name puts this pod onto node {node} of pool nvidia past the scheduler, and admin is not in \
         identities.schedulers. Add it there if it schedules pods, or leave the Binding to who does."
    )
}

/// The finding about a Binding of the administrator in a namespace that may not use the pool.
pub fn bound_outside(node: &str, namespace: &str) -> String {
    format!(
        "node-name-bypass: target.name puts this pod onto node {node} of pool nvidia past the scheduler, which is closed to \
         namespace {namespace} (allowed: ml-*), and admin is not in identities.schedulers. Add it there if it schedules pods, \
         or leave the Binding to who does."
    )
}

/// The finding about a node that is not there.
pub fn placed_nowhere(node: &str) -> String {
    format!(
        "node-name-bypass: spec.nodeName is {node}, and there is no such node: one that comes by this name may be a GPU \
         node, and no taint keeps out who waits for it. Leave it out: the scheduler places the pod."
    )
}

/// The field of a toleration by its place.
pub fn toleration(index: usize) -> String {
    format!("spec.tolerations[{index}]")
}

/// The finding about a GPU request outside, of which this is the field.
pub fn request_outside(field: &str, namespace: &str) -> String {
    format!(
        "gpu-request-outside-allowlist: {field} asks for pool nvidia, closed to namespace {namespace} (allowed: \
         ml-*). Remove it or use an allowed namespace."
    )
}

/// The field of a request for a resource in the first container of a list.
pub fn request(list: &str, resource: &str) -> String {
    format!("spec.{list}[0].resources.requests[\"{resource}\"]")
}

/// The finding about the first toleration, which is everything that a toleration can be.
pub fn toleration_broad() -> String {
    let exact = exact_toleration();
    let [key, operator, value, effect] =
        ["key", "operator", "value", "effect"].map(|field| exact[field].as_str().unwrap());
    format!(
        "broad-toleration: spec.tolerations[0] has no key, operator Exists and no effect, wider than pool nvidia \
         needs. Write {{key: {key}, operator: {operator}, value: {value}, effect: {effect}}}, or leave it out: GPU \
         pods get it."
    )
}

/// The finding about the first toleration of a pod in an allowed namespace that has no use for it.
pub fn toleration_idle() -> String {
    "toleration-without-gpu-request: spec.tolerations[0] lets this pod onto the GPU nodes of pool nvidia, but it \
     requests none of nvidia.com/gpu, nvidia.com/mig-*. Remove the toleration or request a GPU."
        .to_owned()
}

/// The finding about a nodeSelector for other nodes than the pool's.
pub fn selector_conflict(selected: &str) -> String {
    format!(
        "placement-conflict: spec.nodeSelector[\"{LABEL}\"] is {selected}, and the nodes of pool nvidia that this pod \
         asks for have nvidia: it could never run. Remove the label or set it to nvidia."
    )
}

/// The finding about a node affinity for nodes without the pool's label.
pub fn affinity_conflict() -> String {
    format!(
        "placement-conflict: spec.affinity.nodeAffinity wants {LABEL} DoesNotExist, and the nodes of pool nvidia have \
         nvidia: this pod could never run. Change the expression."
    )
}

/// The finding about a model that there is not.
pub fn model_unknown(model: &str) -> String {
    format!(
        "placement-conflict: metadata.annotations[\"{MODEL}\"] is \"{model}\", a model that pool nvidia does not have. \
         Use one of a100, h100, or leave it out."
    )
}

/// The finding about a GPU pod that lost its nodeSelector.
pub fn selector_missing() -> String {
    format!(
        "placement-missing: this GPU pod lacks the nodeSelector {LABEL}=nvidia of pool nvidia: mutation did not run \
         or was undone. Recreate the pod; check the mutating webhook."
    )
}
