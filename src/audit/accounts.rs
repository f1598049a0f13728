//! What of the GPU nodes there is, what is requested, free, and blocked: by node, and by pool.
//!
//! A free GPU is blocked where no pod could use it because pods that request no GPU took what a GPU pod needs beside
//! it. What one needs is the median of the pool's own GPU pods, each resource on its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::finding::{Check, Finding, Severity};
use super::outcome::{ByClass, Class, GpuResource, Gpus, NodeAccount, Occupant, PoolAccount};
use super::snapshot::{Amounts, Node, ObjectRef, Pod};
use super::view::{Standing, View};
use super::words::{amounts_text, bytes_text, count_text, cpu_text, list_text, sentence};
use crate::policy::{Kind, PoolSet, visible};

/// How many of the pods that take most are named.
const NAMED: usize = 3;

/// What a pod takes of a node beside GPUs, by the names that Kubernetes gives them, and how a person calls them.
const BESIDE: [(&str, &str); 4] =
    [("cpu", "CPU"), ("memory", "memory"), ("ephemeral-storage", "ephemeral storage"), ("pods", "pod places")];

/// The amounts of [`BESIDE`].
fn beside(amounts: &Amounts) -> [i64; 4] {
    [amounts.cpu_milli, amounts.memory_bytes, amounts.ephemeral_storage_bytes, amounts.pods]
}

/// An amount of one of [`BESIDE`] for people.
fn beside_text(index: usize, amount: i64) -> String {
    match BESIDE[index] {
        ("cpu", _) => cpu_text(amount),
        ("pods", _) => count_text(amount, "pod place"),
        (_, name) => format!("{} {name}", bytes_text(amount)),
    }
}

/// What of a node's free GPUs is blocked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Blocked {
    /// The pools whose GPUs they are.
    pools: PoolSet,
    /// How many there would be without the ordinary pods.
    anyway: i64,
}

/// The accounts of all pools while the nodes are gone through.
#[derive(Debug)]
pub(super) struct Accounts<'v, 's> {
    view: &'v View<'s>,
    needs: Vec<Option<Need>>,
    pools: Vec<PoolAccount>,
}

/// What the median GPU pod of a pool needs.
#[derive(Debug, Clone)]
struct Need {
    /// Beside one GPU.
    amounts: Amounts,
    /// How many GPUs it has, all of them at one place.
    gpus: i64,
    /// How many pods say so.
    pods: usize,
}

/// For people, after the pool: `a pod with 1 GPU needs 4 CPU, 16Gi memory for it (the median of 3 pods)`.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { amounts, gpus, pods } = self;
        let for_them = if *gpus == 1 { "it" } else { "each" };
        let (gpus, pods) = (count_text(*gpus, "GPU"), count_text(*pods, "pod"));
        match &*amounts_text(amounts) {
            "" => write!(f, "a pod with {gpus} needs a place (the median of {pods})"),
            needs => write!(f, "a pod with {gpus} needs {needs} for {for_them} (the median of {pods})"),
        }
    }
}

/// What is there for the GPUs of a pool on a node, by resource of [`BESIDE`]: for how many of them it is enough.
#[derive(Debug, Clone, Copy)]
struct Usable([i64; 4]);

impl Usable {
    /// Of free GPUs, where `left` is left of the node. What the node does not tell of itself is taken to be enough.
    fn of(free: i64, need: Option<&Need>, allocatable: &Amounts, left: &Amounts) -> Self {
        let (left, allocatable) = (beside(left), beside(allocatable));
        let enough_for = |index: usize| match (need, BESIDE[index].0) {
            _ if allocatable[index] == 0 => free,
            (Some(need), "pods") => left[index].saturating_mul(need.gpus),
            (Some(need), _) => left[index].checked_div(beside(&need.amounts)[index]).unwrap_or(free),
            // Nobody shows what is needed, but something is. Of disks most pods ask for nothing.
            (None, name) if left[index] == 0 && name != "ephemeral-storage" => 0,
            (None, _) => free,
        };
        Self(std::array::from_fn(|index| enough_for(index).min(free)))
    }

    fn least(self) -> i64 {
        self.0.into_iter().min().unwrap_or_default()
    }
}

impl<'v, 's> Accounts<'v, 's> {
    /// The pools, and what their GPU pods need.
    pub(super) fn new(view: &'v View<'s>) -> Self {
        let needs = needs(view);
        let account = |(index, need): (usize, &Option<Need>)| PoolAccount {
            name: view.policy.pools()[index].name.clone(),
            needs: need.as_ref().map(|need| need.amounts.clone()),
            gpus_per_pod: need.as_ref().map(|need| need.gpus),
            ..PoolAccount::default()
        };
        let pools = needs.iter().enumerate().map(account).collect();
        Self { view, needs, pools }
    }

