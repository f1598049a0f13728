//! The decision, pure: no clock, environment, files, sockets, logs or metrics, and no way to fail.
//!
//! [`Policy`] is immutable and valid by construction: only a [contract](crate::contract) makes one.
//! [`Policy::decide`] is the door, for the webhook, the offline review and every other caller, with
//! [`Policy::decide_several`] beside it for objects that hold several pods and [`Policy::decide_lever`] for what the
//! fence itself stands on. Each takes what is judged (a [`Subject`], a [`LeverChange`]) and what is known of the cluster
//! ([`Facts`]), and returns a [`Decision`]; what it could not read comes back as data in it.

mod affinity;
mod allowlist;
mod ask;
mod case;
mod choice;
mod custom;
mod decision;
mod exemption;
mod facts;
mod fence;
mod identity;
mod json;
mod json_path;
mod lacking;
mod lever;
mod placed;
mod placement;
mod pod;
mod pool;
mod quantity;
mod rollout;
mod rules;
mod several;
mod subject;
mod toleration;
mod workload;

pub use affinity::{Affinity, NodeSelectorRequirement, NodeSelectorTerm};
pub use allowlist::{Allowlist, LabelOperator, LabelRequirement, LabelSelector, Membership, Patterns, is_glob};
pub use ask::Markers;
pub use choice::{Asked, Selection};
pub use custom::{CustomObject, CustomResource, PodSpecs, Templates, Unreadable};
pub use decision::{Action, Decision, Exempted, Fault, Finding, Injection, Mode, Purpose, Rule};
pub use exemption::{Exemption, Expiry, Lapsed, MIRROR_POD, Owner};
pub use facts::{At, Facts, NamespaceLabels, NoFacts, Node, NodeFact};
pub use identity::{Controller, DAEMON_SET_CONTROLLER, Identities, SCHEDULER};
pub use json::{List, RawMap, StringMap, Text, Unread};
pub(crate) use json::{object, visible, without_position};
pub use json_path::{JsonPath, blank};
pub use lacking::Lacking;
pub use lever::{Lever, LeverChange, LeverKind, Levers};
pub use placement::WhenTolerated;
pub use pod::{MIRROR_ANNOTATION, Metadata, OwnerReference, Pod, PodSpec, ResourceClaim};
pub use pool::{Models, Pool, PoolSet};
pub use quantity::{NotAQuantity, Quantity};
pub use rollout::{InForce, Rollout};
pub use subject::{Operation, Phase, Requester, Subject};
#[cfg(feature = "server")]
pub(crate) use toleration::yaml_word;
pub use toleration::{ComparisonOperators, Effect, NodeTaint, Taint, Toleration};
pub use workload::{Kind, Workload};

use case::Case;
use exemption::Standing;
use rules::Violation;

/// How many unreadable fields of an object are named. An object can have as many as fit into a body.
const FAULTS: usize = 16;

/// The contract in the form that decides. Made by [`crate::contract`] alone, which has checked it.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) mode: Mode,
    pub(crate) rollout: Vec<Rollout>,
    pub(crate) pools: Vec<Pool>,
    /// How a pod names a pool.
    pub(crate) selection: Selection,
    pub(crate) exemptions: Vec<Exemption>,
    /// By the rule's place in [`Rule::ALL`].
    pub(crate) rules: [Action; Rule::ALL.len()],
    pub(crate) templates: Action,
    pub(crate) when_tolerated: WhenTolerated,
    /// The labels of nodes that ordinary pods must not run on.
    pub(crate) fence_ordinary: Vec<String>,
    pub(crate) identities: Identities,
    /// The most that is done about a pod put onto a node of which it is not known whether it is a pool's.
    pub(crate) when_unknown: Action,
    /// Who may change what the fence stands on.
    pub(crate) levers: Levers,
    /// The kinds of custom resources that hold pods.
    pub(crate) custom_resources: Vec<CustomResource>,
    /// Whom a refused user may ask.
    pub(crate) contact: Option<String>,
}

impl Policy {
    /// The mode where no rollout entry says otherwise.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The pools, in the contract's order.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// How a pod names a pool.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Whether a Binding can break a rule: by where it puts a pod, or by the annotations that it gives it.
    #[must_use]
    pub fn judges_bindings(&self) -> bool {
        let has_markers = || self.pools.iter().any(|pool| !pool.markers.annotations.is_empty());
        self.action(Rule::NodeNameBypass) > Action::Off
            || (self.action(Rule::GpuRequestOutsideAllowlist) > Action::Off && has_markers())
    }

    /// What a rule does, before any ceiling.
    #[must_use]
    pub fn action(&self, rule: Rule) -> Action {
        self.rules[rule as usize]
    }

    /// The exemptions, in the contract's order.
    #[must_use]
    pub fn exemptions(&self) -> &[Exemption] {
        &self.exemptions
    }

    /// The user names under which controllers make pods, and schedulers place them.
    #[must_use]
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Whether workload templates are judged.
    #[must_use]
    pub fn judges_templates(&self) -> bool {
        self.templates > Action::Off
    }

    /// The kinds of custom resources that hold pods, in the contract's order.
    #[must_use]
    pub fn custom_resources(&self) -> &[CustomResource] {
        &self.custom_resources
    }

    /// The custom resource that a group and a kind mean, whatever the version.
    #[must_use]
    pub fn custom_resource(&self, group: &str, kind: &str) -> Option<&CustomResource> {
        self.custom_resources.iter().find(|custom| custom.group == group && custom.kind == kind)
    }

    /// The same policy with templates judged where the contract lets them alone, for callers that ask what
    /// becomes of their pods.
    #[must_use]
    pub fn judging_templates(mut self) -> Self {
        self.templates = self.templates.max(Action::Audit);
        self
    }

