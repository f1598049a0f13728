//! Requests that no API server sends: each is answered as the contract's mode wants it, and the server
//! that answered it goes on serving.

use std::sync::{Arc, Weak};

use hyper::body::Bytes;
use hyper::{Method, Request, header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;

use crate::binary::{Body, Connection, Reply, Server, pieces, post, soon, whole};
use crate::wire::{answers_well, recorded};

const PATHS: [&str; 2] = ["/mutate", "/validate"];

/// A server in each of two modes.
struct Pair {
    enforce: Server,
    audit: Server,
}

/// Shared by the tests that run at the same time, so that one test's garbage must not harm another's
/// answer; the last one ends it.
static PAIR: Mutex<Weak<Pair>> = Mutex::const_new(Weak::new());

impl Pair {
    async fn shared() -> Arc<Self> {
        let mut shared = PAIR.lock().await;
        if let Some(pair) = shared.upgrade() {
            return pair;
        }
        let pair =
            Arc::new(Self { enforce: Server::start("mode: enforce").await, audit: Server::start("mode: audit").await });
        *shared = Arc::downgrade(&pair);
        pair
    }

    fn both(&self) -> [&Server; 2] {
        [&self.enforce, &self.audit]
    }
}

/// A good request is answered as ever.
async fn serves_on(pair: &Pair) {
    answers_well(&mut pair.enforce.connect().await).await;
    reports_well(&mut pair.audit.connect().await).await;
}

async fn reports_well(connection: &mut Connection) {
    let (status, answer) = connection.review("/mutate", &recorded("mutate-create-pod-gpu-pod")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["response"]["auditAnnotations"]["decision"], "would-inject", "{answer}");
}

/// A request for a GPU pod with something changed.
fn gpu_pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut review = recorded("mutate-create-pod-gpu-pod");
    change(&mut review["request"]);
    review
}

fn uid() -> String {
    gpu_pod(|_| {})["request"]["uid"].as_str().unwrap().to_owned()
}

/// Takes a field away.
fn without(value: &mut Value, field: &str) {
    value.as_object_mut().unwrap().remove(field).unwrap();
}

// === No uid can be read: a 400 in plain text ===

async fn check_unreadable(body: impl Into<Bytes>, says: &str) {
    let body = body.into();
    let pair = Pair::shared().await;
    for server in pair.both() {
        for path in PATHS {
            let mut connection = server.connect().await;
            let reply = connection.post(path, body.clone()).await;
            check_text(&reply, 400, says);
            connection.assert_open().await;
        }
    }
    serves_on(&pair).await;
}

