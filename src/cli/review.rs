//! `gpufence review`: the webhook's verdict on manifests, without a cluster.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value, json};

use super::contract_file;
use super::documents::{self, Found, Input};
use super::{Failure, Output, Success, load_contract, print};
use crate::policy::{Action, At, Controller, Facts, Fault, Kind, NamespaceLabels, Policy};
use crate::report::{self, Given, Verdict};
use crate::review::{self, Reviewed, Webhook};

/// Judge manifests as the webhook would, without a cluster
///
/// Takes manifests in YAML or JSON (several documents, Lists, whole folders) and recorded
/// AdmissionReviews. Each is judged by the same code as in the cluster: first what would be injected, then
/// what would be denied. For a Deployment or another workload the pods made from it are judged.
///
/// Exit code 1 says that a rule with the action deny found something, whether the contract's mode
/// enforces it already or not.
#[derive(Debug, Args)]
pub(super) struct Review {
    /// Files or folders; - is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The namespace of objects that name none
    #[arg(long, short, default_value = "default")]
    namespace: String,

    /// The user who would apply the manifests
    #[arg(long = "as", value_name = "USER", default_value = "", hide_default_value = true)]
    user: String,

    /// A group that the user is in; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,

    /// Show objects with nothing to say as well
    #[arg(long)]
    all: bool,

    /// The form of the report
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Review {
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let policy = load_contract(file)?.policy.judging_templates();
        let Input { found, mut faults, foreign } = documents::read(&self.files);
        let facts = At { facts: namespace_labels(&found), now: contract_file::now() };
        let mut review = report::Review { foreign, ..report::Review::default() };
        for Found { source, object } in found {
            let Some(judged) = Judged::of(&object, &self, &policy) else {
                review.pass_over(&object);
                continue;
            };
            match judged.verdict(&policy, &facts, source.clone()) {
                Ok(verdict) => review.verdicts.push(verdict),
                // The request is ours where a manifest was given.
                Err(error) if judged.is_manifest => {
                    faults.push(format!("{source}: {}", error.replace("request.object.", "")));
                }
                Err(error) => faults.push(format!("{source}: {error}")),
            }
        }
        print(&match self.output {
            // Where there was nothing to judge the faults say all.
            Output::Text if review.is_empty() && !faults.is_empty() => String::new(),
            Output::Text => report::text(&review, self.all),
            Output::Json => format!("{:#}\n", report::json(&review)),
        })?;
        if !faults.is_empty() {
            return Err(Failure::Input(anyhow!("{}", faults.join("\ngpufence: "))));
        }
        let broken = review.verdicts.iter().any(Verdict::breaks_contract);
        Ok(if broken { Success::Findings } else { Success::Clean })
    }
}

/// The labels of the namespaces among the manifests.
fn namespace_labels(found: &[Found]) -> NamespaceLabels {
    let namespaces = found
        .iter()
        .map(|found| &found.object)
        .filter(|object| object["kind"] == "Namespace" && object["apiVersion"] == "v1");
    let labels = |object: &Value| {
        let labels = object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        labels.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect()
    };
    NamespaceLabels(
        namespaces
            .filter_map(|object| Some((object["metadata"]["name"].as_str()?.to_owned(), labels(object))))
            .collect(),
    )
}

/// An object as the request that brings it, and the pod made from it where it is a template.
struct Judged {
    review: Value,
    /// Whether the request was made here, around a manifest.
    is_manifest: bool,
    pod_of_template: Option<Value>,
}

