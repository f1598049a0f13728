//! The few facts about the cluster that a decision asks for.

use std::collections::BTreeMap;
use std::fmt;

use super::allowlist::LabelSelector;

/// What a decision may ask about the cluster. Answers come from memory: no implementation waits.
pub trait Facts: fmt::Debug + Send + Sync {
    /// Whether the labels of a namespace meet the selector; `None` where its labels are not known. A
    /// namespace that is known not to exist meets none.
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool>;

    /// The time in seconds since 1970, against which the expiry of an exemption is held. Asked for only
    /// where an exemption could count.
    fn now(&self) -> i64;
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

    fn now(&self) -> i64 {
        self.now
    }
}
