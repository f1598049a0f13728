//! A namespace's own ceiling, and the mode in force for it.

use super::allowlist::named;
use super::{Action, Facts, LabelSelector, Mode, Patterns, Policy, Rule};

/// A ceiling for some namespaces. A namespace is meant where a name or the labels match.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// The namespaces by name or glob; none where only labels count.
    pub namespaces: Patterns,
    /// The namespaces by their own labels.
    pub selector: Option<LabelSelector>,
    /// Their mode.
    pub mode: Mode,
}

/// The mode in force for a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// The mode.
    pub mode: Mode,
    /// Whether it could be another if the labels of the namespace were known.
    pub labels_unknown: bool,
}

impl Policy {
    /// The mode in force for a namespace: the first rollout entry that means it, else the contract's.
    ///
    /// An entry with a selector cannot be decided where the labels are not known, and counts as if it
    /// were absent.
    #[must_use]
    pub fn mode_in(&self, namespace: &str, facts: &dyn Facts) -> InForce {
        let means = |rollout: &Rollout| named(&rollout.namespaces, rollout.selector.as_ref(), namespace, facts);
        let own = self.rollout.iter().position(|rollout| means(rollout) == Some(true));
        let mode = own.map_or(self.mode, |place| self.rollout[place].mode);
        let before = &self.rollout[..own.unwrap_or(self.rollout.len())];
        let labels_unknown = before.iter().any(|rollout| rollout.mode != mode && means(rollout).is_none());
        InForce { mode, labels_unknown }
    }

    /// Whether any decision can depend on the labels of namespaces: a pool or a rollout entry selects by
    /// them.
    #[must_use]
    pub fn reads_namespace_labels(&self) -> bool {
        self.pools.iter().any(|pool| pool.namespaces.selector.is_some())
            || self.rollout.iter().any(|rollout| rollout.selector.is_some())
    }

    /// Whether any decision can depend on the labels and taints of nodes.
    #[must_use]
    pub fn reads_nodes(&self) -> bool {
        self.action(Rule::NodeNameBypass) > Action::Off
    }

    /// Whether the contract is enforced in every namespace.
    #[must_use]
    pub fn enforces_everywhere(&self) -> bool {
        self.mode == Mode::Enforce && self.rollout.iter().all(|rollout| rollout.mode == Mode::Enforce)
    }

    /// Whether there can be a namespace in which the contract is enforced.
    #[must_use]
    pub fn enforces_somewhere(&self) -> bool {
        self.mode == Mode::Enforce || self.rollout.iter().any(|rollout| rollout.mode == Mode::Enforce)
    }

    /// The same policy with no mode above the cap, for the paths that only report.
    #[must_use]
    pub fn capped(mut self, cap: Mode) -> Self {
        self.mode = self.mode.min(cap);
        for rollout in &mut self.rollout {
            rollout.mode = rollout.mode.min(cap);
        }
        self
    }
}
