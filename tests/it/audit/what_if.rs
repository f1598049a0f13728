use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use gpufence::audit::{Affected, Change, DaemonSetFate, Fate, Then, Totals, What, WhatIf, WhatIfError, Which, what_if};
use gpufence::policy::LabelSelector;
use gpufence::report::audit::what_if_text;

use super::cluster::{CONTRACT, Cluster, NOW, Pod, gpu_node, node, owners, pod, policy, workload};

fn try_ask(cluster: &Cluster, change: &Change) -> Result<WhatIf, WhatIfError> {
    let policy = policy(&cluster.contract);
    what_if(&policy, &cluster.snapshot(&policy), change, NOW)
}

/// What a change to these nodes would do; to the pool's where none is named.
fn ask(cluster: &Cluster, what: What, nodes: &[&str]) -> WhatIf {
    let named = Which::Named(nodes.iter().map(ToString::to_string).collect());
    let nodes = if nodes.is_empty() { Which::OfPool } else { named };
    try_ask(cluster, &Change { what, nodes, pool: None }).unwrap()
}

/// A node with GPUs and the label, as it was before anyone thought of a taint.
fn open_node(name: &str) -> super::cluster::Node {
    gpu_node(name).untainted()
}

fn of(pod: Pod, deployment: &str) -> Pod {
    pod.owned_by(&format!("ReplicaSet/{deployment}-1"))
}

/// A Deployment and its ReplicaSet.
fn deployment(name: &str) -> [Value; 2] {
    let mut replica_set = workload("ReplicaSet", &format!("{name}-1"), pod("x/x"));
    let (_, short) = name.split_once('/').unwrap();
    replica_set["metadata"]["ownerReferences"] = owners(&format!("Deployment/{short}"));
    [workload("Deployment", name, pod("x/x")), replica_set]
}

fn fates(what_if: &WhatIf) -> Vec<(String, Fate, Then)> {
    let line = |pod: &Affected| (format!("{}/{}", pod.namespace, pod.name), pod.fate, pod.then.clone());
    what_if.pods.iter().map(line).collect()
}

fn elsewhere(node: &str) -> Then {
    Then::Elsewhere { to: node.to_owned() }
}

fn nowhere(why: &str) -> Then {
    Then::Nowhere { why: why.to_owned() }
}

#[test]
fn a_taint_evicts_nobody_and_lets_nobody_back() {
    let mirror = |pod: &mut Value| {
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod["metadata"]["ownerReferences"] = owners("Node/gpu-1");
    };
    let cluster = Cluster::new()
        .objects([open_node("gpu-1"), node("cpu-1")])
        .objects(deployment("web/shop"))
        .object(of(pod("web/shop-1-a"), "shop").on("gpu-1"))
        .object(pod("web/alone").on("gpu-1"))
        .object(pod("kube-system/proxy").on("gpu-1").edit(mirror))
        .object(of(pod("web/tolerant"), "shop").tolerates(json!({"operator": "Exists"})).on("gpu-1"))
        .object(of(pod("ml/train"), "train").gpus(1).placed().on("gpu-1"))
        .object(of(pod("web/over"), "shop").phase("Succeeded").on("gpu-1"))
        .object(of(pod("web/other"), "shop").on("cpu-1"));
    let what_if = ask(&cluster, What::Taint, &[]);
    assert_eq!(what_if.adds, ["dedicated=gpu:NoSchedule"]);
    assert_eq!(
        fates(&what_if),
        [
            ("web/alone".to_owned(), Fate::Stays, Then::Nothing),
            ("web/shop-1-a".to_owned(), Fate::Stays, elsewhere("cpu-1")),
        ]
    );
    assert_eq!(what_if.pods[1].controller.as_ref().unwrap().to_string(), "Deployment web/shop");
    let expected =
        Totals { nodes_changed: 1, cannot_return: 1, without_controller: 1, with_room: 1, ..Totals::default() };
    assert_eq!(what_if.summary, expected);
    assert_eq!(
        what_if.verdict,
        "No pod would be evicted. 1 pod would stay, and must go elsewhere after a restart: there is room."
    );
}

