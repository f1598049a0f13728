//! Node affinity: what a pod wants of the labels and the name of its node.

use super::json::{List, Text, object};
use super::pod::PodSpec;
use super::toleration::decimal_integer;

impl PodSpec<'_> {
    /// Whether its nodeSelector and its required node affinity admit a node of this name and these labels, as the
    /// scheduler and the DaemonSet controller judge it. Taints are another question.
    #[must_use]
    pub fn selects_node<'v>(&self, name: &str, label: impl Fn(&str) -> Option<&'v str>) -> bool {
        let selects = self
            .node_selector
            .as_ref()
            .is_none_or(|selector| selector.value.0.iter().all(|(key, _)| selector.value.get(key) == label(key)));
        selects && self.required_terms().is_none_or(|terms| terms.iter().any(|term| term.admits(name, &label)))
    }
}

object! {
    /// The affinity of a pod, as far as it concerns nodes' labels.
    pub struct Affinity<'a> as "an affinity" {
        pub(super) node_affinity: Option<NodeAffinity<'a>> = "nodeAffinity",
    }
}

object! {
    pub(super) struct NodeAffinity<'a> as "a node affinity" {
        pub(super) required: Option<RequiredNodeAffinity<'a>> = "requiredDuringSchedulingIgnoredDuringExecution",
    }
}

object! {
    pub(super) struct RequiredNodeAffinity<'a> as "a node selector" {
        pub(super) node_selector_terms: List<NodeSelectorTerm<'a>, 1_000> = "nodeSelectorTerms",
    }
}

object! {
    /// One alternative of a required node affinity: all its expressions must hold.
    pub struct NodeSelectorTerm<'a> as "a node selector term" {
        /// Expressions on the node's labels; `None` where absent or null: a patch must then add the list itself.
        pub match_expressions: Option<List<NodeSelectorRequirement<'a>, 250>> = "matchExpressions",
        /// Expressions on the node's fields, of which there is one: its name.
        pub match_fields: List<NodeSelectorRequirement<'a>, 250> = "matchFields",
    }
}

impl<'a> NodeSelectorTerm<'a> {
    /// The expressions on the node's labels, none where the list is absent.
    #[must_use]
    pub fn expressions(&self) -> &[NodeSelectorRequirement<'a>] {
        self.match_expressions.as_deref().unwrap_or_default()
    }

    /// An expression that no node with these labels can ever meet, with the label's value.
    pub(super) fn excluding<'l>(&self, labels: &[(&str, &'l str)]) -> Option<(&NodeSelectorRequirement<'a>, &'l str)> {
        self.expressions().iter().find_map(|expression| {
            let (_, value) = labels.iter().find(|(key, _)| *key == &*expression.key)?;
            (!may_match(expression, value)).then_some((expression, *value))
        })
    }

    /// Whether a node meets all that the term says. A term that says nothing admits no node.
    fn admits<'v>(&self, name: &str, label: &impl Fn(&str) -> Option<&'v str>) -> bool {
        let says_nothing = self.expressions().is_empty() && self.match_fields.is_empty();
        !says_nothing
            && self.expressions().iter().all(|expression| expression.holds(label(&expression.key)))
            && self.match_fields.iter().all(|field| &*field.key == "metadata.name" && field.holds(Some(name)))
    }

    /// The node that the term names, and no other.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        let names = |field: &&NodeSelectorRequirement<'_>| &*field.key == "metadata.name" && &*field.operator == "In";
        match &*self.match_fields.iter().find(names)?.values {
            [name] => Some(name),
            _ => None,
        }
    }
}

object! {
    /// An expression on one label of a node.
    pub struct NodeSelectorRequirement<'a> as "a node selector requirement" {
        /// The label.
        pub key: Text<'a> = "key",
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        pub operator: Text<'a> = "operator",
        /// The operands.
        pub values: List<Text<'a>> = "values",
    }
}

impl NodeSelectorRequirement<'_> {
    /// Whether it holds for a label with this value, `None` where the node has no such label. As upstream judges it,
    /// which takes every integer that Go can read, and lets no node meet an operator that it does not know.
    fn holds(&self, value: Option<&str>) -> bool {
        let is_among = || value.is_some_and(|value| self.values.iter().any(|candidate| &**candidate == value));
        let numbers = || {
            let operand = self.values.first()?;
            Some((value?.parse::<i64>().ok()?, operand.parse::<i64>().ok()?))
        };
        match &*self.operator {
            "In" => is_among(),
            "NotIn" => !is_among(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => numbers().is_some_and(|(value, operand)| value > operand),
            "Lt" => numbers().is_some_and(|(value, operand)| value < operand),
            _ => false,
        }
    }
}

/// Whether an expression can hold for a label with this value. An operator that is not known counts as
/// one that can: a conflict must be certain.
fn may_match(expression: &NodeSelectorRequirement<'_>, value: &str) -> bool {
    let operand = || decimal_integer(expression.values.first()?);
    match &*expression.operator {
        "In" => expression.values.iter().any(|candidate| &**candidate == value),
        "NotIn" => !expression.values.iter().any(|candidate| &**candidate == value),
        "DoesNotExist" => false,
        "Gt" => decimal_integer(value).zip(operand()).is_some_and(|(value, operand)| value > operand),
        "Lt" => decimal_integer(value).zip(operand()).is_some_and(|(value, operand)| value < operand),
        _ => true,
    }
}
