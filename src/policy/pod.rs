//! The narrow view of a pod: what rules read, borrowed from the request's JSON. All else is skipped
//! without being kept, so unknown fields survive and cost nothing but their scanning.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::text::{Excerpt, ExtendedResources, RawMap, StringMap, Text, Verbatim, nullable};
use super::toleration::Toleration;

/// The annotation by which a kubelet marks the mirror of a static pod. Anyone may write it.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// A pod, or the pod template of a workload: both are metadata and a pod spec.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Pod<'a> {
    /// The kind that the object says it is; empty in a template.
    #[serde(borrow, default)]
    pub kind: Text<'a>,
    /// The metadata that rules read.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub metadata: Metadata<'a>,
    /// The spec.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub spec: PodSpec<'a>,
}

/// The metadata that rules read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// Empty while the API server has not made a name from `generate_name`.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    /// The prefix of a name that the API server makes.
    #[serde(borrow, default)]
    pub generate_name: Text<'a>,
    /// Often absent in a request; the request's own namespace counts.
    #[serde(borrow, default)]
    pub namespace: Text<'a>,
    /// Annotations, their values unread.
    #[serde(borrow, default)]
    pub annotations: RawMap<'a>,
    /// The owner that controls the object. A claim, not a proof.
    #[serde(borrow, default, rename = "ownerReferences")]
    pub controller: Controller<'a>,
}

/// The part of a pod spec that decides where the pod may run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec<'a> {
    /// `None` where absent or null: a patch must then add the list itself.
    #[serde(borrow, default)]
    pub tolerations: Option<Verbatim<'a, Vec<Toleration<'a>>>>,
    /// `None` where absent or null: a patch must then add the map itself.
    #[serde(borrow, default)]
    pub node_selector: Option<Verbatim<'a, StringMap<'a>>>,
    /// Node affinity; the rest of the affinity is unread.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub affinity: Affinity<'a>,
    /// Set before scheduling only by who bypasses the scheduler, and by kubelets for mirror pods.
    #[serde(borrow, default)]
    pub node_name: Text<'a>,
    /// Containers that name extended resources.
    #[serde(borrow, default)]
    pub containers: Containers<'a>,
    /// Init containers and sidecars that name extended resources.
    #[serde(borrow, default)]
    pub init_containers: Containers<'a>,
}

impl<'a> PodSpec<'a> {
    /// The tolerations, none where the list is absent.
    #[must_use]
    pub fn tolerations(&self) -> &[Toleration<'a>] {
        self.tolerations.as_ref().map(|list| &*list.value).unwrap_or_default()
    }

    /// The value that the nodeSelector wants for a label.
    #[must_use]
    pub fn selects(&self, label: &str) -> Option<&str> {
        self.node_selector.as_ref()?.value.get(label)
    }

    /// Every mention of an extended resource in the requests and limits of every container.
    ///
    /// Ephemeral containers may not have resources, and pod-level resources may not name extended
    /// ones; the API server refuses both.
    pub fn extended_resources(&self) -> impl Iterator<Item = ResourceMention<'_>> {
        let lists = [("containers", &self.containers), ("initContainers", &self.init_containers)];
        lists.into_iter().flat_map(|(list, containers)| {
            containers.0.iter().flat_map(move |(index, resources)| {
                let kinds = [("requests", &resources.requests), ("limits", &resources.limits)];
                kinds.into_iter().flat_map(move |(kind, quantities)| {
                    quantities.0.iter().map(move |(name, quantity)| ResourceMention {
                        list,
                        index: *index,
                        kind,
                        name,
                        quantity,
                    })
                })
            })
        })
    }
}

/// One entry of a container's requests or limits.
#[derive(Debug, Clone, Copy)]
pub struct ResourceMention<'a> {
    list: &'static str,
    index: usize,
    kind: &'static str,
    /// The resource's name.
    pub name: &'a str,
    /// The quantity's JSON.
    pub quantity: &'a RawValue,
}

