//! Markdown for a change ticket: tables, the long ones folded, and never longer than a ticket takes.

use std::fmt::Write as _;

use super::groups::{RuleGroup, by_rule};
use super::what_if::what_if_text;
use super::words::{self, some_of};
use super::{Shown, Subject};
use crate::audit::{Audit, Finding, Pending, Severity};
use crate::policy::visible;

/// How many characters the whole may have. GitHub takes 65,536.
pub const LONGEST: usize = 60_000;

/// How many characters each part may have. What is left of [`LONGEST`] is for titles and fixed sentences.
const WHAT_IF: usize = 12_000;
const FINDINGS: usize = 24_000;
const POOLS: usize = 4_000;
const DAEMON_SETS: usize = 6_000;
const PENDING: usize = 6_000;
const GAPS: usize = 4_000;

/// How many rows a table has before the others are folded.
const OPEN: usize = 10;

/// How many characters of a text are shown in a cell.
const CELL: usize = 600;

/// The audit as Markdown.
#[must_use]
pub fn markdown(audit: &Audit, shown: Shown) -> String {
    let (_, verdict) = words::verdict(audit);
    let facts = words::facts(audit);
    let separator = if facts.is_empty() { "" } else { " " };
    let mut text = format!("# GPU audit of {}\n\n**{verdict}**{separator}{facts}\n\n", cell(&audit.source));
    text += &summary(audit);
    text += &pools(audit);
    text += &what_if(audit);
    text += &findings(audit);
    text += &daemon_sets(audit);
    text += &pending(audit);
    text += &gaps(audit, shown.from_files);
    let as_before = words::as_before(audit);
    if !as_before.is_empty() {
        let _ = write!(text, "\n{as_before}\n");
    }
    text += "\n## What to do next\n\n";
    for step in words::next_steps(audit) {
        let _ = writeln!(text, "- {}", cell(&step));
    }
    text
}

