//! One look at everything that an installation needs to be kept right, and what follows from it.
//!
//! A round reads the registrations, the CA and the replicas, in this order, and then writes: the CA where its
//! rotation has a next step, the caBundle where it differs, the failurePolicy where it is due. Every write
//! is conditional on what was read, so that a controller that slept can undo nothing, and two at once are
//! no worse than one. Nothing is remembered from one round to the next but what keeps the log short.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::authority::{AuthorityError, Store, Stored};
use super::lease::Candidate;
use super::probe::{self, Outcome};
use super::registrations::{FailurePolicy, Kind, Registration, RegistrationError};
use super::replicas::{self, Replica};
use super::{Installation, Intent, Said};
use crate::certificate::rotation::{self, Observation, Schedule, State, Step};
use crate::certificate::verify;
use crate::lifecycle::Shutdown;
use crate::telemetry::metrics::ControllerMetrics;

/// How often everything is looked at. What is wiped by hand is back within two of these, and the Lease is
/// renewed three times before it runs out.
const ROUND: Duration = Duration::from_secs(5);

/// How long a round may take: what hangs must not keep the Lease from being renewed.
const ROUND_LIMIT: Duration = Duration::from_secs(12);

/// How often the whole way is tried again once the webhook is armed.
const PROBE_AGAIN: Duration = Duration::from_secs(60);

/// Where the webhook's certificate comes from.
#[derive(Debug, Clone)]
pub enum Certificates {
    /// From a CA in a Secret, which the controller keeps together with the caBundle.
    Managed(Schedule),
    /// From somebody else, such as cert-manager, who keeps the caBundle as well.
    Given,
}

/// Keeps one installation right.
pub struct Controller {
    client: Client,
    installation: Installation,
    certificates: Certificates,
    store: Store,
    candidate: Candidate,
    intent: watch::Receiver<Arc<Intent>>,
    metrics: ControllerMetrics,
    probed: Option<(Instant, Outcome)>,
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
    /// Nothing is asked yet. `identity` tells this controller from others.
    #[must_use]
    pub fn new(
        client: Client,
        installation: Installation,
        certificates: Certificates,
        identity: String,
        intent: watch::Receiver<Arc<Intent>>,
        metrics: ControllerMetrics,
    ) -> Self {
        let candidate = Candidate::new(client.clone(), &installation.namespace, &installation.lease, identity);
        let store = Store::new(client.clone(), &installation);
        let (probed, said) = (None, BTreeMap::new());
        Self { client, installation, certificates, store, candidate, intent, metrics, probed, said }
    }

