//! Decisions that the objects from the wild do not reach: several pools, models, exemptions, rollout,
//! and the labels of namespaces.

use std::collections::BTreeMap;

use gpufence::policy::{
    DAEMON_SET_CONTROLLER, Decision, Exempted, Facts, Kind, MIRROR_ANNOTATION, Mode, NamespaceLabels, NoFacts, Phase,
    Policy, Purpose, Rule,
};
use serde_json::{Value, json};

use crate::support::{Form, Request, gpu_pod, pod, policy};

/// A request to create something, and what is known.
pub struct Trial<'a> {
    policy: &'a Policy,
    facts: &'a dyn Facts,
    namespace: &'a str,
    username: &'a str,
    groups: &'a [&'a str],
}

impl<'a> Trial<'a> {
    /// A person's request.
    pub fn new(policy: &'a Policy, namespace: &'a str) -> Self {
        Self { policy, facts: &NoFacts, namespace, username: "someone", groups: &["system:authenticated"] }
    }

    pub fn by(self, username: &'a str) -> Self {
        Self { username, ..self }
    }

    pub fn decide(&self, phase: Phase, kind: Kind, object: &Value) -> Decision {
        let object = object.to_string();
        let object = kind.read(&object).unwrap();
        let Self { namespace, username, groups, .. } = *self;
        let request = Request { namespace, username, groups, object: &object, old: None };
        request.decide_with(self.policy, phase, self.facts)
    }

    /// The pod as it is stored, and what validation says of it.
    pub fn create(&self, pod: &Value) -> (Value, Decision) {
        let mut pod = pod.clone();
        if let Some(injection) = self.decide(Phase::Mutating, Kind::Pod, &pod).injection {
            json_patch::patch(&mut pod, &injection.patch).unwrap();
        }
        let decision = self.decide(Phase::Validating, Kind::Pod, &pod);
        (pod, decision)
    }

    /// The rules that speak of the pod as it is stored.
    pub fn rules(&self, pod: &Value) -> Vec<&'static str> {
        ids(&self.create(pod).1)
    }

    /// The pool from which the pod is completed.
    pub fn pool(&self, pod: &Value) -> Option<String> {
        self.decide(Phase::Mutating, Kind::Pod, pod).injection.map(|injection| match injection.purpose {
            Purpose::Complete(pool) => pool,
            Purpose::Fence(_) => unreachable!("nothing is fenced"),
        })
    }

    fn exempted(&self, pod: &Value) -> Option<Exempted> {
        let exempted = self.decide(Phase::Validating, Kind::Pod, pod).exempted;
        assert!(exempted.len() < 2, "{exempted:?}");
        exempted.into_iter().next()
    }
}

fn ids(decision: &Decision) -> Vec<&'static str> {
    decision.findings.iter().map(|finding| finding.rule.id()).collect()
}

fn tolerating(tolerations: &Value) -> Value {
    pod(&json!({}), &json!({"tolerations": tolerations}))
}

fn exact(key: &str, value: &str, effect: &str) -> Value {
    json!({"key": key, "operator": "Equal", "value": value, "effect": effect})
}

/// Pools as `name resources taints labels namespaces`, a line each, with `+` between several.
fn pools(lines: &[&str]) -> String {
    let pools: Vec<_> = lines
        .iter()
        .map(|line| {
            let [name, resources, taints, labels, namespaces] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let list = |text: &str| text.split('+').map(Value::from).collect::<Vec<_>>();
            let taints = taints.split('+').map(|taint| {
                let (key, rest) = taint.split_once('=').unwrap();
                let (value, effect) = rest.split_once(':').unwrap();
                json!({"key": key, "value": value, "effect": effect})
            });
            let labels = labels.split('+').map(|label| label.split_once('=').unwrap());
            json!({
                "name": name,
                "resources": list(resources),
                "taints": taints.collect::<Vec<_>>(),
                "nodeSelector": labels.collect::<BTreeMap<_, _>>(),
                "namespaces": {"names": list(namespaces)},
            })
        })
        .collect();
    json!({"mode": "enforce", "pools": pools}).to_string()
}

