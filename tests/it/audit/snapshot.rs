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

fn owned(mut object: Value, owner: &str) -> Value {
    object["metadata"]["ownerReferences"] = owners(owner);
    object
}

/// A custom resource of the contract that [`follows`] reads, owned by whoever is named.
fn ray(name: &str, owner: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "env": []}]}}},
    });
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = ray_owner(owner);
    }
    object
}

fn ray_owner(name: &str) -> Value {
    json!([{"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster", "name": name, "controller": true}])
}

/// Which workloads are kept, whatever the order in which they come.
fn follows(objects: &[Value], kept: &[&str]) {
    let contract = format!(
        "{CONTRACT}customResources:\n  - {{group: ray.io, kind: RayCluster, resource: rayclusters, templates: [$.spec.template]}}\n"
    );
    let policy = policy(&contract);
    let forward = objects.to_vec();
    let backward = objects.iter().rev().cloned().collect();
    for objects in [forward, backward] {
        let snapshot = Cluster::new().contract(&contract).objects(objects).snapshot(&policy);
        assert_eq!(snapshot.faults, [""; 0]);
        let own: Vec<_> = snapshot.workloads.iter().map(|workload| workload.object.to_string()).collect();
        assert_eq!(own, kept);
    }
}

/// What a template's owner says of itself hides nothing: the owner must be there, and make such objects.
#[test]
fn a_workload_follows_an_owner_that_is_there_and_makes_such() {
    let plain = |kind: &str, name: &str| workload(kind, name, pod("web/x").label("env", "prod"));
    let makers = [("Deployment", "ReplicaSet"), ("CronJob", "Job")];
    for (maker, made) in makers {
        let follower = owned(plain(made, "web/made"), &format!("{maker}/maker"));
        follows(&[plain(maker, "web/maker"), follower.clone()], &[&format!("{maker} web/maker")]);
        follows(std::slice::from_ref(&follower), &[&format!("{made} web/made")]);
        // One of the name elsewhere is another.
        follows(
            &[plain(maker, "ml/maker"), follower],
            &if maker == "CronJob" {
                ["CronJob ml/maker", "Job web/made"]
            } else {
                ["Deployment ml/maker", "ReplicaSet web/made"]
            },
        );
    }
    let kinds = [
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "PodTemplate",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    ];
    for maker in kinds {
        for made in kinds.into_iter().filter(|made| !makers.contains(&(maker, made))) {
            let sneaky = owned(plain(made, "web/sneaky"), &format!("{maker}/innocent"));
            let policy = policy(CONTRACT);
            let snapshot = Cluster::new().object(plain(maker, "web/innocent")).object(sneaky).snapshot(&policy);
            assert_eq!(snapshot.workloads.len(), 2, "{made} of {maker}");
        }
    }
}

#[test]
fn what_a_custom_resource_of_the_contract_makes_follows_it() {
    let job = || {
        let mut job = workload("Job", "web/submit", pod("web/x"));
        job["metadata"]["ownerReferences"] = ray_owner("b");
        job
    };
    follows(&[ray("a", None), ray("b", Some("a")), job()], &["RayCluster web/a"]);
    // Of a chain whose head is not there the first is kept.
    follows(&[ray("b", Some("a")), job()], &["RayCluster web/b"]);
    follows(&[job()], &["Job web/submit"]);
    // Nobody hides in a circle.
    follows(
        &[ray("a", Some("b")), ray("b", Some("a")), job()],
        &["Job web/submit", "RayCluster web/a", "RayCluster web/b"],
    );
    follows(&[ray("a", Some("a"))], &["RayCluster web/a"]);
}

