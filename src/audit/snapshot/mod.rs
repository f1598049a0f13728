//! What a cluster holds at one time, as far as an audit asks: a few hundred bytes an object, whatever the object.
//!
//! A [`Builder`] takes objects one after the other, as JSON, in any order and from anywhere. What it could not read it
//! names; what nobody gave it is a gap, and an audit says so rather than take it for nothing.

mod amounts;
mod build;
mod dump;
mod followers;
mod prune;
mod read;
mod requests;
mod save;
mod stream;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use amounts::Amounts;
pub use build::Builder;
pub use stream::{StreamError, stream};

use crate::policy::{self, Kind, LabelSelector};

/// What a cluster holds at one time.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The nodes, by name.
    pub nodes: Vec<Node>,
    /// The pods, by namespace and name.
    pub pods: Vec<Pod>,
    /// What makes pods and does not follow another that does, by kind, namespace and name.
    pub workloads: Vec<Workload>,
    /// The namespaces, by name.
    pub namespaces: BTreeMap<Arc<str>, Namespace>,
    /// The `PodDisruptionBudget`s, by namespace and name.
    pub budgets: Vec<Budget>,
    /// Why the scheduler could not place a pod, the newest word of it, by namespace and name.
    pub unscheduled: HashMap<(Arc<str>, Arc<str>), Event>,
    /// The owner that controls an object, for every object that has one.
    pub(crate) controllers: HashMap<ObjectRef, ObjectRef>,
    /// The kinds of which all objects are known.
    pub complete: BTreeSet<Resource>,
    /// How many objects of other kinds there were, by apiVersion and kind.
    pub passed_over: BTreeMap<(String, String), usize>,
    /// How many documents of folders are no Kubernetes objects.
    pub foreign: usize,
    /// What could not be read, each with the object or the file.
    pub faults: Vec<String>,
    /// Whether it is from files: what they lack is among the gaps then, where anything shows that it is there.
    pub is_dump: bool,
    /// What files lack, and what is not concluded for that.
    pub gaps: Vec<String>,
}

/// What an audit lists in a cluster: the API group, empty for the core group, and the resource. The custom resources of
/// the contract come to these.
pub const READS: &[(&str, &str)] = &[
    ("", "nodes"),
    ("", "pods"),
    ("", "namespaces"),
    ("", "events"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("policy", "poddisruptionbudgets"),
];

/// A kind that an audit asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum Resource {
    Nodes,
    Pods,
    Namespaces,
    /// Whatever carries a template of pods.
    Workloads,
    PodDisruptionBudgets,
    Events,
}

impl Resource {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Nodes, Self::Pods, Self::Namespaces, Self::Workloads, Self::PodDisruptionBudgets, Self::Events];

    /// Those without which what an audit finds is not all that there is: of the others only words come.
    pub const VITAL: [Self; 4] = [Self::Nodes, Self::Pods, Self::Namespaces, Self::Workloads];

    /// The name for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Namespaces => "namespaces",
            Self::Workloads => "workloads",
            Self::PodDisruptionBudgets => "poddisruptionbudgets",
            Self::Events => "events",
        }
    }
}

/// An object, as a reference names it. The namespace is empty for what is in none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Group and version.
    pub api_version: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectRef {
    /// A reference.
    #[must_use]
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The name without what a Deployment or a CronJob makes up for each of the owners that it makes, which is another
    /// with its next version or its next run: `shop-*` for ReplicaSet `shop-5d4f8c7b9c` and for Job `shop-29000000`.
    #[must_use]
    pub fn lasting_name(&self) -> Cow<'_, str> {
        let is_made_up = |end: &str| match (self.group(), &*self.kind) {
            // A pod-template-hash: the decimal digits of 32 bits, in ten of the letters that make no words.
            ("apps", "ReplicaSet") => {
                (6..=10).contains(&end.len()) && end.bytes().all(|byte| b"456789bcdf".contains(&byte))
            }
            // Minutes since 1970.
            ("batch", "Job") => (8..=10).contains(&end.len()) && end.bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        };
        match self.name.rsplit_once('-') {
            Some((start, end)) if is_made_up(end) => format!("{start}-*").into(),
            _ => Cow::Borrowed(&self.name),
        }
    }
}

