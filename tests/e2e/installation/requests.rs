use serde_json::{Value, json};

pub const LABEL: &str = "workload.example.com/accelerator";

/// A pod that has nothing to do with GPUs.
pub fn ordinary(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-", "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": false,
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.invalid/e2e:1"}],
        },
    })
}

/// A pod that passes the taint.
pub fn tolerating(namespace: &str) -> Value {
    let mut pod = ordinary(namespace);
    pod["spec"]["tolerations"] = json!([exact_toleration()]);
    pod
}

/// A pod that requests a GPU.
pub fn gpu(namespace: &str) -> Value {
    let mut pod = ordinary(namespace);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    pod
}

/// The toleration of the taint, as it is injected.
pub fn exact_toleration() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

/// The tolerations that the API server itself gives nobody.
pub fn tolerations(pod: &Value) -> Vec<Value> {
    let tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let own = |toleration: &Value| toleration["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"));
    tolerations.into_iter().filter(|toleration| !own(toleration)).collect()
}
