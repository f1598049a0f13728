//! The labels of all namespaces.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use kube::Client;
use serde::Deserialize;

use super::follow::{Followed, Kind};
use crate::policy::LabelSelector;
use crate::telemetry::metrics::Metrics;

/// The labels of one namespace.
type Labels = BTreeMap<String, String>;

/// The labels of the namespaces that are known. Reading takes no lock and waits for nothing.
#[derive(Debug, Default)]
pub struct Namespaces(Followed<LabelsAlone>);

#[derive(Debug, Default)]
struct LabelsAlone;

/// Nothing is read of a namespace but its metadata.
#[derive(Debug, Clone, Default, Deserialize)]
struct Nothing {}

impl Kind for LabelsAlone {
    type Spec = Nothing;
    type Kept = Labels;

    const RESOURCE: &'static str = "namespaces";
    const WHAT: &'static str = "labels";
    const PAGE: u32 = 500;
    const IS_METADATA_ONLY: bool = true;

    fn keep(&self, labels: Labels, Nothing {}: Nothing) -> Labels {
        labels
    }

    fn current(metrics: &Metrics, at: i64) {
        metrics.namespace_labels_current(at);
    }
}

impl Namespaces {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the labels of a namespace meet the selector; `None` where its labels are not known.
    #[must_use]
    pub fn meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.0.with(namespace, |labels| selector.matches(labels))
    }

    /// Asks for one namespace that the watch has not brought (yet). `None`: there is no such namespace.
    ///
    /// # Errors
    /// Where the API server does not say: the namespace stays unknown.
    pub async fn look_up(&self, client: &Client, namespace: &str) -> Result<Option<Arc<Labels>>, kube::Error> {
        self.0.look_up(client, namespace).await
    }

    /// Keeps the labels as they are in the cluster, for ever. Tells once when they have all been read.
    pub async fn follow(&self, client: Client, known: impl FnOnce() + Send, metrics: Arc<Metrics>) -> Infallible {
        self.0.follow(client, known, metrics).await
    }
}
