//! Namespaces, identities, and what each identity may do: no more than it does.

use serde_json::{Value, json};

use super::{Plan, audits, cluster_object, names, with};

/// The namespace of the installation, and the one in which dry runs are made and nothing ever runs.
pub(super) fn namespaces(plan: &Plan<'_>) -> Vec<Value> {
    let probe = names::probe_namespace(plan.namespace());
    let namespace = |name: &str| {
        let mut namespace = cluster_object("v1", "Namespace", name, None);
        for mode in ["enforce", "audit", "warn"] {
            namespace["metadata"]["labels"][format!("pod-security.kubernetes.io/{mode}")] = "restricted".into();
        }
        namespace
    };
    let mut quota =
        with(cluster_object("v1", "ResourceQuota", names::PROBE_QUOTA, None), json!({"spec": {"hard": {"pods": "0"}}}));
    quota["metadata"]["namespace"] = probe.as_str().into();
    vec![namespace(plan.namespace()), namespace(&probe), quota]
}

/// Service accounts, what they own, and their roles.
pub(super) fn identities(plan: &Plan<'_>) -> Vec<Value> {
    let (server, controller) = (names::INSTANCE, names::CONTROLLER);
    let mut objects = vec![account(plan, server), account(plan, controller)];
    if plan.options.audit_cron_job.is_some() {
        objects.push(account(plan, names::AUDIT));
    }
    // Here already, and empty, so that nobody needs the right to create such objects.
    if plan.is_managed() {
        let secret = plan.object("v1", "Secret", names::CA_SECRET, None);
        objects.push(with(secret, json!({"type": "Opaque"})));
    }
    let lease = |name| plan.object("coordination.k8s.io/v1", "Lease", name, None);
    let holding = |name| rule("coordination.k8s.io", "leases", Some(name), &["get", "update"]);
    objects.push(lease(names::CONTROLLER));

    let mut own = vec![rule("", "pods", None, &["get", "list"]), holding(names::CONTROLLER)];
    if plan.contract.audit.is_on() {
        objects.push(lease(names::AUDIT));
        // A role of its own: with another source of certificates that of the server has no place any more.
        objects.extend(role(plan, plan.namespace(), names::AUDIT, server, &[holding(names::AUDIT)]));
    }
    if plan.is_managed() {
        let secret = rule("", "secrets", Some(names::CA_SECRET), &["get", "list", "watch"]);
        objects.extend(role(plan, plan.namespace(), server, server, &[secret]));
        own.push(rule("", "secrets", Some(names::CA_SECRET), &["get", "update"]));
    }
    objects.extend(role(plan, plan.namespace(), controller, controller, &own));
    // The quota there refuses what this allows.
    let probe = names::probe_namespace(plan.namespace());
    objects.extend(role(plan, &probe, controller, controller, &[rule("", "pods", None, &["create"])]));

    let policy = plan.policy();
    let followed = [("namespaces", policy.reads_namespace_labels()), ("nodes", policy.reads_nodes())];
    let mut followed: Vec<_> = followed
        .into_iter()
        .filter(|(_, reads)| *reads)
        .map(|(resource, _)| rule("", resource, None, &["get", "list", "watch"]))
        .collect();
    if plan.contract.audit.is_on() {
        followed.extend(audits::rights(plan));
    }
    if plan.options.audit_cron_job.is_some() {
        objects.extend(cluster_role(plan, names::AUDIT, &audits::rights(plan)));
    }
    if !followed.is_empty() {
        objects.extend(cluster_role(plan, server, &followed));
    }
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
        .map(|resource| rule("admissionregistration.k8s.io", resource, Some(names::INSTANCE), &["get", "patch"]));
    objects.extend(cluster_role(plan, controller, &configurations));
    objects
}

/// The service account of the CronJob that audits, and its role.
pub(super) fn of_audits(plan: &Plan<'_>) -> Vec<Value> {
    let role = cluster_role(plan, names::AUDIT, &audits::rights(plan));
    std::iter::once(account(plan, names::AUDIT)).chain(role).collect()
}

fn account(plan: &Plan<'_>, name: &str) -> Value {
    // A pod that needs a token says so itself.
    with(plan.object("v1", "ServiceAccount", name, None), json!({"automountServiceAccountToken": false}))
}

pub(super) fn rule(group: &str, resource: &str, name: Option<&str>, verbs: &[&str]) -> Value {
    json!({
        "apiGroups": [group],
        "resources": [resource],
        "resourceNames": name.map(|name| [name]),
        "verbs": verbs,
    })
}

/// A role and its binding, in a namespace of the installation.
fn role(plan: &Plan<'_>, namespace: &str, name: &str, account: &str, rules: &[Value]) -> [Value; 2] {
    let mut role = with(cluster_object(RBAC, "Role", name, None), json!({"rules": rules}));
    let mut binding = binding(plan, "RoleBinding", "Role", name, account);
    role["metadata"]["namespace"] = namespace.into();
    binding["metadata"]["namespace"] = namespace.into();
    [role, binding]
}

fn cluster_role(plan: &Plan<'_>, account: &str, rules: &[Value]) -> [Value; 2] {
    let role = with(cluster_object(RBAC, "ClusterRole", account, None), json!({"rules": rules}));
    [role, binding(plan, "ClusterRoleBinding", "ClusterRole", account, account)]
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn binding(plan: &Plan<'_>, kind: &str, role_kind: &str, name: &str, account: &str) -> Value {
    let fields = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": plan.namespace()}],
    });
    with(cluster_object(RBAC, kind, name, None), fields)
}
