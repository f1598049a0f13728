//! Against an election and audits that do as they are told, on a clock that jumps.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::telemetry::metrics::{FindingCount, PoolNumbers};

const HOUR: Duration = Duration::from_secs(3600);

/// What the election and the auditor are told, and what was asked of them.
#[derive(Debug, Default)]
struct Script {
    /// What the next looks at the lead come to.
    lead: Mutex<Option<Result<bool, String>>>,
    holds: Mutex<bool>,
    released: AtomicUsize,
    /// How long an audit takes, and what comes of it.
    takes: Mutex<Duration>,
    fails: Mutex<Option<String>>,
    /// When audits began, how many are under way, and how many ever were at once.
    began: Mutex<Vec<Instant>>,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

struct Told(Arc<Script>);

impl Election for Told {
    async fn leads(&mut self) -> Result<bool, String> {
        let told = self.0.lead.lock().unwrap().clone();
        match told {
            Some(told) => told,
            None => future::pending().await,
        }
    }

    fn holds(&self) -> bool {
        *self.0.holds.lock().unwrap()
    }

    async fn release(&self) -> Result<(), String> {
        self.0.released.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Counts what is under way for as long as it lives.
struct UnderWay(Arc<Script>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Auditor<String> for Told {
    fn audit(&self, wanted: &String) -> impl Future<Output = Result<Made, String>> + Send + 'static {
        let script = Arc::clone(&self.0);
        script.began.lock().unwrap().push(Instant::now());
        let count = script.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        script.most.fetch_max(count, Ordering::Relaxed);
        let pool = wanted.clone();
        async move {
            let under_way = UnderWay(script);
            let takes = *under_way.0.takes.lock().unwrap();
            sleep(takes).await;
            let fails = under_way.0.fails.lock().unwrap().clone();
            if let Some(error) = fails {
                return Err(error);
            }
            let numbers = AuditNumbers {
                findings: vec![FindingCount { rule: "gpus-blocked", severity: "high", count: 3 }],
                pools: vec![PoolNumbers { pool, nodes: 2, ordinary_pods: 5, gpus: [("free", 7); 5] }],
                drifted_nodes: 1,
                ..AuditNumbers::default()
            };
            Ok(Made { numbers, ..Made::default() })
        }
    }
}

/// A replica under test.
struct Bench {
    script: Arc<Script>,
    orders: watch::Sender<Order<String>>,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
    replica: JoinHandle<()>,
}

fn order(interval: Duration, pool: &str) -> Order<String> {
    Order { interval, wanted: pool.to_owned() }
}

impl Bench {
    fn new(interval: Duration, lead: Result<bool, String>) -> Self {
        let script = Arc::new(Script::default());
        *script.lead.lock().unwrap() = Some(lead);
        let (orders, ordered) = watch::channel(order(interval, "nvidia"));
        let (metrics, shutdown) = (Arc::new(Metrics::new()), Shutdown::new());
        let replica = Replica {
            election: Told(Arc::clone(&script)),
            auditor: Told(Arc::clone(&script)),
            orders: ordered,
            metrics: Arc::clone(&metrics),
            said: BTreeMap::new(),
        };
        let ends = shutdown.clone();
        let replica = tokio::spawn(async move { replica.run(&ends).await });
        Self { script, orders, metrics, shutdown, replica }
    }

    fn set_lead(&self, lead: Result<bool, String>) {
        *self.script.lead.lock().unwrap() = Some(lead);
    }

    fn runs(&self) -> usize {
        self.script.began.lock().unwrap().len()
    }

    /// The series of audits that tell of the cluster.
    fn series(&self) -> Vec<String> {
        let text = self.metrics.encode().unwrap();
        let own = text.lines().filter(|line| line.starts_with("gpufence_audit_"));
        let told = own.filter(|line| !line.contains("_runs_total") && !line.contains("_interval_"));
        told.map(ToOwned::to_owned).collect()
    }

    fn has(&self, series: &str) -> bool {
        self.metrics.encode().unwrap().lines().any(|line| line == series)
    }

    fn ran(&self, outcome: &str, count: usize) -> bool {
        self.has(&format!("gpufence_audit_runs_total{{outcome=\"{outcome}\"}} {count}"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_one_that_leads_audits_at_the_interval_and_shows_it() {
    let bench = Bench::new(HOUR, Ok(true));
    let start = Instant::now();
    sleep(Duration::from_secs(11)).await;
    let first = bench.script.began.lock().unwrap()[0] - start;
    assert!(first >= FIRST && first < FIRST + SPREAD + ROUND, "{first:?}");
    assert!(bench.ran("success", 1) && bench.has("gpufence_audit_interval_seconds 3600"));
    for series in [
        "gpufence_audit_findings{rule=\"gpus-blocked\",severity=\"high\"} 3",
        "gpufence_audit_ordinary_pods{pool=\"nvidia\"} 5",
        "gpufence_audit_nodes{pool=\"nvidia\"} 2",
        "gpufence_audit_gpus{pool=\"nvidia\",state=\"free\"} 7",
        "gpufence_audit_drifted_nodes 1",
        "gpufence_audit_gaps 0",
    ] {
        assert!(bench.has(series), "{series} in {:#?}", bench.series());
    }
    sleep(HOUR * 3).await;
    assert!(bench.ran("success", 4), "{:#?}", bench.script.began);
    let began = bench.script.began.lock().unwrap().clone();
    assert!(began.windows(2).all(|pair| pair[1] - pair[0] >= HOUR), "{began:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_lead_shows_nothing() {
    let bench = Bench::new(HOUR, Ok(false));
    sleep(HOUR * 2).await;
    assert_eq!((bench.runs(), bench.series()), (0, Vec::new()));
    // Every replica shows how often somebody should.
    assert!(bench.has("gpufence_audit_interval_seconds 3600"));
    bench.set_lead(Ok(true));
    sleep(ROUND + FIRST + SPREAD).await;
    assert!(bench.ran("success", 1));
}

#[tokio::test(start_paused = true)]
async fn who_loses_the_lead_stops_at_once_and_takes_back_what_it_showed() {
    let bench = Bench::new(HOUR, Ok(true));
    sleep(Duration::from_secs(11)).await;
    assert!(!bench.series().is_empty());
    *bench.script.takes.lock().unwrap() = HOUR / 10;
    sleep(HOUR).await;
    assert_eq!((bench.runs(), bench.script.under_way.load(Ordering::Relaxed)), (2, 1));
    bench.set_lead(Ok(false));
    sleep(ROUND).await;
    assert_eq!(bench.script.under_way.load(Ordering::Relaxed), 0);
    assert_eq!(bench.series(), Vec::<String>::new());
    assert!(bench.ran("stopped", 1) && bench.ran("success", 1));
    assert_eq!(bench.script.released.load(Ordering::Relaxed), 0, "it is another's");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_costs_the_lead_only_when_the_lease_may_be_anothers() {
    let bench = Bench::new(HOUR, Ok(true));
    sleep(Duration::from_secs(11)).await;
    *bench.script.holds.lock().unwrap() = true;
    bench.set_lead(Err("it is away".to_owned()));
    sleep(ROUND * 2).await;
    assert!(!bench.series().is_empty());
    // Nor may an answer that never comes hide the end of the Lease.
    *bench.script.lead.lock().unwrap() = None;
    *bench.script.holds.lock().unwrap() = false;
    sleep(ROUND * 2).await;
    assert_eq!(bench.series(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_counted_and_what_was_found_keeps_its_time() {
    let bench = Bench::new(HOUR, Ok(true));
    sleep(Duration::from_secs(11)).await;
    let before = bench.series();
    assert!(before.iter().any(|line| line.starts_with("gpufence_audit_last_success_timestamp_seconds ")));
    *bench.script.fails.lock().unwrap() = Some("the pods cannot be listed".to_owned());
    sleep(HOUR * 2).await;
    assert!(bench.ran("failure", 2) && bench.ran("success", 1));
    assert_eq!(bench.series(), before);
    *bench.script.fails.lock().unwrap() = None;
    sleep(HOUR).await;
    assert!(bench.ran("success", 2));
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_given_up_and_two_are_never_made_at_once() {
    let bench = Bench::new(Duration::from_secs(60), Ok(true));
    *bench.script.takes.lock().unwrap() = HOUR * 24;
    sleep(HOUR).await;
    let expected = 3600 / usize::try_from(LIMIT.as_secs() + 60).unwrap();
    assert!(bench.ran("failure", expected), "{:#?}", bench.metrics.encode());
    assert_eq!(bench.script.most.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_contract_that_changes_is_audited_soon_and_its_interval_counts() {
    let bench = Bench::new(HOUR, Ok(true));
    sleep(Duration::from_secs(11)).await;
    bench.orders.send_replace(order(HOUR / 2, "amd"));
    sleep(FIRST + SPREAD).await;
    assert!(bench.has("gpufence_audit_interval_seconds 1800") && bench.ran("success", 2));
    assert!(bench.has("gpufence_audit_nodes{pool=\"amd\"} 2"));
    assert!(!bench.series().iter().any(|line| line.contains("nvidia")), "{:#?}", bench.series());
    sleep(HOUR / 2).await;
    assert!(bench.ran("success", 3));
}

#[tokio::test(start_paused = true)]
async fn a_contract_that_wants_no_audits_ends_them_and_one_that_does_begins_them() {
    let bench = Bench::new(Duration::ZERO, Ok(true));
    sleep(HOUR).await;
    assert_eq!((bench.runs(), bench.series()), (0, Vec::new()));
    assert!(!bench.metrics.encode().unwrap().contains("\ngpufence_audit_interval_seconds "));
    bench.orders.send_replace(order(HOUR, "nvidia"));
    sleep(Duration::from_secs(11)).await;
    assert!(bench.ran("success", 1));
    bench.orders.send_replace(order(Duration::ZERO, "nvidia"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.series(), Vec::<String>::new());
    assert!(!bench.metrics.encode().unwrap().contains("\ngpufence_audit_interval_seconds "));
    assert_eq!(bench.script.released.load(Ordering::Relaxed), 1);
    sleep(HOUR * 5).await;
    assert_eq!(bench.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_process_ends_an_audit_and_gives_the_lease_back() {
    let bench = Bench::new(HOUR, Ok(true));
    *bench.script.takes.lock().unwrap() = HOUR;
    sleep(Duration::from_secs(11)).await;
    assert_eq!(bench.script.under_way.load(Ordering::Relaxed), 1);
    let began = Instant::now();
    bench.shutdown.drain();
    bench.replica.await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(bench.script.under_way.load(Ordering::Relaxed), 0);
    assert_eq!(bench.script.released.load(Ordering::Relaxed), 1);
}

#[test]
fn first_audits_are_spread() {
    let times: std::collections::BTreeSet<_> = (0..200).map(|_| first()).collect();
    assert!(times.len() > 50, "{times:?}");
    assert!(times.iter().all(|time| (FIRST..FIRST + SPREAD).contains(time)), "{times:?}");
}
