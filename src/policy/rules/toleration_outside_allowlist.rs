//! `toleration-outside-allowlist`: the pod's tolerations pass a pool's taints in a namespace that may
//! not use the pool.

use super::super::{Case, Rule};
use super::{Outside, Violation, passing_field};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    let pools = &case.policy.pools;
    for index in case.passed.without(case.allowed).iter() {
        let pool = &pools[index];
        // The exact toleration for an allowed pool with the same taints is no breach of this one.
        if case.allowed.iter().any(|allowed| pool.is_open_to(&pools[allowed])) {
            continue;
        }
        // Nobody can take out what is injected: the author's own toleration is at fault.
        let own = pool.taints.iter().find(|taint| !case.given().contains(taint));
        let Some(taint) = own.or(pool.taints.first()) else { continue };
        let Some(field) = passing_field(case, taint) else { continue };
        let outside = Outside { case, pool: index };
        found.push(Violation {
            rule: Rule::TolerationOutsideAllowlist,
            pool: index,
            what: Vec::new(),
            message: format!("{field} passes the taint {taint} of pool {}, {outside}", pool.name),
            field,
        });
    }
}
