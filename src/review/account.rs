//! The account of a decision for the log and the metrics: closed words where they become labels.

use std::borrow::Cow;

use super::envelope::{Request, Verb};
use crate::policy::{Action, Decision, Kind, Mode, Text, visible};

/// The rule of the entry which says that the labels of the namespace are not known.
pub(super) const LABELS: &str = "namespace-labels";

/// The rule of the entry which says that a node is not known.
const NODE: &str = "node";

/// What was decided, in words that the log and the metrics take.
#[derive(Debug)]
pub struct Account<'b> {
    /// The request's uid; empty where none could be read.
    pub uid: Cow<'b, str>,
    /// CREATE, UPDATE, DELETE, CONNECT or `unknown`.
    pub operation: &'static str,
    /// The resource's name, or `other`; `custom` for those of the contract.
    pub resource: &'static str,
    /// The object's kind.
    pub kind: Cow<'b, str>,
    /// The request's namespace.
    pub namespace: Cow<'b, str>,
    /// The object's name, or its generateName with a `*` for the rest.
    pub name: Cow<'b, str>,
    /// Who asked.
    pub user: Cow<'b, str>,
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// The strongest thing that was done or would have been.
    pub outcome: &'static str,
    /// One for each finding, injection, exemption or fault; empty for an uneventful allow.
    pub entries: Vec<Entry>,
    /// The exemptions that counted, or would have had they not expired.
    pub exemptions: Vec<ExemptionUse>,
    /// Whether the labels of the namespace are not known, and the answer could be another with them.
    pub labels_unknown: bool,
    /// The node that is not known, where the answer could be another if it were.
    pub node_unknown: Option<String>,
    /// The patch as JSON, made or not.
    pub(super) patch: Option<String>,
}

/// What came of an exemption.
#[derive(Debug, PartialEq, Eq)]
pub struct ExemptionUse {
    /// The exemption's name.
    pub exemption: String,
    /// `exempt` or `expired`.
    pub outcome: &'static str,
}

/// One thing worth a place in the log and a count.
#[derive(Debug)]
pub struct Entry {
    /// A rule's id, `injection`, `exemption`, `fault`, `namespace-labels`, `node` or `bad-request`.
    pub rule: &'static str,
    /// `deny`, `warn`, `audit`, `inject`, `refuse`, each also with `would-` before it; `exempt`; `report`.
    pub action: &'static str,
    /// What there is to say.
    pub message: String,
}

impl<'b> Account<'b> {
    pub(super) fn of(request: &Request<'b>, name: Cow<'b, str>, decision: &Decision) -> Self {
        // Written once: the log, the audit annotation and the answer all carry it.
        let patch = decision.injection.as_ref().map(|injection| injection.patch.to_string());
        let mut entries = entries(decision, patch.as_deref());
        if decision.labels_unknown {
            entries.push(Entry::labels_unknown(&request.namespace));
        }
        entries.extend(decision.node_unknown.as_deref().map(Entry::node_unknown));
        Self {
            uid: request.uid.0.clone(),
            operation: request.verb().map_or("unknown", Verb::as_str),
            resource: if request.is_custom { Kind::Custom.resource() } else { request.resource().unwrap_or("other") },
            kind: request.kind.kind.0.clone(),
            namespace: request.namespace.0.clone(),
            name,
            user: request.user_info.username.0.clone(),
            dry_run: request.dry_run,
            outcome: outcome(&entries),
            entries,
            exemptions: exemptions(decision),
            labels_unknown: decision.labels_unknown,
            node_unknown: decision.node_unknown.clone(),
            patch,
        }
    }

    pub(super) fn salvaged(uid: Text<'b>, namespace: Text<'b>, labels_unknown: bool) -> Self {
        let entries = if labels_unknown { vec![Entry::labels_unknown(&namespace)] } else { Vec::new() };
        Self { uid: uid.0, namespace: namespace.0, entries, labels_unknown, ..Self::nameless() }
    }

