use serde_json::{Value, json};

use crate::api::{User, admin};
use crate::contract::{AGENT, MIRROR, exact_toleration};
use crate::editor;
use crate::fence::Fence;
use crate::findings::{refusal, toleration, toleration_outside};
use crate::objects::{Pod, completed, node, workload};

fn daemon_set_controller() -> User {
    User::named(gpufence::policy::DAEMON_SET_CONTROLLER)
}

/// The refusal of a pod whose first toleration passes.
fn outside(namespace: &str) -> String {
    refusal(&toleration_outside(&toleration(0), namespace))
}

fn everything() -> Value {
    json!({"operator": "Exists"})
}

/// A DaemonSet that tolerates everything, as agents do.
fn daemon_set(name: &str, namespace: &str) -> Value {
    let pod = Pod::named(name).tolerating(&everything());
    admin().create(&workload("DaemonSet", name, namespace, &pod).0).stored()
}

/// A pod as the DaemonSet controller writes it: pinned to a node by its name.
fn daemon_pod(name: &str, owner: &Value) -> Pod {
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]);
    let affinity = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }});
    Pod::named(name).owned_by(owner).with(&["spec", "affinity"], affinity)
}

#[test]
fn the_pods_of_an_exempt_daemon_set_are_admitted_as_they_are() {
    let fence = Fence::enforcing();
    let agents = fence.namespace("agents");
    let owner = daemon_set(AGENT, &agents);
    let pod = daemon_pod("agent-1", &owner).tolerating(&everything());
    let stored = daemon_set_controller().create(&pod.in_namespace(&agents)).quietly();
    let unfenced = admin().create(&pod.in_namespace(&fence.unfenced_namespace())).stored();
    assert_eq!(stored["spec"], unfenced["spec"]);
    assert_eq!(stored["spec"]["nodeSelector"], Value::Null);
    let decisions = fence.decisions_in(&agents);
    assert!(decisions.iter().any(|line| line["name"] == "agent-1" && line["outcome"] == "exempt"), "{decisions:#?}");
}

#[test]
fn a_gpu_pod_of_a_daemon_set_gets_the_toleration_and_no_node_selector() {
    let fence = Fence::enforcing();
    let ml = fence.namespace("ml");
    let owner = daemon_set("trainer", &ml);
    let pod = daemon_pod("trainer-1", &owner).with_gpu();
    let stored = daemon_set_controller().create(&pod.in_namespace(&ml)).quietly();
    let unfenced = admin().create(&pod.in_namespace(&fence.unfenced_namespace())).stored();
    let mut expected = completed(&unfenced["spec"]);
    expected.as_object_mut().unwrap().remove("nodeSelector");
    assert_eq!(stored["spec"], expected);
}

#[test]
fn the_controllers_pods_of_any_other_daemon_set_are_refused() {
    let fence = Fence::enforcing();
    let (agents, web) = (fence.namespace("agents"), fence.namespace("web"));
    for (name, namespace) in [("other-agent", &agents), (AGENT, &web)] {
        let owner = daemon_set(name, namespace);
        let pod = daemon_pod("pod", &owner).tolerating(&everything()).in_namespace(namespace);
        assert_eq!(daemon_set_controller().create(&pod).refusal(), outside(namespace));
    }
}

#[test]
fn a_person_who_forges_the_daemon_set_as_owner_is_refused() {
    let fence = Fence::enforcing();
    let agents = fence.namespace("agents");
    let owner = daemon_set(AGENT, &agents);
    let pod = daemon_pod("forged", &owner).tolerating(&everything()).in_namespace(&agents);
    for person in [editor::of(&fence, &agents), admin()] {
        assert_eq!(person.create(&pod).refusal(), outside(&agents));
    }
}

/// A node, its pod as a kubelet writes the mirror of a static one, and the kubelet.
fn mirror(fence: &Fence, namespace: &str) -> (Pod, User) {
    let name = fence.unique("node");
    let owner = fence.make(&node(&name));
    let user = format!("system:node:{name}");
    // The node authorizer would allow it. Where there is none, this does.
    fence.make(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "kubelet", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }));
    let kubelet = User::named(user).in_group("system:nodes");
    editor::until_allowed(&kubelet, namespace);
    let pod = Pod::named("mirror")
        .tolerating(&everything())
        .owned_by(&owner)
        .with(&["metadata", "annotations", MIRROR], "0123456789abcdef")
        .with(&["spec", "nodeName"], name);
    (pod, kubelet)
}

#[test]
fn the_mirror_of_a_static_pod_is_admitted_from_its_kubelet() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let (pod, kubelet) = mirror(&fence, &web);
    let stored = kubelet.create(&pod.in_namespace(&web)).quietly();
    let unfenced = admin().create(&pod.in_namespace(&fence.unfenced_namespace())).stored();
    assert_eq!(stored["spec"], unfenced["spec"]);
}

#[test]
fn a_person_who_writes_the_mirror_annotation_is_refused() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let (pod, _) = mirror(&fence, &web);
    let pod = pod.in_namespace(&web);
    for person in [editor::of(&fence, &web), admin()] {
        assert_eq!(person.create(&pod).refusal(), outside(&web));
    }
}

#[test]
fn a_kubelet_is_refused_for_what_is_no_mirror() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let (_, kubelet) = mirror(&fence, &web);
    // A cluster's own NodeRestriction may be quicker.
    let pod = Pod::named("plain").tolerating(&exact_toleration()).in_namespace(&web);
    assert_eq!(kubelet.create(&pod).code, 403);
    assert!(admin().read(&pod).is_missing());
}
