//! What is known of the objects of a kind, by list and watch: a map by name of what each is reduced to.
//!
//! kube's own watcher would do all of this but one: it keeps the API server's bookmarks to itself. In a
//! quiet cluster they are the only sign that a watch is alive, and the age of the cache is what an
//! operator has to see.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::TryStreamExt;
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use kube::core::request::Error as RequestError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Said, WATCH_SECONDS, has_code};
use crate::telemetry::metrics::Metrics;

/// How long a watch may be silent: the API server should have ended it before. Without a limit one whose other end is
/// gone would be waited for, and what it said last believed, for ever.
const SILENT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// How long to wait after a failure, doubled by each that follows up to the longest. No two watches are opened
/// within the shortest, whatever ends them.
const BACKOFF: Duration = Duration::from_millis(800);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// How many objects are looked up at once. Who asks for one that is not there asks each time anew: names
/// that somebody made up must not fill the memory.
const LOOKUPS: usize = 16;

/// A kind of objects that is followed, and what is kept of each.
pub(super) trait Kind: fmt::Debug + Send + Sync + 'static {
    /// What is read of an object beside its labels.
    type Spec: fmt::Debug + Clone + Default + DeserializeOwned + Send + 'static;

    /// What is kept of it.
    type Kept: fmt::Debug + PartialEq + Send + Sync + 'static;

    /// The resource, which is the core group's and in no namespace.
    const RESOURCE: &'static str;

    /// What is kept, in words.
    const WHAT: &'static str;

    /// How many objects are read at once.
    const PAGE: u32;

    /// Whether the API server is asked for the metadata alone.
    const IS_METADATA_ONLY: bool;

    /// Reduces an object.
    fn keep(&self, labels: BTreeMap<String, String>, spec: Self::Spec) -> Self::Kept;

    /// All is known as it was at this time, in seconds since 1970.
    fn current(metrics: &Metrics, at: i64);
}

/// By name. A copy shares names and what is kept with what it was made from.
type Known<K> = HashMap<Arc<str>, Arc<<K as Kind>::Kept>>;

/// What is known of the objects of a kind. Reading takes no lock and waits for nothing.
#[derive(Debug)]
pub(super) struct Followed<K: Kind> {
    kind: K,
    known: ArcSwap<Known<K>>,
    lookups: Semaphore,
}

impl<K: Kind + Default> Default for Followed<K> {
    fn default() -> Self {
        Self { kind: K::default(), known: ArcSwap::default(), lookups: Semaphore::new(LOOKUPS) }
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

/// The little of an object that is ever read: a node's images and a pod's worth of managed fields are not even
/// held for a moment.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound(deserialize = "S: Default + Deserialize<'de>"))]
struct Object<S> {
    metadata: Metadata,
    #[serde(default)]
    spec: S,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "S: Default + Deserialize<'de>"))]
struct Page<S> {
    metadata: PageMetadata,
    items: Vec<Object<S>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    token: Option<String>,
}

impl<K: Kind> Followed<K> {
    /// What is kept of an object, where it is known.
    pub(super) fn get(&self, name: &str) -> Option<Arc<K::Kept>> {
        self.known.load().get(name).cloned()
    }

    /// The same, looked at in place.
    pub(super) fn with<T>(&self, name: &str, look: impl FnOnce(&K::Kept) -> T) -> Option<T> {
        self.known.load().get(name).map(|kept| look(kept))
    }

