use serde_json::{Value, json};

use crate::contract::{LABEL, exact_toleration};
use crate::objects::{Pod, workload};
use crate::world::{World, found};

/// A GPU node without the taint, and on it a Deployment's pod that has no business there.
fn broken(world: &World) {
    for namespace in ["ml-a", "web"] {
        world.namespace(namespace);
    }
    // Those that are as they should be are the more.
    for name in ["gpu-1", "gpu-3"] {
        world.gpu_node(name);
    }
    world.node("gpu-2", 8, &json!({LABEL: "nvidia"}), &json!([]));
    let deployment = world.make(&workload("Deployment", "shop", "web", &Pod::named("shop")).0);
    let mut replica_set = workload("ReplicaSet", "shop-1", "web", &Pod::named("shop")).0;
    replica_set["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "shop",
        "uid": deployment["metadata"]["uid"],
        "controller": true,
    }]);
    let replica_set = world.make(&replica_set);
    world.pod_on(&Pod::named("shop-1-a").owned_by(&replica_set).in_namespace("web"), "gpu-2", "Running");
    let train = Pod::named("train").with_gpu().tolerating(&exact_toleration()).selecting(LABEL, "nvidia");
    world.pod_on(&train.in_namespace("ml-a"), "gpu-1", "Running");
}

#[test]
fn what_breaks_the_contract_is_found_and_what_keeps_it_is_not() {
    let Some(world) = World::new() else { return };
    broken(&world);
    let audit = world.audit();
    assert_eq!(found(&audit, "node-without-taint"), ["Node /gpu-2"]);
    assert_eq!(found(&audit, "ordinary-pod-on-gpu-node"), ["Pod web/shop-1-a"]);
    let findings = audit["findings"].as_array().unwrap();
    let ordinary = findings.iter().find(|finding| finding["rule"] == "ordinary-pod-on-gpu-node").unwrap();
    let expected = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "shop"});
    assert_eq!(ordinary["controller"], expected);
    let named = |name: &str| findings.iter().any(|finding| finding["object"]["name"] == name);
    assert!(!["gpu-1", "gpu-3", "train"].into_iter().any(named), "{findings:#?}");
}

#[test]
fn a_second_run_with_the_first_as_its_baseline_finds_nothing() {
    let Some(world) = World::new() else { return };
    broken(&world);
    let first = world.audit();
    assert_ne!(first["findings"], json!([]));
    let file = world.folder.join("baseline.json");
    std::fs::write(&file, first.to_string()).unwrap();
    let contract = world.contract();
    let arguments = ["--config", contract.to_str().unwrap(), "--output", "json", "--baseline", file.to_str().unwrap()];
    let second: Value = world.run(&arguments).audit();
    assert_eq!(second["findings"], json!([]));
}
