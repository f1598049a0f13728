//! The controllers that make pods for everybody, and the identities under which they do.

use std::borrow::Cow;

use super::pod::OwnerReference;
use super::subject::Subject;
use super::workload::Kind;

/// The user name under which the DaemonSet controller makes pods in a cluster whose controllers have
/// service accounts of their own, as in every conformant distribution.
pub const DAEMON_SET_CONTROLLER: &str = "system:serviceaccount:kube-system:daemon-set-controller";

/// A controller of Kubernetes' own that makes pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named for the kinds whose pods they make")]
pub enum Controller {
    DaemonSet,
    ReplicaSet,
    StatefulSet,
    Job,
    ReplicationController,
}

impl Controller {
    /// Every controller.
    pub const ALL: [Self; 5] =
        [Self::DaemonSet, Self::ReplicaSet, Self::StatefulSet, Self::Job, Self::ReplicationController];

    /// The kind whose pods it makes.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::DaemonSet => Kind::DaemonSet,
            Self::ReplicaSet => Kind::ReplicaSet,
            Self::StatefulSet => Kind::StatefulSet,
            Self::Job => Kind::Job,
            Self::ReplicationController => Kind::ReplicationController,
        }
    }

    /// The contract's key for its identities.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::DaemonSet => "daemonSetController",
            Self::ReplicaSet => "replicaSetController",
            Self::StatefulSet => "statefulSetController",
            Self::Job => "jobController",
            Self::ReplicationController => "replicationController",
        }
    }

    /// Its user name where the contract does not say.
    #[must_use]
    pub fn default_identity(self) -> &'static str {
        match self {
            Self::DaemonSet => DAEMON_SET_CONTROLLER,
            Self::ReplicaSet => "system:serviceaccount:kube-system:replicaset-controller",
            Self::StatefulSet => "system:serviceaccount:kube-system:statefulset-controller",
            Self::Job => "system:serviceaccount:kube-system:job-controller",
            Self::ReplicationController => "system:serviceaccount:kube-system:replication-controller",
        }
    }

    /// The controller that makes the pods of a workload, and the name of their owner. A Deployment and a
    /// CronJob make owners of their own, whose names only begin with theirs: an example stands for one.
    #[must_use]
    pub fn of_pods(kind: Kind, name: &str) -> Option<(Self, Cow<'_, str>)> {
        match kind {
            Kind::Deployment => Some((Self::ReplicaSet, format!("{name}-5d4f8c7b9c").into())),
            Kind::CronJob => Some((Self::Job, format!("{name}-29000000").into())),
            _ => {
                let controller = Self::ALL.into_iter().find(|controller| controller.kind() == kind)?;
                Some((controller, name.into()))
            }
        }
    }
}

/// The user name of Kubernetes' own scheduler.
pub const SCHEDULER: &str = "system:kube-scheduler";

/// The user names under which each controller makes pods, and schedulers place them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identities {
    /// By the controller's place in [`Controller::ALL`].
    pub(crate) controllers: [Vec<String>; Controller::ALL.len()],
    /// Who may put a pod onto a node.
    pub(crate) schedulers: Vec<String>,
}

impl Default for Identities {
    fn default() -> Self {
        Self {
            controllers: Controller::ALL.map(|controller| vec![controller.default_identity().to_owned()]),
            schedulers: vec![SCHEDULER.to_owned()],
        }
    }
}

impl Identities {
    /// The user names of a controller.
    #[must_use]
    pub fn of(&self, controller: Controller) -> &[String] {
        &self.controllers[controller as usize]
    }

    /// The user names of those who may put a pod onto a node.
    #[must_use]
    pub fn schedulers(&self) -> &[String] {
        &self.schedulers
    }

    /// The user names of all controllers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.controllers.iter().flatten().map(String::as_str)
    }

    /// The owner whose pod the subject is, where this controller makes it. Proved by the requester: the
    /// owner reference alone can be forged, and an identity that several controllers share makes other
    /// pods as well.
    pub(crate) fn owner<'a>(&self, controller: Controller, subject: &'a Subject<'_>) -> Option<&'a str> {
        let is_asked_by = |name: &String| name == subject.requester.username;
        if subject.object.kind != Kind::Pod || !self.of(controller).iter().any(is_asked_by) {
            return None;
        }
        let kind = controller.kind();
        let owner = subject.object.pod.metadata.controller.0.as_ref()?;
        owner.is_of(Some(kind.group()), kind.name()).then_some(&*owner.name)
    }
}

impl OwnerReference<'_> {
    /// Whether the owner is of this kind, and of this group where one is given.
    #[must_use]
    pub(crate) fn is_of(&self, group: Option<&str>, kind: &str) -> bool {
        // The core group has a version alone.
        let own = match self.api_version.split_once('/') {
            Some((group, _)) => group,
            None if &*self.api_version == "v1" => "",
            None => return group.is_none() && &*self.kind == kind,
        };
        &*self.kind == kind && group.is_none_or(|group| group == own)
    }
}
