//! What holds for every pod under every contract. Requests are generated with all the oddities that an
//! API server lets through, and judged through the bytes of the wire.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpufence::policy::{Action, DAEMON_SET_CONTROLLER, Decision, Kind, MIRROR_ANNOTATION, Mode, NoFacts, Policy, Rule};
use gpufence::review::{self, Webhook};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestCaseResult;
use serde_json::{Value, json};

use crate::support::{cases_path, policy};

pub const MODEL: &str = "gpu.example.com/model";
pub const POOL: &str = "gpu.example.com/pool";
const PERSON: &str = "someone@example.com";

/// One pool, with models.
const ONE_POOL: &str = r#"
exemptions: [{name: agents, reason: r, namespaces: [kube-system, web], daemonSets: ["node-*"]}]
"#;

/// Two pools that have nothing in common.
const TWO_POOLS: &str = r#"
pools:
- name: nvidia
  resources: [nvidia.com/gpu, "nvidia.com/mig-*"]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: [ml-team]}
- name: amd
  resources: [amd.com/gpu]
  taints: [{key: amd.com/gpu, value: "5", effect: NoSchedule}]
  nodeSelector: {accelerator: amd, zone: a}
  namespaces: {names: [ml-team, "research-*"]}
"#;

/// A pool whose nodes carry a taint for scheduling and its twin for running pods.
const TWINS: &str = r#"
pools:
- name: nvidia
  resources: [nvidia.com/gpu, "nvidia.com/mig-*"]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: dedicated, value: gpu, effect: NoExecute}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: [ml-team, "research-*"]}
"#;

/// Pools that offer one resource and share a taint, one of them behind a second one.
const SHARED: &str = r#"
pools:
- name: small
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: small}
  namespaces: {names: [ml-team, "research-*"]}
- name: large
  resources: [nvidia.com/gpu, amd.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: large, value: "5", effect: NoSchedule}]
  nodeSelector: {accelerator: large}
  namespaces: {names: [ml-team]}
- name: twin
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: small, zone: a}
  namespaces: {names: [web]}
"#;

/// Pools that a pod names, and from which it requests without a resource.
const NAMED: &str = r#"
selection: {annotation: gpu.example.com/pool, label: gpu.example.com/pool}
pools:
- name: small
  resources: [nvidia.com/gpu, "nvidia.com/mig-*"]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: small}
  namespaces: {names: [ml-team, "research-*"]}
  models: {annotation: gpu.example.com/model, nodeLabel: gpu.example.com/model, values: [a100]}
  markers: {claims: ["*"], annotations: [gpu-fraction]}
- name: large
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: large, value: "5", effect: NoSchedule}]
  nodeSelector: {accelerator: large}
  namespaces: {names: [ml-team]}
  models: {annotation: gpu.example.com/model, nodeLabel: gpu.example.com/model, values: [h100]}
  markers: {claims: [large-gpu], annotations: [gpu-fraction, gpu-memory]}
- name: zoned
  resources: [nvidia.com/gpu, amd.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {zone: a}
  namespaces: {names: [web]}
  markers: {annotations: [gpu-memory]}
"#;

/// Wider tolerations are enough, and may come from any rule.
const SKIP: &str = r#"
injection: {whenTolerated: skip}
pools:
- name: nvidia
  resources: [nvidia.com/gpu, "nvidia.com/mig-*"]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: large, effect: NoExecute}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: [ml-team, "research-*"]}
"#;

/// Every rule denies, templates too.
const STRICT: &str = r#"
templates: deny
rules:
  broad-toleration: deny
  toleration-without-gpu-request: deny
  placement-missing: deny
pools:
- name: nvidia
  resources: [nvidia.com/gpu, "nvidia.com/mig-*"]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: dedicated, value: gpu, effect: NoExecute}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: [ml-team, "research-*"]}
"#;

/// Contracts with the rules' own actions, and last the one in which every rule denies.
pub const CONTRACTS: [&str; 7] = [ONE_POOL, TWO_POOLS, TWINS, SHARED, NAMED, SKIP, STRICT];

const STRICTEST: usize = CONTRACTS.len() - 1;

/// Each contract in each mode.
static POLICIES: LazyLock<Vec<[Policy; 3]>> = LazyLock::new(|| {
    let in_mode = |yaml: &str, mode: Mode| policy(&format!("mode: {mode}\n{yaml}"));
    CONTRACTS.iter().map(|yaml| Mode::ALL.map(|mode| in_mode(yaml, mode))).collect()
});

