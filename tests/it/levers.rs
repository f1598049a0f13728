//! What the fence stands on, and who may change it: the labels of namespaces that selectors read, the labels and
//! taints of a pool's nodes.

use gpufence::manifest::{KubernetesVersion, Options, render};
use gpufence::policy::{Action, Decision, Exempted, NoFacts, Phase, Policy, Rule};
use gpufence::review::{self, Webhook};
use serde_json::{Value, json};

use crate::support::{Request, contract, gpu_pod, policy, try_contract};

const ALLOWED: &str = "gpu.example.com/allowed";
const LABEL: &str = "workload.example.com/accelerator";

/// Two pools that share a taint's key, selectors of every form, and levers of every kind.
const CONTRACT: &str = r#"
pools:
- name: nvidia
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: dedicated, value: gpu, effect: NoExecute}]
  nodeSelector: {workload.example.com/accelerator: nvidia}
  namespaces: {names: [ml-team], selector: {matchLabels: {gpu.example.com/allowed: "true"}}}
  models: {annotation: gpu.example.com/model, nodeLabel: gpu.example.com/model, values: [a100]}
- name: amd
  resources: [amd.com/gpu]
  taints: [{key: amd.com/gpu, effect: NoSchedule}, {key: dedicated, value: amd, effect: NoSchedule}]
  nodeSelector: {workload.example.com/accelerator: amd}
  namespaces:
    selector:
      matchLabels: {gpu.example.com/allowed: "true"}
      matchExpressions: [{key: tier, operator: Exists}, {key: old, operator: DoesNotExist}]
rollout:
- {selector: {matchLabels: {stage: early}}, mode: audit}
- {selector: {matchExpressions: [{key: tier, operator: In, values: [late]}]}, mode: warn}
- {namespaces: ["canary-*"], mode: warn}
levers:
  users: [jane@example.com, "ops-*"]
  groups: [system:masters]
  serviceAccounts: ["karpenter/karp*"]
"#;

/// Who may, as every message ends.
const MAY: &str = "only users jane@example.com, ops-*, groups system:masters, service accounts karpenter/karp* may";

fn guarded(more: &str) -> Policy {
    policy(&format!("mode: enforce\nrules: {{lever-change: deny}}\n{CONTRACT}{more}"))
}

fn namespace(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web", "labels": labels}, "spec": {"finalizers": ["kubernetes"]}})
}

fn node(labels: &Value, taints: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "labels": labels}, "spec": {"taints": taints}})
}

/// A node of pool nvidia.
fn gpu_node() -> Value {
    node(&json!({LABEL: "nvidia"}), &json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]))
}

/// Who writes an object, and by which door.
#[derive(Clone, Copy)]
struct Who<'a> {
    user: &'a str,
    groups: &'a [&'a str],
    part: &'a str,
    dry_run: bool,
}

const TENANT: Who<'static> = Who { user: "tenant", groups: &["system:authenticated"], part: "", dry_run: false };

impl Who<'_> {
    /// The request as the API server sends it.
    fn review(&self, object: &Value, old: Option<&Value>) -> Vec<u8> {
        let name = object["metadata"]["name"].clone();
        let kind = object["kind"].as_str().unwrap();
        let mut request = json!({
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": format!("{}s", kind.to_lowercase())},
            "subResource": self.part,
            "name": name,
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "userInfo": {"username": self.user, "groups": self.groups},
            "object": object,
            "oldObject": old,
            "dryRun": self.dry_run,
        });
        if kind == "Namespace" {
            request["namespace"] = name;
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string().into()
    }

    fn decide(&self, policy: &Policy, object: &Value, old: Option<&Value>) -> Decision {
        let body = self.review(object, old);
        review::examine(policy, &NoFacts, Webhook::Validate, &body).unwrap().decision
    }

    fn update(&self, policy: &Policy, old: &Value, new: &Value) -> Decision {
        self.decide(policy, new, Some(old))
    }
}

fn is_quiet(decision: &Decision) -> bool {
    *decision == Decision::quiet(decision.mode)
}

fn told(decision: &Decision) -> Vec<(&str, &str)> {
    decision.findings.iter().map(|finding| (finding.field.as_str(), finding.message.as_str())).collect()
}

