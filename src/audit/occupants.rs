//! Who is on the GPU nodes: what each pod is to its node, how it got in, and what it takes.

use std::cmp::Reverse;

use super::accounts::Accounts;
use super::class::class;
use super::finding::{Check, Finding, Severity};
use super::outcome::{Audit, Class, Entry, NodeAccount, Occupant};
use super::remedy::Remedies;
use super::snapshot::{Node, ObjectRef, Pod, Taint};
use super::view::{Standing, View};
use super::words::{amounts_text, list_text};
use crate::policy::{self, ComparisonOperators, Effect, Kind, Toleration, visible};

/// Lists the GPU nodes with their pods, keeps the accounts, and finds ordinary pods and blocked GPUs.
pub(super) fn judge(view: &View<'_>, audit: &mut Audit) {
    let mut accounts = Accounts::new(view);
    let mut remedies = Remedies::new(view);
    for (node, standing) in view.gpu_nodes() {
        let mut account = NodeAccount {
            name: node.name.to_string(),
            pools: view.pools(standing.pools).map(|pool| pool.name.clone()).collect(),
            group: super::nodes::group(node),
            ready: node.ready,
            unschedulable: node.unschedulable,
            taints: node.taints.iter().map(|taint| visible(&taint.to_string()).into_owned()).collect(),
            allocatable: node.allocatable.clone(),
            ..NodeAccount::default()
        };
        let guards = Guards::of(view, node, standing);
        for pod in view.pods_on(&node.name) {
            let occupant = occupant(view, node, standing, &guards, pod, &mut remedies);
            *account.requested.of(occupant.class) += &occupant.requests;
            *audit.summary.pods_on_gpu_nodes.of(occupant.class) += 1;
            account.occupants.push(occupant);
        }
        account
            .occupants
            .sort_by(|a, b| (Reverse(a.class), &a.namespace, &a.name).cmp(&(Reverse(b.class), &b.namespace, &b.name)));
        let blocked = accounts.enter(node, standing, &mut account);
        let in_the_way = account.occupants.iter().filter(|occupant| occupant.class == Class::Ordinary);
        let in_the_way = in_the_way.filter(|occupant| !occupant.action.is_empty());
        audit.findings.extend(in_the_way.map(|occupant| ordinary(&account, standing, occupant)));
        if account.gpus.blocked > 0 {
            audit.findings.push(accounts.blocked(&account, blocked));
        }
        audit.nodes.push(account);
    }
    audit.pools = accounts.finish();
}

fn occupant<'s>(
    view: &View<'s>,
    node: &Node,
    standing: Standing,
    guards: &Guards<'_>,
    pod: &'s Pod,
    remedies: &mut Remedies<'_, 's>,
) -> Occupant {
    let class = class(view, pod);
    let json = pod.json();
    let object = Kind::Pod.read(&json).ok();
    let tolerations = object.as_ref().map(|object| object.pod.spec.tolerations()).unwrap_or_default();
    let entry = guards.entry(pod, class, tolerations);
    // What is leaving already needs no help.
    let action = if class == Class::Ordinary && !pod.deleting {
        remedies.of(node, standing, pod, &entry, tolerations)
    } else {
        String::new()
    };
    Occupant {
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        class,
        controller: view.top_controller(pod).cloned(),
        qos: pod.qos,
        requests: pod.requests.clone(),
        entry,
        action,
    }
}

/// The taints of a node that keep pods off it: its pools', or where it has none of those, what others keep pods off
/// with.
struct Guards<'n>(Vec<(&'n Taint, policy::Taint)>);

impl<'n> Guards<'n> {
    fn of(view: &View<'_>, node: &'n Node, standing: Standing) -> Self {
        let pools = view.pools(standing.pools).flat_map(|pool| &pool.taints);
        let carried = |taint: &policy::Taint| node.taints.iter().find(|own| own.is(taint));
        let mut guards: Vec<_> = pools.filter_map(|taint| Some((carried(taint)?, taint.clone()))).collect();
        if guards.is_empty() {
            // Nobody keeps pods off a node for good with a taint that comes and goes.
            let lasts = |taint: &&Taint| !super::nodes::is_transient(&taint.key);
            let others = node.taints.iter().filter(|taint| taint.is_hard()).filter(lasts);
            guards.extend(others.filter_map(|taint| {
                let effect = Effect::ALL.into_iter().find(|effect| effect.as_str() == &*taint.effect)?;
                let same = policy::Taint { key: taint.key.to_string(), value: taint.value.to_string(), effect };
                Some((taint, same))
            }));
        }
        Self(guards)
    }