/// A request to create a pod, and the contract that it meets.
#[derive(Debug, Clone)]
struct Ask {
    contract: usize,
    namespace: &'static str,
    username: &'static str,
    groups: &'static [&'static str],
    pod: Value,
}

/// What comes back over the wire.
struct Answer {
    response: Value,
}

impl Ask {
    fn policy(&self, mode: Mode) -> &'static Policy {
        &POLICIES[self.contract][mode as usize]
    }

    /// The same request with another pod.
    fn with(&self, pod: Value) -> Self {
        Self { pod, ..self.clone() }
    }

    fn review(&self, kind: Kind, object: &Value, old: Option<&Value>) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "kind": {"group": kind.group(), "version": "v1", "kind": kind.name()},
                "resource": {"group": kind.group(), "version": "v1", "resource": kind.resource()},
                "namespace": self.namespace,
                "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
                "userInfo": {"username": self.username, "groups": self.groups},
                "object": object,
                "oldObject": old,
            },
        })
    }

    fn answer(&self, mode: Mode, webhook: Webhook) -> Answer {
        let body = self.review(Kind::Pod, &self.pod, None).to_string();
        let answer = review::answer(self.policy(mode), &NoFacts, webhook, body.as_bytes());
        assert_eq!(answer.status, 200);
        let mut review: Value = serde_json::from_slice(&answer.body).unwrap();
        Answer { response: review["response"].take() }
    }

    fn examine(&self, mode: Mode, webhook: Webhook, review: &Value) -> Decision {
        let body = review.to_string();
        review::examine(self.policy(mode), &NoFacts, webhook, body.as_bytes()).unwrap().decision
    }

    fn decision(&self, mode: Mode, webhook: Webhook) -> Decision {
        self.examine(mode, webhook, &self.review(Kind::Pod, &self.pod, None))
    }

    /// What validation says of the pod as the mutation leaves it.
    fn judged(&self, mode: Mode) -> Decision {
        self.mutated(mode).decision(mode, Webhook::Validate)
    }

    /// The request behind the mutating webhook.
    fn mutated(&self, mode: Mode) -> Self {
        let answer = self.answer(mode, Webhook::Mutate);
        let mut pod = self.pod.clone();
        if let Some(patch) = answer.patch() {
            json_patch::patch(&mut pod, &patch).unwrap();
        }
        self.with(pod)
    }
}

impl Answer {
    fn patch(&self) -> Option<json_patch::Patch> {
        let patch = self.response.get("patch")?.as_str()?;
        Some(serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap())
    }
}

fn rules(decision: &Decision) -> BTreeSet<Rule> {
    decision.findings.iter().map(|finding| finding.rule).collect()
}

/// An object of the fields that are there.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// One of the words as JSON, or nothing at all.
fn word(words: &'static [&'static str]) -> impl Strategy<Value = Option<Value>> {
    option::weighted(0.8, select(words).prop_map(Value::from))
}

fn toleration() -> impl Strategy<Value = Value> {
    let exact = json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"});
    let any = (
        word(&["dedicated", "dedicated", "dedicated", "large", "amd.com/gpu", "other", ""]),
        word(&["Equal", "Exists", "Exists", "Gt", "Lt", "", "exists"]),
        word(&["gpu", "gpu", "5", "4", "6", "other", ""]),
        word(&["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule", "", "Never"]),
        option::weighted(0.2, select(vec![json!(0), json!(60), json!(-1), Value::Null])),
    );
    let any = any.prop_map(|(key, operator, value, effect, seconds)| {
        object([
            ("key", key),
            ("operator", operator),
            ("value", value),
            ("effect", effect),
            ("tolerationSeconds", seconds),
        ])
    });
    let large = json!({"key": "large", "value": "5", "effect": "NoSchedule"});
    prop_oneof![6 => any, 1 => Just(exact), 1 => Just(large), 1 => Just(json!({"operator": "Exists"}))]
}

/// Absent, null, empty or filled.
fn presence(filled: impl Strategy<Value = Value> + 'static, empty: Value) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(Value::Null)), 1 => Just(Some(empty)), 4 => filled.prop_map(Some)]
}

