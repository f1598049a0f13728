//! Groups of nodes that are made from one template, and the nodes that are not as the others of their group.

use std::collections::{BTreeMap, BTreeSet};

use super::{label, object};
use crate::audit::finding::{Check, Finding, Severity};
use crate::audit::snapshot::Node;
use crate::audit::view::{Standing, View};
use crate::policy::{Pool, PoolSet, visible};

/// The labels by which nodes say from what they are made, and what that is called: what names one template first, then
/// what only says that the machines are alike.
const GROUPS: [(&str, &str); 16] = [
    ("eks.amazonaws.com/nodegroup", "node group"),
    ("alpha.eksctl.io/nodegroup-name", "node group"),
    ("cloud.google.com/gke-nodepool", "node pool"),
    ("kubernetes.azure.com/agentpool", "node pool"),
    ("agentpool", "node pool"),
    ("karpenter.sh/nodepool", "node pool"),
    ("karpenter.sh/provisioner-name", "node pool"),
    ("worker.gardener.cloud/pool", "worker pool"),
    ("doks.digitalocean.com/node-pool", "node pool"),
    ("lke.linode.com/pool-id", "node pool"),
    ("k8s.scaleway.com/pool-name", "node pool"),
    ("kops.k8s.io/instancegroup", "instance group"),
    ("cluster.x-k8s.io/deployment-name", "machine deployment"),
    ("nvidia.com/gpu.machine", "machine type"),
    (INSTANCE_TYPE, "instance type"),
    ("beta.kubernetes.io/instance-type", "instance type"),
];

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Instance types that some distributions give to every node, whatever the machine.
const NO_TYPES: [&str; 3] = ["k3s", "k3d", "rke2"];

/// By this label people slice the GPUs of single nodes, so that nodes of one template differ on purpose.
const MIG_CONFIG: &str = "nvidia.com/mig.config";

/// What the first of the labels says, with the value; empty where there is none.
pub(super) fn name(node: &Node) -> String {
    let named = GROUPS.iter().find_map(|(key, what)| {
        let value = label(node, key).filter(|value| !value.is_empty() && !NO_TYPES.contains(value))?;
        Some(format!("{what} {}", visible(value)))
    });
    named.unwrap_or_default()
}

/// Finds the nodes that are not as the others of their group.
pub(super) fn judge(view: &View<'_>, findings: &mut Vec<Finding>) {
    let mut groups: BTreeMap<String, Vec<(&Node, Standing)>> = BTreeMap::new();
    for (node, standing) in view.nodes() {
        let group = super::group(node);
        if !group.is_empty() {
            groups.entry(group).or_default().push((node, standing));
        }
    }
    for (name, members) in groups {
        let mut pools = PoolSet::default();
        members.iter().flat_map(|(_, standing)| standing.pools.iter()).for_each(|index| pools.insert(index));
        if members.len() > 1 && !pools.is_empty() {
            let pools: Vec<_> = view.pools(pools).collect();
            Group { view, name: &name, members: &members, pools: &pools }.judge(findings);
        }
    }
}

/// The nodes of one template, some of which have to do with GPUs.
#[derive(Debug)]
struct Group<'g, 's> {
    view: &'g View<'s>,
    name: &'g str,
    members: &'g [(&'s Node, Standing)],
    pools: &'g [&'s Pool],
}

/// What nodes are compared by.
#[derive(Debug, Clone)]
enum Trait<'g> {
    Label {
        key: &'g str,
    },
    /// The taints whose key is that of a pool's taint, in whatever spelling.
    Taints,
    /// How many there are built in.
    Capacity {
        resource: &'g str,
    },
}

impl Group<'_, '_> {
    fn judge(&self, findings: &mut Vec<Finding>) {
        // By the node's place: how it differs.
        let mut differences: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut is_about_template = BTreeSet::new();
        for aspect in self.traits() {
            let mut alike: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
            for (place, (node, _)) in self.members.iter().enumerate() {
                alike.entry(self.likeness(&aspect, node)).or_default().push(place);
            }
            for places in alike.into_values().filter(|places| places.len() > 1) {
                for (place, difference) in self.compare(&aspect, &places) {
                    differences.entry(place).or_default().push(difference);
                    if self.is_written(&aspect) {
                        is_about_template.insert(place);
                    }
                }
            }
        }
        for (place, differences) in differences {
            let Some((node, standing)) = self.members.get(place) else { continue };
            let pool = super::pool_of(self.view, node, *standing).or(self.pools.first().copied());
            let name = visible(&node.name);
            let message =
                format!("the node {name} is not as the others of the {}: it {}", self.name, differences.join("; it "));
            let action = self.action(&name, pool, is_about_template.contains(&place));
            // Whatever stands in the objects.
            let message = visible(&message);
            let finding = Finding::new(Check::NodeGroupDrift, Severity::Medium, object(node), message, action);
            findings.push(match pool {
                Some(pool) => finding.in_pool(&pool.name),
                None => finding,
            });
        }
    }

    fn action(&self, name: &str, pool: Option<&Pool>, is_about_template: bool) -> String {
        let Some(pool) = pool.filter(|_| is_about_template) else {
            return format!(
                "kubectl describe node {name}, and nvidia-smi on it: a GPU that is lost, another machine, or another \
                 setting; replace the node by a new one of the {}",
                self.name
            );
        };
        let taints: Vec<_> = pool.taints.iter().map(ToString::to_string).collect();
        format!(
            "let the template of the {} say what the contract says (label {}, taint {}), and replace the node {name} by a \
             new one: what is mended on the node alone is lost with it",
            self.name,
            pool.labels_text(","),
            taints.join(", ")
        )
    }

