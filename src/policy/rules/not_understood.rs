//! `not-understood`: whether the pod reaches a pool that is closed to its namespace depends on a field of a form
//! that is not known here: the operator of a toleration, from a later Kubernetes. (A quantity that cannot be read
//! is no such field: no API server stores one.)

use super::super::json::Excerpt;
use super::super::{Action, Case, PoolSet, Rule, Taint, Toleration};
use super::{Outside, Violation, toleration_field};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    if case.is_strange() {
        found.extend(operator(case));
    }
}

/// The first toleration with which the pod passes a pool's taints if its operator lets it.
fn operator(case: &Case<'_, '_>) -> Option<Violation> {
    let tolerations = case.object.pod.spec.tolerations();
    let closed = case.policy.pools_where(|_| true).without(case.passed).without(case.allowed);
    closed.iter().find_map(|index| {
        let pool = &case.policy.pools[index];
        let may_pass = |taint: &Taint| {
            case.given().contains(taint) || tolerations.iter().any(|own| own.tolerates(taint) || is_puzzle(own, taint))
        };
        if !pool.taints.iter().all(may_pass) {
            return None;
        }
        let (place, taint) = tolerations.iter().enumerate().find_map(|(place, toleration)| {
            Some((place, pool.taints.iter().find(|taint| is_puzzle(toleration, taint))?))
        })?;
        let Toleration { operator, value, .. } = &tolerations[place];
        // Upstream's own reading of an operator that it does not know is that it matches nothing. One that names
        // the very taint is not taken at that word.
        let most = if value.is_empty() || **value == *taint.value { Action::Deny } else { Action::Warn };
        let field = format!("{}.operator", toleration_field(case, place));
        let outside = Outside { case, pool: index };
        Some(Violation {
            rule: Rule::NotUnderstood,
            pools: PoolSet::from_iter([index]),
            what: vec![tolerations[place].to_string()],
            most,
            message: format!(
                "{field} is {}, which is not known here (Equal, Exists, Gt, Lt are): the toleration may pass the taint \
                 {taint} of pool {}, {outside}",
                Excerpt(operator),
                pool.name,
            ),
            field,
        })
    })
}

fn is_puzzle(toleration: &Toleration<'_>, taint: &Taint) -> bool {
    !toleration.has_known_operator() && toleration.concerns(taint)
}
