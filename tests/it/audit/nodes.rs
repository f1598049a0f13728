use serde_json::json;

use gpufence::audit::{Audit, Finding, Severity};

use super::cluster::{Cluster, Node, findings, found, gpu_node, node, owners, pod};

/// The rules about nodes.
const RULES: [&str; 10] = [
    "node-without-taint",
    "node-taint-differs",
    "node-without-label",
    "node-label-differs",
    "node-without-gpus",
    "node-group-drift",
    "node-mixed-mig",
    "node-extra-taint",
    "node-cordoned",
    "node-not-ready",
];

/// A pool for whole GPUs whose nodes evict, and one for a model with labels within those of the first.
const POOLS: &str = "
mode: enforce
pools:
  - name: any
    resources: [nvidia.com/gpu]
    taints:
      - {key: dedicated, value: gpu, effect: NoSchedule}
      - {key: dedicated, value: gpu, effect: NoExecute}
    nodeSelector: {accelerator: nvidia}
    namespaces: {names: [ml]}
  - name: h100
    resources: [nvidia.com/gpu]
    taints: [{key: h100-only, effect: NoSchedule}]
    nodeSelector: {accelerator: nvidia, model: h100}
    namespaces: {names: [ml]}
  - name: amd
    resources: [amd.com/gpu]
    taints: [{key: dedicated, value: amd, effect: NoSchedule}]
    nodeSelector: {accelerator: amd}
    namespaces: {names: [ml]}
exemptions: []
";

/// The second common form of a contract.
const PRESENT: &str = "
mode: enforce
pools:
  - name: nvidia
    resources: [nvidia.com/gpu]
    taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
    nodeSelector: {accelerator: nvidia}
    namespaces: {names: [ml]}
exemptions: []
";

fn audit(nodes: impl IntoIterator<Item = Node>) -> Audit {
    Cluster::new().objects(nodes).audit()
}

/// Whether it is about a node, and not about what comes and goes by itself.
fn is_lasting(finding: &Finding) -> bool {
    RULES.contains(&finding.rule.id()) && !finding.message.contains(" for now (")
}

/// All findings about nodes, as rule and name.
fn about(audit: &Audit) -> Vec<String> {
    let own = audit.findings.iter().filter(|finding| is_lasting(finding));
    own.map(|finding| format!("{} {}", finding.rule, finding.object.name)).collect()
}

/// The only finding about nodes.
fn only(nodes: impl IntoIterator<Item = Node>) -> Finding {
    let audit = audit(nodes);
    assert_eq!(about(&audit).len(), 1, "{:#?}", audit.findings);
    audit.findings.iter().find(|finding| is_lasting(finding)).unwrap().clone()
}

fn told(finding: &Finding) -> (&str, &str, &str) {
    (finding.rule.id(), &finding.message, &finding.action)
}

#[test]
fn a_node_that_keeps_the_contract_is_not_found() {
    for (contract, node) in [
        (super::cluster::CONTRACT, gpu_node("gpu-1")),
        (POOLS, gpu_node("gpu-1").taint("dedicated", "gpu", "NoExecute")),
        (
            POOLS,
            node("gpu-1").gpus(8).label("accelerator", "nvidia").label("model", "h100").taint(
                "h100-only",
                "",
                "NoSchedule",
            ),
        ),
        (
            POOLS,
            node("gpu-1").has("amd.com/gpu", "8").label("accelerator", "amd").taint("dedicated", "amd", "NoSchedule"),
        ),
        (
            PRESENT,
            node("gpu-1").gpus(8).label("accelerator", "nvidia").taint("nvidia.com/gpu", "present", "NoSchedule"),
        ),
    ] {
        let audit = Cluster::new().contract(contract).object(node).audit();
        assert_eq!((about(&audit), audit.summary.gpu_nodes, audit.summary.drifted_nodes), (vec![], 1, 0), "{contract}");
    }
}

