//! The sentences that several forms have in common.

use crate::audit::{Audit, Check, Coverage, Gpus, Severity};
use crate::policy::Kind;

/// `1 pod`, `2 pods`.
pub(super) fn number(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// The command that writes all that an audit asks for into one file.
#[must_use]
pub fn dump_command() -> String {
    let kinds = Kind::ALL.into_iter().map(|kind| {
        let separator = if kind.group().is_empty() { "" } else { "." };
        format!("{}{separator}{}", kind.resource(), kind.group())
    });
    let others = ["nodes", "namespaces", "events", "poddisruptionbudgets.policy"].map(str::to_owned);
    let all: Vec<_> = others.into_iter().chain(kinds).collect();
    format!("kubectl get {} -A -o json --show-managed-fields > cluster.json", all.join(","))
}

/// How many findings there are of a severity.
pub(super) fn of(audit: &Audit, severity: Severity) -> usize {
    audit.findings.iter().filter(|finding| finding.severity == severity).count()
}

/// The numbers of findings, worst first: `3 high, 1 info`.
pub(super) fn counts(audit: &Audit) -> String {
    let counts = Severity::WORST_FIRST.map(|severity| (of(audit, severity), severity.as_str()));
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    let counts: Vec<_> = counts.collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

/// What the audit comes to, in a sentence, and how bad that is; no severity where nothing was found.
#[must_use]
pub fn verdict(audit: &Audit) -> (Option<Severity>, String) {
    let worst = audit.findings.iter().map(|finding| finding.severity).max();
    let count = worst.map_or(0, |worst| of(audit, worst));
    let findings = |severity: &str| format!("{} {severity}", number(count, "finding is", "findings are"));
    let said = match worst {
        Some(Severity::High) => format!("{}: the fence is open, or GPUs cannot be used.", findings("high")),
        Some(Severity::Medium) => {
            format!("{}: it costs something, or will when something else happens.", findings("medium"))
        }
        Some(Severity::Low) => format!("{}: untidy, but no harm is done.", findings("low")),
        Some(Severity::Info) => format!("Nothing has to be done; {}.", findings("for information")),
        None if audit.gaps.is_empty() => "Nothing breaks the contract.".to_owned(),
        None => "Nothing that is known breaks the contract, and not everything is known.".to_owned(),
    };
    let Some(since) = since(audit) else { return (worst, said) };
    let said = match worst {
        None => format!("Nothing new {since}."),
        Some(_) => format!("New {since}: {}", uncapitalised(&said)),
    };
    (worst, said)
}

/// What is said beside the verdict where there may be more pods.
pub(super) const PODS_UNKNOWN: &str = "The pods are not known: what is free is not known, nor who is on GPU nodes.";

/// What a baseline hides: `since baseline.json, whose 82 findings ...`.
fn since(audit: &Audit) -> Option<String> {
    let baseline = audit.baseline.as_ref()?;
    let hidden = number(audit.summary.hidden.unwrap_or_default(), "known finding is", "known findings are");
    let gone = match audit.summary.resolved.unwrap_or_default() {
        0 => String::new(),
        1 => ", 1 of the baseline is gone".to_owned(),
        gone => format!(", {gone} of the baseline are gone"),
    };
    Some(format!("since {} ({hidden} not shown{gone})", baseline.source))
}

fn uncapitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// The free GPUs in words: `41, 4 of them blocked`.
#[must_use]
pub(super) fn free(gpus: &Gpus) -> String {
    match gpus.blocked {
        0 => gpus.free.to_string(),
        blocked => format!("{}, {blocked} of them blocked", gpus.free),
    }
}

/// What tells most about how bad it is, in one line; empty where there is nothing to tell.
#[must_use]
pub fn facts(audit: &Audit) -> String {
    let summary = &audit.summary;
    let nodes = || audit.nodes.iter().map(|node| node.gpus);
    let (free, blocked): (i64, i64) = (nodes().map(|gpus| gpus.free).sum(), nodes().map(|gpus| gpus.blocked).sum());
    let mut facts = Vec::new();
    match summary.pods_on_gpu_nodes.ordinary {
        0 => {}
        pods => facts.push(format!("{} on GPU nodes", number(pods, "ordinary pod is", "ordinary pods are"))),
    }
    // Of what is free the rest is unknown pods'.
    if blocked > 0 && !summary.pods_unknown {
        facts.push(format!("{blocked} of {free} free GPUs cannot be used"));
    }
    if summary.drifted_nodes > 0 {
        let verb = if summary.drifted_nodes == 1 { "differs" } else { "differ" };
        facts.push(format!("{} of {} GPU nodes {verb} from the contract", summary.drifted_nodes, summary.gpu_nodes));
    }
    if summary.gpu_nodes == 0 {
        facts.push("no node that has to do with GPUs is known".to_owned());
    }
    let mut facts = facts.join(", ");
    if !facts.is_empty() {
        facts = format!("{}.", capitalised(&facts));
    }
    if summary.pods_unknown {
        let separator = if facts.is_empty() { "" } else { " " };
        facts = format!("{PODS_UNKNOWN}{separator}{facts}");
    }
    if !audit.unseen().2.is_empty() {
        let separator = if facts.is_empty() { "" } else { " " };
        facts = format!("{facts}{separator}Not everything could be judged: see below.");
    }
    facts
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The DaemonSets that do not reach GPU nodes though they should, or would not with the taints.
pub(super) fn left_out(audit: &Audit) -> impl Iterator<Item = &Coverage> {
    audit.unseen().0.into_iter().filter(|coverage| is_left_out(coverage))
}

fn is_left_out(coverage: &Coverage) -> bool {
    coverage.expected && (!coverage.missing.is_empty() || coverage.with_taints < coverage.selected)
}

/// What is not shown of DaemonSets, pending pods and gaps, because the baseline has it; empty where nothing is.
pub(super) fn as_before(audit: &Audit) -> String {
    let (sets, pods, gaps) = audit.unseen();
    let all_sets = audit.daemon_sets.iter().filter(|coverage| is_left_out(coverage)).count();
    let new_sets = sets.into_iter().filter(|coverage| is_left_out(coverage)).count();
    let parts = [
        (all_sets - new_sets, "DaemonSet that misses GPU nodes", "DaemonSets that miss GPU nodes"),
        (audit.pending.len() - pods.len(), "pod that finds no node", "pods that find no node"),
        (audit.gaps.len() - gaps.len(), "gap", "gaps"),
    ];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| number(count, one, many));
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() { String::new() } else { format!("As in the baseline, and not shown: {}.", parts.join(", ")) }
}

/// The first few names of a list, and how many more there are.
pub(super) fn some_of(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What to do after this audit.
#[must_use]
pub fn next_steps(audit: &Audit) -> Vec<String> {
    let any = |wanted: &dyn Fn(Check) -> bool| audit.findings.iter().any(|finding| wanted(finding.rule));
    let mut steps = Vec::new();
    let on_nodes = [
        Check::NodeWithoutTaint,
        Check::NodeTaintDiffers,
        Check::NodeWithoutLabel,
        Check::NodeLabelDiffers,
        Check::NodeGroupDrift,
    ];
    if any(&|rule| on_nodes.contains(&rule)) {
        steps.push(
            "Before a node is given its taint or label, ask what that would do: the same command with --what-if names \
             who would be evicted, and who could not come back."
                .to_owned(),
        );
    }
    if any(&|rule| matches!(rule, Check::Contract(_) | Check::OrdinaryPod)) {
        steps.push(
            "Where today's workloads have to run on while they are mended: --adopt 30d prints the exemptions, each with \
             an owner, a reason and an expiry."
                .to_owned(),
        );
    }
    if audit.mode != "enforce" {
        steps.push(format!(
            "The contract is in mode {}: it refuses nothing that is new yet. Set mode: enforce, or rollout for a \
             namespace, once nothing here is high.",
            audit.mode
        ));
    }
    if audit.baseline.is_some() {
        steps.push("Without --baseline everything is shown, what was known among it.".to_owned());
    } else if audit.findings.is_empty() {
        steps.push("Run this at intervals, with --fail-on high in a pipeline: it exits with 1 then.".to_owned());
    } else {
        steps.push(
            "Keep this audit with --output json > baseline.json; --baseline baseline.json then shows only what is new."
                .to_owned(),
        );
    }
    steps
}

/// By which contract it was judged, and how far that goes.
pub(super) fn contract(audit: &Audit) -> String {
    let separator = if audit.contract.is_empty() { "" } else { ", " };
    format!("{}{separator}mode {}", audit.contract, audit.mode)
}
