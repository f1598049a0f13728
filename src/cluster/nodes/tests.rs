//! Against an API server of two nodes.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::policy::{Effect, Taint};

fn node(name: &str, version: &str, labels: &Value, taints: &Value) -> Value {
    json!({
        "metadata": {"name": name, "resourceVersion": version, "labels": labels, "managedFields": [{"manager": "x"}]},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": taints},
        "status": {"images": [{"names": ["registry.example.com/a:1"], "sizeBytes": 1}]},
    })
}

fn gpu() -> Value {
    json!([
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "drained", "effect": "NoExecute", "timeAdded": "2026-11-30T08:00:00Z"},
    ])
}

/// Lists the nodes one by one, and then tells of the changes.
fn server(changes: Vec<Value>) -> Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let response = match request.uri().path() {
            "/api/v1/nodes" if query.contains("watch=true") => {
                let lines: Vec<Result<String, std::io::Error>> =
                    changes.iter().map(|change| Ok(format!("{change}\n"))).collect();
                Response::new(Body::from_stream(stream::iter(lines).chain(stream::pending())))
            }
            "/api/v1/nodes" => {
                assert!(query.contains("limit=100"), "{query}");
                let (metadata, item) = if query.contains("continue=more") {
                    (json!({"resourceVersion": "7"}), node("plain", "2", &json!({"kind": "cpu"}), &Value::Null))
                } else {
                    let metadata = json!({"resourceVersion": "7", "continue": "more"});
                    (metadata, node("gpu", "1", &json!({"kind": "gpu"}), &gpu()))
                };
                Response::new(json!({"metadata": metadata, "items": [item]}).to_string().into())
            }
            "/api/v1/nodes/fresh" => {
                Response::new(node("fresh", "9", &json!({"kind": "new"}), &Value::Null).to_string().into())
            }
            path => {
                let status =
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": path});
                let mut response = Response::new(Body::from(status.to_string()));
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        };
        async { Ok::<_, Infallible>(response) }
    });
    Client::new(service, "default")
}

async fn followed(changes: Vec<Value>) -> Nodes {
    let nodes = Nodes::new();
    let following = nodes.follow(server(changes), || (), Arc::new(Metrics::new()));
    assert!(timeout(Duration::from_secs(5), following).await.is_err());
    nodes
}

fn known(nodes: &Nodes, name: &str) -> Arc<Node> {
    match nodes.get(name) {
        NodeFact::Known(node) => node,
        other => panic!("{name} is {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn labels_and_taints_are_kept_and_nothing_else() {
    let nodes = followed(Vec::new()).await;
    let taint = |key: &str, value: &str, effect| Taint { key: key.to_owned(), value: value.to_owned(), effect };
    let gpu = known(&nodes, "gpu");
    assert_eq!(gpu.label("kind"), Some("gpu"));
    assert!(gpu.has_taint(&taint("nvidia.com/gpu", "present", Effect::NoSchedule)));
    assert!(gpu.has_taint(&taint("drained", "", Effect::NoExecute)));
    assert!(!gpu.has_taint(&taint("drained", "", Effect::NoSchedule)));
    assert_eq!(*known(&nodes, "plain"), Node::new([("kind".into(), "cpu".into())], []));
    assert!(matches!(nodes.get("other"), NodeFact::Unknown));
}

#[tokio::test(start_paused = true)]
async fn changes_are_taken_in() {
    let change = |what: &str, object: Value| json!({"type": what, "object": object});
    let nodes = followed(vec![
        change("MODIFIED", node("gpu", "8", &json!({"kind": "was-gpu"}), &json!([]))),
        change("ADDED", node("third", "9", &json!({}), &gpu())),
        change("DELETED", node("plain", "10", &json!({"kind": "cpu"}), &Value::Null)),
    ])
    .await;
    assert_eq!(*known(&nodes, "gpu"), Node::new([("kind".into(), "was-gpu".into())], []));
    assert!(known(&nodes, "third").label("kind").is_none());
    assert!(matches!(nodes.get("plain"), NodeFact::Unknown), "gone, and the watch may be late");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_looked_up_is_known_and_one_that_is_missing_is_not() {
    let nodes = followed(Vec::new()).await;
    let client = server(Vec::new());
    let fresh = nodes.look_up(&client, "fresh").await.unwrap().unwrap();
    assert_eq!(fresh.label("kind"), Some("new"));
    assert!(Arc::ptr_eq(&fresh, &known(&nodes, "fresh")));
    assert_eq!(nodes.look_up(&client, "missing").await.unwrap(), None);
    assert!(matches!(nodes.get("missing"), NodeFact::Unknown));
}

#[test]
fn texts_are_kept_once_and_only_as_long_as_a_node_has_them() {
    let kind = LabelsAndTaints::default();
    let of = |value: String| kind.keep([("name".to_owned(), value)].into(), NodeSpec::default());
    let stays = of("stays".to_owned());
    for round in 0..20 * FEW {
        drop(of(format!("node-{round}")));
    }
    let mut texts = kind.texts.lock().unwrap();
    assert!(texts.all.len() <= 2 * FEW, "{}", texts.all.len());
    let again = texts.share("stays".to_owned());
    assert!(std::ptr::eq(again.as_ref(), stays.label("name").unwrap()));
}
