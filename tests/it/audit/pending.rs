use serde_json::{Value, json};

use gpufence::audit::{Audit, Severity};

use super::cluster::{CONTRACT, Cluster, Node, Pod, findings, found, gpu_node, node, pod, workload};

const RULE: &str = "pod-pending";

/// A pod that waits and wants a GPU as the webhook would have completed it.
fn waiting(name: &str) -> Pod {
    pod(name).gpus(1).placed().unschedulable("0/1 nodes are available.")
}

fn explained(cluster: &Cluster) -> Audit {
    let audit = cluster.audit();
    assert_eq!(audit.pending.len(), findings(&audit, RULE).count());
    for (pending, finding) in audit.pending.iter().zip(findings(&audit, RULE)) {
        assert_eq!((&pending.message, &pending.action), (&finding.message, &finding.action));
    }
    audit
}

/// The causes, the message and the action of the only pod that is explained.
fn only(nodes: impl IntoIterator<Item = Node>, pod: Pod) -> (Vec<&'static str>, String, String) {
    let audit = explained(&Cluster::new().objects(nodes).object(pod));
    let [pending] = &audit.pending[..] else { panic!("{:?}", audit.pending) };
    let blocked = pending.causes.contains(&"blocked");
    let severity = if blocked { Severity::High } else { Severity::Medium };
    assert_eq!(findings(&audit, RULE).next().unwrap().severity, severity);
    (pending.causes.clone(), pending.message.clone(), pending.action.clone())
}

