//! The report that a person reads.

use std::fmt::Write as _;

use super::{Review, Verdict};
use crate::policy::visible;

/// The report as text. `everything` shows objects with nothing to say as well.
#[must_use]
pub fn text(review: &Review, everything: bool) -> String {
    let mut text = String::new();
    for verdict in &review.verdicts {
        if everything || verdict.outcome != "allow" {
            write_verdict(&mut text, verdict);
        }
    }
    let count = |outcome: &str| review.verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    let mut parts = Vec::new();
    for (outcome, words) in [
        ("deny", "denied"),
        ("would-deny", "would be denied"),
        ("warn", "with warnings"),
        ("would-warn", "would have warnings"),
        ("inject", "injected"),
        ("would-inject", "would be injected"),
        ("exempt", "exempt"),
        ("audit", "recorded"),
        ("report", "with unreadable fields"),
        ("allow", "clean"),
    ] {
        match count(outcome) {
            0 => {}
            number => parts.push(format!("{number} {words}")),
        }
    }
    let passed_over: usize = review.passed_over.values().sum();
    if passed_over > 0 {
        let kinds =
            review.passed_over.iter().map(|((api_version, kind), count)| format!("{count} {api_version} {kind}"));
        parts.push(format!("{passed_over} not judged ({})", visible(&kinds.collect::<Vec<_>>().join(", "))));
    }
    if review.foreign > 0 {
        parts.push(format!("{} documents that are no Kubernetes objects", review.foreign));
    }
    let objects = review.verdicts.len() + passed_over + review.foreign;
    let plural = if objects == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "{objects} object{plural}: {}",
        if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
    );
    text
}

fn write_verdict(text: &mut String, verdict: &Verdict) {
    let Verdict { source, kind, namespace, name, outcome, mode, .. } = verdict;
    let held_back = if outcome.starts_with("would-") { format!(" (mode {mode})") } else { String::new() };
    let title = format!("{kind} {namespace}/{name}  {source}");
    let _ = writeln!(text, "{outcome}{held_back}  {}", visible(&title));
    for finding in &verdict.findings {
        let word = if finding.configured > mode.ceiling() { "would " } else { "" };
        let whom = if verdict.is_template { " its pods" } else { "" };
        let _ = writeln!(text, "  {word}{}{whom}: {}", finding.configured.as_str(), finding.rule);
        let _ = writeln!(text, "    at {}", visible(&finding.field));
        let _ = writeln!(text, "    {}", finding.text());
    }
    if let Some(given) = &verdict.injection {
        let word = if given.enforced { "inject" } else { "would inject" };
        let whom = if given.to_pods { " into its pods" } else { "" };
        let _ = writeln!(text, "  {word}{whom}: {}", given.purpose);
        for line in &given.added {
            let _ = writeln!(text, "    + {}", visible(line));
        }
    }
    for exempted in &verdict.exempted {
        let _ = writeln!(text, "  exempt by {}: {}", exempted.exemption, exempted.spared());
    }
    for fault in &verdict.faults {
        let _ = writeln!(text, "  unreadable: {fault}");
    }
    text.push('\n');
}
