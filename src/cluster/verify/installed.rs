//! Whether everything is there: the registrations, and replicas that API servers can trust.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;

use super::super::authority::Store;
use super::super::registrations::{FailurePolicy, Kind, Registration, RegistrationError};
use super::super::replicas::{self, Replica};
use super::super::{Installation, Said};
use super::{Check, Expectation};
use crate::certificate::verify;

const REGISTRATION: &str = "registration";
const EXCLUSIONS: &str = "exclusions";
const AUTHORITY: &str = "ca";
const LABELS: &str = "namespace-labels";
const NODE_LABELS: &str = "node-labels";
const REPLICAS: &str = "replicas";
const CERTIFICATE: &str = "certificate";
const CONTRACT: &str = "contract";

/// What the registrations say, for the checks that depend on it.
#[derive(Debug, Default)]
pub(super) struct Registered {
    pub(super) validating: Option<Registration>,
    pub(super) mutating: Option<Registration>,
}

pub(super) async fn registrations(
    client: &Client,
    installation: &Installation,
    expected: &Expectation<'_>,
    checks: &mut Vec<Check>,
) -> Registered {
    let mut registered = Registered::default();
    let vital = vital_namespaces(client, installation).await;
    for kind in Kind::ALL {
        let registration = match Registration::read(client, installation, kind).await {
            Ok(registration) => registration,
            Err(error) => {
                checks.push(absent(kind, &error));
                continue;
            }
        };
        checks.push(judge(&registration, installation, expected));
        checks.push(leaves_out(&registration, &vital));
        match kind {
            Kind::Validating => registered.validating = Some(registration),
            Kind::Mutating => registered.mutating = Some(registration),
        }
    }
    if let (Some(validating), Some(mutating)) = (&registered.validating, &registered.mutating)
        && validating.is_audit_only() != mutating.is_audit_only()
    {
        let only = if validating.is_audit_only() { validating } else { mutating };
        checks.push(Check::failed(
            REGISTRATION,
            format!("only the {} is audit only, and the other webhook acts", only.kind.name()),
            "an apply went half-way: kubectl apply what `gpufence manifests` prints again, with --server-side and \
             --force-conflicts where it was applied like that",
        ));
    }
    if expected.intent.keeps_authority {
        checks.push(match Store::new(client.clone(), installation).read().await {
            Ok(stored) if stored.state.is_some() => {
                Check::passed(AUTHORITY, format!("the Secret {} holds a CA", installation.authority))
            }
            Ok(_) => Check::failed(
                AUTHORITY,
                format!("the Secret {} holds no CA yet", installation.authority),
                controller_log(installation),
            ),
            Err(error) => Check::failed(AUTHORITY, error.to_string(), controller_log(installation)),
        });
    }
    registered
}

fn controller_log(Installation { namespace, name, .. }: &Installation) -> String {
    format!("kubectl -n {namespace} logs deployment/{name}-controller says what it waits for")
}

/// The labels of the namespaces whose pods must wait for nobody. One that cannot be read is left out.
async fn vital_namespaces(client: &Client, installation: &Installation) -> BTreeMap<String, BTreeMap<String, String>> {
    let api = Api::<Namespace>::all(client.clone());
    let mut vital = BTreeMap::new();
    for name in ["kube-system", installation.namespace.as_str()] {
        if let Ok(Some(found)) = api.get_metadata_opt(name).await {
            vital.insert(name.to_owned(), found.metadata.labels.unwrap_or_default());
        }
    }
    vital
}

/// Whether the namespaces are kept from the webhook, by the labels that they have.
fn leaves_out(registration: &Registration, vital: &BTreeMap<String, BTreeMap<String, String>>) -> Check {
    let kind = registration.kind.name();
    match vital.iter().find(|(_, labels)| registration.asks_in(labels)) {
        None => Check::passed(
            EXCLUSIONS,
            format!("{kind}: never asked in {}", vital.keys().map(String::as_str).collect::<Vec<_>>().join(" and ")),
        ),
        Some((name, labels)) if labels.get("kubernetes.io/metadata.name") != Some(name) => Check::failed(
            EXCLUSIONS,
            format!("{kind}: asked about the pods of {name}, which has no label with its own name"),
            format!(
                "API servers set the label since Kubernetes 1.21; on an older one: kubectl label namespace {name} \
                 kubernetes.io/metadata.name={name}"
            ),
        ),
        Some((name, _)) => Check::failed(
            EXCLUSIONS,
            format!(
                "{kind}: asked about the pods of {name}, which must wait for nobody: its namespaceSelector was changed"
            ),
            "kubectl apply what `gpufence manifests` prints",
        ),
    }
}

