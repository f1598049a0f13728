//! Decisions that depend on a node: looked up once where it is not known, beside the labels of the namespace.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpufence::policy::Node;
use gpufence::server::{ClusterLookup, Labels, LookingUp};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::binary::{Server, post};
use crate::embedded::Embedded;
use crate::namespace_labels::Lines;
use crate::support::Form;
use crate::wire::recorded;

/// What a lookup of a node comes to.
#[derive(Debug, Clone)]
enum Script {
    /// A node with these labels and taints.
    Found(&'static [(&'static str, &'static str)], &'static [[&'static str; 3]]),
    Missing,
    Error,
    Never,
}

const LABEL: (&str, &str) = ("workload.example.com/accelerator", "nvidia");
const GPU: Script = Script::Found(&[LABEL, ("a", "b")], &[["dedicated", "gpu", "NoSchedule"]]);
const ORDINARY: Script = Script::Found(&[("a", "b")], &[["node.kubernetes.io/unschedulable", "", "NoSchedule"]]);

/// An API server that answers by a script after a while, and keeps nothing. It knows the labels of every
/// namespace: those that open the pool, or none that it would tell.
#[derive(Debug)]
struct Fake {
    node: Script,
    opens: Option<bool>,
    takes: Duration,
    nodes: Mutex<Vec<String>>,
    namespaces: AtomicUsize,
}

impl Fake {
    fn new(node: Script) -> Arc<Self> {
        Self::with_namespaces(node, None, Duration::from_millis(1))
    }

    fn with_namespaces(node: Script, opens: Option<bool>, takes: Duration) -> Arc<Self> {
        Arc::new(Self { node, opens, takes, nodes: Mutex::default(), namespaces: AtomicUsize::new(0) })
    }

    fn asked(&self) -> Vec<String> {
        self.nodes.lock().unwrap().clone()
    }
}

impl ClusterLookup for Fake {
    fn look_up_namespace<'a>(&'a self, _: &'a str) -> LookingUp<'a, Labels> {
        self.namespaces.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            sleep(self.takes).await;
            let opens = self.opens.ok_or_else(|| io::Error::other("namespaces is forbidden"))?;
            Ok(Some([("gpu".to_owned(), if opens { "a" } else { "b" }.to_owned())].into()))
        })
    }

    fn look_up_node<'a>(&'a self, name: &'a str) -> LookingUp<'a, Arc<Node>> {
        self.nodes.lock().unwrap().push(name.to_owned());
        Box::pin(async move {
            sleep(self.takes).await;
            match self.node {
                Script::Found(labels, taints) => {
                    let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
                    Ok(Some(Arc::new(Node::new(labels, taints.iter().map(|taint| taint.map(Into::into))))))
                }
                Script::Missing => Ok(None),
                Script::Error => Err(io::Error::other(format!("nodes {name:?} is forbidden")).into()),
                Script::Never => {
                    sleep(Duration::from_secs(3_600)).await;
                    Ok(None)
                }
            }
        })
    }
}

fn contract(more: &str) -> String {
    Form::Dedicated.yaml(&["ml-team"], more)
}

/// An ordinary pod in the namespace `web`, put onto a node.
fn placed(node: &str) -> Value {
    let mut review = recorded("mutate-create-pod-legacy");
    review["request"]["object"]["spec"]["nodeName"] = node.into();
    review
}

fn lookups(outcome: &str, count: usize) -> String {
    format!("gpufence_node_lookups_total{{outcome=\"{outcome}\"}} {count}")
}

fn decisions(rule: &str, action: &str, count: usize) -> String {
    format!(
        "gpufence_decisions_total{{webhook=\"validate\",rule=\"{rule}\",action=\"{action}\",dry_run=\"false\"}} {count}"
    )
}

const REPORT: &str =
    "report: the labels and taints of node n-1 are not known: whether it is a GPU node could not be told";

#[tokio::test]
async fn a_node_that_is_found_decides() {
    let refused = "node-name-bypass: spec.nodeName puts this pod onto node n-1 of pool nvidia past the scheduler, closed to \
                   namespace web (allowed: ml-team). Remove it or use an allowed namespace.";
    for (script, message) in [(GPU, Some(refused)), (ORDINARY, None)] {
        let (lines, _guard) = Lines::collect();
        let fake = Fake::new(script);
        let server = Embedded::start(&contract(""), Some(fake.clone())).await;
        let response = server.respond("/validate", &placed("n-1")).await;
        assert_eq!(response["status"]["message"].as_str(), message, "{response}");
        assert_eq!(response["allowed"], message.is_none(), "{response}");
        assert_eq!(response["auditAnnotations"].get("node"), None, "{response}");
        server.assert_measured(&lookups("found", 1));
        assert_eq!(lines.with("target", "gpufence::decision").len(), usize::from(message.is_some()));
        assert_eq!(fake.asked(), ["n-1"]);
        assert_eq!(fake.namespaces.load(Ordering::SeqCst), 0, "the pool is open by name");
        server.stop().await;
    }
}

/// Of one that is not there it is known that it is not: what comes by its name later may be a GPU node.
#[tokio::test]
async fn a_node_that_is_missing_is_refused() {
    let server = Embedded::start(&contract("nodes: {whenUnknown: audit}"), Some(Fake::new(Script::Missing))).await;
    let response = server.respond("/validate", &placed("n-1")).await;
    let expected = "node-name-bypass: spec.nodeName is n-1, and there is no such node: one that comes by this name may be a \
                    GPU node, and no taint keeps out who waits for it. Leave it out: the scheduler places the pod.";
    assert_eq!(response["status"]["message"], expected, "{response}");
    server.assert_measured(&lookups("missing", 1));
    server.stop().await;
}

/// An error is no answer: the contract says what counts then, and the account that it did.
#[tokio::test]
async fn a_node_that_cannot_be_read_stays_unknown() {
    let unknown = "node-name-bypass: spec.nodeName puts this pod onto node n-1 past the scheduler and its taints, and it is \
                   not known whether that is a GPU node. Leave it out: the scheduler places the pod.";
    for (when, path, outcome) in [
        ("deny", "/validate", "deny"),
        ("deny", "/audit/validate", "would-deny"),
        ("warn", "/validate", "warn"),
        ("audit", "/validate", "audit"),
    ] {
        let (lines, _guard) = Lines::collect();
        let fake = Fake::new(Script::Error);
        let server = Embedded::start(&contract(&format!("nodes: {{whenUnknown: {when}}}")), Some(fake.clone())).await;
        let response = server.respond(path, &placed("n-1")).await;
        assert_eq!(response["allowed"], outcome != "deny", "{response}");
        if outcome == "deny" {
            assert_eq!(response["status"]["message"], unknown, "{response}");
        }
        let warnings = if outcome == "warn" { json!([unknown]) } else { Value::Null };
        assert_eq!(response["warnings"], warnings, "{response}");
        let annotations = &response["auditAnnotations"];
        assert_eq!((&annotations["decision"], &annotations["node"]), (&json!(outcome), &json!(REPORT)), "{response}");
        server.assert_measured(&decisions("node-name-bypass", outcome, 1));
        server.assert_measured(&decisions("node", "report", 1));
        server.assert_measured(&lookups("error", 1));
        let told = lines.with("message", "a node cannot be read");
        assert_eq!((told.len(), &told[0]["node"]), (1, &json!("n-1")), "{told:?}");
        assert!(told[0]["error"].as_str().unwrap().contains("is forbidden"), "{told:?}");
        let decisions = lines.with("target", "gpufence::decision");
        assert_eq!((decisions.len(), &decisions[0]["rules"]), (1, &json!("node-name-bypass,node")), "{decisions:?}");
        assert_eq!(fake.asked().len(), 1, "once");
        server.stop().await;
    }
}

/// A Binding comes by two ways, and is counted as what it is by both.
#[tokio::test]
async fn a_binding_is_looked_up_and_counted_as_one() {
    let (lines, _guard) = Lines::collect();
    let server = Embedded::start(&contract(""), Some(Fake::new(GPU))).await;
    let refused = "node-name-bypass: target.name puts this pod onto node n-1 of pool nvidia past the scheduler, which is \
                   closed to namespace web (allowed: ml-team), and \
                   system:serviceaccount:kube-system:replication-controller is not in identities.schedulers. Add it there if \
                   it schedules pods, or leave the Binding to who does.";
    for (resource, part) in [("pods", "binding"), ("bindings", "")] {
        let mut review = recorded("mutate-create-pod-legacy");
        let request = &mut review["request"];
        request["kind"] = json!({"group": "", "version": "v1", "kind": "Binding"});
        request["resource"] = json!({"group": "", "version": "v1", "resource": resource});
        request["subResource"] = part.into();
        request["object"] = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p"},
            "target": {"kind": "Node", "name": "n-1"},
        });
        let response = server.respond("/validate", &review).await;
        assert_eq!(response["status"]["message"], refused, "{response}");
    }
    server.assert_measured(
        "gpufence_admission_requests_total{webhook=\"validate\",resource=\"bindings\",operation=\"CREATE\",\
         outcome=\"deny\",dry_run=\"false\"} 2",
    );
    let decisions = lines.with("target", "gpufence::decision");
    let resources: Vec<_> = decisions.iter().map(|line| line["resource"].as_str().unwrap()).collect();
    assert_eq!(resources, ["bindings", "bindings"], "{decisions:?}");
    server.stop().await;
}

