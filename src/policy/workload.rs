//! Where the pod sits in each kind: a Pod is one, a workload carries a template of one.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Text, at_path, object};
use super::pod::{Metadata, Place, Pod, PodSpec, ResourceMention, Resources};

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
    /// A kind of custom resource that the contract names. Each of its templates is a [`Workload`] of its own.
    Custom,
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
            // Of a custom resource the contract says.
            Self::Pod | Self::ReplicationController | Self::PodTemplate | Self::Binding | Self::Custom => "",
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
            Self::Custom => "custom resource",
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
            Self::Custom => "custom",
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
            // Of a custom resource each template has its own: Field knows it.
            Self::Pod | Self::Binding | Self::Custom => "",
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

    /// Why an object of this kind cannot be read, behind the path to what is wrong.
    #[must_use]
    pub fn fault(self, json: &str) -> String {
        let mut track = serde_path_to_error::Track::new();
        let mut json = serde_json::Deserializer::from_str(json);
        let outcome = self.read_from(serde_path_to_error::Deserializer::new(&mut json, &mut track)).map(|_| ());
        match outcome {
            Ok(()) => "cannot be read".to_owned(),
            Err(error) => at_path(&track.path(), &error).trim_start_matches('.').to_owned(),
        }
    }

    /// Reads an object of this kind from any deserializer that lends strings.
    ///
    /// # Errors
    /// As [`Kind::read`].
    pub fn read_from<'a, D: serde::Deserializer<'a>>(self, json: D) -> Result<Workload<'a>, D::Error> {
        Ok(match self {
            Self::Pod => Workload { kind: self, own: None, pod: Pod::deserialize(json)?, part: None },
            Self::CronJob => {
                let CronJob { kind, metadata, spec } = CronJob::deserialize(json)?;
                Workload { kind: self, own: Some((kind, metadata)), pod: spec.job_template.spec.template, part: None }
            }
            Self::Binding => {
                let Binding { kind, metadata, target } = Binding::deserialize(json)?;
                let spec = PodSpec { node_name: target.name, ..PodSpec::default() };
                // What it adds to the pod beside the node.
                let pod = Pod { metadata: metadata.clone(), spec, ..Pod::default() };
                Workload { kind: self, own: Some((kind, metadata)), pod, part: None }
            }
            Self::PodTemplate => {
                let PodTemplate { kind, metadata, template } = PodTemplate::deserialize(json)?;
                Workload { kind: self, own: Some((kind, metadata)), pod: template, part: None }
            }
            // Its templates are found by the contract's paths.
            Self::Custom => {
                return Err(serde::de::Error::custom("a custom resource is read by the paths of its contract"));
            }
            _ => {
                let Templated { kind, metadata, spec } = Templated::deserialize(json)?;
                Workload { kind: self, own: Some((kind, metadata)), pod: spec.template, part: None }
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
    pub(super) own: Option<(Text<'a>, Metadata<'a>)>,
    /// The pod, or the template of one.
    pub pod: Pod<'a>,
    /// What is particular to a template of a custom resource; `None` for every other kind.
    pub(super) part: Option<Box<Part<'a>>>,
}

/// What is particular to a template of a custom resource.
#[derive(Debug, Clone)]
pub(super) struct Part<'a> {
    /// Where it stands in the object.
    pub(super) place: &'a str,
    /// Where its annotations stand, for what is like a pod's spec; `None` for a template with metadata and spec.
    pub(super) annotations: Option<&'static str>,
    /// What asks for resources outside of the lists of containers.
    pub(super) requests: Vec<Requested<'a>>,
    /// Whether it holds no container: then what it does not request may be requested elsewhere.
    pub(super) is_fragment: bool,
}

/// Something that asks for resources outside of the lists of containers, and its place below the spec.
#[derive(Debug, Clone)]
pub(super) enum Requested<'a> {
    Container { place: &'a str, resources: Resources<'a> },
    Resources { place: &'a str, resources: Resources<'a> },
    Amount { place: &'a str, name: Text<'a>, quantity: Option<&'a RawValue> },
}

impl Requested<'_> {
    fn mentions(&self) -> Vec<ResourceMention<'_>> {
        match self {
            Self::Container { place, resources } => {
                resources.mentions(|kind| Place::Container { place, kind }).collect()
            }
            Self::Resources { place, resources } => {
                resources.mentions(|kind| Place::Resources { place, kind }).collect()
            }
            Self::Amount { place, name, quantity } => {
                let mention = |json| ResourceMention { place: Place::Amount { place }, name, json };
                quantity.map(mention).into_iter().collect()
            }
        }
    }
}

impl<'a> Workload<'a> {
    /// Every mention of an extended resource, wherever containers stand in the kind.
    pub(super) fn extended_resources(&self) -> impl Iterator<Item = ResourceMention<'_>> {
        let elsewhere = self.part.iter().flat_map(|part| part.requests.iter().flat_map(Requested::mentions));
        self.pod.spec.extended_resources().chain(elsewhere)
    }

    /// Whether it is only a part of a pod's spec, as far as can be seen.
    pub(super) fn is_fragment(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.is_fragment)
    }

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