fn map(
    keys: &'static [&'static str],
    values: Vec<Value>,
    size: std::ops::Range<usize>,
) -> impl Strategy<Value = Value> {
    vec((select(keys), select(values)), size)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn node_selector() -> impl Strategy<Value = Value> {
    let keys = &["accelerator", "accelerator", "zone", MODEL, "kubernetes.io/os", "a~b/c"];
    map(keys, vec![json!("nvidia"), json!("nvidia"), json!("small"), json!("large"), json!("a"), json!("")], 1..4)
}

fn resources() -> impl Strategy<Value = Value> {
    let keys = &[
        "nvidia.com/gpu",
        "nvidia.com/gpu",
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.5gb",
        "amd.com/gpu",
        "nvidia.com/gpu-memory",
        "xnvidia.com/gpu",
        "requests.nvidia.com/gpu",
        "nvidia.com/GPU",
        "cpu",
        "memory",
    ];
    let quantities = ["1", "2", "0", "0m", "0e3", "1e0", "1m", ".", "4Gi", "-1", "", "one"].map(Value::from);
    let quantities = quantities.into_iter().chain([json!(1), json!(0), json!(2.5), Value::Null]).collect();
    presence(map(keys, quantities, 1..4), json!({}))
        .prop_flat_map(|requests| {
            let quantities = vec![json!("1"), json!("0"), json!(1)];
            (Just(requests), presence(map(&["nvidia.com/gpu", "cpu", "amd.com/gpu"], quantities, 0..2), json!({})))
        })
        .prop_map(|(requests, limits)| object([("requests", requests), ("limits", limits)]))
}

fn containers(size: std::ops::Range<usize>, sidecars: bool) -> impl Strategy<Value = Value> {
    let policy = select(if sidecars { vec![None, Some(json!("Always"))] } else { vec![None] });
    let container = (presence(resources(), Value::Null), policy).prop_map(|(resources, policy)| {
        object([("name", Some(json!("c"))), ("resources", resources), ("restartPolicy", policy)])
    });
    vec(container, size).prop_map(Value::from)
}

fn affinity() -> impl Strategy<Value = Value> {
    let values = vec(select(vec![json!("nvidia"), json!("small"), json!("other"), json!("5")]), 0..3);
    let operators = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"];
    let expression = (word(&["accelerator", "accelerator", "zone", MODEL]), word(operators), values);
    let expression = expression.prop_map(|(key, operator, values)| {
        object([("key", key), ("operator", operator), ("values", Some(values.into()))])
    });
    let term = presence(vec(expression, 0..3).prop_map(Value::from), json!([]))
        .prop_map(|expressions| object([("matchExpressions", expressions), ("matchFields", Some(json!([])))]));
    presence(vec(term, 1..3).prop_map(Value::from), json!([])).prop_map(|terms| {
        let required = object([("nodeSelectorTerms", terms)]);
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}, "podAffinity": {}})
    })
}

fn owners() -> impl Strategy<Value = Value> {
    let owner = (
        select(vec!["apps/v1", "apps/v1", "apps/v1", "apps.kruise.io/v1alpha1", "v1"]),
        select(vec!["DaemonSet", "DaemonSet", "ReplicaSet"]),
        select(vec!["node-agent", "node-agent", "trainer"]),
        select(vec![Some(true), Some(true), Some(false), None]),
    );
    let owner = owner.prop_map(|(version, kind, name, controller)| {
        json!({"apiVersion": version, "kind": kind, "name": name, "controller": controller, "uid": "1"})
    });
    vec(owner, 1..3).prop_map(Value::from)
}

fn metadata() -> impl Strategy<Value = Value> {
    let annotations =
        &[MODEL, MODEL, POOL, "gpu-fraction", "gpu-memory", MIRROR_ANNOTATION, "gpufence.io/skip", "other"];
    let values = ["a100", "h100", "small", "large", "unknown", "0.5", "0m", ""];
    let values = values.into_iter().map(Value::from).chain([Value::Null]).collect();
    let label = select(vec!["small", "large", "zoned", "unknown", ""]);
    (
        select(vec!["name", "generateName"]),
        presence(map(annotations, values, 1..3), json!({})),
        presence(owners(), json!([])),
        option::weighted(0.2, Just(json!("2026-01-01T00:00:00Z"))),
        option::weighted(0.2, label),
    )
        .prop_map(|(name, annotations, owners, deletion, label)| {
            let mut labels = json!({"app": "x"});
            if let Some(label) = label {
                labels[POOL] = json!(label);
            }
            object([
                (name, Some(json!("p"))),
                ("annotations", annotations),
                ("ownerReferences", owners),
                ("deletionTimestamp", deletion),
                ("labels", Some(labels)),
            ])
        })
}

