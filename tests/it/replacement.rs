//! A replica is replaced while API servers call, as in every rolling update: not one call may fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::header::CONNECTION;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::binary::{Authority, Connection, NAME, Server, dial, files, trusting};
use crate::wire::recorded;

/// How many connections a kube-apiserver keeps to one webhook.
const CONNECTIONS: usize = 25;

/// Ten calls a second over each.
const PACE: Duration = Duration::from_millis(100);

/// For how long the network goes on routing new connections to a pod that is being deleted.
const ROUTED_ON: Duration = Duration::from_secs(4);

/// A Service: where its new connections lead can be changed, and where the old ones lead cannot.
struct Service {
    address: SocketAddr,
    leads_to_second: Arc<AtomicBool>,
}

impl Service {
    async fn of(first: SocketAddr, second: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leads_to_second = Arc::new(AtomicBool::new(false));
        let which = Arc::clone(&leads_to_second);
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                let pod = if which.load(Ordering::SeqCst) { second } else { first };
                tokio::spawn(async move {
                    // Refused here is refused there: the caller sees its connection end.
                    if let Ok(mut pod) = TcpStream::connect(pod).await {
                        let _ = copy_bidirectional(&mut caller, &mut pod).await;
                    }
                });
            }
        });
        Self { address, leads_to_second }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_a_replica_is_replaced() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    authority.issue(&[NAME]).write(directory.path());
    let (tls, trust) = (files(directory.path()), trusting(authority.certificate()));
    // As `gpufence manifests` has it, only shorter: the drain outlasts the routes.
    let start = || Server::start_with("mode: enforce", "6s", &tls, trust.clone());
    let (old, new) = (start().await, start().await);
    let service = Service::of(old.https(), new.https()).await;

    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (stop, trust, address) = (Arc::clone(&stop), trust.clone(), service.address);
        callers.spawn(async move {
            let review = recorded("validate-create-pod-gpu-pod");
            let (mut answered, mut kept) = (0_u32, None::<Connection>);
            let mut calls = interval(PACE);
            calls.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !stop.load(Ordering::SeqCst) {
                calls.tick().await;
                let mut connection = match kept.take() {
                    Some(connection) => connection,
                    None => Connection::over(dial(address, &trust).await.unwrap()).await,
                };
                // Any failure ends the test here.
                let reply = connection.post("/validate", review.to_string()).await;
                assert_eq!(reply.status, 200, "{}", reply.text());
                answered += 1;
                if reply.header(CONNECTION) != Some("close") {
                    kept = Some(connection);
                }
            }
            answered
        });
    }

    sleep(Duration::from_secs(1)).await;
    old.signal("TERM");
    sleep(ROUTED_ON).await;
    service.leads_to_second.store(true, Ordering::SeqCst);
    let (code, lines) = old.ended().await;
    assert_eq!(code, Some(0), "{lines:#?}");
    sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::SeqCst);
    let answered: u32 = callers.join_all().await.into_iter().sum();
    assert!(answered > 500, "only {answered} calls in eight seconds");
    let metrics = new.get_metrics().await;
    let taken_over = metrics.lines().any(|line| line.starts_with("gpufence_admission_requests_total{"));
    assert!(taken_over, "nobody called the new replica:\n{metrics}");
}
