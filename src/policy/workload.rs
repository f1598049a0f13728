//! Where the pod sits in each kind: a Pod is one, a workload carries a template of one.

use serde::Deserialize;

use super::json::{Text, object};
use super::pod::{Metadata, Pod, PodSpec};

/// A kind whose pods are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum Kind {
    Pod,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    ReplicationController,
    PodTemplate,
    /// What puts a pod onto a node. Its annotations become the pod's.
    Binding,
}

impl Kind {
    /// Every kind that is a pod or holds the template of one.
    pub const ALL: [Self; 9] = [
        Self::Pod,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::CronJob,
        Self::ReplicationController,
        Self::PodTemplate,
    ];

    /// The kind that a group and a name mean, whatever the version; of those that are pods or hold a template.
    #[must_use]
    pub fn of(group: &str, name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name && kind.group() == group)
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::Pod | Self::ReplicationController | Self::PodTemplate | Self::Binding => "",
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet => "apps",
            Self::Job | Self::CronJob => "batch",
        }
    }

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
            Self::ReplicationController => "ReplicationController",
            Self::PodTemplate => "PodTemplate",
            Self::Binding => "Binding",
        }
    }

    /// The resource's name in a path and in a rule of a webhook configuration.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::Job => "jobs",
            Self::CronJob => "cronjobs",
            Self::ReplicationController => "replicationcontrollers",
            Self::PodTemplate => "podtemplates",
            Self::Binding => "bindings",
        }
    }

    /// Whether the kind only carries a template of pods that are made later.
    #[must_use]
    pub fn is_template(self) -> bool {
        !matches!(self, Self::Pod | Self::Binding)
    }

    /// What stands before the pod's own paths, such as `spec.template.`.
    #[must_use]
    pub fn pod_path(self) -> &'static str {
        match self {
            Self::Pod | Self::Binding => "",
            Self::CronJob => "spec.jobTemplate.spec.template.",
            Self::PodTemplate => "template.",
            _ => "spec.template.",
        }
    }

    /// Reads an object of this kind.
    ///
    /// # Errors
    /// Where a field that rules read is not of the type that the kind gives it.
    pub fn read(self, json: &str) -> Result<Workload<'_>, serde_json::Error> {
        self.read_from(&mut serde_json::Deserializer::from_str(json))
    }

    /// Reads an object of this kind from any deserializer that lends strings.
    ///
    /// # Errors
    /// As [`Kind::read`].
    pub fn read_from<'a, D: serde::Deserializer<'a>>(self, json: D) -> Result<Workload<'a>, D::Error> {
        Ok(match self {
            Self::Pod => Workload { kind: self, own: None, pod: Pod::deserialize(json)? },
            Self::CronJob => {
                let CronJob { kind, metadata, spec } = CronJob::deserialize(json)?;
                Workload { kind: self, own: Some((kind, metadata)), pod: spec.job_template.spec.template }
            }
            Self::Binding => {
                let Binding { kind, metadata, target } = Binding::deserialize(json)?;
                let spec = PodSpec { node_name: target.name, ..PodSpec::default() };
                // What it adds to the pod beside the node.
                let pod = Pod { metadata: metadata.clone(), spec, ..Pod::default() };
                Workload { kind: self, own: Some((kind, metadata)), pod }
            }
            Self::PodTemplate => {
                let PodTemplate { kind, metadata, template } = PodTemplate::deserialize(json)?;
                Workload { kind: self, own: Some((kind, metadata)), pod: template }
            }
            _ => {
                let Templated { kind, metadata, spec } = Templated::deserialize(json)?;
                Workload { kind: self, own: Some((kind, metadata)), pod: spec.template }
            }
        })
    }
}

/// An object that is a pod or carries the template of one.
#[derive(Debug, Clone)]
pub struct Workload<'a> {
    /// The object's kind.
    pub kind: Kind,
    /// The workload's own kind and metadata; `None` for a Pod, which is its own.
    own: Option<(Text<'a>, Metadata<'a>)>,
    /// The pod, or the template of one.
    pub pod: Pod<'a>,
}

impl<'a> Workload<'a> {
    /// The object's own metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata<'a> {
        self.own.as_ref().map_or(&self.pod.metadata, |(_, metadata)| metadata)
    }

    /// The kind that the object itself says it is; empty where it does not say.
    #[must_use]
    pub fn declared_kind(&self) -> &str {
        self.own.as_ref().map_or(&self.pod.kind, |(kind, _)| kind)
    }

    /// The object's name, or its generateName with `*` for what the API server adds.
    #[must_use]
    pub fn display_name(&self) -> Text<'a> {
        let metadata = self.metadata();
        if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
            return Text(format!("{}*", metadata.generate_name).into());
        }
        metadata.name.clone()
    }
}

object! {
    struct Templated<'a> as "a workload" {
        kind: Text<'a> = "kind",
        metadata: Metadata<'a> = "metadata",
        spec: TemplatedSpec<'a> = "spec",
    }
}

object! {
    struct TemplatedSpec<'a> as "a workload's spec" {
        template: Pod<'a> = "template",
    }
}

object! {
    struct CronJob<'a> as "a CronJob" {
        kind: Text<'a> = "kind",
        metadata: Metadata<'a> = "metadata",
        spec: CronJobSpec<'a> = "spec",
    }
}

object! {
    struct CronJobSpec<'a> as "a CronJob's spec" {
        job_template: Templated<'a> = "jobTemplate",
    }
}

object! {
    struct PodTemplate<'a> as "a PodTemplate" {
        kind: Text<'a> = "kind",
        metadata: Metadata<'a> = "metadata",
        template: Pod<'a> = "template",
    }
}

object! {
    struct Binding<'a> as "a Binding" {
        kind: Text<'a> = "kind",
        metadata: Metadata<'a> = "metadata",
        target: Target<'a> = "target",
    }
}

object! {
    struct Target<'a> as "the target of a Binding" {
        name: Text<'a> = "name",
    }
}
