//! The two stages in which the process ends.

use tokio_util::sync::CancellationToken;

/// Tells every part of the process that it is ending. Clones share one state.
///
/// A pod that is deleted is taken out of its Service's endpoints and sent SIGTERM at the same
/// moment, and for some seconds more kube-proxy still routes connections to it. So the end has
/// two stages: *draining*, when the process serves as before but asks callers to go, and
/// *stopping*, when it accepts no more and finishes what it has.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    draining: CancellationToken,
    stopping: CancellationToken,
}

impl Shutdown {
    /// A process that is not ending.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the first stage.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Begins the second stage, and the first if it has not begun.
    pub fn stop(&self) {
        self.draining.cancel();
        self.stopping.cancel();
    }

    /// Whether the first stage has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits for the first stage.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Waits for the second stage.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stopping_implies_draining() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_draining());
        shutdown.clone().stop();
        shutdown.draining().await;
        shutdown.stopping().await;
    }
}
