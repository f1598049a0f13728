//! A snapshot beside the contract: what every check asks for.

use std::collections::HashMap;
use std::sync::Mutex;

use super::ObjectRef;
use super::snapshot::{Node, Pod, Resource, Snapshot};
use crate::policy::{
    Controller, Decision, Facts, Kind, LabelSelector, Mode, NodeFact, Operation, Phase, Policy, Pool, PoolSet,
    Requester, Subject, Text, Workload,
};

/// A snapshot beside the contract.
#[derive(Debug)]
pub(super) struct View<'s> {
    pub(super) policy: &'s Policy,
    pub(super) snapshot: &'s Snapshot,
    /// In seconds since 1970.
    pub(super) now: i64,
    /// By the node's place in the snapshot.
    standings: Vec<Standing>,
    /// The pods that hold a place on a node, by the node's name.
    pods: HashMap<&'s str, Vec<&'s Pod>>,
    /// What was judged for a glance, until somebody asks for the whole: by the address of a pod of the snapshot, which
    /// stays where it is for as long as the view lives.
    glanced: Mutex<HashMap<usize, Kept>>,
}

/// What a node is to the contract.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The pools of which it has a resource.
    pub(super) offers: PoolSet,
    /// The pools of which it carries every label.
    pub(super) labelled: PoolSet,
    /// The pools of which it carries every taint.
    pub(super) tainted: PoolSet,
    /// The pools of which it carries some taint.
    pub(super) touched: PoolSet,
    /// The pools that it is meant for: by its labels, or else by what it offers, or else by its taints. Empty for a
    /// node that has nothing to do with GPUs.
    pub(super) pools: PoolSet,
    /// Whether it could be of any of those as well as of another, and says of none of them that it is.
    pub(super) is_undecided: bool,
}

impl Standing {
    fn of(policy: &Policy, node: &Node) -> Self {
        let all = policy.pools();
        let whose = |holds: &dyn Fn(&Pool) -> bool| -> PoolSet {
            all.iter().enumerate().filter(|(_, pool)| holds(pool)).map(|(index, _)| index).collect()
        };
        // Capacity is what is built in; what a failing device plugin takes away is the allocatable part.
        let has = |pool: &Pool| {
            let amounts = node.capacity.extended.iter().chain(&node.allocatable.extended);
            amounts.into_iter().any(|(resource, amount)| *amount > 0 && pool.resources.matches(resource))
        };
        let offers = whose(&has);
        let labelled = whose(&|pool| pool.is_met_by(|key| node.labels.get(key).map(|value| &**value)));
        let tainted = whose(&|pool| pool.taints.iter().all(|taint| node.fact.has_taint(taint)));
        let touched = whose(&|pool| pool.taints.iter().any(|taint| node.fact.has_taint(taint)));
        let choices = [labelled.and(offers), labelled, offers.and(touched), offers, touched];
        let meant = choices.into_iter().find(|pools| !pools.is_empty()).unwrap_or_default();
        // The labels of one pool may be among those of another: the closest is meant.
        let closer = |index: usize| meant.iter().any(|other| all[other].is_within(&all[index]));
        let pools = if labelled.is_empty() { meant } else { meant.iter().filter(|index| !closer(*index)).collect() };
        let standing = Self { offers, labelled, tainted, touched, pools, is_undecided: false };
        if standing.says_by_label(policy) || pools.is_empty() || pools.is_one() {
            return standing;
        }
        // What is almost a label or a taint of one pool says which is meant.
        let pools = super::nodes::closest(policy, node, standing);
        let same = |one: &Pool, other: &Pool| one.node_selector == other.node_selector && one.taints == other.taints;
        let is_undecided = pools.first().is_some_and(|first| pools.iter().any(|own| !same(&all[first], &all[own])));
        Self { pools, is_undecided, ..standing }
    }

    /// Whether it carries the labels of a pool.
    pub(super) fn says_by_label(&self, policy: &Policy) -> bool {
        self.labelled.iter().any(|index| !policy.pools()[index].node_selector.is_empty())
    }

    /// The pools in whose numbers the node counts: where it does not say which of several it is meant for, the first of
    /// them alone, so that the numbers of all pools add up.
    pub(super) fn counted(&self) -> PoolSet {
        if self.is_undecided { self.pools.first().into_iter().collect() } else { self.pools }
    }
}

/// What admission would say of a pod, were it created as it is.
#[derive(Debug)]
pub(super) struct Judged {
    /// The pools of which it requests GPUs.
    pub(super) asked: PoolSet,
    /// The decision; or why the pod cannot be judged.
    pub(super) decision: Result<Decision, String>,
}

