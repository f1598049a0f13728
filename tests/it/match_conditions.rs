//! What the match conditions keep from the webhooks, the policy lets pass untouched and silent. The
//! rendered CEL is evaluated beside the decision.

use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, Value as Outcome};
use gpufence::contract::Contract;
use gpufence::manifest::conditions::{self, MatchCondition};
use gpufence::policy::{DAEMON_SET_CONTROLLER, Decision, Kind, Mode, NoFacts, Patterns, Phase, Policy};
use gpufence::review::{self, Webhook};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::custom_resources;
use crate::properties::{CONTRACTS, MODEL, POOL, holds, pod, wrap};
use crate::support::{Form, Request, cases, cases_path, policy, try_contract};

/// Every form of pattern, and taints that have nothing in common.
const GLOBS: &str = r#"
pools:
- name: nvidia
  resources: [nvidia.com/gpu, "nvidia.com/mig-*", "*.nvidia.com/[a-c]?"]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: [ml-team]}
- name: others
  resources: ["{amd,gpu.intel}.com/{gpu,i915}", "*/fpga", "habana.ai/ga[!a-t]di"]
  taints: [{key: amd.com/gpu, value: "5", effect: NoExecute}, {key: large, effect: NoSchedule}]
  nodeSelector: {accelerator: others}
  namespaces: {names: [ml-team, "research-*"]}
  models: {annotation: "gpu.example.com/model", nodeLabel: model, values: [a100]}
"#;

/// Each contract in each mode, with the gates that it renders.
static FENCES: LazyLock<Vec<Fence>> = LazyLock::new(|| {
    let forms = Form::ALL.map(|form| form.yaml(&["ml-team", "research-*"], ""));
    let contracts = CONTRACTS.iter().copied().chain([GLOBS]).chain(forms.iter().map(String::as_str));
    contracts.map(Fence::of).collect()
});

/// The language with optional values, as the API server has it.
static CEL: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

struct Fence {
    policies: [Policy; 3],
    mutation: Gate,
    pods: Gate,
    templates: Gate,
}

impl Fence {
    fn of(yaml: &str) -> Self {
        let without_mode = yaml.replace("mode: enforce\n", "");
        let policies = Mode::ALL.map(|mode| policy(&format!("mode: {mode}\n{without_mode}")));
        Self::around(policies)
    }

    fn around(policies: [Policy; 3]) -> Self {
        let policy = &policies[0];
        let mutation = Gate::of(conditions::of_pod_mutation(policy));
        let pods = Gate::of(conditions::of_pod_validation(policy));
        let templates = Gate::of(conditions::of_template_validation(policy));
        Self { policies, mutation, pods, templates }
    }

    /// The gate before a webhook, where its rules name the request at all.
    fn gate(&self, webhook: Webhook, kind: Kind, create: bool) -> Option<&Gate> {
        match (webhook, kind, create) {
            (Webhook::Mutate, Kind::Pod, true) => Some(&self.mutation),
            (Webhook::Mutate, ..) => None,
            (Webhook::Validate, Kind::Pod, _) => Some(&self.pods),
            (Webhook::Validate, ..) => Some(&self.templates),
        }
    }
}

/// The conditions of a hook, as the API server evaluates them.
struct Gate(Vec<(MatchCondition, Program)>);

impl Gate {
    fn of(conditions: Vec<MatchCondition>) -> Self {
        let compiled = conditions.into_iter().map(|condition| {
            let program = CEL.compile(&condition.expression);
            let program = program.unwrap_or_else(|error| panic!("{}: {error}", condition.expression));
            (condition, program)
        });
        Self(compiled.collect())
    }

    /// Whether the webhook is called. An error would leave it to the failurePolicy, and must not be.
    fn calls(&self, object: &Value, old: Option<&Value>) -> bool {
        let mut context = Context::with_env(Arc::clone(&CEL));
        context.add_variable("object", as_served(object)).unwrap();
        context.add_variable("oldObject", old.map(as_served)).unwrap();
        let holds = |(MatchCondition { name, .. }, program): &(MatchCondition, Program)| match program.execute(&context)
        {
            Ok(Outcome::Bool(holds)) => holds,
            other => panic!("{name} comes to {other:?} for {object}"),
        };
        self.0.iter().all(holds)
    }
}

