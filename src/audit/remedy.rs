//! What to do about a pod that does not belong on its node: the field to take away and whose it is, the taint to add,
//! and the pod to delete.

use std::collections::HashMap;

use super::ObjectRef;
use super::outcome::Entry;
use super::snapshot::{Node, Pod};
use super::view::{Standing, View};
use super::words::{self, delete_command, list_text};
use crate::policy::{Kind, Taint, Toleration, visible};

/// What is known of the templates of pods, each read once.
#[derive(Debug)]
pub(super) struct Remedies<'v, 's> {
    view: &'v View<'s>,
    templates: HashMap<&'s ObjectRef, Option<Template<'s>>>,
}

/// What of a template lets its pods onto a node.
#[derive(Debug)]
struct Template<'s> {
    kind: Kind,
    tolerations: Vec<Toleration<'s>>,
    names_node: bool,
}

/// What of a pod lets it onto its node.
#[derive(Debug, Default)]
struct Passes {
    /// The fields to take away, by their paths in the template where that is known and has them.
    fields: Vec<String>,
    /// What the pod has and its template has not.
    foreign: Vec<String>,
}

impl<'v, 's> Remedies<'v, 's> {
    pub(super) fn new(view: &'v View<'s>) -> Self {
        Self { view, templates: HashMap::new() }
    }