fn check(told: &(Vec<&'static str>, String, String), causes: &[&str], message: &str, action: &str) {
    assert_eq!((&told.0[..], &*told.1, &*told.2), (causes, message, action));
}

#[test]
fn a_missing_toleration_is_named_with_the_line_to_add() {
    let pod = || pod("ml/train").gpus(1).selects("accelerator", "nvidia").unschedulable("untolerated taint");
    let message = "1 node of pool nvidia has a taint that it does not tolerate (gpu-1 with dedicated=gpu:NoSchedule).";
    check(
        &only([gpu_node("gpu-1")], pod()),
        &["toleration"],
        message,
        "Add to the tolerations in its template: - {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}",
    );
    // Something makes it anew, and the webhook completes what is new.
    check(
        &only([gpu_node("gpu-1")], pod().owned_by("ReplicaSet/train")),
        &["toleration"],
        message,
        "The webhook gives it the toleration when it is created anew: kubectl delete pod train --namespace ml",
    );
    let audit = Cluster::new()
        .contract(&CONTRACT.replace("mode: enforce", "mode: audit"))
        .object(gpu_node("gpu-1"))
        .object(pod().owned_by("ReplicaSet/train"))
        .audit();
    assert!(audit.pending[0].action.starts_with("Add to the tolerations"), "{}", audit.pending[0].action);
}

#[test]
fn a_namespace_outside_the_allowlist_gets_no_advice_to_tolerate() {
    let (causes, _, action) = only([gpu_node("gpu-1")], pod("web/train").gpus(1).unschedulable("taint"));
    assert_eq!(causes, ["toleration"]);
    assert_eq!(action, "Namespace web may not use pool nvidia (allowed: ml): run it in one that may");
}

#[test]
fn a_taint_that_the_contract_does_not_name_is_to_be_removed() {
    let tainted = gpu_node("gpu-1").taint("maintenance", "", "NoSchedule");
    check(
        &only([tainted], waiting("ml/train")),
        &["toleration"],
        "1 node of pool nvidia has a taint that it does not tolerate (gpu-1 with maintenance:NoSchedule).",
        "Remove the taint, which the contract does not name (kubectl taint node gpu-1 maintenance:NoSchedule-), or let \
         the contract name it",
    );
}

#[test]
fn a_selector_that_finds_nothing_is_named_with_what_there_is() {
    let tolerates = |pod: Pod| {
        pod.gpus(1)
            .tolerates(json!({"key": "dedicated", "operator": "Exists"}))
            .unschedulable("node(s) didn't match Pod's node affinity/selector")
    };
    check(
        &only([gpu_node("gpu-1"), gpu_node("gpu-2")], tolerates(pod("ml/train").selects("accelerator", "Nvidia"))),
        &["label"],
        "2 nodes of pool nvidia lack accelerator=Nvidia, which it selects (nearest is gpu-1 with accelerator=nvidia).",
        "Correct the nodeSelector in its template: accelerator: nvidia",
    );
    check(
        &only([gpu_node("gpu-1").without_label("accelerator")], waiting("ml/train")),
        &["label"],
        "1 node of pool nvidia lacks accelerator=nvidia, which it selects (gpu-1 without such a label).",
        "Label the node: kubectl label node gpu-1 accelerator=nvidia",
    );
    check(
        &only([gpu_node("gpu-1").label("accelerator", "NVIDIA")], waiting("ml/train")),
        &["label"],
        "1 node of pool nvidia lacks accelerator=nvidia, which it selects (gpu-1 with accelerator=NVIDIA).",
        "Label the node: kubectl label node gpu-1 accelerator=nvidia --overwrite",
    );
    check(
        &only([gpu_node("gpu-1")], waiting("ml/train").selects("zone", "a")),
        &["label"],
        "1 node of pool nvidia lacks zone=a, which it selects (gpu-1 without such a label).",
        "Correct or remove zone in the nodeSelector of its template",
    );
    let affinity = |pod: &mut Value| {
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
            json!([{"matchExpressions": [{"key": "accelerator", "operator": "In", "values": ["amd"]}]}]);
    };
    check(
        &only([gpu_node("gpu-1")], tolerates(pod("ml/train")).edit(affinity)),
        &["label"],
        "1 node of pool nvidia is not among those that its required node affinity admits (gpu-1).",
        "Correct spec.affinity.nodeAffinity in its template",
    );
}

#[test]
fn a_pod_that_lacks_both_is_told_both() {
    let (causes, message, action) =
        only([gpu_node("gpu-1")], pod("ml/train").gpus(1).selects("accelerator", "a100").unschedulable("x"));
    assert_eq!(
        action,
        "Add to the tolerations in its template: - {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}; and: \
         Correct the nodeSelector in its template: accelerator: nvidia"
    );
    assert_eq!(causes, ["toleration", "label"]);
    assert_eq!(
        message,
        "1 node of pool nvidia has a taint that it does not tolerate (gpu-1 with dedicated=gpu:NoSchedule); 1 node of pool \
         nvidia lacks accelerator=a100, which it selects (gpu-1 with accelerator=nvidia)."
    );
}

#[test]
fn gpus_that_are_not_free_are_counted() {
    let nodes = || [gpu_node("gpu-1"), gpu_node("gpu-2")];
    let used = |count: i64, on: &str| pod(&format!("ml/on-{on}")).gpus(count).placed().on(on);
    let cluster = || Cluster::new().objects(nodes()).object(used(6, "gpu-1")).object(used(4, "gpu-2"));
    let audit = explained(&cluster().object(waiting("ml/train").gpus(8)));
    assert_eq!(audit.pending[0].causes, ["gpus"]);
    assert_eq!(audit.pending[0].pool.as_deref(), Some("nvidia"));
    assert_eq!(
        audit.pending[0].message,
        "2 nodes of pool nvidia that it may be on have at most 4 nvidia.com/gpu free (gpu-2), and it asks for 8."
    );
    assert_eq!(
        audit.pending[0].action,
        "Wait until 8 are free on one node, ask for at most 4, or add a node of pool nvidia"
    );
    let full = Cluster::new().object(gpu_node("gpu-1")).object(used(8, "gpu-1")).object(waiting("ml/train"));
    let audit = explained(&full);
    assert_eq!(
        audit.pending[0].message,
        "1 node of pool nvidia that it may be on has no nvidia.com/gpu free, and it asks for 1."
    );
    check(
        &only(nodes(), waiting("ml/train").gpus(16)),
        &["gpus"],
        "2 nodes of pool nvidia that it may be on have at most 8 nvidia.com/gpu, and it asks for 16.",
        "Ask for at most 8 nvidia.com/gpu in one pod",
    );
    check(
        &only(nodes(), pod("ml/slice").requests("nvidia.com/mig-1g.5gb", "1").placed().unschedulable("x")),
        &["gpus"],
        "2 nodes of pool nvidia that it may be on have no nvidia.com/mig-1g.5gb, and it asks for 1.",
        "Correct the resource, or add a node of pool nvidia that offers nvidia.com/mig-1g.5gb",
    );
    // A pod that has ended holds none.
    let over = used(8, "gpu-1").phase("Succeeded");
    let audit = Cluster::new().object(gpu_node("gpu-1")).object(over).object(waiting("ml/train")).audit();
    assert_eq!(audit.pending[0].causes, ["unknown"]);
}

#[test]
fn ordinary_pods_that_took_what_a_gpu_needs_are_named() {
    let shop = |name: &str, memory: &str| {
        pod(&format!("web/{name}")).requests("memory", memory).owned_by("ReplicaSet/shop-1").on("gpu-1")
    };
    let mut replica_set = workload("ReplicaSet", "web/shop-1", pod("web/x"));
    replica_set["metadata"]["ownerReferences"] = super::cluster::owners("Deployment/shop");
    let cluster = |fenced: bool| {
        let gpus = gpu_node("gpu-1");
        Cluster::new()
            .objects([if fenced { gpus } else { gpus.untainted() }, node("web-1")])
            .object(replica_set.clone())
            .object(workload("Deployment", "web/shop", pod("web/x")))
            .object(shop("shop-1-a", "250Gi"))
            .object(shop("shop-1-b", "200Gi"))
            .object(pod("web/cache").requests("memory", "50Gi").on("gpu-1"))
            .object(waiting("ml/train").requests("memory", "64Gi"))
    };
    let audit = explained(&cluster(false));
    let [pending] = &audit.pending[..] else { panic!("{:?}", audit.pending) };
    assert_eq!(pending.causes, ["blocked"]);
    assert_eq!(
        pending.message,
        "node gpu-1 has 8 GPUs free, but only 12Gi of the 64Gi memory that it asks for: ordinary pods take 500Gi memory, \
         most of it Deployment web/shop (2 pods, 450Gi memory)."
    );
    assert_eq!(
        pending.action,
        "Free gpu-1 of Deployment web/shop (web/shop-1-a, web/shop-1-b). See first what its taint would do to all that is \
         there: gpufence audit --what-if taint --node gpu-1; then: Run kubectl taint node gpu-1 dedicated=gpu:NoSchedule. \
         Then run kubectl delete pod --namespace web shop-1-a: Deployment web/shop makes another, which the taint keeps off"
    );
    assert_eq!(findings(&audit, RULE).next().unwrap().severity, Severity::High);
    assert_eq!(
        explained(&cluster(true)).pending[0].action,
        "Free gpu-1 of Deployment web/shop (web/shop-1-a, web/shop-1-b): Run kubectl delete pod --namespace web shop-1-a: \
         Deployment web/shop makes another, which the taint keeps off"
    );
}

/// Who is let in by a toleration comes back with it.
#[test]
fn the_toleration_that_lets_the_takers_in_has_to_go() {
    let broad = |pod: Pod| pod.tolerates(json!({"operator": "Exists"}));
    let cluster = Cluster::new()
        .objects([gpu_node("gpu-1"), node("web-1")])
        .object(workload("StatefulSet", "web/db", broad(pod("web/x"))))
        .object(broad(pod("web/db-0")).requests("cpu", "60").owned_by("StatefulSet/db").on("gpu-1"))
        .object(waiting("ml/train").requests("cpu", "8"));
    let pending = &explained(&cluster).pending[0];
    assert_eq!(pending.causes, ["blocked"]);
    assert_eq!(
        pending.message,
        "node gpu-1 has 8 GPUs free, but only 4 of the 8 CPU that it asks for: ordinary pods take 60 CPU, most of it \
         StatefulSet web/db (1 pod, 60 CPU)."
    );
    assert_eq!(
        pending.action,
        "Free gpu-1 of StatefulSet web/db (web/db-0): Remove spec.template.spec.tolerations[0] from StatefulSet web/db: the \
         pods that replace these stay off GPU nodes"
    );
}

/// What is to be done is for the node that is nearest, and never for a taint that it has not.
#[test]
fn the_action_is_for_the_nearest_node() {
    let tolerates = |pod: Pod| pod.placed().edit(|pod| drop(pod["spec"]["nodeSelector"].take()));
    let nodes = [
        gpu_node("gpu-1").taint("maintenance", "yes", "NoSchedule"),
        gpu_node("gpu-2").untainted().taint("Dedicated", "gpu", "NoSchedule"),
        gpu_node("gpu-3"),
    ];
    check(
        &only(nodes.clone(), tolerates(pod("ml/train").gpus(1)).selects("accelerator", "h100").unschedulable("x")),
        &["label", "toleration"],
        "3 nodes of pool nvidia lack accelerator=h100, which it selects (nearest is gpu-3 with accelerator=nvidia); 2 nodes \
         of pool nvidia have a taint that it does not tolerate (nearest is gpu-1 with maintenance=yes:NoSchedule).",
        "Correct the nodeSelector in its template: accelerator: nvidia",
    );
    let [first, second, _] = nodes;
    check(
        &only([second, first], waiting("ml/train")),
        &["toleration"],
        "2 nodes of pool nvidia have a taint that it does not tolerate (nearest is gpu-1 with maintenance=yes:NoSchedule).",
        "Remove the taint, which the contract does not name (kubectl taint node gpu-1 maintenance=yes:NoSchedule-), or let \
         the contract name it",
    );
    // Its own taint passes by itself.
    let starting = gpu_node("gpu-1").taint("node.cilium.io/agent-not-ready", "", "NoExecute");
    assert_eq!(
        only([starting], waiting("ml/train")).2,
        "Wait: it goes by itself; what the node is at says kubectl describe node gpu-1"
    );
}

/// The same pods are ordinary to the explanation and to the nodes' accounts.
#[test]
fn what_the_contract_exempts_took_no_room_as_an_ordinary_pod() {
    let exempt = CONTRACT.replace(
        "exemptions: []",
        "exemptions: [{name: shop, reason: r, namespaces: [web], rules: [toleration-outside-allowlist]}]",
    );
    let takers = [
        (CONTRACT, pod("kube-public/a")),
        (CONTRACT, pod("web/a").edit(|pod| pod["spec"]["priorityClassName"] = "system-cluster-critical".into())),
        (&exempt, pod("web/a").tolerates(json!({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}))),
    ];
    for (contract, taker) in takers {
        let cluster = Cluster::new()
            .contract(contract)
            .object(gpu_node("gpu-1"))
            .object(taker.requests("cpu", "60").on("gpu-1"))
            .object(waiting("ml/train").requests("cpu", "8"));
        let audit = explained(&cluster);
        assert_eq!((&audit.pending[0].causes[..], audit.summary.pods_on_gpu_nodes.ordinary), (&["room"][..], 0));
    }
}

/// The same shortage, of which ordinary pods have no part: it is a DaemonSet's, the system's or GPU pods'.
#[test]
fn a_shortage_that_others_made_is_not_laid_to_ordinary_pods() {
    let takers: [Pod; 3] = [
        pod("web/agent").owned_by("DaemonSet/agent"),
        pod("kube-system/dns").owned_by("ReplicaSet/dns"),
        pod("ml/other").gpus(1).placed(),
    ];
    for taker in takers {
        let cluster = Cluster::new()
            .object(gpu_node("gpu-1"))
            .object(taker.requests("cpu", "60").on("gpu-1"))
            .object(waiting("ml/train").requests("cpu", "8"));
        let audit = explained(&cluster);
        assert_eq!(audit.pending[0].causes, ["room"]);
        let message = &audit.pending[0].message;
        assert!(message.ends_with(" free, but only 4 of the 8 CPU that it asks for."), "{message}");
        assert_eq!(findings(&audit, RULE).next().unwrap().severity, Severity::Medium);
    }
}

#[test]
fn pod_slots_run_out_as_well() {
    let small = gpu_node("gpu-1").has("pods", "2");
    let cluster = Cluster::new()
        .object(small)
        .object(pod("web/a").on("gpu-1"))
        .object(pod("web/b").on("gpu-1"))
        .object(waiting("ml/train"));
    let audit = explained(&cluster);
    assert_eq!(audit.pending[0].causes, ["blocked"]);
    assert_eq!(
        audit.pending[0].message,
        "node gpu-1 has 8 GPUs free, but no free pod slot: ordinary pods take 2 pod slots, most of it Pod web/a (1 pod, 1 pod \
         slot)."
    );
}

#[test]
fn nodes_that_take_no_pods_are_named() {
    check(
        &only([gpu_node("gpu-1").cordoned(), gpu_node("gpu-2").cordoned()], waiting("ml/train")),
        &["room"],
        "2 nodes are cordoned (gpu-1, gpu-2).",
        "Let pods onto the node again: kubectl uncordon gpu-1",
    );
    check(
        &only([gpu_node("gpu-1").not_ready()], waiting("ml/train")),
        &["room"],
        "1 node is not ready (gpu-1).",
        "See why the node is not ready: kubectl describe node gpu-1",
    );
    // A taint that comes and goes is not one to be tolerated.
    check(
        &only([gpu_node("gpu-1").taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")], waiting("ml/train")),
        &["room"],
        "1 node carries a taint that comes and goes by itself (gpu-1).",
        "Wait: it goes by itself; what the node is at says kubectl describe node gpu-1",
    );
    // As a cluster has it: the taint is there as well, and is not one to be tolerated.
    let cordoned = gpu_node("gpu-1").cordoned().taint("node.kubernetes.io/unschedulable", "", "NoSchedule");
    assert_eq!(only([cordoned], waiting("ml/train")).0, ["room"]);
}

#[test]
fn several_causes_are_told_nearest_first() {
    let nodes = [gpu_node("gpu-1"), gpu_node("gpu-2").cordoned(), gpu_node("gpu-3").label("accelerator", "old")];
    let used = pod("ml/used").gpus(8).placed().on("gpu-1");
    let audit = explained(&Cluster::new().objects(nodes).object(used).object(waiting("ml/train")));
    assert_eq!(audit.pending[0].causes, ["gpus", "room", "label"]);
    assert_eq!(
        audit.pending[0].message,
        "1 node of pool nvidia that it may be on has no nvidia.com/gpu free, and it asks for 1; 1 node is cordoned (gpu-2); 1 \
         node of pool nvidia lacks accelerator=nvidia, which it selects (gpu-3 with accelerator=old)."
    );
}

#[test]
fn a_pool_without_nodes_is_said_so() {
    check(
        &only([node("cpu-1")], waiting("ml/train")),
        &["gpus"],
        "it asks for 1 nvidia.com/gpu, and the cluster has no node of pool nvidia.",
        "Add a node of pool nvidia, or see why its device plugin reports no GPU: kubectl get nodes --selector \
         accelerator=nvidia",
    );
}

#[test]
fn gates_hold_a_pod_back_whatever_room_there_is() {
    let gated = waiting("ml/train").edit(|pod| pod["spec"]["schedulingGates"] = json!([{"name": "queue"}]));
    check(
        &only([gpu_node("gpu-1")], gated),
        &["gates"],
        "scheduling gates hold it back: no scheduler looks at it until they are removed.",
        "Ask who set the gates to remove them: kubectl get pod train --namespace ml --output \
         jsonpath='{.spec.schedulingGates}'",
    );
}

#[test]
fn what_the_specs_do_not_explain_the_scheduler_does() {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "ml"},
        "reason": "FailedScheduling", "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train"},
        "message": "pod has unbound immediate PersistentVolumeClaims.", "lastTimestamp": "2026-11-30T11:00:00Z",
    });
    let cluster = Cluster::new().object(gpu_node("gpu-1")).object(waiting("ml/train")).object(event);
    let pending = &explained(&cluster).pending[0];
    assert_eq!(pending.causes, ["unknown"]);
    assert_eq!(pending.scheduler.as_deref(), Some("pod has unbound immediate PersistentVolumeClaims."));
    assert_eq!(
        pending.message,
        "node gpu-1 has room for it and its spec lets it there; the scheduler says: pod has unbound immediate \
         PersistentVolumeClaims."
    );
    let silent = |created: &str| {
        waiting("ml/train").phase("Pending").edit(|pod| {
            pod["status"] = json!({"phase": "Pending"});
            pod["metadata"]["creationTimestamp"] = created.into();
        })
    };
    let (_, message, _) = only([gpu_node("gpu-1")], silent("2026-11-30T11:58:00Z"));
    assert_eq!(message, "node gpu-1 has room for it and its spec lets it there; no scheduler has said why it waits.");
    // Created a moment ago: its scheduler has not come to it.
    let audit = Cluster::new().object(gpu_node("gpu-1")).object(silent("2026-11-30T11:59:30Z")).audit();
    assert!(audit.pending.is_empty(), "{:?}", audit.pending);
}