/// As a person names it: `Deployment ml/train`, `Node gpu-1`.
impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        let (kind, namespace, name) = (policy::visible(kind), policy::visible(namespace), policy::visible(name));
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Its taints, in their order.
    pub taints: Vec<Taint>,
    /// Whether new pods are kept off by `kubectl cordon`.
    pub unschedulable: bool,
    /// Whether its condition `Ready` is `True`; `None` where it has none yet.
    pub ready: Option<bool>,
    /// What it has.
    pub capacity: Amounts,
    /// What pods may have of it.
    pub allocatable: Amounts,
    /// The same node as decisions know it.
    pub fact: Arc<policy::Node>,
}

/// A taint as a node carries it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// The key.
    pub key: Arc<str>,
    /// The value, often empty.
    pub value: Arc<str>,
    /// The effect.
    pub effect: Arc<str>,
}

impl Taint {
    /// The taint in the form that tolerations are held against.
    #[must_use]
    pub fn as_node_taint(&self) -> policy::NodeTaint<'_> {
        policy::NodeTaint { key: (&*self.key).into(), value: (&*self.value).into(), effect: (&*self.effect).into() }
    }

    /// Whether it is the contract's taint, to the letter.
    #[must_use]
    pub fn is(&self, taint: &policy::Taint) -> bool {
        *self.key == *taint.key && *self.value == *taint.value && &*self.effect == taint.effect.as_str()
    }

    /// The exact toleration of it, as a person writes it in YAML.
    #[must_use]
    pub(crate) fn exact_toleration_text(&self) -> String {
        let Self { key, value, effect } = self;
        let [key, value, effect] = [key, value, effect].map(|word| policy::yaml_word(word));
        format!("{{key: {key}, operator: Equal, value: {value}, effect: {effect}}}")
    }

    /// Whether new pods that do not tolerate it are kept off.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

/// As kubectl writes it: `dedicated=gpu:NoSchedule`.
impl std::fmt::Display for Taint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, value, effect } = self;
        let separator = if value.is_empty() { "" } else { "=" };
        write!(f, "{key}{separator}{value}:{effect}")
    }
}

/// What a pod is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// A pod's class of quality of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// A pod. What rules read of it is [`Pod::json`].
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts about it")]
pub struct Pod {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The node it is on, or is bound to.
    pub node: Option<Arc<str>>,
    /// Whether who created it wrote the node's name into it, as far as its managed fields or its lack of a status say.
    pub names_node: bool,
    /// Whether an API server has stored it, rather than that it stands in a manifest only.
    pub is_stored: bool,
    /// What it is at.
    pub phase: Phase,
    /// When it was created, in seconds since 1970.
    pub created: Option<i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The owner that controls it.
    pub controller: Option<ObjectRef>,
    /// The name of its priority class; empty where it has none.
    pub priority_class: Arc<str>,
    /// Its priority.
    pub priority: i64,
    /// Its class of quality of service.
    pub qos: Qos,
    /// What the scheduler counts for it, one place for a pod among it.
    pub requests: Amounts,
    /// Whether it is the mirror of a static pod, as its annotation claims.
    pub is_mirror: bool,
    /// Whether scheduling gates hold it back.
    pub is_gated: bool,
    /// The message of its condition `PodScheduled`, where that is `False`.
    pub unscheduled: Option<Arc<str>>,
    /// Its labels and annotations and all else of its metadata that rules read, as JSON.
    pub(crate) metadata: Box<str>,
    /// What rules read of its spec, as JSON without braces. Pods of one owner share it.
    pub(crate) spec: Arc<str>,
}

