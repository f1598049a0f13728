//! Against an API server that does what no real one can be told to do.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Response, StatusCode};
use gpufence::audit::snapshot::READS;
use gpufence::audit::{Resource, Snapshot};
use gpufence::cluster::Client;
use gpufence::cluster::audit::{SnapshotError, snapshot};
use serde_json::{Value, json};

use super::cluster::{CONTRACT, policy};

/// What was asked for, path and query.
type Asked = Arc<Mutex<Vec<String>>>;

/// Answers each request as it is told: with a code and a body.
fn server(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> (Client, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: axum::http::Request<kube::client::Body>| {
        let path = request.uri().to_string();
        log.lock().unwrap().push(path.clone());
        let (code, body) = answer(&path);
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        async { Ok::<_, Infallible>(response) }
    });
    (Client::new(service, "default"), asked)
}

fn list(names: &[&str], token: &str) -> (u16, Value) {
    let item = |name: &&str| json!({"metadata": {"name": name, "namespace": "web"}});
    let items: Vec<_> = names.iter().map(item).collect();
    (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": token}, "items": items}))
}

fn refused(code: u16, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}))
}

fn nothing() -> (u16, Value) {
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
}

/// Whether the request is for a resource, and with which token it goes on.
fn continued<'p>(path: &'p str, resource: &str) -> Option<&'p str> {
    let (path, query) = path.split_once('?')?;
    (path.rsplit('/').next() == Some(resource)).then(|| query.split_once("continue=").map_or("", |(_, token)| token))
}

async fn read(client: &Client) -> Result<Snapshot, SnapshotError> {
    snapshot(client, &policy(CONTRACT), |_| {}).await
}

fn pods(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.pods.iter().map(|pod| &*pod.name).collect()
}

#[tokio::test]
async fn a_list_goes_on_page_by_page_and_says_how_far_it_is() {
    let (client, asked) = server(|path| match continued(path, "pods") {
        Some("") => {
            let (code, mut page) = list(&["a", "b"], "2");
            page["metadata"]["remainingItemCount"] = 1.into();
            (code, page)
        }
        Some("2") => list(&["c"], ""),
        _ => nothing(),
    });
    let mut seen = Vec::new();
    let policy = policy(CONTRACT);
    let taken = snapshot(&client, &policy, |progress| {
        if progress.resource == "pods" {
            seen.push((progress.read, progress.left));
        }
    });
    let snapshot = taken.await.unwrap();
    assert_eq!(pods(&snapshot), ["a", "b", "c"]);
    assert_eq!(seen, [(2, Some(1)), (3, None)]);
    assert_eq!(snapshot.complete.len(), Resource::ALL.len());
    assert_eq!(snapshot.faults, [""; 0]);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), READS.len() + 1, "{asked:#?}");
    let of_pods: Vec<_> = asked.iter().filter(|path| path.contains("/pods?")).collect();
    assert!(
        of_pods.iter().all(|path| path
            .contains("fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&limit=500")),
        "{of_pods:#?}"
    );
}

/// The API server that no longer has the list as it was gives a token for what comes after, as it is now.
#[tokio::test]
async fn a_list_that_expires_goes_on_with_the_token_that_the_refusal_brings() {
    let (client, _) = server(|path| match continued(path, "pods") {
        Some("") => list(&["a", "b"], "old"),
        Some("old") => {
            let (code, mut gone) = refused(410, "the list has expired");
            gone["metadata"]["continue"] = "fresh".into();
            (code, gone)
        }
        Some("fresh") => list(&["c"], ""),
        _ => nothing(),
    });
    let snapshot = read(&client).await.unwrap();
    assert_eq!((pods(&snapshot), &*snapshot.faults), (vec!["a", "b", "c"], &[][..]));
}

