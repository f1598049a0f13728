//! An object beside the policy: what it reaches, and what it asks for.

use std::collections::HashSet;

use super::ask::Ask;
use super::choice::Choice;
use super::json::Excerpt;
use super::placed::Placed;
use super::placement::Terms;
use super::{
    Asked, Controller, FAULTS, Facts, Fault, Kind, Membership, Policy, Pool, PoolSet, Rule, Subject, Taint, Toleration,
    Workload, subject,
};

/// A subject's object beside the policy: what it reaches and what it asks for.
#[derive(Debug)]
pub(super) struct Case<'a, 'p> {
    pub(super) policy: &'p Policy,
    pub(super) subject: &'a Subject<'a>,
    /// The subject's object, or the one it replaces.
    pub(super) object: &'a Workload<'a>,
    pub(super) facts: &'a dyn Facts,
    /// The pools whose taints the pod's tolerations pass.
    pub(super) passed: PoolSet,
    /// The pool whose GPUs the pod requests.
    pub(super) asked: Asked,
    /// What that pool was chosen from.
    pub(super) choice: Choice,
    /// The pools that the namespace may use. Empty for a pod that neither passes nor asks.
    pub(super) allowed: PoolSet,
    /// The pools of which it is not known whether the namespace may use them, as far as that matters.
    pub(super) unknown: PoolSet,
    /// Where the pod is put past the scheduler.
    pub(super) placed: Placed<'a>,
    /// What could not be read.
    pub(super) faults: Vec<Fault>,
    /// The tolerations of the objects that are replaced, where they were gathered already for several cases.
    pub(super) old_tolerations: Option<&'a HashSet<&'a Toleration<'a>>>,
}

impl<'a, 'p> Case<'a, 'p> {
    pub(super) fn new(
        policy: &'p Policy,
        subject: &'a Subject<'a>,
        object: &'a Workload<'a>,
        facts: &'a dyn Facts,
    ) -> Self {
        let spec = &object.pod.spec;
        let placed = policy.placed(subject, object, facts);
        let passed = |given: &[Taint]| policy.pools_where(|pool| pool.is_passed_by(spec.tolerations(), given));
        let mut case = Self {
            policy,
            subject,
            object,
            facts,
            passed: passed(&[]),
            asked: Asked::Nothing,
            choice: Choice::default(),
            allowed: PoolSet::default(),
            unknown: PoolSet::default(),
            placed,
            faults: Vec::new(),
            old_tolerations: None,
        };
        let candidates = case.candidates();
        if candidates.is_empty() && case.is_ordinary() {
            return case;
        }
        for (index, pool) in policy.pools.iter().enumerate() {
            match pool.namespaces.membership(subject.namespace, facts) {
                Membership::Allowed => case.allowed.insert(index),
                Membership::Unknown => case.unknown.insert(index),
                Membership::Outside => {}
            }
        }
        (case.asked, case.choice) =
            Choice::among(&policy.pools, &candidates, &policy.selection, &object.pod, case.allowed);
        // Such a pod is completed before it is stored. It is judged as it will be, so that audit mode and
        // templates, where nothing is injected, foretell what enforcement finds.
        let given = case.given();
        if !given.is_empty() {
            case.passed = passed(given);
        }
        // Of the others nothing depends on whether the namespace may use them. Who may use a pool may also
        // pass into those that its taints cannot tell from it.
        let concerns = |index: usize| {
            let open = |passed: usize| policy.pools[passed].is_open_to(&policy.pools[index]);
            candidates.iter().any(|pools| pools.contains(index))
                || case.passed.iter().any(open)
                || case.placed.may_be_in(index)
                || case.is_strange()
        };
        case.unknown = case.unknown.iter().filter(|index| concerns(*index)).collect();
        case
    }

    /// Whether there is nothing more to ask of the pod: it passes no pool's taint, requests nothing of a pool,
    /// is put onto no node, and holds nothing that is not understood.
    pub(super) fn is_ordinary(&self) -> bool {
        self.passed.is_empty()
            && self.asked == Asked::Nothing
            && matches!(self.placed, Placed::Freely)
            && !self.is_strange()
    }

    /// Whether a toleration has an operator that is not known here.
    pub(super) fn is_strange(&self) -> bool {
        self.object.pod.spec.tolerations().iter().any(|toleration| !toleration.has_known_operator())
    }

    /// The taints for which the pod is given tolerations.
    pub(super) fn given(&self) -> &'p [Taint] {
        self.clear().map_or(&[], |index| &self.policy.pools[index].taints)
    }

    /// The pool from which the pod is completed: one that its namespace may use, where it is clear which it means.
    pub(super) fn clear(&self) -> Option<usize> {
        match self.asked {
            Asked::One(index) if self.allowed.contains(index) && self.choice.torn.is_empty() => Some(index),
            _ => None,
        }
    }

    /// For each GPU request of the pod, the pools that it concerns.
    pub(super) fn candidates(&mut self) -> Vec<PoolSet> {
        let mut candidates = Vec::new();
        // A scheduler that shares GPUs out by annotation writes it as it binds the pod.
        if self.object.kind == Kind::Binding && self.policy.is_scheduler(self.subject) {
            return candidates;
        }
        for ask in Ask::all(self.object, &self.policy.pools) {
            let pools = self.policy.pools_where(|pool| ask.concerns(pool));
            if pools.is_empty() {
                continue;
            }
            match ask.is_request() {
                Ok(true) => candidates.push(pools),
                Err(error) if self.faults.len() < FAULTS => self.faults.push(Fault {
                    message: format!("is {}: {error}", Excerpt(ask.written())),
                    field: subject::Field(self.object, ask).to_string(),
                }),
                _ => {}
            }
        }
        candidates
    }

    /// The pools in which the subject is exempt from a rule, where exemptions tell pools apart.
    pub(super) fn spared(&self, rule: Rule) -> PoolSet {
        self.policy.spared_pools(self.subject, rule, self.facts)
    }

    /// The terms under which the pod runs in the pool.
    pub(super) fn terms(&self, pool: &'p Pool) -> Terms<'p> {
        let mut terms = Terms::of(pool, &self.object.pod, self.policy.when_tolerated);
        // The DaemonSet controller has pinned its pod to a node. With a selector that this node does
        // not meet the pod could never run, and the controller would delete and create it for ever.
        if self.policy.identities.owner(Controller::DaemonSet, self.subject).is_some() {
            terms.labels.clear();
        }
        terms
    }
}
