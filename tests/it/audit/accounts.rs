use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use gpufence::audit::snapshot::Amounts;
use gpufence::audit::{Audit, GpuResource, Gpus, Severity, bytes_text, count_text, cpu_text, list_text};

use super::cluster::{CONTRACT, Cluster, Node, Pod, findings, found, gpu_node, node, pod};

const GI: i64 = 1 << 30;

fn gpus(allocatable: i64, requested: i64, free: i64, blocked: i64) -> Gpus {
    Gpus { allocatable, requested, free, blocked, out_of_use: (allocatable - requested - free).max(0) }
}

/// A pod with GPUs that needs 4 cores and 16Gi for each.
fn train(name: &str, count: i64) -> Pod {
    pod(name)
        .gpus(count)
        .requests("cpu", &(4 * count).to_string())
        .requests("memory", &format!("{}Gi", 16 * count))
        .placed()
}

/// What is said of the only node with blocked GPUs: its message and its action.
fn told(audit: &Audit) -> (&str, &str) {
    let mut told = findings(audit, "gpus-blocked");
    let finding = told.next().unwrap();
    assert!(told.next().is_none());
    assert_eq!((finding.severity, &*finding.object.kind), (Severity::High, "Node"));
    (&finding.message, &finding.action)
}

/// 64 cores, 8 GPUs at 4 cores each. The pod of the pool takes 2 GPUs and 8 cores, the others 50: of the 6 left cores one
/// GPU can make use. Without the others 56 cores would be left, enough for all 6.
#[test]
fn gpus_are_blocked_by_the_cpu_that_others_took() {
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(train("ml/a", 2).on("gpu-1"))
        .object(pod("web/big").requests("cpu", "30").on("gpu-1"))
        .object(
            pod("web/small")
                .requests("cpu", "17500m")
                .requests("memory", "8Gi")
                .owned_by("ReplicaSet/shop")
                .on("gpu-1"),
        )
        .object(pod("web/agent").requests("cpu", "2500m").owned_by("DaemonSet/agent").on("gpu-1"))
        .object(pod("web/idle").on("gpu-1"));
    let audit = cluster.audit();
    let node = &audit.nodes[0];
    assert_eq!(node.gpus, gpus(8, 2, 6, 5));
    assert_eq!(node.blocked_by, ["cpu"]);
    let resource = GpuResource { name: "nvidia.com/gpu".into(), capacity: 8, allocatable: 8, requested: 2 };
    assert_eq!(node.resources, [resource]);
    assert_eq!(node.allocatable.cpu_milli, 64_000);
    let requested =
        [&node.requested.gpu_workload, &node.requested.daemon_set, &node.requested.platform, &node.requested.ordinary];
    assert_eq!(requested.map(|amounts| amounts.cpu_milli), [8_000, 2_500, 0, 47_500]);
    assert_eq!(requested.map(|amounts| amounts.pods), [1, 1, 0, 3]);
    let pool = &audit.pools[0];
    assert_eq!((pool.gpus, pool.nodes, pool.ordinary_pods), (node.gpus, 1, 3));
    let needs = Amounts { cpu_milli: 4_000, memory_bytes: 16 * GI, pods: 1, ..Amounts::default() };
    assert_eq!((pool.needs.as_ref(), pool.gpus_per_pod), (Some(&needs), Some(2)));
    assert_eq!(
        told(&audit),
        (
            "5 of 6 free GPUs of node gpu-1 cannot be used: pods that request no GPU took the CPU that a GPU pod needs \
             beside them. In pool nvidia a pod with 2 GPUs needs 4 CPU, 16Gi memory for each (the median of 1 pod). Most \
             is taken by pod web/big (30 CPU), pod web/small of ReplicaSet web/shop (17.5 CPU) and pod web/agent of \
             DaemonSet web/agent (2.5 CPU)",
            "Move pod web/big and pod web/small of ReplicaSet web/shop off node gpu-1, as ordinary-pod-on-gpu-node says of \
             each; or let GPU pods request at most 1 CPU for each GPU"
        )
    );
    assert_eq!(findings(&audit, "gpus-blocked").next().unwrap().pool.as_deref(), Some("nvidia"));
}

