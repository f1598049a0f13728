//! Why a pod finds no node, as far as GPUs have to do with it.
//!
//! Pods that want the same are explained together, so that a thousand replicas cost one walk over the GPU nodes.

mod words;

use std::collections::HashMap;
use std::sync::Arc;

use super::fit::{self, Obstacle, Obstacles, Room};
use super::snapshot::{Amounts, Node, Phase, Pod, Taint};
use super::view::{Judged, Standing, View};
use super::words::shell_word;
use super::{Audit, Check, Class, Finding, NodeAccount, ObjectRef, Occupant, Pending, Resource, Severity};
use crate::policy::{PodSpec, PoolSet, visible};

/// How long a scheduler has for a new pod before its silence is worth a word, in seconds.
const PATIENCE: i64 = 60;

/// The pod's own name in what is said of all that are explained alike. No name has it.
const NAME: &str = "ITS-OWN-NAME";

/// Explains each pod that waits for a node, and reports it.
pub(super) fn judge(view: &View<'_>, audit: &mut Audit) {
    let snapshot = view.snapshot;
    // What no node has can only be said where all are known; that they are not is a gap of its own.
    if !snapshot.knows_all(Resource::Nodes) {
        return;
    }
    let waits = |pod: &&Pod| pod.phase == Phase::Pending && pod.node.is_none() && pod.is_stored && !pod.deleting;
    // Who takes what of which node is known already.
    let accounts = std::mem::take(&mut audit.nodes);
    let mut places = None;
    let mut known: HashMap<Group<'_>, Option<Explained>> = HashMap::new();
    for pod in snapshot.pods.iter().filter(waits) {
        let Judged { decision, asked } = view.judge(pod);
        // What a shell would take for more than a name is said of the pod alone.
        let is_plain = shell_word(&pod.name) == *pod.name && !pod.name.starts_with('-');
        let name = if is_plain { NAME } else { &pod.name };
        let controller = view.top_controller(pod);
        let group = Group {
            name,
            namespace: &pod.namespace,
            spec: &pod.spec,
            requests: &pod.requests,
            asked,
            is_controlled: controller.is_some(),
            is_exempt: decision.is_ok_and(|decision| !decision.exempted.is_empty()),
            is_gated: pod.is_gated,
        };
        let places = places.get_or_insert_with(|| Place::all(view, &accounts));
        let explained = known.entry(group).or_insert_with(|| {
            fit::with_spec(pod, |spec| Waiting { view, pod, name, spec, asked, places }.explain()).flatten()
        });
        let Some(explained) = explained else { continue };
        let said = snapshot.unscheduled.get(&(Arc::clone(&pod.namespace), Arc::clone(&pod.name)));
        let scheduler = said.map(|event| &event.message).or(pod.unscheduled.as_ref()).filter(|said| !said.is_empty());
        let is_unexplained = explained.causes == ["unknown"];
        let is_new = pod.created.is_some_and(|created| view.now.saturating_sub(created) < PATIENCE);
        if is_unexplained && scheduler.is_none() && is_new {
            continue;
        }
        report(audit, pod, controller, explained, scheduler.map(|said| visible(said).into_owned()));
    }
    drop(known);
    audit.nodes = accounts;
}

fn report(
    audit: &mut Audit,
    pod: &Pod,
    controller: Option<&ObjectRef>,
    explained: &Explained,
    scheduler: Option<String>,
) {
    let Explained { pool, causes, message, action } = explained;
    let action = action.replace(NAME, &pod.name);
    let said = match (&scheduler, causes.contains(&"unknown")) {
        (Some(said), true) => format!("; the scheduler says: {}", said.trim_end_matches('.')),
        (None, true) => "; no scheduler has said why it waits".to_owned(),
        (_, false) => String::new(),
    };
    let message = format!("{message}{said}.");
    let severity = if causes.contains(&"blocked") { Severity::High } else { Severity::Medium };
    let finding = Finding::new(Check::PodPending, severity, pod.object(), message.clone(), action.clone());
    let finding = finding.made_by(controller);
    audit.findings.push(match pool {
        Some(pool) => finding.in_pool(pool),
        None => finding,
    });
    audit.pending.push(Pending {
        object: pod.object(),
        controller: controller.cloned(),
        pool: pool.clone(),
        causes: causes.clone(),
        scheduler,
        message,
        action,
    });
}