/// However it is labelled and tainted, and in whatever state: labels and taints of others are theirs.
#[test]
fn a_node_that_has_nothing_to_do_with_gpus_is_not_found() {
    let audit = audit([
        node("a"),
        node("b").label("accelerator", "amd").taint("dedicated", "infra", "NoSchedule"),
        node("c").label("Accelerator", "nvidia").taint("dedicated", "gpu", "PreferNoSchedule"),
        node("d").cordoned().not_ready().taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"),
        node("e").gpus(0).has("example.com/fpga", "4"),
        node("f").label("eks.amazonaws.com/nodegroup", "web"),
        node("g").label("eks.amazonaws.com/nodegroup", "web").cordoned().taint("team", "a", "NoExecute"),
    ]);
    assert_eq!((about(&audit), audit.summary.gpu_nodes, audit.summary.drifted_nodes), (vec![], 0, 0));
}

#[test]
fn gpus_without_the_taint_are_open_to_all() {
    let finding = only([gpu_node("gpu-1").untainted(), gpu_node("gpu-2")]);
    assert_eq!(
        told(&finding),
        (
            "node-without-taint",
            "the node gpu-1 of the pool nvidia has 8 nvidia.com/gpu and lacks the taint dedicated=gpu:NoSchedule: any pod may \
             run on it",
            "kubectl taint node gpu-1 dedicated=gpu:NoSchedule"
        )
    );
    assert_eq!((finding.severity, finding.pool.as_deref()), (Severity::High, Some("nvidia")));
    // What comes and goes by itself closes nothing, and neither does somebody else's.
    let finding = only([gpu_node("gpu-1").untainted().taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")]);
    assert!(finding.message.ends_with("any pod may run on it"), "{finding:#?}");
    let audit = audit([gpu_node("gpu-1").untainted().taint("team", "a", "NoSchedule")]);
    assert_eq!(about(&audit), ["node-without-taint gpu-1", "node-extra-taint gpu-1"]);
    assert!(
        findings(&audit, "node-without-taint")
            .all(|own| own.message.ends_with("any pod that tolerates team=a:NoSchedule may run on it"))
    );
    // A node that has the label is as open as soon as its device plugin starts.
    let audit = super::nodes::audit([node("gpu-1").label("accelerator", "nvidia")]);
    assert_eq!(about(&audit), ["node-without-taint gpu-1", "node-without-gpus gpu-1"]);
}

#[test]
fn half_of_a_pools_taints_is_not_enough() {
    let half = gpu_node("gpu-1");
    let audit = Cluster::new().contract(POOLS).object(half).audit();
    let all: Vec<_> = audit.findings.iter().map(told).collect();
    assert_eq!(
        all,
        [(
            "node-without-taint",
            "the node gpu-1 of the pool any has 8 nvidia.com/gpu and lacks the taint dedicated=gpu:NoExecute: a pod that \
             tolerates dedicated=gpu:NoSchedule alone gets in, and admission takes it for one that does not",
            "kubectl taint node gpu-1 dedicated=gpu:NoExecute (it evicts at once who does not tolerate it: gpufence audit \
             --what-if taint --pool any --node gpu-1 shows whom)"
        )]
    );
}

/// Value, effect, and the letters of each; what it does, and the command that kubectl takes: it overwrites a taint of
/// the same key and effect, and removes every other.
#[test]
fn a_taint_that_is_almost_right_is_named_with_what_it_does() {
    let kept_off = "GPU pods do not tolerate it and are kept off";
    let open = "PreferNoSchedule only asks the scheduler and is no isolation, so that any pod may run on it";
    let evicts = "NoExecute evicts what runs there, and GPU pods with it, whose toleration is for NoSchedule alone";
    for (taint, difference, consequence, command) in [
        (("dedicated", "cpu", "NoSchedule"), "another value", kept_off, " --overwrite"),
        (("dedicated", "", "NoSchedule"), "no value", kept_off, " --overwrite"),
        (
            ("dedicated", "GPU", "NoSchedule"),
            "the value in other letters, and their case counts",
            kept_off,
            " --overwrite",
        ),
        (
            ("Dedicated", "gpu", "NoSchedule"),
            "the key in other letters, and their case counts",
            kept_off,
            " Dedicated=gpu:NoSchedule-",
        ),
        (("dedicated", "gpu", "PreferNoSchedule"), "another effect", open, " dedicated=gpu:PreferNoSchedule-"),
        (("dedicated", "gpu", "NoExecute"), "another effect", evicts, " dedicated=gpu:NoExecute-"),
        (
            ("dedicated", "ml", "PreferNoSchedule"),
            "another value, another effect",
            open,
            " dedicated=ml:PreferNoSchedule-",
        ),
    ] {
        let (key, value, effect) = taint;
        let finding = only([gpu_node("gpu-1").untainted().taint(key, value, effect)]);
        let text = if value.is_empty() { format!("{key}:{effect}") } else { format!("{key}={value}:{effect}") };
        assert_eq!(
            told(&finding),
            (
                "node-taint-differs",
                &*format!(
                    "the node gpu-1 of the pool nvidia has the taint {text} where the contract says dedicated=gpu:NoSchedule \
                     ({difference}): {consequence}"
                ),
                &*format!("kubectl taint node gpu-1 dedicated=gpu:NoSchedule{command}"),
            )
        );
        assert_eq!((finding.severity, finding.field.as_deref()), (Severity::High, Some("spec.taints[0]")));
    }
}

#[test]
fn a_taint_under_another_key_may_be_meant_by_the_cluster_or_by_the_contract() {
    for (key, value) in
        [("nvidia.com/gpu", "present"), ("example.com/dedicated", "ml"), ("reserved", "gpu"), ("sku-gpu", "")]
    {
        let finding = only([gpu_node("gpu-1").untainted().taint(key, value, "NoSchedule")]);
        assert_eq!(finding.rule.id(), "node-taint-differs", "{finding:#?}");
        assert!(finding.message.contains("(another key"), "{finding:#?}");
    }
    let finding = only([gpu_node("gpu-1").untainted().taint("nvidia.com/gpu", "true", "NoSchedule")]);
    assert_eq!(
        finding.action,
        "kubectl taint node gpu-1 dedicated=gpu:NoSchedule nvidia.com/gpu=true:NoSchedule-; or, where the nodes of the pool \
         have that taint for good, let the pool nvidia say so: taints: [{key: nvidia.com/gpu, value: \"true\", effect: \
         NoSchedule}]"
    );
}

/// Both effects are one matter, and are said once.
#[test]
fn several_wrong_taints_are_one_finding() {
    let finding = only([gpu_node("gpu-1").untainted().taint("dedicated", "cpu", "NoSchedule").taint(
        "dedicated",
        "gpu",
        "NoExecute",
    )]);
    assert_eq!(
        told(&finding),
        (
            "node-taint-differs",
            "the node gpu-1 of the pool nvidia has the taint dedicated=gpu:NoExecute where the contract says \
             dedicated=gpu:NoSchedule (another effect): NoExecute evicts what runs there, and GPU pods with it, whose \
             toleration is for NoSchedule alone; and dedicated=cpu:NoSchedule beside it, which GPU pods do not tolerate",
            "kubectl taint node gpu-1 dedicated=gpu:NoSchedule dedicated=gpu:NoExecute- --overwrite"
        )
    );
    // Both of a pool's twins under a wrong value.
    let twins =
        gpu_node("gpu-1").untainted().taint("dedicated", "x", "NoSchedule").taint("dedicated", "x", "NoExecute");
    let audit = Cluster::new().contract(POOLS).object(twins).audit();
    let all: Vec<_> = audit.findings.iter().map(told).collect();
    assert_eq!(
        all,
        [(
            "node-taint-differs",
            "the node gpu-1 of the pool any has the taint dedicated=x:NoSchedule where the contract says \
             dedicated=gpu:NoSchedule (another value): GPU pods do not tolerate it and are kept off; and the taint \
             dedicated=x:NoExecute where the contract says dedicated=gpu:NoExecute (another value): GPU pods do not tolerate \
             it, and NoExecute evicts those that are there",
            "kubectl taint node gpu-1 dedicated=gpu:NoSchedule dedicated=gpu:NoExecute --overwrite (it evicts at once who does not tolerate it: gpufence audit \
             --what-if taint --pool any --node gpu-1 shows whom)"
        )]
    );
}

#[test]
fn gpus_without_the_label_are_found_by_nobody() {
    let finding = only([gpu_node("gpu-1").without_label("accelerator")]);
    assert_eq!(
        told(&finding),
        (
            "node-without-label",
            "the node gpu-1 of the pool nvidia has 8 nvidia.com/gpu and lacks the label accelerator=nvidia: no GPU pod finds \
             it",
            "kubectl label node gpu-1 accelerator=nvidia"
        )
    );
    assert_eq!((finding.severity, finding.pool.as_deref()), (Severity::High, Some("nvidia")));
    // A node that says nothing could be either pool's; where its taint tells, it is that one's.
    let audit = Cluster::new().contract(POOLS).object(node("gpu-1").gpus(1)).audit();
    assert_eq!(about(&audit), ["node-without-taint gpu-1", "node-without-label gpu-1"]);
    assert_eq!(
        findings(&audit, "node-without-label").next().unwrap().action,
        "for the pool any: kubectl label node gpu-1 accelerator=nvidia; or, for the pool h100: kubectl label node gpu-1 \
         accelerator=nvidia model=h100"
    );
    let told_apart = node("gpu-1").gpus(1).taint("h100-only", "", "NoSchedule").label("model", "h100");
    let audit = Cluster::new().contract(POOLS).object(told_apart).audit();
    assert_eq!(about(&audit), ["node-without-label gpu-1"]);
    assert_eq!(audit.findings[0].action, "kubectl label node gpu-1 accelerator=nvidia");
}

#[test]
fn a_label_that_is_almost_right_is_named() {
    for (key, value, difference, command) in [
        ("accelerator", "amd", "another value", " --overwrite"),
        ("accelerator", "Nvidia", "the value in other letters, and their case counts", " --overwrite"),
        ("accelerator", "", "no value", " --overwrite"),
        ("Accelerator", "nvidia", "the key in other letters, and their case counts", " Accelerator-"),
        ("example.com/accelerator", "nvidia", "another key", " example.com/accelerator-"),
    ] {
        let finding = only([gpu_node("gpu-1").without_label("accelerator").label(key, value)]);
        assert_eq!(
            told(&finding),
            (
                "node-label-differs",
                &*format!(
                    "the node gpu-1 of the pool nvidia has 8 nvidia.com/gpu and the label {key}={value} where the contract says \
                     accelerator=nvidia ({difference}): no GPU pod finds it"
                ),
                &*format!("kubectl label node gpu-1 accelerator=nvidia{command}"),
            )
        );
        assert_eq!(finding.severity, Severity::High);
        assert_eq!(finding.field, Some(format!("metadata.labels[\"{key}\"]")));
    }
}

#[test]
fn a_node_of_a_pool_that_offers_no_gpu_is_found_with_the_likely_reason() {
    let labelled = || {
        gpu_node("gpu-1").edit(|node| {
            for amounts in ["capacity", "allocatable"] {
                node["status"][amounts].as_object_mut().unwrap().remove("nvidia.com/gpu");
            }
        })
    };
    let none = " (no pod of a device plugin is on it)";
    for (node, expected) in [
        (
            gpu_node("gpu-1").edit(|node| node["status"]["allocatable"]["nvidia.com/gpu"] = "0".into()),
            "carries the label of the pool nvidia and has 8 nvidia.com/gpu, none of them allocatable: the device plugin has \
             gone, or takes them all for broken",
        ),
        (
            gpu_node("gpu-1").gpus(0),
            "carries the label of the pool nvidia and has 0 nvidia.com/gpu: the device plugin was here and offers no GPU any \
             more, or the driver sees none",
        ),
        (
            labelled(),
            "carries the label of the pool nvidia and offers no GPU (nvidia.com/gpu, nvidia.com/mig-*): the device plugin or \
             the driver is missing, or has not started",
        ),
        (
            labelled().without_label("accelerator"),
            "carries a taint of the pool nvidia and offers no GPU (nvidia.com/gpu, nvidia.com/mig-*): the device plugin or \
             the driver is missing, or has not started",
        ),
        (
            labelled().label("feature.node.kubernetes.io/pci-10de.present", "true"),
            "carries the label of the pool nvidia and offers no GPU: there is a GPU in it (label \
             feature.node.kubernetes.io/pci-10de.present), so that its driver or the device plugin is missing, or has not \
             started",
        ),
    ] {
        let finding = only([node]);
        assert_eq!((finding.rule.id(), finding.severity), ("node-without-gpus", Severity::Medium));
        assert_eq!(finding.message, format!("the node gpu-1 {expected}{none}"));
    }
    let finding = only([labelled()]);
    assert!(
        finding.action.ends_with(
            "where it has no GPU: kubectl label node gpu-1 accelerator- && kubectl taint node gpu-1 dedicated=gpu:NoSchedule-"
        ),
        "{finding:#?}"
    );
    // Whose pod it is tells where to look.
    let plugin = pod("kube-system/plugin-x").on("gpu-1").owned_by("DaemonSet/nvidia-device-plugin-daemonset");
    let audit = Cluster::new().object(labelled()).object(plugin).audit();
    let message = &findings(&audit, "node-without-gpus").next().unwrap().message;
    assert!(
        message.ends_with(" (a pod of the DaemonSet kube-system/nvidia-device-plugin-daemonset is on it)"),
        "{message}"
    );
}

#[test]
fn a_node_with_the_label_of_one_pool_and_the_gpus_of_another_is_told_so() {
    let node = node("gpu-1").has("amd.com/gpu", "4").label("accelerator", "nvidia");
    let node = node.taint("dedicated", "gpu", "NoSchedule").taint("dedicated", "gpu", "NoExecute");
    let audit = Cluster::new().contract(POOLS).object(node).audit();
    let finding = findings(&audit, "node-without-gpus").next().unwrap();
    assert_eq!(
        (&*finding.message, &*finding.action),
        (
            "the node gpu-1 carries the label of the pool any and offers none of its resources, but amd.com/gpu, which are \
             those of the pool amd",
            "kubectl label node gpu-1 accelerator=amd --overwrite, or let its pool be the one that it is labelled for"
        )
    );
}

#[test]
fn a_taint_beside_the_contracts_keeps_gpu_pods_off() {
    let finding = only([gpu_node("gpu-1").taint("nvidia.com/gpu", "present", "NoSchedule")]);
    assert_eq!(
        told(&finding),
        (
            "node-extra-taint",
            "the node gpu-1 carries the taint nvidia.com/gpu=present:NoSchedule, which the tolerations of the pool nvidia do \
             not pass: GPU pods are kept off",
            "kubectl taint node gpu-1 nvidia.com/gpu=present:NoSchedule-; or, where all nodes of the pool have it, add it to \
             the taints of the pool nvidia in the contract: {key: nvidia.com/gpu, value: present, effect: NoSchedule}, which \
             matters less where the admission plugin ExtendedResourceToleration tolerates it for GPU pods"
        )
    );
    assert_eq!((finding.severity, finding.field.as_deref()), (Severity::High, Some("spec.taints[1]")));
    let finding = only([gpu_node("gpu-1").taint("team", "", "NoExecute").taint("dedicated", "x", "NoExecute")]);
    assert!(
        finding.message.contains("team:NoExecute, dedicated=x:NoExecute, which")
            && finding.message.ends_with("GPU pods are kept off and evicted"),
        "{finding:#?}"
    );
}

/// What a node lives through, what autoscalers do to it, and what only asks the scheduler.
#[test]
fn a_taint_that_comes_and_goes_by_itself_is_not_found() {
    for (key, effect) in [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ("ToBeDeletedByClusterAutoscaler", "NoSchedule"),
        ("karpenter.sh/disrupted", "NoSchedule"),
        ("node.cilium.io/agent-not-ready", "NoExecute"),
        ("team", "PreferNoSchedule"),
    ] {
        assert_eq!(about(&audit([gpu_node("gpu-1").taint(key, "", effect)])), [""; 0], "{key}");
    }
}

#[test]
fn a_node_that_takes_no_pods_is_told_and_has_not_drifted() {
    let audit = audit([gpu_node("gpu-1").cordoned(), gpu_node("gpu-2").not_ready(), gpu_node("gpu-3")]);
    let all: Vec<_> = audit.findings.iter().map(|finding| (finding.severity, told(finding))).collect();
    assert_eq!(
        all,
        [
            (
                Severity::Medium,
                (
                    "node-not-ready",
                    "the node gpu-2 is not ready: its 8 nvidia.com/gpu can be given to no new pod",
                    "kubectl describe node gpu-2: its conditions and events say why"
                )
            ),
            (
                Severity::Info,
                (
                    "node-cordoned",
                    "the node gpu-1 is cordoned: its 8 nvidia.com/gpu can be given to no new pod",
                    "kubectl uncordon gpu-1 when what it was cordoned for is done"
                )
            ),
        ]
    );
    assert_eq!(audit.summary.drifted_nodes, 0);
}

#[test]
fn gpus_that_are_sliced_in_several_ways_are_found() {
    let whole_and_slices = gpu_node("gpu-1").gpus(4).has("nvidia.com/mig-1g.5gb", "28");
    let finding = only([whole_and_slices]);
    assert_eq!(
        told(&finding),
        (
            "node-mixed-mig",
            "the node gpu-1 offers 4 nvidia.com/gpu, 28 nvidia.com/mig-1g.5gb side by side: what is free of one kind is of no \
             use to a pod that requests another",
            "where it is not meant so, slice all GPUs of a node alike, such as with: kubectl label node gpu-1 \
             nvidia.com/mig.config=all-1g.5gb --overwrite, once no GPU pod is on it"
        )
    );
    assert_eq!(finding.severity, Severity::Low);
    let slices = gpu_node("gpu-1").gpus(0).has("nvidia.com/mig-1g.5gb", "4").has("nvidia.com/mig-3g.20gb", "8");
    let finding = only([slices]);
    assert!(finding.message.contains("4 nvidia.com/mig-1g.5gb, 8 nvidia.com/mig-3g.20gb"), "{finding:#?}");
    let labelled = gpu_node("gpu-1")
        .label("nvidia.com/mig.config", "all-balanced")
        .label("nvidia.com/mig.config.state", "failed")
        .label("nvidia.com/mig.strategy", "single");
    let finding = only([labelled]);
    assert!(
        finding.message.starts_with(
            "the node gpu-1 is to be sliced in several ways (nvidia.com/mig.config=all-balanced, \
             nvidia.com/mig.config.state=failed); with nvidia.com/mig.strategy=single its device plugin offers none of them:"
        ),
        "{finding:#?}"
    );
    // All whole, or all of one size, whatever the strategy.
    let alike = gpu_node("gpu-2").gpus(0).has("nvidia.com/mig-1g.5gb", "56").label("nvidia.com/mig.strategy", "mixed");
    let alike = alike.label("nvidia.com/mig.config", "all-1g.5gb");
    assert_eq!(about(&audit([gpu_node("gpu-1").label("nvidia.com/mig.config", "all-disabled"), alike])), [""; 0]);
}

fn members(count: usize, label: &str) -> impl Iterator<Item = Node> {
    (0..count).map(move |index| gpu_node(&format!("gpu-{index}")).label(label, "a100"))
}

#[test]
fn a_node_that_is_not_as_its_group_is_found_under_whatever_label_the_group_has() {
    for (label, group) in [
        ("eks.amazonaws.com/nodegroup", "node group a100"),
        ("cloud.google.com/gke-nodepool", "node pool a100"),
        ("kubernetes.azure.com/agentpool", "node pool a100"),
        ("karpenter.sh/nodepool", "node pool a100"),
        ("cluster.x-k8s.io/deployment-name", "machine deployment a100"),
        ("node.kubernetes.io/instance-type", "instance type a100"),
    ] {
        let stray = gpu_node("stray").label(label, "a100").gpus(4);
        let finding = only(members(3, label).chain([stray]));
        assert_eq!(
            told(&finding),
            (
                "node-group-drift",
                &*format!(
                    "the node stray is not as the others of the {group}: it has 4 nvidia.com/gpu, where 3 of 4 have 8"
                ),
                &*format!(
                    "kubectl describe node stray, and nvidia-smi on it: a GPU that is lost, another machine, or another \
                     setting; replace the node by a new one of the {group}"
                ),
            )
        );
        assert_eq!((finding.severity, finding.pool.as_deref()), (Severity::Medium, Some("nvidia")));
    }
}

const GROUP: &str = "eks.amazonaws.com/nodegroup";

/// One finding for all that the template lacks, beside what is wrong with the nodes themselves.
#[test]
fn what_a_template_should_say_is_mended_in_the_template() {
    let strays = ["stray-1", "stray-2"].map(|name| node(name).label(GROUP, "a100").gpus(8));
    let audit = audit(members(3, GROUP).chain(strays));
    assert_eq!(
        about(&audit),
        [
            "node-without-taint stray-1",
            "node-without-taint stray-2",
            "node-without-label stray-1",
            "node-without-label stray-2",
            "node-group-drift stray-1",
        ]
    );
    assert_eq!(audit.summary.drifted_nodes, 2);
    let finding = findings(&audit, "node-group-drift").next().unwrap();
    assert_eq!(
        told(finding),
        (
            "node-group-drift",
            "2 of 5 nodes of the node group a100 differ from the others: they lack the label accelerator=nvidia and the taint \
             dedicated=gpu:NoSchedule (stray-1, stray-2)",
            "let the template of the node group a100 say what the contract says (label accelerator=nvidia, taint \
             dedicated=gpu:NoSchedule), and replace its nodes that lack it by new ones: what is mended on a node alone is lost \
             with it"
        )
    );
}

/// A node that lost everything by which it would be known as a GPU node is known by its group.
#[test]
fn a_node_without_anything_in_a_group_of_gpu_nodes_is_found() {
    let audit = audit(members(2, GROUP).chain([node("stray").label(GROUP, "a100")]));
    let found: Vec<_> = audit.findings.iter().map(|finding| (&*finding.object.name, &*finding.message)).collect();
    assert_eq!(
        found,
        [
            (
                "stray",
                "1 of 3 nodes of the node group a100 differ from the others: they lack the label accelerator=nvidia and the \
                 taint dedicated=gpu:NoSchedule (stray)"
            ),
            (
                "stray",
                "the node stray is not as the others of the node group a100: it has no nvidia.com/gpu, where 2 of 3 have 8"
            ),
        ]
    );
    let fingerprints: std::collections::BTreeSet<_> = audit.findings.iter().map(|own| &own.fingerprint).collect();
    assert_eq!(fingerprints.len(), 2);
}

/// The contract says what is right, and not the majority: the only node that is right is not told to become wrong.
#[test]
fn the_contract_decides_who_is_right() {
    let right = || gpu_node("right").label(GROUP, "a100");
    for wrong in [Node::untainted, |node: Node| node.without_label("accelerator")] {
        let nodes = (0..3).map(|index| wrong(gpu_node(&format!("gpu-{index}")).label(GROUP, "a100")));
        let audit = audit(nodes.chain([right()]));
        assert_eq!(found(&audit, "node-group-drift"), ["Node gpu-0"]);
        let message = &findings(&audit, "node-group-drift").next().unwrap().message;
        assert!(
            message.starts_with("3 of 4 nodes of the node group a100 differ from the others: they lack "),
            "{message}"
        );
        assert!(audit.findings.iter().all(|finding| &*finding.object.name != "right"), "{:#?}", audit.findings);
        assert_eq!(audit.summary.drifted_nodes, 3);
    }
    // Where none is right, they do not differ.
    let audit = audit((0..3).map(|index| gpu_node(&format!("gpu-{index}")).label(GROUP, "a100").untainted()));
    assert_eq!(found(&audit, "node-group-drift"), [""; 0]);
}

#[test]
fn a_tie_is_called_one_and_goes_to_the_more_gpus() {
    let right = gpu_node("right").label(GROUP, "a100");
    let audit = audit([right, gpu_node("wrong").label(GROUP, "a100").gpus(7)]);
    assert_eq!(found(&audit, "node-group-drift"), ["Node wrong"]);
    assert_eq!(
        findings(&audit, "node-group-drift").next().unwrap().message,
        "the node wrong is not as the others of the node group a100: it has 7 nvidia.com/gpu, where 1 of 2 have 8 (a tie: as \
         many are like this node)"
    );
}

/// Machines of several types in one group, slices that somebody set on one node, a lone node, and a name that a
/// distribution gives to all: they differ on purpose.
#[test]
fn nodes_that_differ_on_purpose_have_not_drifted() {
    let typed = |name: &str, kind: &str, count| {
        gpu_node(name).label("karpenter.sh/nodepool", "gpu").label("node.kubernetes.io/instance-type", kind).gpus(count)
    };
    let sliced = gpu_node("sliced").label(GROUP, "b").gpus(0).has("nvidia.com/mig-1g.5gb", "56");
    let audit = audit([
        typed("a", "p4d.24xlarge", 8),
        typed("b", "p4d.24xlarge", 8),
        typed("c", "g5.xlarge", 1),
        gpu_node("whole").label(GROUP, "b"),
        sliced.label("nvidia.com/mig.config", "all-1g.5gb"),
        gpu_node("lone").label(GROUP, "c").gpus(2),
        gpu_node("k").label("node.kubernetes.io/instance-type", "k3s"),
        node("l").label("node.kubernetes.io/instance-type", "k3s"),
        node("m").label("node.kubernetes.io/instance-type", "k3s"),
    ]);
    assert_eq!((about(&audit), audit.summary.drifted_nodes), (vec![], 0));
}

#[test]
fn the_model_of_a_group_is_compared() {
    let contract = super::cluster::CONTRACT.replace(
        "    namespaces:",
        "    models: {annotation: gpu.example.com/model, nodeLabel: gpu.example.com/model, values: [a100, h100]}\n    \
             namespaces:",
    );
    let of = |name: &str, model: &str| gpu_node(name).label(GROUP, "a100").label("gpu.example.com/model", model);
    let audit = Cluster::new().contract(&contract).objects([of("a", "a100"), of("b", "a100"), of("c", "h100")]).audit();
    assert_eq!(found(&audit, "node-group-drift"), ["Node c"]);
    assert!(
        audit.findings[0]
            .message
            .ends_with("it has the label gpu.example.com/model=h100, where 2 of 3 have gpu.example.com/model=a100"),
        "{:#?}",
        audit.findings
    );
}

/// What came out of objects is made visible before it stands in a message.
#[test]
fn names_and_labels_cannot_speak_to_a_terminal() {
    let node = gpu_node("gpu\u{1b}[31m").without_label("accelerator").label("accelerator", "\u{1b}[2J").edit(|node| {
        node["metadata"]["ownerReferences"] = owners("Node/x");
        node["spec"]["taints"] = json!([{"key": "dedicated", "value": "\u{7}", "effect": "NoSchedule"}]);
        for amounts in ["capacity", "allocatable"] {
            node["status"][amounts]["nvidia.com/mig-\u{1b}[1m"] = "1".into();
        }
    });
    let audit = audit([node.label(GROUP, "\u{1b}"), gpu_node("gpu-2").label(GROUP, "\u{1b}")]);
    assert_eq!(about(&audit).len(), 5, "{:#?}", audit.findings);
    for finding in &audit.findings {
        let Finding { message, action, field, .. } = finding;
        let field = field.as_deref().unwrap_or_default();
        assert!(![message, action, field].iter().any(|text| text.contains(char::is_control)), "{finding:#?}");
    }
}
