//! Against an API server that does what no real one can be told to do.

use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;

/// What is asked: a list or a watch.
type Asked = Arc<Mutex<Vec<(Instant, &'static str)>>>;

/// Lists one namespace, and answers each watch as it is told.
fn server(watch: impl Fn() -> Response<Body> + Send + Sync + 'static) -> (Client, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let watch = Arc::new(watch);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        log.lock().unwrap().push((Instant::now(), if is_watch { "watch" } else { "list" }));
        let response = if is_watch { watch() } else { Response::new(list("7").to_string().into()) };
        async { Ok::<_, Infallible>(response) }
    });
    (Client::new(service, "default"), asked)
}

fn list(version: &str) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadataList",
        "metadata": {"resourceVersion": version},
        "items": [{
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": {"name": "team", "labels": {"a": "b"}},
        }],
    })
}

fn gone() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"})
}

/// Follows for so long, by a clock that stands still while anything is done.
async fn follow(client: Client, seconds: u64) -> (Namespaces, Arc<Metrics>) {
    let (namespaces, metrics) = (Namespaces::new(), Arc::new(Metrics::new()));
    let following = namespaces.follow(client, None, Arc::clone(&metrics));
    assert!(timeout(Duration::from_secs(seconds), following).await.is_err());
    (namespaces, metrics)
}

fn count(asked: &Asked, what: &str) -> usize {
    asked.lock().unwrap().iter().filter(|(_, asked)| *asked == what).count()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_opened_without_a_pause() {
    let (client, asked) = server(|| Response::new(Body::empty()));
    let (namespaces, _) = follow(client, 60).await;
    assert!(namespaces.known.load().contains_key("team"));
    assert_eq!(count(&asked, "list"), 1);
    let watches = count(&asked, "watch");
    assert!((50..=80).contains(&watches), "{watches}");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_read_again_less_and_less_often() {
    let as_event = || Response::new(Body::from(format!("{}\n", json!({"type": "ERROR", "object": gone()}))));
    let as_answer = || {
        let mut response = Response::new(Body::from(gone().to_string()));
        *response.status_mut() = StatusCode::GONE;
        response
    };
    for (client, asked) in [server(as_event), server(as_answer)] {
        let (namespaces, _) = follow(client, 60).await;
        assert!(namespaces.known.load().contains_key("team"));
        let lists = count(&asked, "list");
        assert!((4..=8).contains(&lists), "{lists}");
        assert_eq!(lists, count(&asked, "watch"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_given_up_and_everything_read_again() {
    let silence = || Response::new(Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>()));
    let (client, asked) = server(silence);
    let (namespaces, _) = follow(client, 100).await;
    assert!(namespaces.known.load().contains_key("team"));
    let asked = asked.lock().unwrap();
    let kinds: Vec<_> = asked.iter().map(|(_, what)| *what).collect();
    assert_eq!(kinds, ["list", "watch", "list", "watch"]);
    assert!(asked[2].0 - asked[1].0 >= SILENT);
}
