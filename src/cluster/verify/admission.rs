//! What the API server makes of three pods, none of which is stored.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Pod, Toleration};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::super::probe::{self, Outcome as ProbeOutcome};
use super::super::{Installation, Said, has_code, pods};
use super::installed::{self, Registered};
use super::{Check, Expectation};
use crate::policy::{Membership, Mode, NamespaceLabels, Pool, is_glob};

const ORDINARY: &str = "ordinary-pod";
const REFUSED: &str = "refused-pod";
const INJECTED: &str = "gpu-pod";

/// An ordinary pod passes untouched.
pub(super) async fn ordinary(client: &Client, installation: &Installation, expected: &Expectation<'_>) -> Check {
    let namespace = expected.ordinary_namespace;
    let admitted = match dry_run(client, namespace, &pods::ordinary(namespace)).await {
        Ok(admitted) => admitted,
        Err(error) => {
            return not_admitted(ORDINARY, "an ordinary pod", namespace, "--ordinary-namespace", installation, &error);
        }
    };
    let given = expected.policy.pools().iter().find(|pool| {
        !own_tolerations(&admitted, pool).is_empty()
            || pool.node_selector.iter().any(|(key, _)| node_selector(&admitted).contains_key(key))
    });
    match given {
        None => Check::passed(ORDINARY, format!("an ordinary pod in the namespace {namespace} passes untouched")),
        Some(pool) => Check::failed(
            ORDINARY,
            format!("an ordinary pod in the namespace {namespace} was given terms of the pool {}", pool.name),
            "another mutating webhook, a RuntimeClass or the namespace's annotations give them: gpufence gives them only to \
             pods that request the pool's resources",
        ),
    }
}

/// A pod with a toleration of the pool is refused where it is not allowed.
pub(super) async fn refused(
    client: &Client,
    installation: &Installation,
    expected: &Expectation<'_>,
    registered: &Registered,
) -> Check {
    let namespace = &installation.probe_namespace;
    let audit_only =
        registered.validating.as_ref().is_some_and(super::super::registrations::Registration::is_audit_only);
    let Some(probe) = expected.intent.probe.as_ref().filter(|_| !audit_only) else {
        let why = if audit_only {
            "the webhook is registered as audit only".to_owned()
        } else {
            format!("the contract refuses nothing in the namespace {namespace}")
        };
        return Check::skipped(
            REFUSED,
            format!("nothing is refused: {why}"),
            "what would be refused is in the log, the metrics and the audit annotations",
        );
    };
    match probe::send(client, installation, probe).await {
        Ok(ProbeOutcome::Refused) => Check::passed(
            REFUSED,
            format!("a pod that tolerates a pool's taint in the namespace {namespace} is refused ({})", probe.rule),
        ),
        Ok(ProbeOutcome::Passed(what)) => Check::failed(
            REFUSED,
            format!(
                "a pod that tolerates a pool's taint in the namespace {namespace} was not refused by the webhook: {what}"
            ),
            "see the checks before; if they passed, the API server cannot reach the Service: firewall or NetworkPolicy",
        ),
        Err(error) if cannot_call(&error) => {
            Check::failed(REFUSED, format!("the webhook cannot be called: {}", Said(&error)), CANNOT_CALL)
        }
        Err(error) => Check::unanswered(REFUSED, "the dry run could not be made", &error),
    }
}

/// A GPU pod in a namespace that is allowed gets exactly its toleration and nodeSelector.
pub(super) async fn injected(
    client: &Client,
    installation: &Installation,
    expected: &Expectation<'_>,
    registered: &Registered,
) -> Check {
    let known = match namespaces(client).await {
        Ok(known) => known,
        Err(error) => return Check::unanswered(INJECTED, "the namespaces cannot be listed", &error),
    };
    let chosen = choose(expected, installation, &known);
    let Some((namespace, pool, resource)) = chosen else {
        return match expected.gpu_namespace {
            Some(named) => Check::failed(
                INJECTED,
                format!("the namespace {named} is not there, or not one that the contract allows to use a pool"),
                "name one that is in the allowlist of a pool",
            ),
            None => Check::skipped(
                INJECTED,
                "no namespace in the cluster is one that the contract allows to use a pool",
                "create one, and name it with --gpu-namespace",
            ),
        };
    };
    let asked_before = installed::dry_runs(client, installation, "mutate").await;
    let admitted = match dry_run(client, namespace, &pods::requesting(namespace, resource)).await {
        Ok(admitted) => admitted,
        Err(error) => {
            return not_admitted(INJECTED, "a GPU pod", namespace, "--gpu-namespace", installation, &error);
        }
    };
    let tolerations = json!(own_tolerations(&admitted, pool));
    let labels = node_selector(&admitted);
    let (wanted_tolerations, wanted_labels) = (pods::tolerations(pool), &pool.node_selector);
    let audit_only = registered.mutating.as_ref().is_some_and(super::super::registrations::Registration::is_audit_only);
    let mode = expected.policy.mode_in(namespace, &known).mode;
    let is_untouched = tolerations.as_array().is_some_and(Vec::is_empty) && labels.is_empty();
    if audit_only || mode == Mode::Audit {
        let asked = installed::dry_runs(client, installation, "mutate").await;
        // Untouched is also a pod about which nobody was asked.
        if asked.zip(asked_before).is_none_or(|(after, before)| after <= before) {
            return Check::failed(
                INJECTED,
                format!("a GPU pod in the namespace {namespace} passes untouched, and no replica was asked about it"),
                "the API server cannot reach the Service (firewall or NetworkPolicy), or the registration leaves the \
                 namespace out",
            );
        }
        return if is_untouched {
            Check::passed(
                INJECTED,
                format!("a GPU pod in the namespace {namespace} passes untouched, as audit wants it"),
            )
        } else {
            Check::failed(
                INJECTED,
                format!("a GPU pod in the namespace {namespace} was given {}", terms(&tolerations, labels)),
                "in audit gpufence gives nothing: another mutating webhook does",
            )
        };
    }
    if tolerations == wanted_tolerations && labels == wanted_labels {
        return Check::passed(
            INJECTED,
            format!("a GPU pod ({resource}) in the namespace {namespace} gets {}", terms(&tolerations, labels)),
        );
    }
    let found = if is_untouched { "nothing".to_owned() } else { terms(&tolerations, labels) };
    Check::failed(
        INJECTED,
        format!(
            "a GPU pod ({resource}) in the namespace {namespace} gets {found}, and should get exactly {}",
            terms(&wanted_tolerations, wanted_labels)
        ),
        "see the checks before; if they passed, another mutating webhook changes the same fields",
    )
}

