//! An audit as objects of the cluster: one for each namespace, and one for all that is in none.
//!
//! An object has a limit, below what etcd takes and a reader likes. What does not fit is left out from the end, where
//! the least severe findings stand; the summary counts it all the same, and the object says how much it was.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::audit::{Audit, Check, Finding, ObjectRef, ReportForm, Severity};

/// The name of every report.
pub const NAME: &str = "gpufence-audit";

/// The label by which reports are known to be ours.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "gpufence");

/// How many findings did not fit, of a report in which some did not.
pub const LEFT_OUT: &str = "gpufence.io/results-left-out";

/// The most bytes of a report.
pub const MOST: usize = 256 * 1024;

/// Bytes for what the API server adds: a uid, times, and who wrote which field.
const ADDED: usize = 4096;

/// Who found it, and what it is about.
const SOURCE: &str = "gpufence";
const CATEGORY: &str = "GPU";

/// The reports of an audit: that of the cluster first, then those of the namespaces that something was found in. Each
/// is made when it is asked for: all together may be much.
pub fn reports(audit: &Audit, form: ReportForm) -> impl Iterator<Item = Value> {
    let mut by_namespace: BTreeMap<&str, Vec<Found<'_>>> = BTreeMap::new();
    let seconds = OffsetDateTime::parse(&audit.taken, &Rfc3339).map_or(0, OffsetDateTime::unix_timestamp);
    // First what keeps other things from being found.
    by_namespace.insert("", audit.gaps.iter().map(|gap| Found::Gap(gap)).collect());
    for finding in &audit.findings {
        by_namespace.entry(&*finding.object.namespace).or_default().push(Found::Finding(finding));
    }
    by_namespace.into_iter().map(move |(namespace, found)| report(form, namespace, &found, seconds))
}

/// What becomes a result.
enum Found<'a> {
    Gap(&'a str),
    Finding(&'a Finding),
}

impl Found<'_> {
    fn result(&self) -> &'static str {
        match self {
            Self::Gap(_) => "error",
            Self::Finding(finding) => result(finding.rule, finding.severity),
        }
    }

    fn as_result(&self, form: ReportForm, seconds: i64) -> Value {
        match self {
            Self::Gap(gap) => of_gap(gap, seconds),
            Self::Finding(finding) => of_finding(finding, form, seconds),
        }
    }
}

fn report(form: ReportForm, namespace: &str, found: &[Found<'_>], seconds: i64) -> Value {
    let mut summary = BTreeMap::from(["pass", "fail", "warn", "error", "skip"].map(|result| (result, 0_usize)));
    for found in found {
        *summary.entry(found.result()).or_default() += 1;
    }
    let kind = if namespace.is_empty() { form.of_cluster() } else { form.of_namespaces() };
    let mut report = json!({
        "apiVersion": form.api_version(),
        "kind": kind.kind,
        "metadata": {"name": NAME, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        "summary": summary,
        "results": [],
    });
    if form == ReportForm::OpenReports {
        report["source"] = SOURCE.into();
    }
    if !namespace.is_empty() {
        report["metadata"]["namespace"] = namespace.into();
        report["scope"] = json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace});
    }
    let room = MOST.saturating_sub(ADDED + report.to_string().len());
    let kept = fitting(found.iter().map(|found| found.as_result(form, seconds)), room);
    let left_out = found.len() - kept.len();
    report["results"] = kept.into();
    if left_out > 0 {
        report["metadata"]["annotations"][LEFT_OUT] = left_out.to_string().into();
        if let Some(results) = report["results"].as_array_mut() {
            results.push(json!({
                "source": SOURCE,
                "policy": SOURCE,
                "rule": "left-out",
                "category": CATEGORY,
                "result": "skip",
                "message": format!(
                    "{left_out} more findings, none of them more severe, do not fit into a report; the summary counts \
                     them, and `gpufence audit` lists them"
                ),
                "properties": {"leftOut": left_out.to_string()},
                "timestamp": timestamp(seconds),
            }));
        }
    }
    report
}

/// The first of the results, as many as fit.
fn fitting(results: impl Iterator<Item = Value>, room: usize) -> Vec<Value> {
    let mut taken = 0;
    let fits = |result: &Value| {
        // With its comma.
        taken += result.to_string().len() + 1;
        taken <= room
    };
    results.take_while(fits).collect()
}

fn of_finding(finding: &Finding, form: ReportForm, seconds: i64) -> Value {
    let Finding { rule, severity, object, controller, pool, node, field, message, action, fingerprint, .. } = finding;
    let mut properties = Map::new();
    let controller = controller.as_ref().map(ToString::to_string);
    let properties_of = [
        ("action", Some(action)),
        ("controller", controller.as_ref()),
        ("field", field.as_ref()),
        ("fingerprint", Some(fingerprint)),
        ("node", node.as_ref()),
        ("pool", pool.as_ref()),
    ];
    for (key, value) in properties_of {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            properties.insert(key.to_owned(), value.as_str().into());
        }
    }
    let mut result = json!({
        "source": SOURCE,
        "policy": SOURCE,
        "rule": rule.id(),
        "category": CATEGORY,
        "result": result(*rule, *severity),
        "scored": true,
        "resources": [reference(object)],
        "message": message,
        "properties": properties,
        "timestamp": timestamp(seconds),
    });
    // The older definition knows no such severity, and refuses what it does not know.
    if form == ReportForm::OpenReports || *severity > Severity::Info {
        result["severity"] = severity.as_str().into();
    }
    result
}

/// What could not be judged at all.
fn of_gap(gap: &str, seconds: i64) -> Value {
    json!({
        "source": SOURCE,
        "policy": SOURCE,
        "rule": "gap",
        "category": CATEGORY,
        "result": "error",
        "message": gap,
        "timestamp": timestamp(seconds),
    })
}

/// What reports call it: `fail` is for what is wrong now, and `warn` for what costs something, will, or is untidy.
fn result(rule: Check, severity: Severity) -> &'static str {
    match severity {
        _ if rule == Check::Unreadable => "error",
        Severity::High => "fail",
        Severity::Medium | Severity::Low => "warn",
        Severity::Info => "pass",
    }
}

fn reference(ObjectRef { api_version, kind, namespace, name }: &ObjectRef) -> Value {
    let mut reference = json!({"apiVersion": api_version, "kind": kind, "name": name});
    if !namespace.is_empty() {
        reference["namespace"] = json!(namespace);
    }
    reference
}

fn timestamp(seconds: i64) -> Value {
    json!({"seconds": seconds, "nanos": 0})
}
