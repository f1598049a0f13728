//! Causes and numbers that are true, and advice that does no harm.

use serde_json::json;

use gpufence::audit::{Audit, Change, What, Which, what_if};

use super::cluster::{CONTRACT, Cluster, NOW, findings, found, gpu_node, node, pod, policy, workload};

const TWO_POOLS: &str = "
mode: enforce
selection: {annotation: pool}
pools:
  - name: a100
    resources: [nvidia.com/gpu]
    taints: [{key: dedicated, value: a100, effect: NoSchedule}]
    nodeSelector: {pool: a100}
    namespaces: {names: [ml]}
  - name: h100
    resources: [nvidia.com/gpu]
    taints: [{key: dedicated, value: h100, effect: NoSchedule}]
    nodeSelector: {pool: h100}
    namespaces: {names: [ml]}
exemptions: []
";

fn told<'a>(audit: &'a Audit, rule: &'a str) -> Vec<(&'a str, &'a str)> {
    findings(audit, rule).map(|finding| (&*finding.message, &*finding.action)).collect()
}

fn gpus(audit: &Audit) -> [i64; 5] {
    let gpus = audit.pools[0].gpus;
    [gpus.allocatable, gpus.requested, gpus.free, gpus.blocked, gpus.out_of_use]
}

#[test]
fn each_node_that_a_daemon_set_does_not_reach_has_its_own_cause() {
    let exact = json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"});
    let plugin = pod("kube-system/plugin").tolerates(exact);
    let audit = Cluster::new()
        .objects([gpu_node("g1"), gpu_node("g2"), gpu_node("g3").taint("m", "y", "NoSchedule")])
        .objects([gpu_node("g4").not_ready(), gpu_node("g5").not_ready().taint("m", "y", "NoSchedule")])
        .object(workload("DaemonSet", "kube-system/nvidia-device-plugin", plugin))
        .object(pod("kube-system/p").on("g1").owned_by("DaemonSet/nvidia-device-plugin"))
        .audit();
    assert_eq!(
        told(&audit, "daemonset-left-out"),
        [(
            "the DaemonSet kube-system/nvidia-device-plugin (device plugin) has no pod on 2 of the 5 GPU nodes that it \
             selects: no taint keeps it off on 1 of them (g2), it does not tolerate m=y:NoSchedule on 1 of them (g3); \
             beside those 2 (g4, g5) take no pods now",
            "take the taint m=y:NoSchedule off g3 when what it is there for is done: the contract does not have it, and \
             only where it stays for good it needs a toleration; then for g2: kubectl describe daemonset \
             nvidia-device-plugin --namespace kube-system: its events say why"
        )]
    );
    assert_eq!(audit.daemon_sets[0].missing, ["g2", "g3"]);
    assert!(audit.daemon_sets[0].add.is_empty());
}

#[test]
fn gpus_that_no_gpu_pod_can_get_are_out_of_use() {
    let unusable = [
        gpu_node("a").not_ready(),
        gpu_node("b").cordoned(),
        gpu_node("c").taint("maintenance", "yes", "NoSchedule"),
        gpu_node("d").without_label("accelerator"),
        gpu_node("e").taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"),
    ];
    for unusable in unusable {
        let audit =
            Cluster::new().objects([gpu_node("z"), unusable]).object(pod("ml/train").gpus(3).placed().on("z")).audit();
        assert_eq!(gpus(&audit), [16, 3, 5, 0, 8], "{:#?}", audit.nodes);
    }
    // What only asks the scheduler keeps nobody off.
    let usable = gpu_node("a").taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule");
    let audit = Cluster::new().objects([gpu_node("z"), usable]).audit();
    assert_eq!(gpus(&audit), [16, 0, 16, 0, 0]);
}

#[test]
fn a_taint_that_comes_and_goes_is_told_of_with_who_sets_it() {
    for (key, rule, who) in [
        ("node.kubernetes.io/memory-pressure", "node-not-ready", "reports too little memory"),
        ("node.cilium.io/agent-not-ready", "node-not-ready", "Cilium takes it away"),
        ("ToBeDeletedByClusterAutoscaler", "node-cordoned", "the Cluster Autoscaler sets it"),
        ("karpenter.sh/disrupted", "node-cordoned", "Karpenter sets it"),
    ] {
        let audit = Cluster::new().object(gpu_node("a").taint(key, "", "NoSchedule")).audit();
        let own: Vec<_> = findings(&audit, rule).collect();
        assert_eq!(own.len(), 1, "{key}");
        assert!(own[0].message.contains(key) && own[0].message.contains(who), "{}", own[0].message);
        assert_eq!(own[0].severity.as_str(), "info");
        assert_eq!(found(&audit, "node-extra-taint"), [""; 0]);
    }
    let told_by_its_cause = gpu_node("a").cordoned().taint("node.kubernetes.io/unschedulable", "", "NoSchedule");
    assert_eq!(found(&Cluster::new().object(told_by_its_cause).audit(), "node-cordoned").len(), 1);
}

