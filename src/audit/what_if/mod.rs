//! What a taint or a label would do to nodes and to what runs there, before anyone gives it to them.
//!
//! | module | owns |
//! | --- | --- |
//! | `change` | what is asked, and which nodes that means |
//! | `effects` | what becomes of pods, DaemonSets and disruption budgets |
//! | `room` | where the pods that must move find room |
//! | `commands` | the commands of a pilot, a backup and a rollback; nothing runs them |

mod change;
mod commands;
mod effects;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

pub use change::{Change, What, WhatIfError, Which};

use super::ObjectRef;
use super::outcome::gaps;
use super::snapshot::{Resource, Snapshot};
use super::view::View;
use super::words::count_text;
use crate::policy::Policy;

/// What a change would do.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// What is changed.
    pub change: What,
    /// The pool whose taint or label it is.
    pub pool: String,
    /// The taints or labels, as kubectl writes them.
    pub adds: Vec<String>,
    /// What would come of it, in a sentence or two.
    pub verdict: String,
    /// The numbers.
    pub summary: Totals,
    /// The nodes that were asked about, by name.
    pub nodes: Vec<NodeChange>,
    /// The pods that it concerns, other than DaemonSets', by node, namespace and name.
    pub pods: Vec<Affected>,
    /// The DaemonSets that it concerns.
    pub daemon_sets: Vec<DaemonSetChange>,
    /// The disruption budgets that do not allow as many disruptions as pods must move.
    pub budgets: Vec<BudgetInTheWay>,
    /// Who would newly come onto the nodes.
    pub newcomers: Newcomers,
    /// What the answer does not rest on, because nobody gave it or it could not be read.
    pub gaps: Vec<String>,
    /// The labels and taints of the nodes that change, as they are.
    pub backup: Vec<NodeBackup>,
    /// The command that writes a fresh backup.
    pub backup_commands: Vec<String>,
    /// The node on which to try it first: of those that take pods the one with the fewest ordinary pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pilot_node: Option<String>,
    /// The commands that try it there.
    pub pilot: Vec<Step>,
    /// The commands that take it back.
    pub rollback: Vec<String>,
}

/// The numbers of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// How many nodes change.
    pub nodes_changed: usize,
    /// How many have it already.
    pub nodes_unchanged: usize,
    /// How many pods would be evicted, at once or after a while; DaemonSets' are counted apart.
    pub evicted: usize,
    /// How many stay, and could not come back to their node after a restart: they must go elsewhere.
    pub cannot_return: usize,
    /// How many have no controller, so that nothing makes them anew.
    pub without_controller: usize,
    /// How many that must move find room on other nodes.
    pub with_room: usize,
    /// How many of those would come to be on a GPU node that lets them in.
    pub onto_gpu_nodes: usize,
    /// How many that must move find no room.
    pub without_room: usize,
    /// How many DaemonSets would lose pods.
    pub daemon_sets_dropped: usize,
}

/// A node that was asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeChange {
    /// Its name.
    pub name: String,
    /// What it would get, as kubectl writes it; empty where it has all of it already.
    pub adds: Vec<String>,
    /// What that would replace.
    pub replaces: Vec<String>,
    /// What is like the pool's taint and is not it, such as one with another effect: it would stay beside the new one,
    /// and the commands remove it.
    pub removes: Vec<String>,
    /// Whether it offers a GPU of the pool.
    pub offers_gpus: bool,
    /// How many ordinary pods are on it.
    pub ordinary_pods: usize,
}

/// What becomes of a pod that is on a changed node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is evicted at once.
    Evicted,
    /// It is evicted after a while, for which it tolerates the taint.
    EvictedLater,
    /// It stays as long as it lives.
    Stays,
}

/// What comes after a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "next", rename_all = "kebab-case")]
pub enum Then {
    /// Its successor finds room.
    Elsewhere {
        /// On which node, as a simulation by requests places it.
        to: String,
    },
    /// Its successor finds no room.
    Nowhere {
        /// Why.
        why: String,
    },
    /// The webhook gives its successor the toleration.
    Completed,
    /// Nothing: it has no controller.
    Nothing,
}