#[test]
fn a_pod_without_a_gpu_that_only_gpu_nodes_could_take_is_told_of_the_fence() {
    check(
        &only([gpu_node("gpu-1"), node("cpu-1")], pod("web/shop").selects("accelerator", "nvidia").unschedulable("x")),
        &["toleration"],
        "it requests no GPU and selects 1 GPU node, whose taint dedicated=gpu:NoSchedule it does not tolerate: the fence \
         keeps it off, as it should.",
        "Take accelerator=nvidia out of the nodeSelector in its template, or let it request a GPU",
    );
    check(
        &only([gpu_node("gpu-1"), node("cpu-1")], pod("web/shop").selects("accelerator", "a100").unschedulable("x")),
        &["label"],
        "it selects accelerator=a100, which no node has; the label of pool nvidia is accelerator=nvidia.",
        "Correct the nodeSelector in its template: accelerator: nvidia",
    );
    let large = gpu_node("gpu-1").has("cpu", "128");
    check(
        &only(
            [large, node("cpu-1")],
            pod("web/shop").requests("cpu", "100").requests("memory", "1Gi").unschedulable("x"),
        ),
        &["toleration"],
        "it requests no GPU and could only be on 1 GPU node, whose taint dedicated=gpu:NoSchedule it does not tolerate: \
         the fence keeps it off, as it should.",
        "Add a node without GPUs that it may be on and that holds it (100 CPU, 1Gi memory)",
    );
}