    fn entry(&self, pod: &Pod, class: Class, tolerations: &[Toleration<'_>]) -> Entry {
        // The DaemonSet controller leaves the choice to the scheduler. A kubelet puts the mirror of a static pod where
        // it is itself.
        if pod.is_mirror || (pod.names_node && class != Class::DaemonSet) {
            return Entry::NodeName;
        }
        let passing = |taint: &Taint| {
            let taint = taint.as_node_taint();
            let passes = |own: &Toleration<'_>| own.tolerates_on_node(&taint, ComparisonOperators::Known);
            tolerations.iter().position(passes)
        };
        let text = |taint: &Taint| visible(&taint.to_string()).into_owned();
        if let Some((taint, _)) = self.0.iter().find(|(taint, _)| passing(taint).is_none()) {
            return Entry::BeforeTaint { taint: text(taint) };
        }
        let first = self.0.first().and_then(|(taint, same)| Some((taint, same, passing(taint)?)));
        match first {
            None => Entry::NoTaint,
            Some((taint, same, place)) => Entry::Tolerates {
                taint: text(taint),
                field: format!("spec.tolerations[{place}]"),
                toleration: tolerations[place].to_string(),
                exact: tolerations[place].names_exactly(same),
            },
        }
    }
}

fn ordinary(account: &NodeAccount, standing: Standing, occupant: &Occupant) -> Finding {
    let Occupant { controller, qos, requests, entry, action, .. } = occupant;
    let object = ObjectRef::new("v1", Kind::Pod.name(), &occupant.namespace, &occupant.name);
    let node = visible(&account.name);
    let pool = match &*account.pools {
        [pool] => format!("of pool {pool}"),
        pools if standing.is_undecided => format!("of no pool (it offers what pools {} have)", list_text(pools)),
        pools => format!("of pools {}", pools.join(", ")),
    };
    let maker = controller.as_ref().map(|controller| format!(" of {controller}")).unwrap_or_default();
    let (way, field) = match entry {
        Entry::Tolerates { taint, field, toleration, exact } => {
            let more = if *exact { "" } else { " and more" };
            (format!("{field} {toleration} tolerates the taint {taint}{more}"), Some(field.as_str()))
        }
        Entry::NodeName => ("spec.nodeName names the node, past the scheduler".to_owned(), Some("spec.nodeName")),
        Entry::BeforeTaint { taint } => (
            format!("it does not tolerate the taint {taint}: it was there before, or was put there past the scheduler"),
            None,
        ),
        Entry::NoTaint => ("the node has no taint that would keep it off".to_owned(), None),
    };
    let places = match account.allocatable.pods {
        0 => "1 pod place".to_owned(),
        places => format!("1 of {places} pod places"),
    };
    let taken = [amounts_text(requests), places].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    let message = format!(
        "{object}{maker} ({qos:?}) requests no GPU and takes {} of node {node} {pool}; {way}",
        taken.join(", ")
    );
    let blocks = account.blocked_by.iter().any(|resource| match *resource {
        "cpu" => requests.cpu_milli > 0,
        "memory" => requests.memory_bytes > 0,
        "ephemeral-storage" => requests.ephemeral_storage_bytes > 0,
        _ => true,
    });
    let severity = if blocks { Severity::High } else { Severity::Medium };
    let mut finding = Finding::new(Check::OrdinaryPod, severity, object, message, action)
        .made_by(controller.as_ref())
        .on_node(&account.name);
    if let [pool] = &*account.pools {
        finding = finding.in_pool(pool);
    }
    match field {
        Some(field) => finding.at(field),
        None => finding,
    }
}
