//! What the audits of a serving installation find. Only the replica that makes them shows it: another that showed what
//! it found before would show what is not known to be so any more.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

use super::labels::{NoLabels, OutcomeLabels};

/// What became of one audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditRun {
    /// It was made, and its reports were written where any are wanted.
    Success,
    /// It was made, and its reports could not be written.
    Unpublished,
    /// It was not made: the cluster could not be listed, or not in time.
    Failure,
    /// It was given up: another replica leads, the contract changed, or the process ends.
    Stopped,
}

impl AuditRun {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Unpublished, Self::Failure, Self::Stopped];

    /// The value of the label `outcome`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Unpublished => "unpublished",
            Self::Failure => "failure",
            Self::Stopped => "stopped",
        }
    }
}

/// The numbers of one audit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditNumbers {
    /// How many findings there are: for every rule and every severity, 0 among them.
    pub findings: Vec<FindingCount>,
    /// The pools of the contract.
    pub pools: Vec<PoolNumbers>,
    /// How many nodes differ from the contract.
    pub drifted_nodes: u64,
    /// How many things could not be seen or read.
    pub gaps: u64,
    /// When it was made, in seconds since 1970.
    pub at: i64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// How many findings a rule has of a severity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingCount {
    /// The rule's id.
    pub rule: &'static str,
    /// The severity.
    pub severity: &'static str,
    /// How many.
    pub count: u64,
}

/// The numbers of a pool, of which the contract has 64 at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolNumbers {
    /// Its name.
    pub pool: String,
    /// Its nodes.
    pub nodes: u64,
    /// The ordinary pods on them.
    pub ordinary_pods: u64,
    /// Its GPUs by state: `allocatable`, `requested`, `free`, `blocked`, `out-of-use`.
    pub gpus: [(&'static str, i64); 5],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabels {
    rule: &'static str,
    severity: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GpuLabels {
    pool: String,
    state: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug, Default)]
pub(super) struct Audits {
    runs: Family<OutcomeLabels, Counter>,
    interval: Family<NoLabels, Gauge>,
    findings: Family<FindingLabels, Gauge>,
    ordinary_pods: Family<PoolLabels, Gauge>,
    nodes: Family<PoolLabels, Gauge>,
    gpus: Family<GpuLabels, Gauge>,
    drifted_nodes: Family<NoLabels, Gauge>,
    gaps: Family<NoLabels, Gauge>,
    last_success: Family<NoLabels, Gauge>,
    duration: Family<NoLabels, Seconds>,
}

impl Audits {
    pub(super) fn register(&self, registry: &mut Registry) {
        for run in AuditRun::ALL {
            drop(self.runs.get_or_create(&OutcomeLabels { outcome: run.as_str() }));
        }
        registry.register("audit_runs", "Audits of the cluster, by what became of them", self.runs.clone());
        registry.register(
            "audit_interval_seconds",
            "How long after one audit the next one follows; none where the contract wants none",
            self.interval.clone(),
        );
        registry.register("audit_findings", "What the last audit found", self.findings.clone());
        registry.register(
            "audit_ordinary_pods",
            "Pods on a pool's nodes that request no GPU and serve no node",
            self.ordinary_pods.clone(),
        );
        registry.register("audit_nodes", "The nodes that are meant for a pool", self.nodes.clone());
        registry.register(
            "audit_gpus",
            "The GPUs of a pool; blocked are those that are free, and of no use since others took what goes with them; \
             out-of-use are those that are neither requested nor free, on nodes that take no GPU pods",
            self.gpus.clone(),
        );
        registry.register(
            "audit_drifted_nodes",
            "Nodes whose labels, taints or GPUs are not as the contract has them",
            self.drifted_nodes.clone(),
        );
        registry.register(
            "audit_gaps",
            "What the last audit could not see or read: where it is above 0 the other numbers may be too low",
            self.gaps.clone(),
        );
        registry.register(
            "audit_last_success_timestamp_seconds",
            "When the last audit was made, in seconds since 1970",
            self.last_success.clone(),
        );
        registry.register("audit_duration_seconds", "How long the last audit took", self.duration.clone());
    }

    pub(super) fn ran(&self, run: AuditRun) {
        self.runs.get_or_create(&OutcomeLabels { outcome: run.as_str() }).inc();
    }

    pub(super) fn every(&self, seconds: Option<u64>) {
        match seconds.and_then(|seconds| i64::try_from(seconds).ok()) {
            Some(seconds) => drop(self.interval.get_or_create(&NoLabels {}).set(seconds)),
            None => self.interval.clear(),
        }
    }

    /// What the last one found is gone as a whole: pools and rules may be others.
    pub(super) fn found(&self, numbers: &AuditNumbers) {
        self.forget();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for FindingCount { rule, severity, count } in &numbers.findings {
            self.findings.get_or_create(&FindingLabels { rule, severity }).set(number(*count));
        }
        for PoolNumbers { pool, nodes, ordinary_pods, gpus } in &numbers.pools {
            let labels = PoolLabels { pool: pool.clone() };
            self.nodes.get_or_create(&labels).set(number(*nodes));
            self.ordinary_pods.get_or_create(&labels).set(number(*ordinary_pods));
            for (state, count) in *gpus {
                self.gpus.get_or_create(&GpuLabels { pool: pool.clone(), state }).set(count);
            }
        }
        self.drifted_nodes.get_or_create(&NoLabels {}).set(number(numbers.drifted_nodes));
        self.gaps.get_or_create(&NoLabels {}).set(number(numbers.gaps));
        self.last_success.get_or_create(&NoLabels {}).set(numbers.at);
        self.duration.get_or_create(&NoLabels {}).set(numbers.seconds);
    }

    pub(super) fn forget(&self) {
        self.findings.clear();
        for pools in [&self.nodes, &self.ordinary_pods] {
            pools.clear();
        }
        self.gpus.clear();
        for gauge in [&self.drifted_nodes, &self.gaps, &self.last_success] {
            gauge.clear();
        }
        self.duration.clear();
    }
}