    /// For a body without a readable uid.
    pub(super) fn unreadable(message: String) -> Self {
        let entry = Entry { rule: "bad-request", action: "refuse", message };
        Self { outcome: "refuse", entries: vec![entry], ..Self::nameless() }
    }

    pub(super) fn refuse(&mut self, mode: Mode, message: &str) {
        let action = if mode == Mode::Enforce { "refuse" } else { "would-refuse" };
        self.entries.push(Entry { rule: "bad-request", action, message: message.to_owned() });
        self.outcome = action;
    }

    fn nameless() -> Self {
        Self {
            uid: Cow::Borrowed(""),
            operation: "unknown",
            resource: "other",
            kind: Cow::Borrowed(""),
            namespace: Cow::Borrowed(""),
            name: Cow::Borrowed(""),
            user: Cow::Borrowed(""),
            dry_run: false,
            outcome: "allow",
            entries: Vec::new(),
            exemptions: Vec::new(),
            labels_unknown: false,
            node_unknown: None,
            patch: None,
        }
    }
}

impl Entry {
    fn labels_unknown(namespace: &str) -> Self {
        let message = format!(
            "the labels of namespace {} are not known: no selector of the contract could be tried on them",
            visible(namespace)
        );
        Self { rule: LABELS, action: "report", message }
    }

    fn node_unknown(node: &str) -> Self {
        let message = format!(
            "the labels and taints of node {} are not known: whether it is a GPU node could not be told",
            visible(node)
        );
        Self { rule: NODE, action: "report", message }
    }
}

/// What is done about a finding, or would be without the ceiling.
fn action_word(configured: Action, action: Action) -> &'static str {
    match (configured, action == configured) {
        (Action::Deny, true) => "deny",
        (Action::Deny, false) => "would-deny",
        (Action::Warn, true) => "warn",
        (Action::Warn, false) => "would-warn",
        (Action::Audit | Action::Off, _) => "audit",
    }
}

fn entries(decision: &Decision, patch: Option<&str>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for finding in &decision.findings {
        let action = action_word(finding.configured, finding.action);
        entries.push(Entry { rule: finding.rule.id(), action, message: visible(&finding.text()).into_owned() });
    }
    if let (Some(injection), Some(patch)) = (&decision.injection, patch) {
        let action = if injection.enforced { "inject" } else { "would-inject" };
        let message = format!("{}: {patch}", injection.purpose);
        entries.push(Entry { rule: "injection", action, message });
    }
    for exempted in &decision.exempted {
        let message = format!("{} exempts from {}", exempted.exemption, exempted.spared());
        entries.push(Entry { rule: "exemption", action: "exempt", message });
    }
    for fault in &decision.faults {
        entries.push(Entry { rule: "fault", action: "report", message: visible(&fault.to_string()).into_owned() });
    }
    entries
}

fn exemptions(decision: &Decision) -> Vec<ExemptionUse> {
    let exempted = decision.exempted.iter().map(|exempted| (&exempted.exemption, "exempt"));
    let lapsed = decision.findings.iter().filter_map(|finding| Some((&finding.lapsed.as_ref()?.exemption, "expired")));
    let mut uses: Vec<ExemptionUse> = Vec::new();
    for (exemption, outcome) in exempted.chain(lapsed) {
        let one = ExemptionUse { exemption: exemption.clone(), outcome };
        if !uses.contains(&one) {
            uses.push(one);
        }
    }
    uses
}

/// The strongest action among the entries.
fn outcome(entries: &[Entry]) -> &'static str {
    const STRONGEST_FIRST: [&str; 9] =
        ["deny", "inject", "warn", "would-deny", "would-inject", "would-warn", "exempt", "audit", "report"];
    let present = |action: &&str| entries.iter().any(|entry| entry.action == *action);
    STRONGEST_FIRST.into_iter().find(present).unwrap_or("allow")
}