fn claims() -> impl Strategy<Value = Value> {
    let field = select(vec!["resourceClaimName", "resourceClaimTemplateName"]);
    let name = select(vec![json!("large-gpu"), json!("single-gpu"), json!(""), Value::Null]);
    let claim = (field, name).prop_map(|(field, name)| object([("name", Some(json!("c"))), (field, Some(name))]));
    presence(vec(claim, 1..3).prop_map(Value::from), json!([])).prop_map(Option::unwrap_or_default)
}

pub fn pod() -> impl Strategy<Value = Value> {
    let spec = (
        presence(vec(toleration(), 1..4).prop_map(Value::from), json!([])),
        presence(node_selector(), json!({})),
        containers(1..3, false),
        presence(containers(1..3, true), json!([])),
        option::weighted(0.3, affinity()),
        option::weighted(0.2, Just(json!("node-1"))),
        option::weighted(0.3, claims()),
    );
    (metadata(), spec).prop_map(|(metadata, (tolerations, selector, containers, init, affinity, node, claims))| {
        let spec = object([
            ("tolerations", tolerations),
            ("nodeSelector", selector),
            ("containers", Some(containers)),
            ("initContainers", init),
            ("affinity", affinity),
            ("nodeName", node),
            ("resourceClaims", claims),
            ("serviceAccountName", Some(json!("default"))),
            ("overhead", Some(json!({"nvidia.com/gpu": "1"}))),
        ]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    })
}

fn ask_of(requesters: &'static [(&'static str, &'static [&'static str])]) -> impl Strategy<Value = Ask> {
    let namespace = select(vec!["ml-team", "ml-team", "research-1", "web", "kube-system"]);
    (0..CONTRACTS.len(), namespace, select(requesters), pod())
        .prop_map(|(contract, namespace, (username, groups), pod)| Ask { contract, namespace, username, groups, pod })
}

fn ask() -> impl Strategy<Value = Ask> {
    ask_of(&[
        (PERSON, &["system:authenticated"]),
        (PERSON, &["system:masters"]),
        (DAEMON_SET_CONTROLLER, &["system:serviceaccounts"]),
        ("system:node:node-1", &["system:nodes"]),
        ("system:node:node-1", &[]),
        ("system:node:node-2", &["system:nodes"]),
    ])
}

fn ask_of_a_person() -> impl Strategy<Value = Ask> {
    ask_of(&[(PERSON, &["system:authenticated"])])
}

