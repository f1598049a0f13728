//! The labels of all namespaces, by list and watch.
//!
//! kube's own watcher would do all of this but one: it keeps the API server's bookmarks to itself. In a
//! quiet cluster they are the only sign that a watch is alive, and the age of the cache is what an
//! operator has to see.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Said, WATCH_SECONDS, has_code};
use crate::lifecycle::ReadyHandle;
use crate::policy::{Facts, LabelSelector, NodeFact};
use crate::telemetry::metrics::Metrics;

/// How many namespaces are read at once.
const PAGE: u32 = 500;

/// How long a watch may be silent: the API server should have ended it before. Without a limit one whose other end is
/// gone would be waited for, and its labels believed, for ever.
const SILENT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// How long to wait after a failure, doubled by each that follows up to the longest. No two watches are opened
/// within the shortest, whatever ends them.
const BACKOFF: Duration = Duration::from_millis(800);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The labels of one namespace.
type Labels = BTreeMap<String, String>;

/// By name. A copy shares names and labels with what it was made from.
type Known = HashMap<Arc<str>, Arc<Labels>>;

/// How many namespaces are looked up at once. Who asks for one that is not there asks each time anew: names
/// that somebody made up must not fill the memory.
const LOOKUPS: usize = 16;

/// The labels of the namespaces that are known. Reading takes no lock and waits for nothing.
#[derive(Debug)]
pub struct Namespaces {
    known: ArcSwap<Known>,
    lookups: Semaphore,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self { known: ArcSwap::default(), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl Facts for Namespaces {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.known.load().get(namespace).map(|labels| selector.matches(labels))
    }

    fn node(&self, _: &str) -> NodeFact {
        NodeFact::Unknown
    }

    fn now(&self) -> i64 {
        now()
    }
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    /// Changes were missed: everything has to be read again.
    #[error("the API server no longer has the changes since the last one seen")]
    Outdated,
    /// The connection may be gone without a word.
    #[error("the API server was silent for {} s", SILENT.as_secs())]
    Silent,
    #[error("{}", Said(.0))]
    Failed(kube::Error),
}

impl From<kube::Error> for Interrupted {
    fn from(error: kube::Error) -> Self {
        if has_code(&error, 410) { Self::Outdated } else { Self::Failed(error) }
    }
}

impl Namespaces {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for one namespace that the watch has not brought (yet). `None`: there is no such namespace.
    ///
    /// # Errors
    /// Where the API server does not say: the namespace stays unknown.
    pub async fn look_up(&self, client: &Client, namespace: &str) -> Result<Option<Arc<Labels>>, kube::Error> {
        // Never closed.
        let _one_of_few = self.lookups.acquire().await.ok();
        // Whoever waited may find that another has asked the same.
        if let Some(labels) = self.known.load().get(namespace) {
            return Ok(Some(Arc::clone(labels)));
        }
        let Some(found) = Api::<Namespace>::all(client.clone()).get_metadata_opt(namespace).await? else {
            return Ok(None);
        };
        let (name, labels) = named(found);
        self.change(|known| {
            // What the watch brought meanwhile is newer.
            known.entry(Arc::clone(&name)).or_insert_with(|| Arc::clone(&labels));
        });
        Ok(Some(labels))
    }

    /// Keeps the labels as they are in the cluster, for ever. The process is ready once they have all been
    /// read.
    pub async fn follow(&self, client: Client, mut ready: Option<ReadyHandle>, metrics: Arc<Metrics>) -> Infallible {
        let api = Api::<Namespace>::all(client);
        let mut version = None;
        let mut backoff = BACKOFF;
        loop {
            let began = Instant::now();
            let ended = match version.take() {
                None => self.list(&api).await,
                Some(since) => self.watch(&api, since, &metrics, &mut backoff).await,
            };
            match ended {
                Ok(last) => {
                    metrics.namespace_labels_current(now());
                    if let Some(ready) = ready.take() {
                        tracing::info!(namespaces = self.known.load().len(), "the labels of namespaces are known");
                        ready.ready();
                    } else {
                        sleep_until(began + BACKOFF).await;
                    }
                    version = Some(last);
                }
                // What was missed in between is not known, so all is read again.
                Err(error) => {
                    tracing::warn!(
                        %error,
                        retry_seconds = backoff.as_secs_f32(),
                        "the namespaces cannot be watched; the labels last seen stay"
                    );
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                }
            }
        }
    }

    /// Reads all namespaces, page by page, and returns the version from which changes follow.
    async fn list(&self, api: &Api<Namespace>) -> Result<String, Interrupted> {
        let mut all = HashMap::new();
        let mut parameters = ListParams::default().limit(PAGE);
        loop {
            let page = api.list_metadata(&parameters).await?;
            for namespace in page.items {
                let (name, labels) = named(namespace);
                all.insert(name, labels);
            }
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                self.known.store(Arc::new(all));
                return Ok(page.metadata.resource_version.unwrap_or_default());
            };
            parameters = parameters.continue_token(&token);
        }
    }

    /// Takes changes in until the API server ends the watch, and returns the version of the last.
    async fn watch(
        &self,
        api: &Api<Namespace>,
        since: String,
        metrics: &Metrics,
        backoff: &mut Duration,
    ) -> Result<String, Interrupted> {
        let events = api.watch_metadata(&WatchParams::default().timeout(WATCH_SECONDS), &since).await?;
        let mut version = since;
        let mut events = pin!(events);
        while let Some(event) = timeout(SILENT, events.try_next()).await.map_err(|_| Interrupted::Silent)?? {
            match event {
                WatchEvent::Added(namespace) | WatchEvent::Modified(namespace) => {
                    version = namespace.metadata.resource_version.clone().unwrap_or(version);
                    let (name, labels) = named(namespace);
                    self.change(|known| drop(known.insert(Arc::clone(&name), Arc::clone(&labels))));
                }
                WatchEvent::Deleted(namespace) => {
                    version = namespace.metadata.resource_version.clone().unwrap_or(version);
                    let (name, _) = named(namespace);
                    self.change(|known| drop(known.remove(&name)));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
            *backoff = BACKOFF;
            metrics.namespace_labels_current(now());
        }
        *backoff = BACKOFF;
        Ok(version)
    }

    /// Namespaces change seldom and are read with every request: so a change copies the map.
    fn change(&self, change: impl Fn(&mut Known)) {
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            change(&mut known);
            known
        });
    }
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

fn named(namespace: PartialObjectMeta<Namespace>) -> (Arc<str>, Arc<Labels>) {
    let metadata = namespace.metadata;
    (metadata.name.unwrap_or_default().into(), Arc::new(metadata.labels.unwrap_or_default()))
}

#[cfg(test)]
mod tests;