#[test]
fn a_node_that_could_be_of_several_pools_is_of_none_and_counts_once() {
    let cluster = Cluster::new()
        .contract(TWO_POOLS)
        .objects([
            node("a").gpus(8).label("pool", "a100").taint("dedicated", "a100", "NoSchedule"),
            node("u").gpus(8),
            node("web"),
        ])
        .object(workload("Deployment", "web/shop", pod("web/shop")))
        .object(pod("web/shop-1").owned_by("Deployment/shop").on("u"));
    let audit = cluster.audit();
    assert_eq!(
        told(&audit, "node-without-label"),
        [(
            "the node u is of no pool: it offers what pools a100 and h100 have, and is counted under a100; it has 8 \
             nvidia.com/gpu and lacks the label pool=a100 or pool=h100: no GPU pod finds it",
            "for the pool a100: kubectl label node u pool=a100; or, for the pool h100: kubectl label node u pool=h100"
        )]
    );
    let (message, action) = told(&audit, "node-without-taint")[0];
    assert!(message.contains("lacks the taint dedicated=a100:NoSchedule or dedicated=h100:NoSchedule"), "{message}");
    assert!(action.contains("; or, for the pool h100: kubectl taint node u dedicated=h100:NoSchedule"), "{action}");
    let numbers: Vec<_> =
        audit.pools.iter().map(|pool| (pool.nodes, pool.gpus.allocatable, pool.ordinary_pods)).collect();
    assert_eq!(numbers, [(2, 16, 1), (0, 0, 0)]);
    let (message, action) = told(&audit, "ordinary-pod-on-gpu-node")[0];
    assert!(message.contains("of no pool (it offers what pools a100 and h100 have)"), "{message}");
    assert!(
        action.starts_with(
            "Run kubectl taint node u dedicated=a100:NoSchedule for the pool a100, or kubectl taint node u \
             dedicated=h100:NoSchedule for the pool h100. "
        ),
        "{action}"
    );
    // What is almost a label says which is meant.
    let meant = Cluster::new().contract(TWO_POOLS).object(node("u").gpus(8).label("pool", "H100")).audit();
    assert_eq!(meant.nodes[0].pools, ["h100"]);
    let policy = policy(TWO_POOLS);
    let change = Change { what: What::Label, nodes: Which::OfPool, pool: Some("h100".to_owned()) };
    let what_if = what_if(&policy, &cluster.snapshot(&policy), &change, NOW).unwrap();
    assert_eq!(what_if.nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["u"]);
}

#[test]
fn a_taint_that_evicts_is_said_to_and_nothing_is_deleted_after_it() {
    let contract = CONTRACT.replace("effect: NoSchedule", "effect: NoExecute");
    let audit = Cluster::new()
        .contract(&contract)
        .objects([node("g").gpus(8).label("accelerator", "nvidia"), node("web")])
        .object(workload("ReplicationController", "web/shop", pod("web/shop")))
        .objects([pod("web/shop-1").owned_by("ReplicationController/shop").on("g"), pod("web/alone").on("g")])
        .audit();
    assert_eq!(
        told(&audit, "node-without-taint")[0].1,
        "kubectl taint node g dedicated=gpu:NoExecute (it evicts at once who does not tolerate it: gpufence audit --what-if \
         taint --node g shows whom)"
    );
    let actions: Vec<_> = told(&audit, "ordinary-pod-on-gpu-node").into_iter().map(|(_, action)| action).collect();
    let run = "Run kubectl taint node g dedicated=gpu:NoExecute. That evicts at once who does not tolerate it: gpufence audit \
               --what-if taint --node g shows whom.";
    assert_eq!(
        actions,
        [
            format!("Nothing makes this pod again: create it anew under another name first. {run}"),
            format!("{run} ReplicationController web/shop makes another, which the taint keeps off"),
        ]
    );
}