    /// Decides one request.
    #[must_use]
    pub fn decide(&self, subject: &Subject<'_>, facts: &dyn Facts) -> Decision {
        let InForce { mode, labels_unknown } = self.mode_in(subject.namespace, facts);
        let mut decision = Decision::quiet(mode);
        let mut case = Case::new(self, subject, subject.object, facts);
        decision.faults = std::mem::take(&mut case.faults);
        // The common case: an ordinary pod, of which there is nothing more to ask, in whatever mode.
        if case.is_ordinary() {
            if subject.phase == Phase::Mutating && self.fences_ordinary() {
                self.decide_fence(&case, facts, &mut decision);
            }
            decision.labels_unknown = labels_unknown && !decision.faults.is_empty();
            return decision;
        }
        decision.labels_unknown = labels_unknown || !case.unknown.is_empty();
        match subject.phase {
            Phase::Mutating => self.decide_injection(&case, facts, &mut decision),
            Phase::Validating => self.decide_findings(&case, facts, &mut decision),
        }
        // Who is exempt is so whatever the labels say: a node's agents and static pods wait for none.
        let waits = decision.labels_unknown || decision.node_unknown.is_some();
        if waits && decision.faults.is_empty() && self.is_exempt(subject, facts) {
            decision.labels_unknown = false;
            decision.node_unknown = None;
        }
        decision
    }

    /// The pools of which a pod, or each pod made from a template, requests GPUs, by whatever counts as a request.
    #[must_use]
    pub fn requested_pools(&self, subject: &Subject<'_>, facts: &dyn Facts) -> PoolSet {
        let candidates = Case::new(self, subject, subject.object, facts).candidates();
        (0..self.pools.len()).filter(|index| candidates.iter().any(|pools| pools.contains(*index))).collect()
    }

    fn decide_injection(&self, case: &Case<'_, '_>, facts: &dyn Facts, decision: &mut Decision) {
        let (Operation::Create, Kind::Pod) = (case.subject.operation, case.object.kind) else { return };
        if case.asked == Asked::Nothing {
            return self.decide_fence(case, facts, decision);
        }
        let Some(index) = case.clear() else { return };
        let pool = &self.pools[index];
        match placement::complete(&case.terms(pool), &case.object.pod.spec) {
            Ok(None) => {}
            Ok(Some(patch)) => {
                if let Some(exemption) = self.spares_injection(case.subject, index, facts) {
                    decision.exempt_from_injection(exemption);
                } else {
                    let enforced = decision.mode > Mode::Audit;
                    let purpose = Purpose::Complete(pool.name.clone());
                    decision.injection = Some(Injection { purpose, patch, enforced });
                }
            }
            Err(message) => decision.faults.push(Fault { field: "patch".to_owned(), message }),
        }
    }

    fn decide_findings(&self, case: &Case<'_, '_>, facts: &dyn Facts, decision: &mut Decision) {
        let mut violations = self.violations(case, decision.mode);
        if let (Operation::Update(old), false) = (case.subject.operation, violations.is_empty()) {
            // Old objects are not punished: what the stored object did already, the update does not add.
            let old = Case::new(self, case.subject, old, facts);
            decision.labels_unknown |= !old.unknown.is_empty();
            let before = self.violations(&old, decision.mode);
            violations.retain(|violation| !before.iter().any(|old| violation.is_within(old)));
        }
        decision.node_unknown = violations.iter_mut().find_map(|violation| violation.node.take());
        if violations.is_empty() {
            return;
        }
        self.conclude(case.subject, violations, facts, decision);
    }

    /// What is done about violations, by the exemptions and the ceilings.
    fn conclude(&self, subject: &Subject<'_>, violations: Vec<Violation>, facts: &dyn Facts, decision: &mut Decision) {
        if exemption::is_mirror_pod(subject) {
            for violation in &violations {
                decision.exempt(MIRROR_POD, violation.rule);
            }
            return;
        }
        let covering = self.covering(subject);
        let template = if subject.object.kind.is_template() { self.templates } else { Action::Deny };
        let ceiling = decision.mode.ceiling().min(template);
        let now = if covering.iter().any(|exemption| exemption.expires.is_some()) { facts.now() } else { i64::MIN };
        for Violation { rule, pools, field, message, most, .. } in violations {
            let lapsed = match exemption::standing(&covering, rule, pools, now) {
                Standing::Exempt(exemption) => {
                    decision.exempt(&exemption.name, rule);
                    continue;
                }
                Standing::Lapsed(lapsed) => Some(lapsed),
                Standing::Bound => None,
            };
            let configured = self.action(rule).min(most);
            if configured == Action::Off {
                continue;
            }
            decision.findings.push(Finding {
                rule,
                pools,
                configured,
                action: configured.min(ceiling),
                field,
                message,
                lapsed,
            });
        }
    }

    fn violations(&self, case: &Case<'_, '_>, mode: Mode) -> Vec<Violation> {
        let mut found = Vec::new();
        if case.object.kind.is_template() && self.templates == Action::Off {
            return found;
        }
        for rule in Rule::ALL.into_iter().filter(|rule| self.action(*rule) != Action::Off) {
            rules::check(rule, case, mode, &mut found);
        }
        found
    }

    /// Whether a scheduler of the contract asks.
    fn is_scheduler(&self, subject: &Subject<'_>) -> bool {
        self.identities.schedulers().iter().any(|name| name == subject.requester.username)
    }

    /// The pools of which something holds.
    fn pools_where(&self, holds: impl Fn(&Pool) -> bool) -> PoolSet {
        self.pools.iter().enumerate().filter(|(_, pool)| holds(pool)).map(|(index, _)| index).collect()
    }
}
