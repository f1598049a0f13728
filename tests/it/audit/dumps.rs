//! What is concluded from the files of a cluster, and what is said to be missing in them.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use gpufence::audit::snapshot::Builder;
use gpufence::audit::{Audit, Change, Resource, Snapshot, What, Which, audit, what_if};
use gpufence::report::audit::{Shown, facts, html, markdown, text, verdict};

use super::cluster::{CONTRACT, Cluster, NOW, Pod, findings, found, gpu_node, node, owners, pod, policy, workload};

fn snapshot_of(texts: &[String]) -> Snapshot {
    let policy = policy(CONTRACT);
    let mut builder = Builder::new(&policy);
    for (index, text) in texts.iter().enumerate() {
        builder.take_all(&format!("{index}.json"), text.as_bytes());
    }
    builder.completes_as_dumped();
    builder.finish()
}

fn gaps(cluster: &Cluster) -> Vec<String> {
    audited(&[cluster.list().to_string()]).gaps
}

fn audited(texts: &[String]) -> Audit {
    audit(&policy(CONTRACT), &snapshot_of(texts), "cluster.json", NOW)
}

/// A cluster with a pod of the system, so that it is no dump of one namespace.
fn whole() -> Cluster {
    Cluster::new().object(gpu_node("gpu-1")).objects([pod("kube-system/dns").on("gpu-1"), pod("web/shop").on("gpu-1")])
}

const NONE: [&str; 0] = [];

fn unknown_owner(kinds: &str, reach: &str) -> String {
    format!(
        "{kinds} is among the files, though pods are made by such: nothing is concluded about their templates, nor about who \
         makes those pods in the end{reach}"
    )
}

/// A whole dump of a cluster that has no disruption budget, no event and no StatefulSet lacks nothing.
#[test]
fn what_a_cluster_does_not_have_is_no_gap() {
    assert_eq!(gaps(&whole()), NONE);
    let snapshot = snapshot_of(&[whole().list().to_string()]);
    assert!(snapshot.knows_all(Resource::Nodes) && snapshot.knows_all(Resource::Pods));
    assert!(!snapshot.knows_all(Resource::Workloads), "nothing shows that there are none");
    let deployed = whole().object(workload("Deployment", "web/idle", pod("web/x")));
    assert!(snapshot_of(&[deployed.list().to_string()]).knows_all(Resource::Workloads));
}

/// Each kind of owner that pods name, and that is not there, is named; with it no more.
#[test]
fn owners_that_pods_name_are_missing_by_kind() {
    let owned = |owner: &str| whole().object(pod("web/owned").owned_by(owner).on("gpu-1"));
    for (owner, kinds, reach) in [
        ("DaemonSet/agent", "no DaemonSet", ", nor about which DaemonSets reach GPU nodes"),
        ("ReplicaSet/shop-5d4f8c7b9c", "no Deployment and no ReplicaSet", ""),
        ("StatefulSet/db", "no StatefulSet", ""),
        ("Job/train", "no Job", ""),
        ("Job/train-29000000", "no CronJob and no Job", ""),
        ("ReplicationController/old", "no ReplicationController", ""),
    ] {
        assert_eq!(gaps(&owned(owner)), [unknown_owner(kinds, reach)], "{owner}");
        let (kind, name) = owner.split_once('/').unwrap();
        let given = owned(owner).object(workload(kind, &format!("web/{name}"), pod("web/x")));
        assert_eq!(gaps(&given), NONE, "{owner}");
        let snapshot = snapshot_of(&[given.list().to_string()]);
        assert!(snapshot.knows_all(Resource::Workloads), "{owner}");
        // Another kind of workload says nothing about this one.
        let other = if kind == "Job" { "StatefulSet" } else { "Job" };
        let other = owned(owner).object(workload(other, "web/other", pod("web/x")));
        assert_eq!(gaps(&other), [unknown_owner(kinds, reach)], "{owner}");
        assert!(!snapshot_of(&[other.list().to_string()]).knows_all(Resource::Workloads), "{owner}");
    }
    let mut set = workload("ReplicaSet", "web/shop-1", pod("web/x"));
    set["metadata"]["ownerReferences"] = owners("Deployment/shop");
    let without_deployment = owned("ReplicaSet/shop-1").object(set);
    assert_eq!(gaps(&without_deployment), [unknown_owner("no Deployment", "")]);
    // Of what is never read nothing is missing.
    assert_eq!(gaps(&owned("CloneSet/c")), NONE);
    assert_eq!(gaps(&owned("Node/gpu-1")), NONE);
}