#[test]
fn a_pod_is_not_to_be_deleted_where_its_next_finds_no_node_or_a_budget_lets_none_go() {
    let shop = |name: &str| pod(name).label("app", "shop").owned_by("ReplicationController/shop").on("g");
    let cluster = |shop: super::cluster::Pod| {
        Cluster::new()
            .objects([node("g").gpus(8).label("accelerator", "nvidia").label("disk", "fast"), node("web")])
            .object(workload("ReplicationController", "web/shop", pod("web/shop")))
            .object(shop)
    };
    let action = |cluster: Cluster| told(&cluster.audit(), "ordinary-pod-on-gpu-node")[0].1.to_owned();
    let run = "Run kubectl taint node g dedicated=gpu:NoSchedule. ";
    assert_eq!(
        action(cluster(shop("web/shop-1").selects("disk", "fast"))),
        format!(
            "{run}Do not delete the pod yet: no node without GPUs is one that its nodeSelector and affinity admit. gpufence \
             audit --what-if taint --node g shows what would become of it"
        )
    );
    let budget = |allowed: i64| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "shop", "namespace": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}},
            "status": {"disruptionsAllowed": allowed},
        })
    };
    let held = action(cluster(shop("web/shop-1")).object(budget(0)));
    assert!(held.contains("Do not delete the pod yet: PodDisruptionBudget web/shop, which covers it"), "{held}");
    let free = action(cluster(shop("web/shop-1")).object(budget(1)));
    assert!(free.contains("Then run kubectl delete pod --namespace web shop-1"), "{free}");
}

#[test]
fn a_daemon_set_of_every_node_is_to_be_exempt_and_not_to_lose_its_toleration() {
    let agent = |name: &str| {
        pod(name).tolerates(json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}))
    };
    let exemption = "under exemptions: {name: web-node-exporter, reason: metrics of every node, namespaces: [web], daemonSets: \
                     [node-exporter]}";
    let audit = Cluster::new()
        .objects([gpu_node("g"), node("web")])
        .object(workload("DaemonSet", "web/node-exporter", agent("web/template")))
        .object(agent("web/node-exporter-1").owned_by("DaemonSet/node-exporter").on("g"))
        .audit();
    let actions: Vec<_> = told(&audit, "toleration-outside-allowlist").into_iter().map(|(_, action)| action).collect();
    assert_eq!(actions.len(), 2);
    assert!(actions.iter().all(|action| action.contains(exemption) && !action.contains("Remove")), "{actions:?}");
    let audit = Cluster::new()
        .objects([gpu_node("g"), node("web")])
        .object(workload("Deployment", "web/shop", agent("web/template")))
        .audit();
    assert!(told(&audit, "toleration-outside-allowlist")[0].1.starts_with("Remove "));
}

#[test]
fn a_model_that_is_none_of_the_contracts_is_a_label_to_mend() {
    let contract = CONTRACT.replace(
        "    namespaces:",
        "    models: {annotation: model, nodeLabel: model, values: [a100, h100]}\n    namespaces:",
    );
    let cluster = |value: &str| {
        let grouped = |name: &str| gpu_node(name).label("agentpool", "g");
        Cluster::new()
            .contract(&contract)
            .objects([grouped("a"), grouped("b"), grouped("c").label("model", value)])
            .audit()
    };
    let audit = cluster("A100");
    assert_eq!(
        told(&audit, "node-label-differs"),
        [(
            "the node c of the pool nvidia has the label model=A100 where the contract says a100 (the value in other letters, \
             and their case counts): no pod that asks for a model finds it",
            "kubectl label node c model=a100 --overwrite"
        )]
    );
    let drift = told(&audit, "node-group-drift")[0].1;
    assert!(
        drift.starts_with("kubectl label node c model=MODEL --overwrite") && !drift.contains("nvidia-smi"),
        "{drift}"
    );
    assert!(told(&cluster("b200"), "node-label-differs")[0].0.contains("the models of the pool are a100, h100"));
    assert_eq!(found(&cluster("h100"), "node-label-differs"), [""; 0]);
}

#[test]
fn the_contracts_own_exemption_is_never_called_unused() {
    let of = |name: &str| {
        let reason = "network, storage, log and metric agents run on every node";
        let own = format!(
            "exemptions:\n  - {{name: {name}, reason: '{reason}', namespaces: [kube-system], daemonSets: ['*']}}\n"
        );
        Cluster::new().contract(&CONTRACT.replace("exemptions: []\n", &own)).audit()
    };
    assert_eq!(found(&of("node-agents"), "exemption-unused"), [""; 0]);
    let (message, action) = (of("other"), "Keep exemption other where what it is for is still to come");
    let (message, told) = told(&message, "exemption-unused")[0];
    assert!(message.starts_with("no pod needs exemption other today") && told.starts_with(action), "{message} {told}");
}
