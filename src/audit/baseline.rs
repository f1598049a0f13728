//! What is new since an earlier audit.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;

use super::Audit;
use super::outcome::VERSION;

/// What an earlier audit found.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    fingerprints: BTreeSet<String>,
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
    /// Reads the JSON of an earlier audit.
    ///
    /// # Errors
    /// What was found and what is valid, where it is none, or shows not all that it found.
    pub fn read(json: &str) -> Result<Self, BaselineError> {
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
            _ => Ok(Self { fingerprints: findings.into_iter().map(|finding| finding.fingerprint).collect() }),
        }
    }
}

impl Audit {
    /// Leaves of the findings those that the baseline has not, and counts what is hidden and what is gone.
    pub fn since(&mut self, baseline: &Baseline) {
        let now: BTreeSet<_> = self.findings.iter().map(|finding| finding.fingerprint.as_str()).collect();
        let resolved = baseline.fingerprints.iter().filter(|old| !now.contains(old.as_str())).count();
        let all = self.findings.len();
        self.findings.retain(|finding| !baseline.fingerprints.contains(&finding.fingerprint));
        self.summary.hidden = Some(all - self.findings.len());
        self.summary.resolved = Some(resolved);
        self.conclude();
    }
}
