//! The second line: ordinary pods are kept off the nodes of pools by a required node affinity as well, so that a
//! node which lost its taint does not fill up.

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::decision::Purpose;
use super::placement::add;
use super::{Case, Controller, Decision, Exempted, Facts, Fault, Injection, Kind, Mode, Operation, Policy, exemption};

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
        // Who may use a pool and tolerates its taints means to run there: the rules speak of that.
        let entered = case.passed.and(case.allowed);
        let is_entered =
            |label: &String| entered.iter().any(|index| self.pools[index].node_selector.contains_key(label));
        let labels: Vec<_> =
            self.fence_ordinary.iter().filter(|label| !is_entered(label)).map(String::as_str).collect();
        let json = case.object.pod.spec.affinity.as_ref().map_or("null", |affinity| affinity.json.get());
        let patch = match patch(json, &labels) {
            Ok(None) => return,
            Ok(Some(patch)) => patch,
            Err(message) => return decision.faults.push(Fault { field: "patch".to_owned(), message }),
        };
        let exempt = (0..self.pools.len()).find_map(|index| {
            let fenced = self.pools[index].node_selector.keys().any(|key| labels.contains(&key.as_str()));
            fenced.then(|| self.spares_injection(subject, index, facts)).flatten()
        });
        if let Some(exemption) = exempt {
            return decision.exempted.push(Exempted { exemption, rules: Vec::new() });
        }
        let purpose = Purpose::Fence(labels.into_iter().map(str::to_owned).collect());
        decision.injection = Some(Injection { purpose, patch, enforced: decision.mode > Mode::Audit });
    }
}

/// The patch after which every required term of an affinity asks for the absence of the labels; `None` where all
/// of them do. The affinity is the pod's JSON, or null.
///
/// Terms are alternatives, so that each must ask: one more term would open what the others close. One that asks
/// for nothing at all matches no node, and would match some if it asked for this.
///
/// # Errors
/// What is wrong with the JSON, which has been read before.
fn patch(json: &str, labels: &[&str]) -> Result<Option<Patch>, String> {
    let affinity: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let absent = |label: &&str| json!({"key": label, "operator": "DoesNotExist"});
    let node_affinity = &affinity["nodeAffinity"];
    let required = &node_affinity[REQUIRED];
    let all: Vec<_> = labels.iter().map(absent).collect();
    if all.is_empty() {
        return Ok(None);
    }
    let new = json!({"nodeSelectorTerms": [{"matchExpressions": all}]});
    let operation = if affinity.is_null() {
        add(&["spec", "affinity"], json!({"nodeAffinity": {REQUIRED: new}}))
    } else if node_affinity.is_null() {
        add(&["spec", "affinity", "nodeAffinity"], json!({REQUIRED: new}))
    } else if required.is_null() {
        add(&["spec", "affinity", "nodeAffinity", REQUIRED], new)
    } else {
        let terms = required["nodeSelectorTerms"].as_array().map_or(&[][..], Vec::as_slice);
        let operations: Vec<_> =
            terms.iter().enumerate().flat_map(|(place, term)| narrowed(place, term, labels)).collect();
        return Ok((!operations.is_empty()).then_some(Patch(operations)));
    };
    Ok(Some(Patch(vec![operation])))
}

/// What makes one term ask for the absence of the labels.
fn narrowed(place: usize, term: &Value, labels: &[&str]) -> Vec<PatchOperation> {
    let items = |field: &str| term[field].as_array().map_or(&[][..], Vec::as_slice);
    let expressions = items("matchExpressions");
    if expressions.is_empty() && items("matchFields").is_empty() {
        return Vec::new();
    }
    let asks = |label: &str| expressions.iter().any(|own| own["key"] == label && own["operator"] == "DoesNotExist");
    let missing = labels.iter().filter(|label| !asks(label));
    let missing: Vec<_> = missing.map(|label| json!({"key": label, "operator": "DoesNotExist"})).collect();
    let place = place.to_string();
    let at = ["spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms", &place, "matchExpressions"];
    if term["matchExpressions"].is_array() {
        return missing.into_iter().map(|expression| add(&[&at[..], &["-"]].concat(), expression)).collect();
    }
    if missing.is_empty() { Vec::new() } else { vec![add(&at, missing.into())] }
}
