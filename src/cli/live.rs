//! What a serving process takes from the cluster that it runs in: the labels of namespaces, and the CA that
//! its certificate is made from. Both only where the contract asks for them.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{OnceCell, watch};
use tokio::time::sleep;

use super::installation::installation;
use crate::certificate::rotation::Schedule;
use crate::certificate::{Authority, Leaf};
use crate::cluster::{self, Client, Namespaces};
use crate::lifecycle::{Readiness, ReadyHandle};
use crate::policy::{Facts, LabelSelector, NodeFact, Policy};
use crate::server::tls::{Credentials, Identity, TlsError};
use crate::server::{LookingUp, NamespaceLookup};
use crate::telemetry::metrics::Metrics;

/// How long to wait for a cluster that a reloaded contract asks for and that cannot be reached.
const RETRY: Duration = Duration::from_secs(10);

/// The labels of namespaces, known from when the first contract asks for them.
#[derive(Default)]
pub(super) struct Live {
    namespaces: Namespaces,
    client: OnceCell<Client>,
}

/// The client has nothing to show.
impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

impl Facts for Live {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.namespaces.namespace_meets(namespace, selector)
    }

    fn node(&self, name: &str) -> NodeFact {
        self.namespaces.node(name)
    }

    fn now(&self) -> i64 {
        self.namespaces.now()
    }
}

impl NamespaceLookup for Live {
    fn look_up<'a>(&'a self, namespace: &'a str) -> LookingUp<'a> {
        Box::pin(async move {
            let client = self.client.get().context("there is no connection to an API server (yet)")?;
            let labels = self.namespaces.look_up(client, namespace).await.map_err(anyhow::Error::from)?;
            Ok(labels.map(Arc::unwrap_or_clone))
        })
    }
}

impl Live {
    /// The client, made by whoever needs it first.
    pub(super) async fn client(&self) -> anyhow::Result<&Client> {
        Ok(self.client.get_or_try_init(cluster::stay_connected).await?)
    }

    /// Watches the namespaces once a policy asks for their labels, and from then on for ever.
    pub(super) async fn follow(
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
                        error = format!("{error:#}"),
                        "the contract selects namespaces by their labels, and they cannot be read"
                    );
                    sleep(RETRY).await;
                }
            }
        };
        match self.namespaces.follow(client, ready, metrics).await {}
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
