//! What is said of a pod that waits: the causes, what keeps it, and what to do.

use std::collections::{BTreeMap, BTreeSet};

use super::fit::{self, Obstacle, count, few};
use super::{Explained, NAME, Nearness, Place, Tried, Waiting};
use crate::audit::snapshot::Taint;
use crate::policy::{Membership, Pool, visible};

/// What keeps a pod, most telling first.
#[derive(Default)]
pub(super) struct Told {
    causes: Vec<&'static str>,
    sentences: Vec<String>,
    actions: Vec<String>,
}

impl Told {
    fn push(&mut self, cause: &'static str, sentence: String, action: String) {
        if !self.causes.contains(&cause) {
            self.causes.push(cause);
        }
        self.sentences.push(sentence);
        self.actions.push(action);
    }
}

impl<'s> Waiting<'_, 's> {
    pub(super) fn explained(&self, told: Told) -> Explained {
        let Told { causes, sentences, actions } = told;
        Explained {
            pool: self.pool().map(|pool| pool.name.clone()),
            causes,
            message: sentences.join("; "),
            // What is nearest is the least to do.
            action: actions.into_iter().next().unwrap_or_default(),
        }
    }

    fn one(&self, cause: &'static str, message: String, action: String) -> Explained {
        let mut told = Told::default();
        told.push(cause, message, action);
        self.explained(told)
    }

    /// The pool that it asks for, the first where it asks for several; or else the one whose labels it selects.
    fn pool(&self) -> Option<&'s Pool> {
        let wants = |key: &str| self.spec.selects(key);
        let selected = |pool: &&Pool| !pool.node_selector.is_empty() && pool.is_met_by(wants);
        self.view.pools(self.asked).next().or_else(|| self.view.policy.pools().iter().find(selected))
    }

    fn of_pool(&self) -> String {
        self.pool().map(|pool| format!(" of pool {}", pool.name)).unwrap_or_default()
    }

    /// The GPUs that it asks for: `8 nvidia.com/gpu`.
    fn wish(&self) -> String {
        let pools = self.view.policy.pools();
        let is_gpu = |resource: &str| pools.iter().any(|pool| pool.resources.matches(resource));
        let asked = self.pod.requests.extended.iter().filter(|(resource, amount)| *amount > 0 && is_gpu(resource));
        let asked: Vec<_> = asked.map(|(resource, amount)| format!("{amount} {resource}")).collect();
        if asked.is_empty() { "a GPU".to_owned() } else { asked.join(" and ") }
    }

    pub(super) fn gated(&self) -> Explained {
        let (namespace, name) = (&self.pod.namespace, NAME);
        self.one(
            "gates",
            "scheduling gates hold it back: no scheduler looks at it until they are removed".to_owned(),
            format!(
                "Ask who set the gates to remove them: kubectl --namespace {namespace} get pod {name} \
                 --output jsonpath='{{.spec.schedulingGates}}'"
            ),
        )
    }

    pub(super) fn no_nodes(&self) -> Explained {
        let pool = self.of_pool();
        let nodes = match self.pool() {
            Some(pool) if !pool.node_selector.is_empty() => {
                format!("kubectl get nodes --selector {}", pool.labels_text(","))
            }
            _ => "kubectl describe nodes".to_owned(),
        };
        self.one(
            "gpus",
            format!("it asks for {}, and the cluster has no node{pool}", self.wish()),
            format!("Add a node{pool}, or see why its device plugin reports no GPU: {nodes}"),
        )
    }

    /// Of a pod that requests no GPU: a pool's label with a value that no node has.
    pub(super) fn unmet_label(&self) -> Option<Explained> {
        for pool in self.view.policy.pools() {
            for (key, own) in &pool.node_selector {
                let Some(wanted) = self.spec.selects(key) else { continue };
                let has = |value: &str| self.view.nodes().any(|(node, _)| node.fact.label(key) == Some(value));
                if has(wanted) {
                    continue;
                }
                return Some(self.one(
                    "label",
                    format!(
                        "it selects {key}={}, which no node has; the label of pool {} is {key}={own}",
                        visible(wanted),
                        pool.name
                    ),
                    format!("Correct the nodeSelector in its template: {key}: {own}"),
                ));
            }
        }
        None
    }

    /// Of a pod that requests no GPU and could only be on GPU nodes, which do not let it in.
    pub(super) fn fenced(&self, places: &[&Place<'_>], selects_pool: bool) -> Explained {
        let nodes = count(places.len(), "GPU node");
        let taints = places.iter().flat_map(|place| fit::untolerated(&place.node.taints, self.spec.tolerations()));
        let taints: BTreeSet<_> = taints.map(ToString::to_string).collect();
        let taints: Vec<_> = taints.into_iter().collect();
        let them = format!("{nodes}, whose taint {} it does not tolerate", visible(&few(&taints)));
        if selects_pool {
            let labels = self.pool().map(|pool| pool.labels_text(", ")).unwrap_or_default();
            return self.one(
                "toleration",
                format!("it requests no GPU and selects {them}: the fence keeps it off, as it should"),
                format!("Take {labels} out of the nodeSelector in its template, or let it request a GPU"),
            );
        }
        let requests = &self.pod.requests;
        let (cpu, memory) = (fit::cpu_text(requests.cpu_milli), fit::bytes_text(requests.memory_bytes));
        self.one(
            "toleration",
            format!("it requests no GPU and could only be on {them}: the fence keeps it off, as it should"),
            format!("Add a node without GPUs that it may be on and that holds it ({cpu} CPU, {memory} memory)"),
        )
    }

    /// What places have against the pod that are equally near.
    pub(super) fn tell_alike(&self, tried: &[Tried<'_, '_>], told: &mut Told) {
        let Some(first) = tried.first() else { return };
        match first.nearness {
            Nearness::Fits => self.tell_fit(first, told),
            Nearness::Blocked | Nearness::Room => self.tell_lack(tried, first.nearness, told),
            Nearness::Gpus => self.tell_gpus(tried, told),
            Nearness::Away => tell_away(tried, told),
            Nearness::Barred => {
                self.tell_taints(tried, told);
                self.tell_labels(tried, told);
            }
        }
    }

    fn tell_fit(&self, tried: &Tried<'_, '_>, told: &mut Told) {
        let (namespace, name) = (&self.pod.namespace, NAME);
        told.push(
            "unknown",
            format!("node {} has room for it and its spec lets it there", tried.place.node.name),
            format!("See what its scheduler says: kubectl --namespace {namespace} describe pod {name}"),
        );
    }

    /// GPUs are free, and something beside them is not.
    fn tell_lack(&self, tried: &[Tried<'_, '_>], nearness: Nearness, told: &mut Told) {
        let gpus = |tried: &&Tried<'_, '_>| self.free_gpus(tried.place);
        // The first by name of those with the most GPUs.
        let Some(best) = tried.iter().rev().max_by_key(gpus) else { return };
        let (node, free) = (&best.place.node.name, best.place.room.free());
        let missing: Vec<_> = best.obstacles.iter().collect();
        let left = |obstacle: &Obstacle| {
            let (left, wanted) = (fit::amount_text(*obstacle, &free), fit::amount_text(*obstacle, &self.pod.requests));
            match (left, wanted) {
                (Some(left), Some(wanted)) => format!("{left} of {wanted} {}", obstacle.as_str()),
                _ => "too few devices".to_owned(),
            }
        };
        let lefts = missing.iter().map(left).collect::<Vec<_>>().join(" and ");
        let what = missing.iter().map(|obstacle| obstacle.as_str()).collect::<Vec<_>>().join(" and ");
        let gpus = match self.free_gpus(best.place) {
            _ if self.asked.is_empty() => format!("node {node} lets it in"),
            free => format!("node {node} has {free} GPUs free"),
        };
        let others = match tried.len() {
            1 => String::new(),
            more => format!(" (and {} like it)", count(more - 1, "node")),
        };
        if nearness == Nearness::Room {
            return told.push(
                "room",
                format!("{gpus} and only {lefts} that it asks for{others}"),
                format!("Let it ask for less {what}, or wait until others end: kubectl describe node {node}"),
            );
        }
        let (worst, action) = self.worst(best.place, missing.first().copied().unwrap_or(Obstacle::Cpu));
        told.push(
            "blocked",
            format!("{gpus}, but ordinary pods took the {what}: {lefts} that it asks for is left{others}; {worst}"),
            action,
        );
    }

    /// Who of the ordinary pods of a node takes most of what is missing, and how to get rid of it.
    fn worst(&self, place: &Place<'s>, missing: Obstacle) -> (String, String) {
        let mut takers: BTreeMap<String, (i64, crate::audit::snapshot::Amounts, usize)> = BTreeMap::new();
        let pods = self.view.pods_on(&place.node.name);
        for pod in pods.iter().filter(|pod| fit::is_ordinary(self.view, pod)) {
            let owner = self.view.top_controller(pod).cloned().unwrap_or_else(|| pod.object());
            let taken = takers.entry(owner.to_string()).or_default();
            taken.0 += match missing {
                Obstacle::Cpu => pod.requests.cpu_milli,
                Obstacle::Memory => pod.requests.memory_bytes,
                Obstacle::EphemeralStorage => pod.requests.ephemeral_storage_bytes,
                _ => pod.requests.pods,
            };
            taken.1 += &pod.requests;
            taken.2 += 1;
        }
        // The first by name of those that take the most.
        let Some((owner, (_, amounts, pods))) = takers.into_iter().rev().max_by_key(|(_, (most, ..))| *most) else {
            return Default::default();
        };
        let node = &place.node.name;
        let taken = match missing {
            Obstacle::Pods => String::new(),
            missing => fit::amount_text(missing, &amounts).map(|text| format!(", {text}")).unwrap_or_default(),
        };
        let worst = format!("most of it {owner} ({}{taken})", count(pods, "pod"));
        let pools: Vec<_> = self.view.pools(place.standing.pools).collect();
        let missing_taints =
            pools.iter().flat_map(|pool| &pool.taints).filter(|taint| !place.node.fact.has_taint(taint));
        let missing_taints: Vec<_> = missing_taints.map(ToString::to_string).collect();
        let fence = match &*missing_taints {
            [] => String::new(),
            taints => format!("Give the node its taint (kubectl taint node {node} {}), then move", taints.join(" ")),
        };
        let start = if fence.is_empty() { "Move" } else { &fence };
        (
            worst,
            format!(
                "{start} the ordinary pods off {node}, {owner} first: gpufence audit --what-if taint --node {node}"
            ),
        )
    }

    fn free_gpus(&self, place: &Place<'_>) -> i64 {
        let free = place.room.free();
        let pools: Vec<_> = self.view.pools(self.asked).collect();
        let is_gpu = |resource: &str| pools.iter().any(|pool| pool.resources.matches(resource));
        free.extended.iter().filter(|(resource, _)| is_gpu(resource)).map(|(_, amount)| amount).sum()
    }

    fn tell_gpus(&self, tried: &[Tried<'_, '_>], told: &mut Told) {
        let pool = self.of_pool();
        let pools = self.view.policy.pools();
        let requests = &self.pod.requests.extended;
        let lacks = |resource: &str, wanted: i64| {
            let is_gpu = pools.iter().any(|pool| pool.resources.matches(resource));
            is_gpu && tried.iter().any(|tried| tried.place.room.free().of(resource) < wanted)
        };
        // Of several resources the first that is short.
        let Some((resource, wanted)) = requests.iter().find(|(resource, wanted)| lacks(resource, *wanted)) else {
            return;
        };
        let most = |of: &dyn Fn(&Place<'_>) -> i64| {
            let best = tried.iter().rev().max_by_key(|tried| of(tried.place));
            best.map_or((0, ""), |best| (of(best.place), &*best.place.node.name))
        };
        let (largest, _) = most(&|place| place.node.allocatable.of(resource));
        let nodes = count(tried.len(), "node");
        if largest < *wanted {
            let action = match largest {
                0 => format!("Correct the resource, or add a node{pool} that offers {resource}"),
                largest => format!("Ask for at most {largest} {resource} in one pod"),
            };
            let has = if largest == 0 { "none".to_owned() } else { format!("at most {largest}") };
            return told.push(
                "gpus",
                format!("it asks for {wanted} {resource}, and each of {nodes}{pool} that it may be on has {has}"),
                action,
            );
        }
        let (free, name) = most(&|place| place.room.free().of(resource));
        let (have, action) = match free {
            0 => ("none is free".to_owned(), format!("Wait until {wanted} are free on one node, or add a node{pool}")),
            free => (
                format!("the most that is free on one is {free} ({name})"),
                format!("Wait until {wanted} are free on one node, ask for at most {free}, or add a node{pool}"),
            ),
        };
        told.push(
            "gpus",
            format!("it asks for {wanted} {resource}, and of {nodes}{pool} that it may be on {have}"),
            action,
        );
    }

    fn tell_taints(&self, tried: &[Tried<'_, '_>], told: &mut Told) {
        let barred: Vec<_> = tried.iter().filter(|tried| tried.obstacles.has(Obstacle::Taint)).collect();
        let Some(first) = barred.first() else { return };
        let tolerations = self.spec.tolerations();
        let taints: BTreeSet<_> =
            barred.iter().flat_map(|tried| fit::untolerated(&tried.place.node.taints, tolerations)).collect();
        let known =
            |taint: &Taint| self.view.policy.pools().iter().flat_map(|pool| &pool.taints).find(|known| taint.is(known));
        let shown: Vec<_> = taints.iter().map(ToString::to_string).collect();
        let (nodes, pool) = (count(barred.len(), "node"), self.of_pool());
        let message = format!("it does not tolerate {} of {nodes}{pool}", visible(&few(&shown)));
        let foreign = taints.iter().find(|taint| known(taint).is_none());
        let action = if let Some(taint) = foreign {
            format!(
                "Remove the taint, which the contract does not name (kubectl taint node {} {}-), or let the contract \
                 name it",
                first.place.node.name,
                visible(&taint.to_string())
            )
        } else {
            self.toleration_action(taints.iter().filter_map(|taint| known(taint)).collect())
        };
        told.push("toleration", message, action);
    }

    fn toleration_action(&self, taints: Vec<&crate::policy::Taint>) -> String {
        let (namespace, name) = (&self.pod.namespace, NAME);
        if let Some(pool) = self.pool()
            && pool.namespaces.membership(namespace, self.view) == Membership::Outside
        {
            let (pool, allowed) = (&pool.name, &pool.namespaces);
            return format!(
                "Namespace {namespace} may not use pool {pool} (allowed: {allowed}): run it in one that may"
            );
        }
        if self.pod.controller.is_some() && self.view.completed(self.pod).is_some() {
            return format!(
                "The webhook gives it the toleration when it is created anew: kubectl --namespace {namespace} delete \
                 pod {name}"
            );
        }
        let lines: Vec<_> = taints.into_iter().map(|taint| format!("- {}", taint.exact_toleration_text())).collect();
        format!("Add to the tolerations in its template: {}", lines.join(" and "))
    }

    fn tell_labels(&self, tried: &[Tried<'_, '_>], told: &mut Told) {
        let barred: Vec<_> = tried.iter().filter(|tried| tried.obstacles.has(Obstacle::Label)).collect();
        if barred.is_empty() {
            return;
        }
        let (nodes, pool_words) = (count(barred.len(), "node"), self.of_pool());
        let selector = self.spec.node_selector.iter().flat_map(|selector| &selector.value.0);
        let unmet = selector
            .map(|(key, value)| (&**key, &**value))
            .find(|(key, value)| barred.iter().any(|tried| tried.place.node.fact.label(key) != Some(*value)));
        let Some((key, wanted)) = unmet else {
            return told.push(
                "label",
                format!("its required node affinity admits none of {nodes}{pool_words}"),
                "Correct spec.affinity.nodeAffinity in its template".to_owned(),
            );
        };
        let values: BTreeSet<_> = barred.iter().filter_map(|tried| tried.place.node.fact.label(key)).collect();
        let values: Vec<_> = values.into_iter().map(|value| format!("{key}={value}")).collect();
        let have = if values.is_empty() {
            "which has no such label".to_owned()
        } else {
            format!("which has {}", visible(&few(&values)))
        };
        let have = if barred.len() == 1 { have } else { have.replace("which has", "which have") };
        let own = self.pool().and_then(|pool| pool.node_selector.get(key));
        let lacking = barred.iter().find(|tried| tried.place.node.fact.label(key) != Some(wanted));
        let action = match (own, lacking) {
            (Some(own), Some(lacking)) if own == wanted => {
                let overwrite = if lacking.place.node.fact.label(key).is_some() { " --overwrite" } else { "" };
                format!("Label the nodes: kubectl label node {} {key}={own}{overwrite}", lacking.place.node.name)
            }
            (Some(own), _) => format!("Correct the nodeSelector in its template: {key}: {own}"),
            (None, _) => format!("Correct or remove {key} in the nodeSelector of its template"),
        };
        let wanted = visible(wanted);
        told.push(
            "label",
            format!("it selects {key}={wanted}, which finds none of {nodes}{pool_words}, {have}"),
            action,
        );
    }
}