#[test]
fn the_first_rollout_entry_that_names_the_namespace_counts_up_or_down() {
    let entries = "rollout:\n- {namespaces: [pilot-legacy], mode: audit}\n- {namespaces: ['pilot-*'], mode: enforce}\n\
                   - {namespaces: ['*'], mode: warn}\n- {namespaces: [pilot-late], mode: audit}";
    let own = |mode: Mode| {
        policy(&Form::Dedicated.yaml(&["ml-team"], entries).replace("enforce\npools", &format!("{mode}\npools")))
    };
    let table =
        [("pilot-legacy", Mode::Audit), ("pilot-a", Mode::Enforce), ("pilot-late", Mode::Enforce), ("web", Mode::Warn)];
    for mode in Mode::ALL {
        let policy = own(mode);
        assert_eq!(policy.mode(), mode);
        for (namespace, expected) in table {
            assert_eq!(policy.mode_in(namespace, &NoFacts).mode, expected, "{namespace} under {mode}");
            let decision = Trial::new(&policy, namespace).create(&gpu_pod(&json!({}))).1;
            assert_eq!(decision.mode, expected);
            assert_eq!(decision.denies(), expected == Mode::Enforce, "{namespace} under {mode}");
            assert!(decision.would_deny(), "{namespace} under {mode}");
        }
    }
    let policy = policy(&Form::Dedicated.yaml(&["ml-team"], "rollout: [{namespaces: [web], mode: audit}]"));
    assert_eq!(
        policy.mode_in("other", &NoFacts).mode,
        Mode::Enforce,
        "where no entry matches, the contract's mode counts"
    );
    assert_eq!(policy.mode_in("web-2", &NoFacts).mode, Mode::Enforce, "a name matches whole");
}

#[test]
fn a_shared_resource_means_the_pool_that_the_pod_selects_else_one_it_may_use_else_the_first() {
    let policy = policy(&pools(&[
        "small nvidia.com/gpu dedicated=gpu:NoSchedule accelerator=small ml-team",
        "large nvidia.com/gpu large=gpu:NoSchedule accelerator=large ml-team+big-team",
        "huge nvidia.com/gpu huge=gpu:NoSchedule accelerator=huge+zone=z big-team",
    ]));
    for (namespace, selector, pool) in [
        ("ml-team", json!({}), Some("small")),
        ("ml-team", json!({"accelerator": "large"}), Some("large")),
        ("ml-team", json!({"accelerator": "large", "disk": "ssd"}), Some("large")),
        // Selected, and not allowed: nothing is injected, and the rules speak of that pool.
        ("ml-team", json!({"accelerator": "huge", "zone": "z"}), None),
        // Only one is not contradicted.
        ("ml-team", json!({"accelerator": "huge"}), None),
        ("big-team", json!({}), Some("large")),
        ("big-team", json!({"accelerator": "huge"}), Some("huge")),
        // Two are left over, and only the last is allowed.
        ("big-team", json!({"zone": "z"}), Some("large")),
        // No pool can be meant: the first that the namespace may use, whose labels conflict.
        ("ml-team", json!({"accelerator": "none"}), Some("small")),
        ("big-team", json!({"accelerator": "none"}), Some("large")),
        ("web", json!({}), None),
    ] {
        let trial = Trial::new(&policy, namespace);
        let pod = gpu_pod(&json!({"nodeSelector": selector}));
        assert_eq!(trial.pool(&pod).as_deref(), pool, "{namespace} {selector}");
        let expected: &[&str] = match (pool, selector["accelerator"].as_str()) {
            (None, _) => &["gpu-request-outside-allowlist"],
            (Some(_), Some("none")) => &["placement-conflict"],
            _ => &[],
        };
        assert_eq!(trial.rules(&pod), expected, "{namespace} {selector}");
    }
    let message = &Trial::new(&policy, "web").create(&gpu_pod(&json!({}))).1.findings[0].message;
    assert!(message.contains("pool small, "), "{message}");
}

