use serde_json::{Value, json};

use gpufence::audit::{Audit, Coverage, Severity};
use gpufence::contract::Contract;

use super::cluster::{CONTRACT, Cluster, Pod, findings, found, gpu_node, node, pod, policy, workload};

const RULE: &str = "daemonset-left-out";

/// The exact toleration of the contract, as a manifest has it.
fn exact() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

/// A DaemonSet, and its pods on some nodes; `name` is `namespace/name`.
fn daemon_set(name: &str, template: Pod, on: &[&str]) -> Vec<Value> {
    let owner = format!("DaemonSet/{}", name.split_once('/').unwrap().1);
    let pods = on.iter().map(|node| pod(&format!("{name}-{node}")).on(node).owned_by(&owner).into());
    std::iter::once(workload("DaemonSet", name, template)).chain(pods).collect()
}

/// Two GPU nodes and one that is none.
fn cluster() -> Cluster {
    Cluster::new().namespace("logging").objects([gpu_node("gpu-1"), gpu_node("gpu-2"), node("web-1")])
}

fn only(audit: &Audit) -> &Coverage {
    let [coverage] = &*audit.daemon_sets else { panic!("{:#?}", audit.daemon_sets) };
    coverage
}

fn messages(audit: &Audit) -> Vec<(Severity, &str, &str)> {
    findings(audit, RULE).map(|own| (own.severity, &*own.message, &*own.action)).collect()
}

fn agent() -> Pod {
    pod("logging/template")
}

#[test]
fn a_daemon_set_that_is_on_every_gpu_node_is_right() {
    let tolerating = agent().tolerates(exact());
    let audit = cluster().objects(daemon_set("logging/fluent-bit", tolerating, &["gpu-1", "gpu-2", "web-1"])).audit();
    assert_eq!(found(&audit, RULE), [""; 0]);
    let own = only(&audit);
    assert_eq!((own.role, own.expected, own.selected, own.running, own.with_taints), (Some("logs"), true, 2, 2, 2));
    assert!(own.missing.is_empty() && own.add.is_empty(), "{own:#?}");
}

#[test]
fn a_daemon_set_that_does_not_tolerate_the_taint_is_told_what_to_add_and_what_the_contract_must_say() {
    let audit = cluster().objects(daemon_set("logging/fluent-bit", agent(), &["web-1"])).audit();
    assert_eq!(
        messages(&audit),
        [(
            Severity::Medium,
            "the DaemonSet logging/fluent-bit (logs) has no pod on 2 of the 2 GPU nodes that it selects (gpu-1, gpu-2): it does \
             not tolerate dedicated=gpu:NoSchedule",
            "let the contract allow it, under exemptions: {name: logging-fluent-bit, reason: logs of every node, namespaces: \
             [logging], daemonSets: [fluent-bit]}; then add to spec.template.spec.tolerations: [{key: dedicated, operator: \
             Equal, value: gpu, effect: NoSchedule}]"
        )]
    );
    let finding = findings(&audit, RULE).next().unwrap();
    assert_eq!(finding.pool.as_deref(), Some("nvidia"));
    let own = only(&audit);
    assert_eq!((own.selected, own.running, own.with_taints), (2, 0, 0));
    assert_eq!(own.missing, ["gpu-1", "gpu-2"]);
    assert_eq!(own.add, ["{key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}"]);
}

