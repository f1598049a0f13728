//! Taints, tolerations, and when one tolerates the other.
//!
//! Matching follows `ToleratesTaint` in `k8s.io/api/core/v1/toleration.go` to the letter. Whether the
//! cluster has the comparison operators switched on (feature gate
//! `TaintTolerationComparisonOperators`) cannot be seen from here, so the policy takes them as on:
//! a toleration that passes a taint only there must not be a way in.

use std::borrow::Cow;
use std::fmt;

use super::json::{Excerpt, Text, object};

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The scheduler places no such pod on the node.
    NoSchedule,
    /// The scheduler avoids the node; no isolation.
    PreferNoSchedule,
    /// As `NoSchedule`, and running pods are evicted.
    NoExecute,
}

impl Effect {
    /// Every effect, in the order of Kubernetes' documentation.
    pub const ALL: [Self; 3] = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];

    /// The API's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// Whether the effect keeps pods off a node, rather than asking them to stay off.
    #[must_use]
    pub fn is_hard(self) -> bool {
        self != Self::PreferNoSchedule
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

object! {
    /// A taint as a node carries it. Nothing is checked.
    #[derive(PartialEq, Eq)]
    pub struct NodeTaint<'a> as "a taint" {
        /// The key.
        pub key: Text<'a> = "key",
        /// The value, often empty.
        pub value: Text<'a> = "value",
        /// The effect.
        pub effect: Text<'a> = "effect",
    }
}

/// A taint of a pool's nodes. Displays as kubectl writes it: `dedicated=gpu:NoSchedule`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// The key, never empty.
    pub key: String,
    /// The value, often empty.
    pub value: String,
    /// The effect.
    pub effect: Effect,
}

impl Taint {
    /// The taint as a node carries it.
    #[must_use]
    pub fn on_node(&self) -> NodeTaint<'_> {
        NodeTaint {
            key: self.key.as_str().into(),
            value: self.value.as_str().into(),
            effect: self.effect.as_str().into(),
        }
    }

    /// The exact toleration for this taint as the JSON that is injected.
    #[must_use]
    pub fn exact_toleration(&self) -> serde_json::Value {
        serde_json::json!({
            "key": self.key,
            "operator": "Equal",
            "value": self.value,
            "effect": self.effect.as_str(),
        })
    }

    /// The exact toleration as a person writes it in YAML.
    pub(crate) fn exact_toleration_text(&self) -> String {
        let (key, value) = (yaml_word(&self.key), yaml_word(&self.value));
        format!("{{key: {key}, operator: Equal, value: {value}, effect: {}}}", self.effect)
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if !self.value.is_empty() {
            write!(f, "={}", self.value)?;
        }
        write!(f, ":{}", self.effect)
    }
}

object! {
    /// A toleration as a pod carries it. Nothing is checked: unknown operators and effects match nothing.
    #[derive(PartialEq, Eq, Hash)]
    pub struct Toleration<'a> as "a toleration" {
        /// Empty matches every key.
        pub key: Text<'a> = "key",
        /// Empty is `Equal`.
        pub operator: Text<'a> = "operator",
        /// Compared under `Equal`, `Gt` and `Lt`; ignored under `Exists`.
        pub value: Text<'a> = "value",
        /// Empty matches every effect.
        pub effect: Text<'a> = "effect",
        /// How long a pod stays on a node with a `NoExecute` taint, in seconds. It bounds the stay and
        /// plays no part in scheduling.
        pub toleration_seconds: Option<i64> = "tolerationSeconds",
    }
}

/// Whether `Gt` and `Lt` are operators or unknown words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonOperators {
    /// As in a cluster with the feature gate on.
    Known,
    /// As in a cluster with the feature gate off.
    Unknown,
}

impl Toleration<'_> {
    /// Whether this toleration tolerates the taint, with `Gt` and `Lt` known.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerates_on_node(&taint.on_node(), ComparisonOperators::Known)
    }

    /// Whether this toleration tolerates a taint as a node carries it.
    #[must_use]
    pub fn tolerates_on_node(&self, taint: &NodeTaint<'_>, comparison: ComparisonOperators) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        let numbers = || Some((decimal_integer(&self.value)?, decimal_integer(&taint.value)?));
        match (&*self.operator, comparison) {
            ("" | "Equal", _) => self.value == taint.value,
            ("Exists", _) => true,
            ("Gt", ComparisonOperators::Known) => numbers().is_some_and(|(own, taint)| taint > own),
            ("Lt", ComparisonOperators::Known) => numbers().is_some_and(|(own, taint)| taint < own),
            _ => false,
        }
    }

    /// Whether the operator is one that is known here, whatever it means. The API server refuses every other,
    /// so that one comes from an API server that knows more.
    #[must_use]
    pub fn has_known_operator(&self) -> bool {
        matches!(&*self.operator, "" | "Equal" | "Exists" | "Gt" | "Lt")
    }

    /// Whether key and effect are such that only the operator decides about the taint.
    pub(crate) fn concerns(&self, taint: &Taint) -> bool {
        (self.key.is_empty() || *self.key == *taint.key)
            && (self.effect.is_empty() || &*self.effect == taint.effect.as_str())
    }

    /// Whether this is the taint's exact toleration for as long as the pod lives. A missing operator
    /// is `Equal`.
    #[must_use]
    pub fn is_exact_for(&self, taint: &Taint) -> bool {
        self.names_exactly(taint) && self.toleration_seconds.is_none()
    }

    /// Whether the pod stays on a node with the taint only for a while.
    #[must_use]
    pub fn is_bounded(&self, taint: &Taint) -> bool {
        taint.effect == Effect::NoExecute && self.toleration_seconds.is_some()
    }

    /// Whether key, value and effect are the taint's own, so that nothing else is tolerated.
    #[must_use]
    pub fn names_exactly(&self, taint: &Taint) -> bool {
        matches!(&*self.operator, "" | "Equal")
            && *self.key == *taint.key
            && *self.value == *taint.value
            && &*self.effect == taint.effect.as_str()
    }
}

/// As a person writes it: `{key: dedicated, operator: Exists}`, what is not set left out.
impl fmt::Display for Toleration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields =
            [("key", &self.key), ("operator", &self.operator), ("value", &self.value), ("effect", &self.effect)];
        f.write_str("{")?;
        let mut separator = "";
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            write!(f, "{separator}{name}: {}", Excerpt(value))?;
            separator = ", ";
        }
        f.write_str("}")
    }
}

/// A string as YAML takes it for one, with quotes where it would read as something else: a taint's value is often
/// `true`.
pub(crate) fn yaml_word(text: &str) -> Cow<'_, str> {
    const OTHERS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter))
        && !OTHERS.iter().any(|other| text.eq_ignore_ascii_case(other));
    if is_plain { text.into() } else { serde_json::Value::from(text).to_string().into() }
}

/// An integer in the only spelling that `Gt` and `Lt` accept: no plus, no leading zero, no `-0`
/// (`IsDecimalInteger` in apimachinery), within an `i64`.
pub(crate) fn decimal_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = text == "0" || digits.starts_with(|first: char| ('1'..='9').contains(&first));
    if canonical { text.parse().ok() } else { None }
}
