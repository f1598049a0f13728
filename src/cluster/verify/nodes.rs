//! Whether the nodes keep their side of the contract: the pool's label and its taints.

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

use super::Check;
use crate::policy::{Policy, Pool, Quantity};

const NODES: &str = "nodes";

/// How many nodes are read at once.
const PAGE: u32 = 500;

/// How many faulty nodes are named.
const NAMED: usize = 10;

/// Nodes with GPUs carry the label and the taints of a pool, and nodes with the label the taints.
pub(super) async fn check(client: &Client, policy: &Policy, checks: &mut Vec<Check>) {
    let nodes = match list(client).await {
        Ok(nodes) => nodes,
        Err(error) => return checks.push(Check::unanswered(NODES, "the nodes cannot be listed", &error)),
    };
    let judged: Vec<_> = nodes.iter().filter_map(|node| judge(node, policy.pools())).collect();
    let faulty: Vec<_> = judged.iter().filter_map(|verdict| verdict.as_ref().err()).cloned().collect();
    let more = faulty.len().saturating_sub(NAMED);
    let right = judged.len() - faulty.len();
    checks.extend(faulty.into_iter().take(NAMED));
    if more > 0 {
        checks.push(Check::failed(
            NODES,
            format!("{more} more nodes are not right"),
            "mend their node group's template",
        ));
    }
    checks.push(match (judged.len(), right) {
        (0, _) => Check::skipped(
            NODES,
            format!("none of the {} nodes offers a pool's resource or carries a pool's label", nodes.len()),
            "label and taint the GPU nodes as the contract says: gpufence config",
        ),
        (all, right) if all == right => {
            Check::passed(NODES, format!("all {all} GPU nodes carry the label and the taints of their pool"))
        }
        (all, right) => Check::skipped(NODES, format!("{right} of {all} GPU nodes are right"), "see the nodes before"),
    });
}

async fn list(client: &Client) -> Result<Vec<Node>, kube::Error> {
    let api = Api::<Node>::all(client.clone());
    let mut nodes = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        nodes.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(nodes),
        }
    }
}

/// `None` for a node that has nothing to do with GPUs.
fn judge(node: &Node, pools: &[Pool]) -> Option<Result<(), Check>> {
    let capacity = node.status.iter().flat_map(|status| status.capacity.iter().flatten());
    let resources: Vec<_> = capacity
        .filter(|(_, quantity)| Quantity::parse(&quantity.0).is_ok_and(Quantity::is_positive))
        .map(|(resource, _)| resource.as_str())
        .collect();
    let offers = |pool: &&Pool| resources.iter().any(|resource| pool.resources.matches(resource));
    let labelled = pools.iter().filter(|pool| has_labels(node, pool));
    if labelled.clone().any(|pool| pool.taints.iter().all(|taint| has_taint(node, taint))) {
        return Some(Ok(()));
    }
    // The labels of one pool may be among those of another: the closest is meant.
    let labelled = labelled.max_by_key(|pool| pool.node_selector.len());
    let candidates: Vec<_> = pools.iter().filter(offers).collect();
    // The pool whose label the node carries is the one that it means; without one it could be any that offers
    // what it has.
    let pool = labelled.or_else(|| candidates.first().copied())?;
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let is_labelled = labelled.is_some();
    let untainted: Vec<_> =
        pool.taints.iter().filter(|taint| !has_taint(node, taint)).map(ToString::to_string).collect();
    Some(match (is_labelled, untainted.is_empty()) {
        (true, _) => Err(Check::failed(
            NODES,
            format!(
                "the node {name} of the pool {} lacks the taint {}: any pod may run on it",
                pool.name,
                untainted.join(", ")
            ),
            format!("kubectl taint node {name} {}", untainted.join(" ")),
        )),
        (false, true) => Err(Check::failed(
            NODES,
            format!(
                "the node {name} has GPUs and the taints of the pool {}, and lacks its label {}: no GPU pod finds it",
                pool.name,
                pool.labels_text(",")
            ),
            format!("kubectl label node {name} {}", pool.labels_text(" ")),
        )),
        (false, false) => Err(Check::failed(
            NODES,
            format!(
                "the node {name} offers {} and belongs to no pool: it has neither the label {} nor the taint {}",
                resources
                    .iter()
                    .filter(|resource| pool.resources.matches(resource))
                    .copied()
                    .collect::<Vec<_>>()
                    .join(", "),
                pool.labels_text(","),
                untainted.join(", ")
            ),
            format!(
                "kubectl label node {name} {} && kubectl taint node {name} {}",
                pool.labels_text(" "),
                untainted.join(" ")
            ),
        )),
    })
}

fn has_labels(node: &Node, pool: &Pool) -> bool {
    let labels = node.metadata.labels.as_ref();
    pool.is_met_by(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}

fn has_taint(node: &Node, wanted: &crate::policy::Taint) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| {
        taint.key == wanted.key
            && taint.value.as_deref().unwrap_or_default() == wanted.value
            && taint.effect == wanted.effect.as_str()
    })
}

#[cfg(test)]
mod tests;
