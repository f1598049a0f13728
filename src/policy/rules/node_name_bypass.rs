//! `node-name-bypass`: a pod is put onto a pool's node past the scheduler, and so past the node's `NoSchedule`
//! taint, which binds nobody else.
//!
//! In a namespace that may use the pool it is no way around anything where the pod tolerates the taints: the
//! scheduler could have put it there as well. `kubectl debug node/NAME` makes such pods. What a pod tolerates that
//! is bound there is not known, so that a Binding by nobody whom the contract names is only warned of.

use super::super::json::Excerpt;
use super::super::placed::Placed;
use super::super::subject::Field;
use super::super::{Action, Case, Kind, Pool, PoolSet, Rule, Subject};
use super::{Outside, Violation};

pub(super) fn check(case: &Case<'_, '_>, found: &mut Vec<Violation>) {
    let (node, pools) = match case.placed {
        Placed::Freely => return,
        Placed::In { node, pools } => (node, pools),
        Placed::Nowhere { node } | Placed::Unknown { node } => (node, case.policy.pools_where(|_| true)),
    };
    let is_binding = case.object.kind == Kind::Binding;
    // Of a pod that is bound it is not known here what it tolerates.
    let entered = if is_binding { PoolSet::default() } else { pools.and(case.allowed).and(case.passed) };
    let closed = pools.without(entered);
    let is_node_known = matches!(case.placed, Placed::In { .. });
    // A node that is in several pools is open to whoever may enter one of them.
    let first = closed.and(case.allowed).first().or_else(|| closed.first());
    let (Some(index), true) = (first, entered.is_empty() || !is_node_known) else { return };
    let field = if is_binding { "target.name".to_owned() } else { Field(case.object, "spec.nodeName").to_string() };
    let name = Excerpt(node);
    let leave =
        if is_binding { "Leave the binding to the scheduler." } else { "Leave it out: the scheduler places the pod." };
    let message = match case.placed {
        Placed::In { .. } => inside(case, index, &field, node, is_binding, leave),
        Placed::Nowhere { .. } => format!(
            "{field} is {name}, and there is no such node: one that comes by this name may be a GPU node, and no taint \
             keeps out who waits for it. {leave}"
        ),
        _ => format!(
            "{field} puts this pod onto node {name} past the scheduler and its taints, and it is not known whether that is \
             a GPU node. {leave}"
        ),
    };
    let most = match case.placed {
        Placed::Unknown { .. } => case.policy.when_unknown,
        // Who may use the pool could bring the pod there without this, and schedulers that nobody named bind there.
        Placed::In { .. } if is_binding && case.allowed.contains(index) => Action::Warn,
        _ => Action::Deny,
    };
    found.push(Violation {
        rule: Rule::NodeNameBypass,
        pools: closed,
        what: vec![node.to_owned()],
        field,
        message,
        most,
        node: matches!(case.placed, Placed::Unknown { .. }).then(|| node.to_owned()),
    });
}

fn inside(case: &Case<'_, '_>, index: usize, field: &str, node: &str, is_binding: bool, leave: &str) -> String {
    let pool: &Pool = &case.policy.pools[index];
    let name = Excerpt(node);
    let placed = format!("{field} puts this pod onto node {name} of pool {} past the scheduler", pool.name);
    if is_binding {
        let who = Excerpt(case.subject.requester.username);
        let closed = if case.allowed.contains(index) {
            String::new()
        } else {
            let Subject { namespace, .. } = case.subject;
            format!(", which is closed to namespace {namespace} (allowed: {})", pool.namespaces)
        };
        return format!(
            "{placed}{closed}, and {who} is not in identities.schedulers. Add it there if it schedules pods, or leave the \
             Binding to who does."
        );
    }
    if !case.allowed.contains(index) {
        return format!("{placed}, {}", Outside { case, pool: index });
    }
    let tolerations = case.object.pod.spec.tolerations();
    let untolerated = pool.taints.iter().find(|taint| !tolerations.iter().any(|own| own.tolerates(taint)));
    match untolerated {
        Some(taint) => format!("{placed} and its taint {taint}, which the pod does not tolerate. {leave}"),
        None => format!("{placed}. {leave}"),
    }
}
