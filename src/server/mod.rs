//! The HTTPS shell around the review: sockets, TLS, limits, deadlines, the drain.
//!
//! Owns everything between a TCP connection and a request's bytes, and every bound on them: each
//! wait in here has a named constant with its reason. It must not know what an `AdmissionReview`
//! is, nor decide anything: bytes go to [`review::answer`](crate::review::answer), bytes come
//! back.
//!
//! | module | owns |
//! | --- | --- |
//! | `accept` | accept loops, the cap on connections, handshakes, the end of the drain |
//! | `connection` | one HTTP/1.1 connection |
//! | `deadline` | how long a connection may be silent |
//! | `webhooks` | the webhooks' paths, from bytes to bytes |
//! | `lookup` | a namespace or node that is not known, looked up once |
//! | `body` | the limit on one body and the budget over all |
//! | `allowance` | how long the caller waits |
//! | `refusal` | every answer that is not a review's |
//! | `decision_log` | the log line of a decision |
//! | `admin` | liveness, readiness, metrics |
//! | `probe` | the server's own first request |
//! | [`tls`] | certificates and the TLS configuration |

mod accept;
mod admin;
mod allowance;
mod body;
mod connection;
mod deadline;
mod decision_log;
mod lookup;
mod probe;
mod refusal;
pub mod tls;
mod webhooks;

use std::convert::Infallible;
use std::future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::lifecycle::{Readiness, Shutdown, SignalError, TaskError, Tasks, signals};
use crate::policy::{Facts, Mode, Policy};
use crate::telemetry::metrics::Metrics;
pub use lookup::{ClusterLookup, Labels, LookingUp, LookupError};
use tls::{Credentials, Files, Identity, TlsError, TlsSource};

/// Where and how to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address of the webhooks, over TLS. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address of `/livez`, `/readyz`, `/metrics` and `/certificate`, over plain HTTP.
    pub metrics: SocketAddr,
    /// How long to go on serving after SIGTERM: as long as it takes kube-proxy everywhere to learn
    /// that this pod is leaving.
    pub drain: Duration,
    /// Whether TLS 1.2 is spoken besides 1.3.
    pub tls12: bool,
    /// Where the certificate comes from.
    pub tls: TlsSource,
}

/// What requests are answered with.
#[derive(Debug)]
pub struct App {
    /// The policies in force. A reload swaps them together; each answer reads them once.
    pub policies: ArcSwap<Policies>,
    /// What is known of the cluster.
    pub facts: Arc<dyn Facts>,
    /// Where a namespace or a node is looked up that a decision asked for and did not know.
    pub lookup: Option<Arc<dyn ClusterLookup>>,
    /// Where everything is counted.
    pub metrics: Arc<Metrics>,
}

/// The policy of the contract, and what the paths below `/audit` make of it.
#[derive(Debug)]
pub struct Policies {
    /// As the contract says.
    pub contract: Policy,
    /// The same, with no mode above audit.
    pub audit: Policy,
}

impl Policies {
    /// Both, from the contract's.
    #[must_use]
    pub fn new(contract: Policy) -> Self {
        Self { audit: contract.clone().capped(Mode::Audit), contract }
    }
}

/// Why the server did not start, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// There is no certificate to serve.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What should have been served there.
        purpose: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
    /// A part of the process was lost.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The process was told to end at once.
    #[error(transparent)]
    Signal(#[from] SignalError),
}

/// Serves until a signal or `shutdown` ends it, its requests answered.
///
/// `tasks` are the caller's own background tasks: the server fails when one of them ends, as it
/// does for its own.
pub async fn run(
    options: Options,
    app: Arc<App>,
    readiness: Readiness,
    shutdown: Shutdown,
    tasks: Tasks,
) -> Result<(), ServerError> {
    let bound = bind(&options).await?;
    tokio::select! {
        ended = bound.serve(app, readiness, shutdown.clone(), tasks) => ended,
        Err(signal) = signals(&shutdown, options.drain) => Err(signal.into()),
    }
}

