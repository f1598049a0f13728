//! A cluster of any size, as its API server tells of it, and caches that are filled from it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use futures_util::{StreamExt as _, stream};
use gpufence::cluster::{Client, Namespaces, Nodes};
use gpufence::contract::Contract;
use gpufence::policy::{Facts, LabelSelector, NodeFact, Policy};
use gpufence::telemetry::metrics::Metrics;
use serde_json::json;

/// How many nodes and namespaces there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) namespaces: usize,
}

/// As few as a review can ask for.
#[allow(dead_code, reason = "not every benchmark compares")]
pub(crate) const FEW: Size = Size { nodes: 1, namespaces: 1 };

/// As many as a large cluster has.
pub(crate) const MANY: Size = Size { nodes: 10_000, namespaces: 5_000 };

/// What is known of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) nodes: Nodes,
    pub(crate) namespaces: Namespaces,
}

impl Facts for Caches {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        self.namespaces.meets(namespace, selector)
    }

    fn node(&self, name: &str) -> NodeFact {
        self.nodes.get(name)
    }

    fn now(&self) -> i64 {
        0
    }
}

impl Caches {
    /// Caches that have read all of a cluster.
    #[allow(dead_code, reason = "not every benchmark decides")]
    pub(crate) fn filled(size: Size) -> Self {
        let caches = Self::default();
        caches.follow(size, Duration::from_millis(500));
        caches
    }

    /// Reads and hears of a cluster for so long, by a clock that stands still while anything is done. How often all
    /// nodes were read.
    pub(crate) fn follow(&self, size: Size, time: Duration) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let lists = Arc::new(AtomicUsize::new(0));
        runtime.expect("a runtime needs nothing").block_on(async {
            let metrics = Arc::new(Metrics::new());
            let nodes = self.nodes.follow(server(size, &lists), || (), Arc::clone(&metrics));
            let namespaces = self.namespaces.follow(server(size, &lists), || (), metrics);
            let _ = tokio::time::timeout(time, async { tokio::join!(nodes, namespaces) }).await;
        });
        lists.load(Ordering::SeqCst)
    }
}

/// A contract whose decision on a pod that is put onto a node rests on the node and on the labels of the namespace.
#[allow(dead_code, reason = "not every benchmark decides")]
pub(crate) fn policy() -> Policy {
    let file = std::env::temp_dir().join(format!("gpufence-bench-{}.yaml", std::process::id()));
    let contract = json!({
        "mode": "enforce",
        "pools": [{
            "name": "nvidia",
            "resources": ["nvidia.com/gpu"],
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
            "nodeSelector": {"accelerator": "nvidia"},
            "namespaces": {"selector": {"matchLabels": {"gpu.example.com/allowed": "true"}}},
        }],
    });
    std::fs::write(&file, contract.to_string()).expect("there is a folder for temporary files");
    let policy = Contract::load(Some(&file), []).expect("the contract is valid").policy;
    let _ = std::fs::remove_file(&file);
    policy
}

