//! AdmissionReviews of a given size, as kube-apiserver writes them.

use serde_json::json;

/// What the pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pod {
    /// Nothing of a pool: the common case.
    Ordinary,
    /// A GPU, in an allowed namespace.
    Gpu,
    /// Nothing of a pool, and put onto a node.
    #[allow(dead_code, reason = "not every benchmark has caches")]
    Placed,
}

/// A review of a pod's creation of about `bytes` bytes. It grows as real pods do: containers with
/// environment, probes and mounts, a large annotation, and managedFields for all of it.
pub(crate) fn review(pod: Pod, bytes: usize) -> String {
    let mut containers = 1;
    loop {
        let text = review_with(pod, containers);
        if text.len() >= bytes || containers > 10_000 {
            return text;
        }
        containers += 1 + (bytes - text.len()) / 2_000;
    }
}

fn review_with(pod: Pod, containers: usize) -> String {
    let resources = match pod {
        Pod::Ordinary | Pod::Placed => {
            json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}})
        }
        Pod::Gpu => json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}),
    };
    let container = |index: usize| {
        let mut container = json!({
            "name": format!("container-{index}"),
            "image": "registry.example.com/team/application:2026.11.30-3b54c1c8",
            "command": ["/app/server", "--listen=:8080", "--log-format=json"],
            "resources": if index == 0 { resources.clone() } else { json!({}) },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{
                "name": "kube-api-access-tk6xq",
                "readOnly": true,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }],
        });
        if index > 0 {
            let environment: Vec<_> = (0..12)
                .map(|variable| json!({"name": format!("SETTING_{variable}"), "value": "jdbc:postgresql://db.example.com/x"}))
                .collect();
            container["env"] = environment.into();
            container["readinessProbe"] = json!({
                "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            });
        }
        container
    };
    let fields: Vec<_> = (0..containers)
        .map(|index| {
            let key = format!("k:{{\"name\":\"container-{index}\"}}");
            json!({ key: {".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {}} })
        })
        .collect();
    let annotations = if containers > 1 {
        json!({"kubectl.kubernetes.io/last-applied-configuration": "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}\n".repeat(containers)})
    } else {
        json!({})
    };
    let mut object = json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "inference-cc69bb696-",
            "namespace": "ml-team",
            "labels": {"app": "inference", "pod-template-hash": "cc69bb696"},
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "inference-cc69bb696",
                "uid": "c0a5b0a8-52a8-4c7e-a8cf-7c7f9f3b6c11", "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-11-30T08:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:containers": fields}},
            }],
        },
        "spec": {
            "volumes": [{
                "name": "kube-api-access-tk6xq",
                "projected": {"sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ], "defaultMode": 420},
            }],
            "containers": (0..containers).map(container).collect::<Vec<_>>(),
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0,
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    });
    if pod == Pod::Placed {
        object["spec"]["nodeName"] = "gpu-node-00000".into();
    }
    // kube-apiserver's own order of keys, which a serde_json map would not keep.
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"7e2c0fd1-7e8a-48e3-bc1e-ee4b31915085","kind":{{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"requestKind":{{"group":"","version":"v1","kind":"Pod"}},"requestResource":{{"group":"","version":"v1","resource":"pods"}},"namespace":"ml-team","operation":"CREATE","userInfo":{{"username":"system:serviceaccount:kube-system:replicaset-controller","uid":"0f1c4d0e-8ad4-44d4-a4b5-0d0c41d1c2a7","groups":["system:serviceaccounts","system:serviceaccounts:kube-system","system:authenticated"]}},"object":{object},"oldObject":null,"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
}