/// The object as the API server hands it to an expression: out of its own types, which leave out what is
/// null, except for a pod's containers.
pub fn as_served(object: &Value) -> Value {
    match object {
        Value::Array(items) => items.iter().map(as_served).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, value)| !value.is_null() || *key == "containers");
            kept.map(|(key, value)| (key.clone(), as_served(value))).collect()
        }
        other => other.clone(),
    }
}

fn is_quiet(decision: &Decision) -> bool {
    *decision == Decision::quiet(decision.mode)
}

/// Who asks, where, and for which kind.
#[derive(Debug, Clone)]
struct Asker {
    fence: usize,
    namespace: &'static str,
    username: &'static str,
    kind: Kind,
}

impl Asker {
    fn fence(&self) -> &'static Fence {
        &FENCES[self.fence]
    }

    /// Asserts that the webhooks are silent wherever they are not called; whether either is called.
    fn check(&self, object: &Value, old: Option<&Value>) -> Result<bool, TestCaseError> {
        let mut called = false;
        for webhook in Webhook::ALL {
            let Some(gate) = self.fence().gate(webhook, self.kind, old.is_none()) else { continue };
            if gate.calls(object, old) {
                called = true;
                continue;
            }
            for policy in &self.fence().policies {
                let decision = self.decide(policy, webhook, object, old);
                prop_assert!(is_quiet(&decision), "not asked about {object} over {old:?}: {decision:?}");
            }
        }
        Ok(called)
    }

    fn decide(&self, policy: &Policy, webhook: Webhook, object: &Value, old: Option<&Value>) -> Decision {
        let (object, old) = (object.to_string(), old.map(Value::to_string));
        let object = self.kind.read(&object).unwrap();
        let old = old.as_ref().map(|old| self.kind.read(old).unwrap());
        let groups = &["system:authenticated", "system:nodes"];
        let Self { namespace, username, .. } = *self;
        let phase = if webhook == Webhook::Mutate { Phase::Mutating } else { Phase::Validating };
        Request { namespace, username, groups, object: &object, old: old.as_ref() }.decide(policy, phase)
    }
}

fn asker() -> impl Strategy<Value = Asker> {
    let namespace = select(vec!["ml-team", "research-1", "web", "kube-system"]);
    let username = select(vec!["someone@example.com", DAEMON_SET_CONTROLLER, "system:node:node-1"]);
    // Half of all are pods.
    let kind = prop_oneof![Just(Kind::Pod), select(Kind::ALL.to_vec())];
    (0..FENCES.len(), namespace, username, kind).prop_map(|(fence, namespace, username, kind)| Asker {
        fence,
        namespace,
        username,
        kind,
    })
}

/// Pods of which a part names what the patterns of [`GLOBS`] are about, or nearly.
fn named_pod() -> impl Strategy<Value = Value> {
    let names = [
        "nvidia.com/mig-1g.5gb",
        "gpu.nvidia.com/a1",
        "nvidia.com/b2",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "intel.com/gpu",
        "xilinx.com/fpga",
        "fpga",
        "habana.ai/gaudi",
        "habana.ai/gatdi",
        "example.com/nic",
    ];
    let request = (select(names.to_vec()), select(vec![json!("1"), json!("0"), json!("many")]), any::<bool>());
    let tolerations = select(vec![
        Value::Null,
        json!([]),
        json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]),
    ]);
    (pod(), option::of(request), option::weighted(0.7, tolerations)).prop_map(|(mut pod, request, tolerations)| {
        if let Some((name, quantity, first)) = request {
            let list = if first { "containers" } else { "initContainers" };
            pod["spec"][list] = json!([{"name": "c"}, {"name": "d", "resources": {"limits": {name: quantity}}}]);
        }
        if let Some(tolerations) = tolerations {
            pod["spec"]["tolerations"] = tolerations;
        }
        pod
    })
}

#[test]
fn what_is_kept_from_the_webhooks_on_create_is_allowed_untouched() {
    holds(2000, (asker(), named_pod()), |(asker, pod)| {
        asker.check(&wrap(asker.kind, &pod), None)?;
        Ok(())
    });
}

