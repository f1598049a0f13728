//! What of a pod requests a GPU: an amount of a pool's resource, or a marker that the contract names.

use std::fmt;

use super::allowlist::Patterns;
use super::json::{Excerpt, Text};
use super::pod::ResourceMention;
use super::pool::Pool;
use super::quantity::{NotAQuantity, Quantity};
use super::workload::Workload;

/// What makes a pod a GPU pod beside resources.
#[derive(Debug, Clone, Default)]
pub struct Markers {
    /// The ResourceClaims and ResourceClaimTemplates, by name or glob.
    pub claims: Patterns,
    /// The annotations.
    pub annotations: Vec<String>,
}

impl Markers {
    /// Whether the contract names none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.written().is_empty() && self.annotations.is_empty()
    }
}

/// Something in a pod that may request a GPU.
#[derive(Debug)]
pub(super) enum Ask<'a> {
    /// An amount of an extended resource.
    Resource(ResourceMention<'a>),
    /// A claim on devices.
    Claim {
        /// Its place in `spec.resourceClaims`.
        index: usize,
        /// The field that names it.
        field: &'static str,
        /// The name of the ResourceClaim or ResourceClaimTemplate.
        name: &'a str,
    },
    /// An annotation that some pool has as a marker.
    Annotation {
        /// The annotation.
        key: &'a str,
        /// What it says.
        value: Text<'a>,
    },
}

impl<'a> Ask<'a> {
    /// Everything in the object that may request a GPU of one of the pools.
    pub(super) fn all(object: &'a Workload<'_>, pools: &'a [Pool]) -> impl Iterator<Item = Self> {
        let pod = &object.pod;
        let claims = pod.spec.resource_claims.iter().enumerate().flat_map(|(index, claim)| {
            let names = [
                ("resourceClaimName", &*claim.resource_claim_name),
                ("resourceClaimTemplateName", &*claim.resource_claim_template_name),
            ];
            let given = names.into_iter().filter(|(_, name)| !name.is_empty());
            given.map(move |(field, name)| Self::Claim { index, field, name })
        });
        let keys = pools.iter().flat_map(|pool| &pool.markers.annotations);
        let annotations =
            keys.filter_map(|key| Some(Self::Annotation { key, value: pod.metadata.annotations.string(key)? }));
        object.extended_resources().map(Self::Resource).chain(claims).chain(annotations)
    }

    /// Whether it is the pool of which it would request a GPU.
    pub(super) fn concerns(&self, pool: &Pool) -> bool {
        match self {
            Self::Resource(mention) => pool.resources.matches(mention.name),
            Self::Claim { name, .. } => pool.markers.claims.matches(name),
            Self::Annotation { key, .. } => pool.markers.annotations.iter().any(|own| own == key),
        }
    }

    /// Whether it requests anything: what comes to nothing does not.
    ///
    /// # Errors
    /// Where the quantity of a resource is none. (The value of an annotation need not be one.)
    pub(super) fn is_request(&self) -> Result<bool, NotAQuantity> {
        match self {
            Self::Resource(mention) => mention.quantity().map(Quantity::is_positive),
            Self::Claim { .. } => Ok(true),
            Self::Annotation { value, .. } => {
                Ok(!value.is_empty() && !Quantity::parse(value).is_ok_and(Quantity::is_zero))
            }
        }
    }

    /// The JSON or the text of what it says, for a message.
    pub(super) fn written(&self) -> &str {
        match self {
            Self::Resource(mention) => mention.json.get(),
            Self::Claim { name, .. } => name,
            Self::Annotation { value, .. } => value,
        }
    }

    /// What is requested: `nvidia.com/gpu`, `claim single-gpu`, `annotation gpu-fraction`.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Resource(mention) => Excerpt(mention.name).to_string(),
            Self::Claim { name, .. } => format!("claim {}", Excerpt(name)),
            Self::Annotation { key, .. } => format!("annotation {key}"),
        }
    }
}

/// The path below the pod, such as `spec.resourceClaims[0].resourceClaimTemplateName`.
impl fmt::Display for Ask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(mention) => mention.fmt(f),
            Self::Claim { index, field, .. } => write!(f, "spec.resourceClaims[{index}].{field}"),
            Self::Annotation { key, .. } => write!(f, "metadata.annotations[\"{key}\"]"),
        }
    }
}

/// By what a GPU of a pool is requested, for a message.
pub(super) struct Requestable<'p>(pub(super) &'p Pool);

impl fmt::Display for Requestable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pool { resources, markers: Markers { claims, annotations }, .. } = self.0;
        resources.fmt(f)?;
        if !claims.written().is_empty() {
            write!(f, ", claims ({claims})")?;
        }
        if !annotations.is_empty() {
            write!(f, ", annotations ({})", annotations.join(", "))?;
        }
        Ok(())
    }
}
