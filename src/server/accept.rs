//! Accept loops: from a listening socket to connections that are being served.
//!
//! Owns the cap on connections, the TLS handshake's deadline and the end of the drain. Handshakes
//! run in the connection's own task: one that hangs keeps nobody else waiting.

use std::convert::Infallible;
use std::future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection;
use crate::lifecycle::Shutdown;
use crate::telemetry::metrics::Metrics;

/// The most connections to the webhooks at once. An API server keeps 25 idle ones for each webhook
/// and opens more only in a burst; a connection costs some 50 KiB. Beyond the cap new ones wait in
/// the backlog.
const WEBHOOK_CONNECTIONS: usize = 1_024;

/// The most connections to the admin listener: a kubelet and a few scrapers.
const ADMIN_CONNECTIONS: usize = 64;

/// How long a TLS handshake may take. kube-apiserver itself gives up after 10 s.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long requests in flight may take once no more are accepted. Every one of them has a
/// shorter deadline of its own.
const FINISH: Duration = Duration::from_secs(15);

/// The first and the longest pause after a failed accept. Where file descriptors have run out the
/// next accept fails as well, and trying at once would spin.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Serves HTTPS until `shutdown` stops it, then finishes what is in flight.
pub(super) async fn tls(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    router: Router,
    metrics: &Arc<Metrics>,
    shutdown: &Shutdown,
) {
    let connections = TaskTracker::new();
    // Ends whatever is still open when this function returns or is dropped.
    let abandon = CancellationToken::new();
    let _abandon = abandon.clone().drop_guard();
    let accepting = each(listener, WEBHOOK_CONNECTIONS, |stream, permit| {
        let (acceptor, router) = (acceptor.clone(), router.clone());
        let (metrics, shutdown, abandon) = (Arc::clone(metrics), shutdown.clone(), abandon.clone());
        connections.spawn(async move {
            let _permit = permit;
            let _open = metrics.connection();
            let serving = async {
                match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => connection::serve(stream, router, &shutdown).await,
                    Ok(Err(error)) => {
                        metrics.handshake_failed();
                        tracing::debug!(%error, "TLS handshake failed");
                    }
                    Err(_) => {
                        metrics.handshake_failed();
                        tracing::debug!("TLS handshake did not end in time");
                    }
                }
            };
            abandon.run_until_cancelled(serving).await;
        });
    });
    // The loop owns the listener: once it is dropped, nobody else can connect.
    tokio::select! {
        never = accepting => match never {},
        () = shutdown.stopping() => {}
    }
    connections.close();
    tracing::info!(connections = connections.len(), "stopped accepting");
    if timeout(FINISH, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections cut off at the end of the drain");
    }
}

/// Serves plain HTTP for as long as it is polled.
pub(super) async fn plain(listener: TcpListener, router: Router, shutdown: Shutdown) -> Result<(), Infallible> {
    let never = each(listener, ADMIN_CONNECTIONS, |stream, permit| {
        let (router, shutdown) = (router.clone(), shutdown.clone());
        tokio::spawn(async move {
            let _permit = permit;
            connection::serve(stream, router, &shutdown).await;
        });
    });
    match never.await {}
}

/// Hands every connection to `serve`, at most `limit` of them at a time.
async fn each(
    listener: TcpListener,
    limit: usize,
    mut serve: impl FnMut(TcpStream, OwnedSemaphorePermit),
) -> Infallible {
    let slots = Arc::new(Semaphore::new(limit));
    let mut pause = BACKOFF.0;
    loop {
        // Fails only where the semaphore is closed, and nobody closes this one.
        let Ok(permit) = Arc::clone(&slots).acquire_owned().await else {
            return future::pending().await;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                pause = BACKOFF.0;
                // An answer is one small write: waiting to fill a packet only delays it.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY not set");
                }
                serve(stream, permit);
            }
            Err(error) if of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, pause_seconds = pause.as_secs_f64(), "cannot accept connections");
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
            }
        }
    }
}

/// Whether an accept failed for the connection's own reasons: the caller went away first.
fn of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