/// The first namespace by name that may use a pool, with the pool and one of its resources.
fn choose<'a>(
    expected: &'a Expectation<'_>,
    installation: &Installation,
    known: &'a NamespaceLabels,
) -> Option<(&'a str, &'a Pool, &'a str)> {
    // No webhook is asked for these.
    let unfenced = |name: &str| name.starts_with("kube-") || name == installation.namespace;
    let mut names = known.0.keys().map(String::as_str).filter(|name| match expected.gpu_namespace {
        Some(wanted) => *name == wanted,
        None => !unfenced(name),
    });
    let usable = |namespace: &'a str| {
        expected.policy.pools().iter().find_map(|pool| {
            let resource = pool.resources.written().iter().find(|resource| !is_glob(resource))?;
            let allowed = pool.namespaces.membership(namespace, known) == Membership::Allowed;
            allowed.then_some((namespace, pool, resource.as_str()))
        })
    };
    names.find_map(usable)
}

async fn namespaces(client: &Client) -> Result<NamespaceLabels, kube::Error> {
    let found = Api::<Namespace>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let named = found.items.into_iter().map(|namespace| {
        let metadata = namespace.metadata;
        (metadata.name.unwrap_or_default(), metadata.labels.unwrap_or_default())
    });
    Ok(NamespaceLabels(named.collect()))
}

async fn dry_run(client: &Client, namespace: &str, pod: &Value) -> Result<Pod, kube::Error> {
    let pod: Pod = serde_json::from_value(pod.clone()).map_err(kube::Error::SerdeError)?;
    let parameters = PostParams { dry_run: true, field_manager: None };
    Api::namespaced(client.clone(), namespace).create(&parameters, &pod).await
}

/// What to do about an outage of something that is armed.
const CANNOT_CALL: &str = "pods are being refused because nobody answers: gpufence disarm ends that at once. Then see the \
                           checks before: replicas that do not run, a caBundle, or a firewall between API server and pods";

/// Whether the API server refused a request because a webhook that it insists on did not answer.
fn cannot_call(error: &kube::Error) -> bool {
    has_code(error, 500) && Said(error).to_string().contains("failed calling webhook")
}

/// A refusal of ours is a fault of ours; any other keeps us from asking.
fn not_admitted(
    id: &'static str,
    what: &str,
    namespace: &str,
    option: &str,
    installation: &Installation,
    error: &kube::Error,
) -> Check {
    let said = Said(error).to_string();
    let message = format!("{what} is not admitted in the namespace {namespace}: {said}");
    if has_code(error, 404) {
        return Check::failed(id, message, format!("name a namespace that is there with {option}"));
    }
    if cannot_call(error) {
        return Check::failed(id, message, CANNOT_CALL);
    }
    let hooks = &installation.hooks;
    if said.contains(&hooks.validate) || said.contains(&hooks.mutate) {
        Check::failed(id, message, "the message says which rule")
    } else {
        Check::skipped(id, message, format!("name a namespace that admits a small pod with {option}"))
    }
}

/// The tolerations on the keys of the pool's taints, written as the API server does.
fn own_tolerations(pod: &Pod, pool: &Pool) -> Vec<Toleration> {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let concerns = |toleration: &&Toleration| {
        pool.taints.iter().any(|taint| toleration.key.as_deref().is_none_or(|key| key == taint.key))
    };
    tolerations.filter(concerns).cloned().collect()
}

fn node_selector(pod: &Pod) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()).unwrap_or(&NONE)
}

fn terms(tolerations: &Value, labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("the tolerations {tolerations} and the nodeSelector {}", labels.join(","))
}
