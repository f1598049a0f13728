//! The labels and taints of all nodes.
//!
//! There are thousands, with dozens of labels each, and most have the same: each text is kept once.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use kube::Client;
use serde::Deserialize;

use super::follow::{Followed, Kind};
use crate::policy::{Node, NodeFact};
use crate::telemetry::metrics::Metrics;

/// The nodes that are known. Reading takes no lock and waits for nothing.
#[derive(Debug, Default)]
pub struct Nodes(Followed<LabelsAndTaints>);

#[derive(Debug, Default)]
struct LabelsAndTaints {
    texts: Mutex<Texts>,
}

/// What is read of a node's spec.
#[derive(Debug, Clone, Default, Deserialize)]
struct NodeSpec {
    taints: Option<Vec<NodeTaint>>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeTaint {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    effect: String,
}

impl Kind for LabelsAndTaints {
    type Spec = NodeSpec;
    type Kept = Node;

    const RESOURCE: &'static str = "nodes";
    const WHAT: &'static str = "labels and taints";
    // The API server sends each whole, with the images that it has.
    const PAGE: u32 = 100;
    const IS_METADATA_ONLY: bool = false;

    fn keep(&self, labels: BTreeMap<String, String>, spec: NodeSpec) -> Node {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let labels: Vec<_> = labels.into_iter().map(|(key, value)| (texts.share(key), texts.share(value))).collect();
        let taints = spec.taints.unwrap_or_default().into_iter();
        let taints: Vec<_> = taints
            .map(|taint| [taint.key, taint.value.unwrap_or_default(), taint.effect].map(|text| texts.share(text)))
            .collect();
        Node::new(labels, taints)
    }

    fn current(metrics: &Metrics, at: i64) {
        metrics.nodes_current(at);
    }
}

impl Nodes {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is known of a node. Of one that has not been seen it is not known that there is none: the watch may
    /// be late.
    #[must_use]
    pub fn get(&self, name: &str) -> NodeFact {
        self.0.get(name).map_or(NodeFact::Unknown, NodeFact::Known)
    }

    /// Asks for one node that the watch has not brought (yet). `None`: there is no such node.
    ///
    /// # Errors
    /// Where the API server does not say: the node stays unknown.
    pub async fn look_up(&self, client: &Client, name: &str) -> Result<Option<Arc<Node>>, kube::Error> {
        self.0.look_up(client, name).await
    }

    /// Keeps the nodes as they are in the cluster, for ever. Tells once when they have all been read.
    pub async fn follow(&self, client: Client, known: impl FnOnce() + Send, metrics: Arc<Metrics>) -> Infallible {
        self.0.follow(client, known, metrics).await
    }
}

/// How many texts there are at least before those are looked for that nobody has any more.
const FEW: usize = 1_024;

/// Every text once. Nodes come and go, and so do texts that only they had.
#[derive(Debug)]
struct Texts {
    all: HashSet<Arc<str>>,
    /// At how many texts the next look is for those that nobody has: so rarely that it costs next to nothing.
    next_look: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Self { all: HashSet::new(), next_look: FEW }
    }
}

impl Texts {
    fn share(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.all.get(text.as_str()) {
            return Arc::clone(known);
        }
        if self.all.len() >= self.next_look {
            self.all.retain(|text| Arc::strong_count(text) > 1);
            self.next_look = FEW.max(2 * self.all.len());
        }
        let text: Arc<str> = text.into();
        self.all.insert(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests;
