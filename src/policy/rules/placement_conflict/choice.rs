//! A pod that names a pool which it cannot have, or several at once.

use super::super::super::Pool;
use super::super::super::ask::Ask;
use super::super::super::choice::Named;
use super::super::super::json::Excerpt;
use super::super::super::subject::Field;
use super::super::{Action, Case, PoolSet, Rule, Violation, listing};

/// Whether the pod names the pool.
pub(super) fn names(case: &Case<'_, '_>, pool: &Pool) -> bool {
    case.policy.selection.named(&case.object.pod).iter().any(|named| *named.name == *pool.name)
}

pub(super) fn check(case: &Case<'_, '_>, meant: usize, found: &mut Vec<Violation>) {
    let named = case.policy.selection.named(&case.object.pod);
    let pool = |named: &Named<'_>| case.policy.pools.iter().position(|pool| *pool.name == *named.name);
    let before = found.len();
    found.extend(named.iter().filter(|named| pool(named).is_none()).map(|named| unknown(case, meant, named)));
    if found.len() == before {
        match &*named {
            [one, other] if one.name != other.name => found.push(two_names(case, meant, one, other)),
            [named, ..] => found.extend(pool(named).and_then(|index| without_offer(case, meant, index, named))),
            [] => {}
        }
    }
    if !case.choice.torn.is_empty() {
        found.push(two_selected(case));
    }
}

/// The field by which the pod names the pool.
fn field(case: &Case<'_, '_>, Named { list, key, .. }: &Named<'_>) -> String {
    Field(case.object, format_args!("metadata.{list}[\"{key}\"]")).to_string()
}

/// The pools that offer what the pod requests: of those the ones that its namespace may use, if it may use any.
fn offering(case: &Case<'_, '_>) -> String {
    let usable = case.choice.offering.and(case.allowed);
    let offering = if usable.is_empty() { case.choice.offering } else { usable };
    offering.iter().map(|index| &*case.policy.pools[index].name).collect::<Vec<_>>().join(", ")
}

fn unknown(case: &Case<'_, '_>, meant: usize, named: &Named<'_>) -> Violation {
    let field = field(case, named);
    Violation {
        rule: Rule::PlacementConflict,
        pools: PoolSet::from_iter([meant]),
        most: Action::Deny,
        node: None,
        what: vec![named.key.to_owned(), named.name.to_string()],
        message: format!(
            "{field} is \"{}\", and there is no such pool. Use one of {}, or leave it out.",
            Excerpt(&named.name),
            offering(case),
        ),
        field,
    }
}

fn two_names(case: &Case<'_, '_>, meant: usize, one: &Named<'_>, other: &Named<'_>) -> Violation {
    let field = field(case, one);
    Violation {
        rule: Rule::PlacementConflict,
        pools: PoolSet::from_iter([meant]),
        most: Action::Deny,
        node: None,
        what: vec![one.name.to_string(), other.name.to_string()],
        message: format!(
            "{field} names pool {}, and metadata.{}[\"{}\"] pool {}: no pod runs in both. Name one pool.",
            one.name, other.list, other.key, other.name,
        ),
        field,
    }
}

/// Where the named pool does not offer what the pod requests.
fn without_offer(case: &Case<'_, '_>, meant: usize, index: usize, named: &Named<'_>) -> Option<Violation> {
    let pool = &case.policy.pools[index];
    let asks_of_another = |ask: &Ask<'_>| {
        !ask.concerns(pool)
            && ask.is_request() == Ok(true)
            && case.policy.pools.iter().any(|another| ask.concerns(another))
    };
    let ask = Ask::all(case.object, &case.policy.pools).find(asks_of_another)?;
    let field = field(case, named);
    Some(Violation {
        rule: Rule::PlacementConflict,
        pools: PoolSet::from_iter([meant, index]),
        most: Action::Deny,
        node: None,
        what: vec![named.key.to_owned(), named.name.to_string()],
        message: format!(
            "{field} names pool {}, which does not offer the {} that this pod asks for. Use one of {}, or leave it out.",
            named.name,
            ask.subject(),
            offering(case),
        ),
        field,
    })
}

/// Where the nodeSelector means several pools.
fn two_selected(case: &Case<'_, '_>) -> Violation {
    let field = Field(case.object, "spec.nodeSelector").to_string();
    let labels = |index: usize| {
        let pool = &case.policy.pools[index];
        format!("pool {} ({})", pool.name, pool.labels_text(","))
    };
    let selected: Vec<_> = case.choice.torn.iter().map(labels).collect();
    Violation {
        rule: Rule::PlacementConflict,
        pools: case.choice.torn,
        most: Action::Deny,
        node: None,
        what: vec!["nodeSelector".to_owned()],
        message: format!(
            "{field} means {} at once, and a pod runs in one pool. Keep the labels of one.",
            listing(&selected),
        ),
        field,
    }
}