/// Runs a property; failures are not written to a file but shown, shrunk.
pub fn holds<S: Strategy>(cases: u32, strategy: S, property: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner.run(&strategy, property).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_patch_applies_adds_only_and_completes_the_pod_for_good() {
    holds(1000, ask(), |ask| {
        for mode in [Mode::Warn, Mode::Enforce] {
            let answer = ask.answer(mode, Webhook::Mutate);
            prop_assert_eq!(answer.response["allowed"].as_bool(), Some(true));
            prop_assert_eq!(answer.response.get("patch").is_some(), answer.response.get("patchType").is_some());
            let Some(patch) = answer.patch() else { continue };
            let mut after = ask.pod.clone();
            let applied = json_patch::patch(&mut after, &patch);
            prop_assert!(applied.is_ok(), "{patch} does not apply: {applied:?}");

            let again = ask.with(after.clone()).answer(mode, Webhook::Mutate);
            prop_assert!(again.patch().is_none(), "patched twice: {patch}, then {}", again.response);

            prop_assert_eq!(unowned(&ask.pod).to_string(), unowned(&after).to_string());
            let (before, after) = (&ask.pod["spec"], &after["spec"]);
            let list = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
            prop_assert!(list(after).starts_with(&list(before)), "{}", after);
            let labels = |spec: &Value| spec["nodeSelector"].as_object().cloned().unwrap_or_default();
            let labels_after = labels(after);
            for (key, value) in labels(before) {
                prop_assert_eq!(labels_after.get(&key), Some(&value));
            }
        }
        Ok(())
    });
}

/// The pod without the two paths that are ours.
fn unowned(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let spec = pod["spec"].as_object_mut().unwrap();
    spec.remove("tolerations");
    spec.remove("nodeSelector");
    pod
}

#[test]
fn validation_takes_what_mutation_made() {
    holds(2000, ask(), |ask| {
        let before = ask.decision(Mode::Enforce, Webhook::Mutate);
        if ask.contract == STRICTEST || before.injection.is_none() {
            return Ok(());
        }
        // What the pod brought along it answers for; the rest is ours.
        let own = rules(&ask.decision(Mode::Enforce, Webhook::Validate));
        let decision = ask.judged(Mode::Enforce);
        for finding in &decision.findings {
            prop_assert_ne!(finding.rule, Rule::PlacementMissing);
            let blamed = finding.action == Action::Deny
                && finding.rule != Rule::PlacementConflict
                && !own.contains(&finding.rule);
            prop_assert!(!blamed, "{} denies a pod that mutation completed: {}", finding.rule, finding.message);
        }
        Ok(())
    });
}

#[test]
fn audit_mode_changes_nothing_and_shows_nothing() {
    holds(1000, ask(), |ask| {
        for webhook in Webhook::ALL {
            let Answer { response } = ask.answer(Mode::Audit, webhook);
            prop_assert_eq!(&response["allowed"], &json!(true));
            for key in ["patch", "patchType", "status", "warnings"] {
                prop_assert!(response.get(key).is_none(), "{}", response);
            }
            let decision = ask.decision(Mode::Audit, webhook);
            prop_assert!(!decision.denies());
            prop_assert!(decision.injection.is_none_or(|injection| !injection.enforced));
        }
        Ok(())
    });
}

#[test]
fn what_audit_mode_foretells_is_what_enforcement_does() {
    holds(2000, ask(), |ask| {
        let foretold = ask.judged(Mode::Audit);
        let warned = ask.judged(Mode::Warn);
        let enforced = ask.judged(Mode::Enforce);
        prop_assert_eq!(foretold.would_deny(), enforced.denies(), "audit {:?}, enforce {:?}", foretold, enforced);
        prop_assert_eq!(warned.would_deny(), enforced.denies(), "warn {:?}, enforce {:?}", warned, enforced);
        prop_assert!(!warned.denies());
        prop_assert_eq!(
            ask.decision(Mode::Audit, Webhook::Mutate).injection.map(|injection| injection.patch),
            ask.decision(Mode::Enforce, Webhook::Mutate).injection.map(|injection| injection.patch)
        );
        Ok(())
    });
}

#[test]
fn what_audit_mode_finds_is_what_enforcement_finds() {
    holds(2000, ask(), |ask| {
        prop_assert_eq!(rules(&ask.judged(Mode::Audit)), rules(&ask.judged(Mode::Enforce)));
        Ok(())
    });
}

#[test]
fn the_daemon_set_controllers_pods_get_no_node_selector() {
    holds(300, ask_of(&[(DAEMON_SET_CONTROLLER, &[])]), |mut ask| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "trainer", "controller": true});
        ask.pod["metadata"]["ownerReferences"] = json!([owner]);
        let after = ask.mutated(Mode::Enforce).pod;
        prop_assert_eq!(ask.pod["spec"].get("nodeSelector"), after["spec"].get("nodeSelector"));
        Ok(())
    });
}

#[test]
fn a_mirror_pod_of_its_own_node_is_left_alone() {
    holds(300, ask_of(&[("system:node:node-1", &["system:nodes", "system:authenticated"])]), |mut ask| {
        ask.pod["metadata"]["annotations"] = json!({MIRROR_ANNOTATION: "hash", MODEL: "unknown"});
        ask.pod["spec"]["nodeName"] = json!("node-1");
        prop_assert!(ask.answer(Mode::Enforce, Webhook::Mutate).patch().is_none());
        prop_assert_eq!(&ask.answer(Mode::Enforce, Webhook::Validate).response["allowed"], &json!(true));
        prop_assert_eq!(ask.decision(Mode::Enforce, Webhook::Validate).findings, vec![]);
        Ok(())
    });
}

