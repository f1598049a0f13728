//! Whether the nodes keep their side of the contract: the pool's label, its taints, and GPUs that they can be used for.
//! The audit judges them; here they are listed.

use std::collections::BTreeMap;

use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Check;
use crate::audit::snapshot::Builder;
use crate::audit::{Audit, Resource, Severity, audit_nodes};
use crate::policy::Policy;

const NODES: &str = "nodes";

/// The collection's path.
const PATH: &str = "/api/v1/nodes";

/// How many nodes are read at once.
const PAGE: u32 = 500;

/// How many faulty nodes are named.
const NAMED: usize = 10;

/// Nodes with GPUs carry the label and the taints of a pool, and nodes with the label the taints.
pub(super) async fn check(client: &Client, policy: &Policy, checks: &mut Vec<Check>) {
    let mut builder = Builder::new(policy);
    if let Err(error) = list(client, &mut builder).await {
        return checks.push(Check::unanswered(NODES, "the nodes cannot be listed", &error));
    }
    builder.completes(Resource::Nodes);
    let snapshot = builder.finish();
    for fault in &snapshot.faults {
        checks.push(Check::failed(NODES, fault, "gpufence cannot judge this node: look at it with kubectl get node"));
    }
    conclude(&audit_nodes(policy, &snapshot, "the cluster"), checks);
}

/// A page of nodes, each as it stands.
#[derive(Debug, Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

async fn list(client: &Client, builder: &mut Builder<'_>) -> Result<(), kube::Error> {
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let request = kube::core::Request::new(PATH).list(&parameters).map_err(kube::Error::BuildRequest)?;
        let text = client.request_text(request).await?;
        let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        for item in &page.items {
            builder.take("a node", "v1", "Node", item.get());
        }
        match page.metadata.next.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// One line for each node of which the fence is open or the GPUs cannot be used, and one for all.
fn conclude(audit: &Audit, checks: &mut Vec<Check>) {
    let mut faulty: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for finding in audit.findings.iter().filter(|finding| finding.severity == Severity::High) {
        faulty.entry(&finding.object.name).or_default().push(finding);
    }
    let (all, right) = (audit.summary.gpu_nodes, audit.summary.gpu_nodes.saturating_sub(faulty.len()));
    let more = faulty.len().saturating_sub(NAMED);
    checks.extend(faulty.into_values().take(NAMED).map(|findings| {
        let messages: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
        let actions: Vec<_> = findings.iter().map(|finding| finding.action.as_str()).collect();
        Check::failed(NODES, messages.join("; "), actions.join(" && "))
    }));
    if more > 0 {
        checks.push(Check::failed(
            NODES,
            format!("{more} more nodes are not right"),
            "mend their node group's template; gpufence audit lists them all",
        ));
    }
    checks.push(match (all, right) {
        (0, _) => Check::skipped(
            NODES,
            format!(
                "none of the {} nodes offers a pool's resource or carries a pool's label or taint",
                audit.summary.nodes
            ),
            "label and taint the GPU nodes as the contract says: gpufence config",
        ),
        (all, right) if all == right => {
            Check::passed(NODES, format!("all {all} GPU nodes carry the label and the taints of their pool"))
        }
        (all, right) => Check::skipped(NODES, format!("{right} of {all} GPU nodes are right"), "see the nodes before"),
    });
}

#[cfg(test)]
mod tests;
