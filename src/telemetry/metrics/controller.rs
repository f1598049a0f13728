//! What the controller counts, beside what every process does.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{CertificateLabels, NoLabels, OutcomeLabels, WebhookLabels};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The controller's metrics. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct ControllerMetrics {
    leads: Gauge,
    last_round: Gauge,
    /// Of every process, and so registered there.
    certificate_not_after: Family<CertificateLabels, Gauge>,
    rotations: Family<ReasonLabels, Counter>,
    // Without a series where another leads, who alone looks: a standby must set off no alarm.
    bundles_current: Family<NoLabels, Gauge>,
    match_conditions_current: Family<NoLabels, Gauge>,
    replicas_trusted: Family<NoLabels, Gauge>,
    armed: Family<WebhookLabels, Gauge>,
    should_be_armed: Family<WebhookLabels, Gauge>,
    probes: Family<OutcomeLabels, Counter>,
}

impl ControllerMetrics {
    pub(super) fn beside(certificate_not_after: Family<CertificateLabels, Gauge>) -> Self {
        Self { certificate_not_after, ..Self::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        for outcome in ["refused", "not-refused", "error"] {
            drop(self.probes.get_or_create(&OutcomeLabels { outcome }));
        }
        registry.register("controller_leads", "Whether this controller leads", self.leads.clone());
        registry.register(
            "controller_last_round_timestamp_seconds",
            "When this controller last looked at everything as the leader, in seconds since 1970",
            self.last_round.clone(),
        );
        registry.register("ca_rotation_steps", "Steps of the CA's rotation", self.rotations.clone());
        registry.register(
            "ca_bundles_current",
            "Whether every caBundle in the webhook configurations is as it should be",
            self.bundles_current.clone(),
        );
        registry.register(
            "match_conditions_current",
            "Whether the match conditions in the webhook configurations are those of the contract in force",
            self.match_conditions_current.clone(),
        );
        registry.register(
            "replicas_trusted",
            "Whether API servers accept the certificate of every replica that is ready",
            self.replicas_trusted.clone(),
        );
        registry.register(
            "webhook_armed",
            "Whether the webhook's failurePolicy is Fail, so that its outage refuses pods",
            self.armed.clone(),
        );
        registry.register(
            "webhook_should_be_armed",
            "Whether contract and registration want the webhook's failurePolicy to be Fail",
            self.should_be_armed.clone(),
        );
        registry.register(
            "webhook_probes",
            "Dry runs that the webhook should refuse, by what became of them",
            self.probes.clone(),
        );
    }

    /// Whether this controller leads.
    pub fn leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    /// Everything was looked at, at this time in seconds since 1970.
    pub fn looked(&self, at: i64) {
        self.last_round.set(at);
    }

    /// The CA that signs expires at this time, in seconds since 1970.
    pub fn authority_expires(&self, not_after: i64) {
        self.certificate_not_after.get_or_create(&CertificateLabels { kind: "ca" }).set(not_after);
    }

    /// A step of the CA's rotation was taken.
    pub fn rotated(&self, reason: &'static str) {
        self.rotations.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Whether every caBundle is as it should be.
    pub fn bundles_current(&self, current: bool) {
        self.bundles_current.get_or_create(&NoLabels {}).set(i64::from(current));
    }

    /// Whether the match conditions are those of the contract in force.
    pub fn match_conditions_current(&self, current: bool) {
        self.match_conditions_current.get_or_create(&NoLabels {}).set(i64::from(current));
    }

    /// Whether API servers accept the certificate of every replica that is ready.
    pub fn replicas_trusted(&self, trusted: bool) {
        self.replicas_trusted.get_or_create(&NoLabels {}).set(i64::from(trusted));
    }

    /// Another leads: what is armed is told by it.
    pub fn stands_by(&self) {
        self.lost_sight();
        self.armed.clear();
        self.should_be_armed.clear();
    }

    /// What this controller last saw is not known to be so any more.
    pub fn lost_sight(&self) {
        for gauge in [&self.bundles_current, &self.match_conditions_current, &self.replicas_trusted] {
            gauge.clear();
        }
    }

    /// Whether a webhook's failurePolicy is Fail, and whether it should be.
    pub fn armed(&self, webhook: &'static str, armed: bool, should_be: bool) {
        let labels = WebhookLabels { webhook };
        self.armed.get_or_create(&labels).set(i64::from(armed));
        self.should_be_armed.get_or_create(&labels).set(i64::from(should_be));
    }

    /// A dry run that the webhook should refuse had this outcome.
    pub fn probed(&self, outcome: &'static str) {
        self.probes.get_or_create(&OutcomeLabels { outcome }).inc();
    }
}
