//! When a replica is ready, against API servers that say nothing or no.

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::contract::Contract;
use crate::lifecycle::Shutdown;

/// What the API server does with a list of nodes; a watch is silent.
#[derive(Debug, Clone, Copy)]
enum Nodes {
    Listed,
    Forbidden,
    Silence,
}

fn client(nodes: Nodes) -> Client {
    let service = tower::service_fn(move |request: Request<_>| async move {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let (code, body) = match nodes {
            Nodes::Listed if !is_watch => (StatusCode::OK, json!({"metadata": {"resourceVersion": "7"}, "items": []})),
            Nodes::Forbidden => {
                let message = "nodes is forbidden: User \"u\" cannot list resource \"nodes\"";
                (StatusCode::FORBIDDEN, json!({"kind": "Status", "status": "Failure", "code": 403, "message": message}))
            }
            Nodes::Listed | Nodes::Silence => future::pending().await,
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = code;
        Ok::<_, Infallible>(response)
    });
    Client::new(service, "default")
}

fn policy(yaml: &str) -> Arc<Policy> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), yaml).unwrap();
    Arc::new(Contract::load(Some(file.path()), []).unwrap().policy)
}

/// After how many seconds of an hour a process is ready.
async fn ready_after(nodes: Nodes) -> u64 {
    let live = Arc::new(Live { client: OnceCell::new_with(Some(client(nodes))), ..Live::default() });
    let readiness = Readiness::new(&Shutdown::new());
    let handle = readiness.handle("nodes");
    let (_policies, in_force) = watch::channel(policy("{}"));
    let following = tokio::spawn(live.follow_nodes(in_force, Some(handle), Arc::new(Metrics::new())));
    let began = Instant::now();
    assert_eq!(readiness.not_ready(), ["nodes"]);
    timeout(Duration::from_secs(3_600), readiness.ready()).await.unwrap();
    let after = began.elapsed().as_secs();
    sleep(Duration::from_secs(600)).await;
    assert!(!following.is_finished(), "it goes on trying");
    following.abort();
    after
}

#[tokio::test(start_paused = true)]
async fn a_replica_waits_for_the_nodes_but_not_for_long() {
    for (nodes, seconds) in [(Nodes::Listed, 0), (Nodes::Forbidden, 10), (Nodes::Silence, 10)] {
        assert_eq!(ready_after(nodes).await, seconds, "{nodes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_followed_from_when_a_contract_asks_for_them() {
    let live = Arc::new(Live { client: OnceCell::new_with(Some(client(Nodes::Listed))), ..Live::default() });
    let (policies, in_force) = watch::channel(policy("rules: {node-name-bypass: 'off'}"));
    let metrics = Arc::new(Metrics::new());
    let following = tokio::spawn(live.follow_nodes(in_force, None, Arc::clone(&metrics)));
    let has_read = || metrics.encode().unwrap().contains("\ngpufence_nodes_current_timestamp_seconds ");
    sleep(Duration::from_secs(60)).await;
    assert!(!has_read());
    policies.send_replace(policy("rules: {node-name-bypass: audit}"));
    sleep(Duration::from_secs(1)).await;
    assert!(has_read());
    following.abort();
}
