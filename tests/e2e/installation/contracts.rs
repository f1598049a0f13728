use std::net::TcpListener;

use serde_json::{Value, json};

/// The contract of most tests, in a mode.
pub fn contract(mode: &str) -> Value {
    let [https, metrics] = free_ports();
    json!({
        "mode": mode,
        "pools": [{
            "name": "nvidia",
            "resources": ["nvidia.com/gpu", "nvidia.com/mig-*"],
            "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
            "nodeSelector": {"workload.example.com/accelerator": "nvidia"},
            "namespaces": {"names": ["ml-*"]},
        }],
        "server": {"listen": format!("0.0.0.0:{https}"), "metrics": format!("0.0.0.0:{metrics}"), "drain": "1s"},
        "log": {"level": "info", "format": "json"},
    })
}

/// The contract's other form of allowlist: by the labels of namespaces.
pub fn with_selector(mut contract: Value) -> Value {
    contract["pools"][0]["namespaces"]["selector"] = json!({"matchLabels": {"gpu.example.com/allowed": "true"}});
    contract
}

/// Ports that are free now.
fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}
