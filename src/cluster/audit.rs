//! What an audit asks of an API server: the objects of every kind that it reads, page by page, so that no more than a
//! page is ever held beside what is kept.
//!
//! What may not be read is a gap of the audit and not its end: it says what is thereby not judged, and which right is
//! missing. Only an audit that could judge nothing at all is none. What an API server is too busy for it is asked again.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{sleep, timeout};

use super::{Said, has_code};
use crate::audit::snapshot::{Builder, READS};
use crate::audit::{Resource, Snapshot};
use crate::policy::Policy;

/// How many objects are read at once. A node weighs many times what another object does: it lists its images.
const PAGE: u32 = 500;
const PAGE_OF_NODES: u32 = 100;

/// How often a list is begun anew that the API server can no longer continue.
const RESTARTS: u8 = 3;

/// How often a page is asked for that the API server is too busy for, or fails at; how long is waited before the second
/// time, twice as long before each further; and how long in all, whatever the page.
const ATTEMPTS: u8 = 5;
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);

/// After how long a page is late.
const LATE: Duration = Duration::from_secs(10);

/// How far the reading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'r> {
    /// What is being read, such as `pods`.
    pub resource: &'r str,
    /// How many objects of it have been read.
    pub read: usize,
    /// How many are left, where the API server says it.
    pub left: Option<u64>,
    /// Whether the next page is late.
    pub is_late: bool,
}

/// Why there is nothing to audit.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Neither nodes nor pods may be read.
    #[error(
        "there is nothing to audit, since neither nodes nor pods can be read: {0}. Grant the verb list on what an audit \
         reads, as the ClusterRole gpufence-audit-reader of deploy/audit-reader.yaml does"
    )]
    NothingToRead(String),
    /// The API server does not answer, or does not know who asks.
    #[error("cannot list the {resource} of the cluster: {}", Said(.error))]
    Failed {
        /// What was asked for.
        resource: String,
        /// What came of it.
        error: kube::Error,
    },
}

/// Reads all that an audit asks for.
///
/// # Errors
/// Where the API server cannot be asked, or lets neither nodes nor pods be read.
pub async fn snapshot(
    client: &Client,
    policy: &Policy,
    progress: impl FnMut(Progress<'_>) + Send,
) -> Result<Snapshot, SnapshotError> {
    let mut reading = Reading { client, builder: Builder::new(policy), progress, patience: PATIENCE };
    let mut gaps = Vec::new();
    let mut incomplete = Vec::new();
    let mut refusals = Vec::new();
    for (group, resource) in READS.iter().copied() {
        if let Some(refused) = reading.list_any(group, resource, versions(group, resource)).await? {
            if matches!(resource, "nodes" | "pods") {
                refusals.push(refused.message.clone());
            }
            gaps.push(gap(group, resource, &refused));
            incomplete.push(what(resource));
        }
        if refusals.len() == 2 {
            return Err(SnapshotError::NothingToRead(refusals.join("; ")));
        }
    }
    for refused in reading.custom_resources(policy).await? {
        gaps.push(refused);
        incomplete.push(Resource::Workloads);
    }
    let mut builder = reading.builder;
    for resource in Resource::ALL.into_iter().filter(|resource| !incomplete.contains(resource)) {
        builder.completes(resource);
    }
    let mut snapshot = builder.finish();
    // Before single objects, of which only so many are named.
    snapshot.faults.splice(0..0, gaps);
    Ok(snapshot)
}

/// The versions in which a kind has been served, newest first. What is read of it is the same in all of them.
fn versions(group: &str, resource: &str) -> &'static [&'static str] {
    match (group, resource) {
        ("batch", "cronjobs") | ("policy", _) => &["v1", "v1beta1"],
        _ => &["v1"],
    }
}