#[test]
fn no_claim_of_a_person_opens_the_fence() {
    let claims: [fn(&mut Value); 7] = [
        |pod| {
            pod["metadata"]["labels"]["gpufence.io/exempt"] = json!("true");
            pod["metadata"]["labels"]["k8s-app"] = json!("node-agent");
        },
        |pod| set(pod, MIRROR_ANNOTATION, "hash"),
        |pod| set(pod, "gpufence.io/skip", "true"),
        |pod| {
            let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "node-agent", "uid": "1", "controller": true});
            pod["metadata"]["ownerReferences"] = json!([owner]);
        },
        |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        |pod| pod["spec"]["serviceAccountName"] = json!("daemon-set-controller"),
        |pod| {
            pod["spec"]["priorityClassName"] = json!("system-node-critical");
            pod["spec"]["schedulerName"] = json!("kube-scheduler");
        },
    ];
    holds(600, (ask_of_a_person(), vec(0..claims.len(), 1..5)), |(ask, chosen)| {
        let before = ask.judged(Mode::Enforce);
        let mut pod = ask.pod.clone();
        for claim in chosen {
            claims[claim](&mut pod);
        }
        let after = ask.with(pod).judged(Mode::Enforce);
        prop_assert_eq!(before.denies(), after.denies());
        prop_assert_eq!(rules(&before), rules(&after));
        Ok(())
    });
}

fn set(pod: &mut Value, annotation: &str, value: &str) {
    if !pod["metadata"]["annotations"].is_object() {
        pod["metadata"]["annotations"] = json!({});
    }
    pod["metadata"]["annotations"][annotation] = json!(value);
}

#[test]
fn an_update_that_adds_no_breach_has_no_findings() {
    holds(500, (ask(), select(Kind::ALL.to_vec())), |(ask, kind)| {
        let old = wrap(kind, &ask.pod);
        let mut new = old.clone();
        for round in 0..2 {
            let decision = ask.examine(Mode::Enforce, Webhook::Validate, &ask.review(kind, &new, Some(&old)));
            prop_assert_eq!(decision.findings, vec![], "round {}", round);
            let decision = ask.examine(Mode::Enforce, Webhook::Mutate, &ask.review(kind, &new, Some(&old)));
            prop_assert!(decision.injection.is_none());
            new["metadata"]["labels"]["a"] = json!("b");
            new["metadata"]["finalizers"] = json!(["example.com/hold"]);
            new["metadata"]["resourceVersion"] = json!("2");
            new["status"] = json!({"phase": "Running"});
        }
        Ok(())
    });
}

/// An object of the kind around the pod.
pub fn wrap(kind: Kind, pod: &Value) -> Value {
    let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    let mut object = match kind {
        Kind::Pod => return pod.clone(),
        Kind::PodTemplate => json!({"template": template}),
        Kind::CronJob => json!({"spec": {"jobTemplate": {"spec": {"template": template}}}}),
        _ => json!({"spec": {"template": template, "replicas": 1}}),
    };
    object["kind"] = kind.name().into();
    object["metadata"] = json!({"name": "w"});
    object
}

#[test]
fn a_request_counts_the_same_in_every_place() {
    let places = vec((0..4_usize, 0..2_usize), 16);
    holds(600, (ask_of_a_person(), places), |(ask, places)| {
        let mut moved = ask.pod.clone();
        let mut empty = vec![json!({"name": "a"}), json!({"name": "b"}), json!({"name": "i"}), json!({"name": "s"})];
        empty[3]["restartPolicy"] = json!("Always");
        for ((name, quantity), (container, side)) in mentions(&ask.pod).into_iter().zip(places) {
            // A place that is taken would lose one of the two; the next container has room.
            let side = ["requests", "limits"][side];
            let free = (0..4).map(|step| (container + step) % 4);
            let container = free.into_iter().find(|index| empty[*index]["resources"][side].get(&name).is_none());
            let Some(container) = container else { return Ok(()) };
            empty[container]["resources"][side][name] = quantity;
        }
        let init = empty.split_off(2);
        moved["spec"]["containers"] = empty.into();
        moved["spec"]["initContainers"] = init.into();
        let moved = ask.with(moved);
        for webhook in Webhook::ALL {
            let (before, after) = (ask.decision(Mode::Enforce, webhook), moved.decision(Mode::Enforce, webhook));
            prop_assert_eq!(rules(&before), rules(&after));
            prop_assert_eq!(before.denies(), after.denies());
            prop_assert_eq!(before.injection, after.injection);
        }
        Ok(())
    });
}

/// Every resource that a container mentions, with its quantity.
fn mentions(pod: &Value) -> Vec<(String, Value)> {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().cloned().unwrap_or_default());
    let sides = lists.into_iter().flatten().flat_map(|container| {
        ["requests", "limits"].map(|side| container["resources"][side].as_object().cloned().unwrap_or_default())
    });
    sides.flatten().collect()
}

