//! What each mode does and what it tells: in the answer, in the log and on the metrics.

use serde_json::{Value, json};

use crate::binary::{Connection, Server};
use crate::wire::{patch_of, recorded};

/// A GPU pod in a namespace that may use the pool, a pod that passes the taint in one that may not, and
/// an ordinary pod.
const GPU: &str = "mutate-create-pod-gpu-pod";
const SNEAKY: &str = "mutate-create-pod-sneaky";
const ORDINARY: &str = "mutate-create-pod-legacy";

const OUTSIDE: &str = "toleration-outside-allowlist";

/// A recorded request, in another namespace.
fn moved(name: &str, namespace: &str) -> Value {
    let mut review = recorded(name);
    review["request"]["namespace"] = json!(namespace);
    review
}

async fn respond(connection: &mut Connection, path: &str, review: &Value) -> Value {
    let (status, mut answer) = connection.review(path, review).await;
    assert_eq!(status, 200, "{answer}");
    answer["response"].take()
}

/// Asserts that the request passes as it is, and that the client sees nothing of gpufence.
fn assert_untouched(what: &str, response: &Value) {
    assert_eq!(response["allowed"], true, "{what}: {response}");
    for part in ["patch", "patchType", "warnings", "status"] {
        assert_eq!(response.get(part), None, "{what}: {response}");
    }
}

/// Asserts that there is nothing to tell of the request either.
fn assert_silent(what: &str, response: &Value) {
    assert_untouched(what, response);
    assert_eq!(response.get("auditAnnotations"), None, "{what}: {response}");
}

/// Asserts that the audit log is told of the decision in this mode, and what of it.
fn assert_told(what: &str, response: &Value, mode: &str, decision: &str, rule: &str) {
    let annotations = &response["auditAnnotations"];
    assert_eq!(
        (&annotations["mode"], &annotations["decision"]),
        (&json!(mode), &json!(decision)),
        "{what}: {response}"
    );
    let text = annotations[rule].as_str().unwrap_or_else(|| panic!("{what}: {response}"));
    assert!(text.starts_with(&format!("{decision}: ")), "{what}: {text}");
}

/// Asserts that a metric has this value.
fn assert_counted(metrics: &str, series: &str, count: u32) {
    let line = format!("{series} {count}");
    assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
}

fn decisions(webhook: &str, rule: &str, action: &str) -> String {
    format!("gpufence_decisions_total{{webhook=\"{webhook}\",rule=\"{rule}\",action=\"{action}\",dry_run=\"false\"}}")
}

fn requests(webhook: &str, outcome: &str) -> String {
    format!(
        "gpufence_admission_requests_total{{webhook=\"{webhook}\",resource=\"pods\",operation=\"CREATE\",\
         outcome=\"{outcome}\",dry_run=\"false\"}}"
    )
}

/// A decision's line in the log, without its time.
fn line(level: &str, outcome: &str, webhook: &str, rule: &str, review: &Value) -> Value {
    let request = &review["request"];
    json!({
        "level": level,
        "message": outcome,
        "outcome": outcome,
        "webhook": webhook,
        "rules": rule,
        "uid": request["uid"],
        "operation": "CREATE",
        "resource": "pods",
        "kind": request["kind"]["kind"],
        "namespace": request["namespace"],
        "name": request["object"]["metadata"]["name"],
        "user": request["userInfo"]["username"],
        "dry_run": false,
        "target": "gpufence::decision",
    })
}

/// The decisions that the server has logged, each found to have a time and reasons.
async fn logged(server: Server) -> Vec<Value> {
    let mut lines = server.decisions().await;
    for line in &mut lines {
        let fields = line.as_object_mut().unwrap();
        assert!(fields.remove("timestamp").is_some_and(|time| time.as_str().unwrap().ends_with('Z')));
        assert!(fields.remove("reasons").is_some_and(|reasons| !reasons.as_str().unwrap().is_empty()));
    }
    lines
}

