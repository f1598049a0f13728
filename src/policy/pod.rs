//! The narrow view of a pod: what rules read, borrowed from the request's JSON. All else is skipped
//! without being kept, so unknown fields survive and cost nothing but their scanning.

use std::fmt;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::affinity::{Affinity, NodeSelectorTerm};
use super::json::{
    Excerpt, ExtendedResources, List, MOST, RawMap, StringMap, Text, Unread, Verbatim, object, within_bounds,
};
use super::quantity::{NotAQuantity, Quantity};
use super::toleration::Toleration;

/// The annotation by which a kubelet marks the mirror of a static pod. Anyone may write it.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

object! {
    /// A pod, or the pod template of a workload: both are metadata and a pod spec.
    pub struct Pod<'a> as "a pod" {
        /// The kind that the object says it is; empty in a template.
        pub kind: Text<'a> = "kind",
        /// The metadata that rules read.
        pub metadata: Metadata<'a> = "metadata",
        /// The spec.
        pub spec: PodSpec<'a> = "spec",
    }
}

object! {
    /// The metadata that rules read.
    pub struct Metadata<'a> as "an object's metadata" {
        /// Empty while the API server has not made a name from `generate_name`.
        pub name: Text<'a> = "name",
        /// The prefix of a name that the API server makes.
        pub generate_name: Text<'a> = "generateName",
        /// Annotations, their values unread.
        pub annotations: RawMap<'a> = "annotations",
        /// Labels, which few contracts read.
        pub labels: Unread<'a> = "labels",
        /// The owner that controls the object. A claim, not a proof.
        pub controller: Controller<'a> = "ownerReferences",
    }
}

object! {
    /// The part of a pod spec that decides where the pod may run.
    pub struct PodSpec<'a> as "a pod spec" {
        /// `None` where absent or null: a patch must then add the list itself.
        pub tolerations: Option<Verbatim<'a, List<Toleration<'a>>>> = "tolerations",
        /// `None` where absent or null: a patch must then add the map itself.
        pub node_selector: Option<Verbatim<'a, StringMap<'a>>> = "nodeSelector",
        /// Node affinity; the rest of the affinity is unread.
        pub affinity: Option<Affinity<'a>> = "affinity",
        /// Set before scheduling only by who bypasses the scheduler, and by kubelets for mirror pods.
        pub node_name: Text<'a> = "nodeName",
        /// The name of the pod's priority class.
        pub priority_class_name: Text<'a> = "priorityClassName",
        /// What the API server's Priority plugin made of the class, or of its absence.
        pub priority: Option<&'a RawValue> = "priority",
        /// The same.
        pub preemption_policy: Option<&'a RawValue> = "preemptionPolicy",
        /// Containers that name extended resources.
        pub containers: Containers<'a> = "containers",
        /// Init containers and sidecars that name extended resources.
        pub init_containers: Containers<'a> = "initContainers",
        /// Claims on devices.
        pub resource_claims: List<ResourceClaim<'a>> = "resourceClaims",
    }
}

object! {
    /// A claim on devices, which names either a claim or the template of one.
    pub struct ResourceClaim<'a> as "a resource claim" {
        /// The name of a ResourceClaim.
        pub resource_claim_name: Text<'a> = "resourceClaimName",
        /// The name of a ResourceClaimTemplate.
        pub resource_claim_template_name: Text<'a> = "resourceClaimTemplateName",
    }
}

impl<'a> PodSpec<'a> {
    /// The tolerations, none where the list is absent.
    #[must_use]
    pub fn tolerations(&self) -> &[Toleration<'a>] {
        self.tolerations.as_ref().map(|list| &*list.value).unwrap_or_default()
    }

    /// The required node selector terms, of which a node must meet one; `None` where nothing is
    /// required.
    #[must_use]
    pub fn required_terms(&self) -> Option<&[NodeSelectorTerm<'a>]> {
        let required = self.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
        Some(&required.node_selector_terms)
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
                resources.mentions(move |kind| Place::Listed { list, index: *index, kind })
            })
        })
    }
}

impl Resources<'_> {
    /// What is requested and limited; `place` says where, for `requests` and for `limits`.
    pub(super) fn mentions<'s>(
        &'s self,
        place: impl Fn(&'static str) -> Place<'s>,
    ) -> impl Iterator<Item = ResourceMention<'s>> {
        let kinds = [("requests", &self.requests), ("limits", &self.limits)];
        kinds.into_iter().flat_map(move |(kind, quantities)| {
            let place = place(kind);
            quantities.0.iter().map(move |(name, json)| ResourceMention { place, name, json })
        })
    }
}

/// Where a resource is mentioned, below the pod's spec; `kind` is `requests` or `limits`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    /// In a container of one of a pod's own lists.
    Listed { list: &'static str, index: usize, kind: &'static str },
    /// In a container elsewhere.
    Container { place: &'a str, kind: &'static str },
    /// In requests and limits that stand outside of a container.
    Resources { place: &'a str, kind: &'static str },
    /// In an amount: a name and a quantity.
    Amount { place: &'a str },
}

/// One entry of a container's requests or limits.
#[derive(Debug, Clone, Copy)]
pub struct ResourceMention<'a> {
    pub(super) place: Place<'a>,
    /// The resource's name.
    pub name: &'a str,
    /// The quantity's JSON.
    pub json: &'a RawValue,
}

impl ResourceMention<'_> {
    /// How much is asked for.
    ///
    /// # Errors
    /// Where it is no quantity.
    pub fn quantity(self) -> Result<Quantity, NotAQuantity> {
        Quantity::from_json(self.json.get())
    }
}

/// The path below the pod: `spec.initContainers[0].resources.limits["nvidia.com/gpu"]`.
impl fmt::Display for ResourceMention<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Excerpt(self.name);
        let below = |place: &str| if place.is_empty() { String::new() } else { format!(".{place}") };
        match self.place {
            Place::Listed { list, index, kind } => write!(f, "spec.{list}[{index}].resources.{kind}[\"{name}\"]"),
            Place::Container { place, kind } => write!(f, "spec{}.resources.{kind}[\"{name}\"]", below(place)),
            Place::Resources { place, kind } => write!(f, "spec{}.{kind}[\"{name}\"]", below(place)),
            Place::Amount { place } => write!(f, "spec{}.quantity", below(place)),
        }
    }
}

/// The containers that name extended resources, each with its place in the list.
#[derive(Debug, Clone, Default)]
pub struct Containers<'a>(Vec<(usize, Resources<'a>)>);

object! {
    pub(super) struct Container<'a> as "a container" {
        pub(super) resources: Resources<'a> = "resources",
    }
}

object! {
    pub(super) struct Resources<'a> as "requests and limits" {
        pub(super) requests: ExtendedResources<'a> = "requests",
        pub(super) limits: ExtendedResources<'a> = "limits",
    }
}

/// The owner reference with `controller: true`, of which an object has at most one.
#[derive(Debug, Clone, Default)]
pub struct Controller<'a>(pub Option<OwnerReference<'a>>);

object! {
    /// An owner reference.
    pub struct OwnerReference<'a> as "an owner reference" {
        /// Group and version of the owner.
        pub api_version: Text<'a> = "apiVersion",
        /// Kind of the owner.
        pub kind: Text<'a> = "kind",
        /// Name of the owner, in the object's own namespace.
        pub name: Text<'a> = "name",
        controller: Option<bool> = "controller",
    }
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
            within_bounds(named.len(), MOST)?;
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
