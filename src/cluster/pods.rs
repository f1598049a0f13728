//! The pods that are sent as dry runs. Each would be let in by every rule of the cluster but ours: it meets
//! the restricted pod security standard, and asks for next to nothing.

use serde_json::{Value, json};

use crate::policy::Pool;

/// What every image is: nothing is ever pulled.
const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// A pod that has nothing to do with GPUs.
#[must_use]
pub fn ordinary(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpufence-dry-run", "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "pause",
                "image": IMAGE,
                "resources": {
                    "requests": {"cpu": "1m", "memory": "1Mi"},
                    "limits": {"cpu": "1m", "memory": "1Mi"},
                },
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

/// A pod that passes the pool's taints and requests nothing of it.
#[must_use]
pub fn tolerating(namespace: &str, pool: &Pool) -> Value {
    let mut pod = ordinary(namespace);
    pod["spec"]["tolerations"] = tolerations(pool);
    pod
}

/// A pod that requests one of the resource, and says nothing else.
#[must_use]
pub fn requesting(namespace: &str, resource: &str) -> Value {
    let mut pod = ordinary(namespace);
    pod["spec"]["containers"][0]["resources"]["limits"][resource] = json!("1");
    pod
}

/// The exact tolerations of the pool's taints.
pub(super) fn tolerations(pool: &Pool) -> Value {
    let exact = pool.taints.iter().map(
        |taint| json!({"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.as_str()}),
    );
    exact.collect()
}