#[test]
fn pods_that_wait_for_other_reasons_are_none_of_ours() {
    let pods = [
        pod("web/volume").unschedulable("pod has unbound immediate PersistentVolumeClaims"),
        pod("web/full").requests("cpu", "60").unschedulable("1 Insufficient cpu"),
        pod("web/nowhere").selects("zone", "b").unschedulable("x"),
        pod("web/huge").requests("cpu", "1000").unschedulable("x"),
        waiting("ml/bound").on("gpu-1"),
        waiting("ml/over").phase("Succeeded"),
        waiting("ml/going").edit(|pod| pod["metadata"]["deletionTimestamp"] = "2026-11-30T11:00:00Z".into()),
        waiting("ml/manifest").edit(|pod| {
            pod.as_object_mut().unwrap().remove("status");
            for key in ["uid", "creationTimestamp"] {
                pod["metadata"].as_object_mut().unwrap().remove(key);
            }
        }),
    ];
    let busy = pod("web/busy").requests("cpu", "60").on("cpu-1");
    let audit = Cluster::new().object(gpu_node("gpu-1")).object(node("cpu-1")).object(busy).objects(pods).audit();
    assert_eq!(found(&audit, RULE), [""; 0]);
    assert!(audit.pending.is_empty());
}

/// Replicas have one explanation and a finding each, and the same fingerprint.
#[test]
fn each_replica_is_reported() {
    let replica = |name: &str| waiting(name).gpus(9).owned_by("ReplicaSet/train");
    let audit = explained(&Cluster::new().object(gpu_node("gpu-1")).object(replica("ml/b")).object(replica("ml/a")));
    assert_eq!(found(&audit, RULE), ["Pod ml/a", "Pod ml/b"]);
    let prints: Vec<_> = findings(&audit, RULE).map(|finding| &*finding.fingerprint).collect();
    assert_eq!(prints, ["pod-pending/apps/ReplicaSet/ml/train/nvidia"; 2]);
}

