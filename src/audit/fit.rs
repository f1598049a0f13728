//! Whether a pod may run on a node: what the scheduler's filters for names, labels, taints and amounts would say. What
//! it weighs beside those (pods' affinity to pods, spreading, volumes) is not looked at.

use std::collections::BTreeMap;

use super::nodes::is_transient;
use super::snapshot::{Amounts, Node, Pod, Taint};
use super::words::{bytes_text, count_text, cpu_text};
use crate::policy::{ComparisonOperators, Kind, PodSpec, Policy, Text, Toleration};

/// The keys of the taints that Kubernetes itself gives a cordoned node and one that is not ready.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
const NOT_READY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What keeps a pod off a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// The pod's nodeSelector or required node affinity does not admit the node.
    Label,
    /// The pod does not tolerate a taint of the node.
    Taint,
    /// The node is cordoned.
    Cordoned,
    /// The node is not ready.
    NotReady,
    /// The pod does not tolerate a taint that comes and goes by itself.
    PassingTaint,
    /// Too few GPUs of a pool are free.
    Gpus,
    /// Too little of another extended resource is free.
    Device,
    /// Too little CPU is free.
    Cpu,
    /// Too little memory is free.
    Memory,
    /// Too little ephemeral storage is free.
    EphemeralStorage,
    /// No place for a pod is free.
    Pods,
}

impl Obstacle {
    /// Every obstacle.
    pub(super) const ALL: [Self; 11] = [
        Self::Label,
        Self::Taint,
        Self::Cordoned,
        Self::NotReady,
        Self::PassingTaint,
        Self::Gpus,
        Self::Device,
        Self::Cpu,
        Self::Memory,
        Self::EphemeralStorage,
        Self::Pods,
    ];

    /// The nodes that have it in the way, after their number.
    pub(super) fn nodes(self) -> &'static str {
        match self {
            Self::Label => "that it does not select",
            Self::Taint => "with a taint that it does not tolerate",
            Self::Cordoned => "cordoned",
            Self::NotReady => "not ready",
            Self::PassingTaint => "with a taint that comes and goes",
            Self::Gpus => "with too few GPUs",
            Self::Device => "with too few devices",
            Self::Cpu => "with too little CPU",
            Self::Memory => "with too little memory",
            Self::EphemeralStorage => "with too little ephemeral storage",
            Self::Pods => "without a free pod slot",
        }
    }

    /// What there is too little of, for people.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Label => "nodeSelector or affinity",
            Self::Taint => "taint",
            Self::Cordoned => "cordoned",
            Self::NotReady => "not ready",
            Self::PassingTaint => "passing taint",
            Self::Gpus => "GPUs",
            Self::Device => "devices",
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral storage",
            Self::Pods => "pod slots",
        }
    }
}

/// A set of obstacles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Obstacles(u16);

impl Obstacles {
    pub(super) fn insert(&mut self, obstacle: Obstacle) {
        self.0 |= 1 << obstacle as u16;
    }

    pub(super) fn has(self, obstacle: Obstacle) -> bool {
        self.0 & (1 << obstacle as u16) != 0
    }

    pub(super) fn has_any(self, obstacles: &[Obstacle]) -> bool {
        obstacles.iter().any(|obstacle| self.has(*obstacle))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Obstacle> {
        Obstacle::ALL.into_iter().filter(move |obstacle| self.has(*obstacle))
    }
}

/// What a node has and what is taken of it: a simulation takes and gives back.
#[derive(Debug, Clone)]
pub(super) struct Room {
    allocatable: Amounts,
    taken: Amounts,
}

impl Room {
    /// The room beside the pods that hold a place on the node.
    pub(super) fn of(node: &Node, pods: &[&Pod]) -> Self {
        let mut room = Self { allocatable: node.allocatable.clone(), taken: Amounts::default() };
        for pod in pods {
            room.take(&pod.requests);
        }
        room
    }

    pub(super) fn take(&mut self, requests: &Amounts) {
        self.taken += requests;
    }

    pub(super) fn give_back(&mut self, requests: &Amounts) {
        self.taken -= requests;
    }

    /// What is left; nothing where more is taken than there is.
    pub(super) fn free(&self) -> Amounts {
        self.allocatable.left_by(&self.taken)
    }

