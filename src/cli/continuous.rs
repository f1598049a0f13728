//! What a serving process makes of the contract's `audit` section: the audit of `gpufence audit`, again and again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::contract_file;
use super::live::Live;
use crate::audit::{self, Audit, Check, Gpus, PoolAccount, ReportForm, Resource, Severity};
use crate::cluster::Client;
use crate::cluster::audit::snapshot;
use crate::cluster::continuous::{self, Auditor, Electorate, Made, Order};
use crate::cluster::reports::{Published, publish};
use crate::contract::{Contract, Reports};
use crate::lifecycle::{Shutdown, Tasks};
use crate::manifest::names;
use crate::policy::Policy;
use crate::report::audit::cluster::reports;
use crate::telemetry::metrics::{AuditNumbers, FindingCount, Metrics, PoolNumbers};

/// How long to wait for a cluster that cannot be reached.
const RETRY: Duration = Duration::from_secs(10);

/// The least time between two reports that are written: nobody waits for them.
const PACE: Duration = Duration::from_millis(200);

/// How long the process waits at its end for the Lease to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(4);

/// What is wanted of an audit.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The reports that are kept in the cluster, if any.
    reports: Option<ReportForm>,
    /// What the cluster is held against.
    policy: Arc<Policy>,
}

/// What a contract wants.
pub(super) fn order(contract: &Contract) -> Order<Wanted> {
    let reports = match contract.audit.reports {
        Reports::None => None,
        Reports::OpenReports => Some(ReportForm::OpenReports),
        Reports::PolicyReports => Some(ReportForm::PolicyReports),
    };
    Order { interval: contract.audit.interval, wanted: Wanted { reports, policy: Arc::new(contract.policy.clone()) } }
}

/// The end of the audits, which the end of the process waits for, since another replica does.
#[must_use = "the Lease has to be given back"]
pub(super) struct Ending(oneshot::Receiver<()>);

impl Ending {
    /// Waits until the Lease is given back, and not for long.
    pub(super) async fn wait(self) {
        let _ = tokio::time::timeout(GIVEN_BACK, self.0).await;
    }
}

/// Makes audits in the background as the orders want them. The process lives on when they cannot be made.
pub(super) fn spawn(
    tasks: &mut Tasks,
    live: Arc<Live>,
    namespace: &str,
    mut orders: watch::Receiver<Order<Wanted>>,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
) -> Ending {
    let electorate = Electorate {
        namespace: namespace.to_owned(),
        lease: names::AUDIT.to_owned(),
        identity: std::env::var("POD_NAME").unwrap_or_else(|_| format!("process-{}", std::process::id())),
    };
    let (ended, ending) = oneshot::channel();
    // Not one of the tasks itself: those are ended with the process, before the Lease is given back.
    let audits = tokio::spawn(async move {
        let wanted = async {
            orders.wait_for(|order| !order.interval.is_zero()).await.ok()?;
            Some(connect(&live).await)
        };
        let client = tokio::select! {
            () = shutdown.draining() => None,
            client = wanted => client,
        };
        if let Some(client) = client {
            let auditor = OfCluster { client: client.clone(), one: Arc::new(Semaphore::new(1)) };
            continuous::run(client, electorate, orders, auditor, metrics, shutdown).await;
        }
        // Nobody listens where the process ends for another reason.
        let _ = ended.send(());
    });
    tasks.spawn("audits", async move {
        match audits.await {
            Ok(()) => std::future::pending().await,
            Err(error) => Err::<(), _>(error),
        }
    });
    Ending(ending)
}

/// The client, as soon as there is one: a reloaded contract may ask for it in a process that needed none before.
async fn connect(live: &Live) -> Client {
    let mut said = false;
    loop {
        match live.client().await {
            Ok(client) => return client.clone(),
            Err(error) if !said => {
                said = true;
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(error, "the contract's audit.interval wants audits, and there is no cluster to audit");
            }
            Err(_) => {}
        }
        sleep(RETRY).await;
    }
}

/// Audits the cluster of a client.
struct OfCluster {
    client: Client,
    /// Of an audit that is given up the part that computes goes on for a moment: the next one waits for that.
    one: Arc<Semaphore>,
}

