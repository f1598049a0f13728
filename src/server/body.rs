//! The limit on one request's body, and the budget over all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;

/// The largest body, in bytes. An UPDATE carries the object twice, old and new, each up to the
/// 3 MiB that kube-apiserver takes from its own callers; written as JSON what came as protobuf
/// grows, and the envelope adds its own.
pub(super) const LIMIT: usize = 9 * 1024 * 1024;

/// The bytes of all bodies that are being read or reviewed, in KiB. Seven of the largest, or
/// thousands of ordinary ones; with the rest of the process it stays well under the 192 MiB that
/// the pod is given.
const BUDGET_KIB: usize = 64 * 1024;

/// How long a request waits for its part of the budget. It may be that a large one ahead of it is
/// just being finished; longer than this, the caller does better to try another pod.
const BUDGET_WAIT: Duration = Duration::from_millis(250);

/// A body that was read whole, and the part of the budget that it holds.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Vec<u8>,
    _part: OwnedSemaphorePermit,
}

impl Held {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes that may be in flight at once. Clones share one budget.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET_KIB)))
    }

    /// Reads a body whole within `allowance`. One that says that it is too large is refused before
    /// any of it is read.
    pub(super) async fn read(&self, body: Body, allowance: Duration) -> Result<Held, Refusal> {
        let deadline = Instant::now() + allowance;
        if allowance.is_zero() {
            return Err(Refusal::Expired);
        }
        let announced = body.size_hint().exact();
        // A chunked body does not say how long it is: it counts as the largest.
        let length = match announced.map(usize::try_from) {
            None => LIMIT,
            Some(Ok(length)) if length <= LIMIT => length,
            Some(_) => return Err(Refusal::TooLarge(announced)),
        };
        let part = self.part(length, deadline).await?;
        let capacity = if announced.is_some() { length } else { 0 };
        match timeout_at(deadline, collect(body, capacity)).await {
            Ok(collected) => Ok(Held { bytes: collected?, _part: part }),
            Err(_) => Err(Refusal::BodyTimeout(allowance)),
        }
    }

    async fn part(&self, length: usize, deadline: Instant) -> Result<OwnedSemaphorePermit, Refusal> {
        let kib = u32::try_from(length.div_ceil(1024)).map_err(|_| Refusal::TooLarge(None))?;
        let waiting = Arc::clone(&self.0).acquire_many_owned(kib);
        match timeout_at(deadline.min(Instant::now() + BUDGET_WAIT), waiting).await {
            Ok(Ok(part)) => Ok(part),
            _ => Err(Refusal::Overload),
        }
    }
}

async fn collect(mut body: Body, capacity: usize) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::with_capacity(capacity);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::BodyBroken)?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > LIMIT {
                return Err(Refusal::TooLarge(None));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::Bytes;
    use hyper::body::Frame;

    const SECOND: Duration = Duration::from_secs(1);

    /// A body that does not say how long it is, in two chunks.
    struct Chunked(Vec<Bytes>);

    impl HttpBody for Chunked {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop().map(|chunk| Ok(Frame::data(chunk))))
        }
    }

    fn chunked(first: &Bytes, second: &'static [u8]) -> Body {
        Body::new(Chunked(vec![Bytes::from_static(second), first.clone()]))
    }

    #[tokio::test]
    async fn the_limit_is_exact_announced_or_not() {
        let budget = Budget::new();
        let whole = Bytes::from(vec![b' '; LIMIT]);
        let held = budget.read(Body::from(whole.clone()), SECOND).await.unwrap();
        assert_eq!(held.bytes().len(), LIMIT);
        drop(held);
        let held = budget.read(chunked(&whole, b""), SECOND).await.unwrap();
        assert_eq!(held.bytes().len(), LIMIT);
        drop(held);
        let over = budget.read(chunked(&whole, b"x"), SECOND).await;
        assert!(matches!(over, Err(Refusal::TooLarge(None))));
        let over = budget.read(Body::from(vec![b' '; LIMIT + 1]), SECOND).await;
        assert!(matches!(over, Err(Refusal::TooLarge(Some(_)))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_spent_budget_refuses_after_a_short_wait_and_recovers() {
        let budget = Budget::new();
        let held = budget.part(BUDGET_KIB * 1024 - 1024, Instant::now() + SECOND).await.unwrap();
        let began = Instant::now();
        let refused = budget.read(Body::from(vec![b' '; 1025]), SECOND).await;
        assert!(matches!(refused, Err(Refusal::Overload)));
        assert!(began.elapsed() >= BUDGET_WAIT && began.elapsed() < BUDGET_WAIT * 2);
        assert!(budget.read(Body::from("{}"), SECOND).await.is_ok(), "one KiB is left");
        drop(held);
        assert!(budget.read(Body::from(vec![b' '; 1025]), SECOND).await.is_ok());
    }

    #[tokio::test]
    async fn no_time_left_means_that_nothing_is_read() {
        let refused = Budget::new().read(Body::from("{}"), Duration::ZERO).await;
        assert!(matches!(refused, Err(Refusal::Expired)));
    }
}