#[test]
fn a_tenant_can_opt_in_or_out_by_no_label_and_no_door() {
    let policy = guarded("");
    let (bare, opted) = (namespace(&json!({"team": "web"})), namespace(&json!({"team": "web", ALLOWED: "true"})));
    let other = namespace(&json!({"team": "web", ALLOWED: "false"}));
    let empty = namespace(&json!({"team": "web", ALLOWED: ""}));
    let reads = "the allowlists of pools nvidia and amd read it";
    for part in ["", "status", "finalize"] {
        let tenant = Who { part, ..TENANT };
        for (old, new, change) in [
            (&bare, &opted, "nothing to \"true\""),
            (&opted, &bare, "\"true\" to nothing"),
            (&opted, &other, "\"true\" to \"false\""),
            (&bare, &empty, "nothing to \"\""),
            (&empty, &bare, "\"\" to nothing"),
        ] {
            let decision = tenant.update(&policy, old, new);
            assert!(decision.denies(), "{part} {change}");
            let field = format!("metadata.labels[\"{ALLOWED}\"]");
            let message = format!(
                "{field} of namespace web is changed from {change}: {reads}, and {MAY} change it. Ask one of them."
            );
            assert_eq!(told(&decision), [(&*field, &*message)]);
            assert!(is_quiet(&tenant.update(&policy, new, new)));
        }
    }
    let created = TENANT.decide(&policy, &opted, None);
    assert_eq!(
        told(&created)[0].1,
        format!(
            "metadata.labels[\"{ALLOWED}\"] of the new namespace web is \"true\": {reads}, and {MAY} set it. Ask one of them."
        )
    );
    assert!(is_quiet(&TENANT.decide(&policy, &bare, None)));
    // What is no part of it.
    for part in ["", "status"] {
        let body = Who { part, ..TENANT }.review(&opted, None);
        let mutated = review::examine(&policy, &NoFacts, Webhook::Mutate, &body).unwrap();
        assert!(is_quiet(&mutated.decision));
    }
    assert!(is_quiet(&Who { part: "other", ..TENANT }.update(&policy, &bare, &opted)));
}

#[test]
fn a_message_says_what_reads_the_label_and_whom_to_ask() {
    let policy = guarded("contact: gpu-team@example.com\n");
    let old = namespace(&json!({}));
    for (key, reads) in [
        (ALLOWED, "the allowlists of pools nvidia and amd read it"),
        ("tier", "the allowlist of pool amd and the rollout read it"),
        ("old", "the allowlist of pool amd reads it"),
        ("stage", "the rollout reads it"),
    ] {
        let decision = TENANT.update(&policy, &old, &namespace(&json!({key: "x", "app": "y"})));
        let message = format!(
            "metadata.labels[\"{key}\"] of namespace web is changed from nothing to \"x\": {reads}, and {MAY} change it. Ask \
             gpu-team@example.com."
        );
        assert_eq!(told(&decision), [(&*format!("metadata.labels[\"{key}\"]"), &*message)]);
    }
    let several = TENANT.update(&policy, &old, &namespace(&json!({"tier": "x", "stage": "y"})));
    assert_eq!(several.findings.len(), 2);
    // The simple form, as people will mostly see it.
    let policy = self::policy(&format!(
        "mode: enforce\nrules: {{lever-change: deny}}\nlevers: {{groups: [system:masters]}}\ncontact: the GPU team\npools:\n\
         - {{name: nvidia, resources: [nvidia.com/gpu], taints: [{{key: dedicated, effect: NoSchedule}}], nodeSelector: {{a: b}}, \
         namespaces: {{selector: {{matchLabels: {{{ALLOWED}: 'true'}}}}}}}}"
    ));
    let body = TENANT.review(&namespace(&json!({ALLOWED: "true"})), Some(&old));
    let answer = review::answer(&policy, &NoFacts, Webhook::Validate, &body);
    let response: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        response["response"]["status"]["message"],
        format!(
            "lever-change: metadata.labels[\"{ALLOWED}\"] of namespace web is changed from nothing to \"true\": the allowlist \
             of pool nvidia reads it, and only groups system:masters may change it. Ask the GPU team."
        )
    );
}

#[test]
fn everything_else_about_a_namespace_or_a_node_passes() {
    let policy = guarded("");
    let labels = json!({ALLOWED: "true", "tier": "x", "stage": "early"});
    let old = namespace(&labels);
    let node = gpu_node();
    let edits: [fn(&mut Value); 7] = [
        |object| object["metadata"]["finalizers"] = json!([]),
        |object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        |object| object["metadata"]["annotations"] = json!({"gpu.example.com/allowed": "false"}),
        |object| object["metadata"]["labels"]["team"] = json!("x"),
        |object| object["spec"]["finalizers"] = json!([]),
        |object| object["status"] = json!({"phase": "Terminating", "conditions": [{"type": "Ready"}]}),
        |object| object["spec"]["podCIDR"] = json!("10.0.0.0/24"),
    ];
    for edit in edits {
        for (old, parts) in [(&old, &["", "status", "finalize"][..]), (&node, &["", "status"])] {
            let mut new = old.clone();
            edit(&mut new);
            for part in parts {
                assert!(is_quiet(&Who { part, ..TENANT }.update(&policy, old, &new)), "{part} {new}");
            }
        }
    }
    // What the node lifecycle writes, when, and in which order.
    let mut new = node.clone();
    new["spec"]["taints"] = json!([
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"effect": "NoSchedule", "value": "gpu", "key": "dedicated", "timeAdded": "2026-01-01T00:00:00Z"},
    ]);
    new["spec"]["unschedulable"] = json!(true);
    assert!(is_quiet(&TENANT.update(&policy, &node, &new)) && is_quiet(&TENANT.update(&policy, &new, &node)));
    // Deletion, and what is not known here.
    for verb in ["DELETE", "CONNECT"] {
        let body =
            String::from_utf8(TENANT.review(&old, Some(&old))).unwrap().replace("\"UPDATE\"", &format!("\"{verb}\""));
        let decision = review::examine(&policy, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap().decision;
        assert!(is_quiet(&decision), "{verb}");
    }
    let foreign = String::from_utf8(TENANT.review(&old, None)).unwrap().replace("\"group\":\"\"", "\"group\":\"x.io\"");
    assert!(is_quiet(&review::examine(&policy, &NoFacts, Webhook::Validate, foreign.as_bytes()).unwrap().decision));
}

