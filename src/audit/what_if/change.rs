//! What is asked, and which nodes that means.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{NodeBackup, NodeChange};
use crate::audit::class::is_ordinary;
use crate::audit::nodes::differing;
use crate::audit::snapshot::{Node, Taint};
use crate::audit::view::{Standing, View};
use crate::audit::words::count_text;
use crate::policy::{Effect, LabelSelector, Pool, visible};

/// How many names a message lists.
const SHOWN: usize = 5;

/// A change to nodes that somebody thinks of.
#[derive(Debug, Clone)]
pub struct Change {
    /// What they would get.
    pub what: What,
    /// Which they are.
    pub nodes: Which,
    /// The pool whose taint or label it is; may be left out where the contract has one pool.
    pub pool: Option<String>,
}

/// What nodes would get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The pool's taints, with the contract's effects.
    Taint,
    /// The same with the effect `NoExecute`.
    TaintNoexecute,
    /// The pool's labels.
    Label,
}

/// Which nodes.
#[derive(Debug, Clone)]
pub enum Which {
    /// The pool's nodes, as far as the audit knows them.
    OfPool,
    /// These.
    Named(Vec<String>),
    /// Those whose labels meet the selector.
    Selected(LabelSelector),
}

/// A change names what there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhatIfError {
    /// The contract has several pools.
    #[error("the contract has several pools; name one with --pool: {}", .0.join(", "))]
    SeveralPools(Vec<String>),
    /// The contract has no such pool.
    #[error("the contract has no pool {pool}; it has {}", .known.join(", "))]
    UnknownPool {
        /// As it was asked for.
        pool: String,
        /// The pools that there are.
        known: Vec<String>,
    },
    /// There are no such nodes.
    #[error("the cluster has no node {}; {near}", .names.join(", "))]
    UnknownNodes {
        /// As they were asked for.
        names: Vec<String>,
        /// Names that are near, or that there are.
        near: String,
    },
    /// No node's labels meet the selector.
    #[error("no node's labels meet {selector}; the cluster has {nodes}")]
    NoneSelected {
        /// The selector.
        selector: String,
        /// How many nodes there are.
        nodes: String,
    },
    /// The pool has no node.
    #[error(
        "no node is known to be of pool {pool}: none offers its resources or has its label or taint; name nodes with --node"
    )]
    NoNodes {
        /// The pool.
        pool: String,
    },
    /// The pool has no label to give.
    #[error("pool {pool} has no nodeSelector in the contract, so that there is no label to add")]
    NoLabel {
        /// The pool.
        pool: String,
    },
}

/// A change to nodes that there are.
#[derive(Debug)]
pub(super) struct Planned<'s> {
    pub(super) what: What,
    pub(super) pool: &'s Pool,
    /// The pool's place in the contract.
    pub(super) index: usize,
    /// The taints that are added; none where labels are.
    pub(super) taints: Vec<Taint>,
    /// By name.
    pub(super) nodes: Vec<PlannedNode<'s>>,
}

/// A node with what it would get.
#[derive(Debug)]
pub(super) struct PlannedNode<'s> {
    pub(super) before: &'s Node,
    /// Its taints after the change.
    pub(super) taints: Vec<Taint>,
    /// The taints that it would get.
    pub(super) new_taints: Vec<Taint>,
    /// What they would replace: a node has one taint of a key and an effect.
    pub(super) old_taints: Vec<Taint>,
    /// What was probably meant to be the pool's taint and stands under another effect or in other letters: it would stay
    /// beside the new one, and no exact toleration passes it.
    pub(super) removed_taints: Vec<Taint>,
    /// The labels that it would get, each with its old value.
    pub(super) labels: Vec<(&'s str, &'s str, Option<&'s str>)>,
}