#[test]
fn what_is_kept_from_the_webhooks_on_update_is_allowed_untouched() {
    let edits: Vec<fn(&mut Value, &Value)> = vec![
        |_, _| {},
        |pod, _| pod["metadata"]["labels"] = json!({"a": "b"}),
        |pod, _| pod["metadata"]["finalizers"] = json!(["example.com/hold"]),
        |pod, _| pod["metadata"]["annotations"] = json!({"other": "x"}),
        |pod, _| pod["metadata"]["annotations"] = json!({MODEL: "unknown"}),
        |pod, _| pod["metadata"]["annotations"] = json!({POOL: "large"}),
        |pod, _| pod["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"}),
        |pod, _| pod["metadata"]["annotations"] = json!({"gpu-memory": "0"}),
        |pod, _| pod["metadata"]["labels"] = json!({POOL: "large"}),
        |pod, other| pod["metadata"]["labels"] = other["metadata"]["labels"].clone(),
        |pod, other| pod["metadata"]["annotations"] = other["metadata"]["annotations"].clone(),
        |pod, other| pod["spec"]["resourceClaims"] = other["spec"]["resourceClaims"].clone(),
        |pod, other| pod["metadata"]["ownerReferences"] = other["metadata"]["ownerReferences"].clone(),
        |pod, other| pod["spec"]["tolerations"] = other["spec"]["tolerations"].clone(),
        |pod, other| pod["spec"]["nodeSelector"] = other["spec"]["nodeSelector"].clone(),
        |pod, other| pod["spec"]["affinity"] = other["spec"]["affinity"].clone(),
        |pod, other| pod["spec"]["containers"] = other["spec"]["containers"].clone(),
        |pod, other| pod["spec"] = other["spec"].clone(),
        |pod, other| *pod = other.clone(),
    ];
    holds(3000, (asker(), named_pod(), named_pod(), vec(select(edits), 1..3)), |(asker, old, other, edits)| {
        // The API server stores no quantity that cannot be read.
        let unreadable = |pod: &Value| {
            let policy = &asker.fence().policies[0];
            let asker = Asker { kind: Kind::Pod, ..asker.clone() };
            !asker.decide(policy, Webhook::Mutate, pod, None).faults.is_empty()
        };
        let mut new = old.clone();
        for edit in edits {
            edit(&mut new, &other);
        }
        if unreadable(&old) || unreadable(&new) {
            return Ok(());
        }
        let mut new = wrap(asker.kind, &new);
        new["metadata"]["resourceVersion"] = json!("2");
        new["status"] = json!({"phase": "Running"});
        asker.check(&new, Some(&wrap(asker.kind, &old)))?;
        Ok(())
    });
}

#[test]
fn both_outcomes_are_generated() {
    let outcomes = std::cell::RefCell::new([0_u32; 4]);
    holds(500, (asker(), named_pod(), any::<bool>()), |(asker, pod, create)| {
        let object = wrap(asker.kind, &pod);
        let called = asker.check(&object, (!create).then_some(&object)).unwrap_or_default();
        outcomes.borrow_mut()[usize::from(create) * 2 + usize::from(called)] += 1;
        Ok(())
    });
    let [kept, unchanged, passed_by, called] = outcomes.into_inner();
    // Where nothing changes nobody is asked.
    assert!(kept > 100 && unchanged == 0, "{kept} {unchanged}");
    assert!(passed_by > 20 && called > 40, "{passed_by} {called}");
}

/// Exactly so where the expression is a plain one; of any other glob more is asked about, and never less.
#[test]
fn what_a_glob_matches_is_asked_about() {
    let pattern = "[ab.*?{},\\[\\]!-]{0,3}[a*?]{1,2}/[ab.*?{},\\[\\]!-]{0,3}[a*?]";
    let names = vec("[ab.-]{0,3}[ab]/[ab.-]{0,3}[ab]", 30);
    let compared = std::cell::RefCell::new([0_u32; 2]);
    holds(250, (pattern, names), |(pattern, names)| {
        let yaml = format!(
            "pools: [{{name: p, resources: ['{pattern}'], taints: [{{key: k, effect: NoSchedule}}], nodeSelector: {{a: b}}}}]"
        );
        let Ok(Contract { policy, .. }) = try_contract(&yaml) else { return Ok(()) };
        let patterns = Patterns::new(vec![pattern.clone()]).unwrap();
        let gate = Gate::of(conditions::of_pod_mutation(&policy));
        for name in names {
            let pod = json!({"spec": {"containers": [{"resources": {"requests": {&name: "1"}}}]}});
            let matches = patterns.matches(&name);
            let expression = &gate.0[0].0.expression;
            let exact = !expression.contains("name.contains('/')") && !expression.contains(" && name.endsWith");
            if matches || exact {
                prop_assert_eq!(gate.calls(&pod, None), matches, "{} {}: {}", pattern, name, expression);
            }
            compared.borrow_mut()[usize::from(matches)] += 1;
        }
        Ok(())
    });
    let [apart, matched] = compared.into_inner();
    assert!(apart > 500 && matched > 60, "{apart} {matched}");
}