#[test]
fn the_labels_of_what_waited_for_its_owner_are_whole() {
    let mut template = workload("ReplicaSet", "web/made", pod("web/x").label("env", "prod").selects("command", "x"));
    template["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "hush"}]);
    let snapshot = Cluster::new().object(owned(template, "Deployment/gone")).snapshot(&policy(CONTRACT));
    let json: Value = serde_json::from_str(snapshot.workloads[0].json()).unwrap();
    assert_eq!(json["spec"]["template"]["metadata"]["labels"], json!({"env": "prod"}));
    assert_eq!(json["spec"]["template"]["spec"]["nodeSelector"], json!({"command": "x"}));
    assert!(!json.to_string().contains("hush"));
}

/// A node is in no namespace, whatever that of its mirror pods.
#[test]
fn the_owner_of_a_mirror_pod_is_a_node() {
    let mirror = pod("kube-system/proxy-g1").owned_by("Node/g1").on("g1");
    let snapshot = Cluster::new().object(mirror).object(pod("web/a").owned_by("Job/b")).snapshot(&policy(CONTRACT));
    let owners: Vec<_> = snapshot.pods.iter().map(|pod| pod.controller.as_ref().unwrap().to_string()).collect();
    assert_eq!(owners, ["Node g1", "Job web/b"]);
}

/// Lists within lists are read to a depth that somebody may mean, and no stack ends.
#[test]
fn lists_within_lists_end_somewhere() {
    let nested = |depth: usize| {
        let pod = Value::from(pod("ml/train")).to_string();
        let start = r#"{"apiVersion":"v1","kind":"List","items":["#.repeat(depth);
        format!("{start}{pod}{}", "]}".repeat(depth))
    };
    for depth in 1..=4 {
        let snapshot = read(&nested(depth));
        assert_eq!((names(&snapshot), &*snapshot.faults), (vec!["Pod ml/train".into()], &[][..]), "{depth}");
    }
    for depth in [5, 6, 20_000, 200_000] {
        let snapshot = read(&format!("{}{}", nested(depth), Value::from(gpu_node("gpu-1"))));
        assert_eq!(names(&snapshot), ["gpu-1"], "{depth}");
        assert_eq!(
            snapshot.faults,
            [
                "dump.json#1#1#1#1: the List is the last of 5 lists, each within another, and is not read: give its items in a \
              list of their own"
            ],
            "{depth}"
        );
    }
    // Depth of any other kind ends with the object.
    let deep = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a"}},"spec":{}1{}}}"#,
        r#"{"affinity":"#.repeat(20_000),
        "}".repeat(20_000)
    );
    assert!(read(&deep).pods.len() <= 1);
    assert_eq!(names(&read(&format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)))), [""; 0]);
}

fn sized(edit: impl FnOnce(&mut Value)) -> (i64, i64, Qos) {
    let snapshot = Cluster::new().object(pod("ml/a").edit(edit)).snapshot(&policy(CONTRACT));
    assert_eq!(snapshot.faults, [""; 0]);
    let pod = &snapshot.pods[0];
    (pod.requests.cpu_milli, pod.requests.memory_bytes >> 20, pod.qos)
}