/// Otherwise all is read again, a few times; nothing counts twice.
#[tokio::test]
async fn a_list_that_expires_without_a_token_is_begun_anew_but_not_for_ever() {
    let expiries = Mutex::new(2);
    let (client, _) = server(move |path| match continued(path, "pods") {
        Some("") => list(&["a", "b"], "old"),
        Some("old") if *expiries.lock().unwrap() > 0 => {
            *expiries.lock().unwrap() -= 1;
            refused(410, "the list has expired")
        }
        Some("old") => list(&["c"], ""),
        _ => nothing(),
    });
    let snapshot = read(&client).await.unwrap();
    assert_eq!((pods(&snapshot), &*snapshot.faults), (vec!["a", "b", "c"], &[][..]));

    let (client, asked) = server(|path| match continued(path, "pods") {
        Some("") => list(&["a", "b"], "old"),
        Some(_) => refused(410, "the list has expired"),
        _ => nothing(),
    });
    let snapshot = read(&client).await.unwrap();
    assert!(!snapshot.knows_all(Resource::Pods));
    assert!(snapshot.faults[0].starts_with("pods cannot be listed"), "{:?}", snapshot.faults);
    let tries = asked.lock().unwrap().iter().filter(|path| path.contains("/pods?")).count();
    assert_eq!(tries, 2 * (1 + 3));
}

/// Every list that is refused is a gap with what is not judged and the rule to add, and the others are read.
#[tokio::test]
async fn what_may_not_be_read_is_a_gap_with_the_right_that_is_missing() {
    for (group, resource) in READS.iter().copied() {
        let (client, _) = server(move |path| match continued(path, resource) {
            Some(_) => refused(403, "no"),
            None => nothing(),
        });
        let snapshot = read(&client).await.unwrap();
        let [gap] = &*snapshot.faults else { panic!("{:?}", snapshot.faults) };
        assert!(gap.starts_with(&format!("{resource} cannot be listed, so that ")), "{gap}");
        let remedy = format!(
            ": no (code 403); grant it in a ClusterRole with {{apiGroups: [\"{group}\"], resources: [{resource}], verbs: \
             [list]}}"
        );
        assert!(gap.ends_with(&remedy), "{gap}");
        let unknown: Vec<_> = Resource::ALL.into_iter().filter(|resource| !snapshot.knows_all(*resource)).collect();
        let expected = match resource {
            "nodes" => Resource::Nodes,
            "pods" => Resource::Pods,
            "namespaces" => Resource::Namespaces,
            "events" => Resource::Events,
            "poddisruptionbudgets" => Resource::PodDisruptionBudgets,
            _ => Resource::Workloads,
        };
        assert_eq!(unknown, [expected]);
    }
}

#[tokio::test]
async fn old_versions_are_read_where_there_is_no_newer() {
    let (client, asked) = server(|path| {
        let is_old = ["/apis/batch/v1/cronjobs", "/apis/policy/v1/"].iter().any(|new| path.starts_with(new));
        if is_old { refused(404, "not found") } else { nothing() }
    });
    let snapshot = read(&client).await.unwrap();
    assert_eq!((&*snapshot.faults, snapshot.complete.len()), (&[][..], Resource::ALL.len()));
    let asked = asked.lock().unwrap();
    for path in ["/apis/batch/v1beta1/cronjobs?", "/apis/policy/v1beta1/poddisruptionbudgets?"] {
        assert!(asked.iter().any(|asked| asked.starts_with(path)), "{asked:#?}");
    }
}

#[tokio::test]
async fn without_nodes_and_pods_there_is_no_audit() {
    let (client, _) = server(|path| {
        let vital = continued(path, "nodes").or(continued(path, "pods"));
        if vital.is_some() { refused(403, "who are you") } else { nothing() }
    });
    let error = read(&client).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is nothing to audit, since neither nodes nor pods can be read: who are you; who are you. Grant the verb \
         list on what an audit reads, as the ClusterRole gpufence-audit-reader of deploy/audit-reader.yaml does"
    );
}