impl Pod {
    /// Its reference.
    #[must_use]
    pub fn object(&self) -> ObjectRef {
        ObjectRef {
            api_version: "v1".into(),
            kind: Kind::Pod.name().into(),
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
        }
    }

    /// Whether it has ended: it takes nothing of its node any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it holds a place on its node.
    #[must_use]
    pub fn is_on(&self, node: &str) -> bool {
        !self.is_over() && self.node.as_deref() == Some(node)
    }

    /// What rules read of it, as the JSON of a pod, to be given to [`Kind::read`]. A node's name that the scheduler
    /// wrote is not in it: admission saw the pod without.
    #[must_use]
    pub fn json(&self) -> String {
        let node = self.node.as_deref().filter(|_| self.names_node || self.is_mirror);
        let node = node.map(|node| format!("\"nodeName\":{}", serde_json::Value::from(node))).unwrap_or_default();
        let Self { metadata, spec, .. } = self;
        let separator = if node.is_empty() || spec.is_empty() { "" } else { "," };
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{metadata},\"spec\":{{{node}{separator}{spec}}}}}"
        )
    }
}

/// What makes pods: one of Kubernetes' own kinds, or a custom resource of the contract.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The object.
    pub object: ObjectRef,
    /// Its kind.
    pub kind: Kind,
    /// The owner that controls it, as it says itself; one that is not known here, or makes no such objects.
    pub controller: Option<ObjectRef>,
    /// How many pods it wants; `None` where it does not say, or says it otherwise.
    pub replicas: Option<i64>,
    /// How many nodes it wants a pod on; of a DaemonSet with a status.
    pub desired: Option<i64>,
    /// What is read of the object, as JSON.
    pub(crate) json: Box<str>,
}

impl Workload {
    /// What is read of the object, as JSON, to be given to [`Kind::read`].
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }
}

/// A namespace.
#[derive(Debug, Clone, Default)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The pods that it is about; `None` selects none.
    pub selector: Option<LabelSelector>,
    /// How many of them may be evicted now; `None` where its status does not say.
    pub disruptions_allowed: Option<i64>,
}

/// What the scheduler said of a pod.
#[derive(Debug, Clone)]
pub struct Event {
    /// When, in seconds since 1970.
    pub at: i64,
    /// What.
    pub message: Arc<str>,
}

impl Snapshot {
    /// The node of a name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.binary_search_by(|node| (*node.name).cmp(name)).ok().map(|place| &self.nodes[place])
    }

    /// The pod of a name.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        let place = self.pods.binary_search_by(|pod| (&*pod.namespace, &*pod.name).cmp(&(namespace, name)));
        place.ok().map(|place| &self.pods[place])
    }

    /// The last of the owners that control an object: of a pod made by a Deployment the Deployment, not the ReplicaSet.
    /// `None` for what nobody controls.
    #[must_use]
    pub fn top_controller<'a>(&'a self, controller: Option<&'a ObjectRef>) -> Option<&'a ObjectRef> {
        // No chain is longer in earnest, and references can be made to go round.
        const LONGEST: usize = 8;
        let mut top = controller?;
        for _ in 0..LONGEST {
            let Some(next) = self.controllers.get(top) else { break };
            top = next;
        }
        Some(top)
    }

    /// The kinds among these of which not all objects are known, for people; `None` where all are.
    #[must_use]
    pub fn unseen(&self, among: &[Resource]) -> Option<String> {
        let unseen: Vec<_> = among.iter().filter(|kind| !self.knows_all(**kind)).map(|kind| kind.as_str()).collect();
        if unseen.is_empty() { None } else { Some(unseen.join(", ")) }
    }

    /// Whether all objects of the kind are known.
    #[must_use]
    pub fn knows_all(&self, resource: Resource) -> bool {
        self.complete.contains(&resource)
    }
}
