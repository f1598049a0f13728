//! `toleration-without-gpu-request`: in an allowed namespace, a pod passes a pool's taints and requests
//! no GPU, so it takes the CPU, memory and pod slots that GPU pods then miss.

use super::super::ask::Requestable;
use super::super::{Action, Asked, Case, PoolSet, Rule};
use super::{Passing, Violation, old_tolerations, passing};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    // A part of a pod's spec says nothing of what the rest requests.
    if case.asked != Asked::Nothing || case.object.is_fragment() {
        return;
    }
    let pools = &case.policy.pools;
    let reachable = case.passed.and(case.allowed);
    if reachable.is_empty() {
        return;
    }
    let old = old_tolerations(case);
    let spared = case.spared(Rule::TolerationWithoutGpuRequest);
    let mut told = PoolSet::default();
    for index in reachable.iter() {
        let pool = &pools[index];
        // Pools that the taints cannot tell apart are one reach, but for one of which the pod is exempt.
        let alike = |earlier: usize| spared.contains(earlier) == spared.contains(index);
        if told.iter().any(|earlier| alike(earlier) && pool.is_open_to(&pools[earlier])) {
            continue;
        }
        told.insert(index);
        let passing = pool.taints.first().and_then(|taint| passing(case, &old, taint));
        let Some(Passing { field, .. }) = passing else { continue };
        found.push(Violation {
            rule: Rule::TolerationWithoutGpuRequest,
            pools: PoolSet::from_iter([index]),
            what: Vec::new(),
            most: Action::Deny,
            node: None,
            message: format!(
                "{field} lets this pod onto the GPU nodes of pool {}, but it requests none of {}. \
                 Remove the toleration or request a GPU.",
                pool.name,
                Requestable(pool),
            ),
            field,
        });
    }
}
