//! What a serving process takes from the cluster that it runs in: the labels of namespaces, the labels and
//! taints of nodes, and the CA that its certificate is made from. Each only where the contract asks for it.
//!
//! Namespaces and the CA are waited for, since without them what the contract says cannot be done. Nodes are
//! not, or not for long: the contract says what counts while they are not known.

use std::convert::Infallible;
use std::fmt;
use std::future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use time::OffsetDateTime;
use tokio::sync::{OnceCell, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::installation::installation;
use crate::certificate::rotation::Schedule;
use crate::certificate::{Authority, Leaf};
use crate::cluster::{self, Client, ConnectError, Namespaces, Nodes};
use crate::lifecycle::{Readiness, ReadyHandle};
use crate::policy::{Facts, LabelSelector, Node, NodeFact, Policy};
use crate::server::tls::{Credentials, Identity, TlsError};
use crate::server::{ClusterLookup, Labels, LookingUp};
use crate::telemetry::metrics::Metrics;

/// How long to wait for a cluster that a reloaded contract asks for and that cannot be reached.
const RETRY: Duration = Duration::from_secs(10);

/// How long a process waits for the first list of nodes before it is ready without it. Who upgrades and has not
/// granted the right to read nodes yet must not lose the webhook.
const NODES_WITHIN: Duration = Duration::from_secs(10);

/// What the cluster tells, each known from when the first contract asks for it.
#[derive(Default)]
pub(super) struct Live {
    namespaces: Namespaces,
    nodes: Nodes,
    client: OnceCell<Client>,
}

/// The client has nothing to show.
impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("namespaces", &self.namespaces).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Facts for Live {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.namespaces.meets(namespace, selector)
    }

    fn node(&self, name: &str) -> NodeFact {
        self.nodes.get(name)
    }

    fn now(&self) -> i64 {
        OffsetDateTime::now_utc().unix_timestamp()
    }
}

impl ClusterLookup for Live {
    fn look_up_namespace<'a>(&'a self, namespace: &'a str) -> LookingUp<'a, Labels> {
        Box::pin(async move {
            let labels = self.namespaces.look_up(self.connected()?, namespace).await.map_err(anyhow::Error::from)?;
            Ok(labels.map(Arc::unwrap_or_clone))
        })
    }

    fn look_up_node<'a>(&'a self, name: &'a str) -> LookingUp<'a, Arc<Node>> {
        Box::pin(async move { Ok(self.nodes.look_up(self.connected()?, name).await.map_err(anyhow::Error::from)?) })
    }
}

impl Live {
    /// The client, made by whoever needs it first.
    pub(super) async fn client(&self) -> Result<&Client, ConnectError> {
        self.client.get_or_try_init(cluster::stay_connected).await
    }

    /// The client where there is one.
    fn connected(&self) -> anyhow::Result<&Client> {
        self.client.get().context("there is no connection to an API server (yet)")
    }

    /// Watches the namespaces once a policy asks for their labels, and from then on for ever.
    pub(super) async fn follow_namespaces(
        self: Arc<Self>,
        mut policies: watch::Receiver<Arc<Policy>>,
        ready: Option<ReadyHandle>,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<()> {
        policies.wait_for(|policy| policy.reads_namespace_labels()).await?;
        let client = loop {
            match self.client().await {
                Ok(client) => break client.clone(),
                // Only after a reload: at the start it would have ended the process.
                Err(error) => {
                    tracing::error!(
                        error = format!("{:#}", anyhow::Error::from(error)),
                        "the contract selects namespaces by their labels, and they cannot be read"
                    );
                    sleep(RETRY).await;
                }
            }
        };
        let known = || ready.into_iter().for_each(ReadyHandle::ready);
        match self.namespaces.follow(client, known, metrics).await {}
    }

    /// Watches the nodes once a policy asks for them, and from then on for ever. A process that has no cluster is
    /// ready without them, and so is one that has waited for long enough.
    pub(super) async fn follow_nodes(
        self: Arc<Self>,
        mut policies: watch::Receiver<Arc<Policy>>,
        mut ready: Option<ReadyHandle>,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<()> {
        policies.wait_for(|policy| policy.reads_nodes()).await?;
        let mut said = false;
        let client = loop {
            match self.client().await {
                Ok(client) => break client.clone(),
                Err(error) if !said => {
                    said = true;
                    tracing::warn!(
                        error = format!("{:#}", anyhow::Error::from(error)),
                        "nodes are not known: for a pod put onto one past the scheduler the contract's nodes.whenUnknown counts"
                    );
                }
                Err(_) => {}
            }
            ready.take().into_iter().for_each(ReadyHandle::ready);
            sleep(RETRY).await;
        };
        let (known, first) = oneshot::channel();
        let tell = move || {
            // Nobody listens any more where it took too long.
            let _ = known.send(());
        };
        let following = self.nodes.follow(client, tell, metrics);
        let waiting = async {
            if timeout(NODES_WITHIN, first).await.is_err() {
                tracing::warn!(
                    seconds = NODES_WITHIN.as_secs(),
                    "nodes have not been read and are not waited for: the contract's nodes.whenUnknown counts until they are; \
                     reading them takes the verbs get, list and watch on the resource nodes, as the ClusterRole of \
                     `gpufence manifests` has them"
                );
            }
            ready.into_iter().for_each(ReadyHandle::ready);
            future::pending::<Infallible>().await
        };
        tokio::select! {
            never = following => match never {},
            never = waiting => match never {},
        }
    }
}

/// Serves certificates of the installation's own CA for ever. Until there is one, the process is not ready, and
/// what it serves nobody trusts.
pub(super) fn managed_identity(
    client: Client,
    namespace: &str,
    readiness: &Readiness,
    metrics: Arc<Metrics>,
) -> Result<(Arc<Identity>, impl Future<Output = Infallible> + Send + 'static), TlsError> {
    let identity = Arc::new(Identity::new(Credentials::self_signed(&[])?));
    let mut ready = Some(readiness.handle("certificate"));
    let served = Arc::clone(&identity);
    let serve = move |leaf: &Leaf, authority: &Authority| {
        let credentials = match credentials(leaf) {
            Ok(credentials) => credentials,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the new certificate cannot be served; the last one stays"
                );
                return;
            }
        };
        let (sha256, not_after) = (credentials.fingerprint(), credentials.not_after());
        served.replace(credentials);
        metrics.serving_certificate_expires(not_after);
        metrics.ca_certificate_expires(authority.not_after().unix_timestamp());
        tracing::info!(sha256, not_after, authority = authority.fingerprint(), "certificate made");
        if let Some(ready) = ready.take() {
            ready.ready();
        }
    };
    let following = cluster::follow_authority(client, installation(namespace), Schedule::default(), serve);
    Ok((identity, following))
}

fn credentials(leaf: &Leaf) -> Result<Credentials, TlsError> {
    let chain = leaf.chain.iter().map(|certificate| certificate.to_vec()).collect();
    Credentials::from_der(chain, leaf.key.secret_der().to_vec())
}

#[cfg(test)]
mod tests;
