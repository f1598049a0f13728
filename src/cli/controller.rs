//! `gpufence controller`: keeps an installation right.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::runtime::Builder;
use tokio::sync::watch;

use super::contract_file::{self, ContractFile, Loaded};
use super::installation::{installation, intent};
use super::serve::log_format;
use super::{Failure, Success, run_to_end};
use crate::certificate::rotation::Schedule;
use crate::cluster;
use crate::cluster::controller::Controller as Keeper;
use crate::lifecycle::{Readiness, Shutdown, Tasks, signals};
use crate::manifest::names;
use crate::server;
use crate::telemetry::log;
use crate::telemetry::metrics::Metrics;

/// Keep an installation right: CA, caBundle, failurePolicy
///
/// Runs in the cluster, beside the webhook. With the TLS source managed it makes the CA, rotates it, and keeps
/// the caBundle of both webhook configurations, once the webhook serves a certificate that it vouches for. With
/// any source it arms the validation, that is, sets failurePolicy to Fail, where the contract enforces and a
/// dry run was refused as it should be; never in audit mode. Of several controllers one leads.
#[derive(Debug, Args)]
pub(super) struct Controller {
    /// The namespace of the installation
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = names::NAMESPACE)]
    namespace: String,

    /// What tells this controller from others
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,

    /// How long a CA is valid; at half of it the next one is made
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "365d")]
    ca_validity: Duration,

    /// How long API servers get to learn of the next CA before it signs
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "5m")]
    ca_soak: Duration,

    /// How long the last CA stays trusted after the next one signs
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "24h")]
    ca_retire: Duration,
}

impl Controller {
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let (follow, loaded) = contract_file::load(file)?;
        let settings = &loaded.contract.log;
        // The level follows no reload here: a controller says little.
        let _level =
            log::init(log_format(settings.format), &settings.level).map_err(|error| Failure::Input(error.into()))?;
        let schedule = self.schedule().map_err(Failure::Input)?;
        let keeping = self.keep(follow, loaded, schedule);
        run_to_end(Builder::new_multi_thread().worker_threads(2), keeping)?.map_err(Failure::Other)?;
        Ok(Success::Clean)
    }

    fn schedule(&self) -> anyhow::Result<Schedule> {
        let Self { ca_validity, ca_soak, ca_retire, .. } = *self;
        let duration = |option: &str, duration: Duration| {
            time::Duration::try_from(duration)
                .with_context(|| format!("{option}: {duration:?} is longer than time itself"))
        };
        // The next CA is made at half of a CA's life, and has to sign and the last one to go before the end.
        if ca_validity / 2 <= ca_soak.saturating_add(ca_retire) {
            bail!(
                "--ca-validity is {}, and --ca-soak and --ca-retire together are {}; valid is a CA whose half of life is \
                 longer than both together, since its successor takes over in that time",
                humantime::format_duration(ca_validity),
                humantime::format_duration(ca_soak.saturating_add(ca_retire))
            );
        }
        let schedule = Schedule::default();
        let authority_validity = duration("--ca-validity", ca_validity)?;
        Ok(Schedule {
            authority_validity,
            soak: duration("--ca-soak", ca_soak)?,
            retire_after: duration("--ca-retire", ca_retire)?,
            useless: schedule.useless.min(authority_validity / 10),
            ..schedule
        })
    }

    async fn keep(self, follow: Option<ContractFile>, loaded: Loaded, schedule: Schedule) -> anyhow::Result<()> {
        let Loaded { contract, sha256 } = loaded;
        let installation = installation(&self.namespace);
        let (metrics, controller_metrics) = Metrics::for_controller();
        let metrics = Arc::new(metrics);
        metrics.contract_in_force(&sha256, contract.policy.mode().as_str(), contract_file::now());
        let identity = self.identity.unwrap_or_else(|| format!("process-{}", std::process::id()));
        tracing::info!(
            namespace = installation.namespace,
            identity,
            contract_sha256 = sha256,
            mode = contract.policy.mode().as_str(),
            version = env!("CARGO_PKG_VERSION"),
            "starting"
        );
        let client = cluster::stay_connected().await?;
        let (publish, intents) = watch::channel(Arc::new(intent(&contract, &installation)));
        let shutdown = Shutdown::new();
        let readiness = Readiness::new(&shutdown);
        let mut tasks = Tasks::new();
        if let Some(follow) = follow {
            let wanted = installation.clone();
            let announce = move |Loaded { contract, .. }: Loaded| {
                drop(publish.send_replace(Arc::new(intent(&contract, &wanted))));
            };
            let following = follow.follow(Arc::clone(&metrics), announce);
            tasks.spawn("contract reload", async { Err::<(), _>(following.await) });
        }
        let ready = readiness.handle("lease");
        let health = server::health(contract.server.metrics, readiness, metrics, shutdown.clone()).await?;
        tasks.spawn("health and metrics listener", health);
        let keeper = Keeper::new(client, installation, schedule, identity, intents, ready, controller_metrics);
        tokio::select! {
            () = keeper.run(shutdown.clone()) => Ok(()),
            Err(lost) = tasks.supervise() => Err(lost.into()),
            // Nobody is sent here: there is nothing to drain.
            Err(signal) = signals(&shutdown, Duration::ZERO) => Err(signal.into()),
        }
    }
}
