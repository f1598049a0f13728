//! An audit for people and for other programs: what all forms share is said here once.
//!
//! | module | form |
//! | --- | --- |
//! | `groups` | findings of one rule and one maker together |
//! | `words` | the sentences that several forms have in common |
//! | `text` | the terminal |
//! | `markdown` | a ticket |
//! | `sarif` | SARIF 2.1.0, for what shows findings of other tools as well |
//! | [`cluster`] | reports in the cluster |
//! | `html` | one page, for a browser |
//! | `what_if` | what a change would do, for the terminal |

pub mod cluster;
mod groups;
mod html;
mod markdown;
mod sarif;
mod text;
mod what_if;
mod words;

pub use groups::{RuleGroup, Subject, by_rule};
pub use html::html;
pub use markdown::{LONGEST as LONGEST_MARKDOWN, markdown};
pub use sarif::{MOST_RESULTS, sarif};
pub use text::{Shown, text};
pub use what_if::what_if_text;
pub use words::{dump_command, facts, next_steps, verdict};

use crate::audit::Audit;

/// The audit as JSON, in the form that `deploy/audit-v1.schema.json` describes.
///
/// # Errors
/// None is known: the audit has no map whose keys are not text.
pub fn json(audit: &Audit) -> serde_json::Result<String> {
    serde_json::to_string_pretty(audit).map(|text| text + "\n")
}
