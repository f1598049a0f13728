//! `toleration-outside-allowlist`: the pod's tolerations pass a pool's taints in a namespace that may
//! not use the pool.

use std::cmp::Reverse;

use super::super::{Action, Case, PoolSet, Rule};
use super::{Outside, Passing, Violation, old_tolerations, passing};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    let pools = &case.policy.pools;
    let outside = case.passed.without(case.allowed);
    if outside.is_empty() {
        return;
    }
    let old = old_tolerations(case);
    for index in outside.iter() {
        let pool = &pools[index];
        // The exact toleration for an allowed pool with the same taints is no breach of this one.
        if case.allowed.iter().any(|allowed| pool.is_open_to(&pools[allowed])) {
            continue;
        }
        // Nobody can take out what is injected, nor what was there before: the author's own toleration is at
        // fault, the new one rather than the old.
        let passed = pool.taints.iter().enumerate();
        let passed = passed.filter_map(|(place, taint)| Some((place, taint, passing(case, &old, taint)?)));
        let blamed = passed
            .max_by_key(|(place, taint, passing)| (!case.given().contains(taint), passing.added, Reverse(*place)));
        let Some((_, taint, Passing { field, .. })) = blamed else { continue };
        let outside = Outside { case, pool: index };
        found.push(Violation {
            rule: Rule::TolerationOutsideAllowlist,
            pools: PoolSet::from_iter([index]),
            what: Vec::new(),
            most: Action::Deny,
            message: format!("{field} passes the taint {taint} of pool {}, {outside}", pool.name),
            field,
        });
    }
}
