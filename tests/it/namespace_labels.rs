//! Decisions that depend on the labels of namespaces: known, unknown, and looked up once.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use gpufence::policy::{
    DAEMON_SET_CONTROLLER, Decision, Facts, InForce, Kind, Mode, NamespaceLabels, NoFacts, Node, Phase,
};
use gpufence::server::{ClusterLookup, Labels, LookingUp};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing_subscriber::fmt::MakeWriter;

use crate::binary::post;
use crate::embedded::Embedded;
use crate::support::{Form, Request, gpu_pod, pod, policy};
use crate::wire::{patch_of, recorded};

/// Entries by label and by name, after each other.
const ROLLOUT: &str = "rollout:\n- {selector: {matchLabels: {stage: early}}, mode: enforce}\n\
                       - {namespaces: [both], selector: {matchLabels: {stage: late}}, mode: warn}\n\
                       - {namespaces: ['named-*'], mode: enforce}";

fn known(labels: &[(&str, &str)]) -> NamespaceLabels {
    let labels: Labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let namespaces = ["team", "both", "named-a"].map(|name| (name.to_owned(), labels.clone()));
    NamespaceLabels(BTreeMap::from(namespaces))
}

fn in_force(mode: Mode, labels_unknown: bool) -> InForce {
    InForce { mode, labels_unknown }
}

#[test]
fn a_rollout_entry_matches_by_name_or_by_labels() {
    let policy = policy(&format!("mode: audit\n{ROLLOUT}"));
    for (namespace, labels, mode) in [
        ("team", &[("stage", "early")] as &[_], Mode::Enforce),
        ("team", &[("stage", "late")], Mode::Warn),
        ("team", &[("stage", "other")], Mode::Audit),
        ("team", &[], Mode::Audit),
        ("both", &[], Mode::Warn),
        ("both", &[("stage", "early")], Mode::Enforce),
        ("named-a", &[("stage", "late")], Mode::Warn),
        ("named-a", &[], Mode::Enforce),
    ] {
        let found = policy.mode_in(namespace, &known(labels));
        assert_eq!(found, in_force(mode, false), "{namespace} {labels:?}");
    }
}

/// What cannot be decided counts as absent, and is reported where it would have made a difference.
#[test]
fn a_rollout_entry_of_unknown_labels_is_passed_over_and_reported() {
    let modes = |contract: Mode| policy(&format!("mode: {contract}\n{ROLLOUT}"));
    for (contract, namespace, expected) in [
        (Mode::Audit, "web", in_force(Mode::Audit, true)),
        (Mode::Enforce, "web", in_force(Mode::Enforce, true)),
        (Mode::Audit, "both", in_force(Mode::Warn, true)),
        (Mode::Audit, "named-b", in_force(Mode::Enforce, true)),
    ] {
        assert_eq!(modes(contract).mode_in(namespace, &NoFacts), expected, "{contract} {namespace}");
    }
    let same = policy("mode: enforce\nrollout: [{selector: {matchLabels: {a: b}}, mode: enforce}]");
    assert_eq!(same.mode_in("web", &NoFacts), in_force(Mode::Enforce, false), "the same mode either way");
    let early = policy(
        "mode: audit\nrollout: [{namespaces: [web], mode: warn}, {selector: {matchLabels: {a: b}}, mode: enforce}]",
    );
    assert_eq!(early.mode_in("web", &NoFacts), in_force(Mode::Warn, false), "the first that matches counts");
    assert_eq!(modes(Mode::Enforce).capped(Mode::Audit).mode_in("web", &NoFacts), in_force(Mode::Audit, false));
}

