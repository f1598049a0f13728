//! Namespaces and Nodes, as far as the fence stands on them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::json::{List, StringMap, Text, object};
use super::super::pool::Pool;
use super::super::toleration::NodeTaint;

/// A kind whose objects the fence stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum LeverKind {
    Namespace,
    Node,
}

impl LeverKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Namespace, Self::Node];

    /// The kind that a group and a name mean, whatever the version.
    #[must_use]
    pub fn of(group: &str, name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| group.is_empty() && kind.name() == name)
    }

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
        }
    }

    /// The resource's name in a path and in a rule of a webhook configuration.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Namespace => "namespaces",
            Self::Node => "nodes",
        }
    }

    /// The subresources with which labels can be changed too: the API server resets what is not theirs in spec
    /// and status, and takes metadata as it comes.
    #[must_use]
    pub fn subresources(self) -> &'static [&'static str] {
        match self {
            Self::Namespace => &["status", "finalize"],
            Self::Node => &["status"],
        }
    }

    /// Reads an object of this kind from any deserializer that lends strings.
    ///
    /// # Errors
    /// Where a field that is read is not of the type that the kind gives it.
    pub fn read_from<'a, D: serde::Deserializer<'a>>(self, json: D) -> Result<Lever<'a>, D::Error> {
        use serde::Deserialize as _;
        Ok(match self {
            Self::Namespace => {
                let NamespaceObject { kind, metadata } = NamespaceObject::deserialize(json)?;
                Lever { kind, metadata, taints: List::default() }
            }
            Self::Node => {
                let NodeObject { kind, metadata, spec } = NodeObject::deserialize(json)?;
                Lever { kind, metadata, taints: spec.taints }
            }
        })
    }

    /// The word for sentences.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Node => "node",
        }
    }
}

/// A Namespace or a Node, as far as the fence stands on it.
#[derive(Debug, Clone, Default)]
pub struct Lever<'a> {
    kind: Text<'a>,
    metadata: LeverMetadata<'a>,
    taints: List<NodeTaint<'a>>,
}

object! {
    struct NamespaceObject<'a> as "a Namespace" {
        kind: Text<'a> = "kind",
        metadata: LeverMetadata<'a> = "metadata",
    }
}

object! {
    struct NodeObject<'a> as "a Node" {
        kind: Text<'a> = "kind",
        metadata: LeverMetadata<'a> = "metadata",
        spec: LeverSpec<'a> = "spec",
    }
}

object! {
    struct LeverMetadata<'a> as "metadata" {
        name: Text<'a> = "name",
        generate_name: Text<'a> = "generateName",
        labels: StringMap<'a> = "labels",
    }
}

object! {
    struct LeverSpec<'a> as "a Node's spec" {
        taints: List<NodeTaint<'a>> = "taints",
    }
}

impl Lever<'_> {
    /// The kind that the object itself says it is; empty where it does not say.
    #[must_use]
    pub fn declared_kind(&self) -> &str {
        &self.kind
    }

    /// The object's name, or its generateName with `*` for what the API server adds.
    #[must_use]
    pub fn display_name(&self) -> String {
        let LeverMetadata { name, generate_name, .. } = &self.metadata;
        if name.is_empty() && !generate_name.is_empty() { format!("{generate_name}*") } else { name.to_string() }
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.get(key)
    }

    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        // Of a key that is there twice the last counts, here as well.
        self.metadata.labels.0.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    pub(super) fn is_labelled_for(&self, pool: &Pool) -> bool {
        pool.is_met_by(|key| self.label(key))
    }

    /// The taints of a key, in whatever order they stand.
    pub(super) fn taints(&self, key: &str) -> BTreeSet<(&str, &str)> {
        let own = self.taints.iter().filter(|taint| &*taint.key == key);
        own.map(|taint| (&*taint.value, &*taint.effect)).collect()
    }
}
