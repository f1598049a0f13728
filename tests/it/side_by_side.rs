//! Pools that offer the same resource: which of them a pod means, what it is given, and what it is told where
//! it says it unclearly.

use gpufence::policy::{Decision, Kind, Phase, Policy, Purpose};
use serde_json::{Value, json};

use crate::policy::Trial;
use crate::support::{Request, gpu_pod, pod, policy};

/// A100 beside H100 beside MI300. `large` is the taint of the H100s.
fn contract(large: &str) -> Policy {
    policy(&format!(
        "
mode: enforce
contact: '#gpu'
selection: {{annotation: gpu.example.com/pool, label: gpu.example.com/use}}
pools:
- name: a100
  resources: [nvidia.com/gpu, 'nvidia.com/mig-*']
  taints: [{{key: dedicated, value: gpu, effect: NoSchedule}}]
  nodeSelector: {{accelerator: a100}}
  namespaces: {{names: [ml-team, research]}}
  models: {{annotation: gpu.example.com/model, nodeLabel: gpu.example.com/model, values: [a100-40, a100-80]}}
- name: h100
  resources: [nvidia.com/gpu]
  taints: [{large}]
  nodeSelector: {{accelerator: h100}}
  namespaces: {{names: [ml-team, large-team]}}
  models: {{annotation: gpu.example.com/model, nodeLabel: gpu.example.com/model, values: [h100]}}
- name: mi300
  resources: [amd.com/gpu]
  taints: [{{key: amd.com/gpu, effect: NoSchedule}}]
  nodeSelector: {{accelerator: mi300}}
  namespaces: {{names: [ml-team]}}
"
    ))
}

const SHARED: &str = "{key: dedicated, value: gpu, effect: NoSchedule}";
const OWN: &str = "{key: dedicated, value: h100, effect: NoSchedule}";

fn naming(metadata: &Value, selector: &Value) -> Value {
    let mut pod = gpu_pod(&json!({"nodeSelector": selector}));
    for (list, entries) in metadata.as_object().unwrap() {
        pod["metadata"][list] = entries.clone();
    }
    pod
}

fn by_annotation(name: &str) -> Value {
    naming(&json!({"annotations": {"gpu.example.com/pool": name}}), &json!({}))
}