#[test]
fn the_plain_globs_are_plain_expressions() {
    let expression = conditions::of_pod_mutation(&policy(GLOBS)).remove(0).expression;
    for part in [
        "name in ['nvidia.com/gpu']",
        "name.startsWith('nvidia.com/mig-')",
        "name.endsWith('/fpga')",
        "name.contains('/')",
    ] {
        assert!(expression.contains(part), "{part} is not in {expression}");
    }
}

#[test]
fn nobody_asks_about_an_ordinary_pod() {
    let mut ordinary = json!({
        "metadata": {"generateName": "web-", "annotations": {"example.com/checksum": "1"}, "labels": {"app": "web"}},
        "spec": {
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "initContainers": [{"name": "init", "resources": {}}],
            "containers": [{
                "name": "web",
                "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}, "limits": {"memory": "1Gi", "hugepages-2Mi": "0"}},
            }],
        },
    });
    let mut changed = ordinary.clone();
    changed["spec"]["containers"][0]["image"] = json!("web:2");
    for fence in &*FENCES {
        assert!(!fence.mutation.calls(&ordinary, None));
        for kind in Kind::ALL {
            let (object, changed) = (wrap(kind, &ordinary), wrap(kind, &changed));
            let gate = fence.gate(Webhook::Validate, kind, true).unwrap();
            assert!(!gate.calls(&object, None) && !gate.calls(&changed, Some(&object)), "{}", kind.name());
        }
    }
    // Neither about one without anything.
    for spec in [json!({}), json!({"containers": null}), json!({"containers": [{}], "tolerations": [{"key": "x"}]})] {
        ordinary["spec"] = spec;
        for fence in &*FENCES {
            assert!(!fence.pods.calls(&ordinary, None) && !fence.mutation.calls(&ordinary, None));
        }
    }
}

#[test]
fn what_could_pass_or_asks_is_asked_about() {
    let fence = Fence::of(&Form::Dedicated.yaml(&["ml-team"], ""));
    let pod = |tolerations: Value, resources: Value| json!({"metadata": {}, "spec": {"tolerations": tolerations, "containers": [{"resources": resources}]}});
    for (toleration, asked) in [
        (json!({"operator": "Exists"}), true),
        (json!({"key": "", "operator": "Exists"}), true),
        (json!({"key": "dedicated", "operator": "Exists"}), true),
        (json!({"key": "dedicated", "value": "gpu"}), true),
        (json!({"key": "other", "operator": "Exists"}), false),
    ] {
        let pod = pod(json!([{"key": "x", "operator": "Exists"}, toleration]), json!({}));
        assert_eq!(fence.pods.calls(&pod, None), asked, "{pod}");
        // Nothing is ever added to it.
        assert!(!fence.mutation.calls(&pod, None));
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_template()) {
            assert_eq!(fence.templates.calls(&wrap(kind, &pod), None), asked, "{} {pod}", kind.name());
        }
    }
    for side in ["requests", "limits"] {
        let pod = pod(json!([]), json!({side: {"cpu": "1", "nvidia.com/mig-1g.5gb": "1"}}));
        assert!(fence.pods.calls(&pod, None) && fence.mutation.calls(&pod, None), "{pod}");
        let mut init = pod.clone();
        init["spec"]["initContainers"] = init["spec"]["containers"].take();
        assert!(fence.pods.calls(&init, None) && fence.mutation.calls(&init, None), "{init}");
    }
}

