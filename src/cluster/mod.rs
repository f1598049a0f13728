//! The Kubernetes shell: the only place that speaks to an API server.
//!
//! Owns what is read from the cluster and what is kept right in it. It knows nothing of
//! `AdmissionReview`s, and the little that it knows of the policy comes to it as plain data
//! ([`Intent`], [`Probe`]).
//!
//! | module | owns | used by |
//! | --- | --- | --- |
//! | `follow` | the objects of a kind, by list and watch | `namespaces`, `nodes` |
//! | `namespaces` | the labels of namespaces, watched | `serve` |
//! | `nodes` | the labels and taints of nodes, watched | `serve` |
//! | `leaf` | the certificate that a replica makes for itself from the CA in a Secret | `serve` |
//! | `lease` | which controller leads, and which replica audits | `controller`, `continuous` |
//! | `authority` | the Secret with the CA | `controller`, `serve` |
//! | `registrations` | both webhook configurations: caBundle and failurePolicy, nothing else of them | `controller`, `verify` |
//! | `target` | the failurePolicy that people want: armed, or not at all | `arm` |
//! | `replicas` | the webhook's pods and the certificates that they serve | `controller`, `verify` |
//! | `probe` | a dry run through the API server that the webhook must refuse | `controller`, `verify` |
//! | [`pods`] | the pods of dry runs | `controller`, `verify` |
//! | `controller` | one look at all of these, and what follows from it | `controller` |
//! | `verify` | the acceptance test of an installation | `verify` |
//! | [`audit`] | the lists of everything that an audit reads | `audit` |
//! | [`reports`] | the objects in which an audit's findings are kept | `audit`, `serve` |
//! | [`continuous`] | audits again and again, in the replica that is elected | `serve` |

pub mod audit;
mod authority;
pub mod continuous;
pub mod controller;
mod follow;
mod leaf;
mod lease;
mod namespaces;
mod nodes;
pub mod pods;
mod probe;
mod registrations;
mod replicas;
pub mod reports;
mod target;
pub mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kube::Config;

pub use kube::{Client, Error as ApiError};

pub use leaf::{LeafError, follow as follow_authority};
pub use namespaces::Namespaces;
pub use nodes::Nodes;
pub use probe::Probe;
pub use registrations::{FailurePolicy, RegistrationError, insisting};
pub use target::{Armed, set_target};

/// After how long the API server ends a watch, and a new one is opened, in seconds. A watch that died without a
/// word is noticed soon after, and one a minute is no burden for an API server.
const WATCH_SECONDS: u32 = 60;

/// How long an answer may be silent. API servers give up on a request after a minute themselves, and watches end
/// before: what is silent for longer is dead. kube would wait for ever.
const SILENCE: Duration = Duration::from_secs(75);

/// The names that an installation has in the cluster. They come from what rendered its manifests, so that
/// the two cannot disagree.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The namespace of everything but the registrations.
    pub namespace: String,
    /// The namespace in which dry runs are made.
    pub probe_namespace: String,
    /// The Secret with the CA.
    pub authority: String,
    /// The Lease by which one controller leads.
    pub lease: String,
    /// The name of both webhook configurations, and of the Service that they call.
    pub name: String,
    /// The name under which API servers call the webhook, and which its certificate must have.
    pub server_name: String,
    /// Every name that its certificate has.
    pub certificate_names: Vec<String>,
    /// The labels of the webhook's pods, as `kubectl --selector` takes them.
    pub replicas: String,
    /// The webhook whose failurePolicy is armed, of each configuration.
    pub hooks: Hooks,
    /// The annotation of a configuration that names its target failurePolicy.
    pub target_annotation: String,
    /// The beginning of the paths under which the webhook only audits.
    pub audit_path: String,
}

/// The webhooks that are armed, by what they do.
#[derive(Debug, Clone)]
pub struct Hooks {
    /// The validating one for pods.
    pub validate: String,
    /// The validating one for Bindings, which is armed with it only where its match conditions leave schedulers out:
    /// otherwise an outage would end all scheduling.
    pub bindings: String,
    /// The mutating one for pods.
    pub mutate: String,
}

/// For each webhook the match conditions that a contract leads to, by name.
pub type MatchConditions = BTreeMap<String, BTreeMap<String, String>>;

/// What the controller should bring about, from the contract in force.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Whether the certificates are made from a CA in a Secret, which is to be kept together with the caBundle. With
    /// any other source somebody else keeps both, such as cert-manager.
    pub keeps_authority: bool,
    /// Whether the contract enforces in every namespace. Only then may an outage of the webhook be allowed to
    /// refuse a pod.
    pub enforces_everywhere: bool,
    /// A pod that the contract refuses in the probe's namespace; none where it refuses none there.
    pub probe: Option<Probe>,
    /// What the API server may keep from the webhooks. Those in the registrations come with the manifests; a contract
    /// that was changed without them leaves them behind.
    pub match_conditions: MatchConditions,
}

/// Why there is no API server to speak to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig that can be used nor the service account of a pod.
    #[error(
        "no cluster to speak to: this is no pod with a service account, and there is no kubeconfig that can be used \
         (KUBECONFIG, or else ~/.kube/config)"
    )]
    Config(#[source] kube::config::InferConfigError),
    /// The client cannot be set up.
    #[error("cannot use the cluster's configuration")]
    Client(#[source] kube::Error),
}

/// A client for the cluster of the kubeconfig or, in a pod, for its own. A busy API server is asked again a few times:
/// a command is run once.
pub async fn connect() -> Result<Client, ConnectError> {
    connect_to().await.map(|(client, _)| client)
}

/// The same, with the URL of the API server.
pub async fn connect_to() -> Result<(Client, String), ConnectError> {
    client(true).await
}

/// The same for a process that stays, and asks again by itself: the client's own attempts would only keep from the
/// log what is wrong, and come late when it is over.
pub async fn stay_connected() -> Result<Client, ConnectError> {
    client(false).await.map(|(client, _)| client)
}

async fn client(retries: bool) -> Result<(Client, String), ConnectError> {
    let mut config = Config::infer().await.map_err(ConnectError::Config)?;
    config.default_retry = retries;
    config.read_timeout = Some(SILENCE);
    // Otherwise it runs while a connection waits for its next request.
    config.reset_reader_on_write = true;
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = Client::try_from(config).map_err(ConnectError::Client)?;
    Ok((client, server))
}

/// What an API server's error says, without the struct around it.
#[derive(Debug)]
pub struct Said<'a>(pub &'a kube::Error);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            kube::Error::Api(status) => write!(f, "{} (code {})", status.message, status.code),
            other => {
                write!(f, "{other}")?;
                let mut source = std::error::Error::source(other).and_then(std::error::Error::source);
                while let Some(cause) = source {
                    write!(f, ": {cause}")?;
                    source = cause.source();
                }
                Ok(())
            }
        }
    }
}

/// Under which name the fields that are written here are known to belong to somebody: in the words of an API server
/// that finds two who want the same one.
pub(crate) const FIELD_MANAGER: &str = "gpufence";

/// Whether the API server answered with this code.
pub(crate) fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
