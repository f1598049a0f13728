use serde_json::{Value, json};

use gpufence::audit::Snapshot;
use gpufence::audit::snapshot::{Builder, Qos, stream};

use super::cluster::{CONTRACT, Cluster, gpu_node, owners, pod, policy, workload};

fn read(text: &str) -> Snapshot {
    let policy = policy(CONTRACT);
    let mut builder = Builder::new(&policy);
    builder.take_all("dump.json", text.as_bytes());
    builder.finish()
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    let pods = snapshot.pods.iter().map(|pod| pod.object().to_string());
    snapshot.nodes.iter().map(|node| node.name.to_string()).chain(pods).collect()
}

/// `kubectl get -o json`, a typed list as the API serves it, one with its fields in any order, several documents, and
/// a plain array: all the same.
#[test]
fn objects_come_in_every_form_of_a_list() {
    let (node, pod) = (Value::from(gpu_node("gpu-1")), Value::from(pod("ml/train")));
    let mut bare = pod.clone();
    for key in ["kind", "apiVersion"] {
        bare.as_object_mut().unwrap().remove(key);
    }
    let forms = [
        json!({"apiVersion": "v1", "kind": "List", "items": [node, pod]}).to_string(),
        format!("{node}\n{}", json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [bare]})),
        format!(r#"{node} {{"items": [{bare}], "metadata": {{}}, "kind": "PodList", "apiVersion": "v1"}}"#),
        format!(r#"{{"apiVersion": "v1", "items": [{node}, {pod}], "kind": "List"}}"#),
        format!("[{node}, {pod}]"),
        format!("{node}{pod}"),
        format!(
            r#"{{"apiVersion":"v1","kind":"List","items":[{{"apiVersion":"v1","kind":"List","items":[{node},{pod}]}}]}}"#
        ),
        format!("{:#}", json!({"apiVersion": "v1", "kind": "List", "items": [node, pod]})),
    ];
    for form in forms {
        let snapshot = read(&form);
        assert_eq!(
            (names(&snapshot), &*snapshot.faults),
            (vec!["gpu-1".into(), "Pod ml/train".into()], &[][..]),
            "{form}"
        );
    }
}

/// What came before the end of a file that was cut off is kept, and the cut is named.
#[test]
fn a_file_that_ends_early_is_a_fault_and_not_the_end_of_the_audit() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [Value::from(gpu_node("gpu-1")), Value::from(pod("ml/a"))]});
    let text = list.to_string();
    let snapshot = read(&text[..text.len() - 40]);
    assert_eq!(names(&snapshot), ["gpu-1"]);
    assert!(
        snapshot.faults[0].starts_with("dump.json: is not JSON of Kubernetes objects: EOF"),
        "{:?}",
        snapshot.faults
    );
    let mut called = 0;
    stream("  ".as_bytes(), |_, _, _, _| called += 1).unwrap();
    assert_eq!(called, 0);
}

#[test]
fn an_object_that_cannot_be_read_is_named_and_the_others_are_read() {
    let broken = pod("ml/broken").edit(|pod| pod["spec"]["tolerations"] = "all".into());
    let odd = pod("ml/odd").requests("cpu", "much");
    let snapshot = Cluster::new().object(pod("ml/a")).object(odd).object(broken).snapshot(&policy(CONTRACT));
    assert_eq!(snapshot.faults.len(), 1, "{:?}", snapshot.faults);
    assert!(
        snapshot.faults[0].starts_with("cluster.json#6: the Pod cannot be read: the amount of cpu is not a quantity"),
        "{:?}",
        snapshot.faults
    );
}

