//! `placement-conflict`: a GPU pod that no node of its pool can ever take, or that does not say clearly which
//! pool it means.

mod choice;

use super::super::json::Excerpt;
use super::super::placement::Terms;
use super::super::pod::{NodeSelectorRequirement, NodeSelectorTerm};
use super::super::pool::Models;
use super::super::subject::Field;
use super::super::toleration::decimal_integer;
use super::super::{Action, Asked, Case, Pool, PoolSet, Rule};
use super::{Violation, listing, request};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    match case.asked {
        Asked::Nothing => {}
        Asked::Several(pools) => found.push(several_pools(case, pools)),
        // Outside the allowlist the pod is refused for that, whatever it selects.
        Asked::One(index) if !case.allowed.contains(index) => {}
        Asked::One(index) => {
            let pool = &case.policy.pools[index];
            // Not `case.terms`: a label that is not injected can still contradict the pool's.
            let terms = Terms::of(pool, &case.object.pod, case.policy.when_tolerated);
            choice::check(case, index, found);
            found.extend(unknown_model(case, index, pool));
            found.extend(selector(case, index, pool, &terms));
            found.extend(affinity(case, index, pool, &terms));
        }
    }
}

fn several_pools(case: &Case<'_, '_>, pools: PoolSet) -> Violation {
    let mut asked = Vec::new();
    let mut field = String::new();
    for index in pools.iter() {
        let pool = &case.policy.pools[index];
        if let Some(ask) = request(case, pool) {
            asked.push(format!("{} (pool {})", ask.subject(), pool.name));
            field = Field(case.object, ask).to_string();
        }
    }
    Violation {
        rule: Rule::PlacementConflict,
        pools,
        most: Action::Deny,
        what: vec!["pools".to_owned()],
        message: format!(
            "{field}: this pod asks for {}, and no node is in both pools. Request the resources of one pool.",
            listing(&asked),
        ),
        field,
    }
}

fn unknown_model(case: &Case<'_, '_>, index: usize, pool: &Pool) -> Option<Violation> {
    let models @ Models { annotation, values, .. } = pool.models.as_ref()?;
    let named = models.named(&case.object.pod)?;
    if models.has(&named) {
        return None;
    }
    let field = Field(case.object, format_args!("metadata.annotations[\"{annotation}\"]")).to_string();
    Some(Violation {
        rule: Rule::PlacementConflict,
        pools: PoolSet::from_iter([index]),
        most: Action::Deny,
        what: vec![annotation.clone()],
        message: format!(
            "{field} is \"{}\", a model that pool {} does not have. Use one of {}, or leave it out.",
            Excerpt(&named),
            pool.name,
            values.join(", "),
        ),
        field,
    })
}

fn selector<'a>(
    case: &'a Case<'_, '_>,
    index: usize,
    pool: &'a Pool,
    terms: &'a Terms<'_>,
) -> impl Iterator<Item = Violation> + use<'a> {
    let chosen = if choice::names(case, pool) { "names" } else { "asks for" };
    terms.labels.iter().filter_map(move |(key, wanted)| {
        let selected = case.object.pod.spec.selects(key).filter(|selected| selected != wanted)?;
        let field = Field(case.object, format_args!("spec.nodeSelector[\"{key}\"]")).to_string();
        Some(Violation {
            rule: Rule::PlacementConflict,
            pools: PoolSet::from_iter([index]),
            most: Action::Deny,
            what: vec![(*key).to_owned()],
            message: format!(
                "{field} is {}, and the nodes of pool {} that this pod {chosen} have {wanted}: it could \
                 never run. Remove the label or set it to {wanted}.",
                Excerpt(selected),
                pool.name,
            ),
            field,
        })
    })
}

fn affinity(case: &Case<'_, '_>, index: usize, pool: &Pool, terms: &Terms<'_>) -> Option<Violation> {
    let alternatives = case.object.pod.spec.required_terms()?;
    // An empty list is refused by the API server; it shuts out nothing that is known.
    let excluding = alternatives.iter().map(|term| excluding(term, terms)).collect::<Option<Vec<_>>>()?;
    let (expression, value) = excluding.first()?;
    let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    Some(Violation {
        rule: Rule::PlacementConflict,
        pools: PoolSet::from_iter([index]),
        most: Action::Deny,
        what: vec!["affinity".to_owned()],
        message: format!(
            "{} wants {}, and the nodes of pool {} have {value}: this pod could never run. Change the expression.",
            Field(case.object, "spec.affinity.nodeAffinity"),
            Excerpt(&written(expression)),
            pool.name,
        ),
        field: Field(case.object, field).to_string(),
    })
}

/// An expression that no node of the pool can ever meet, with the value that its nodes have.
fn excluding<'a>(
    term: &'a NodeSelectorTerm<'a>,
    terms: &Terms<'a>,
) -> Option<(&'a NodeSelectorRequirement<'a>, &'a str)> {
    term.match_expressions.iter().find_map(|expression| {
        let (_, value) = terms.labels.iter().find(|(key, _)| *key == &*expression.key)?;
        (!may_match(expression, value)).then_some((expression, *value))
    })
}

/// An expression as a person writes it: `accelerator NotIn [nvidia]`.
fn written(expression: &NodeSelectorRequirement<'_>) -> String {
    let NodeSelectorRequirement { key, operator, values } = expression;
    match &**values {
        [] => format!("{key} {operator}"),
        values => format!("{key} {operator} [{}]", values.iter().map(|value| &**value).collect::<Vec<_>>().join(", ")),
    }
}

/// Whether an expression can hold for a label with this value. An operator that is not known counts as
/// one that can: a conflict must be certain.
fn may_match(expression: &NodeSelectorRequirement<'_>, value: &str) -> bool {
    let operand = || decimal_integer(expression.values.first()?);
    match &*expression.operator {
        "In" => expression.values.iter().any(|candidate| &**candidate == value),
        "NotIn" => !expression.values.iter().any(|candidate| &**candidate == value),
        "DoesNotExist" => false,
        "Gt" => decimal_integer(value).zip(operand()).is_some_and(|(value, operand)| value > operand),
        "Lt" => decimal_integer(value).zip(operand()).is_some_and(|(value, operand)| value < operand),
        _ => true,
    }
}