/// What GPU pods take themselves blocks nothing, and what is left over is enough for the rest.
#[test]
fn gpus_that_can_be_used_are_not_blocked() {
    let quiet = [
        // Nobody else is there.
        vec![train("ml/a", 2).on("gpu-1")],
        // 64 cores and 512Gi less 24 for pods with GPUs: enough for 6 times 4 and 16Gi beside 16.
        vec![train("ml/a", 2).on("gpu-1"), pod("web/x").requests("cpu", "32").requests("memory", "300Gi").on("gpu-1")],
        // Nothing is free.
        vec![train("ml/a", 8).on("gpu-1"), pod("web/x").requests("cpu", "32").on("gpu-1")],
        // Other GPU pods took the CPU.
        vec![
            train("ml/a", 1).on("gpu-1"),
            train("ml/b", 1).on("gpu-1"),
            train("ml/c", 1).requests("cpu", "56").on("gpu-1"),
        ],
        // It has ended.
        vec![train("ml/a", 2).on("gpu-1"), pod("web/x").requests("cpu", "60").on("gpu-1").phase("Failed")],
        // It is elsewhere.
        vec![train("ml/a", 2).on("gpu-1"), pod("web/x").requests("cpu", "60").on("cpu-1")],
        // No GPU pod needs CPU.
        vec![pod("ml/a").gpus(1).placed().on("gpu-1"), pod("web/x").requests("cpu", "64").on("gpu-1")],
    ];
    for (index, pods) in quiet.into_iter().enumerate() {
        let audit = Cluster::new().object(gpu_node("gpu-1")).object(node("cpu-1")).objects(pods).audit();
        assert_eq!(audit.nodes[0].gpus.blocked, 0, "{index}: {:?}", audit.nodes[0]);
        assert!(audit.nodes[0].blocked_by.is_empty());
        assert_eq!(found(&audit, "gpus-blocked"), [""; 0], "{index}");
    }
}

/// Memory, storage and places block as CPU does, and several may at once.
#[test]
fn each_resource_of_the_node_can_block() {
    let need = |name: &str| train(name, 1).requests("ephemeral-storage", "10Gi").on("gpu-1");
    let case = |taken: &[(&str, &str)]| {
        let taker =
            taken.iter().fold(pod("web/x").on("gpu-1"), |pod, (resource, amount)| pod.requests(resource, amount));
        let audit = Cluster::new().object(gpu_node("gpu-1")).object(need("ml/a")).object(taker).audit();
        (audit.nodes[0].gpus.blocked, audit.nodes[0].blocked_by.clone())
    };
    // 512 - 16 - 416 = 80Gi are left: 5 of the 7 free GPUs.
    assert_eq!(case(&[("memory", "416Gi")]), (2, vec!["memory"]));
    // 1024 - 10 - 955 = 59Gi: 5 of 7.
    assert_eq!(case(&[("ephemeral-storage", "955Gi")]), (2, vec!["ephemeral-storage"]));
    // 64 - 4 - 37 = 23 cores: 5 of 7; and memory for 6 of 7.
    assert_eq!(case(&[("cpu", "37"), ("memory", "400Gi")]), (2, vec!["cpu", "memory"]));
    assert_eq!(case(&[("cpu", "32"), ("memory", "384Gi")]), (0, vec![]));
    // More than there is blocks all, and no more.
    assert_eq!(case(&[("cpu", "640")]), (7, vec!["cpu"]));
}

/// A pod has one place for all its GPUs. The node has 10 places, 8 are taken by others and 1 by a pod with GPUs.
#[test]
fn places_block_by_pods_and_not_by_gpus() {
    let crowd = |count: i64| {
        Cluster::new()
            .object(gpu_node("gpu-1").has("pods", "10"))
            .object(train("ml/a", count).on("gpu-1"))
            .objects((0..8).map(|index| pod(&format!("web/x-{index}")).on("gpu-1")))
            .audit()
    };
    // One place is left: for one pod with one GPU of the 7 free ones, or for one with two of 6.
    let audit = crowd(1);
    assert_eq!((audit.nodes[0].gpus, &*audit.nodes[0].blocked_by), (gpus(8, 1, 7, 6), &["pods"][..]));
    let (message, action) = told(&audit);
    assert!(
        message.ends_with(
            "Most is taken by pod web/x-0 (1 pod place), pod web/x-1 (1 pod place), pod web/x-2 (1 pod place) and 5 more"
        ),
        "{message}"
    );
    assert_eq!(
        action,
        "Move pod web/x-0, pod web/x-1, pod web/x-2 and 5 more off node gpu-1, as ordinary-pod-on-gpu-node says of each; \
         or raise maxPods in the kubelet's configuration of node gpu-1"
    );
    assert_eq!(crowd(2).nodes[0].gpus, gpus(8, 2, 6, 4));
    assert_eq!(crowd(6).nodes[0].gpus, gpus(8, 6, 2, 0));
}