#[test]
fn resources_of_two_pools_conflict_unless_one_pool_has_both() {
    let lines = [
        "nvidia nvidia.com/gpu dedicated=gpu:NoSchedule accelerator=nvidia ml-team",
        "amd amd.com/gpu amd=gpu:NoSchedule accelerator=amd ml-team",
        "both nvidia.com/gpu+amd.com/gpu both=gpu:NoSchedule accelerator=both ml-team",
    ];
    let two = pod(&json!({"nvidia.com/gpu": 1, "amd.com/gpu": 1}), &json!({}));
    let zero = pod(&json!({"nvidia.com/gpu": 1, "amd.com/gpu": "0"}), &json!({}));

    let apart = policy(&pools(&lines[..2]));
    assert_eq!(Trial::new(&apart, "ml-team").pool(&two), None);
    assert_eq!(Trial::new(&apart, "ml-team").rules(&two), ["placement-conflict"]);
    assert_eq!(Trial::new(&apart, "ml-team").pool(&zero).as_deref(), Some("nvidia"));
    // Outside each allowlist is a breach of its own, and so is asking for both.
    let rules = ["gpu-request-outside-allowlist", "gpu-request-outside-allowlist", "placement-conflict"];
    assert_eq!(Trial::new(&apart, "web").rules(&two), rules);

    let together = policy(&pools(&lines));
    assert_eq!(Trial::new(&together, "ml-team").pool(&two).as_deref(), Some("both"));
    assert_eq!(Trial::new(&together, "ml-team").rules(&two), [""; 0]);
    assert_eq!(Trial::new(&together, "ml-team").pool(&zero).as_deref(), Some("nvidia"));
}

#[test]
fn the_exact_toleration_of_an_allowed_pool_is_no_breach_of_its_twin() {
    let policy = policy(&pools(&[
        "mine nvidia.com/gpu dedicated=gpu:NoSchedule accelerator=mine ml-team",
        "theirs amd.com/gpu dedicated=gpu:NoSchedule accelerator=theirs other-team",
        "fenced amd.com/gpu-x dedicated=gpu:NoSchedule+fenced=yes:NoSchedule accelerator=fenced other-team",
    ]));
    let (shared, own) = (exact("dedicated", "gpu", "NoSchedule"), exact("fenced", "yes", "NoSchedule"));
    for (namespace, tolerations, rules) in [
        ("ml-team", json!([shared]), &["toleration-without-gpu-request"][..]),
        ("other-team", json!([shared]), &["toleration-without-gpu-request"]),
        // The pool behind a second taint is another reach.
        ("ml-team", json!([shared, own]), &["toleration-outside-allowlist", "toleration-without-gpu-request"]),
        ("ml-team", json!([own]), &[]),
        ("other-team", json!([shared, own]), &["toleration-without-gpu-request", "toleration-without-gpu-request"]),
        (
            "web",
            json!([shared, own]),
            &["toleration-outside-allowlist", "toleration-outside-allowlist", "toleration-outside-allowlist"],
        ),
    ] {
        assert_eq!(Trial::new(&policy, namespace).rules(&tolerating(&tolerations)), rules, "{namespace} {tolerations}");
    }
    let gpu = Trial::new(&policy, "ml-team").create(&gpu_pod(&json!({})));
    assert_eq!(ids(&gpu.1), [""; 0], "what is injected is a breach of no other pool");
}

#[test]
fn the_author_is_blamed_for_the_toleration_that_the_author_wrote() {
    let policy = policy(&pools(&[
        "mine nvidia.com/gpu dedicated=gpu:NoSchedule accelerator=mine ml-team",
        "fenced amd.com/gpu dedicated=gpu:NoSchedule+fenced=yes:NoSchedule accelerator=fenced other-team",
    ]));
    let pod = gpu_pod(&json!({"tolerations": [exact("fenced", "yes", "NoSchedule")]}));
    let (_, decision) = Trial::new(&policy, "ml-team").create(&pod);
    assert_eq!(ids(&decision), ["toleration-outside-allowlist"]);
    // The second one is injected, and nobody can take it out.
    assert_eq!(decision.findings[0].field, "spec.tolerations[0]", "{}", decision.findings[0].message);
}

