//! Reports in the cluster: brought to what an audit says now, and nothing of anybody else's touched.
//!
//! Ours are those of one name that carry one label. A report that says the same already is not written, and one of a
//! namespace in which nothing is found any more is deleted. Writes follow each other at a pace that no API server
//! minds.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};

use super::{FIELD_MANAGER, Said, has_code};
use crate::audit::{ReportForm, ReportKind};

/// How often a report is read again that somebody else changed meanwhile.
const ATTEMPTS: u8 = 3;

/// How many reports are listed at once, of which only the metadata is asked for.
const PAGE: u32 = 500;

/// What became of the reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// How many were created or changed.
    pub written: usize,
    /// How many said the same already.
    pub unchanged: usize,
    /// How many were deleted, because nothing is found there any more.
    pub deleted: usize,
    /// What could not be done, each with the object.
    pub faults: Vec<String>,
}

/// Why no report was written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The cluster does not have the kind.
    #[error(
        "the cluster has no CustomResourceDefinition {definition} that serves {version}, in which the reports would be \
         kept: install the definitions of {home} (many policy engines bring them), or choose the other form with --report"
    )]
    Missing {
        /// The name of the definition.
        definition: String,
        /// The version that is asked for.
        version: &'static str,
        /// Where it is to be had.
        home: &'static str,
    },
    /// The API server cannot be asked.
    #[error("cannot keep reports in the cluster: {}", Said(.0))]
    Api(#[from] kube::Error),
}

/// The reports in a cluster.
struct Reports<'c> {
    client: &'c Client,
    form: ReportForm,
    name: String,
    label: (String, String),
    pace: Duration,
    next: Instant,
    published: Published,
}

/// What was done about a report.
enum Done {
    Written,
    Unchanged,
    Foreign,
    /// Nothing: the namespace is gone or going, and with it what was found there.
    Gone,
}

/// Brings the reports in the cluster to these, all of one name and with one label in common, and deletes the others of
/// that name and label. `pace` is the least time between two writes. Only the reports of an audit that knows all of the
/// cluster may be given ([`crate::audit::Snapshot::unseen`]): for others, what was not seen would count as mended.
///
/// # Errors
/// Where the cluster does not have the kinds, or cannot be reached.
pub async fn publish(
    client: &Client,
    form: ReportForm,
    reports: impl IntoIterator<Item = Value>,
    pace: Duration,
) -> Result<Published, PublishError> {
    is_served(client, form).await?;
    let mut reports = reports.into_iter().peekable();
    let Some((name, label)) = reports.peek().and_then(identity) else { return Ok(Published::default()) };
    let published = Published::default();
    let mut cluster = Reports { client, form, name, label, pace, next: Instant::now(), published };
    let mut kept = BTreeSet::new();
    for report in reports {
        let namespace = namespace(&report);
        kept.insert(namespace.to_owned());
        match cluster.keep(namespace, &report).await {
            Ok(Done::Written) => cluster.published.written += 1,
            Ok(Done::Unchanged) => cluster.published.unchanged += 1,
            Ok(Done::Gone) => {}
            Ok(Done::Foreign) => {
                let (key, value) = &cluster.label;
                let fault = format!(
                    "{} is not ours, since it has no label {key}={value}, and is left alone: rename or delete it",
                    cluster.named(namespace)
                );
                cluster.published.faults.push(fault);
            }
            Err(error) => cluster.fault(namespace, "written", error)?,
        }
    }
    cluster.clear(&kept).await?;
    Ok(cluster.published)
}