#[test]
fn the_labels_of_a_pool_on_a_node_are_guarded() {
    let policy = guarded("");
    let old = |labels: Value| node(&labels, &json!([]));
    let model = "gpu.example.com/model";
    for (before, after, key, change, decides) in [
        (json!({}), json!({LABEL: "nvidia"}), LABEL, "nothing to \"nvidia\"", "it makes the node one of pool nvidia"),
        (json!({LABEL: "nvidia"}), json!({}), LABEL, "\"nvidia\" to nothing", "it takes the node out of pool nvidia"),
        (
            json!({LABEL: "nvidia"}),
            json!({LABEL: "amd"}),
            LABEL,
            "\"nvidia\" to \"amd\"",
            "it takes the node out of pool nvidia and makes it one of pool amd",
        ),
        (
            json!({}),
            json!({LABEL: "none"}),
            LABEL,
            "nothing to \"none\"",
            "pools nvidia and amd know their nodes by it",
        ),
        (json!({model: "a100"}), json!({}), model, "\"a100\" to nothing", "pool nvidia knows its GPU models by it"),
    ] {
        for part in ["", "status"] {
            let decision = Who { part, ..TENANT }.update(&policy, &old(before.clone()), &old(after.clone()));
            let field = format!("metadata.labels[\"{key}\"]");
            let message = format!(
                "{field} of node gpu-1 is changed from {change}: {decides}, and {MAY} change it. Ask one of them."
            );
            assert_eq!(told(&decision), [(&*field, &*message)]);
            assert!(decision.denies());
        }
    }
}

#[test]
fn the_taints_of_a_pool_on_a_node_are_guarded() {
    let policy = guarded("");
    let gpu = |effect: &str| json!({"key": "dedicated", "value": "gpu", "effect": effect});
    let with = |taints: Value| node(&json!({LABEL: "nvidia"}), &taints);
    let one = with(json!([gpu("NoSchedule")]));
    for (new, change) in [
        (with(json!([])), "dedicated=gpu:NoSchedule to nothing"),
        (with(Value::Null), "dedicated=gpu:NoSchedule to nothing"),
        (with(json!([gpu("PreferNoSchedule")])), "dedicated=gpu:NoSchedule to dedicated=gpu:PreferNoSchedule"),
        (
            with(json!([{"key": "dedicated", "effect": "NoSchedule"}])),
            "dedicated=gpu:NoSchedule to dedicated:NoSchedule",
        ),
        (
            with(json!([gpu("NoSchedule"), gpu("NoExecute")])),
            "dedicated=gpu:NoSchedule to dedicated=gpu:NoExecute, dedicated=gpu:NoSchedule",
        ),
    ] {
        let decision = TENANT.update(&policy, &one, &new);
        let message = format!(
            "spec.taints of node gpu-1 is changed from {change}: a taint of this key fences the nodes of pools nvidia and amd, \
             and {MAY} change it. Ask one of them."
        );
        assert_eq!(told(&decision), [("spec.taints", &*message)]);
        assert!(decision.denies());
    }
    let added =
        TENANT.update(&policy, &one, &with(json!([gpu("NoSchedule"), {"key": "amd.com/gpu", "effect": "NoSchedule"}])));
    assert_eq!(
        told(&added)[0].1,
        format!(
            "spec.taints of node gpu-1 is changed from nothing to amd.com/gpu:NoSchedule: a taint of this key fences the nodes \
             of pool amd, and {MAY} change it. Ask one of them."
        )
    );
}

