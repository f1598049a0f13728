//! Every object of an installation, rendered from the contract itself, so that policy and installation
//! cannot disagree. Pure: a contract and [`Options`] in, objects out.
//!
//! | file | renders |
//! | --- | --- |
//! | `access` | namespaces, identities, and what each may do |
//! | `audits` | the rights to audit, and the CronJob that does |
//! | `workloads` | the contract's ConfigMap, the Service, the Deployments, the PodDisruptionBudget |
//! | `surroundings` | what only some clusters have: cert-manager, NetworkPolicies, monitors |
//! | `registrations` | the two webhook configurations |
//! | [`conditions`] | their match conditions |
//! | [`names`] | the names by which the parts know each other |
//!
//! Nothing rendered can block a pod: every hook comes with `failurePolicy: Ignore`. What it shall become is
//! an annotation, which the controller follows once the hook has proved itself.

pub mod conditions;
pub mod names;

mod access;
mod audits;
mod options;
mod registrations;
mod surroundings;
mod workloads;
mod yaml;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use options::{FailurePolicy, KubernetesVersion, Monitor, OptionError, Options, Origin, Tls};

use crate::contract::{Contract, TlsSource};
use crate::policy::{Action, Mode, Patterns, Policy, Rollout, Rule};

/// How long a replica goes on serving after SIGTERM where the contract does not say: as long as it takes
/// until no endpoint leads to it any more.
const DRAIN: Duration = Duration::from_secs(12);

/// From how many bytes on a contract is too large for kubectl's client-side apply: an object's annotations may have 256
/// KiB, and the contract stands there as JSON, with each line break and quotation mark escaped.
const LARGE: usize = 200 * 1024;

/// The objects of an installation.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifests {
    /// The objects, in the order in which they are applied: namespaces first, registrations last.
    pub objects: Vec<Value>,
    /// What is not as one might expect, and what it costs.
    pub notes: Vec<String>,
    /// What rendered them.
    head: Vec<String>,
}

impl Manifests {
    /// One stream of YAML, below comments that say what made it.
    ///
    /// # Errors
    /// Where the YAML writer fails, which it does not for these objects.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        let notes = self.notes.iter().flat_map(|note| wrapped(note));
        yaml::stream(&self.head.iter().cloned().chain(notes).collect::<Vec<_>>(), &self.objects)
    }
}

/// What all parts of an installation are rendered from.
struct Plan<'a> {
    options: &'a Options,
    /// The contract as it will be in force.
    contract: Contract,
    /// What the hooks for pods shall come to.
    validation: FailurePolicy,
    mutation: FailurePolicy,
}

/// Renders an installation that holds the contract.
///
/// # Errors
/// Where options, or options and contract, do not go together.
pub fn render(contract: &Contract, options: &Options) -> Result<Manifests, OptionError> {
    options.check()?;
    let (validation, mutation) = options.targets(contract.policy.mode())?;
    reachable(contract)?;
    let plan = Plan { options, contract: installed(contract, options), validation, mutation };
    if options.only_audit {
        return Ok(only_audit(&plan));
    }
    let text = contract_text(&plan.contract)?;
    let mut objects = access::namespaces(&plan);
    objects.extend(access::identities(&plan));
    objects.extend(surroundings::certificates(&plan));
    objects.extend(workloads::all(&plan, &text));
    objects.extend(audits::cron_job(&plan));
    objects.extend(surroundings::network_policies(&plan));
    objects.extend(surroundings::monitors(&plan));
    objects.extend(registrations::both(&plan));
    objects.iter_mut().for_each(without_nulls);
    let head = vec![
        format!("Rendered by gpufence {}: {options}", env!("CARGO_PKG_VERSION")),
        "The contract is in the ConfigMap; render again to change anything that follows from it.".to_owned(),
    ];
    let mut notes = notes(&plan);
    if text.len() > LARGE {
        notes.push(
            "a large contract: kubectl apply keeps a copy of it in an annotation that has no room for it. Use kubectl apply \
             --server-side --force-conflicts."
                .to_owned(),
        );
    }
    Ok(Manifests { objects, notes, head })
}

/// The CronJob that audits and what it needs, beside an installation that is as somebody else rendered it.
fn only_audit(plan: &Plan<'_>) -> Manifests {
    let mut objects = access::of_audits(plan);
    objects.extend(audits::cron_job(plan));
    objects.extend(
        surroundings::network_policies(plan).into_iter().filter(|policy| policy["metadata"]["name"] == names::AUDIT),
    );
    objects.iter_mut().for_each(without_nulls);
    let head = vec![
        format!("Rendered by gpufence {}: {}", env!("CARGO_PKG_VERSION"), plan.options),
        format!("Beside the installation in namespace {}, whose ConfigMap holds the contract.", plan.namespace()),
    ];
    Manifests { objects, notes: Vec::new(), head }
}

/// The contract with what an installation settles itself.
fn installed(contract: &Contract, options: &Options) -> Contract {
    let mut contract = contract.clone();
    contract.tls.source = match options.tls {
        Tls::Managed => TlsSource::Managed,
        Tls::Files { .. } | Tls::CertManager => TlsSource::Files {
            cert: format!("{}/tls.crt", names::TLS_DIRECTORY).into(),
            key: format!("{}/tls.key", names::TLS_DIRECTORY).into(),
        },
    };
    if contract.server.drain.is_zero() {
        contract.server.drain = DRAIN;
    }
    // The dry run that proves the hook must be judged as it will be, whatever else is rolled out. In audit
    // mode there is nothing to prove.
    let probe = names::probe_namespace(&options.namespace);
    if let (true, Ok(namespaces)) = (contract.policy.mode() != Mode::Audit, Patterns::new(vec![probe])) {
        contract.policy.rollout.insert(0, Rollout { namespaces, selector: None, mode: Mode::Enforce });
    }
    contract
}

