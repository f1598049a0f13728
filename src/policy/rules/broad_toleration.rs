//! `broad-toleration`: in an allowed namespace, a toleration of a pool's taint that is wider than the
//! exact one, and so lets the pod onto other nodes as well.

use std::cell::LazyCell;

use super::super::{Action, Case, PoolSet, Rule, Taint, Toleration};
use super::{Violation, listing, toleration_field};

/// How many tolerations of a pod are named. A pod can have as many as fit into a body, and each finding
/// costs a message.
const NAMED: usize = 32;

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    let reachable = case.passed.and(case.allowed);
    let spared = LazyCell::new(|| case.spared(Rule::BroadToleration));
    let mut named: Vec<&Toleration<'_>> = Vec::new();
    for (position, toleration) in case.object.pod.spec.tolerations().iter().enumerate() {
        let taints = |index: usize| case.policy.pools[index].taints.iter();
        let broad = |taint: &&Taint| is_broad(toleration, taint);
        let wide: PoolSet = reachable.iter().filter(|index| taints(*index).any(|taint| broad(&taint))).collect();
        if wide.is_empty() || named.contains(&toleration) {
            continue;
        }
        if named.len() == NAMED {
            return;
        }
        named.push(toleration);
        // One finding a toleration: a wildcard passes every pool, and is one mistake. One more where the pod
        // is exempt for some of the pools, which must not hide the others.
        for index in [wide.without(*spared), wide.and(*spared)].into_iter().filter_map(PoolSet::first) {
            let exact: Vec<_> = taints(index).filter(broad).map(Taint::exact_toleration_text).collect();
            let field = toleration_field(case, position);
            found.push(Violation {
                rule: Rule::BroadToleration,
                pools: PoolSet::from_iter([index]),
                most: Action::Deny,
                node: None,
                what: vec![toleration.to_string()],
                message: format!(
                    "{field} has {}, wider than pool {} needs. Write {}, or leave it out: GPU pods get it.",
                    width(toleration),
                    case.policy.pools[index].name,
                    listing(&exact),
                ),
                field,
            });
        }
    }
}

fn is_broad(toleration: &Toleration<'_>, taint: &Taint) -> bool {
    toleration.tolerates(taint) && !toleration.names_exactly(taint)
}

/// What makes the toleration wide.
fn width(toleration: &Toleration<'_>) -> String {
    let mut wide = Vec::new();
    if toleration.key.is_empty() {
        wide.push("no key".to_owned());
    }
    if !matches!(&*toleration.operator, "" | "Equal") {
        wide.push(format!("operator {}", toleration.operator));
    }
    if toleration.effect.is_empty() {
        wide.push("no effect".to_owned());
    }
    listing(&wide)
}
