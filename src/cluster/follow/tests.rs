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

/// An event about a namespace whose label has this value.
fn event(what: &str, name: &str, version: &str, value: &str) -> String {
    let metadata = json!({"name": name, "resourceVersion": version, "labels": {"a": value}});
    json!({"type": what, "object": {"metadata": metadata}}).to_string()
}

/// A watch that brings these at once, and then nothing.
fn changes(events: &[String]) -> Response<Body> {
    let lines: Vec<Result<String, std::io::Error>> = events.iter().map(|event| Ok(format!("{event}\n"))).collect();
    Response::new(Body::from_stream(stream::iter(lines).chain(stream::pending())))
}

fn failure(code: StatusCode) -> Response<Body> {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "message": "no"});
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = code;
    response
}

/// A namespace as it is looked up.
fn found(value: &str) -> Response<Body> {
    let metadata = json!({"name": "team", "resourceVersion": "9", "labels": {"a": value}});
    Response::new(json!({"metadata": metadata}).to_string().into())
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
    let (same, other) = (event("MODIFIED", "team", "8", "b"), event("MODIFIED", "team", "9", "c"));
    for (events, copied) in [(vec![same.clone()], false), (vec![same, other.clone()], true), (vec![other], true)] {
        let followed = Followed::<Labels>::default();
        let (client, _) = server(move || changes(&events));
        followed.list(&client).await.unwrap();
        let before = followed.known.load_full();
        let (metrics, mut backoff) = (Metrics::new(), BACKOFF);
        let mut version = "7".to_owned();
        let watching = followed.watch(&client, &mut version, &metrics, &mut backoff);
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

/// What the watch brings while an object is looked up is newer, also that there is none any more.
#[tokio::test]
async fn an_object_that_goes_while_it_is_looked_up_is_not_kept() {
    let deleted = |name: &'static str| Changes::<Labels>::from([(name.into(), None)]);
    let added =
        || Changes::<Labels>::from([("team".into(), Some(Arc::new([("a".to_owned(), "new".to_owned())].into())))]);
    for (meanwhile, kept) in [
        (Changes::<Labels>::new(), Some("found")),
        (added(), Some("new")),
        (deleted("team"), None),
        // Which one it was is not remembered: that costs another lookup.
        (deleted("other"), None),
    ] {
        let followed = Arc::new(Followed::<Labels>::default());
        let (during, meanwhile) = (Arc::clone(&followed), Arc::new(meanwhile));
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            during.take_in(&meanwhile);
            async { Ok::<_, Infallible>(found("found")) }
        });
        let answer = followed.look_up(&Client::new(service, "default"), "team").await.unwrap().unwrap();
        assert_eq!(answer["a"], "found");
        assert_eq!(followed.get("team").as_ref().map(|labels| labels["a"].as_str()), kept);
    }
}

/// The same where all is read anew while one is looked up.
#[tokio::test]
async fn an_object_that_a_list_no_longer_has_is_not_kept() {
    let followed = Arc::new(Followed::<Labels>::default());
    let during = Arc::clone(&followed);
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        let during = Arc::clone(&during);
        async move {
            let (client, _) = server(|| Response::new(Body::empty()));
            during.list(&client).await.unwrap();
            let metadata = json!({"name": "gone", "resourceVersion": "6", "labels": {}});
            Ok::<_, Infallible>(Response::new(Body::from(json!({"metadata": metadata}).to_string())))
        }
    });
    assert!(followed.look_up(&Client::new(service, "default"), "gone").await.unwrap().is_some());
    assert!(followed.get("gone").is_none() && followed.get("team").is_some());
}