/// Where no pod shows what it needs, a GPU is blocked only where nothing at all is left.
#[test]
fn without_gpu_pods_only_an_empty_node_blocks() {
    let case = |resource: &str, amount: &str| {
        let taker = pod("web/x").requests(resource, amount).on("gpu-1");
        Cluster::new().object(gpu_node("gpu-1")).object(taker).audit()
    };
    let audit = case("cpu", "64");
    assert_eq!((audit.nodes[0].gpus, &*audit.nodes[0].blocked_by), (gpus(8, 0, 8, 8), &["cpu"][..]));
    assert_eq!((&audit.pools[0].needs, audit.pools[0].gpus_per_pod), (&None, None));
    assert_eq!(
        told(&audit),
        (
            "8 of 8 free GPUs of node gpu-1 cannot be used: pods that request no GPU took the CPU that a GPU pod needs \
             beside them. No pod of pool nvidia shows what it needs, but nothing is left. Most is taken by pod web/x (64 \
             CPU)",
            "Move pod web/x off node gpu-1, as ordinary-pod-on-gpu-node says of each"
        )
    );
    for (resource, amount, blocked) in
        [("cpu", "63999m", 0), ("memory", "512Gi", 8), ("memory", "511Gi", 0), ("ephemeral-storage", "1Ti", 0)]
    {
        assert_eq!(case(resource, amount).nodes[0].gpus.blocked, blocked, "{amount} {resource}");
    }
}

/// A node that does not say how much it has of something does not run out of it.
#[test]
fn what_a_node_does_not_report_is_not_missing() {
    for resource in ["cpu", "memory", "ephemeral-storage", "pods"] {
        let silent = gpu_node("gpu-1")
            .edit(|node| drop(node["status"]["allocatable"].as_object_mut().unwrap().remove(resource)));
        let cluster = Cluster::new()
            .object(silent)
            .object(train("ml/a", 1).requests("ephemeral-storage", "10Gi").on("gpu-1"))
            .object(if resource == "pods" {
                pod("web/x").on("gpu-1")
            } else {
                pod("web/x").requests(resource, "1").on("gpu-1")
            });
        assert_eq!(cluster.audit().nodes[0].gpus, gpus(8, 1, 7, 0), "{resource}");
    }
}

/// What nobody can have is not free, and so it is not blocked either.
#[test]
fn gpus_are_free_on_nodes_that_take_pods() {
    let taker = || pod("web/x").requests("cpu", "64").on("gpu-1");
    let unknown = gpu_node("gpu-1").edit(|node| drop(node["status"].as_object_mut().unwrap().remove("conditions")));
    let cases: [(Node, Option<bool>); 3] =
        [(gpu_node("gpu-1").cordoned(), Some(true)), (gpu_node("gpu-1").not_ready(), Some(false)), (unknown, None)];
    for (node, ready) in cases {
        let audit = Cluster::new().object(node).object(train("ml/a", 2).on("gpu-1")).object(taker()).audit();
        assert_eq!((audit.nodes[0].gpus, audit.nodes[0].ready), (gpus(8, 2, 0, 0), ready));
        assert_eq!(found(&audit, "gpus-blocked"), [""; 0]);
        assert_eq!(found(&audit, "ordinary-pod-on-gpu-node"), ["Pod web/x"]);
    }
}

/// Who is being deleted still has its GPUs; who has ended has not. A node may have promised more than it has.
#[test]
fn requested_is_what_pods_that_have_not_ended_request() {
    let deleting = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z".into();
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(train("ml/a", 2).on("gpu-1").edit(deleting))
        .object(train("ml/b", 3).on("gpu-1").phase("Pending"))
        .object(train("ml/c", 1).on("gpu-1").phase("Succeeded"))
        .object(train("ml/d", 4));
    let audit = cluster.clone().audit();
    assert_eq!(audit.nodes[0].gpus, gpus(8, 5, 3, 0));
    let shrunk = gpu_node("gpu-2").edit(|node| node["status"]["allocatable"]["nvidia.com/gpu"] = "1".into());
    let audit = cluster.object(shrunk).object(train("ml/e", 2).on("gpu-2")).audit();
    assert_eq!(audit.nodes[1].gpus, gpus(1, 2, 0, 0));
    assert_eq!(audit.nodes[1].resources[0].capacity, 8);
    assert_eq!(audit.pools[0].gpus, gpus(9, 7, 3, 0));
    assert_eq!(audit.pools[0].nodes, 2);
}