    /// What to do about an ordinary pod on a GPU node.
    pub(super) fn of(
        &mut self,
        node: &Node,
        standing: Standing,
        pod: &'s Pod,
        entry: &Entry,
        tolerations: &[Toleration<'_>],
    ) -> String {
        let taints = self.taints(standing);
        let (first, then) = match taint_command(node, &taints) {
            Some(command) if !matches!(entry, Entry::NodeName) => (format!("Run {command}. "), "Then run"),
            _ => (String::new(), "Run"),
        };
        let controller = self.view.top_controller(pod);
        let template = controller.and_then(|controller| self.template(controller));
        let passes = Passes::of(pod, entry, tolerations, &taints, template);
        // Of a Job it is known without its template what can be done.
        let is_job = |controller: &&ObjectRef| Kind::of(controller.group(), &controller.kind) == Some(Kind::Job);
        let kind = template.map(|template| template.kind).or_else(|| controller.filter(is_job).map(|_| Kind::Job));
        let delete = delete_command(pod);
        let rest = match controller {
            None if passes.is_empty() => {
                format!("Nothing makes this pod again: create it anew under another name, then run {delete}")
            }
            None => {
                let fields = list_text(&passes.fields);
                format!("Nothing makes this pod again: run {delete}, and create it anew without {fields}")
            }
            Some(controller) if passes.is_empty() => {
                format!("{then} {delete}: {controller} makes another, which the taint keeps off")
            }
            Some(controller) => passes.removal(pod, controller, kind, self.view.hides_its_owner(controller), &delete),
        };
        first + &rest
    }

    /// The taints that the node is to have: its pools', or the first pool's where its labels do not say which it is.
    fn taints(&self, standing: Standing) -> Vec<Taint> {
        let named = standing.pools.and(standing.labelled);
        let pools = if named.is_empty() { standing.pools.first().into_iter().collect() } else { named };
        let mut taints: Vec<Taint> = Vec::new();
        for taint in self.view.pools(pools).flat_map(|pool| &pool.taints) {
            if !taints.contains(taint) {
                taints.push(taint.clone());
            }
        }
        taints
    }

    /// Whether the template of a controller's pods names a node; `None` where it is not known.
    pub(super) fn names_node(&mut self, controller: &'s ObjectRef) -> Option<bool> {
        self.template(controller).map(|template| template.names_node)
    }

    /// Whether the owner of a controller is not known, though it has one most likely.
    pub(super) fn hides_its_owner(&self, controller: &ObjectRef) -> bool {
        self.view.hides_its_owner(controller)
    }

    fn template(&mut self, controller: &'s ObjectRef) -> Option<&Template<'s>> {
        let snapshot = self.view.snapshot;
        let read = || {
            let place = snapshot.workloads.binary_search_by(|workload| workload.object.cmp(controller)).ok()?;
            let workload = &snapshot.workloads[place];
            // Where its templates stand in a custom resource only the contract knows, and there may be several.
            if workload.kind == Kind::Custom {
                return None;
            }
            let object = workload.kind.read(workload.json()).ok()?;
            let spec = &object.pod.spec;
            Some(Template {
                kind: workload.kind,
                tolerations: spec.tolerations().to_vec(),
                names_node: !spec.node_name.is_empty(),
            })
        };
        self.templates.entry(controller).or_insert_with(read).as_ref()
    }
}

/// The command that gives a node the taints that it lacks.
fn taint_command(node: &Node, taints: &[Taint]) -> Option<String> {
    let missing: Vec<_> = taints.iter().filter(|taint| !node.fact.has_taint(taint)).collect();
    // kubectl gives a key and an effect no other value unless it is told to.
    let is_taken =
        |taint: &Taint| node.taints.iter().any(|own| *own.key == *taint.key && &*own.effect == taint.effect.as_str());
    let overwrite = missing.iter().any(|taint| is_taken(taint));
    let changes: Vec<_> = missing.iter().map(ToString::to_string).collect();
    (!missing.is_empty()).then(|| words::taint_command(&node.name, &changes, overwrite))
}

impl Passes {
    fn of(
        pod: &Pod,
        entry: &Entry,
        tolerations: &[Toleration<'_>],
        taints: &[Taint],
        template: Option<&Template<'_>>,
    ) -> Self {
        let mut passes = Self::default();
        let path = template.map(|template| template.kind.pod_path()).unwrap_or_default();
        if matches!(entry, Entry::NodeName) {
            match template {
                Some(template) if !template.names_node => passes.foreign.push("spec.nodeName".to_owned()),
                _ => passes.fields.push(format!("{path}spec.nodeName")),
            }
        }
        let passes_all = taints.iter().all(|taint| tolerations.iter().any(|toleration| toleration.tolerates(taint)));
        // One taint that is not tolerated is enough; the one that the entry names is the one that people look at.
        let named = taints.iter().find(|taint| match entry {
            Entry::Tolerates { taint: named, .. } => *named == taint.to_string(),
            _ => true,
        });
        let Some(taint) = named.or(taints.first()).filter(|_| passes_all) else { return passes };
        for (place, toleration) in tolerations.iter().enumerate().filter(|(_, own)| own.tolerates(taint)) {
            let listed = |template: &Template<'_>| template.tolerations.iter().position(|own| own == toleration);
            match (template.map(listed), pod.controller.is_some()) {
                (Some(Some(place)), _) => passes.fields.push(format!("{path}spec.tolerations[{place}]")),
                (Some(None), _) => passes.foreign.push(format!("the toleration {toleration}")),
                (None, true) => passes.fields.push(format!("the toleration {toleration}")),
                (None, false) => passes.fields.push(format!("spec.tolerations[{place}]")),
            }
        }
        passes
    }

    fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.foreign.is_empty()
    }

    /// What to do where a controller makes the pods.
    fn removal(
        &self,
        pod: &Pod,
        controller: &ObjectRef,
        kind: Option<Kind>,
        hides_its_owner: bool,
        delete: &str,
    ) -> String {
        if self.fields.is_empty() {
            return format!(
                "Run {delete}: the template of {controller} does not have {}. If the next pod has it again, something adds \
                 it: a RuntimeClass, the annotation scheduler.alpha.kubernetes.io/defaultTolerations of namespace {}, \
                 or an admission webhook",
                list_text(&self.foreign),
                visible(&pod.namespace)
            );
        }
        let fields = list_text(&self.fields);
        match kind {
            Some(Kind::Deployment | Kind::StatefulSet) => {
                format!("Remove {fields} from {controller}: the pods that replace these stay off GPU nodes")
            }
            Some(Kind::CronJob) => {
                format!("Remove {fields} from {controller}: the pods of its next Jobs stay off GPU nodes")
            }
            Some(Kind::Job) => {
                format!("Delete {controller} and create it anew without {fields}: the template of a Job cannot change")
            }
            Some(_) => {
                format!("Remove {fields} from {controller}, then run {delete}: the next pod stays off GPU nodes")
            }
            None if hides_its_owner => format!(
                "Remove {fields} from the template of whoever owns {controller} (its Deployment, most likely), then run \
                 {delete}: the next pod stays off GPU nodes"
            ),
            None => format!(
                "Remove {fields} from the template of {controller}, then run {delete}: the next pod stays off GPU nodes"
            ),
        }
    }
}
