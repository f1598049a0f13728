//! `placement-conflict`: a GPU pod that no node of its pool can ever take, or that does not say clearly which
//! pool it means.

mod choice;

use super::super::affinity::NodeSelectorRequirement;
use super::super::json::Excerpt;
use super::super::placement::Terms;
use super::super::pool::Models;
use super::super::subject::Field;
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
    let asks: Vec<_> = pools
        .iter()
        .filter_map(|index| {
            let pool = &case.policy.pools[index];
            Some((request(case, pool)?, pool))
        })
        .collect();
    let asked: Vec<_> = asks.iter().map(|(ask, pool)| format!("{} (pool {})", ask.subject(), pool.name)).collect();
    let field = asks.first().map(|(ask, _)| Field(case.object, ask).to_string()).unwrap_or_default();
    Violation {
        rule: Rule::PlacementConflict,
        pools,
        most: Action::Deny,
        node: None,
        what: asked.clone(),
        message: format!(
            "{field}: this pod asks for {}, and no pool offers all of it. Request the resources of one pool.",
            listing(&asked),
        ),
        field,
    }
}

/// Where the pod names a model that its pool does not have, or any where its pool tells none apart.
fn unknown_model(case: &Case<'_, '_>, index: usize, pool: &Pool) -> Option<Violation> {
    let named = |models: &Models| models.named(&case.object.pod);
    let (annotation, model, told) = if let Some(models) = &pool.models {
        let model = named(models).filter(|model| !models.has(model))?;
        let values = models.values.join(", ");
        let told = format!("a model that pool {} does not have. Use one of {values}, or leave it out.", pool.name);
        (&models.annotation, model, told)
    } else {
        let mut others = case.choice.offering.iter().filter_map(|other| case.policy.pools[other].models.as_ref());
        let (annotation, model) = others.find_map(|models| Some((&models.annotation, named(models)?)))?;
        let told = format!("and pool {} tells no models apart. Leave it out, or choose a pool that does.", pool.name);
        (annotation, model, told)
    };
    let field = Field(case.object, format_args!("metadata.annotations[\"{annotation}\"]")).to_string();
    Some(Violation {
        rule: Rule::PlacementConflict,
        pools: PoolSet::from_iter([index]),
        most: Action::Deny,
        node: None,
        what: vec![annotation.clone()],
        message: format!("{field} is \"{}\", {told}", Excerpt(&model)),
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
            node: None,
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
    let excluding = alternatives.iter().map(|term| term.excluding(&terms.labels)).collect::<Option<Vec<_>>>()?;
    let (expression, value) = excluding.first()?;
    let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    Some(Violation {
        rule: Rule::PlacementConflict,
        pools: PoolSet::from_iter([index]),
        most: Action::Deny,
        node: None,
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

/// An expression as a person writes it: `accelerator NotIn [nvidia]`.
fn written(expression: &NodeSelectorRequirement<'_>) -> String {
    let NodeSelectorRequirement { key, operator, values } = expression;
    match &**values {
        [] => format!("{key} {operator}"),
        values => format!("{key} {operator} [{}]", values.iter().map(|value| &**value).collect::<Vec<_>>().join(", ")),
    }
}
