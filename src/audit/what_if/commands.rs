//! The commands of a pilot, a backup and a rollback, safe to paste into a shell. Nothing runs them.

use std::collections::BTreeMap;

use super::change::{Planned, PlannedNode};
use super::{NodeChange, Step};
use crate::audit::snapshot::Taint;
use crate::audit::words::{command, label_command, shell_word, taint_command};

/// How many nodes one command names: a line that a terminal still takes.
const AT_ONCE: usize = 40;

/// The node on which to try it first: of those that take pods the one with the fewest ordinary pods.
pub(super) fn pilot_node<'p, 's>(planned: &'p Planned<'s>, nodes: &[NodeChange]) -> Option<&'p PlannedNode<'s>> {
    let key = |(node, change): &(&PlannedNode<'_>, &NodeChange)| {
        let is_away = node.before.unschedulable || node.before.ready == Some(false);
        (is_away, change.ordinary_pods)
    };
    planned.nodes.iter().zip(nodes).filter(|(node, _)| node.changes()).min_by_key(key).map(|(node, _)| node)
}

/// Tries it on one node.
pub(super) fn pilot(node: &PlannedNode<'_>) -> Vec<Step> {
    let name = &*node.before.name;
    // Of a path only the name is left.
    let file = format!("{}.before.json", name.replace('/', "_"));
    let selector = format!("spec.nodeName={name}");
    let selector = shell_word(&selector);
    let step = |note: &str, command: String| Step { note: note.to_owned(), command };
    let mut steps = vec![step(
        "keep what the node has now",
        format!("{} > {}", command("kubectl get node", &[name], "--output json"), shell_word(&file)),
    )];
    steps.extend(apply(node).into_iter().map(|command| step("change this node alone", command)));
    steps.push(step(
        "see what becomes of the pods on it; end it with Ctrl-C",
        format!("kubectl get pods --all-namespaces --output wide --field-selector {selector} --watch"),
    ));
    steps.push(step(
        "see who finds no node now",
        "kubectl get events --all-namespaces --field-selector reason=FailedScheduling".to_owned(),
    ));
    steps.push(step("audit again, with the same contract and source", "gpufence audit".to_owned()));
    steps
}

fn apply(node: &PlannedNode<'_>) -> Vec<String> {
    let name = &*node.before.name;
    let mut commands = Vec::new();
    if !node.new_taints.is_empty() {
        let removed = node.removed_taints.iter().map(|taint| format!("{taint}-"));
        let changes: Vec<_> = node.new_taints.iter().map(ToString::to_string).chain(removed).collect();
        commands.push(taint_command(name, &changes, !node.old_taints.is_empty()));
    }
    if !node.labels.is_empty() {
        let labels: Vec<_> = node.labels.iter().map(|(key, value, _)| format!("{key}={value}")).collect();
        commands.push(label_command(name, &labels, node.labels.iter().any(|(.., old)| old.is_some())));
    }
    commands
}

/// Writes down the nodes as they are at the time.
pub(super) fn backup(nodes: &[&PlannedNode<'_>]) -> Vec<String> {
    let file = |index: usize| match index {
        0 => String::new(),
        index => format!("-{}", index + 1),
    };
    let chunks = nodes.chunks(AT_ONCE).enumerate();
    chunks
        .map(|(index, nodes)| {
            let get = command("kubectl get nodes", &names(nodes), "--output json");
            format!("{get} > gpu-nodes.before{}.json", file(index))
        })
        .collect()
}

/// Takes it back, each node to what it has now.
pub(super) fn rollback(nodes: &[&PlannedNode<'_>]) -> Vec<String> {
    let mut alike: BTreeMap<Vec<Undo>, Vec<&PlannedNode<'_>>> = BTreeMap::new();
    for node in nodes {
        alike.entry(undo(node)).or_default().push(node);
    }
    let mut commands = Vec::new();
    for (undo, nodes) in alike {
        for nodes in nodes.chunks(AT_ONCE) {
            commands.extend(undo.iter().map(|undo| {
                let words: Vec<_> = names(nodes).into_iter().chain(undo.changes.iter().map(String::as_str)).collect();
                command(undo.verb, &words, undo.flags)
            }));
        }
    }
    commands
}

/// A command that undoes the change of nodes, without their names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Undo {
    verb: &'static str,
    changes: Vec<String>,
    flags: &'static str,
}

/// What undoes the change of a node.
fn undo(node: &PlannedNode<'_>) -> Vec<Undo> {
    let mut commands = Vec::new();
    let mut push = |verb, changes: Vec<String>, overwrite: bool| {
        if !changes.is_empty() {
            commands.push(Undo { verb, changes, flags: if overwrite { "--overwrite" } else { "" } });
        }
    };
    let is_replaced =
        |taint: &&Taint| node.old_taints.iter().any(|old| old.key == taint.key && old.effect == taint.effect);
    let removed = node.new_taints.iter().filter(|taint| !is_replaced(taint)).map(|taint| format!("{taint}-"));
    push("kubectl taint node", removed.collect(), false);
    let restored = node.old_taints.iter().chain(&node.removed_taints).map(ToString::to_string);
    push("kubectl taint node", restored.collect(), !node.old_taints.is_empty());
    let labels = node.labels.iter().map(|(key, _, old)| match old {
        None => format!("{key}-"),
        Some(old) => format!("{key}={old}"),
    });
    push("kubectl label node", labels.collect(), node.labels.iter().any(|(.., old)| old.is_some()));
    commands
}

fn names<'p>(nodes: &[&'p PlannedNode<'_>]) -> Vec<&'p str> {
    nodes.iter().map(|node| &*node.before.name).collect()
}