impl Judged {
    /// `None` for an object that carries no pod.
    fn of(object: &Value, options: &Review, policy: &Policy) -> Option<Self> {
        if object["kind"] == "AdmissionReview" {
            return Some(Self { review: object.clone(), is_manifest: false, pod_of_template: None });
        }
        let (group, version) = group_version(object["apiVersion"].as_str()?);
        let name = object["kind"].as_str()?;
        let kind = match Kind::of(group, name) {
            None if policy.custom_resource(group, name).is_some() => Kind::Custom,
            kind => kind?,
        };
        let namespace =
            object["metadata"]["namespace"].as_str().filter(|name| !name.is_empty()).unwrap_or(&options.namespace);
        let request = |(group, version, kind): (&str, &str, &str), user: Value, object: &Value| {
            json!({
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "request": {
                    "uid": "review",
                    "kind": {"group": group, "version": version, "kind": kind},
                    "operation": "CREATE",
                    "namespace": namespace,
                    "userInfo": user,
                    "object": object,
                },
            })
        };
        let user = json!({"username": options.user, "groups": options.groups});
        // Of a custom resource it is not known here what its controller makes of a template.
        let pod_of_template = (kind.is_template() && kind != Kind::Custom)
            .then(|| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let maker = Controller::of_pods(kind, name);
                let user = maker.as_ref().and_then(|(controller, _)| policy.identities().of(*controller).first());
                request(("", "v1", Kind::Pod.name()), json!({"username": user}), &pod_of(kind, object, maker))
            })
            .filter(|pod| pod["request"]["object"].is_object());
        Some(Self { review: request((group, version, name), user, object), is_manifest: true, pod_of_template })
    }

    fn verdict(&self, policy: &Policy, facts: &dyn Facts, source: String) -> Result<Verdict, String> {
        let mut review = self.review.clone();
        let body = review.to_string();
        let mutated = review::examine(policy, facts, Webhook::Mutate, body.as_bytes())?;
        let mut injection = given(&mutated, &review["request"]["object"], false);
        if let Some(given) = injection.as_ref().filter(|given| given.enforced) {
            json_patch::patch(&mut review["request"]["object"], &given.patch).map_err(|error| error.to_string())?;
        }
        let body = review.to_string();
        let Reviewed { mut decision, account } = review::examine(policy, facts, Webhook::Validate, body.as_bytes())?;
        // Where an allowlist asks for the labels, the finding says that they are not known.
        if decision.labels_unknown && policy.mode_in(&account.namespace, facts).labels_unknown {
            let namespace = &account.namespace;
            let message = format!(
                "is {namespace}, whose labels are not known, and rollout asks for them: judged in mode {}; give the \
                 Namespace too",
                decision.mode
            );
            decision.faults.push(Fault { field: "metadata.namespace".to_owned(), message });
        }
        if let Some(pod) = &self.pod_of_template {
            let body = pod.to_string();
            let mutated = review::examine(policy, facts, Webhook::Mutate, body.as_bytes())?;
            injection = given(&mutated, &pod["request"]["object"], true);
        }
        // What becomes of the pods counts, whatever the templates action makes of the template itself.
        let strongest = decision.findings.iter().map(|finding| finding.configured).max();
        let outcome = match (strongest, strongest.map(|action| action.min(decision.mode.ceiling())), &injection) {
            (Some(Action::Deny), Some(Action::Deny), _) => "deny",
            (Some(Action::Deny), _, _) => "would-deny",
            (Some(Action::Warn), Some(Action::Warn), _) => "warn",
            (_, _, Some(Given { enforced: true, .. })) => "inject",
            (Some(Action::Warn), _, _) => "would-warn",
            (_, _, Some(_)) => "would-inject",
            _ => account.outcome,
        };
        let object = &self.review["request"]["object"];
        Ok(Verdict {
            source,
            api_version: object["apiVersion"].as_str().unwrap_or_default().to_owned(),
            kind: self.review["request"]["kind"]["kind"].as_str().unwrap_or_default().to_owned(),
            is_template: self.pod_of_template.is_some(),
            namespace: account.namespace.to_string(),
            name: account.name.to_string(),
            mode: decision.mode,
            outcome,
            findings: decision.findings,
            injection,
            exempted: if decision.exempted.is_empty() { mutated.decision.exempted } else { decision.exempted },
            faults: decision.faults,
        })
    }
}

fn given(reviewed: &Reviewed<'_>, object: &Value, to_pods: bool) -> Option<Given> {
    let injection = reviewed.decision.injection.as_ref()?;
    Some(Given {
        purpose: injection.purpose.clone(),
        patch: injection.patch.clone(),
        added: report::added(object, &injection.patch),
        enforced: injection.enforced,
        to_pods,
    })
}

fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The pod that the workload's controller makes from its template.
fn pod_of(kind: Kind, workload: &Value, maker: Option<(Controller, Cow<'_, str>)>) -> Value {
    let path = kind.pod_path().split('.').filter(|key| !key.is_empty());
    let mut pod = path.fold(workload, |object, key| &object[key]).clone();
    if let Some(fields) = pod.as_object_mut() {
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("kind".to_owned(), Kind::Pod.name().into());
        let owners = maker.map(|(controller, name)| {
            let kind = controller.kind();
            let api_version = if kind.group().is_empty() { "v1".to_owned() } else { format!("{}/v1", kind.group()) };
            json!([{"apiVersion": api_version, "kind": kind.name(), "name": name, "controller": true}])
        });
        if let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut() {
            metadata.insert("ownerReferences".to_owned(), owners.unwrap_or_default());
        }
    }
    pod
}