#[test]
fn an_update_of_a_gpu_pod_is_asked_about_where_it_counts() {
    let fence = Fence::of(&format!(
        "{}  models: {{annotation: {MODEL}, nodeLabel: m, values: [a]}}\n",
        Form::Nvidia.yaml(&["ml-team"], "")
    ));
    let old = json!({
        "metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"], "annotations": {MODEL: "a"}},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], "tolerations": [{"operator": "Exists"}]},
    });
    let asked = |edit: fn(&mut Value)| {
        let mut new = old.clone();
        edit(&mut new);
        fence.pods.calls(&new, Some(&old))
    };
    // With the webhook down a finished Job's pods must still go.
    assert!(!asked(|pod| pod["metadata"] = json!({"annotations": {MODEL: "a"}, "resourceVersion": "2"})));
    assert!(!asked(|pod| pod["metadata"]["annotations"]["cni.example.com/addresses"] = json!("10.0.0.1")));
    assert!(!asked(|pod| pod["status"] = json!({"phase": "Succeeded"})));
    assert!(asked(|pod| pod["metadata"]["annotations"] = json!({})));
    assert!(asked(|pod| pod["metadata"] = json!({})));
    assert!(asked(|pod| pod["spec"]["tolerations"] = json!([{"operator": "Exists"}, {"key": "x"}])));
}