/// Whether the listeners are there for others than the pod itself.
fn reachable(contract: &Contract) -> Result<(), OptionError> {
    let server = &contract.server;
    let check = |key, address: SocketAddr, port, other: Option<SocketAddr>| {
        let taken = other.is_some_and(|other| other.port() == address.port());
        if address.port() == 0 || !address.ip().is_unspecified() || taken {
            return Err(OptionError::Listener { key, address, port });
        }
        Ok(())
    };
    check("server.listen", server.listen, 8443, None)?;
    check("server.metrics", server.metrics, 9090, Some(server.listen))
}

fn contract_text(contract: &Contract) -> Result<String, OptionError> {
    contract.to_yaml().map_err(|error| OptionError::Contract(error.to_string()))
}

/// A note in lines that a terminal shows whole.
fn wrapped(note: &str) -> Vec<String> {
    const WIDTH: usize = 100;
    let mut lines = vec!["Note:".to_owned()];
    for word in note.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines
}

fn notes(plan: &Plan<'_>) -> Vec<String> {
    let Options { kubernetes, replicas, tls, audit_only, .. } = plan.options;
    let mut notes = Vec::new();
    if *audit_only && plan.contract.policy.mode() != Mode::Audit {
        notes.push(
            "registered for watching alone: nothing is changed or denied, whatever the contract's mode. Render without \
             --audit-only to enforce it."
                .to_owned(),
        );
    }
    if *replicas == 1 {
        notes.push("one replica: while its node is drained or lost nothing is judged.".to_owned());
    }
    if matches!(tls, Tls::Files { ca: None }) {
        notes.push(
            "no --ca-file, so the registrations have no caBundle: API servers trust the certificate only if the CAs of \
             their own system do, or if something else sets it."
                .to_owned(),
        );
    }
    if !kubernetes.has(30) {
        notes.push(format!(
            "no matchConditions, which Kubernetes {kubernetes} does not have: the API server calls gpufence for every pod \
             and workload that is created or updated, and each waits for the answer."
        ));
        if plan.policy().action(Rule::LeverChange) > Action::Off {
            notes.push(
                "lever-change is on, and without matchConditions the API server calls gpufence for everything that is \
                 written about a node, heartbeats of its status among it."
                    .to_owned(),
            );
        }
    }
    if !kubernetes.has(21) {
        if plan.policy().action(Rule::LeverChange) > Action::Off {
            notes.push(
                "lever-change sees no change of a node before Kubernetes 1.18.18, 1.19.10 and 1.20.6, which show webhooks the \
                 new node as the old one too (CVE-2021-25735)."
                    .to_owned(),
            );
        }
        notes.push(format!("no PodDisruptionBudget, whose policy/v1 Kubernetes {kubernetes} does not have."));
        notes.push(format!(
            "Kubernetes {kubernetes} does not label namespaces with their names, by which the registrations leave out \
             {}: set kubernetes.io/metadata.name on these yourself, before anything is enforced.",
            registrations::left_out(plan.options).join(", ")
        ));
    }
    notes
}

impl Plan<'_> {
    fn namespace(&self) -> &str {
        &self.options.namespace
    }

    fn policy(&self) -> &Policy {
        &self.contract.policy
    }

    fn is_managed(&self) -> bool {
        self.options.tls == Tls::Managed
    }

    /// Whether the registrations only watch.
    fn audits(&self) -> bool {
        self.options.audit_only || self.policy().mode() == Mode::Audit
    }

    /// Whether a replica reads anything from the API server.
    fn server_needs_api(&self) -> bool {
        self.is_managed()
            || self.policy().reads_namespace_labels()
            || self.policy().reads_nodes()
            || self.contract.audit.is_on()
    }

    /// An object in the installation's namespace.
    fn object(&self, api_version: &str, kind: &str, name: &str, component: Option<&str>) -> Value {
        let mut object = cluster_object(api_version, kind, name, component);
        object["metadata"]["namespace"] = self.namespace().into();
        object
    }
}

/// An object in no namespace.
fn cluster_object(api_version: &str, kind: &str, name: &str, component: Option<&str>) -> Value {
    let mut labels = json!({names::NAME_LABEL: names::INSTANCE, "app.kubernetes.io/managed-by": names::INSTANCE});
    if let Some(component) = component {
        labels[names::COMPONENT_LABEL] = component.into();
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": labels}})
}

/// The labels by which the pods of a component are selected.
fn selector(component: &str) -> Value {
    json!({names::NAME_LABEL: names::INSTANCE, names::COMPONENT_LABEL: component})
}

/// The object with further fields.
fn with(mut object: Value, fields: Value) -> Value {
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    object
}

/// Takes out what is null: an option that is not used.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Object(fields) => {
            let kept: Map<_, _> = std::mem::take(fields).into_iter().filter(|(_, value)| !value.is_null()).collect();
            *fields = kept;
            fields.values_mut().for_each(without_nulls);
        }
        _ => {}
    }
}
