//! What the contract's rules say of every pod: the same as the webhook, were each created as it is by whoever makes it.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use super::coverage::Exempting;
use super::remedy::Remedies;
use super::snapshot::Pod;
use super::stale::Uses;
use super::view::{Judged, View};
use super::words::command_in;
use super::words::delete_command;
use super::{Audit, Check, Finding, ObjectRef, Severity};
use crate::policy::{self, Decision, Fault, Kind, Rule, visible};

pub(super) fn judge(
    view: &View<'_>,
    audit: &mut Audit,
    uses: &mut Uses,
    unknown: &mut Unknown,
    exempting: &mut Exempting<'_, '_>,
) {
    let mut remedies = Remedies::new(view);
    for pod in view.snapshot.pods.iter().filter(|pod| !pod.is_over()) {
        let Judged { asked, decision } = view.judge(pod);
        let (object, controller) = (pod.object(), view.top_controller(pod));
        let about = |finding: Finding| {
            let finding = finding.made_by(controller);
            match &pod.node {
                Some(node) => finding.on_node(node),
                None => finding,
            }
        };
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                audit.findings.push(about(unreadable(&object, &error)));
                continue;
            }
        };
        unknown.note(&pod.namespace, &decision);
        uses.note(&decision, controller.unwrap_or(&object), true);
        // An exemption that spares the pod nothing but its completion is seen by nobody else.
        if uses.some_unseen() && (view.policy.fences_ordinary() || !asked.is_empty()) {
            uses.note_completion(view.complete(pod).as_ref());
        }
        let doubt = LazyCell::new(|| doubt(view, pod));
        for finding in &decision.findings {
            let exemption = controller.and_then(|controller| exempt(finding.rule, controller, exempting));
            let action = exemption.unwrap_or_else(|| advice(&mut remedies, finding, pod, controller));
            let action = format!("{action}{}", *doubt);
            audit.findings.push(about(of_rule(view, finding, &object, action)));
        }
        let of_fault =
            |fault: &Fault| about(of_fault(fault, &object, format!("Correct {} of {object}.", visible(&fault.field))));
        audit.findings.extend(decision.faults.iter().map(of_fault));
    }
}

/// A rule's own finding as one of the audit.
pub(super) fn of_rule(view: &View<'_>, finding: &policy::Finding, object: &ObjectRef, action: String) -> Finding {
    let policy::Finding { rule, pools, configured, field, .. } = finding;
    let message = visible(&finding.text()).into_owned();
    let found = Finding::new(Check::Contract(*rule), Severity::from(*configured), object.clone(), message, action);
    let found = found.at(field).particularly(field);
    match pools.first().filter(|_| pools.is_one()) {
        Some(index) => found.in_pool(&view.policy.pools()[index].name),
        None => found,
    }
}

/// A field that could not be read, whatever else the object says.
pub(super) fn of_fault(fault: &Fault, object: &ObjectRef, action: String) -> Finding {
    let message = format!("{fault}; what depends on it is not judged");
    Finding::new(Check::Unreadable, Severity::Medium, object.clone(), visible(&message), action)
        .at(&fault.field)
        .particularly(&fault.field)
}

/// An object that could not be read.
pub(super) fn unreadable(object: &ObjectRef, error: &str) -> Finding {
    let message = format!("it cannot be judged: {error}");
    let action = format!("Correct {object}: in mode enforce the webhook refuses what it cannot read.");
    Finding::new(Check::Unreadable, Severity::Medium, object.clone(), visible(&message), action)
}

/// What to do about a finding of a rule, and where: the message says what is wrong there.
fn advice<'s>(
    remedies: &mut Remedies<'_, 's>,
    finding: &policy::Finding,
    pod: &Pod,
    controller: Option<&'s ObjectRef>,
) -> String {
    let (rule, field, object) = (finding.rule, visible(&finding.field), pod.object());
    if rule == Rule::PlacementMissing {
        return anew(&object, controller);
    }
    let Some(maker) = controller else {
        // Nothing can be taken out of a pod.
        let change = change(rule, &format!("{field} of {object}"));
        return format!("{change} A pod stays as it was created: delete it and create it anew.");
    };
    if rule == Rule::NodeNameBypass && remedies.names_node(maker) == Some(false) {
        return format!(
            "Run {}: the template of {maker} does not have {field}. If the next pod has it again, something adds it, such \
             as an admission webhook.",
            delete_command(pod)
        );
    }
    let Some(kind) = Kind::of(maker.group(), &maker.kind) else {
        return change(rule, &format!("{field} of the pods that {maker} makes"));
    };
    let place = format!("{}{field}", kind.pod_path());
    match kind {
        Kind::Job => change_anew(rule, maker, &place),
        Kind::ReplicaSet if remedies.hides_its_owner(maker) => {
            change(rule, &format!("{place} of whoever owns {maker} (its Deployment, most likely)"))
        }
        Kind::ReplicaSet | Kind::ReplicationController => format!(
            "{} Then delete its pods: they are not replaced by themselves.",
            change(rule, &format!("{place} of {maker}"))
        ),
        _ => change(rule, &format!("{place} of {maker}")),
    }
}

