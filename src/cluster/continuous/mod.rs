//! An audit that is made again and again, by one of the replicas that serve.
//!
//! The replicas elect one by a Lease of its own. It makes the audits, one after the other, and shows what they find;
//! the others, and one that no longer leads, show nothing. All of this stands beside the answers to API servers: where
//! it fails it says so, and nothing else becomes of it.

use std::collections::BTreeMap;
use std::future;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::lease::Candidate;
use super::{Client, Said, has_code};
use crate::lifecycle::Shutdown;
use crate::telemetry::metrics::{AuditNumbers, AuditRun, Metrics};

/// How often the Lease is looked at and renewed: three times before it runs out.
const ROUND: Duration = Duration::from_secs(5);

/// How long that may take: one that hangs must not keep the end of the Lease from being seen.
const ROUND_LIMIT: Duration = Duration::from_secs(4);

/// When a replica that begins to lead makes its first audit: this, and by chance up to so much later. Replicas begin together, and so
/// do those of many clusters after an update; and who leads for a moment alone makes none.
const FIRST: Duration = Duration::from_secs(2);
const SPREAD: Duration = Duration::from_secs(8);

/// How long an audit may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// How long giving the Lease back may take.
const RELEASE: Duration = Duration::from_secs(3);

/// What the contract in force wants; what exactly of an audit is known to who makes it.
#[derive(Debug, Clone)]
pub struct Order<W> {
    /// How long after one audit the next one follows. Zero: none is made.
    pub interval: Duration,
    /// What of an audit.
    pub wanted: W,
}

impl<W> Order<W> {
    fn is_on(&self) -> bool {
        !self.interval.is_zero()
    }
}

/// An audit that was made.
#[derive(Debug, Clone, Default)]
pub struct Made {
    /// What it found. When, and how long it took, is filled in by whoever asked for it.
    pub numbers: AuditNumbers,
    /// What it could not see or read, in words; empty where that is nothing.
    pub gaps: String,
    /// Why its reports could not be kept in the cluster, where that is so.
    pub unpublished: Option<String>,
}

/// Who makes an audit.
pub trait Auditor<W>: Send + Sync {
    /// Makes one, unless it is dropped before. Two are never made at once. The error says in words why there is none.
    fn audit(&self, wanted: &W) -> impl Future<Output = Result<Made, String>> + Send + 'static;
}

/// Who is elected among the replicas.
trait Election: Send {
    /// Takes or renews the lead; whether it is ours for the next seconds.
    fn leads(&mut self) -> impl Future<Output = Result<bool, String>> + Send;

    /// Whether nobody else can have taken it meanwhile.
    fn holds(&self) -> bool;

