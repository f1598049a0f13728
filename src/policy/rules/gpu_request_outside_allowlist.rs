//! `gpu-request-outside-allowlist`: a container requests a pool's resource in a namespace that may not
//! use the pool.

use super::super::subject::Field;
use super::super::{Action, Case, PoolSet, Rule};
use super::{Outside, Violation, request};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    for index in case.asked.pools().without(case.allowed).iter() {
        let pool = &case.policy.pools[index];
        let Some(mention) = request(case, pool) else { continue };
        let field = Field(case.object, mention).to_string();
        let outside = Outside { case, pool: index };
        found.push(Violation {
            rule: Rule::GpuRequestOutsideAllowlist,
            pools: PoolSet::from_iter([index]),
            what: Vec::new(),
            most: Action::Deny,
            message: format!("{field} asks for pool {}, {outside}", pool.name),
            field,
        });
    }
}
