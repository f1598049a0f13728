//! Node affinity: what a pod wants of the labels and the name of its node.

use super::json::{List, Text, object};
use super::pod::PodSpec;

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

/// Whether an expression can hold for a label with this value. An operator that is not known counts as
/// one that can: a conflict must be certain.
fn may_match(expression: &NodeSelectorRequirement<'_>, value: &str) -> bool {
    // As Go reads an integer: a sign and leading zeros are allowed.
    let numbers = || Some((value.parse::<i64>().ok()?, expression.values.first()?.parse::<i64>().ok()?));
    match &*expression.operator {
        "In" => expression.values.iter().any(|candidate| &**candidate == value),
        "NotIn" => !expression.values.iter().any(|candidate| &**candidate == value),
        "DoesNotExist" => false,
        "Gt" => numbers().is_some_and(|(value, operand)| value > operand),
        "Lt" => numbers().is_some_and(|(value, operand)| value < operand),
        _ => true,
    }
}

impl PodSpec<'_> {
    /// Whether the nodeSelector and the required node affinity admit a node, as `GetRequiredNodeAffinity` in
    /// `k8s.io/component-helpers` decides it: terms are alternatives, an empty one matches nothing, and neither does
    /// one with an expression that cannot be read. `label` gives the value of a label of the node.
    #[must_use]
    pub fn selects_node<'v>(&self, name: &str, label: impl Fn(&str) -> Option<&'v str>) -> bool {
        let selector = self.node_selector.iter().flat_map(|selector| &selector.value.0);
        if !selector.into_iter().all(|(key, value)| label(key) == Some(&**value)) {
            return false;
        }
        self.required_terms().is_none_or(|terms| terms.iter().any(|term| term.admits(name, &label)))
    }
}

impl NodeSelectorTerm<'_> {
    fn admits<'v>(&self, name: &str, label: impl Fn(&str) -> Option<&'v str>) -> bool {
        let is_empty = self.expressions().is_empty() && self.match_fields.is_empty();
        !is_empty
            && self.expressions().iter().all(|expression| expression.admits(label(&expression.key)))
            && self.match_fields.iter().all(|field| field.admits_field(name))
    }
}

impl NodeSelectorRequirement<'_> {
    /// Whether a node admits it whose label has this value, or that lacks the label.
    fn admits(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|candidate| &**candidate == value);
        // As Go reads an integer: a sign and leading zeros are allowed.
        let numbers = || match &*self.values {
            [operand] => Some((value?.parse::<i64>().ok()?, operand.parse::<i64>().ok()?)),
            _ => None,
        };
        match &*self.operator {
            "In" => value.is_some_and(is_listed),
            "NotIn" => !self.values.is_empty() && !value.is_some_and(is_listed),
            "Exists" => self.values.is_empty() && value.is_some(),
            "DoesNotExist" => self.values.is_empty() && value.is_none(),
            "Gt" => numbers().is_some_and(|(value, operand)| value > operand),
            "Lt" => numbers().is_some_and(|(value, operand)| value < operand),
            _ => false,
        }
    }

    /// The same of a field. There is one field, the name, and one value to compare it with.
    fn admits_field(&self, name: &str) -> bool {
        let own = if &*self.key == "metadata.name" { name } else { "" };
        match (&*self.operator, &*self.values) {
            ("In", [value]) => &**value == own,
            ("NotIn", [value]) => &**value != own,
            _ => false,
        }
    }
}
