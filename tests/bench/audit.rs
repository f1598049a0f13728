//! `gpufence audit FILE` for generated clusters of three sizes: how long it takes, and the most memory it holds.
//!
//! Not criterion: what is measured is a whole process, the reading of its files included. Arguments are sizes in
//! nodes; without any, three are measured of which the last is 5,000 nodes and 100,000 pods.

#![expect(clippy::expect_used, reason = "a benchmark may fail as a test does")]

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Sizes in nodes. Each has twenty pods.
const SIZES: [usize; 3] = [1_250, 2_500, 5_000];

fn main() {
    let named: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if named.is_empty() { &SIZES[..] } else { &named };
    let folder = tempfile::tempdir().expect("a folder for the dumps");
    println!("{:>7} {:>8} {:>9} {:>8} {:>9} {:>12}", "nodes", "pods", "file", "time", "memory", "per pod");
    for nodes in sizes.iter().copied() {
        let cluster = Generated { nodes };
        let file = folder.path().join(format!("{nodes}.json"));
        cluster.write(&file).expect("the dump is written");
        let bytes = file.metadata().expect("the dump is there").len();
        let Run { took, peak_kib } = audit(&file);
        let micros = took.as_micros() / cluster.pods().max(1) as u128;
        println!(
            "{nodes:>7} {:>8} {:>6} MB {:>6.2} s {:>6} MiB {micros:>9} µs",
            cluster.pods(),
            bytes / 1_000_000,
            took.as_secs_f64(),
            peak_kib / 1024
        );
        std::fs::remove_file(&file).expect("the dump goes");
    }
}

struct Run {
    took: Duration,
    peak_kib: u64,
}