/// What is explained once for all names each pod itself.
#[test]
fn each_pod_is_told_with_its_own_name() {
    let named = |waiting: &dyn Fn(&str) -> Pod| {
        let cluster = Cluster::new().object(gpu_node("gpu-1"));
        let audit = explained(&cluster.objects(["ml/a", "ml/b", "ml/c"].map(waiting)));
        assert_eq!(audit.pending.len(), 3);
        for pending in &audit.pending {
            let end = format!(" {}", pending.object.name);
            assert!(pending.action.contains(&end), "{}", pending.action);
            assert!(!pending.action.contains(char::is_control) && !pending.message.contains(char::is_control));
        }
    };
    named(&waiting);
    named(&|name| waiting(name).edit(|pod| pod["spec"]["schedulingGates"] = json!([{"name": "x"}])));
    let job = |name: &str| format!("Job/{}", name.replace('/', "-"));
    named(&|name| pod(name).gpus(1).selects("accelerator", "nvidia").unschedulable("x").owned_by(&job(name)));
}

/// Whose pods they are makes no difference but where it changes what can be done.
#[test]
fn a_pod_that_nobody_makes_anew_is_not_to_be_deleted() {
    let bare = |name: &str| pod(name).gpus(1).selects("accelerator", "nvidia").unschedulable("x");
    let cluster = Cluster::new().object(gpu_node("gpu-1")).object(bare("ml/a").owned_by("Job/a")).object(bare("ml/b"));
    let audit = explained(&cluster);
    let actions: Vec<_> = audit.pending.iter().map(|pending| pending.action.contains("delete pod a")).collect();
    assert_eq!(actions, [true, false]);
}