#[test]
fn a_kubelet_registers_its_node_and_changes_nothing_of_it_later() {
    let policy = guarded("");
    let kubelet = Who { user: "system:node:gpu-1", groups: &["system:nodes", "system:authenticated"], ..TENANT };
    let (registered, bare) = (gpu_node(), node(&json!({}), &json!([])));
    assert!(is_quiet(&kubelet.decide(&policy, &registered, None)));
    assert!(is_quiet(&TENANT.decide(&policy, &bare, None)));
    assert_eq!(kubelet.update(&policy, &registered, &bare).findings.len(), 2);
    assert_eq!(kubelet.update(&policy, &bare, &registered).findings.len(), 2);
    assert!(kubelet.update(&policy, &registered, &registered).findings.is_empty());
    for stranger in [
        TENANT,
        Who { user: "system:node:gpu-2", ..kubelet },
        Who { groups: &["system:authenticated"], ..kubelet },
        Who { user: "gpu-1", ..kubelet },
    ] {
        let decision = stranger.decide(&policy, &registered, None);
        assert_eq!(
            told(&decision),
            [
                (
                    &*format!("metadata.labels[\"{LABEL}\"]"),
                    &*format!(
                        "metadata.labels[\"{LABEL}\"] of the new node gpu-1 is \"nvidia\": it makes the node one of pool \
                         nvidia, and {MAY} set it. Ask one of them."
                    )
                ),
                (
                    "spec.taints",
                    &*format!(
                        "spec.taints of the new node gpu-1 is dedicated=gpu:NoSchedule: a taint of this key fences the nodes of \
                         pools nvidia and amd, and {MAY} set it. Ask one of them."
                    )
                ),
            ]
        );
    }
    // A namespace of the same name is no node.
    let mut named = namespace(&json!({ALLOWED: "true"}));
    named["metadata"]["name"] = json!("gpu-1");
    assert!(kubelet.decide(&policy, &named, None).denies());
}

#[test]
fn the_contract_names_who_may() {
    let policy = guarded("");
    let (old, new) = (namespace(&json!({})), namespace(&json!({ALLOWED: "true"})));
    for (user, groups, may) in [
        ("jane@example.com", &[] as &[&str], true),
        ("ops-7", &[], true),
        ("jane", &[], false),
        ("x", &["a", "system:masters"], true),
        ("system:masters", &[], false),
        ("x", &["system:masters-2"], false),
        ("system:serviceaccount:karpenter:karpenter", &[], true),
        ("system:serviceaccount:web:karpenter", &[], false),
        ("karpenter/karpenter", &[], false),
        ("", &[], false),
    ] {
        let decision = Who { user, groups, ..TENANT }.update(&policy, &old, &new);
        assert_eq!(is_quiet(&decision), may, "{user} {groups:?}");
        let decision = Who { user, groups, ..TENANT }.update(&policy, &gpu_node(), &node(&json!({}), &json!([])));
        assert_eq!(is_quiet(&decision), may, "{user} {groups:?}");
    }
}

#[test]
fn an_exemption_counts_only_where_it_names_the_rule() {
    let (old, new) = (namespace(&json!({})), namespace(&json!({"tier": "x"})));
    let (before, after) = (gpu_node(), node(&json!({LABEL: "nvidia"}), &json!([])));
    for (fields, of_namespace, of_node) in [
        ("users: [tenant]", false, false),
        ("users: [tenant], rules: [node-name-bypass]", false, false),
        ("users: [tenant], rules: [lever-change]", true, true),
        ("users: [tenant], rules: [node-name-bypass, lever-change]", true, true),
        ("users: [other], rules: [lever-change]", false, false),
        ("groups: ['system:authenticated'], namespaces: [web], rules: [lever-change]", true, false),
        ("groups: [g], namespaces: [web], rules: [lever-change]", false, false),
        ("namespaces: [web], rules: [lever-change]", true, false),
        ("namespaces: [shop], rules: [lever-change]", false, false),
        ("serviceAccounts: [a/b], rules: [lever-change]", false, false),
        // The label is read by the rollout too, which is no pool's; the taint's key is two pools'.
        ("users: [tenant], rules: [lever-change], pools: [amd]", false, false),
        ("users: [tenant], rules: [lever-change], pools: [nvidia, amd]", false, true),
    ] {
        let policy = guarded(&format!("exemptions: [{{name: e, reason: r, {fields}}}]\n"));
        let exempted = [Exempted { exemption: "e".to_owned(), rules: vec![Rule::LeverChange] }];
        for (decision, exempt) in
            [(TENANT.update(&policy, &old, &new), of_namespace), (TENANT.update(&policy, &before, &after), of_node)]
        {
            assert_eq!(decision.denies(), !exempt, "{fields}");
            assert_eq!(decision.exempted == exempted, exempt, "{fields}");
        }
    }
    // For pods it counts for nothing.
    let policy = guarded("exemptions: [{name: e, reason: r, users: [tenant], rules: [lever-change]}]\n");
    let pod = gpu_pod(&json!({})).to_string();
    let pod = gpufence::policy::Kind::Pod.read(&pod).unwrap();
    let request = Request { namespace: "web", username: "tenant", groups: &[], object: &pod, old: None };
    assert!(request.decide(&policy, Phase::Validating).denies());
}

