//! Pools of GPU nodes.

use std::collections::BTreeMap;

use super::allowlist::{Allowlist, Patterns};
use super::ask::Markers;
use super::json::Text;
use super::pod::Pod;
use super::toleration::{Taint, Toleration};

/// A pool of GPU nodes: what its nodes offer, how they are fenced, and who may come.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The pool's name, for messages.
    pub name: String,
    /// The extended resources of its nodes.
    pub resources: Patterns,
    /// The taints of its nodes, all of them hard.
    pub taints: Vec<Taint>,
    /// The labels of its nodes.
    pub node_selector: BTreeMap<String, String>,
    /// Which namespaces may use it.
    pub namespaces: Allowlist,
    /// How a pod names a model of GPU.
    pub models: Option<Models>,
    /// The priority class of GPU pods that name none.
    pub priority_class_name: Option<String>,
    /// What requests a GPU of it beside its resources.
    pub markers: Markers,
}

/// How a pod names a model of GPU, and the label by which nodes carry it.
#[derive(Debug, Clone)]
pub struct Models {
    /// The annotation of the pod.
    pub annotation: String,
    /// The label of the node.
    pub node_label: String,
    /// The models that there are.
    pub values: Vec<String>,
}

impl Models {
    /// The model that the pod names, whether there is one or not. An empty name is none.
    pub(crate) fn named<'a>(&self, pod: &Pod<'a>) -> Option<Text<'a>> {
        pod.metadata.annotations.string(&self.annotation).filter(|named| !named.is_empty())
    }

    /// Whether there is a model of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.iter().any(|value| value == name)
    }
}

impl Pool {
    /// Whether the tolerations let a pod onto the pool's nodes, together with the exact ones for `given`.
    #[must_use]
    pub fn is_passed_by(&self, tolerations: &[Toleration<'_>], given: &[Taint]) -> bool {
        self.taints
            .iter()
            .all(|taint| given.contains(taint) || tolerations.iter().any(|toleration| toleration.tolerates(taint)))
    }

    /// Whether all of the pool's labels are there, with their values, in what gives a label's value by its key.
    #[must_use]
    pub fn is_met_by<'v>(&self, value: impl Fn(&str) -> Option<&'v str>) -> bool {
        self.node_selector.iter().all(|(key, own)| value(key) == Some(own))
    }

    /// The labels of the pool's nodes as `kubectl label` and `--selector` take them, with this between two.
    #[must_use]
    pub fn labels_text(&self, separator: &str) -> String {
        let labels: Vec<_> = self.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        labels.join(separator)
    }

    /// Whether its labels are those of the other and more.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.node_selector.len() > other.node_selector.len()
            && other.is_met_by(|key| self.node_selector.get(key).map(String::as_str))
    }

    /// Whether a pod with exactly the tolerations for `other` is let onto this pool's nodes too. Then
    /// the taints cannot tell the two apart, and who may use `other` may pass here.
    #[must_use]
    pub fn is_open_to(&self, other: &Self) -> bool {
        self.taints.iter().all(|taint| other.taints.contains(taint))
    }
}

/// A set of pools, by their place in the contract.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PoolSet(u64);

impl PoolSet {
    /// How many pools a contract may have, so that a set of them is one word.
    pub const CAPACITY: usize = 64;

    /// Adds a pool.
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Whether the pool is in the set.
    #[must_use]
    pub fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether there is one pool in it and no other.
    #[must_use]
    pub fn is_one(self) -> bool {
        self.0.is_power_of_two()
    }

    /// The pools in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The pools in this set and not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The pools in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::CAPACITY).filter(move |index| self.contains(*index))
    }

    /// The first pool.
    #[must_use]
    pub fn first(self) -> Option<usize> {
        self.iter().next()
    }
}

impl FromIterator<usize> for PoolSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        let mut set = Self::default();
        indexes.into_iter().for_each(|index| set.insert(index));
        set
    }
}
