//! What SIGTERM and SIGINT do.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::Shutdown;

/// Why the process ends without finishing its work.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// The operating system gives no signals.
    #[error("signals cannot be received")]
    Unavailable(#[from] io::Error),
    /// A second signal came before the work was done.
    #[error("{0} came while the process was ending; it ends at once")]
    Again(&'static str),
}

/// Begins the process's end on the first SIGTERM or SIGINT, and returns only where it has to end
/// at once.
///
/// SIGTERM is the kubelet's: the process drains for as long as `drain` before it stops. SIGINT is
/// a person's at a terminal, where nothing routes connections here any more: it stops without that
/// wait. A second signal of either kind ends both.
pub async fn signals(shutdown: &Shutdown, drain: Duration) -> Result<Infallible, SignalError> {
    let mut received =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    let first = received.next().await;
    shutdown.drain();
    let wait = if first == TERMINATE { drain } else { Duration::ZERO };
    tracing::info!(signal = first, drain_seconds = wait.as_secs_f64(), "draining");
    tokio::select! {
        () = sleep(wait) => shutdown.stop(),
        again = received.next() => return Err(SignalError::Again(again)),
    }
    Err(SignalError::Again(received.next().await))
}

const TERMINATE: &str = "SIGTERM";
const INTERRUPT: &str = "SIGINT";

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => TERMINATE,
            _ = self.interrupt.recv() => INTERRUPT,
        }
    }
}
