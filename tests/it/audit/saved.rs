use serde_json::{Value, json};

use gpufence::audit::snapshot::Builder;
use gpufence::audit::{Resource, Snapshot, audit};

use super::cluster::{CONTRACT, Cluster, NOW, gpu_node, node, owners, pod, policy, workload};

/// An object that is changed in place.
trait Edited {
    fn edited(self, edit: impl FnOnce(&mut Value)) -> Value;
}

impl Edited for Value {
    fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Value {
        edit(&mut self);
        self
    }
}

/// One of everything that is kept.
fn cluster() -> Cluster {
    let sidecar = json!({
        "name": "side",
        "restartPolicy": "Always",
        "env": [{"name": "TOKEN", "value": "hush"}],
        "resources": {"requests": {"cpu": "250m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
    });
    let init = json!({"name": "init", "resources": {"requests": {"memory": "3Gi", "nvidia.com/gpu": "2"}}});
    let container = pod("web/shop").requests("memory", "1Gi").edit(|pod| {
        let container = &mut pod["spec"]["containers"][0];
        container["env"] = json!([{"name": "PASSWORD", "value": "hush"}]);
        container["command"] = json!(["run", "--token=hush"]);
    });
    Cluster::new()
        .object(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "ending", "labels": {"team": "b"}},
            "status": {"phase": "Terminating"},
        }))
        .objects([gpu_node("gpu-1"), gpu_node("gpu-2").cordoned().not_ready().taint("other", "", "NoExecute")])
        .objects([
            node("cpu-1").has("cpu", "1500m").has("example.com/disk", "0"),
            node("cpu-2").edit(|node| node["status"] = json!({})),
        ])
        .object(workload("Deployment", "web/shop", container.clone()))
        .object(workload("DaemonSet", "kube-system/agent", pod("kube-system/agent")).edited(|set| {
            set["status"] = json!({"desiredNumberScheduled": 4});
            set["metadata"]["annotations"] = json!({"note": "a \"quoted\" word"});
        }))
        .object(json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "shop-1", "namespace": "web", "ownerReferences": owners("Deployment/shop")},
        }))
        .object(container.clone().owned_by("ReplicaSet/shop-1").on("gpu-1").label("app", "shop"))
        .object(pod("ml/train").gpus(4).placed().on("gpu-2").edit(|pod| {
            pod["spec"]["initContainers"] = json!([sidecar, init]);
            pod["spec"]["overhead"] = json!({"cpu": "100m", "memory": "7"});
            pod["spec"]["priorityClassName"] = "urgent".into();
            pod["spec"]["priority"] = 1000.into();
            pod["metadata"]["deletionTimestamp"] = "2026-11-02T00:00:00Z".into();
        }))
        .object(pod("ml/waits").gpus(1).unschedulable("0/4 nodes are available").edit(|pod| {
            pod["spec"]["schedulingGates"] = json!([{"name": "quota"}]);
        }))
        .object(pod("web/bound").on("gpu-1").edit(|pod| {
            pod["metadata"]["managedFields"] =
                json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
        }))
        .object(pod("kube-system/static").on("gpu-1").owned_by("Node/gpu-1").edit(|pod| {
            pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "0".into();
        }))
        .object(pod("web/guaranteed").requests("cpu", "1").requests("memory", "1Gi").phase("Unknown"))
        .object(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "made-", "namespace": "web"},
            "spec": {"nodeName": "gpu-1", "containers": [{"name": "main"}]},
        }))
        .object(json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "shop", "namespace": "web"},
            "spec": {"selector": {
                "matchLabels": {"app": "shop"},
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["b"]},
                    {"key": "c", "operator": "NotIn", "values": ["d"]},
                    {"key": "e", "operator": "Exists"},
                    {"key": "f", "operator": "DoesNotExist"},
                ],
            }},
            "status": {"disruptionsAllowed": 1},
        }))
        .object(json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "none", "namespace": "web"},
        }))
        .object(json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "waits.1", "namespace": "ml"},
            "reason": "FailedScheduling",
            "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "waits"},
            "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
            "lastTimestamp": "2026-11-30T11:00:00Z",
        }))
}

