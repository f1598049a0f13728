//! Which DaemonSets reach the GPU nodes, and which would not once the nodes carry their pool's taints.

mod exempting;
mod role;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::finding::{Check, Finding, Severity};
use super::outcome::{Audit, Coverage};
use super::snapshot::{Node, Resource, Taint, Workload};
use super::view::View;
use super::words::{command_in, count_text};
use super::{nodes, view};
use crate::policy::{self, ComparisonOperators, Effect, Kind, NodeTaint, Pool, Rule, Toleration, visible};

pub(super) use exempting::Exempting;
pub(super) use role::{DEVICE_PLUGIN, role_of_name};

/// What the DaemonSet controller tolerates for every pod that it makes, by key and effect
/// (`AddOrUpdateDaemonPodTolerations` in `pkg/controller/daemon/util`).
const GIVEN: [(&str, Effect); 6] = [
    ("node.kubernetes.io/not-ready", Effect::NoExecute),
    ("node.kubernetes.io/unreachable", Effect::NoExecute),
    ("node.kubernetes.io/disk-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/unschedulable", Effect::NoSchedule),
];

/// The same for pods on the network of their node.
const GIVEN_ON_HOST_NETWORK: (&str, Effect) = ("node.kubernetes.io/network-unavailable", Effect::NoSchedule);

/// How many nodes a message names.
const NAMED: usize = 3;

/// How many causes a message names.
const CAUSES: usize = 8;

/// Holds every DaemonSet against the GPU nodes.
pub(super) fn judge(view: &View<'_>, audit: &mut Audit) {
    let ground = Ground::of(view);
    for workload in view.snapshot.workloads.iter().filter(|workload| workload.kind == Kind::DaemonSet) {
        // One that cannot be read is named elsewhere.
        let Ok(object) = workload.kind.read(workload.json()) else { continue };
        let Ok(own) = serde_json::from_str::<role::DaemonSet<'_>>(workload.json()) else { continue };
        let reach = ground.cover(workload, &object.pod.spec, &own);
        let (account, finding) = ground.conclude(workload, &reach);
        audit.daemon_sets.push(account);
        audit.findings.extend(finding);
    }
}

/// Whether a DaemonSet of every node would be on the node: not on one of another system, nor on one that is no machine.
fn is_ordinary(node: &Node) -> bool {
    let is = |key: &str, value: &str| node.labels.get(key).is_some_and(|own| **own == *value);
    !is("kubernetes.io/os", "windows")
        && !is("eks.amazonaws.com/compute-type", "fargate")
        && !is("type", "virtual-kubelet")
}

/// A GPU node, with its pool.
#[derive(Debug)]
struct Target<'s> {
    node: &'s Node,
    pool: &'s Pool,
    /// Whether it may as well be of another pool.
    is_undecided: bool,
}

/// What DaemonSets are held against.
#[derive(Debug)]
struct Ground<'v, 's> {
    view: &'v View<'s>,
    targets: Vec<Target<'s>>,
    /// The nodes that have nothing to do with GPUs.
    others: Vec<&'s Node>,
    /// On which GPU nodes there is a pod of a DaemonSet, by its namespace and name.
    present: HashMap<(&'s str, &'s str), HashSet<usize>>,
}

/// A node on which a DaemonSet is not, or will not be again, with the taints that it does not tolerate.
type Without<'s> = (&'s Target<'s>, Vec<&'s Taint>);

/// Where a DaemonSet is, is not, and would not be.
#[derive(Debug, Default)]
struct Reach<'s> {
    role: Option<&'static str>,
    expected: bool,
    selected: usize,
    running: usize,
    /// The nodes without a pod of it, each with the taints that keep it off.
    missing: Vec<Without<'s>>,
    /// The nodes that have a pod of it that was there before the taints.
    lingering: Vec<Without<'s>>,
    /// The nodes without a pod of it that take no pods now: nobody knows yet.
    away: Vec<&'s Target<'s>>,
    /// The nodes that it would leave once they carry their pool's taints.
    leaving: Vec<&'s Target<'s>>,
    /// The pools' taints that it does not tolerate, in order.
    untolerated: Vec<(&'s Pool, &'s policy::Taint)>,
    with_taints: usize,
}

