//! Whether the process can serve, and if not, which of its parts cannot.

use std::sync::Arc;

use tokio::sync::watch;

use super::Shutdown;

/// What is reported as not ready while the process drains.
const DRAINING: &str = "draining";

/// The parts that the process still waits for. Clones share one list.
#[derive(Debug, Clone)]
pub struct Readiness {
    waiting: Arc<watch::Sender<Vec<&'static str>>>,
    shutdown: Shutdown,
}

impl Readiness {
    /// Waits for nothing yet. A process that drains is not ready whatever its parts say: the
    /// kubelet then takes it out of the Service's endpoints.
    #[must_use]
    pub fn new(shutdown: &Shutdown) -> Self {
        Self { waiting: Arc::new(watch::Sender::default()), shutdown: shutdown.clone() }
    }

    /// Waits for the part of this name from now on, until its handle says that it is ready.
    pub fn handle(&self, name: &'static str) -> ReadyHandle {
        self.waiting.send_modify(|names| names.push(name));
        ReadyHandle { name, readiness: self.clone() }
    }

    /// The parts that are not ready, in the order in which they were named; empty means ready.
    #[must_use]
    pub fn not_ready(&self) -> Vec<&'static str> {
        let mut names = self.waiting.borrow().clone();
        if self.shutdown.is_draining() {
            names.push(DRAINING);
        }
        names
    }

    /// Waits until every part that was named is ready.
    pub async fn ready(&self) {
        // Fails only where the sender is gone, and `self` holds it.
        let _ = self.waiting.subscribe().wait_for(Vec::is_empty).await;
    }
}

/// Keeps the process from being ready. A handle that is dropped without a word keeps doing so: a
/// part that gave up is not a part that is ready.
#[derive(Debug)]
#[must_use = "the process is not ready until `ready` is called"]
pub struct ReadyHandle {
    name: &'static str,
    readiness: Readiness,
}

impl ReadyHandle {
    /// The part is ready.
    pub fn ready(self) {
        self.readiness.waiting.send_modify(|waiting| {
            if let Some(at) = waiting.iter().position(|name| *name == self.name) {
                waiting.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_once_every_handle_says_so() {
        let readiness = Readiness::new(&Shutdown::new());
        let tls = readiness.handle("tls listener");
        let cache = readiness.clone().handle("namespace cache");
        assert_eq!(readiness.not_ready(), ["tls listener", "namespace cache"]);
        tls.ready();
        assert_eq!(readiness.not_ready(), ["namespace cache"]);
        cache.ready();
        assert!(readiness.not_ready().is_empty());
        readiness.ready().await;
    }

    #[test]
    fn a_handle_that_is_only_dropped_stays() {
        let readiness = Readiness::new(&Shutdown::new());
        drop(readiness.handle("namespace cache"));
        assert_eq!(readiness.not_ready(), ["namespace cache"]);
    }

    #[test]
    fn a_draining_process_is_not_ready() {
        let shutdown = Shutdown::new();
        let readiness = Readiness::new(&shutdown);
        shutdown.drain();
        assert_eq!(readiness.not_ready(), ["draining"]);
    }
}