#[test]
fn nodes_and_pods_that_are_missing_are_named() {
    let only = |kinds: &[&str]| {
        let mut cluster = whole();
        cluster.objects.retain(|object| kinds.iter().any(|kind| object["kind"] == *kind));
        cluster
    };
    assert_eq!(
        gaps(&only(&["Node", "Namespace"])),
        [
            "no pod is among the files, though nodes are: nothing is concluded about who is on them and about what is free"
        ]
    );
    let without_nodes = gaps(&only(&["Pod", "Namespace"]));
    assert_eq!(
        without_nodes[0],
        "no node is among the files, though pods are: nothing is concluded about nodes, about who is on GPU nodes and about \
         what is free there"
    );
    assert_eq!(
        gaps(&only(&["Pod", "Node"])),
        [
            "not all namespaces are among the files, for every cluster has default and kube-system: whether the contract \
             allows any that does not exist is not concluded"
        ]
    );
    let manifest = workload("Deployment", "web/shop", pod("web/x"));
    assert_eq!(
        audited(&[manifest.to_string()]).gaps,
        [
            "neither nodes nor pods of a cluster are among the files: only what the objects themselves say is judged, and \
             nothing is concluded about what runs where"
        ]
    );
}

#[test]
fn a_dump_of_one_namespace_is_none_of_the_cluster() {
    let one = Cluster::new().object(gpu_node("gpu-1")).objects([pod("web/a").on("gpu-1"), pod("web/b").on("gpu-1")]);
    assert_eq!(
        gaps(&one),
        [
            "pods of one namespace only: those of web are among the files, and those of kube-system, which every cluster \
             has, are not; nothing is concluded about what is free, and little about who is on GPU nodes"
        ]
    );
    assert!(!snapshot_of(&[one.list().to_string()]).knows_all(Resource::Pods));
    assert_eq!(gaps(&one.object(pod("kube-system/dns"))), NONE);
}

/// A list without items says that there is nothing, in every form in which it comes.
#[test]
fn an_empty_list_is_complete() {
    let rest = Cluster::new().object(gpu_node("gpu-1")).list().to_string();
    let list = |kind: &str, items: Value| json!({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items});
    for empty in [
        list("PodList", json!([])).to_string(),
        list("PodList", Value::Null).to_string(),
        r#"{"items": [], "kind": "PodList", "apiVersion": "v1"}"#.to_owned(),
        list("List", json!([list("PodList", json!([]))])).to_string(),
    ] {
        let snapshot = snapshot_of(&[rest.clone(), empty.clone()]);
        assert!(snapshot.knows_all(Resource::Pods), "{empty}");
        assert_eq!((snapshot.gaps, snapshot.faults), (vec![], vec![]), "{empty}");
    }
    let events = list("EventList", json!([])).to_string();
    assert!(snapshot_of(&[rest.clone(), events]).knows_all(Resource::Events));
    assert!(!snapshot_of(&[rest, list("List", json!([])).to_string()]).knows_all(Resource::Pods));
}

/// What breaks off in the middle is not all there is of any kind in it.
#[test]
fn a_file_that_breaks_off_is_complete_in_nothing() {
    let text = whole().list().to_string();
    let cut = text[..text.len() - 40].to_owned();
    let snapshot = snapshot_of(std::slice::from_ref(&cut));
    assert!(!snapshot.knows_all(Resource::Nodes) && !snapshot.knows_all(Resource::Pods), "{:?}", snapshot.complete);
    assert!(
        snapshot.gaps[1].starts_with("the pods are not all known, since what holds them breaks off: "),
        "{:?}",
        snapshot.gaps
    );
    let audit = audited(&[cut]);
    assert!(facts(&audit).starts_with("The pods are not known: what is free is not known"), "{}", facts(&audit));
}