/// A contract whose pool is open to namespaces of a label alone.
fn by_label() -> String {
    contract("").replace("names: ['ml-team']", "selector: {matchLabels: {gpu: a}}")
}

/// A pod that tolerates the taint: where the namespace may use the pool, it may be put there.
fn tolerating(node: &str) -> Value {
    let mut review = placed(node);
    review["request"]["object"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    review
}

#[tokio::test]
async fn the_node_and_the_labels_are_looked_up_side_by_side() {
    let takes = Duration::from_millis(800);
    for (opens, node, allowed, reports) in [
        (Some(true), GPU, true, [false, false]),
        (Some(false), GPU, false, [false, false]),
        (Some(true), ORDINARY, true, [false, false]),
        (None, GPU, false, [true, false]),
        // Wherever that is, the pod may be there.
        (Some(true), Script::Error, true, [false, false]),
        (Some(false), Script::Error, false, [false, true]),
        (None, Script::Error, false, [true, true]),
    ] {
        let case = format!("{opens:?} {node:?}");
        let fake = Fake::with_namespaces(node, opens, takes);
        let contract =
            format!("{}rules: {{broad-toleration: 'off', toleration-without-gpu-request: 'off'}}", by_label());
        let server = Embedded::start(&contract, Some(fake.clone())).await;
        let began = Instant::now();
        let response = server.respond("/validate", &tolerating("n-1")).await;
        let took = began.elapsed();
        assert!((takes..takes * 2).contains(&took), "{case}: one after the other, {took:?}");
        assert_eq!(response["allowed"], allowed, "{case}: {response}");
        let annotations = &response["auditAnnotations"];
        let reported = ["namespace-labels", "node"].map(|entry| annotations.get(entry).is_some());
        assert_eq!(reported, reports, "{case}: {response}");
        assert_eq!((fake.asked().len(), fake.namespaces.load(Ordering::SeqCst)), (1, 1), "{case}");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_slow_lookup_of_a_node_takes_no_more_than_its_time() {
    let fake = Fake::new(Script::Never);
    let server = Embedded::start(&contract("nodes: {whenUnknown: deny}"), Some(fake.clone())).await;
    let mut connection = server.connect().await;
    for (timeout, least, most) in [("10s", 1_900, 8_000), ("300ms", 190, 1_800)] {
        let review = placed("n-1");
        let uid = review["request"]["uid"].as_str().unwrap();
        let mut request = post("/validate").body(crate::binary::whole(review.to_string())).unwrap();
        *request.uri_mut() = format!("/validate?timeout={timeout}").parse().unwrap();
        let began = Instant::now();
        let reply = connection.send(request).await;
        let took = began.elapsed().as_millis();
        assert!((least..most).contains(&took), "{took} ms with timeout={timeout}");
        let answer = reply.accepted("/validate", uid);
        assert_eq!(answer["response"]["allowed"], false, "{answer}");
    }
    server.assert_measured(&lookups("timeout", 2));
    server.stop().await;
}

/// Whoever reaches the port can write what they like where a node's name should be. What cannot be a node's name is
/// none, and nobody is asked.
#[tokio::test]
async fn a_name_that_no_node_can_have_is_not_asked_for() {
    let fake = Fake::new(ORDINARY);
    let server = Embedded::start(&contract(""), Some(fake.clone())).await;
    let names = ["../secrets", "a/b", "A", "a?b=c", "ä", "..", ".a", "a..b", &"a".repeat(254)];
    for name in names {
        let denied = server.respond("/validate", &placed(name)).await;
        assert_eq!(denied["allowed"], false, "{name}: {denied}");
        assert!(denied["status"]["message"].as_str().unwrap().contains("there is no such node"), "{name}: {denied}");
    }
    assert_eq!(fake.asked(), [""; 0]);
    server.assert_measured(&lookups("missing", names.len()));
    for name in ["ip-10-0-0-1.eu-central-1.compute.internal", &"a".repeat(253)] {
        let allowed = server.respond("/validate", &placed(name)).await;
        assert_eq!(allowed["allowed"], true, "{name}: {allowed}");
    }
    assert_eq!(fake.asked().len(), 2);
    server.stop().await;
}

/// What rests on no node asks nobody: a pod for the scheduler, one of a node's own kubelet or of the DaemonSet
/// controller, whatever a scheduler does, and completion.
#[tokio::test]
async fn who_may_place_pods_waits_for_nobody() {
    let fake = Fake::new(Script::Error);
    let server = Embedded::start(&contract("nodes: {whenUnknown: deny}"), Some(fake.clone())).await;
    let by = |mut review: Value, username: &str, groups: &[&str]| {
        review["request"]["userInfo"] = json!({"username": username, "groups": groups});
        review
    };
    for review in [
        recorded("mutate-create-pod-legacy"),
        by(placed("n-1"), "system:node:n-1", &["system:nodes"]),
        by(placed("n-1"), "system:kube-scheduler", &[]),
        by(recorded("validate-create-pod-binding-gated"), "system:kube-scheduler", &[]),
    ] {
        let response = server.respond("/validate", &review).await;
        assert_eq!(response["allowed"], true, "{response}");
        assert_eq!(response.get("auditAnnotations"), None, "{response}");
    }
    server.respond("/mutate", &placed("n-1")).await;
    assert_eq!(fake.asked(), [""; 0]);
    let bound = server.respond("/validate", &recorded("validate-create-pod-binding-gated")).await;
    assert_eq!(bound["allowed"], false, "{bound}");
    assert_eq!(fake.asked(), ["gpu-node-1"]);
    server.stop().await;
}

#[tokio::test]
async fn without_a_lookup_a_node_stays_unknown() {
    let server = Embedded::start(&contract("nodes: {whenUnknown: deny}"), None).await;
    let denied = server.respond("/validate", &placed("n-1")).await;
    assert_eq!(denied["allowed"], false, "{denied}");
    assert_eq!(denied["auditAnnotations"]["node"], REPORT, "{denied}");
    for outcome in ["found", "missing", "error", "timeout"] {
        server.assert_measured(&lookups(outcome, 0));
    }
    server.stop().await;
}

/// A laptop has no cluster: what asks for nodes is ready at once, and says that it knows none.
#[tokio::test]
async fn a_process_without_a_cluster_serves_without_nodes() {
    let said = "nodes are not known: for a pod put onto one past the scheduler the contract's nodes.whenUnknown counts";
    for (more, told) in [("nodes: {whenUnknown: deny}", 1), ("rules: {node-name-bypass: 'off'}", 0)] {
        let server = Server::start(&contract(more)).await;
        let (status, answer) = server.review("/validate", &placed("n-1")).await;
        assert_eq!((status, answer["response"]["allowed"].as_bool()), (200, Some(told == 0)), "{answer}");
        server.signal("TERM");
        let (_, lines) = server.ended().await;
        let lines: Vec<_> = lines.iter().filter(|line| line["message"] == said).collect();
        assert_eq!(lines.len(), told, "{lines:?}");
        for line in lines {
            assert_eq!(line["level"], "WARN");
            assert!(line["error"].as_str().unwrap().starts_with("no cluster to speak to"), "{line}");
        }
    }
}