impl<'v, 's> Ground<'v, 's> {
    fn of(view: &'v View<'s>) -> Self {
        let mut ground = Ground { view, targets: Vec::new(), others: Vec::new(), present: HashMap::new() };
        for (node, standing) in view.nodes() {
            match nodes::pool_of(view, node, standing) {
                Some(pool) => ground.targets.push(Target { node, pool, is_undecided: standing.is_undecided }),
                None if is_ordinary(node) => ground.others.push(node),
                None => {}
            }
        }
        for (place, target) in ground.targets.iter().enumerate() {
            let owners = view.pods_on(&target.node.name).iter().filter_map(|pod| pod.controller.as_ref());
            for owner in owners.filter(|owner| Kind::of(owner.group(), &owner.kind) == Some(Kind::DaemonSet)) {
                ground.present.entry((&*owner.namespace, &*owner.name)).or_default().insert(place);
            }
        }
        ground
    }

    fn cover<'g>(&'g self, workload: &Workload, spec: &policy::PodSpec<'_>, own: &role::DaemonSet<'_>) -> Reach<'g>
    where
        's: 'g,
    {
        let mut reach = Reach { role: own.role(&workload.object.name), ..Reach::default() };
        let on_host_network = own.spec.template.spec.host_network == Some(true);
        let tolerations = Tolerations { written: spec.tolerations(), on_host_network };
        let nobody = HashSet::new();
        let owner = (&*workload.object.namespace, &*workload.object.name);
        let present = self.present.get(&owner).unwrap_or(&nobody);
        let knows_pods = self.view.snapshot.knows_all(Resource::Pods);
        for (place, target) in self.targets.iter().enumerate().filter(|(_, target)| selects(spec, target.node)) {
            reach.selected += 1;
            let hard = target.node.taints.iter().filter(|taint| taint.is_hard());
            let (passing, lasting): (Vec<_>, Vec<_>) = hard
                .filter(|taint| !tolerations.pass(&taint.as_node_taint()))
                .partition(|taint| nodes::is_transient(&taint.key));
            let is_present = present.contains(&place);
            reach.running += usize::from(is_present);
            // What is not there for a while is not left out.
            let is_away = target.node.ready == Some(false) || !passing.is_empty();
            let is_tainted = !lasting.is_empty();
            if !is_present && is_away {
                reach.away.push(target);
            } else if !is_present && (is_tainted || knows_pods) {
                reach.missing.push((target, lasting));
            } else if is_tainted {
                reach.lingering.push((target, lasting));
            }
            // What is meant for one of several pools has no taint to come.
            let taints = target.pool.taints.iter().filter(|_| !target.is_undecided);
            let lacking: Vec<_> = taints.filter(|taint| !tolerations.pass(&taint.on_node())).collect();
            if lacking.is_empty() && !is_tainted {
                reach.with_taints += 1;
            } else if !is_tainted && !reach.missing.last().is_some_and(|(last, _)| std::ptr::eq(*last, target)) {
                reach.leaving.push(target);
            }
            for taint in lacking {
                if !reach.untolerated.iter().any(|(_, known)| *known == taint) {
                    reach.untolerated.push((target.pool, taint));
                }
            }
        }
        let elsewhere = self.others.iter().filter(|node| selects(spec, node)).count();
        // By what it selects: all nodes, or GPU nodes alone. What serves nodes selects nobody where a label is missing,
        // and other nodes alone where a second of its kind is for GPU nodes.
        let is_for_gpus = reach.selected > 0 && (elsewhere == self.others.len() || elsewhere == 0);
        let is_for_others = reach.selected == 0 && elsewhere > 0;
        reach.expected = is_for_gpus || (reach.role.is_some() && !is_for_others);
        reach
    }

    fn conclude(&self, workload: &Workload, reach: &Reach<'_>) -> (Coverage, Option<Finding>) {
        let mut add: Vec<String> = reach.untolerated.iter().map(|(_, taint)| taint.exact_toleration_text()).collect();
        // What only looks like a pool's taint is mended on the node, and what the contract does not know is to go.
        let mut is_to_be_mended = false;
        let mut foreign: BTreeMap<&Taint, Vec<&Target<'_>>> = BTreeMap::new();
        for (target, taints) in reach.missing.iter().chain(&reach.lingering) {
            let differing = nodes::differing(target.node, target.pool);
            for taint in taints {
                if differing.contains(taint) {
                    is_to_be_mended = true;
                } else if target.pool.taints.iter().any(|own| taint.is(own)) || nodes::says_gpu(&taint.key) {
                    let text = taint.exact_toleration_text();
                    if !add.contains(&text) {
                        add.push(text);
                    }
                } else {
                    foreign.entry(taint).or_default().push(target);
                }
            }
        }
        let names = |without: &[Without<'_>]| without.iter().map(|(target, _)| target.node.name.to_string()).collect();
        let account = Coverage {
            daemon_set: workload.object.clone(),
            role: reach.role,
            expected: reach.expected,
            selected: reach.selected,
            running: reach.running,
            missing: if reach.expected { names(&reach.missing) } else { Vec::new() },
            with_taints: reach.with_taints,
            // Who is for other nodes is to stay off these.
            add: if reach.expected { add } else { Vec::new() },
        };
        let is_right = reach.missing.is_empty() && reach.lingering.is_empty() && reach.leaving.is_empty();
        if !reach.expected || is_right {
            return (account, None);
        }
        let is_vital = reach.role.is_some_and(|role| role::VITAL.contains(&role));
        let severity = if is_vital && !reach.missing.is_empty() { Severity::High } else { Severity::Medium };
        let message = message(workload, reach);
        let action = self.action(workload, reach, &account.add, is_to_be_mended, &foreign);
        let finding = Finding::new(Check::DaemonSetLeftOut, severity, workload.object.clone(), message, action);
        let finding = finding.at("spec.template.spec.tolerations");
        let without = || reach.missing.iter().chain(&reach.lingering).map(|(target, _)| *target);
        let concerned = || without().chain(reach.leaving.iter().copied()).map(|target| target.pool);
        let pool = concerned().next().filter(|first| concerned().all(|pool| pool.name == first.name));
        let finding = match pool {
            Some(pool) => finding.in_pool(&pool.name),
            None => finding,
        };
        (account, Some(finding))
    }

    fn action(
        &self,
        workload: &Workload,
        reach: &Reach<'_>,
        add: &[String],
        is_to_be_mended: bool,
        foreign: &BTreeMap<&Taint, Vec<&Target<'_>>>,
    ) -> String {
        let object = &workload.object;
        let (namespace, name) = (visible(&object.namespace), visible(&object.name));
        let mut steps = Vec::new();
        if self.needs_exemption(workload, reach) {
            steps.push(format!(
                "let the contract allow it, under exemptions: {}",
                exempting::exemption(self.view.policy, &namespace, &name, reach.role)
            ));
        }
        if is_to_be_mended {
            steps.push("mend the taints of the nodes, which are almost the contract's".to_owned());
        }
        if !add.is_empty() {
            let owner = self.view.snapshot.top_controller(workload.controller.as_ref());
            let through = owner.map(|owner| format!(" through the {owner}, which keeps it")).unwrap_or_default();
            steps.push(format!("add to spec.template.spec.tolerations{through}: [{}]", add.join(", ")));
        }
        steps.extend(foreign.iter().take(NAMED).map(|(taint, targets)| {
            format!(
                "take the taint {} off {} when what it is there for is done: the contract does not have it, and only where \
                 it stays for good it needs a toleration",
                visible(&taint.to_string()),
                names(targets)
            )
        }));
        let unexplained: Vec<_> =
            reach.missing.iter().filter(|(_, taints)| taints.is_empty()).map(|(target, _)| *target).collect();
        if steps.is_empty() || !unexplained.is_empty() {
            let of = if steps.is_empty() { String::new() } else { format!("for {}: ", names(&unexplained)) };
            let describe = command_in(&object.namespace, "kubectl describe daemonset", &[&*object.name], "");
            steps.push(format!("{of}{describe}: its events say why"));
        }
        steps.join("; then ")
    }

    /// Whether admission would refuse its pods the tolerations that it lacks.
    fn needs_exemption(&self, workload: &Workload, reach: &Reach<'_>) -> bool {
        if reach.untolerated.is_empty() {
            return false;
        }
        let Ok(mut json) = serde_json::from_str::<serde_json::Value>(workload.json()) else { return false };
        let added = reach.untolerated.iter().map(|(_, taint)| taint.exact_toleration());
        let Some(spec) = json.pointer_mut("/spec/template/spec").and_then(serde_json::Value::as_object_mut) else {
            return false;
        };
        match spec.get_mut("tolerations").and_then(serde_json::Value::as_array_mut) {
            Some(tolerations) => tolerations.extend(added),
            None => drop(spec.insert("tolerations".to_owned(), added.collect())),
        }
        let json = json.to_string();
        let Ok(object) = workload.kind.read(&json) else { return false };
        let view::Judged { decision, .. } = self.view.judge_template(&workload.object.namespace, &object);
        decision.is_ok_and(|decision| {
            decision.findings.iter().any(|finding| finding.rule == Rule::TolerationOutsideAllowlist)
        })
    }
}

