//! What becomes of pods, DaemonSets and disruption budgets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::change::{Planned, PlannedNode, What};
use super::room::Targets;
use super::{Affected, BudgetInTheWay, DaemonSetChange, DaemonSetFate, Fate, Newcomers, Then};
use crate::audit::ObjectRef;
use crate::audit::class;
use crate::audit::coverage;
use crate::audit::fit::{self, Obstacle};
use crate::audit::snapshot::{Node, Phase, Pod, Taint};
use crate::audit::view::View;
use crate::policy::{ComparisonOperators, Kind, Membership, Mode, NodeSelectorTerm, PodSpec, Toleration};

/// What a change does to what runs.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) pods: Vec<Affected>,
    pub(super) onto_gpu_nodes: usize,
    pub(super) daemon_sets: Vec<DaemonSetChange>,
    pub(super) budgets: Vec<BudgetInTheWay>,
    pub(super) newcomers: Newcomers,
}

/// A pod whose successor needs another place.
struct Mover<'s> {
    /// Its place among the pods that are concerned.
    index: usize,
    pod: &'s Pod,
    json: String,
    size: i128,
}

impl Effects {
    pub(super) fn of(view: &View<'_>, planned: &Planned<'_>) -> Self {
        let mut effects = Self::default();
        let mut movers = Vec::new();
        let mut concerned = Vec::new();
        let mut targets = other_nodes(view, planned);
        let mut daemon_sets = BTreeMap::new();
        for node in planned.changed() {
            let after = node.after();
            let mut pods: Vec<_> = view.pods_on(&node.before.name).iter().filter(|pod| !pod.deleting).collect();
            pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
            for pod in pods {
                // Of a static pod the kubelet sees that it stays, whatever the taints.
                if pod.is_mirror {
                    continue;
                }
                let Some(fate) = fit::with_spec(pod, |spec| fate(node, &after, pod, spec)).flatten() else { continue };
                if class::is_of_daemon_set(pod) {
                    drop_out(view, node, pod, fate, &mut daemon_sets);
                    continue;
                }
                let requests_gpu = class::requests_gpu(view, pod);
                let then = if pod.controller.is_none() {
                    Then::Nothing
                } else if pod.names_node {
                    Then::Nowhere { why: "its spec.nodeName puts it onto this node and no other".to_owned() }
                } else {
                    match returns(view, pod, &after) {
                        Ok(()) => Then::Completed,
                        Err(json) => {
                            let size = targets.size(&pod.requests);
                            movers.push(Mover { index: effects.pods.len(), pod, json, size });
                            Then::Nothing
                        }
                    }
                };
                concerned.push(*pod);
                effects.pods.push(Affected {
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    node: node.before.name.clone(),
                    controller: view.top_controller(pod).cloned(),
                    requests_gpu,
                    fate: fate.0,
                    after_seconds: fate.1,
                    then,
                });
            }
        }
        movers.sort_by_key(|mover| (Reverse(mover.size), mover.index));
        for mover in movers {
            let affected = &mut effects.pods[mover.index];
            affected.then = match targets.place(&mover.json, &mover.pod.requests) {
                Ok(found) => {
                    effects.onto_gpu_nodes += usize::from(found.is_gpu);
                    Then::Elsewhere { to: found.node }
                }
                Err(why) if affected.requests_gpu => {
                    Then::Nowhere { why: format!("{}; {why}", why_not_completed(view, planned, mover.pod)) }
                }
                Err(why) => Then::Nowhere { why },
            };
        }
        effects.budgets = budgets(view, &effects.pods, &concerned);
        if planned.what == What::Label {
            label_daemon_sets(view, planned, &mut daemon_sets);
            effects.newcomers = newcomers(view, planned);
        }
        effects.daemon_sets = (daemon_sets.into_iter())
            .map(|((daemon_set, fate), (nodes, add))| DaemonSetChange {
                daemon_set,
                fate,
                nodes: nodes.into_iter().collect(),
                add: add.into_iter().collect(),
            })
            .collect();
        effects
    }
}

/// What becomes of a pod with this spec; `None` where the change is nothing to it.
fn fate(node: &PlannedNode<'_>, after: &Node, pod: &Pod, spec: &PodSpec<'_>) -> Option<(Fate, Option<i64>)> {
    match stay(&node.new_taints, spec.tolerations()) {
        Some(seconds) if seconds <= 0 => return Some((Fate::Evicted, None)),
        Some(seconds) => return Some((Fate::EvictedLater, Some(seconds))),
        None => {}
    }
    // Who names the node comes past the scheduler, which alone looks at `NoSchedule`; the kubelet looks at labels.
    let is_kept_off = !pod.names_node && fit::untolerated(&node.new_taints, spec.tolerations()).next().is_some();
    let is_new = is_kept_off || (fit::selects(node.before, spec) && !fit::selects(after, spec));
    is_new.then_some((Fate::Stays, None))
}

