//! The rules, one file each. A rule looks at a case and says where it breaks the contract; what is done
//! about it (mode, exemptions, what an update adds) is decided by the caller, for all rules alike.

mod broad_toleration;
mod gpu_request_outside_allowlist;
mod node_name_bypass;
mod not_understood;
mod placement_conflict;
mod placement_missing;
mod toleration_outside_allowlist;
mod toleration_without_gpu_request;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use super::ask::Ask;
use super::pool::{Pool, PoolSet};
use super::subject::Field;
use super::{Action, Case, Kind, Mode, Operation, Rule, Taint, Toleration};

/// A breach of the contract, before anything is decided about it.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) rule: Rule,
    /// The pools that it concerns: one, but for a pod that asks for several at once.
    pub(super) pools: PoolSet,
    /// What of the object breaks the rule, by content and not by place: an update that only moves it
    /// adds nothing.
    pub(super) what: Vec<String>,
    pub(super) field: String,
    pub(super) message: String,
    /// The most that is done about it, whatever the rule's own action.
    pub(super) most: Action,
    /// The node of which it would have to be known whose it is.
    pub(super) node: Option<String>,
}

impl Violation {
    /// Whether the old object broke the same rule in all of this already.
    pub(super) fn is_within(&self, old: &Self) -> bool {
        (self.rule, self.pools.first()) == (old.rule, old.pools.first())
            && self.what.iter().all(|part| old.what.contains(part))
    }
}

/// Runs one rule.
pub(super) fn check(rule: Rule, case: &Case<'_, '_>, mode: Mode, found: &mut Vec<Violation>) {
    // Of a Binding's pod nothing is known but what the Binding gives it.
    if case.object.kind == Kind::Binding && !matches!(rule, Rule::NodeNameBypass | Rule::GpuRequestOutsideAllowlist) {
        return;
    }
    match rule {
        Rule::TolerationOutsideAllowlist => toleration_outside_allowlist::check(case, found),
        Rule::GpuRequestOutsideAllowlist => gpu_request_outside_allowlist::check(case, found),
        Rule::NodeNameBypass => node_name_bypass::check(case, found),
        Rule::NotUnderstood => not_understood::check(case, found),
        // No pod and no template is one: `Policy::decide_lever` decides about it.
        Rule::LeverChange => {}
        Rule::BroadToleration => broad_toleration::check(case, found),
        Rule::TolerationWithoutGpuRequest => toleration_without_gpu_request::check(case, found),
        Rule::PlacementConflict => placement_conflict::check(case, found),
        Rule::PlacementMissing => placement_missing::check(case, mode, found),
    }
}

/// The tolerations of the object that is replaced. A set: a pod can have ten thousand, and so can the one
/// that it replaces.
fn old_tolerations<'a>(case: &Case<'a, '_>) -> Cow<'a, HashSet<&'a Toleration<'a>>> {
    match (case.old_tolerations, case.subject.operation) {
        (Some(known), _) => Cow::Borrowed(known),
        (None, Operation::Update(old)) => Cow::Owned(old.pod.spec.tolerations().iter().collect()),
        (None, Operation::Create) => Cow::Owned(HashSet::new()),
    }
}

/// The toleration that lets the pod past the taint: one that is not among the old, if any is not.
fn passing<'a>(case: &Case<'a, '_>, old: &HashSet<&Toleration<'a>>, taint: &Taint) -> Option<Passing> {
    let tolerations = case.object.pod.spec.tolerations();
    let passes = |added: bool| {
        let suits = |toleration: &Toleration<'a>| toleration.tolerates(taint) && (!added || !old.contains(toleration));
        let index = tolerations.iter().position(suits)?;
        Some(Passing { field: toleration_field(case, index), added })
    };
    passes(true).or_else(|| passes(false))
}

/// A toleration that lets the pod past a taint.
struct Passing {
    field: String,
    /// Whether it is new with this request.
    added: bool,
}

/// The first request for a GPU of the pool.
fn request<'a>(case: &'a Case<'_, '_>, pool: &Pool) -> Option<Ask<'a>> {
    let mut asks = Ask::all(case.object, &case.policy.pools);
    asks.find(|ask| ask.concerns(pool) && ask.is_request() == Ok(true))
}

fn toleration_field(case: &Case<'_, '_>, index: usize) -> String {
    Field(case.object, format_args!("spec.tolerations[{index}]")).to_string()
}

/// `closed to namespace web (allowed: ml-team)`, and what to do about it.
struct Outside<'a, 'p> {
    case: &'a Case<'a, 'p>,
    pool: usize,
}

impl Outside<'_, '_> {
    /// With other words for what to do.
    fn advising(&self, f: &mut fmt::Formatter<'_>, advice: fmt::Arguments<'_>) -> fmt::Result {
        let Self { case, pool } = self;
        let allowlist = &case.policy.pools[*pool].namespaces;
        let namespace = case.subject.namespace;
        write!(f, "closed to namespace {namespace} (allowed: {allowlist}")?;
        if case.unknown.contains(*pool) {
            write!(f, "; the labels of {namespace} are not known")?;
        }
        write!(f, "). {advice}")?;
        match &case.policy.contact {
            Some(contact) => write!(f, "; ask {contact}."),
            None => f.write_str("."),
        }
    }
}

impl fmt::Display for Outside<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.advising(f, format_args!("Remove it or use an allowed namespace"))
    }
}

/// A list for a sentence: `a, b and c`.
pub(super) fn listing(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