/// Events matter where a pod waits of which nobody says why.
#[test]
fn events_are_missing_where_a_pod_waits_without_a_word() {
    let waits = |pod: Pod| whole().object(pod.phase("Pending"));
    assert_eq!(
        gaps(&waits(pod("ml/waits").gpus(1))),
        [
            "no event is among the files, though 1 pod waits without a word of the scheduler: what it would say of that is \
             not concluded"
        ]
    );
    assert_eq!(gaps(&whole().object(pod("ml/waits").gpus(1).unschedulable("0/1 nodes are available"))), NONE);
    assert_eq!(gaps(&waits(pod("ml/bound").on("gpu-1"))), NONE);
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "web"},
        "reason": "Pulled", "involvedObject": {"kind": "Pod", "namespace": "web", "name": "shop"}});
    assert_eq!(gaps(&waits(pod("ml/waits").gpus(1)).object(event)), NONE);
}

/// Without pods nothing is said to be free, to be in nobody's way, or to stay.
#[test]
fn without_pods_no_report_says_what_is_free() {
    let nodes = Cluster::new().object(gpu_node("gpu-1"));
    let said = "The pods are not known: what is free is not known, nor who is on GPU nodes.";
    let unknown = audited(&[nodes.list().to_string()]);
    assert_eq!(verdict(&unknown).1, "Nothing that is known breaks the contract, and not everything is known.");
    for report in [text(&unknown, Shown::default()), markdown(&unknown, Shown::default())] {
        assert!(report.contains(said), "{report}");
    }
    // The script of the page has the sentence in any case.
    let paragraph = format!("<p>{said}</p>");
    assert!(html(&unknown).contains(&paragraph));
    assert_eq!(serde_json::to_value(&unknown).unwrap()["summary"]["podsUnknown"], true);
    let change = Change { what: What::TaintNoexecute, nodes: Which::OfPool, pool: None };
    let ask = |texts: &[String]| what_if(&policy(CONTRACT), &snapshot_of(texts), &change, NOW).unwrap().verdict;
    assert!(ask(&[nodes.list().to_string()]).starts_with("The pods are not all known: who would be evicted, "));
    let empty = json!({"kind": "PodList", "apiVersion": "v1", "items": []}).to_string();
    assert_eq!(ask(&[nodes.list().to_string(), empty.clone()]), "No pod would be evicted.");
    let known = audited(&[nodes.list().to_string(), empty]);
    assert!(!html(&known).contains(&paragraph));
    assert_eq!((facts(&known), verdict(&known).1), (String::new(), "Nothing breaks the contract.".into()));
    assert!(serde_json::to_value(&known).unwrap()["summary"].get("podsUnknown").is_none());
}

const UNMANAGED: &str = "the dump has no managed fields, so that pods whose creator wrote spec.nodeName are not told from \
                         those that the scheduler placed: dump with --show-managed-fields";

/// kubectl leaves the managed fields out, by which a pod that was bound is told from one that named its node.
#[test]
fn a_dump_without_managed_fields_says_so() {
    let mut cluster = whole();
    for object in &mut cluster.objects {
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
    }
    assert_eq!(gaps(&cluster), [UNMANAGED]);
    // One pod that has them shows that they were asked for.
    assert_eq!(gaps(&cluster.clone().object(pod("web/other").on("gpu-1"))), NONE);
    cluster.objects.retain(|object| object["kind"] != "Pod");
    assert_eq!(gaps(&cluster)[0].split(',').next().unwrap(), "no pod is among the files");
    // What was saved is known, and what was not known when it was saved still is not.
    let saved = |snapshot: &Snapshot| {
        let mut text = Vec::new();
        snapshot.save(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    let live = whole().snapshot(&policy(CONTRACT));
    assert_eq!(audited(&[saved(&live)]).gaps, NONE);
    let dumped = snapshot_of(&[{
        let mut cluster = whole();
        cluster
            .objects
            .iter_mut()
            .for_each(|object| drop(object["metadata"].as_object_mut().unwrap().remove("managedFields")));
        cluster.list().to_string()
    }]);
    assert_eq!(audited(&[saved(&dumped)]).gaps, [UNMANAGED]);
}

/// Two objects that are called alike are one only if their uid says so, or what they are.
#[test]
fn different_objects_of_one_name_are_named() {
    let node = |uid: &str| gpu_node("gpu-1").edit(|node| node["metadata"]["uid"] = uid.into());
    let twice = |object: &str| {
        format!(
            "two different objects among the files are {object}: the first counts, and nothing is concluded about the other"
        )
    };
    let two = whole().object(node("another"));
    assert_eq!(gaps(&two), [twice("Node gpu-1")]);
    // The same, seen later.
    let later = gpu_node("gpu-1").edit(|node| node["status"]["heartbeat"] = "later".into());
    assert_eq!(gaps(&whole().object(later)), NONE);
    let manifest = |cpu: &str| {
        let mut object = workload("Deployment", "web/shop", pod("web/x").requests("cpu", cpu));
        object["metadata"].as_object_mut().unwrap().remove("uid");
        object
    };
    assert_eq!(gaps(&whole().objects([manifest("1"), manifest("1")])), NONE);
    assert_eq!(gaps(&whole().objects([manifest("1"), manifest("2")])), [twice("Deployment web/shop")]);
    let pods = [pod("web/a"), pod("web/a").edit(|pod| pod["metadata"]["uid"] = "b".into())];
    assert_eq!(gaps(&whole().objects(pods)), [twice("Pod web/a")]);
    // Templates that leave the name to the API server are not called alike.
    let unnamed = |cpu: &str| {
        pod("web/a")
            .requests("cpu", cpu)
            .edit(|pod| pod["metadata"] = json!({"generateName": "a-", "namespace": "web"}))
    };
    assert_eq!(gaps(&whole().objects([unnamed("1"), unnamed("2")])), NONE);
}

fn exact() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

fn action(cluster: &Cluster, rule: &str, kind: &str) -> String {
    let audit = cluster.audit();
    let finding = findings(&audit, rule).find(|finding| &*finding.object.kind == kind);
    finding.unwrap_or_else(|| panic!("{:#?}", audit.findings)).action.clone()
}

fn owned_by(mut object: Value, api_version: &str, kind: &str, name: &str) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true}]);
    object
}

