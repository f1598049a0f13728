//! Which namespaces may use a pool: by name, by glob, or by the namespace's labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use globset::{GlobSet, GlobSetBuilder};

use super::facts::Facts;

/// Names and globs, compiled. A name matches whole: `ml-team` is not `ml-team-sandbox`.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// As written, in the order of the contract.
    written: Vec<String>,
    names: BTreeSet<String>,
    globs: GlobSet,
}

impl Patterns {
    /// Compiles names and globs.
    ///
    /// # Errors
    /// Where a glob cannot be read.
    pub fn new(written: Vec<String>) -> Result<Self, globset::Error> {
        let mut names = BTreeSet::new();
        let mut globs = GlobSetBuilder::new();
        for pattern in &written {
            if is_glob(pattern) {
                globs.add(globset::Glob::new(pattern)?);
            } else {
                names.insert(pattern.clone());
            }
        }
        Ok(Self { written, names, globs: globs.build()? })
    }

    /// Whether a name or a glob matches the whole of the text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.names.contains(text) || (!self.globs.is_empty() && self.globs.is_match(text))
    }

    /// The patterns as written.
    #[must_use]
    pub fn written(&self) -> &[String] {
        &self.written
    }
}

/// Whether a pattern is more than a name.
#[must_use]
pub fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', ']', '{', '}', '\\', '!'])
}

/// The first few patterns and how many more there are, for messages.
impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        f.write_str(&self.written.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", "))?;
        match self.written.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A label selector with Kubernetes' semantics: all labels and all expressions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Labels with their exact values.
    pub match_labels: BTreeMap<String, String>,
    /// Expressions on labels.
    pub match_expressions: Vec<LabelRequirement>,
}

/// An expression on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// The operator with its operands.
    pub operator: LabelOperator,
}

/// The operators of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelOperator {
    /// The label has one of the values.
    In(Vec<String>),
    /// The label is absent or has none of the values.
    NotIn(Vec<String>),
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// The labels that it reads.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let expressions = self.match_expressions.iter().map(|requirement| &requirement.key);
        self.match_labels.keys().chain(expressions).map(String::as_str)
    }

    /// Whether the labels meet the selector.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            LabelOperator::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelOperator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// As `kubectl get --selector` takes it.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().map(|LabelRequirement { key, operator }| match operator {
            LabelOperator::In(values) => format!("{key} in ({})", values.join(", ")),
            LabelOperator::NotIn(values) => format!("{key} notin ({})", values.join(", ")),
            LabelOperator::Exists => key.clone(),
            LabelOperator::DoesNotExist => format!("!{key}"),
        });
        f.write_str(&labels.chain(expressions).collect::<Vec<_>>().join(","))
    }
}

/// Which namespaces may use a pool.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    /// By name or glob.
    pub names: Patterns,
    /// By the namespace's own labels.
    pub selector: Option<LabelSelector>,
}

/// Whether a namespace is in an allowlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// It is.
    Allowed,
    /// It is not.
    Outside,
    /// No name matches, and the labels that would decide are not known. Counts as outside: a lookup
    /// that failed must never open the fence.
    Unknown,
}

impl Allowlist {
    /// Whether the namespace may use the pool.
    #[must_use]
    pub fn membership(&self, namespace: &str, facts: &dyn Facts) -> Membership {
        match named(&self.names, self.selector.as_ref(), namespace, facts) {
            Some(true) => Membership::Allowed,
            Some(false) => Membership::Outside,
            None => Membership::Unknown,
        }
    }
}

/// Whether a name, a glob or the labels of the namespace match; `None` where no name does, and the
/// labels that would decide are not known.
pub(super) fn named(
    names: &Patterns,
    selector: Option<&LabelSelector>,
    namespace: &str,
    facts: &dyn Facts,
) -> Option<bool> {
    if names.matches(namespace) {
        return Some(true);
    }
    selector.map_or(Some(false), |selector| facts.namespace_meets(namespace, selector))
}

/// As in a message: `ml-team, research-*, or labels gpu=true`.
impl fmt::Display for Allowlist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.names.written().is_empty(), &self.selector) {
            (true, None) => f.write_str("none"),
            (false, None) => self.names.fmt(f),
            (true, Some(selector)) => write!(f, "labels {selector}"),
            (false, Some(selector)) => write!(f, "{}, or labels {selector}", self.names),
        }
    }
}
