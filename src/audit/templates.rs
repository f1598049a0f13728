//! What the contract's rules say of the templates that make pods, running or scaled to zero, and which templates of GPU
//! pods rely on the webhook for their placement.

use super::coverage::Exempting;
use super::rules::{self, Unknown};
use super::snapshot::Workload;
use super::stale::{self, Uses};
use super::view::{View, subject};
use super::words::{list_text, sentence};
use super::{Audit, Check, Finding, ObjectRef, Severity};
use crate::policy::{CustomResource, Decision, Kind, Lacking, Mode, Requester, Rule, Unreadable, visible};

/// Judges pods and templates by the contract's rules, and the contract by what it leads to.
pub(super) fn judge(view: &View<'_>, audit: &mut Audit) {
    let (mut uses, mut unknown) = (Uses::of(view), Unknown::default());
    let mut exempting = Exempting::new(view);
    rules::judge(view, audit, &mut uses, &mut unknown, &mut exempting);
    for workload in &view.snapshot.workloads {
        let object = &workload.object;
        match Judged::of(view, workload) {
            Ok(judged) => {
                uses.note(&judged.decision, object, false);
                unknown.note(&object.namespace, &judged.decision);
                judged.tell(view, audit, workload, &mut exempting);
            }
            Err(error) => audit.findings.push(rules::unreadable(object, &error)),
        }
    }
    unknown.tell(audit);
    stale::judge(view, audit, &uses);
}

/// What admission would say of an object that makes pods, and what it would give its pods.
pub(super) struct Judged {
    pub(super) decision: Decision,
    lacking: Option<Lacking>,
}

impl Judged {
    /// Judges the object as if it were created as it is; or says why it cannot be.
    pub(super) fn of(view: &View<'_>, workload: &Workload) -> Result<Self, String> {
        let Workload { object, kind, .. } = workload;
        let resource = view.policy.custom_resource(object.group(), &object.kind);
        if let (Kind::Custom, Some(resource)) = (kind, resource) {
            let unreadable = |Unreadable { field, message }| match (&*field, message.starts_with(['[', '.'])) {
                ("", _) => message.trim_start_matches('.').to_owned(),
                (_, true) => format!("{field}{message}"),
                (_, false) => format!("{field}: {message}"),
            };
            return Self::of_custom(view, workload, resource).map_err(unreadable);
        }
        let read = kind.read(workload.json()).map_err(|_| kind.fault(workload.json()))?;
        let subject = subject(&object.namespace, Requester::default(), &read);
        Ok(Self { decision: view.policy.decide(&subject, view), lacking: view.policy.lacking(&subject, view) })
    }

    fn of_custom(view: &View<'_>, workload: &Workload, resource: &CustomResource) -> Result<Self, Unreadable> {
        let object = resource.read(workload.json())?;
        let templates = resource.find(&object)?;
        if let Some(excess) = templates.excess() {
            return Err(excess);
        }
        let whole = object.whole();
        let subject = subject(&workload.object.namespace, Requester::default(), &whole);
        Ok(Self {
            decision: view.policy.decide_several(&subject, &templates, None, view)?,
            lacking: view.policy.lacking_several(&subject, &templates, view),
        })
    }

    fn tell(&self, view: &View<'_>, audit: &mut Audit, workload: &Workload, exempting: &mut Exempting<'_, '_>) {
        let Self { decision, lacking } = self;
        let object = &workload.object;
        let hands = Hands::of(view, workload);
        for finding in &decision.findings {
            let exemption = rules::exempt(finding.rule, object, exempting);
            let action = exemption.unwrap_or_else(|| hands.change(finding.rule, &finding.field));
            audit.findings.push(rules::of_rule(view, finding, object, action));
        }
        for fault in &decision.faults {
            let action = hands.change(Rule::NotUnderstood, &fault.field);
            audit.findings.push(rules::of_fault(fault, object, action));
        }
        let lacking = lacking.iter().map(|lacking| without_placement(view, decision.mode, lacking, object, &hands));
        audit.findings.extend(lacking);
    }
}

/// In whose hands a template is.
enum Hands<'a> {
    /// Whoever writes the object.
    Own(&'a ObjectRef),
    /// It never changes once it is created.
    Fixed(&'a ObjectRef),
    /// An owner's of a kind that is not read, which would undo what is changed of the object.
    Owners { owner: &'a ObjectRef, path: &'static str },
}

impl<'a> Hands<'a> {
    fn of(view: &View<'a>, workload: &'a Workload) -> Self {
        match view.snapshot.top_controller(workload.controller.as_ref()) {
            Some(owner) => Self::Owners { owner, path: workload.kind.pod_path() },
            None if workload.kind == Kind::Job => Self::Fixed(&workload.object),
            None => Self::Own(&workload.object),
        }
    }

    fn change(&self, rule: Rule, field: &str) -> String {
        let field = visible(field);
        match self {
            Self::Own(object) => rules::change(rule, &format!("{field} of {object}")),
            Self::Fixed(object) => rules::change_anew(rule, object, &field),
            Self::Owners { owner, path } => {
                let field = field.strip_prefix(path).unwrap_or(&field);
                rules::change(rule, &format!("{field} of the pods that {owner} makes"))
            }
        }
    }

    /// Where something is added, and with which words.
    fn add(&self, what: &[(String, &str)]) -> String {
        let parts = |path: &str| -> Vec<String> {
            what.iter()
                .map(|(what, field)| format!("{what} to {}", field.strip_prefix(path).unwrap_or(field)))
                .collect()
        };
        let text = |path: &str| visible(&list_text(&parts(path))).into_owned();
        match self {
            Self::Own(_) => format!("add {}", text("")),
            Self::Fixed(object) => format!("delete {object} and create it anew, and add {}", text("")),
            Self::Owners { owner, path } => format!("add {} of the pods that {owner} makes", text(path)),
        }
    }
}

fn without_placement(view: &View<'_>, mode: Mode, lacking: &Lacking, object: &ObjectRef, hands: &Hands<'_>) -> Finding {
    let Lacking { pool, taints, labels, tolerations, node_selector } = lacking;
    let pool = &view.policy.pools()[*pool].name;
    let mut missing: Vec<_> = taints.iter().map(|taint| format!("the toleration of {taint}")).collect();
    missing.extend(labels.iter().map(|(key, value)| format!("the nodeSelector {key}={value}")));
    let mut add: Vec<(String, &str)> =
        taints.iter().map(|taint| (taint.exact_toleration_text(), tolerations.as_str())).collect();
    add.extend(labels.iter().map(|(key, value)| (format!("{key}: {value}"), node_selector.as_str())));
    let (missing, add) = (list_text(&missing), hands.add(&add));
    let (severity, message, action) = if mode == Mode::Audit {
        (
            Severity::Low,
            format!(
                "its pods request GPUs of pool {pool} and have not {missing}: in mode audit nobody gives it to them"
            ),
            format!(
                "{}; or set the mode to warn or enforce, in which the webhook gives it to each pod.",
                sentence(&add)
            ),
        )
    } else {
        (
            Severity::Info,
            format!("its pods request GPUs of pool {pool} and have {missing} from the webhook alone"),
            format!("Nothing, while the webhook runs. So that its pods need no webhook, {add}."),
        )
    };
    let field = if taints.is_empty() { node_selector } else { tolerations };
    Finding::new(Check::TemplateWithoutPlacement, severity, object.clone(), message, action).in_pool(pool).at(field)
}
