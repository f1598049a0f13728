//! Whether a GPU node carries its pool's taints, and no other that GPU pods do not pass.

use super::{Subject, differences, name_in};
use crate::audit::finding::{Check, Finding, Severity};
use crate::audit::snapshot::{Node, Taint};
use crate::audit::words::{list_text, taint_command};
use crate::policy::{self, Effect, Pool, visible};

/// Keys of taints that come and go by themselves, with a trailing slash for a prefix: what a node lives through, what
/// an autoscaler does to it, and what its agents take away once they run.
const TRANSIENT: [&str; 18] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "karpenter.sh/unregistered",
    "karpenter.sh/unschedulable",
    "node.cluster.x-k8s.io/uninitialized",
    "node.cluster.x-k8s.io/outdated-revision",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
    "node.cilium.io/agent-not-ready",
    "ebs.csi.aws.com/agent-not-ready",
    "efs.csi.aws.com/agent-not-ready",
    "fsx.csi.aws.com/agent-not-ready",
];

/// What a key says that means a GPU, whoever wrote it.
const GPU_WORDS: [&str; 3] = ["gpu", "nvidia", "accelerator"];

/// Whether the key of a taint says that the node has GPUs.
pub(in crate::audit) fn says_gpu(key: &str) -> bool {
    GPU_WORDS.iter().any(|word| key.to_ascii_lowercase().contains(word))
}

/// Whether a taint of this key comes and goes by itself.
pub(in crate::audit) fn is_transient(key: &str) -> bool {
    TRANSIENT.iter().any(|own| if own.ends_with('/') { key.starts_with(own) } else { key == *own })
}

/// The taints of a node that were probably meant to be those of the pool which it lacks.
pub(in crate::audit) fn differing<'n>(node: &'n Node, pool: &Pool) -> Vec<&'n Taint> {
    let missing: Vec<_> = pool.taints.iter().filter(|taint| !node.fact.has_taint(taint)).collect();
    let others = || {
        let strange = node.taints.iter().filter(|own| !pool.taints.iter().any(|taint| own.is(taint)));
        strange.filter(|own| !is_transient(&own.key))
    };
    let of_key = |own: &&Taint| missing.iter().any(|taint| own.key.eq_ignore_ascii_case(&taint.key));
    let same_key: Vec<_> = others().filter(of_key).collect();
    // Where one of the pool's taints is right, its key is known, and a taint of another key is meant as another.
    if !same_key.is_empty() || missing.is_empty() || missing.len() < pool.taints.len() {
        return same_key;
    }
    let is_meant = |own: &&Taint| {
        says_gpu(&own.key)
            || missing.iter().any(|taint| {
                name_in(&own.key).eq_ignore_ascii_case(name_in(&taint.key))
                    || (!own.value.is_empty() && own.value.eq_ignore_ascii_case(&taint.value))
            })
    };
    others().filter(is_meant).collect()
}

/// A node with GPUs, or with the pool's labels, has the pool's taints, and no other hard one.
pub(super) fn judge(subject: &Subject<'_, '_>, findings: &mut Vec<Finding>) {
    if !subject.offers() && !subject.is_labelled() {
        return;
    }
    let Subject { node, pool, .. } = *subject;
    let differing: Vec<_> = node
        .taints
        .iter()
        .filter(|own| subject.choices().into_iter().any(|pool| differing(node, pool).contains(own)))
        .collect();
    if !lacking(node, pool).is_empty() {
        findings.push(if differing.is_empty() { without(subject) } else { differs(subject, &differing) });
    }
    let is_extra = |own: &&Taint| {
        own.is_hard()
            && !is_transient(&own.key)
            && !subject.choices().into_iter().any(|pool| pool.taints.iter().any(|taint| own.is(taint)))
            && !differing.contains(own)
    };
    let extra: Vec<_> = node.taints.iter().filter(is_extra).collect();
    if !extra.is_empty() {
        findings.push(beyond(subject, &extra));
    }
}

/// The taints of the pool that the node has not.
fn lacking<'p>(node: &Node, pool: &'p Pool) -> Vec<&'p policy::Taint> {
    pool.taints.iter().filter(|taint| !node.fact.has_taint(taint)).collect()
}