#[test]
fn no_execute_evicts_who_does_not_tolerate_it_and_in_time_who_does_for_a_while() {
    let toleration = |effect: &str, seconds: Option<i64>| {
        let mut toleration = json!({"key": "dedicated", "operator": "Exists", "effect": effect});
        if let Some(seconds) = seconds {
            toleration["tolerationSeconds"] = seconds.into();
        }
        toleration
    };
    let shop = |name: &str| of(pod(name), "shop").on("gpu-1");
    let cluster = Cluster::new()
        .objects([open_node("gpu-1"), node("cpu-1")])
        .object(shop("web/a-none"))
        .object(shop("web/b-no-schedule").tolerates(toleration("NoSchedule", None)))
        .object(shop("web/c-now").tolerates(toleration("NoExecute", Some(0))))
        .object(shop("web/d-later").tolerates(toleration("NoExecute", Some(300))))
        // The first that tolerates it counts.
        .object(shop("web/e-first").tolerates(toleration("", Some(60))).tolerates(toleration("NoExecute", None)))
        .object(shop("web/f-ever").tolerates(toleration("NoExecute", None)))
        .object(pod("web/g-alone").on("gpu-1"));
    let what_if = ask(&cluster, What::TaintNoexecute, &[]);
    assert_eq!(what_if.adds, ["dedicated=gpu:NoExecute"]);
    let fates: Vec<_> = what_if.pods.iter().map(|pod| (&*pod.name, pod.fate, pod.after_seconds)).collect();
    assert_eq!(
        fates,
        [
            ("a-none", Fate::Evicted, None),
            ("b-no-schedule", Fate::Evicted, None),
            ("c-now", Fate::Evicted, None),
            ("d-later", Fate::EvictedLater, Some(300)),
            ("e-first", Fate::EvictedLater, Some(60)),
            ("g-alone", Fate::Evicted, None),
        ]
    );
    assert_eq!(what_if.pods[5].then, Then::Nothing);
    assert_eq!(what_if.verdict, "6 pods would be evicted, 1 of them for good.");
    let text = what_if_text(&what_if);
    assert!(
        text.contains(
            "Evicted and lost for good, for nothing makes them anew: 1 pod\n  Pod web/g-alone: 1 pod on gpu-1\n"
        ),
        "{text}"
    );
    assert!(text.contains("after 60 s, room elsewhere"), "{text}");
}

/// The toleration that the contract gives is for its own effect.
#[test]
fn no_execute_drives_out_gpu_pods_that_have_the_contracts_toleration() {
    let cluster = Cluster::new()
        .objects([gpu_node("gpu-1"), node("cpu-1")])
        .object(of(pod("ml/train"), "train").gpus(1).placed().on("gpu-1"));
    let what_if = ask(&cluster, What::TaintNoexecute, &[]);
    assert_eq!(
        fates(&what_if),
        [(
            "ml/train".to_owned(),
            Fate::Evicted,
            nowhere(
                "the contract's toleration does not tolerate dedicated=gpu:NoExecute; of 1 other node 1 that it does not \
                 select"
            )
        )]
    );
    assert_eq!(what_if.verdict, "1 pod would be evicted. 1 GPU pod would find no node any more.");
    // Where that is the contract's effect, they stay.
    let contract = CONTRACT.replace("effect: NoSchedule", "effect: NoExecute");
    let execute = json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute"});
    let cluster = Cluster::new()
        .contract(&contract)
        .object(open_node("gpu-1"))
        .object(of(pod("ml/train"), "train").gpus(1).tolerates(execute).on("gpu-1"));
    for what in [What::Taint, What::TaintNoexecute] {
        assert_eq!(fates(&ask(&cluster, what, &[])), []);
    }
    // One without is driven out, and its successor is given it.
    let bare = Cluster::new()
        .contract(&contract)
        .object(open_node("gpu-1"))
        .object(of(pod("ml/train"), "train").gpus(1).on("gpu-1"));
    assert_eq!(fates(&ask(&bare, What::Taint, &[])), [("ml/train".to_owned(), Fate::Evicted, Then::Completed)]);
}

#[test]
fn a_gpu_pod_without_the_toleration_comes_back_where_the_webhook_gives_it() {
    let train = |namespace: &str| of(pod(&format!("{namespace}/train")), "train").gpus(1).on("gpu-1");
    let cluster = |namespace: &str| Cluster::new().object(open_node("gpu-1")).object(train(namespace));
    let then = |cluster: &Cluster| ask(cluster, What::Taint, &[]).pods[0].then.clone();
    assert_eq!(then(&cluster("ml")), Then::Completed);
    assert_eq!(then(&cluster("web")), nowhere("namespace web may not use pool nvidia; there is no other node"));
    let audit = cluster("ml").contract(&CONTRACT.replace("mode: enforce", "mode: audit"));
    assert_eq!(then(&audit), nowhere("the mode is audit, in which the webhook adds nothing; there is no other node"));
    // Another node of the pool that is still open takes it.
    let other = cluster("web").object(open_node("gpu-2"));
    let what_if = ask(&other, What::Taint, &["gpu-1"]);
    assert_eq!((&what_if.pods[0].then, what_if.summary.onto_gpu_nodes), (&elsewhere("gpu-2"), 1));
    let what_if = ask(&cluster("ml"), What::Taint, &[]);
    assert_eq!((what_if.summary.cannot_return, what_if.pods[0].requests_gpu), (0, true));
    assert_eq!(what_if.verdict, "No pod would be evicted.");
}

