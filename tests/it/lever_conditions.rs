//! What the match conditions keep from the hook for levers, the policy lets pass in silence. The rendered CEL is
//! evaluated beside the decision.

use std::sync::Arc;

use cel::{Context, Env, Program, Value as Outcome};
use gpufence::manifest::conditions::{self, MatchCondition};
use gpufence::policy::{Decision, Mode, NoFacts, Policy};
use gpufence::review::{self, Webhook};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::match_conditions::as_served;
use crate::properties::holds;
use crate::support::policy;

const CONTRACTS: [&str; 2] = [
    r#"
pools:
- name: nvidia
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {selector: {matchLabels: {allowed: "true"}, matchExpressions: [{key: tier, operator: Exists}]}}
  models: {annotation: gpu.example.com/model, nodeLabel: model, values: [a100]}
- name: amd
  resources: [amd.com/gpu]
  taints: [{key: amd.com/gpu, effect: NoExecute}]
  nodeSelector: {accelerator: amd}
rollout: [{selector: {matchLabels: {stage: early}}, mode: audit}]
exemptions: []
"#,
    // No selector at all.
    "",
];

struct Gate {
    policies: [Policy; 3],
    conditions: Vec<(MatchCondition, Program)>,
    env: Arc<Env>,
}

impl Gate {
    fn of(yaml: &str) -> Self {
        let levers = "rules: {lever-change: deny}\nlevers: {groups: [system:masters]}";
        let policies = Mode::ALL.map(|mode| policy(&format!("mode: {mode}\n{levers}\n{yaml}")));
        let env = Arc::new(Env::stdlib());
        let compiled = conditions::of_levers(&policies[0]).into_iter().map(|condition| {
            let program = env.compile(&condition.expression);
            let program = program.unwrap_or_else(|error| panic!("{}: {error}", condition.expression));
            (condition, program)
        });
        Self { conditions: compiled.collect(), policies, env: Arc::clone(&env) }
    }

    /// Whether the hook is called. An error would leave it to the failurePolicy, and must not be.
    fn calls(&self, request: &Value) -> bool {
        let mut context = Context::with_env(Arc::clone(&self.env));
        let old = Some(&request["oldObject"]).filter(|old| !old.is_null());
        context.add_variable("object", as_served(&request["object"])).unwrap();
        context.add_variable("oldObject", old.map(as_served)).unwrap();
        context.add_variable("request", as_served(request)).unwrap();
        let holds = |(MatchCondition { name, .. }, program): &(MatchCondition, Program)| match program.execute(&context)
        {
            Ok(Outcome::Bool(holds)) => holds,
            other => panic!("{name} comes to {other:?} for {request}"),
        };
        self.conditions.iter().all(holds)
    }