#[test]
fn a_contract_says_where_it_enforces_and_whether_it_needs_labels() {
    let pool = Form::Dedicated.yaml(&["ml-team"], "");
    let selecting = pool.replace("names: ['ml-team']", "selector: {matchLabels: {gpu: a}}");
    let with = |mode: &str, rollout: &str| format!("mode: {mode}\nrollout: [{rollout}]");
    let label = "selector: {matchLabels: {a: b}}";
    for (yaml, reads, everywhere, somewhere) in [
        (pool, false, true, true),
        (selecting, true, true, true),
        (with("audit", ""), false, false, false),
        (with("warn", "{namespaces: [a], mode: audit}"), false, false, false),
        (with("audit", "{namespaces: [a], mode: enforce}"), false, false, true),
        (with("enforce", "{namespaces: [a], mode: enforce}"), false, true, true),
        (with("enforce", "{namespaces: [a], mode: warn}"), false, false, true),
        (with("audit", &format!("{{{label}, mode: enforce}}")), true, false, true),
    ] {
        let policy = policy(&yaml);
        let found = (policy.reads_namespace_labels(), policy.enforces_everywhere(), policy.enforces_somewhere());
        assert_eq!(found, (reads, everywhere, somewhere), "{yaml}");
        for cap in Mode::ALL {
            let capped = policy.clone().capped(cap);
            assert_eq!(capped.mode(), policy.mode().min(cap), "{yaml}");
            assert_eq!(capped.mode_in("a", &NoFacts).mode, policy.mode_in("a", &NoFacts).mode.min(cap), "{yaml}");
            assert_eq!(capped.enforces_somewhere(), cap == Mode::Enforce && somewhere, "{yaml}");
            assert_eq!(capped.reads_namespace_labels(), reads, "{yaml}");
        }
    }
}

fn decide(yaml: &str, facts: &dyn Facts, phase: Phase, pod: &Value) -> Decision {
    let object = pod.to_string();
    let object = Kind::Pod.read(&object).unwrap();
    let request = Request { namespace: "web", username: "someone", groups: &[], object: &object, old: None };
    request.decide_with(&policy(yaml), phase, facts)
}

/// Two pools: one by name, one by labels. Only what the pod passes or asks for can matter.
#[test]
fn unknown_labels_count_only_where_the_decision_rests_on_them() {
    let pools = "mode: enforce\npools:\n\
        - {name: a, resources: [example.com/a], taints: [{key: a, value: x, effect: NoSchedule}], nodeSelector: {p: a}, \
           namespaces: {names: [web]}}\n\
        - {name: b, resources: [example.com/b], taints: [{key: b, value: x, effect: NoSchedule}], nodeSelector: {p: b}, \
           namespaces: {selector: {matchLabels: {gpu: b}}}}\n\
        - {name: c, resources: [example.com/c], taints: [{key: c, value: x, effect: NoSchedule}], nodeSelector: {p: c}}\n\
        - {name: d, resources: [example.com/d], nodeSelector: {p: d}, namespaces: {selector: {matchLabels: {gpu: d}}}, \
           taints: [{key: c, value: x, effect: NoSchedule}, {key: c, value: x, effect: NoExecute}]}\n";
    let tolerating = |key: &str| {
        let toleration = json!({"key": key, "operator": "Equal", "value": "x", "effect": "NoSchedule"});
        pod(&json!({}), &json!({"tolerations": [toleration]}))
    };
    let asking = |resource: &str| pod(&json!({ resource: 1 }), &json!({}));
    for (pod, unknown) in [
        (pod(&json!({}), &json!({})), false),
        (asking("example.com/a"), false),
        (asking("example.com/b"), true),
        (tolerating("a"), false),
        (tolerating("b"), true),
        // Whoever may use pool d may pass into c, whose taint its own cannot be told from.
        (tolerating("c"), true),
        (pod(&json!({}), &json!({"tolerations": [{"operator": "Exists"}]})), true),
    ] {
        for phase in [Phase::Mutating, Phase::Validating] {
            assert_eq!(decide(pools, &NoFacts, phase, &pod).labels_unknown, unknown, "{phase:?} {pod}");
        }
        let known = NamespaceLabels(BTreeMap::from([("web".to_owned(), Labels::new())]));
        assert!(!decide(pools, &known, Phase::Validating, &pod).labels_unknown, "{pod}");
    }
    // An ordinary pod is the same in every mode.
    let rollout = "mode: audit\nrollout: [{selector: {matchLabels: {a: b}}, mode: enforce}]";
    assert!(!decide(rollout, &NoFacts, Phase::Validating, &pod(&json!({}), &json!({}))).labels_unknown);
    assert!(decide(rollout, &NoFacts, Phase::Validating, &gpu_pod(&json!({}))).labels_unknown);
    // Unless a field of it cannot be read, which is told to the client in some modes.
    let odd = pod(&json!({"nvidia.com/gpu": "x"}), &json!({}));
    assert!(decide(rollout, &NoFacts, Phase::Validating, &odd).labels_unknown);
}