/// What an owner of a kind that is not read makes is changed there.
#[test]
fn a_template_is_changed_where_its_owner_is() {
    let template = || pod("web/x").tolerates(exact());
    for (kind, api_version, owner) in [
        ("ReplicaSet", "argoproj.io/v1alpha1", "Rollout"),
        ("Job", "jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("StatefulSet", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ] {
        let made = owned_by(workload(kind, "web/roll-abc", template()), api_version, owner, "roll");
        let cluster = Cluster::new().object(made).object(template().owned_by(&format!("{kind}/roll-abc")).on("gpu-1"));
        let expected = format!("Remove spec.tolerations[0] of the pods that {owner} web/roll makes.");
        assert_eq!(action(&cluster, "toleration-outside-allowlist", kind), expected);
        assert_eq!(action(&cluster, "toleration-outside-allowlist", "Pod"), expected);
        let gpu = owned_by(workload(kind, "ml/roll-abc", pod("ml/x").gpus(1)), api_version, owner, "roll");
        let action = action(&Cluster::new().object(gpu), "template-without-placement", kind);
        let end = format!(
            "to spec.tolerations and accelerator: nvidia to spec.nodeSelector of the pods that {owner} ml/roll makes."
        );
        assert!(action.ends_with(&end), "{action}");
    }
}

/// A Job is made anew, whatever is wrong with its template.
#[test]
fn the_template_of_a_job_is_never_changed() {
    let job = |pod: Pod| Cluster::new().object(workload("Job", "web/once", pod));
    let anew =
        |how: &str| format!("Delete Job web/once and create it anew {how}: the template of a Job cannot change.");
    let field = "spec.template.spec.tolerations[0]";
    assert_eq!(
        action(&job(pod("web/x").tolerates(exact())), "toleration-outside-allowlist", "Job"),
        anew(&format!("without {field}"))
    );
    let odd = json!({"key": "dedicated", "operator": "Like", "value": "gpu"});
    assert_eq!(
        action(&job(pod("web/x").tolerates(odd)), "not-understood", "Job"),
        anew(&format!("with {field}.operator corrected"))
    );
    assert_eq!(
        action(&job(pod("web/x").gpus(1)), "gpu-request-outside-allowlist", "Job"),
        anew(
            "without spec.template.spec.containers[0].resources.requests[\"nvidia.com/gpu\"], or in a namespace that may \
             use the pool"
        )
    );
    // Of a pod the same, though nobody gave its Job.
    let alone = Cluster::new()
        .objects([gpu_node("gpu-1"), node("web-1")])
        .object(pod("web/once-x").tolerates(exact()).owned_by("Job/once").on("gpu-1"));
    assert_eq!(action(&alone, "toleration-outside-allowlist", "Pod"), anew(&format!("without {field}")));
    let ordinary = action(&alone, "ordinary-pod-on-gpu-node", "Pod");
    assert!(ordinary.starts_with("Delete Job web/once and create it anew without the toleration "), "{ordinary}");
}

/// A Job that has ended makes no pods: nothing is said of its template, and nothing is to be exempt for it.
#[test]
fn a_job_that_has_ended_is_no_template() {
    let job = |status: Value| {
        let mut job = workload("Job", "web/once", pod("web/x").tolerates(exact()));
        job["status"] = status;
        let condition = "toleration-outside-allowlist";
        let cluster = Cluster::new().object(owned_by(job, "jobset.x-k8s.io/v1alpha2", "JobSet", "set"));
        let policy = policy(CONTRACT);
        let snapshot = cluster.snapshot(&policy);
        let adopted = gpufence::audit::adopt(&policy, &snapshot, "[]", NOW, NOW + 86_400);
        let mut saved = Vec::new();
        snapshot.save(&mut saved).unwrap();
        let mut again = Builder::new(&policy);
        again.take_all("saved.json", &*saved);
        assert_eq!(again.finish().workloads.len(), snapshot.workloads.len());
        (found(&cluster.audit(), condition).len(), adopted.contains("set") || adopted.contains("once"))
    };
    let condition = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status}]});
    for running in [json!({"active": 1}), condition("Complete", "False"), condition("Suspended", "True")] {
        assert_eq!(job(running.clone()), (1, true), "{running}");
    }
    for ended in
        [condition("Complete", "True"), condition("Failed", "True"), json!({"completionTime": "2026-11-30T00:00:00Z"})]
    {
        assert_eq!(job(ended.clone()), (0, false), "{ended}");
    }
}

