//! What a review and an audit found, as text for people and in the forms of other programs.

pub mod audit;
mod diff;
mod json;
mod text;

pub use diff::added;
pub use json::json;
pub use text::text;

use std::collections::BTreeMap;

use json_patch::Patch;
use serde_json::Value;

use crate::policy::{Exempted, Fault, Finding, Mode, Purpose};

/// The verdict on one object.
#[derive(Debug)]
pub struct Verdict {
    /// The file and, where it holds several, the object's place in it.
    pub source: String,
    /// The object's apiVersion.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// Whether the object only carries a template of pods.
    pub is_template: bool,
    /// The namespace in which it was judged.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The mode in force for the namespace.
    pub mode: Mode,
    /// The strongest thing that is done or would be.
    pub outcome: &'static str,
    /// What breaks the contract.
    pub findings: Vec<Finding>,
    /// What the pod, or each pod made from the template, is given.
    pub injection: Option<Given>,
    /// What exempts it.
    pub exempted: Vec<Exempted>,
    /// What could not be read.
    pub faults: Vec<Fault>,
}

/// What is injected.
#[derive(Debug)]
pub struct Given {
    /// What it is for.
    pub purpose: Purpose,
    /// The patch.
    pub patch: Patch,
    /// One line for each thing that is added.
    pub added: Vec<String>,
    /// Whether the patch is made, or only reported because of the mode.
    pub enforced: bool,
    /// Whether it is not the object that is patched, but each pod made from it.
    pub to_pods: bool,
}

impl Verdict {
    /// Whether a rule whose action is `deny` found something, whatever the mode makes of it.
    #[must_use]
    pub fn breaks_contract(&self) -> bool {
        self.findings.iter().any(|finding| finding.configured == crate::policy::Action::Deny)
    }
}

/// The verdicts on all objects, and what was of no concern.
#[derive(Debug, Default)]
pub struct Review {
    /// The verdicts, in the order of the input.
    pub verdicts: Vec<Verdict>,
    /// How many objects of each apiVersion and kind carry no pod that is known here.
    pub passed_over: BTreeMap<(String, String), usize>,
    /// How many documents are no Kubernetes objects.
    pub foreign: usize,
}

impl Review {
    /// Whether there was no object at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty() && self.passed_over.is_empty() && self.foreign == 0
    }

    /// Counts an object that carries no pod that is known here.
    pub fn pass_over(&mut self, object: &Value) {
        let word = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        *self.passed_over.entry((word("apiVersion"), word("kind"))).or_default() += 1;
    }
}
