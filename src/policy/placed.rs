//! Where a pod is put past the scheduler, and whether it matters.

use super::{
    Action, Controller, Facts, Kind, Node, NodeFact, Operation, Phase, Policy, PoolSet, Rule, Subject, Workload,
};

/// Where a pod is put past the scheduler, as far as it matters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placed<'a> {
    /// The scheduler places it, or it goes where no pool is, or who puts it there may.
    Freely,
    /// Onto a node of these pools.
    In { node: &'a str, pools: PoolSet },
    /// Onto a node that is not there (yet).
    Nowhere { node: &'a str },
    /// Onto a node of which nothing is known.
    Unknown { node: &'a str },
}

impl Placed<'_> {
    pub(super) fn may_be_in(&self, pool: usize) -> bool {
        match self {
            Self::Freely => false,
            Self::In { pools, .. } => pools.contains(pool),
            Self::Nowhere { .. } | Self::Unknown { .. } => true,
        }
    }
}

impl Policy {
    /// The pools of a node: those whose labels it carries, and where there is none those of which it carries a
    /// taint.
    #[must_use]
    pub fn pools_of_node(&self, node: &Node) -> PoolSet {
        let labelled = self.pools_where(|pool| pool.is_met_by(|key| node.label(key)));
        if !labelled.is_empty() {
            return labelled;
        }
        self.pools_where(|pool| pool.taints.iter().any(|taint| node.has_taint(taint)))
    }

    /// Where a pod is put past the scheduler, by somebody who is not trusted to.
    pub(super) fn placed<'a>(
        &self,
        subject: &'a Subject<'a>,
        object: &'a Workload<'a>,
        facts: &dyn Facts,
    ) -> Placed<'a> {
        let node = &*object.pod.spec.node_name;
        let judged = match object.kind {
            // A pod that is there has been placed: its nodeName never changes.
            Kind::Pod => matches!(subject.operation, Operation::Create),
            // Its controller looks at the node's taints itself, and makes no pod that does not tolerate them.
            Kind::DaemonSet => false,
            _ => true,
        };
        let asks = judged && subject.phase == Phase::Validating;
        if node.is_empty() || !asks || self.action(Rule::NodeNameBypass) == Action::Off {
            return Placed::Freely;
        }
        let Subject { requester, .. } = subject;
        let is_scheduler = || self.is_scheduler(subject);
        let may_place = match object.kind {
            Kind::Pod => {
                requester.is_node(node)
                    || is_scheduler()
                    || self.identities.owner(Controller::DaemonSet, subject).is_some()
            }
            Kind::Binding => is_scheduler(),
            _ => false,
        };
        if may_place {
            return Placed::Freely;
        }
        match facts.node(node) {
            NodeFact::Known(known) => match self.pools_of_node(&known) {
                pools if pools.is_empty() => Placed::Freely,
                pools => Placed::In { node, pools },
            },
            NodeFact::Absent => Placed::Nowhere { node },
            NodeFact::Unknown => Placed::Unknown { node },
        }
    }
}