/// The part of a judgement that tells what a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Glance {
    /// The pools of which it requests GPUs.
    pub(super) asked: PoolSet,
    /// Whether an exemption of the contract speaks for it that has no end.
    pub(super) is_exempt: bool,
}

/// A judgement that is kept. Of most pods there is nothing to say, and so there is next to nothing to keep.
#[derive(Debug)]
enum Kept {
    Quiet(PoolSet, Mode),
    Said(Box<Judged>),
}

impl From<Judged> for Kept {
    fn from(judged: Judged) -> Self {
        match &judged.decision {
            Ok(decision) if *decision == Decision::quiet(decision.mode) => Self::Quiet(judged.asked, decision.mode),
            _ => Self::Said(Box::new(judged)),
        }
    }
}

impl From<Kept> for Judged {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Quiet(asked, mode) => Self { asked, decision: Ok(Decision::quiet(mode)) },
            Kept::Said(judged) => *judged,
        }
    }
}

impl<'s> View<'s> {
    pub(super) fn new(policy: &'s Policy, snapshot: &'s Snapshot, now: i64) -> Self {
        let mut pods: HashMap<&str, Vec<&Pod>> = HashMap::new();
        for pod in snapshot.pods.iter().filter(|pod| !pod.is_over()) {
            if let Some(node) = &pod.node {
                pods.entry(node).or_default().push(pod);
            }
        }
        let standings = snapshot.nodes.iter().map(|node| Standing::of(policy, node)).collect();
        Self { policy, snapshot, now, standings, pods, glanced: Mutex::default() }
    }