/// The exemption that is printed is one that a contract takes, and with it nothing is asked any more.
#[test]
fn the_exemption_serves_and_is_asked_for_only_where_none_does() {
    for name in ["logging/fluent-bit", "logging/on", "logging/agent.v1.example", &format!("logging/{}", "a".repeat(60))]
    {
        let own = daemon_set(name, agent().label("app", "fluentd"), &[]);
        let audit = cluster().objects(own.clone()).audit();
        let (_, _, action) = messages(&audit)[0];
        let exemption = action.split_once("under exemptions: ").unwrap().1.split_once("; then").unwrap().0;
        let contract = CONTRACT.replace("exemptions: []", &format!("exemptions:\n  - {exemption}"));
        Contract::read("contract.yaml".as_ref(), contract.as_bytes(), []).unwrap();
        let audit = cluster().contract(&contract).objects(own).audit();
        let (_, _, action) = messages(&audit)[0];
        assert!(action.starts_with("add to spec.template.spec.tolerations: "), "{action}");
    }
    // A name that is taken by an exemption for somebody else.
    let taken = "exemptions:\n  - {name: logging-fluent-bit, reason: x, namespaces: [logging], daemonSets: [other]}";
    let contract = CONTRACT.replace("exemptions: []", taken);
    let audit = cluster().contract(&contract).objects(daemon_set("logging/fluent-bit", agent(), &[])).audit();
    assert!(messages(&audit)[0].2.contains("{name: logging-fluent-bit-2, "), "{:#?}", audit.findings);
    // An exemption that has expired, or is for another rule, covers nothing.
    for limit in ["expires: 2026-01-01", "rules: [node-name-bypass]"] {
        let lapsed = format!(
            "exemptions:\n  - {{name: x, reason: x, namespaces: [logging], daemonSets: [fluent-bit], {limit}}}"
        );
        let contract = CONTRACT.replace("exemptions: []", &lapsed);
        let audit = cluster().contract(&contract).objects(daemon_set("logging/fluent-bit", agent(), &[])).audit();
        assert!(messages(&audit)[0].2.starts_with("let the contract allow it"), "{limit}");
    }
    // A namespace that the pool allows needs none.
    let audit = cluster().objects(daemon_set("ml/fluent-bit", agent(), &[])).audit();
    assert!(messages(&audit)[0].2.starts_with("add to spec.template.spec.tolerations: "), "{:#?}", audit.findings);
}

#[test]
fn what_gpu_pods_cannot_do_without_is_worse_to_miss() {
    for (name, role, severity) in [
        ("nvidia-device-plugin-daemonset", "device plugin", Severity::High),
        ("nvidia-driver-daemonset", "GPU operator", Severity::High),
        ("calico-node", "network", Severity::High),
        ("aws-node", "network", Severity::High),
        ("ebs-csi-node", "storage", Severity::High),
        ("kube-proxy", "proxy", Severity::High),
        ("nvidia-dcgm-exporter", "GPU metrics", Severity::Medium),
        ("nfd-worker", "node feature discovery", Severity::Medium),
        ("gpu-feature-discovery", "node feature discovery", Severity::Medium),
        ("promtail", "logs", Severity::Medium),
        ("prometheus-node-exporter", "metrics", Severity::Medium),
        ("falco", "security", Severity::Medium),
    ] {
        let audit = cluster().objects(daemon_set(&format!("kube-system/{name}"), agent(), &["web-1"])).audit();
        assert_eq!((only(&audit).role, messages(&audit)[0].0), (Some(role), severity), "{name}");
    }
}

/// By the name, or the labels where the name is anybody's, or else the images: with registry, port, tag and digest.
#[test]
fn the_role_is_in_the_name_the_labels_or_the_images() {
    let imaged = |image: &str| agent().edit(|pod| pod["spec"]["containers"][0]["image"] = image.into());
    for (name, template, role) in [
        ("agent", agent().label("app.kubernetes.io/name", "fluent-bit"), Some("logs")),
        ("agent", agent().label("k8s-app", "cilium"), Some("network")),
        ("agent", imaged("registry.example.com:5000/logs/fluent-bit:3.1@sha256:00"), Some("logs")),
        ("agent", imaged("nvcr.io/nvidia/k8s-device-plugin:v0.17"), Some("device plugin")),
        ("agent", imaged("quay.io/prometheus/node_exporter"), Some("metrics")),
        ("nvidia-container-toolkit", imaged("nvcr.io/nvidia/k8s-device-plugin:v0.17"), Some("GPU operator")),
        ("logs", imaged("timberio/vector:0.40"), Some("logs")),
        // Words that are somebody else's.
        ("vector-db", agent(), None),
        ("aws-node-termination-handler", agent(), None),
        ("csidh-bench", agent(), None),
        ("fluent", imaged("registry.example.com/fluent-bit/viewer:1"), None),
        ("agent", agent().label("team", "fluent-bit"), None),
    ] {
        let audit = cluster().objects(daemon_set(&format!("web/{name}"), template, &["web-1"])).audit();
        assert_eq!(only(&audit).role, role, "{name}");
    }
}

