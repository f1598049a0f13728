//! Whether everything is there: the registrations, and replicas that API servers can trust.

use kube::Client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;

use super::super::registrations::{FailurePolicy, Kind, Registration, RegistrationError};
use super::super::replicas::{self, Replica};
use super::super::{Installation, Said};
use super::{Check, Expectation};
use crate::certificate::verify;

const REGISTRATION: &str = "registration";
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
    for kind in Kind::ALL {
        let registration = match Registration::read(client, installation, kind).await {
            Ok(registration) => registration,
            Err(error) => {
                checks.push(absent(kind, &error));
                continue;
            }
        };
        checks.push(judge(&registration, installation, expected));
        match kind {
            Kind::Validating => registered.validating = Some(registration),
            Kind::Mutating => registered.mutating = Some(registration),
        }
    }
    registered
}

/// What is said of a registration that is not the installation's, or that cannot be read.
fn absent(kind: Kind, error: &RegistrationError) -> Check {
    match error {
        RegistrationError::Api { source, name, .. } => {
            Check::unanswered(REGISTRATION, &format!("the {} {name} cannot be read", kind.name()), source)
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
    let Installation { namespace, name, .. } = installation;
    let what = format!("{} {name}", registration.kind.name());
    let logs = format!("kubectl -n {namespace} logs deployment/{name}-controller says what it waits for");
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
    let now = registration.pod_hook().failure_policy;
    let way = if registration.is_audit_only() { ", audit only" } else { "" };
    let enforces = expected.intent.enforces_everywhere;
    match (registration.target, now) {
        (FailurePolicy::Fail, FailurePolicy::Ignore) if registration.is_audit_only() || !enforces => Check::passed(
            REGISTRATION,
            format!("{what}: failurePolicy Ignore{way}; Fail once the contract enforces in every namespace"),
        ),
        (FailurePolicy::Fail, FailurePolicy::Ignore) => {
            Check::failed(REGISTRATION, format!("{what}: failurePolicy is still Ignore, and should be Fail"), logs)
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
    let message = format!("{} of {} replicas of the webhook are ready", ready.len(), found.len());
    if ready.is_empty() {
        return checks.push(Check::failed(REPLICAS, message, states));
    }
    checks.push(if ready.len() < found.len() {
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
                format!("the API server must reach port {} of the pods, and you need `get pods/proxy`", port(replica)),
            ),
        });
        checks.push(match get("metrics").await {
            Ok(metrics) => serves(replica, &metrics, expected.contract_sha256),
            Err(error) => Check::failed(
                CONTRACT,
                format!("the replica {} does not say which contract it serves: {error}", replica.name),
                "see the check before",
            ),
        });
    }
}

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
