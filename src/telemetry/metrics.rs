//! Every metric: its name, its labels, its buckets.
//!
//! Label values come from closed sets (`&'static str` or an enum): a value that a user can choose
//! would grow the number of series without bound. The exceptions are the names of exemptions and of pools, of
//! which the contract has so many and no more. Counters are registered without `_total`: the
//! encoder appends it.

mod audit;
mod controller;
mod exemptions;
mod labels;

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use audit::{AuditNumbers, AuditRun, FindingCount, PoolNumbers};
pub use controller::ControllerMetrics;
pub use exemptions::ExemptionUse;
use labels::{
    BuildLabels, CertificateLabels, ContractLabels, NoLabels, OutcomeLabels, RejectionLabels, ReloadLabels,
    WebhookLabels,
};
pub use labels::{Decision, Lookup, Rejection, Request};

/// The media type of [`Metrics::encode`]'s text: Prometheus text format 0.0.4, which every
/// Prometheus reads.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Bucket bounds of the admission duration, in seconds. A review takes tens of microseconds, so
/// the low end tells a healthy process from a starved one; the high end is kube-apiserver's
/// default `timeoutSeconds`, 10.
const DURATION_BUCKETS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The process's metrics, in a registry of their own.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    decisions: Family<Decision, Counter>,
    duration: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    rejections: Family<RejectionLabels, Counter>,
    in_flight: Gauge,
    panics: Counter,
    handshake_failures: Counter,
    connections: Gauge,
    certificate_reloads: Family<ReloadLabels, Counter>,
    certificate_not_after: Family<CertificateLabels, Gauge>,
    contract: Family<ContractLabels, Gauge<u64, AtomicU64>>,
    contract_reloads: Family<OutcomeLabels, Counter>,
    contract_last_reload: Gauge,
    contract_last_success: Gauge,
    namespace_lookups: Family<OutcomeLabels, Counter>,
    /// Without a series until labels are watched: most installations need none.
    namespace_labels: Family<NoLabels, Gauge>,
    node_lookups: Family<OutcomeLabels, Counter>,
    /// Without a series until nodes have been read.
    nodes: Family<NoLabels, Gauge>,
    exemptions: exemptions::Exemptions,
    audits: audit::Audits,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics at zero. Where a family's labels are known beforehand its series exist from the
    /// start: an alert on a rate cannot see the first increase of a series that was not there.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("gpufence"),
            requests: Family::default(),
            decisions: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            rejections: Family::default(),
            in_flight: Gauge::default(),
            panics: Counter::default(),
            handshake_failures: Counter::default(),
            connections: Gauge::default(),
            certificate_reloads: Family::default(),
            certificate_not_after: Family::default(),
            contract: Family::default(),
            contract_reloads: Family::default(),
            contract_last_reload: Gauge::default(),
            contract_last_success: Gauge::default(),
            namespace_lookups: Family::default(),
            namespace_labels: Family::default(),
            node_lookups: Family::default(),
            nodes: Family::default(),
            exemptions: exemptions::Exemptions::default(),
            audits: audit::Audits::default(),
        };
        for rejection in Rejection::ALL {
            drop(metrics.rejections.get_or_create(&RejectionLabels { reason: rejection.as_str() }));
        }
        for result in [true, false] {
            drop(metrics.certificate_reloads.get_or_create(&ReloadLabels::new(result)));
            drop(metrics.contract_reloads.get_or_create(&OutcomeLabels::of_reload(result)));
        }
        for lookup in Lookup::ALL {
            let outcome = OutcomeLabels { outcome: lookup.as_str() };
            drop(metrics.namespace_lookups.get_or_create(&outcome));
            drop(metrics.node_lookups.get_or_create(&outcome));
        }
        metrics.registered()
    }

    /// The same for a controller, with what it counts besides.
    #[must_use]
    pub fn for_controller() -> (Self, ControllerMetrics) {
        let mut metrics = Self::new();
        let controller = ControllerMetrics::beside(metrics.certificate_not_after.clone());
        controller.register(&mut metrics.registry);
        (metrics, controller)
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("admission_requests", "Reviews answered", self.requests.clone());
        registry.register(
            "decisions",
            "What rules found and injection did, one for each finding",
            self.decisions.clone(),
        );
        registry.register(
            "admission_duration_seconds",
            "From a request's headers to its answer, the wait for its body included",
            self.duration.clone(),
        );
        registry.register(
            "http_rejections",
            "HTTP requests refused before they became a review",
            self.rejections.clone(),
        );
        registry.register(
            "admission_in_flight",
            "Requests to the webhooks that are being answered",
            self.in_flight.clone(),
        );
        registry.register("panics", "Reviews that panicked; each one is a bug", self.panics.clone());
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or did not end in time",
            self.handshake_failures.clone(),
        );
        registry.register("connections", "Open connections to the webhooks", self.connections.clone());
        registry.register(
            "certificate_reloads",
            "Changed certificate files that were read, by whether they serve now",
            self.certificate_reloads.clone(),
        );
        registry.register(
            "certificate_not_after_timestamp_seconds",
            "When a certificate expires, in seconds since 1970",
            self.certificate_not_after.clone(),
        );
        registry.register("contract_info", "The contract in force: always 1", self.contract.clone());
        registry.register(
            "contract_reloads",
            "Changed contract files that were read, by whether they are in force now",
            self.contract_reloads.clone(),
        );
        registry.register(
            "contract_last_reload_successful",
            "Whether the contract in force is what the file says: 0 where the file is refused or gone",
            self.contract_last_reload.clone(),
        );
        registry.register(
            "contract_last_reload_success_timestamp_seconds",
            "When the contract in force was read, in seconds since 1970",
            self.contract_last_success.clone(),
        );
        registry.register(
            "namespace_lookups",
            "Namespaces looked up for a review because their labels were not known",
            self.namespace_lookups.clone(),
        );
        registry.register(
            "namespace_labels_current_timestamp_seconds",
            "When the labels of namespaces were last known to be current, in seconds since 1970",
            self.namespace_labels.clone(),
        );
        registry.register(
            "node_lookups",
            "Nodes looked up for a review because nothing was known of them",
            self.node_lookups.clone(),
        );
        registry.register(
            "nodes_current_timestamp_seconds",
            "When the labels and taints of nodes were last known to be current, in seconds since 1970",
            self.nodes.clone(),
        );
        self.exemptions.register(registry);
        self.audits.register(registry);
        registry.register(
            "build",
            "The running program: always 1",
            Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") }),
        );
        self
    }

    /// A review was answered.
    pub fn answered(&self, request: &Request) {
        self.requests.get_or_create(request).inc();
    }

    /// A review's account has an entry.
    pub fn decided(&self, decision: &Decision) {
        self.decisions.get_or_create(decision).inc();
    }

    /// A webhook took this many seconds to answer.
    pub fn took(&self, webhook: &'static str, seconds: f64) {
        self.duration.get_or_create(&WebhookLabels { webhook }).observe(seconds);
    }

    /// A request was refused before it became a review.
    pub fn rejected(&self, rejection: Rejection) {
        self.rejections.get_or_create(&RejectionLabels { reason: rejection.as_str() }).inc();
    }

    /// A review panicked.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// A TLS handshake failed.
    pub fn handshake_failed(&self) {
        self.handshake_failures.inc();
    }

    /// Counts a request as in flight for as long as the guard lives.
    #[must_use]
    pub fn in_flight(&self) -> Counted {
        Counted::new(&self.in_flight)
    }

    /// Counts a connection as open for as long as the guard lives.
    #[must_use]
    pub fn connection(&self) -> Counted {
        Counted::new(&self.connections)
    }

    /// Changed certificate files were read: whether they are served now.
    pub fn certificate_reloaded(&self, serves: bool) {
        self.certificate_reloads.get_or_create(&ReloadLabels::new(serves)).inc();
    }

    /// The certificate that is served expires at this time, in seconds since 1970.
    pub fn serving_certificate_expires(&self, not_after: i64) {
        self.certificate_not_after.get_or_create(&CertificateLabels { kind: "serving" }).set(not_after);
    }

    /// The CA that signs the server's certificates expires at this time, in seconds since 1970.
    pub fn ca_certificate_expires(&self, not_after: i64) {
        self.certificate_not_after.get_or_create(&CertificateLabels { kind: "ca" }).set(not_after);
    }

    /// This contract is in force from now on, which is so many seconds after 1970.
    pub fn contract_in_force(&self, hash: &str, mode: &'static str, now: i64) {
        self.contract.clear();
        self.contract.get_or_create(&ContractLabels { hash: hash.to_owned(), mode }).set(1);
        self.contract_last_success.set(now);
        self.contract_file_current(true);
    }

    /// These exemptions are in force from now on, each by its name and when it expires, in seconds since
    /// 1970. Others have no series any more.
    pub fn exemptions_in_force<'a>(&self, exemptions: impl Iterator<Item = (&'a str, Option<i64>)>) {
        self.exemptions.in_force(exemptions);
    }

    /// An exemption counted for a review, or would have had it not expired.
    pub fn exemption_used(&self, used: &ExemptionUse) {
        self.exemptions.used(used);
    }

    /// A changed contract file was read: whether it is in force now.
    pub fn contract_reloaded(&self, succeeded: bool) {
        self.contract_reloads.get_or_create(&OutcomeLabels::of_reload(succeeded)).inc();
        self.contract_file_current(succeeded);
    }

    /// Whether the contract in force is what the file says.
    pub fn contract_file_current(&self, current: bool) {
        self.contract_last_reload.set(current.into());
    }

    /// A namespace was looked up for a review.
    pub fn namespace_looked_up(&self, lookup: Lookup) {
        self.namespace_lookups.get_or_create(&OutcomeLabels { outcome: lookup.as_str() }).inc();
    }

    /// The labels of namespaces are known as they were at this time, in seconds since 1970.
    pub fn namespace_labels_current(&self, at: i64) {
        self.namespace_labels.get_or_create(&NoLabels {}).set(at);
    }

    /// A node was looked up for a review.
    pub fn node_looked_up(&self, lookup: Lookup) {
        self.node_lookups.get_or_create(&OutcomeLabels { outcome: lookup.as_str() }).inc();
    }

    /// The nodes are known as they were at this time, in seconds since 1970.
    pub fn nodes_current(&self, at: i64) {
        self.nodes.get_or_create(&NoLabels {}).set(at);
    }

    /// The cluster is audited as often as this, by this process or another; not at all without a number.
    pub fn audits_every(&self, seconds: Option<u64>) {
        self.audits.every(seconds);
    }

    /// An audit ended like this.
    pub fn audit_ran(&self, run: AuditRun) {
        self.audits.ran(run);
    }

    /// The last audit, made by this process, came to these numbers.
    pub fn audit_found(&self, numbers: &AuditNumbers) {
        self.audits.found(numbers);
    }

    /// This process makes no audits (any more): what it found is not known to be so.
    pub fn audit_forgotten(&self) {
        self.audits.forget();
    }

    /// Everything as text, of the type [`CONTENT_TYPE`].
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Adds one to a gauge, and takes it back when dropped.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