    /// Counts the GPUs of a node, whose pods are in its account already.
    pub(super) fn enter(&mut self, node: &Node, standing: Standing, account: &mut NodeAccount) -> Blocked {
        let pools = self.view.policy.pools();
        let requested = total(&account.requested);
        let amounts = [&node.capacity, &node.allocatable, &requested].into_iter().flat_map(|from| &from.extended);
        let names: BTreeSet<_> = amounts
            .filter(|(name, amount)| *amount > 0 && pools.iter().any(|pool| pool.resources.matches(name)))
            .map(|(name, _)| name)
            .collect();
        let mut gpus: BTreeMap<Option<usize>, Gpus> = BTreeMap::new();
        for name in names {
            let (allocatable, requested) = (node.allocatable.of(name), requested.of(name));
            let left = allocatable.saturating_sub(requested).max(0);
            let takes_pods = super::nodes::takes_gpu_pods(self.view, node, standing, name);
            let (free, out_of_use) = if takes_pods { (left, 0) } else { (0, left) };
            account.resources.push(GpuResource {
                name: name.to_string(),
                capacity: node.capacity.of(name),
                allocatable,
                requested,
            });
            let gpus = gpus.entry(self.view.pool_of(standing, name)).or_default();
            add(gpus, Gpus { allocatable, requested, free, blocked: 0, out_of_use });
        }
        let ByClass { gpu_workload, daemon_set, platform, .. } = &account.requested;
        let left = |taken: &[&Amounts]| node.allocatable.left_by(&sum(taken));
        let lefts = [left(&[&requested]), left(&[gpu_workload]), left(&[gpu_workload, daemon_set, platform])];
        let mut short = [false; 4];
        let mut blocked = Blocked::default();
        // Pools share what else the node has: together no more are blocked than it would serve without the others.
        let demands: Vec<_> =
            gpus.iter().map(|(pool, gpus)| (gpus.free, pool.and_then(|pool| self.needs[pool].as_ref()))).collect();
        let [now, alone, _] = lefts.each_ref().map(|left| served(&demands, &node.allocatable, left));
        let mut unserved = alone.iter().zip(now).map(|(alone, now)| alone - now).max().unwrap_or_default();
        for (pool, mut gpus) in gpus {
            let need = pool.and_then(|pool| self.needs[pool].as_ref());
            let [now, alone, without_ordinary] =
                lefts.each_ref().map(|left| Usable::of(gpus.free, need, &node.allocatable, left));
            let most = alone.least();
            gpus.blocked = (most - now.least()).min(unserved);
            unserved -= gpus.blocked;
            blocked.anyway += most - without_ordinary.least();
            for (short, now) in short.iter_mut().zip(now.0) {
                *short |= now < most;
            }
            add(&mut account.gpus, gpus);
            if let Some(pool) = pool {
                add(&mut self.pools[pool].gpus, gpus);
                if gpus.blocked > 0 {
                    blocked.pools.insert(pool);
                }
            }
        }
        blocked.anyway = blocked.anyway.min(account.gpus.blocked);
        let short = BESIDE.iter().zip(short).filter(|(_, short)| *short);
        account.blocked_by = short.map(|((name, _), _)| *name).collect();
        for pool in standing.counted().iter() {
            self.pools[pool].nodes += 1;
            self.pools[pool].ordinary_pods +=
                account.occupants.iter().filter(|occupant| occupant.class == Class::Ordinary).count();
        }
        blocked
    }

    /// What is said of a node whose free GPUs cannot be used.
    pub(super) fn blocked(&self, account: &NodeAccount, blocked: Blocked) -> Finding {
        let short: Vec<_> = (0..BESIDE.len()).filter(|index| account.blocked_by.contains(&BESIDE[*index].0)).collect();
        let words: Vec<_> = short.iter().map(|index| BESIDE[*index].1).collect();
        let Gpus { free, blocked: count, .. } = account.gpus;
        let mut sentences = vec![format!(
            "{count} of {free} free GPUs of node {} cannot be used: pods that request no GPU took the {} that a GPU \
             pod needs beside them",
            visible(&account.name),
            list_text(&words)
        )];
        for index in blocked.pools.iter() {
            let pool = &self.view.policy.pools()[index].name;
            sentences.push(match &self.needs[index] {
                Some(need) => format!("In pool {pool} {need}"),
                None => format!("No pod of pool {pool} shows what it needs, but nothing is left"),
            });
        }
        let takers = takers(account, &short);
        let taken = |taker: &Occupant| {
            let taken = beside(&taker.requests);
            let taken: Vec<_> = short.iter().map(|index| beside_text(*index, taken[*index])).collect();
            format!("{} ({})", occupant_text(taker), taken.join(", "))
        };
        sentences.push(format!("Most is taken by {}", named(&takers, taken)));
        let action = self.unblocking(account, blocked, &short, &takers);
        let object = ObjectRef::new("v1", "Node", "", &account.name);
        let finding = Finding::new(Check::GpusBlocked, Severity::High, object, sentences.join(". "), action);
        match blocked.pools.first().filter(|_| blocked.pools.is_one()) {
            Some(pool) => finding.in_pool(&self.view.policy.pools()[pool].name),
            None => finding,
        }
    }