/// Whether the API server has both kinds.
async fn is_served(client: &Client, form: ReportForm) -> Result<(), PublishError> {
    let served = match client.list_api_group_resources(&form.api_version()).await {
        Ok(served) => served.resources.into_iter().map(|resource| resource.name).collect(),
        Err(error) if has_code(&error, 404) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    for ReportKind { plural, .. } in [form.of_namespaces(), form.of_cluster()] {
        if !served.iter().any(|name| name == plural) {
            let definition = format!("{plural}.{}", form.group());
            return Err(PublishError::Missing { definition, version: form.version(), home: form.home() });
        }
    }
    Ok(())
}

/// Whether nothing can be made in a namespace, because it is not there or is being deleted.
fn is_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 404 || causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// The name of a report, and the label that says whose it is.
fn identity(report: &Value) -> Option<(String, (String, String))> {
    let metadata = &report["metadata"];
    let (key, value) = metadata["labels"].as_object()?.iter().next()?;
    Some((metadata["name"].as_str()?.to_owned(), (key.clone(), value.as_str()?.to_owned())))
}

fn namespace(report: &Value) -> &str {
    report["metadata"]["namespace"].as_str().unwrap_or_default()
}

impl Reports<'_> {
    /// Sees to it that a report is as it should be.
    async fn keep(&mut self, namespace: &str, report: &Value) -> Result<Done, kube::Error> {
        let api = self.api(namespace);
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        for attempt in 1.. {
            let Some(found) = api.get_opt(&self.name).await? else {
                self.wait().await;
                let object = serde_json::from_value(report.clone()).map_err(kube::Error::SerdeError)?;
                match api.create(&parameters, &object).await {
                    Ok(_) => return Ok(Done::Written),
                    Err(error) if attempt < ATTEMPTS && has_code(&error, 409) => continue,
                    Err(error) if !namespace.is_empty() && is_gone(&error) => return Ok(Done::Gone),
                    Err(error) => return Err(error),
                }
            };
            let found = serde_json::to_value(&found).map_err(kube::Error::SerdeError)?;
            let (key, value) = &self.label;
            if found["metadata"]["labels"][key] != **value {
                return Ok(Done::Foreign);
            }
            let Some(changed) = changed(&found, report) else { return Ok(Done::Unchanged) };
            let object = serde_json::from_value(changed).map_err(kube::Error::SerdeError)?;
            self.wait().await;
            match api.replace(&self.name, &parameters, &object).await {
                Ok(_) => return Ok(Done::Written),
                // Somebody changed or deleted it meanwhile.
                Err(error) if attempt < ATTEMPTS && (has_code(&error, 409) || has_code(&error, 404)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Done::Unchanged)
    }

    /// Deletes our reports of all namespaces but these.
    async fn clear(&mut self, kept: &BTreeSet<String>) -> Result<(), PublishError> {
        let (key, value) = &self.label;
        let mut parameters = ListParams::default().labels(&format!("{key}={value}")).limit(PAGE);
        let mut over = Vec::new();
        let all = Api::<DynamicObject>::all_with(self.client.clone(), &self.resource(false));
        loop {
            let page = match all.list_metadata(&parameters).await {
                Ok(page) => page,
                Err(error) => return self.fault("", "listed, to find those of namespaces without findings", error),
            };
            for found in page.items {
                let metadata = found.metadata;
                let namespace = metadata.namespace.unwrap_or_default();
                if metadata.name.as_deref() == Some(&*self.name) && !kept.contains(&namespace) {
                    over.push((namespace, metadata.uid, metadata.resource_version));
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => break,
            }
        }
        for (namespace, uid, resource_version) in over {
            self.wait().await;
            let parameters = DeleteParams {
                preconditions: Some(Preconditions { uid, resource_version }),
                ..DeleteParams::default()
            };
            match self.api(&namespace).delete(&self.name, &parameters).await {
                Ok(_) => self.published.deleted += 1,
                Err(error) if has_code(&error, 404) => {}
                Err(error) => self.fault(&namespace, "deleted", error)?,
            }
        }
        Ok(())
    }

    fn api(&self, namespace: &str) -> Api<DynamicObject> {
        let resource = self.resource(namespace.is_empty());
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    fn resource(&self, of_cluster: bool) -> ApiResource {
        let ReportKind { kind, plural } = if of_cluster { self.form.of_cluster() } else { self.form.of_namespaces() };
        ApiResource {
            group: self.form.group().to_owned(),
            version: self.form.version().to_owned(),
            api_version: self.form.api_version(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
    }

    /// Waits until the next write is due.
    async fn wait(&mut self) {
        sleep_until(self.next).await;
        self.next = Instant::now() + self.pace;
    }

    /// Remembers what an API server refuses about one report. That it cannot be reached is true of all.
    fn fault(&mut self, namespace: &str, what: &str, error: kube::Error) -> Result<(), PublishError> {
        if !matches!(&error, kube::Error::Api(status) if status.code != 401) {
            return Err(error.into());
        }
        let fault = format!("{} cannot be {what}: {}", self.named(namespace), Said(&error));
        self.published.faults.push(fault);
        Ok(())
    }

    fn named(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            format!("{} {}", self.form.of_cluster().kind, self.name)
        } else {
            format!("{} {namespace}/{}", self.form.of_namespaces().kind, self.name)
        }
    }
}

/// The report that was found as it should be; `None` where it is. What others have added to its metadata stays, and so
/// does the time at which a result was first found.
fn changed(found: &Value, wanted: &Value) -> Option<Value> {
    let mut changed = wanted.clone();
    keep_times(found, &mut changed);
    let mut metadata = found["metadata"].clone();
    for key in ["labels", "annotations"] {
        let wanted = wanted["metadata"][key].as_object();
        for (name, value) in wanted.into_iter().flatten() {
            metadata[key][name] = value.clone();
        }
        // Of what is ours, and no longer wanted, nothing stays.
        if let Some(now) = metadata.get_mut(key).and_then(Value::as_object_mut) {
            now.retain(|name, _| !name.starts_with("gpufence.io/") || wanted.is_some_and(|all| all.contains_key(name)));
        }
    }
    changed["metadata"] = metadata;
    let keys = [found, &changed].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
    let differs = |key: &String| found.get(key) != changed.get(key);
    if keys.into_iter().any(differs) { Some(changed) } else { None }
}

/// Gives each result the time that the same result has already.
fn keep_times(found: &Value, wanted: &mut Value) {
    let key = |result: &Value| {
        let properties = &result["properties"];
        format!("{}{}{}{}", result["rule"], result["resources"], properties["field"], properties["pool"])
    };
    let known: HashMap<_, _> = found["results"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|result| (key(result), result["timestamp"].clone()))
        .collect();
    for result in wanted["results"].as_array_mut().into_iter().flatten() {
        if let Some(time) = known.get(&key(result)).filter(|time| !time.is_null()) {
            result["timestamp"] = time.clone();
        }
    }
}
