//! What an audit finds: the catalogue of its checks, and a finding.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::snapshot::ObjectRef;
use crate::policy;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing to do now; good to know.
    Info,
    /// Untidy: it does no harm yet.
    Low,
    /// It costs something, or will as soon as something else happens.
    Medium,
    /// The fence is open, or GPUs cannot be used.
    High,
}

impl Severity {
    /// Every severity, worst first.
    pub const WORST_FIRST: [Self; 4] = [Self::High, Self::Medium, Self::Low, Self::Info];

    /// The word for outputs and labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl From<policy::Action> for Severity {
    /// What the contract does about a rule says how much it matters.
    fn from(action: policy::Action) -> Self {
        match action {
            policy::Action::Deny => Self::High,
            policy::Action::Warn => Self::Medium,
            policy::Action::Audit => Self::Low,
            policy::Action::Off => Self::Info,
        }
    }
}

macro_rules! checks {
    ($( $(#[$doc:meta])* $name:ident = $id:literal, $title:literal; )*) => {
        /// What an audit looks for. The ids are stable: they stand in reports, metrics and baselines.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            /// A rule of the contract, which admission asks as well.
            Contract(policy::Rule),
            $( $(#[$doc])* $name, )*
        }

        impl Check {
            /// The checks beside the contract's rules.
            pub const OWN: &[Self] = &[$(Self::$name),*];

            /// The stable id.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self {
                    Self::Contract(rule) => rule.id(),
                    $( Self::$name => $id, )*
                }
            }

            /// What it means, in half a sentence.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self {
                    Self::Contract(rule) => rule.title(),
                    $( Self::$name => $title, )*
                }
            }
        }
    };
}

checks! {
    /// A node with GPUs, or with a pool's label, that lacks a taint of the pool.
    NodeWithoutTaint = "node-without-taint", "a GPU node without the contract's taint: any pod may land on it";
    /// A node whose taint has the contract's key and another value, spelling or effect.
    NodeTaintDiffers = "node-taint-differs", "a GPU node whose taint is almost the contract's";
    /// A node with GPUs that lacks a pool's label.
    NodeWithoutLabel = "node-without-label", "a GPU node without the pool's label: no GPU pod finds it";
    /// A node whose label has the contract's key and another value or spelling.
    NodeLabelDiffers = "node-label-differs", "a GPU node whose label is almost the contract's";
    /// A node with a pool's label or taint that offers no GPU.
    NodeWithoutGpus = "node-without-gpus", "a node with a pool's label or taint that offers no GPU";
    /// A node of a group that is not as the others are.
    NodeGroupDrift = "node-group-drift", "a node that differs from the others of its group";
    /// A node that offers whole GPUs and slices, or slices of several sizes.
    NodeMixedMig = "node-mixed-mig", "a node with GPUs sliced in several ways";
    /// A node with a hard taint that GPU pods do not tolerate.
    NodeExtraTaint = "node-extra-taint", "a GPU node with a taint that the contract's toleration does not pass";
    /// A cordoned GPU node.
    NodeCordoned = "node-cordoned", "a GPU node that takes no new pods, or is about to go";
    /// A GPU node that is not ready.
    NodeNotReady = "node-not-ready", "a GPU node that is not ready, or for now tainted as one that is not";
    /// A pod on a GPU node that requests no GPU and serves no node.
    OrdinaryPod = "ordinary-pod-on-gpu-node", "an ordinary pod on a GPU node";
    /// GPUs that are free and cannot be used.
    GpusBlocked = "gpus-blocked", "free GPUs that no pod can use, because others took the CPU, memory or places";
    /// A template of GPU pods without the exact toleration or the nodeSelector.
    TemplateWithoutPlacement = "template-without-placement", "a GPU template that relies on the webhook for its placement";
    /// A namespace of an allowlist that does not exist.
    NamespaceMissing = "namespace-missing", "an allowlist names a namespace that does not exist";
    /// An exemption that covers nothing.
    ExemptionUnused = "exemption-unused", "an exemption that nothing in the cluster needs";
    /// An exemption that has expired.
    ExemptionExpired = "exemption-expired", "an exemption that has expired";
    /// A DaemonSet that belongs on every node and does not reach the GPU nodes, or would not with the taint.
    DaemonSetLeftOut = "daemonset-left-out", "a DaemonSet of every node that does not reach GPU nodes";
    /// A pod that waits for a node.
    PodPending = "pod-pending", "a pod that finds no node";
    /// An object that cannot be judged.
    Unreadable = "unreadable", "an object that cannot be judged";
}

impl Check {
    /// Every check: the contract's rules, and those beside them.
    pub fn all() -> impl Iterator<Item = Self> {
        policy::Rule::ALL.into_iter().map(Self::Contract).chain(Self::OWN.iter().copied())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Check {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// Something that is not as the contract wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked for.
    pub rule: Check,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub object: ObjectRef,
    /// Who makes the object: the last of its owners, such as the Deployment of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ObjectRef>,
    /// The pool that it concerns, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The node that it concerns, where that is not the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The field of the object, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was found.
    pub message: String,
    /// What to do.
    pub action: String,
    /// What is the same about it in a later audit: a pod's successor from the same owner has the same.
    pub fingerprint: String,
    /// What tells it from the others of its rule about the same object and pool; empty where there is one at most.
    #[serde(skip)]
    pub(super) particular: String,
}

impl Finding {
    /// A finding about an object.
    #[must_use]
    pub fn new(
        rule: Check,
        severity: Severity,
        object: ObjectRef,
        message: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        let finding = Self {
            rule,
            severity,
            object,
            controller: None,
            pool: None,
            node: None,
            field: None,
            message: message.into(),
            action: action.into(),
            fingerprint: String::new(),
            particular: String::new(),
        };
        finding.fingerprinted()
    }

    /// The same about an object that somebody makes.
    #[must_use]
    pub fn made_by(self, controller: Option<&ObjectRef>) -> Self {
        Self { controller: controller.cloned(), ..self }.fingerprinted()
    }

    /// The same about a pool.
    #[must_use]
    pub fn in_pool(self, pool: &str) -> Self {
        Self { pool: Some(pool.to_owned()), ..self }.fingerprinted()
    }

    /// The same about something on a node.
    #[must_use]
    pub fn on_node(self, node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..self }
    }

    /// The same about a field.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// The same, told from others of its rule about the same object and pool: by something that stays as it is from
    /// one audit to the next.
    #[must_use]
    pub fn particularly(self, particular: impl Into<String>) -> Self {
        Self { particular: particular.into(), ..self }.fingerprinted()
    }

    /// Without versions, which change with the cluster, and without what a controller makes up: names of pods and the
    /// nodes that they come to be on.
    fn fingerprinted(self) -> Self {
        let object = self.controller.as_ref().unwrap_or(&self.object);
        let pool = self.pool.as_deref().unwrap_or_default();
        let ObjectRef { kind, namespace, .. } = object;
        let name = object.lasting_name();
        let mut fingerprint = format!("{}/{}/{kind}/{namespace}/{name}/{pool}", self.rule.id(), object.group());
        if !self.particular.is_empty() {
            fingerprint.push('/');
            fingerprint.push_str(&self.particular);
        }
        Self { fingerprint, ..self }
    }
}
