//! Which of several processes leads, by a Lease: of the controllers, and of the replicas that audit.
//!
//! As client-go does it: whoever sees a Lease unchanged for as long as it is valid, by the own clock, may
//! take it, and the resourceVersion lets only one of two takers win. Two may still believe to lead for a
//! moment. That is no harm: all that they write is guarded the same way, and says the same.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};

use super::has_code;

/// For how long a Lease holds that is not renewed, in seconds.
const VALID_SECONDS: i32 = 15;
const VALID: Duration = Duration::from_secs(15);

/// A candidate for the lead.
#[derive(Debug)]
pub(super) struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// The version of the Lease that was last seen, and since when it has been that one.
    seen: Option<(String, Instant)>,
    /// When the Lease was last taken or renewed.
    renewed: Option<Instant>,
}

impl Candidate {
    /// Nothing is known of the Lease yet.
    pub(super) fn new(client: Client, namespace: &str, name: &str, identity: String) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity, seen: None, renewed: None }
    }

    /// Takes or renews the Lease; whether it is ours for the next seconds.
    ///
    /// # Errors
    /// Where the API server does not answer, or has no such Lease: it comes with the manifests.
    pub(super) async fn leads(&mut self) -> Result<bool, kube::Error> {
        let lease = self.api.get(&self.name).await?;
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder != self.identity && !holder.is_empty() {
            let now = Instant::now();
            match &self.seen {
                Some((last, since)) if *last == version => {
                    let valid = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                    if now.duration_since(*since) < valid.map_or(VALID, Duration::from_secs) {
                        return Ok(false);
                    }
                }
                _ => {
                    self.seen = Some((version, now));
                    return Ok(false);
                }
            }
        }
        let taken = holder != self.identity;
        let now = MicroTime(Timestamp::now());
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(VALID_SECONDS),
            renew_time: Some(now.clone()),
            acquire_time: if taken { Some(now) } else { spec.acquire_time },
            lease_transitions: Some(spec.lease_transitions.unwrap_or_default() + i32::from(taken)),
            ..spec
        };
        // From before it is written, since others count from after.
        let began = Instant::now();
        let leads = self.put(lease, spec).await?;
        self.renewed = leads.then_some(began);
        Ok(leads)
    }

    /// Whether nobody else can have taken the Lease meanwhile.
    pub(super) fn holds(&self) -> bool {
        self.renewed.is_some_and(|renewed| renewed.elapsed() < VALID)
    }

    /// Gives the Lease back, so that another may lead at once.
    pub(super) async fn release(&self) -> Result<(), kube::Error> {
        let lease = self.api.get(&self.name).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref() == Some(&self.identity) {
            self.put(lease, LeaseSpec { holder_identity: None, ..spec }).await?;
        }
        Ok(())
    }

    /// Whether the write was the first after the version that was read.
    async fn put(&self, lease: Lease, spec: LeaseSpec) -> Result<bool, kube::Error> {
        let lease = Lease { spec: Some(spec), ..lease };
        match self.api.replace(&self.name, &PostParams::default(), &lease).await {
            Ok(_) => Ok(true),
            Err(error) if has_code(&error, 409) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
