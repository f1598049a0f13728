//! All that an audit says, in the form of its JSON. The form is versioned: fields are added, never renamed or removed.

use std::collections::HashSet;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::finding::{Check, Finding, Severity};
use super::snapshot::{Amounts, ObjectRef, Qos, Resource, Snapshot};
use super::view::View;
use super::what_if::WhatIf;

/// The version of the form.
pub const VERSION: &str = "gpufence.io/audit/v1";

/// All that an audit says.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// The version of the form: [`VERSION`].
    pub version: &'static str,
    /// The time against which it was held, as RFC 3339 writes it.
    pub taken: String,
    /// Where the objects are from, for people.
    pub source: String,
    /// Which contract it was held against, for people; empty where nobody said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub contract: String,
    /// The contract's mode.
    pub mode: &'static str,
    /// The numbers.
    pub summary: Summary,
    /// The contract's pools.
    pub pools: Vec<PoolAccount>,
    /// The nodes that have to do with GPUs, by name.
    pub nodes: Vec<NodeAccount>,
    /// The DaemonSets, and which GPU nodes they reach.
    pub daemon_sets: Vec<Coverage>,
    /// The pods that find no node, as far as GPUs have to do with it.
    pub pending: Vec<Pending>,
    /// What is not as the contract wants it, worst first.
    pub findings: Vec<Finding>,
    /// What could not be judged, because nobody gave it or it could not be read.
    pub gaps: Vec<String>,
    /// The earlier audit whose findings are not shown again, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Since>,
    /// What a change to nodes would do, where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIf>,
}

/// An earlier audit, of which only what is new since is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Since {
    /// Where it is from, for people.
    pub source: String,
    /// Those of the gaps that it had as well.
    pub known_gaps: Vec<String>,
}

/// The numbers of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// All nodes.
    pub nodes: usize,
    /// Those that have to do with GPUs.
    pub gpu_nodes: usize,
    /// Those of them that some finding about their labels, taints or GPUs names.
    pub drifted_nodes: usize,
    /// All pods that have not ended.
    pub pods: usize,
    /// Whether there may be more pods: what is free of nodes is not known then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The pods on GPU nodes.
    pub pods_on_gpu_nodes: ByClass<usize>,
    /// The findings.
    pub findings: BySeverity,
    /// How many findings are not shown because a baseline has them; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<usize>,
    /// How many findings of a baseline are gone; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<usize>,
}

/// One value for each class of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "they are the classes")]
pub struct ByClass<T> {
    pub gpu_workload: T,
    pub daemon_set: T,
    pub platform: T,
    pub ordinary: T,
}

impl<T> ByClass<T> {
    /// The value of a class.
    pub fn of(&mut self, class: Class) -> &mut T {
        match class {
            Class::GpuWorkload => &mut self.gpu_workload,
            Class::DaemonSet => &mut self.daemon_set,
            Class::Platform => &mut self.platform,
            Class::Ordinary => &mut self.ordinary,
        }
    }
}

/// How many findings there are of each severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "they are the severities")]
pub struct BySeverity {
    pub high: usize,
    pub medium: usize,
    pub low: usize,
    pub info: usize,
}

impl BySeverity {
    /// The number of a severity.
    pub fn of(&mut self, severity: Severity) -> &mut usize {
        match severity {
            Severity::High => &mut self.high,
            Severity::Medium => &mut self.medium,
            Severity::Low => &mut self.low,
            Severity::Info => &mut self.info,
        }
    }
}

/// What a pod is to a GPU node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It requests a GPU.
    GpuWorkload,
    /// It serves the node: a DaemonSet's pod.
    DaemonSet,
    /// It serves the cluster: static pods, what runs in the system's namespaces or with a system priority, and what the
    /// contract exempts without an end.
    Platform,
    /// Neither.
    Ordinary,
}

