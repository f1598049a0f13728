use serde_json::{Value, json};

use crate::cluster::cluster;

/// The taint of the pool's nodes, as a toleration names it exactly.
pub fn exact_toleration() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

/// The label of the pool's nodes.
pub const LABEL: &str = "workload.example.com/accelerator";

/// The annotation, and the label of nodes, that name a model.
pub const MODEL: &str = "gpu.example.com/model";

/// The only DaemonSet that is exempt, in namespaces `agents-*`.
pub const AGENT: &str = "node-agent";

/// The annotation by which a kubelet marks the mirror of a static pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// A contract: one pool, which namespaces `ml-*` may use.
#[derive(Debug, Clone)]
pub struct Contract(Value);

impl Contract {
    pub fn of_mode(mode: &str) -> Self {
        let certificates = &cluster().certificates;
        let address = cluster().webhook_address;
        Self(json!({
            "mode": mode,
            "pools": [{
                "name": "nvidia",
                "resources": ["nvidia.com/gpu", "nvidia.com/mig-*"],
                "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
                "nodeSelector": {LABEL: "nvidia"},
                "namespaces": {"names": ["ml-*"]},
                "models": {"annotation": MODEL, "nodeLabel": MODEL, "values": ["a100", "h100"]},
            }],
            "exemptions": [{
                "name": "node-agents",
                "reason": "agents run on every node",
                "namespaces": ["agents-*"],
                "daemonSets": [AGENT],
            }],
            "server": {"listen": format!("{address}:0"), "metrics": "127.0.0.1:0", "drain": "0s"},
            "tls": {"source": "files", "cert": certificates.certificate, "key": certificates.key},
            "log": {"level": "info", "format": "json"},
        }))
    }

    pub fn enforcing() -> Self {
        Self::of_mode("enforce")
    }

    /// The same with another value for a key.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0[key] = value.into();
        self
    }

    /// The same with another value for a key of its pool.
    pub fn with_pool(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0["pools"][0][key] = value.into();
        self
    }

    /// As YAML, which JSON is.
    pub fn text(&self) -> String {
        self.0.to_string()
    }
}