/// What the scheduler counts: sidecars beside the containers, the largest init container, overhead, pod-level amounts.
#[test]
fn requests_are_what_the_scheduler_counts() {
    let amounts = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let containers = |pod: &mut Value| {
        pod["spec"]["containers"] = json!([
            {"resources": amounts("500m", "1Gi")},
            {"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 2}}},
        ]);
        pod["spec"]["initContainers"] = json!([
            {"resources": amounts("100m", "128Mi"), "restartPolicy": "Always"},
            {"resources": amounts("3", "64Mi")},
        ]);
        pod["spec"]["overhead"] = json!({"cpu": "10m"});
    };
    let snapshot = Cluster::new().object(pod("ml/a").edit(containers)).snapshot(&policy(CONTRACT));
    let requests = &snapshot.pods[0].requests;
    assert_eq!(requests.cpu_milli, 3_110);
    assert_eq!(requests.memory_bytes, (2 << 30) + (128 << 20));
    assert_eq!((requests.of("nvidia.com/gpu"), requests.pods), (2, 1));
    assert_eq!(snapshot.pods[0].qos, Qos::Burstable);
    let whole = |pod: &mut Value| {
        containers(pod);
        pod["spec"]["resources"] = amounts("8", "16Gi");
    };
    let snapshot = Cluster::new().object(pod("ml/a").edit(whole)).snapshot(&policy(CONTRACT));
    assert_eq!(snapshot.pods[0].requests.cpu_milli, 8_010);
    assert_eq!(snapshot.pods[0].requests.memory_bytes, 16 << 30);
    assert_eq!(snapshot.pods[0].requests.of("nvidia.com/gpu"), 2);
}

#[test]
fn owners_are_followed_to_the_last() {
    let replica_set = workload("ReplicaSet", "web/shop-1", pod("web/x"));
    let owned = |mut object: Value, owner: &str| {
        object["metadata"]["ownerReferences"] = owners(owner);
        object
    };
    let cluster = Cluster::new()
        .object(workload("Deployment", "web/shop", pod("web/x")))
        .object(owned(replica_set, "Deployment/shop"))
        .object(owned(workload("Job", "web/nightly-1", pod("web/x")), "CronJob/nightly"))
        .object(workload("CronJob", "web/nightly", pod("web/x")))
        .object(pod("web/shop-1-a").owned_by("ReplicaSet/shop-1"))
        .object(pod("web/nightly-1-a").owned_by("Job/nightly-1"))
        .object(pod("web/alone"));
    let snapshot = cluster.snapshot(&policy(CONTRACT));
    let tops: Vec<_> = snapshot
        .pods
        .iter()
        .map(|pod| snapshot.top_controller(pod.controller.as_ref()).map(ToString::to_string).unwrap_or_default())
        .collect();
    assert_eq!(tops, ["", "CronJob web/nightly", "Deployment web/shop"]);
    let kept: Vec<_> = snapshot.workloads.iter().map(|workload| workload.object.to_string()).collect();
    assert_eq!(kept, ["Deployment web/shop", "CronJob web/nightly"]);
}

/// A node's name that the scheduler wrote is no claim of who created the pod.
#[test]
fn the_name_of_a_node_counts_where_the_creator_wrote_it() {
    let managed = |pod: &mut Value| {
        pod["metadata"]["managedFields"] = json!([{
            "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:nodeName": {}, "f:containers": {}}},
        }]);
    };
    let manifest = |pod: &mut Value| {
        pod.as_object_mut().unwrap().remove("status");
        for key in ["uid", "creationTimestamp"] {
            pod["metadata"].as_object_mut().unwrap().remove(key);
        }
    };
    let cluster = Cluster::new()
        .object(pod("web/bound").on("gpu-1"))
        .object(pod("web/made").on("gpu-1").edit(managed))
        .object(pod("web/written").on("gpu-1").edit(manifest));
    let snapshot = cluster.snapshot(&policy(CONTRACT));
    let named: Vec<_> = snapshot.pods.iter().map(|pod| (&*pod.name, pod.json().contains("nodeName"))).collect();
    assert_eq!(named, [("bound", false), ("made", true), ("written", true)]);
}