#[test]
fn an_expired_exemption_is_told_of() {
    let policy =
        guarded("exemptions: [{name: e, reason: r, expires: 2020-01-31, users: [tenant], rules: [lever-change]}]\n");
    let decision = TENANT.update(&policy, &namespace(&json!({})), &namespace(&json!({"old": "x"})));
    assert!(decision.denies());
    assert!(decision.findings[0].text().ends_with("Ask one of them. Exemption e expired on 2020-01-31."));
}

#[test]
fn the_mode_is_that_before_the_change() {
    let of = |name: &str, labels: Value| {
        let mut object = namespace(&labels);
        object["metadata"]["name"] = json!(name);
        object
    };
    let policy = guarded("");
    for (name, old, new, action) in [
        // A tenant cannot choose the mode along with the label.
        ("web", Some(json!({})), json!({ALLOWED: "true", "stage": "early"}), Action::Deny),
        ("web", Some(json!({"stage": "early"})), json!({ALLOWED: "true"}), Action::Audit),
        ("web", Some(json!({"tier": "late"})), json!({ALLOWED: "true"}), Action::Warn),
        ("web", None, json!({ALLOWED: "true", "stage": "early"}), Action::Deny),
        ("canary-1", Some(json!({})), json!({ALLOWED: "true"}), Action::Warn),
        ("canary-1", None, json!({ALLOWED: "true", "stage": "early"}), Action::Warn),
    ] {
        let decision = TENANT.decide(&policy, &of(name, new.clone()), old.map(|old| of(name, old)).as_ref());
        assert!(!decision.labels_unknown);
        assert!(decision.findings.iter().all(|finding| finding.action == action), "{name} {new} {decision:?}");
        assert!(!decision.findings.is_empty());
    }
    for (mode, rule, action) in [
        ("enforce", "deny", Action::Deny),
        ("enforce", "warn", Action::Warn),
        ("enforce", "audit", Action::Audit),
        ("warn", "deny", Action::Warn),
        ("audit", "deny", Action::Audit),
    ] {
        let yaml = format!("mode: {mode}\nrules: {{lever-change: {rule}}}\n{CONTRACT}");
        let decision = TENANT.update(&self::policy(&yaml), &gpu_node(), &node(&json!({LABEL: "nvidia"}), &json!([])));
        assert_eq!(decision.findings[0].action, action, "{mode} {rule}");
    }
    let off = self::policy(&format!("mode: enforce\n{CONTRACT}"));
    assert!(is_quiet(&TENANT.update(&off, &gpu_node(), &node(&json!({}), &json!([])))));
}

#[test]
fn the_account_names_resource_object_and_rule() {
    let policy = policy(&format!("mode: audit\nrules: {{lever-change: deny}}\n{CONTRACT}"));
    for (object, part, resource, namespace) in [
        (namespace(&json!({"old": "x"})), "status", "namespaces", "web"),
        (node(&json!({LABEL: "amd"}), &json!([])), "status", "nodes", ""),
    ] {
        let mut old = object.clone();
        old["metadata"]["labels"] = json!({});
        let body = Who { part, dry_run: true, ..TENANT }.review(&object, Some(&old));
        let answer = review::answer(&policy, &NoFacts, Webhook::Validate, &body);
        let account = &answer.account;
        assert_eq!((account.resource, &*account.namespace, account.operation), (resource, namespace, "UPDATE"));
        assert_eq!((&*account.name, &*account.user), (object["metadata"]["name"].as_str().unwrap(), "tenant"));
        assert_eq!((account.outcome, account.dry_run), ("would-deny", true));
        let response = serde_json::from_slice::<Value>(&answer.body).unwrap()["response"].take();
        assert_eq!((&response["allowed"], &response["warnings"]), (&json!(true), &Value::Null));
        let annotation = response["auditAnnotations"]["lever-change"].as_str().unwrap();
        assert!(annotation.starts_with("would-deny: metadata.labels["), "{annotation}");
    }
}

