//! Clusters from a few lines, as an API server would show them.

use serde_json::{Map, Value, json};

use gpufence::audit::snapshot::Builder;
use gpufence::audit::{Audit, Finding, Resource, Snapshot, audit};
use gpufence::contract::Contract;
use gpufence::policy::Policy;

/// The time against which audits are held here: 2026-11-30T12:00:00Z.
pub const NOW: i64 = 1_796_040_000;

/// One pool `nvidia`: label `accelerator=nvidia`, taint `dedicated=gpu:NoSchedule`, for the namespace `ml`.
pub const CONTRACT: &str = "
mode: enforce
pools:
  - name: nvidia
    resources: [nvidia.com/gpu, 'nvidia.com/mig-*']
    taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
    nodeSelector: {accelerator: nvidia}
    namespaces: {names: [ml]}
exemptions: []
";

pub fn policy(contract: &str) -> Policy {
    Contract::read("contract.yaml".as_ref(), contract.as_bytes(), []).unwrap().policy
}

/// A cluster, whose objects are all known.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub objects: Vec<Value>,
    pub contract: String,
}

impl Cluster {
    /// The namespaces that every cluster has, and `ml` and `web`.
    pub fn new() -> Self {
        let cluster = Self { objects: Vec::new(), contract: CONTRACT.to_owned() };
        ["default", "kube-system", "ml", "web"].into_iter().fold(cluster, Self::namespace)
    }

    pub fn contract(self, contract: &str) -> Self {
        Self { contract: contract.to_owned(), ..self }
    }

    pub fn namespace(self, name: &str) -> Self {
        self.object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    }

    pub fn object(mut self, object: impl Into<Value>) -> Self {
        self.objects.push(object.into());
        self
    }

    pub fn objects(self, objects: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        objects.into_iter().fold(self, Self::object)
    }

    pub fn snapshot(&self, policy: &Policy) -> Snapshot {
        let mut builder = Builder::new(policy);
        let list = self.list().to_string();
        builder.take_all("cluster.json", list.as_bytes());
        for resource in Resource::ALL {
            builder.completes(resource);
        }
        builder.finish()
    }

    pub fn audit(&self) -> Audit {
        let policy = policy(&self.contract);
        audit(&policy, &self.snapshot(&policy), "cluster.json", NOW)
    }

    /// As `kubectl get --output json` prints it.
    pub fn list(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "List", "items": self.objects})
    }
}

/// The findings of a rule, each as `Kind namespace/name`.
pub fn found(audit: &Audit, rule: &str) -> Vec<String> {
    findings(audit, rule).map(|finding| finding.object.to_string()).collect()
}

pub fn findings<'a>(audit: &'a Audit, rule: &'a str) -> impl Iterator<Item = &'a Finding> {
    audit.findings.iter().filter(move |finding| finding.rule.id() == rule)
}

/// A node with 64 cores, 512Gi and 110 places, ready, without GPUs.
#[derive(Debug, Clone)]
pub struct Node(Value);

pub fn node(name: &str) -> Node {
    let amounts = json!({"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"});
    Node(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
}

/// A node with eight GPUs that is as the contract wants it.
pub fn gpu_node(name: &str) -> Node {
    node(name).gpus(8).label("accelerator", "nvidia").taint("dedicated", "gpu", "NoSchedule")
}

impl Node {
    pub fn gpus(self, count: i64) -> Self {
        self.has("nvidia.com/gpu", &count.to_string())
    }

    /// Capacity and allocatable amount of a resource.
    pub fn has(mut self, resource: &str, amount: &str) -> Self {
        self.0["status"]["capacity"][resource] = amount.into();
        self.0["status"]["allocatable"][resource] = amount.into();
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    pub fn without_label(mut self, key: &str) -> Self {
        self.0["metadata"]["labels"].as_object_mut().unwrap().remove(key);
        self
    }

    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        let taint = json!({"key": key, "value": value, "effect": effect});
        let taints = self.0["spec"].as_object_mut().unwrap().entry("taints").or_insert_with(|| json!([]));
        taints.as_array_mut().unwrap().push(taint);
        self
    }

    pub fn untainted(mut self) -> Self {
        self.0["spec"].as_object_mut().unwrap().remove("taints");
        self
    }

    pub fn cordoned(mut self) -> Self {
        self.0["spec"]["unschedulable"] = true.into();
        self
    }

    pub fn not_ready(mut self) -> Self {
        self.0["status"]["conditions"][0]["status"] = "False".into();
        self
    }

    pub fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.0);
        self
    }
}