    /// Gives it back, so that another may lead at once.
    fn release(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// The election by a Lease.
struct ByLease {
    candidate: Candidate,
    namespace: String,
    name: String,
}

impl Election for ByLease {
    async fn leads(&mut self) -> Result<bool, String> {
        let Self { candidate, namespace, name } = self;
        let hint = "apply the output of `gpufence manifests` for the contract in force";
        candidate.leads().await.map_err(|error| match &error {
            error if has_code(error, 404) => format!("there is no Lease {name} in the namespace {namespace}; {hint}"),
            error if has_code(error, 403) => format!("the Lease may not be used: {}; {hint}", Said(error)),
            error => format!("the Lease cannot be read or renewed: {}", Said(error)),
        })
    }

    fn holds(&self) -> bool {
        self.candidate.holds()
    }

    async fn release(&self) -> Result<(), String> {
        self.candidate.release().await.map_err(|error| Said(&error).to_string())
    }
}

/// The names by which the replicas of an installation elect one.
#[derive(Debug, Clone)]
pub struct Electorate {
    /// The namespace of the installation.
    pub namespace: String,
    /// The Lease, which comes with the manifests.
    pub lease: String,
    /// What tells this replica from the others.
    pub identity: String,
}

/// Makes audits as the newest order wants them, until the process ends; then gives the Lease back. `orders` must live
/// as long as the process.
pub async fn run<W: Clone + Send + Sync>(
    client: Client,
    electorate: Electorate,
    orders: watch::Receiver<Order<W>>,
    auditor: impl Auditor<W>,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
) {
    let Electorate { namespace, lease: name, identity } = electorate;
    let candidate = Candidate::new(client, &namespace, &name, identity);
    let election = ByLease { candidate, namespace, name };
    Replica { election, auditor, orders, metrics, said: BTreeMap::new() }.run(&shutdown).await;
}

/// An audit under way.
type Running = Pin<Box<dyn Future<Output = Result<Made, String>> + Send>>;

/// A replica that stands for election as long as audits are wanted.
struct Replica<E, A, W> {
    election: E,
    auditor: A,
    orders: watch::Receiver<Order<W>>,
    metrics: Arc<Metrics>,
    /// What was last said of each thing that may stand in the way.
    said: BTreeMap<&'static str, String>,
}

/// What a replica that leads is about.
struct Lead {
    running: Option<(Instant, Running)>,
    /// When the next audit is due, where none runs.
    due: Instant,
}

/// What a replica that leads has to do something about.
enum Next {
    Due,
    Ended(Instant, Result<Made, String>),
}

impl Lead {
    fn begins() -> Self {
        Self { running: None, due: Instant::now() + first() }
    }

    /// What comes next: the end of the audit that runs, or that the next one is due. Never anything for who leads not.
    async fn next(lead: &mut Option<Self>) -> Next {
        match lead {
            Some(Self { running: Some((began, running)), .. }) => Next::Ended(*began, running.await),
            Some(Self { running: None, due }) => {
                sleep_until(*due).await;
                Next::Due
            }
            None => future::pending().await,
        }
    }
}

impl<E: Election, A: Auditor<W>, W: Clone + Send + Sync> Replica<E, A, W> {
    async fn run(mut self, shutdown: &Shutdown) {
        while !shutdown.is_draining() {
            if self.order().is_on() {
                self.stand(shutdown).await;
                continue;
            }
            tokio::select! {
                () = shutdown.draining() => {}
                Ok(()) = self.orders.changed() => {}
            }
        }
    }

    fn order(&mut self) -> Order<W> {
        self.orders.borrow_and_update().clone()
    }

    /// Stands for election, and makes the audits when elected, until none are wanted or the process ends.
    async fn stand(&mut self, shutdown: &Shutdown) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lead: Option<Lead> = None;
        let mut order = self.order();
        self.metrics.audits_every(Some(order.interval.as_secs()));
        loop {
            tokio::select! {
                biased;
                () = shutdown.draining() => break,
                Ok(()) = self.orders.changed() => {
                    order = self.order();
                    if !order.is_on() {
                        break;
                    }
                    self.metrics.audits_every(Some(order.interval.as_secs()));
                    // What was found, and is being found, is of another contract.
                    if self.give_up(&mut lead) {
                        lead = Some(Lead::begins());
                    }
                }
                _ = rounds.tick() => {
                    let leads = tokio::select! {
                        () = shutdown.draining() => break,
                        leads = self.leads() => leads,
                    };
                    if leads != lead.is_some() {
                        tracing::info!(leads, "lead of the audits");
                    }
                    if !leads {
                        self.give_up(&mut lead);
                        self.metrics.audit_forgotten();
                    } else if lead.is_none() {
                        lead = Some(Lead::begins());
                    }
                }
                next = Lead::next(&mut lead) => {
                    let now = Instant::now();
                    let running = match next {
                        Next::Due => Some((now, self.audit(&order.wanted))),
                        Next::Ended(began, ended) => {
                            self.take(began, ended);
                            None
                        }
                    };
                    lead = Some(Lead { running, due: now + order.interval });
                }
            }
        }
        let was_elected = self.give_up(&mut lead);
        self.metrics.audit_forgotten();
        self.metrics.audits_every(None);
        self.said.clear();
        if was_elected {
            match timeout(RELEASE, self.election.release()).await {
                Ok(Ok(())) => tracing::info!(leads = false, "lead of the audits"),
                Ok(Err(error)) => {
                    tracing::warn!(error, "the Lease of the audits cannot be given back; it runs out by itself");
                }
                Err(_) => {
                    tracing::warn!("the Lease of the audits could not be given back in time; it runs out by itself");
                }
            }
        }
    }

    fn audit(&self, wanted: &W) -> Running {
        let making = timeout(LIMIT, self.auditor.audit(wanted));
        let slow = || Err(format!("it took longer than {} s", LIMIT.as_secs()));
        Box::pin(async move { making.await.unwrap_or_else(|_| slow()) })
    }

    /// Ends what runs, and leads no more: whether it did.
    fn give_up(&self, lead: &mut Option<Lead>) -> bool {
        let Some(given_up) = lead.take() else { return false };
        if given_up.running.is_some() {
            self.metrics.audit_ran(AuditRun::Stopped);
        }
        true
    }

    async fn leads(&mut self) -> bool {
        let slow = || Err(format!("the API server did not answer within {} s", ROUND_LIMIT.as_secs()));
        match timeout(ROUND_LIMIT, self.election.leads()).await.unwrap_or_else(|_| slow()) {
            Ok(leads) => {
                self.say("lease", String::new());
                leads
            }
            Err(error) => {
                self.say("lease", error);
                self.election.holds()
            }
        }
    }

    /// Takes in what became of an audit.
    fn take(&mut self, began: Instant, ended: Result<Made, String>) {
        let seconds = began.elapsed().as_secs_f64();
        match ended {
            Ok(Made { numbers, gaps, unpublished }) => {
                let run = if unpublished.is_some() { AuditRun::Unpublished } else { AuditRun::Success };
                self.metrics.audit_ran(run);
                let numbers = AuditNumbers { at: super::follow::now(), seconds, ..numbers };
                self.metrics.audit_found(&numbers);
                let findings: u64 = numbers.findings.iter().map(|finding| finding.count).sum();
                let ordinary_pods: u64 = numbers.pools.iter().map(|pool| pool.ordinary_pods).sum();
                let AuditNumbers { drifted_nodes, gaps: unseen, .. } = numbers;
                tracing::info!(findings, ordinary_pods, drifted_nodes, gaps = unseen, seconds, "audited");
                self.say("audit", String::new());
                self.say("gaps", gaps);
                self.say("reports", unpublished.unwrap_or_default());
            }
            // What was found before stays, and so does the time at which it was.
            Err(error) => {
                self.metrics.audit_ran(AuditRun::Failure);
                self.say("audit", error);
            }
        }
    }

    /// Says what stands in the way of something, once; nothing stands there where the text is empty.
    fn say(&mut self, what: &'static str, why: String) {
        let said = self.said.entry(what).or_default();
        match (*said == why, why.is_empty()) {
            (true, _) => {}
            (false, true) => tracing::info!(what, was = *said, "the audit is no longer hindered"),
            (false, false) => tracing::warn!(what, why, "the audit is hindered"),
        }
        *said = why;
    }
}

/// After how long the first audit follows: by chance.
fn first() -> Duration {
    // The one source of chance in the standard library.
    FIRST + Duration::from_millis(RandomState::new().hash_one(()) % (SPREAD.as_secs() * 1000))
}

#[cfg(test)]
mod tests;
