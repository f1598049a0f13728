//! The CA, and the caBundle of each webhook.

use time::OffsetDateTime;

use super::super::authority::Stored;
use super::super::registrations::Registration;
use super::super::replicas::Replica;
use super::{Controller, RoundError, Seen};
use crate::certificate::rotation::{self, Observation, State, Step};
use crate::certificate::verify;

impl Controller {
    /// Takes the rotation's next step, or brings the caBundles to where it stands. Whether there is more to
    /// do at once.
    pub(super) async fn keep_authority(
        &mut self,
        stored: Stored,
        registrations: &[Registration],
        seen: &[Seen],
    ) -> Result<bool, RoundError> {
        let bundles: Vec<&[u8]> = registrations.iter().flat_map(Registration::bundles).collect();
        let chains: Vec<_> = seen.iter().map(|(_, chain)| chain.clone().ok()).collect();
        let observation = Observation::of(stored.state.as_ref(), &bundles, &chains);
        let now = OffsetDateTime::now_utc();
        match rotation::step(stored.state.as_ref(), now, &observation, &self.schedule)? {
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
            let current = &registration.pod_hook().ca_bundle;
            let next = bundle(current);
            match self.gains(seen, current, next.as_deref().unwrap_or(current)) {
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

    /// Whether API servers that trust the next bundle instead of the current one can call a replica at least, and no
    /// replica less than before. One that can be called by neither is in nobody's way.
    fn gains(&self, seen: &[Seen], current: &[u8], next: &[u8]) -> Result<(), String> {
        let mut trusted = 0;
        let mut why = "no replica of the webhook is ready".to_owned();
        for (replica, trust) in self.trust(seen, next) {
            match trust {
                Ok(()) => trusted += 1,
                Err(Distrust::Unseen(error)) => why = error,
                Err(Distrust::Untrusted(error)) => {
                    if self.trust(seen, current).any(|(other, trust)| other.name == replica.name && trust.is_ok()) {
                        return Err(error);
                    }
                    why = error;
                }
            }
        }
        if trusted == 0 { Err(why) } else { Ok(()) }
    }

    /// Whether the replicas that are called serve a certificate that the bundle vouches for: one at least
    /// must, and none may serve another.
    pub(super) fn trusted(&self, seen: &[Seen], bundle: &[u8]) -> Result<(), String> {
        let mut trusted = 0;
        let mut why = "no replica of the webhook is ready".to_owned();
        for (_, trust) in self.trust(seen, bundle) {
            match trust {
                Ok(()) => trusted += 1,
                Err(Distrust::Unseen(error)) => why = error,
                Err(Distrust::Untrusted(error)) => return Err(error),
            }
        }
        if trusted == 0 { Err(why) } else { Ok(()) }
    }

    /// What is wrong with the certificates of those replicas that are called and that an API server with the bundle
    /// refuses.
    pub(super) fn untrusted(&self, seen: &[Seen], bundle: &[u8]) -> Vec<String> {
        let refused = self.trust(seen, bundle).filter_map(|(_, trust)| match trust {
            Err(Distrust::Untrusted(why)) => Some(why),
            Ok(()) | Err(Distrust::Unseen(_)) => None,
        });
        refused.collect()
    }

    /// What an API server that trusts the bundle makes of each replica that is ready.
    fn trust<'a>(
        &self,
        seen: &'a [Seen],
        bundle: &'a [u8],
    ) -> impl Iterator<Item = (&'a Replica, Result<(), Distrust>)> {
        let now = OffsetDateTime::now_utc();
        let server_name = &self.installation.server_name;
        let ready = seen.iter().filter(|(replica, _)| replica.is_ready);
        ready.map(move |(replica, chain)| {
            let trust = match chain {
                Ok(chain) => verify(chain, bundle, server_name, now).map_err(|distrust| {
                    Distrust::Untrusted(format!("the replica {} serves a certificate that is {distrust}", replica.name))
                }),
                Err(error) => Err(Distrust::Unseen(format!("the replica {} does not answer: {error}", replica.name))),
            };
            (replica, trust)
        })
    }
}

/// Why a replica cannot be called, as far as is known.
enum Distrust {
    /// It showed a certificate that is refused.
    Untrusted(String),
    /// It showed none, to this process at least.
    Unseen(String),
}