/// GPUs, of all of a pool's resources together. What is requested, free and out of use is what is allocatable, unless
/// more is requested of a node than it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpus {
    /// What pods may have.
    pub allocatable: i64,
    /// What pods that have not ended request.
    pub requested: i64,
    /// What is left on nodes that take GPU pods. What of it is blocked counts among it.
    pub free: i64,
    /// What of that cannot be used, because pods that request no GPU took the CPU, the memory, the storage or the
    /// places that a GPU pod needs beside it.
    pub blocked: i64,
    /// What is left on nodes that take no GPU pods: not ready, cordoned, without the labels of the pool, or with a hard
    /// taint that the exact tolerations of the pool do not pass, be it one that comes and goes by itself.
    pub out_of_use: i64,
}

/// A pool of the contract. A node that could be of several pools and has the label or a taint of none counts in the first
/// of them, with its GPUs and its pods.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolAccount {
    /// Its name.
    pub name: String,
    /// How many nodes are meant for it.
    pub nodes: usize,
    /// Its GPUs.
    pub gpus: Gpus,
    /// How many ordinary pods are on its nodes.
    pub ordinary_pods: usize,
    /// What a GPU pod needs beside one GPU, by which free GPUs count as blocked: the median of the pool's GPU pods.
    /// Absent where there is no such pod; then a GPU is blocked where nothing at all is left beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Amounts>,
    /// How many GPUs the median GPU pod of the pool has, for which one place is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_per_pod: Option<i64>,
}

/// A node that has to do with GPUs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAccount {
    /// Its name.
    pub name: String,
    /// The pools that it is meant for; of a node that does not say which, all of those whose GPUs it offers.
    pub pools: Vec<String>,
    /// What it has in common with the nodes that should be as it is, such as `node pool gpu-a100`; empty where nothing
    /// says so.
    pub group: String,
    /// Whether its condition `Ready` is `True`; absent where it has none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its taints, as kubectl writes them.
    pub taints: Vec<String>,
    /// Its GPUs.
    pub gpus: Gpus,
    /// The same by resource.
    pub resources: Vec<GpuResource>,
    /// What is missing beside its blocked GPUs: `cpu`, `memory`, `ephemeral-storage`, `pods`.
    pub blocked_by: Vec<&'static str>,
    /// What pods may have of it.
    pub allocatable: Amounts,
    /// What pods request of it, by class.
    pub requested: ByClass<Amounts>,
    /// The pods on it.
    pub occupants: Vec<Occupant>,
}

/// A resource of GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuResource {
    /// Its name, such as `nvidia.com/gpu`.
    pub name: String,
    /// What is built in.
    pub capacity: i64,
    /// What pods may have.
    pub allocatable: i64,
    /// What pods request.
    pub requested: i64,
}

/// A pod on a GPU node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Occupant {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is to the node.
    pub class: Class,
    /// Who makes it in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ObjectRef>,
    /// Its class of quality of service.
    pub qos: Qos,
    /// What it takes.
    pub requests: Amounts,
    /// How it got in.
    pub entry: Entry,
    /// What to do about it; empty where nothing is to be done.
    pub action: String,
}

/// How a pod got onto a GPU node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Entry {
    /// It tolerates the pool's taints, the first of them by this toleration.
    Tolerates {
        /// The taint, as kubectl writes it.
        taint: String,
        /// The field, such as `spec.tolerations[1]`.
        field: String,
        /// The toleration, as a person writes it.
        toleration: String,
        /// Whether it tolerates nothing else.
        exact: bool,
    },
    /// Who created it wrote the node's name into it, so that no scheduler looked at the taint.
    NodeName,
    /// It does not tolerate the taint: it was there before, or was put there past the scheduler.
    BeforeTaint {
        /// The taint, as kubectl writes it.
        taint: String,
    },
    /// The node has no taint that would keep a pod off.
    NoTaint,
}

/// A DaemonSet beside the GPU nodes.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Coverage {
    /// The DaemonSet.
    pub daemon_set: ObjectRef,
    /// What it is for, where that is known: `device plugin`, `GPU metrics`, `node feature discovery`, `network`,
    /// `storage`, `logs`, `metrics`, `GPU operator`, `security`, `proxy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Whether it is for GPU nodes or for every node, rather than for others.
    pub expected: bool,
    /// How many GPU nodes its selectors admit.
    pub selected: usize,
    /// How many of those have a pod of it now.
    pub running: usize,
    /// The GPU nodes without a pod of it though they should have one, by name.
    pub missing: Vec<String>,
    /// How many GPU nodes would have one if each carried its pool's taints.
    pub with_taints: usize,
    /// The tolerations to add, each as a person writes it.
    pub add: Vec<String>,
}