/// A pod that a change concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Affected {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The node that it is on.
    pub node: Arc<str>,
    /// Who makes it in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ObjectRef>,
    /// Whether it requests a GPU.
    pub requests_gpu: bool,
    /// What becomes of it.
    pub fate: Fate,
    /// After how many seconds it is evicted, where not at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<i64>,
    /// What comes after it.
    #[serde(flatten)]
    pub then: Then,
}

/// What becomes of a DaemonSet's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DaemonSetFate {
    /// They are deleted.
    Deleted,
    /// They stay as long as they live, and are not made anew.
    NotRecreated,
    /// They are made where there were none.
    Started,
}

/// What a change does to a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetChange {
    /// The DaemonSet.
    pub daemon_set: ObjectRef,
    /// What becomes of its pods.
    pub fate: DaemonSetFate,
    /// On which nodes, by name.
    pub nodes: Vec<String>,
    /// The tolerations that its template would need, each as a person writes it.
    pub add: Vec<String>,
}

/// A disruption budget that allows too few disruptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetInTheWay {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// How many of the pods that must move it is about.
    pub pods: usize,
    /// How many it lets go now; absent where its status does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<i64>,
    /// Whether the eviction passes it by: that for a taint deletes pods and asks no budget.
    pub is_passed_by: bool,
}

/// Who would newly come onto the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Newcomers {
    /// The pods that wait now and would find a node.
    pub pending: Vec<ObjectRef>,
    /// The pods that request no GPU, are elsewhere or wait, select the label and are kept off by no taint: they may come
    /// after a restart.
    pub ordinary: Vec<ObjectRef>,
}

/// A command and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it is for.
    pub note: String,
    /// The command.
    pub command: String,
}

/// The labels and taints of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeBackup {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Its taints, as kubectl writes them.
    pub taints: Vec<String>,
}

/// Says what a change would do: `now` in seconds since 1970.
///
/// # Errors
/// Where the change names a pool or nodes that there are not.
pub fn what_if(policy: &Policy, snapshot: &Snapshot, change: &Change, now: i64) -> Result<WhatIf, WhatIfError> {
    let view = View::new(policy, snapshot, now);
    let planned = change::Planned::of(&view, change)?;
    let effects = effects::Effects::of(&view, &planned);
    let nodes: Vec<_> = planned.nodes.iter().map(|node| node.outcome(&view, planned.index)).collect();
    let summary = totals(&nodes, &effects);
    let changed: Vec<_> = planned.changed().collect();
    let pilot = commands::pilot_node(&planned, &nodes);
    let mut gaps = gaps(snapshot);
    if snapshot.is_dump && !snapshot.knows_all(Resource::PodDisruptionBudgets) {
        gaps.push("no PodDisruptionBudget is among the files: none is taken to be there".to_owned());
    }
    Ok(WhatIf {
        change: change.what,
        pool: planned.pool.name.clone(),
        verdict: verdict(&view, &planned, &nodes, &summary, &effects),
        summary,
        adds: planned.adds(),
        pilot_node: pilot.map(|node| node.before.name.to_string()),
        pilot: pilot.map(commands::pilot).unwrap_or_default(),
        backup_commands: commands::backup(&changed),
        rollback: commands::rollback(&changed),
        backup: changed.iter().map(|node| node.backup()).collect(),
        nodes,
        pods: effects.pods,
        daemon_sets: effects.daemon_sets,
        budgets: effects.budgets,
        newcomers: effects.newcomers,
        gaps,
    })
}

fn totals(nodes: &[NodeChange], effects: &effects::Effects) -> Totals {
    let changed = nodes.iter().filter(|node| !node.adds.is_empty()).count();
    let pods = |holds: &dyn Fn(&Affected) -> bool| effects.pods.iter().filter(|pod| holds(pod)).count();
    let is_bare = |pod: &Affected| pod.then == Then::Nothing;
    Totals {
        nodes_changed: changed,
        nodes_unchanged: nodes.len() - changed,
        evicted: pods(&|pod| pod.fate != Fate::Stays),
        cannot_return: pods(&|pod| pod.fate == Fate::Stays && !is_bare(pod) && pod.then != Then::Completed),
        without_controller: pods(&is_bare),
        with_room: pods(&|pod| matches!(pod.then, Then::Elsewhere { .. })),
        onto_gpu_nodes: effects.onto_gpu_nodes,
        without_room: pods(&|pod| matches!(pod.then, Then::Nowhere { .. })),
        daemon_sets_dropped: effects.daemon_sets.iter().filter(|set| set.fate != DaemonSetFate::Started).count(),
    }
}

