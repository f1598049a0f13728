//! What a pod requests, and its class of quality of service, as the API server, the scheduler and the kubelet see it.

use std::collections::HashMap;
use std::sync::Arc;

use super::read::{Container, ContainerStatus, Pod, PodSpec, Resources};
use super::{Amounts, Qos};
use crate::policy::{self, Quantity, RawMap};

/// What the scheduler counts for a pod: its containers and sidecars together, or what its init containers need one after
/// the other where that is more; what is set for the pod as a whole instead; and its overhead. As `PodRequests` in
/// `k8s.io/component-helpers/resource` adds it up, resizes in place among it.
pub(super) fn requests(pod: &Pod<'_>, share: &mut impl FnMut(&str) -> Arc<str>) -> Result<Amounts, String> {
    let Pod { spec, status, .. } = pod;
    let all = status.container_statuses.iter().chain(status.init_container_statuses.iter());
    let sized: HashMap<&str, &ContainerStatus<'_>> =
        all.filter(|own| own.resources.is_some()).map(|own| (&*own.name, own)).collect();
    let is_infeasible = status.conditions.iter().any(|condition| {
        (&*condition.kind, &*condition.status, &*condition.reason) == ("PodResizePending", "True", "Infeasible")
    });
    // Until a resize is through the greatest of what is wanted, allotted and in force counts; a resize that can never be
    // is not wanted.
    let own = |container: &Container<'_>, share: &mut _| -> Result<Amounts, String> {
        let wanted = amounts(&effective(&container.resources), share)?;
        let Some((status, resources)) =
            sized.get(&*container.name).and_then(|status| Some((status, status.resources.as_ref()?)))
        else {
            return Ok(wanted);
        };
        let now = amounts(&resources.requests, share)?.max(&amounts(&status.allocated, share)?);
        Ok(if is_infeasible { now } else { now.max(&wanted) })
    };
    let mut running = Amounts::default();
    for container in spec.containers.iter() {
        running += &own(container, share)?;
    }
    let mut sidecars = Amounts::default();
    let mut starting = Amounts::default();
    for container in spec.init_containers.iter() {
        let is_sidecar = &*container.restart_policy == "Always";
        if is_sidecar {
            sidecars += &own(container, share)?;
            starting = starting.max(&sidecars);
        } else {
            let mut together = sidecars.clone();
            together += &amounts(&effective(&container.resources), share)?;
            starting = starting.max(&together);
        }
    }
    running += &sidecars;
    let whole = amounts(&of_pod(spec), share)?;
    let mut requests = running.max(&starting).overridden_by(&whole);
    requests += &amounts(&spec.overhead, share)?;
    Ok(requests)
}

/// The amounts that a map of quantities says.
pub(super) fn amounts(quantities: &RawMap<'_>, share: &mut impl FnMut(&str) -> Arc<str>) -> Result<Amounts, String> {
    Amounts::read(quantities, share)
        .map_err(|(resource, error)| format!("the amount of {} is {error}", policy::visible(&resource)))
}

/// The requests, and the limits of what is not requested: the API server writes them down so.
fn effective<'a>(Resources { requests, limits }: &'a Resources<'_>) -> RawMap<'a> {
    let unrequested = limits.0.iter().filter(|(name, _)| !requests.contains(name));
    RawMap(requests.0.iter().chain(unrequested).map(|(name, json)| ((&**name).into(), *json)).collect())
}

/// What is requested for the pod as a whole: of what only has a limit there the limit, unless a container requests some
/// of it, whose sum then counts (`defaultPodRequests` of upstream).
fn of_pod<'a>(spec: &'a PodSpec<'_>) -> RawMap<'a> {
    let mut whole = effective(&spec.resources);
    let is_given = |name: &str| {
        spec.resources.requests.contains(name)
            || !spec.all_containers().any(|own| own.requests.contains(name) || own.limits.contains(name))
    };
    whole.0.retain(|(name, _)| is_given(name));
    whole
}

impl PodSpec<'_> {
    fn all_containers(&self) -> impl Iterator<Item = &Resources<'_>> {
        self.containers.iter().chain(self.init_containers.iter()).map(|container| &container.resources)
    }

    /// The class that the kubelet would give the pod: `ComputePodQOS` of upstream, of what a manifest holds. Zero counts
    /// as nothing, and what is set for the pod as a whole counts alone.
    pub(super) fn qos(&self, requests: &Amounts) -> Qos {
        let whole = &self.resources;
        if whole.requests.0.is_empty() && whole.limits.0.is_empty() {
            return self.qos_of_containers();
        }
        let limits = NATIVES.map(|name| amount(&whole.limits, name));
        // What the API server does not fill in is what the containers request together.
        let overhead = NATIVES.map(|name| amount(&self.overhead, name));
        let together = [i128::from(requests.cpu_milli), i128::from(requests.memory_bytes) * 1_000];
        let requested: [i128; 2] = std::array::from_fn(|index| (together[index] - overhead[index]).max(0));
        match (requested, limits) {
            ([0, 0], [0, 0]) => Qos::BestEffort,
            (requested, limits) if requested == limits && !limits.contains(&0) => Qos::Guaranteed,
            _ => Qos::Burstable,
        }
    }

    fn qos_of_containers(&self) -> Qos {
        let (mut requested, mut limited) = ([0_i128; 2], [0_i128; 2]);
        let mut all_limited = true;
        for own in self.all_containers() {
            let effective = effective(own);
            for (index, name) in NATIVES.into_iter().enumerate() {
                let limit = amount(&own.limits, name);
                requested[index] += amount(&effective, name);
                limited[index] += limit;
                all_limited &= limit > 0;
            }
        }
        match (requested, limited) {
            ([0, 0], [0, 0]) => Qos::BestEffort,
            (requested, limited) if all_limited && requested == limited => Qos::Guaranteed,
            _ => Qos::Burstable,
        }
    }
}

/// The resources by which pods are classed.
const NATIVES: [&str; 2] = ["cpu", "memory"];

/// Thousandths of a resource; zero where nothing is set, and where it is no quantity, which is a fault elsewhere.
fn amount(map: &RawMap<'_>, name: &str) -> i128 {
    let json = map.0.iter().find(|(own, _)| &**own == name).map(|(_, json)| json);
    let whole = |json: &str| {
        let quantity = Quantity::from_json(json).ok().filter(|quantity| quantity.is_positive())?;
        Some(i128::from(quantity.ceiling().unwrap_or(i64::MAX)) * 1_000)
    };
    let milli = |json: &str| Quantity::milli_from_json(json).ok().map(i128::from);
    json.and_then(|json| if name == "cpu" { milli(json.get()) } else { whole(json.get()) }).unwrap_or_default().max(0)
}