/// Of what an audit does not know everything where a list is missing.
fn what(resource: &str) -> Resource {
    match resource {
        "nodes" => Resource::Nodes,
        "pods" => Resource::Pods,
        "namespaces" => Resource::Namespaces,
        "events" => Resource::Events,
        "poddisruptionbudgets" => Resource::PodDisruptionBudgets,
        _ => Resource::Workloads,
    }
}

/// What is missing, what is not judged for that, and what to do.
fn gap(group: &str, resource: &str, refused: &Status) -> String {
    let unjudged = match what(resource) {
        Resource::Nodes => "neither nodes nor what is on them are judged",
        Resource::Pods => "neither what is on GPU nodes nor what waits for one is judged",
        Resource::Namespaces => "namespaces that are selected by their labels count as not selected",
        Resource::Events => "of pods that find no node the scheduler's own words are missing",
        Resource::PodDisruptionBudgets => "what keeps pods from being evicted is not known",
        Resource::Workloads => "their templates are not judged, and pods are not traced to who makes them through them",
    };
    let Status { message, code, .. } = refused;
    let remedy = if *code == 403 {
        format!("grant it in a ClusterRole with {{apiGroups: [\"{group}\"], resources: [{resource}], verbs: [list]}}")
    } else {
        format!("kubectl get --raw '{}?limit=1' asks the same", path(group, "v1", resource))
    };
    format!("{resource} cannot be listed, so that {unjudged}: {message} (code {code}); {remedy}")
}

fn path(group: &str, version: &str, resource: &str) -> String {
    if group.is_empty() { format!("/api/{version}/{resource}") } else { format!("/apis/{group}/{version}/{resource}") }
}

/// The query for what counts: pods that have ended hold nothing, and of events only the scheduler's are read.
fn parameters(resource: &str) -> ListParams {
    let parameters = ListParams::default().limit(if resource == "nodes" { PAGE_OF_NODES } else { PAGE });
    match resource {
        "pods" => parameters.fields("status.phase!=Succeeded,status.phase!=Failed"),
        "events" => parameters.fields("reason=FailedScheduling,involvedObject.kind=Pod"),
        _ => parameters,
    }
}

/// The little that is read of a page here.
#[derive(Debug, Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(rename = "continue")]
    token: Option<String>,
    remaining_item_count: Option<u64>,
}

struct Reading<'c, 'p, P> {
    client: &'c Client,
    builder: Builder<'p>,
    progress: P,
    /// How long may still be waited for an API server that is busy.
    patience: Duration,
}

