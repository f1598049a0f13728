//! Who is exempt, and what proves it: the requester's identity, which the API server authenticated.
//! Labels, annotations, owner references and names in the object are claims that anyone can write.

use super::allowlist::Patterns;
use super::pod::MIRROR_ANNOTATION;
use super::subject::Subject;
use super::workload::Kind;

/// The user name under which the DaemonSet controller makes pods in a cluster whose controllers have
/// service accounts of their own, as in every conformant distribution.
pub const DAEMON_SET_CONTROLLER: &str = "system:serviceaccount:kube-system:daemon-set-controller";

/// A named exception to the contract for the pods of some DaemonSets.
#[derive(Debug, Clone)]
pub struct Exemption {
    /// The exemption's name, for messages.
    pub name: String,
    /// Why it is there.
    pub reason: String,
    /// The DaemonSets' namespaces.
    pub namespaces: Patterns,
    /// The DaemonSets' names.
    pub daemon_sets: Patterns,
}

impl Exemption {
    /// Whether the subject is a pod that the DaemonSet controller makes for a listed DaemonSet, or
    /// the listed DaemonSet itself.
    pub(crate) fn covers(&self, subject: &Subject<'_>, controllers: &[String]) -> bool {
        if !self.namespaces.matches(subject.namespace) {
            return false;
        }
        match subject.object.kind {
            // The controller acts for every tenant, so the owner must be listed.
            Kind::Pod => daemon_set_of(subject, controllers).is_some_and(|name| self.daemon_sets.matches(name)),
            // Its pods will be exempt, and here the name is no claim: it is the object's own.
            Kind::DaemonSet => self.daemon_sets.matches(&subject.object.metadata().name),
            _ => false,
        }
    }
}

/// The DaemonSet whose pod the subject is. Proved by the requester: the owner reference alone can be
/// forged, and an identity that several controllers share makes other pods as well.
pub(crate) fn daemon_set_of<'a>(subject: &'a Subject<'_>, controllers: &[String]) -> Option<&'a str> {
    if subject.object.kind != Kind::Pod || !controllers.iter().any(|name| name == subject.requester.username) {
        return None;
    }
    let owner = subject.object.pod.metadata.controller.0.as_ref().filter(|owner| owner.is_daemon_set())?;
    Some(&owner.name)
}

/// Whether the subject is the mirror of a static pod, made by the kubelet of the node it runs on.
pub(crate) fn is_mirror_pod(subject: &Subject<'_>) -> bool {
    let pod = &subject.object.pod;
    subject.object.kind == Kind::Pod
        && pod.metadata.annotations.contains(MIRROR_ANNOTATION)
        && subject.requester.is_node(&pod.spec.node_name)
}
