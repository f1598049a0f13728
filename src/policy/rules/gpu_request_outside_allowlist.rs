//! `gpu-request-outside-allowlist`: a pod requests a GPU of a pool that its namespace may not use: a
//! container names the pool's resource, or the pod carries a marker of it.

use std::fmt;

use super::super::subject::Field;
use super::super::{Action, Case, PoolSet, Rule};
use super::{Outside, Violation, request};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    for index in case.asked.pools().without(case.allowed).iter() {
        let pool = &case.policy.pools[index];
        let Some(ask) = request(case, pool) else { continue };
        let field = Field(case.object, ask).to_string();
        let refusal = Refusal(Outside { case, pool: index });
        found.push(Violation {
            rule: Rule::GpuRequestOutsideAllowlist,
            pools: PoolSet::from_iter([index]),
            what: Vec::new(),
            most: Action::Deny,
            node: None,
            message: format!("{field} asks for pool {}, {refusal}", pool.name),
            field,
        });
    }
}

/// Why the pool is closed, and which pools of what is requested are not.
struct Refusal<'a, 'p>(Outside<'a, 'p>);

impl fmt::Display for Refusal<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// How many pools are named.
        const NAMED: usize = 3;
        let Self(outside) = self;
        let case = outside.case;
        let open = case.choice.offering.and(case.allowed);
        if open.is_empty() {
            return outside.fmt(f);
        }
        let names: Vec<_> = open.iter().take(NAMED).map(|open| &*case.policy.pools[open].name).collect();
        let (names, namespace) = (names.join(" or "), case.subject.namespace);
        outside.advising(f, format_args!("Choose pool {names}, which {namespace} may use, or use an allowed namespace"))
    }
}