#[test]
fn a_template_is_judged_by_the_rules_of_its_pods() {
    let kinds = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Pod | Kind::DaemonSet)).collect::<Vec<_>>();
    holds(600, (ask_of_a_person(), select(kinds)), |(ask, kind)| {
        let mut pod = ask.decision(Mode::Enforce, Webhook::Validate);
        pod.findings.retain(|finding| finding.rule != Rule::PlacementMissing);
        let review = ask.review(kind, &wrap(kind, &ask.pod), None);
        let template = ask.examine(Mode::Enforce, Webhook::Validate, &review);
        prop_assert_eq!(rules(&pod), rules(&template));
        prop_assert_eq!(pod.would_deny(), template.would_deny());
        // Where templates are denied as well, nothing is held back.
        if ask.contract == STRICTEST {
            prop_assert_eq!(pod.denies(), template.denies());
        } else {
            prop_assert!(!template.denies());
        }
        for (pod, template) in pod.findings.iter().zip(&template.findings) {
            prop_assert_eq!(format!("{}{}", kind.pod_path(), pod.field), &*template.field);
        }
        prop_assert!(ask.examine(Mode::Enforce, Webhook::Mutate, &review).injection.is_none());
        Ok(())
    });
}

/// Of a kind that is served in several versions a client may use any, and later ones than are known here.
#[test]
fn the_version_in_which_an_object_comes_decides_nothing() {
    let versions = select(vec!["v1", "v1beta1", "v1beta2", "v2", "v3alpha7"]);
    holds(400, (ask(), select(Kind::ALL.to_vec()), versions), |(ask, kind, version)| {
        let known = ask.review(kind, &wrap(kind, &ask.pod), None);
        let mut other = known.clone();
        other["request"]["kind"]["version"] = json!(version);
        other["request"]["object"]["apiVersion"] = json!(format!("{}/{version}", kind.group()));
        for webhook in Webhook::ALL {
            let (before, after) =
                (ask.examine(Mode::Enforce, webhook, &known), ask.examine(Mode::Enforce, webhook, &other));
            prop_assert_eq!(before, after);
        }
        Ok(())
    });
}

#[test]
fn what_is_not_read_decides_nothing() {
    let names = ["zz", "Spec", "TOLERATIONS", "nodeselector", "node_selector", "requests2", "Kind", "exempt"];
    let extra =
        (select(names.to_vec()), select(vec![json!([{"operator": "Exists"}]), json!({"a": {"b": []}}), json!(1)]));
    holds(600, (ask(), vec(extra, 1..4), any::<u64>()), |(ask, extra, places)| {
        let known = ask.review(Kind::Pod, &ask.pod, None);
        let mut unknown = known.clone();
        let mut places = places;
        add_unknown(&mut unknown, &extra, &mut places);
        for webhook in Webhook::ALL {
            let (before, after) =
                (ask.examine(Mode::Enforce, webhook, &known), ask.examine(Mode::Enforce, webhook, &unknown));
            prop_assert_eq!(before, after);
        }
        Ok(())
    });
}

/// Adds fields to about half of the objects, but not to maps whose keys are data.
fn add_unknown(value: &mut Value, extra: &[(&str, Value)], places: &mut u64) {
    const DATA: [&str; 5] = ["nodeSelector", "requests", "limits", "annotations", "labels"];
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| add_unknown(item, extra, places)),
        Value::Object(fields) => {
            for (_, value) in fields.iter_mut().filter(|(key, _)| !DATA.contains(&key.as_str())) {
                add_unknown(value, extra, places);
            }
            *places = places.rotate_right(1);
            if *places & 1 == 1 {
                fields.extend(extra.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
            }
        }
        _ => {}
    }
}