#[test]
fn the_name_may_come_from_the_object_alone() {
    let policy = guarded("");
    let mut object = namespace(&json!({ALLOWED: "true"}));
    let nameless = |object: &Value| {
        let mut review: Value = serde_json::from_slice(&TENANT.review(object, None)).unwrap();
        let request = review["request"].as_object_mut().unwrap();
        request.remove("name");
        request.remove("namespace");
        let body = review.to_string();
        let decision = review::examine(&policy, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap().decision;
        decision.findings[0].message.clone()
    };
    assert!(nameless(&object).contains("of the new namespace web is"));
    object["metadata"] = json!({"generateName": "team-", "labels": {ALLOWED: "true"}});
    assert!(nameless(&object).contains("of the new namespace team-* is"));
}

#[test]
fn what_cannot_be_read_is_refused_where_the_contract_is_enforced() {
    let good = namespace(&json!({}));
    let tenant = |mode: &str, object: &Value, old: Option<&Value>| {
        let rule = if mode == "off" { "off" } else { "deny" };
        let mode = if mode == "off" { "enforce" } else { mode };
        let policy = policy(&format!("mode: {mode}\nrules: {{lever-change: '{rule}'}}\n{CONTRACT}"));
        let body = TENANT.review(object, old);
        let answer = review::answer(&policy, &NoFacts, Webhook::Validate, &body);
        assert_eq!(answer.status, 200);
        serde_json::from_slice::<Value>(&answer.body).unwrap()["response"].take()
    };
    for (object, old, message) in [
        (
            namespace(&json!({"a": 1})),
            Some(&good),
            "bad-request: request.object.metadata.labels.a: invalid type: integer `1`, expected a string",
        ),
        (
            namespace(&json!(["a"])),
            None,
            "bad-request: request.object.metadata.labels: invalid type: sequence, expected a map of strings",
        ),
        (
            node(&json!({}), &json!("none")),
            None,
            "bad-request: request.object.spec.taints: invalid type: string \"none\", expected a list",
        ),
    ] {
        let refused = tenant("enforce", &object, old);
        assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(400)));
        assert_eq!(refused["status"]["message"], message);
        for mode in ["audit", "warn", "off"] {
            assert_eq!(tenant(mode, &object, old)["allowed"], true, "{mode}");
        }
    }
    let mut other = good.clone();
    other["kind"] = json!("Node");
    let body = String::from_utf8(TENANT.review(&other, None)).unwrap();
    let body = body.replacen(
        "\"kind\":{\"group\":\"\",\"kind\":\"Node\"",
        "\"kind\":{\"group\":\"\",\"kind\":\"Namespace\"",
        1,
    );
    let policy = guarded("");
    let error = review::examine(&policy, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap_err();
    assert_eq!(error, "request.object is a Node, and request.kind says it is a Namespace");
    let body = String::from_utf8(TENANT.review(&json!({"kind": "Node", "metadata": {"name": "n"}}), None)).unwrap();
    let body = body.replace("{\"kind\":\"Node\",\"metadata\":{\"name\":\"n\"}}", "null");
    let error = review::examine(&policy, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap_err();
    assert_eq!(error, "request.object is null; CREATE of a Node carries one");
}

#[test]
fn the_policy_tells_what_is_guarded() {
    let policy = guarded("");
    let list = |keys: std::collections::BTreeSet<&str>| keys.into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(list(policy.guarded_namespace_labels()), "gpu.example.com/allowed old stage tier");
    assert_eq!(list(policy.guarded_node_labels()), "gpu.example.com/model workload.example.com/accelerator");
    assert_eq!(list(policy.guarded_node_taints()), "amd.com/gpu dedicated");
    assert!(!policy.levers().is_empty());
}

fn faults(yaml: &str) -> String {
    let error = try_contract(yaml).unwrap_err().to_string();
    let lines = error.lines().skip(1).map(|line| line.split_once("contract.yaml: ").unwrap_or(("", line.trim())).1);
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_contract_that_leaves_nobody_or_everybody_is_refused() {
    let valid =
        "valid is who may change what the fence stands on, with users, groups, serviceAccounts: lever-change is deny";
    let on = "rules: {lever-change: deny}\n";
    let every_account =
        "levers: found service accounts in every namespace; valid is service accounts of namespaces that no \
                         tenant has"
            .to_owned();
    for (yaml, expected) in [
        ("", format!("levers: found nothing; {valid}")),
        ("levers:", format!("levers: found nothing; {valid}")),
        ("levers: {}", format!("levers: found nobody; {valid}")),
        ("levers: {users: []}", "levers.users: found an empty list; valid is at least one user name".to_owned()),
        ("levers: {groups: []}", "levers.groups: found an empty list; valid is at least one group".to_owned()),
        (
            "levers: {groups: ['gpu-*']}",
            "levers.groups[0]: found \"gpu-*\"; valid is the whole name of a group, without globs".to_owned(),
        ),
        (
            "levers: {serviceAccounts: [karpenter]}",
            "levers.serviceAccounts[0]: found \"karpenter\"; valid is NAMESPACE/NAME of a service account, or a glob of such, \
             such as ci/deployer or ci-*/deployer"
                .to_owned(),
        ),
        (
            "levers: {who: [x]}",
            "levers.who: found the unknown key who; valid is one of users, groups, serviceAccounts".to_owned(),
        ),
        ("levers: [x]", "levers: found a list; valid is a map with the keys users, groups, serviceAccounts".to_owned()),
        (
            "levers: {users: ['*']}",
            "levers: found everybody; valid is users, groups and serviceAccounts of some".to_owned(),
        ),
        (
            "levers: {groups: ['system:authenticated', a]}",
            "levers: found everybody; valid is users, groups and serviceAccounts of some".to_owned(),
        ),
        ("levers: {groups: ['system:serviceaccounts']}", every_account.clone()),
        ("levers: {users: ['system:serviceaccount:*']}", every_account.clone()),
        ("levers: {groups: [a], serviceAccounts: ['karpenter/*', '*/karpenter']}", every_account),
    ] {
        assert_eq!(faults(&format!("{on}{yaml}")), expected, "{yaml}");
    }
    for yaml in ["", "levers: {}", "levers: {groups: [a]}", "rules: {lever-change: warn}\nlevers: {users: [a]}"] {
        try_contract(yaml).unwrap();
    }
    assert_eq!(
        faults(
            "exemptions: [{name: e, reason: r, namespaces: [a], daemonSets: ['*'], rules: [lever-change, node-name-bypass]}]"
        ),
        "exemptions[0].rules: found lever-change beside owners or daemonSets; valid is users, groups, serviceAccounts or \
         namespaces for that rule: nobody changes a namespace or a node for an owner"
    );
}

#[test]
fn the_section_is_printed_as_it_loads() {
    let full = contract(&format!("rules: {{lever-change: deny}}\n{CONTRACT}")).to_yaml().unwrap();
    let printed: Value = serde_saphyr::from_str(&full).unwrap();
    assert_eq!(
        printed["levers"],
        json!({
            "users": ["jane@example.com", "ops-*"],
            "groups": ["system:masters"],
            "serviceAccounts": ["karpenter/karp*"],
        })
    );
    assert_eq!(contract(&full).to_yaml().unwrap(), full);
    let some = contract("levers: {groups: [a]}").to_yaml().unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&some).unwrap()["levers"], json!({"groups": ["a"]}));
    assert!(!contract("").to_yaml().unwrap().contains("levers"));
}

