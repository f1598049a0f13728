//! What a decision asked of the cluster and was not known, looked up once: the labels of a namespace, a node.
//!
//! Facts come from memory, so what was made a moment ago may not be among them. Then, and only then, a
//! review waits for something other than its caller. Whatever comes of it is the answer: an error leaves
//! things unknown, and is never taken for "no match" or for "there is none".

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::policy::{Facts, LabelSelector, Node, NodeFact};
use crate::telemetry::metrics::{Lookup, Metrics};

/// How long lookups may take. An API server that answers at all answers in milliseconds; the rest of
/// the caller's time is for the answer without them.
const LONGEST: Duration = Duration::from_secs(2);

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// Why something could not be looked up.
pub type LookupError = Box<dyn Error + Send + Sync>;

/// A lookup under way: what was found, or that there is none of the name.
pub type LookingUp<'a, T> = Pin<Box<dyn Future<Output = Result<Option<T>, LookupError>> + Send + 'a>>;

/// Reads one object of the cluster where it is kept.
///
/// An implementation keeps what it read, so that the next review finds it among its facts, and lets
/// callers who ask for the same at the same time share one request. The future is dropped when the time is
/// over.
pub trait ClusterLookup: fmt::Debug + Send + Sync {
    /// Looks up the labels of a namespace.
    fn look_up_namespace<'a>(&'a self, namespace: &'a str) -> LookingUp<'a, Labels>;

    /// Looks up a node.
    fn look_up_node<'a>(&'a self, name: &'a str) -> LookingUp<'a, Arc<Node>>;
}

/// What a review would have to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) node: Option<&'a str>,
}

/// Looks up what is wanted until `deadline`, but not for long; `None` where all of it stays unknown.
pub(super) async fn until<'a>(
    deadline: Instant,
    lookup: &dyn ClusterLookup,
    wanted: Wanted<'a>,
    facts: &'a dyn Facts,
    metrics: &Metrics,
) -> Option<LookedUp<'a>> {
    let began = Instant::now();
    let time = Time { began, deadline: deadline.min(began + LONGEST) };
    let namespace = async {
        let name = wanted.namespace?;
        let labels = time.find(What::Namespace, name, || lookup.look_up_namespace(name), metrics).await?;
        Some((name, labels))
    };
    let node = async {
        let name = wanted.node?;
        let node = time.find(What::Node, name, || lookup.look_up_node(name), metrics).await?;
        Some((name, node.map_or(NodeFact::Absent, NodeFact::Known)))
    };
    let (namespace, node) = tokio::join!(namespace, node);
    (namespace.is_some() || node.is_some()).then_some(LookedUp { namespace, node, facts })
}

/// The time in which lookups have to end.
#[derive(Debug, Clone, Copy)]
struct Time {
    began: Instant,
    deadline: Instant,
}

impl Time {
    /// What is found, or that there is none of the name. `None` where it stays unknown, which is logged.
    async fn find<'a, T>(
        self,
        what: What,
        name: &'a str,
        look_up: impl FnOnce() -> LookingUp<'a, T>,
        metrics: &Metrics,
    ) -> Option<Option<T>> {
        if !what.may_be_named(name) {
            what.count(metrics, Lookup::Missing);
            return Some(None);
        }
        let (outcome, found) = match timeout_at(self.deadline, look_up()).await {
            Ok(Ok(Some(found))) => (Lookup::Found, Some(Some(found))),
            Ok(Ok(None)) => (Lookup::Missing, Some(None)),
            Ok(Err(error)) => {
                what.failed(name, &chain(&*error));
                (Lookup::Error, None)
            }
            Err(_) => {
                what.late(name, self.began.elapsed());
                (Lookup::Timeout, None)
            }
        };
        what.count(metrics, outcome);
        found
    }
}

/// The kind of what is looked up.
#[derive(Debug, Clone, Copy)]
enum What {
    Namespace,
    Node,
}

impl What {
    /// Whether there can be an object of this name. Anyone who reaches the port can send a review, and
    /// what they write there becomes a path at the API server.
    fn may_be_named(self, name: &str) -> bool {
        match self {
            Self::Namespace => name.len() <= 63 && is_label(name),
            Self::Node => name.len() <= 253 && name.split('.').all(is_label),
        }
    }

    fn count(self, metrics: &Metrics, outcome: Lookup) {
        match self {
            Self::Namespace => metrics.namespace_looked_up(outcome),
            Self::Node => metrics.node_looked_up(outcome),
        }
    }

    fn failed(self, name: &str, error: &str) {
        match self {
            Self::Namespace => {
                tracing::warn!(namespace = name, error, "the labels of a namespace cannot be read");
            }
            Self::Node => tracing::warn!(node = name, error, "a node cannot be read"),
        }
    }

    fn late(self, name: &str, after: Duration) {
        let seconds = after.as_secs_f64();
        match self {
            Self::Namespace => {
                tracing::warn!(namespace = name, seconds, "the labels of a namespace were not read in time");
            }
            Self::Node => tracing::warn!(node = name, seconds, "a node was not read in time"),
        }
    }
}

/// Whether the text is made as the parts of names are.
fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The facts, and what was found beside them.
#[derive(Debug)]
pub(super) struct LookedUp<'a> {
    /// The labels of a namespace, `None` where it does not exist: it meets no selector, not even one that asks
    /// for the absence of a label.
    namespace: Option<(&'a str, Option<Labels>)>,
    node: Option<(&'a str, NodeFact)>,
    facts: &'a dyn Facts,
}

impl Facts for LookedUp<'_> {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        match &self.namespace {
            Some((name, labels)) if *name == namespace => {
                Some(labels.as_ref().is_some_and(|labels| selector.matches(labels)))
            }
            _ => self.facts.namespace_meets(namespace, selector),
        }
    }

    fn node(&self, name: &str) -> NodeFact {
        match &self.node {
            Some((found, fact)) if *found == name => fact.clone(),
            _ => self.facts.node(name),
        }
    }

    fn now(&self) -> i64 {
        self.facts.now()
    }
}