/// What pods have in common that are explained alike.
#[derive(PartialEq, Eq, Hash)]
struct Group<'s> {
    name: &'s str,
    namespace: &'s str,
    spec: &'s str,
    requests: &'s Amounts,
    asked: PoolSet,
    is_controlled: bool,
    is_exempt: bool,
    is_gated: bool,
}

/// Why a pod waits.
struct Explained {
    pool: Option<String>,
    causes: Vec<&'static str>,
    /// Without the full stop.
    message: String,
    action: String,
}

/// A GPU node as a place for a pod.
struct Place<'s> {
    node: &'s Node,
    standing: Standing,
    room: Room,
    /// Who takes what of it.
    account: Option<&'s NodeAccount>,
}

impl<'s> Place<'s> {
    fn all(view: &View<'s>, accounts: &'s [NodeAccount]) -> Vec<Self> {
        let place = |(node, standing): (&'s Node, Standing)| {
            let account = accounts.binary_search_by(|account| (*account.name).cmp(&node.name)).ok();
            let account = account.and_then(|place| accounts.get(place));
            Self { node, standing, room: Room::of(node, view.pods_on(&node.name)), account }
        };
        view.gpu_nodes().map(place).collect()
    }

    /// The ordinary pods on it.
    fn ordinary(&self) -> impl Iterator<Item = &'s Occupant> {
        let occupants = self.account.map(|account| &*account.occupants).unwrap_or_default();
        occupants.iter().filter(|occupant| occupant.class == Class::Ordinary)
    }

    /// Whether it would hold the pod if no ordinary pod were there.
    fn would_hold(&self, view: &View<'_>, requests: &Amounts) -> bool {
        let mut room = self.room.clone();
        self.ordinary().for_each(|occupant| room.give_back(&occupant.requests));
        room.lacks(view.policy, requests).is_empty()
    }
}

/// How near a place is to taking a pod, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    /// Nothing is in the way.
    Fits,
    /// Only what ordinary pods took is.
    Blocked,
    /// GPUs are free, and something beside them is not.
    Room,
    /// Too few GPUs are free.
    Gpus,
    /// It takes no pods now.
    Away,
    /// The pod's spec does not let it there.
    Barred,
}

/// A pod that waits, beside the GPU nodes.
struct Waiting<'a, 's> {
    view: &'a View<'s>,
    pod: &'s Pod,
    /// Its name in commands, or [`NAME`].
    name: &'a str,
    spec: &'a PodSpec<'a>,
    asked: PoolSet,
    places: &'a [Place<'s>],
}

/// A place with what is in the way.
struct Tried<'a, 's> {
    place: &'a Place<'s>,
    obstacles: Obstacles,
    nearness: Nearness,
    /// The taints that the pod does not tolerate, but for those by which a node takes no pods at all.
    untolerated: Vec<&'s Taint>,
    lacking: Obstacles,
}

impl Tried<'_, '_> {
    /// How much there is to do until it takes the pod, the least first.
    fn distance(&self) -> impl Ord + use<> {
        let has = |obstacle: Obstacle| usize::from(self.obstacles.has(obstacle));
        let is_barred_by = has(Obstacle::Label) + has(Obstacle::Taint);
        let is_away = self.obstacles.has_any(&[Obstacle::Cordoned, Obstacle::NotReady]);
        (self.nearness, is_barred_by, is_away, self.untolerated.len(), self.lacking.iter().count())
    }
}

