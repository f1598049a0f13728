//! What runs: the contract, the Service, the Deployments and the PodDisruptionBudget.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Plan, Tls, audits, names, selector, with};

/// Beside the drain: requests in flight have 15 s to end, and what is left is for the process itself.
const FINISH: Duration = Duration::from_secs(20);

/// The user as whom everything runs. Owns nothing in the image or on the node.
const USER: u32 = 65532;

pub(super) fn all(plan: &Plan<'_>, contract: &str) -> Vec<Value> {
    let mut objects = vec![config_map(plan, contract), service(plan), webhook(plan), controller(plan)];
    if plan.options.kubernetes.has(21) {
        objects.push(disruption_budget(plan));
    }
    objects
}

fn config_map(plan: &Plan<'_>, contract: &str) -> Value {
    with(plan.object("v1", "ConfigMap", names::INSTANCE, None), json!({"data": {names::CONTRACT_KEY: contract}}))
}

fn service(plan: &Plan<'_>) -> Value {
    let ports = [names::HTTPS_PORT, names::METRICS_PORT]
        .map(|(name, port)| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": name}));
    let component = names::WEBHOOK_COMPONENT;
    with(
        plan.object("v1", "Service", names::INSTANCE, Some(component)),
        json!({"spec": {"type": "ClusterIP", "ports": ports, "selector": selector(component)}}),
    )
}

fn disruption_budget(plan: &Plan<'_>) -> Value {
    let component = names::WEBHOOK_COMPONENT;
    with(
        plan.object("policy/v1", "PodDisruptionBudget", names::INSTANCE, Some(component)),
        json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(component)}}}),
    )
}

fn webhook(plan: &Plan<'_>) -> Value {
    let server = &plan.contract.server;
    let mut volumes = vec![contract_volume()];
    let mut mounts = vec![mount("contract", names::CONTRACT_DIRECTORY)];
    if matches!(plan.options.tls, Tls::Files { .. } | Tls::CertManager) {
        // Read by the group, which fsGroup makes ours.
        volumes.push(json!({"name": "tls", "secret": {"secretName": names::TLS_SECRET, "defaultMode": 0o440}}));
        mounts.push(mount("tls", names::TLS_DIRECTORY));
    }
    deployment(
        plan,
        &Program {
            name: names::INSTANCE,
            component: names::WEBHOOK_COMPONENT,
            command: "serve",
            replicas: plan.options.replicas,
            ports: vec![
                port(names::HTTPS_PORT.0, server.listen.port()),
                port(names::METRICS_PORT.0, server.metrics.port()),
            ],
            // No preStop hook: the server itself goes on for `server.drain` while /readyz fails.
            grace: server.drain + FINISH,
            volumes,
            mounts,
            needs_api: plan.server_needs_api(),
            resources: if plan.contract.audit.is_on() { audits::resources() } else { resources() },
        },
    )
}

fn controller(plan: &Plan<'_>) -> Value {
    deployment(
        plan,
        &Program {
            name: names::CONTROLLER,
            component: names::CONTROLLER_COMPONENT,
            command: "controller",
            // One leads, the other takes over.
            replicas: 2,
            ports: vec![port(names::METRICS_PORT.0, plan.contract.server.metrics.port())],
            grace: Duration::from_secs(30),
            volumes: vec![contract_volume()],
            mounts: vec![mount("contract", names::CONTRACT_DIRECTORY)],
            needs_api: true,
            resources: resources(),
        },
    )
}

/// What tells the two Deployments apart.
struct Program {
    /// Of the Deployment and of its service account.
    name: &'static str,
    component: &'static str,
    command: &'static str,
    replicas: u16,
    ports: Vec<Value>,
    grace: Duration,
    volumes: Vec<Value>,
    mounts: Vec<Value>,
    needs_api: bool,
    resources: Value,
}

fn deployment(plan: &Plan<'_>, program: &Program) -> Value {
    let labels = selector(program.component);
    let spread = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map(|key| {
        json!({
            "labelSelector": {"matchLabels": labels},
            // Counts the pods of one revision alone, or an update would spread around those that leave.
            "matchLabelKeys": plan.options.kubernetes.has(27).then_some(["pod-template-hash"]),
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
        })
    });
    let pod = json!({
        "affinity": away_from_pools(plan),
        "automountServiceAccountToken": program.needs_api,
        "containers": [container(plan, program)],
        // The variables would look like ours.
        "enableServiceLinks": false,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "priorityClassName": plan.options.priority_class,
        "securityContext": pod_security(),
        "serviceAccountName": program.name,
        "terminationGracePeriodSeconds": program.grace.as_secs(),
        "topologySpreadConstraints": spread,
        "volumes": program.volumes,
    });
    with(
        plan.object("apps/v1", "Deployment", program.name, Some(program.component)),
        json!({
            "spec": {
                "replicas": program.replicas,
                "revisionHistoryLimit": 3,
                "selector": {"matchLabels": labels},
                // No replica goes before its successor is ready.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
    )
}

fn container(plan: &Plan<'_>, program: &Program) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, period: u8, failures: u8| {
        json!({
            "failureThreshold": failures,
            "httpGet": {"path": path, "port": names::METRICS_PORT.0},
            "periodSeconds": period,
            "timeoutSeconds": 2,
        })
    };
    json!({
        "name": names::INSTANCE,
        "image": plan.options.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [program.command],
        "env": [
            contract_environment(),
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
        ],
        "ports": program.ports,
        "livenessProbe": probe("/livez", 10, 3),
        "readinessProbe": probe("/readyz", 5, 2),
        "startupProbe": probe("/livez", 2, 30),
        "resources": program.resources,
        "securityContext": container_security(),
        "volumeMounts": program.mounts,
    })
}

/// No limit on CPU: a throttled webhook is a late one, and what it needs is far less than a core.
fn resources() -> Value {
    json!({"limits": {"memory": "192Mi"}, "requests": {"cpu": "50m", "memory": "64Mi"}})
}

/// What a pod has of the restricted pod security standard.
pub(super) fn pod_security() -> Value {
    json!({
        "fsGroup": USER,
        "runAsGroup": USER,
        "runAsNonRoot": true,
        "runAsUser": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// And a container.
pub(super) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
    })
}

/// The variable that names the contract.
pub(super) fn contract_environment() -> Value {
    json!({"name": "GPUFENCE_CONFIG", "value": format!("{}/{}", names::CONTRACT_DIRECTORY, names::CONTRACT_KEY)})
}

/// Rather on other nodes than on those of a pool: the taints keep the pods off, but a node may carry the
/// label before it carries the taint.
pub(super) fn away_from_pools(plan: &Plan<'_>) -> Value {
    let mut labels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, value) in plan.policy().pools().iter().flat_map(|pool| &pool.node_selector) {
        let values = labels.entry(key).or_default();
        if !values.contains(&value.as_str()) {
            values.push(value);
        }
    }
    let preferences: Vec<_> = labels
        .into_iter()
        .map(|(key, values)| {
            let expression = json!({"key": key, "operator": "NotIn", "values": values});
            json!({"preference": {"matchExpressions": [expression]}, "weight": 100})
        })
        .collect();
    json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}})
}

pub(super) fn contract_volume() -> Value {
    json!({"name": "contract", "configMap": {"name": names::INSTANCE}})
}

pub(super) fn mount(name: &str, path: &str) -> Value {
    json!({"name": name, "mountPath": path, "readOnly": true})
}

fn port(name: &str, number: u16) -> Value {
    json!({"name": name, "containerPort": number, "protocol": "TCP"})
}
