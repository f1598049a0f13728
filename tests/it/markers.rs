//! GPU requests that are no resources: claims on devices, and annotations by which schedulers share GPUs out.

use gpufence::manifest::conditions;
use gpufence::policy::{Decision, Kind, Mode, Phase, Policy, Rule, SCHEDULER};
use serde_json::{Value, json};

use crate::policy::Trial;
use crate::support::{Form, Request, cases, pod, policy};

fn contract(namespaces: &[&str]) -> Policy {
    marked(Form::Dedicated, namespaces, "")
}

/// A contract whose pool has every kind of marker, and a batch scheduler's own resource.
fn marked(form: Form, namespaces: &[&str], more: &str) -> Policy {
    let yaml =
        form.yaml(namespaces, "  markers: {claims: [single-gpu, 'one-*'], annotations: [gpu-fraction, gpu-memory]}");
    let yaml =
        yaml.replace("resources: [", "resources: [volcano.sh/gpu-number, 'deviceclass.resource.kubernetes.io/*', ");
    policy(&format!("{yaml}{more}"))
}

fn annotated(key: &str, value: &str) -> Value {
    let mut pod = pod(&json!({}), &json!({}));
    pod["metadata"]["annotations"] = json!({key: value});
    pod
}

fn claiming(claims: &Value) -> Value {
    pod(&json!({}), &json!({ "resourceClaims": claims }))
}

