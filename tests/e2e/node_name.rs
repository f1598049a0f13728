use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Patch, Reply, User, admin, path};
use crate::contract::{LABEL, exact_toleration};
use crate::editor;
use crate::fence::Fence;
use crate::findings::{
    bound_by_hand, bound_outside, placed_nowhere, placed_outside, placed_untolerated, refusal, toleration,
    toleration_outside,
};
use crate::identities::mirror_on;
use crate::objects::{Pod, node, workload};
use crate::poll;

const FIELD: &str = "spec.nodeName";

/// A node with the labels and taints beside its own.
fn node_with(name: &str, labels: &Value, taints: &[Value]) -> Value {
    let mut node = node(name);
    node["metadata"]["labels"] = labels.clone();
    node["spec"]["taints"].as_array_mut().unwrap().extend_from_slice(taints);
    node
}

fn taint() -> Value {
    json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"})
}

/// A node of the pool, as it should be.
fn gpu_node(name: &str) -> Value {
    node_with(name, &json!({LABEL: "nvidia"}), &[taint()])
}

/// Makes a node of the pool and one of none.
fn nodes(fence: &Fence) -> [String; 2] {
    let [gpu, ordinary] = ["gpu", "cpu"].map(|word| fence.unique(word));
    fence.make(&gpu_node(&gpu));
    fence.make(&node_with(&ordinary, &json!({LABEL: "none"}), &[]));
    [gpu, ordinary]
}

fn placed(name: &str, node: &str) -> Pod {
    Pod::named(name).with(&["spec", "nodeName"], node)
}

fn scheduler() -> User {
    User::named("system:kube-scheduler")
}

#[test]
fn an_editor_puts_pods_onto_ordinary_nodes_alone() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let editor = editor::of(&fence, &web);
    let [gpu, ordinary] = nodes(&fence);
    for user in [&editor, &admin()] {
        let reply = user.create(&placed("sneaky", &gpu).in_namespace(&web));
        assert_eq!(reply.refusal(), refusal(&placed_outside(FIELD, &gpu, &web)));
    }
    let stored = editor.create(&placed("plain", &ordinary).in_namespace(&web)).quietly();
    assert_eq!(stored["spec"]["nodeName"], ordinary);
    // Whatever it tolerates or asks for besides.
    let sneaky = placed("sneaky", &gpu).tolerating(&exact_toleration()).in_namespace(&web);
    let findings = [toleration_outside(&toleration(0), &web), placed_outside(FIELD, &gpu, &web)].join(" Also: ");
    assert_eq!(editor.create(&sneaky).refusal(), refusal(&findings));
}

/// Either is enough: a node may lose one, or have one before the other.
#[test]
fn the_label_or_the_taint_makes_a_node_the_pools() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    for (labels, taints, guarded) in [
        (json!({LABEL: "nvidia"}), vec![], true),
        (json!({}), vec![taint()], true),
        (json!({LABEL: "other"}), vec![json!({"key": "dedicated", "value": "gpu", "effect": "NoExecute"})], false),
    ] {
        let name = fence.unique(&format!("node-{}{}", labels.as_object().unwrap().len(), taints.len()));
        fence.make(&node_with(&name, &labels, &taints));
        let reply = admin().create(&placed("pod", &name).in_namespace(&web));
        if guarded {
            assert_eq!(reply.refusal(), refusal(&placed_outside(FIELD, &name, &web)));
        } else {
            reply.quietly();
        }
    }
}

#[test]
fn the_author_of_a_template_is_warned() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let editor = editor::of(&fence, &web);
    let [gpu, ordinary] = nodes(&fence);
    let deployment = |name: &str, node: &str| workload("Deployment", name, &web, &placed(name, node)).0;
    let reply = editor.create(&deployment("sneaky", &gpu));
    let expected = placed_outside("spec.template.spec.nodeName", &gpu, &web);
    let warnings = reply.our_warnings();
    assert_eq!(warnings.len(), 1, "{reply:#?}");
    assert!(expected.starts_with(warnings[0].trim_end_matches('…')), "{reply:#?}");
    reply.stored();
    editor.create(&deployment("plain", &ordinary)).quietly();
}

/// What binds a pod to a node, by either door.
fn bind(user: &User, pod: &Value, node: &str, is_legacy: bool) -> Reply {
    let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    if is_legacy { user.create(&binding) } else { user.post(&format!("{}/binding", path(pod)), &binding) }
}