impl Auditor<Wanted> for OfCluster {
    /// On a thread of its own: a page of pods is megabytes of JSON, and reviews must not wait for it to be read.
    fn audit(&self, wanted: &Wanted) -> impl Future<Output = Result<Made, String>> + Send + 'static {
        let (client, wanted, one) = (self.client.clone(), wanted.clone(), Arc::clone(&self.one));
        async move {
            // Never closed.
            let permit = one.acquire_owned().await.ok();
            let stop = CancellationToken::new();
            let _stops_when_dropped = stop.clone().drop_guard();
            let runtime = Handle::current();
            let made = spawn_blocking(move || {
                let _one_at_a_time = permit;
                runtime.block_on(async {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => Err("it was given up".to_owned()),
                        made = make(&client, &wanted) => made,
                    }
                })
            });
            made.await.unwrap_or_else(|error| Err(format!("the audit failed, which is a bug: {error}")))
        }
    }
}

/// One audit, from the lists to the reports.
async fn make(client: &Client, Wanted { reports, policy }: &Wanted) -> Result<Made, String> {
    let snapshot = snapshot(client, policy, |_| {}).await.map_err(|error| error.to_string())?;
    // Of a cluster that is not wholly seen numbers would be too low, as if all were well, and reports would go.
    if let Some(unseen) = snapshot.unseen(&Resource::ALL) {
        return Err(format!("not all {unseen} are known: {}", listed(&snapshot.faults)));
    }
    // Here it may end as well.
    yield_now().await;
    let audit = audit::audit(policy, &snapshot, "the cluster", contract_file::now());
    drop(snapshot);
    yield_now().await;
    let unpublished = match reports {
        Some(form) => keep_reports(client, *form, &audit).await.err(),
        None => None,
    };
    Ok(Made { numbers: numbers(&audit), gaps: listed(&audit.gaps), unpublished })
}

/// The first of them, for a line of the log.
fn listed(all: &[String]) -> String {
    const MOST: usize = 5;
    let mut text = all.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join("; ");
    if all.len() > MOST {
        let _ = write!(text, "; and {} more", all.len() - MOST);
    }
    text
}

async fn keep_reports(client: &Client, form: ReportForm, audit: &Audit) -> Result<(), String> {
    let published = publish(client, form, reports(audit, form), PACE).await;
    let Published { faults, .. } = published.map_err(|error| error.to_string())?;
    if faults.is_empty() { Ok(()) } else { Err(listed(&faults)) }
}

/// What of an audit is shown as metrics. Rules and severities that have no finding are there as well: an alert needs a
/// number, and nobody sees the first increase of one that was not there.
fn numbers(audit: &Audit) -> AuditNumbers {
    let mut counts: HashMap<(Check, Severity), u64> = HashMap::new();
    for finding in &audit.findings {
        *counts.entry((finding.rule, finding.severity)).or_default() += 1;
    }
    let severities = Severity::WORST_FIRST;
    let findings = Check::all().flat_map(|rule| severities.map(|severity| (rule, severity))).map(|(rule, severity)| {
        let count = counts.get(&(rule, severity)).copied().unwrap_or_default();
        FindingCount { rule: rule.id(), severity: severity.as_str(), count }
    });
    let pools = audit.pools.iter().map(|PoolAccount { name, nodes, gpus, ordinary_pods, .. }| {
        let Gpus { allocatable, requested, free, blocked, out_of_use } = *gpus;
        PoolNumbers {
            pool: name.clone(),
            nodes: *nodes as u64,
            ordinary_pods: *ordinary_pods as u64,
            gpus: [
                ("allocatable", allocatable),
                ("requested", requested),
                ("free", free),
                ("blocked", blocked),
                ("out-of-use", out_of_use),
            ],
        }
    });
    AuditNumbers {
        findings: findings.collect(),
        pools: pools.collect(),
        drifted_nodes: audit.summary.drifted_nodes as u64,
        gaps: audit.gaps.len() as u64,
        ..AuditNumbers::default()
    }
}

#[cfg(test)]
mod tests;
