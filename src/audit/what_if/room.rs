//! Where pods find room: first fit, the largest first, by requests, honouring selectors, taints and pod slots.
//!
//! It is a simulation, no promise: pods' affinity to pods, spreading and volumes are not looked at, and neither is what
//! else waits for room.

use std::collections::HashMap;

use crate::audit::fit::{self, Obstacle, Room};
use crate::audit::snapshot::{Amounts, Node};
use crate::audit::view::View;
use crate::audit::words::count_text;
use crate::policy::{Kind, Policy};

/// Nodes that may take pods.
#[derive(Debug)]
pub(super) struct Targets<'s> {
    policy: &'s Policy,
    nodes: Vec<Target>,
    /// The most CPU and the most memory that a target has.
    largest: (i64, i64),
    /// How far along the targets pods of a kind were refused. Room only shrinks, so that none before is asked again.
    walked: HashMap<(String, Amounts), Walked>,
}

#[derive(Debug)]
struct Target {
    node: Node,
    room: Room,
    is_gpu: bool,
}

#[derive(Debug, Default)]
struct Walked {
    at: usize,
    /// Why no target takes such a pod.
    refusal: Option<String>,
}

/// Where a pod found room.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) node: String,
    /// Whether that is a GPU node.
    pub(super) is_gpu: bool,
}

impl<'s> Targets<'s> {
    /// These nodes, in this order, with what the pods leave that are on them now.
    pub(super) fn new(view: &View<'s>, nodes: impl Iterator<Item = (Node, bool)>) -> Self {
        let targets = nodes.map(|(node, is_gpu)| {
            let room = Room::of(&node, view.pods_on(&node.name));
            Target { node, room, is_gpu }
        });
        let targets: Vec<_> = targets.collect();
        let most = |of: &dyn Fn(&Amounts) -> i64| {
            targets.iter().map(|target: &Target| of(&target.node.allocatable)).max().unwrap_or_default().max(1)
        };
        let largest = (most(&|amounts| amounts.cpu_milli), most(&|amounts| amounts.memory_bytes));
        Self { policy: view.policy, nodes: targets, largest, walked: HashMap::new() }
    }

    /// The larger of its parts of the most CPU and the most memory that a target has, in millionths: by this, pods are
    /// ordered.
    pub(super) fn size(&self, requests: &Amounts) -> i128 {
        let part = |own: i64, largest: i64| i128::from(own) * 1_000_000 / i128::from(largest);
        part(requests.cpu_milli, self.largest.0).max(part(requests.memory_bytes, self.largest.1))
    }

    /// Gives a pod, as its JSON, a place.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn place(&mut self, json: &str, requests: &Amounts) -> Result<Found, String> {
        let spec = json.split_once(",\"spec\":").map_or(json, |(_, spec)| spec);
        let walked = self.walked.entry((spec.to_owned(), requests.clone())).or_default();
        if let Some(refusal) = &walked.refusal {
            return Err(refusal.clone());
        }
        let object = Kind::Pod.read(json).map_err(|error| format!("it cannot be read: {error}"))?;
        let spec = &object.pod.spec;
        while let Some(target) = self.nodes.get_mut(walked.at) {
            if fit::barred(&target.node, &target.node.taints, spec).is_empty()
                && target.room.lacks(self.policy, requests).is_empty()
            {
                target.room.take(requests);
                return Ok(Found { node: target.node.name.to_string(), is_gpu: target.is_gpu });
            }
            walked.at += 1;
        }
        // What the most nodes have against it comes first.
        let mut counts: Vec<(Obstacle, usize)> = Obstacle::ALL.into_iter().map(|obstacle| (obstacle, 0)).collect();
        for target in &self.nodes {
            let barred = fit::barred(&target.node, &target.node.taints, spec);
            let obstacles = if barred.is_empty() { target.room.lacks(self.policy, requests) } else { barred };
            for obstacle in obstacles.iter() {
                if let Some((_, number)) = counts.iter_mut().find(|(own, _)| *own == obstacle) {
                    *number += 1;
                }
            }
        }
        counts.retain(|(_, number)| *number > 0);
        counts.sort_by_key(|(obstacle, number)| (std::cmp::Reverse(*number), *obstacle));
        let reasons: Vec<_> =
            counts.iter().map(|(obstacle, number)| format!("{number} {}", obstacle.nodes())).collect();
        let refusal = match self.nodes.len() {
            0 => "there is no other node".to_owned(),
            targets => format!("of {} {}", count_text(targets, "other node"), reasons.join(", ")),
        };
        Err(walked.refusal.insert(refusal).clone())
    }
}
