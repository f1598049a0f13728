//! `gpufence serve`: the admission webhook.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use clap::Args;

use super::{Failure, Success, load_contract};
use crate::contract::{self, Contract, TlsVersion};
use crate::lifecycle::{Readiness, Shutdown, Tasks};
use crate::policy::NoFacts;
use crate::server::tls::{TlsSource, sha256};
use crate::server::{self, App, Options};
use crate::telemetry::log::{self, LogFormat};
use crate::telemetry::metrics::Metrics;

/// Serve the admission webhook
///
/// Answers POST /mutate and /validate over HTTPS (server.listen), and /livez, /readyz and /metrics over
/// plain HTTP (server.metrics). SIGTERM ends it once every request in flight is answered. All settings are
/// in the contract: see `gpufence config`.
#[derive(Debug, Args)]
pub(super) struct Serve {}

impl Serve {
    #[expect(clippy::unused_self, reason = "every subcommand runs itself, and this one has no options yet")]
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let contract = load_contract(file)?;
        log::init(log_format(contract.log.format), &contract.log.level)
            .map_err(|error| Failure::Input(error.into()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Other(error.into()))?;
        runtime.block_on(serve(contract, file)).map_err(Failure::Other)?;
        Ok(Success::Clean)
    }
}

async fn serve(contract: Contract, file: Option<&Path>) -> anyhow::Result<()> {
    let hash = sha256(contract.to_yaml()?.as_bytes());
    let Contract { policy, server, tls, log: _ } = contract;
    let metrics = Metrics::new();
    metrics.contract_in_force(&hash, policy.mode().as_str());
    tracing::info!(
        contract = file.map_or_else(|| "built-in".to_owned(), |file| file.display().to_string()),
        contract_sha256 = hash,
        mode = policy.mode().as_str(),
        pools = policy.pools().len(),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    for pool in policy.pools().iter().filter(|pool| pool.namespaces.selector.is_some()) {
        tracing::warn!(
            pool = pool.name,
            "the labels of namespaces are not known: the pool's selector allows nobody, and only its names count"
        );
    }
    let options = Options {
        listen: server.listen,
        metrics: server.metrics,
        drain: server.drain,
        tls12: tls.minimum == TlsVersion::V1_2,
        tls: match tls.source {
            contract::TlsSource::SelfSigned { names } => TlsSource::SelfSigned { names },
            contract::TlsSource::Files { cert, key } => TlsSource::Files { cert, key },
        },
    };
    let app = App { policy: ArcSwap::from_pointee(policy), facts: Arc::new(NoFacts), metrics: Arc::new(metrics) };
    let shutdown = Shutdown::new();
    let readiness = Readiness::new(&shutdown);
    server::run(options, Arc::new(app), readiness, shutdown, Tasks::new()).await?;
    tracing::info!("ended");
    Ok(())
}

fn log_format(format: contract::LogFormat) -> LogFormat {
    match format {
        contract::LogFormat::Auto => LogFormat::Auto,
        contract::LogFormat::Text => LogFormat::Text,
        contract::LogFormat::Json => LogFormat::Json,
    }
}
