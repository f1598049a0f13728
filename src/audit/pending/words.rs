//! What is said of a pod that waits: the causes, what keeps it, and what to do.

use std::collections::{BTreeMap, BTreeSet};

use super::fit::{self, Obstacle, few};
use super::{Explained, Nearness, Place, Tried, Waiting};
use crate::audit::nodes::is_transient;
use crate::audit::snapshot::{Amounts, Taint};
use crate::audit::words::{
    bytes_text, command, command_in, count_text, cpu_text, label_command, list_text, shell_word, taint_command,
    what_if_command,
};
use crate::audit::{ObjectRef, Occupant};
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

    /// A command about the pod.
    fn command(&self, verb: &str, flags: &str) -> String {
        command_in(&self.pod.namespace, verb, &[self.name], flags)
    }

    pub(super) fn gated(&self) -> Explained {
        let gates = self.command("kubectl get pod", "--output jsonpath='{.spec.schedulingGates}'");
        self.one(
            "gates",
            "scheduling gates hold it back: no scheduler looks at it until they are removed".to_owned(),
            format!("Ask who set the gates to remove them: {gates}"),
        )
    }

    pub(super) fn no_nodes(&self) -> Explained {
        let pool = self.of_pool();
        let nodes = match self.pool() {
            Some(pool) if !pool.node_selector.is_empty() => {
                format!("kubectl get nodes --selector {}", shell_word(&pool.labels_text(",")))
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
        let nodes = count_text(places.len(), "GPU node");
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
        let (cpu, memory) = (cpu_text(requests.cpu_milli), bytes_text(requests.memory_bytes));
        self.one(
            "toleration",
            format!("it requests no GPU and could only be on {them}: the fence keeps it off, as it should"),
            format!("Add a node without GPUs that it may be on and that holds it ({cpu}, {memory} memory)"),
        )
    }

    /// What places have against the pod that are equally near.
    pub(super) fn tell_alike(&self, tried: &[Tried<'_, 's>], told: &mut Told) {
        let Some(first) = tried.first() else { return };
        match first.nearness {
            Nearness::Fits => self.tell_fit(first, told),
            Nearness::Blocked | Nearness::Room => self.tell_lack(tried, first.nearness, told),
            Nearness::Gpus => self.tell_gpus(tried, told),
            Nearness::Away => tell_away(tried, told),
            Nearness::Barred => self.tell_barred(tried, told),
        }
    }

    fn tell_fit(&self, tried: &Tried<'_, '_>, told: &mut Told) {
        let see = self.command("kubectl describe pod", "");
        told.push(
            "unknown",
            format!("node {} has room for it and its spec lets it there", visible(&tried.place.node.name)),
            format!("See what its scheduler says: {see}"),
        );
    }

    /// GPUs are free, and something beside them is not.
    fn tell_lack(&self, tried: &[Tried<'_, 's>], nearness: Nearness, told: &mut Told) {
        let gpus = |tried: &&Tried<'_, '_>| self.free_gpus(tried.place);
        // The first by name of those with the most GPUs.
        let Some(best) = tried.iter().rev().max_by_key(gpus) else { return };
        let (name, free) = (&best.place.node.name, best.place.room.free());
        let node = visible(name);
        let missing: Vec<_> = best.obstacles.iter().collect();
        let left = |obstacle: &Obstacle| {
            let (left, wanted) = (fit::amount_text(*obstacle, &free), fit::amount_text(*obstacle, &self.pod.requests));
            match (obstacle, left, wanted) {
                (Obstacle::Pods, ..) => "no free pod slot".to_owned(),
                // What differs by less than is said.
                (_, Some(left), Some(wanted)) if left == wanted => {
                    format!("less than the {wanted} that it asks for")
                }
                (_, Some(left), Some(wanted)) => {
                    // What it is of is said once.
                    let left = left.split(' ').next().unwrap_or_default();
                    format!("only {left} of the {wanted} that it asks for")
                }
                _ => "too few devices".to_owned(),
            }
        };
        let lefts = list_text(&missing.iter().map(left).collect::<Vec<_>>());
        let what = list_text(&missing.iter().map(|obstacle| obstacle.as_str()).collect::<Vec<_>>());
        let gpus = match self.free_gpus(best.place) {
            _ if self.asked.is_empty() => "lets it in, but has".to_owned(),
            1 => "has 1 GPU free, but".to_owned(),
            free => format!("has {free} GPUs free, but"),
        };
        let others = match tried.len() {
            1 => String::new(),
            more => format!(" (and {} like it)", count_text(more - 1, "more node")),
        };
        let lacks = format!("node {node} {gpus} {lefts}{others}");
        if nearness == Nearness::Room {
            let see = command("kubectl describe node", &[&**name], "");
            return told.push("room", lacks, format!("Let it ask for less {what}, or wait until others end: {see}"));
        }
        let (worst, action) = self.worst(best.place, missing.first().copied().unwrap_or(Obstacle::Cpu));
        told.push("blocked", format!("{lacks}: {worst}"), action);
    }

    /// Who of the ordinary pods of a node takes most of what is missing, and how to get rid of it.
    fn worst(&self, place: &Place<'s>, missing: Obstacle) -> (String, String) {
        let mut takers: BTreeMap<String, (i64, Vec<&Occupant>)> = BTreeMap::new();
        let mut all = Amounts::default();
        let amount = |amounts: &Amounts| match missing {
            Obstacle::Cpu => amounts.cpu_milli,
            Obstacle::Memory => amounts.memory_bytes,
            Obstacle::EphemeralStorage => amounts.ephemeral_storage_bytes,
            _ => amounts.pods,
        };
        for pod in place.ordinary() {
            let own = || ObjectRef::new("v1", "Pod", &pod.namespace, &pod.name);
            let owner = pod.controller.clone().unwrap_or_else(own);
            let (taken, pods) = takers.entry(owner.to_string()).or_default();
            *taken += amount(&pod.requests);
            all += &pod.requests;
            pods.push(pod);
        }
        // The first by name of those that take the most.
        let Some((owner, (_, pods))) = takers.into_iter().rev().max_by_key(|(_, (most, _))| *most) else {
            return Default::default();
        };
        let mut own = Amounts::default();
        for pod in &pods {
            own += &pod.requests;
        }
        let text = |amounts: &Amounts| fit::amount_text(missing, amounts).unwrap_or_default();
        let worst = format!(
            "ordinary pods take {}, most of it {owner} ({}, {})",
            text(&all),
            count_text(pods.len(), "pod"),
            text(&own)
        );
        (worst, self.freeing(place, &owner, &pods))
    }

    /// How to free a node of the pods that take the most of it.
    fn freeing(&self, place: &Place<'s>, owner: &str, pods: &[&Occupant]) -> String {
        let name = &place.node.name;
        let names: Vec<_> = pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
        let start = format!("Free {} of {owner} ({})", visible(name), visible(&few(&names)));
        // What leaves already has no action.
        let Some(action) = pods.iter().map(|pod| &pod.action).find(|action| !action.is_empty()) else {
            return format!("{start}: wait until they are gone");
        };
        let mut pools = self.view.pools(place.standing.pools);
        let open = pools.find(|pool| pool.taints.iter().any(|taint| !place.node.fact.has_taint(taint)));
        let see = open.map(|pool| {
            let command = what_if_command(self.view.policy, &pool.name, name);
            format!(". See first what its taint would do to all that is there: {command}")
        });
        match see {
            Some(see) => format!("{start}{see}; then: {action}"),
            None => format!("{start}: {action}"),
        }
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
        let (nodes, have) = (count_text(tried.len(), "node"), if tried.len() == 1 { "has" } else { "have" });
        if largest < *wanted {
            let action = match largest {
                0 => format!("Correct the resource, or add a node{pool} that offers {resource}"),
                largest => format!("Ask for at most {largest} {resource} in one pod"),
            };
            let most = if largest == 0 { "no".to_owned() } else { format!("at most {largest}") };
            return told.push(
                "gpus",
                format!("{nodes}{pool} that it may be on {have} {most} {resource}, and it asks for {wanted}"),
                action,
            );
        }
        let (free, name) = most(&|place| place.room.free().of(resource));
        let (most, action) = match free {
            0 => (
                format!("no {resource} free"),
                format!("Wait until {wanted} are free on one node, or add a node{pool}"),
            ),
            free => (
                format!("at most {free} {resource} free ({})", visible(name)),
                format!("Wait until {wanted} are free on one node, ask for at most {free}, or add a node{pool}"),
            ),
        };
        told.push("gpus", format!("{nodes}{pool} that it may be on {have} {most}, and it asks for {wanted}"), action);
    }

    /// What the spec has against nodes, that of the nearest first; what to do is for the nearest alone.
    fn tell_barred(&self, tried: &[Tried<'_, 's>], told: &mut Told) {
        let Some(nearest) = tried.first() else { return };
        let mut actions = Vec::new();
        let mut sentences = Vec::new();
        let barred = |obstacle: Obstacle| tried.iter().filter(move |tried| tried.obstacles.has(obstacle)).collect();
        let taints: Vec<_> = barred(Obstacle::Taint);
        if let Some(first) = taints.first() {
            let is_nearest = nearest.obstacles.has(Obstacle::Taint);
            sentences.push((!is_nearest, "toleration", self.taints_sentence(first, taints.len())));
            actions.extend(is_nearest.then(|| self.taints_action(nearest)));
        }
        let labels: Vec<_> = barred(Obstacle::Label);
        if let Some(first) = labels.first() {
            let is_nearest = nearest.obstacles.has(Obstacle::Label);
            let (sentence, action) = self.labels(first, labels.len());
            sentences.push((!is_nearest, "label", sentence));
            actions.extend(is_nearest.then_some(action));
        }
        sentences.sort_by_key(|(is_further, ..)| *is_further);
        let mut action = actions.join("; and: ");
        for (_, cause, sentence) in sentences {
            told.push(cause, sentence, std::mem::take(&mut action));
        }
    }

    fn taints_sentence(&self, nearest: &Tried<'_, '_>, number: usize) -> String {
        let taints: Vec<_> = nearest.untolerated.iter().map(ToString::to_string).collect();
        let (node, taints) = (visible(&nearest.place.node.name), list_text(&taints));
        let (nodes, pool, taints) = (count_text(number, "node"), self.of_pool(), visible(&taints));
        let (have, nearest) = if number == 1 { ("has", "") } else { ("have", "nearest is ") };
        format!("{nodes}{pool} {have} a taint that it does not tolerate ({nearest}{node} with {taints})")
    }

    /// What to do about the taints of a node.
    fn taints_action(&self, tried: &Tried<'_, '_>) -> String {
        let known = |taint: &&&Taint| {
            self.view.policy.pools().iter().flat_map(|pool| &pool.taints).any(|known| taint.is(known))
        };
        let (own, foreign): (Vec<_>, Vec<_>) = tried.untolerated.iter().partition(known);
        let (passing, foreign): (Vec<_>, Vec<_>) =
            foreign.into_iter().partition(|taint: &&Taint| is_transient(&taint.key));
        let mut actions = Vec::new();
        if !foreign.is_empty() {
            let removed: Vec<_> = foreign.iter().map(|taint| format!("{taint}-")).collect();
            let (them, it) = if foreign.len() == 1 { ("taint", "it") } else { ("taints", "them") };
            actions.push(format!(
                "Remove the {them}, which the contract does not name ({}), or let the contract name {it}",
                taint_command(&tried.place.node.name, &removed, false)
            ));
        }
        if !passing.is_empty() {
            let texts: Vec<_> = passing.iter().map(ToString::to_string).collect();
            actions.push(format!("Wait: {} goes by itself", visible(&list_text(&texts))));
        }
        if !own.is_empty() {
            actions.push(self.toleration_action(&own));
        }
        actions.join("; and: ")
    }

    fn toleration_action(&self, taints: &[&Taint]) -> String {
        let namespace = visible(&self.pod.namespace);
        if let Some(pool) = self.pool()
            && pool.namespaces.membership(&self.pod.namespace, self.view) == Membership::Outside
        {
            let (pool, allowed) = (&pool.name, &pool.namespaces);
            return format!(
                "Namespace {namespace} may not use pool {pool} (allowed: {allowed}): run it in one that may"
            );
        }
        if self.pod.controller.is_some() && self.view.completed(self.pod).is_some() {
            let delete = self.command("kubectl delete pod", "");
            return format!("The webhook gives it the toleration when it is created anew: {delete}");
        }
        let known = |taint: &&&Taint| -> Option<&crate::policy::Taint> {
            self.view.policy.pools().iter().flat_map(|pool| &pool.taints).find(|known| taint.is(known))
        };
        let lines: Vec<_> = taints.iter().filter_map(|taint| known(&taint)).collect();
        let lines: Vec<_> = lines.into_iter().map(|taint| format!("- {}", taint.exact_toleration_text())).collect();
        format!("Add to the tolerations in its template: {}", lines.join(" and "))
    }

    /// What the pod selects that these nodes have not, and what to do about the nearest of them.
    fn labels(&self, nearest: &Tried<'_, '_>, number: usize) -> (String, String) {
        let (nodes, pool_words) = (count_text(number, "node"), self.of_pool());
        let fact = &nearest.place.node.fact;
        let node = visible(&nearest.place.node.name);
        let words = if number == 1 { "" } else { "nearest is " };
        let selector = self.spec.node_selector.iter().flat_map(|selector| &selector.value.0);
        let unmet =
            selector.map(|(key, value)| (&**key, &**value)).find(|(key, value)| fact.label(key) != Some(*value));
        let Some((key, wanted)) = unmet else {
            let are = if number == 1 { "is" } else { "are" };
            return (
                format!(
                    "{nodes}{pool_words} {are} not among those that its required node affinity admits ({words}{node})"
                ),
                "Correct spec.affinity.nodeAffinity in its template".to_owned(),
            );
        };
        let has = match fact.label(key) {
            Some(value) => format!("with {key}={value}"),
            None => "without such a label".to_owned(),
        };
        let own = self.pool().and_then(|pool| pool.node_selector.get(key));
        let action = match own {
            Some(own) if own == wanted => {
                let label = [format!("{key}={own}")];
                let is_taken = fact.label(key).is_some();
                format!("Label the node: {}", label_command(&nearest.place.node.name, &label, is_taken))
            }
            Some(own) => format!("Correct the nodeSelector in its template: {key}: {own}"),
            None => format!("Correct or remove {} in the nodeSelector of its template", visible(key)),
        };
        let lack = if number == 1 { "lacks" } else { "lack" };
        let selected = format!("{key}={wanted}");
        let (selected, has) = (visible(&selected), visible(&has));
        (format!("{nodes}{pool_words} {lack} {selected}, which it selects ({words}{node} {has})"), action)
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
            format!("{} {are} cordoned ({})", cordoned.len(), visible(&names)),
            format!("Let pods onto the node again: {}", command("kubectl uncordon", &[first], "")),
        );
    }
    let passing = of(Obstacle::PassingTaint);
    if let Some(first) = passing.first() {
        let (carry, names) = (if passing.len() == 1 { "node carries" } else { "nodes carry" }, few(&passing));
        told.push(
            "room",
            format!("{} {carry} a taint that comes and goes by itself ({names})", passing.len()),
            format!(
                "Wait: it goes by itself; what the node is at says {}",
                command("kubectl describe node", &[first], "")
            ),
        );
    }
    if let Some(first) = not_ready.first() {
        let (are, names) = (if not_ready.len() == 1 { "node is" } else { "nodes are" }, few(&not_ready));
        told.push(
            "room",
            format!("{} {are} not ready ({})", not_ready.len(), visible(&names)),
            format!("See why the node is not ready: {}", command("kubectl describe node", &[first], "")),
        );
    }
}