fn told(decision: &Decision) -> Vec<String> {
    decision.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn what_names_the_pool_counts_more_than_the_model_and_that_more_than_the_node_selector() {
    let pool = |name: &str| json!({"gpu.example.com/pool": name});
    let model = |name: &str| json!({"gpu.example.com/model": name});
    let none = json!({});
    for (metadata, selector, expected) in [
        (json!({}), none.clone(), "a100"),
        (json!({"annotations": pool("h100")}), none.clone(), "h100"),
        (json!({"labels": {"gpu.example.com/use": "h100"}}), none.clone(), "h100"),
        (json!({"annotations": pool("h100"), "labels": {"gpu.example.com/use": "h100"}}), none.clone(), "h100"),
        // Each in its own list only.
        (json!({"labels": pool("h100")}), none.clone(), "a100"),
        (json!({"annotations": {"gpu.example.com/use": "h100"}}), none.clone(), "a100"),
        // An empty name is none.
        (json!({"annotations": pool(""), "labels": {"gpu.example.com/use": "h100"}}), none.clone(), "h100"),
        (json!({"annotations": pool("")}), json!({"accelerator": "h100"}), "h100"),
        (json!({"annotations": model("h100")}), none.clone(), "h100"),
        (json!({"annotations": model("a100-80")}), none.clone(), "a100"),
        (json!({"annotations": {"gpu.example.com/model": "h100", "gpu.example.com/pool": "h100"}}), none, "h100"),
        (json!({}), json!({"accelerator": "h100"}), "h100"),
    ] {
        for policy in [contract(SHARED), contract(OWN)] {
            let trial = Trial::new(&policy, "ml-team");
            let pod = naming(&metadata, &selector);
            assert_eq!(trial.pool(&pod).as_deref(), Some(expected), "{metadata} {selector}");
            let (stored, decision) = trial.create(&pod);
            assert_eq!(told(&decision), [""; 0], "{metadata} {selector}");
            assert_eq!(stored["spec"]["nodeSelector"]["accelerator"], expected);
        }
    }
    // The weaker one is not lost: it conflicts.
    let policy = contract(SHARED);
    let trial = Trial::new(&policy, "ml-team");
    for (metadata, selector, expected) in [
        (
            json!({"annotations": {"gpu.example.com/pool": "a100", "gpu.example.com/model": "h100"}}),
            json!({}),
            "placement-conflict: metadata.annotations[\"gpu.example.com/model\"] is \"h100\", a model that pool a100 does \
             not have. Use one of a100-40, a100-80, or leave it out.",
        ),
        (
            json!({"annotations": {"gpu.example.com/pool": "a100"}}),
            json!({"accelerator": "h100"}),
            "placement-conflict: spec.nodeSelector[\"accelerator\"] is h100, and the nodes of pool a100 that this pod \
             names have a100: it could never run. Remove the label or set it to a100.",
        ),
        (
            json!({"annotations": {"gpu.example.com/model": "h100"}}),
            json!({"accelerator": "a100"}),
            "placement-conflict: spec.nodeSelector[\"accelerator\"] is a100, and the nodes of pool h100 that this pod \
             asks for have h100: it could never run. Remove the label or set it to h100.",
        ),
    ] {
        assert_eq!(told(&trial.create(&naming(&metadata, &selector)).1), [expected], "{metadata} {selector}");
    }
}

#[test]
fn the_whole_manifest_of_a_pod_that_names_the_second_pool() {
    let policy = contract(OWN);
    let mut pod = by_annotation("h100");
    pod["metadata"]["annotations"]["gpu.example.com/model"] = json!("h100");
    let (stored, decision) = Trial::new(&policy, "ml-team").create(&pod);
    pod["spec"]["nodeSelector"] = json!({"accelerator": "h100", "gpu.example.com/model": "h100"});
    pod["spec"]["tolerations"] =
        json!([{"key": "dedicated", "operator": "Equal", "value": "h100", "effect": "NoSchedule"}]);
    assert_eq!(stored, pod);
    assert_eq!(decision.findings, []);
}

#[test]
fn a_name_that_cannot_be_met_is_refused() {
    let policy = contract(SHARED);
    let annotation = "metadata.annotations[\"gpu.example.com/pool\"]";
    for (pod, expected) in [
        (
            by_annotation("b200"),
            format!("{annotation} is \"b200\", and there is no such pool. Use one of a100, h100, or leave it out."),
        ),
        (
            naming(&json!({"labels": {"gpu.example.com/use": "A100"}}), &json!({})),
            "metadata.labels[\"gpu.example.com/use\"] is \"A100\", and there is no such pool. Use one of a100, h100, or \
             leave it out."
                .to_owned(),
        ),
        (
            by_annotation("mi300"),
            format!(
                "{annotation} names pool mi300, which does not offer the nvidia.com/gpu that this pod asks for. Use one of \
                 a100, h100, or leave it out."
            ),
        ),
        (
            naming(
                &json!({"annotations": {"gpu.example.com/pool": "a100"}, "labels": {"gpu.example.com/use": "h100"}}),
                &json!({}),
            ),
            format!(
                "{annotation} names pool a100, and metadata.labels[\"gpu.example.com/use\"] pool h100: no pod runs in both. \
                 Name one pool."
            ),
        ),
    ] {
        let decision = Trial::new(&policy, "ml-team").create(&pod).1;
        assert_eq!(told(&decision), [format!("placement-conflict: {expected}")]);
        assert!(decision.denies());
        // A template is told at its own place.
        let template = json!({"spec": {"template": {"metadata": pod["metadata"], "spec": pod["spec"]}}});
        let decision = Trial::new(&policy, "ml-team").decide(Phase::Validating, Kind::Deployment, &template);
        assert_eq!(told(&decision), [format!("placement-conflict: spec.template.{expected}")]);
    }
    // To name a pool is not to ask for a GPU.
    for name in ["h100", "b200"] {
        let mut pod = by_annotation(name);
        pod["spec"]["containers"] = json!([{"name": "c"}]);
        assert_eq!(Trial::new(&policy, "web").create(&pod).1, Decision::quiet(policy.mode()));
    }
    // What is refused is the name as a person reads it.
    let decision = Trial::new(&policy, "ml-team").create(&by_annotation("a\u{202e}\n")).1;
    assert!(told(&decision)[0].contains("is \"a\u{fffd}\u{fffd}\", and"), "{decision:?}");
}

#[test]
fn a_pool_that_is_picked_and_closed_is_refused_though_another_is_open() {
    let policy = contract(SHARED);
    let request =
        "gpu-request-outside-allowlist: spec.containers[0].resources.limits[\"nvidia.com/gpu\"] asks for pool";
    for (namespace, pod, expected) in [
        (
            "research",
            by_annotation("h100"),
            "h100, closed to namespace research (allowed: ml-team, large-team). Choose pool a100, which research may \
             use, or use an allowed namespace; ask #gpu.",
        ),
        (
            "research",
            naming(&json!({"labels": {"gpu.example.com/use": "h100"}}), &json!({})),
            "h100, closed to namespace research (allowed: ml-team, large-team). Choose pool a100, which research may \
             use, or use an allowed namespace; ask #gpu.",
        ),
        (
            "large-team",
            naming(&json!({"annotations": {"gpu.example.com/model": "a100-40"}}), &json!({})),
            "a100, closed to namespace large-team (allowed: ml-team, research). Choose pool h100, which large-team may \
             use, or use an allowed namespace; ask #gpu.",
        ),
        (
            "large-team",
            naming(&json!({}), &json!({"accelerator": "a100"})),
            "a100, closed to namespace large-team (allowed: ml-team, research). Choose pool h100, which large-team may \
             use, or use an allowed namespace; ask #gpu.",
        ),
        (
            "web",
            by_annotation("h100"),
            "h100, closed to namespace web (allowed: ml-team, large-team). Remove it or use an allowed namespace; ask \
             #gpu.",
        ),
    ] {
        let trial = Trial::new(&policy, namespace);
        assert_eq!(trial.pool(&pod), None);
        assert_eq!(told(&trial.create(&pod).1), [format!("{request} {expected}")]);
    }
    // Unpicked, the pool that is open is meant, whichever comes first.
    assert_eq!(Trial::new(&policy, "large-team").pool(&gpu_pod(&json!({}))).as_deref(), Some("h100"));
    assert_eq!(Trial::new(&policy, "research").pool(&gpu_pod(&json!({}))).as_deref(), Some("a100"));
}

#[test]
fn a_node_selector_that_means_two_pools_at_once_is_refused() {
    let pools = |labels: [&str; 3]| {
        let pools: Vec<_> = ["one", "two", "both"]
            .iter()
            .zip(labels)
            .map(|(name, labels)| {
                format!(
                    "{{name: {name}, resources: [nvidia.com/gpu], taints: [{SHARED}], nodeSelector: {{{labels}}}, \
                     namespaces: {{names: [ml-team]}}}}"
                )
            })
            .collect();
        policy(&format!("mode: enforce\nselection: {{annotation: pool}}\npools: [{}]", pools.join(", ")))
    };
    let pod = gpu_pod(&json!({"nodeSelector": {"accelerator": "a100", "zone": "z", "disk": "ssd"}}));
    let torn = pools(["accelerator: a100", "zone: z", "accelerator: h100"]);
    let trial = Trial::new(&torn, "ml-team");
    assert_eq!(
        told(&trial.create(&pod).1),
        ["placement-conflict: spec.nodeSelector means pool one (accelerator=a100) and pool two (zone=z) at \
             once, and a pod runs in one pool. Keep the labels of one."]
    );
    // To name one of them is to say which.
    let mut named = pod.clone();
    named["metadata"]["annotations"] = json!({"pool": "two"});
    assert_eq!(trial.pool(&named).as_deref(), Some("two"));
    assert_eq!(told(&trial.create(&named).1), [""; 0]);
    // Where one is within the other the closer one is meant.
    let nested = pools(["accelerator: a100", "zone: z", "accelerator: a100, zone: z"]);
    let trial = Trial::new(&nested, "ml-team");
    assert_eq!(told(&trial.create(&pod).1), [""; 0]);
    let (_, decision) = trial.create(&pod);
    assert_eq!(decision.findings, []);
    let mutated = trial.decide(Phase::Mutating, Kind::Pod, &pod);
    assert_eq!(mutated.injection.map(|injection| injection.purpose), Some(Purpose::Complete("both".to_owned())));
}

#[test]
fn a_pod_is_judged_by_the_pool_that_it_means_when_it_is_complete() {
    let policy = policy(
        "
mode: enforce
pools:
- {name: any, resources: [nvidia.com/gpu], taints: [{key: gpu, effect: NoSchedule}], nodeSelector: {accelerator: nvidia}, namespaces: {names: [ml-team]}}
- {name: zoned, resources: [nvidia.com/gpu], taints: [{key: gpu, effect: NoSchedule}], nodeSelector: {accelerator: nvidia, zone: z}, namespaces: {names: [large-team]}}
- {name: crossed, resources: [nvidia.com/gpu], taints: [{key: gpu, effect: NoSchedule}], nodeSelector: {accelerator: nvidia, disk: ssd}, namespaces: {names: [ml-team, large-team]}}
",
    );
    // The label of pool any, which is first, would make this a pod for the nodes of pool zoned.
    let zone = gpu_pod(&json!({"nodeSelector": {"zone": "z"}}));
    let trial = Trial::new(&policy, "ml-team");
    assert_eq!(trial.pool(&zone), None);
    assert_eq!(
        told(&trial.create(&zone).1),
        [
            "gpu-request-outside-allowlist: spec.containers[0].resources.limits[\"nvidia.com/gpu\"] asks for pool zoned, \
             closed to namespace ml-team (allowed: large-team). Choose pool any or crossed, which ml-team may use, or use an \
             allowed namespace."
        ]
    );
    assert_eq!(Trial::new(&policy, "large-team").pool(&zone).as_deref(), Some("zoned"));
    // And of this one it would be two pods: nothing is added to what is not clear.
    let both = gpu_pod(&json!({"nodeSelector": {"zone": "z", "disk": "ssd"}}));
    for namespace in ["ml-team", "large-team"] {
        let (stored, decision) = Trial::new(&policy, namespace).create(&both);
        assert_eq!(stored, both);
        assert_eq!(
            told(&decision),
            ["placement-conflict: spec.nodeSelector means pool zoned (accelerator=nvidia,zone=z) and pool \
                 crossed (accelerator=nvidia,disk=ssd) at once, and a pod runs in one pool. Keep the labels of one."]
        );
    }
}

#[test]
fn the_name_of_a_pool_may_change_where_nothing_depends_on_it() {
    let policy = contract(SHARED);
    let (old, _) = Trial::new(&policy, "ml-team").create(&by_annotation("a100"));
    let mut new = old.clone();
    new["metadata"]["annotations"]["gpu.example.com/pool"] = json!("h100");
    let (old, new) = (old.to_string(), new.to_string());
    let (old, new) = (Kind::Pod.read(&old).unwrap(), Kind::Pod.read(&new).unwrap());
    let update = |object, old| {
        Request { namespace: "ml-team", username: "someone", groups: &[], object, old: Some(old) }
            .decide(&policy, Phase::Validating)
    };
    assert_eq!(
        told(&update(&new, &old)),
        [
            "placement-conflict: spec.nodeSelector[\"accelerator\"] is a100, and the nodes of pool h100 that this pod names \
             have h100: it could never run. Remove the label or set it to h100."
        ]
    );
    // A pod that was so already is let alone.
    assert_eq!(told(&update(&new, &new)), [""; 0]);
}

#[test]
fn tolerations_beside_pools_that_share_a_taint() {
    let exact = |value: &str| json!({"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"});
    let wide = json!({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"});
    let outside = |field: &str, taint: &str, pool: &str, namespace: &str, allowed: &str| {
        format!(
            "toleration-outside-allowlist: {field} passes the taint dedicated={taint}:NoSchedule of pool {pool}, closed to \
             namespace {namespace} (allowed: {allowed}). Remove it or use an allowed namespace; ask #gpu."
        )
    };
    let broad = "broad-toleration: spec.tolerations[0] has operator Exists, wider than pool a100 needs. Write {key: \
                 dedicated, operator: Equal, value: gpu, effect: NoSchedule}, or leave it out: GPU pods get it."
        .to_owned();
    let idle = |pool: &str, resources: &str| {
        format!(
            "toleration-without-gpu-request: spec.tolerations[0] lets this pod onto the GPU nodes of pool {pool}, but it \
             requests none of {resources}. Remove the toleration or request a GPU."
        )
    };
    let a100 = idle("a100", "nvidia.com/gpu, nvidia.com/mig-*");
    let field = "spec.tolerations[0]";
    for (large, namespace, toleration, asks, expected) in [
        // The taint that the pools share tells nobody apart: who may use one may carry its toleration.
        (SHARED, "research", exact("gpu"), true, vec![]),
        (SHARED, "research", exact("gpu"), false, vec![a100.clone()]),
        (SHARED, "ml-team", exact("gpu"), false, vec![a100.clone()]),
        (SHARED, "research", wide.clone(), true, vec![broad.clone()]),
        (
            SHARED,
            "web",
            exact("gpu"),
            false,
            vec![
                outside(field, "gpu", "a100", "web", "ml-team, research"),
                outside(field, "gpu", "h100", "web", "ml-team, large-team"),
            ],
        ),
        // Taints of their own tell them apart.
        (OWN, "research", exact("gpu"), true, vec![]),
        (OWN, "research", exact("h100"), true, vec![outside(field, "h100", "h100", "research", "ml-team, large-team")]),
        (
            OWN,
            "research",
            wide.clone(),
            true,
            vec![outside(field, "h100", "h100", "research", "ml-team, large-team"), broad.clone()],
        ),
        (OWN, "ml-team", wide, false, vec![broad, a100, idle("h100", "nvidia.com/gpu")]),
    ] {
        let policy = contract(large);
        let resources = if asks { json!({"nvidia.com/gpu": 1}) } else { json!({}) };
        let pod = pod(&resources, &json!({"tolerations": [toleration]}));
        let decision = Trial::new(&policy, namespace).create(&pod).1;
        assert_eq!(told(&decision), expected, "{namespace} {pod}");
    }
}

/// Resources of any vendor, and slices, are configuration only.
#[test]
fn any_vendors_resources_are_given_their_own_pools_placement() {
    let policy = policy(
        "
mode: enforce
pools:
- {name: h100, resources: [nvidia.com/gpu], taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}], nodeSelector: {accelerator: h100}, namespaces: {names: ['*']}}
- {name: slices, resources: ['nvidia.com/mig-*'], taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}], nodeSelector: {accelerator: slices}, namespaces: {names: ['*']}}
- {name: mi300, resources: [amd.com/gpu], taints: [{key: amd.com/gpu, effect: NoSchedule}], nodeSelector: {accelerator: mi300}, namespaces: {names: ['*']}}
- {name: flex, resources: ['gpu.intel.com/*'], taints: [{key: gpu.intel.com, value: flex, effect: NoExecute}], nodeSelector: {accelerator: flex}, namespaces: {names: ['*']}}
- {name: gaudi, resources: [habana.ai/gaudi], taints: [{key: habana.ai/gaudi, value: '2', effect: NoSchedule}], nodeSelector: {accelerator: gaudi}, namespaces: {names: ['*']}}
- {name: tpu, resources: [google.com/tpu], taints: [{key: google.com/tpu, value: present, effect: NoSchedule}], nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}, namespaces: {names: ['*']}}
- {name: dra, resources: ['deviceclass.resource.kubernetes.io/*'], taints: [{key: dra, effect: NoSchedule}], nodeSelector: {accelerator: dra}, namespaces: {names: ['*']}}
",
    );
    let toleration = |key: &str, value: &str, effect: &str| json!({"key": key, "operator": "Equal", "value": value, "effect": effect});
    let accelerator = |name: &str| json!({"accelerator": name});
    for (resource, tolerations, selector) in [
        ("nvidia.com/gpu", toleration("nvidia.com/gpu", "present", "NoSchedule"), accelerator("h100")),
        ("nvidia.com/mig-1g.10gb", toleration("nvidia.com/gpu", "present", "NoSchedule"), accelerator("slices")),
        ("amd.com/gpu", toleration("amd.com/gpu", "", "NoSchedule"), accelerator("mi300")),
        ("gpu.intel.com/i915", toleration("gpu.intel.com", "flex", "NoExecute"), accelerator("flex")),
        ("gpu.intel.com/xe_monitoring", toleration("gpu.intel.com", "flex", "NoExecute"), accelerator("flex")),
        ("habana.ai/gaudi", toleration("habana.ai/gaudi", "2", "NoSchedule"), accelerator("gaudi")),
        (
            "google.com/tpu",
            toleration("google.com/tpu", "present", "NoSchedule"),
            json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}),
        ),
        ("deviceclass.resource.kubernetes.io/gpu.example.com", toleration("dra", "", "NoSchedule"), accelerator("dra")),
    ] {
        let (stored, decision) = Trial::new(&policy, "any").create(&pod(&json!({resource: 1}), &json!({})));
        assert_eq!(stored["spec"]["tolerations"], json!([tolerations]), "{resource}");
        assert_eq!(stored["spec"]["nodeSelector"], selector, "{resource}");
        assert_eq!(told(&decision), [""; 0], "{resource}");
    }
}

