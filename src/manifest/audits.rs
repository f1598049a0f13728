//! What audits need: the rights of whoever makes them, and a CronJob where that is wanted.

use serde_json::{Value, json};

use super::access::rule;
use super::workloads::{
    away_from_pools, container_security, contract_environment, contract_volume, mount, pod_security,
};
use super::{Plan, names, selector, with};
use crate::contract::Reports;

/// What an audit lists, by API group. The audit itself has the same list, which no module below it may import; a test
/// holds the two together.
const READS: [(&str, &[&str]); 4] = [
    ("", &["events", "namespaces", "nodes", "pods", "podtemplates", "replicationcontrollers"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("batch", &["cronjobs", "jobs"]),
    ("policy", &["poddisruptionbudgets"]),
];

/// How long an audit may take: no API server takes that long to list a cluster.
const LIMIT: u16 = 1800;

/// For how long an audit whose time passed while nothing could start is still made.
const LATE: u16 = 3600;

/// The rights to make an audit in the whole cluster, and to keep its reports where the contract wants some.
pub(super) fn rights(plan: &Plan<'_>) -> Vec<Value> {
    let reads: &[&str] = &["list"];
    let mut rights: Vec<_> = READS.iter().map(|(group, resources)| of_group(group, resources, reads)).collect();
    let custom = plan.policy().custom_resources().iter();
    rights.extend(custom.map(|custom| rule(&custom.group, &custom.resource, None, reads)));
    let reports = match plan.contract.audit.reports {
        Reports::None => return rights,
        Reports::OpenReports => ("openreports.io", "clusterreports", "reports"),
        Reports::PolicyReports => ("wgpolicyk8s.io", "clusterpolicyreports", "policyreports"),
    };
    let (group, of_cluster, of_namespaces) = reports;
    // That of the cluster is always there; those of namespaces come and go.
    rights.push(of_group(group, &[of_cluster], &["get", "create", "update"]));
    rights.push(of_group(group, &[of_namespaces], &["get", "list", "create", "update", "delete"]));
    rights
}

fn of_group(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What the container of a process that audits may take: most of a cluster of 100,000 pods is in its memory then.
pub(super) fn resources() -> Value {
    json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "256Mi"}})
}

/// The CronJob, where one is wanted.
pub(super) fn cron_job(plan: &Plan<'_>) -> Option<Value> {
    let schedule = plan.options.audit_cron_job.as_ref()?;
    let component = names::AUDIT_COMPONENT;
    let labels = selector(component);
    let mut arguments = vec!["audit", "--output", "text", "--fail-on", "high"];
    let reports = plan.contract.audit.reports;
    if reports != Reports::None {
        arguments.extend(["--report", reports.as_str()]);
    }
    let container = json!({
        "name": names::INSTANCE,
        "image": plan.options.image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "env": [contract_environment()],
        "resources": resources(),
        "securityContext": container_security(),
        "volumeMounts": [mount("contract", names::CONTRACT_DIRECTORY)],
    });
    // Without a priority class: an audit may wait.
    let pod = json!({
        "affinity": away_from_pools(plan),
        "automountServiceAccountToken": true,
        "containers": [container],
        "enableServiceLinks": false,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "restartPolicy": "Never",
        "securityContext": pod_security(),
        "serviceAccountName": names::AUDIT,
        "volumes": [contract_volume()],
    });
    let job = json!({
        "activeDeadlineSeconds": LIMIT,
        // A job that failed has found something: another would find the same.
        "backoffLimit": 0,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    });
    let spec = json!({
        "concurrencyPolicy": "Forbid",
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"metadata": {"labels": labels}, "spec": job},
        "schedule": schedule,
        "startingDeadlineSeconds": LATE,
        "successfulJobsHistoryLimit": 1,
    });
    Some(with(plan.object("batch/v1", "CronJob", names::AUDIT, Some(component)), json!({"spec": spec})))
}
