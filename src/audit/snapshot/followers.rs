//! Which workloads follow others: a Deployment's `ReplicaSet`s, most of them old, a CronJob's Jobs, and what a custom
//! resource of the contract makes. They say nothing that their owners do not, and are left out.
//!
//! Who wrote an object wrote its owners too, so that the owner must be there, and be of a kind that makes such objects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{ObjectRef, Workload};
use crate::policy::{Kind, Policy};

/// The workloads, while their owners may still come.
#[derive(Debug, Default)]
pub(super) struct Followers {
    /// What may own others and is accounted for: it is kept, or follows what is.
    accounted: HashSet<ObjectRef>,
    /// What follows an owner that has not come yet.
    waiting: HashMap<ObjectRef, Vec<Workload>>,
}

impl Followers {
    /// The workload again, if it is to be kept.
    pub(super) fn take(&mut self, policy: &Policy, workload: Workload) -> Option<Workload> {
        match owner(policy, &workload) {
            None => {
                self.account(&workload);
                Some(workload)
            }
            Some(owner) if self.accounted.contains(&owner) => {
                self.account(&workload);
                None
            }
            Some(owner) => {
                self.waiting.entry(owner).or_default().push(workload);
                None
            }
        }
    }

    /// What is kept because its owner never came, in no order.
    pub(super) fn finish(mut self) -> Vec<Workload> {
        let there: HashSet<_> = self.waiting.values().flatten().map(|workload| named(&workload.object)).collect();
        // First those whose owners are nowhere; what follows them is then accounted for.
        let owners: Vec<_> = self.waiting.keys().filter(|owner| !there.contains(*owner)).cloned().collect();
        let mut kept = Vec::new();
        for owner in owners {
            for workload in self.waiting.remove(&owner).unwrap_or_default() {
                self.account(&workload);
                kept.push(workload);
            }
        }
        // What is left goes round: each claims that another made it.
        kept.extend(self.waiting.into_values().flatten());
        kept
    }

    /// Lets go of all that follows the workload.
    fn account(&mut self, workload: &Workload) {
        let mut news = vec![named(&workload.object)];
        let mut kinds = vec![workload.kind];
        while let (Some(object), Some(kind)) = (news.pop(), kinds.pop()) {
            if !matches!(kind, Kind::Deployment | Kind::CronJob | Kind::Custom) {
                continue;
            }
            for follower in self.waiting.remove(&object).unwrap_or_default() {
                news.push(named(&follower.object));
                kinds.push(follower.kind);
            }
            self.accounted.insert(object);
        }
    }
}

/// The owner that makes such workloads, if it says that one made it.
fn owner(policy: &Policy, workload: &Workload) -> Option<ObjectRef> {
    let owner = workload.controller.as_ref()?;
    let makes = match (workload.kind, Kind::of(owner.group(), &owner.kind)) {
        (Kind::ReplicaSet, Some(Kind::Deployment)) | (Kind::Job, Some(Kind::CronJob)) => true,
        (_, Some(_)) => false,
        (_, None) => policy.custom_resource(owner.group(), &owner.kind).is_some(),
    };
    makes.then(|| named(owner))
}

/// The object whatever the version in which it was asked for.
fn named(object: &ObjectRef) -> ObjectRef {
    ObjectRef {
        api_version: object.group().into(),
        kind: Arc::clone(&object.kind),
        namespace: Arc::clone(&object.namespace),
        name: Arc::clone(&object.name),
    }
}