fn selects(spec: &policy::PodSpec<'_>, node: &Node) -> bool {
    spec.selects_node(&node.name, |key| node.labels.get(key).map(|value| &**value))
}

/// Whether a DaemonSet's pods get onto nodes with these taints, what its controller tolerates for them among it.
pub(super) fn is_let_in(workload: &Workload, spec: &policy::PodSpec<'_>, taints: &[Taint]) -> bool {
    let own = serde_json::from_str::<role::DaemonSet<'_>>(workload.json()).ok();
    let on_host_network = own.is_some_and(|own| own.spec.template.spec.host_network == Some(true));
    let tolerations = Tolerations { written: spec.tolerations(), on_host_network };
    taints.iter().filter(|taint| taint.is_hard()).all(|taint| tolerations.pass(&taint.as_node_taint()))
}

/// The tolerations of a DaemonSet's pods.
#[derive(Debug)]
struct Tolerations<'a> {
    written: &'a [Toleration<'a>],
    on_host_network: bool,
}

impl Tolerations<'_> {
    /// Whether they pass a taint for as long as the pod lives.
    fn pass(&self, taint: &NodeTaint<'_>) -> bool {
        let is_for_good =
            |toleration: &&Toleration<'_>| toleration.toleration_seconds.is_none() || &*taint.effect != "NoExecute";
        let tolerates = |toleration: &Toleration<'_>| toleration.tolerates_on_node(taint, ComparisonOperators::Known);
        let on_network = self.on_host_network.then_some(GIVEN_ON_HOST_NETWORK);
        let mut given = GIVEN.into_iter().chain(on_network).map(|(key, effect)| Toleration {
            key: key.into(),
            operator: "Exists".into(),
            effect: effect.as_str().into(),
            ..Toleration::default()
        });
        self.written.iter().filter(is_for_good).any(tolerates) || given.any(|toleration| tolerates(&toleration))
    }
}