impl<'s> Planned<'s> {
    pub(super) fn of(view: &View<'s>, change: &Change) -> Result<Self, WhatIfError> {
        let pools = view.policy.pools();
        let known = || pools.iter().map(|pool| pool.name.clone()).collect();
        let index = match &change.pool {
            Some(name) => pools
                .iter()
                .position(|pool| pool.name == *name)
                .ok_or_else(|| WhatIfError::UnknownPool { pool: visible(name).into_owned(), known: known() })?,
            None if pools.len() == 1 => 0,
            None => return Err(WhatIfError::SeveralPools(known())),
        };
        let pool = &pools[index];
        if change.what == What::Label && pool.node_selector.is_empty() {
            return Err(WhatIfError::NoLabel { pool: pool.name.clone() });
        }
        let effect = |own: Effect| if change.what == What::TaintNoexecute { Effect::NoExecute } else { own };
        let taint = |taint: &crate::policy::Taint| Taint {
            key: taint.key.as_str().into(),
            value: taint.value.as_str().into(),
            effect: effect(taint.effect).as_str().into(),
        };
        let mut taints: Vec<Taint> = Vec::new();
        if change.what != What::Label {
            for taint in pool.taints.iter().map(taint) {
                // Two taints may differ in nothing but the effect.
                if !taints.contains(&taint) {
                    taints.push(taint);
                }
            }
        }
        let chosen = chosen(view, &change.nodes, index)?;
        let nodes = chosen.into_iter().map(|node| PlannedNode::of(node, &taints, pool, change.what)).collect();
        Ok(Self { what: change.what, pool, index, taints, nodes })
    }

    /// The nodes that change.
    pub(super) fn changed(&self) -> impl Iterator<Item = &PlannedNode<'s>> {
        self.nodes.iter().filter(|node| node.changes())
    }

    /// What is added, as kubectl writes it.
    pub(super) fn adds(&self) -> Vec<String> {
        match self.what {
            What::Label => self.pool.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            What::Taint | What::TaintNoexecute => self.taints.iter().map(ToString::to_string).collect(),
        }
    }
}