/// What to do about a finding of a rule in what never changes once it is created.
pub(super) fn change_anew(rule: Rule, object: &ObjectRef, field: &str) -> String {
    let how = match rule {
        Rule::TolerationOutsideAllowlist | Rule::NodeNameBypass => format!("without {field}"),
        Rule::GpuRequestOutsideAllowlist => format!("without {field}, or in a namespace that may use the pool"),
        Rule::BroadToleration => format!("with {field} narrowed to the exact toleration, or without it"),
        Rule::TolerationWithoutGpuRequest => format!("without {field}, or with a request for a GPU"),
        Rule::NotUnderstood | Rule::PlacementConflict | Rule::PlacementMissing | Rule::LeverChange => {
            format!("with {field} corrected")
        }
    };
    format!("Delete {object} and create it anew {how}: the template of a Job cannot change.")
}

/// What to do about a toleration that a DaemonSet has because it serves every node.
pub(super) fn exempt(rule: Rule, maker: &ObjectRef, exempting: &mut Exempting<'_, '_>) -> Option<String> {
    if !matches!(rule, Rule::TolerationOutsideAllowlist | Rule::TolerationWithoutGpuRequest) {
        return None;
    }
    let exemption = visible(exempting.of(maker)?).into_owned();
    Some(format!("Let the contract allow it, as {maker} serves the nodes: under exemptions: {exemption}"))
}

/// What to do about a finding of a rule at a place.
pub(super) fn change(rule: Rule, place: &str) -> String {
    match rule {
        Rule::TolerationOutsideAllowlist | Rule::NodeNameBypass => format!("Remove {place}."),
        Rule::GpuRequestOutsideAllowlist => {
            format!("Remove {place}, or run it in a namespace that may use the pool.")
        }
        Rule::BroadToleration => format!("Narrow {place} to the exact toleration, or remove it."),
        Rule::TolerationWithoutGpuRequest => format!("Remove {place}, or request a GPU."),
        Rule::NotUnderstood | Rule::PlacementConflict | Rule::PlacementMissing | Rule::LeverChange => {
            format!("Correct {place}.")
        }
    }
}

/// How a pod comes to be created anew, and so past the mutating webhook.
fn anew(object: &ObjectRef, controller: Option<&ObjectRef>) -> String {
    let command = match controller {
        Some(ObjectRef { kind, namespace, name, .. })
            if matches!(&**kind, "Deployment" | "StatefulSet" | "DaemonSet") =>
        {
            command_in(namespace, &format!("kubectl rollout restart {}", kind.to_lowercase()), &[&**name], "")
        }
        _ => command_in(&object.namespace, "kubectl delete pod", &[&*object.name], ""),
    };
    let by_whom = if controller.is_none() { ", and create it anew" } else { "" };
    format!("Let the mutating webhook see it: {}{by_whom}.", visible(&command))
}

/// What to add of a pod that may be exempt by who creates it, which nothing in a stored pod proves.
fn doubt(view: &View<'_>, pod: &Pod) -> String {
    if !view.maker(pod).is_empty() {
        return String::new();
    }
    let may_cover = |exemption: &&policy::Exemption| {
        exemption.names_requesters()
            && !exemption.is_expired(view.now)
            && exemption.namespaces.as_ref().is_none_or(|names| names.matches(&pod.namespace))
    };
    match view.policy.exemptions().iter().find(may_cover) {
        Some(exemption) => format!(" Exemption {} may cover it: that depends on who creates it.", exemption.name),
        None => String::new(),
    }
}

/// What would have to be known to be sure of decisions: by that, of how many objects.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    namespaces: BTreeMap<String, usize>,
    nodes: BTreeMap<String, usize>,
}

impl Unknown {
    pub(super) fn note(&mut self, namespace: &str, decision: &Decision) {
        if decision.labels_unknown {
            *self.namespaces.entry(namespace.to_owned()).or_default() += 1;
        }
        if let Some(node) = &decision.node_unknown {
            *self.nodes.entry(node.clone()).or_default() += 1;
        }
    }

    /// Names what is not known.
    pub(super) fn tell(self, audit: &mut Audit) {
        let objects = |count: usize| format!("{count} {}", if count == 1 { "object" } else { "objects" });
        let namespaces = self.namespaces.into_iter().map(|(namespace, count)| {
            format!(
                "the labels of namespace {namespace} are not known, on which the verdict on {} depends",
                objects(count)
            )
        });
        let nodes = self.nodes.into_iter().map(|(node, count)| {
            format!("node {} is not known, on which the verdict on {} depends", visible(&node), objects(count))
        });
        audit.gaps.extend(namespaces.chain(nodes));
    }
}