/// A line of plain text that is short enough to be shown to a person.
fn check_text(reply: &Reply, status: u16, says: &str) {
    let text = reply.text();
    assert!(reply.body.len() <= 1024, "{} bytes: {:.200}", reply.body.len(), text);
    assert_eq!(reply.status, status, "{text}");
    assert_eq!(reply.header(header::CONTENT_TYPE), Some("text/plain; charset=utf-8"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(says), "{text:?} lacks {says:?}");
}

#[tokio::test]
async fn an_empty_body() {
    check_unreadable("", "not JSON").await;
}

#[tokio::test]
async fn a_body_that_is_not_json() {
    check_unreadable("apiVersion: admission.k8s.io/v1\n", "not JSON").await;
    check_unreadable("{\"apiVersion\":", "not JSON").await;
}

#[tokio::test]
async fn a_body_that_goes_on_or_breaks_off() {
    let whole = gpu_pod(|_| {}).to_string();
    check_unreadable(format!("{whole}x"), "the body is not JSON: trailing characters").await;
    check_unreadable(whole[..whole.len() / 2].to_owned(), "is not JSON: EOF").await;
}

#[tokio::test]
async fn json_of_another_kind() {
    let pod = gpu_pod(|_| {})["request"]["object"].to_string();
    check_unreadable(pod.clone(), "\"Pod\"").await;
    check_unreadable(pod, "valid is admission.k8s.io/v1 and AdmissionReview").await;
}

#[tokio::test]
async fn json_that_is_no_object() {
    for body in ["null", "7", "\"text\"", "[]", "{}"] {
        check_unreadable(body, "AdmissionReview").await;
    }
}

#[tokio::test]
async fn no_request() {
    check_unreadable(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "request").await;
    check_unreadable(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}"#, "request")
        .await;
}

#[tokio::test]
async fn no_uid() {
    check_unreadable(gpu_pod(|request| without(request, "uid")).to_string(), "request.uid").await;
}

#[tokio::test]
async fn an_empty_uid() {
    check_unreadable(gpu_pod(|request| request["uid"] = json!("")).to_string(), "request.uid").await;
}

#[tokio::test]
async fn a_uid_of_another_type() {
    for uid in [json!(7), json!(["u"]), json!({"u": "u"}), json!(true)] {
        check_unreadable(gpu_pod(|request| request["uid"] = uid).to_string(), "request.uid: invalid type").await;
    }
}

#[tokio::test]
async fn invalid_utf8() {
    let review = gpu_pod(|request| request["object"]["metadata"]["annotations"] = json!({"a": "MARK"})).to_string();
    let mark = review.find("MARK").unwrap();
    let mut body = review.into_bytes();
    body[mark] = 0xff;
    check_unreadable(body, &format!("not UTF-8 from byte {mark}")).await;
}

#[tokio::test]
async fn deep_nesting_as_the_whole_body() {
    check_unreadable(nested(), "the body").await;
    check_unreadable("[".repeat(DEPTH), "the body").await;
    check_unreadable("{\"a\":".repeat(DEPTH), "not JSON").await;
}

#[tokio::test]
async fn a_megabyte_in_place_of_the_version_is_not_repeated() {
    let long = "v".repeat(1024 * 1024);
    check_unreadable(json!({"apiVersion": long, "kind": "AdmissionReview"}).to_string(), "apiVersion").await;
}

#[tokio::test]
async fn a_line_break_in_the_version_makes_no_second_line() {
    check_unreadable(r#"{"apiVersion":"v1\nv2","kind":"AdmissionReview"}"#, "apiVersion").await;
}

// === The uid can be read: an AdmissionReview that carries it ===

/// Refused in enforce mode, admitted and reported in audit mode, by both webhooks and with these words.
async fn check_refused(body: impl Into<Bytes>, says: &str) {
    let body = body.into();
    let pair = Pair::shared().await;
    for path in PATHS {
        let mut connection = pair.enforce.connect().await;
        let response = connection.post(path, body.clone()).await.accepted(path, &uid())["response"].take();
        let annotation = check_annotation(path, &response, "refuse", says);
        assert_eq!(response["allowed"], false, "{path}: {response}");
        let status = &response["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(400), &json!("BadRequest")), "{path}: {status}");
        assert_eq!(status["message"], annotation, "{path}");
        answers_well(&mut connection).await;

        let mut connection = pair.audit.connect().await;
        let response = connection.post(path, body.clone()).await.accepted(path, &uid())["response"].take();
        check_annotation(path, &response, "would-refuse", says);
        assert_eq!(response["allowed"], true, "{path}: nothing stands in the way: {response}");
        assert_eq!(response.get("warnings"), None, "{path}");
        assert_eq!(response.get("patch"), None, "{path}");
        reports_well(&mut connection).await;
    }
}

fn check_annotation(path: &str, response: &Value, decision: &str, says: &str) -> String {
    let annotations = &response["auditAnnotations"];
    assert_eq!(annotations["decision"], decision, "{path}: {response}");
    let text = annotations["bad-request"].as_str().unwrap();
    assert!(text.len() <= 4096, "{path}: {} bytes: {text:.200}", text.len());
    assert!(text.starts_with("bad-request: ") && text.contains(says), "{path}: {text:?} does not say {says:?}");
    text.to_owned()
}

#[tokio::test]
async fn a_review_of_version_v1beta1() {
    let mut review = gpu_pod(|_| {});
    review["apiVersion"] = json!("admission.k8s.io/v1beta1");
    check_refused(review.to_string(), "apiVersion is \"admission.k8s.io/v1beta1\"").await;
}

#[tokio::test]
async fn a_creation_without_an_object() {
    let review = gpu_pod(|request| request["object"] = Value::Null);
    check_refused(review.to_string(), "request.object is null").await;
    check_refused(gpu_pod(|request| without(request, "object")).to_string(), "request.object is null").await;
}

#[tokio::test]
async fn an_update_without_an_old_object() {
    let review = gpu_pod(|request| request["operation"] = json!("UPDATE"));
    check_refused(review.to_string(), "request.oldObject is null").await;
}

#[tokio::test]
async fn a_request_without_its_kind() {
    check_refused(gpu_pod(|request| without(request, "kind")).to_string(), "request.kind is missing").await;
}

/// Two bytes of JSON become a hundred in memory: no list may be longer than an object that runs has.
#[tokio::test]
async fn a_list_without_end() {
    let says = "request.object.spec.tolerations: more than 10000 items, which cannot be judged";
    let many = |count| gpu_pod(|request| request["object"]["spec"]["tolerations"] = vec![json!({}); count].into());
    check_refused(many(1_000_000).to_string(), says).await;
    let pair = Pair::shared().await;
    for path in PATHS {
        let (_, answer) = pair.enforce.review(path, &many(10_000)).await;
        assert_eq!(answer["response"]["allowed"], true, "{path}");
    }
}

#[tokio::test]
async fn a_deployment_sent_as_a_pod() {
    let mut deployment = recorded("validate-create-deployment-inference");
    let object = deployment["request"]["object"].take();
    let review = gpu_pod(|request| request["object"] = object);
    check_refused(review.to_string(), "request.object is a Deployment, and request.kind says it is a Pod").await;
}

#[tokio::test]
async fn an_object_that_is_none() {
    for object in [json!(7), json!("pod"), json!(true)] {
        check_refused(gpu_pod(|request| request["object"] = object).to_string(), "request.object: invalid type").await;
    }
}

#[tokio::test]
async fn tolerations_that_are_no_list() {
    for tolerations in [json!("all"), json!(7), json!({"operator": "Exists"}), json!(true)] {
        let review = gpu_pod(|request| request["object"]["spec"]["tolerations"] = tolerations);
        check_refused(review.to_string(), "request.object.spec.tolerations: invalid type: ").await;
    }
}

#[tokio::test]
async fn a_tolerations_field_of_another_type() {
    for field in ["key", "operator", "value", "effect", "tolerationSeconds"] {
        let review = gpu_pod(|request| request["object"]["spec"]["tolerations"][0][field] = json!([]));
        check_refused(review.to_string(), "request.object.spec.tolerations").await;
    }
    let review = gpu_pod(|request| request["object"]["spec"]["tolerations"][0] = json!("all"));
    check_refused(review.to_string(), "request.object.spec.tolerations").await;
}

#[tokio::test]
async fn other_fields_that_are_read_of_another_type() {
    let cases: [(&str, Value, &str); 6] = [
        ("/object/spec/nodeName", json!(7), "request.object.spec.nodeName: invalid type"),
        ("/object/spec/containers", json!("c"), "request.object.spec.containers: invalid type"),
        ("/object/spec/containers/0/resources", json!([7]), "request.object.spec.containers"),
        ("/object/metadata/annotations", json!([]), "request.object.metadata.annotations: invalid type"),
        ("/namespace", json!({}), "request.namespace: invalid type"),
        ("/userInfo", json!("admin"), "request.userInfo: invalid type"),
    ];
    for (place, value, says) in cases {
        let review = gpu_pod(|request| {
            request["object"]["spec"]["nodeName"] = json!("node");
            *request.pointer_mut(place).unwrap() = value;
        });
        check_refused(review.to_string(), says).await;
    }
}

#[tokio::test]
async fn a_list_where_a_map_belongs() {
    let toleration = json!(["dedicated", "Equal", "gpu", "NoSchedule"]);
    for (place, value) in [
        ("/object", json!([])),
        ("/object/spec", json!([])),
        ("/object/spec/tolerations/0", toleration),
        ("/object/spec/containers/0", json!([])),
        ("/userInfo", json!(["admin"])),
    ] {
        let review = gpu_pod(|request| *request.pointer_mut(place).unwrap() = value);
        check_refused(review.to_string(), "invalid type: sequence").await;
    }
}

/// Whoever reads a message knows the object, and nothing of our types.
#[tokio::test]
async fn messages_name_the_innermost_field_and_no_type_of_ours() {
    let pair = Pair::shared().await;
    let mut connection = pair.enforce.connect().await;
    let mut wrong = Vec::new();
    for (place, value, path) in [
        ("/object", json!(7), "request.object: "),
        ("/object/spec", json!(7), "request.object.spec: "),
        ("/object/spec/tolerations/0", json!(7), "request.object.spec.tolerations[0]: "),
        ("/object/spec/tolerations/1/key", json!(7), "request.object.spec.tolerations[1].key: "),
        ("/object/spec/nodeSelector/a", json!(7), "request.object.spec.nodeSelector.a: "),
        ("/object/spec/containers/0/resources", json!(7), "request.object.spec.containers[0].resources: "),
        ("/userInfo", json!(7), "request.userInfo: "),
        ("/namespace", json!(7), "request.namespace: "),
    ] {
        let review = gpu_pod(|request| {
            request["object"]["spec"]["nodeSelector"] = json!({"a": "b"});
            *request.pointer_mut(place).unwrap() = value;
        });
        let (_, answer) = connection.review("/validate", &review).await;
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        if !message.starts_with(&format!("bad-request: {path}")) || message.contains("struct") {
            wrong.push(format!("{place}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_key_tolerations_twice() {
    let review = gpu_pod(|_| {}).to_string();
    let twice = review.replacen("\"tolerations\":[", "\"tolerations\":[],\"tolerations\":[", 1);
    assert_ne!(twice, review);
    check_refused(twice, "request.object.spec: duplicate field `tolerations`").await;
}

#[tokio::test]
async fn an_unknown_operation() {
    let says = "request.operation is \"PATCH\"; valid is CREATE, UPDATE, DELETE or CONNECT";
    check_refused(gpu_pod(|request| request["operation"] = json!("PATCH")).to_string(), says).await;
    check_refused(gpu_pod(|request| without(request, "operation")).to_string(), "request.operation is missing").await;
}

#[tokio::test]
async fn a_pod_in_no_namespace() {
    check_refused(gpu_pod(|request| without(request, "namespace")).to_string(), "request.namespace is empty").await;
}

#[tokio::test]
async fn a_quantity_that_is_none() {
    let field = "spec.containers[0].resources.limits[\"nvidia.com/gpu\"]";
    let warn = Server::start("mode: warn").await;
    let pair = Pair::shared().await;
    for quantity in [json!("one"), json!("1 GPU"), json!(["1"]), json!({}), json!(true), json!("\n")] {
        let review = gpu_pod(|request| {
            let resources = &mut request["object"]["spec"]["containers"][0]["resources"];
            *resources = json!({"limits": {"nvidia.com/gpu": quantity}});
        });
        for (server, warned) in [(&pair.enforce, true), (&warn, true), (&pair.audit, false)] {
            for path in PATHS {
                let (status, answer) = server.review(path, &review).await;
                let response = &answer["response"];
                assert_eq!((status, &response["allowed"]), (200, &json!(true)), "{quantity}: {answer}");
                assert_eq!(response["auditAnnotations"]["decision"], "report", "{quantity}: {answer}");
                let report = response["auditAnnotations"]["fault"].as_str().unwrap();
                assert!(report.contains(field), "{quantity}: {report}");
                let warning = response["warnings"][0].as_str();
                assert_eq!(warning.is_some_and(|warning| warning.starts_with(field)), warned, "{quantity}: {answer}");
            }
        }
    }
    serves_on(&pair).await;
}

// === Depth and length ===

const DEPTH: usize = 100_000;

/// Lists within lists.
fn nested() -> String {
    format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH))
}

/// A request that holds them at a place.
fn nested_at(place: &str) -> String {
    let review = gpu_pod(|request| {
        request["userInfo"]["extra"] = json!({});
        request["object"]["spec"]["volumes"] = json!([]);
        request["object"]["spec"]["nodeSelector"] = json!({});
        *request.pointer_mut(place).unwrap() = json!("NESTED");
    });
    review.to_string().replacen("\"NESTED\"", &nested(), 1)
}

#[tokio::test]
async fn deep_nesting_in_a_field_that_is_not_read() {
    let pair = Pair::shared().await;
    for place in
        ["/options", "/userInfo/extra", "/object/status", "/object/spec/volumes", "/object/metadata/managedFields"]
    {
        let body = Bytes::from(nested_at(place));
        for (server, decision) in [(&pair.enforce, "inject"), (&pair.audit, "would-inject")] {
            let answer = server.connect().await.post("/mutate", body.clone()).await.accepted("/mutate", &uid());
            assert_eq!(answer["response"]["auditAnnotations"]["decision"], decision, "{place}: {answer:.300}");
            let answer = server.connect().await.post("/validate", body.clone()).await.accepted("/validate", &uid());
            assert_eq!(answer["response"]["allowed"], true, "{place}: {answer:.300}");
            assert_ne!(answer["response"]["auditAnnotations"]["decision"], "would-refuse", "{place}: {answer:.300}");
        }
    }
    serves_on(&pair).await;
}

#[tokio::test]
async fn deep_nesting_in_a_field_that_is_read() {
    for (place, says) in [
        ("/object/spec/tolerations", "request.object.spec.tolerations[0]: "),
        ("/object/spec/tolerations/0/key", "request.object.spec.tolerations"),
        ("/object/spec/nodeSelector", "request.object.spec.nodeSelector: "),
        ("/object/spec/containers", "request.object.spec.containers"),
        ("/object", "request.object"),
        ("/namespace", "request.namespace: "),
    ] {
        check_refused(nested_at(place), says).await;
    }
}

#[tokio::test]
async fn a_megabyte_where_a_word_belongs_is_not_repeated() {
    let long = || json!("v".repeat(1024 * 1024));
    check_refused(gpu_pod(|request| request["operation"] = long()).to_string(), "request.operation is").await;
    let review = gpu_pod(|request| request["object"]["spec"]["tolerations"] = long());
    check_refused(review.to_string(), "request.object.spec.tolerations: ").await;
}

#[tokio::test]
async fn a_quantity_of_a_megabyte_is_not_repeated() {
    let pair = Pair::shared().await;
    let review = gpu_pod(|request| {
        let limits = json!({"limits": {"nvidia.com/gpu": "v".repeat(1024 * 1024)}});
        request["object"]["spec"]["containers"][0]["resources"] = limits;
    });
    for server in pair.both() {
        let reply = server.connect().await.post("/validate", review.to_string()).await;
        reply.accepted("/validate", &uid());
        assert!(reply.body.len() <= 8192, "{} bytes: {:.300}", reply.body.len(), reply.text());
    }
    serves_on(&pair).await;
}

#[tokio::test]
async fn ten_mebibytes_announced() {
    let pair = Pair::shared().await;
    let body = Bytes::from(vec![b' '; 10 * 1024 * 1024]);
    for server in pair.both() {
        for path in PATHS {
            let reply = server.connect().await.post(path, body.clone()).await;
            check_text(&reply, 413, "9437184 bytes");
            check_text(&reply, 413, "10485760");
            assert_eq!(reply.header(header::CONNECTION), Some("close"));
        }
    }
    serves_on(&pair).await;
}

#[tokio::test]
async fn ten_mebibytes_in_chunks() {
    let pair = Pair::shared().await;
    for server in pair.both() {
        for path in PATHS {
            let (sender, body) = pieces();
            let sending = async move {
                for _ in 0..10 {
                    if sender.send(Bytes::from(vec![b' '; 1024 * 1024])).await.is_err() {
                        return;
                    }
                }
            };
            let mut connection = server.connect().await;
            let (reply, ()) = tokio::join!(connection.send(post(path).body(body).unwrap()), sending);
            check_text(&reply, 413, "9437184 bytes");
            assert_eq!(reply.header(header::CONNECTION), Some("close"));
        }
    }
    serves_on(&pair).await;
}

#[tokio::test]
async fn an_update_of_six_mebibytes_passes() {
    let mut review = recorded("validate-update-pod-status-gpu-pod");
    without(&mut review["request"], "subResource");
    for object in ["object", "oldObject"] {
        review["request"][object]["metadata"]["annotations"] = json!({"blob": "x".repeat(3 * 1024 * 1024)});
    }
    let pair = Pair::shared().await;
    for server in pair.both() {
        for path in PATHS {
            let (status, answer) = server.review(path, &review).await;
            let expected = json!({"uid": review["request"]["uid"], "allowed": true});
            assert_eq!((status, &answer["response"]), (200, &expected), "{path}");
        }
    }
}

// === HTTP ===

/// Sends a request of which nothing is a review, and expects a refusal that ends the connection.
async fn check_http(request: impl Fn() -> Request<Body>, status: u16, says: &str) -> Vec<Reply> {
    let pair = Pair::shared().await;
    let mut replies = Vec::new();
    for server in pair.both() {
        let mut connection = server.connect().await;
        let reply = connection.send(request()).await;
        check_text(&reply, status, says);
        assert_eq!(reply.header(header::CONNECTION), Some("close"), "{}", reply.text());
        connection.closed().await;
        replies.push(reply);
    }
    serves_on(&pair).await;
    replies
}

fn good_body() -> Body {
    whole(gpu_pod(|_| {}).to_string())
}

#[tokio::test]
async fn another_content_type() {
    for path in PATHS {
        for found in ["text/plain", "application/yaml", "application/x-www-form-urlencoded", "application/jsonp"] {
            let request = || {
                let mut request = post(path).body(good_body()).unwrap();
                request.headers_mut().insert(header::CONTENT_TYPE, found.parse().unwrap());
                request
            };
            check_http(request, 415, &format!("{found:?} is not taken; valid is application/json")).await;
        }
    }
}

#[tokio::test]
async fn no_content_type() {
    for path in PATHS {
        let request = || {
            let mut request = post(path).body(good_body()).unwrap();
            request.headers_mut().remove(header::CONTENT_TYPE);
            request
        };
        check_http(request, 415, "content type (none) is not taken").await;
    }
}

#[tokio::test]
async fn another_method() {
    for path in PATHS {
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            let request = || {
                let mut request = post(path).body(good_body()).unwrap();
                *request.method_mut() = method.clone();
                request
            };
            for reply in check_http(request, 405, &format!("{:?}", method.as_str())).await {
                assert_eq!(reply.header(header::ALLOW), Some("POST"), "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn another_path() {
    for path in ["/", "/mutate/", "/validate/", "/mutate/pods", "/Mutate", "//mutate", "/metrics", "/livez", "/readyz"]
    {
        check_http(|| post(path).body(good_body()).unwrap(), 404, &format!("{path:?}")).await;
    }
}

#[tokio::test]
async fn the_preface_of_http2() {
    let pair = Pair::shared().await;
    for server in pair.both() {
        let mut stream = server.try_dial().await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await.unwrap();
        let mut answer = Vec::new();
        // How the stream ends does not matter, as long as it does.
        let _ = soon("the close", stream.read_to_end(&mut answer)).await;
        assert_eq!(String::from_utf8_lossy(&answer), "", "closed without a word");
    }
    serves_on(&pair).await;
}
