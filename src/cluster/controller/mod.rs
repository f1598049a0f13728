//! One look at everything that an installation needs to be kept right, and what follows from it.
//!
//! A round reads the registrations, the CA and the replicas, in this order, and then writes: the CA where its
//! rotation has a next step, the caBundle where it differs, the failurePolicy where it is due. Every write
//! is conditional on what was read, so that a controller that slept can undo nothing, and two at once are
//! no worse than one. Nothing is remembered from one round to the next but what keeps the log short.
//!
//! What makes an outage harmless, failurePolicy Ignore, waits for nothing of this: it comes first, and needs
//! neither the CA nor a replica.

mod arming;
mod bundles;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::authority::{AuthorityError, Store};
use super::lease::Candidate;
use super::probe::Outcome;
use super::registrations::{Kind, Registration, RegistrationError};
use super::replicas::{self, Replica};
use super::{Installation, Intent, Said, has_code};
use crate::certificate::rotation::Schedule;
use crate::lifecycle::{ReadyHandle, Shutdown};
use crate::telemetry::metrics::ControllerMetrics;

/// How often everything is looked at. What is wiped by hand is back within two of these, and the Lease is
/// renewed three times before it runs out.
const ROUND: Duration = Duration::from_secs(5);

/// How long a round may take: what hangs must not keep the Lease from being renewed.
const ROUND_LIMIT: Duration = Duration::from_secs(12);

/// After how long a round follows on one that changed something, doubled by each that follows up to [`ROUND`]: the
/// steps of a rotation are few, and two who take turns in undoing each other's work must not do so without a pause.
const SOON: Duration = Duration::from_millis(200);

/// How long giving the Lease back may take at the end.
const RELEASE: Duration = Duration::from_secs(5);

/// Keeps one installation right.
pub struct Controller {
    client: Client,
    installation: Installation,
    schedule: Schedule,
    store: Store,
    candidate: Candidate,
    intent: watch::Receiver<Arc<Intent>>,
    /// Until the Lease was read once.
    ready: Option<ReadyHandle>,
    metrics: ControllerMetrics,
    probed: Option<(Instant, Result<Outcome, String>)>,
    said: BTreeMap<&'static str, String>,
}

/// Why a round was not finished. The next one begins anew.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error("the CA: {0}")]
    Rotation(#[from] crate::certificate::AuthorityError),
    #[error("the pods of the webhook cannot be listed: {}", Said(.0))]
    Replicas(kube::Error),
    #[error("the Lease cannot be read or renewed: {}", Said(.0))]
    Lease(kube::Error),
    #[error("there is no Lease {name} in the namespace {namespace}; apply the output of `gpufence manifests`")]
    NoLease { name: String, namespace: String },
    #[error("it took longer than {} s", ROUND_LIMIT.as_secs())]
    Slow,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("installation", &self.installation).finish_non_exhaustive()
    }
}

