use serde_json::{Value, json};

use gpufence::audit::{Audit, ByClass, Class, Entry, Occupant, Severity};

use super::cluster::{CONTRACT, Cluster, Node, Pod, findings, found, gpu_node, node, pod, workload};

fn exists() -> Value {
    json!({"key": "dedicated", "operator": "Exists"})
}

fn exact() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

/// Its creator wrote the node's name.
fn named(pod: &mut Value) {
    pod["metadata"]["managedFields"] = json!([{"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
}

fn occupants(audit: &Audit) -> impl Iterator<Item = &Occupant> {
    audit.nodes.iter().flat_map(|node| &node.occupants)
}

fn occupant<'a>(audit: &'a Audit, name: &str) -> &'a Occupant {
    let found = occupants(audit).find(|occupant| format!("{}/{}", occupant.namespace, occupant.name) == name);
    found.unwrap_or_else(|| panic!("no pod {name}"))
}

/// What is said of the only ordinary pod: its message and its action.
fn told(audit: &Audit) -> (&str, &str) {
    let mut told = findings(audit, "ordinary-pod-on-gpu-node");
    let finding = told.next().unwrap();
    assert!(told.next().is_none());
    assert_eq!(occupants(audit).find(|occupant| occupant.class == Class::Ordinary).unwrap().action, finding.action);
    (&finding.message, &finding.action)
}

fn edited(mut object: Value, edit: impl FnOnce(&mut Value)) -> Value {
    edit(&mut object);
    object
}

fn deployment(pod: Pod) -> [Value; 2] {
    let replica_set = edited(workload("ReplicaSet", "web/shop-1", pod.clone()), |object| {
        object["metadata"]["ownerReferences"] = super::cluster::owners("Deployment/shop");
    });
    [workload("Deployment", "web/shop", pod), replica_set]
}

#[test]
fn a_pod_is_of_the_first_class_that_fits() {
    let contract = CONTRACT.replace(
        "exemptions: []",
        "exemptions: [{name: monitoring, reason: r, namespaces: [monitoring]}, \
         {name: respite, reason: r, namespaces: [moving], expires: 2027-01-01}]",
    );
    let contract = contract
        .replace("    namespaces: {", "    markers: {claims: [one-gpu], annotations: [gpu-share]}\n    namespaces: {");
    let critical = |class: &'static str| move |pod: &mut Value| pod["spec"]["priorityClassName"] = class.into();
    let owner = |api_version: &str, kind: &str, name: &str| json!([{"apiVersion": api_version, "kind": kind, "name": name, "controller": true}]);
    let operated = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "driver", "namespace": "web", "ownerReferences": owner("nvidia.com/v1", "ClusterPolicy", "all")},
        "spec": {"template": {"spec": {}}},
    });
    let classes = [
        (pod("ml/whole").gpus(1).placed(), Class::GpuWorkload),
        (pod("web/stray").gpus(1), Class::GpuWorkload),
        (pod("ml/slice").requests("nvidia.com/mig-1g.5gb", "2"), Class::GpuWorkload),
        (
            pod("ml/claim").edit(|pod| pod["spec"]["resourceClaims"] = json!([{"resourceClaimName": "one-gpu"}])),
            Class::GpuWorkload,
        ),
        (pod("ml/share").edit(|pod| pod["metadata"]["annotations"] = json!({"gpu-share": "0.5"})), Class::GpuWorkload),
        (pod("web/validator").gpus(1).owned_by("DaemonSet/validator"), Class::GpuWorkload),
        (pod("kube-system/burn").gpus(1), Class::GpuWorkload),
        (pod("web/agent").owned_by("DaemonSet/agent"), Class::DaemonSet),
        (pod("kube-system/proxy").owned_by("DaemonSet/proxy"), Class::DaemonSet),
        (pod("web/driver").owned_by("DaemonSet/driver"), Class::DaemonSet),
        (pod("kube-system/dns"), Class::Platform),
        (pod("kube-public/info"), Class::Platform),
        (pod("kube-node-lease/lease"), Class::Platform),
        (pod("web/critical").edit(critical("system-cluster-critical")), Class::Platform),
        (pod("web/node-critical").edit(critical("system-node-critical")), Class::Platform),
        (
            pod("web/static").owned_by("Node/gpu-1").edit(|pod| {
                pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
                pod["spec"]["tolerations"] = json!([{"operator": "Exists", "effect": "NoExecute"}]);
            }),
            Class::Platform,
        ),
        (pod("monitoring/exporter").tolerates(exists()), Class::Platform),
        // What is spared for a while has to move all the same.
        (pod("moving/shop").tolerates(exists()), Class::Ordinary),
        // The exemption has nothing to say of it.
        (pod("monitoring/quiet"), Class::Ordinary),
        (pod("web/plain"), Class::Ordinary),
        (pod("web/none").gpus(0), Class::Ordinary),
        (pod("web/other").requests("rdma/hca", "1"), Class::Ordinary),
        (pod("web/urgent").edit(critical("system-urgent")), Class::Ordinary),
        (pod("web/job").owned_by("Job/once"), Class::Ordinary),
        (pod("kube-systems/x"), Class::Ordinary),
    ];
    let cluster = Cluster::new().contract(&contract).object(gpu_node("gpu-1")).object(operated);
    let cluster = cluster.objects(classes.iter().map(|(pod, _)| pod.clone().on("gpu-1")));
    // Who has ended or is elsewhere is nobody here.
    let cluster = cluster
        .object(node("cpu-1"))
        .object(pod("web/elsewhere").on("cpu-1"))
        .object(pod("web/waiting"))
        .object(pod("web/over").on("gpu-1").phase("Succeeded"));
    let audit = cluster.audit();
    for (pod, class) in &classes {
        let object = Value::from(pod.clone());
        let name = |key: &str| object["metadata"][key].as_str().unwrap().to_owned();
        let name = format!("{}/{}", name("namespace"), name("name"));
        assert_eq!(occupant(&audit, &name).class, *class, "{name}");
    }
    let counts = ByClass { gpu_workload: 7, daemon_set: 3, platform: 7, ordinary: 8 };
    assert_eq!(audit.summary.pods_on_gpu_nodes, counts);
    assert_eq!(occupants(&audit).count(), classes.len());
    assert_eq!(audit.pools[0].ordinary_pods, 8);
    assert_eq!(findings(&audit, "ordinary-pod-on-gpu-node").count(), 8);
    let driver = occupant(&audit, "web/driver").controller.clone();
    assert_eq!(driver.map(|driver| driver.to_string()).as_deref(), Some("ClusterPolicy web/all"));
    assert!(occupants(&audit).all(|occupant| (occupant.class == Class::Ordinary) != occupant.action.is_empty()));
    let order: Vec<_> =
        occupants(&audit).map(|one| (std::cmp::Reverse(one.class), &one.namespace, &one.name)).collect();
    assert!(order.is_sorted());
}

