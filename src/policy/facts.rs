//! The few facts about the cluster that a decision asks for.

use std::collections::BTreeMap;
use std::fmt;

use super::allowlist::LabelSelector;

/// What a decision may ask about the cluster. Answers come from memory: no implementation waits.
pub trait Facts: fmt::Debug + Send + Sync {
    /// Whether the labels of a namespace meet the selector; `None` where its labels are not known. A
    /// namespace that is known not to exist meets none.
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool>;
}

/// No facts at all: every answer is that it is not known.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFacts;

impl Facts for NoFacts {
    fn namespace_meets(&self, _: &str, _: &LabelSelector) -> Option<bool> {
        None
    }
}

/// The labels of some namespaces, such as those among the manifests under review.
#[derive(Debug, Clone, Default)]
pub struct NamespaceLabels(pub BTreeMap<String, BTreeMap<String, String>>);

impl Facts for NamespaceLabels {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.0.get(namespace).map(|labels| selector.matches(labels))
    }
}