/// The path below the pod: `spec.initContainers[0].resources.limits["nvidia.com/gpu"]`.
impl fmt::Display for ResourceMention<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, index, kind, name, .. } = *self;
        write!(f, "spec.{list}[{index}].resources.{kind}[\"{}\"]", Excerpt(name))
    }
}

/// The containers that name extended resources, each with its place in the list.
#[derive(Debug, Clone, Default)]
pub struct Containers<'a>(Vec<(usize, Resources<'a>)>);

#[derive(Debug, Clone, Default, Deserialize)]
struct Container<'a> {
    #[serde(borrow, default, deserialize_with = "nullable")]
    resources: Resources<'a>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Resources<'a> {
    #[serde(borrow, default)]
    requests: ExtendedResources<'a>,
    #[serde(borrow, default)]
    limits: ExtendedResources<'a>,
}

/// The owner reference with `controller: true`, of which an object has at most one.
#[derive(Debug, Clone, Default)]
pub struct Controller<'a>(pub Option<OwnerReference<'a>>);

/// An owner reference.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    /// Group and version of the owner.
    #[serde(borrow, default)]
    pub api_version: Text<'a>,
    /// Kind of the owner.
    #[serde(borrow, default)]
    pub kind: Text<'a>,
    /// Name of the owner, in the object's own namespace.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    #[serde(default)]
    controller: Option<bool>,
}

impl OwnerReference<'_> {
    /// Whether the owner is a DaemonSet of Kubernetes' own.
    #[must_use]
    pub fn is_daemon_set(&self) -> bool {
        &*self.kind == "DaemonSet" && self.api_version.split_once('/').is_some_and(|(group, _)| group == "apps")
    }
}

/// The affinity of a pod, as far as it concerns nodes' labels.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Affinity<'a> {
    #[serde(borrow, default, deserialize_with = "nullable")]
    node_affinity: NodeAffinity<'a>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeAffinity<'a> {
    #[serde(borrow, default, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<RequiredNodeAffinity<'a>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequiredNodeAffinity<'a> {
    #[serde(borrow, default, deserialize_with = "nullable")]
    node_selector_terms: Vec<NodeSelectorTerm<'a>>,
}

impl<'a> Affinity<'a> {
    /// The required node selector terms, of which a node must meet one; `None` where nothing is
    /// required.
    #[must_use]
    pub fn required_terms(&self) -> Option<&[NodeSelectorTerm<'a>]> {
        self.node_affinity.required.as_ref().map(|required| &*required.node_selector_terms)
    }
}

/// One alternative of a required node affinity: all its expressions must hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm<'a> {
    /// Expressions on the node's labels.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub match_expressions: Vec<NodeSelectorRequirement<'a>>,
}

/// An expression on one label of a node.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NodeSelectorRequirement<'a> {
    /// The label.
    #[serde(borrow, default)]
    pub key: Text<'a>,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    #[serde(borrow, default)]
    pub operator: Text<'a>,
    /// The operands.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub values: Vec<Text<'a>>,
}

macro_rules! from_seq {
    ($name:ident, $expecting:literal, |$seq:ident| $collect:block) => {
        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ListVisitor;

                impl<'de> Visitor<'de> for ListVisitor {
                    type Value = $name<'de>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_unit<E>(self) -> Result<Self::Value, E> {
                        Ok($name::default())
                    }

                    fn visit_seq<A: SeqAccess<'de>>(self, mut $seq: A) -> Result<Self::Value, A::Error> {
                        $collect
                    }
                }

                deserializer.deserialize_any(ListVisitor)
            }
        }
    };
}

from_seq!(Containers, "a list of containers", |seq| {
    let mut named = Vec::new();
    let mut index = 0;
    while let Some(Container { resources }) = seq.next_element()? {
        if !(resources.requests.0.is_empty() && resources.limits.0.is_empty()) {
            named.push((index, resources));
        }
        index += 1;
    }
    Ok(Containers(named))
});
from_seq!(Controller, "a list of owner references", |seq| {
    let mut controller = None;
    while let Some(owner) = seq.next_element::<OwnerReference<'de>>()? {
        if owner.controller == Some(true) && controller.is_none() {
            controller = Some(owner);
        }
    }
    Ok(Controller(controller))
});
