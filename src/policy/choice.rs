//! Which pool a pod means, where several offer what it requests.

use super::json::Text;
use super::placement::labels;
use super::pod::Pod;
use super::pool::{Pool, PoolSet};

/// How a pod names a pool, by the pool's name in the contract.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The annotation of the pod.
    pub annotation: Option<String>,
    /// The label of the pod.
    pub label: Option<String>,
}

/// A pool as a pod names it, whether there is one of the name or not.
#[derive(Debug)]
pub(super) struct Named<'a> {
    /// `annotations` or `labels`.
    pub(super) list: &'static str,
    pub(super) key: &'a str,
    pub(super) name: Text<'a>,
}

impl Selection {
    /// The pools that the pod names. An empty name is none.
    pub(super) fn named<'a>(&'a self, pod: &Pod<'a>) -> Vec<Named<'a>> {
        let mut named = Vec::new();
        let mut add = |list, key: &'a Option<String>, read: &dyn Fn(&str) -> Option<Text<'a>>| {
            let Some(key) = key.as_deref() else { return };
            if let Some(name) = read(key).filter(|name| !name.is_empty()) {
                named.push(Named { list, key, name });
            }
        };
        add("annotations", &self.annotation, &|key| pod.metadata.annotations.string(key));
        add("labels", &self.label, &|key| pod.metadata.labels.read().string(key));
        named
    }
}

/// The pools that a pod's GPU requests mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It requests nothing of a pool.
    Nothing,
    /// One pool offers all that it requests.
    One(usize),
    /// No single pool does.
    Several(PoolSet),
}

impl Asked {
    /// The pools as a set.
    #[must_use]
    pub fn pools(self) -> PoolSet {
        match self {
            Self::Nothing => PoolSet::default(),
            Self::One(index) => PoolSet::from_iter([index]),
            Self::Several(pools) => pools,
        }
    }
}

/// What the pool that is meant was chosen from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Choice {
    /// The pools that offer all that is requested.
    pub(super) offering: PoolSet,
    /// The pools that the nodeSelector means at once, where nothing stronger decides between them.
    pub(super) torn: PoolSet,
}

impl Choice {
    /// Which pool is meant, when `candidates` holds for each request the pools that it concerns. Where several
    /// would do: one that the pod names, that has the model which it names, whose labels its nodeSelector
    /// names, that its nodeSelector and its required node affinity do not contradict, that the namespace may use,
    /// that comes first in the contract; each where there is one, from what the stronger ones leave.
    ///
    /// What cannot be met (a pool that there is not) is passed over here, and `placement-conflict` speaks.
    pub(super) fn among(
        pools: &[Pool],
        candidates: &[PoolSet],
        selection: &Selection,
        pod: &Pod<'_>,
        allowed: PoolSet,
    ) -> (Asked, Self) {
        let Some(offering) = candidates.iter().copied().reduce(PoolSet::and) else {
            return (Asked::Nothing, Self::default());
        };
        if offering.is_empty() {
            let first = |set: &PoolSet| set.and(allowed).first().or_else(|| set.first());
            let asked = Asked::Several(candidates.iter().filter_map(first).collect());
            return (asked, Self::default());
        }
        // Most contracts have one pool for each resource, and nothing to choose.
        if let (Some(only), true) = (offering.first(), offering.is_one()) {
            return (Asked::One(only), Self { offering, ..Self::default() });
        }
        let mut left = offering;
        let named = selection.named(pod);
        narrow(&mut left, |index| named.iter().any(|named| *named.name == *pools[index].name));
        narrow(&mut left, |index| {
            let models = pools[index].models.as_ref();
            models.is_some_and(|models| models.named(pod).is_some_and(|named| models.has(&named)))
        });
        let mut meant = closest(pools, left, |key| pod.spec.selects(key));
        if meant.is_empty() {
            let is_possible = |index: usize| {
                let mut labels = pools[index].node_selector.iter();
                labels.all(|(key, value)| pod.spec.selects(key).is_none_or(|selected| selected == value))
            };
            let mut possible = left;
            narrow(&mut possible, is_possible);
            // Nor one that every alternative of its required node affinity shuts out.
            let is_shut_out = |index: usize| {
                let labels = labels(&pools[index], pod);
                pod.spec.required_terms().is_some_and(|terms| {
                    !terms.is_empty() && terms.iter().all(|term| term.excluding(&labels).is_some())
                })
            };
            narrow(&mut possible, |index| !is_shut_out(index));
            narrow(&mut possible, |index| allowed.contains(index));
            let first = possible.first().unwrap_or_default();
            // With the labels that it would be given the pod may mean another pool, and does so already.
            let given = labels(&pools[first], pod);
            let value = |key: &str| {
                let given = || given.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
                pod.spec.selects(key).or_else(given)
            };
            meant = closest(pools, left, value);
            if meant.is_empty() {
                meant.insert(first);
            }
        }
        let torn = if meant.is_one() { PoolSet::default() } else { meant };
        narrow(&mut meant, |index| allowed.contains(index));
        (meant.first().map_or(Asked::Nothing, Asked::One), Self { offering, torn })
    }
}

/// The pools whose labels a nodeSelector names, all of them. Of pools within each other the closer one is meant.
fn closest<'s>(pools: &[Pool], among: PoolSet, selects: impl Fn(&str) -> Option<&'s str>) -> PoolSet {
    let is_met = |index: &usize| pools[*index].is_met_by(&selects);
    let met: PoolSet = among.iter().filter(is_met).collect();
    let has_closer = |index: usize| met.iter().any(|other| pools[other].is_within(&pools[index]));
    met.iter().filter(|index| !has_closer(*index)).collect()
}

/// Leaves the pools of which something holds, where there is one.
fn narrow(left: &mut PoolSet, holds: impl Fn(usize) -> bool) {
    let kept: PoolSet = left.iter().filter(|index| holds(*index)).collect();
    if !kept.is_empty() {
        *left = kept;
    }
}
