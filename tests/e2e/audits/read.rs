use serde_json::{Value, json};

use crate::api::admin;
use crate::cluster::cluster;
use crate::contract::exact_toleration;
use crate::features::has_resource;
use crate::objects::{Pod, TEMPLATES, workload};
use crate::world::{OWN_NAMESPACES, World};

/// The version of `PodDisruptionBudgets` that there is.
fn budgets() -> &'static str {
    if has_resource("/apis/policy/v1", "poddisruptionbudgets") { "policy/v1" } else { "policy/v1beta1" }
}

/// Every kind that an audit reads, whole and once; not what has ended, and nothing else.
#[test]
fn what_is_read_is_what_was_made() {
    let Some(world) = World::new() else { return };
    world.gpu_node("gpu-1");
    world.node("gpu-2", 4, &json!({}), &json!([]));
    world.node("cpu-1", 0, &json!({}), &json!([]));
    for namespace in ["ml-a", "web"] {
        world.namespace(namespace);
    }
    let mut made: Vec<Value> = Vec::new();
    for kind in TEMPLATES {
        let name = kind.to_lowercase();
        made.push(world.make(&workload(kind, &name, "web", &Pod::named(&name)).0));
    }
    let deployment = made.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let mut kept = workload("ReplicaSet", "deployment-1", "web", &Pod::named("shop")).0;
    kept["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "deployment",
        "uid": deployment["metadata"]["uid"],
        "controller": true,
    }]);
    let replica_set = world.make(&kept);
    for name in ["shop-1", "shop-2"] {
        world.pod_on(&Pod::named(name).owned_by(&replica_set).in_namespace("web"), "gpu-2", "Running");
    }
    let train = Pod::named("train").with_gpu().tolerating(&exact_toleration()).in_namespace("ml-a");
    world.pod_on(&train, "gpu-1", "Running");
    for phase in ["Succeeded", "Failed"] {
        world.pod_on(&Pod::named(&phase.to_lowercase()).in_namespace("web"), "gpu-2", phase);
    }
    let waits = world.make(&Pod::named("waits").with_gpu().in_namespace("ml-a"));
    for (name, reason) in [("waits.1", "FailedScheduling"), ("waits.2", "Preempted")] {
        world.make(&json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "ml-a"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "ml-a",
                "name": "waits",
                "uid": waits["metadata"]["uid"],
            },
            "reason": reason,
            "message": format!("said of {name}"),
            "type": "Warning",
            "firstTimestamp": "2026-11-30T11:00:00Z",
            "lastTimestamp": "2026-11-30T11:00:00Z",
        }));
    }
    world.make(&json!({
        "apiVersion": budgets(),
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "shop", "namespace": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop-1"}}},
    }));

    let (audit, saved) = world.audit_and_save();
    assert_eq!(audit["gaps"], json!([]));
    assert_eq!(audit["source"], format!("cluster {}", cluster().started.as_ref().unwrap().url));
    assert_eq!(audit["contract"], world.contract().to_str().unwrap());
    let count = |key: &str| audit["summary"][key].as_u64().unwrap();
    assert_eq!((count("nodes"), count("gpuNodes"), count("pods")), (3, 2, 4));
    assert_eq!(saved.of("Node"), ["cpu-1", "gpu-1", "gpu-2"]);
    assert_eq!(saved.of("Pod"), ["ml-a/train", "ml-a/waits", "web/shop-1", "web/shop-2"]);
    let mut namespaces = [&OWN_NAMESPACES[..], &["ml-a", "web"]].concat();
    namespaces.sort_unstable();
    assert_eq!(saved.of("Namespace"), namespaces);
    for kind in TEMPLATES {
        let mut expected = vec![format!("web/{}", kind.to_lowercase())];
        // Of a ReplicaSet that a Deployment keeps only whose it is.
        if kind == "ReplicaSet" {
            expected.insert(0, "web/deployment-1".to_owned());
        }
        assert_eq!(saved.of(kind), expected);
    }
    assert_eq!(saved.of("PodDisruptionBudget"), ["web/shop"]);
    assert_eq!(saved.of("Event"), ["ml-a/waits"]);
}

/// More nodes and more pods than a page of a list holds.
#[test]
fn lists_of_many_pages_are_read_whole_and_once() {
    const NODES: usize = 130;
    const PODS: usize = 620;
    let Some(world) = World::new() else { return };
    world.namespace("web");
    let nodes: Vec<_> = (0..NODES).map(|index| format!("node-{index:03}")).collect();
    let pods: Vec<_> = (0..PODS).map(|index| format!("pod-{index:03}")).collect();
    let objects = nodes
        .iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))
        .chain(pods.iter().map(|name| Pod::named(name).in_namespace("web")));
    let objects: Vec<_> = objects.collect();
    std::thread::scope(|scope| {
        for part in objects.chunks(objects.len() / 8 + 1) {
            scope.spawn(move || part.iter().for_each(|object| drop(admin().create(object).stored())));
        }
    });
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.audit_and_save()));
    for collection in ["/api/v1/nodes", "/api/v1/namespaces/web/pods"] {
        admin().delete(collection).stored();
    }
    let (audit, saved) = read.unwrap();
    assert_eq!((&audit["summary"]["nodes"], &audit["summary"]["pods"]), (&json!(NODES), &json!(PODS)));
    assert_eq!(saved.of("Node"), nodes);
    assert_eq!(saved.of("Pod"), pods.iter().map(|name| format!("web/{name}")).collect::<Vec<_>>());
    assert_eq!(audit["gaps"], json!([]));
}

/// With no terminal there is nothing but the audit.
#[test]
fn progress_is_not_shown_to_programs() {
    let Some(world) = World::new() else { return };
    assert_eq!(world.run(&["--output", "json"]).stderr, "");
}