/// What would come of it, worst first.
fn verdict(
    view: &View<'_>,
    planned: &change::Planned<'_>,
    nodes: &[NodeChange],
    totals: &Totals,
    effects: &effects::Effects,
) -> String {
    let adds = planned.adds().join(", ");
    if totals.nodes_changed == 0 {
        return format!(
            "Nothing to do: {} asked about {} {adds} already.",
            count_text(totals.nodes_unchanged, "node"),
            { if totals.nodes_unchanged == 1 { "has" } else { "have" } }
        );
    }
    let mut sentences = Vec::new();
    let pods = |holds: &dyn Fn(&Affected) -> bool| effects.pods.iter().filter(|pod| holds(pod)).count();
    let lost = pods(&|pod| pod.fate != Fate::Stays && pod.then == Then::Nothing);
    if !view.snapshot.knows_all(Resource::Pods) {
        sentences.push(
            "The pods are not all known: who would be evicted, who could not come back and what has room elsewhere cannot \
             be told."
                .to_owned(),
        );
    }
    match (totals.evicted, lost) {
        // Of pods that nobody named nothing can be told.
        (0, _) if !view.snapshot.knows_all(Resource::Pods) => {}
        (0, _) => sentences.push("No pod would be evicted.".to_owned()),
        (evicted, 0) => sentences.push(format!("{} would be evicted.", count_text(evicted, "pod"))),
        (evicted, lost) => {
            sentences.push(format!("{} would be evicted, {lost} of them for good.", count_text(evicted, "pod")));
        }
    }
    let gpu = pods(&|pod| pod.requests_gpu && matches!(pod.then, Then::Nowhere { .. }));
    if gpu > 0 {
        sentences.push(format!("{} would find no node any more.", count_text(gpu, "GPU pod")));
    }
    if totals.cannot_return > 0 {
        let with_room = pods(&|pod| pod.fate == Fate::Stays && matches!(pod.then, Then::Elsewhere { .. }));
        let room = match (with_room, totals.cannot_return - with_room) {
            (_, 0) => "there is room".to_owned(),
            (0, _) => "there is no room".to_owned(),
            (with_room, without) => format!("there is room for {with_room}, and none for {without}"),
        };
        let stay = count_text(totals.cannot_return, "pod");
        sentences.push(format!("{stay} would stay, and must go elsewhere after a restart: {room}."));
    }
    match pods(&|pod| pod.fate != Fate::Stays && !pod.requests_gpu && matches!(pod.then, Then::Nowhere { .. })) {
        0 => {}
        without => sentences.push(format!("{} would find no room elsewhere.", without_gpu(without))),
    }
    if totals.daemon_sets_dropped > 0 {
        sentences.push(format!("{} would drop out.", count_text(totals.daemon_sets_dropped, "DaemonSet")));
    }
    if !effects.newcomers.pending.is_empty() {
        let pods = count_text(effects.newcomers.pending.len(), "pending pod");
        sentences.push(format!("{pods} would find a node."));
    }
    match nodes.iter().filter(|node| !node.removes.is_empty()).count() {
        0 => {}
        number => {
            let (have, it) = if number == 1 { ("has", "it") } else { ("have", "them") };
            sentences.push(format!(
                "{} {have} a taint that is almost the contract's: it would stay beside the new one, and the exact toleration \
                 does not pass it, so that the commands remove {it}.",
                count_text(number, "node")
            ));
        }
    }
    sentences.join(" ")
}

fn without_gpu(number: usize) -> String {
    format!("{} without a GPU", count_text(number, "pod"))
}
