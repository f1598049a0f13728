//! Labels, taints, GPUs and groups of nodes: whether the nodes keep their side of the contract.
//!
//! A node is held against one pool, the one that it is most likely meant for, so that what is wrong with it is said once.

mod gpus;
mod group;
mod labels;
mod passing;
mod taints;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::finding::{Check, Finding, Severity};
use super::outcome::Audit;
use super::snapshot::{Node, ObjectRef};
use super::view::{Standing, View};
use super::words::{command, list_text, what_if_command};
use crate::policy::{self, Policy, Pool, PoolSet, visible};

pub(super) use passing::takes_gpu_pods;
pub(super) use taints::{differing, is_transient, says_gpu};

/// What makes a node one that differs from the contract or from its like. A node that is cordoned, not ready or sliced
/// in several ways is so because somebody wants it, or for a while.
const DRIFT: [Check; 7] = [
    Check::NodeWithoutTaint,
    Check::NodeTaintDiffers,
    Check::NodeWithoutLabel,
    Check::NodeLabelDiffers,
    Check::NodeWithoutGpus,
    Check::NodeGroupDrift,
    Check::NodeExtraTaint,
];

/// Judges every node that has to do with GPUs, and those that should have by their group.
pub(super) fn judge(view: &View<'_>, audit: &mut Audit) {
    let mut findings = Vec::new();
    for (node, standing) in view.gpu_nodes() {
        let Some(pool) = pool_of(view, node, standing) else { continue };
        let subject = Subject { view, node, standing, pool };
        labels::judge(&subject, &mut findings);
        taints::judge(&subject, &mut findings);
        gpus::judge(&subject, &mut findings);
        subject.judge_condition(&mut findings);
    }
    group::judge(view, &mut findings);
    let drifted = findings.iter().filter(|finding| DRIFT.contains(&finding.rule));
    let drifted: BTreeSet<_> = drifted.map(|finding| &finding.object.name).collect();
    audit.summary.drifted_nodes = drifted.len();
    audit.findings.extend(findings);
}

/// What the node has in common with those that should be as it is, such as `node pool gpu-a100`; empty where nothing
/// says so.
pub(super) fn group(node: &Node) -> String {
    group::name(node)
}

/// The pool that a node is held against: of those that it may be meant for the one of which it has most, the first in
/// the contract where several are alike.
pub(super) fn pool_of<'s>(view: &View<'s>, node: &Node, standing: Standing) -> Option<&'s Pool> {
    let index = standing.pools.iter().min_by_key(|index| closeness(view.policy, node, standing, *index))?;
    view.policy.pools().get(index)
}

/// The pools of which the node has most, of those that it may be meant for.
pub(super) fn closest(policy: &Policy, node: &Node, standing: Standing) -> PoolSet {
    let closeness = |index: &usize| closeness(policy, node, standing, *index);
    let best = standing.pools.iter().map(|index| closeness(&index)).min();
    standing.pools.iter().filter(|index| Some(closeness(index)) == best).collect()
}

/// How near the node is to a pool, nearest first: whether it has all that the pool's nodes have, how much of it, and how
/// much that is almost so.
fn closeness(policy: &Policy, node: &Node, standing: Standing, index: usize) -> Reverse<((bool, bool), usize, usize)> {
    let pool = &policy.pools()[index];
    let labels = pool.node_selector.iter().filter(|(key, value)| label(node, key) == Some(value));
    let taints = pool.taints.iter().filter(|taint| node.fact.has_taint(taint));
    let like = |(key, value): &(&String, &String)| {
        let like = labels::like(node, key, value);
        // Another value under the pool's key speaks for it less than its own in other letters.
        like.map_or(0, |(_, own)| if own.eq_ignore_ascii_case(value) { 2 } else { 1 })
    };
    let like_labels: usize = pool.node_selector.iter().map(|label| like(&label)).sum();
    let likeness = |own: &super::snapshot::Taint| {
        let is_like = |taint: &policy::Taint| own.value.eq_ignore_ascii_case(&taint.value);
        if pool.taints.iter().any(is_like) { 2 } else { 1 }
    };
    let like_taints: usize = differing(node, pool).into_iter().map(likeness).sum();
    let whole = (standing.offers.contains(index), standing.tainted.contains(index));
    Reverse((whole, labels.count() + taints.count(), like_labels + like_taints))
}

/// A node beside its pool.
#[derive(Debug, Clone, Copy)]
struct Subject<'v, 's> {
    view: &'v View<'s>,
    node: &'s Node,
    standing: Standing,
    pool: &'s Pool,
}