/// Health and metrics alone, for a process that serves no webhooks: bound when this returns, and served to the
/// very end by the task that comes back.
pub async fn health(
    address: SocketAddr,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
) -> Result<impl Future<Output = Result<(), Infallible>> + Send + 'static, ServerError> {
    let Socket { listener, address } = Socket::bind(address, "health and metrics").await?;
    tracing::info!(metrics = %address, "listening");
    Ok(accept::plain(listener, admin::router(readiness, metrics, None), shutdown))
}

/// Takes the certificate, then the addresses: a process without a certificate never listens.
pub async fn bind(options: &Options) -> Result<Bound, ServerError> {
    let (identity, files) = match &options.tls {
        TlsSource::SelfSigned { names } => (Arc::new(Identity::new(Credentials::self_signed(names)?)), None),
        TlsSource::Files { cert, key } => {
            let (files, credentials) = Files::open(cert, key)?;
            (Arc::new(Identity::new(credentials)), Some(files))
        }
        TlsSource::Provided(identity) => (Arc::clone(identity), None),
    };
    let config = tls::server_config(Arc::clone(&identity), options.tls12)?;
    Ok(Bound {
        https: Socket::bind(options.listen, "the webhooks").await?,
        admin: Socket::bind(options.metrics, "health and metrics").await?,
        config: Arc::new(config),
        identity,
        files,
        provided: matches!(options.tls, TlsSource::Provided(_)),
    })
}

/// Both addresses are taken; connections wait in the backlog until [`Bound::serve`].
#[derive(Debug)]
pub struct Bound {
    https: Socket,
    admin: Socket,
    config: Arc<ServerConfig>,
    identity: Arc<Identity>,
    files: Option<Files>,
    /// Whether the certificate is the caller's affair.
    provided: bool,
}

impl Bound {
    /// The address that the webhooks have, its port the real one.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.https.address
    }

    /// The address that health and metrics have.
    #[must_use]
    pub const fn metrics_addr(&self) -> SocketAddr {
        self.admin.address
    }

    /// The certificate that is served, now and after each reload.
    #[must_use]
    pub const fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Serves until `shutdown` stops it, and then until every request in flight is answered or the
    /// time for that is over. Health and metrics are served to the very end.
    pub async fn serve(
        self,
        app: Arc<App>,
        readiness: Readiness,
        shutdown: Shutdown,
        mut tasks: Tasks,
    ) -> Result<(), ServerError> {
        let Self { https, admin, config, identity, files, provided } = self;
        let answers = readiness.handle("https listener");
        let credentials = identity.current();
        if !provided {
            app.metrics.serving_certificate_expires(credentials.not_after());
        }
        tracing::info!(
            https = %https.address,
            metrics = %admin.address,
            certificate_sha256 = credentials.fingerprint(),
            certificate_not_after = credentials.not_after(),
            "listening"
        );
        if let Some(files) = files {
            let follow = files.follow(Arc::clone(&identity), Arc::clone(&app.metrics));
            tasks.spawn("certificate reload", async { follow.await.map(|never| match never {}) });
        }
        let admin_router = admin::router(readiness.clone(), Arc::clone(&app.metrics), Some(Arc::clone(&identity)));
        tasks.spawn("health and metrics listener", accept::plain(admin.listener, admin_router, shutdown.clone()));

        let ready = async {
            probe::until_answered(https.address, &identity).await;
            answers.ready();
            readiness.ready().await;
            tracing::info!(https = %https.address, metrics = %admin.address, "ready");
            future::pending::<Infallible>().await
        };
        let metrics = Arc::clone(&app.metrics);
        let router = webhooks::router(app);
        let acceptor = TlsAcceptor::from(config);
        tokio::select! {
            () = accept::tls(https.listener, acceptor, router, &metrics, &shutdown) => Ok(()),
            Err(lost) = tasks.supervise() => Err(lost.into()),
            never = ready => match never {},
        }
    }
}

/// A listener and the address that it has.
#[derive(Debug)]
struct Socket {
    listener: TcpListener,
    address: SocketAddr,
}

impl Socket {
    async fn bind(address: SocketAddr, purpose: &'static str) -> Result<Self, ServerError> {
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bound.await.map_err(|source| ServerError::Bind { address, purpose, source })
    }
}
