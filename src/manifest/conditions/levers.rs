//! Of Namespaces and Nodes only changes to what the fence stands on are asked about: a cluster's heartbeats, and
//! everything else that is written about its nodes, wait for nobody.

use super::{MatchCondition, list};
use crate::policy::{LeverKind, Policy};

/// For the hook that judges changes to what the fence stands on.
#[must_use]
pub fn of_levers(policy: &Policy) -> Vec<MatchCondition> {
    let (namespaces, nodes) = (LeverKind::Namespace.resource(), LeverKind::Node.resource());
    // Of a new one the name decides as well.
    let new = if policy.guards_namespace_names() { "oldObject == null ||\n  " } else { "" };
    let changes = format!(
        "request.resource.resource == '{namespaces}' ?\n  {new}{} :\n  {} ||\n  \
         {} ||\n  oldObject != null && {} ||\n  {}",
        labels_differ(&list(policy.guarded_namespace_labels())),
        labels_differ(&list(policy.guarded_node_labels())),
        too_many_taints("object"),
        too_many_taints("oldObject"),
        taints_differ(&list(policy.guarded_node_taints())),
    );
    // By the same marks as the API server's node authorizer.
    let registers = format!(
        "request.resource.resource == '{nodes}' && oldObject == null &&\n  \
         request.userInfo.username == 'system:node:' + object.metadata.?name.orValue('') &&\n  \
         'system:nodes' in request.userInfo.?groups.orValue([])"
    );
    vec![
        MatchCondition { name: "changes-what-the-fence-stands-on", expression: changes },
        MatchCondition { name: "is-not-a-kubelet-that-registers", expression: format!("!({registers})") },
    ]
}

/// Whether a label differs, or is there on a new object. No label has the value that stands for its absence.
fn labels_differ(keys: &str) -> String {
    let value = |object: &str| format!("{object}.metadata.?labels[?key].orValue('-')");
    format!("{keys}.exists(key, {} !=\n    (oldObject == null ? '-' : {}))", value("object"), value("oldObject"))
}

/// Whether a node has more taints than are gone through, which none has that is meant well.
fn too_many_taints(object: &str) -> String {
    const MOST: usize = 1_000;
    format!("{object}.?spec.?taints.orValue([]).size() > {MOST}")
}

/// Whether the taints of these keys differ. In another order they do too: that costs a call.
fn taints_differ(keys: &str) -> String {
    let taints =
        |object: &str| format!("{object}.?spec.?taints.orValue([]).filter(taint, taint.?key.orValue('') in {keys})");
    format!("{} !=\n    (oldObject == null ? [] : {})", taints("object"), taints("oldObject"))
}
