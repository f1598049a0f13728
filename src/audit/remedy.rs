//! What to do about a pod that does not belong on its node: the field to take away and whose it is, the taint to add,
//! and the pod to delete.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use super::outcome::Entry;
use super::snapshot::{Budget, Node, Pod};
use super::view::{Standing, View};
use super::words::{self, delete_command, list_text, what_if_command};
use super::{ObjectRef, Resource, fit};
use crate::policy::{Effect, Kind, PodSpec, Pool, Taint, Toleration, visible};

/// What is known of the templates of pods, each read once.
#[derive(Debug)]
pub(super) struct Remedies<'v, 's> {
    view: &'v View<'s>,
    templates: HashMap<&'s ObjectRef, Option<Template<'s>>>,
    /// The budgets that let no pod go now, by namespace.
    budgets: HashMap<&'s str, Vec<&'s Budget>>,
    /// Whether a node without GPUs is admitted, by what selects nodes.
    admitted: HashMap<String, bool>,
}

/// What stands against a plain deletion of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hindrance {
    /// The next pod finds no node.
    Nowhere,
    /// This budget lets no pod go now.
    Budget(String),
}

impl Hindrance {
    /// Whether it stands against what is done about pods of this kind of template: a rollout asks no budget, and the
    /// next Job is another.
    fn matters(&self, kind: Option<Kind>) -> bool {
        let is_rolled_out = matches!(kind, Some(Kind::Deployment | Kind::StatefulSet | Kind::CronJob | Kind::Job));
        *self == Self::Nowhere || !is_rolled_out
    }
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("no node without GPUs is one that its nodeSelector and affinity admit"),
            Self::Budget(budget) => write!(
                f,
                "PodDisruptionBudget {budget}, which covers it, allows no disruption now, and kubectl delete does not ask \
                 it, as kubectl drain does"
            ),
        }
    }
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
        let mut budgets: HashMap<&str, Vec<&Budget>> = HashMap::new();
        for budget in view.snapshot.budgets.iter().filter(|budget| budget.disruptions_allowed == Some(0)) {
            budgets.entry(&budget.namespace).or_default().push(budget);
        }
        Self { view, templates: HashMap::new(), budgets, admitted: HashMap::new() }
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
        let choices = self.choices(standing);
        let taints = choices.first().map(|(_, taints)| taints.clone()).unwrap_or_default();
        let commands: Vec<_> =
            choices.iter().filter_map(|(pool, taints)| Some((*pool, taint_command(node, taints)?))).collect();
        let is_fenced = commands.is_empty() || matches!(entry, Entry::NodeName);
        let what_if = choices.first().map(|(pool, _)| what_if_command(self.view.policy, &pool.name, &node.name));
        let what_if = what_if.unwrap_or_default();
        let is_new = |taint: &&Taint| !is_fenced && taint.effect == Effect::NoExecute && !node.fact.has_taint(taint);
        let evicting: Vec<_> = choices.iter().flat_map(|(_, taints)| taints).filter(is_new).collect();
        let stays = |taint: &&Taint| tolerations.iter().any(|toleration| toleration.tolerates(taint));
        let is_evicted = !evicting.iter().all(stays);
        let (mut first, then) = if is_fenced {
            (String::new(), "Run")
        } else {
            let command = |(pool, command): &(&Pool, String)| match commands.len() {
                1 => command.clone(),
                _ => format!("{command} for the pool {}", pool.name),
            };
            (format!("Run {}. ", commands.iter().map(command).collect::<Vec<_>>().join(", or ")), "Then run")
        };
        if !evicting.is_empty() {
            let _ = write!(first, "That evicts at once who does not tolerate it: {what_if} shows whom. ");
        }
        let controller = self.view.top_controller(pod);
        let hindrance = self.hindrance(pod);
        let template = controller.and_then(|controller| self.template(controller));
        let passes = Passes::of(pod, entry, tolerations, &taints, template);
        // Of a Job it is known without its template what can be done.
        let is_job = |controller: &&ObjectRef| Kind::of(controller.group(), &controller.kind) == Some(Kind::Job);
        let kind = template.map(|template| template.kind).or_else(|| controller.filter(is_job).map(|_| Kind::Job));
        let delete = delete_command(pod);
        let rest = match (controller, hindrance) {
            (None, hindrance) if is_evicted => {
                let beyond = hindrance.map(|hindrance| format!("; {hindrance}")).unwrap_or_default();
                return format!(
                    "Nothing makes this pod again: create it anew under another name first{beyond}. {}",
                    first.trim_end()
                );
            }
            (Some(controller), hindrance) if is_evicted && passes.is_empty() => match hindrance {
                Some(Hindrance::Budget(_)) | None => {
                    format!("{controller} makes another, which the taint keeps off")
                }
                Some(hindrance) => format!("{controller} makes another, but {hindrance}"),
            },
            (controller, Some(hindrance)) if hindrance.matters(kind) => {
                let hides_its_owner = controller.is_some_and(|controller| self.view.hides_its_owner(controller));
                passes.caution(controller, kind, hides_its_owner, &hindrance, &what_if)
            }
            (None, _) if passes.is_empty() => {
                format!("Nothing makes this pod again: create it anew under another name, then run {delete}")
            }
            (None, _) => {
                let fields = list_text(&passes.fields);
                format!("Nothing makes this pod again: run {delete}, and create it anew without {fields}")
            }
            (Some(controller), _) if passes.is_empty() => {
                format!("{then} {delete}: {controller} makes another, which the taint keeps off")
            }
            (Some(controller), _) => {
                passes.removal(pod, controller, kind, self.view.hides_its_owner(controller), &delete)
            }
        };
        first + &rest
    }

    /// The taints that the node is to have, with the pool that they are of: all of its pools', or each pool's by itself
    /// where nothing says which it is meant for.
    fn choices(&self, standing: Standing) -> Vec<(&'s Pool, Vec<Taint>)> {
        if standing.is_undecided {
            return self.view.pools(standing.pools).map(|pool| (pool, pool.taints.clone())).collect();
        }
        let named = standing.pools.and(standing.labelled);
        let pools = if named.is_empty() { standing.counted().first().into_iter().collect() } else { named };
        let mut taints: Vec<Taint> = Vec::new();
        for taint in self.view.pools(pools).flat_map(|pool| &pool.taints) {
            if !taints.contains(taint) {
                taints.push(taint.clone());
            }
        }
        self.view.pools(pools).next().map(|pool| (pool, taints)).into_iter().collect()
    }

    /// What stands against a plain deletion of the pod.
    fn hindrance(&mut self, pod: &Pod) -> Option<Hindrance> {
        if self.view.snapshot.knows_all(Resource::Nodes)
            && fit::with_spec(pod, |spec| self.has_other_node(spec)) == Some(false)
        {
            return Some(Hindrance::Nowhere);
        }
        let budgets = self.budgets.get(&*pod.namespace)?;
        let labels = fit::labels(pod);
        let covers = |budget: &&&Budget| budget.selector.as_ref().is_some_and(|selector| selector.matches(&labels));
        let budget = budgets.iter().find(covers)?;
        Some(Hindrance::Budget(format!("{}/{}", visible(&budget.namespace), visible(&budget.name))))
    }

    /// Whether the selectors of a pod admit a node without GPUs. Each that there is is tried once.
    fn has_other_node(&mut self, spec: &PodSpec<'_>) -> bool {
        let mut nodes = self.view.nodes().filter(|(_, standing)| standing.pools.is_empty());
        if spec.node_selector.is_none() && spec.affinity.is_none() {
            return nodes.next().is_some();
        }
        let selectors = format!("{:?} {:?}", spec.node_selector, spec.affinity);
        *self.admitted.entry(selectors).or_insert_with(|| nodes.any(|(node, _)| fit::selects(node, spec)))
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

    /// What to do where the pod must not simply be deleted.
    fn caution(
        &self,
        controller: Option<&ObjectRef>,
        kind: Option<Kind>,
        hides_its_owner: bool,
        hindrance: &Hindrance,
        what_if: &str,
    ) -> String {
        let fields = list_text(&self.fields);
        let start = match (controller, self.fields.is_empty()) {
            (None, _) => "Nothing makes this pod again, and one like it would not do".to_owned(),
            (Some(_), true) => "Do not delete the pod yet".to_owned(),
            (Some(controller), false) if kind == Some(Kind::Job) => format!(
                "Delete {controller} and create it anew without {fields} (the template of a Job cannot change), but not \
                 before its pods can be elsewhere"
            ),
            (Some(controller), false) if kind.is_some() => {
                format!("Remove {fields} from {controller}, but not before its pods can be elsewhere")
            }
            (Some(controller), false) if hides_its_owner => format!(
                "Remove {fields} from the template of whoever owns {controller} (its Deployment, most likely), but do not \
                 delete the pod yet"
            ),
            (Some(controller), false) => {
                format!("Remove {fields} from the template of {controller}, but do not delete the pod yet")
            }
        };
        let start = match (controller, hindrance) {
            (None, Hindrance::Budget(_)) => "Create it anew under another name, but do not delete it yet".to_owned(),
            (Some(controller), Hindrance::Budget(_)) if !self.fields.is_empty() && kind.is_some() => {
                format!("Remove {fields} from {controller}, but do not delete the pod yet")
            }
            _ => start,
        };
        format!("{start}: {hindrance}. {what_if} shows what would become of it")
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