    /// Whom to move; whose requests to lower, where the node's own agents take too much; and what else to set.
    fn unblocking(&self, account: &NodeAccount, blocked: Blocked, short: &[usize], takers: &[&Occupant]) -> String {
        let (ordinary, others): (Vec<&Occupant>, Vec<&Occupant>) =
            takers.iter().copied().partition(|taker| taker.class == Class::Ordinary);
        let (leaving, movable): (Vec<&Occupant>, Vec<&Occupant>) =
            ordinary.into_iter().partition(|taker| taker.action.is_empty());
        let mut steps = Vec::new();
        if !leaving.is_empty() {
            steps.push(format!("wait for the end of {}", named(&leaving, occupant_text)));
        }
        if !movable.is_empty() {
            let (pods, node) = (named(&movable, occupant_text), visible(&account.name));
            steps.push(format!("move {pods} off node {node}, as {} says of each", Check::OrdinaryPod));
        }
        let is_places = |index: &usize| BESIDE[*index].0 == "pods";
        if blocked.anyway > 0 && !short.iter().all(is_places) {
            let (count, pods) = (blocked.anyway, named(&others, occupant_text));
            steps.push(format!("lower the requests of {pods}, which alone block {count}"));
        }
        let mut ways: Vec<_> = Some(steps.join(", and ")).filter(|steps| !steps.is_empty()).into_iter().collect();
        if short.iter().any(is_places) {
            ways.push(format!("raise maxPods in the kubelet's configuration of node {}", visible(&account.name)));
        }
        // What is left is enough for all of the GPUs where each takes no more than its share.
        let left = beside(&account.allocatable.left_by(&total(&account.requested)));
        let share = |index: usize| {
            let share = left[index].checked_div(account.gpus.free).unwrap_or_default();
            let grain = if BESIDE[index].0 == "cpu" { 100 } else { 1 << 20 };
            if share > 1 << 30 { share - share % (1 << 30) } else { share - share % grain }
        };
        let can_share = short.iter().all(|index| share(*index) > 0 && !is_places(index));
        if can_share && blocked.pools.iter().all(|pool| self.needs[pool].is_some()) {
            let shares: Vec<_> = short.iter().map(|index| beside_text(*index, share(*index))).collect();
            ways.push(format!("let GPU pods request at most {} for each GPU", shares.join(", ")));
        }
        sentence(&ways.join("; or "))
    }

    /// The pools.
    pub(super) fn finish(self) -> Vec<PoolAccount> {
        self.pools
    }
}

/// For how many free GPUs of all pools together what is left is enough, by resource of [`BESIDE`]: as many as can be,
/// those first that need least.
fn served(demands: &[(i64, Option<&Need>)], allocatable: &Amounts, left: &Amounts) -> [i64; 4] {
    let (allocatable, left) = (beside(allocatable), beside(left));
    std::array::from_fn(|index| {
        let is_place = BESIDE[index].0 == "pods";
        // What so many GPUs need.
        let need = |need: Option<&Need>| match need {
            Some(need) if is_place => (1, need.gpus.max(1)),
            Some(need) => (beside(&need.amounts)[index], 1),
            None => (0, 1),
        };
        let mut demands: Vec<_> = demands.iter().map(|(free, own)| (*free, *own, need(*own))).collect();
        demands.sort_by_key(|(.., (amount, gpus))| i128::from(*amount) * 1_000_000_000 / i128::from(*gpus));
        let mut rest = left[index];
        let serve = |(free, own, (amount, gpus)): (i64, Option<&Need>, (i64, i64))| match rest.checked_div(amount) {
            _ if allocatable[index] == 0 => free,
            None if own.is_none() && left[index] == 0 && BESIDE[index].0 != "ephemeral-storage" => 0,
            None => free,
            Some(times) => {
                let served = times.saturating_mul(gpus).min(free);
                // A pod that has fewer GPUs than others takes a whole place.
                rest -= amount.saturating_mul(served / gpus + i64::from(served % gpus > 0));
                served
            }
        };
        demands.into_iter().map(serve).fold(0, i64::saturating_add)
    })
}

