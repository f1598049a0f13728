//! The report that a person reads in a terminal, top down: what it comes to, the numbers, the worst first.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use super::groups::{RuleGroup, Subject, by_rule};
use super::words::{self, number, some_of};
use crate::audit::{Audit, Check, Coverage, Finding, ObjectRef, Pending, PoolAccount, Severity};
use crate::policy::visible;

/// How many lines of a kind are shown where not everything is asked for.
const FEW: usize = 10;

/// How many names of nodes are shown in a line.
const NAMES: usize = 5;

/// What of an audit is shown, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    /// Everything, rather than the first few of each kind.
    pub everything: bool,
    /// With the colours of a terminal.
    pub coloured: bool,
    /// Whether the objects are from files, which could hold more of them.
    pub from_files: bool,
}

/// The audit as text.
#[must_use]
pub fn text(audit: &Audit, shown: Shown) -> String {
    let mut page = Page { text: String::new(), shown };
    let (worst, verdict) = words::verdict(audit);
    page.line(0, &format!("Audit of {}, held against {}", audit.source, audit.taken));
    page.line(0, &format!("Contract: {}", words::contract(audit)));
    page.gap();
    page.styled(worst.map_or(Style::Good, Style::of), &verdict, "");
    let facts = words::facts(audit);
    if !facts.is_empty() {
        page.line(0, &facts);
    }
    page.gap();
    summary(&mut page, audit);
    findings(&mut page, audit);
    daemon_sets(&mut page, audit);
    pending(&mut page, audit);
    gaps(&mut page, audit);
    let as_before = words::as_before(audit);
    if !as_before.is_empty() {
        page.gap();
        page.line(0, &as_before);
    }
    page.section("What to do next");
    for step in words::next_steps(audit) {
        page.line(2, &format!("- {step}"));
    }
    page.text
}

/// The text as far as it is written. What stands in a line is never obeyed by a terminal, but for our own colours.
struct Page {
    text: String,
    shown: Shown,
}

#[derive(Debug, Clone, Copy)]
enum Style {
    Bad,
    Caution,
    Note,
    Good,
    Title,
}

impl Style {
    fn of(severity: Severity) -> Self {
        match severity {
            Severity::High => Self::Bad,
            Severity::Medium => Self::Caution,
            Severity::Low | Severity::Info => Self::Note,
        }
    }

    /// The parameters of the escape sequence: bold, and a colour of the terminal's own palette.
    fn code(self) -> &'static str {
        match self {
            Self::Bad => "1;31",
            Self::Caution => "1;33",
            Self::Note => "1;36",
            Self::Good => "1;32",
            Self::Title => "1",
        }
    }
}

impl Page {
    fn line(&mut self, indent: usize, text: &str) {
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text.push_str(&visible(text));
        self.text.push('\n');
    }

    /// A line whose first part stands out.
    fn styled(&mut self, style: Style, first: &str, rest: &str) {
        let (first, rest) = (visible(first), visible(rest));
        let line = if self.shown.coloured {
            format!("\u{1b}[{}m{first}\u{1b}[0m{rest}\n", style.code())
        } else {
            format!("{first}{rest}\n")
        };
        self.text.push_str(&line);
    }