impl<P: FnMut(Progress<'_>) + Send> Reading<'_, '_, P> {
    /// Lists a kind in the first of the versions that there is. Returns what the API server says where it gives nothing.
    async fn list_any(
        &mut self,
        group: &str,
        resource: &str,
        versions: &[impl AsRef<str>],
    ) -> Result<Option<Box<Status>>, SnapshotError> {
        let mut last = None;
        for version in versions {
            match self.list(&path(group, version.as_ref(), resource), resource).await {
                Ok(()) => return Ok(None),
                Err(error) if has_code(&error, 404) => last = refusal(resource, error).map(Some)?,
                Err(error) => return refusal(resource, error).map(Some),
            }
        }
        Ok(last)
    }

    /// Gives all objects of a kind to the builder.
    async fn list(&mut self, path: &str, resource: &str) -> Result<(), kube::Error> {
        let mut parameters = parameters(resource);
        let (mut restarts, mut pages, mut read) = (0, 0, 0);
        let mut left = None;
        loop {
            let text = match self.page(path, &parameters, Progress { resource, read, left, is_late: true }).await {
                Ok(text) => text,
                Err(error) if has_code(&error, 410) && restarts < RESTARTS => {
                    restarts += 1;
                    // The API server may go on after the last object as the cluster is now. Otherwise all is read
                    // again, and of what comes twice the later word counts.
                    parameters.continue_token = fresh_token(&error);
                    if parameters.continue_token.is_none() {
                        (read, left) = (0, None);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            let page: Page = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            pages += 1;
            read += page.items.as_ref().map_or(0, Vec::len);
            self.builder.take_all(&format!("{resource}, page {pages}"), text.as_bytes());
            left = page.metadata.remaining_item_count;
            (self.progress)(Progress { resource, read, left, is_late: false });
            let Some(token) = page.metadata.token.filter(|token| !token.is_empty()) else { return Ok(()) };
            parameters.continue_token = Some(token);
        }
    }

    /// A page, and `late` to whoever waits for it where it does not come soon. What an API server fails at for the
    /// moment is asked for again, since the audit knows less without it.
    async fn page(&mut self, path: &str, parameters: &ListParams, late: Progress<'_>) -> Result<String, kube::Error> {
        let Self { client, progress, patience, .. } = self;
        let mut page = pin!(async {
            let mut pause = PAUSE;
            for _ in 1..ATTEMPTS {
                let request = Request::new(path).list(parameters).map_err(kube::Error::BuildRequest)?;
                let error = match client.request_text(request).await {
                    Ok(text) => return Ok(text),
                    Err(error) => error,
                };
                let Some(wish) = passing(&error) else { return Err(error) };
                let wait = pause.max(wish);
                if wait > *patience {
                    return Err(error);
                }
                *patience -= wait;
                sleep(wait).await;
                pause *= 2;
            }
            client.request_text(Request::new(path).list(parameters).map_err(kube::Error::BuildRequest)?).await
        });
        if let Ok(page) = timeout(LATE, &mut page).await {
            return page;
        }
        progress(late);
        page.await
    }

    /// Gives the contract's custom resources to the builder, in a version that is served. Where there is no such group
    /// or resource there is nothing to read. Returns the gaps.
    async fn custom_resources(&mut self, policy: &Policy) -> Result<Vec<String>, SnapshotError> {
        let mut gaps = Vec::new();
        if policy.custom_resources().is_empty() {
            return Ok(gaps);
        }
        let served = match self.client.list_api_groups().await {
            Ok(groups) => groups,
            Err(error) => {
                let Status { message, code, .. } = *refusal("custom resources", error)?;
                gaps.push(format!(
                    "which API groups there are cannot be asked, so that the contract's custom resources are not judged: \
                     {message} (code {code}); every user may with the ClusterRole system:discovery"
                ));
                return Ok(gaps);
            }
        };
        let served: BTreeMap<_, _> = served.groups.into_iter().map(|group| (group.name.clone(), group)).collect();
        for custom in policy.custom_resources() {
            let Some(group) = served.get(&custom.group) else { continue };
            let preferred = group.preferred_version.iter().chain(&group.versions);
            let mut versions: Vec<&str> = Vec::new();
            for version in preferred {
                if !versions.contains(&version.version.as_str()) {
                    versions.push(&version.version);
                }
            }
            match self.list_any(&custom.group, &custom.resource, &versions).await? {
                Some(refused) if refused.code != 404 => gaps.push(gap(&custom.group, &custom.resource, &refused)),
                _ => {}
            }
        }
        Ok(gaps)
    }
}

/// What the API server says of a kind that it does not give. That it cannot be reached, or does not know who asks, is
/// true of every kind.
fn refusal(resource: &str, error: kube::Error) -> Result<Box<Status>, SnapshotError> {
    match error {
        kube::Error::Api(status) if status.code != 401 => Ok(status),
        error => Err(SnapshotError::Failed { resource: resource.to_owned(), error }),
    }
}

/// Of what an API server is too busy for, or fails at, how long it wants to be left alone; `None` for what will be no
/// different the next time.
fn passing(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let wish = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    (status.code == 429 || status.code >= 500).then(|| Duration::from_secs(wish.into()))
}

/// The token with which a list goes on whose own has expired.
fn fresh_token(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    status.metadata.as_ref()?.continue_.clone().filter(|token| !token.is_empty())
}