/// What is true of every kind is no gap.
#[tokio::test]
async fn who_is_not_known_or_reaches_nobody_gets_no_audit() {
    let (client, _) = server(|_| refused(401, "Unauthorized"));
    let error = read(&client).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot list the nodes of the cluster: Unauthorized (code 401)");

    let (client, _) = server(|path| if continued(path, "pods").is_some() { (200, json!("<html>")) } else { nothing() });
    let error = read(&client).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot list the pods of the cluster: "), "{error}");
}

const CUSTOM: &str = "
pools:
  - name: nvidia
    resources: [nvidia.com/gpu]
    taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
    nodeSelector: {accelerator: nvidia}
    namespaces: {names: [ml]}
customResources:
  - {group: argoproj.io, kind: Rollout, resource: rollouts, templates: [$.spec.template]}
  - {group: absent.example.com, kind: Thing, resource: things, templates: [$.spec.template]}
";

fn groups() -> (u16, Value) {
    let versions = json!([
        {"groupVersion": "argoproj.io/v1alpha1", "version": "v1alpha1"},
        {"groupVersion": "argoproj.io/v1", "version": "v1"},
    ]);
    let group = json!({"name": "argoproj.io", "versions": versions, "preferredVersion": versions[1]});
    (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}))
}

/// A custom resource is read in the version that the API server prefers, or else in one that has it; where there is no
/// such group or no such resource there is nothing of it.
#[tokio::test]
async fn custom_resources_are_read_in_a_version_that_is_served() {
    let rollouts = || {
        let item = json!({
            "apiVersion": "argoproj.io/v1",
            "kind": "Rollout",
            "metadata": {"name": "shop", "namespace": "web"},
            "spec": {"template": {"spec": {"containers": []}}},
        });
        (200, json!({"apiVersion": "argoproj.io/v1", "items": [item], "kind": "RolloutList", "metadata": {}}))
    };
    for serving in ["v1", "v1alpha1", "none"] {
        let (client, asked) = server(move |path| match path {
            "/apis" => groups(),
            path if path.starts_with(&format!("/apis/argoproj.io/{serving}/rollouts?")) => rollouts(),
            path if path.starts_with("/apis/argoproj.io/") => refused(404, "not found"),
            _ => nothing(),
        });
        let policy = policy(CUSTOM);
        let snapshot = snapshot(&client, &policy, |_| {}).await.unwrap();
        assert!(snapshot.knows_all(Resource::Workloads));
        assert_eq!(snapshot.faults, [""; 0]);
        let found: Vec<_> = snapshot.workloads.iter().map(|workload| workload.object.to_string()).collect();
        assert_eq!(found, if serving == "none" { vec![] } else { vec!["Rollout web/shop"] });
        assert!(!asked.lock().unwrap().iter().any(|path| path.contains("absent")));
    }
}

#[tokio::test]
async fn custom_resources_that_may_not_be_read_are_a_gap() {
    let (client, _) = server(|path| match path {
        "/apis" => groups(),
        path if path.starts_with("/apis/argoproj.io/") => refused(403, "no"),
        _ => nothing(),
    });
    let policy = policy(CUSTOM);
    let taken = snapshot(&client, &policy, |_| {}).await.unwrap();
    assert!(!taken.knows_all(Resource::Workloads));
    assert_eq!(
        taken.faults,
        [
            "rollouts cannot be listed, so that their templates are not judged, and pods are not traced to who makes them \
             through them: no (code 403); grant it in a ClusterRole with {apiGroups: [\"argoproj.io\"], resources: \
             [rollouts], verbs: [list]}"
        ]
    );

    let (client, _) = server(|path| if path == "/apis" { refused(403, "no") } else { nothing() });
    let taken = snapshot(&client, &policy, |_| {}).await.unwrap();
    assert!(!taken.knows_all(Resource::Workloads));
    assert!(taken.faults[0].starts_with("which API groups there are cannot be asked"), "{:?}", taken.faults);
}