/// A pod that finds no node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The pod.
    pub object: ObjectRef,
    /// Who makes it in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ObjectRef>,
    /// The pool that it asks for, where it asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What keeps it, most telling first: `toleration`, `label`, `gpus`, `blocked` (CPU, memory or places that pods
    /// without a GPU took), `room`, `gates`, `unknown`.
    pub causes: Vec<&'static str>,
    /// The scheduler's own words, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// What keeps it, for people.
    pub message: String,
    /// What to do.
    pub action: String,
}

/// What a snapshot does not know.
pub(super) fn gaps(snapshot: &Snapshot) -> Vec<String> {
    // Of files it follows from what is there.
    let missing = Resource::ALL.into_iter().filter(|resource| !snapshot.is_dump && !snapshot.knows_all(*resource));
    let missing = missing.map(|resource| format!("the {} of the cluster are not all known", resource.as_str()));
    snapshot.gaps.iter().cloned().chain(missing).chain(snapshot.faults.iter().cloned()).collect()
}

impl Audit {
    /// What there is to say before anything is looked for.
    pub(super) fn of(view: &View<'_>, source: &str, now: i64) -> Self {
        let taken = OffsetDateTime::from_unix_timestamp(now).ok().and_then(|time| time.format(&Rfc3339).ok());
        let snapshot = view.snapshot;
        Self {
            version: VERSION,
            taken: taken.unwrap_or_default(),
            source: source.to_owned(),
            contract: String::new(),
            mode: view.policy.mode().as_str(),
            summary: Summary {
                nodes: snapshot.nodes.len(),
                gpu_nodes: view.gpu_nodes().count(),
                pods: snapshot.pods.iter().filter(|pod| !pod.is_over()).count(),
                pods_unknown: !snapshot.knows_all(Resource::Pods),
                ..Summary::default()
            },
            pools: Vec::new(),
            nodes: Vec::new(),
            daemon_sets: Vec::new(),
            pending: Vec::new(),
            findings: Vec::new(),
            gaps: gaps(snapshot),
            baseline: None,
            what_if: None,
        }
    }

    /// Those of the DaemonSets, of the pending pods and of the gaps that a reader has not seen in a baseline: the first
    /// two by the findings that are shown.
    #[must_use]
    pub fn unseen(&self) -> (Vec<&Coverage>, Vec<&Pending>, Vec<&String>) {
        let about = |rule: Check| -> HashSet<&ObjectRef> {
            self.findings.iter().filter(|finding| finding.rule == rule).map(|finding| &finding.object).collect()
        };
        let (sets, pods) = (about(Check::DaemonSetLeftOut), about(Check::PodPending));
        let is_first = self.baseline.is_none();
        let known: &[String] = self.baseline.as_ref().map_or(&[], |baseline| &baseline.known_gaps);
        (
            self.daemon_sets.iter().filter(|coverage| is_first || sets.contains(&coverage.daemon_set)).collect(),
            self.pending.iter().filter(|pending| is_first || pods.contains(&pending.object)).collect(),
            self.gaps.iter().filter(|gap| !known.contains(gap)).collect(),
        )
    }

    /// Puts the findings in order, and counts.
    pub(super) fn conclude(&mut self) {
        self.findings.sort_by(|a, b| {
            let key = |finding: &Finding| (std::cmp::Reverse(finding.severity), finding.rule);
            key(a).cmp(&key(b)).then_with(|| a.object.cmp(&b.object)).then_with(|| a.message.cmp(&b.message))
        });
        self.summary.findings = BySeverity::default();
        for finding in &self.findings {
            *self.summary.findings.of(finding.severity) += 1;
        }
    }
}