fn told(decision: &Decision) -> Vec<String> {
    decision.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_marker_requests_a_gpu() {
    let policy = contract(&["ml-team"]);
    let template = json!([{"name": "a", "resourceClaimTemplateName": "no"}, {"name": "b", "resourceClaimTemplateName": "single-gpu"}]);
    for (pod, field) in [
        (claiming(&template), "spec.resourceClaims[1].resourceClaimTemplateName"),
        (claiming(&json!([{"name": "a", "resourceClaimName": "one-gpu"}])), "spec.resourceClaims[0].resourceClaimName"),
        (annotated("gpu-fraction", "0.5"), "metadata.annotations[\"gpu-fraction\"]"),
        (annotated("gpu-memory", "2000"), "metadata.annotations[\"gpu-memory\"]"),
        // What is no number is not nothing.
        (annotated("gpu-memory", "some"), "metadata.annotations[\"gpu-memory\"]"),
        (
            pod(&json!({"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1}), &json!({})),
            "spec.containers[0].resources.limits[\"deviceclass.resource.kubernetes.io/gpu.nvidia.com\"]",
        ),
        // A resource is named before a marker.
        (
            {
                let mut pod = annotated("gpu-fraction", "0.5");
                pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 1}});
                pod
            },
            "spec.containers[0].resources.limits[\"nvidia.com/gpu\"]",
        ),
    ] {
        let (stored, decision) = Trial::new(&policy, "ml-team").create(&pod);
        assert_eq!(stored["spec"]["nodeSelector"], json!({"workload.example.com/accelerator": "nvidia"}), "{pod}");
        assert_eq!(
            stored["spec"]["tolerations"],
            json!([{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}])
        );
        assert_eq!(told(&decision), [""; 0], "{pod}");

        let refusal = "asks for pool nvidia, closed to namespace web (allowed: ml-team). Remove it or use an allowed \
                       namespace.";
        let (stored, decision) = Trial::new(&policy, "web").create(&pod);
        assert_eq!(stored, pod);
        assert_eq!(told(&decision), [format!("gpu-request-outside-allowlist: {field} {refusal}")]);
        assert!(decision.denies());
        for kind in [Kind::Deployment, Kind::CronJob, Kind::PodTemplate] {
            let template = crate::properties::wrap(kind, &pod);
            let decision = Trial::new(&policy, "web").decide(Phase::Validating, kind, &template);
            let path = kind.pod_path();
            assert_eq!(told(&decision), [format!("gpu-request-outside-allowlist: {path}{field} {refusal}")]);
        }
    }
}

#[test]
fn what_marks_nothing_is_an_ordinary_pod() {
    let policy = contract(&["ml-team"]);
    for pod in [
        annotated("gpu-fraction", ""),
        annotated("gpu-fraction", "0"),
        annotated("gpu-fraction", "0.0"),
        annotated("gpu-memory", "0m"),
        annotated("gpu-fractions", "1"),
        claiming(&json!([])),
        claiming(&json!(null)),
        claiming(&json!([{"name": "single-gpu"}])),
        claiming(&json!([{"name": "a", "resourceClaimTemplateName": "single-gpu-2"}])),
        claiming(&json!([{"name": "a", "resourceClaimName": "fpga"}])),
    ] {
        for namespace in ["ml-team", "web"] {
            assert_eq!(
                Trial::new(&policy, namespace).create(&pod),
                (pod.clone(), Decision::quiet(Mode::Enforce)),
                "{pod}"
            );
        }
    }
}

#[test]
fn a_toleration_without_any_of_them_is_told_of_all() {
    let policy = contract(&["ml-team"]);
    let exact = json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"});
    let mut pod = annotated("gpu-fraction", "0");
    pod["spec"]["tolerations"] = json!([exact]);
    assert_eq!(
        told(&Trial::new(&policy, "ml-team").create(&pod).1),
        [
            "toleration-without-gpu-request: spec.tolerations[0] lets this pod onto the GPU nodes of pool nvidia, but it \
             requests none of volcano.sh/gpu-number, deviceclass.resource.kubernetes.io/*, nvidia.com/gpu and 2 more, claims \
             (single-gpu, one-*), annotations (gpu-fraction, gpu-memory). Remove the toleration or request a GPU."
        ]
    );
    pod["metadata"]["annotations"]["gpu-fraction"] = json!("0.1");
    assert_eq!(told(&Trial::new(&policy, "ml-team").create(&pod).1), [""; 0]);
}

#[test]
fn markers_of_two_pools_at_once_conflict() {
    let policy = policy(
        "
mode: enforce
selection: {annotation: pool}
pools:
- name: shared
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: shared}
  namespaces: {names: [ml-team]}
  markers: {annotations: [gpu-fraction]}
- name: whole
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: whole}
  namespaces: {names: [ml-team]}
  markers: {claims: ['*']}
",
    );
    let trial = Trial::new(&policy, "ml-team");
    // Each decides which pool is meant where a resource leaves it open.
    let mut fraction = annotated("gpu-fraction", "0.5");
    fraction["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 1}});
    assert_eq!(trial.pool(&fraction).as_deref(), Some("shared"));
    let claims = json!([{"name": "a", "resourceClaimName": "x"}]);
    let mut claim = claiming(&claims);
    claim["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 1}});
    assert_eq!(trial.pool(&claim).as_deref(), Some("whole"));
    let mut both = annotated("gpu-fraction", "0.5");
    both["spec"]["resourceClaims"] = claims.clone();
    assert_eq!(trial.pool(&both), None);
    assert_eq!(
        told(&trial.create(&both).1),
        [
            "placement-conflict: metadata.annotations[\"gpu-fraction\"]: this pod asks for annotation gpu-fraction (pool \
             shared) and claim x (pool whole), and no pool offers all of it. Request the resources of one pool."
        ]
    );
    let mut named = claiming(&claims);
    named["metadata"]["annotations"] = json!({"pool": "shared"});
    assert_eq!(
        told(&trial.create(&named).1),
        [
            "placement-conflict: metadata.annotations[\"pool\"] names pool shared, which does not offer the claim x that this \
             pod asks for. Use one of whole, or leave it out."
        ]
    );
}

#[test]
fn an_update_that_adds_a_marker_is_judged_and_one_that_has_it_is_not() {
    let policy = contract(&["ml-team"]);
    let (without, with) = (pod(&json!({}), &json!({})), annotated("gpu-fraction", "0.5"));
    let update = |old: &Value, new: &Value| {
        let (old, new) = (old.to_string(), new.to_string());
        let (old, new) = (Kind::Pod.read(&old).unwrap(), Kind::Pod.read(&new).unwrap());
        let request = Request { namespace: "web", username: "someone", groups: &[], object: &new, old: Some(&old) };
        told(&request.decide(&policy, Phase::Validating))
    };
    let refusal = "gpu-request-outside-allowlist: metadata.annotations[\"gpu-fraction\"] asks for pool nvidia, closed to \
                   namespace web (allowed: ml-team). Remove it or use an allowed namespace.";
    assert_eq!(update(&without, &with), [refusal]);
    assert_eq!(update(&annotated("gpu-fraction", "0"), &with), [refusal]);
    for (old, new) in [(&with, &with), (&with, &without), (&with, &annotated("gpu-fraction", "0.9"))] {
        assert_eq!(update(old, new), [""; 0]);
    }
}

#[test]
fn a_binding_that_adds_a_marker_is_a_request_but_for_the_schedulers() {
    let policy = contract(&["ml-team"]);
    let binding = |annotations: Value| json!({"kind": "Binding", "metadata": {"name": "p", "annotations": annotations}, "target": {"name": ""}});
    let marked = binding(json!({"gpu-fraction": "0.5"}));
    let judge = |namespace, username, binding: &Value| {
        Trial::new(&policy, namespace).by(username).decide(Phase::Validating, Kind::Binding, binding)
    };
    assert_eq!(
        told(&judge("web", "someone", &marked)),
        [
            "gpu-request-outside-allowlist: metadata.annotations[\"gpu-fraction\"] asks for pool nvidia, closed to namespace \
             web (allowed: ml-team). Remove it or use an allowed namespace."
        ]
    );
    // In an allowed namespace no rule knows enough of the pod to speak.
    for (namespace, username, binding) in [
        ("ml-team", "someone", &marked),
        ("web", SCHEDULER, &marked),
        ("web", "someone", &binding(json!({"gpu-fraction": "0", "other": "1"}))),
    ] {
        assert_eq!(told(&judge(namespace, username, binding)), [""; 0], "{namespace} {username} {binding}");
    }
    // Neither does one that would find a conflict in a pod.
    let two = marked_twice();
    let trial = Trial::new(&two, "ml-team").by("someone");
    let both = binding(json!({"gpu-fraction": "0.5", "gpu-memory": "1", "pool": "none"}));
    assert_eq!(told(&trial.decide(Phase::Validating, Kind::Binding, &both)), [""; 0]);
    // The hook asks about Bindings for this alone.
    for (rules, judges) in [
        ("rules: {node-name-bypass: off}", true),
        ("rules: {node-name-bypass: off, gpu-request-outside-allowlist: off}", false),
        ("rules: {gpu-request-outside-allowlist: off}", true),
    ] {
        assert_eq!(self::marked(Form::Dedicated, &["ml-team"], rules).judges_bindings(), judges, "{rules}");
    }
    let unmarked = crate::support::policy(&Form::Dedicated.yaml(&["ml-team"], "rules: {node-name-bypass: off}"));
    assert!(
        !unmarked.judges_bindings()
            && unmarked.action(Rule::GpuRequestOutsideAllowlist) > gpufence::policy::Action::Off
    );
}

fn marked_twice() -> Policy {
    policy(
        "
mode: enforce
selection: {annotation: pool}
pools:
- name: one
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: one}
  namespaces: {names: [ml-team]}
  markers: {annotations: [gpu-fraction]}
- name: two
  resources: [amd.com/gpu]
  taints: [{key: amd, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: two}
  namespaces: {names: [ml-team]}
  markers: {annotations: [gpu-memory]}
",
    )
}

/// The recorded objects whose requests a list of resources does not see.
#[test]
fn the_gaps_of_a_list_of_resources_are_closed() {
    let recorded = cases("objects.jsonl");
    for (id, field) in [
        ("kai-fraction-annotation", "metadata.annotations[\"gpu-fraction\"]"),
        ("dra-claim-no-toleration", "spec.resourceClaims[0].resourceClaimTemplateName"),
        ("deploy-dra", "spec.template.spec.resourceClaims[0].resourceClaimTemplateName"),
        ("volcano-vgpu", "spec.containers[0].resources.limits[\"volcano.sh/gpu-number\"]"),
    ] {
        let case = recorded.iter().find(|case| case["id"] == id).unwrap();
        assert!(case["gap"].is_string(), "{id}");
        let object = &case["object"];
        for form in Form::ALL {
            let policy = marked(form, &["allowed"], "");
            let (kind, pod) = match object["kind"].as_str().unwrap() {
                "Deployment" => (Kind::Deployment, object["spec"]["template"].clone()),
                _ => (Kind::Pod, object.clone()),
            };
            let (stored, decision) = Trial::new(&policy, "allowed").create(&pod);
            assert!(!decision.denies(), "{id}: {decision:?}");
            let (label, taint) = match form {
                Form::Dedicated => ("workload.example.com/accelerator", ("dedicated", "gpu")),
                Form::Nvidia => ("accelerator", ("nvidia.com/gpu", "present")),
            };
            assert_eq!(stored["spec"]["nodeSelector"], json!({label: "nvidia"}), "{id}");
            let exact = json!({"key": taint.0, "operator": "Equal", "value": taint.1, "effect": "NoSchedule"});
            let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
            tolerations.push(exact);
            assert_eq!(stored["spec"]["tolerations"], Value::from(tolerations), "{id}");
            let decision = Trial::new(&policy, "closed").decide(Phase::Validating, kind, object);
            let expected = format!(
                "gpu-request-outside-allowlist: {field} asks for pool nvidia, closed to namespace closed (allowed: allowed). \
                 Remove it or use an allowed namespace."
            );
            assert!(told(&decision).contains(&expected), "{id}: {decision:?}");
            assert!(decision.would_deny());
        }
    }
}

#[test]
fn the_conditions_ask_about_markers_only_where_the_contract_has_some() {
    let requests = |policy: &Policy| conditions::of_pod_mutation(policy).remove(0).expression;
    let (with, without) = (requests(&contract(&["ml-team"])), requests(&policy("")));
    for part in [
        "object.?spec.?resourceClaims.orValue([]) != []",
        "['gpu-fraction', 'gpu-memory'].exists(marker, marker in object.?metadata.?annotations.orValue({}))",
    ] {
        assert!(with.contains(part), "{with}");
    }
    assert!(!without.contains("resourceClaims") && !without.contains("annotations"), "{without}");
    let changes = |policy: &Policy| conditions::of_pod_validation(policy).remove(1).expression;
    let selecting = policy("selection: {annotation: gpu.example.com/pool, label: gpu.example.com/use}");
    for part in [
        "object.metadata.?annotations[?'gpu.example.com/pool'].orValue('') !=",
        "object.metadata.?labels[?'gpu.example.com/use'].orValue('') !=",
    ] {
        assert!(changes(&selecting).contains(part), "{}", changes(&selecting));
    }
    assert!(changes(&contract(&["ml-team"])).contains("?annotations[?'gpu-fraction']"));
}