/// The lower median, each resource on its own, of pods that run and pods that wait.
#[test]
fn the_need_is_the_median_of_the_pools_gpu_pods() {
    let gpu = |name: &str, count: i64, cpu: &str, memory: &str| {
        pod(name).gpus(count).requests("cpu", cpu).requests("memory", memory)
    };
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(gpu("ml/a", 1, "1", "8Gi").on("gpu-1"))
        .object(gpu("ml/b", 4, "12", "4Gi").on("gpu-1"))
        .object(gpu("ml/c", 2, "20", "6Gi"))
        .object(gpu("ml/d", 1, "500m", "64Gi"))
        .object(gpu("ml/over", 1, "60", "500Gi").phase("Succeeded"));
    // By GPU: 0.5, 1, 3 and 10 cores; 1, 3, 8 and 64Gi; 1, 1, 2 and 4 GPUs.
    let pool = &cluster.audit().pools[0];
    let needs = Amounts { cpu_milli: 1_000, memory_bytes: 3 * GI, pods: 1, ..Amounts::default() };
    assert_eq!((pool.needs.as_ref(), pool.gpus_per_pod), (Some(&needs), Some(1)));
}

const POOLS: &str = "
mode: enforce
selection: {annotation: pool}
pools:
  - name: whole
    resources: [nvidia.com/gpu]
    taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
    nodeSelector: {accelerator: nvidia}
    namespaces: {names: [ml]}
  - name: sliced
    resources: ['nvidia.com/mig-*']
    taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
    nodeSelector: {slices: some}
    namespaces: {names: [ml]}
  - name: spare
    resources: [nvidia.com/gpu]
    taints: [{key: dedicated, value: spare, effect: NoSchedule}]
    nodeSelector: {accelerator: spare}
    namespaces: {names: [ml]}
";

/// Each resource counts in one pool, whichever node it is on, and a pod that waits means the pool whose labels it selects.
#[test]
fn a_node_of_several_pools_is_counted_by_resource() {
    let both =
        gpu_node("gpu-1").has("nvidia.com/mig-1g.5gb", "7").has("nvidia.com/mig-2g.10gb", "3").label("slices", "some");
    let spare = node("spare-1").gpus(4).label("accelerator", "spare").taint("dedicated", "spare", "NoSchedule");
    let cluster = Cluster::new()
        .contract(POOLS)
        .object(both)
        .object(spare)
        .object(train("ml/a", 2).on("gpu-1"))
        .object(pod("ml/b").requests("nvidia.com/mig-1g.5gb", "1").requests("cpu", "1").on("gpu-1"))
        .object(train("ml/c", 1).on("spare-1"))
        .object(pod("ml/waits").gpus(1).requests("cpu", "9").selects("accelerator", "spare"))
        .object(pod("web/x").requests("cpu", "50").on("gpu-1"));
    let audit = cluster.audit();
    // 5 cores are left: for 1 of 6 whole GPUs, and for 5 of 9 slices.
    let [whole, sliced, spare] = &audit.pools[..] else { panic!("{:?}", audit.pools) };
    assert_eq!((whole.gpus, whole.nodes), (gpus(8, 2, 6, 5), 1));
    assert_eq!((sliced.gpus, sliced.nodes), (gpus(10, 1, 9, 4), 1));
    assert_eq!((spare.gpus, spare.nodes), (gpus(4, 1, 3, 0), 1));
    assert_eq!([whole, sliced, spare].map(|pool| pool.ordinary_pods), [1, 1, 0]);
    assert_eq!(audit.nodes[0].gpus, gpus(18, 3, 15, 9));
    assert_eq!(audit.nodes[0].resources.len(), 3);
    assert_eq!(audit.nodes[0].pools, ["whole", "sliced"]);
    let needs = [whole, sliced, spare].map(|pool| pool.needs.as_ref().unwrap().cpu_milli);
    assert_eq!(needs, [4_000, 1_000, 4_000], "the one that waits selects spare nodes");
    let (message, _) = told(&audit);
    assert!(message.starts_with("9 of 15 free GPUs of node gpu-1 cannot be used"), "{message}");
    assert!(
        message.contains(
            "In pool whole a pod with 2 GPUs needs 4 CPU, 16Gi memory for each (the median of 1 pod). In pool sliced a pod \
             with 1 GPU needs 1 CPU for it (the median of 1 pod)."
        ),
        "{message}"
    );
    let finding = findings(&audit, "gpus-blocked").next().unwrap();
    assert_eq!(finding.pool, None);
    let ordinary = findings(&audit, "ordinary-pod-on-gpu-node").next().unwrap();
    assert!(ordinary.message.contains("of node gpu-1 of pools whole, sliced;"), "{}", ordinary.message);
}