/// What is said of a registration that is not the installation's, or that cannot be read.
fn absent(kind: Kind, error: &RegistrationError) -> Check {
    match error {
        RegistrationError::Api { error, name, .. } => {
            Check::unanswered(REGISTRATION, &format!("the {} {name} cannot be read", kind.name()), error)
        }
        RegistrationError::Foreign { .. } => Check::failed(
            REGISTRATION,
            error.to_string(),
            "name the other installation with --namespace, or take it away and kubectl apply what `gpufence manifests` \
             prints for this one",
        ),
        RegistrationError::Missing { .. } | RegistrationError::NoHook { .. } => {
            Check::failed(REGISTRATION, error.to_string(), "kubectl apply what `gpufence manifests` prints")
        }
    }
}

fn judge(registration: &Registration, installation: &Installation, expected: &Expectation<'_>) -> Check {
    let what = format!("{} {}", registration.kind.name(), installation.name);
    let logs = controller_log(installation);
    if registration.bundles().any(<[u8]>::is_empty) {
        return Check::failed(REGISTRATION, format!("{what} has no caBundle yet, so that calls fail"), logs);
    }
    if let Some(hook) = registration.stale_hook(&expected.intent.match_conditions) {
        return Check::failed(
            REGISTRATION,
            format!(
                "{what}: the match conditions of {hook} are those of another contract: it is not asked about all pods"
            ),
            "a contract that was changed in the ConfigMap alone leaves them behind: kubectl apply what `gpufence manifests` \
             prints for it",
        );
    }
    let wanted = &expected.intent.match_conditions;
    let is_there = |name: &String| registration.hooks.iter().any(|hook| hook.name == *name);
    let mut validating = wanted.keys().filter(|name| **name != installation.hooks.mutate);
    if let (Kind::Validating, Some(missing)) = (registration.kind, validating.find(|name| !is_there(name))) {
        return Check::failed(
            REGISTRATION,
            format!(
                "{what} has no webhook {missing}, which the contract in force needs: what it would judge goes unseen"
            ),
            "kubectl apply what `gpufence manifests` prints for the contract",
        );
    }
    let now = registration.pod_hook().failure_policy;
    let unarmed = registration.armable(wanted).find(|hook| hook.failure_policy != now);
    if let (FailurePolicy::Fail, Some(hook)) = (now, unarmed) {
        let message = format!("{what}: failurePolicy of {} is still Ignore, and should be Fail", hook.name);
        return Check::failed(REGISTRATION, message, logs);
    }
    let way = if registration.is_audit_only() { ", audit only" } else { "" };
    let enforces = expected.intent.enforces_everywhere;
    match (registration.target, now) {
        (FailurePolicy::Fail, FailurePolicy::Ignore) if registration.is_audit_only() => Check::passed(
            REGISTRATION,
            format!("{what}: failurePolicy Ignore, audit only; Fail once it is applied without --audit-only"),
        ),
        (FailurePolicy::Fail, FailurePolicy::Ignore) if !enforces => Check::passed(
            REGISTRATION,
            format!("{what}: failurePolicy Ignore; Fail once the contract enforces in every namespace"),
        ),
        (FailurePolicy::Fail, FailurePolicy::Ignore) => {
            Check::failed(REGISTRATION, format!("{what}: failurePolicy is still Ignore, and should be Fail"), logs)
        }
        (FailurePolicy::Ignore, FailurePolicy::Ignore)
            if enforces && registration.kind == Kind::Validating && !registration.is_audit_only() =>
        {
            Check::skipped(
                REGISTRATION,
                format!("{what}: failurePolicy Ignore, and kept there: an outage lets pass what the contract refuses"),
                "if nobody wants that any more: gpufence arm",
            )
        }
        (FailurePolicy::Ignore, FailurePolicy::Fail) => {
            Check::failed(REGISTRATION, format!("{what}: failurePolicy is still Fail, and should be Ignore"), logs)
        }
        _ => Check::passed(REGISTRATION, format!("{what}: caBundle set, failurePolicy {now}{way}")),
    }
}