/// For how many seconds a pod may stay on a node that gets these taints; `None` for as long as it lives. As the
/// taint-eviction controller counts: each `NoExecute` taint must be tolerated, by the first toleration that does, and
/// the shortest of those counts.
fn stay(taints: &[Taint], tolerations: &[Toleration<'_>]) -> Option<i64> {
    let evicting = taints.iter().filter(|taint| &*taint.effect == "NoExecute");
    let seconds = evicting.filter_map(|taint| {
        let taint = taint.as_node_taint();
        let tolerates = |own: &&Toleration<'_>| own.tolerates_on_node(&taint, ComparisonOperators::Known);
        tolerations.iter().find(tolerates).map_or(Some(0), |toleration| toleration.toleration_seconds)
    });
    seconds.min()
}

/// Whether the pod's successor may be on the node again, once the webhook has completed it; or else the successor as
/// JSON.
fn returns(view: &View<'_>, pod: &Pod, after: &Node) -> Result<(), String> {
    let Some(completed) = view.completed(pod) else { return Err(pod.json()) };
    let may = |spec: &PodSpec<'_>| {
        !fit::barred(after, &after.taints, spec).has_any(&[Obstacle::Label, Obstacle::Taint])
            && stay(&after.taints, spec.tolerations()).is_none()
    };
    match Kind::Pod.read(&completed) {
        Ok(object) if may(&object.pod.spec) => Ok(()),
        _ => Err(completed),
    }
}

/// Why the webhook does not make a GPU pod's successor fit for the changed node.
fn why_not_completed(view: &View<'_>, planned: &Planned<'_>, pod: &Pod) -> String {
    let pool = planned.pool;
    match pool.namespaces.membership(&pod.namespace, view) {
        Membership::Outside => {
            return format!("namespace {} may not use pool {}", pod.namespace, pool.name);
        }
        Membership::Unknown => {
            return format!("it is not known whether namespace {} may use pool {}", pod.namespace, pool.name);
        }
        Membership::Allowed => {}
    }
    let foreign = planned.taints.iter().find(|taint| !pool.taints.iter().any(|own| taint.is(own)));
    if let Some(taint) = foreign {
        return format!("the contract's toleration does not tolerate {taint}");
    }
    let mode = view.judge(pod).decision.map_or(view.policy.mode(), |decision| decision.mode);
    if mode == Mode::Audit {
        return "the mode is audit, in which the webhook adds nothing".to_owned();
    }
    "the webhook does not add what it lacks".to_owned()
}

/// The nodes that do not change and take pods, those without GPUs first: there ordinary pods belong.
fn other_nodes<'s>(view: &View<'s>, planned: &Planned<'_>) -> Targets<'s> {
    let changed: HashSet<_> = planned.changed().map(|node| &*node.before.name).collect();
    let takes = |node: &Node| !node.unschedulable && node.ready != Some(false) && !changed.contains(&*node.name);
    let mut nodes: Vec<_> = view
        .nodes()
        .filter(|(node, _)| takes(node))
        .map(|(node, standing)| (node.clone(), !standing.pools.is_empty()))
        .collect();
    nodes.sort_by_key(|(_, is_gpu)| *is_gpu);
    Targets::new(view, nodes.into_iter())
}

type DaemonSets = BTreeMap<(ObjectRef, DaemonSetFate), (BTreeSet<String>, BTreeSet<String>)>;

/// A DaemonSet's pod that a taint or a label drives out.
fn drop_out(
    view: &View<'_>,
    node: &PlannedNode<'_>,
    pod: &Pod,
    (fate, _): (Fate, Option<i64>),
    daemon_sets: &mut DaemonSets,
) {
    let Some(daemon_set) = view.top_controller(pod) else { return };
    // What a label does to a DaemonSet its template tells.
    if !node.labels.is_empty() {
        return;
    }
    let fate = if fate == Fate::Stays { DaemonSetFate::NotRecreated } else { DaemonSetFate::Deleted };
    let (nodes, add) = daemon_sets.entry((daemon_set.clone(), fate)).or_default();
    nodes.insert(node.before.name.to_string());
    fit::with_spec(pod, |spec| {
        for taint in fit::untolerated(&node.new_taints, spec.tolerations()) {
            add.insert(taint.exact_toleration_text());
        }
    });
}

