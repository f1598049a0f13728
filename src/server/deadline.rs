//! How long a connection may keep the server waiting.
//!
//! hyper has one timer for a request's head and for the pause before it, and the two need very
//! different bounds: a head is one packet, and the pause must outlast the caller's own idle
//! timeout, or a request crosses the close and is lost. So the stream itself keeps time. It sees
//! the bytes; from the service it learns when a request begins and ends.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a connection may be idle, before its first request and between any two, or leave an
/// answer unread. kube-apiserver drops idle connections after 90 s (Go's default); the side that
/// closes second loses no request.
pub(super) const IDLE: Duration = Duration::from_secs(130);

/// How long a request's head may take from its first byte. kube-apiserver's is under 1 KiB.
pub(super) const HEAD: Duration = Duration::from_secs(5);

/// How long to go on reading, and throwing away, what the caller still sends after the last
/// answer. A socket that is closed with unread bytes in it sends a reset, which can reach the
/// caller before the answer does: a 413 would look like a broken connection.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// Which request of a connection is being answered, as the service tells the stream: odd while one
/// is, even in between.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<AtomicU32>);

impl Turns {
    /// A request has arrived in full, but for its body; it is being answered while the guard lives.
    pub(super) fn begin(&self) -> Turn {
        self.0.fetch_add(1, Ordering::Relaxed);
        Turn(self.clone())
    }

    fn now(&self) -> u32 {
        // One task polls the service and the stream both, so no order among threads is needed.
        self.0.load(Ordering::Relaxed)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Turn(Turns);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for a request's first byte, or for the caller to read its answer.
    Idle,
    /// Some of a request's head has come.
    Head,
    /// A request is being answered. Its body has a deadline of its own.
    Busy,
    /// The answers are all written.
    Closing { shut: bool },
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] when it is silent for too long.
#[derive(Debug)]
pub(super) struct Deadline<IO> {
    io: IO,
    turns: Turns,
    turn: u32,
    phase: Phase,
    timer: Pin<Box<Sleep>>,
}

impl<IO> Deadline<IO> {
    /// The connection is idle from now on.
    pub(super) fn new(io: IO, turns: Turns) -> Self {
        Self { io, turn: turns.now(), turns, phase: Phase::Idle, timer: Box::pin(sleep(IDLE)) }
    }

    fn enter(&mut self, phase: Phase, limit: Duration) {
        self.phase = phase;
        self.timer.as_mut().reset(Instant::now() + limit);
    }

    /// Catches up with the service.
    fn follow(&mut self) {
        let turn = self.turns.now();
        if turn == self.turn || matches!(self.phase, Phase::Closing { .. }) {
            return;
        }
        self.turn = turn;
        if turn % 2 == 1 {
            self.phase = Phase::Busy;
        } else {
            self.enter(Phase::Idle, IDLE);
        }
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.phase != Phase::Busy && self.timer.as_mut().poll(cx).is_ready()
    }

    /// What the stream answers, unless it has none and the time is over.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Deadline<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.follow();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(cx, buffer);
        if buffer.filled().len() > before && this.phase == Phase::Idle {
            this.enter(Phase::Head, HEAD);
        }
        this.bounded(cx, polled)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Deadline<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.follow();
        let polled = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.bounded(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.follow();
        let polled = Pin::new(&mut this.io).poll_write_vectored(cx, bytes);
        this.bounded(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.follow();
        let polled = Pin::new(&mut this.io).poll_flush(cx);
        this.bounded(cx, polled)
    }

    /// Says that no more comes, then waits for the caller to say so too.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !matches!(this.phase, Phase::Closing { .. }) {
            this.enter(Phase::Closing { shut: false }, LINGER);
        }
        // Before any read: a caller who never stops sending must not keep the timer from being asked.
        if this.is_over(cx) {
            return Poll::Ready(Ok(()));
        }
        if this.phase == (Phase::Closing { shut: false }) {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            this.phase = Phase::Closing { shut: true };
        }
        let mut scratch = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut this.io).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