/// The API server may answer everything but watches and lists, or nothing at all.
#[tokio::test(start_paused = true)]
async fn what_was_last_known_long_ago_is_looked_up_again() {
    let (reachable, answers) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let (is_reachable, does_answer) = (Arc::clone(&reachable), Arc::clone(&answers));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let response = if request.uri().path().ends_with("/team") {
            if does_answer.load(Ordering::SeqCst) { found("c") } else { failure(StatusCode::INTERNAL_SERVER_ERROR) }
        } else if !is_reachable.load(Ordering::SeqCst) {
            failure(StatusCode::INTERNAL_SERVER_ERROR)
        } else if request.uri().query().unwrap_or_default().contains("watch=true") {
            Response::new(Body::empty())
        } else {
            Response::new(list("7").to_string().into())
        };
        async { Ok::<_, Infallible>(response) }
    });
    let client = Client::new(service, "default");
    let followed = Arc::new(Followed::<Labels>::default());
    let (following, of) = (Arc::clone(&followed), client.clone());
    let following = tokio::spawn(async move { following.follow(of, || (), Arc::new(Metrics::new())).await });
    let value = || followed.with("team", |labels| labels["a"].clone());

    // As long as watches end as they should it counts for ever, changed or not.
    sleep(STALE * 2).await;
    assert_eq!(value().as_deref(), Some("b"));

    reachable.store(false, Ordering::SeqCst);
    sleep(STALE.saturating_sub(Duration::from_secs(5))).await;
    assert_eq!(value().as_deref(), Some("b"));
    sleep(Duration::from_secs(10)).await;
    assert_eq!((value(), followed.get("team")), (None, None));
    // What a lookup finds is the answer, for this once.
    assert_eq!(followed.look_up(&client, "team").await.unwrap().unwrap()["a"], "c");
    assert_eq!(value(), None);
    answers.store(false, Ordering::SeqCst);
    assert!(followed.look_up(&client, "team").await.is_err());

    reachable.store(true, Ordering::SeqCst);
    sleep(LONGEST_BACKOFF * 2).await;
    assert_eq!(value().as_deref(), Some("b"));
    following.abort();
}

/// Relabelling all nodes must not copy all of them as often as there are any.
#[tokio::test(start_paused = true)]
async fn changes_that_come_together_are_taken_in_together() {
    let followed = Arc::new(Followed::<Labels>::default());
    let added = (2..3 * CHANGES).map(|index| event("ADDED", &format!("team-{index}"), "8", "b"));
    let last = [
        event("ADDED", "team-0", "8", "b"),
        event("ADDED", "team-1", "9", "b"),
        event("DELETED", "team-0", "10", "b"),
        event("MODIFIED", "team-1", "11", "c"),
    ];
    let events: Vec<_> = added.chain(last).collect();
    let copies = Arc::new(AtomicU64::new(0));
    let (seen, count) = (Arc::clone(&followed), Arc::clone(&copies));
    let (client, _) = server(move || {
        // What is known when each is asked for.
        let (seen, count) = (Arc::clone(&seen), Arc::clone(&count));
        let mut before = seen.known.load_full();
        let lines = stream::iter(events.clone()).map(move |event| {
            let now = seen.known.load_full();
            count.fetch_add(u64::from(!Arc::ptr_eq(&before, &now)), Ordering::SeqCst);
            before = now;
            Ok::<_, std::io::Error>(format!("{event}\n"))
        });
        Response::new(Body::from_stream(lines.chain(stream::pending())))
    });
    let (metrics, mut backoff, mut version) = (Metrics::new(), BACKOFF, "7".to_owned());
    let watching = followed.watch(&client, &mut version, &metrics, &mut backoff);
    assert!(timeout(Duration::from_secs(1), watching).await.is_err());
    assert_eq!(version, "11");
    assert_eq!(followed.known.load().by_name.len(), 3 * CHANGES - 1);
    assert!(followed.get("team-0").is_none() && followed.get("team-1").unwrap()["a"] == "c");
    let copies = copies.load(Ordering::SeqCst);
    assert!((1..=10).contains(&copies), "{copies}");
}

/// A watch that breaks off goes on from where it was; one that cannot does not try for ever.
#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_off_goes_on_where_it_was() {
    let breaks_off = |events: Vec<String>| {
        let lines = events.into_iter().map(|event| Ok(format!("{event}\n")));
        let lines: Vec<_> = lines.chain([Err(std::io::Error::other("reset"))]).collect();
        Response::new(Body::from_stream(stream::iter(lines)))
    };
    let watches = Arc::new(Mutex::new(0));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let response = if query.contains("watch=true") {
            let since = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
            log.lock().unwrap().push(format!("watch {since}"));
            *watches.lock().unwrap() += 1;
            match *watches.lock().unwrap() {
                1 => breaks_off(vec![event("MODIFIED", "team", "8", "c"), event("DELETED", "other", "9", "c")]),
                2 => breaks_off(vec![event("MODIFIED", "team", "10", "d")]),
                3 | 4 => failure(StatusCode::INTERNAL_SERVER_ERROR),
                _ => Response::new(Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>())),
            }
        } else {
            log.lock().unwrap().push("list".to_owned());
            Response::new(list("20").to_string().into())
        };
        async { Ok::<_, Infallible>(response) }
    });
    let client = Client::new(service, "default");
    let (namespaces, _) = follow(client, 30).await;
    assert_eq!(namespaces.get("team").unwrap()["a"], "b");
    let expected = ["list", "watch 20", "watch 9", "watch 10", "list", "watch 20", "list", "watch 20"];
    assert_eq!(*asked.lock().unwrap(), expected);
}
