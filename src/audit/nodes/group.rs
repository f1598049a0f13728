//! Groups of nodes that are made from one template, and the nodes that are not as the others of their group.

use std::collections::{BTreeMap, BTreeSet};

use super::{label, object};
use crate::audit::finding::{Check, Finding, Severity};
use crate::audit::fit::few;
use crate::audit::snapshot::Node;
use crate::audit::view::{Standing, View};
use crate::audit::words::{command, label_command};
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
    /// How many there are built in.
    Capacity {
        resource: &'g str,
    },
}

impl Group<'_, '_> {
    fn judge(&self, findings: &mut Vec<Finding>) {
        // By the node's place: how it differs.
        let mut differences: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut of_models: BTreeMap<usize, (&str, usize)> = BTreeMap::new();
        for aspect in self.traits() {
            let mut alike: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
            for (place, (node, _)) in self.members.iter().enumerate() {
                alike.entry(likeness(&aspect, node)).or_default().push(place);
            }
            for places in alike.into_values().filter(|places| places.len() > 1) {
                for (place, difference) in self.compare(&aspect, &places) {
                    differences.entry(place).or_default().push(difference);
                    if let Trait::Label { key } = aspect {
                        of_models.entry(place).or_insert((key, 0)).1 += 1;
                    }
                }
            }
        }
        findings.extend(self.judge_template());
        for (place, differences) in differences {
            let Some((node, standing)) = self.members.get(place) else { continue };
            let pool = self.pool_of(node, *standing);
            let name = visible(&node.name);
            let message =
                format!("the node {name} is not as the others of the {}: it {}", self.name, differences.join("; it "));
            // A label that only says which GPU there is can be set right where it is.
            let model = of_models.get(&place).filter(|(_, count)| *count == differences.len()).map(|(key, _)| *key);
            let action = match model {
                Some(key) => self.relabelling(node, key),
                None => self.replacement(node),
            };
            // Whatever stands in the objects.
            let message = visible(&message);
            let finding = Finding::new(Check::NodeGroupDrift, Severity::Medium, object(node), message, action);
            findings.push(match pool.filter(|_| !standing.is_undecided) {
                Some(pool) => finding.in_pool(&pool.name),
                None => finding,
            });
        }
    }

    /// The pool that a node is held against: that which it may be meant for, or the first of its group. Of several the
    /// others of its group say which.
    fn pool_of(&self, node: &Node, standing: Standing) -> Option<&Pool> {
        if standing.is_undecided {
            let decided = self.members.iter().filter(|(_, other)| !other.is_undecided);
            let mut pools = decided.flat_map(|(_, other)| other.pools.and(standing.pools).iter());
            if let Some(index) = pools.next() {
                return self.view.policy.pools().get(index);
            }
        }
        super::pool_of(self.view, node, standing).or(self.pools.first().copied())
    }

    /// Whether all nodes have what the contract writes, or none; or else what is said of the group, once. The contract
    /// decides who is right, however few they are: what is wrong with a node itself is said of that.
    fn judge_template(&self) -> Option<Finding> {
        let mut wrong = Vec::new();
        let (mut labels, mut taints) = (BTreeSet::new(), BTreeSet::new());
        // The labels that some node has which should, and nothing for the taints.
        let mut right: BTreeSet<Option<&str>> = BTreeSet::new();
        let mut lacking: Vec<(usize, Option<&str>, String)> = Vec::new();
        for (place, (node, standing)) in self.members.iter().enumerate() {
            let Some(pool) = self.pool_of(node, *standing) else { continue };
            for (key, value) in &pool.node_selector {
                if label(node, key) == Some(value) {
                    right.insert(Some(key));
                } else {
                    lacking.push((place, Some(key), format!("{key}={value}")));
                }
            }
            let missing = pool.taints.iter().filter(|taint| !node.fact.has_taint(taint)).map(ToString::to_string);
            let before = lacking.len();
            lacking.extend(missing.map(|taint| (place, None, taint)));
            if lacking.len() == before {
                right.insert(None);
            }
        }
        // What no node has is no difference between them.
        for (place, key, text) in lacking.into_iter().filter(|(_, key, _)| right.contains(key)) {
            if wrong.last() != Some(&place) {
                wrong.push(place);
            }
            if key.is_some() {
                labels.insert(text)
            } else {
                taints.insert(text)
            };
        }
        let (node, standing) = self.members.get(*wrong.first()?)?;
        let pool = self.pool_of(node, *standing)?;
        let names: Vec<_> =
            wrong.iter().filter_map(|place| self.members.get(*place)).map(|(node, _)| &*node.name).collect();
        let what = |what: &str, texts: BTreeSet<String>| match texts.len() {
            0 => None,
            _ => Some(format!("the {what} {}", texts.into_iter().collect::<Vec<_>>().join(", "))),
        };
        let field = if labels.is_empty() { "spec.taints" } else { "metadata.labels" };
        let lack: Vec<_> = [what("label", labels), what("taint", taints)].into_iter().flatten().collect();
        let message = format!(
            "{} of {} nodes of the {} differ from the others: they lack {} ({})",
            wrong.len(),
            self.members.len(),
            self.name,
            lack.join(" and "),
            few(&names)
        );
        let taints: Vec<_> = pool.taints.iter().map(ToString::to_string).collect();
        let action = format!(
            "let the template of the {} say what the contract says (label {}, taint {}), and replace its nodes that lack it \
             by new ones: what is mended on a node alone is lost with it",
            visible(self.name),
            pool.labels_text(","),
            taints.join(", ")
        );
        let finding = Finding::new(Check::NodeGroupDrift, Severity::Medium, object(node), visible(&message), action);
        let finding = finding.at(field).particularly("template");
        Some(if standing.is_undecided { finding } else { finding.in_pool(&pool.name) })
    }