impl Subject<'_, '_> {
    /// The node's name for messages.
    fn name(&self) -> std::borrow::Cow<'_, str> {
        visible(&self.node.name)
    }

    /// A command about the node.
    fn command(&self, verb: &str) -> String {
        command(verb, &[&*self.node.name], "")
    }

    /// Whether it has GPUs of its pool.
    fn offers(&self) -> bool {
        self.is_in(self.standing.offers)
    }

    /// Whether it carries all labels of its pool.
    fn is_labelled(&self) -> bool {
        self.is_in(self.standing.labelled)
    }

    fn is_in(&self, pools: PoolSet) -> bool {
        self.view.pools(pools).any(|pool| pool.name == self.pool.name)
    }

    /// The pools that it may be meant for, of which it says none; its pool alone where it does.
    fn choices(&self) -> Vec<&Pool> {
        if self.standing.is_undecided { self.view.pools(self.standing.pools).collect() } else { vec![self.pool] }
    }

    /// The node and its pool as a sentence begins: `the node a of the pool nvidia`.
    fn whose(&self) -> String {
        let name = self.name();
        if !self.standing.is_undecided {
            return format!("the node {name} of the pool {}", self.pool.name);
        }
        let names: Vec<_> = self.choices().into_iter().map(|pool| pool.name.as_str()).collect();
        let first = names.first().copied().unwrap_or_default();
        format!(
            "the node {name} is of no pool: it offers what pools {} have, and is counted under {first}; it",
            list_text(&names)
        )
    }

    /// What to do for each pool that it may be meant for.
    fn for_each_choice(&self, action: impl Fn(&Pool) -> String) -> String {
        if !self.standing.is_undecided {
            return action(self.pool);
        }
        let choices: Vec<_> = self.choices().into_iter().map(|pool| (pool, action(pool))).collect();
        match &*choices {
            [(_, first), rest @ ..] if rest.iter().all(|(_, other)| other == first) => first.clone(),
            _ => {
                let choice = |(pool, action): &(&Pool, String)| format!("for the pool {}: {action}", pool.name);
                choices.iter().map(choice).collect::<Vec<_>>().join("; or, ")
            }
        }
    }

    /// What to say after a command that gives it taints that evict.
    fn eviction(&self, pool: &Pool, added: &[&policy::Taint]) -> String {
        if !added.iter().any(|taint| taint.effect == policy::Effect::NoExecute) {
            return String::new();
        }
        let command = what_if_command(self.view.policy, &pool.name, &self.node.name);
        format!(" (it evicts at once who does not tolerate it: {command} shows whom)")
    }

    /// What it has of its pool's resources, as a person says it: `8 nvidia.com/gpu`; empty where it has nothing.
    fn gpus(&self) -> String {
        let amounts = self.node.capacity.extended.iter();
        let own = amounts.filter(|(resource, amount)| *amount > 0 && self.pool.resources.matches(resource));
        own.map(|(resource, amount)| format!("{amount} {}", visible(resource))).collect::<Vec<_>>().join(", ")
    }

    /// A finding about the node, in which nothing that stands in its object can speak to a terminal.
    fn finding(&self, rule: Check, severity: Severity, message: &str, action: &str) -> Finding {
        let (message, action) = (visible(message), visible(action));
        let finding = Finding::new(rule, severity, object(self.node), message, action);
        if self.standing.is_undecided { finding } else { finding.in_pool(&self.pool.name) }
    }

    /// Whether it takes pods at all.
    fn judge_condition(&self, findings: &mut Vec<Finding>) {
        let (name, gpus) = (self.name(), self.gpus());
        let gpus = if gpus.is_empty() { "it".to_owned() } else { format!("its {gpus}") };
        if self.node.unschedulable {
            let message = format!("the node {name} is cordoned: {gpus} can be given to no new pod");
            let action = format!("{} when what it was cordoned for is done", self.command("kubectl uncordon"));
            findings.push(self.finding(Check::NodeCordoned, Severity::Info, &message, &action));
        }
        if self.node.ready == Some(false) {
            let message = format!("the node {name} is not ready: {gpus} can be given to no new pod");
            let action = format!("{}: its conditions and events say why", self.command("kubectl describe node"));
            findings.push(self.finding(Check::NodeNotReady, Severity::Medium, &message, &action));
        }
        passing::judge(self, &gpus, findings);
    }
}

fn object(node: &Node) -> ObjectRef {
    ObjectRef::new("v1", "Node", "", &node.name)
}

fn label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.labels.get(key).map(|value| &**value)
}

/// The name in a key that may have a prefix: `gpu` of `nvidia.com/gpu`.
fn name_in(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, name)| name)
}

/// In what two differ, part by part: what the part is called, as it is wanted, and as it is.
fn differences(parts: &[(&str, &str, &str)]) -> String {
    let difference = |(what, wanted, own): &(&str, &str, &str)| match *own {
        own if own == *wanted => None,
        own if own.eq_ignore_ascii_case(wanted) => Some(format!("the {what} in other letters, and their case counts")),
        "" => Some(format!("no {what}")),
        _ => Some(format!("another {what}")),
    };
    parts.iter().filter_map(difference).collect::<Vec<_>>().join(", ")
}