fn without(subject: &Subject<'_, '_>) -> Finding {
    let Subject { node, pool, .. } = *subject;
    let gpus = subject.gpus();
    let what = if gpus.is_empty() { "carries the label".to_owned() } else { format!("has {gpus}") };
    let hard = node.taints.iter().filter(|own| own.is_hard() && !is_transient(&own.key));
    let (present, others): (Vec<_>, Vec<_>) = hard.partition(|own| pool.taints.iter().any(|taint| own.is(taint)));
    let texts = |taints: &[&Taint]| {
        let texts: Vec<_> = taints.iter().map(|own| visible(&own.to_string()).into_owned()).collect();
        texts.join(", ")
    };
    let open = match (&*present, &*others) {
        ([], []) => "any pod may run on it".to_owned(),
        ([], others) => format!("any pod that tolerates {} may run on it", texts(others)),
        (present, _) => {
            let present = texts(present);
            format!("a pod that tolerates {present} alone gets in, and admission takes it for one that does not")
        }
    };
    let mut wanted: Vec<_> = subject.choices().into_iter().map(|pool| joined(&lacking(node, pool), ", ")).collect();
    wanted.dedup();
    let message = format!("{} {what} and lacks the taint {}: {open}", subject.whose(), wanted.join(" or "));
    let action = subject.for_each_choice(|pool| {
        let missing = lacking(node, pool);
        let changes: Vec<_> = missing.iter().map(ToString::to_string).collect();
        taint_command(&node.name, &changes, false) + &subject.eviction(pool, &missing)
    });
    subject.finding(Check::NodeWithoutTaint, Severity::High, &message, &action).at("spec.taints")
}

fn differs(subject: &Subject<'_, '_>, differing: &[&Taint]) -> Finding {
    let node = subject.node;
    let mut said: Vec<_> = subject.choices().into_iter().map(|pool| said(&lacking(node, pool), differing)).collect();
    said.dedup();
    let message = format!("{} has {}", subject.whose(), said.join("; or "));
    let action = subject.for_each_choice(|pool| {
        let missing = lacking(node, pool);
        mending(&node.name, pool, &missing, differing, &subject.eviction(pool, &missing))
    });
    let place = node.taints.iter().position(|own| differing.contains(&own)).unwrap_or_default();
    subject.finding(Check::NodeTaintDiffers, Severity::High, &message, &action).at(format!("spec.taints[{place}]"))
}

/// How what a node has differs from what it lacks.
fn said(missing: &[&policy::Taint], differing: &[&Taint]) -> String {
    // Each missing taint is held against what is most like it; what is left stands beside.
    let mut left = differing.to_vec();
    let mut said = Vec::new();
    let mut absent = Vec::new();
    for wanted in missing {
        let likeness = |own: &&Taint| {
            (
                *own.key == *wanted.key,
                own.key.eq_ignore_ascii_case(&wanted.key),
                own.value.eq_ignore_ascii_case(&wanted.value),
                &*own.effect == wanted.effect.as_str(),
            )
        };
        let Some(own) = left.iter().copied().max_by_key(likeness) else {
            absent.push(*wanted);
            continue;
        };
        left.retain(|other| *other != own);
        let own_text = own.to_string();
        said.push(format!(
            "the taint {} where the contract says {wanted} ({}): {}",
            visible(&own_text),
            differences(&[
                ("key", &wanted.key, &own.key),
                ("value", &wanted.value, &own.value),
                ("effect", wanted.effect.as_str(), &own.effect),
            ]),
            consequence(wanted, own)
        ));
    }
    if !absent.is_empty() {
        said.push(format!("no taint {}", joined(&absent, ", ")));
    }
    let left: Vec<_> = left.into_iter().filter(|own| own.is_hard()).collect();
    if !left.is_empty() {
        let left: Vec<_> = left.iter().map(|own| visible(&own.to_string()).into_owned()).collect();
        said.push(format!("{} beside it, which GPU pods do not tolerate", left.join(", ")));
    }
    said.join("; and ")
}