#[test]
fn who_names_the_node_comes_back_past_the_scheduler() {
    let named = |pod: &mut Value| {
        pod["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    };
    let cluster = Cluster::new()
        .objects([open_node("gpu-1"), node("cpu-1")])
        .object(of(pod("web/a"), "shop").on("gpu-1").edit(named));
    assert_eq!(fates(&ask(&cluster, What::Taint, &[])), []);
    assert_eq!(
        fates(&ask(&cluster, What::TaintNoexecute, &[])),
        [("web/a".to_owned(), Fate::Evicted, nowhere("its spec.nodeName puts it onto this node and no other"))]
    );
}

#[test]
fn daemon_sets_that_do_not_tolerate_the_taint_drop_out() {
    let agent = |name: &str| pod(name).owned_by("DaemonSet/agent");
    let tolerant = pod("web/tolerant").owned_by("DaemonSet/tolerant").tolerates(json!({"operator": "Exists"}));
    let cluster = Cluster::new()
        .objects([open_node("gpu-1"), open_node("gpu-2"), node("cpu-1")])
        .object(agent("web/agent-1").on("gpu-1"))
        .object(agent("web/agent-2").on("gpu-2"))
        .object(agent("web/agent-3").on("cpu-1"))
        .object(tolerant.on("gpu-1"));
    for (what, fate, effect) in [
        (What::Taint, DaemonSetFate::NotRecreated, "NoSchedule"),
        (What::TaintNoexecute, DaemonSetFate::Deleted, "NoExecute"),
    ] {
        let what_if = ask(&cluster, what, &[]);
        let [change] = &what_if.daemon_sets[..] else { panic!("{:?}", what_if.daemon_sets) };
        assert_eq!((change.daemon_set.to_string().as_str(), change.fate), ("DaemonSet web/agent", fate));
        assert_eq!(change.nodes, ["gpu-1", "gpu-2"]);
        assert_eq!(change.add, [format!("{{key: dedicated, operator: Equal, value: gpu, effect: {effect}}}")]);
        assert_eq!((what_if.pods.len(), what_if.summary.evicted, what_if.summary.daemon_sets_dropped), (0, 0, 1));
        assert_eq!(what_if.verdict, "No pod would be evicted. 1 DaemonSet would drop out.");
    }
}

/// A value that YAML would take for something else is quoted.
#[test]
fn the_toleration_that_a_daemon_set_lacks_is_yaml() {
    let contract = CONTRACT.replace("value: gpu", "value: 'true'");
    let cluster = Cluster::new()
        .contract(&contract)
        .object(open_node("gpu-1"))
        .object(pod("web/agent-1").owned_by("DaemonSet/agent").on("gpu-1"));
    let what_if = ask(&cluster, What::Taint, &[]);
    assert_eq!(what_if.daemon_sets[0].add, ["{key: dedicated, operator: Equal, value: \"true\", effect: NoSchedule}"]);
}

/// The DaemonSet controller tolerates for its pods what comes with a node's state, on the node's network that too.
#[test]
fn a_daemon_set_starts_on_a_cordoned_node() {
    let template =
        || pod("x/x").selects("accelerator", "nvidia").tolerates(json!({"key": "dedicated", "operator": "Exists"}));
    let on_network = || template().edit(|pod| pod["spec"]["hostNetwork"] = true.into());
    for (taint, own, starts) in [
        ("node.kubernetes.io/unschedulable", template(), true),
        ("node.kubernetes.io/disk-pressure", template(), true),
        ("node.kubernetes.io/network-unavailable", template(), false),
        ("node.kubernetes.io/network-unavailable", on_network(), true),
        ("node.kubernetes.io/out-of-service", template(), false),
    ] {
        let node = gpu_node("gpu-1").label("accelerator", "old").cordoned().taint(taint, "", "NoSchedule");
        let cluster = Cluster::new().object(node).object(workload("DaemonSet", "web/agent", own));
        let what_if = ask(&cluster, What::Label, &["gpu-1"]);
        let fates: Vec<_> = what_if.daemon_sets.iter().map(|set| set.fate).collect();
        assert_eq!(fates == [DaemonSetFate::Started], starts, "{taint}: {fates:?}");
    }
}

/// The largest first: were the small ones placed first, the large one would find no room.
#[test]
fn room_is_looked_for_largest_first() {
    let shop = |name: &str, cpu: &str| of(pod(name), "shop").requests("cpu", cpu).on("gpu-1");
    let cluster = Cluster::new()
        .object(open_node("gpu-1"))
        .objects([node("cpu-1").has("cpu", "8"), node("cpu-2").has("cpu", "4")])
        .object(shop("web/a", "2"))
        .object(shop("web/b", "2"))
        .object(shop("web/c", "8"));
    let what_if = ask(&cluster, What::Taint, &[]);
    let then: Vec<_> = what_if.pods.iter().map(|pod| pod.then.clone()).collect();
    assert_eq!(then, [elsewhere("cpu-2"), elsewhere("cpu-2"), elsewhere("cpu-1")]);
    assert_eq!((what_if.summary.with_room, what_if.summary.without_room), (3, 0));
}

/// Who stays and finds room later is told apart from who finds none, and from who is evicted.
#[test]
fn the_headline_tells_apart_who_finds_room() {
    let shop = |name: &str, cpu: &str| of(pod(name), "shop").requests("cpu", cpu).on("gpu-1");
    let cluster = Cluster::new().objects([open_node("gpu-1"), node("cpu-1").has("cpu", "4")]).objects([
        shop("web/a", "2"),
        shop("web/b", "2"),
        shop("web/c", "8"),
    ]);
    let what_if = ask(&cluster, What::Taint, &[]);
    assert_eq!(
        what_if.verdict,
        "No pod would be evicted. 3 pods would stay, and must go elsewhere after a restart: there is room for 2, and none \
         for 1."
    );
    let text = what_if_text(&what_if);
    assert!(text.contains("\nStay, and find no node after a restart: 1 pod\n"), "{text}");
    assert!(text.contains("\nStay, and must go elsewhere after a restart, where there is room: 2 pods\n"), "{text}");
    assert_eq!(
        ask(&cluster, What::TaintNoexecute, &[]).verdict,
        "3 pods would be evicted. 1 pod without a GPU would find no room elsewhere."
    );
}

/// A taint of the contract's key under another effect would stay beside the new one.
#[test]
fn what_is_almost_the_contracts_taint_is_removed_with_it() {
    let contract = CONTRACT.replace("effect: NoSchedule", "effect: NoExecute");
    let ask_of = |node: super::cluster::Node, what| ask(&Cluster::new().contract(&contract).object(node), what, &[]);
    let what_if = ask_of(gpu_node("gpu-1"), What::Taint);
    assert_eq!(what_if.nodes[0].removes, ["dedicated=gpu:NoSchedule"]);
    assert_eq!(
        what_if.verdict,
        "No pod would be evicted. 1 node has a taint that is almost the contract's: it would stay beside the new one, and \
         the exact toleration does not pass it, so that the commands remove it."
    );
    assert_eq!(what_if.pilot[1].command, "kubectl taint node gpu-1 dedicated=gpu:NoExecute dedicated=gpu:NoSchedule-");
    assert_eq!(
        what_if.rollback,
        ["kubectl taint node gpu-1 dedicated=gpu:NoExecute-", "kubectl taint node gpu-1 dedicated=gpu:NoSchedule"]
    );
    assert!(
        what_if_text(&what_if)
            .contains("  gpu-1: + dedicated=gpu:NoExecute, - dedicated=gpu:NoSchedule (0 ordinary pods)\n")
    );
    // What the contract does not look for, and what it has already, is left alone.
    let other = open_node("gpu-1").taint("nvidia.com/gpu", "present", "NoSchedule");
    assert_eq!(ask_of(other, What::Taint).nodes[0].removes, [""; 0]);
    let right = open_node("gpu-1").taint("dedicated", "gpu", "NoExecute").taint("dedicated", "gpu", "NoSchedule");
    assert_eq!(ask_of(right, What::Taint).summary.nodes_changed, 0);
    // The contract's own taint is not in the way of the same with NoExecute.
    let beside = ask(&Cluster::new().object(gpu_node("gpu-1")), What::TaintNoexecute, &[]);
    assert_eq!((beside.nodes[0].removes.len(), beside.pilot.len()), (0, 5));
}

/// Each thing that keeps a pod off another node, with the reason; and the same node without it takes the pod.
#[test]
fn what_keeps_a_pod_off_another_node_is_said() {
    let plain = || of(pod("web/a"), "shop").requests("cpu", "2").requests("memory", "1Gi").on("gpu-1");
    let full = || pod("web/full").requests("cpu", "63").on("cpu-1");
    let cases: [(super::cluster::Node, Pod, Option<Pod>, &str); 8] = [
        (node("cpu-1"), plain().selects("zone", "a"), None, "of 1 other node 1 that it does not select"),
        (
            node("cpu-1").taint("team", "x", "NoSchedule"),
            plain(),
            None,
            "of 1 other node 1 with a taint that it does not tolerate",
        ),
        (node("cpu-1").has("cpu", "1"), plain(), None, "of 1 other node 1 with too little CPU"),
        (node("cpu-1"), plain(), Some(full()), "of 1 other node 1 with too little CPU"),
        (node("cpu-1").has("memory", "512Mi"), plain(), None, "of 1 other node 1 with too little memory"),
        (node("cpu-1").has("pods", "0"), plain(), None, "of 1 other node 1 without a free pod slot"),
        (node("cpu-1").cordoned(), plain(), None, "there is no other node"),
        (node("cpu-1").not_ready(), plain(), None, "there is no other node"),
    ];
    for (other, mover, occupant, why) in cases {
        let cluster = Cluster::new().object(open_node("gpu-1")).object(other).object(mover).objects(occupant);
        let what_if = ask(&cluster, What::Taint, &[]);
        assert_eq!(what_if.pods.last().unwrap().then, nowhere(why));
        assert!(
            what_if.verdict.ends_with("1 pod would stay, and must go elsewhere after a restart: there is no room."),
            "{}",
            what_if.verdict
        );
    }
    let takes = [
        (node("cpu-1").label("zone", "a"), plain().selects("zone", "a")),
        (
            node("cpu-1").taint("team", "x", "NoSchedule"),
            plain().tolerates(json!({"key": "team", "operator": "Exists"})),
        ),
        (node("cpu-1").taint("team", "x", "PreferNoSchedule"), plain()),
        (node("cpu-1").has("cpu", "2").has("memory", "1Gi").has("pods", "1"), plain()),
    ];
    for (other, mover) in takes {
        let cluster = Cluster::new().object(open_node("gpu-1")).object(other).object(mover);
        assert_eq!(ask(&cluster, What::Taint, &[]).pods[0].then, elsewhere("cpu-1"));
    }
}

/// A node that changes too is no refuge, and of those that do not, ordinary nodes come first.
#[test]
fn room_is_looked_for_on_nodes_that_do_not_change() {
    let cluster = Cluster::new()
        .objects([open_node("gpu-1"), open_node("gpu-2"), open_node("gpu-3")])
        .object(of(pod("web/a"), "shop").on("gpu-3"));
    assert_eq!(ask(&cluster, What::Taint, &[]).pods[0].then, nowhere("there is no other node"));
    let what_if = ask(&cluster, What::Taint, &["gpu-3"]);
    assert_eq!((&what_if.pods[0].then, what_if.summary.onto_gpu_nodes), (&elsewhere("gpu-1"), 1));
    let what_if = ask(&cluster.object(node("zzz")), What::Taint, &["gpu-3"]);
    assert_eq!((&what_if.pods[0].then, what_if.summary.onto_gpu_nodes), (&elsewhere("zzz"), 0));
}

#[test]
fn budgets_that_allow_too_little_are_in_the_way() {
    let budget = |name: &str, labels: Value, status: Value| {
        let (namespace, name) = name.split_once('/').unwrap();
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}}, "status": status})
    };
    let allows = |number: i64| json!({"disruptionsAllowed": number});
    let shop = |name: &str| of(pod(name), "shop").label("app", "shop").on("gpu-1");
    let cluster = Cluster::new()
        .objects([open_node("gpu-1"), node("cpu-1")])
        .objects([shop("web/a"), shop("web/b")])
        .object(of(pod("web/c"), "shop").label("app", "shop").on("cpu-1"))
        .object(budget("web/enough", json!({"app": "shop"}), allows(2)))
        .object(budget("web/tight", json!({"app": "shop"}), allows(1)))
        .object(budget("web/closed", json!({}), allows(0)))
        .object(budget("web/unknown", json!({"app": "shop"}), Value::Null))
        .object(budget("web/others", json!({"app": "cart"}), allows(0)))
        .object(budget("ml/elsewhere", json!({"app": "shop"}), allows(0)));
    let rows = |what_if: &WhatIf| -> Vec<_> {
        let row = |budget: &gpufence::audit::BudgetInTheWay| {
            (budget.name.to_string(), budget.pods, budget.disruptions_allowed, budget.is_passed_by)
        };
        what_if.budgets.iter().map(row).collect()
    };
    for (what, is_passed_by) in [(What::Taint, false), (What::TaintNoexecute, true)] {
        let what_if = ask(&cluster, what, &[]);
        assert_eq!(
            rows(&what_if),
            [
                ("closed".to_owned(), 2, Some(0), is_passed_by),
                ("tight".to_owned(), 2, Some(1), is_passed_by),
                ("unknown".to_owned(), 2, None, is_passed_by),
            ]
        );
        let text = what_if_text(&what_if);
        assert!(text.contains("  web/tight: 2 pods concerned, allows 1 disruption now\n"), "{text}");
        assert!(
            text.contains("  web/unknown: 2 pods concerned, does not say how many disruptions it allows\n"),
            "{text}"
        );
        let passes_by = "The eviction for a NoExecute taint asks no budget: it deletes the pods all the same.";
        assert_eq!(text.contains(passes_by), is_passed_by, "{text}");
        assert!(text.contains("kubectl drain asks them, and waits until they allow it."), "{text}");
    }
}