/// Node agents and static pods must start while the API server answers nobody.
#[test]
fn who_is_exempt_rests_on_no_labels() {
    let yaml = format!(
        "{}\nexemptions: [{{name: agents, reason: r, namespaces: [web], daemonSets: ['*']}}]",
        by_label(Mode::Enforce)
    );
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]);
    let mut agent = pod(&json!({"nvidia.com/gpu": 1}), &json!({"tolerations": [{"operator": "Exists"}]}));
    agent["metadata"]["ownerReferences"] = owner;
    let object = agent.to_string();
    let object = Kind::Pod.read(&object).unwrap();
    for (username, unknown) in [(DAEMON_SET_CONTROLLER, false), ("someone", true)] {
        let request = Request { namespace: "web", username, groups: &[], object: &object, old: None };
        for phase in [Phase::Mutating, Phase::Validating] {
            let decision = request.decide_with(&policy(&yaml), phase, &NoFacts);
            assert_eq!(decision.labels_unknown, unknown, "{username} {phase:?}");
        }
    }
}

// === Looked up ===

/// What a lookup comes to.
#[derive(Debug, Clone)]
enum Script {
    Found(&'static [(&'static str, &'static str)]),
    Missing,
    Error,
    Never,
}

/// An API server that answers by a script, and keeps nothing.
#[derive(Debug)]
struct Fake {
    script: Script,
    asked: AtomicUsize,
}

impl Fake {
    fn new(script: Script) -> Arc<Self> {
        Arc::new(Self { script, asked: AtomicUsize::new(0) })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl ClusterLookup for Fake {
    fn look_up_namespace<'a>(&'a self, namespace: &'a str) -> LookingUp<'a, Labels> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            // As a real one, it does not answer at once.
            sleep(Duration::from_millis(1)).await;
            match self.script {
                Script::Found(labels) => {
                    Ok(Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()))
                }
                Script::Missing => Ok(None),
                Script::Error => {
                    let cause = io::Error::other(format!("namespaces {namespace:?} is forbidden"));
                    Err(io::Error::other(cause).into())
                }
                Script::Never => {
                    sleep(Duration::from_secs(3_600)).await;
                    Ok(None)
                }
            }
        })
    }

    fn look_up_node<'a>(&'a self, name: &'a str) -> LookingUp<'a, Arc<Node>> {
        unreachable!("nothing here rests on the node {name}")
    }
}

/// Lines that this thread logs, as JSON.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    pub fn collect() -> (Self, tracing::subscriber::DefaultGuard) {
        // As long as there is one subscriber alone, whether a line is wanted is asked of the thread that comes first by
        // its place, and kept for all: one without a subscriber would silence those that have one.
        static SECOND: LazyLock<tracing::Dispatch> =
            LazyLock::new(|| tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default()));
        LazyLock::force(&SECOND);
        let lines = Self::default();
        let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(lines.clone()).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    pub fn with(&self, key: &str, value: impl fmt::Display) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line[key] == value.to_string()).collect()
    }
}

const GPU: &str = "mutate-create-pod-gpu-pod";

/// A contract whose pool is open to namespaces of a label alone.
fn by_label(mode: Mode) -> String {
    Form::Dedicated
        .yaml(&["ml-team"], "rules: {placement-missing: off}")
        .replace("names: ['ml-team']", "selector: {matchLabels: {gpu: a}}")
        .replace("mode: enforce", &format!("mode: {mode}"))
}

fn requests(webhook: &str, outcome: &str) -> String {
    format!(
        "gpufence_admission_requests_total{{webhook=\"{webhook}\",resource=\"pods\",operation=\"CREATE\",\
         outcome=\"{outcome}\",dry_run=\"false\"}} 1"
    )
}

fn decisions(webhook: &str, rule: &str, action: &str) -> String {
    format!("gpufence_decisions_total{{webhook=\"{webhook}\",rule=\"{rule}\",action=\"{action}\",dry_run=\"false\"}} 1")
}

fn lookups(outcome: &str, count: usize) -> String {
    format!("gpufence_namespace_lookups_total{{outcome=\"{outcome}\"}} {count}")
}

/// Asserts that one answer was counted and that nothing else was.
fn assert_counted_once(server: &Embedded, series: &str) {
    server.assert_measured(series);
    let metrics = server.metrics.encode().unwrap();
    assert_eq!(metrics.matches("gpufence_admission_requests_total{").count(), 1, "{metrics}");
}