/// Without a known role it is expected where it is for every node, or for GPU nodes.
#[test]
fn a_daemon_set_of_other_nodes_is_not_left_out() {
    let everywhere = agent().selects("kubernetes.io/os", "linux");
    let for_gpus = agent().selects("accelerator", "nvidia");
    let for_others = agent().selects("kubernetes.io/hostname", "web-1");
    for (template, selected, expected) in
        [(agent(), 2, true), (everywhere, 2, true), (for_gpus, 2, true), (for_others, 0, false)]
    {
        let audit = cluster().objects(daemon_set("web/own", template, &["web-1"])).audit();
        let own = only(&audit);
        assert_eq!((own.selected, own.expected, messages(&audit).len()), (selected, expected, usize::from(expected)));
    }
    // One that selects some of both, and is not there by its own doing.
    let some = agent().edit(|pod| pod["spec"]["affinity"] = required(&json!([{"key": "disk", "operator": "Exists"}])));
    let audit = Cluster::new()
        .objects([gpu_node("gpu-1").label("disk", "ssd"), node("web-1").label("disk", "ssd"), node("web-2")])
        .objects(daemon_set("web/own", some, &["web-1"]))
        .audit();
    assert_eq!((only(&audit).selected, only(&audit).expected, messages(&audit).len()), (1, false, 0));
    assert!(only(&audit).missing.is_empty() && only(&audit).add.is_empty());
    // A known role says that it is for all, unless it is the one for other nodes.
    for (label, selected, expected) in [("web-1", 0, false), ("nowhere", 0, true), ("gpu-1", 1, true)] {
        let own = daemon_set("web/cilium", agent().selects("kubernetes.io/hostname", label), &["web-1", "gpu-1"]);
        let audit = cluster().objects(own).audit();
        assert_eq!((only(&audit).selected, only(&audit).expected), (selected, expected), "{label}");
    }
    // What runs no DaemonSets of Linux does not make one less than everywhere.
    let linux = agent().selects("kubernetes.io/os", "linux");
    let windows = node("win-1").label("kubernetes.io/os", "windows");
    let audit = cluster().object(windows).objects(daemon_set("web/own", linux, &["web-1"])).audit();
    assert!(only(&audit).expected);
}

fn required(expressions: &Value) -> Value {
    required_terms(&json!([{"matchExpressions": expressions}]))
}