#[test]
fn a_label_lets_pods_come_and_drives_some_off() {
    let selecting = |key: &str, value: &str| pod("x/x").selects(key, value).tolerates(json!({"operator": "Exists"}));
    let waiting = |name: &str, gpus: i64| pod(name).gpus(gpus).placed().unschedulable("x");
    let exists = json!({"operator": "Exists"});
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1").label("accelerator", "old"))
        .object(node("cpu-1").label("accelerator", "nvidia"))
        .object(workload("DaemonSet", "web/follows", selecting("accelerator", "nvidia")))
        .object(workload("DaemonSet", "web/leaves", selecting("accelerator", "old")))
        .object(pod("web/leaves-1").owned_by("DaemonSet/leaves").selects("accelerator", "old").on("gpu-1"))
        // It tolerates no taint and has no pod there, or only elsewhere.
        .object(workload("DaemonSet", "web/absent", pod("x/x").selects("accelerator", "old")))
        .object(pod("web/absent-1").owned_by("DaemonSet/absent").on("cpu-1"))
        .object(workload("DaemonSet", "web/everywhere", pod("x/x").tolerates(exists.clone())))
        .object(workload("DaemonSet", "web/kept-off", pod("x/x").selects("accelerator", "nvidia")))
        .object(of(pod("web/old"), "shop").selects("accelerator", "old").tolerates(exists.clone()).on("gpu-1"))
        .object(of(pod("web/steady"), "shop").tolerates(exists.clone()).on("gpu-1"))
        .object(waiting("ml/one", 6))
        .object(waiting("ml/two", 6))
        .object(pod("web/comes").selects("accelerator", "nvidia").tolerates(exists).on("cpu-1"))
        .object(pod("web/kept-off").selects("accelerator", "nvidia").on("cpu-1"));
    let what_if = ask(&cluster, What::Label, &["gpu-1"]);
    assert_eq!(what_if.nodes[0].replaces, ["accelerator=old"]);
    assert_eq!(
        fates(&what_if),
        [("web/old".to_owned(), Fate::Stays, nowhere("of 1 other node 1 that it does not select"))]
    );
    let sets: Vec<_> = what_if.daemon_sets.iter().map(|set| (set.daemon_set.to_string(), set.fate)).collect();
    assert_eq!(
        sets,
        [
            ("DaemonSet web/follows".to_owned(), DaemonSetFate::Started),
            ("DaemonSet web/leaves".to_owned(), DaemonSetFate::Deleted),
        ]
    );
    let names = |objects: &[gpufence::audit::ObjectRef]| objects.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&what_if.newcomers.pending), ["Pod ml/one"]);
    assert_eq!(names(&what_if.newcomers.ordinary), ["Pod web/comes"]);
    assert_eq!(what_if.rollback, ["kubectl label node gpu-1 accelerator=old --overwrite"]);
    assert_eq!(
        what_if.verdict,
        "No pod would be evicted. 1 pod would stay, and must go elsewhere after a restart: there is no room. \
         1 DaemonSet would drop out. 1 pending pod would find a node."
    );
}