/// An API server that lists everything page by page. A watch of nodes tells of a heartbeat and of a label that changed,
/// and then that it has lost track, so that everything is read again, changed or not.
fn server(size: Size, lists: &Arc<AtomicUsize>) -> Client {
    let lists = Arc::clone(lists);
    let service = tower::service_fn(move |request: Request<_>| {
        let _: &kube::client::Body = request.body();
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse::<usize>().ok())
        };
        let is_node = path.ends_with("/nodes");
        let object = |index| if is_node { node(index, 0) } else { namespace(index) };
        let body = if query.contains("watch=true") {
            let modified = |object: String| format!(r#"{{"type":"MODIFIED","object":{object}}}"#);
            let mut changes = vec![modified(object(0))];
            if is_node {
                changes.push(modified(node(size.nodes - 1, 1)));
                changes.push(
                    json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410}})
                        .to_string(),
                );
            }
            let lines: Vec<Result<String, std::io::Error>> =
                changes.iter().map(|change| Ok(format!("{change}\n"))).collect();
            Body::from_stream(stream::iter(lines).chain(stream::pending()))
        } else {
            let (begin, limit) = (parameter("continue").unwrap_or(0), parameter("limit").unwrap_or(500));
            let all = if is_node { size.nodes } else { size.namespaces };
            let end = all.min(begin + limit);
            lists.fetch_add(usize::from(is_node && begin == 0), Ordering::SeqCst);
            let token = if end < all { end.to_string() } else { String::new() };
            let items: Vec<_> = (begin..end).map(object).collect();
            let metadata = json!({"resourceVersion": "7", "continue": token});
            Body::from(format!(r#"{{"metadata":{metadata},"items":[{}]}}"#, items.join(",")))
        };
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    Client::new(service, "default")
}

fn namespace(index: usize) -> String {
    let name = if index == 0 { "ml-team".to_owned() } else { format!("team-{index:05}") };
    let labels =
        (0..7).map(|label| (format!("organisation.example.com/label-{label}"), format!("value-{}", index % 50)));
    let more = [
        ("kubernetes.io/metadata.name", name.clone()),
        ("gpu.example.com/allowed", index.is_multiple_of(2).to_string()),
        ("organisation.example.com/owner", format!("owner-{index}_example.com")),
    ];
    let labels = labels.chain(more.map(|(key, value)| (key.to_owned(), value)));
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"7","labels":{{{}}}}}}}"#, object(labels))
}

/// A node as node feature discovery and the GPU operator leave it: sixty labels, of which some are its own, four taints,
/// and beside them the images that nobody here wants.
fn node(index: usize, generation: usize) -> String {
    static FEATURES: LazyLock<String> = LazyLock::new(|| {
        let feature =
            |feature| (format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{feature:02}"), "true".to_owned());
        object((0..46).map(feature))
    });
    static IMAGES: LazyLock<String> = LazyLock::new(|| {
        let image = |image| format!(r#"{{"names":["registry.example.com/application-{image}@sha256:{image:064x}"]}}"#);
        (0..50).map(image).collect::<Vec<_>>().join(",")
    });
    let name = format!("gpu-node-{index:05}");
    let rack = format!("rack-{}", index / 16);
    let more = [
        ("kubernetes.io/hostname", name.clone()),
        ("node.example.com/instance-id", format!("i-{:017x}", index * 7_919)),
        ("node.example.com/serial", format!("4C4C4544-0042-{index:012}")),
        ("nvidia.com/gfd.timestamp", (1_800_000_000 + index).to_string()),
        ("topology.example.com/rack", rack.clone()),
        ("topology.kubernetes.io/zone", format!("eu-central-1{}", ["a", "b", "c"][index % 3])),
        ("accelerator", "nvidia".to_owned()),
        ("nvidia.com/gpu.product", ["NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"][index % 2].to_owned()),
        ("nvidia.com/gpu.memory", "81920".to_owned()),
        ("nvidia.com/gpu.count", "8".to_owned()),
        ("nvidia.com/cuda.driver.major", "580".to_owned()),
        ("nvidia.com/mig.strategy", "single".to_owned()),
        ("node.kubernetes.io/instance-type", "p5.48xlarge".to_owned()),
        ("nvidia.com/gpu.deploy.state", format!("generation-{generation}")),
    ];
    let labels = object(more.map(|(key, value)| (key.to_owned(), value)));
    let taints = [("nvidia.com/gpu", "present"), ("dedicated", "gpu"), ("rack", &rack), ("tenant", "ml")];
    let taints = taints.map(|(key, value)| format!(r#"{{"key":"{key}","value":"{value}","effect":"NoSchedule"}}"#));
    format!(
        r#"{{"kind":"Node","metadata":{{"name":"{name}","resourceVersion":"7","labels":{{{},{labels}}}}},"spec":{{"taints":[{}]}},"status":{{"images":[{}]}}}}"#,
        *FEATURES,
        taints.join(","),
        *IMAGES
    )
}

/// The inside of an object of strings, none of which needs an escape.
fn object(fields: impl IntoIterator<Item = (String, String)>) -> String {
    fields.into_iter().map(|(key, value)| format!(r#""{key}":"{value}""#)).collect::<Vec<_>>().join(",")
}