#[test]
fn a_taint_and_its_twin_are_each_tolerated_exactly_and_for_good() {
    let policy = policy(
        "
mode: enforce
pools:
- name: h100
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: dedicated, value: gpu, effect: NoExecute}]
  nodeSelector: {accelerator: h100}
  namespaces: {names: [ml-team]}
",
    );
    let trial = Trial::new(&policy, "ml-team");
    let exact = |effect: &str| json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": effect});
    let (stored, decision) = trial.create(&gpu_pod(&json!({})));
    assert_eq!(stored["spec"]["tolerations"], json!([exact("NoSchedule"), exact("NoExecute")]));
    assert_eq!(told(&decision), [""; 0]);
    // One that runs out is not the exact one, which is added beside it.
    let mut bounded = exact("NoExecute");
    bounded["tolerationSeconds"] = json!(300);
    let pod = gpu_pod(&json!({"tolerations": [exact("NoSchedule"), bounded]}));
    let (stored, decision) = trial.create(&pod);
    assert_eq!(stored["spec"]["tolerations"], json!([exact("NoSchedule"), bounded, exact("NoExecute")]));
    assert_eq!(told(&decision), [""; 0]);
    let decision = trial.decide(Phase::Validating, Kind::Pod, &pod);
    assert_eq!(
        told(&decision),
        ["placement-missing: this GPU pod lacks the toleration of dedicated=gpu:NoExecute and the nodeSelector \
             accelerator=h100 of pool h100: mutation did not run or was undone. Recreate the pod; check the mutating webhook."]
    );
}
