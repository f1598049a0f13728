//! Whether a node that is meant for GPU pods offers GPUs, and of one kind.

use super::{Subject, label, name_in};
use crate::audit::coverage;
use crate::audit::finding::{Check, Finding, Severity};
use crate::audit::snapshot::Resource;
use crate::audit::words::{label_command, shell_word, taint_command};

/// Labels by which node feature discovery and NVIDIA's own say that there is a GPU in the machine.
const PRESENT: [&str; 4] = [
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
];

const MIG_CONFIG: &str = "nvidia.com/mig.config";
const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";

/// How the name of a resource of slices begins.
const SLICE: &str = "mig-";

pub(super) fn judge(subject: &Subject<'_, '_>, findings: &mut Vec<Finding>) {
    findings.extend(without(subject));
    findings.extend(mixed(subject));
}

/// A node with the label or a taint of the pool offers GPUs of it.
fn without(subject: &Subject<'_, '_>) -> Option<Finding> {
    let (node, pool) = (subject.node, subject.pool);
    let total = |amounts: &[(std::sync::Arc<str>, i64)]| -> i64 {
        let own = amounts.iter().filter(|(resource, _)| pool.resources.matches(resource));
        own.map(|(_, amount)| *amount).fold(0, i64::saturating_add)
    };
    if total(&node.allocatable.extended) > 0 {
        return None;
    }
    let (name, gpus) = (subject.name(), subject.gpus());
    let carries = if subject.is_labelled() {
        format!("carries the label of the pool {}", pool.name)
    } else if pool.taints.iter().any(|taint| node.fact.has_taint(taint)) {
        format!("carries a taint of the pool {}", pool.name)
    } else if subject.standing.is_undecided {
        let names: Vec<_> = subject.choices().into_iter().map(|pool| pool.name.as_str()).collect();
        format!("is meant for one of the pools {}", names.join(", "))
    } else {
        format!("is meant for the pool {}", pool.name)
    };
    let mut reported = node.capacity.extended.iter().chain(&node.allocatable.extended);
    let reported = reported.find(|(resource, _)| pool.resources.matches(resource)).map(|(resource, _)| resource);
    let present = PRESENT.iter().find(|key| label(node, key) == Some("true"));
    let other = node.capacity.extended.iter().find_map(|(resource, amount)| {
        let of = subject.view.policy.pools().iter().find(|other| other.resources.matches(resource))?;
        (*amount > 0).then_some((resource, of))
    });
    let (found, action) = if !gpus.is_empty() {
        let why = "the device plugin has gone, or takes them all for broken";
        (format!("has {gpus}, none of them allocatable: {why}"), look_at(&node.name))
    } else if let Some((resource, of)) = other {
        (
            format!("offers none of its resources, but {resource}, which are those of the pool {}", of.name),
            format!(
                "{}, or let its pool be the one that it is labelled for",
                label_command(
                    &node.name,
                    &of.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>(),
                    true
                )
            ),
        )
    } else if let Some(resource) = reported {
        let why = "the device plugin was here and offers no GPU any more, or the driver sees none";
        (format!("has 0 {resource}: {why}"), look_at(&node.name))
    } else if let Some(key) = present {
        let why = format!("there is a GPU in it (label {key}), so that its driver or the device plugin is missing");
        (format!("offers no GPU: {why}, or has not started"), look_at(&node.name))
    } else {
        (
            format!(
                "offers no GPU ({}): the device plugin or the driver is missing, or has not started",
                pool.resources
            ),
            format!("{}; where it has no GPU: {}", look_at(&node.name), unmarking(subject)),
        )
    };
    let plugin = if other.is_none() || !gpus.is_empty() { plugin(subject) } else { String::new() };
    let message = format!("the node {name} {carries} and {found}{plugin}");
    Some(subject.finding(Check::NodeWithoutGpus, Severity::Medium, &message, &action).at("status.allocatable"))
}

