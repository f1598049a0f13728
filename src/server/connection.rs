//! One HTTP/1.1 connection, from its first byte to its close.
//!
//! HTTP/1.1 only: kube-apiserver speaks nothing else to a Service. Knows nothing of what the
//! requests ask for: it has a router for that.

use std::convert::Infallible;
use std::pin::pin;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use super::deadline::{Deadline, Turns};
use crate::lifecycle::Shutdown;

/// The most that hyper buffers for one connection; a request's head must fit into it. A head of
/// kube-apiserver's is under 1 KiB, and hyper's default of 400 KiB times 1,024 connections would
/// be more memory than the pod has.
const BUFFER: usize = 64 * 1024;

/// Serves requests until either side closes.
///
/// While the process drains, each answer carries `Connection: close`, so that the caller's next
/// request goes to another pod over a new connection. A connection must not simply be closed
/// instead: a POST that crosses the close is lost, since client-go retries only GETs. Once the
/// process stops, an idle connection closes at last and a busy one does after its answer.
pub(super) async fn serve<IO>(io: IO, router: Router, shutdown: &Shutdown)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let turns = Turns::default();
    let io = TokioIo::new(Deadline::new(io, turns.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let turn = turns.begin();
        let router = router.clone();
        async move {
            let mut response: Response<Body> = match router.oneshot(request.map(Body::new)).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            if shutdown.is_draining() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            drop(turn);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // One timer for the head and for the pause between requests; `Deadline` has two.
        .header_read_timeout(None)
        .max_buf_size(BUFFER)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        // First the connection: a request that has arrived already is answered.
        biased;
        ended = connection.as_mut() => ended,
        () = shutdown.stopping() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}