#[tokio::test]
async fn labels_that_are_found_decide() {
    let (lines, _guard) = Lines::collect();
    let fake = Fake::new(Script::Found(&[("gpu", "a")]));
    let server = Embedded::start(&by_label(Mode::Enforce), Some(fake.clone())).await;
    let injected = server.respond("/mutate", &recorded(GPU)).await;
    assert!(patch_of(&injected).is_some(), "{injected}");
    assert_eq!(injected["auditAnnotations"].get("namespace-labels"), None, "{injected}");
    assert_counted_once(&server, &requests("mutate", "inject"));
    server.assert_measured(&lookups("found", 1));
    assert_eq!(lines.with("target", "gpufence::decision").len(), 1, "the second answer alone");
    assert_eq!(lines.with("outcome", "inject").len(), 1);

    // What rests on no labels asks nobody.
    for name in ["mutate-create-pod-legacy", "mutate-delete-pod-sneaky", "validate-update-pod-status-gpu-pod"] {
        server.respond("/validate", &recorded(name)).await;
    }
    assert_eq!(fake.asked(), 1);
    server.stop().await;
}

#[tokio::test]
async fn labels_that_do_not_match_and_a_namespace_that_is_missing_are_outside() {
    let absence = by_label(Mode::Enforce)
        .replace("matchLabels: {gpu: a}", "matchExpressions: [{key: closed, operator: DoesNotExist}]");
    for (contract, script, outcome) in [
        (by_label(Mode::Enforce), Script::Found(&[("gpu", "b")]), "found"),
        (by_label(Mode::Enforce), Script::Missing, "missing"),
        // No labels are not the labels of what does not exist.
        (absence, Script::Missing, "missing"),
    ] {
        let server = Embedded::start(&contract, Some(Fake::new(script))).await;
        let denied = server.respond("/validate", &recorded(GPU)).await;
        let message = denied["status"]["message"].as_str().unwrap();
        assert!(message.starts_with("gpu-request-outside-allowlist: "), "{message}");
        assert!(!message.contains("not known"), "they are: {message}");
        assert_eq!(denied["auditAnnotations"].get("namespace-labels"), None, "{denied}");
        assert_counted_once(&server, &requests("validate", "deny"));
        server.assert_measured(&lookups(outcome, 1));
        server.stop().await;
    }
}

#[tokio::test]
async fn an_error_refuses_in_enforce_and_is_reported_in_audit() {
    for (mode, path, outcome) in [
        (Mode::Enforce, "/validate", "deny"),
        (Mode::Audit, "/validate", "would-deny"),
        (Mode::Enforce, "/audit/validate", "would-deny"),
    ] {
        let (lines, _guard) = Lines::collect();
        let fake = Fake::new(Script::Error);
        let server = Embedded::start(&by_label(mode), Some(fake.clone())).await;
        let response = server.respond(path, &recorded(GPU)).await;
        let annotations = &response["auditAnnotations"];
        assert_eq!(response["allowed"], outcome != "deny", "{response}");
        let message = annotations["gpu-request-outside-allowlist"].as_str().unwrap();
        assert!(message.contains("the labels of ml-team are not known"), "{message}");
        if outcome == "deny" {
            let told = response["status"]["message"].as_str().unwrap();
            assert!(told.contains("the labels of ml-team are not known"), "{told}");
        }
        let report = "report: the labels of namespace ml-team are not known: no selector of the contract could be tried \
                      on them";
        assert_eq!(annotations["namespace-labels"], report, "{response}");
        assert_counted_once(&server, &requests("validate", outcome));
        server.assert_measured(&decisions("validate", "namespace-labels", "report"));
        server.assert_measured(&lookups("error", 1));
        let told = lines.with("message", "the labels of a namespace cannot be read");
        assert_eq!((told.len(), &told[0]["namespace"]), (1, &json!("ml-team")), "{told:?}");
        assert!(told[0]["error"].as_str().unwrap().contains("is forbidden"), "{told:?}");
        assert_eq!(lines.with("target", "gpufence::decision").len(), 1);
        assert_eq!(fake.asked(), 1, "once");
        server.stop().await;
    }
}