/// The DaemonSets that labels bring onto nodes or drive off them: their controller follows the template's selectors
/// at once.
fn label_daemon_sets(view: &View<'_>, planned: &Planned<'_>, daemon_sets: &mut DaemonSets) {
    for workload in view.snapshot.workloads.iter().filter(|workload| workload.kind == Kind::DaemonSet) {
        let Ok(object) = workload.kind.read(workload.json()) else { continue };
        let spec = &object.pod.spec;
        for node in planned.changed() {
            let before = fit::selects(node.before, spec);
            let after = spec.selects_node(&node.before.name, |key| node.label(key));
            let is_let_in = coverage::is_let_in(workload, spec, &node.taints);
            let has_pod = || {
                let pods = view.pods_on(&node.before.name).iter().filter(|pod| !pod.deleting);
                pods.filter_map(|pod| pod.controller.as_ref()).any(|controller| *controller == workload.object)
            };
            let fate = match (before, after) {
                // Who has no pod there loses none.
                (true, false) if has_pod() => DaemonSetFate::Deleted,
                (false, true) if is_let_in => DaemonSetFate::Started,
                _ => continue,
            };
            let (nodes, _) = daemon_sets.entry((workload.object.clone(), fate)).or_default();
            nodes.insert(node.before.name.to_string());
        }
    }
}

/// A pod that is concerned, with its labels.
type Labelled<'a> = (&'a Affected, BTreeMap<String, String>);

/// The budgets that do not let as many pods go as must.
fn budgets(view: &View<'_>, affected: &[Affected], pods: &[&Pod]) -> Vec<BudgetInTheWay> {
    let mut by_namespace: HashMap<&str, Vec<Labelled<'_>>> = HashMap::new();
    let namespaces: HashSet<_> = view.snapshot.budgets.iter().map(|budget| &*budget.namespace).collect();
    for (affected, pod) in affected.iter().zip(pods) {
        if namespaces.contains(&*pod.namespace) {
            by_namespace.entry(&pod.namespace).or_default().push((affected, fit::labels(pod)));
        }
    }
    let in_the_way = |budget: &crate::audit::snapshot::Budget| {
        let selector = budget.selector.as_ref()?;
        let covered = by_namespace.get(&*budget.namespace)?.iter().filter(|(_, labels)| selector.matches(labels));
        let covered: Vec<_> = covered.map(|(affected, _)| affected).collect();
        let allows = budget
            .disruptions_allowed
            .is_some_and(|allowed| usize::try_from(allowed).is_ok_and(|allowed| allowed >= covered.len()));
        (!covered.is_empty() && !allows).then(|| BudgetInTheWay {
            namespace: budget.namespace.clone(),
            name: budget.name.clone(),
            pods: covered.len(),
            disruptions_allowed: budget.disruptions_allowed,
            is_passed_by: covered.iter().any(|affected| affected.fate != Fate::Stays),
        })
    };
    view.snapshot.budgets.iter().filter_map(in_the_way).collect()
}

/// Who would newly come onto nodes that get a label.
fn newcomers(view: &View<'_>, planned: &Planned<'_>) -> Newcomers {
    let mut newcomers = Newcomers::default();
    let changed: Vec<_> = planned.changed().map(|node| (node.after(), true)).collect();
    let labels: BTreeSet<_> =
        planned.changed().flat_map(|node| node.labels.iter().map(|(key, value, _)| (*key, *value))).collect();
    // Pods that want the same are asked once.
    let mut wants: HashMap<&str, bool> = HashMap::new();
    let mut waiting = Vec::new();
    for pod in view.snapshot.pods.iter().filter(|pod| !(pod.is_over() || pod.deleting || pod.is_mirror)) {
        let is_new_to = || fit::with_spec(pod, |spec| comes(planned, &labels, spec)).unwrap_or_default();
        if !*wants.entry(&pod.spec).or_insert_with(is_new_to) {
            continue;
        }
        if pod.node.is_none() && pod.phase == Phase::Pending {
            waiting.push(pod);
        } else if !is_on_changed(planned, pod) && class::is_ordinary(view, pod) {
            newcomers.ordinary.push(pod.object());
        }
    }
    let mut targets = Targets::new(view, changed.into_iter());
    for pod in waiting {
        if pod.is_gated {
            continue;
        }
        if targets.place(&pod.json(), &pod.requests).is_ok() {
            newcomers.pending.push(pod.object());
        }
    }
    newcomers
}

/// Whether a new label lets such a pod onto a node of its own accord: it names the label, the node did not admit it, and
/// no taint keeps it off.
fn comes(planned: &Planned<'_>, labels: &BTreeSet<(&str, &str)>, spec: &PodSpec<'_>) -> bool {
    let names_label = labels.iter().any(|(key, value)| spec.selects(key) == Some(value))
        || spec.required_terms().is_some_and(|terms| {
            let mut expressions = terms.iter().flat_map(NodeSelectorTerm::expressions);
            expressions.any(|expression| labels.iter().any(|(key, _)| *key == &*expression.key))
        });
    names_label
        && planned.changed().any(|node| {
            !fit::selects(node.before, spec)
                && spec.selects_node(&node.before.name, |key| node.label(key))
                && fit::untolerated(&node.taints, spec.tolerations()).next().is_none()
        })
}

fn is_on_changed(planned: &Planned<'_>, pod: &Pod) -> bool {
    let Some(node) = &pod.node else { return false };
    planned.nodes.binary_search_by(|own| (*own.before.name).cmp(node)).is_ok_and(|place| planned.nodes[place].changes())
}