#[test]
fn a_node_that_has_it_already_is_left_alone() {
    let cluster = Cluster::new().object(gpu_node("gpu-1")).object(of(pod("web/a"), "shop").on("gpu-1"));
    for what in [What::Taint, What::Label] {
        let what_if = ask(&cluster, what, &[]);
        assert_eq!(what_if.summary, Totals { nodes_unchanged: 1, ..Totals::default() });
        assert!(what_if.pods.is_empty() && what_if.pilot.is_empty() && what_if.rollback.is_empty());
        let text = what_if_text(&what_if);
        let adds = what_if.adds.join("");
        assert!(text.ends_with(&format!("\n\nNothing to do: 1 node asked about has {adds} already.\n")), "{text}");
    }
    assert_eq!(ask(&cluster, What::TaintNoexecute, &[]).summary.nodes_changed, 1);
}

#[test]
fn what_is_replaced_is_put_back() {
    let cluster = Cluster::new()
        .object(open_node("gpu-1").taint("dedicated", "old", "NoSchedule"))
        .object(open_node("gpu-2").taint("other", "", "NoSchedule"))
        .object(open_node("gpu-3"))
        .object(gpu_node("gpu-4"));
    let what_if = ask(&cluster, What::Taint, &[]);
    assert_eq!(what_if.nodes[0].replaces, ["dedicated=old:NoSchedule"]);
    assert_eq!(
        what_if.rollback,
        [
            "kubectl taint node gpu-2 gpu-3 dedicated=gpu:NoSchedule-",
            "kubectl taint node gpu-1 dedicated=old:NoSchedule --overwrite",
        ]
    );
    assert_eq!(what_if.backup_commands, ["kubectl get nodes gpu-1 gpu-2 gpu-3 --output json > gpu-nodes.before.json"]);
    let backup: Vec<_> = what_if.backup.iter().map(|node| (&*node.name, node.taints.join(","))).collect();
    assert_eq!(
        backup,
        [
            ("gpu-1", "dedicated=old:NoSchedule".to_owned()),
            ("gpu-2", "other:NoSchedule".to_owned()),
            ("gpu-3", String::new()),
        ]
    );
    assert_eq!(what_if.backup[2].labels.get("accelerator").map(|value| &**value), Some("nvidia"));
    let label = ask(&Cluster::new().object(gpu_node("gpu-1").without_label("accelerator")), What::Label, &[]);
    assert_eq!(label.rollback, ["kubectl label node gpu-1 accelerator-"]);
    assert_eq!(label.pilot[1].command, "kubectl label node gpu-1 accelerator=nvidia");
}

