//! The server in this process, with parts that the built binary takes from a cluster: a lookup of
//! namespaces, and a certificate that comes later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gpufence::lifecycle::{Readiness, Shutdown, Tasks};
use gpufence::policy::NoFacts;
use gpufence::server::tls::{Credentials, Identity, TlsSource};
use gpufence::server::{self, App, ClusterLookup, Options, Policies, ServerError};
use gpufence::telemetry::metrics::Metrics;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::binary::{Authority, Connection, NAME, dial, get, soon, trusting};
use crate::support::policy;

/// A server that is stopped by [`Embedded::stop`].
pub struct Embedded {
    pub https: SocketAddr,
    pub admin: SocketAddr,
    pub metrics: Arc<Metrics>,
    trust: TlsConnector,
    shutdown: Shutdown,
    serving: JoinHandle<Result<(), ServerError>>,
}

impl Embedded {
    /// Serves a contract, given as YAML over the built-in one, without facts but what the lookup finds.
    pub async fn start(contract: &str, lookup: Option<Arc<dyn ClusterLookup>>) -> Self {
        let credentials = Credentials::self_signed(&[NAME.to_owned()]).unwrap();
        let trust = trusting(credentials.certificate());
        let shutdown = Shutdown::new();
        let readiness = Readiness::new(&shutdown);
        let identity = Arc::new(Identity::new(credentials));
        let server = Self::serve(contract, lookup, identity, trust, readiness.clone(), shutdown).await;
        soon("readiness", readiness.ready()).await;
        server
    }

    /// The same, with an identity that may change, and without waiting until it is ready.
    pub async fn serve(
        contract: &str,
        lookup: Option<Arc<dyn ClusterLookup>>,
        identity: Arc<Identity>,
        trust: TlsConnector,
        readiness: Readiness,
        shutdown: Shutdown,
    ) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = Options {
            listen: free,
            metrics: free,
            drain: Duration::ZERO,
            tls12: false,
            tls: TlsSource::Provided(identity),
        };
        let metrics = Arc::new(Metrics::new());
        let app = App {
            policies: ArcSwap::from_pointee(Policies::new(policy(contract))),
            facts: Arc::new(NoFacts),
            lookup,
            metrics: Arc::clone(&metrics),
        };
        let bound = server::bind(&options).await.unwrap();
        let (https, admin) = (bound.local_addr(), bound.metrics_addr());
        let serving = tokio::spawn(bound.serve(Arc::new(app), readiness, shutdown.clone(), Tasks::new()));
        Self { https, admin, metrics, trust, shutdown, serving }
    }

    /// Opens a connection for requests.
    pub async fn connect(&self) -> Connection {
        Connection::over(dial(self.https, &self.trust).await.unwrap()).await
    }

    /// The `response` to a review.
    pub async fn respond(&self, path: &str, review: &Value) -> Value {
        let (status, mut answer) = self.connect().await.review(path, review).await;
        assert_eq!(status, 200, "{answer}");
        answer["response"].take()
    }

    /// Asserts that a metric has this line.
    pub fn assert_measured(&self, line: &str) {
        let metrics = self.metrics.encode().unwrap();
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }

    pub async fn stop(self) {
        self.shutdown.stop();
        soon("the end", self.serving).await.unwrap().unwrap();
    }
}

/// The certificate of a managed installation: at first one that nobody trusts, then the real one.
#[tokio::test]
async fn a_certificate_that_comes_later_is_waited_for_and_then_served() {
    let authority = Authority::new();
    let shutdown = Shutdown::new();
    let readiness = Readiness::new(&shutdown);
    let identity = Arc::new(Identity::new(Credentials::self_signed(&[]).unwrap()));
    let handle = readiness.handle("certificate");
    let trust = trusting(authority.certificate());
    let server =
        Embedded::serve("mode: enforce", None, Arc::clone(&identity), trust.clone(), readiness.clone(), shutdown).await;
    let answers_itself = async { while get(server.admin, "/readyz").await.text() != "not ready: certificate" {} };
    soon("the server's own request", answers_itself).await;
    assert_eq!(get(server.admin, "/readyz").await.status, 503);
    let error = dial(server.https, &trust).await.unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");
    let metrics = server.metrics.encode().unwrap();
    assert!(!metrics.contains("certificate_not_after_timestamp_seconds{"), "nobody waits for the first one: {metrics}");

    for _ in 0..2 {
        let leaf = authority.issue(&[NAME]);
        let credentials = leaf.credentials().unwrap();
        assert_eq!(credentials.chain_pem(), leaf.pem());
        identity.replace(credentials);
        assert!(server.connect().await.certificate == *leaf.certificate.der());
        let reply = get(server.admin, "/certificate").await;
        assert_eq!(reply.header(hyper::header::CONTENT_TYPE), Some("application/pem-certificate-chain"));
        assert_eq!(reply.text(), leaf.pem());
    }
    handle.ready();
    assert_eq!(get(server.admin, "/readyz").await.status, 200);
    server.stop().await;
}

/// The server's own first request is for whatever certificate is served when it is made.
#[tokio::test]
async fn the_server_finds_itself_while_its_certificate_changes() {
    let authority = Authority::new();
    let shutdown = Shutdown::new();
    let readiness = Readiness::new(&shutdown);
    let identity = Arc::new(Identity::new(authority.issue(&[NAME]).credentials().unwrap()));
    let changing = {
        let identity = Arc::clone(&identity);
        tokio::spawn(async move {
            for _ in 0..50 {
                identity.replace(authority.issue(&[NAME]).credentials().unwrap());
                tokio::task::yield_now().await;
            }
        })
    };
    let trust = trusting(identity.current().certificate());
    let server = Embedded::serve("mode: enforce", None, identity, trust, readiness.clone(), shutdown).await;
    soon("readiness", readiness.ready()).await;
    changing.await.unwrap();
    server.stop().await;
}

#[test]
fn credentials_from_memory_are_a_pair_or_refused() {
    let authority = Authority::new();
    let (one, other) = (authority.issue(&[NAME]), authority.issue(&[NAME]));
    let chain = |leaf: &crate::binary::Leaf| vec![leaf.certificate.der().to_vec(), authority.certificate().to_vec()];
    let whole = Credentials::from_der(chain(&one), one.key_der()).unwrap();
    assert_eq!(whole.chain_pem().matches("BEGIN CERTIFICATE").count(), 2);
    for (chain, key, expected) in [
        (chain(&one), other.key_der(), "found the key of another certificate"),
        (Vec::new(), one.key_der(), "found no certificate"),
        (vec![b"x".to_vec()], one.key_der(), "found a block that is no certificate"),
        (chain(&one), b"x".to_vec(), "expected an ECDSA (P-256 or P-384), Ed25519 or RSA key"),
        (chain(&one), Vec::new(), "expected an ECDSA (P-256 or P-384), Ed25519 or RSA key"),
    ] {
        let error = Credentials::from_der(chain, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
