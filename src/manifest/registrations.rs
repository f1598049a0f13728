//! The two webhook configurations: what the API server asks about, and what it does where nobody answers.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::conditions::{self, MatchCondition};
use super::{FailurePolicy, Options, Plan, Tls, cluster_object, names, with};
use crate::policy::{Action, Kind, LeverKind, Policy, Rule};

const GROUP: &str = "admissionregistration.k8s.io/v1";

pub(super) fn both(plan: &Plan<'_>) -> [Value; 2] {
    let policy = plan.policy();
    let (mutate, validate) = if plan.options.audit_only {
        (names::AUDIT_MUTATE_PATH, names::AUDIT_VALIDATE_PATH)
    } else {
        (names::MUTATE_PATH, names::VALIDATE_PATH)
    };
    // Who only watches keeps nobody waiting. A template is only foretold, by a hook that never stands in
    // the way; the answer on a pod is worth waiting for.
    let seconds = |enforcing| if plan.audits() { 2 } else { enforcing };
    let mut validating = vec![Hook {
        name: names::PODS_VALIDATE_HOOK,
        path: validate,
        rules: vec![rule("", "v1", &["CREATE", "UPDATE"], &[Kind::Pod.resource()])],
        timeout: seconds(5),
        conditions: conditions::of_pod_validation(policy),
    }];
    if policy.templates > Action::Off {
        validating.push(Hook {
            name: names::TEMPLATES_VALIDATE_HOOK,
            path: validate,
            rules: template_rules(plan.options),
            timeout: seconds(3),
            conditions: conditions::of_template_validation(policy),
        });
    }
    if policy.judges_templates() && !policy.custom_resources().is_empty() {
        validating.push(Hook {
            name: names::CUSTOM_RESOURCES_VALIDATE_HOOK,
            path: validate,
            rules: custom_resource_rules(policy),
            timeout: seconds(3),
            conditions: conditions::of_custom_resources(policy),
        });
    }
    if policy.judges_bindings() {
        validating.push(Hook {
            name: names::BINDINGS_VALIDATE_HOOK,
            path: validate,
            rules: vec![rule("", "v1", &["CREATE"], &["pods/binding", Kind::Binding.resource()])],
            timeout: seconds(3),
            conditions: conditions::of_bindings(policy),
        });
    }
    if policy.action(Rule::LeverChange) > Action::Off {
        // It is never armed: a cluster that comes back must get its nodes while nobody answers.
        validating.push(Hook {
            name: names::LEVERS_VALIDATE_HOOK,
            path: validate,
            rules: vec![lever_rule(policy)],
            timeout: seconds(3),
            conditions: conditions::of_levers(policy),
        });
    }
    let mutating = Hook {
        name: names::PODS_MUTATE_HOOK,
        path: mutate,
        rules: vec![rule("", "v1", &["CREATE"], &[Kind::Pod.resource()])],
        timeout: seconds(3),
        conditions: conditions::of_pod_mutation(policy),
    };
    // Another webhook may add what makes the pod ours after it has been here.
    let mutating = with(mutating.render(plan), json!({"reinvocationPolicy": "IfNeeded"}));
    let validating: Vec<_> = validating.iter().map(|hook| hook.render(plan)).collect();
    [
        configuration(plan, "MutatingWebhookConfiguration", plan.mutation, &[mutating]),
        configuration(plan, "ValidatingWebhookConfiguration", plan.validation, &validating),
    ]
}

/// The namespaces that no hook ever sees: without the pods in them there would be no cluster and nobody to
/// answer.
pub(super) fn left_out(options: &Options) -> [&str; 4] {
    [&options.namespace, "kube-system", "kube-node-lease", "kube-public"]
}

fn configuration(plan: &Plan<'_>, kind: &str, target: FailurePolicy, hooks: &[Value]) -> Value {
    let mut configuration = with(cluster_object(GROUP, kind, names::INSTANCE, None), json!({"webhooks": hooks}));
    let mut annotations = json!({names::FAILURE_POLICY_ANNOTATION: target.as_str()});
    if plan.options.tls == Tls::CertManager {
        // The Certificate of this name, not the Secret.
        annotations["cert-manager.io/inject-ca-from"] = format!("{}/{}", plan.namespace(), names::INSTANCE).into();
    }
    configuration["metadata"]["annotations"] = annotations;
    configuration
}