#[test]
fn how_a_pod_got_in_follows_from_the_taints_that_are_there() {
    let tolerates = |field: &str, toleration: &str, taint: &str, exact| Entry::Tolerates {
        taint: taint.into(),
        field: field.into(),
        toleration: toleration.into(),
        exact,
    };
    let before = |taint: &str| Entry::BeforeTaint { taint: taint.into() };
    let (ours, text) =
        ("dedicated=gpu:NoSchedule", "{key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}");
    let unrelated = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
    let tainted = || gpu_node("gpu-1");
    let bare = || gpu_node("gpu-1").untainted();
    let cases = [
        (tainted(), pod("web/x").tolerates(exact()), tolerates("spec.tolerations[0]", text, ours, true)),
        (
            tainted(),
            pod("web/x").tolerates(unrelated.clone()).tolerates(exists()),
            tolerates("spec.tolerations[1]", "{key: dedicated, operator: Exists}", ours, false),
        ),
        (tainted(), pod("web/x").tolerates(unrelated.clone()), before(ours)),
        (tainted(), pod("web/x"), before(ours)),
        (tainted(), pod("web/x").edit(named), Entry::NodeName),
        (tainted(), pod("web/x").tolerates(exact()).edit(named), Entry::NodeName),
        (tainted(), pod("web/x").owned_by("DaemonSet/x").edit(named), before(ours)),
        (
            tainted(),
            pod("web/x").owned_by("Node/gpu-1").edit(|pod| {
                pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
            }),
            Entry::NodeName,
        ),
        (bare(), pod("web/x"), Entry::NoTaint),
        (bare(), pod("web/x").tolerates(exact()), Entry::NoTaint),
        (bare().edit(|node| node["spec"]["taints"] = json!([])), pod("web/x"), Entry::NoTaint),
        // It only asks to stay off.
        (bare().taint("dedicated", "gpu", "PreferNoSchedule"), pod("web/x"), Entry::NoTaint),
        // It comes and goes with the cordon.
        (bare().cordoned().taint("node.kubernetes.io/unschedulable", "", "NoSchedule"), pod("web/x"), Entry::NoTaint),
        (bare().taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"), pod("web/x"), Entry::NoTaint),
        (bare().taint("karpenter.sh/disrupted", "", "NoSchedule"), pod("web/x"), Entry::NoTaint),
        (
            tainted().cordoned().taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
            pod("web/x").tolerates(exact()),
            tolerates("spec.tolerations[0]", text, ours, true),
        ),
        // Another's taint keeps off as well, where the pool's is not there.
        (bare().taint("team", "x", "NoExecute"), pod("web/x"), before("team=x:NoExecute")),
        (
            bare().taint("team", "x", "NoExecute"),
            pod("web/x").tolerates(json!({"key": "team", "value": "x", "effect": "NoExecute"})),
            tolerates("spec.tolerations[0]", "{key: team, value: x, effect: NoExecute}", "team=x:NoExecute", true),
        ),
        (
            bare().taint("team", "x", "NoExecute"),
            pod("web/x").tolerates(json!({"operator": "Exists"})),
            tolerates("spec.tolerations[0]", "{operator: Exists}", "team=x:NoExecute", false),
        ),
        (
            tainted().taint("team", "x", "NoSchedule"),
            pod("web/x").tolerates(exact()),
            tolerates("spec.tolerations[0]", text, ours, true),
        ),
        (bare().taint("dedicated", "GPU", "NoSchedule"), pod("web/x"), before("dedicated=GPU:NoSchedule")),
    ];
    for (index, (node, pod, entry)) in cases.into_iter().enumerate() {
        let audit = Cluster::new().object(node).object(pod.on("gpu-1")).audit();
        assert_eq!(occupant(&audit, "web/x").entry, entry, "{index}");
    }
}

/// All of the pool's taints are to be passed, and the first of them is told.
#[test]
fn of_two_taints_both_are_to_be_tolerated() {
    let contract = CONTRACT
        .replace("effect: NoSchedule}]", "effect: NoSchedule}, {key: dedicated, value: gpu, effect: NoExecute}]");
    let node =
        || gpu_node("gpu-1").untainted().taint("dedicated", "gpu", "NoExecute").taint("dedicated", "gpu", "NoSchedule");
    let entry = |pod: Pod| {
        let audit = Cluster::new().contract(&contract).object(node()).object(pod.on("gpu-1")).audit();
        occupant(&audit, "web/x").entry.clone()
    };
    assert_eq!(entry(pod("web/x").tolerates(exact())), Entry::BeforeTaint { taint: "dedicated=gpu:NoExecute".into() });
    let Entry::Tolerates { taint, exact, .. } = entry(pod("web/x").tolerates(exists())) else { panic!() };
    assert_eq!((&*taint, exact), ("dedicated=gpu:NoSchedule", false));
}

#[test]
fn a_pod_of_a_deployment_is_told_with_the_field_of_its_template() {
    let template = pod("web/x").requests("cpu", "2").requests("memory", "4Gi").tolerates(exists());
    // The API server has put one before it.
    let running = pod("web/shop-1-a")
        .requests("cpu", "2")
        .requests("memory", "4Gi")
        .tolerates(json!({"key": "zone", "operator": "Exists"}))
        .tolerates(exists())
        .owned_by("ReplicaSet/shop-1")
        .on("gpu-1");
    let cluster =
        Cluster::new().objects([gpu_node("gpu-1"), node("web-1")]).objects(deployment(template)).object(running);
    let audit = cluster.audit();
    assert_eq!(
        told(&audit),
        (
            "Pod web/shop-1-a of Deployment web/shop (Guaranteed) requests no GPU and takes 2 CPU, 4Gi memory, 1 of 110 \
             pod places of node gpu-1 of pool nvidia; spec.tolerations[1] {key: dedicated, operator: Exists} tolerates \
             the taint dedicated=gpu:NoSchedule and more",
            "Remove spec.template.spec.tolerations[0] from Deployment web/shop: the pods that replace these stay off GPU \
             nodes"
        )
    );
    let finding = findings(&audit, "ordinary-pod-on-gpu-node").next().unwrap();
    assert_eq!(finding.severity, Severity::Medium);
    assert_eq!(finding.object.to_string(), "Pod web/shop-1-a");
    assert_eq!(finding.controller.as_ref().map(ToString::to_string).as_deref(), Some("Deployment web/shop"));
    assert_eq!((finding.pool.as_deref(), finding.node.as_deref()), (Some("nvidia"), Some("gpu-1")));
    assert_eq!(finding.field.as_deref(), Some("spec.tolerations[1]"));
    assert_eq!(finding.fingerprint, "ordinary-pod-on-gpu-node/apps/Deployment/web/shop/nvidia");
}

const DELETE: &str = "kubectl delete pod --namespace web x";

/// What to do about the only ordinary pod, on the node `gpu-1`.
fn run(node: Node, makers: Vec<Value>, pod: Pod) -> String {
    let audit =
        Cluster::new().objects([node, super::cluster::node("web-1")]).objects(makers).object(pod.on("gpu-1")).audit();
    told(&audit).1.to_owned()
}

/// Every way in, by everybody who makes pods: the action names the field, the object and the command.
#[test]
fn what_to_do_depends_on_the_way_in_and_on_who_makes_the_pod() {
    let delete = DELETE;
    let tolerating = |pod: Pod| pod.tolerates(exact()).tolerates(exists());
    let makes = |kind: &str| {
        let maker = workload(kind, "web/m", tolerating(pod("web/x")));
        run(gpu_node("gpu-1"), vec![maker], tolerating(pod("web/x")).owned_by(&format!("{kind}/m")))
    };
    let both = "spec.template.spec.tolerations[0] and spec.template.spec.tolerations[1]";
    assert_eq!(
        makes("StatefulSet"),
        format!("Remove {both} from StatefulSet web/m: the pods that replace these stay off GPU nodes")
    );
    assert_eq!(
        makes("Job"),
        format!("Delete Job web/m and create it anew without {both}: the template of a Job cannot change")
    );
    assert_eq!(
        makes("ReplicaSet"),
        format!("Remove {both} from ReplicaSet web/m, then run {delete}: the next pod stays off GPU nodes")
    );
    let job = edited(workload("Job", "web/n-1", tolerating(pod("web/x"))), |job| {
        job["metadata"]["ownerReferences"] = super::cluster::owners("CronJob/n");
    });
    let cron_job = workload("CronJob", "web/n", pod("web/x").tolerates(exact()));
    assert_eq!(
        run(gpu_node("gpu-1"), vec![job, cron_job], pod("web/x").tolerates(exact()).owned_by("Job/n-1")),
        "Remove spec.jobTemplate.spec.template.spec.tolerations[0] from CronJob web/n: the pods of its next Jobs stay off \
         GPU nodes"
    );
    // Nobody gave its owner, or it is one of which nothing is known.
    assert_eq!(
        run(gpu_node("gpu-1"), vec![], pod("web/x").tolerates(exists()).owned_by("Rollout/r")),
        format!(
            "Remove the toleration {{key: dedicated, operator: Exists}} from the template of Rollout web/r, then run \
             {delete}: the next pod stays off GPU nodes"
        )
    );
    // Its template is without fault.
    assert_eq!(
        run(
            gpu_node("gpu-1"),
            deployment(pod("web/x")).into(),
            pod("web/x").tolerates(exists()).owned_by("ReplicaSet/shop-1")
        ),
        format!(
            "Run {delete}: the template of Deployment web/shop does not have the toleration {{key: dedicated, operator: \
             Exists}}. If the next pod has it again, something adds it: a RuntimeClass, the annotation \
             scheduler.alpha.kubernetes.io/defaultTolerations of namespace web, or an admission webhook"
        )
    );
    assert_eq!(
        run(gpu_node("gpu-1"), vec![], pod("web/x").tolerates(exact())),
        format!("Nothing makes this pod again: run {delete}, and create it anew without spec.tolerations[0]")
    );
}

/// The same for pods that no toleration let in: the taint to add, the pod to delete, the node's name to take away.
#[test]
fn what_to_do_about_a_pod_that_was_not_let_in_by_a_toleration() {
    let delete = DELETE;
    // Before the taint.
    let owned = || pod("web/x").owned_by("ReplicaSet/shop-1");
    assert_eq!(
        run(gpu_node("gpu-1"), deployment(pod("web/x")).into(), owned()),
        format!("Run {delete}: Deployment web/shop makes another, which the taint keeps off")
    );
    assert_eq!(
        run(gpu_node("gpu-1"), vec![], pod("web/x")),
        format!("Nothing makes this pod again: create it anew under another name, then run {delete}")
    );
    // Without a taint.
    let taint = "Run kubectl taint node gpu-1 dedicated=gpu:NoSchedule. ";
    let untainted = || gpu_node("gpu-1").untainted();
    assert_eq!(
        run(untainted(), deployment(pod("web/x")).into(), owned()),
        format!("{taint}Then run {delete}: Deployment web/shop makes another, which the taint keeps off")
    );
    assert_eq!(
        run(untainted(), vec![], pod("web/x")),
        format!("{taint}Nothing makes this pod again: create it anew under another name, then run {delete}")
    );
    assert_eq!(
        run(untainted().taint("team", "x", "NoSchedule"), vec![], pod("web/x")),
        format!("{taint}Nothing makes this pod again: create it anew under another name, then run {delete}")
    );
    assert_eq!(
        run(untainted(), deployment(pod("web/x").tolerates(exact())).into(), owned().tolerates(exact())),
        format!(
            "{taint}Remove spec.template.spec.tolerations[0] from Deployment web/shop: the pods that replace these stay \
             off GPU nodes"
        )
    );
    // kubectl takes no second value for a key and an effect by itself.
    assert_eq!(
        run(untainted().taint("dedicated", "GPU", "NoSchedule"), deployment(pod("web/x")).into(), owned()),
        format!(
            "Run kubectl taint node gpu-1 dedicated=gpu:NoSchedule --overwrite. Then run {delete}: Deployment web/shop \
             makes another, which the taint keeps off"
        )
    );
    // By the node's name.
    assert_eq!(
        run(gpu_node("gpu-1"), vec![], pod("web/x").edit(named)),
        format!("Nothing makes this pod again: run {delete}, and create it anew without spec.nodeName")
    );
    assert_eq!(
        run(gpu_node("gpu-1"), deployment(pod("web/x").on("gpu-1")).into(), owned().edit(named)),
        "Remove spec.template.spec.nodeName from Deployment web/shop: the pods that replace these stay off GPU nodes"
    );
    assert_eq!(
        run(
            gpu_node("gpu-1"),
            deployment(pod("web/x").on("gpu-1").tolerates(exact())).into(),
            owned().tolerates(exact()).edit(named)
        ),
        "Remove spec.template.spec.nodeName and spec.template.spec.tolerations[0] from Deployment web/shop: the pods that \
         replace these stay off GPU nodes"
    );
}

#[test]
fn each_way_in_is_told_in_words() {
    let message = |node, pod: Pod| {
        let audit = Cluster::new().object(node).object(pod.on("gpu-1")).audit();
        told(&audit).0.to_owned()
    };
    let start = "Pod web/x (BestEffort) requests no GPU and takes 1 of 110 pod places of node gpu-1 of pool nvidia; ";
    assert_eq!(
        message(gpu_node("gpu-1"), pod("web/x").tolerates(exact())),
        format!(
            "{start}spec.tolerations[0] {{key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}} tolerates the \
             taint dedicated=gpu:NoSchedule"
        )
    );
    assert_eq!(
        message(gpu_node("gpu-1"), pod("web/x").edit(named)),
        format!("{start}spec.nodeName names the node, past the scheduler")
    );
    assert_eq!(
        message(gpu_node("gpu-1"), pod("web/x")),
        format!(
            "{start}it does not tolerate the taint dedicated=gpu:NoSchedule: it was there before, or was put there past \
             the scheduler"
        )
    );
    assert_eq!(
        message(gpu_node("gpu-1").untainted(), pod("web/x")),
        format!("{start}the node has no taint that would keep it off")
    );
    let unknown =
        gpu_node("gpu-1").edit(|node| drop(node["status"]["allocatable"].as_object_mut().unwrap().remove("pods")));
    assert!(
        message(unknown, pod("web/x").requests("ephemeral-storage", "1Gi"))
            .contains("takes 1Gi ephemeral storage, 1 pod place of")
    );
}

/// Only ordinary pods on GPU nodes are found, and of those none that leaves already.
#[test]
fn who_belongs_there_or_is_leaving_is_no_finding() {
    let deleting =
        pod("web/leaving").on("gpu-1").edit(|pod| pod["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z".into());
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(node("cpu-1"))
        .object(pod("ml/train").gpus(8).placed().on("gpu-1"))
        .object(pod("web/agent").owned_by("DaemonSet/agent").on("gpu-1"))
        .object(pod("kube-system/dns").on("gpu-1"))
        .object(pod("web/shop").on("cpu-1"))
        .object(deleting);
    let audit = cluster.audit();
    assert_eq!(found(&audit, "ordinary-pod-on-gpu-node"), [""; 0]);
    assert_eq!(occupant(&audit, "web/leaving").class, Class::Ordinary);
    assert_eq!(
        (audit.nodes.len(), &*audit.nodes[0].name, &audit.nodes[0].pools),
        (1, "gpu-1", &vec!["nvidia".to_owned()])
    );
}

/// A pod that takes what blocks GPUs is worse than one that takes something else.
#[test]
fn a_pod_that_blocks_gpus_is_severe() {
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(pod("ml/train").gpus(1).requests("cpu", "8").placed().on("gpu-1"))
        .object(pod("web/greedy").requests("cpu", "16").on("gpu-1"))
        .object(pod("web/modest").requests("memory", "1Gi").on("gpu-1"));
    let audit = cluster.audit();
    let severities: Vec<_> =
        findings(&audit, "ordinary-pod-on-gpu-node").map(|one| (&*one.object.name, one.severity)).collect();
    assert_eq!(severities, [("greedy", Severity::High), ("modest", Severity::Medium)]);
}

/// A name out of a file may hold anything: it neither steers a terminal nor a shell.
#[test]
fn a_name_that_no_api_server_takes_does_no_harm() {
    let odd = pod("web/x").on("gpu-1").edit(|pod| pod["metadata"]["name"] = "x; reboot '\u{1b}[2J".into());
    let audit = Cluster::new().objects([gpu_node("gpu-1"), node("web-1")]).object(odd).audit();
    let (message, action) = told(&audit);
    assert!(action.ends_with(r"kubectl delete pod --namespace web $'x; reboot \'\U0000001b[2J'"), "{action}");
    assert!(!message.contains('\u{1b}') && !action.contains('\u{1b}'));
}
