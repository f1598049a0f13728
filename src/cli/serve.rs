//! `gpufence serve`: the admission webhook.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use clap::Args;
use tokio::runtime::Builder;
use tokio::sync::watch;

use super::continuous;
use super::contract_file::{self, ContractFile, Loaded};
use super::live::{Live, managed_identity};
use super::{Failure, Success, run_to_end};
use crate::cluster::continuous::Order;
use crate::contract::{self, Contract, TlsVersion};
use crate::lifecycle::{Readiness, Shutdown, Tasks};
use crate::manifest::names;
use crate::policy::{Facts, Policy};
use crate::server::tls::TlsSource;
use crate::server::{self, App, ClusterLookup, Options, Policies};
use crate::telemetry::log::{self, Level, LogFormat};
use crate::telemetry::metrics::Metrics;

/// Serve the admission webhook
///
/// Answers POST /mutate and /validate over HTTPS (server.listen), the same below /audit in audit mode
/// whatever the contract says, and /livez, /readyz, /metrics and /certificate over plain HTTP
/// (server.metrics). SIGTERM ends it once every request in flight is answered. All settings are in the
/// contract: see `gpufence config`. A changed contract file is in force within seconds.
///
/// An API server is spoken to where the contract selects namespaces by their labels, where the TLS source is
/// managed, where the rule node-name-bypass is on, to know the nodes, and where audit.interval is above 0s: that of
/// the pod's own cluster, or of the kubeconfig. Without one the first two end the process, the third goes by
/// nodes.whenUnknown, and the last makes no audits.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The namespace of the installation, for the TLS source managed and for audits
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = names::NAMESPACE)]
    namespace: String,
}

impl Serve {
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let (file, loaded) = contract_file::load(file)?;
        let log = &loaded.contract.log;
        let level = log::init(log_format(log.format), &log.level).map_err(|error| Failure::Input(error.into()))?;
        run_to_end(&mut Builder::new_multi_thread(), serve(file, loaded, level, &self.namespace))?
            .map_err(Failure::Other)?;
        Ok(Success::Clean)
    }
}

async fn serve(file: Option<ContractFile>, loaded: Loaded, level: Level, namespace: &str) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new());
    metrics.contract_in_force(&loaded.sha256, loaded.mode(), contract_file::now());
    let contract = &loaded.contract;
    tracing::info!(
        contract = file.as_ref().map_or_else(|| "built-in".to_owned(), |file| file.path().display().to_string()),
        contract_sha256 = loaded.sha256,
        mode = loaded.mode(),
        pools = contract.policy.pools().len(),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    contract_file::exemptions_in_force(contract.policy.exemptions(), &metrics);
    let shutdown = Shutdown::new();
    let readiness = Readiness::new(&shutdown);
    let mut tasks = Tasks::new();
    let live = Arc::new(Live::default());
    let options = Options {
        listen: contract.server.listen,
        metrics: contract.server.metrics,
        drain: contract.server.drain,
        tls12: contract.tls.minimum == TlsVersion::V1_2,
        tls: match contract.tls.source.clone() {
            contract::TlsSource::SelfSigned { names } => TlsSource::SelfSigned { names },
            contract::TlsSource::Files { cert, key } => TlsSource::Files { cert, key },
            contract::TlsSource::Managed => {
                let client = live.client().await?.clone();
                let (identity, follow) = managed_identity(client, namespace, &readiness, Arc::clone(&metrics))?;
                tasks.spawn("certificate", async { Err::<(), _>(follow.await) });
                TlsSource::Provided(identity)
            }
        },
    };
    let app = Arc::new(App {
        policies: ArcSwap::from_pointee(Policies::new(contract.policy.clone())),
        facts: Arc::clone(&live) as Arc<dyn Facts>,
        lookup: Some(Arc::clone(&live) as Arc<dyn ClusterLookup>),
        metrics: Arc::clone(&metrics),
    });
    // A contract that asks for more of the cluster than the first did is heard of here.
    let (policies, in_force) = watch::channel(Arc::new(contract.policy.clone()));
    let labels = if contract.policy.reads_namespace_labels() {
        live.client().await?;
        Some(readiness.handle("labels of namespaces"))
    } else {
        None
    };
    let nodes = contract.policy.reads_nodes().then(|| readiness.handle("nodes"));
    let following = Arc::clone(&live).follow_namespaces(in_force.clone(), labels, Arc::clone(&metrics));
    tasks.spawn("namespace labels", following);
    tasks.spawn("nodes", Arc::clone(&live).follow_nodes(in_force, nodes, Arc::clone(&metrics)));
    let (orders, ordered) = watch::channel(continuous::order(contract));
    let audits = continuous::spawn(&mut tasks, live, namespace, ordered, Arc::clone(&metrics), shutdown.clone());
    // Lives as long as the process, file or not: who watches the policies must not be told of an end.
    let reload = Reload { started: loaded.contract, level, app: Arc::clone(&app), policies, orders };
    if let Some(file) = file {
        let follow = file.follow(metrics, move |loaded| reload.apply(loaded.contract));
        tasks.spawn("contract reload", async { Err::<(), _>(follow.await) });
        server::run(options, app, readiness, shutdown, tasks).await?;
    } else {
        server::run(options, app, readiness, shutdown, tasks).await?;
        drop(reload);
    }
    audits.wait().await;
    tracing::info!("ended");
    Ok(())
}

