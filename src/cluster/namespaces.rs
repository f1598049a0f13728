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
use tokio::time::sleep;

use super::Said;
use crate::lifecycle::ReadyHandle;
use crate::policy::{Facts, LabelSelector};
use crate::telemetry::metrics::Metrics;

/// How many namespaces are read at once.
const PAGE: u32 = 500;

/// After how long the API server ends a watch and a new one is opened, in seconds. It must be below five
/// minutes, after which the client gives up on a connection that is silent.
const WATCH_SECONDS: u32 = 290;

/// How long to wait after a failure, doubled by each that follows up to the longest.
const BACKOFF: Duration = Duration::from_millis(800);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The labels of one namespace.
type Labels = BTreeMap<String, String>;

/// How many namespaces are looked up at once. Who asks for one that is not there asks each time anew: names
/// that somebody made up must not fill the memory.
const LOOKUPS: usize = 16;

/// The labels of the namespaces that are known. Reading takes no lock and waits for nothing.
#[derive(Debug)]
pub struct Namespaces {
    known: ArcSwap<HashMap<String, Arc<Labels>>>,
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
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    /// Changes were missed: everything has to be read again.
    #[error("the API server no longer has the changes since the last one seen")]
    Outdated,
    #[error("{}", Said(.0))]
    Failed(#[from] kube::Error),
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
            known.entry(name.clone()).or_insert_with(|| Arc::clone(&labels));
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
            let ended = match &version {
                None => self.list(&api).await.map(|read| version = Some(read)),
                Some(since) => match self.watch(&api, since, &metrics, &mut backoff).await {
                    Ok(last) => {
                        version = Some(last);
                        Ok(())
                    }
                    Err(Interrupted::Outdated) => {
                        version = None;
                        Ok(())
                    }
                    Err(Interrupted::Failed(error)) => {
                        // What was missed in between is not known, so all is read again.
                        version = None;
                        Err(error)
                    }
                },
            };
            match ended {
                Ok(()) => {
                    metrics.namespace_labels_current(now());
                    if version.is_some()
                        && let Some(ready) = ready.take()
                    {
                        tracing::info!(namespaces = self.known.load().len(), "the labels of namespaces are known");
                        ready.ready();
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = %Said(&error),
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
    async fn list(&self, api: &Api<Namespace>) -> Result<String, kube::Error> {
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
        since: &str,
        metrics: &Metrics,
        backoff: &mut Duration,
    ) -> Result<String, Interrupted> {
        let mut version = since.to_owned();
        let events = api.watch_metadata(&WatchParams::default().timeout(WATCH_SECONDS), since).await?;
        let mut events = pin!(events);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(namespace) | WatchEvent::Modified(namespace) => {
                    version = namespace.metadata.resource_version.clone().unwrap_or(version);
                    let (name, labels) = named(namespace);
                    self.change(|known| drop(known.insert(name.clone(), Arc::clone(&labels))));
                }
                WatchEvent::Deleted(namespace) => {
                    version = namespace.metadata.resource_version.clone().unwrap_or(version);
                    let (name, _) = named(namespace);
                    self.change(|known| drop(known.remove(&name)));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) if status.code == 410 => return Err(Interrupted::Outdated),
                WatchEvent::Error(status) => return Err(Interrupted::Failed(kube::Error::Api(status))),
            }
            *backoff = BACKOFF;
            metrics.namespace_labels_current(now());
        }
        Ok(version)
    }

    /// Namespaces change seldom and are read with every request: so a change copies the map.
    fn change(&self, change: impl Fn(&mut HashMap<String, Arc<Labels>>)) {
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

fn named(namespace: PartialObjectMeta<Namespace>) -> (String, Arc<Labels>) {
    let metadata = namespace.metadata;
    (metadata.name.unwrap_or_default(), Arc::new(metadata.labels.unwrap_or_default()))
}