/// A rollout entry by label: found, it counts; unknown, the contract's mode does.
#[tokio::test]
async fn the_mode_of_a_namespace_is_looked_up_too() {
    let contract = "mode: audit\nrollout: [{selector: {matchLabels: {stage: early}}, mode: enforce}]";
    let sneaky = recorded("mutate-create-pod-sneaky");
    for (script, allowed, mode, decision) in [
        (Script::Found(&[("stage", "early")]), false, "enforce", "deny"),
        (Script::Found(&[]), true, "audit", "would-deny"),
        (Script::Missing, true, "audit", "would-deny"),
        (Script::Error, true, "audit", "would-deny"),
    ] {
        let reported = matches!(script, Script::Error);
        let server = Embedded::start(contract, Some(Fake::new(script))).await;
        let response = server.respond("/validate", &sneaky).await;
        let annotations = &response["auditAnnotations"];
        assert_eq!(response["allowed"], allowed, "{response}");
        assert_eq!((&annotations["mode"], &annotations["decision"]), (&json!(mode), &json!(decision)), "{response}");
        assert_eq!(annotations.get("namespace-labels").is_some(), reported, "{response}");
        server.stop().await;
    }
}

/// A request that cannot be judged is refused or admitted by the mode, which may be a label's.
#[tokio::test]
async fn the_mode_counts_for_what_cannot_be_judged() {
    let contract = "mode: audit\nrollout: [{selector: {matchLabels: {stage: early}}, mode: enforce}]";
    let mut broken = recorded(GPU);
    broken["request"]["object"] = Value::Null;
    let mut foreign = recorded(GPU);
    foreign["apiVersion"] = json!("admission.k8s.io/v1beta1");
    for review in [broken, foreign] {
        let server = Embedded::start(contract, Some(Fake::new(Script::Found(&[("stage", "early")])))).await;
        let refused = server.respond("/validate", &review).await;
        assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(400)), "{refused}");
        server.stop().await;
        let server = Embedded::start(contract, Some(Fake::new(Script::Error))).await;
        let admitted = server.respond("/validate", &review).await;
        assert_eq!(admitted["allowed"], true, "{admitted}");
        assert!(admitted["auditAnnotations"]["namespace-labels"].is_string(), "{admitted}");
        server.assert_measured(&decisions("validate", "bad-request", "would-refuse"));
        server.stop().await;
    }
}

#[tokio::test]
async fn a_slow_lookup_takes_no_more_than_its_time() {
    let fake = Fake::new(Script::Never);
    let server = Embedded::start(&by_label(Mode::Enforce), Some(fake.clone())).await;
    let mut connection = server.connect().await;
    let body = recorded(GPU).to_string();
    for (timeout, least, most) in [("10s", 1_900, 8_000), ("300ms", 190, 1_800)] {
        let mut request = post("/validate").body(crate::binary::whole(body.clone())).unwrap();
        *request.uri_mut() = format!("/validate?timeout={timeout}").parse().unwrap();
        let began = Instant::now();
        let reply = connection.send(request).await;
        let took = began.elapsed().as_millis();
        assert!((least..most).contains(&took), "{took} ms with timeout={timeout}");
        let answer = reply.accepted("/validate", recorded(GPU)["request"]["uid"].as_str().unwrap());
        assert_eq!(answer["response"]["allowed"], false, "{answer}");
    }
    server.assert_measured(&lookups("timeout", 2));
    assert_eq!(fake.asked(), 2);
    server.stop().await;
}

/// Whoever reaches the port can write what they like where a namespace's name should be.
#[tokio::test]
async fn a_name_that_no_namespace_can_have_is_not_asked_for() {
    let fake = Fake::new(Script::Found(&[("gpu", "a")]));
    let server = Embedded::start(&by_label(Mode::Enforce), Some(fake.clone())).await;
    let names = ["../secrets", "a/b", "A", "a?b=c", "ä", &"a".repeat(64)];
    for name in names {
        let mut review = recorded(GPU);
        review["request"]["namespace"] = json!(name);
        let denied = server.respond("/validate", &review).await;
        assert_eq!(denied["allowed"], false, "{name}: {denied}");
    }
    assert_eq!(fake.asked(), 0);
    server.assert_measured(&lookups("missing", names.len()));
    server.stop().await;
}

#[tokio::test]
async fn without_a_lookup_labels_stay_unknown() {
    let server = Embedded::start(&by_label(Mode::Enforce), None).await;
    let denied = server.respond("/validate", &recorded(GPU)).await;
    assert_eq!(denied["allowed"], false, "{denied}");
    server.assert_measured(&decisions("validate", "namespace-labels", "report"));
    for outcome in ["found", "missing", "error", "timeout"] {
        server.assert_measured(&lookups(outcome, 0));
    }
    server.stop().await;
}
