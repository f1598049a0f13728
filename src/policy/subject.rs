//! What is judged: one request, as far as a decision depends on it.

use std::fmt;

use super::json::Text;
use super::workload::Workload;

/// Which half of admission asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The pod may still be completed: injection is decided, rules are silent.
    Mutating,
    /// The pod is final: rules speak.
    Validating,
}

/// What the request does. Deletions and connections are never judged.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// The object is new.
    Create,
    /// The object replaces this one.
    Update(&'a Workload<'a>),
}

/// Who asks, as the API server authenticated them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Requester<'a> {
    /// The user name.
    pub username: &'a str,
    /// The groups.
    pub groups: &'a [Text<'a>],
}

impl Requester<'_> {
    /// Whether the request is the kubelet's of this node, by the same two marks as the API server's
    /// node authorizer: the user name and the group.
    #[must_use]
    pub fn is_node(&self, node_name: &str) -> bool {
        !node_name.is_empty()
            && self.username.strip_prefix("system:node:") == Some(node_name)
            && self.is_in("system:nodes")
    }

    /// Whether the requester is in a group.
    #[must_use]
    pub fn is_in(&self, wanted: &str) -> bool {
        self.groups.iter().any(|group| &**group == wanted)
    }
}

/// One request, as far as a decision depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Which half of admission asks.
    pub phase: Phase,
    /// What the request does.
    pub operation: Operation<'a>,
    /// The request's namespace, which counts even where the object names another or none.
    pub namespace: &'a str,
    /// Who asks.
    pub requester: Requester<'a>,
    /// The object as it would be stored.
    pub object: &'a Workload<'a>,
}

/// A field of the object: the path of the pod in it, and the path in the pod.
pub(crate) struct Field<'a, P>(pub(crate) &'a Workload<'a>, pub(crate) P);

impl<P: fmt::Display> fmt::Display for Field<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(object, path) = self;
        let Some(part) = &object.part else {
            return write!(f, "{}{path}", object.kind.pod_path());
        };
        let Some(annotations) = part.annotations else {
            return write!(f, "{}.{path}", part.place);
        };
        // What is like a pod's spec holds the spec's fields itself, and annotations where it has them.
        let path = path.to_string();
        match (path.strip_prefix("spec"), path.strip_prefix("metadata.annotations")) {
            (Some(path), _) => write!(f, "{}{path}", part.place),
            (_, Some(path)) => write!(f, "{}.{annotations}{path}", part.place),
            _ => write!(f, "{}.{path}", part.place),
        }
    }
}
