//! Amounts of what nodes have and pods request.

use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

use serde::Serialize;

use crate::policy::{NotAQuantity, Quantity, RawMap};

/// Amounts of a node's resources: what it has, or what is requested of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// CPU, in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory, in bytes.
    pub memory_bytes: i64,
    /// Ephemeral storage, in bytes.
    pub ephemeral_storage_bytes: i64,
    /// Places for pods.
    pub pods: i64,
    /// Extended resources, ordered by name.
    #[serde(serialize_with = "as_map")]
    pub extended: Vec<(Arc<str>, i64)>,
}

impl Amounts {
    /// What a map of quantities says. Resources that pods of no kind contend for here, such as huge pages, are
    /// left out.
    ///
    /// # Errors
    /// With the name of the first resource whose amount is no quantity.
    pub(super) fn read(
        quantities: &RawMap<'_>,
        mut share: impl FnMut(&str) -> Arc<str>,
    ) -> Result<Self, (String, NotAQuantity)> {
        let mut amounts = Self::default();
        for (name, json) in &quantities.0 {
            let whole = || {
                let quantity = Quantity::from_json(json.get())?;
                Ok(if quantity.is_negative() { 0 } else { quantity.ceiling().unwrap_or(i64::MAX) })
            };
            let fault = |error| (name.to_string(), error);
            match &**name {
                "cpu" => amounts.cpu_milli = Quantity::milli_from_json(json.get()).map_err(fault)?,
                "memory" => amounts.memory_bytes = whole().map_err(fault)?,
                "ephemeral-storage" => amounts.ephemeral_storage_bytes = whole().map_err(fault)?,
                "pods" => amounts.pods = whole().map_err(fault)?,
                name if name.contains('/') => amounts.set(share(name), whole().map_err(fault)?),
                _ => {}
            }
        }
        Ok(amounts)
    }

    /// The amount of an extended resource.
    #[must_use]
    pub fn of(&self, resource: &str) -> i64 {
        let place = self.extended.binary_search_by(|(name, _)| (**name).cmp(resource));
        place.map_or(0, |place| self.extended[place].1)
    }

    fn set(&mut self, resource: Arc<str>, amount: i64) {
        match self.extended.binary_search_by(|(name, _)| name.cmp(&resource)) {
            Ok(place) => self.extended[place].1 = amount,
            Err(place) => self.extended.insert(place, (resource, amount)),
        }
    }

    /// For each resource the greater amount.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        self.with(other, i64::max)
    }

    /// For each resource what is left where `other` is taken away; never below zero.
    #[must_use]
    pub fn left_by(&self, other: &Self) -> Self {
        self.with(other, |own, taken| own.saturating_sub(taken).max(0))
    }

    /// Whether all of `wanted` is there.
    #[must_use]
    pub fn holds(&self, wanted: &Self) -> bool {
        self.cpu_milli >= wanted.cpu_milli
            && self.memory_bytes >= wanted.memory_bytes
            && self.ephemeral_storage_bytes >= wanted.ephemeral_storage_bytes
            && self.pods >= wanted.pods
            && wanted.extended.iter().all(|(resource, amount)| self.of(resource) >= *amount)
    }

    fn with(&self, other: &Self, operate: impl Fn(i64, i64) -> i64) -> Self {
        let mut outcome = Self {
            cpu_milli: operate(self.cpu_milli, other.cpu_milli),
            memory_bytes: operate(self.memory_bytes, other.memory_bytes),
            ephemeral_storage_bytes: operate(self.ephemeral_storage_bytes, other.ephemeral_storage_bytes),
            pods: operate(self.pods, other.pods),
            extended: self.extended.clone(),
        };
        for (resource, amount) in &mut outcome.extended {
            *amount = operate(*amount, other.of(resource));
        }
        for (resource, amount) in &other.extended {
            if self.extended.binary_search_by(|(name, _)| name.cmp(resource)).is_err() {
                outcome.set(Arc::clone(resource), operate(0, *amount));
            }
        }
        outcome
    }

    /// The same with native resources that another gives, where it gives any.
    pub(super) fn overridden_by(mut self, other: &Self) -> Self {
        for (own, other) in [
            (&mut self.cpu_milli, other.cpu_milli),
            (&mut self.memory_bytes, other.memory_bytes),
            (&mut self.ephemeral_storage_bytes, other.ephemeral_storage_bytes),
        ] {
            if other > 0 {
                *own = other;
            }
        }
        self
    }
}

impl AddAssign<&Self> for Amounts {
    fn add_assign(&mut self, other: &Self) {
        *self = self.with(other, i64::saturating_add);
    }
}

impl SubAssign<&Self> for Amounts {
    fn sub_assign(&mut self, other: &Self) {
        *self = self.left_by(other);
    }
}

fn as_map<S: serde::Serializer>(extended: &[(Arc<str>, i64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(extended.iter().map(|(name, amount)| (name, amount)))
}