    fn decide(&self, mode: Mode, request: &Value) -> Decision {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let body = review.to_string();
        let policy = &self.policies[mode as usize];
        review::examine(policy, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap().decision
    }
}

fn request(kind: &str, user: &str, groups: &[&str], object: &Value, old: Option<&Value>) -> Value {
    json!({
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": format!("{}s", kind.to_lowercase())},
        "name": "one",
        "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
        "userInfo": {"username": user, "groups": groups},
        "object": object,
        "oldObject": old,
    })
}

/// Objects of which a part is guarded, or nearly; empty and absent ones of every kind.
fn object() -> impl Strategy<Value = Value> {
    let key = select(vec!["allowed", "tier", "stage", "accelerator", "model", "Allowed", "app"]);
    let labels = option::of(btree_map(key, select(vec!["", "true", "nvidia", "amd", "early"]), 0..4));
    let key = select(vec!["dedicated", "amd.com/gpu", "node.kubernetes.io/unreachable"]);
    let value = option::of(select(vec!["", "gpu"]));
    let effect = select(vec!["NoSchedule", "NoExecute", "PreferNoSchedule"]);
    let time = option::of(Just("2026-01-01T00:00:00Z"));
    let taint = (key, value, effect, time).prop_map(
        |(key, value, effect, time)| json!({"key": key, "value": value, "effect": effect, "timeAdded": time}),
    );
    let spec = option::of(option::of(vec(taint, 0..3)));
    // One that nobody names, and one that the built-in contract does.
    let name = select(vec!["one", "one", "ml-team"]);
    (name, labels, spec).prop_map(|(name, labels, spec)| {
        let mut object = json!({"metadata": {"name": name, "labels": labels}});
        if let Some(taints) = spec {
            object["spec"] = json!({"taints": taints});
        }
        object
    })
}

#[test]
fn what_is_kept_from_the_hook_is_allowed_in_silence() {
    let gates = CONTRACTS.map(Gate::of);
    let counts = std::cell::RefCell::new([0_u32; 4]);
    let edits: Vec<fn(&mut Value, &Value)> = vec![
        |_, _| {},
        |new, _| new["metadata"]["annotations"] = json!({"a": "b"}),
        |new, _| new["metadata"]["finalizers"] = json!([]),
        |new, _| new["status"] = json!({"phase": "Terminating"}),
        |new, other| new["metadata"]["labels"] = other["metadata"]["labels"].clone(),
        |new, other| new["spec"] = other["spec"].clone(),
        |new, _| {
            if let Some(taints) = new["spec"]["taints"].as_array_mut() {
                taints.reverse();
            }
        },
    ];
    let user = select(vec!["tenant", "system:node:one", "system:node:two"]);
    let groups = select(vec![vec![], vec!["system:nodes"], vec!["system:masters", "system:nodes"]]);
    let asked = (select(vec![0, 1]), select(vec!["Namespace", "Node"]), user, groups, any::<bool>());
    holds(4000, (asked, object(), object(), vec(select(edits), 1..3)), |(asked, old, other, edits)| {
        let (gate, kind, user, groups, is_new) = asked;
        let mut new = old.clone();
        for edit in edits {
            edit(&mut new, &other);
        }
        let request = request(kind, user, &groups, &new, (!is_new).then_some(&old));
        let called = gates[gate].calls(&request);
        for mode in Mode::ALL {
            let decision = gates[gate].decide(mode, &request);
            let quiet = decision == Decision::quiet(decision.mode);
            prop_assert!(called || quiet, "not asked about {request}: {decision:?}");
            if mode == Mode::Enforce {
                counts.borrow_mut()[usize::from(called) * 2 + usize::from(quiet)] += 1;
            }
        }
        Ok(())
    });
    let [none, kept, refused, spared] = counts.into_inner();
    assert!(none == 0 && kept > 500 && refused > 100 && spared > 40, "{kept} {refused} {spared}");
}

#[test]
fn nobody_asks_about_a_heartbeat_or_a_registration() {
    let gate = Gate::of(CONTRACTS[0]);
    let node = json!({
        "metadata": {"name": "one", "labels": {"accelerator": "nvidia", "kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]},
    });
    let kubelet =
        |object: &Value, old: Option<&Value>| request("Node", "system:node:one", &["system:nodes"], object, old);
    assert!(!gate.calls(&kubelet(&node, None)));
    let mut beat = node.clone();
    beat["status"] = json!({"conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]});
    beat["spec"]["taints"] =
        json!([node["spec"]["taints"][0], {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
    assert!(!gate.calls(&kubelet(&beat, Some(&node))));
    beat["spec"]["taints"] = json!([]);
    assert!(gate.calls(&kubelet(&beat, Some(&node))));
    for other in [
        request("Node", "system:node:two", &["system:nodes"], &node, None),
        request("Node", "system:node:one", &[], &node, None),
    ] {
        assert!(gate.calls(&other));
    }
    // Nor about what controllers write about a namespace.
    let namespace =
        json!({"metadata": {"name": "one", "labels": {"allowed": "true"}}, "spec": {"finalizers": ["kubernetes"]}});
    let mut last = namespace.clone();
    last["spec"] = json!({});
    last["metadata"]["labels"]["app"] = json!("x");
    assert!(!gate.calls(&request("Namespace", "namespace-controller", &[], &last, Some(&namespace))));
    last["metadata"]["labels"] = json!({"allowed": ""});
    assert!(gate.calls(&request("Namespace", "tenant", &[], &last, Some(&namespace))));
    let bare = json!({"metadata": {"name": "one"}});
    assert!(gate.calls(&request(
        "Namespace",
        "tenant",
        &[],
        &json!({"metadata": {"name": "one", "labels": {"tier": ""}}}),
        Some(&bare)
    )));
    assert!(!gate.calls(&request("Namespace", "tenant", &[], &bare, None)));
}

/// Going through them could cost more than the API server lets a condition cost; then the failurePolicy would decide.
#[test]
fn a_node_of_more_taints_than_can_be_gone_through_is_asked_about() {
    let gate = Gate::of(CONTRACTS[0]);
    let node = |count: usize| {
        let taints: Vec<_> = (0..count).map(|key| json!({"key": format!("k{key}"), "effect": "NoSchedule"})).collect();
        json!({"metadata": {"name": "one"}, "spec": {"taints": taints}})
    };
    for (new, old, asked) in [
        (1_000, None, false),
        (1_001, None, true),
        (1_000, Some(1_000), false),
        (1_001, Some(0), true),
        (0, Some(1_001), true),
    ] {
        let (new, old) = (node(new), old.map(node));
        let called = gate.calls(&request("Node", "tenant", &[], &new, old.as_ref()));
        assert_eq!(called, asked, "{} over {:?}", new["spec"]["taints"].as_array().unwrap().len(), old.is_some());
    }
}