    /// What there is too little of.
    pub(super) fn lacks(&self, policy: &Policy, requests: &Amounts) -> Obstacles {
        let free = self.free();
        let mut lacking = Obstacles::default();
        for (obstacle, free, wanted) in [
            (Obstacle::Cpu, free.cpu_milli, requests.cpu_milli),
            (Obstacle::Memory, free.memory_bytes, requests.memory_bytes),
            (Obstacle::EphemeralStorage, free.ephemeral_storage_bytes, requests.ephemeral_storage_bytes),
            (Obstacle::Pods, free.pods, requests.pods),
        ] {
            if free < wanted {
                lacking.insert(obstacle);
            }
        }
        for (resource, wanted) in &requests.extended {
            if free.of(resource) < *wanted {
                let is_gpu = policy.pools().iter().any(|pool| pool.resources.matches(resource));
                lacking.insert(if is_gpu { Obstacle::Gpus } else { Obstacle::Device });
            }
        }
        lacking
    }
}

/// What keeps a pod off a node whatever room there is.
pub(super) fn barred(node: &Node, taints: &[Taint], spec: &PodSpec<'_>) -> Obstacles {
    let mut obstacles = Obstacles::default();
    if !selects(node, spec) {
        obstacles.insert(Obstacle::Label);
    }
    for taint in untolerated(taints, spec.tolerations()) {
        let key = &*taint.key;
        obstacles.insert(match key {
            CORDON_TAINT => Obstacle::Cordoned,
            key if NOT_READY_TAINTS.contains(&key) => Obstacle::NotReady,
            key if is_transient(key) => Obstacle::PassingTaint,
            _ => Obstacle::Taint,
        });
    }
    let passes_cordon = || {
        let taint = Taint { key: CORDON_TAINT.into(), value: "".into(), effect: "NoSchedule".into() };
        is_tolerated(&taint, spec.tolerations())
    };
    if node.unschedulable && !passes_cordon() {
        obstacles.insert(Obstacle::Cordoned);
    }
    if node.ready == Some(false) {
        obstacles.insert(Obstacle::NotReady);
    }
    obstacles
}

/// Whether the pod's nodeSelector and required node affinity admit the node.
pub(super) fn selects(node: &Node, spec: &PodSpec<'_>) -> bool {
    spec.selects_node(&node.name, |key| node.labels.get(key).map(|value| &**value))
}

/// The taints that keep a pod with these tolerations off.
pub(super) fn untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration<'_>]) -> impl Iterator<Item = &'t Taint> {
    taints.iter().filter(|taint| taint.is_hard() && !is_tolerated(taint, tolerations))
}

/// Whether the taint is one that somebody gave the node, and not that of a cordon or of a node that is not ready.
pub(super) fn is_of_spec(taint: &Taint) -> bool {
    *taint.key != *CORDON_TAINT && !NOT_READY_TAINTS.contains(&&*taint.key)
}

/// Whether one of the tolerations tolerates the taint.
pub(super) fn is_tolerated(taint: &Taint, tolerations: &[Toleration<'_>]) -> bool {
    let taint = taint.as_node_taint();
    tolerations.iter().any(|toleration| toleration.tolerates_on_node(&taint, ComparisonOperators::Known))
}

/// What the pod's spec says, as rules read it.
pub(super) fn with_spec<T>(pod: &Pod, tell: impl FnOnce(&PodSpec<'_>) -> T) -> Option<T> {
    let json = pod.json();
    let object = Kind::Pod.read(&json).ok()?;
    Some(tell(&object.pod.spec))
}

/// The labels of the pod.
pub(super) fn labels(pod: &Pod) -> BTreeMap<String, String> {
    let json = pod.json();
    let Ok(object) = Kind::Pod.read(&json) else { return BTreeMap::new() };
    let labels = object.pod.metadata.labels.read();
    let label = |(key, raw): &(Text<'_>, &serde_json::value::RawValue)| {
        Some((key.to_string(), serde_json::from_str(raw.get()).ok()?))
    };
    labels.0.iter().filter_map(label).collect()
}

/// The amount of what there may be too little of, with what it is of, as in `4Gi memory`; `None` for what is no amount.
pub(super) fn amount_text(obstacle: Obstacle, amounts: &Amounts) -> Option<String> {
    let name = obstacle.as_str();
    match obstacle {
        Obstacle::Cpu => Some(cpu_text(amounts.cpu_milli)),
        Obstacle::Memory => Some(format!("{} {name}", bytes_text(amounts.memory_bytes))),
        Obstacle::EphemeralStorage => Some(format!("{} {name}", bytes_text(amounts.ephemeral_storage_bytes))),
        Obstacle::Pods => Some(count_text(amounts.pods, "pod slot")),
        _ => None,
    }
}

/// The first few of some names, and how many more there are.
pub(super) fn few<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
