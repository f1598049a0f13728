//! What a pod is to a GPU node.

use super::outcome::Class;
use super::snapshot::Pod;
use super::view::{Glance, View};
use crate::policy::Kind;

/// The namespaces that every cluster has for itself.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The priority classes that every cluster has for itself.
const SYSTEM_PRIORITIES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// What a pod is to a GPU node.
pub(super) fn class<'s>(view: &View<'s>, pod: &'s Pod) -> Class {
    let Glance { asked, is_exempt } = view.glance(pod);
    // The resources count on their own where the pod cannot be judged.
    if !asked.is_empty() || has_gpu_resource(view, pod) {
        Class::GpuWorkload
    } else if is_of_daemon_set(pod) {
        Class::DaemonSet
    } else if is_exempt
        || pod.is_mirror
        || SYSTEM_NAMESPACES.contains(&&*pod.namespace)
        || SYSTEM_PRIORITIES.contains(&&*pod.priority_class)
    {
        Class::Platform
    } else {
        Class::Ordinary
    }
}

/// Whether the pod requests no GPU and serves neither a node nor the cluster: it could as well be elsewhere.
pub(super) fn is_ordinary<'s>(view: &View<'s>, pod: &'s Pod) -> bool {
    class(view, pod) == Class::Ordinary
}

/// Whether the pod requests a GPU of some pool.
pub(super) fn requests_gpu<'s>(view: &View<'s>, pod: &'s Pod) -> bool {
    class(view, pod) == Class::GpuWorkload
}

/// Whether a DaemonSet made the pod, whoever made that: an operator's agents are a DaemonSet's pods too.
pub(super) fn is_of_daemon_set(pod: &Pod) -> bool {
    pod.controller.as_ref().is_some_and(|owner| &*owner.kind == Kind::DaemonSet.name())
}

fn has_gpu_resource(view: &View<'_>, pod: &Pod) -> bool {
    let mut requests = pod.requests.extended.iter().filter(|(_, amount)| *amount > 0);
    requests.any(|(name, _)| view.policy.pools().iter().any(|pool| pool.resources.matches(name)))
}
