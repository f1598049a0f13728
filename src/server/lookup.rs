//! A namespace whose labels a decision asked for and did not know, looked up once.
//!
//! Facts come from memory, so a namespace that was made a moment ago may not be among them. Then, and
//! only then, a review waits for something other than its caller. Whatever comes of it is the answer: an
//! error leaves the labels unknown, and is never taken for "no match".

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::policy::{Facts, LabelSelector, NodeFact};
use crate::telemetry::metrics::{Lookup, Metrics};

/// How long a lookup may take. An API server that answers at all answers in milliseconds; the rest of
/// the caller's time is for the answer without the labels.
const LONGEST: Duration = Duration::from_secs(2);

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// Why a namespace could not be looked up.
pub type LookupError = Box<dyn Error + Send + Sync>;

/// A lookup under way: the labels, or that there is no such namespace.
pub type LookingUp<'a> = Pin<Box<dyn Future<Output = Result<Option<Labels>, LookupError>> + Send + 'a>>;

/// Reads the labels of one namespace where they are kept.
///
/// An implementation keeps what it read, so that the next review finds it among its facts, and lets
/// callers who ask for the same namespace at the same time share one request. The future is dropped when
/// the time is over.
pub trait NamespaceLookup: fmt::Debug + Send + Sync {
    /// Looks the namespace up.
    fn look_up<'a>(&'a self, namespace: &'a str) -> LookingUp<'a>;
}

/// Looks a namespace up until `deadline`, but not for long; `None` where its labels stay unknown.
pub(super) async fn until<'a>(
    deadline: Instant,
    lookup: &dyn NamespaceLookup,
    namespace: &'a str,
    facts: &'a dyn Facts,
    metrics: &Metrics,
) -> Option<LookedUp<'a>> {
    if !may_exist(namespace) {
        metrics.namespace_looked_up(Lookup::Missing);
        return Some(LookedUp { namespace, labels: None, facts });
    }
    let now = Instant::now();
    let deadline = deadline.min(now + LONGEST);
    let (outcome, labels) = match timeout_at(deadline, lookup.look_up(namespace)).await {
        Ok(Ok(Some(labels))) => (Lookup::Found, Some(Some(labels))),
        Ok(Ok(None)) => (Lookup::Missing, Some(None)),
        Ok(Err(error)) => {
            tracing::warn!(namespace, error = chain(&*error), "the labels of a namespace cannot be read");
            (Lookup::Error, None)
        }
        Err(_) => {
            let seconds = now.elapsed().as_secs_f64();
            tracing::warn!(namespace, seconds, "the labels of a namespace were not read in time");
            (Lookup::Timeout, None)
        }
    };
    metrics.namespace_looked_up(outcome);
    labels.map(|labels| LookedUp { namespace, labels, facts })
}

/// Whether there can be a namespace of this name. Anyone who reaches the port can send a review, and
/// what they write there becomes a path at the API server.
fn may_exist(namespace: &str) -> bool {
    let bytes = namespace.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
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

/// The facts, and what is known of one namespace beside them.
#[derive(Debug)]
pub(super) struct LookedUp<'a> {
    namespace: &'a str,
    /// `None` for a namespace that does not exist: it meets no selector, not even one that asks for the
    /// absence of a label.
    labels: Option<Labels>,
    facts: &'a dyn Facts,
}

impl Facts for LookedUp<'_> {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        if namespace == self.namespace {
            return Some(self.labels.as_ref().is_some_and(|labels| selector.matches(labels)));
        }
        self.facts.namespace_meets(namespace, selector)
    }

    fn node(&self, name: &str) -> NodeFact {
        self.facts.node(name)
    }

    fn now(&self) -> i64 {
        self.facts.now()
    }
}
