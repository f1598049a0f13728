//! The report for programs. The form is versioned: fields are added, never renamed or removed.

use serde_json::{Value, json};

use super::{Given, Review, Verdict};
use crate::policy::Purpose;

/// The version of the form.
const VERSION: &str = "gpufence.io/review/v1";

/// The report as JSON.
#[must_use]
pub fn json(review: &Review) -> Value {
    json!({
        "version": VERSION,
        "objects": review.verdicts.iter().map(object).collect::<Vec<_>>(),
        "passedOver": review.passed_over.iter().map(passed_over).collect::<Vec<_>>(),
        "foreign": review.foreign,
    })
}

fn passed_over(((api_version, kind), count): (&(String, String), &usize)) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "count": count })
}

fn object(verdict: &Verdict) -> Value {
    let findings = verdict.findings.iter().map(|finding| {
        json!({
            "rule": finding.rule.id(),
            "configured": finding.configured.as_str(),
            "action": finding.action.as_str(),
            "field": finding.field,
            "message": finding.text(),
        })
    });
    let injection = verdict.injection.as_ref().map(|Given { purpose, patch, enforced, to_pods, .. }| {
        let mut injection = json!({ "patch": patch, "enforced": enforced, "toPods": to_pods });
        match purpose {
            Purpose::Complete(pool) => injection["pool"] = pool.as_str().into(),
            Purpose::Fence(labels) => injection["offNodesWith"] = labels.clone().into(),
        }
        injection
    });
    let exemptions = verdict.exempted.iter().map(|exempted| {
        let rules: Vec<_> = exempted.rules.iter().map(|rule| rule.id()).collect();
        json!({ "exemption": exempted.exemption, "rules": rules })
    });
    let exemptions: Vec<_> = exemptions.collect();
    let faults = verdict.faults.iter().map(|fault| json!({ "field": fault.field, "message": fault.message }));
    json!({
        "source": verdict.source,
        "object": {
            "apiVersion": verdict.api_version,
            "kind": verdict.kind,
            "namespace": verdict.namespace,
            "name": verdict.name,
        },
        "mode": verdict.mode.as_str(),
        "outcome": verdict.outcome,
        "findings": findings.collect::<Vec<_>>(),
        "injection": injection,
        // The first of them; before exemptions could be limited there was no more than one.
        "exempted": exemptions.first(),
        "exemptions": exemptions,
        "faults": faults.collect::<Vec<_>>(),
    })
}
