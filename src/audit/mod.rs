//! What already runs: a snapshot of a cluster in, findings out. It reads only, and asks nobody: the same snapshot, the
//! same contract and the same time give the same audit.
//!
//! | module | owns |
//! | --- | --- |
//! | [`snapshot`] | what a cluster holds, from objects in any order |
//! | `view` | the snapshot beside the contract: pools of nodes, pods of nodes, what admission would say |
//! | `class` | what a pod is to a GPU node |
//! | `nodes` | labels, taints, GPUs and groups of nodes |
//! | `occupants` | who is on a GPU node, how that came in, and what it takes |
//! | `remedy` | what to do about a pod that does not belong on its node |
//! | `accounts` | GPUs by node and pool: what there is, is requested, is free, and is blocked |
//! | `rules` | what the contract's rules say of every pod |
//! | `templates` | what will make pods that break the contract |
//! | `stale` | allowlists and exemptions that lead nowhere |
//! | `adopt` | exemptions for what breaks the contract today |
//! | `baseline` | what is new since an earlier audit |
//! | `coverage` | which DaemonSets reach the GPU nodes |
//! | `pending` | why a pod finds no node |
//! | `fit` | whether a pod may run on a node, and what is left of the node |
//! | `what_if` | what a taint or a label would do, before anyone gives it to a node |
//! | `finding` | the catalogue of checks, and what one found |
//! | `form` | the kinds of objects in which a cluster keeps reports |
//! | `outcome` | all that an audit says, in the form of its JSON |
//! | `words` | amounts, lists and commands as a person reads them |

mod accounts;
mod adopt;
mod baseline;
mod class;
mod coverage;
mod finding;
mod fit;
mod form;
mod nodes;
mod occupants;
mod outcome;
mod pending;
mod remedy;
mod rules;
pub mod snapshot;
mod stale;
mod templates;
mod view;
mod what_if;
mod words;

pub use adopt::adopt;
pub use baseline::{Baseline, BaselineError};
pub use finding::{Check, Finding, Severity};
pub use form::{ReportForm, ReportKind};
pub use outcome::*;
pub use snapshot::{ObjectRef, Resource, Snapshot};
pub use what_if::*;
pub use words::{amounts_text, bytes_text, count_text, cpu_text, list_text};

use crate::policy::Policy;
use view::View;

/// Audits a cluster: `now` in seconds since 1970.
#[must_use]
pub fn audit(policy: &Policy, snapshot: &Snapshot, source: &str, now: i64) -> Audit {
    let policy = policy.clone().judging_templates();
    let view = View::new(&policy, snapshot, now);
    let mut audit = Audit::of(&view, source, now);
    occupants::judge(&view, &mut audit);
    templates::judge(&view, &mut audit);
    nodes::judge(&view, &mut audit);
    coverage::judge(&view, &mut audit);
    pending::judge(&view, &mut audit);
    audit.conclude();
    audit
}

/// Audits nothing but the nodes: their labels, taints, GPUs and groups. Nothing in that expires, so that the time does
/// not matter.
#[must_use]
pub fn audit_nodes(policy: &Policy, snapshot: &Snapshot, source: &str) -> Audit {
    let view = View::new(policy, snapshot, 0);
    let mut audit = Audit::of(&view, source, 0);
    nodes::judge(&view, &mut audit);
    audit.conclude();
    audit
}