    /// Asks for one object that the watch has not brought (yet). `None`: there is none of this name.
    pub(super) async fn look_up(&self, client: &Client, name: &str) -> Result<Option<Arc<K::Kept>>, kube::Error> {
        // Never closed.
        let _one_of_few = self.lookups.acquire().await.ok();
        // Whoever waited may find that another has asked the same.
        if let Some(kept) = self.get(name) {
            return Ok(Some(kept));
        }
        let (requests, parameters) = (requests::<K>(), kube::api::GetParams::default());
        let request = if K::IS_METADATA_ONLY {
            requests.get_metadata(name, &parameters)
        } else {
            requests.get(name, &parameters)
        };
        let found = match client.request(request.map_err(built)?).await {
            Ok(found) => found,
            Err(error) if has_code(&error, 404) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (name, kept) = self.reduced(found);
        self.change(|known| {
            // What the watch brought meanwhile is newer.
            known.entry(Arc::clone(&name)).or_insert_with(|| Arc::clone(&kept));
        });
        Ok(Some(kept))
    }

    /// Keeps all as it is in the cluster, for ever. Tells once when it has all been read.
    pub(super) async fn follow(
        &self,
        client: Client,
        known: impl FnOnce() + Send,
        metrics: Arc<Metrics>,
    ) -> Infallible {
        let mut tell = Some(known);
        let mut version = None;
        let mut backoff = BACKOFF;
        loop {
            let began = Instant::now();
            let ended = match version.take() {
                None => self.list(&client).await,
                Some(since) => self.watch(&client, since, &metrics, &mut backoff).await,
            };
            match ended {
                Ok(last) => {
                    K::current(&metrics, now());
                    if let Some(tell) = tell.take() {
                        tracing::info!(count = self.known.load().len(), "the {} of {} are known", K::WHAT, K::RESOURCE);
                        tell();
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
                        "the {} cannot be watched; the {} last seen stay",
                        K::RESOURCE,
                        K::WHAT
                    );
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                }
            }
        }
    }

    /// Reads all objects, page by page, and returns the version from which changes follow.
    async fn list(&self, client: &Client) -> Result<String, Interrupted> {
        let before = self.known.load_full();
        let mut all = HashMap::new();
        let mut parameters = ListParams::default().limit(K::PAGE);
        loop {
            let requests = requests::<K>();
            let request =
                if K::IS_METADATA_ONLY { requests.list_metadata(&parameters) } else { requests.list(&parameters) };
            let page: Page<K::Spec> = client.request(request.map_err(built)?).await?;
            for object in page.items {
                let (name, kept) = self.reduced(object);
                // Most are as they were, and need not be kept twice while the rest is read.
                match before.get_key_value(&name).filter(|(_, before)| **before == kept) {
                    Some((name, kept)) => all.insert(Arc::clone(name), Arc::clone(kept)),
                    None => all.insert(name, kept),
                };
            }
            let Some(token) = page.metadata.token.filter(|token| !token.is_empty()) else {
                self.known.store(Arc::new(all));
                return Ok(page.metadata.resource_version.unwrap_or_default());
            };
            parameters = parameters.continue_token(&token);
        }
    }

    /// Takes changes in until the API server ends the watch, and returns the version of the last.
    async fn watch(
        &self,
        client: &Client,
        since: String,
        metrics: &Metrics,
        backoff: &mut Duration,
    ) -> Result<String, Interrupted> {
        let (requests, parameters) = (requests::<K>(), WatchParams::default().timeout(WATCH_SECONDS));
        let request = if K::IS_METADATA_ONLY {
            requests.watch_metadata(&parameters, &since)
        } else {
            requests.watch(&parameters, &since)
        };
        let events = client.request_events::<Object<K::Spec>>(request.map_err(built)?).await?;
        let mut version = since;
        let mut events = pin!(events);
        while let Some(event) = timeout(SILENT, events.try_next()).await.map_err(|_| Interrupted::Silent)?? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.metadata.resource_version.clone().unwrap_or(version);
                    self.take_in(object);
                }
                WatchEvent::Deleted(object) => {
                    version = object.metadata.resource_version.unwrap_or(version);
                    self.change(|known| drop(known.remove(object.metadata.name.as_str())));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
            *backoff = BACKOFF;
            K::current(metrics, now());
        }
        *backoff = BACKOFF;
        Ok(version)
    }

    /// Takes in an object that was changed, which for most is a change of something that is not kept: a node
    /// tells of itself every few minutes, and there are thousands.
    fn take_in(&self, object: Object<K::Spec>) {
        let (name, kept) = self.reduced(object);
        if self.with(&name, |before| *before == *kept) != Some(true) {
            self.change(|known| drop(known.insert(Arc::clone(&name), Arc::clone(&kept))));
        }
    }

    /// Changes are few, and what is known is read with every request: so a change copies the map.
    fn change(&self, change: impl Fn(&mut Known<K>)) {
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            change(&mut known);
            known
        });
    }

    fn reduced(&self, object: Object<K::Spec>) -> (Arc<str>, Arc<K::Kept>) {
        let kept = self.kind.keep(object.metadata.labels.unwrap_or_default(), object.spec);
        (object.metadata.name.into(), Arc::new(kept))
    }
}

fn requests<K: Kind>() -> Request {
    Request::new(format!("/api/v1/{}", K::RESOURCE))
}

fn built(error: RequestError) -> kube::Error {
    kube::Error::BuildRequest(error)
}

/// The time in seconds since 1970.
pub(super) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

#[cfg(test)]
mod tests;
