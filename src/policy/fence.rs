//! The second line: ordinary pods are kept off the nodes of pools by a required node affinity as well, so that a
//! node which lost its taint does not fill up.

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::affinity::{Affinity, NodeSelectorTerm};
use super::decision::Purpose;
use super::placement::add;
use super::{Case, Controller, Decision, Facts, Injection, Kind, Mode, Operation, Policy, exemption};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

impl Policy {
    /// Whether ordinary pods are kept off nodes with some labels.
    #[must_use]
    pub fn fences_ordinary(&self) -> bool {
        !self.fence_ordinary.is_empty()
    }

    /// What a pod that requests no GPU is given.
    pub(super) fn decide_fence(&self, case: &Case<'_, '_>, facts: &dyn Facts, decision: &mut Decision) {
        let subject = case.subject;
        if !matches!((subject.operation, case.object.kind), (Operation::Create, Kind::Pod)) {
            return;
        }
        // The controller makes one pod for each node and pins it there. With this it could not run, and the
        // controller would make it again for ever. A mirror pod runs already.
        if self.identities.owner(Controller::DaemonSet, subject).is_some() || exemption::is_mirror_pod(subject) {
            return;
        }
        // Whoever the contract trusts to put pods onto nodes has chosen one: with this the kubelet would reject it.
        if !case.object.pod.spec.node_name.is_empty() && self.is_scheduler(subject) {
            return;
        }
        // Who may use a pool and tolerates its taints means to run there: the rules speak of that.
        let entered = case.passed.and(case.allowed);
        let mut labels = Vec::new();
        for label in &self.fence_ordinary {
            let pools = self.pools_where(|pool| pool.node_selector.contains_key(label));
            if !pools.and(entered).is_empty() {
                continue;
            }
            match pools.iter().find_map(|index| self.spares_injection(subject, index, facts)) {
                Some(exemption) => decision.exempt_from_injection(exemption),
                None => labels.push(label.as_str()),
            }
        }
        let Some(patch) = patch(case.object.pod.spec.affinity.as_ref(), &labels) else { return };
        let purpose = Purpose::Fence(labels.into_iter().map(str::to_owned).collect());
        decision.injection = Some(Injection { purpose, patch, enforced: decision.mode > Mode::Audit });
    }
}

/// The patch after which every required term of an affinity asks for the absence of the labels; `None` where all
/// of them do.
///
/// Terms are alternatives, so that each must ask: one more term would open what the others close. One that asks
/// for nothing at all matches no node, and would match some if it asked for this.
fn patch(affinity: Option<&Affinity<'_>>, labels: &[&str]) -> Option<Patch> {
    if labels.is_empty() {
        return None;
    }
    let new = || json!({"nodeSelectorTerms": [{"matchExpressions": absent(labels.iter())}]});
    let Some(affinity) = affinity else {
        let affinity = json!({"nodeAffinity": {REQUIRED: new()}});
        return Some(Patch(vec![add(&["spec", "affinity"], affinity)]));
    };
    let Some(node_affinity) = &affinity.node_affinity else {
        return Some(Patch(vec![add(&["spec", "affinity", "nodeAffinity"], json!({REQUIRED: new()}))]));
    };
    let Some(required) = &node_affinity.required else {
        return Some(Patch(vec![add(&["spec", "affinity", "nodeAffinity", REQUIRED], new())]));
    };
    let terms = required.node_selector_terms.iter().enumerate();
    let operations: Vec<_> = terms.flat_map(|(place, term)| narrowed(place, term, labels)).collect();
    (!operations.is_empty()).then_some(Patch(operations))
}

/// What makes one term ask for the absence of the labels.
fn narrowed(place: usize, term: &NodeSelectorTerm<'_>, labels: &[&str]) -> Vec<PatchOperation> {
    let expressions = term.expressions();
    if expressions.is_empty() && term.match_fields.is_empty() {
        return Vec::new();
    }
    let asks = |label: &str| expressions.iter().any(|own| *own.key == *label && &*own.operator == "DoesNotExist");
    let missing = absent(labels.iter().filter(|label| !asks(label)));
    let place = place.to_string();
    let at = ["spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms", &place, "matchExpressions"];
    if term.match_expressions.is_some() {
        return missing.into_iter().map(|expression| add(&[&at[..], &["-"]].concat(), expression)).collect();
    }
    if missing.is_empty() { Vec::new() } else { vec![add(&at, missing.into())] }
}

fn absent<'l>(labels: impl Iterator<Item = &'l &'l str>) -> Vec<Value> {
    labels.map(|label| json!({"key": label, "operator": "DoesNotExist"})).collect()
}