/// 8 cores, 16 GPUs of two pools that need a core each: 8 GPUs can be used, and 4 where others took 4 cores.
#[test]
fn the_pools_of_a_node_share_what_it_has_beside_gpus() {
    let contract = CONTRACT.replace(
        "exemptions:",
        "  - name: amd\n    resources: [amd.com/gpu]\n    taints: [{key: dedicated, value: gpu, effect: NoSchedule}]\n    nodeSelector: {vendor: amd}\n    \
         namespaces: {names: [ml]}\nexemptions:",
    );
    let with = |cores: &str, taken: &str| {
        let both = gpu_node("gpu-1").has("amd.com/gpu", "8").has("cpu", cores).label("vendor", "amd");
        let one = |name: &str, gpu: &str| pod(name).requests(gpu, "1").requests("cpu", "1").selects("x", "y");
        let cluster = Cluster::new()
            .contract(&contract)
            .object(both)
            .object(one("ml/a", "nvidia.com/gpu").unschedulable("x"))
            .object(one("ml/b", "amd.com/gpu").unschedulable("x"))
            .object(pod("web/x").requests("cpu", taken).on("gpu-1"));
        let audit = cluster.audit();
        let blocked: Vec<_> = audit.pools.iter().map(|pool| pool.gpus.blocked).collect();
        assert_eq!(audit.nodes[0].gpus.blocked, blocked.iter().sum::<i64>());
        (audit.nodes[0].gpus.free, audit.nodes[0].gpus.blocked)
    };
    assert_eq!(with("8", "4"), (16, 4));
    assert_eq!(with("8", "8"), (16, 8));
    assert_eq!(with("64", "64"), (16, 16));
    assert_eq!(with("64", "48"), (16, 0));
}

/// What a node has of another pool's resource counts on the node, and in no pool: it belongs to none.
#[test]
fn gpus_of_a_pool_that_the_node_is_not_of_count_on_the_node() {
    let wrong = node("gpu-1").has("nvidia.com/mig-1g.5gb", "7").label("accelerator", "spare");
    let audit = Cluster::new().contract(POOLS).object(wrong).audit();
    assert_eq!((&audit.nodes[0].pools, audit.nodes[0].gpus), (&vec!["spare".to_owned()], gpus(7, 0, 0, 0)));
    assert!(audit.pools.iter().all(|pool| pool.gpus == Gpus::default()));
}

/// Where the node's own agents take too much, moving pods is no help.
#[test]
fn agents_that_block_are_told_what_they_block() {
    let agent = |cpu: &str| pod("web/agent").requests("cpu", cpu).owned_by("DaemonSet/agent").on("gpu-1");
    let cluster = || Cluster::new().object(gpu_node("gpu-1")).object(train("ml/a", 1).requests("cpu", "8").on("gpu-1"));
    // 64 - 8 - 6 = 50: 6 of 7.
    let audit = cluster().object(agent("6")).audit();
    assert_eq!(audit.nodes[0].gpus, gpus(8, 1, 7, 1));
    assert_eq!(
        told(&audit).1,
        "Lower the requests of pod web/agent of DaemonSet web/agent, which alone block 1; or let GPU pods request at most \
         7.1 CPU for each GPU"
    );
    // 64 - 8 - 6 - 20 = 30: 3 of 7, of which the agent blocks one in any case.
    let leaving = pod("web/leaving").requests("cpu", "10").on("gpu-1").edit(|pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z".into();
    });
    let audit =
        cluster().object(agent("6")).object(leaving).object(pod("web/x").requests("cpu", "10").on("gpu-1")).audit();
    assert_eq!(audit.nodes[0].gpus, gpus(8, 1, 7, 4));
    assert_eq!(
        told(&audit).1,
        "Wait for the end of pod web/leaving, and move pod web/x off node gpu-1, as ordinary-pod-on-gpu-node says of each, \
         and lower the requests of pod web/agent of DaemonSet web/agent, which alone block 1; or let GPU pods request at \
         most 4.2 CPU for each GPU"
    );
}