/// The pods without a GPU that took something of what is short, and first those that took most.
fn takers<'a>(account: &'a NodeAccount, short: &[usize]) -> Vec<&'a Occupant> {
    const WHOLE: i128 = 1_000_000_000;
    let allocatable = beside(&account.allocatable);
    let share = |occupant: &Occupant| -> i128 {
        let taken = beside(&occupant.requests);
        let share = |index: &usize| i128::from(taken[*index]) * WHOLE / i128::from(allocatable[*index].max(1));
        short.iter().map(share).sum()
    };
    let took = |occupant: &&Occupant| short.iter().any(|index| beside(&occupant.requests)[*index] > 0);
    let others = account.occupants.iter().filter(|occupant| occupant.class != Class::GpuWorkload);
    let mut takers: Vec<_> = others.filter(took).collect();
    takers.sort_by_cached_key(|taker| Reverse(share(taker)));
    takers
}

/// The first few of some pods, and how many more there are.
fn named(pods: &[&Occupant], text: impl Fn(&Occupant) -> String) -> String {
    let mut words: Vec<_> = pods.iter().take(NAMED).map(|pod| text(pod)).collect();
    if pods.len() > NAMED {
        words.push(format!("{} more", pods.len() - NAMED));
    }
    list_text(&words)
}

fn occupant_text(occupant: &Occupant) -> String {
    let pod = format!("pod {}/{}", visible(&occupant.namespace), visible(&occupant.name));
    occupant.controller.as_ref().map_or_else(|| pod.clone(), |controller| format!("{pod} of {controller}"))
}

/// For each pool what its GPU pods need, those that run and those that wait.
fn needs(view: &View<'_>) -> Vec<Option<Need>> {
    // By resource of BESIDE without the places, and the GPUs.
    let mut samples: Vec<[Vec<i64>; 4]> = view.policy.pools().iter().map(|_| Default::default()).collect();
    for pod in view.snapshot.pods.iter().filter(|pod| !pod.is_over() && !pod.requests.extended.is_empty()) {
        for (pool, gpus) in gpus_of(view, pod) {
            let [cpu, memory, storage, _] = beside(&pod.requests);
            for (sample, amount) in samples[pool].iter_mut().zip([cpu / gpus, memory / gpus, storage / gpus, gpus]) {
                sample.push(amount);
            }
        }
    }
    let need = |[cpu, memory, storage, gpus]: [Vec<i64>; 4]| {
        let pods = gpus.len();
        let amounts = Amounts {
            cpu_milli: lower_median(cpu)?,
            memory_bytes: lower_median(memory)?,
            ephemeral_storage_bytes: lower_median(storage)?,
            pods: 1,
            extended: Vec::new(),
        };
        Some(Need { amounts, gpus: lower_median(gpus)?, pods })
    };
    samples.into_iter().map(need).collect()
}

/// How many GPUs a pod requests of each pool.
fn gpus_of(view: &View<'_>, pod: &Pod) -> BTreeMap<usize, i64> {
    let pools = view.policy.pools();
    let standing = pod.node.as_deref().map(|node| view.standing(node)).unwrap_or_default();
    let mut gpus: BTreeMap<usize, i64> = BTreeMap::new();
    for (resource, amount) in pod.requests.extended.iter().filter(|(_, amount)| *amount > 0) {
        let offering: PoolSet = match view.pool_of(standing, resource) {
            Some(pool) => PoolSet::from_iter([pool]),
            None => (0..pools.len()).filter(|pool| pools[*pool].resources.matches(resource)).collect(),
        };
        for pool in offering.iter() {
            let gpus = gpus.entry(pool).or_default();
            *gpus = gpus.saturating_add(*amount);
        }
    }
    // Where several pools offer the same, a pod that waits means the one whose nodes it selects.
    if gpus.len() > 1 && standing.pools.is_empty() {
        let json = pod.json();
        if let Ok(object) = Kind::Pod.read(&json) {
            let selects = |pool: &usize| pools[*pool].is_met_by(|key| object.pod.spec.selects(key));
            if gpus.keys().any(selects) {
                gpus.retain(|pool, _| selects(pool));
            }
        }
    }
    gpus
}

fn lower_median(mut values: Vec<i64>) -> Option<i64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

fn total(requested: &ByClass<Amounts>) -> Amounts {
    let ByClass { gpu_workload, daemon_set, platform, ordinary } = requested;
    sum(&[gpu_workload, daemon_set, platform, ordinary])
}

fn sum(amounts: &[&Amounts]) -> Amounts {
    let mut sum = Amounts::default();
    for amounts in amounts {
        sum += amounts;
    }
    sum
}

fn add(sum: &mut Gpus, gpus: Gpus) {
    for (sum, gpus) in [
        (&mut sum.allocatable, gpus.allocatable),
        (&mut sum.requested, gpus.requested),
        (&mut sum.free, gpus.free),
        (&mut sum.blocked, gpus.blocked),
        (&mut sum.out_of_use, gpus.out_of_use),
    ] {
        *sum = sum.saturating_add(gpus);
    }
}