fn required_terms(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

/// Every operator, on a label that is there and on one that is not; terms of which one must hold, and the node's name.
#[test]
fn node_affinity_selects_as_the_scheduler_does() {
    let gpu = |name: &str| gpu_node(name).label("gen", "007").label("model", "h100");
    let selected = |affinity: &Value| {
        let template = agent().edit(|pod| pod["spec"]["affinity"] = affinity.clone());
        let cluster = Cluster::new().objects([gpu("gpu-1"), gpu("gpu-2").label("zone", "b")]);
        only(&cluster.objects(daemon_set("web/own", template, &[])).audit()).selected
    };
    let expression =
        |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    for (key, operator, values, expected) in [
        ("model", "In", &["a100", "h100"][..], 2),
        ("model", "In", &["a100"], 0),
        ("zone", "In", &["b"], 1),
        ("zone", "NotIn", &["b"], 1),
        ("model", "NotIn", &["a100"], 2),
        ("zone", "Exists", &[], 1),
        ("zone", "DoesNotExist", &[], 1),
        ("gen", "Gt", &["6"], 2),
        ("gen", "Gt", &["7"], 0),
        ("gen", "Lt", &["8"], 2),
        ("gen", "Lt", &["x"], 0),
        ("model", "Gt", &["1"], 0),
        ("zone", "Lt", &["1"], 0),
        ("model", "Like", &["h100"], 0),
    ] {
        assert_eq!(
            selected(&required(&json!([expression(key, operator, values)]))),
            expected,
            "{key} {operator} {values:?}"
        );
    }
    let both = required(&json!([expression("zone", "Exists", &[]), expression("model", "In", &["a100"])]));
    assert_eq!(selected(&both), 0);
    let either = json!([
        {"matchExpressions": [expression("model", "In", &["a100"])]},
        {"matchFields": [expression("metadata.name", "In", &["gpu-1"])]},
        {},
    ]);
    assert_eq!(selected(&required_terms(&either)), 1);
    let other = json!([{"matchFields": [expression("metadata.name", "NotIn", &["gpu-1"])]}]);
    assert_eq!(selected(&required_terms(&other)), 1);
    assert_eq!(selected(&required_terms(&json!([{}]))), 0);
    assert_eq!(selected(&json!({"podAntiAffinity": {}})), 2);
}

#[test]
fn a_daemon_set_that_would_drop_out_with_the_taint_is_told_before() {
    let cluster = Cluster::new().namespace("logging").objects([
        gpu_node("gpu-1").untainted(),
        gpu_node("gpu-2").untainted(),
        node("web-1"),
    ]);
    let everywhere = ["gpu-1", "gpu-2", "web-1"];
    let audit = cluster.clone().objects(daemon_set("kube-system/cilium", agent(), &everywhere)).audit();
    let [(severity, message, _)] = messages(&audit)[..] else { panic!("{:#?}", audit.findings) };
    assert_eq!(
        (severity, message),
        (
            Severity::Medium,
            "the DaemonSet kube-system/cilium (network) would drop out of 2 GPU nodes (gpu-1, gpu-2) as soon as they carry the \
             taint dedicated=gpu:NoSchedule"
        )
    );
    let own = only(&audit);
    assert_eq!((own.running, own.with_taints, own.missing.len()), (2, 0, 0));
    let tolerating = agent().tolerates(json!({"operator": "Exists"}));
    let audit = cluster.objects(daemon_set("kube-system/cilium", tolerating, &everywhere)).audit();
    assert_eq!((messages(&audit).len(), only(&audit).with_taints), (0, 2));
}

/// A taint with `NoSchedule` leaves alone who is there, until the next rollout.
#[test]
fn a_daemon_set_that_was_there_before_the_taint_will_not_come_back() {
    let audit = cluster().objects(daemon_set("logging/fluentd", agent(), &["gpu-1", "gpu-2", "web-1"])).audit();
    let [(severity, message, _)] = messages(&audit)[..] else { panic!("{:#?}", audit.findings) };
    assert_eq!(
        (severity, message),
        (
            Severity::Medium,
            "the DaemonSet logging/fluentd (logs) is on 2 GPU nodes only until its pod there is replaced (gpu-1, gpu-2): it does \
             not tolerate dedicated=gpu:NoSchedule"
        )
    );
    assert_eq!((only(&audit).running, only(&audit).with_taints), (2, 0));
}

/// Of a node's own taints the controller tolerates what a node lives through; what else comes and goes is no reason.
#[test]
fn a_node_that_is_not_ready_or_goes_away_leaves_nobody_out() {
    let tolerating = || agent().tolerates(exact());
    for node in [
        gpu_node("gpu-3").not_ready().taint("node.kubernetes.io/not-ready", "", "NoSchedule"),
        gpu_node("gpu-3").not_ready(),
        gpu_node("gpu-3").taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"),
        gpu_node("gpu-3").taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"),
    ] {
        let audit =
            cluster().object(node).objects(daemon_set("logging/fluentd", tolerating(), &["gpu-1", "gpu-2"])).audit();
        assert_eq!((messages(&audit).len(), only(&audit).selected, only(&audit).running), (0, 3, 2));
    }
    // A node that only takes no other pods should have it, and so should one without a network of which it needs none.
    for (node, template) in [
        (gpu_node("gpu-3").cordoned().taint("node.kubernetes.io/unschedulable", "", "NoSchedule"), tolerating()),
        (
            gpu_node("gpu-3").taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"),
            tolerating().edit(|pod| pod["spec"]["hostNetwork"] = true.into()),
        ),
    ] {
        let audit =
            cluster().object(node).objects(daemon_set("logging/fluentd", template, &["gpu-1", "gpu-2"])).audit();
        assert_eq!(
            messages(&audit),
            [(
                Severity::Medium,
                "the DaemonSet logging/fluentd (logs) has no pod on 1 of the 3 GPU nodes that it selects (gpu-3): no taint keeps \
                 it off",
                "kubectl describe daemonset fluentd --namespace logging: its events say why"
            )]
        );
    }
}

/// A toleration for a while is none, and one of another effect is none.
#[test]
fn tolerations_are_held_against_the_taints_as_they_are() {
    let evicting = || [gpu_node("gpu-1").taint("gpu-team", "true", "NoExecute"), node("web-1")];
    let tolerating = |toleration: Value| agent().tolerates(exact()).tolerates(toleration);
    for (toleration, is_missing) in [
        (json!({"key": "gpu-team", "operator": "Exists"}), false),
        (json!({"key": "gpu-team", "operator": "Exists", "tolerationSeconds": 300}), true),
        (json!({"key": "gpu-team", "value": "true", "effect": "NoSchedule"}), true),
    ] {
        let own = daemon_set("ml/fluentd", tolerating(toleration), &["web-1"]);
        let with_pod = daemon_set("ml/fluentd", agent(), &["gpu-1"]).pop().unwrap();
        let cluster = Cluster::new().objects(evicting()).objects(own);
        let audit = if is_missing { cluster } else { cluster.object(with_pod) }.audit();
        assert_eq!(!only(&audit).missing.is_empty(), is_missing);
        if is_missing {
            // A value that YAML would take for something else is in quotes.
            assert_eq!(only(&audit).add, [r#"{key: gpu-team, operator: Equal, value: "true", effect: NoExecute}"#]);
        }
    }
}

/// A taint whose value is a word of YAML, or that has none.
#[test]
fn the_toleration_to_add_is_one_that_kubernetes_takes() {
    for (value, written) in [("'true'", r#""true""#), ("'1'", r#""1""#), ("''", r#""""#), ("present", "present")] {
        let contract = CONTRACT.replace("value: gpu", &format!("value: {value}"));
        let audit = cluster().contract(&contract).objects(daemon_set("ml/fluentd", agent(), &[])).audit();
        let expected = format!("{{key: dedicated, operator: Equal, value: {written}, effect: NoSchedule}}");
        assert!(only(&audit).add.contains(&expected), "{:?}", only(&audit).add);
    }
}

/// What is almost the contract's taint is mended on the node, and no DaemonSet is asked to tolerate it.
#[test]
fn a_wrong_taint_is_mended_and_not_tolerated() {
    let wrong = gpu_node("gpu-1").untainted().taint("dedicated", "cpu", "NoSchedule");
    let own = daemon_set("ml/fluentd", agent().tolerates(exact()), &["web-1"]);
    let audit = Cluster::new().objects([wrong, node("web-1")]).objects(own).audit();
    assert_eq!(only(&audit).add, [""; 0]);
    let (_, message, action) = messages(&audit)[0];
    assert!(message.ends_with("it does not tolerate dedicated=cpu:NoSchedule"), "{message}");
    assert_eq!(action, "mend the taints of the nodes, which are almost the contract's");
}

#[test]
fn what_an_operator_keeps_is_changed_through_it() {
    let mut own = daemon_set("gpu-operator/nvidia-dcgm-exporter", agent(), &[]);
    own[0]["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "policy", "uid": "1", "controller": true},
    ]);
    let audit = cluster().objects(own).audit();
    let (_, _, action) = messages(&audit)[0];
    assert!(
        action.contains(
            "add to spec.template.spec.tolerations through the ClusterPolicy gpu-operator/policy, which keeps it: ["
        ),
        "{action}"
    );
}

/// Where nobody gave the pods, nothing is said of where they are: only taints speak.
#[test]
fn without_pods_only_taints_speak() {
    let read = |template: Pod| {
        let policy = policy(CONTRACT);
        let mut builder = gpufence::audit::snapshot::Builder::new(&policy);
        let objects = cluster().objects(daemon_set("ml/fluentd", template, &[])).list().to_string();
        builder.take_all("files", objects.as_bytes());
        builder.completes(gpufence::audit::Resource::Nodes);
        gpufence::audit::audit(&policy, &builder.finish(), "files", super::cluster::NOW)
    };
    assert_eq!(messages(&read(agent().tolerates(exact()))).len(), 0);
    assert_eq!(only(&read(agent())).missing, ["gpu-1", "gpu-2"]);
}
