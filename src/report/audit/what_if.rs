//! What a change to nodes would do, as a person reads it: the verdict, the numbers, who is concerned, the commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::audit::{Affected, BudgetInTheWay, DaemonSetFate, Fate, NodeBackup, ObjectRef, Then, What, WhatIf};
use crate::policy::visible;

/// How many lines of a list are shown.
const LINES: usize = 10;

/// What a change would do as text, which ends with a new line.
#[must_use]
pub fn what_if_text(what_if: &WhatIf) -> String {
    let mut text = String::new();
    let thing = if what_if.change == What::Label { "label" } else { "taint" };
    let plural = if what_if.adds.len() == 1 { "" } else { "s" };
    let asked = what_if.nodes.len();
    let _ = writeln!(
        text,
        "What if {} had the {thing}{plural} {} of pool {}?\n\n{}",
        count(asked, "node"),
        visible(&what_if.adds.join(", ")),
        what_if.pool,
        visible(&what_if.verdict),
    );
    if what_if.summary.nodes_changed == 0 {
        return text;
    }
    write_nodes(&mut text, what_if);
    write_pods(&mut text, what_if);
    write_daemon_sets(&mut text, what_if);
    write_budgets(&mut text, &what_if.budgets);
    write_newcomers(&mut text, what_if);
    if !what_if.gaps.is_empty() {
        let _ = writeln!(text, "\nNot looked at: {}", what_if.gaps.len());
        write_lines(&mut text, what_if.gaps.clone());
    }
    write_commands(&mut text, what_if);
    text
}

fn write_nodes(text: &mut String, what_if: &WhatIf) {
    let totals = what_if.summary;
    let already = match totals.nodes_unchanged {
        0 => String::new(),
        number => format!(", {} as wanted already", is(number)),
    };
    let _ = writeln!(text, "\nNodes: {} would change{already}", totals.nodes_changed);
    let changed = what_if.nodes.iter().filter(|node| !node.adds.is_empty());
    let line = |node: &crate::audit::NodeChange| {
        let adds: Vec<_> = node.adds.iter().map(|add| format!("+ {add}")).collect();
        let replaces = match node.replaces.as_slice() {
            [] => String::new(),
            old => format!(" instead of {}", old.join(", ")),
        };
        let removes = node.removes.iter().fold(String::new(), |removes, taint| removes + ", - " + taint);
        let note = if node.offers_gpus { "" } else { ", offers no GPU of the pool" };
        let pods = count(node.ordinary_pods, "ordinary pod");
        format!("{}: {}{replaces}{removes} ({pods}{note})", node.name, adds.join(", "))
    };
    write_lines(text, changed.map(line).collect());
    if what_if.nodes.iter().any(|node| !node.removes.is_empty()) {
        text.push_str(
            "  What is almost the contract's taint would stay beside it, and the exact toleration does not pass it: it is \
             removed.\n",
        );
    }
}

fn write_pods(text: &mut String, what_if: &WhatIf) {
    let section = |title: &str, holds: &dyn Fn(&Affected) -> bool, text: &mut String| {
        let pods: Vec<_> = what_if.pods.iter().filter(|pod| holds(pod)).collect();
        if pods.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{title}: {}", count(pods.len(), "pod"));
        write_lines(text, by_controller(&pods));
    };
    let is_bare = |pod: &Affected| pod.then == Then::Nothing;
    section(
        "Evicted and lost for good, for nothing makes them anew",
        &|pod| pod.fate != Fate::Stays && is_bare(pod),
        text,
    );
    section("Evicted at once", &|pod| pod.fate == Fate::Evicted && !is_bare(pod), text);
    section("Evicted after a while", &|pod| pod.fate == Fate::EvictedLater && !is_bare(pod), text);
    let stays = |pod: &Affected| pod.fate == Fate::Stays;
    section(
        "Stay, and find no node after a restart",
        &|pod| stays(pod) && matches!(pod.then, Then::Nowhere { .. }),
        text,
    );
    section(
        "Stay, and must go elsewhere after a restart, where there is room",
        &|pod| stays(pod) && matches!(pod.then, Then::Elsewhere { .. }),
        text,
    );
    section("Stay, and nothing makes them anew once they go", &|pod| stays(pod) && is_bare(pod), text);
    section(
        "Stay, and come back with the toleration that the webhook gives them",
        &|pod| stays(pod) && pod.then == Then::Completed,
        text,
    );
    let totals = what_if.summary;
    let movers = totals.with_room + totals.without_room;
    if movers == 0 {
        return;
    }
    let _ = writeln!(text, "\nRoom elsewhere: for {} of {}", totals.with_room, count(movers, "pod"));
    if totals.onto_gpu_nodes > 0 {
        let (pods, nodes) = (count(totals.onto_gpu_nodes, "pod"), "onto GPU nodes that do not change and let them in");
        let _ = writeln!(text, "  {pods} of them {nodes}");
    }
    let _ = writeln!(
        text,
        "  By requests, selectors, node affinity, taints and pod slots; affinity to pods, spreading and volumes are not \
         looked at."
    );
}