/// A dump of pods alone names `ReplicaSets` that Deployments own: what is changed of one is undone.
#[test]
fn a_replica_set_that_nobody_gave_is_its_deployments() {
    let cluster = Cluster::new()
        .objects([gpu_node("gpu-1"), node("web-1")])
        .object(pod("web/shop-5d4f8c7b9c-x").tolerates(exact()).owned_by("ReplicaSet/shop-5d4f8c7b9c").on("gpu-1"));
    let whoever = "whoever owns ReplicaSet web/shop-5d4f8c7b9c (its Deployment, most likely)";
    assert_eq!(
        action(&cluster, "toleration-outside-allowlist", "Pod"),
        format!("Remove spec.template.spec.tolerations[0] of {whoever}.")
    );
    let ordinary = action(&cluster, "ordinary-pod-on-gpu-node", "Pod");
    assert!(ordinary.contains(&format!("from the template of {whoever}, then run kubectl delete pod ")), "{ordinary}");
}

fn run(folder: &std::path::Path, arguments: &[&str], err: Stdio) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
    command.arg("audit").args(arguments).env_clear().current_dir(folder).stdout(Stdio::null()).stderr(err);
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A file with a brace at its beginning may be meant as YAML.
#[test]
fn a_file_that_is_neither_yaml_nor_json_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let manifest = workload("Deployment", "web/shop", pod("web/x")).to_string();
    write("shop.yaml", &manifest);
    for text in ["{{ if .Values.x }}\nkind: {{ .foo }}\n{{ end }}\n", "a: b\n  c: [t.yaml\n", "[a, b\n"] {
        write("broken.yaml", text);
        let (code, err) = run(folder.path(), &["."], Stdio::piped());
        assert_eq!(code, 2, "{err}");
        assert!(err.starts_with("gpufence: ./broken.yaml is neither YAML nor JSON: "), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    // JSON is told as what it is, and YAML in braces is YAML.
    write("broken.yaml", "{\"kind\": ");
    assert!(run(folder.path(), &["."], Stdio::piped()).1.contains("is not JSON of Kubernetes objects: EOF"));
    write("broken.yaml", "{kind: PodTemplate, apiVersion: v1, metadata: {name: a}}\n");
    assert_eq!(run(folder.path(), &["."], Stdio::piped()), (0, String::new()));
}

/// Whoever read the errors may have gone: that is no reason to panic.
#[test]
fn an_error_that_nobody_reads_changes_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run(folder.path(), &["absent.json"], writer.into()).0, 2);
}