#[test]
fn an_update_is_blamed_for_the_toleration_that_it_adds() {
    let lines = ["nvidia nvidia.com/gpu dedicated=gpu:NoSchedule+dedicated=gpu:NoExecute accelerator=nvidia ml-team"];
    let policy = policy(&pools(&lines));
    let (schedule, execute) = (exact("dedicated", "gpu", "NoSchedule"), exact("dedicated", "gpu", "NoExecute"));
    for added in [execute, json!({"operator": "Exists"})] {
        let texts =
            [json!([schedule]), json!([schedule, added])].map(|tolerations| tolerating(&tolerations).to_string());
        let [old, new] = [0, 1].map(|index| Kind::Pod.read(&texts[index]).unwrap());
        let request = Request { namespace: "web", username: "someone", groups: &[], object: &new, old: Some(&old) };
        let decision = request.decide(&policy, Phase::Validating);
        assert_eq!(ids(&decision), ["toleration-outside-allowlist"]);
        assert_eq!(decision.findings[0].field, "spec.tolerations[1]", "{}", decision.findings[0].message);
    }
}

#[test]
fn the_advice_for_a_wide_toleration_keeps_all_that_it_was_there_for() {
    let lines = ["nvidia nvidia.com/gpu dedicated=gpu:NoSchedule+dedicated=gpu:NoExecute accelerator=nvidia ml-team"];
    let policy = policy(&pools(&lines));
    let pod = tolerating(&json!([{"key": "dedicated", "value": "gpu"}]));
    let decision = Trial::new(&policy, "ml-team").decide(Phase::Validating, Kind::Pod, &pod);
    let broad = decision.findings.iter().find(|finding| finding.rule.id() == "broad-toleration").unwrap();
    let advice = "Write {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule} and \
                  {key: dedicated, operator: Equal, value: gpu, effect: NoExecute}, or leave it out";
    assert!(broad.message.contains(advice), "{}", broad.message);
}

#[test]
fn a_toleration_that_ends_is_not_enough_even_where_a_wider_one_is() {
    let lines = ["nvidia nvidia.com/gpu dedicated=gpu:NoSchedule+dedicated=gpu:NoExecute accelerator=nvidia ml-team"];
    let skip = "{\"injection\": {\"whenTolerated\": \"skip\"}, ";
    let policy = policy(&pools(&lines).replacen('{', skip, 1));
    let bounded = json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30});
    let wide = json!({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"});
    let (pod, _) = Trial::new(&policy, "ml-team").create(&gpu_pod(&json!({"tolerations": [wide, bounded]})));
    assert_eq!(pod["spec"]["tolerations"], json!([wide, bounded, exact("dedicated", "gpu", "NoExecute")]));
}

#[test]
fn audit_mode_and_templates_foretell_what_the_injected_tolerations_bring_about() {
    let lines = [
        "mine nvidia.com/gpu dedicated=gpu:NoSchedule+dedicated=gpu:NoExecute accelerator=mine ml-team",
        "fenced amd.com/gpu dedicated=gpu:NoSchedule+fenced=yes:NoSchedule accelerator=fenced other-team",
    ];
    for (toleration, rule) in [
        // Passes only with the one that is injected.
        (exact("fenced", "yes", "NoSchedule"), "toleration-outside-allowlist"),
        // Is wide for one of the two taints.
        (json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}), "broad-toleration"),
    ] {
        let pod = gpu_pod(&json!({"tolerations": [toleration]}));
        for mode in Mode::ALL {
            let policy = policy(&pools(&lines).replace("enforce", mode.as_str()));
            let trial = Trial::new(&policy, "ml-team");
            let decision = match mode {
                // Nothing is injected.
                Mode::Audit => trial.decide(Phase::Validating, Kind::Pod, &pod),
                Mode::Warn | Mode::Enforce => trial.create(&pod).1,
            };
            assert_eq!(ids(&decision), [rule], "{mode}");
            assert_eq!(decision.findings[0].field, "spec.tolerations[0]", "{mode}");
            let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": pod}});
            assert_eq!(ids(&trial.decide(Phase::Validating, Kind::Deployment, &deployment)), [rule], "{mode}");
        }
    }
}

