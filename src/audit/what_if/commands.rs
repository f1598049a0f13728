//! The commands of a pilot, a backup and a rollback, safe to paste into a shell. Nothing runs them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::change::{Planned, PlannedNode};
use super::{NodeChange, Step};
use crate::audit::snapshot::Taint;
use crate::policy::visible;

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
    let name = quoted(&node.before.name);
    let file = quoted(&format!("{}.before.json", node.before.name)).into_owned();
    let selector = quoted(&format!("spec.nodeName={}", node.before.name)).into_owned();
    let step = |note: &str, command: String| Step { note: note.to_owned(), command };
    let mut steps = vec![step("keep what the node has now", format!("kubectl get node {name} --output json > {file}"))];
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
    let name = quoted(&node.before.name);
    let mut commands = Vec::new();
    if !node.new_taints.is_empty() {
        let taints: Vec<_> = node.new_taints.iter().map(|taint| quoted(&taint.to_string()).into_owned()).collect();
        let overwrite = if node.old_taints.is_empty() { "" } else { " --overwrite" };
        commands.push(format!("kubectl taint node {name} {}{overwrite}", taints.join(" ")));
    }
    if !node.labels.is_empty() {
        let label = |(key, value, _): &(&str, &str, Option<&str>)| quoted(&format!("{key}={value}")).into_owned();
        let labels: Vec<_> = node.labels.iter().map(label).collect();
        let overwrite = if node.labels.iter().any(|(.., old)| old.is_some()) { " --overwrite" } else { "" };
        commands.push(format!("kubectl label node {name} {}{overwrite}", labels.join(" ")));
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
            format!("kubectl get nodes {} --output json > gpu-nodes.before{}.json", names(nodes), file(index))
        })
        .collect()
}

/// Takes it back, each node to what it has now.
pub(super) fn rollback(nodes: &[&PlannedNode<'_>]) -> Vec<String> {
    let mut alike: BTreeMap<Vec<String>, Vec<&PlannedNode<'_>>> = BTreeMap::new();
    for node in nodes {
        alike.entry(undo(node)).or_default().push(node);
    }
    let mut commands = Vec::new();
    for (undo, nodes) in alike {
        for nodes in nodes.chunks(AT_ONCE) {
            commands.extend(undo.iter().map(|undo| undo.replacen("{}", &names(nodes), 1)));
        }
    }
    commands
}

/// The commands that undo the change of a node, with `{}` for its name.
fn undo(node: &PlannedNode<'_>) -> Vec<String> {
    let mut commands = Vec::new();
    let is_replaced =
        |taint: &&Taint| node.old_taints.iter().any(|old| old.key == taint.key && old.effect == taint.effect);
    let removed: Vec<_> = (node.new_taints.iter())
        .filter(|taint| !is_replaced(taint))
        .map(|taint| quoted(&format!("{taint}-")).into_owned())
        .collect();
    if !removed.is_empty() {
        commands.push(format!("kubectl taint node {{}} {}", removed.join(" ")));
    }
    let restored: Vec<_> = node.old_taints.iter().map(|taint| quoted(&taint.to_string()).into_owned()).collect();
    if !restored.is_empty() {
        commands.push(format!("kubectl taint node {{}} {} --overwrite", restored.join(" ")));
    }
    let labels = node.labels.iter().map(|(key, _, old)| match old {
        None => format!("{key}-"),
        Some(old) => format!("{key}={old}"),
    });
    let labels: Vec<_> = labels.map(|label| quoted(&label).into_owned()).collect();
    if !labels.is_empty() {
        let overwrite = if node.labels.iter().any(|(.., old)| old.is_some()) { " --overwrite" } else { "" };
        commands.push(format!("kubectl label node {{}} {}{overwrite}", labels.join(" ")));
    }
    commands
}

fn names(nodes: &[&PlannedNode<'_>]) -> String {
    let names: Vec<_> = nodes.iter().map(|node| quoted(&node.before.name)).collect();
    names.join(" ")
}

/// A word as a shell takes it for itself and nothing more. Names of Kubernetes need no quotes; a dump may hold others.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:=@%+,-".contains(letter);
    // What begins with a dash would be an option.
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    if visible(word) == word {
        return Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")));
    }
    // What a terminal would obey must not be in it as it is.
    let mut escaped = String::from("$'");
    for letter in word.chars() {
        match letter {
            '\\' | '\'' => escaped.extend(['\\', letter]),
            ' '..='~' => escaped.push(letter),
            _ => drop(write!(escaped, "\\U{:08x}", u32::from(letter))),
        }
    }
    escaped.push('\'');
    Cow::Owned(escaped)
}