    fn replacement(&self, node: &Node) -> String {
        format!(
            "{}, and nvidia-smi on it: a GPU that is lost, another machine, or another setting; replace the node by a new \
             one of the {}",
            command("kubectl describe node", &[&*node.name], ""),
            visible(self.name)
        )
    }

    /// What to do about the label of a model.
    fn relabelling(&self, node: &Node, key: &str) -> String {
        let models =
            self.pools.iter().filter_map(|pool| pool.models.as_ref()).filter(|models| models.node_label == key);
        let values: BTreeSet<_> = models.flat_map(|models| models.values.iter().map(String::as_str)).collect();
        let values: Vec<_> = values.into_iter().collect();
        format!(
            "{}, with the one of {} that it has, and the same on the others of the {}",
            label_command(&node.name, &[format!("{key}=MODEL")], true),
            values.join(", "),
            visible(self.name)
        )
    }

    /// All that the contract does not write but is alike in one group, in the order in which it is said.
    fn traits(&self) -> Vec<Trait<'_>> {
        let models = self.pools.iter().filter_map(|pool| pool.models.as_ref().map(|models| models.node_label.as_str()));
        let is_written = |key: &&str| self.pools.iter().any(|pool| pool.node_selector.contains_key(*key));
        let labels: BTreeSet<_> = models.filter(|key| !is_written(key)).collect();
        let amounts = self.members.iter().flat_map(|(node, _)| node.capacity.extended.iter());
        let resources: BTreeSet<&str> = amounts
            .map(|(resource, _)| &**resource)
            .filter(|resource| self.pools.iter().any(|pool| pool.resources.matches(resource)))
            .collect();
        labels
            .into_iter()
            .map(|key| Trait::Label { key })
            .chain(resources.into_iter().map(|resource| Trait::Capacity { resource }))
            .collect()
    }

    /// How some of the nodes differ from most of them; where there are no most, from those that have more.
    fn compare(&self, aspect: &Trait<'_>, places: &[usize]) -> Vec<(usize, String)> {
        let mut by_value: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for place in places {
            if let Some((node, _)) = self.members.get(*place) {
                by_value.entry(value(aspect, node)).or_default().push(*place);
            }
        }
        let most = by_value.values().map(Vec::len).max().unwrap_or_default();
        let is_tie = by_value.values().filter(|places| places.len() == most).count() > 1;
        let usual = by_value.iter().filter(|(_, places)| places.len() == most);
        let Some(usual) = usual.map(|(value, _)| value).max_by_key(|value| worth(aspect, value)) else {
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
}

/// What nodes must have in common to be compared. A template may allow several machines.
fn likeness<'n>(aspect: &Trait<'_>, node: &'n Node) -> Vec<&'n str> {
    let of = |key| label(node, key).unwrap_or_default();
    match aspect {
        Trait::Capacity { .. } => vec![of(INSTANCE_TYPE), of(MIG_CONFIG)],
        Trait::Label { .. } => vec![of(INSTANCE_TYPE)],
    }
}

/// What decides between values that equally many nodes have: the greater number, and something rather than nothing.
fn worth(aspect: &Trait<'_>, value: &str) -> (i64, bool) {
    match aspect {
        Trait::Label { .. } => (0, !value.is_empty()),
        Trait::Capacity { .. } => (value.parse().unwrap_or_default(), false),
    }
}

/// The value of a trait; empty where there is none.
fn value(aspect: &Trait<'_>, node: &Node) -> String {
    match aspect {
        Trait::Label { key } => label(node, key).map(|value| visible(value).into_owned()).unwrap_or_default(),
        Trait::Capacity { resource } => match node.capacity.of(resource) {
            0 => String::new(),
            amount => amount.to_string(),
        },
    }
}

/// How a node differs; `most` says how many are otherwise.
fn difference(aspect: &Trait<'_>, own: &str, usual: &str, most: &str) -> String {
    match (aspect, own, usual) {
        (Trait::Label { key }, "", usual) => format!("lacks the label {key}={usual}, which {most} have"),
        (Trait::Label { key }, own, "") => format!("has the label {key}={own}, where {most} have none of that key"),
        (Trait::Label { key }, own, usual) => format!("has the label {key}={own}, where {most} have {key}={usual}"),
        (Trait::Capacity { resource }, "", usual) => format!("has no {resource}, where {most} have {usual}"),
        (Trait::Capacity { resource }, own, "") => format!("has {own} {resource}, where {most} have none"),
        (Trait::Capacity { resource }, own, usual) => format!("has {own} {resource}, where {most} have {usual}"),
    }
}