/// Whatever a body holds, the answer is whole, and nobody is refused by an audit installation.
fn is_answered(body: &[u8]) -> TestCaseResult {
    for webhook in Webhook::ALL {
        for mode in Mode::ALL {
            let policy = &POLICIES[0][mode as usize];
            let answer = std::panic::catch_unwind(AssertUnwindSafe(|| review::answer(policy, &NoFacts, webhook, body)));
            let Ok(answer) = answer else {
                return Err(TestCaseError::fail(format!("a panic on {}", String::from_utf8_lossy(body))));
            };
            if answer.status != 200 {
                prop_assert_eq!(answer.status, 400);
                continue;
            }
            let review: Value = serde_json::from_slice(&answer.body).unwrap();
            let response = &review["response"];
            prop_assert!(response["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
            prop_assert_eq!(response.get("status").is_some(), response["allowed"] == false);
            prop_assert!(response["allowed"] == true || response.get("patch").is_none());
            if mode == Mode::Audit {
                prop_assert!(response["allowed"] == true && response.get("patch").is_none(), "{}", response);
                prop_assert!(response.get("warnings").is_none(), "{}", response);
            }
        }
    }
    Ok(())
}

#[test]
fn any_bytes_are_answered() {
    holds(500, vec(any::<u8>(), 0..200), |bytes| is_answered(&bytes));
    holds(300, "[\\[\\]{}:,\"0-9a-zA-Z\\\\ \u{0}-\u{20}é-]{0,80}", |text| is_answered(text.as_bytes()));
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"request\":", "}")] {
        let deep = format!("{}1{}", open.repeat(50_000), close.repeat(50_000));
        is_answered(deep.as_bytes()).unwrap();
        is_answered(open.repeat(50_000).as_bytes()).unwrap();
    }
}

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut files: Vec<_> =
        std::fs::read_dir(cases_path("admission-reviews")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
});

#[test]
fn broken_recorded_reviews_are_answered() {
    #[derive(Debug, Clone)]
    enum Harm {
        Flip { at: prop::sample::Index, bit: u8 },
        Cut { at: prop::sample::Index },
        Drop { at: prop::sample::Index, length: usize },
        Repeat { at: prop::sample::Index, length: usize },
        Replace { at: prop::sample::Index, with: &'static str },
    }
    let index = any::<prop::sample::Index>;
    let harm = prop_oneof![
        3 => (index(), 0..8_u8).prop_map(|(at, bit)| Harm::Flip { at, bit }),
        1 => index().prop_map(|at| Harm::Cut { at }),
        2 => (index(), 1..40_usize).prop_map(|(at, length)| Harm::Drop { at, length }),
        1 => (index(), 1..40_usize).prop_map(|(at, length)| Harm::Repeat { at, length }),
        2 => (index(), select(vec!["null", "[]", "{}", "\"\"", "1e999", "\\u0000"]))
            .prop_map(|(at, with)| Harm::Replace { at, with }),
    ];
    assert_eq!(RECORDED.len(), 38);
    for review in &*RECORDED {
        is_answered(review).unwrap();
    }
    holds(700, (0..RECORDED.len(), vec(harm, 1..4)), |(file, harms)| {
        let mut bytes = RECORDED[file].clone();
        for harm in harms {
            if bytes.is_empty() {
                break;
            }
            let size = bytes.len();
            match harm {
                Harm::Flip { at, bit } => bytes[at.index(size)] ^= 1 << bit,
                Harm::Cut { at } => bytes.truncate(at.index(size)),
                Harm::Drop { at, length } => {
                    let start = at.index(size);
                    bytes.drain(start..(start + length).min(size));
                }
                Harm::Repeat { at, length } => {
                    let start = at.index(size);
                    let again = bytes[start..(start + length).min(size)].to_vec();
                    bytes.splice(start..start, again);
                }
                Harm::Replace { at, with } => {
                    // A whole value, so that the text often stays JSON.
                    let start = at.index(size);
                    let colon =
                        bytes[start..].iter().position(|byte| *byte == b':').map_or(start, |step| start + step + 1);
                    let end =
                        bytes[colon..].iter().position(|byte| b",}".contains(byte)).map_or(size, |step| colon + step);
                    bytes.splice(colon..end, with.bytes());
                }
            }
        }
        is_answered(&bytes)
    });
}

#[test]
fn the_generator_reaches_every_outcome() {
    // A property says nothing of what was never generated.
    let mut seen = BTreeSet::new();
    let mut injected = 0;
    let config = ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    for _ in 0..2000 {
        let ask = ask().new_tree(&mut runner).unwrap().current();
        injected += usize::from(ask.decision(Mode::Enforce, Webhook::Mutate).injection.is_some());
        let decision = ask.decision(Mode::Enforce, Webhook::Validate);
        seen.extend(rules(&decision).into_iter().map(Rule::id));
        seen.extend((!decision.exempted.is_empty()).then_some("exempted"));
        seen.extend((!decision.faults.is_empty()).then_some("faults"));
        seen.extend(decision.denies().then_some("denies"));
    }
    // All but the rule that speaks of no pod.
    assert_eq!(seen.len(), Rule::ALL.len() - 1 + 3, "{seen:?}");
    assert!(injected > 40, "{injected}");
}
