//! `placement-missing`: a GPU pod reaches validation without its pool's exact toleration and
//! nodeSelector, so the mutation did not run or was undone.

use super::super::placement::Missing;
use super::super::subject::Field;
use super::super::{Action, Case, Mode, PoolSet, Rule};
use super::{Violation, listing};

pub(super) fn check(case: &Case<'_, '_>, mode: Mode, found: &mut Vec<Violation>) {
    let Some(index) = case.clear() else { return };
    // In audit mode nothing is injected, on purpose: what the mutation would have done it has said
    // itself. Templates are never injected.
    if mode == Mode::Audit || case.object.kind.is_template() {
        return;
    }
    let pool = &case.policy.pools[index];
    // A pod runs without its priority class as well.
    let Missing { taints, labels, .. } = Missing::of(&case.terms(pool), &case.object.pod.spec);
    let mut missing: Vec<_> = taints.iter().map(|taint| format!("the toleration of {taint}")).collect();
    missing.extend(labels.iter().map(|(key, value)| format!("the nodeSelector {key}={value}")));
    if missing.is_empty() {
        return;
    }
    let field = if taints.is_empty() { "spec.nodeSelector" } else { "spec.tolerations" };
    found.push(Violation {
        rule: Rule::PlacementMissing,
        pools: PoolSet::from_iter([index]),
        message: format!(
            "this GPU pod lacks {} of pool {}: mutation did not run or was undone. Recreate the pod; check the \
             mutating webhook.",
            listing(&missing),
            pool.name,
        ),
        most: Action::Deny,
        node: None,
        what: missing,
        field: Field(case.object, field).to_string(),
    });
}