impl<'a, 's> Waiting<'a, 's> {
    /// Why the pod waits; `None` where GPUs have nothing to do with it.
    fn explain(&self) -> Option<Explained> {
        if self.asked.is_empty() {
            return self.explain_without_gpu();
        }
        if self.pod.is_gated {
            return Some(self.gated());
        }
        let places: Vec<_> =
            self.places.iter().filter(|place| !place.standing.pools.and(self.asked).is_empty()).collect();
        if places.is_empty() {
            return Some(self.no_nodes());
        }
        Some(self.tell(&places))
    }

    /// Of a pod that requests no GPU: whether it waits for GPU nodes all the same.
    fn explain_without_gpu(&self) -> Option<Explained> {
        if let Some(explained) = self.unmet_label() {
            return Some(explained);
        }
        let selected: Vec<_> = self.places.iter().filter(|place| fit::selects(place.node, self.spec)).collect();
        if selected.is_empty() {
            return None;
        }
        let wants = |key: &str| self.spec.selects(key);
        let pools = self.view.policy.pools();
        let selects_pool = pools.iter().any(|pool| !pool.node_selector.is_empty() && pool.is_met_by(wants));
        if !selects_pool && (self.has_other_node() || !self.could_be_on(&selected)) {
            return None;
        }
        if self.pod.is_gated {
            return Some(self.gated());
        }
        let is_fenced =
            |place: &&Place<'_>| fit::barred(place.node, &place.node.taints, self.spec).has(Obstacle::Taint);
        if selected.iter().all(is_fenced) {
            return Some(self.fenced(&selected, selects_pool));
        }
        Some(self.tell(&selected))
    }

    /// Whether a node that has nothing to do with GPUs could ever hold it.
    fn has_other_node(&self) -> bool {
        self.view.nodes().filter(|(_, standing)| standing.pools.is_empty()).any(|(node, _)| {
            !fit::barred(node, &node.taints, self.spec).has_any(&[Obstacle::Label, Obstacle::Taint])
                && node.allocatable.holds(&self.pod.requests)
        })
    }

    fn could_be_on(&self, places: &[&Place<'_>]) -> bool {
        places.iter().any(|place| place.node.allocatable.holds(&self.pod.requests))
    }

    fn attempt(&self, place: &'a Place<'s>) -> Tried<'a, 's> {
        let requests = &self.pod.requests;
        let barred = fit::barred(place.node, &place.node.taints, self.spec);
        let lacking = place.room.lacks(self.view.policy, requests);
        let (obstacles, nearness) = if barred.has_any(&[Obstacle::Label, Obstacle::Taint]) {
            (barred, Nearness::Barred)
        } else if !barred.is_empty() {
            (barred, Nearness::Away)
        } else if lacking.is_empty() {
            (lacking, Nearness::Fits)
        } else if lacking.has(Obstacle::Gpus) {
            (lacking, Nearness::Gpus)
        } else if place.would_hold(self.view, requests) {
            (lacking, Nearness::Blocked)
        } else {
            (lacking, Nearness::Room)
        };
        let untolerated = match nearness {
            Nearness::Barred => fit::untolerated(&place.node.taints, self.spec.tolerations())
                .filter(|taint| fit::is_of_spec(taint))
                .collect(),
            _ => Vec::new(),
        };
        Tried { place, obstacles, nearness, untolerated, lacking }
    }

    /// What each of the places has against the pod, nearest first.
    fn tell(&self, places: &[&'a Place<'s>]) -> Explained {
        let mut tried: Vec<_> = places.iter().map(|place| self.attempt(place)).collect();
        tried.sort_by_key(Tried::distance);
        let mut told = words::Told::default();
        for alike in tried.chunk_by(|a, b| a.nearness == b.nearness) {
            self.tell_alike(alike, &mut told);
        }
        self.explained(told)
    }
}