#[test]
fn a_pool_with_a_no_execute_twin_wants_both() {
    let lines = ["nvidia nvidia.com/gpu dedicated=gpu:NoSchedule+dedicated=gpu:NoExecute accelerator=nvidia ml-team"];
    let policy = policy(&pools(&lines));
    let (schedule, execute) = (exact("dedicated", "gpu", "NoSchedule"), exact("dedicated", "gpu", "NoExecute"));
    for (tolerations, passes) in [
        (json!([schedule]), false),
        (json!([execute]), false),
        (json!([schedule, execute]), true),
        (json!([execute, schedule]), true),
        (json!([{"key": "dedicated", "value": "gpu"}]), true),
        (json!([{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}, execute]), true),
        // It bounds the stay and does not keep anyone out.
        (json!([schedule, {"key": "dedicated", "value": "gpu", "effect": "NoExecute", "tolerationSeconds": 5}]), true),
    ] {
        let rules = Trial::new(&policy, "web").rules(&tolerating(&tolerations));
        let expected: &[&str] = if passes { &["toleration-outside-allowlist"] } else { &[] };
        assert_eq!(rules, expected, "{tolerations}");
    }
    for (before, after) in [
        (json!(null), json!([schedule, execute])),
        (json!([]), json!([schedule, execute])),
        (json!([schedule]), json!([schedule, execute])),
        (json!([execute]), json!([execute, schedule])),
    ] {
        let (pod, decision) = Trial::new(&policy, "ml-team").create(&gpu_pod(&json!({"tolerations": before})));
        assert_eq!(pod["spec"]["tolerations"], after);
        assert_eq!(ids(&decision), [""; 0], "{before}");
    }
}

#[test]
fn a_model_that_the_pod_names_becomes_a_label() {
    let policy = policy("mode: enforce");
    let trial = Trial::new(&policy, "ml-team");
    let key = "gpu.example.com/model";
    let own = "workload.example.com/accelerator";
    let named = |model: &Value, spec: &Value| {
        let mut pod = gpu_pod(spec);
        pod["metadata"]["annotations"] = json!({key: model});
        pod
    };
    for (model, selector, after, rules) in [
        (json!("a100"), json!(null), json!({own: "nvidia", key: "a100"}), &[][..]),
        (json!("h100"), json!({"a": "b"}), json!({"a": "b", own: "nvidia", key: "h100"}), &[]),
        (json!("a100"), json!({key: "a100"}), json!({own: "nvidia", key: "a100"}), &[]),
        // What the pod selects itself stays, and cannot run.
        (json!("a100"), json!({key: "h100"}), json!({own: "nvidia", key: "h100"}), &["placement-conflict"]),
        // A model that the contract does not have is not injected.
        (json!("b200"), json!(null), json!({own: "nvidia"}), &["placement-conflict"]),
        (json!("A100"), json!(null), json!({own: "nvidia"}), &["placement-conflict"]),
        // What a chart leaves empty names nothing.
        (json!(""), json!(null), json!({own: "nvidia"}), &[]),
        // No annotation of the contract's.
        (json!(null), json!({key: "anything"}), json!({own: "nvidia", key: "anything"}), &[]),
    ] {
        let mut pod = named(&model, &json!({"nodeSelector": selector}));
        if model.is_null() {
            pod["metadata"]["annotations"] = json!({"other": "a100"});
        }
        let (pod, decision) = trial.create(&pod);
        assert_eq!(pod["spec"]["nodeSelector"], after, "{model} {selector}");
        assert_eq!(ids(&decision), rules, "{model} {selector}");
    }
    // Nobody's business on a pod without a GPU.
    let mut plain = tolerating(&json!(null));
    plain["metadata"]["annotations"] = json!({key: "b200"});
    let (after, decision) = trial.create(&plain);
    assert_eq!((after, ids(&decision)), (plain, vec![]));
}

const AGENTS: &str =
    "exemptions:\n- {name: agents, reason: r, namespaces: [monitoring, 'infra-*'], daemonSets: [exporter, 'agent-*']}";

fn owned(version: &str, kind: &str, name: &str, controller: &Value) -> Value {
    let mut pod = tolerating(&json!([{"operator": "Exists"}]));
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": version, "kind": kind, "name": name, "controller": controller}]);
    pod
}