#[test]
fn the_pilot_is_where_the_fewest_ordinary_pods_are() {
    let shop = |name: &str, on: &str| of(pod(name), "shop").on(on);
    let cluster = Cluster::new()
        .objects([open_node("gpu-1"), open_node("gpu-2"), open_node("gpu-3"), open_node("gpu-4").cordoned()])
        .objects([shop("web/a", "gpu-1"), shop("web/b", "gpu-1"), shop("web/c", "gpu-2"), shop("web/d", "gpu-3")])
        .object(of(pod("ml/train"), "train").gpus(1).placed().on("gpu-2"))
        .object(gpu_node("gpu-0"));
    let what_if = ask(&cluster, What::Taint, &[]);
    assert_eq!(what_if.pilot_node.as_deref(), Some("gpu-2"));
    let commands: Vec<_> = what_if.pilot.iter().map(|step| &*step.command).collect();
    assert_eq!(
        commands,
        [
            "kubectl get node gpu-2 --output json > gpu-2.before.json",
            "kubectl taint node gpu-2 dedicated=gpu:NoSchedule",
            "kubectl get pods --all-namespaces --output wide --field-selector spec.nodeName=gpu-2 --watch",
            "kubectl get events --all-namespaces --field-selector reason=FailedScheduling",
            "gpufence audit",
        ]
    );
}