#[tokio::test]
async fn audit_changes_nothing_denies_nothing_and_tells_all() {
    let server = Server::start("mode: audit").await;
    let mut connection = server.connect().await;

    let injected = respond(&mut connection, "/mutate", &recorded(GPU)).await;
    assert_untouched(GPU, &injected);
    assert_told(GPU, &injected, "audit", "would-inject", "injection");
    assert_silent(GPU, &respond(&mut connection, "/validate", &recorded(GPU)).await);

    assert_silent(SNEAKY, &respond(&mut connection, "/mutate", &recorded(SNEAKY)).await);
    let denied = respond(&mut connection, "/validate", &recorded(SNEAKY)).await;
    assert_untouched(SNEAKY, &denied);
    assert_told(SNEAKY, &denied, "audit", "would-deny", OUTSIDE);

    for path in ["/mutate", "/validate"] {
        assert_silent(ORDINARY, &respond(&mut connection, path, &recorded(ORDINARY)).await);
    }

    let metrics = server.get_metrics().await;
    assert_counted(&metrics, &decisions("mutate", "injection", "would-inject"), 1);
    assert_counted(&metrics, &decisions("validate", OUTSIDE, "would-deny"), 1);
    assert_eq!(metrics.matches("gpufence_decisions_total{").count(), 2, "{metrics}");
    assert_counted(&metrics, &requests("mutate", "would-inject"), 1);
    assert_counted(&metrics, &requests("validate", "would-deny"), 1);
    assert_counted(&metrics, &requests("mutate", "allow"), 2);
    assert_counted(&metrics, &requests("validate", "allow"), 2);

    let expected = [
        line("INFO", "would-inject", "mutate", "injection", &recorded(GPU)),
        line("INFO", "would-deny", "validate", OUTSIDE, &recorded(SNEAKY)),
    ];
    assert_eq!(logged(server).await, expected);
}

/// The contract that will be enforced, watched first: the registration alone names the paths.
#[tokio::test]
async fn the_audit_paths_report_what_an_enforcing_contract_would_do() {
    for contract in ["mode: enforce", "mode: audit\nrollout: [{namespaces: ['*'], mode: enforce}]", "mode: warn"] {
        let server = Server::start(contract).await;
        let mut connection = server.connect().await;
        let injected = respond(&mut connection, "/audit/mutate", &recorded(GPU)).await;
        assert_untouched(GPU, &injected);
        assert_told(GPU, &injected, "audit", "would-inject", "injection");
        let denied = respond(&mut connection, "/audit/validate", &recorded(SNEAKY)).await;
        assert_untouched(SNEAKY, &denied);
        assert_told(SNEAKY, &denied, "audit", "would-deny", OUTSIDE);
        let mut broken = recorded(SNEAKY);
        broken["request"]["object"] = json!(null);
        let admitted = respond(&mut connection, "/audit/validate", &broken).await;
        assert_untouched("a broken request", &admitted);
        assert_eq!(admitted["auditAnnotations"]["decision"], "would-refuse", "{admitted}");
        for path in ["/audit/mutate", "/audit/validate"] {
            assert_silent(ORDINARY, &respond(&mut connection, path, &recorded(ORDINARY)).await);
        }
        // At the same time the others do what the contract says.
        assert!(patch_of(&respond(&mut connection, "/mutate", &recorded(GPU)).await).is_some());
        let enforced = respond(&mut connection, "/validate", &recorded(SNEAKY)).await;
        assert_eq!(enforced["allowed"], contract == "mode: warn", "{enforced}");

        let metrics = server.get_metrics().await;
        assert_counted(&metrics, &decisions("mutate", "injection", "would-inject"), 1);
        assert_counted(&metrics, &decisions("mutate", "injection", "inject"), 1);
        assert_counted(&metrics, &decisions("validate", "bad-request", "would-refuse"), 1);
        let lines = server.decisions().await;
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert_eq!((&lines[0]["webhook"], &lines[1]["webhook"]), (&json!("mutate"), &json!("validate")));
    }
}