fn audit(file: &Path) -> Run {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpufence"))
        .args(["audit", "--output", "json"])
        .arg(file)
        .stdout(Stdio::null())
        .spawn()
        .expect("the audit starts");
    let mut peak_kib = 0;
    let status = loop {
        // The kernel's own high-water mark: looked at often, the last look is close to the end.
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let mark = mark.and_then(|mark| mark.trim().strip_suffix(" kB")).and_then(|mark| mark.trim().parse().ok());
        peak_kib = peak_kib.max(mark.unwrap_or_default());
        if let Some(status) = child.try_wait().expect("the audit can be waited for") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = began.elapsed();
    assert!(status.success(), "the audit ended with {status}");
    Run { took, peak_kib }
}

/// A cluster as `kubectl get --all-namespaces --output json` prints it: indented, with all that an audit does not read.
struct Generated {
    nodes: usize,
}

impl Generated {
    fn pods(&self) -> usize {
        self.nodes * 20
    }

    fn namespaces(&self) -> usize {
        10 + self.nodes / 20
    }

    fn deployments(&self) -> usize {
        10 + self.pods() / 20
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut separator = "";
        file.write_all(b"{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n")?;
        let objects = (0..self.nodes)
            .map(Self::node)
            .chain((0..self.namespaces()).map(Self::namespace))
            .chain((0..self.deployments()).flat_map(|index| self.deployment(index)))
            .chain((0..10).map(daemon_set))
            .chain((0..self.pods()).map(|index| self.pod(index)));
        for object in objects {
            file.write_all(separator.as_bytes())?;
            serde_json::to_writer_pretty(&mut file, &object)?;
            separator = ",\n";
        }
        file.write_all(b"\n    ],\n    \"kind\": \"List\"\n}\n")?;
        file.flush()
    }

    fn is_gpu(index: usize) -> bool {
        index.is_multiple_of(5)
    }

    fn node(index: usize) -> Value {
        let name = node_name(index);
        let mut labels = json!({
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "p4d.24xlarge",
            "eks.amazonaws.com/nodegroup": format!("group-{}", index % 50),
        });
        for feature in 0..40 {
            labels[format!("feature.node.kubernetes.io/cpu-cpuid.F{feature}")] = "true".into();
        }
        let mut amounts = json!({"cpu": "96", "memory": "1152Gi", "ephemeral-storage": "1Ti", "pods": "110"});
        let mut taints = Vec::new();
        if Self::is_gpu(index) {
            amounts["nvidia.com/gpu"] = "8".into();
            // One in fifty has drifted.
            if !index.is_multiple_of(250) {
                labels["workload.example.com/accelerator"] = "nvidia".into();
                taints.push(json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}));
            }
        }
        let images: Vec<_> = (0..50)
            .map(|image| json!({"names": [format!("registry.example.com/team/{image}@sha256:{image:064x}")], "sizeBytes": 1}))
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": uid(index), "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels},
            "spec": {"providerID": "aws:///x", "taints": taints},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-30T00:00:00Z"}],
                "images": images,
            },
        })
    }

    fn namespace(index: usize) -> Value {
        let name = match index {
            0 => "default".to_owned(),
            1 => "kube-system".to_owned(),
            _ => format!("team-{index}"),
        };
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}})
    }

    /// A Deployment with its ReplicaSet of today and two old ones.
    fn deployment(&self, index: usize) -> Vec<Value> {
        let namespace = format!("team-{}", 2 + index % (self.namespaces() - 2));
        let template = json!({
            "metadata": {"labels": {"app": format!("app-{index}")}},
            "spec": spec(index, Self::is_gpu(index)),
        });
        let object = |kind: &str, name: String, owner: Value| {
            json!({
                "apiVersion": "apps/v1",
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace, "uid": uid(index), "ownerReferences": owner},
                "spec": {"replicas": 20, "selector": {"matchLabels": {"app": format!("app-{index}")}}, "template": template},
            })
        };
        let owner = json!([
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("app-{index}"), "uid": uid(index), "controller": true}
        ]);
        let sets = (0..3).map(|revision| object("ReplicaSet", format!("app-{index}-{revision}"), owner.clone()));
        std::iter::once(object("Deployment", format!("app-{index}"), json!([]))).chain(sets).collect()
    }

    /// Half of the pods are those of DaemonSets, half those of Deployments.
    fn pod(&self, index: usize) -> Value {
        let node = index / 20;
        let (owner, namespace, is_gpu) = if index.is_multiple_of(2) {
            let daemon_set = index / 2 % 10;
            (("DaemonSet", format!("agent-{daemon_set}")), "kube-system".to_owned(), false)
        } else {
            let deployment = index / 2 % self.deployments();
            let namespace = format!("team-{}", 2 + deployment % (self.namespaces() - 2));
            // An ordinary pod here and there is on a GPU node.
            (("ReplicaSet", format!("app-{deployment}-2")), namespace, Self::is_gpu(node) && !index.is_multiple_of(3))
        };
        let mut spec = spec(index, is_gpu);
        spec["nodeName"] = node_name(node).into();
        let conditions: Vec<_> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z"}))
            .into();
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("{}-{index:06x}", owner.1),
                "namespace": namespace,
                "uid": uid(index),
                "creationTimestamp": "2026-11-01T00:00:00Z",
                "labels": {"app": owner.1, "pod-template-hash": "5d4f8c7b9c"},
                "annotations": {"prometheus.io/scrape": "true", "checksum/config": format!("{index:064x}")},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": uid(index), "controller": true}
                ],
            },
            "spec": spec,
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "podIP": "10.0.0.1",
                "startTime": "2026-11-01T00:00:00Z",
                "conditions": conditions,
                "containerStatuses": [{
                    "name": "main", "ready": true, "restartCount": 0, "image": "registry.example.com/app",
                    "imageID": format!("registry.example.com/app@sha256:{index:064x}"),
                    "state": {"running": {"startedAt": "2026-11-01T00:00:00Z"}},
                }],
            },
        })
    }
}

fn daemon_set(index: usize) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": format!("agent-{index}"), "namespace": "kube-system"},
        "spec": {"template": {"metadata": {}, "spec": spec(index, false)}},
        "status": {"desiredNumberScheduled": 5_000},
    })
}

fn spec(index: usize, is_gpu: bool) -> Value {
    let environment: Vec<_> = (0..20)
        .map(|variable| json!({"name": format!("SETTING_{variable}"), "value": format!("{index}-{variable}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10});
    let mut amounts = json!({"cpu": "500m", "memory": "1Gi"});
    let mut tolerations = vec![
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
        json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
    ];
    let mut selector = json!({});
    if is_gpu {
        amounts["nvidia.com/gpu"] = "1".into();
        tolerations.push(json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}));
        selector["workload.example.com/accelerator"] = "nvidia".into();
    }
    json!({
        "containers": [{
            "name": "main",
            "image": "registry.example.com/app:1",
            "env": environment,
            "resources": {"requests": amounts, "limits": amounts},
            "livenessProbe": probe,
            "readinessProbe": probe,
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        }],
        "nodeSelector": selector,
        "tolerations": tolerations,
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    })
}

fn node_name(index: usize) -> String {
    format!("ip-10-{}-{}-{}.eu-west-1.compute.internal", index / 65_536, index / 256 % 256, index % 256)
}

fn uid(index: usize) -> String {
    format!("{index:08x}-0000-4000-8000-{index:012x}")
}