    fn section(&mut self, title: &str) {
        self.gap();
        self.styled(Style::Title, title, "");
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    /// What to do. It may be several lines, such as YAML to add.
    fn action(&mut self, indent: usize, action: &str) {
        for (place, line) in action.lines().enumerate() {
            self.line(indent, &format!("{} {line}", if place == 0 { "->" } else { "  " }));
        }
    }

    /// How many of a kind are shown.
    fn most(&self) -> usize {
        if self.shown.everything { usize::MAX } else { FEW }
    }

    fn more(&mut self, what: &str) {
        self.line(2, &format!("and {what}: --all shows them, and --output json has them"));
    }
}

fn summary(page: &mut Page, audit: &Audit) {
    let summary = &audit.summary;
    page.line(
        0,
        &format!(
            "Nodes     {}: {} to do with GPUs, {} from the contract",
            summary.nodes,
            number(summary.gpu_nodes, "has", "have"),
            number(summary.drifted_nodes, "of them differs", "of them differ"),
        ),
    );
    let on = &summary.pods_on_gpu_nodes;
    page.line(
        0,
        &format!(
            "Pods      {}; on GPU nodes {}, {} of DaemonSets, {} of the platform, {} ordinary",
            summary.pods,
            number(on.gpu_workload, "GPU workload", "GPU workloads"),
            on.daemon_set,
            on.platform,
            on.ordinary,
        ),
    );
    page.line(0, &format!("Findings  {}", words::counts(audit)));
    if audit.pools.is_empty() {
        return;
    }
    page.gap();
    let head = ["Pool", "nodes", "GPUs", "requested", "free", "out of use", "ordinary pods"].map(str::to_owned);
    let row = |pool: &PoolAccount| {
        let gpus = &pool.gpus;
        let numbers = [gpus.allocatable, gpus.requested, gpus.out_of_use].map(|number| number.to_string());
        let [allocatable, requested, out_of_use] = numbers;
        let free = words::free(gpus);
        let (nodes, ordinary) = (pool.nodes.to_string(), pool.ordinary_pods.to_string());
        [visible(&pool.name).into_owned(), nodes, allocatable, requested, free, out_of_use, ordinary]
    };
    let rows: Vec<_> = std::iter::once(head).chain(audit.pools.iter().map(row)).collect();
    let widths: [usize; 7] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
    for [name, numbers @ ..] in &rows {
        let mut line = format!("{name:<width$}", width = widths[0]);
        for (number, width) in numbers.iter().zip(&widths[1..]) {
            let _ = write!(line, "  {number:>width$}");
        }
        page.line(0, &line);
    }
}

fn findings(page: &mut Page, audit: &Audit) {
    for group in by_rule(&audit.findings) {
        let count = group.count();
        page.gap();
        let word = group.severity.as_str().to_uppercase();
        page.styled(Style::of(group.severity), &word, &format!("  {} ({count}): {}", group.rule, group.rule.title()));
        findings_of(page, &group);
    }
}

fn findings_of(page: &mut Page, group: &RuleGroup<'_>) {
    let most = page.most();
    // What is the same for all stands once.
    let examples: Vec<_> = group.subjects.iter().filter_map(Subject::example).collect();
    let shared = |part: fn(&Finding) -> &String| {
        let first = examples.first().map(|finding| part(finding));
        first.filter(|first| examples.len() > 1 && examples.iter().all(|finding| part(finding) == *first))
    };
    let are_one = group.subjects.iter().all(Subject::has_one_action);
    let (message, action) = (shared(|finding| &finding.message), shared(|finding| &finding.action).filter(|_| are_one));
    if let Some(message) = message {
        page.line(2, &format!("all: {message}"));
    }
    for subject in group.subjects.iter().take(most) {
        page.line(2, &subject.title());
        let Some(example) = subject.example() else { continue };
        if let Some(field) = example.field.as_ref().filter(|field| !example.message.contains(field.as_str())) {
            page.line(4, &format!("at {field}"));
        }
        if message.is_none() {
            page.line(4, &example.message);
        }
        let is_one = subject.has_one_action();
        if action.is_none() {
            page.action(4, &example.action);
            if !is_one && !page.shown.everything {
                page.line(7, "that is for this one; each of the others has its own: --all");
            }
        }
        let others = subject.others().filter(|_| page.shown.everything);
        for finding in others.collect::<Vec<_>>() {
            let node = finding.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            let field = finding.field.as_ref().map(|field| format!(" at {field}")).unwrap_or_default();
            page.line(4, &format!("{}{node}{field}: {}", finding.object, finding.message));
            if !is_one && finding.action != example.action {
                page.action(6, &finding.action);
            }
        }
    }
    let rest = group.subjects.get(most..).unwrap_or_default();
    if !rest.is_empty() {
        let count = rest.iter().map(|subject| subject.findings.len()).sum();
        page.more(&number(count, "more", "more"));
    }
    if let Some(action) = action {
        page.action(2, action);
    }
}

fn daemon_sets(page: &mut Page, audit: &Audit) {
    let left_out: Vec<_> = words::left_out(audit).collect();
    if left_out.is_empty() {
        return;
    }
    page.section("DaemonSets that miss GPU nodes");
    for coverage in left_out.iter().take(page.most()) {
        let Coverage { daemon_set, role, selected, running, missing, with_taints, add, .. } = coverage;
        let role = role.map(|role| format!(" ({role})")).unwrap_or_default();
        page.line(2, &format!("{daemon_set}{role}: on {running} of {selected} GPU nodes that it selects"));
        if !missing.is_empty() {
            let names = if page.shown.everything { usize::MAX } else { NAMES };
            page.line(4, &format!("missing on {}", some_of(missing, names)));
        }
        if with_taints < selected {
            page.line(4, &format!("would be on {with_taints} if each node carried its pool's taints"));
        }
        if !add.is_empty() {
            page.action(4, &format!("add to spec.template.spec.tolerations: {}", add.join(", ")));
        }
    }
    if left_out.len() > page.most() {
        page.more(&format!("{} more DaemonSets", left_out.len() - FEW));
    }
}

fn pending(page: &mut Page, audit: &Audit) {
    // Pods of one maker that wait for the same are one line.
    let mut waiting: BTreeMap<(&ObjectRef, &[&str]), Vec<&Pending>> = BTreeMap::new();
    for pending in audit.unseen().1 {
        let maker = pending.controller.as_ref().unwrap_or(&pending.object);
        waiting.entry((maker, &pending.causes)).or_default().push(pending);
    }
    if waiting.is_empty() {
        return;
    }
    let told = audit.findings.iter().filter(|finding| finding.rule == Check::PodPending);
    let told: HashSet<_> = told.map(|finding| &finding.object).collect();
    page.section("Pods that find no node");
    for ((maker, causes), pods) in waiting.iter().take(page.most()) {
        let Some(first) = pods.first() else { continue };
        let pool = first.pool.as_ref().map(|pool| format!(" (pool {pool})")).unwrap_or_default();
        let whom = match (pods.len(), **maker == first.object) {
            (1, true) => String::new(),
            (1, false) => format!(": {}", first.object),
            (count, _) => format!(": {count} pods, such as {}", first.object),
        };
        page.line(2, &format!("{maker}{whom}{pool}: {}", causes.join(", ")));
        if !told.contains(&first.object) {
            page.line(4, &first.message);
            page.action(4, &first.action);
        }
        if let Some(scheduler) = &first.scheduler {
            page.line(4, &format!("the scheduler says: {scheduler}"));
        }
    }
    if let Some(more) = waiting.len().checked_sub(page.most()).filter(|more| *more > 0) {
        page.more(&format!("{more} more"));
    }
}

fn gaps(page: &mut Page, audit: &Audit) {
    let gaps = audit.unseen().2;
    if gaps.is_empty() {
        return;
    }
    page.section("What could not be judged");
    for gap in gaps.iter().take(page.most()) {
        page.line(2, &format!("- {gap}"));
    }
    if gaps.len() > page.most() {
        page.more(&format!("{} more", gaps.len() - FEW));
    }
    if page.shown.from_files {
        page.line(2, "All that an audit asks for, beside the customResources of the contract, is written by:");
        page.line(4, &words::dump_command());
    }
}
