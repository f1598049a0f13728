//! `not-understood`: whether the pod reaches a pool that is closed to its namespace depends on a field of a form
//! that is not known here: the operator of a toleration, from a later Kubernetes. (A quantity that cannot be read
//! is no such field: no API server stores one.)

use std::cmp::Reverse;
use std::collections::HashSet;

use super::super::json::Excerpt;
use super::super::{Action, Case, PoolSet, Rule, Taint, Toleration};
use super::{Outside, Violation, old_tolerations, toleration_field};

/// How many tolerations of a pod are told apart. More are as good as one another.
const NAMED: usize = 32;

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    if !case.is_strange() {
        return;
    }
    let old = old_tolerations(case);
    let closed = case.policy.pools_where(|_| true).without(case.passed).without(case.allowed);
    found.extend(closed.iter().filter_map(|index| operator(case, &old, index)));
}

/// A toleration with which the pod passes the pool's taints if its operator lets it: of several the one that is
/// least likely to match nothing, and of those one that is new.
fn operator<'a>(case: &Case<'a, '_>, old: &HashSet<&Toleration<'a>>, index: usize) -> Option<Violation> {
    let tolerations = case.object.pod.spec.tolerations();
    let pool = &case.policy.pools[index];
    let may_pass = |taint: &Taint| {
        case.given().contains(taint) || tolerations.iter().any(|own| own.tolerates(taint) || is_puzzle(own, taint))
    };
    if !pool.taints.iter().all(may_pass) {
        return None;
    }
    let puzzles = || {
        let all = tolerations.iter().enumerate();
        all.filter_map(|(place, own)| Some((place, own, pool.taints.iter().find(|taint| is_puzzle(own, taint))?)))
    };
    let (place, toleration, taint) =
        puzzles().max_by_key(|(place, own, taint)| (most(own, taint), !old.contains(own), Reverse(*place)))?;
    let field = format!("{}.operator", toleration_field(case, place));
    let outside = Outside { case, pool: index };
    Some(Violation {
        rule: Rule::NotUnderstood,
        pools: PoolSet::from_iter([index]),
        what: puzzles().take(NAMED).map(|(_, own, _)| own.to_string()).collect(),
        most: most(toleration, taint),
        node: None,
        message: format!(
            "{field} is {}, which is not known here (Equal, Exists, Gt, Lt are): the toleration may pass the taint \
             {taint} of pool {}, {outside}",
            Excerpt(&toleration.operator),
            pool.name,
        ),
        field,
    })
}

/// Upstream's own reading of an operator that it does not know is that it matches nothing. It is taken at that word
/// only of a toleration that names another value of the taint's key.
fn most(toleration: &Toleration<'_>, taint: &Taint) -> Action {
    let value = &*toleration.value;
    let is_word = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let names_another = !toleration.key.is_empty() && !value.is_empty() && is_word && value != taint.value;
    if names_another { Action::Warn } else { Action::Deny }
}

fn is_puzzle(toleration: &Toleration<'_>, taint: &Taint) -> bool {
    !toleration.has_known_operator() && toleration.concerns(taint)
}