/// A dump may hold what no API server would: it must not become another command, nor move a terminal.
#[test]
fn commands_are_safe_to_paste() {
    let hostile = ["a b", "x; rm -rf /", "$(id)", "it's", "-l", "esc\u{1b}[2Jape", "turn\u{202e}ed", "back\\slash"];
    for name in hostile {
        let what_if = ask(&Cluster::new().object(open_node(name)), What::Taint, &[]);
        let rollback = &what_if.rollback[0];
        assert!(!rollback.contains(['\u{1b}', '\u{202e}']), "{rollback:?}");
        // As bash takes it apart.
        let echo = rollback.replacen("kubectl", "printf '%s\\0'", 1);
        let output = Command::new("bash").args(["-c", &echo]).env("LC_ALL", "C.UTF-8").output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        let guard = if name.starts_with('-') { "--\0" } else { "" };
        assert_eq!(words, format!("taint\0node\0{guard}{name}\0dedicated=gpu:NoSchedule-\0"), "{rollback}");
    }
}

#[test]
fn nodes_are_meant_by_name_by_label_or_by_pool() {
    let cluster = Cluster::new()
        .objects([open_node("gpu-1").label("zone", "a"), open_node("gpu-2").label("zone", "b")])
        .object(node("cpu-1").label("zone", "a"));
    let names = |nodes: Which| -> Vec<_> {
        let what_if = try_ask(&cluster, &Change { what: What::Taint, nodes, pool: Some("nvidia".to_owned()) }).unwrap();
        what_if.nodes.iter().map(|node| (node.name.clone(), node.offers_gpus)).collect()
    };
    let zone = |zone: &str| LabelSelector {
        match_labels: [("zone".to_owned(), zone.to_owned())].into(),
        ..LabelSelector::default()
    };
    let row = |name: &str, offers_gpus: bool| (name.to_owned(), offers_gpus);
    assert_eq!(names(Which::OfPool), [row("gpu-1", true), row("gpu-2", true)]);
    assert_eq!(names(Which::Selected(zone("a"))), [row("cpu-1", false), row("gpu-1", true)]);
    let twice = ["gpu-2", "gpu-1", "gpu-2"].map(str::to_owned).to_vec();
    assert_eq!(names(Which::Named(twice)), [row("gpu-1", true), row("gpu-2", true)]);
    let error = |nodes: Which, pool: Option<&str>| {
        let change = Change { what: What::Taint, nodes, pool: pool.map(str::to_owned) };
        try_ask(&cluster, &change).unwrap_err().to_string()
    };
    let single = |name: &str| Which::Named(vec![name.to_owned()]);
    assert_eq!(error(single("GPU-3"), None), "the cluster has no node GPU-3; near it: gpu-1, gpu-2");
    assert_eq!(error(single("worker"), None), "the cluster has no node worker; it has cpu-1, gpu-1, gpu-2");
    assert_eq!(error(Which::Selected(zone("c")), None), "no node's labels meet zone=c; the cluster has 3 nodes");
    assert_eq!(error(Which::OfPool, Some("amd")), "the contract has no pool amd; it has nvidia");
    let bare = Cluster::new().object(node("cpu-1"));
    let change = |what| Change { what, nodes: Which::OfPool, pool: None };
    assert_eq!(
        try_ask(&bare, &change(What::Taint)).unwrap_err().to_string(),
        "no node is known to be of pool nvidia: none offers its resources or has its label or taint; name nodes with --node"
    );
    let second = "  - {name: amd, resources: [amd.com/gpu], taints: [{key: amd, value: gpu, effect: NoSchedule}], \
                  nodeSelector: {accelerator: amd}, namespaces: {names: [ml]}}\nexemptions";
    let several = bare.contract(&CONTRACT.replace("exemptions", second));
    assert_eq!(
        try_ask(&several, &change(What::Taint)).unwrap_err().to_string(),
        "the contract has several pools; name one with --pool: nvidia, amd"
    );
}

/// What nobody gave is named: no budget in the way is another thing than no budget known.
#[test]
fn what_is_not_known_is_said() {
    let policy = policy(CONTRACT);
    let cluster = Cluster::new().object(open_node("gpu-1"));
    let mut builder = gpufence::audit::snapshot::Builder::new(&policy);
    builder.take_all("cluster.json", cluster.list().to_string().as_bytes());
    builder.completes_as_dumped();
    let change = Change { what: What::Taint, nodes: Which::OfPool, pool: None };
    let told = what_if(&policy, &builder.finish(), &change, NOW).unwrap();
    let text = what_if_text(&told);
    assert!(text.contains(
        "\nNot looked at: 2\n  no pod is among the files, though nodes are: nothing is concluded about who is on them and \
         about what is free\n  no PodDisruptionBudget is among the files: none is taken to be there\n"
    ), "{text}");
    assert!(
        told.verdict.starts_with(
            "The pods are not all known: who would be evicted, who could not come back and what has room elsewhere cannot \
             be told."
        ),
        "{}",
        told.verdict
    );
    assert!(!told.verdict.contains("No pod would be evicted"), "{}", told.verdict);
    assert!(!what_if_text(&ask(&cluster, What::Taint, &[])).contains("Not looked at"));
}

