//! The answer as the API server demands it. One constructor for each kind of answer, so that the parts
//! that must go together do: `patch` with `patchType`, `status` with a denial, never a patch with one.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::account::{Account, LABELS};
use crate::policy::{Action, Decision, Finding, Mode, visible};

/// The API server cuts each warning to this many characters once all of a request's come to 4096.
const WARNING_CHARACTERS: usize = 256;

/// Few enough to stay below the 4096 characters that all webhooks share.
const WARNINGS: usize = 8;

/// How many findings a refusal spells out. More would bury the first.
const SPELLED_OUT: usize = 3;

/// The `response` of an AdmissionReview.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// A `meta/v1` Status. Without a code the client would get 400.
#[derive(Debug, Serialize)]
struct Status {
    #[serde(rename = "status")]
    word: &'static str,
    message: String,
    reason: &'static str,
    code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Debug, Serialize)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl<'a> Response<'a> {
    /// The answer to a request that was decided.
    pub(super) fn of(account: &'a Account<'_>, decision: &Decision) -> Self {
        let denials: Vec<_> = decision.denials().collect();
        let enforced = decision.injection.as_ref().is_some_and(|injection| injection.enforced);
        let patch = account.patch.as_ref().filter(|_| enforced && denials.is_empty());
        let patch = patch.map(|patch| STANDARD.encode(patch));
        Self {
            uid: &account.uid,
            allowed: denials.is_empty(),
            status: (!denials.is_empty()).then(|| Status::denied(&denials)),
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
            audit_annotations: audit_annotations(account, decision.mode),
            warnings: warnings(decision),
        }
    }

    /// The answer to a request that cannot be judged.
    pub(super) fn bad_request(account: &'a Account<'_>, mode: Mode, message: &str) -> Self {
        let refused = mode == Mode::Enforce;
        let message = format!("bad-request: {message}");
        let mut annotations =
            BTreeMap::from([("decision", account.outcome.to_owned()), ("bad-request", message.clone())]);
        if let Some(entry) = account.entries.iter().find(|entry| entry.rule == LABELS) {
            annotations.insert(LABELS, format!("{}: {}", entry.action, entry.message));
        }
        Self {
            uid: &account.uid,
            allowed: !refused,
            audit_annotations: annotations,
            warnings: if mode == Mode::Warn { vec![warning(&message)] } else { Vec::new() },
            status: refused.then_some(Status {
                word: "Failure",
                message,
                reason: "BadRequest",
                code: 400,
                details: None,
            }),
            patch_type: None,
            patch: None,
        }
    }

    /// The whole AdmissionReview.
    pub(super) fn encode(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Review<'a> {
            #[serde(rename = "apiVersion")]
            api_version: &'static str,
            kind: &'static str,
            response: &'a Response<'a>,
        }

        let review = Review { api_version: "admission.k8s.io/v1", kind: "AdmissionReview", response: self };
        // Strings and maps of strings always serialize; an empty body would count as a failed call.
        serde_json::to_vec(&review).unwrap_or_default()
    }
}

impl Status {
    fn denied(denials: &[&Finding]) -> Self {
        let mut message: Vec<_> =
            denials.iter().take(SPELLED_OUT).map(|finding| visible(&finding.to_string()).into_owned()).collect();
        if denials.len() > SPELLED_OUT {
            message.push(format!("{} more", denials.len() - SPELLED_OUT));
        }
        let causes = denials.iter().map(|finding| Cause {
            reason: finding.rule.id(),
            message: visible(&finding.text()).into_owned(),
            field: visible(&finding.field).into_owned(),
        });
        Self {
            word: "Failure",
            message: message.join(" Also: "),
            reason: "Forbidden",
            code: 403,
            details: Some(Details { causes: causes.collect() }),
        }
    }
}

/// What the client is shown beside the answer: nothing in audit mode.
fn warnings(decision: &Decision) -> Vec<String> {
    let findings = decision.findings.iter().filter(|finding| finding.action == Action::Warn).map(finding_warning);
    let faults = decision.faults.iter().filter(|_| decision.mode > Mode::Audit);
    findings.chain(faults.map(|fault| warning(&fault.to_string()))).take(WARNINGS).collect()
}

/// Cut where it is long, but not at its end: that an exemption has expired is what whoever relied on it
/// must see.
fn finding_warning(finding: &Finding) -> String {
    let Finding { rule, message, lapsed, .. } = finding;
    let text = visible(&format!("{rule}: {message}")).into_owned();
    match lapsed {
        None => shorten(&text, WARNING_CHARACTERS),
        Some(lapsed) => {
            let end = format!(" {lapsed}");
            shorten(&text, WARNING_CHARACTERS.saturating_sub(end.chars().count())) + &end
        }
    }
}

fn warning(text: &str) -> String {
    shorten(&visible(text), WARNING_CHARACTERS)
}

/// What goes into the API server's audit log, under the webhook's name. Keys are the parts of a
/// qualified name behind the slash.
fn audit_annotations(account: &Account<'_>, mode: Mode) -> BTreeMap<&'static str, String> {
    let mut annotations = BTreeMap::new();
    if account.entries.is_empty() {
        return annotations;
    }
    annotations.insert("mode", mode.as_str().to_owned());
    annotations.insert("decision", account.outcome.to_owned());
    for entry in &account.entries {
        let text = format!("{}: {}", entry.action, entry.message);
        let annotation: &mut String = annotations.entry(entry.rule).or_default();
        if !annotation.is_empty() {
            annotation.push(' ');
        }
        annotation.push_str(&text);
    }
    annotations
}

/// The text, cut to so many characters.
pub(super) fn shorten(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    text.chars().take(characters - 1).chain(['…']).collect()
}