#[test]
fn an_exemption_needs_the_controller_the_listed_owner_and_the_namespace() {
    let policy = policy(&Form::Dedicated.yaml(&["ml-team"], AGENTS));
    let listed = ("apps/v1", "DaemonSet", "exporter", json!(true));
    for (username, namespace, (version, kind, name, controller), exempt) in [
        (DAEMON_SET_CONTROLLER, "monitoring", listed.clone(), true),
        (DAEMON_SET_CONTROLLER, "infra-1", listed.clone(), true),
        (DAEMON_SET_CONTROLLER, "infra-1", ("apps/v1", "DaemonSet", "agent-x", json!(true)), true),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps/v1beta2", "DaemonSet", "exporter", json!(true)), true),
        // The reference can be forged.
        ("someone", "monitoring", listed.clone(), false),
        ("system:serviceaccount:monitoring:daemon-set-controller", "monitoring", listed.clone(), false),
        ("system:serviceaccount:kube-system:job-controller", "monitoring", listed.clone(), false),
        ("system:kube-controller-manager", "monitoring", listed.clone(), false),
        ("", "monitoring", listed.clone(), false),
        // The controller acts for every tenant.
        (DAEMON_SET_CONTROLLER, "web", listed, false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps/v1", "DaemonSet", "miner", json!(true)), false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps/v1", "DaemonSet", "exporter-2", json!(true)), false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps/v1", "DaemonSet", "exporter", json!(false)), false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps/v1", "DaemonSet", "exporter", json!(null)), false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps/v1", "ReplicaSet", "exporter", json!(true)), false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps.kruise.io/v1alpha1", "DaemonSet", "exporter", json!(true)), false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("apps", "DaemonSet", "exporter", json!(true)), false),
        (DAEMON_SET_CONTROLLER, "monitoring", ("v1", "DaemonSet", "exporter", json!(true)), false),
    ] {
        let pod = owned(version, kind, name, &controller);
        let trial = Trial::new(&policy, namespace).by(username);
        let given = format!("{username} {namespace} {version} {kind} {name} {controller}");
        let rules = vec![Rule::TolerationOutsideAllowlist];
        let expected = exempt.then(|| Exempted { exemption: "agents".to_owned(), rules });
        assert_eq!(trial.exempted(&pod), expected, "{given}");
        assert_eq!(trial.create(&pod).1.denies(), !exempt, "{given}");
    }
    let mut unowned = owned("apps/v1", "DaemonSet", "exporter", &json!(true));
    unowned["metadata"]["ownerReferences"] = json!([]);
    assert!(Trial::new(&policy, "monitoring").by(DAEMON_SET_CONTROLLER).create(&unowned).1.denies());
    // Only the reference that controls counts.
    let mut two = owned("apps/v1", "DaemonSet", "exporter", &json!(false));
    let other = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "miner", "controller": true});
    two["metadata"]["ownerReferences"].as_array_mut().unwrap().push(other);
    assert!(Trial::new(&policy, "monitoring").by(DAEMON_SET_CONTROLLER).create(&two).1.denies());
}

#[test]
fn a_listed_daemon_set_is_exempt_itself_and_no_other_kind_of_that_name() {
    let policy = policy(&Form::Dedicated.yaml(&["ml-team"], &format!("templates: deny\n{AGENTS}")));
    let template = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    for (kind, namespace, name, exempt) in [
        (Kind::DaemonSet, "monitoring", "exporter", true),
        (Kind::DaemonSet, "monitoring", "miner", false),
        (Kind::DaemonSet, "web", "exporter", false),
        (Kind::Deployment, "monitoring", "exporter", false),
        (Kind::StatefulSet, "monitoring", "exporter", false),
    ] {
        let object = json!({"metadata": {"name": name}, "spec": {"template": template}});
        let decision = Trial::new(&policy, namespace).decide(Phase::Validating, kind, &object);
        assert_eq!(decision.denies(), !exempt, "{kind:?} {namespace}/{name}");
        assert_eq!(!decision.exempted.is_empty(), exempt, "{kind:?} {namespace}/{name}");
    }
}

#[test]
fn an_exempt_pod_is_not_completed_and_says_so() {
    let policy = policy(&Form::Dedicated.yaml(&["monitoring"], AGENTS));
    let mut pod = owned("apps/v1", "DaemonSet", "exporter", &json!(true));
    pod["spec"]["containers"] = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    let trial = Trial::new(&policy, "monitoring").by(DAEMON_SET_CONTROLLER);
    let decision = trial.decide(Phase::Mutating, Kind::Pod, &pod);
    assert!(decision.injection.is_none());
    assert_eq!(decision.exempted, [Exempted { exemption: "agents".to_owned(), rules: vec![] }]);
}