#[tokio::test]
async fn a_rollout_enforces_in_its_namespaces_alone() {
    let contract = "mode: audit\nrollout: [{namespaces: ['*-canary'], mode: enforce}]";
    let server = Server::start(contract).await;
    let mut connection = server.connect().await;

    let canary = moved(GPU, "research-canary");
    let injected = respond(&mut connection, "/mutate", &canary).await;
    assert!(patch_of(&injected).is_some(), "{injected}");
    assert_told("canary", &injected, "enforce", "inject", "injection");
    let reported = respond(&mut connection, "/mutate", &recorded(GPU)).await;
    assert_untouched(GPU, &reported);
    assert_told(GPU, &reported, "audit", "would-inject", "injection");

    let sneaky_canary = moved(SNEAKY, "web-canary");
    let denied = respond(&mut connection, "/validate", &sneaky_canary).await;
    assert_eq!(denied["allowed"], false, "{denied}");
    assert_told("canary", &denied, "enforce", "deny", OUTSIDE);
    let reported = respond(&mut connection, "/validate", &recorded(SNEAKY)).await;
    assert_untouched(SNEAKY, &reported);
    assert_told(SNEAKY, &reported, "audit", "would-deny", OUTSIDE);

    let metrics = server.get_metrics().await;
    for action in ["inject", "would-inject"] {
        assert_counted(&metrics, &decisions("mutate", "injection", action), 1);
    }
    for action in ["deny", "would-deny"] {
        assert_counted(&metrics, &decisions("validate", OUTSIDE, action), 1);
    }
    let expected = [
        line("INFO", "inject", "mutate", "injection", &canary),
        line("INFO", "would-inject", "mutate", "injection", &recorded(GPU)),
        line("WARN", "deny", "validate", OUTSIDE, &sneaky_canary),
        line("INFO", "would-deny", "validate", OUTSIDE, &recorded(SNEAKY)),
    ];
    assert_eq!(logged(server).await, expected);
}

#[tokio::test]
async fn warn_completes_pods_shows_warnings_and_denies_nothing() {
    let server = Server::start("mode: warn").await;
    let mut connection = server.connect().await;

    let injected = respond(&mut connection, "/mutate", &recorded(GPU)).await;
    assert!(patch_of(&injected).is_some(), "{injected}");
    assert_told(GPU, &injected, "warn", "inject", "injection");

    let warned = respond(&mut connection, "/validate", &recorded(SNEAKY)).await;
    assert_eq!(warned["allowed"], true, "{warned}");
    assert_told(SNEAKY, &warned, "warn", "would-deny", OUTSIDE);
    assert_eq!(warned["warnings"].as_array().unwrap().len(), 1, "{warned}");
    assert!(warned["warnings"][0].as_str().unwrap().starts_with(&format!("{OUTSIDE}: spec.tolerations[0] ")));

    for path in ["/mutate", "/validate"] {
        assert_silent(ORDINARY, &respond(&mut connection, path, &recorded(ORDINARY)).await);
    }
    let expected = [
        line("INFO", "inject", "mutate", "injection", &recorded(GPU)),
        line("INFO", "would-deny", "validate", OUTSIDE, &recorded(SNEAKY)),
    ];
    assert_eq!(logged(server).await, expected);
}

#[tokio::test]
async fn enforce_logs_each_decision_once() {
    let server = Server::start("mode: enforce").await;
    let mut connection = server.connect().await;
    let asked = [("/validate", SNEAKY), ("/validate", GPU), ("/mutate", GPU), ("/mutate", ORDINARY)];
    for (path, name) in asked {
        respond(&mut connection, path, &recorded(name)).await;
    }
    let expected = [
        line("WARN", "deny", "validate", OUTSIDE, &recorded(SNEAKY)),
        line("INFO", "warn", "validate", "placement-missing", &recorded(GPU)),
        line("INFO", "inject", "mutate", "injection", &recorded(GPU)),
    ];
    assert_eq!(logged(server).await, expected);
}

#[tokio::test]
async fn health_and_metrics_are_there_from_the_start() {
    let server = Server::start("mode: audit").await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.get(path).await, (200, "ok".to_owned()), "{path}");
    }
    respond(&mut server.connect().await, "/validate", &recorded(ORDINARY)).await;
    let metrics = server.get_metrics().await;
    assert_counted(&metrics, &format!("gpufence_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1);
    let duration = "gpufence_admission_duration_seconds";
    let first = metrics.lines().find(|line| line.starts_with(&format!("{duration}_bucket")));
    let first = first.unwrap_or_else(|| panic!("{metrics}"));
    assert!(first.contains("le=\"0.00025\"") && first.contains("webhook=\"validate\""), "{first}");
    assert_counted(&metrics, &format!("{duration}_count{{webhook=\"validate\"}}"), 1);
    assert_counted(&metrics, "gpufence_panics_total", 0);
}