/// What a changed contract takes effect on.
#[derive(Debug)]
struct Reload {
    /// The contract that the process was started with.
    started: Contract,
    level: Level,
    app: Arc<App>,
    /// Every policy that was put in force, the last one first to be seen.
    policies: watch::Sender<Arc<Policy>>,
    /// The same of what is wanted of audits.
    orders: watch::Sender<Order<continuous::Wanted>>,
}

impl Reload {
    fn apply(&self, contract: Contract) {
        let fixed = fixed(&self.started, &contract);
        if !fixed.is_empty() {
            tracing::warn!(keys = fixed.join(", "), "these keys of the contract take effect at the next start");
        }
        if let Err(error) = self.level.set(&contract.log.level) {
            tracing::error!(%error, "the log's level stays as it was");
        }
        self.app.policies.store(Arc::new(Policies::new(contract.policy.clone())));
        self.orders.send_replace(continuous::order(&contract));
        self.policies.send_replace(Arc::new(contract.policy));
    }
}

/// The keys in which two contracts differ and that count at the start alone: sockets are open, and TLS and
/// the log are set up.
fn fixed(started: &Contract, now: &Contract) -> Vec<&'static str> {
    let files = |contract: &Contract| match &contract.tls.source {
        contract::TlsSource::Files { cert, key } => Some((cert.clone(), key.clone())),
        contract::TlsSource::SelfSigned { .. } | contract::TlsSource::Managed => None,
    };
    let names = |contract: &Contract| match &contract.tls.source {
        contract::TlsSource::SelfSigned { names } => Some(names.clone()),
        contract::TlsSource::Files { .. } | contract::TlsSource::Managed => None,
    };
    let source = |contract: &Contract| std::mem::discriminant(&contract.tls.source);
    let same_source = source(started) == source(now);
    let cert = |contract| files(contract).map(|(cert, _)| cert);
    let key = |contract| files(contract).map(|(_, key)| key);
    let differ = [
        ("server.listen", started.server.listen != now.server.listen),
        ("server.metrics", started.server.metrics != now.server.metrics),
        ("server.drain", started.server.drain != now.server.drain),
        ("tls.source", !same_source),
        ("tls.cert", same_source && cert(started) != cert(now)),
        ("tls.key", same_source && key(started) != key(now)),
        ("tls.names", same_source && names(started) != names(now)),
        ("tls.minimum", started.tls.minimum != now.tls.minimum),
        ("log.format", started.log.format != now.log.format),
    ];
    differ.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
}

pub(super) fn log_format(format: contract::LogFormat) -> LogFormat {
    match format {
        contract::LogFormat::Auto => LogFormat::Auto,
        contract::LogFormat::Text => LogFormat::Text,
        contract::LogFormat::Json => LogFormat::Json,
    }
}