struct Hook {
    name: &'static str,
    path: &'static str,
    rules: Vec<Value>,
    timeout: u8,
    conditions: Vec<MatchCondition>,
}

impl Hook {
    fn render(&self, plan: &Plan<'_>) -> Value {
        let ca = match &plan.options.tls {
            Tls::Files { ca: Some(pem) } => Some(STANDARD.encode(pem)),
            _ => None,
        };
        let conditions = self
            .conditions
            .iter()
            .map(|MatchCondition { name, expression }| json!({"name": name, "expression": expression}));
        // The API server sets this label; no tenant can. Where it does not yet, who edits a Namespace would leave it out of
        // what is asked about by the same change that is to be judged.
        let is_labelled = plan.options.kubernetes.has(21) || self.name != names::LEVERS_VALIDATE_HOOK;
        let namespaces = is_labelled.then(|| {
            json!({
                "matchExpressions": [{
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": left_out(plan.options),
                }],
            })
        });
        let conditions =
            plan.options.kubernetes.has(30).then(|| conditions.collect::<Vec<_>>()).filter(|all| !all.is_empty());
        json!({
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": ca,
                "service": {
                    "name": names::INSTANCE,
                    "namespace": plan.namespace(),
                    "path": self.path,
                    "port": names::HTTPS_PORT.1,
                },
            },
            // Never anything else here: a hook that nobody answers yet must not stand in the way.
            "failurePolicy": FailurePolicy::Ignore.as_str(),
            "matchConditions": conditions,
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespaces,
            "rules": self.rules,
            "sideEffects": "None",
            "timeoutSeconds": self.timeout,
        })
    }
}

fn template_rules(options: &Options) -> Vec<Value> {
    let of = |group: &str| {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_template() && kind.group() == group);
        kinds.map(Kind::resource).collect()
    };
    let rule = |group: &str, version: &str, resources: Vec<_>| rule(group, version, &["CREATE", "UPDATE"], &resources);
    // Other versions of a kind come as these, by the matchPolicy. CronJobs had no v1 before 1.21.
    let mut rules = vec![rule("", "v1", of("")), rule("apps", "v1", of("apps")), rule("batch", "v1", of("batch"))];
    if !options.kubernetes.has(21) {
        rules.push(rule("batch", "v1beta1", vec![Kind::CronJob.resource()]));
    }
    rules
}

/// For the kinds of which anything is guarded, with the subresources that can change it too.
fn lever_rule(policy: &Policy) -> Value {
    let guarded = LeverKind::ALL.into_iter().filter(|kind| match kind {
        LeverKind::Namespace => policy.guards_namespace_names() || !policy.guarded_namespace_labels().is_empty(),
        LeverKind::Node => true,
    });
    let resources: Vec<_> = guarded
        .flat_map(|kind| {
            let parts = kind.subresources().iter().map(move |part| format!("{}/{part}", kind.resource()));
            std::iter::once(kind.resource().to_owned()).chain(parts)
        })
        .collect();
    // To the API server a Namespace is in no namespace either.
    let scope = json!({"scope": "Cluster"});
    with(rule("", "v1", &["CREATE", "UPDATE"], &resources.iter().map(String::as_str).collect::<Vec<_>>()), scope)
}

/// A rule for each group. With every version: an object comes in the one in which the client writes it, so the
/// contract's paths must fit them all.
fn custom_resource_rules(policy: &Policy) -> Vec<Value> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for custom in policy.custom_resources() {
        groups.entry(&custom.group).or_default().insert(&custom.resource);
    }
    let rule = |(group, resources): (&str, BTreeSet<&str>)| {
        rule(group, "*", &["CREATE", "UPDATE"], &resources.into_iter().collect::<Vec<_>>())
    };
    groups.into_iter().map(rule).collect()
}

fn rule(group: &str, version: &str, operations: &[&str], resources: &[&str]) -> Value {
    json!({
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": resources,
        "scope": "Namespaced",
    })
}