/// As upstream's `ComputePodQOS` and `defaultPodRequests` have it, worked by hand; CPU in thousandths, memory in Mi.
#[test]
fn classes_and_requests_are_those_of_the_api_server() {
    let both = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let whole = |cpu: &str, memory: &str| json!({"requests": both(cpu, memory), "limits": both(cpu, memory)});
    let limits = |cpu: &str, memory: &str| json!({"limits": both(cpu, memory)});
    let requests = |cpu: &str, memory: &str| json!({"requests": both(cpu, memory)});
    let none = || json!({});
    let cases = [
        // Of the pod as a whole, and of its only container.
        (none(), none(), (0, 0, Qos::BestEffort)),
        // Nothing is nothing, however it is set.
        (none(), json!({"requests": {"cpu": "0"}}), (0, 0, Qos::BestEffort)),
        (none(), whole("0", "0"), (0, 0, Qos::BestEffort)),
        (none(), json!({"limits": {"cpu": "0", "memory": "1Gi"}}), (0, 1024, Qos::Burstable)),
        (none(), limits("1", "1Gi"), (1000, 1024, Qos::Guaranteed)),
        (none(), json!({"requests": {"cpu": "0"}, "limits": both("1", "1Gi")}), (0, 1024, Qos::Burstable)),
        (none(), json!({"limits": {"nvidia.com/gpu": "1"}}), (0, 0, Qos::BestEffort)),
        // The pod's own amounts alone make its class.
        (whole("2", "4Gi"), none(), (2000, 4096, Qos::Guaranteed)),
        (whole("2", "4Gi"), requests("1", "1Gi"), (2000, 4096, Qos::Guaranteed)),
        (requests("2", "4Gi"), whole("1", "1Gi"), (2000, 4096, Qos::Burstable)),
        (json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}), none(), (2000, 0, Qos::Burstable)),
        // What has a limit alone is requested: what the containers request together, or else the limit.
        (limits("2", "4Gi"), none(), (2000, 4096, Qos::Guaranteed)),
        (limits("2", "4Gi"), requests("500m", "1Gi"), (500, 1024, Qos::Burstable)),
        (limits("2", "4Gi"), json!({"requests": {"cpu": "500m"}}), (500, 4096, Qos::Burstable)),
        (limits("2", "4Gi"), requests("2", "4Gi"), (2000, 4096, Qos::Guaranteed)),
        (limits("2", "4Gi"), limits("1", "1Gi"), (1000, 1024, Qos::Burstable)),
        (json!({"requests": {"cpu": "1"}, "limits": both("2", "4Gi")}), none(), (1000, 4096, Qos::Burstable)),
    ];
    for (index, (whole, container, wanted)) in cases.into_iter().enumerate() {
        let own = sized(|pod| {
            pod["spec"]["resources"] = whole;
            pod["spec"]["containers"][0]["resources"] = container;
        });
        assert_eq!(own, wanted, "{index}");
    }
    // Two containers of which one makes up for the other are no Guaranteed pod unless each has both limits.
    let two = |first: Value, second: Value| {
        sized(|pod| pod["spec"]["containers"] = json!([{"resources": first}, {"resources": second}])).2
    };
    assert_eq!(two(limits("1", "1Gi"), limits("2", "1Gi")), Qos::Guaranteed);
    assert_eq!(two(limits("1", "1Gi"), json!({"limits": {"cpu": "1"}})), Qos::Burstable);
    // The overhead is no part of the class.
    let with_overhead = sized(|pod| {
        pod["spec"]["resources"] = limits("2", "4Gi");
        pod["spec"]["overhead"] = both("250m", "128Mi");
    });
    assert_eq!(with_overhead, (2250, 4224, Qos::Guaranteed));
}

/// While a container is resized in place the greatest of what is wanted, allotted and in force counts.
#[test]
fn a_resize_in_place_counts_as_the_scheduler_counts_it() {
    let amounts = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let resized = |spec: Value, now: Option<Value>, allocated: Value, reason: &str| {
        let (cpu, memory, _) = sized(|pod| {
            pod["spec"]["containers"][0]["resources"]["requests"] = spec;
            let mut status = json!({"name": "main", "allocatedResources": allocated});
            if let Some(now) = now {
                status["resources"] = json!({"requests": now});
            }
            pod["status"]["containerStatuses"] =
                json!([{"name": "other", "resources": {"requests": {"cpu": "90"}}}, status]);
            pod["status"]["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
        });
        (cpu, memory)
    };
    let (small, large) = (|| amounts("1", "4Gi"), || amounts("3", "2Gi"));
    // 1 and 3 cores make 3; 4Gi and 2Gi make 4Gi.
    assert_eq!(resized(small(), Some(large()), small(), "Deferred"), (3000, 4096));
    assert_eq!(resized(large(), Some(small()), small(), "Deferred"), (3000, 4096));
    assert_eq!(resized(small(), Some(small()), large(), "Deferred"), (3000, 4096));
    assert_eq!(resized(small(), Some(small()), small(), "Deferred"), (1000, 4096));
    // Without resources in the status nothing of it counts.
    assert_eq!(resized(small(), None, large(), "Deferred"), (1000, 4096));
    // What can never be is not wanted.
    assert_eq!(resized(amounts("90", "90Gi"), Some(small()), large(), "Infeasible"), (3000, 4096));
    // A sidecar counts as it is now, an init container as it was written.
    let (cpu, ..) = sized(|pod| {
        let one = |name: &str| json!({"name": name, "resources": {"requests": {"cpu": "1"}}});
        pod["spec"]["initContainers"] = json!([one("side"), one("first")]);
        pod["spec"]["initContainers"][0]["restartPolicy"] = "Always".into();
        let now = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        pod["status"]["initContainerStatuses"] = json!([now("side", "2"), now("first", "50")]);
    });
    assert_eq!(cpu, 3000);
}