/// Text that says what it says, whatever is in it: no markup, no HTML, one line.
fn cell(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut letters = text.chars();
    for letter in letters.by_ref().take(CELL) {
        match letter {
            '\n' => escaped.push_str("<br>"),
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '|' | '`' | '\\' | '*' | '_' | '[' | ']' | '~' | '#' | '!' | '$' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            letter => escaped.push_str(&visible(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    if letters.next().is_some() {
        escaped.push('…');
    }
    escaped
}

/// A table that grows as long as there is room.
struct Table {
    text: String,
    columns: &'static [&'static str],
    rows: usize,
    room: usize,
    left_out: usize,
    folded: bool,
}

impl Table {
    /// What is kept free for the end of a fold and the words about what was left out.
    const END: usize = 200;

    fn new(columns: &'static [&'static str], room: usize) -> Self {
        let mut table = Self { text: String::new(), columns, rows: 0, room, left_out: 0, folded: false };
        table.head();
        table
    }

    fn head(&mut self) {
        let dashes: Vec<_> = self.columns.iter().map(|_| "---").collect();
        let _ = writeln!(self.text, "| {} |\n| {} |", self.columns.join(" | "), dashes.join(" | "));
    }

    fn row(&mut self, cells: &[&str], of: usize) {
        // Once a row had no room none has: what is shown is the worst, without gaps.
        if self.left_out > 0 {
            self.left_out += 1;
            return;
        }
        let cells: Vec<_> = cells.iter().map(|text| cell(text)).collect();
        let row = format!("| {} |\n", cells.join(" | "));
        if self.text.chars().count() + Self::END + row.chars().count() > self.room {
            self.left_out += 1;
            return;
        }
        if self.rows == OPEN && of > OPEN {
            let _ = writeln!(self.text, "\n<details><summary>{} more</summary>\n", of - OPEN);
            self.folded = true;
            self.head();
        }
        self.text += &row;
        self.rows += 1;
    }

    fn end(mut self) -> String {
        if self.folded {
            self.text += "\n</details>\n";
        }
        if self.left_out > 0 {
            let _ = writeln!(self.text, "\n{} more rows have no room here: `--output json` has them.", self.left_out);
        }
        self.text
    }
}

fn summary(audit: &Audit) -> String {
    let summary = &audit.summary;
    let on = &summary.pods_on_gpu_nodes;
    let mut table = Table::new(&["", ""], POOLS);
    for (name, value) in [
        ("Held against", audit.taken.clone()),
        ("Contract", words::contract(audit)),
        (
            "Nodes",
            format!("{}, {} of them with GPUs, {} drifted", summary.nodes, summary.gpu_nodes, summary.drifted_nodes),
        ),
        ("Pods", summary.pods.to_string()),
        (
            "Pods on GPU nodes",
            format!(
                "{} with a GPU, {} of DaemonSets, {} of the platform, {} ordinary",
                on.gpu_workload, on.daemon_set, on.platform, on.ordinary
            ),
        ),
        ("Findings", words::counts(audit)),
    ] {
        table.row(&[name, &value], 0);
    }
    table.end()
}

fn pools(audit: &Audit) -> String {
    if audit.pools.is_empty() {
        return String::new();
    }
    let columns = &["Pool", "Nodes", "GPUs", "Requested", "Free", "Out of use", "Ordinary pods"];
    let mut table = Table::new(columns, POOLS);
    for pool in &audit.pools {
        let gpus = &pool.gpus;
        let numbers = [gpus.allocatable, gpus.requested, gpus.out_of_use].map(|number| number.to_string());
        let [allocatable, requested, out_of_use] = &numbers;
        let free = &words::free(gpus);
        let (nodes, ordinary) = (pool.nodes.to_string(), pool.ordinary_pods.to_string());
        table.row(&[&pool.name, &nodes, allocatable, requested, free, out_of_use, &ordinary], audit.pools.len());
    }
    format!("\n## GPUs\n\n{}", table.end())
}

/// As the terminal shows it: its commands are there to be copied.
fn what_if(audit: &Audit) -> String {
    let Some(what_if) = &audit.what_if else { return String::new() };
    let text = what_if_text(what_if);
    // A fence ends at the first line with as many backticks, which nothing in an object can be.
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let mut shown = String::new();
    let mut left = WHAT_IF;
    let mut lines = text.lines();
    for line in lines.by_ref() {
        let length = line.chars().count() + 1;
        if length > left {
            return format!(
                "\n## What if\n\n{fence}text\n{shown}{fence}\n\nThe rest has no room here: `--output text` has it.\n"
            );
        }
        left -= length;
        shown += line;
        shown.push('\n');
    }
    format!("\n## What if\n\n{fence}text\n{shown}{fence}\n")
}

fn findings(audit: &Audit) -> String {
    let mut text = String::from("\n## Findings\n");
    let groups = by_rule(&audit.findings);
    if groups.is_empty() {
        return text + "\nNone.\n";
    }
    let mut room = FINDINGS;
    for severity in Severity::WORST_FIRST {
        let rows = |group: &RuleGroup<'_>| group.severity == severity;
        let groups: Vec<_> = groups.iter().filter(|group| rows(group)).collect();
        let of = groups.iter().map(|group| group.subjects.len()).sum();
        if of == 0 {
            continue;
        }
        let columns = &["Rule", "Object", "What was found", "What to do"];
        // The worst comes first and takes what it needs; the others are named at least.
        let mut table = Table::new(columns, room);
        for group in &groups {
            for subject in &group.subjects {
                let [found, action] = cells_of(subject);
                table.row(&[group.rule.id(), &subject.title(), found, action], of);
            }
        }
        let table = table.end();
        room = room.saturating_sub(table.chars().count());
        let _ = write!(text, "\n### {} ({})\n\n{table}", severity.as_str().to_uppercase(), words::of(audit, severity));
    }
    text
}

fn cells_of<'a>(subject: &Subject<'a>) -> [&'a str; 2] {
    let example: Option<&'a Finding> = subject.example();
    example.map(|finding| [&*finding.message, &*finding.action]).unwrap_or_default()
}

fn daemon_sets(audit: &Audit) -> String {
    let left_out: Vec<_> = words::left_out(audit).collect();
    if left_out.is_empty() {
        return String::new();
    }
    let columns = &["DaemonSet", "For", "GPU nodes it selects", "Runs on", "With the taints", "Missing on", "Add"];
    let mut table = Table::new(columns, DAEMON_SETS);
    for coverage in &left_out {
        let numbers = [coverage.selected, coverage.running, coverage.with_taints].map(|number| number.to_string());
        let [selected, running, with_taints] = &numbers;
        let (name, missing) = (coverage.daemon_set.to_string(), some_of(&coverage.missing, OPEN));
        let role = coverage.role.unwrap_or_default();
        let add = coverage.add.join("\n");
        table.row(&[&name, role, selected, running, with_taints, &missing, &add], left_out.len());
    }
    format!("\n## DaemonSets that miss GPU nodes\n\n{}", table.end())
}

fn pending(audit: &Audit) -> String {
    let waiting = audit.unseen().1;
    if waiting.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["Pod", "Pool", "Causes", "What keeps it", "What to do"], PENDING);
    for Pending { object, pool, causes, message, action, .. } in &waiting {
        let (name, causes) = (object.to_string(), causes.join(", "));
        let pool = pool.as_deref().unwrap_or_default();
        table.row(&[&name, pool, &causes, message, action], waiting.len());
    }
    format!("\n## Pods that find no node\n\n{}", table.end())
}

fn gaps(audit: &Audit, from_files: bool) -> String {
    let gaps = audit.unseen().2;
    if gaps.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["What could not be judged"], GAPS);
    for gap in &gaps {
        table.row(&[gap.as_str()], gaps.len());
    }
    let mut text = format!("\n## Not judged\n\n{}", table.end());
    if from_files {
        let _ = write!(
            text,
            "\nAll that an audit asks for, beside the customResources of the contract, is written by:\n\n\
             ```console\n$ {}\n```\n",
            words::dump_command()
        );
    }
    text
}