    /// All that matters, in the order in which it is said.
    fn traits(&self) -> Vec<Trait<'_>> {
        let labels = self.pools.iter().flat_map(|pool| pool.node_selector.keys().map(String::as_str));
        let models = self.pools.iter().filter_map(|pool| pool.models.as_ref().map(|models| models.node_label.as_str()));
        let labels: BTreeSet<_> = labels.chain(models).collect();
        let amounts = self.members.iter().flat_map(|(node, _)| node.capacity.extended.iter());
        let resources: BTreeSet<&str> = amounts
            .map(|(resource, _)| &**resource)
            .filter(|resource| self.pools.iter().any(|pool| pool.resources.matches(resource)))
            .collect();
        labels
            .into_iter()
            .map(|key| Trait::Label { key })
            .chain([Trait::Taints])
            .chain(resources.into_iter().map(|resource| Trait::Capacity { resource }))
            .collect()
    }

    /// Whether the template says it, rather than the machine.
    fn is_written(&self, aspect: &Trait<'_>) -> bool {
        match aspect {
            Trait::Label { key } => self.pools.iter().any(|pool| pool.node_selector.contains_key(*key)),
            Trait::Taints => true,
            Trait::Capacity { .. } => false,
        }
    }

    /// What nodes must have in common to be compared. A template may allow several machines.
    fn likeness<'n>(&self, aspect: &Trait<'_>, node: &'n Node) -> Vec<&'n str> {
        let of = |key| label(node, key).unwrap_or_default();
        match aspect {
            _ if self.is_written(aspect) => Vec::new(),
            Trait::Capacity { .. } => vec![of(INSTANCE_TYPE), of(MIG_CONFIG)],
            Trait::Label { .. } | Trait::Taints => vec![of(INSTANCE_TYPE)],
        }
    }

    /// How some of the nodes differ from most of them; where there are no most, from what the contract wants.
    fn compare(&self, aspect: &Trait<'_>, places: &[usize]) -> Vec<(usize, String)> {
        let mut by_value: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for place in places {
            if let Some((node, _)) = self.members.get(*place) {
                by_value.entry(self.value(aspect, node)).or_default().push(*place);
            }
        }
        let most = by_value.values().map(Vec::len).max().unwrap_or_default();
        let is_tie = by_value.values().filter(|places| places.len() == most).count() > 1;
        let usual = by_value.iter().filter(|(_, places)| places.len() == most);
        let Some(usual) = usual.map(|(value, _)| value).max_by_key(|value| self.worth(aspect, value)) else {
            return Vec::new();
        };
        let all = places.len();
        let mut found = Vec::new();
        for (value, own) in by_value.iter().filter(|(value, _)| *value != usual) {
            let tie = if is_tie && own.len() == most { " (a tie: as many are like this node)" } else { "" };
            let difference = format!("{}{tie}", difference(aspect, value, usual, &format!("{most} of {all}")));
            found.extend(own.iter().map(|place| (*place, difference.clone())));
        }
        found
    }

    /// What decides between values that equally many nodes have: whether the contract wants it, then the greater.
    fn worth(&self, aspect: &Trait<'_>, value: &str) -> (bool, i64, bool) {
        match aspect {
            Trait::Label { key } => {
                let wanted = |pool: &Pool| pool.node_selector.get(*key).is_some_and(|own| own == value);
                (self.pools.iter().any(|pool| wanted(pool)), 0, !value.is_empty())
            }
            Trait::Taints => {
                let wanted =
                    |pool: &Pool| pool.taints.iter().all(|taint| value.split(", ").any(|own| own == taint.to_string()));
                (self.pools.iter().any(|pool| wanted(pool)), 0, !value.is_empty())
            }
            Trait::Capacity { .. } => (false, value.parse().unwrap_or_default(), false),
        }
    }

    /// The value of a trait; empty where there is none.
    fn value(&self, aspect: &Trait<'_>, node: &Node) -> String {
        match aspect {
            Trait::Label { key } => label(node, key).map(|value| visible(value).into_owned()).unwrap_or_default(),
            Trait::Taints => {
                let is_pools = |key: &str| {
                    self.pools.iter().any(|pool| pool.taints.iter().any(|taint| taint.key.eq_ignore_ascii_case(key)))
                };
                let own = node.taints.iter().filter(|taint| is_pools(&taint.key));
                let own: BTreeSet<_> = own.map(|taint| visible(&taint.to_string()).into_owned()).collect();
                own.into_iter().collect::<Vec<_>>().join(", ")
            }
            Trait::Capacity { resource } => match node.capacity.of(resource) {
                0 => String::new(),
                amount => amount.to_string(),
            },
        }
    }
}

/// How a node differs; `most` says how many are otherwise.
fn difference(aspect: &Trait<'_>, own: &str, usual: &str, most: &str) -> String {
    match (aspect, own, usual) {
        (Trait::Label { key }, "", usual) => format!("lacks the label {key}={usual}, which {most} have"),
        (Trait::Label { key }, own, "") => format!("has the label {key}={own}, where {most} have none of that key"),
        (Trait::Label { key }, own, usual) => format!("has the label {key}={own}, where {most} have {key}={usual}"),
        (Trait::Taints, "", usual) => format!("lacks the taint {usual}, which {most} have"),
        (Trait::Taints, own, "") => format!("has the taint {own}, where {most} have none of that key"),
        (Trait::Taints, own, usual) => format!("has the taint {own}, where {most} have {usual}"),
        (Trait::Capacity { resource }, "", usual) => format!("has no {resource}, where {most} have {usual}"),
        (Trait::Capacity { resource }, own, "") => format!("has {own} {resource}, where {most} have none"),
        (Trait::Capacity { resource }, own, usual) => format!("has {own} {resource}, where {most} have {usual}"),
    }
}