pub(super) async fn replicas(
    client: &Client,
    installation: &Installation,
    expected: &Expectation<'_>,
    registered: &Registered,
    checks: &mut Vec<Check>,
) {
    let Installation { namespace, name, .. } = installation;
    let found = match replicas::list(client, installation).await {
        Ok(found) => found,
        Err(error) => return checks.push(Check::unanswered(REPLICAS, "the webhook's pods cannot be listed", &error)),
    };
    let ready: Vec<_> = found.iter().filter(|replica| replica.is_ready).collect();
    let states = format!("kubectl -n {namespace} get pods and kubectl -n {namespace} logs deployment/{name} say why");
    let wanted = wanted_replicas(client, installation).await.unwrap_or(found.len()).max(found.len());
    let message = format!("{} of {wanted} replicas of the webhook are ready", ready.len());
    if ready.is_empty() {
        return checks.push(Check::failed(REPLICAS, message, states));
    }
    checks.push(if ready.len() < wanted {
        Check::failed(REPLICAS, message, states)
    } else {
        Check::passed(REPLICAS, message)
    });
    let bundles = [&registered.validating, &registered.mutating].map(|registration| {
        registration.as_ref().map(|registration| registration.pod_hook().ca_bundle.clone()).unwrap_or_default()
    });
    for replica in ready {
        let get = |path| ask(client, installation, replica, path);
        checks.push(match get("certificate").await {
            Ok(chain) => trusted(replica, &chain, &bundles, &installation.server_name),
            Err(error) => Check::failed(
                CERTIFICATE,
                format!("the replica {} does not show its certificate: {error}", replica.name),
                format!(
                    "is it still running (kubectl -n {namespace} get pods)? The API server must reach port {} of the pods, and \
                     you need `get pods/proxy`",
                    port(replica)
                ),
            ),
        });
        match get("metrics").await {
            Ok(metrics) => {
                checks.push(serves(replica, &metrics, expected.contract_sha256));
                if expected.policy.reads_namespace_labels() {
                    checks.push(knows(replica, &metrics, namespace, &NAMESPACES));
                }
                if expected.policy.reads_nodes() {
                    checks.push(knows(replica, &metrics, namespace, &NODES));
                }
            }
            Err(error) => checks.push(Check::failed(
                CONTRACT,
                format!("the replica {} does not say which contract it serves: {error}", replica.name),
                "see the check before",
            )),
        }
    }
}

/// How many replicas the Deployment asks for.
async fn wanted_replicas(client: &Client, installation: &Installation) -> Option<usize> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), &installation.namespace);
    let spec = deployments.get_opt(&installation.name).await.ok()??.spec?;
    usize::try_from(spec.replicas.unwrap_or(1)).ok()
}

/// For how many seconds what a replica keeps may not have been heard of. An API server speaks once a minute.
const STALE: i64 = 300;

fn port(replica: &Replica) -> u16 {
    replica.metrics_port.unwrap_or_default()
}

/// Asks a replica's health listener, through the API server: from outside, no pod can be reached otherwise.
async fn ask(client: &Client, installation: &Installation, replica: &Replica, path: &str) -> Result<String, String> {
    let Installation { namespace, .. } = installation;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}:{}/proxy/{path}", replica.name, port(replica));
    let request = axum::http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    client.request_text(request).await.map_err(|error| Said(&error).to_string())
}

