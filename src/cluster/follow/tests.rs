//! Against an API server that does what no real one can be told to do.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;

/// Labels, of namespaces.
#[derive(Debug, Default)]
struct Labels;

#[derive(Debug, Clone, Default, Deserialize)]
struct Nothing {}

impl Kind for Labels {
    type Spec = Nothing;
    type Kept = BTreeMap<String, String>;

    const RESOURCE: &'static str = "namespaces";
    const WHAT: &'static str = "labels";
    const PAGE: u32 = 2;
    const IS_METADATA_ONLY: bool = true;

    fn keep(&self, labels: BTreeMap<String, String>, Nothing {}: Nothing) -> Self::Kept {
        labels
    }

    fn current(metrics: &Metrics, at: i64) {
        metrics.namespace_labels_current(at);
    }
}

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
async fn follow(client: Client, seconds: u64) -> (Followed<Labels>, Arc<Metrics>) {
    let (namespaces, metrics) = (Followed::<Labels>::default(), Arc::new(Metrics::new()));
    let told = AtomicBool::new(false);
    let following = namespaces.follow(client, || told.store(true, Ordering::SeqCst), Arc::clone(&metrics));
    assert!(timeout(Duration::from_secs(seconds), following).await.is_err());
    assert!(told.load(Ordering::SeqCst));
    (namespaces, metrics)
}

fn count(asked: &Asked, what: &str) -> usize {
    asked.lock().unwrap().iter().filter(|(_, asked)| *asked == what).count()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_opened_without_a_pause() {
    let (client, asked) = server(|| Response::new(Body::empty()));
    let (namespaces, _) = follow(client, 60).await;
    assert!(namespaces.get("team").is_some());
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
        assert!(namespaces.get("team").is_some());
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
    assert!(namespaces.get("team").is_some());
    let asked = asked.lock().unwrap();
    let kinds: Vec<_> = asked.iter().map(|(_, what)| *what).collect();
    assert_eq!(kinds, ["list", "watch", "list", "watch"]);
    assert!(asked[2].0 - asked[1].0 >= SILENT);
}

/// What an object that is written to all day says of itself is mostly nothing that is kept.
#[tokio::test(start_paused = true)]
async fn a_change_of_nothing_that_is_kept_copies_nothing() {
    let event = |what: &str, version: &str, labels: &Value| {
        let metadata = json!({"name": "team", "resourceVersion": version, "labels": labels});
        json!({"type": what, "object": {"metadata": metadata}}).to_string()
    };
    let (same, other) = (event("MODIFIED", "8", &json!({"a": "b"})), event("MODIFIED", "9", &json!({"a": "c"})));
    for (events, copied) in [(vec![same.clone()], false), (vec![same, other.clone()], true), (vec![other], true)] {
        let followed = Followed::<Labels>::default();
        let (client, _) = server(move || {
            let lines: Vec<Result<String, std::io::Error>> =
                events.iter().map(|event| Ok(format!("{event}\n"))).collect();
            Response::new(Body::from_stream(stream::iter(lines).chain(stream::pending())))
        });
        followed.list(&client).await.unwrap();
        let before = followed.known.load_full();
        let (metrics, mut backoff) = (Metrics::new(), BACKOFF);
        let watching = followed.watch(&client, "7".to_owned(), &metrics, &mut backoff);
        assert!(timeout(Duration::from_secs(1), watching).await.is_err());
        assert_eq!(Arc::ptr_eq(&before, &followed.known.load_full()), !copied);
        assert_eq!(followed.get("team").unwrap()["a"], if copied { "c" } else { "b" });
    }
}

/// A list that is read again keeps what has not changed.
#[tokio::test]
async fn what_has_not_changed_is_not_kept_twice() {
    let (client, _) = server(|| Response::new(Body::empty()));
    let followed = Followed::<Labels>::default();
    followed.list(&client).await.unwrap();
    let before = followed.get("team").unwrap();
    followed.list(&client).await.unwrap();
    assert!(Arc::ptr_eq(&before, &followed.get("team").unwrap()));
}