fn tell_away(tried: &[Tried<'_, '_>], told: &mut Told) {
    let of = |obstacle: Obstacle| -> Vec<&str> {
        tried.iter().filter(|tried| tried.obstacles.has(obstacle)).map(|tried| &*tried.place.node.name).collect()
    };
    let (not_ready, cordoned) = (of(Obstacle::NotReady), of(Obstacle::Cordoned));
    if let Some(first) = cordoned.first() {
        let (are, names) = (if cordoned.len() == 1 { "node is" } else { "nodes are" }, few(&cordoned));
        told.push(
            "room",
            format!("{} {are} cordoned ({names})", cordoned.len()),
            format!("Let pods onto the node again: kubectl uncordon {first}"),
        );
    }
    let passing = of(Obstacle::PassingTaint);
    if let Some(first) = passing.first() {
        let (carry, names) = (if passing.len() == 1 { "node carries" } else { "nodes carry" }, few(&passing));
        told.push(
            "room",
            format!("{} {carry} a taint that comes and goes by itself ({names})", passing.len()),
            format!("See what the node is at: kubectl describe node {first}"),
        );
    }
    if let Some(first) = not_ready.first() {
        let (are, names) = (if not_ready.len() == 1 { "node is" } else { "nodes are" }, few(&not_ready));
        told.push(
            "room",
            format!("{} {are} not ready ({names})", not_ready.len()),
            format!("See why the node is not ready: kubectl describe node {first}"),
        );
    }
}
