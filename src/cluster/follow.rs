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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
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

/// For how long what is known counts after it was last known to be current; an API server speaks once a minute. Then
/// each object is asked for anew whenever something depends on it, until the watch is back.
const STALE: Duration = Duration::from_secs(300);

/// How many changes are taken in at once. Together they cost one copy of what is known, which they may all be about.
const CHANGES: usize = 500;

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

/// What is known at a time. A copy shares names and what is kept with what it was made from.
#[derive(Debug)]
struct Known<K: Kind> {
    by_name: HashMap<Arc<str>, Arc<K::Kept>>,
    /// How often something may have been taken out. What was found before the last time may be gone.
    taken_out: u64,
}

impl<K: Kind> Default for Known<K> {
    fn default() -> Self {
        Self { by_name: HashMap::new(), taken_out: 0 }
    }
}

impl<K: Kind> Clone for Known<K> {
    fn clone(&self) -> Self {
        Self { by_name: self.by_name.clone(), taken_out: self.taken_out }
    }
}

/// What became of objects, by name: `None` of one that is gone.
type Changes<K> = HashMap<Arc<str>, Option<Arc<<K as Kind>::Kept>>>;

/// What is known of the objects of a kind. Reading takes no lock and waits for nothing.
#[derive(Debug)]
pub(super) struct Followed<K: Kind> {
    kind: K,
    known: ArcSwap<Known<K>>,
    began: Instant,
    /// When all was last known to be current, in seconds since it began.
    current: AtomicU64,
    lookups: Semaphore,
}