#[test]
fn the_contract_names_the_daemon_set_controller() {
    let identities = "identities: {daemonSetController: [system:kube-controller-manager, custom]}";
    let policy = policy(&Form::Dedicated.yaml(&["ml-team"], &format!("{AGENTS}\n{identities}")));
    for (username, exempt) in
        [("system:kube-controller-manager", true), ("custom", true), (DAEMON_SET_CONTROLLER, false), ("Custom", false)]
    {
        let pod = owned("apps/v1", "DaemonSet", "exporter", &json!(true));
        let trial = Trial::new(&policy, "monitoring").by(username);
        assert_eq!(trial.exempted(&pod).is_some(), exempt, "{username}");
        // The same proof decides whose pods get no nodeSelector; a shared identity makes others as well.
        for (kind, bare) in [("DaemonSet", exempt), ("ReplicaSet", false)] {
            let mut pod = owned("apps/v1", kind, "trainer", &json!(true));
            pod["spec"] = gpu_pod(&json!({}))["spec"].clone();
            let (after, decision) = Trial::new(&policy, "ml-team").by(username).create(&pod);
            assert_eq!(after["spec"].get("nodeSelector").is_none(), bare, "{username} {kind}");
            assert_eq!(after["spec"]["tolerations"], json!([exact("dedicated", "gpu", "NoSchedule")]));
            assert_eq!(ids(&decision), [""; 0], "{username} {kind}");
        }
    }
}

#[test]
fn a_mirror_pod_is_its_own_nodes_or_nobodys() {
    let policy = policy(&Form::Dedicated.yaml(&["ml-team"], ""));
    let nodes: &[&str] = &["system:nodes", "system:authenticated"];
    for (username, groups, node, marked, exempt) in [
        ("system:node:n1", nodes, "n1", true, true),
        ("system:node:n1", nodes, "n1", false, false),
        ("system:node:n1", nodes, "n2", true, false),
        ("system:node:n1", nodes, "", true, false),
        ("system:node:", nodes, "", true, false),
        ("system:node:n1", &["system:authenticated"], "n1", true, false),
        ("system:node:n1", &[], "n1", true, false),
        ("n1", nodes, "n1", true, false),
        ("someone", nodes, "someone", true, false),
    ] {
        let mut pod = tolerating(&json!([{"operator": "Exists"}]));
        pod["spec"]["nodeName"] = json!(node);
        if marked {
            pod["metadata"]["annotations"] = json!({MIRROR_ANNOTATION: "hash"});
        }
        let trial = Trial { username, groups, ..Trial::new(&policy, "web") };
        let exemption = trial.exempted(&pod).map(|exempted| exempted.exemption);
        assert_eq!(exemption.as_deref(), exempt.then_some("mirror-pod"), "{username} {groups:?} {node} {marked}");
        assert_eq!(trial.create(&pod).1.denies(), !exempt, "{username} {groups:?} {node} {marked}");
    }
}

fn labelled(labels: &[(&str, &str)]) -> NamespaceLabels {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    NamespaceLabels(BTreeMap::from([("team".to_owned(), labels)]))
}