/// A pod that was created without a node's name and is running where the scheduler put it, if anywhere.
#[derive(Debug, Clone)]
pub struct Pod(Value);

/// `name` is `namespace/name`.
pub fn pod(name: &str) -> Pod {
    let (namespace, name) = name.split_once('/').unwrap();
    Pod(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": format!("uid-{namespace}-{name}"),
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:containers": {}}}}],
        },
        "spec": {"containers": [{"name": "main", "image": "main", "resources": {}}]},
        "status": {"phase": "Running"},
    }))
}

impl Pod {
    pub fn on(mut self, node: &str) -> Self {
        self.0["spec"]["nodeName"] = node.into();
        self
    }

    /// Requests and limits of the only container.
    pub fn requests(mut self, resource: &str, amount: &str) -> Self {
        for kind in ["requests", "limits"] {
            self.0["spec"]["containers"][0]["resources"][kind][resource] = amount.into();
        }
        self
    }

    pub fn gpus(self, count: i64) -> Self {
        self.requests("nvidia.com/gpu", &count.to_string())
    }

    /// As the webhook completes it for [`CONTRACT`].
    pub fn placed(self) -> Self {
        self.tolerates(json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}))
            .selects("accelerator", "nvidia")
    }

    pub fn tolerates(mut self, toleration: Value) -> Self {
        let tolerations = self.0["spec"].as_object_mut().unwrap().entry("tolerations").or_insert_with(|| json!([]));
        tolerations.as_array_mut().unwrap().push(toleration);
        self
    }

    pub fn selects(mut self, label: &str, value: &str) -> Self {
        self.0["spec"]["nodeSelector"][label] = value.into();
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// `owner` is `Kind/name`, of Kubernetes' own kinds.
    pub fn owned_by(mut self, owner: &str) -> Self {
        self.0["metadata"]["ownerReferences"] = owners(owner);
        self
    }

    pub fn phase(mut self, phase: &str) -> Self {
        self.0["status"]["phase"] = phase.into();
        self
    }

    /// Waiting, with these words of the scheduler.
    pub fn unschedulable(mut self, message: &str) -> Self {
        self.0["status"] = json!({
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
            ],
        });
        self
    }

    pub fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.0);
        self
    }
}

/// An owner reference to one of Kubernetes' own kinds; `owner` is `Kind/name`.
pub fn owners(owner: &str) -> Value {
    let (kind, name) = owner.split_once('/').unwrap();
    let api_version = match kind {
        "Job" | "CronJob" => "batch/v1",
        "Node" | "ReplicationController" => "v1",
        _ => "apps/v1",
    };
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true}])
}

/// A workload of one of Kubernetes' own kinds, whose pods are as the given one; `name` is `namespace/name`.
pub fn workload(kind: &str, name: &str, pod: impl Into<Value>) -> Value {
    let pod: Value = pod.into();
    let (namespace, name) = name.split_once('/').unwrap();
    let api_version = match kind {
        "Job" | "CronJob" => "batch/v1",
        "ReplicationController" | "PodTemplate" => "v1",
        _ => "apps/v1",
    };
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        if let Some(map) = pod["metadata"].get(key) {
            metadata.insert(key.to_owned(), map.clone());
        }
    }
    let template = json!({"metadata": metadata, "spec": pod["spec"]});
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
    });
    match kind {
        "PodTemplate" => object["template"] = template,
        "CronJob" => object["spec"]["jobTemplate"]["spec"]["template"] = template,
        _ => object["spec"]["template"] = template,
    }
    object
}

macro_rules! into_value {
    ($($name:ident)*) => { $(
        impl From<$name> for Value {
            fn from(object: $name) -> Self {
                object.0
            }
        }
    )* };
}
into_value!(Node Pod);