fn trusted(replica: &Replica, chain: &str, bundles: &[Vec<u8>; 2], server_name: &str) -> Check {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes()).filter_map(Result::ok).collect();
    let now = OffsetDateTime::now_utc();
    let distrust = bundles.iter().find_map(|bundle| verify(&chain, bundle, server_name, now).err());
    match distrust {
        None => Check::passed(
            CERTIFICATE,
            format!("the replica {} serves a certificate that the caBundle accepts", replica.name),
        ),
        Some(distrust) => Check::failed(
            CERTIFICATE,
            format!("API servers refuse the certificate of the replica {}: {distrust}", replica.name),
            "with the source managed the controller's log says what it waits for; with files compare the Secret and the \
             caBundle",
        ),
    }
}

/// What a replica keeps of the cluster.
struct Cache {
    check: &'static str,
    what: &'static str,
    /// When it was last known to be current.
    metric: &'static str,
    /// What the contract does with it.
    use_of_it: &'static str,
    /// Since when it is needed.
    since: &'static str,
}

const NAMESPACES: Cache = Cache {
    check: LABELS,
    what: "the labels of namespaces",
    metric: "gpufence_namespace_labels_current_timestamp_seconds",
    use_of_it: "the contract goes by them",
    since: "began to select by labels",
};

const NODES: Cache = Cache {
    check: NODE_LABELS,
    what: "the labels and taints of nodes",
    metric: "gpufence_nodes_current_timestamp_seconds",
    use_of_it: "the rule node-name-bypass goes by them",
    since: "began to judge who puts pods onto nodes",
};

/// Whether the replica is told of what it should know.
fn knows(replica: &Replica, metrics: &str, namespace: &str, cache: &Cache) -> Check {
    let Cache { check, what, metric, use_of_it, since: began } = cache;
    let current = sum(metrics, metric, "");
    let age = OffsetDateTime::now_utc().unix_timestamp() - current;
    if age < STALE {
        return Check::passed(check, format!("the replica {} knows {what}", replica.name));
    }
    let since = if current == 0 { "has never read".to_owned() } else { format!("last heard {age} s ago of") };
    Check::failed(
        check,
        format!("the replica {} {since} {what}, and {use_of_it}", replica.name),
        format!(
            "its log says why: kubectl -n {namespace} logs {}; a contract that {began} needs the ClusterRole of `gpufence \
             manifests` for it",
            replica.name
        ),
    )
}

/// How many reviews of a webhook the ready replicas have answered that were dry runs; `None` where one does not say.
pub(super) async fn dry_runs(client: &Client, installation: &Installation, webhook: &str) -> Option<i64> {
    let mut total = 0;
    for replica in replicas::list(client, installation).await.ok()?.iter().filter(|replica| replica.is_ready) {
        let metrics = ask(client, installation, replica, "metrics").await.ok()?;
        let labels = [format!("webhook=\"{webhook}\""), "dry_run=\"true\"".to_owned()];
        let reviews = metrics.lines().filter(|line| labels.iter().all(|label| line.contains(label)));
        total += sum(&reviews.collect::<Vec<_>>().join("\n"), "gpufence_admission_requests_total", "{");
    }
    Some(total)
}

/// The sum of the series of a metric whose names go on with `after`.
fn sum(metrics: &str, name: &str, after: &str) -> i64 {
    let series = metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(after)));
    // Whole numbers, which the text format may write as floating ones.
    #[expect(clippy::cast_possible_truncation, reason = "counts and seconds are far below 2^53")]
    series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).map(|value| value as i64).sum()
}

fn serves(replica: &Replica, metrics: &str, wanted: &str) -> Check {
    let info = metrics.lines().find_map(|line| line.strip_prefix("gpufence_contract_info{"));
    let hash = info.and_then(|labels| labels.split("hash=\"").nth(1)?.split('"').next()).unwrap_or("none");
    if hash == wanted {
        Check::passed(CONTRACT, format!("the replica {} serves the contract {}", replica.name, short(hash)))
    } else {
        Check::failed(
            CONTRACT,
            format!("the replica {} serves the contract {}, and not {}", replica.name, short(hash), short(wanted)),
            "the kubelet takes up to two minutes to bring a changed ConfigMap; after that the replica's log says why the \
             contract was refused, or an environment variable GPUFENCE__… of the Deployment overrides it",
        )
    }
}

/// Enough of a hash to tell it from another.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