#[test]
fn a_custom_resource_is_asked_about_where_a_path_leads_into_what_changed() {
    let policies =
        ["audit", "warn", "enforce"].map(|mode| custom_resources::of_widgets_in(mode, "nodes: {whenUnknown: deny}"));
    let gate = Gate::of(conditions::of_custom_resources(&policies[0]));
    let templates = custom_resources::templates;
    let edits = prop_oneof![Just(None), select(vec!["metadata", "status", "spec"]).prop_map(Some)];
    holds(300, (templates(), option::of(templates()), edits), |(new, old, edit)| {
        let mut object = custom_resources::widget(json!({ "templates": new }));
        if let Some(field) = edit {
            object[field]["edited"] = "yes".into();
        }
        let mut before = custom_resources::widget(json!({ "templates": old.clone().unwrap_or_else(|| new.clone()) }));
        before["metadata"]["labels"] = json!({"before": "yes"});
        prop_assert!(gate.calls(&object, None));
        let called = gate.calls(&object, Some(&before));
        if old.is_none() {
            prop_assert_eq!(called, edit == Some("spec"));
        }
        for policy in policies.iter().filter(|_| !called) {
            let body = custom_resources::request(&object, Some(&before)).to_string();
            let reviewed = review::examine(policy, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap();
            prop_assert!(is_quiet(&reviewed.decision), "not asked about {object} over {before}: {reviewed:?}");
        }
        Ok(())
    });
}

#[test]
fn recorded_objects_and_requests_agree() {
    let (mut called, mut kept) = (0, 0);
    let mut count = |was_called: bool| *(if was_called { &mut called } else { &mut kept }) += 1;
    for case in cases("objects.jsonl") {
        let object = &case["object"];
        let (object, old) = match case["kind"].as_str().unwrap() {
            "review" => (&object["request"]["object"], &object["request"]["oldObject"]),
            _ => (object, &case["old_object"]),
        };
        let Some(kind) = Kind::ALL.into_iter().find(|kind| object["kind"] == kind.name()) else { continue };
        for fence in 0..FENCES.len() {
            for namespace in ["ml-team", "web"] {
                let asker = Asker { fence, namespace, username: "someone", kind };
                count(asker.check(object, Some(old).filter(|old| !old.is_null())).unwrap());
            }
        }
    }
    let mut files: Vec<_> =
        std::fs::read_dir(cases_path("admission-reviews")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let body = std::fs::read(&file).unwrap();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let request = &review["request"];
        let kind = Kind::ALL.into_iter().find(|kind| request["kind"]["kind"] == kind.name());
        let (Some(kind), true) = (kind, request["subResource"].as_str().is_none_or(str::is_empty)) else { continue };
        let create = match request["operation"].as_str().unwrap() {
            "CREATE" => true,
            "UPDATE" => false,
            _ => continue,
        };
        for fence in &*FENCES {
            for webhook in Webhook::ALL {
                let Some(gate) = fence.gate(webhook, kind, create) else { continue };
                let asked = gate.calls(&request["object"], (!create).then_some(&request["oldObject"]));
                count(asked);
                for policy in fence.policies.iter().filter(|_| !asked) {
                    let decision = review::examine(policy, &NoFacts, webhook, &body).unwrap().decision;
                    assert!(is_quiet(&decision), "{}: {decision:?}", file.display());
                }
            }
        }
    }
    assert!(called > 500 && kept > 100, "{called} {kept}");
}

#[test]
fn the_conditions_keep_within_the_api_servers_limits() {
    let pools: Vec<_> = (0..64)
        .map(|pool| {
            format!(
                "{{name: p{pool}, resources: ['v{pool}.com/a', 'v{pool}.com/b-*', 'v{pool}.com/[cd]'], nodeSelector: {{n: v{pool}}}, \
                 taints: [{{key: k{pool}, effect: NoSchedule}}], models: {{annotation: m{pool}, nodeLabel: m, values: [a]}}, \
                 markers: {{claims: [c{pool}], annotations: [f{pool}]}}}}"
            )
        })
        .collect();
    let largest = policy(&format!("selection: {{annotation: p, label: p}}\npools: [{}]", pools.join(", ")));
    for (policy, longest) in [(&largest, 16_000), (&policy(CONTRACTS[0]), 1_000)] {
        for conditions in [
            conditions::of_pod_mutation(policy),
            conditions::of_pod_validation(policy),
            conditions::of_template_validation(policy),
        ] {
            assert!(conditions.len() <= 64);
            let mut names: Vec<_> = conditions.iter().map(|condition| condition.name).collect();
            let legal =
                |name: &str| name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(names.iter().all(|name| legal(name)), "{names:?}");
            names.dedup();
            assert_eq!(names.len(), conditions.len());
            for MatchCondition { expression, .. } in conditions {
                assert!(expression.len() < longest, "{} {expression}", expression.len());
            }
        }
    }
    let pods = Gate::of(conditions::of_pod_validation(&largest));
    let tolerations = |last: &str| {
        let mut tolerations = vec![json!({"key": "example.com/other", "operator": "Exists"}); 999];
        tolerations.push(json!({"key": last}));
        json!({"metadata": {}, "spec": {"tolerations": tolerations}})
    };
    assert!(!pods.calls(&tolerations("k64"), None) && pods.calls(&tolerations("k63"), None));
}

/// Going through it could cost more than the API server lets a condition cost; then the failurePolicy would decide.
#[test]
fn an_object_that_is_too_long_to_go_through_is_asked_about() {
    let fence = Fence::of(&Form::Dedicated.yaml(&["ml-team"], ""));
    let tolerations = |count| json!({"tolerations": vec![json!({"key": "a"}); count], "containers": [{}]});
    let containers = |list: &str, count| json!({list: vec![json!({"name": "c"}); count]});
    let amounts = |side: &str, count| {
        let amounts: serde_json::Map<_, _> = (0..count).map(|name| (format!("memory-{name}"), json!("1"))).collect();
        json!({"containers": [{}, {"resources": {side: amounts}}]})
    };
    for (within, beyond, completed) in [
        (tolerations(1_000), tolerations(1_001), false),
        (tolerations(0), tolerations(112_000), false),
        (containers("containers", 50), containers("containers", 51), true),
        (containers("initContainers", 50), containers("initContainers", 51), true),
        (amounts("requests", 20), amounts("requests", 21), true),
        (amounts("limits", 20), amounts("limits", 21), true),
    ] {
        for (spec, asked) in [(within, false), (beyond, true)] {
            let pod = json!({"metadata": {}, "spec": spec});
            let case = pod.to_string().chars().take(200).collect::<String>();
            assert_eq!(fence.pods.calls(&pod, None), asked, "{case}");
            assert_eq!(fence.mutation.calls(&pod, None), asked && completed, "{case}");
            for kind in Kind::ALL.into_iter().filter(|kind| kind.is_template()) {
                assert_eq!(fence.templates.calls(&wrap(kind, &pod), None), asked, "{} {case}", kind.name());
            }
        }
    }
}

/// What costs nothing comes first.
#[test]
fn the_lists_are_gone_through_last() {
    let contract = "pools: [{name: p, resources: [a/b], taints: [{key: k, effect: NoSchedule}], nodeSelector: {n: v}, \
                    markers: {claims: [c], annotations: [f]}}]";
    let reaches = &conditions::of_pod_validation(&policy(contract))[0].expression;
    let parts = [
        "nodeName",
        "tolerations.orValue([]).size() > 1000",
        "tolerations.orValue([]).exists",
        "resourceClaims",
        "annotations",
        "containers.size() > 50",
        "containers.exists",
        "amounts.size() > 20",
        "amounts.exists",
    ];
    let places: Vec<_> = parts.iter().map(|part| reaches.find(part).expect(part)).collect();
    assert!(places.is_sorted(), "{places:?} {reaches}");
}