    /// Every node with what it is to the contract.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&'s Node, Standing)> {
        self.snapshot.nodes.iter().zip(self.standings.iter().copied())
    }

    /// The nodes that have to do with GPUs.
    pub(super) fn gpu_nodes(&self) -> impl Iterator<Item = (&'s Node, Standing)> {
        self.nodes().filter(|(_, standing)| !standing.pools.is_empty())
    }

    /// What the node of a name is to the contract; nothing where there is none.
    pub(super) fn standing(&self, node: &str) -> Standing {
        let place = self.snapshot.nodes.binary_search_by(|own| (*own.name).cmp(node));
        place.ok().and_then(|place| self.standings.get(place)).copied().unwrap_or_default()
    }

    /// The pool to which a resource of a node belongs: the first that has it, of those that the node is meant for, so
    /// that nothing is counted twice.
    pub(super) fn pool_of(&self, standing: Standing, resource: &str) -> Option<usize> {
        let of = |pools: PoolSet| pools.iter().find(|index| self.policy.pools()[*index].resources.matches(resource));
        // What has no label may be tainted for one pool and offer what another has.
        of(standing.pools).or_else(|| of(standing.offers).filter(|_| standing.labelled.is_empty()))
    }

    /// The pods that hold a place on a node.
    pub(super) fn pods_on(&self, node: &str) -> &[&'s Pod] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// The pools of a set, in the contract's order.
    pub(super) fn pools(&self, pools: PoolSet) -> impl Iterator<Item = &'s Pool> {
        let policy = self.policy;
        pools.iter().map(move |index| &policy.pools()[index])
    }

    /// Who makes the pod in the end.
    pub(super) fn top_controller(&self, pod: &'s Pod) -> Option<&'s ObjectRef> {
        self.snapshot.top_controller(pod.controller.as_ref())
    }

    /// Whether nobody gave a ReplicaSet that pods name as their owner. A Deployment owns most of them, and would undo
    /// what is changed of one.
    pub(super) fn hides_its_owner(&self, controller: &ObjectRef) -> bool {
        let is_given = || self.snapshot.workloads.binary_search_by(|workload| workload.object.cmp(controller)).is_ok();
        Kind::of(controller.group(), &controller.kind) == Some(Kind::ReplicaSet)
            && !self.snapshot.controllers.contains_key(controller)
            && !is_given()
    }

    /// What admission would say of the pod, were it created as it is, by whoever makes such pods.
    pub(super) fn judge(&self, pod: &Pod) -> Judged {
        let kept = self.glanced.lock().ok().and_then(|mut glanced| glanced.remove(&address(pod)));
        kept.map_or_else(|| self.judge_anew(pod), Judged::from)
    }

    /// The same in short, for a pod of the snapshot. Who asks for the whole later is spared the judging.
    pub(super) fn glance(&self, pod: &'s Pod) -> Glance {
        let judged = self.judge(pod);
        // One that ends is a respite for what has to move: it makes nobody part of the platform.
        let ends = |name: &str| {
            let mut own = self.policy.exemptions().iter().filter(|exemption| exemption.name == name);
            own.next().is_some_and(|exemption| exemption.expires.is_some())
        };
        let is_exempt = judged
            .decision
            .as_ref()
            .is_ok_and(|decision| decision.exempted.iter().any(|exempted| !ends(&exempted.exemption)));
        let glance = Glance { asked: judged.asked, is_exempt };
        if let Ok(mut glanced) = self.glanced.lock() {
            glanced.insert(address(pod), judged.into());
        }
        glance
    }

    fn judge_anew(&self, pod: &Pod) -> Judged {
        let judged = self.ask(pod, Phase::Validating, |subject| {
            (self.policy.requested_pools(subject, self), self.policy.decide(subject, self))
        });
        match judged {
            Ok((asked, decision)) => Judged { asked, decision: Ok(decision) },
            Err(error) => Judged { asked: PoolSet::default(), decision: Err(error) },
        }
    }

    /// What the mutating webhook would do with the pod, were it created as it is. `None` where it cannot be judged.
    pub(super) fn complete(&self, pod: &Pod) -> Option<Decision> {
        self.ask(pod, Phase::Mutating, |subject| self.policy.decide(subject, self)).ok()
    }

    /// Asks about the request that would create the pod as it is; or says why there can be none.
    fn ask<T>(&self, pod: &Pod, phase: Phase, ask: impl FnOnce(&Subject<'_>) -> T) -> Result<T, String> {
        let json = pod.json();
        let object = Kind::Pod.read(&json).map_err(|_| Kind::Pod.fault(&json))?;
        let username = self.maker(pod);
        let groups = groups_of(&username);
        let groups: Vec<Text<'_>> = groups.iter().map(|group| group.as_str().into()).collect();
        let requester = Requester { username: &username, groups: &groups };
        Ok(ask(&Subject { phase, ..subject(&pod.namespace, requester, &object) }))
    }

    /// The pod's JSON as the webhook would complete it, were it created anew; `None` where it would not touch it, be it
    /// for the mode, the namespace, or because nothing is missing.
    pub(super) fn completed(&self, pod: &Pod) -> Option<String> {
        let injection = self.complete(pod)?.injection.filter(|injection| injection.enforced)?;
        let mut whole: serde_json::Value = serde_json::from_str(&pod.json()).ok()?;
        json_patch::patch(&mut whole, &injection.patch).ok()?;
        Some(whole.to_string())
    }

    /// What admission would say of an object that makes pods, were it created as it is. Not for custom resources.
    pub(super) fn judge_template(&self, namespace: &str, object: &Workload<'_>) -> Judged {
        let subject = subject(namespace, Requester::default(), object);
        Judged { asked: self.policy.requested_pools(&subject, self), decision: Ok(self.policy.decide(&subject, self)) }
    }

    /// The user name under which such a pod is made, as far as its owner tells; empty where it does not. A pod that is
    /// stored is there with the consent of the controller that its owner names, and of the kubelet that it mirrors: they
    /// delete what is not theirs. What a manifest says of its owner is a claim of who wrote it.
    pub(super) fn maker(&self, pod: &Pod) -> String {
        if !pod.is_stored {
            return String::new();
        }
        if let (true, Some(node)) = (pod.is_mirror, &pod.node) {
            return format!("system:node:{node}");
        }
        let made_by = |controller: &Controller| {
            let (kind, owner) = (controller.kind(), pod.controller.as_ref());
            owner.is_some_and(|owner| &*owner.kind == kind.name() && owner.group() == kind.group())
        };
        let controller = Controller::ALL.into_iter().find(made_by);
        controller.and_then(|controller| self.policy.identities().of(controller).first()).cloned().unwrap_or_default()
    }
}

fn address(pod: &Pod) -> usize {
    std::ptr::from_ref(pod).addr()
}

/// The groups that the API server puts a user into, as far as the name tells.
fn groups_of(username: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    let account = username.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    if let Some((namespace, _)) = account {
        groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
    }
    if username.starts_with("system:node:") {
        groups.push("system:nodes".to_owned());
    }
    groups
}

pub(super) fn subject<'a>(namespace: &'a str, requester: Requester<'a>, object: &'a Workload<'a>) -> Subject<'a> {
    Subject { phase: Phase::Validating, operation: Operation::Create, namespace, requester, object }
}

impl Facts for View<'_> {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        match self.snapshot.namespaces.get(namespace) {
            Some(known) => Some(selector.matches(&known.labels)),
            None if self.snapshot.knows_all(Resource::Namespaces) => Some(false),
            None => None,
        }
    }

    fn node(&self, name: &str) -> NodeFact {
        match self.snapshot.node(name) {
            Some(node) => NodeFact::Known(std::sync::Arc::clone(&node.fact)),
            None if self.snapshot.knows_all(Resource::Nodes) => NodeFact::Absent,
            None => NodeFact::Unknown,
        }
    }

    fn now(&self) -> i64 {
        self.now
    }
}
