//! What a failing webhook means.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::super::probe::{self, Outcome};
use super::super::registrations::{FailurePolicy, Hook, Registration};
use super::super::{Installation, Intent, Said};
use super::{Controller, RoundError, Seen};

/// How often the whole way is tried again once the webhook is armed.
const PROBE_AGAIN: Duration = Duration::from_secs(20);

/// How long a dry run may take: other webhooks are asked about it as well, and what else is to be done in a round
/// must not wait for the slowest of them.
const PROBE_LIMIT: Duration = Duration::from_secs(6);

/// Whether an outage of the webhook may refuse pods at all.
fn may_fail(registration: &Registration, intent: &Intent, installation: &Installation) -> bool {
    registration.target == FailurePolicy::Fail
        && intent.enforces_everywhere
        && !registration.is_audit_only()
        && registration.reaches(installation).is_none()
}

impl Controller {
    /// Takes Fail back where it must not be. Whether there was anything to do.
    pub(super) async fn disarm(&mut self, registrations: &[Registration], intent: &Intent) -> Result<bool, RoundError> {
        let mut done = false;
        let mut reached = String::new();
        for registration in registrations {
            if let Some(namespace) = registration.reaches(&self.installation) {
                reached = format!(
                    "the namespaceSelector of the {} no longer leaves out {namespace}, whose pods must wait for nobody; apply \
                     the output of `gpufence manifests`",
                    registration.kind.name()
                );
            }
            // Where it may stay armed the others of its webhooks still may not be.
            let may_fail = may_fail(registration, intent, &self.installation);
            let may_stay = may_fail && registration.pod_hook().failure_policy == FailurePolicy::Fail;
            let wanted = |hook: &Hook| {
                let stays = may_stay && registration.is_armable(hook, &intent.match_conditions);
                if stays { hook.failure_policy } else { FailurePolicy::Ignore }
            };
            done |= self.set_failure_policy(registration, &wanted, may_fail).await?;
        }
        self.say("namespaceSelector", reached);
        Ok(done)
    }

    /// Sets Fail where it is wanted, and the webhook is seen to do what an API server may insist on.
    pub(super) async fn arm(
        &mut self,
        registrations: &[Registration],
        seen: &[Seen],
        intent: &Intent,
    ) -> Result<(), RoundError> {
        let mut waits = String::new();
        for registration in registrations {
            let is_armed = registration.pod_hook().failure_policy == FailurePolicy::Fail;
            let may_fail = may_fail(registration, intent, &self.installation);
            self.metrics.armed(registration.kind.webhook(), is_armed, may_fail);
            let all_armed =
                registration.armable(&intent.match_conditions).all(|hook| hook.failure_policy == FailurePolicy::Fail);
            if may_fail && !all_armed {
                let wanted = |hook: &Hook| {
                    let is_armable = registration.is_armable(hook, &intent.match_conditions);
                    if is_armable { FailurePolicy::Fail } else { FailurePolicy::Ignore }
                };
                match self.may_arm(registration, seen, intent).await {
                    Ok(()) => drop(self.set_failure_policy(registration, &wanted, true).await?),
                    Err(why) => waits = why,
                }
            }
        }
        self.say("failurePolicy", waits);
        Ok(())
    }

    /// Looks whether what is armed still answers. What fails now is for people to see, and for them alone to take back.
    pub(super) async fn look_at_armed(&mut self, registrations: &[Registration], intent: &Intent) {
        let armed = |registration: &Registration| registration.pod_hook().failure_policy == FailurePolicy::Fail;
        if registrations.iter().any(armed) {
            let lost = self.refuses(intent, PROBE_AGAIN).await.err().unwrap_or_default();
            self.say("armed webhook", lost);
        } else {
            // It was disarmed, which resolves nothing.
            self.said.remove("armed webhook");
        }
    }

    /// Whether there was anything to do. It was not done where another was faster, which the next look will see.
    async fn set_failure_policy(
        &self,
        registration: &Registration,
        wanted: &(impl Fn(&Hook) -> FailurePolicy + Sync),
        may_fail: bool,
    ) -> Result<bool, RoundError> {
        let operations = registration.with_failure_policy(wanted);
        if operations.is_empty() {
            return Ok(false);
        }
        if registration.apply(&self.client, operations).await? {
            let is_armed = wanted(registration.pod_hook()) == FailurePolicy::Fail;
            self.metrics.armed(registration.kind.webhook(), is_armed, may_fail);
            for hook in registration.hooks.iter().filter(|hook| hook.is_ours && wanted(hook) != hook.failure_policy) {
                tracing::info!(
                    configuration = registration.kind.name(),
                    webhook = hook.name,
                    failure_policy = wanted(hook).as_str(),
                    "failurePolicy set"
                );
            }
        }
        Ok(true)
    }

    async fn may_arm(&mut self, registration: &Registration, seen: &[Seen], intent: &Intent) -> Result<(), String> {
        for hook in registration.armable(&intent.match_conditions) {
            self.trusted(seen, &hook.ca_bundle)?;
        }
        self.refuses(intent, Duration::ZERO).await
    }

    /// Whether the webhook refuses what it should, by a dry run that is no older than `age`.
    async fn refuses(&mut self, intent: &Intent, age: Duration) -> Result<(), String> {
        let outcome = match &self.probed {
            Some((at, outcome)) if at.elapsed() < age => outcome.clone(),
            _ => {
                let outcome = self.probe(intent).await;
                self.probed = Some((Instant::now(), outcome.clone()));
                outcome
            }
        };
        match outcome? {
            Outcome::Refused => Ok(()),
            Outcome::Passed(what) => Err(format!(
                "a dry run in the namespace {}, which the webhook should refuse, was not refused by it: {what}",
                self.installation.probe_namespace
            )),
        }
    }

    async fn probe(&self, intent: &Intent) -> Result<Outcome, String> {
        let Some(probe) = &intent.probe else {
            return Err(format!(
                "the contract refuses nothing in the namespace {}, so that nothing can be shown; it must not be in an \
                 allowlist",
                self.installation.probe_namespace
            ));
        };
        let sent = timeout(PROBE_LIMIT, probe::send(&self.client, &self.installation, probe)).await;
        let outcome = match sent {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) => Err(format!("the dry run could not be made: {}", Said(&error))),
            Err(_) => Err(format!("the dry run was not answered within {} s", PROBE_LIMIT.as_secs())),
        };
        self.metrics.probed(match &outcome {
            Ok(Outcome::Refused) => "refused",
            Ok(Outcome::Passed(_)) => "not-refused",
            Err(_) => "error",
        });
        outcome
    }
}
