//! SARIF 2.1.0, for what shows the findings of other tools as well.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::words::number;
use crate::audit::{Audit, Check, Finding, ObjectRef, Severity};
use crate::policy::visible;

/// How many results are given; GitHub refuses more. The worst come first.
pub const MOST_RESULTS: usize = 25_000;

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The audit as SARIF. `file` is the one file whose objects were audited, where it is one: some readers show no result
/// without a file.
#[must_use]
pub fn sarif(audit: &Audit, file: Option<&str>) -> Value {
    let checks: Vec<_> = Check::all().collect();
    let rules: Vec<_> = checks.iter().map(|check| rule(*check)).collect();
    let results = audit.findings.iter().take(MOST_RESULTS).map(|finding| {
        let index = checks.iter().position(|check| *check == finding.rule);
        result(finding, index, file)
    });
    let results: Vec<_> = results.collect();
    let mut notes: Vec<_> = audit.gaps.iter().map(|gap| note(&visible(gap))).collect();
    let left_out = audit.findings.len() - results.len();
    if left_out > 0 {
        let findings = number(left_out, "finding is", "findings are");
        notes.push(note(&format!("{findings} left out, the least of them: --output json has all")));
    }
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": env!("CARGO_PKG_NAME"),
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "invocations": [{"executionSuccessful": true, "toolExecutionNotifications": notes}],
            "properties": {"source": visible(&audit.source), "taken": audit.taken, "mode": audit.mode},
            "results": results,
        }],
    })
}

fn note(text: &str) -> Value {
    json!({"level": "warning", "message": {"text": text}})
}

fn rule(check: Check) -> Value {
    json!({
        "id": check.id(),
        "shortDescription": {"text": check.title()},
        "defaultConfiguration": {"level": level(usual(check))},
    })
}

/// How much a check's findings matter as a rule. Each result says it for itself.
fn usual(check: Check) -> Severity {
    match check {
        Check::Contract(rule) => rule.default_action().into(),
        Check::NodeWithoutTaint
        | Check::NodeTaintDiffers
        | Check::NodeWithoutLabel
        | Check::NodeLabelDiffers
        | Check::OrdinaryPod
        | Check::GpusBlocked => Severity::High,
        Check::NodeWithoutGpus
        | Check::NodeGroupDrift
        | Check::NodeExtraTaint
        | Check::NodeNotReady
        | Check::DaemonSetLeftOut
        | Check::PodPending
        | Check::ExemptionExpired
        | Check::Unreadable => Severity::Medium,
        Check::NodeMixedMig
        | Check::NodeCordoned
        | Check::TemplateWithoutPlacement
        | Check::NamespaceMissing
        | Check::ExemptionUnused => Severity::Low,
    }
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low | Severity::Info => "note",
    }
}

fn result(finding: &Finding, index: Option<usize>, file: Option<&str>) -> Value {
    let Finding { rule, severity, object, controller, pool, node, field, message, action, fingerprint, .. } = finding;
    let end = if message.ends_with(['.', ':', '!', '?']) || action.is_empty() { "" } else { "." };
    let separator = if action.is_empty() { "" } else { " " };
    let text = format!("{}{end}{separator}{}", visible(message), printable(action));
    let mut location = json!({"logicalLocations": [{
        "name": visible(&object.name),
        "fullyQualifiedName": qualified(object),
        "kind": "resource",
    }]});
    if let Some(file) = file {
        location["physicalLocation"] = json!({"artifactLocation": {"uri": uri(file)}});
    }
    let mut properties = json!({"severity": severity.as_str(), "apiVersion": visible(&object.api_version)});
    let controller = controller.as_ref().map(qualified);
    for (key, value) in [("controller", &controller), ("pool", pool), ("node", node), ("field", field)] {
        if let Some(value) = value {
            properties[key] = visible(value).into();
        }
    }
    let mut result = json!({
        "ruleId": rule.id(),
        "level": level(*severity),
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"gpufence/v1": fingerprint},
        "properties": properties,
    });
    if let Some(index) = index {
        result["ruleIndex"] = index.into();
    }
    result
}

/// It may be several lines, such as YAML to add.
fn printable(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

/// `Deployment/ml/train`, `Node/gpu-1`.
fn qualified(object: &ObjectRef) -> String {
    let parts = [&object.kind, &object.namespace, &object.name];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).map(|part| visible(part)).collect();
    parts.join("/")
}

/// A file's name as a reference that a URI may be: whatever is not plain is written by its bytes.
fn uri(file: &str) -> String {
    let mut uri = if file.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in file.strip_prefix("./").unwrap_or(file).bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(byte.into()),
            byte => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}
