//! What is new since an earlier audit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;

use super::outcome::{Since, VERSION};
use super::snapshot::Snapshot;
use super::{Audit, Finding};

/// What an earlier audit found.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    /// Where it is from, for people.
    source: String,
    /// How many findings have each fingerprint.
    counts: BTreeMap<String, usize>,
    gaps: Vec<String>,
}

/// Why a text is no baseline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    /// It is not the JSON of an audit.
    #[error("{0}; valid is what gpufence audit --output json prints")]
    NoAudit(String),
    /// It is that of an audit of another version.
    #[error("its version is {0}; valid is {VERSION}")]
    OtherVersion(String),
    /// It lacks what it did not show.
    #[error("it was itself made with a baseline, which hides {0} of its findings; valid is an audit without one")]
    Partial(usize),
}

#[derive(Deserialize)]
struct Header {
    version: Option<Value>,
}

#[derive(Deserialize)]
struct Earlier {
    #[serde(default)]
    summary: EarlierSummary,
    findings: Option<Vec<EarlierFinding>>,
    #[serde(default)]
    gaps: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EarlierSummary {
    hidden: Option<usize>,
}

#[derive(Deserialize)]
struct EarlierFinding {
    fingerprint: String,
}

impl Baseline {
    /// Reads the JSON of an earlier audit. `source` is where it is from, for people.
    ///
    /// # Errors
    /// What was found and what is valid, where it is none, or shows not all that it found.
    pub fn read(source: &str, json: &str) -> Result<Self, BaselineError> {
        let no_audit = |found: &str| BaselineError::NoAudit(crate::policy::visible(found).into_owned());
        // Of another version nothing is known but that it says so.
        let header = serde_json::from_str::<Header>(json).map_err(|error| match error.classify() {
            Category::Data => no_audit("it is JSON of something else"),
            _ => no_audit(&format!("it is not JSON: {error}")),
        })?;
        match header.version.as_ref().and_then(Value::as_str) {
            Some(VERSION) => {}
            Some(other) => return Err(BaselineError::OtherVersion(crate::policy::visible(other).into_owned())),
            None => return Err(no_audit("it has no version")),
        }
        let earlier: Earlier = serde_json::from_str(json).map_err(|error| no_audit(&error.to_string()))?;
        let findings = earlier.findings.ok_or_else(|| no_audit("it has no findings"))?;
        match earlier.summary.hidden {
            Some(hidden) if hidden > 0 => Err(BaselineError::Partial(hidden)),
            _ => {
                let mut counts = BTreeMap::new();
                for finding in findings {
                    *counts.entry(finding.fingerprint).or_default() += 1;
                }
                Ok(Self { source: source.to_owned(), counts, gaps: earlier.gaps })
            }
        }
    }
}

impl Audit {
    /// Leaves of the findings those that the baseline has not, and counts what is hidden and what is gone. Where more
    /// findings have a fingerprint than had it, the newest of them are new: a pod that was replaced is none of them, as
    /// long as there are no more of its kind. The snapshot is that of this audit, which knows how old its pods are.
    pub fn since(&mut self, baseline: &Baseline, snapshot: &Snapshot) {
        let mut alike: HashMap<String, Vec<Finding>> = HashMap::new();
        for finding in std::mem::take(&mut self.findings) {
            alike.entry(finding.fingerprint.clone()).or_default().push(finding);
        }
        let missing = |(fingerprint, before): (&String, &usize)| {
            before.saturating_sub(alike.get(fingerprint).map_or(0, Vec::len))
        };
        let resolved = baseline.counts.iter().map(missing).sum();
        let mut hidden = 0;
        for (fingerprint, mut findings) in alike {
            let before = baseline.counts.get(&fingerprint).copied().unwrap_or_default();
            let now = findings.len();
            hidden += before.min(now);
            if before > 0 && now > before {
                // What is not known to be young, such as a template, comes last.
                findings.sort_by_cached_key(|finding| Reverse((created(snapshot, finding), finding.object.clone())));
                findings.truncate(now - before);
                for finding in &mut findings {
                    let message = finding.message.trim_end_matches('.');
                    finding.message = format!("{message} ({before} like this before, {now} now)");
                }
            }
            if now > before {
                self.findings.append(&mut findings);
            }
        }
        self.summary.hidden = Some(hidden);
        self.summary.resolved = Some(resolved);
        let known = self.gaps.iter().filter(|gap| baseline.gaps.contains(gap)).cloned().collect();
        self.baseline = Some(Since { source: baseline.source.clone(), known_gaps: known });
        self.conclude();
    }
}

/// When the pod was created that a finding is about; `None` for all else.
fn created(snapshot: &Snapshot, finding: &Finding) -> Option<i64> {
    let object = &finding.object;
    if &*object.kind != "Pod" {
        return None;
    }
    snapshot.pod(&object.namespace, &object.name)?.created
}