fn hook(yaml: &str, options: &Options) -> Option<Value> {
    let manifests = render(&contract(yaml), options).unwrap();
    let validating =
        manifests.objects.iter().find(|object| object["kind"] == "ValidatingWebhookConfiguration").unwrap();
    let hooks = validating["webhooks"].as_array().unwrap();
    hooks.iter().find(|hook| hook["name"] == "levers.validate.gpufence.io").cloned()
}

#[test]
fn the_hook_is_registered_where_the_rule_is_on() {
    let options = Options::default();
    let on = format!("mode: enforce\nrules: {{lever-change: deny}}\n{CONTRACT}");
    assert_eq!(hook(&on.replace("deny", "'off'"), &options), None);
    let rules = |resources: &[&str]| {
        json!([{
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": resources,
            "scope": "Cluster",
        }])
    };
    let all = ["namespaces", "namespaces/status", "namespaces/finalize", "nodes", "nodes/status"];
    let rendered = hook(&on, &options).unwrap();
    assert_eq!(rendered["rules"], rules(&all));
    assert_eq!((&rendered["failurePolicy"], &rendered["timeoutSeconds"]), (&json!("Ignore"), &json!(3)));
    assert_eq!(rendered["clientConfig"]["service"]["path"], "/validate");
    assert_eq!(rendered["namespaceSelector"]["matchExpressions"][0]["operator"], "NotIn");
    let names: Vec<_> = rendered["matchConditions"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["changes-what-the-fence-stands-on", "is-not-a-kubelet-that-registers"]);
    let audit = hook(&on, &Options { audit_only: true, ..options.clone() }).unwrap();
    assert_eq!(
        (&audit["timeoutSeconds"], &audit["clientConfig"]["service"]["path"]),
        (&json!(2), &json!("/audit/validate"))
    );
    // Of a namespace nothing is guarded where neither its labels nor its name open anything.
    let closed = "exemptions: []
rules: {lever-change: warn}
levers: {groups: [a]}
pools:
- {name: p, resources: [a.b/c], taints: [{key: k, effect: NoSchedule}], nodeSelector: {l: v}}";
    assert_eq!(hook(closed, &options).unwrap()["rules"], rules(&["nodes", "nodes/status"]));
    let eased = format!("{closed}\nrollout: [{{namespaces: [canary], mode: audit}}]");
    assert_eq!(
        hook(&eased, &options).unwrap()["rules"],
        rules(&["nodes", "nodes/status"]),
        "in audit nothing is eased"
    );
    assert_eq!(hook(&format!("mode: enforce\n{eased}"), &options).unwrap()["rules"], rules(&all));
    assert_eq!(hook("rules: {lever-change: warn}\nlevers: {groups: [a]}", &options).unwrap()["rules"], rules(&all));
}

