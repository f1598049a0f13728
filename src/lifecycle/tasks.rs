//! Work in the background that must last as long as the process.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::future;

use tokio::task::{Id, JoinSet};

/// Background tasks by name. Dropping them ends them all.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<Result<(), Box<dyn Error + Send + Sync>>>,
    names: HashMap<Id, &'static str>,
}

/// A background task ended before the process did.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It returned as if its work were done.
    #[error("background task {0:?} ended early")]
    Ended(&'static str),
    /// It failed.
    #[error("background task {name:?} failed")]
    Failed {
        /// The task.
        name: &'static str,
        /// What it failed with.
        source: Box<dyn Error + Send + Sync>,
    },
    /// It panicked.
    #[error("background task {0:?} panicked")]
    Panicked(&'static str),
}

impl Tasks {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task that must not end by itself. Needs a running tokio runtime.
    pub fn spawn<F, E>(&mut self, name: &'static str, task: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let handle = self.running.spawn(async { task.await.map_err(Into::into) });
        self.names.insert(handle.id(), name);
    }

    /// Watches the tasks for as long as it is polled, and returns when the first one ends: a
    /// process that lost a part must not go on as if it had it.
    pub async fn supervise(&mut self) -> Result<Infallible, TaskError> {
        let Some(ended) = self.running.join_next_with_id().await else {
            return future::pending().await;
        };
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let name = self.names.remove(&id).unwrap_or("unnamed");
        Err(match ended {
            Ok((_, Ok(()))) => TaskError::Ended(name),
            Ok((_, Err(source))) => TaskError::Failed { name, source },
            Err(_) => TaskError::Panicked(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    async fn first(tasks: &mut Tasks) -> TaskError {
        let Err(error) = tasks.supervise().await;
        error
    }

    #[tokio::test]
    async fn the_one_that_ends_is_named() {
        let mut tasks = Tasks::new();
        tasks.spawn("watch", future::pending::<Result<(), io::Error>>());
        tasks.spawn("reload", async { Err(io::Error::other("disk gone")) });
        let error = first(&mut tasks).await;
        assert_eq!(error.to_string(), "background task \"reload\" failed");
        assert_eq!(error.source().unwrap().to_string(), "disk gone");
    }

    #[tokio::test]
    async fn an_early_end_and_a_panic_are_faults_too() {
        let mut tasks = Tasks::new();
        tasks.spawn("reload", async { Ok::<(), io::Error>(()) });
        assert!(matches!(first(&mut tasks).await, TaskError::Ended("reload")));
        tasks.spawn("watch", async { if true { panic!("on purpose") } else { Ok::<(), io::Error>(()) } });
        assert!(matches!(first(&mut tasks).await, TaskError::Panicked("watch")));
    }
}