fn look_at(name: &str) -> String {
    let selector = format!("spec.nodeName={name}");
    format!(
        "kubectl get pods --all-namespaces --field-selector {}: a pod of the device plugin should be there and run; its log \
         says what it sees",
        shell_word(&selector)
    )
}

/// The command that makes it an ordinary node again.
fn unmarking(subject: &Subject<'_, '_>) -> String {
    let (node, pool) = (subject.node, subject.pool);
    let labels = pool.node_selector.iter().filter(|(key, value)| label(node, key) == Some(value));
    let labels: Vec<_> = labels.map(|(key, _)| format!("{key}-")).collect();
    let taints = pool.taints.iter().filter(|taint| node.fact.has_taint(taint));
    let taints: Vec<_> = taints.map(|taint| format!("{taint}-")).collect();
    let mut commands = Vec::new();
    if !labels.is_empty() {
        commands.push(label_command(&node.name, &labels, false));
    }
    if !taints.is_empty() {
        commands.push(taint_command(&node.name, &taints, false));
    }
    commands.join(" && ")
}

/// Whether a device plugin is there, where the pods are known.
fn plugin(subject: &Subject<'_, '_>) -> String {
    if !subject.view.snapshot.knows_all(Resource::Pods) {
        return String::new();
    }
    let mut owners = subject.view.pods_on(&subject.node.name).iter().filter_map(|pod| pod.controller.as_ref());
    let is_plugin = |name: &str| coverage::role_of_name(name) == Some(coverage::DEVICE_PLUGIN);
    match owners.find(|owner| &*owner.kind == "DaemonSet" && is_plugin(&owner.name)) {
        Some(owner) => format!(" (a pod of the {owner} is on it)"),
        None => " (no pod of a device plugin is on it)".to_owned(),
    }
}

/// A node offers whole GPUs, or slices of one size.
fn mixed(subject: &Subject<'_, '_>) -> Option<Finding> {
    let (node, name) = (subject.node, subject.name());
    let is_slice = |resource: &str| name_in(resource).starts_with(SLICE);
    let offered = node.capacity.extended.iter().filter(|(resource, amount)| {
        let is_gpu = || subject.view.policy.pools().iter().any(|pool| pool.resources.matches(resource));
        *amount > 0 && (is_slice(resource) || is_gpu())
    });
    let (slices, whole): (Vec<_>, Vec<_>) = offered.partition(|(resource, _)| is_slice(resource));
    let config = label(node, MIG_CONFIG);
    let (found, field) = if slices.len() > 1 || !(slices.is_empty() || whole.is_empty()) {
        let all: Vec<_> =
            whole.iter().chain(&slices).map(|(resource, amount)| format!("{amount} {resource}")).collect();
        (format!("offers {} side by side", all.join(", ")), "status.capacity".to_owned())
    } else if let Some(config) = config.filter(|config| config.contains("balanced") || config.contains("mixed")) {
        let state = label(node, MIG_CONFIG_STATE).map(|state| format!(", {MIG_CONFIG_STATE}={state}"));
        let strategy = match label(node, MIG_STRATEGY) {
            Some("single") => format!("; with {MIG_STRATEGY}=single its device plugin offers none of them"),
            _ => String::new(),
        };
        let state = state.unwrap_or_default();
        (
            format!("is to be sliced in several ways ({MIG_CONFIG}={config}{state}){strategy}"),
            format!("metadata.labels[\"{MIG_CONFIG}\"]"),
        )
    } else {
        return None;
    };
    let largest = slices.iter().max_by_key(|(_, amount)| *amount);
    let profile = largest.and_then(|(resource, _)| name_in(resource).strip_prefix(SLICE)).unwrap_or("1g.10gb");
    let message =
        format!("the node {name} {found}: what is free of one kind is of no use to a pod that requests another");
    let action = format!(
        "where it is not meant so, slice all GPUs of a node alike, such as with: {}, once no GPU pod is on it",
        label_command(&node.name, &[format!("{MIG_CONFIG}=all-{profile}")], true)
    );
    Some(subject.finding(Check::NodeMixedMig, Severity::Low, &message, &action).at(field))
}