/// Answers pods at first with a fault, as often as it is told, then with one.
fn failing(code: u16, times: usize, after: u32) -> (Client, Asked) {
    let left = Mutex::new(times);
    server(move |path| match continued(path, "pods") {
        Some(_) if *left.lock().unwrap() > 0 => {
            *left.lock().unwrap() -= 1;
            let (code, mut status) = refused(code, "not now");
            status["details"] = json!({"retryAfterSeconds": after});
            (code, status)
        }
        Some(_) => list(&["a"], ""),
        None => nothing(),
    })
}

/// What passes is waited for, a few times and not for long; what does not is a gap at once.
#[tokio::test(start_paused = true)]
async fn a_page_that_fails_for_the_moment_is_asked_for_again() {
    for (code, times, after, tries, complete, waited) in [
        (500, 1, 0, 2, true, 500),
        (503, 4, 0, 5, true, 7500),
        (429, 2, 3, 3, true, 6000),
        (500, 5, 0, 5, false, 7500),
        (429, 9, 20, 2, false, 20_000),
        (429, 1, 31, 1, false, 0),
        (403, 1, 0, 1, false, 0),
    ] {
        let (client, asked) = failing(code, times, after);
        let began = tokio::time::Instant::now();
        let snapshot = read(&client).await.unwrap();
        let case = format!("{code} {times} times, after {after} s");
        assert_eq!(asked.lock().unwrap().iter().filter(|path| path.contains("/pods?")).count(), tries, "{case}");
        assert_eq!((snapshot.knows_all(Resource::Pods), snapshot.faults.is_empty()), (complete, complete), "{case}");
        assert_eq!(began.elapsed().as_millis() / 100, waited / 100, "{case}");
        assert_eq!(snapshot.unseen(&Resource::VITAL), (!complete).then(|| "pods".to_owned()), "{case}");
    }
}

/// However many kinds fail, the whole takes no longer.
#[tokio::test(start_paused = true)]
async fn all_waiting_together_has_an_end() {
    let (client, _) = server(|path| if continued(path, "nodes").is_some() { nothing() } else { refused(500, "ill") });
    let began = tokio::time::Instant::now();
    let snapshot = read(&client).await.unwrap();
    assert_eq!(snapshot.complete.iter().collect::<Vec<_>>(), [&Resource::Nodes]);
    assert!(began.elapsed() <= std::time::Duration::from_secs(31), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_late_is_said_to_be() {
    let (client, _) = failing(429, 1, 12);
    let mut late = Vec::new();
    let policy = policy(CONTRACT);
    let taken = snapshot(&client, &policy, |progress| {
        if progress.is_late {
            late.push((progress.resource.to_owned(), progress.read));
        }
    });
    taken.await.unwrap();
    assert_eq!(late, [("pods".to_owned(), 0)]);
}

/// Of an object that is listed twice the later word counts.
#[tokio::test]
async fn a_list_that_is_begun_anew_is_of_what_is_there_then() {
    let expired = Mutex::new(false);
    let (client, _) = server(move |path| match continued(path, "pods") {
        Some("") => {
            let (code, mut page) = list(&["a"], if *expired.lock().unwrap() { "" } else { "old" });
            let node = if *expired.lock().unwrap() { "gpu-2" } else { "gpu-1" };
            page["items"][0]["spec"] = json!({"nodeName": node});
            (code, page)
        }
        Some(_) => {
            *expired.lock().unwrap() = true;
            refused(410, "the list has expired")
        }
        None => nothing(),
    });
    let snapshot = read(&client).await.unwrap();
    let nodes: Vec<_> = snapshot.pods.iter().map(|pod| pod.node.as_deref().unwrap()).collect();
    assert_eq!(nodes, ["gpu-2"]);
}