impl<'s> PlannedNode<'s> {
    fn of(node: &'s Node, taints: &[Taint], pool: &'s Pool, what: What) -> Self {
        let is_same_place = |a: &Taint, b: &Taint| a.key == b.key && a.effect == b.effect;
        let new_taints: Vec<_> = taints.iter().filter(|taint| !node.taints.contains(taint)).cloned().collect();
        let is_replaced = |old: &&Taint| new_taints.iter().any(|new| is_same_place(old, new));
        let (old_taints, rest): (Vec<_>, Vec<_>) = node.taints.iter().partition(is_replaced);
        // Where nothing is given, nothing is mended either.
        let like = if new_taints.is_empty() { Vec::new() } else { differing(node, pool) };
        let is_of_key = |own: &Taint| taints.iter().any(|taint| own.key.eq_ignore_ascii_case(&taint.key));
        let is_removed = |own: &&Taint| like.contains(own) && is_of_key(own) && !taints.contains(own);
        let (removed_taints, kept): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_removed);
        let labels = match what {
            What::Taint | What::TaintNoexecute => Vec::new(),
            What::Label => pool
                .node_selector
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str(), node.labels.get(&**key).map(|old| &**old)))
                .filter(|(_, value, old)| *old != Some(*value))
                .collect(),
        };
        Self {
            before: node,
            taints: kept.into_iter().chain(&new_taints).cloned().collect(),
            old_taints: old_taints.into_iter().cloned().collect(),
            removed_taints: removed_taints.into_iter().cloned().collect(),
            new_taints,
            labels,
        }
    }

    pub(super) fn changes(&self) -> bool {
        !(self.new_taints.is_empty() && self.labels.is_empty())
    }

    /// The value of a label after the change.
    pub(super) fn label(&self, key: &str) -> Option<&'s str> {
        let new = self.labels.iter().find(|(own, ..)| *own == key).map(|(_, value, _)| *value);
        new.or_else(|| self.before.fact.label(key))
    }

    /// The node as it would be.
    pub(super) fn after(&self) -> Node {
        let mut node = self.before.clone();
        for (key, value, _) in &self.labels {
            node.labels.insert(Arc::from(*key), Arc::from(*value));
        }
        node.taints.clone_from(&self.taints);
        node
    }

    pub(super) fn outcome(&self, view: &View<'s>, pool: usize) -> NodeChange {
        let node = self.before;
        let pods = view.pods_on(&node.name);
        let labels = || self.labels.iter();
        let old = labels().filter_map(|(key, _, old)| old.map(|old| format!("{key}={old}")));
        NodeChange {
            name: node.name.to_string(),
            adds: (self.new_taints.iter().map(ToString::to_string))
                .chain(labels().map(|(key, value, _)| format!("{key}={value}")))
                .collect(),
            replaces: self.old_taints.iter().map(ToString::to_string).chain(old).collect(),
            removes: self.removed_taints.iter().map(ToString::to_string).collect(),
            offers_gpus: view.standing(&node.name).offers.contains(pool),
            ordinary_pods: pods.iter().filter(|pod| is_ordinary(view, pod)).count(),
        }
    }

    pub(super) fn backup(&self) -> NodeBackup {
        let node = self.before;
        let labels: BTreeMap<_, _> = node.labels.clone();
        NodeBackup {
            name: node.name.to_string(),
            labels,
            taints: node.taints.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The nodes that are meant, by name.
fn chosen<'s>(view: &View<'s>, which: &Which, pool: usize) -> Result<Vec<&'s Node>, WhatIfError> {
    let snapshot = view.snapshot;
    match which {
        Which::Named(names) => {
            let unknown: Vec<_> = names.iter().filter(|name| snapshot.node(name).is_none()).collect();
            if let Some(first) = unknown.first() {
                let near = near(view, first);
                let names = unknown.iter().map(|name| visible(name).into_owned()).collect();
                return Err(WhatIfError::UnknownNodes { names, near });
            }
            let mut nodes: Vec<_> = names.iter().filter_map(|name| snapshot.node(name)).collect();
            nodes.sort_by(|a, b| a.name.cmp(&b.name));
            nodes.dedup_by(|a, b| a.name == b.name);
            Ok(nodes)
        }
        Which::Selected(selector) => {
            let meets = |node: &&Node| {
                let labels = node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
                selector.matches(&labels)
            };
            let nodes: Vec<_> = snapshot.nodes.iter().filter(meets).collect();
            if nodes.is_empty() {
                let nodes = count_text(snapshot.nodes.len(), "node");
                return Err(WhatIfError::NoneSelected { selector: visible(&selector.to_string()).into_owned(), nodes });
            }
            Ok(nodes)
        }
        Which::OfPool => {
            // What does not say by a label whose it is may be meant for any pool whose taint it has or whose GPUs.
            let is_of_pool = |standing: &Standing| {
                standing.pools.contains(pool)
                    || (!standing.says_by_label(view.policy)
                        && (standing.touched.contains(pool) || standing.offers.contains(pool)))
            };
            let of_pool = view.gpu_nodes().filter(|(_, standing)| is_of_pool(standing));
            let nodes: Vec<_> = of_pool.map(|(node, _)| node).collect();
            if nodes.is_empty() {
                return Err(WhatIfError::NoNodes { pool: view.policy.pools()[pool].name.clone() });
            }
            Ok(nodes)
        }
    }
}

/// Names that are near a name that there is not; or else the first that there are.
fn near(view: &View<'_>, wanted: &str) -> String {
    let nodes = &view.snapshot.nodes;
    if nodes.is_empty() {
        return "the input holds no nodes".to_owned();
    }
    let likeness = |name: &str| {
        let same = |(a, b): &(char, char)| a.eq_ignore_ascii_case(b);
        let start = name.chars().zip(wanted.chars()).take_while(same).count();
        let end = name.chars().rev().zip(wanted.chars().rev()).take_while(same).count();
        (start + end).min(name.chars().count())
    };
    let mut likely: Vec<_> = nodes.iter().map(|node| (likeness(&node.name), &*node.name)).collect();
    likely.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let is_near = |(likeness, _): &&(usize, &str)| *likeness * 2 >= wanted.chars().count();
    let names: Vec<_> = likely.iter().filter(is_near).take(SHOWN).map(|(_, name)| *name).collect();
    if !names.is_empty() {
        return format!("near it: {}", visible(&names.join(", ")));
    }
    let first: Vec<_> = nodes.iter().take(SHOWN).map(|node| &*node.name).collect();
    let more = match nodes.len() - first.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("it has {}{more}", visible(&first.join(", ")))
}
