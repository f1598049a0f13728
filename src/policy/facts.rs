//! The few facts about the cluster that a decision asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::allowlist::LabelSelector;
use super::toleration::Taint;

/// What a decision may ask about the cluster. Answers come from memory: no implementation waits.
pub trait Facts: fmt::Debug + Send + Sync {
    /// Whether the labels of a namespace meet the selector; `None` where its labels are not known. A
    /// namespace that is known not to exist meets none.
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool>;

    /// What is known of a node.
    fn node(&self, name: &str) -> NodeFact;

    /// The time in seconds since 1970, against which the expiry of an exemption is held. Asked for only
    /// where an exemption could count.
    fn now(&self) -> i64;
}

/// What is known of a node.
#[derive(Debug, Clone)]
pub enum NodeFact {
    /// It is there.
    Known(Arc<Node>),
    /// There is none of this name.
    Absent,
    /// Nothing.
    Unknown,
}

/// A node, as far as it tells to which pool it belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Its labels, ordered by key. Their texts are shared: most nodes of a cluster have the same.
    labels: Box<[(Arc<str>, Arc<str>)]>,
    /// Its taints: key, value and effect.
    taints: Box<[[Arc<str>; 3]]>,
}

impl Node {
    /// A node with these labels, and these taints by key, value and effect.
    #[must_use]
    pub fn new(
        labels: impl IntoIterator<Item = (Arc<str>, Arc<str>)>,
        taints: impl IntoIterator<Item = [Arc<str>; 3]>,
    ) -> Self {
        let mut labels: Box<[_]> = labels.into_iter().collect();
        labels.sort();
        Self { labels, taints: taints.into_iter().collect() }
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let place = self.labels.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        Some(&self.labels[place].1)
    }

    /// Whether it carries the taint.
    #[must_use]
    pub fn has_taint(&self, taint: &Taint) -> bool {
        let wanted = [taint.key.as_str(), taint.value.as_str(), taint.effect.as_str()];
        self.taints.iter().any(|own| own.each_ref().map(|text| &**text) == wanted)
    }
}

/// A time after every other: where there is no clock, whatever can expire has done so. An exemption must
/// not outlive its date because nobody knew it.
const END_OF_TIME: i64 = i64::MAX;

/// No facts at all: every answer is that it is not known.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFacts;

impl Facts for NoFacts {
    fn namespace_meets(&self, _: &str, _: &LabelSelector) -> Option<bool> {
        None
    }

    fn node(&self, _: &str) -> NodeFact {
        NodeFact::Unknown
    }

    fn now(&self) -> i64 {
        END_OF_TIME
    }
}

/// The labels of some namespaces, such as those among the manifests under review.
#[derive(Debug, Clone, Default)]
pub struct NamespaceLabels(pub BTreeMap<String, BTreeMap<String, String>>);

impl Facts for NamespaceLabels {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.0.get(namespace).map(|labels| selector.matches(labels))
    }

    fn node(&self, _: &str) -> NodeFact {
        NodeFact::Unknown
    }

    fn now(&self) -> i64 {
        END_OF_TIME
    }
}

/// Facts at a time, for callers that read the clock themselves.
#[derive(Debug, Clone, Copy)]
pub struct At<F> {
    /// All that is known but the time.
    pub facts: F,
    /// The time in seconds since 1970.
    pub now: i64,
}

impl<F: Facts> Facts for At<F> {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.facts.namespace_meets(namespace, selector)
    }

    fn node(&self, name: &str) -> NodeFact {
        self.facts.node(name)
    }

    fn now(&self) -> i64 {
        self.now
    }
}
