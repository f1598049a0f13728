//! `toleration-outside-allowlist`: the pod's tolerations pass a pool's taints in a namespace that may
//! not use the pool.

use std::cmp::Reverse;

use super::super::affinity::NodeSelectorTerm;
use super::super::{Action, Case, Controller, Kind, NodeFact, Pool, PoolSet, Rule};
use super::{Outside, Passing, Violation, old_tolerations, passing};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    let pools = &case.policy.pools;
    let outside = case.passed.without(case.allowed);
    if outside.is_empty() {
        return;
    }
    let old = old_tolerations(case);
    for index in outside.iter() {
        let pool = &pools[index];
        // The exact toleration for an allowed pool with the same taints is no breach of this one, as far as the pod
        // goes to that one.
        let excuse = case.allowed.iter().find(|allowed| pool.is_open_to(&pools[*allowed]));
        let goes = excuse.and_then(|excuse| Some((excuse, goes(case, index)?)));
        if excuse.is_some() && goes.is_none() {
            continue;
        }
        // Nobody can take out what is injected, nor what was there before: the author's own toleration is at
        // fault, the new one rather than the old.
        let passed = pool.taints.iter().enumerate();
        let passed = passed.filter_map(|(place, taint)| Some((place, taint, passing(case, &old, taint)?)));
        let blamed = passed
            .max_by_key(|(place, taint, passing)| (!case.given().contains(taint), passing.added, Reverse(*place)));
        let Some((_, taint, Passing { field, .. })) = blamed else { continue };
        let outside = Outside { case, pool: index };
        let breach = format!("{field} passes the taint {taint} of pool {}", pool.name);
        let (message, most, node) = match goes {
            Some((excuse, goes)) => {
                let message = format!("{breach}, {}", goes.told(case, index, excuse));
                (message, goes.most(case), goes.unknown())
            }
            None => (format!("{breach}, {outside}"), Action::Deny, None),
        };
        found.push(Violation {
            rule: Rule::TolerationOutsideAllowlist,
            pools: PoolSet::from_iter([index]),
            what: Vec::new(),
            most,
            node,
            message,
            field,
        });
    }
}

/// How a pod goes to a closed pool whose taints are those of an open one.
enum Goes<'a> {
    /// Its nodeSelector names the closed pool.
    BySelector,
    /// A DaemonSet's controller has pinned it to a node, of the pool or perhaps of it.
    Pinned { node: &'a str, is_known: bool },
    /// It is what a DaemonSet's pods are made from, and nothing keeps them to other nodes.
    Everywhere,
}

/// `None` for a pod that the labels of its pool keep where it may be.
fn goes<'a>(case: &'a Case<'_, '_>, index: usize) -> Option<Goes<'a>> {
    let spec = &case.object.pod.spec;
    let pools = &case.policy.pools;
    // With the labels that it is given, which are none where a DaemonSet makes it.
    let is_set = case.object.kind == Kind::DaemonSet;
    let given = case.clear().filter(|_| !is_set).map(|own| case.terms(&pools[own]).labels).unwrap_or_default();
    let selected = |key: &str| {
        let given = || given.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        spec.selects(key).or_else(given)
    };
    let selects = |pool: usize| pools[pool].is_met_by(selected);
    let is_kept = case.allowed.iter().any(selects);
    // Of a pod that is completed for a pool which it then contradicts `placement-conflict` speaks.
    if selects(index) && !is_kept && case.clear().is_none() {
        return Some(Goes::BySelector);
    }
    if is_set {
        return (!is_kept && spec.required_terms().is_none()).then_some(Goes::Everywhere);
    }
    case.policy.identities.owner(Controller::DaemonSet, case.subject)?;
    // Its controller has replaced every term by one that names the node, and no label is injected.
    let node = spec.required_terms()?.iter().find_map(NodeSelectorTerm::node)?;
    match case.facts.node(node) {
        NodeFact::Known(known) => {
            let own = case.policy.pools_of_node(&known);
            (own.contains(index) && own.and(case.allowed).is_empty()).then_some(Goes::Pinned { node, is_known: true })
        }
        NodeFact::Unknown => Some(Goes::Pinned { node, is_known: false }),
        NodeFact::Absent => None,
    }
}

impl Goes<'_> {
    fn most(&self, case: &Case<'_, '_>) -> Action {
        if self.unknown().is_some() { case.policy.when_unknown } else { Action::Deny }
    }

    /// The node that would have to be known.
    fn unknown(&self) -> Option<String> {
        match self {
            Self::Pinned { node, is_known: false } => Some((*node).to_owned()),
            _ => None,
        }
    }

    /// What is behind the taint, and what to do.
    fn told(&self, case: &Case<'_, '_>, closed: usize, open: usize) -> String {
        let Pool { name, namespaces, .. } = &case.policy.pools[closed];
        let open = &case.policy.pools[open];
        let namespace = case.subject.namespace;
        let goes = match self {
            Self::BySelector => "and its nodeSelector names that pool".to_owned(),
            Self::Pinned { node, is_known: true } => format!("and its DaemonSet's controller puts it onto node {node}"),
            Self::Pinned { node, is_known: false } => {
                format!(
                    "and it is not known whether node {node}, onto which its DaemonSet's controller puts it, is one of it"
                )
            }
            Self::Everywhere => "and its pods will run on all nodes of it".to_owned(),
        };
        format!(
            "{goes}: pool {name} is closed to namespace {namespace} (allowed: {namespaces}). Select the nodes of pool {} \
             with nodeSelector {}.",
            open.name,
            open.labels_text(","),
        )
    }
}