#[test]
fn a_binding_is_the_schedulers_affair() {
    let fence = Fence::enforcing();
    let (web, ml) = (fence.namespace("web"), fence.namespace("ml"));
    let [gpu, ordinary] = nodes(&fence);
    for is_legacy in [false, true] {
        let pod = |name: &str, namespace: &str| {
            let name = format!("{name}-{}", if is_legacy { "legacy" } else { "new" });
            admin().create(&Pod::named(&name).in_namespace(namespace)).quietly()
        };
        let outside = bound_outside(&gpu, &web);
        assert_eq!(bind(&admin(), &pod("by-hand", &web), &gpu, is_legacy).refusal(), refusal(&outside));
        // Where the pool may be used a scheduler that nobody named gets its work done, and is told.
        let by_hand = bind(&admin(), &pod("by-hand", &ml), &gpu, is_legacy);
        assert_eq!(by_hand.our_warnings(), [bound_by_hand(&gpu)]);
        by_hand.stored();
        for (user, node, namespace) in [(scheduler(), &gpu, &ml), (admin(), &ordinary, &web)] {
            let pod = pod("bound", namespace);
            bind(&user, &pod, node, is_legacy).quietly();
            assert_eq!(admin().read(&pod).stored()["spec"]["nodeName"], **node);
        }
    }
}

/// What the watch has not brought yet is looked up.
#[test]
fn a_node_counts_from_the_moment_that_it_is_there() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    for round in 0..5 {
        let [gpu, ordinary] = ["gpu", "cpu"].map(|word| fence.unique(&format!("{word}-{round}")));
        let pod = placed("early", &gpu).in_namespace(&web);
        assert_eq!(admin().create(&pod).refusal(), refusal(&placed_nowhere(&gpu)));
        fence.make(&gpu_node(&gpu));
        assert_eq!(admin().create(&pod).refusal(), refusal(&placed_outside(FIELD, &gpu, &web)));
        fence.make(&node(&ordinary));
        admin().create(&placed(&format!("pod-{round}"), &ordinary).in_namespace(&web)).quietly();
    }
    assert_eq!(fence.count("node_lookups_total", &[("outcome", "missing")]), 5);
    assert_eq!(fence.count("node_lookups_total", &[("outcome", "error")]), 0);
}

#[test]
fn a_node_that_loses_its_label_and_taint_is_guarded_no_longer() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let [gpu, _] = nodes(&fence);
    let pod = |name: &str| placed(name, &gpu).in_namespace(&web);
    let node = format!("/api/v1/nodes/{gpu}");
    let without_label = json!({"metadata": {"labels": {LABEL: null}}});
    admin().patch(Patch::Merge, &node, &without_label).stored();
    // The taint is still there.
    for _ in 0..10 {
        admin().create(&pod("early")).refusal();
    }
    admin().patch(Patch::Merge, &node, &json!({"spec": {"taints": null}})).stored();
    poll::until("the node is ordinary", Duration::from_secs(5), || {
        let reply = admin().create(&pod("pod"));
        if reply.code == 201 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    admin().patch(Patch::Merge, &node, &json!({"metadata": {"labels": {LABEL: "nvidia"}}})).stored();
    poll::until("the node is the pool's", Duration::from_secs(5), || {
        let reply = admin().dry_run().create(&pod("late"));
        if reply.code == 403 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
}

#[test]
fn a_kubelet_mirrors_a_static_pod_of_its_gpu_node_and_of_no_other() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let [gpu, _] = nodes(&fence);
    let (pod, kubelet) = mirror_on(&fence, &web, &gpu_node(&fence.unique("own")));
    kubelet.create(&pod.in_namespace(&web)).quietly();
    let other = pod.with(&["spec", "nodeName"], gpu.as_str()).with(&["metadata", "name"], "other").in_namespace(&web);
    let reply = kubelet.create(&other);
    // A cluster's own NodeRestriction may be quicker.
    assert_eq!(reply.code, 403, "{reply:#?}");
}

/// `kubectl debug node/NAME`: past the scheduler, with a toleration of everything.
#[test]
fn a_node_is_debugged_from_an_allowed_namespace() {
    let fence = Fence::enforcing();
    let (web, ml) = (fence.namespace("web"), fence.namespace("ml"));
    let [gpu, _] = nodes(&fence);
    let debug = placed("node-debugger", &gpu).tolerating(&json!({"operator": "Exists"}));
    let reply = editor::of(&fence, &ml).create(&debug.in_namespace(&ml));
    assert!(!reply.our_warnings().iter().any(|warning| warning.starts_with("node-name-bypass")), "{reply:#?}");
    reply.stored();
    let findings = [toleration_outside(&toleration(0), &web), placed_outside(FIELD, &gpu, &web)].join(" Also: ");
    assert_eq!(admin().create(&debug.in_namespace(&web)).refusal(), refusal(&findings));
    // The scheduler would not have put it there.
    let reply = admin().create(&placed("past-the-taint", &gpu).in_namespace(&ml));
    assert_eq!(reply.refusal(), refusal(&placed_untolerated(&gpu)));
}
