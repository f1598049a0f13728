//! The log line of a decision: one for each review that has something to tell.
//!
//! Names who asked for what and which rules spoke. Never the object: it may carry secrets. Every
//! field is cut, and the log's formats escape control characters, so that a name in a request can
//! neither forge a line nor flood the log.

use crate::review::{Account, Webhook};

/// The longest field that a request decides, in characters. Kubernetes' own names end at 253.
const FIELD: usize = 256;

/// The longest list of reasons, in characters: room for several findings of a sentence each.
const REASONS: usize = 1_024;

/// Actions that refuse the request.
const REFUSING: [&str; 2] = ["deny", "refuse"];

/// Logs the account, unless the request was allowed without a word: as a warning where it was
/// refused.
pub(super) fn write(webhook: Webhook, account: &Account<'_>) {
    if account.entries.is_empty() {
        return;
    }
    let rules = joined(account.entries.iter().map(|entry| entry.rule), ",");
    let reasons = joined(account.entries.iter().map(|entry| entry.message.as_str()), "; ");
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: "gpufence::decision",
                uid = cut(&account.uid, FIELD),
                webhook = webhook.as_str(),
                operation = account.operation,
                resource = account.resource,
                kind = cut(&account.kind, FIELD),
                namespace = cut(&account.namespace, FIELD),
                name = cut(&account.name, FIELD),
                user = cut(&account.user, FIELD),
                dry_run = account.dry_run,
                outcome = account.outcome,
                rules = cut(&rules, FIELD),
                reasons = cut(&reasons, REASONS),
                "{}", account.outcome
            )
        };
    }
    if account.entries.iter().any(|entry| REFUSING.contains(&entry.action)) {
        line!(warn);
    } else {
        line!(info);
    }
}

/// Each once, in the order in which they come.
fn joined<'a>(parts: impl Iterator<Item = &'a str>, separator: &str) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for part in parts {
        if !seen.contains(&part) {
            seen.push(part);
        }
    }
    seen.join(separator)
}

/// The first `limit` characters.
fn cut(text: &str, limit: usize) -> &str {
    text.char_indices().nth(limit).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_falls_between_characters() {
        assert_eq!(cut("gpu", 3), "gpu");
        assert_eq!(cut("gpüs", 3), "gpü");
        assert_eq!(cut("", 3), "");
        assert_eq!(cut(&"ü".repeat(1_000), FIELD).chars().count(), FIELD);
    }

    #[test]
    fn a_rule_that_spoke_twice_is_named_once() {
        assert_eq!(joined(["a", "b", "a"].into_iter(), ","), "a,b");
    }
}