#[test]
fn labels_of_the_namespace_allow_as_a_label_selector_does() {
    type Labels = &'static [(&'static str, &'static str)];
    let cases: [(&str, Labels, bool); 17] = [
        ("matchLabels: {gpu: yes-please}", &[("gpu", "yes-please")], true),
        ("matchLabels: {gpu: yes-please}", &[("gpu", "no")], false),
        ("matchLabels: {gpu: yes-please}", &[], false),
        ("matchLabels: {gpu: yes-please, tier: a}", &[("gpu", "yes-please")], false),
        ("matchLabels: {gpu: yes-please, tier: a}", &[("gpu", "yes-please"), ("tier", "a"), ("x", "y")], true),
        ("matchLabels: {gpu: ''}", &[("gpu", "")], true),
        ("matchLabels: {gpu: ''}", &[], false),
        ("matchExpressions: [{key: tier, operator: In, values: [a, b]}]", &[("tier", "b")], true),
        ("matchExpressions: [{key: tier, operator: In, values: [a, b]}]", &[("tier", "c")], false),
        ("matchExpressions: [{key: tier, operator: In, values: [a, b]}]", &[], false),
        ("matchExpressions: [{key: tier, operator: NotIn, values: [a]}]", &[], true),
        ("matchExpressions: [{key: tier, operator: NotIn, values: [a]}]", &[("tier", "a")], false),
        ("matchExpressions: [{key: tier, operator: Exists}]", &[("tier", "")], true),
        ("matchExpressions: [{key: tier, operator: Exists}]", &[("gpu", "a")], false),
        ("matchExpressions: [{key: tier, operator: DoesNotExist}]", &[("gpu", "a")], true),
        ("matchExpressions: [{key: tier, operator: DoesNotExist}]", &[("tier", "a")], false),
        (
            "matchLabels: {gpu: a}, matchExpressions: [{key: tier, operator: Exists}]",
            &[("gpu", "a"), ("other", "a")],
            false,
        ),
    ];
    for (selector, labels, allowed) in cases {
        let yaml = Form::Dedicated.yaml(&["ml-team"], "");
        let yaml = yaml.replace("names: ['ml-team']", &format!("names: [ml-team], selector: {{{selector}}}"));
        let policy = policy(&yaml);
        let facts = labelled(labels);
        let trial = Trial { facts: &facts, ..Trial::new(&policy, "team") };
        assert_eq!(trial.pool(&gpu_pod(&json!({}))).is_some(), allowed, "{selector} {labels:?}");
        let rules: &[&str] = if allowed { &[] } else { &["gpu-request-outside-allowlist"] };
        assert_eq!(trial.rules(&gpu_pod(&json!({}))), rules, "{selector} {labels:?}");
        // A name is enough, whatever the labels.
        assert!(Trial { facts: &facts, ..Trial::new(&policy, "ml-team") }.pool(&gpu_pod(&json!({}))).is_some());
    }
}

#[test]
fn labels_that_are_not_known_allow_nobody_and_the_message_says_so() {
    let yaml = Form::Dedicated.yaml(&["ml-team"], "");
    let yaml = yaml.replace("names: ['ml-team']", "names: [ml-team], selector: {matchLabels: {gpu: a}}");
    let policy = policy(&yaml);
    let elsewhere = labelled(&[("gpu", "a")]);
    for facts in [&NoFacts as &dyn Facts, &elsewhere] {
        let trial = Trial { facts, ..Trial::new(&policy, "web") };
        assert_eq!(trial.pool(&gpu_pod(&json!({}))), None);
        for pod in [gpu_pod(&json!({})), tolerating(&json!([{"operator": "Exists"}]))] {
            let (_, decision) = trial.create(&pod);
            assert!(decision.denies());
            let message = &decision.findings[0].message;
            assert!(message.contains("the labels of web are not known"), "{message}");
        }
    }
    let known = NamespaceLabels(BTreeMap::from([("web".to_owned(), BTreeMap::new())]));
    let (_, decision) = Trial { facts: &known, ..Trial::new(&policy, "web") }.create(&gpu_pod(&json!({})));
    assert!(decision.denies());
    assert!(!decision.findings[0].message.contains("not known"));
}

#[test]
fn a_rule_that_is_off_is_silent_and_the_others_are_capped_by_the_templates_action() {
    let off = policy(&Form::Dedicated.yaml(&["ml-team"], "rules: {toleration-outside-allowlist: off}"));
    let wide = tolerating(&json!([{"operator": "Exists"}]));
    assert_eq!(Trial::new(&off, "web").rules(&wide), [""; 0]);
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": wide}});
    for (templates, found, denied) in [("off", 0, false), ("audit", 1, false), ("warn", 1, false), ("deny", 1, true)] {
        let policy = policy(&Form::Dedicated.yaml(&["ml-team"], &format!("templates: {templates}")));
        let decision = Trial::new(&policy, "web").decide(Phase::Validating, Kind::Deployment, &deployment);
        assert_eq!((decision.findings.len(), decision.denies()), (found, denied), "{templates}");
        assert!(decision.findings.iter().all(|finding| finding.action.as_str() == templates));
        assert_eq!(decision.would_deny(), found > 0);
    }
}
