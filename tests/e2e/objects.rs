use serde_json::{Value, json};

use crate::contract::{LABEL, exact_toleration};
use crate::features::has_resource;

/// A pod that is being written. It names no image that there is and no scheduler that runs, so that in a
/// cluster with nodes it stays where it is.
#[derive(Debug, Clone)]
pub struct Pod(Value);

impl Pod {
    pub fn named(name: &str) -> Self {
        Self(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "automountServiceAccountToken": false,
                "schedulerName": "nobody",
                "terminationGracePeriodSeconds": 0,
                "containers": [container("main")],
            },
        }))
    }

    pub fn tolerating(mut self, toleration: &Value) -> Self {
        list(&mut self.0["spec"]["tolerations"]).push(toleration.clone());
        self
    }

    pub fn selecting(mut self, label: &str, value: &str) -> Self {
        self.0["spec"]["nodeSelector"][label] = value.into();
        self
    }

    /// The container limits a resource, and so requests it.
    pub fn limiting(mut self, resource: &str, quantity: impl Into<Value>) -> Self {
        self.0["spec"]["containers"][0]["resources"]["limits"][resource] = quantity.into();
        self
    }

    /// The container limits and requests a resource.
    pub fn requesting(mut self, resource: &str, quantity: impl Into<Value> + Clone) -> Self {
        self.0["spec"]["containers"][0]["resources"]["requests"][resource] = quantity.clone().into();
        self.limiting(resource, quantity)
    }

    /// One GPU.
    pub fn with_gpu(self) -> Self {
        self.requesting("nvidia.com/gpu", 1)
    }

    /// An init container that limits a resource; with a restart policy it is a sidecar.
    pub fn with_init_container(mut self, resource: &str, restart_policy: Option<&str>) -> Self {
        let mut init = container("init");
        init["resources"]["limits"][resource] = 1.into();
        if let Some(policy) = restart_policy {
            init["restartPolicy"] = policy.into();
        }
        list(&mut self.0["spec"]["initContainers"]).push(init);
        self
    }

    /// Any other field.
    pub fn with(mut self, pointer: &[&str], value: impl Into<Value>) -> Self {
        let mut field = &mut self.0;
        for key in pointer {
            field = &mut field[*key];
        }
        *field = value.into();
        self
    }

    /// An owner that controls the pod.
    pub fn owned_by(self, owner: &Value) -> Self {
        let reference = json!([{
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": true,
        }]);
        self.with(&["metadata", "ownerReferences"], reference)
    }

    /// The pod as it is sent.
    pub fn in_namespace(&self, namespace: &str) -> Value {
        let mut pod = self.0.clone();
        pod["metadata"]["namespace"] = namespace.into();
        pod
    }
}

/// What carries the template of a pod.
pub const TEMPLATES: [&str; 8] =
    ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController", "PodTemplate"];

/// An object of one of [`TEMPLATES`] with the pod as its template, and the path of the pod in it.
pub fn workload(kind: &str, name: &str, namespace: &str, pod: &Pod) -> (Value, &'static str) {
    let Pod(pod) = pod;
    let mut template = json!({"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]});
    let selector = &pod["metadata"]["labels"];
    let matching = json!({"matchLabels": selector});
    let metadata = json!({"name": name, "namespace": namespace});
    let object = |api_version: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    match kind {
        "Job" | "CronJob" => {
            template["spec"]["restartPolicy"] = "Never".into();
            let job = json!({"template": template});
            if kind == "Job" {
                return (object("batch/v1", job), "spec.template.");
            }
            let version = if has_resource("/apis/batch/v1", "cronjobs") { "batch/v1" } else { "batch/v1beta1" };
            let spec = json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": job}});
            (object(version, spec), "spec.jobTemplate.spec.template.")
        }
        "PodTemplate" => {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "template": template});
            (object, "template.")
        }
        "ReplicationController" => {
            (object("v1", json!({"replicas": 0, "selector": selector, "template": template})), "spec.template.")
        }
        "StatefulSet" => {
            let spec = json!({"replicas": 0, "serviceName": name, "selector": matching, "template": template});
            (object("apps/v1", spec), "spec.template.")
        }
        "DaemonSet" => {
            // No node has it, so that no controller makes pods.
            template["spec"]["nodeSelector"]["e2e.gpufence.example/node"] = "none".into();
            (object("apps/v1", json!({"selector": matching, "template": template})), "spec.template.")
        }
        _ => {
            let spec = json!({"replicas": 0, "selector": matching, "template": template});
            (object("apps/v1", spec), "spec.template.")
        }
    }
}

/// A configuration of the API server's own admission.
pub fn api_server_object(kind: &str, name: &str, fields: &Value) -> Value {
    let mut object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// A node for a test's pods, which no other test's may use.
pub fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [{"key": "e2e.gpufence.example/node", "effect": "NoSchedule"}]},
    })
}

/// What the fence makes of the spec of a GPU pod.
pub fn completed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    list(&mut spec["tolerations"]).push(exact_toleration());
    spec["nodeSelector"][LABEL] = "nvidia".into();
    spec
}

/// How many of the pod's tolerations are the exact one.
pub fn exact_tolerations(pod: &Value) -> usize {
    let tolerations = pod["spec"]["tolerations"].as_array();
    tolerations.map_or(0, |list| list.iter().filter(|toleration| **toleration == exact_toleration()).count())
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": "registry.invalid/e2e:1"})
}

/// The list, made where there is none.
fn list(value: &mut Value) -> &mut Vec<Value> {
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().unwrap()
}