    /// Works until the process ends, and then lets another lead.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut soon = false;
        let mut leads = false;
        loop {
            tokio::select! {
                () = shutdown.draining() => break,
                Ok(()) = self.intent.changed() => {}
                // A step of the rotation was just taken, and the next one follows from it.
                () = tokio::time::sleep(Duration::from_millis(200)), if soon => {}
                _ = rounds.tick() => {}
            }
            let round = tokio::time::timeout(ROUND_LIMIT, self.lead_and_look()).await;
            let (now_leads, again) = match round.unwrap_or(Err(RoundError::Slow)) {
                Ok(None) => (false, false),
                Ok(Some(again)) => {
                    self.say("round", String::new());
                    self.metrics.looked(OffsetDateTime::now_utc().unix_timestamp());
                    (true, again)
                }
                Err(error) => {
                    self.say("round", error.to_string());
                    (leads, false)
                }
            };
            if now_leads != leads {
                tracing::info!(leads = now_leads, "lead");
            }
            (leads, soon) = (now_leads, again);
            self.metrics.leads(leads);
        }
        if leads && let Err(error) = self.candidate.release().await {
            tracing::warn!(error = %Said(&error), "the Lease cannot be given back; it runs out by itself");
        }
    }

    /// `None` where another leads; otherwise whether the next round should follow at once.
    async fn lead_and_look(&mut self) -> Result<Option<bool>, RoundError> {
        if !self.candidate.leads().await.map_err(RoundError::Lease)? {
            self.said.clear();
            return Ok(None);
        }
        let mut registrations = Vec::new();
        let mut missing = String::new();
        for kind in Kind::ALL {
            match Registration::read(&self.client, &self.installation, kind).await {
                Ok(registration) => registrations.push(registration),
                // Whoever removes the installation removes these first, and then nothing is to be done.
                Err(error @ (RegistrationError::Missing { .. } | RegistrationError::NoHook { .. })) => {
                    missing = error.to_string();
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.say("registration", missing);
        let intent = Arc::clone(&self.intent.borrow());
        let stale = registrations.iter().find_map(|registration| registration.stale_hook(&intent.match_conditions));
        self.metrics.match_conditions_current(stale.is_none());
        let stale = stale.map(|hook| {
            format!(
                "the match conditions of {hook} are those of another contract, so that it is not asked about all that this \
                 one speaks of; apply the output of `gpufence manifests` for it"
            )
        });
        self.say("match conditions", stale.unwrap_or_default());
        // In this order: what is concluded for a registration must not be older than the registration, nor what a
        // replica is expected to serve younger than the replica's answer.
        let (seen, again) = match self.certificates.clone() {
            Certificates::Managed(schedule) => {
                let stored = self.store.read().await?;
                let seen = self.replicas().await?;
                let again = self.keep_authority(stored, &registrations, &seen, &schedule).await?;
                (seen, again)
            }
            Certificates::Given => (self.replicas().await?, false),
        };
        if !again {
            self.keep_failure_policies(&registrations, &seen).await?;
        }
        Ok(Some(again))
    }

    async fn replicas(&self) -> Result<Vec<Seen>, RoundError> {
        let found = replicas::list(&self.client, &self.installation).await.map_err(RoundError::Replicas)?;
        let chains = replicas::chains(&found, &self.installation.server_name).await;
        Ok(found.into_iter().zip(chains).collect())
    }

    /// Takes the rotation's next step, or brings the caBundles to where it stands. Whether there is more to
    /// do at once.
    async fn keep_authority(
        &mut self,
        stored: Stored,
        registrations: &[Registration],
        seen: &[Seen],
        schedule: &Schedule,
    ) -> Result<bool, RoundError> {
        let bundles: Vec<&[u8]> = registrations.iter().flat_map(Registration::bundles).collect();
        let chains: Vec<_> = seen.iter().map(|(_, chain)| chain.clone().ok()).collect();
        let observation = Observation::of(stored.state.as_ref(), &bundles, &chains);
        let now = OffsetDateTime::now_utc();
        match rotation::step(stored.state.as_ref(), now, &observation, schedule)? {
            Step::Write(next, reason) => {
                if self.store.replace(stored, &next).await? {
                    self.metrics.rotated(reason.as_str());
                    self.metrics.authority_expires(next.signing().not_after().unix_timestamp());
                    let (phase, authority) = (next.phase().as_str(), next.signing().fingerprint());
                    if reason.is_emergency() {
                        tracing::error!(%reason, phase, authority, "the CA was replaced without an overlap");
                    } else {
                        tracing::info!(%reason, phase, authority, "the CA's rotation went on");
                    }
                }
                Ok(true)
            }
            Step::Keep => {
                let Some(state) = stored.state else { return Ok(false) };
                self.metrics.authority_expires(state.signing().not_after().unix_timestamp());
                self.keep_bundles(registrations, seen, &state, &observation).await
            }
        }
    }

    async fn keep_bundles(
        &mut self,
        registrations: &[Registration],
        seen: &[Seen],
        state: &State,
        observation: &Observation,
    ) -> Result<bool, RoundError> {
        let mut changed = false;
        let mut withheld = String::new();
        let mut all_current = true;
        for registration in registrations {
            let bundle = |current: &[u8]| {
                let current_stays = rotation::is_current(state, current, observation);
                (!current_stays).then(|| rotation::bundle_for(state, current, observation).into_bytes())
            };
            let operations = registration.with_bundles(&bundle);
            if operations.is_empty() {
                continue;
            }
            all_current = false;
            let next = bundle(&registration.pod_hook().ca_bundle);
            // An API server that trusts a CA by which nobody serves can only fail.
            match self.trusted(seen, next.as_deref().unwrap_or(&registration.pod_hook().ca_bundle)) {
                Ok(()) => {
                    if registration.apply(&self.client, operations).await? {
                        tracing::info!(configuration = registration.kind.name(), "caBundle set");
                    }
                    changed = true;
                }
                Err(why) => withheld = why,
            }
        }
        self.metrics.bundles_current(all_current && !registrations.is_empty());
        self.say("caBundle", withheld);
        Ok(changed)
    }

    /// Whether the replicas that are called serve a certificate that the bundle vouches for: one at least
    /// must, and none may serve another.
    fn trusted(&self, seen: &[Seen], bundle: &[u8]) -> Result<(), String> {
        let now = OffsetDateTime::now_utc();
        let server_name = &self.installation.server_name;
        let mut trusted = 0;
        let mut unseen = String::new();
        for (replica, chain) in seen.iter().filter(|(replica, _)| replica.is_ready) {
            match chain {
                Ok(chain) => match verify(chain, bundle, server_name, now) {
                    Ok(()) => trusted += 1,
                    Err(distrust) => {
                        return Err(format!("the replica {} serves a certificate that is {distrust}", replica.name));
                    }
                },
                Err(error) => unseen = format!("the replica {} does not answer: {error}", replica.name),
            }
        }
        match (trusted, unseen.is_empty()) {
            (0, true) => Err("no replica of the webhook is ready".to_owned()),
            (0, false) => Err(unseen),
            _ => Ok(()),
        }
    }

    async fn keep_failure_policies(&mut self, registrations: &[Registration], seen: &[Seen]) -> Result<(), RoundError> {
        let intent = Arc::clone(&self.intent.borrow());
        let mut waits = String::new();
        for registration in registrations {
            let now = registration.pod_hook().failure_policy;
            let may_fail = registration.target == FailurePolicy::Fail
                && intent.enforces_everywhere
                && !registration.is_audit_only();
            self.metrics.armed(registration.kind.webhook(), now == FailurePolicy::Fail, may_fail);
            let wanted = if !may_fail {
                FailurePolicy::Ignore
            } else if now == FailurePolicy::Fail {
                // Armed already. What fails now is for people to see, and for them alone to take back.
                drop(self.probe(&intent, PROBE_AGAIN).await);
                continue;
            } else {
                match self.may_arm(registration, seen, &intent).await {
                    Ok(()) => FailurePolicy::Fail,
                    Err(why) => {
                        waits = why;
                        FailurePolicy::Ignore
                    }
                }
            };
            let operations = registration.with_failure_policy(wanted);
            if operations.is_empty() {
                continue;
            }
            if registration.apply(&self.client, operations).await? {
                self.metrics.armed(registration.kind.webhook(), wanted == FailurePolicy::Fail, may_fail);
                tracing::info!(
                    configuration = registration.kind.name(),
                    webhook = registration.pod_hook().name,
                    failure_policy = wanted.as_str(),
                    "failurePolicy set"
                );
            }
        }
        self.say("failurePolicy", waits);
        Ok(())
    }

    /// Whether the webhook is seen to do what an API server may insist on.
    async fn may_arm(&mut self, registration: &Registration, seen: &[Seen], intent: &Intent) -> Result<(), String> {
        self.trusted(seen, &registration.pod_hook().ca_bundle)?;
        match self.probe(intent, Duration::ZERO).await? {
            Outcome::Refused => Ok(()),
            Outcome::Passed(what) => Err(format!(
                "a dry run in the namespace {}, which the webhook should refuse, was not refused by it: {what}",
                self.installation.probe_namespace
            )),
        }
    }

    /// The outcome of a probe that is no older than `age`.
    async fn probe(&mut self, intent: &Intent, age: Duration) -> Result<Outcome, String> {
        if let Some((at, outcome)) = &self.probed
            && at.elapsed() < age
        {
            return Ok(outcome.clone());
        }
        let Some(probe) = &intent.probe else {
            return Err(format!(
                "the contract refuses nothing in the namespace {}, so that nothing can be shown; it must not be in an \
                 allowlist",
                self.installation.probe_namespace
            ));
        };
        let sent = probe::send(&self.client, &self.installation, probe).await;
        self.metrics.probed(match &sent {
            Ok(Outcome::Refused) => "refused",
            Ok(Outcome::Passed(_)) => "passed",
            Err(_) => "error",
        });
        let outcome = sent.map_err(|error| format!("the dry run could not be made: {}", Said(&error)))?;
        self.probed = Some((Instant::now(), outcome.clone()));
        Ok(outcome)
    }

    /// Says what stands in the way of something, once; nothing stands there where the text is empty.
    fn say(&mut self, what: &'static str, why: impl Into<String>) {
        let why = why.into();
        let said = self.said.entry(what).or_default();
        match (*said == why, why.is_empty()) {
            (true, _) => {}
            (false, true) => tracing::info!(what, "no longer in the way: {said}"),
            (false, false) => tracing::warn!(what, why, "waiting"),
        }
        *said = why;
    }
}