/// Where people make namespaces for themselves a glob of the allowlist is a door to whoever thinks of a name.
#[test]
fn a_new_namespace_of_a_name_that_the_contract_trusts_is_a_lever() {
    let policy = guarded("");
    let named = |name: &str| {
        let mut namespace = namespace(&json!({}));
        namespace["metadata"]["name"] = name.into();
        namespace
    };
    let told = |name: &str| messages(&TENANT.decide(&policy, &named(name), None));
    assert_eq!(
        told("ml-team"),
        [format!(
            "metadata.name of the new namespace is ml-team: the allowlist of pool nvidia names it, and {MAY} set it. Ask one \
             of them."
        )]
    );
    assert_eq!(
        told("canary-1"),
        [format!(
            "metadata.name of the new namespace is canary-1: the rollout names it, and {MAY} set it. Ask one of them."
        )]
    );
    assert_eq!(told("ml-team-2"), [""; 0]);
    // An exemption that asks for no identity is a door as well.
    let trusting = guarded(
        "exemptions: [{name: agents, reason: r, namespaces: ['infra-*'], daemonSets: ['*']}, {name: ci, reason: r, namespaces: ['*'], users: [robot]}]\n",
    );
    assert_eq!(
        messages(&TENANT.decide(&trusting, &named("infra-1"), None)),
        [format!(
            "metadata.name of the new namespace is infra-1: the exemption agents names it, and {MAY} set it. Ask one of them."
        )]
    );
    assert_eq!(messages(&TENANT.decide(&trusting, &named("other"), None)), [""; 0]);
    // One that is there was made before, and its name never changes.
    assert_eq!(messages(&TENANT.update(&policy, &named("ml-team"), &named("ml-team"))), [""; 0]);
    let admin = Who { groups: &["system:masters"], ..TENANT };
    assert_eq!(messages(&admin.decide(&policy, &named("ml-team"), None)), [""; 0]);
    // An entry for every namespace singles none out.
    let everywhere = super::support::policy(
        "mode: enforce\nrules: {lever-change: deny}\nlevers: {groups: [a]}\nrollout: [{namespaces: ['*'], mode: warn}]",
    );
    assert_eq!(messages(&TENANT.decide(&everywhere, &named("shop"), None)), [""; 0]);
    assert_eq!(messages(&TENANT.decide(&everywhere, &named("research-x"), None)).len(), 1);
}

/// Before 1.21 API servers leave to whoever edits a Namespace by which name it is known, and left out.
#[test]
fn a_namespace_cannot_take_the_name_of_another() {
    let policy = guarded("");
    let named = |name: &str| namespace(&json!({"kubernetes.io/metadata.name": name, "app": "x"}));
    let told = |object: &Value, old: Option<&Value>| messages(&TENANT.decide(&policy, object, old));
    assert_eq!(
        told(&named("kube-system"), Some(&named("web"))),
        [format!(
            "metadata.labels[\"kubernetes.io/metadata.name\"] of namespace web is changed from \"web\" to \"kube-system\": the \
             webhooks leave namespaces out by it, and {MAY} change it. Ask one of them."
        )]
    );
    assert_eq!(told(&named("kube-system"), None).len(), 1);
    for (object, old) in [
        (named("web"), None),
        (named("web"), Some(namespace(&json!({})))),
        (namespace(&json!({})), Some(named("web"))),
        (named("kube-system"), Some(named("kube-system"))),
    ] {
        assert_eq!(told(&object, old.as_ref()), [""; 0], "{object}");
    }
}

fn messages(decision: &Decision) -> Vec<String> {
    decision.findings.iter().map(|finding| finding.message.clone()).collect()
}

#[test]
fn an_old_api_server_asks_about_every_heartbeat_and_every_namespace() {
    let at =
        |version: &str| Options { kubernetes: version.parse::<KubernetesVersion>().unwrap(), ..Options::default() };
    let on = format!("mode: enforce\nrules: {{lever-change: deny}}\n{CONTRACT}");
    let note = "lever-change is on, and without matchConditions the API server calls gpufence for everything that is written \
                about a node, heartbeats of its status among it.";
    let noted = |yaml: &str, version: &str| {
        render(&contract(yaml), &at(version)).unwrap().notes.iter().any(|found| found == note)
    };
    assert!(noted(&on, "1.20") && noted(&on, "1.29") && !noted(&on, "1.30"));
    assert!(!noted(&on.replace("deny", "'off'"), "1.20"));
    assert_eq!(hook(&on, &at("1.29")).unwrap()["matchConditions"], Value::Null);
    let blind = "lever-change sees no change of a node before Kubernetes 1.18.18, 1.19.10 and 1.20.6, which show webhooks the new \
                 node as the old one too (CVE-2021-25735).";
    let blind_at =
        |version: &str| render(&contract(&on), &at(version)).unwrap().notes.iter().any(|found| found == blind);
    assert!(blind_at("1.20") && !blind_at("1.21"));
    // No API server keeps a tenant from writing the label there by which the others leave namespaces out.
    assert_eq!(hook(&on, &at("1.20")).unwrap()["namespaceSelector"], Value::Null);
    assert_ne!(hook(&on, &at("1.21")).unwrap()["namespaceSelector"], Value::Null);
}