impl<K: Kind + Default> Default for Followed<K> {
    fn default() -> Self {
        Self {
            kind: K::default(),
            known: ArcSwap::default(),
            began: Instant::now(),
            current: AtomicU64::new(0),
            lookups: Semaphore::new(LOOKUPS),
        }
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
    /// What is kept of an object, where it is known and not from long ago.
    pub(super) fn get(&self, name: &str) -> Option<Arc<K::Kept>> {
        self.known.load().by_name.get(name).filter(|_| self.counts()).cloned()
    }

    /// The same, looked at in place.
    pub(super) fn with<T>(&self, name: &str, look: impl FnOnce(&K::Kept) -> T) -> Option<T> {
        self.known.load().by_name.get(name).filter(|_| self.counts()).map(|kept| look(kept))
    }

    /// Whether what is known counts. By a clock that is read here: no task has to be alive to notice.
    fn counts(&self) -> bool {
        self.began.elapsed().as_secs() < self.current.load(Ordering::Relaxed) + STALE.as_secs()
    }

    fn is_current(&self, metrics: &Metrics) {
        self.current.store(self.began.elapsed().as_secs(), Ordering::Relaxed);
        K::current(metrics, now());
    }

    /// Asks for one object that the watch has not brought (yet), or of which it has long brought nothing. `None`:
    /// there is none of this name.
    pub(super) async fn look_up(&self, client: &Client, name: &str) -> Result<Option<Arc<K::Kept>>, kube::Error> {
        // Never closed.
        let _one_of_few = self.lookups.acquire().await.ok();
        // Whoever waited may find that another has asked the same.
        if let Some(kept) = self.get(name) {
            return Ok(Some(kept));
        }
        let taken_out = self.known.load().taken_out;
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
            // What the watch brought meanwhile is newer, also that the object is gone: then it is not kept.
            if known.taken_out == taken_out {
                known.by_name.entry(Arc::clone(&name)).or_insert_with(|| Arc::clone(&kept));
            }
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
            let ended = match &mut version {
                None => self.list(&client).await.map(|last| version = Some(last)),
                Some(last) => self.watch(&client, last, &metrics, &mut backoff).await,
            };
            match ended {
                Ok(()) => {
                    self.is_current(&metrics);
                    if let Some(tell) = tell.take() {
                        let count = self.known.load().by_name.len();
                        tracing::info!(count, "the {} of {} are known", K::WHAT, K::RESOURCE);
                        tell();
                    } else {
                        sleep_until(began + BACKOFF).await;
                    }
                }
                Err(error) => {
                    // A watch that broke off goes on where it was, unless that was the last thing tried. Else it is
                    // not known what was missed, so all is read again.
                    if !matches!(error, Interrupted::Failed(_)) || backoff > BACKOFF {
                        version = None;
                    }
                    tracing::warn!(
                        %error,
                        retry_seconds = backoff.as_secs_f32(),
                        "the {} cannot be watched; the {} last seen stay for {} s, and are looked up one by one after that",
                        K::RESOURCE,
                        K::WHAT,
                        STALE.as_secs()
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
        let mut by_name = HashMap::new();
        let mut parameters = ListParams::default().limit(K::PAGE);
        loop {
            let requests = requests::<K>();
            let request =
                if K::IS_METADATA_ONLY { requests.list_metadata(&parameters) } else { requests.list(&parameters) };
            let page: Page<K::Spec> = client.request(request.map_err(built)?).await?;
            for object in page.items {
                let (name, kept) = self.reduced(object);
                // Most are as they were, and need not be kept twice while the rest is read.
                match before.by_name.get_key_value(&name).filter(|(_, before)| **before == kept) {
                    Some((name, kept)) => by_name.insert(Arc::clone(name), Arc::clone(kept)),
                    None => by_name.insert(name, kept),
                };
            }
            let Some(token) = page.metadata.token.filter(|token| !token.is_empty()) else {
                self.known.store(Arc::new(Known { by_name, taken_out: before.taken_out + 1 }));
                return Ok(page.metadata.resource_version.unwrap_or_default());
            };
            parameters = parameters.continue_token(&token);
        }
    }

    /// Takes changes in until the API server ends the watch. `version` stays that of the last.
    async fn watch(
        &self,
        client: &Client,
        version: &mut String,
        metrics: &Metrics,
        backoff: &mut Duration,
    ) -> Result<(), Interrupted> {
        let (requests, parameters) = (requests::<K>(), WatchParams::default().timeout(WATCH_SECONDS));
        let request = if K::IS_METADATA_ONLY {
            requests.watch_metadata(&parameters, version)
        } else {
            requests.watch(&parameters, version)
        };
        let events = client.request_events::<Object<K::Spec>>(request.map_err(built)?).await?;
        // What has arrived already is taken in together.
        let mut events = pin!(events.ready_chunks(CHANGES));
        while let Some(events) = timeout(SILENT, events.next()).await.map_err(|_| Interrupted::Silent)? {
            let mut changes = Changes::<K>::new();
            for event in events {
                // What came before an error counts.
                match self.read(event, &mut changes) {
                    Ok(Some(last)) => *version = last,
                    Ok(None) => {}
                    Err(error) => {
                        self.take_in(&changes);
                        return Err(error);
                    }
                }
                *backoff = BACKOFF;
            }
            self.take_in(&changes);
            self.is_current(metrics);
        }
        *backoff = BACKOFF;
        Ok(())
    }

    /// Notes what an event changes, and returns the version that it leads to.
    fn read(
        &self,
        event: Result<WatchEvent<Object<K::Spec>>, kube::Error>,
        changes: &mut Changes<K>,
    ) -> Result<Option<String>, Interrupted> {
        match event? {
            WatchEvent::Added(mut object) | WatchEvent::Modified(mut object) => {
                let version = object.metadata.resource_version.take();
                let (name, kept) = self.reduced(object);
                changes.insert(name, Some(kept));
                Ok(version)
            }
            WatchEvent::Deleted(object) => {
                changes.insert(object.metadata.name.into(), None);
                Ok(object.metadata.resource_version)
            }
            WatchEvent::Bookmark(bookmark) => Ok(Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
        }
    }

    /// Takes in what was changed, which for most objects is something that is not kept: a node tells of itself
    /// every few minutes, and there are thousands.
    fn take_in(&self, changes: &Changes<K>) {
        let before = self.known.load_full();
        let is_new =
            |name: &Arc<str>, kept: &Option<Arc<K::Kept>>| kept.is_none() || before.by_name.get(name) != kept.as_ref();
        if !changes.iter().any(|(name, kept)| is_new(name, kept)) {
            return;
        }
        self.change(|known| {
            for (name, kept) in changes {
                if let Some(kept) = kept {
                    known.by_name.insert(Arc::clone(name), Arc::clone(kept));
                } else {
                    known.by_name.remove(name);
                    known.taken_out += 1;
                }
            }
        });
    }

    /// What is known is read with every request, and changes are few: so what changes is a copy.
    fn change(&self, change: impl Fn(&mut Known<K>)) {
        self.known.rcu(|known| {
            let mut known = Known::clone(known);
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