fn saved(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    snapshot.save(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn read(text: &str) -> Snapshot {
    let policy = policy(CONTRACT);
    let mut builder = Builder::new(&policy);
    builder.take_all("saved.json", text.as_bytes());
    builder.completes_as_dumped();
    builder.finish()
}

/// All but what was passed over, which is of no concern again, and the order of a map's keys in texts.
fn shape(snapshot: &Snapshot) -> String {
    let Snapshot { nodes, pods, workloads, namespaces, budgets, unscheduled, complete, faults, .. } = snapshot;
    let pods: Vec<_> = pods
        .iter()
        .map(|pod| {
            let json: Value = serde_json::from_str(&pod.json()).unwrap();
            let mut pod = pod.clone();
            let top = snapshot.top_controller(pod.controller.as_ref()).cloned();
            // What it holds is compared as JSON.
            let rest =
                format!("{:?}", (&pod.namespace, &pod.name, &pod.node, pod.names_node, pod.is_stored, pod.phase));
            let more =
                format!("{:?}", (pod.created, pod.deleting, pod.controller.take(), &pod.priority_class, pod.priority));
            let last = format!("{:?}", (pod.qos, &pod.requests, pod.is_mirror, pod.is_gated, &pod.unscheduled));
            format!("{rest}{more}{last}{top:?}{json}")
        })
        .collect();
    let workloads: Vec<_> = workloads
        .iter()
        .map(|workload| {
            let json: Value = serde_json::from_str(workload.json()).unwrap();
            format!(
                "{:?}",
                (&workload.object, workload.kind, &workload.controller, workload.replicas, workload.desired)
            ) + &json.to_string()
        })
        .collect();
    let mut events: Vec<_> = unscheduled.iter().map(|(pod, event)| format!("{pod:?}{event:?}")).collect();
    events.sort();
    format!(
        "{nodes:#?}\n{pods:#?}\n{workloads:#?}\n{namespaces:#?}\n{budgets:#?}\n{events:#?}\n{complete:?}\n{faults:?}"
    )
}

#[test]
fn what_is_saved_is_read_as_it_was() {
    let cluster = cluster();
    let policy = policy(CONTRACT);
    let before = cluster.snapshot(&policy);
    let text = saved(&before);
    let after = read(&text);
    pretty_equal(&shape(&after), &shape(&before));
    assert_eq!(saved(&after), text);
    let audit = |snapshot: &Snapshot| serde_json::to_value(audit(&policy, snapshot, "cluster", NOW)).unwrap();
    assert_eq!(audit(&after), audit(&before));
}

/// Line by line, so that a difference is seen among so many.
fn pretty_equal(left: &str, right: &str) {
    for (left, right) in left.lines().zip(right.lines()) {
        assert_eq!(left, right);
    }
    assert_eq!(left.lines().count(), right.lines().count());
}

#[test]
fn what_programs_are_started_with_is_not_saved() {
    let text = saved(&cluster().snapshot(&policy(CONTRACT)));
    assert!(!text.contains("hush"), "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["kind"], "List");
}

/// What was not known, and what could not be read, is not known either when it is read again: nothing is guessed from
/// what is there.
#[test]
fn gaps_are_saved_too() {
    let policy = policy(CONTRACT);
    let mut builder = Builder::new(&policy);
    builder.take_all("live", cluster().list().to_string().as_bytes());
    builder.completes(Resource::Nodes);
    builder.fault("pods cannot be listed".to_owned());
    let before = builder.finish();
    let after = read(&saved(&before));
    assert_eq!(after.complete.iter().collect::<Vec<_>>(), [&Resource::Nodes]);
    assert_eq!(after.faults, ["pods cannot be listed"]);
}

const CUSTOM: &str = "
pools:
  - name: nvidia
    resources: [nvidia.com/gpu]
    taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
    nodeSelector: {accelerator: nvidia}
    namespaces: {names: [ml]}
    models: {annotation: gpu-model, nodeLabel: gpu-model, values: [a100]}
customResources:
  - {group: ray.io, kind: RayCluster, resource: rayclusters, templates: ['$.spec.workers[*].template']}
  - group: jobs.example.com
    kind: Batch
    resource: batches
    podSpecs:
      - {path: '$.spec.task', containers: [$.main], resources: [$.limit], amounts: ['$.devices[*]']}
";

/// What holds a secret in every place that no rule reads, and labels and selectors of the names of such places.
fn secretive() -> Cluster {
    let hush = || json!({"any": ["hush"], "hush": "hush"});
    let annotations = || {
        json!({
            "gpu-model": "a100",
            "kubectl.kubernetes.io/last-applied-configuration": "{\"env\":\"hush\"}",
            "note": "hush",
        })
    };
    let names = || json!({"env": "cpu", "args": "a", "command": "b", "lifecycle": "c", "status": "d"});
    let spec = |amount: &str| {
        let container = json!({
            "name": "hush", "image": "gpu-feature-discovery", "env": hush(), "envFrom": hush(), "command": ["hush"],
            "args": ["hush"], "lifecycle": hush(), "livenessProbe": hush(), "volumeMounts": [hush()],
            "resources": {"requests": {"nvidia.com/gpu": amount}, "limits": {"nvidia.com/gpu": amount}, "claims": [hush()]},
        });
        json!({
            "containers": [container], "initContainers": [container], "nodeSelector": names(), "volumes": [hush()],
            "imagePullSecrets": [hush()], "hostAliases": [hush()], "securityContext": hush(), "dnsConfig": hush(),
            "ephemeralContainers": [container], "serviceAccountName": "hush",
            "tolerations": [{"operator": "Exists"}],
        })
    };
    let template =
        |amount: &str| json!({"metadata": {"labels": names(), "annotations": annotations()}, "spec": spec(amount)});
    let metadata = |name: &str| {
        json!({
            "name": name, "namespace": "web", "labels": names(), "annotations": annotations(),
            "managedFields": [{"manager": "hush", "fieldsV1": {"f:hush": {}}}], "finalizers": ["hush"],
        })
    };
    let of = |api_version: &str, kind: &str, spec: Value| {
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata("one"), "spec": spec, "status": hush(),
            "data": hush()})
    };
    let selector = json!({"matchLabels": names()});
    let templated = || {
        json!({"replicas": 2, "selector": selector, "template": template("1"), "strategy": hush(),
        "volumeClaimTemplates": [hush()]})
    };
    let mut cluster = Cluster::new().object(gpu_node("gpu-1").label("env", "cpu").label("args", "a"));
    for kind in ["Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"] {
        cluster = cluster.object(of("apps/v1", kind, templated()));
    }
    let job = json!({"template": template("1"), "podFailurePolicy": hush()});
    let mut kept = of("v1", "PodTemplate", hush());
    kept["template"] = template("1");
    let task = spec("1").edited(|task| {
        task["main"] = json!({"resources": {"limits": {"nvidia.com/gpu": "2"}}, "env": hush()});
        task["limit"] = json!({"requests": {"nvidia.com/gpu": "3"}, "claims": [hush()]});
        task["devices"] = json!([{"name": "nvidia.com/gpu", "quantity": "much", "secret": "hush"}, "hush"]);
        task["metadata"] = json!({"annotations": annotations(), "labels": {"x": "hush"}});
        task["annotations"] = annotations();
    });
    let workers = json!([
        {"template": template("1"), "rayStartParams": {"redis-password": "hush"}}, {"template": "hush"}, "hush",
    ]);
    cluster
        .object(of("batch/v1", "Job", job.clone()))
        .object(of("batch/v1", "CronJob", json!({"jobTemplate": {"metadata": hush(), "spec": job}, "x": "hush"})))
        .object(of("v1", "ReplicationController", templated()))
        .object(kept)
        .object(of("ray.io/v1", "RayCluster", json!({"workers": workers, "replicas": "hush", "head": hush()})))
        .object(of("jobs.example.com/v1", "Batch", json!({"task": task, "replicas": 3, "password": "hush"})))
        .object(of("v1", "Pod", spec("1").edited(|spec| spec["nodeName"] = "gpu-1".into())))
}

#[test]
fn nothing_is_saved_but_what_is_read() {
    let text = saved(&secretive().snapshot(&policy(CUSTOM)));
    for line in text.lines() {
        assert!(!line.contains("hush"), "{line}");
    }
    // And all of that is: as much where the name is that of a field that is not.
    let list: Value = serde_json::from_str(&text).unwrap();
    let of = |kind: &str| list["items"].as_array().unwrap().iter().find(|item| item["kind"] == kind).unwrap();
    let names = json!({"env": "cpu", "args": "a", "command": "b", "lifecycle": "c", "status": "d"});
    let template = &of("DaemonSet")["spec"]["template"];
    for kept in [
        &of("DaemonSet")["spec"]["selector"]["matchLabels"],
        &template["metadata"]["labels"],
        &template["spec"]["nodeSelector"],
        &of("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["nodeSelector"],
        &of("PodTemplate")["template"]["spec"]["nodeSelector"],
        &of("RayCluster")["spec"]["workers"][0]["template"]["spec"]["nodeSelector"],
        &of("Batch")["spec"]["task"]["nodeSelector"],
        &of("Pod")["spec"]["nodeSelector"],
    ] {
        assert_eq!(*kept, names);
    }
    let task = &of("Batch")["spec"]["task"];
    assert_eq!(task["devices"][0], json!({"name": "nvidia.com/gpu", "quantity": "much"}));
    assert_eq!(task["main"], json!({"resources": {"limits": {"nvidia.com/gpu": "2"}}}));
    assert_eq!(task["limit"], json!({"requests": {"nvidia.com/gpu": "3"}}));
    for annotations in [&task["annotations"], &task["metadata"]["annotations"], &template["metadata"]["annotations"]] {
        assert_eq!(*annotations, json!({"gpu-model": "a100"}));
    }
    assert_eq!(of("Batch")["spec"]["replicas"], 3);
    assert_eq!(template["spec"]["containers"][0]["image"], "gpu-feature-discovery");
}

#[test]
fn what_is_saved_gives_the_same_audit_of_custom_resources_too() {
    let policy = policy(CUSTOM);
    let before = secretive().snapshot(&policy);
    let mut builder = Builder::new(&policy);
    builder.take_all("saved.json", saved(&before).as_bytes());
    builder.completes_as_dumped();
    let after = builder.finish();
    assert_eq!(saved(&after), saved(&before));
    let audit = |snapshot: &Snapshot| serde_json::to_value(audit(&policy, snapshot, "cluster", NOW)).unwrap();
    let (after, before) = (audit(&after), audit(&before));
    assert_eq!(after, before);
    for kind in ["RayCluster", "Batch", "DaemonSet", "CronJob"] {
        let judged = before["findings"].as_array().unwrap().iter().any(|finding| finding["object"]["kind"] == kind);
        assert!(judged, "{kind}: {before:#}");
    }
}