/// The command that makes the taints right. kubectl gives a taint of the same key and effect another value only with
/// `--overwrite`, and would not remove it in the same breath.
fn mending(name: &str, pool: &Pool, missing: &[&policy::Taint], differing: &[&Taint], after: &str) -> String {
    let is_replaced =
        |own: &&&Taint| missing.iter().any(|taint| *own.key == *taint.key && &*own.effect == taint.effect.as_str());
    let removed = differing.iter().filter(|own| !is_replaced(own));
    let removed = removed.map(|own| format!("{own}-"));
    let changes: Vec<_> = missing.iter().map(ToString::to_string).chain(removed).collect();
    let command = taint_command(name, &changes, differing.iter().any(|own| is_replaced(&own))) + after;
    let has_key = |own: &&&Taint| missing.iter().any(|taint| own.key.eq_ignore_ascii_case(&taint.key));
    let foreign: Vec<_> = differing.iter().filter(|own| !has_key(own)).collect();
    if foreign.is_empty() {
        return command;
    }
    let foreign: Vec<_> = foreign.into_iter().map(|own| as_contract(own)).collect();
    format!(
        "{command}; or, where the nodes of the pool have that taint for good, let the pool {} say so: taints: [{}]",
        pool.name,
        foreign.join(", ")
    )
}

/// Hard taints beside those of the pool.
fn beyond(subject: &Subject<'_, '_>, extra: &[&Taint]) -> Finding {
    let Subject { node, pool, .. } = *subject;
    let name = subject.name();
    let texts: Vec<_> = extra.iter().map(ToString::to_string).collect();
    let removed: Vec<_> = texts.iter().map(|text| format!("{text}-")).collect();
    let evicts = extra.iter().any(|own| &*own.effect == Effect::NoExecute.as_str());
    let off = if evicts { "GPU pods are kept off and evicted" } else { "GPU pods are kept off" };
    let message = format!(
        "the node {name} carries the taint {}, which the tolerations of {} do not pass: {off}",
        visible(&texts.join(", ")),
        list_text(&subject.choices().into_iter().map(|pool| format!("the pool {}", pool.name)).collect::<Vec<_>>())
    );
    // The API server's plugin ExtendedResourceToleration tolerates a resource's own key for pods that request it.
    let tolerated = extra.iter().any(|own| pool.resources.matches(&own.key));
    let plugin = if tolerated {
        ", which matters less where the admission plugin ExtendedResourceToleration tolerates it for GPU pods"
    } else {
        ""
    };
    let contract: Vec<_> = extra.iter().map(|own| as_contract(own)).collect();
    let action = format!(
        "{}; or, where all nodes of the pool have it, add it to the taints of the pool {} in the contract: {}{plugin}",
        taint_command(&node.name, &removed, false),
        pool.name,
        contract.join(", ")
    );
    let place = node.taints.iter().position(|own| extra.contains(&own)).unwrap_or_default();
    subject.finding(Check::NodeExtraTaint, Severity::High, &message, &action).at(format!("spec.taints[{place}]"))
}

fn joined(taints: &[&policy::Taint], separator: &str) -> String {
    taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// The taint as a contract writes it.
fn as_contract(taint: &Taint) -> String {
    let Taint { key, value, effect } = taint;
    let value = if value.is_empty() { String::new() } else { format!("value: {}, ", policy::yaml_word(value)) };
    visible(&format!("{{key: {}, {value}effect: {effect}}}", policy::yaml_word(key))).into_owned()
}

/// What the taint that is there does, instead of what the contract's would.
fn consequence(wanted: &policy::Taint, own: &Taint) -> &'static str {
    match (&*own.effect, wanted.effect) {
        ("NoExecute", Effect::NoExecute) => "GPU pods do not tolerate it, and NoExecute evicts those that are there",
        ("NoExecute", _) => {
            "NoExecute evicts what runs there, and GPU pods with it, whose toleration is for NoSchedule alone"
        }
        ("NoSchedule", Effect::NoExecute) => {
            "NoSchedule evicts nobody, and keeps off GPU pods, whose toleration is for NoExecute alone"
        }
        ("NoSchedule", _) => "GPU pods do not tolerate it and are kept off",
        _ => "PreferNoSchedule only asks the scheduler and is no isolation, so that any pod may run on it",
    }
}
