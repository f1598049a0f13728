//! Whether a node takes pods now: whether the GPUs that are free on it can be given to anybody, and the taints that are
//! there for a while.

use super::{Subject, taints};
use crate::audit::finding::{Check, Finding, Severity};
use crate::audit::snapshot::{Node, Taint};
use crate::audit::view::{Standing, View};
use crate::policy::{Pool, visible};

/// The taints that say no more than that a node is cordoned, and that it is not ready.
const CORDON: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Who sets a taint that comes and goes, and what for: by its key, or how that begins where it ends with a slash.
const SETTERS: [(&str, &str); 17] = [
    ("node.kubernetes.io/disk-pressure", "the node controller sets it while the kubelet reports a full disk"),
    ("node.kubernetes.io/memory-pressure", "the node controller sets it while the kubelet reports too little memory"),
    ("node.kubernetes.io/pid-pressure", "the node controller sets it while the kubelet reports too many processes"),
    ("node.kubernetes.io/network-unavailable", "the node controller sets it until the network of the node is set up"),
    ("node.kubernetes.io/out-of-service", "an administrator sets it on a node that is down, and takes it away again"),
    ("node.kubernetes.io/", "Kubernetes sets it and takes it away again"),
    ("node.cloudprovider.kubernetes.io/", "the cloud controller manager sets it until it has looked at the machine"),
    ("ToBeDeletedByClusterAutoscaler", "the Cluster Autoscaler sets it before it deletes the node"),
    ("DeletionCandidateOfClusterAutoscaler", "the Cluster Autoscaler sets it on a node that it may delete soon"),
    ("startup-taint.cluster-autoscaler.kubernetes.io/", "whoever starts the node sets it, until its agents run"),
    ("ignore-taint.cluster-autoscaler.kubernetes.io/", "whoever starts the node sets it, until its agents run"),
    ("karpenter.sh/unregistered", "Karpenter sets it until the node has joined"),
    ("karpenter.sh/", "Karpenter sets it before it replaces or deletes the node"),
    ("node.cluster.x-k8s.io/", "Cluster API sets it while it sets the machine up or replaces it"),
    ("aws-node-termination-handler/", "the AWS Node Termination Handler sets it before the machine goes"),
    ("cloud.google.com/impending-node-termination", "Google Cloud sets it before the machine goes"),
    ("node.cilium.io/agent-not-ready", "whoever starts the node sets it, and Cilium takes it away once its agent runs"),
];

/// How the taints begin that say that a node is about to go.
const LEAVING: [&str; 6] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupt",
    "karpenter.sh/unschedulable",
    "node.cluster.x-k8s.io/outdated-revision",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
];

/// Whether GPU pods can be put on the node for this resource of its: it is ready and not cordoned, carries the labels of
/// a pool of the resource, and no hard taint that the exact tolerations of that pool do not pass.
pub(in crate::audit) fn takes_gpu_pods(view: &View<'_>, node: &Node, standing: Standing, resource: &str) -> bool {
    let is_open = |pool: &Pool| {
        pool.resources.matches(resource)
            && pool.is_met_by(|key| super::label(node, key))
            && !node.taints.iter().any(|taint| keeps_off(pool, taint))
    };
    node.ready == Some(true) && !node.unschedulable && view.pools(standing.pools).any(is_open)
}

/// Whether the exact tolerations of the pool leave the taint in the way of its GPU pods.
fn keeps_off(pool: &Pool, taint: &Taint) -> bool {
    taint.is_hard() && !pool.taints.iter().any(|own| taint.is(own))
}

/// Tells of the taints that are there for a while and keep pods off; those of a cordon and of a lost node are told of by
/// what they come from.
pub(super) fn judge(subject: &Subject<'_, '_>, gpus: &str, findings: &mut Vec<Finding>) {
    let (node, name) = (subject.node, subject.name());
    let is_told = |taint: &Taint| {
        (node.unschedulable && &*taint.key == CORDON) || (node.ready == Some(false) && NOT_READY.contains(&&*taint.key))
    };
    let passing = node
        .taints
        .iter()
        .enumerate()
        .filter(|(_, taint)| taints::is_transient(&taint.key) && keeps_off(subject.pool, taint) && !is_told(taint));
    for (place, taint) in passing {
        let is_under =
            |start: &str| if start.ends_with('/') { taint.key.starts_with(start) } else { *taint.key == *start };
        let who = SETTERS.iter().find(|(key, _)| is_under(key)).map(|(_, who)| *who);
        let who = who.unwrap_or("whoever starts the node sets it, and the agent that it waits for takes it away");
        let describe = subject.command("kubectl describe node");
        let is_leaving = LEAVING.iter().any(|start| taint.key.starts_with(start));
        let (rule, action) = if is_leaving {
            (Check::NodeCordoned, format!("nothing, where the node is to go; otherwise {describe}"))
        } else {
            (Check::NodeNotReady, format!("{describe}, where the taint stays: its conditions and events say why"))
        };
        let shown = taint.to_string();
        let message = format!(
            "the node {name} carries the taint {} for now ({who}): {gpus} can be given to no new pod",
            visible(&shown)
        );
        let finding = subject.finding(rule, Severity::Info, &message, &action);
        findings.push(finding.at(format!("spec.taints[{place}]")).particularly(&*taint.key));
    }
}