/// One line for the pods of a controller that fare alike.
fn by_controller(pods: &[&Affected]) -> Vec<String> {
    let mut alike: BTreeMap<(String, String), Vec<&Affected>> = BTreeMap::new();
    for pod in pods {
        let owner = match &pod.controller {
            Some(controller) => controller.to_string(),
            None => ObjectRef::new("v1", "Pod", &pod.namespace, &pod.name).to_string(),
        };
        let gpu = if pod.requests_gpu { " with a GPU" } else { "" };
        let fate = match pod.after_seconds {
            Some(seconds) => format!("after {seconds} s"),
            None => String::new(),
        };
        let then = match &pod.then {
            // Of those that stay the title says it.
            Then::Elsewhere { .. } | Then::Completed if pod.fate == Fate::Stays => String::new(),
            Then::Elsewhere { .. } => "room elsewhere".to_owned(),
            Then::Nowhere { why } => format!("no room: {why}"),
            Then::Completed => "comes back with the webhook's toleration".to_owned(),
            Then::Nothing => String::new(),
        };
        let parts: Vec<_> = [fate, then].into_iter().filter(|part| !part.is_empty()).collect();
        alike.entry((format!("{owner}{gpu}"), parts.join(", "))).or_default().push(pod);
    }
    let line = |((owner, fares), pods): ((String, String), Vec<&Affected>)| {
        let mut nodes: Vec<_> = pods.iter().map(|pod| &*pod.node).collect();
        nodes.dedup();
        let on = match nodes.as_slice() {
            [node] => format!("on {node}"),
            nodes => format!("on {}", count(nodes.len(), "node")),
        };
        let fares = if fares.is_empty() { String::new() } else { format!("; {fares}") };
        format!("{owner}: {} {on}{fares}", count(pods.len(), "pod"))
    };
    alike.into_iter().map(line).collect()
}

fn write_daemon_sets(text: &mut String, what_if: &WhatIf) {
    let (started, dropped): (Vec<_>, Vec<_>) =
        what_if.daemon_sets.iter().partition(|set| set.fate == DaemonSetFate::Started);
    let line = |set: &&crate::audit::DaemonSetChange| {
        let on = count(set.nodes.len(), "node");
        let fate = match set.fate {
            DaemonSetFate::Deleted => "its pods are deleted",
            DaemonSetFate::NotRecreated => "its pods stay, and are not made anew",
            DaemonSetFate::Started => "gets pods",
        };
        let add = match set.add.as_slice() {
            [] => String::new(),
            add => format!("; to keep it, add to its tolerations: {}", add.join(", ")),
        };
        format!("{}: {fate} on {on}{add}", set.daemon_set)
    };
    if !dropped.is_empty() {
        let _ = writeln!(text, "\nDaemonSets that drop out: {}", dropped.len());
        write_lines(text, dropped.iter().map(line).collect());
    }
    if !started.is_empty() {
        let _ = writeln!(text, "\nDaemonSets that come onto the nodes: {}", started.len());
        write_lines(text, started.iter().map(line).collect());
    }
}

fn write_budgets(text: &mut String, budgets: &[BudgetInTheWay]) {
    if budgets.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nPodDisruptionBudgets in the way: {}", budgets.len());
    let line = |budget: &BudgetInTheWay| {
        let BudgetInTheWay { namespace, name, pods, .. } = budget;
        let allows = match budget.disruptions_allowed {
            Some(number) => format!("allows {} now", count(number, "disruption")),
            None => "does not say how many disruptions it allows".to_owned(),
        };
        format!("{namespace}/{}: {} concerned, {allows}", visible(name), count(*pods, "pod"))
    };
    write_lines(text, budgets.iter().map(line).collect());
    if budgets.iter().any(|budget| budget.is_passed_by) {
        text.push_str("  The eviction for a NoExecute taint asks no budget: it deletes the pods all the same.\n");
    }
    text.push_str("  kubectl drain asks them, and waits until they allow it.\n");
}

fn write_newcomers(text: &mut String, what_if: &WhatIf) {
    let lists = [
        ("Pending pods that would find a node", &what_if.newcomers.pending),
        ("Ordinary pods that select the label and may come after a restart", &what_if.newcomers.ordinary),
    ];
    for (title, pods) in lists.into_iter().filter(|(_, pods)| !pods.is_empty()) {
        let _ = writeln!(text, "\n{title}: {}", pods.len());
        write_lines(text, pods.iter().map(ToString::to_string).collect());
    }
}

/// Commands stand as they are: they are quoted already, and whoever pastes one needs all of it.
fn write_commands(text: &mut String, what_if: &WhatIf) {
    if let Some(node) = &what_if.pilot_node {
        let _ = writeln!(text, "\nPilot, on {} alone (nothing here has been run)", visible(node));
        for step in &what_if.pilot {
            let _ = writeln!(text, "  # {}\n  {}", step.note, step.command);
        }
    }
    let _ = writeln!(text, "\nBackup of labels and taints, as they are in this audit");
    for node in what_if.backup.iter().take(LINES) {
        let _ = writeln!(text, "  {}", backup_line(node));
    }
    if let Some(more) = more(what_if.backup.len()) {
        let _ = writeln!(text, "  and {more} more: --output json has them all");
    }
    text.push_str("  # a fresh one\n");
    for command in &what_if.backup_commands {
        let _ = writeln!(text, "  {command}");
    }
    let _ = writeln!(text, "\nRollback");
    for command in &what_if.rollback {
        let _ = writeln!(text, "  {command}");
    }
}

/// As JSON on one line.
fn backup_line(node: &NodeBackup) -> String {
    let json = serde_json::to_string(node).unwrap_or_default();
    visible(&json).into_owned()
}

fn write_lines(text: &mut String, lines: Vec<String>) {
    let number = lines.len();
    for line in lines.into_iter().take(LINES) {
        let _ = writeln!(text, "  {}", visible(&line));
    }
    if let Some(more) = more(number) {
        let _ = writeln!(text, "  and {more} more");
    }
}

fn more(number: usize) -> Option<usize> {
    number.checked_sub(LINES).filter(|more| *more > 0)
}

fn is(number: usize) -> String {
    if number == 1 { "1 is".to_owned() } else { format!("{number} are") }
}

fn count(number: impl std::fmt::Display, noun: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