/// Nodes with the same taints in the way, most nodes first.
fn by_cause<'t, 's>(without: &'t [Without<'s>]) -> Vec<(&'t [&'s Taint], Vec<&'s Target<'s>>)> {
    let mut causes: BTreeMap<&[&Taint], Vec<&Target<'_>>> = BTreeMap::new();
    for (target, taints) in without {
        causes.entry(taints).or_default().push(target);
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(_, targets)| std::cmp::Reverse(targets.len()));
    causes
}

/// Which taints it does not tolerate on which of the nodes.
fn causes_text(without: &[Without<'_>]) -> String {
    let untolerated = |taints: &[&Taint]| {
        let taints: Vec<_> = taints.iter().map(|taint| visible(&taint.to_string()).into_owned()).collect();
        format!("it does not tolerate {}", taints.join(", "))
    };
    let causes = by_cause(without);
    if let [(taints, targets)] = &*causes {
        let why = if taints.is_empty() { "no taint keeps it off".to_owned() } else { untolerated(taints) };
        return format!(" ({}): {why}", names(targets));
    }
    let mut said: Vec<_> = causes
        .iter()
        .take(CAUSES)
        .map(|(taints, targets)| {
            let why = if taints.is_empty() { "no taint keeps it off".to_owned() } else { untolerated(taints) };
            format!("{why} on {} of them ({})", targets.len(), names(targets))
        })
        .collect();
    let more: usize = causes.iter().skip(CAUSES).map(|(_, targets)| targets.len()).sum();
    if more > 0 {
        said.push(format!("other taints are in its way on {more} of them"));
    }
    format!(": {}", said.join(", "))
}

fn message(workload: &Workload, reach: &Reach<'_>) -> String {
    let role = reach.role.map(|role| format!(" ({role})")).unwrap_or_default();
    let mut said = Vec::new();
    if !reach.missing.is_empty() {
        let away = match &*reach.away {
            [] => String::new(),
            away => format!("; beside those {} ({}) take no pods now", away.len(), names(away)),
        };
        said.push(format!(
            "has no pod on {} of the {} that it selects{}{away}",
            reach.missing.len(),
            count_text(reach.selected, "GPU node"),
            causes_text(&reach.missing)
        ));
    }
    if !reach.lingering.is_empty() {
        said.push(format!(
            "is on {} only until its pod there is replaced{}",
            count_text(reach.lingering.len(), "GPU node"),
            causes_text(&reach.lingering)
        ));
    }
    if !reach.leaving.is_empty() {
        let untolerated: Vec<_> = reach.untolerated.iter().map(|(_, taint)| taint.to_string()).collect();
        let them = if reach.leaving.len() == 1 { "it carries" } else { "they carry" };
        said.push(format!(
            "would drop out of {} ({}) as soon as {them} the taint {}",
            count_text(reach.leaving.len(), "GPU node"),
            names(&reach.leaving),
            untolerated.join(", ")
        ));
    }
    format!("the {}{role} {}", workload.object, said.join("; and "))
}

fn names(targets: &[&Target<'_>]) -> String {
    let shown: Vec<_> = targets.iter().take(NAMED).map(|target| visible(&target.node.name)).collect();
    match targets.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