fn example() -> Cluster {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "shop", "namespace": "web"},
        "spec": {"selector": {"matchLabels": {"app": "shop"}}}, "status": {"disruptionsAllowed": 1}});
    let shop = |name: &str, on: &str| of(pod(name), "shop").requests("cpu", "2").label("app", "shop").on(on);
    let agent = |name: &str, on: &str| pod(name).owned_by("DaemonSet/agent").on(on);
    Cluster::new()
        .objects([open_node("gpu-1"), open_node("gpu-2"), gpu_node("gpu-3"), node("cpu-1").has("cpu", "4")])
        .objects(deployment("web/shop"))
        .objects([shop("web/shop-1-a", "gpu-1"), shop("web/shop-1-b", "gpu-1"), shop("web/shop-1-c", "gpu-2")])
        .object(pod("web/debug").on("gpu-1"))
        .object(of(pod("ml/train"), "train").gpus(8).on("gpu-2"))
        .objects([agent("web/agent-1", "gpu-1"), agent("web/agent-2", "gpu-2")])
        .object(budget)
}

#[test]
fn the_whole_text_is_read_from_the_top() {
    let text = what_if_text(&ask(&example(), What::Taint, &[]));
    assert_eq!(text, include_str!("what_if.txt"));
}

/// Lists of pods are cut, commands are not.
#[test]
fn long_lists_say_how_many_more_there_are() {
    let nodes = (0..100).map(|index| open_node(&format!("gpu-{index:03}")));
    let pods = (0..30).map(|index| pod(&format!("web/alone-{index:02}")).on("gpu-000"));
    let what_if = ask(&Cluster::new().objects(nodes).objects(pods), What::Taint, &[]);
    let text = what_if_text(&what_if);
    assert!(text.contains("  Pod web/alone-09: 1 pod on gpu-000\n  and 20 more\n"), "{text}");
    assert!(text.contains("  and 90 more: --output json has them all\n"), "{text}");
    assert_eq!((what_if.rollback.len(), what_if.backup_commands.len(), what_if.backup.len()), (3, 3, 100));
    assert!(what_if.backup_commands[2].ends_with("gpu-099 --output json > gpu-nodes.before-3.json"));
    assert!(text.contains(" gpu-099 dedicated=gpu:NoSchedule-\n"), "{text}");
}

#[test]
fn the_command_line_asks_the_same() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("contract.yaml"), CONTRACT).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
        command.args(["--config", "contract.yaml", "audit", "-"]).args(arguments).env_clear();
        command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(example().list().to_string().as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = run(&["--what-if", "taint"]);
    assert_eq!((code, &*err), (0, ""));
    // The dump holds no DaemonSet, and its pods are there.
    let gap = "\nNot looked at: 1\n  no DaemonSet is among the files, though pods are made by such: nothing is concluded \
               about their templates, nor about who makes those pods in the end, nor about which DaemonSets reach GPU \
               nodes\n";
    assert_eq!(out.replace(gap, ""), include_str!("what_if.txt"));
    let (code, out, _) = run(&["--what-if", "taint-noexecute", "--node", "gpu-2", "--output", "json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &json["version"], &json["whatIf"]["change"]),
        (0, &json!("gpufence.io/audit/v1"), &json!("taint-noexecute"))
    );
    assert_eq!(
        json["whatIf"]["pods"][1],
        json!({
            "namespace": "web", "name": "shop-1-c", "node": "gpu-2", "requestsGpu": false, "fate": "evicted",
            "controller": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "shop"},
            "next": "elsewhere", "to": "cpu-1",
        })
    );
    assert!(serde_json::from_str::<Value>(&run(&["--output", "json"]).1).unwrap().get("whatIf").is_none());
    let nodes = |arguments: &[&str]| run(&[&["--what-if", "label"], arguments].concat());
    for selector in ["accelerator=nvidia", "accelerator==nvidia,!zone", "accelerator,accelerator!=amd"] {
        let (code, out, _) = nodes(&["--selector", selector]);
        assert_eq!((code, out.starts_with("What if 3 nodes had the label accelerator=nvidia")), (0, true), "{out}");
    }
    for (arguments, other) in [
        (&["--fail-on", "high"][..], "--fail-on <SEVERITY>"),
        (&["--adopt", "30d"], "--adopt <DURATION>"),
        (&["--baseline", "audit.json"], "--baseline <FILE>"),
    ] {
        let (code, out, err) = nodes(arguments);
        let expected = format!("error: the argument '--what-if <CHANGE>' cannot be used with '{other}'\n");
        assert_eq!((code, &*out, err.starts_with(&expected)), (2, "", true), "{err}");
    }
    let failures = [
        (
            &["--output", "sarif"][..],
            "gpufence: --output sarif has no --what-if: SARIF holds findings alone; text, json, markdown and html say what \
             a change would do\n",
        ),
        (&["--node", "gpu-9"], "gpufence: --what-if: the cluster has no node gpu-9; near it: gpu-1, gpu-2, gpu-3\n"),
        (&["--pool", "amd"], "gpufence: --what-if: the contract has no pool amd; it has nvidia\n"),
        (&["--selector", "zone=a"], "gpufence: --what-if: no node's labels meet zone=a; the cluster has 4 nodes\n"),
        (
            &["--selector", "zone in (a)"],
            "gpufence: --selector zone in (a) cannot be read at zone in (a): expected KEY=VALUE, KEY!=VALUE, KEY or !KEY, \
             with commas between\n",
        ),
    ];
    for (arguments, expected) in failures {
        let (code, out, err) = nodes(arguments);
        assert_eq!((code, &*out, &*err), (2, "", expected));
    }
    assert_eq!(run(&["--node", "gpu-1"]).0, 2, "--node says nothing without --what-if");
}
