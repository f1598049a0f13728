use serde_json::{Value, json};

use crate::api::{User, admin};
use crate::contract::{AGENT, Contract, MIRROR, exact_toleration};
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
pub fn daemon_pod(name: &str, owner: &Value) -> Pod {
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
    mirror_on(fence, namespace, &node(&fence.unique("node")))
}

/// The same for a node of its own kind, which is made.
pub fn mirror_on(fence: &Fence, namespace: &str, node: &Value) -> (Pod, User) {
    let owner = fence.make(node);
    let name = node["metadata"]["name"].as_str().unwrap();
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

#[test]
fn exemptions_go_by_who_asks_and_not_by_what_the_pod_says() {
    const REPLICA_SETS: &str = "system:serviceaccount:kube-system:replicaset-controller";
    let exemptions = json!([
        {
            "name": "checks",
            "reason": "by their owner",
            "namespaces": ["web-*"],
            "owners": [{"kind": "ReplicaSet", "name": "checks-*"}],
        },
        {"name": "admins", "reason": "by their group", "groups": ["gpu-admins"]},
        {"name": "robots", "reason": "by their account", "serviceAccounts": ["web-*/gpu-robot"]},
        {"name": "gone", "reason": "for a while", "expires": "2020-01-31", "groups": ["gpu-guests"]},
    ]);
    let fence = Fence::registered(&Contract::enforcing().with("exemptions", exemptions));
    let web = fence.namespace("web");
    let replica_set = |name: &str| {
        let pod = Pod::named(name).tolerating(&everything());
        admin().create(&workload("ReplicaSet", name, &web, &pod).0).stored()
    };
    let pod = |name: &str, owner: &str| {
        Pod::named(name).tolerating(&everything()).owned_by(&replica_set(owner)).in_namespace(&web)
    };
    let (checks, shop) = (pod("checks", "checks-1"), pod("shop", "shop-1"));
    let controller = User::named(REPLICA_SETS);
    controller.create(&checks).quietly();
    assert_eq!(controller.create(&shop).refusal(), outside(&web));
    // What a person writes is no proof: an owner, the account's name, the name of an exemption.
    let robot = Pod::named("robot").tolerating(&everything());
    let claiming = robot.clone().with(&["metadata", "labels", "gpufence.io/exempt"], "admins").in_namespace(&web);
    let editor = editor::of(&fence, &web);
    for person in [&editor, &admin()] {
        let mut forged = checks.clone();
        forged["metadata"]["name"] = "forged".into();
        assert_eq!(person.create(&forged).refusal(), outside(&web));
        assert_eq!(person.create(&claiming).refusal(), outside(&web));
    }
    let masters = |name: &str| User::named(name).in_group("system:masters");
    let expired = masters("guest").in_group("gpu-guests").create(&claiming);
    assert_eq!(expired.refusal(), format!("{} Exemption gone expired on 2020-01-31.", outside(&web)));
    masters("jane").in_group("gpu-admins").create(&claiming).quietly();
    let account = masters(&format!("system:serviceaccount:{web}:gpu-robot"));
    account.create(&Pod::named("account").tolerating(&everything()).in_namespace(&web)).quietly();
    // The owner is exempt as well as its pod.
    for (exemption, uses) in [("checks", 2), ("admins", 1), ("robots", 1)] {
        let labels = [("exemption", exemption), ("webhook", "validate"), ("outcome", "exempt")];
        assert_eq!(fence.count("exemptions_total", &labels), uses, "{exemption}");
    }
    assert_eq!(fence.count("exemptions_total", &[("exemption", "gone"), ("outcome", "expired")]), 1);
}