/// A replica and what it showed.
type Seen = (Replica, Result<Vec<CertificateDer<'static>>, String>);

impl Controller {
    /// Nothing is asked yet. `identity` tells this controller from others; it is ready once it knows who leads.
    #[must_use]
    pub fn new(
        client: Client,
        installation: Installation,
        schedule: Schedule,
        identity: String,
        intent: watch::Receiver<Arc<Intent>>,
        ready: ReadyHandle,
        metrics: ControllerMetrics,
    ) -> Self {
        let candidate = Candidate::new(client.clone(), &installation.namespace, &installation.lease, identity);
        let store = Store::new(client.clone(), &installation);
        let (ready, probed, said) = (Some(ready), None, BTreeMap::new());
        Self { client, installation, schedule, store, candidate, intent, ready, metrics, probed, said }
    }

    /// Works until the process ends, and then lets another lead.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut soon = None;
        let mut leads = false;
        loop {
            tokio::select! {
                () = shutdown.draining() => break,
                Ok(()) = self.intent.changed() => {}
                // Something was just changed, and more follows from it.
                () = tokio::time::sleep(soon.unwrap_or(ROUND)), if soon.is_some() => {}
                _ = rounds.tick() => {}
            }
            let round = tokio::select! {
                // Every write is whole in itself, so that a round may end anywhere.
                () = shutdown.draining() => break,
                round = tokio::time::timeout(ROUND_LIMIT, self.lead_and_look()) => round,
            };
            let (now_leads, again) = match round.unwrap_or(Err(RoundError::Slow)) {
                Ok(None) => (false, false),
                Ok(Some(again)) => {
                    self.say("round", "");
                    self.metrics.looked(OffsetDateTime::now_utc().unix_timestamp());
                    (true, again)
                }
                Err(error) => {
                    self.say("round", error.to_string());
                    // What was seen before is no longer known to be so.
                    self.metrics.lost_sight();
                    (self.candidate.holds(), false)
                }
            };
            if !now_leads {
                self.metrics.stands_by();
            }
            if now_leads != leads {
                tracing::info!(leads = now_leads, "lead");
            }
            leads = now_leads;
            soon = again.then(|| soon.map_or(SOON, |last| (last * 2).min(ROUND)));
            self.metrics.leads(leads);
        }
        if leads {
            match tokio::time::timeout(RELEASE, self.candidate.release()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = %Said(&error), "the Lease cannot be given back; it runs out by itself");
                }
                Err(_) => tracing::warn!("the Lease could not be given back in time; it runs out by itself"),
            }
        }
    }

    /// `None` where another leads; otherwise whether the next round should follow at once.
    async fn lead_and_look(&mut self) -> Result<Option<bool>, RoundError> {
        let leads = self.candidate.leads().await.map_err(|error| self.lease_fault(error))?;
        if let Some(ready) = self.ready.take() {
            ready.ready();
        }
        if !leads {
            self.said.clear();
            return Ok(None);
        }
        let mut registrations = Vec::new();
        let mut missing = String::new();
        for kind in Kind::ALL {
            match Registration::read(&self.client, &self.installation, kind).await {
                Ok(registration) => registrations.push(registration),
                Err(error @ RegistrationError::Api { .. }) => return Err(error.into()),
                // Whoever removes the installation removes these first, and then nothing is to be done.
                Err(error) => missing = error.to_string(),
            }
        }
        self.say("registration", missing);
        let intent = Arc::clone(&self.intent.borrow());
        if self.disarm(&registrations, &intent).await? {
            return Ok(Some(true));
        }
        self.look_at_conditions(&registrations, &intent);
        self.look_at_armed(&registrations, &intent).await;
        // In this order: what is concluded for a registration must not be older than the registration, nor what a
        // replica is expected to serve younger than the replica's answer.
        let (seen, again) = if intent.keeps_authority {
            let stored = self.store.read().await?;
            let seen = self.replicas().await?;
            let again = self.keep_authority(stored, &registrations, &seen).await?;
            (seen, again)
        } else {
            (self.replicas().await?, false)
        };
        self.look_at_trust(&registrations, &seen);
        if !again {
            self.arm(&registrations, &seen, &intent).await?;
        }
        Ok(Some(again))
    }

    fn lease_fault(&self, error: kube::Error) -> RoundError {
        if has_code(&error, 404) {
            let Installation { lease, namespace, .. } = &self.installation;
            RoundError::NoLease { name: lease.clone(), namespace: namespace.clone() }
        } else {
            RoundError::Lease(error)
        }
    }

    fn look_at_conditions(&mut self, registrations: &[Registration], intent: &Intent) {
        let stale = registrations.iter().find_map(|registration| registration.stale_hook(&intent.match_conditions));
        self.metrics.match_conditions_current(stale.is_none());
        let stale = stale.map(|hook| {
            format!(
                "the match conditions of {hook} are those of another contract, so that it is not asked about all that this \
                 one speaks of; apply the output of `gpufence manifests` for it"
            )
        });
        self.say("match conditions", stale.unwrap_or_default());
    }

    /// Says which replica API servers refuse: a certificate that is not for now, since a clock is wrong, or of another CA.
    fn look_at_trust(&mut self, registrations: &[Registration], seen: &[Seen]) {
        let mut bundles: Vec<_> = registrations.iter().map(|registration| &registration.pod_hook().ca_bundle).collect();
        // Both hold the same, but while one is being changed.
        bundles.dedup();
        let untrusted: Vec<_> = bundles
            .iter()
            .filter(|bundle| !bundle.is_empty())
            .flat_map(|bundle| self.untrusted(seen, bundle))
            .collect();
        self.metrics.replicas_trusted(untrusted.is_empty());
        self.say("certificates", untrusted.into_iter().next().unwrap_or_default());
    }

    async fn replicas(&self) -> Result<Vec<Seen>, RoundError> {
        let found = replicas::list(&self.client, &self.installation).await.map_err(RoundError::Replicas)?;
        let chains = replicas::chains(&found, &self.installation.server_name).await;
        Ok(found.into_iter().zip(chains).collect())
    }

    /// Says what stands in the way of something, once; nothing stands there where the text is empty.
    fn say(&mut self, what: &'static str, why: impl Into<String>) {
        let why = why.into();
        let said = self.said.entry(what).or_default();
        match (*said == why, why.is_empty()) {
            (true, _) => {}
            (false, true) => tracing::info!(what, was = *said, "resolved"),
            (false, false) => tracing::warn!(what, why, "waiting"),
        }
        *said = why;
    }
}