#[test]
fn nodes_without_gpus_have_no_account() {
    let audit = Cluster::new().object(node("cpu-1")).object(pod("web/x").on("cpu-1")).audit();
    assert!(audit.nodes.is_empty());
    assert_eq!((audit.pools.len(), audit.pools[0].gpus, audit.pools[0].nodes), (1, Gpus::default(), 0));
}

#[test]
fn amounts_are_told_as_people_write_them() {
    let cpu = [
        (0, "0 CPU"),
        (1, "1m CPU"),
        (500, "500m CPU"),
        (1_000, "1 CPU"),
        (1_500, "1.5 CPU"),
        (12_345, "12.345 CPU"),
        (64_000, "64 CPU"),
    ];
    for (milli, text) in cpu {
        assert_eq!(cpu_text(milli), text);
    }
    let bytes = [
        (0, "0"),
        (1_023, "1023"),
        (1_024, "1Ki"),
        (512 << 20, "512Mi"),
        (4 * GI, "4Gi"),
        (GI + GI / 2, "1.5Gi"),
        (4_000_000_000, "3.7Gi"),
        (1 << 40, "1Ti"),
        (i64::MAX, "7.9Ei"),
    ];
    for (bytes, text) in bytes {
        assert_eq!(bytes_text(bytes), text);
    }
    assert_eq!([count_text(1, "pod"), count_text(2, "pod"), count_text(0, "pod")], ["1 pod", "2 pods", "0 pods"]);
    let lists: [&[&str]; 4] = [&[], &["a"], &["a", "b"], &["a", "b", "c"]];
    assert_eq!(lists.map(list_text), ["", "a", "a and b", "a, b and c"]);
}

fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let node = select(vec!["gpu-1", "gpu-2", "cpu-1", ""]);
    let one = (node, 0..4_i64, 0..40_i64, 0..300_i64, 0..3_u8).prop_map(|(node, gpus, cpu, memory, form)| {
        let mut pod = pod("web/x").requests("cpu", &cpu.to_string()).requests("memory", &format!("{memory}Gi"));
        if gpus > 0 && form == 0 {
            pod = pod.gpus(gpus);
        }
        if form == 1 {
            pod = pod.owned_by("DaemonSet/agent");
        }
        if node.is_empty() { pod } else { pod.on(node) }
    });
    vec(one, 0..12).prop_map(|pods| {
        let name = |(index, pod): (usize, Pod)| pod.edit(|pod| pod["metadata"]["name"] = format!("x-{index}").into());
        pods.into_iter().enumerate().map(name).collect()
    })
}

fn requests_gpus(pod: &Pod) -> bool {
    let pod = Value::from(pod.clone());
    !pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].is_null()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_accounts_balance(pods in pods(), places in 1..20_u8) {
        let with = |pods: Vec<Pod>| {
            Cluster::new()
                .contract(CONTRACT)
                .object(gpu_node("gpu-1").has("pods", &places.to_string()))
                .object(gpu_node("gpu-2"))
                .object(node("cpu-1"))
                .objects(pods)
                .audit()
        };
        let audit = with(pods.clone());
        let mut sum = Gpus::default();
        for node in &audit.nodes {
            let Gpus { allocatable, requested, free, blocked, out_of_use } = node.gpus;
            prop_assert_eq!(requested + free + out_of_use, allocatable.max(requested));
            prop_assert!((0..=free).contains(&blocked));
            prop_assert_eq!(blocked > 0, !node.blocked_by.is_empty());
            let told = findings(&audit, "gpus-blocked").any(|finding| *finding.object.name == *node.name);
            prop_assert_eq!(blocked > 0, told);
            sum.allocatable += allocatable;
            sum.requested += requested;
            sum.free += free;
            sum.blocked += blocked;
            sum.out_of_use += out_of_use;
        }
        prop_assert_eq!(audit.pools[0].gpus, sum);
        let alone = with(pods.into_iter().filter(requests_gpus).collect());
        prop_assert_eq!(alone.pools[0].gpus, Gpus { blocked: 0, ..sum });
    }
}
