//! The wire: recorded requests answered rightly over TLS, and the API server's rules for an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpufence::server::tls::sha256;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::binary::{Authority, Connection, NAME, Server, connector, files, trusting};
use crate::support::{Form, cases_path};

// === The recorded requests ===

/// What `/mutate` answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mutation {
    /// No patch.
    Untouched,
    /// A patch that adds the exact toleration at the end, and the pool's label.
    Completed,
}

/// What `/validate` answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// Without a word.
    Allowed,
    /// Allowed because the subject proved to be exempt.
    Exempt,
    /// Allowed with a warning by this rule, and this decision in the audit log.
    Warned(&'static str, &'static str),
    /// Refused by this rule for this field.
    Denied(&'static str, &'static str),
}

use Mutation::{Completed, Untouched};
use Verdict::{Allowed, Denied, Exempt, Warned};

/// A GPU pod that reaches validation as it was before mutation.
const INCOMPLETE: Verdict = Warned("placement-missing", "warn");

/// A pod put onto a node of which nothing is known.
const PLACED: Verdict = Warned("node-name-bypass", "warn");

/// The right answers where the namespace ml-team may use the pool, worked out by hand.
const RECORDED: [(&str, Mutation, Verdict); 38] = [
    // GPU pods of users, by hand and by dry run, plain and held by a scheduling gate.
    ("mutate-create-pod-dry-dryrun", Completed, INCOMPLETE),
    ("mutate-create-pod-gated", Completed, INCOMPLETE),
    ("mutate-create-pod-gpu-pod", Completed, INCOMPLETE),
    ("validate-create-pod-dry-dryrun", Completed, INCOMPLETE),
    ("validate-create-pod-gated", Completed, INCOMPLETE),
    ("validate-create-pod-gpu-pod", Completed, INCOMPLETE),
    // Of controllers: a Job's asks in an init container, a Deployment's brings all that it needs.
    ("mutate-create-pod-train-once", Completed, INCOMPLETE),
    ("mutate-create-pod-trainer-0", Completed, INCOMPLETE),
    ("validate-create-pod-train-once", Completed, INCOMPLETE),
    ("validate-create-pod-trainer-0", Completed, INCOMPLETE),
    ("mutate-create-pod-inference", Untouched, Allowed),
    ("validate-create-pod-inference", Untouched, Allowed),
    // Ordinary pods.
    ("mutate-create-pod-gen", Untouched, PLACED),
    ("mutate-create-pod-legacy", Untouched, Allowed),
    // Pods of the namespace web that pass the taint: by the exact toleration, and by a wildcard.
    ("mutate-create-pod-sneaky", Untouched, Denied("toleration-outside-allowlist", "spec.tolerations[0]")),
    ("mutate-create-pod-ssa", Untouched, Denied("toleration-outside-allowlist", "spec.tolerations[0]")),
    // A node's agents. The mirror pod's NoExecute wildcard does not pass a NoSchedule taint.
    ("mutate-create-pod-mirror-node", Untouched, PLACED),
    ("mutate-create-pod-node-agent", Untouched, Exempt),
    ("validate-create-pod-node-agent", Untouched, Exempt),
    ("validate-create-daemonset-node-agent", Untouched, Exempt),
    // An old violating pod: one more toleration adds no breach, nor does a debug container.
    ("mutate-update-pod-sneaky", Untouched, Allowed),
    ("validate-update-pod-ephemeralcontainers-sneaky", Untouched, Allowed),
    ("mutate-delete-pod-sneaky", Untouched, Allowed),
    // A gated GPU pod whose user adds the nodeSelector: it lacked more before.
    ("mutate-update-pod-gated", Untouched, Allowed),
    ("validate-update-pod-gated", Untouched, Allowed),
    ("validate-update-pod-status-gpu-pod", Untouched, Allowed),
    // Templates are never completed, and at most warned about.
    ("validate-create-cronjob-nightly", Untouched, Allowed),
    ("validate-create-deployment-inference", Untouched, Allowed),
    ("validate-create-job-train-once", Untouched, Allowed),
    ("validate-create-replicaset-inference", Untouched, Allowed),
    ("validate-create-replicationcontroller-legacy", Untouched, Allowed),
    ("validate-create-statefulset-trainer", Untouched, Allowed),
    ("validate-update-deployment-inference", Untouched, Allowed),
    ("validate-update-replicaset-inference", Untouched, Allowed),
    ("validate-create-podtemplate-tpl", Untouched, Warned("toleration-outside-allowlist", "would-deny")),
    // Bindings are not judged.
    ("validate-create-pod-binding-gated", Untouched, PLACED),
    ("validate-create-pod-binding-node-agent", Untouched, PLACED),
    ("validate-create-pod-binding-ssa", Untouched, PLACED),
];

/// A recorded request.
pub fn recorded(name: &str) -> Value {
    let path = cases_path("admission-reviews").join(format!("{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

async fn enforcing() -> Server {
    Server::start(&Form::Dedicated.yaml(&["ml-team"], "")).await
}

#[test]
fn every_recording_has_its_answer() {
    let files = fs::read_dir(cases_path("admission-reviews")).unwrap();
    let files: BTreeSet<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let known: BTreeSet<_> = RECORDED.iter().map(|(name, ..)| format!("{name}.json")).collect();
    assert_eq!(files, known);
}

#[tokio::test]
async fn mutation_completes_gpu_pods_and_nothing_else() {
    let server = enforcing().await;
    let mut connection = server.connect().await;
    for (name, expected, _) in RECORDED {
        let review = recorded(name);
        let (status, answer) = connection.review("/mutate", &review).await;
        assert_eq!(status, 200, "{name}: {answer}");
        check_mutation(name, &review["request"], &answer["response"], expected);
    }
    // All of it over one connection.
    connection.assert_open().await;
}

#[tokio::test]
async fn validation_judges_what_will_be_stored() {
    let server = enforcing().await;
    let mut connection = server.connect().await;
    let mut wrong = Vec::new();
    for (name, _, expected) in RECORDED {
        let (status, answer) = connection.review("/validate", &recorded(name)).await;
        assert_eq!(status, 200, "{name}: {answer}");
        let found = judged(name, &answer["response"]);
        if found != described(expected) {
            wrong.push(format!("{name}: {found}, expected {}; {answer}", described(expected)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // All of it over one connection.
    connection.assert_open().await;
}

fn check_mutation(name: &str, request: &Value, response: &Value, expected: Mutation) {
    assert_eq!(response["allowed"], true, "{name}: a mutation refuses nothing");
    assert_eq!(response.get("warnings"), None, "{name}");
    let Some(patch) = patch_of(response) else {
        assert_eq!(expected, Untouched, "{name}: {response}");
        assert_eq!(response.get("auditAnnotations"), None, "{name}");
        return;
    };
    assert_eq!(expected, Completed, "{name}: {patch}");
    assert_eq!(request["operation"], "CREATE", "{name}: only what is new is patched");
    assert_eq!(response["auditAnnotations"]["decision"], "inject", "{name}");
    let mut object = request["object"].clone();
    json_patch::patch(&mut object, &patch).unwrap();
    let mut expected = request["object"].clone();
    let tolerations = expected["spec"]["tolerations"].as_array_mut().unwrap();
    tolerations.push(json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}));
    expected["spec"]["nodeSelector"] = json!({"workload.example.com/accelerator": "nvidia"});
    assert_eq!(object, expected, "{name}");
}

/// The answer of `/validate` in a word, its parts found to fit together.
fn judged(name: &str, response: &Value) -> String {
    let annotations = &response["auditAnnotations"];
    let decision = annotations["decision"].as_str();
    let warnings: Vec<_> = response["warnings"].as_array().into_iter().flatten().collect();
    if response["allowed"] == false {
        let status = &response["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(403), &json!("Forbidden")), "{name}");
        assert_eq!(decision, Some("deny"), "{name}");
        let cause = &status["details"]["causes"][0];
        let (rule, field) = (cause["reason"].as_str().unwrap(), cause["field"].as_str().unwrap());
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{rule}: {field} ")), "{name}: {message}");
        assert!(message.contains("ml-team"), "{name}: who may: {message}");
        assert!(annotations[rule].is_string(), "{name}: {annotations}");
        return format!("denied by {rule} for {field}");
    }
    assert_eq!(response.get("status"), None, "{name}");
    match (warnings.as_slice(), decision) {
        ([], None) => "allowed".to_owned(),
        ([], Some("exempt")) => {
            assert!(annotations["exemption"].as_str().unwrap().contains("node-agents"), "{name}: {annotations}");
            "exempt".to_owned()
        }
        ([warning], Some(decision)) => {
            let (rule, _) = warning.as_str().unwrap().split_once(": ").unwrap();
            assert!(annotations[rule].as_str().unwrap().starts_with(decision), "{name}: {annotations}");
            format!("warned by {rule}, {decision}")
        }
        other => panic!("{name}: {other:?}"),
    }
}

fn described(verdict: Verdict) -> String {
    match verdict {
        Allowed => "allowed".to_owned(),
        Exempt => "exempt".to_owned(),
        Warned(rule, decision) => format!("warned by {rule}, {decision}"),
        Denied(rule, field) => format!("denied by {rule} for {field}"),
    }
}

#[tokio::test]
async fn a_completed_pod_passes_validation_without_a_word() {
    let server = enforcing().await;
    let mut connection = server.connect().await;
    for (name, ..) in RECORDED.iter().filter(|(_, mutation, _)| *mutation == Completed) {
        let mut review = recorded(name);
        let (_, answer) = connection.review("/mutate", &review).await;
        let patch = patch_of(&answer["response"]).unwrap();
        json_patch::patch(&mut review["request"]["object"], &patch).unwrap();
        for path in ["/mutate", "/validate"] {
            let (_, answer) = connection.review(path, &review).await;
            let expected = json!({"uid": review["request"]["uid"], "allowed": true});
            assert_eq!(answer["response"], expected, "{name} at {path}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_is_decided_in_full_and_counted_apart() {
    let server = enforcing().await;
    let mut review = recorded("mutate-create-pod-sneaky");
    review["request"]["dryRun"] = json!(true);
    let (_, answer) = server.review("/validate", &review).await;
    assert_eq!(answer["response"]["allowed"], false, "{answer}");
    let metrics = server.get_metrics().await;
    let series = "gpufence_decisions_total{webhook=\"validate\",rule=\"toleration-outside-allowlist\",\
                  action=\"deny\",dry_run=\"true\"} 1\n";
    assert!(metrics.contains(series), "{metrics}");
    let lines = server.decisions().await;
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["dry_run"], true, "{lines:#?}");
}

#[tokio::test]
async fn a_path_that_is_not_there_names_those_that_are() {
    let server = enforcing().await;
    for path in ["/", "/audit", "/audit/", "/audit/mutate/", "/enforce/validate"] {
        let (status, text) = server.review(path, &recorded("mutate-create-pod-legacy")).await;
        let expected =
            format!("no such path: {path:?}; valid are POST /mutate, /validate, /audit/mutate and /audit/validate\n");
        assert_eq!((status, text), (404, json!(expected)), "{path}");
    }
    let (status, text) = server.get("/certificates").await;
    assert_eq!((status, &*text), (404, "valid are GET /livez, /readyz, /metrics and /certificate\n"));
}

// === The certificate ===

#[tokio::test]
async fn a_self_signed_certificate_is_the_one_in_the_log_and_serves_as_its_own_ca() {
    let tls = format!("{{source: self-signed, names: [{NAME}]}}");
    let nobody = trusting(Authority::new().certificate());
    let mut server = Server::start_with("mode: enforce", "0s", &tls, nobody).await;
    let listening = server.logged("listening").await;
    let fingerprint = listening["certificate_sha256"].as_str().unwrap().to_owned();
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let pinned = Arc::new(Pinned { fingerprint, algorithms });
    server.trust(connector(|config| config.dangerous().with_custom_certificate_verifier(pinned).with_no_client_auth()));
    let certificate = server.connect().await.certificate;

    // As a `caBundle` holds it, and with the name checked.
    server.trust(trusting(&certificate));
    let mut connection = server.connect().await;
    assert!(connection.certificate == certificate, "the same certificate");
    answers_well(&mut connection).await;
}

#[tokio::test]
async fn a_caller_who_trusts_another_ca_or_knows_another_name_does_not_get_through() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    authority.issue(&["gpufence.other.svc"]).write(directory.path());
    let tls = files(directory.path());
    let mut server = Server::start_with("mode: audit", "0s", &tls, trusting(authority.certificate())).await;
    let error = server.try_dial().await.unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    server.trust(trusting(Authority::new().certificate()));
    let error = server.try_dial().await.unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");
}

/// A GPU pod is completed.
pub async fn answers_well(connection: &mut Connection) {
    let review = recorded("mutate-create-pod-gpu-pod");
    let (status, answer) = connection.review("/mutate", &review).await;
    assert_eq!(status, 200, "{answer}");
    check_mutation("a good request", &review["request"], &answer["response"], Completed);
}

/// Trusts the certificate with this SHA-256, once the server has proved to have its key.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if sha256(end_entity) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

// === The API server's rules for an answer ===

/// An answer over HTTP, as far as the API server looks at it.
pub struct Answer<'a> {
    pub status: u16,
    pub content_type: Option<&'a str>,
    pub body: &'a [u8],
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Review {
    api_version: String,
    kind: String,
    response: Option<Response>,
}

/// Fields that are absent or null are empty, as Go reads them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Option<String>,
    allowed: Option<bool>,
    status: Option<Status>,
    patch: Option<PatchBytes>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
    audit_annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Status {
    message: Option<String>,
    reason: Option<String>,
    code: Option<i32>,
}

/// Bytes in JSON: Go takes base64 and a list of numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum PatchBytes {
    Base64(String),
    Numbers(Vec<u8>),
}

/// What the API server makes of an answer: whether the request is allowed, or why the call failed.
pub fn verdict(answer: &Answer<'_>, uid: &str, mutating: bool) -> Result<bool, String> {
    read(answer, uid, mutating).map(|response| response.allowed.unwrap_or_default())
}

fn read(answer: &Answer<'_>, uid: &str, mutating: bool) -> Result<Response, String> {
    if !(200..=206).contains(&answer.status) {
        return Err(format!("HTTP status {}", answer.status));
    }
    if answer.content_type.is_some_and(|value| value.split(';').next().unwrap_or_default().trim().is_empty()) {
        return Err("no media type".to_owned());
    }
    if answer.body.is_empty() {
        return Err("empty body".to_owned());
    }
    let body = answer.body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(answer.body);
    // By way of a map, in which the last of two equal keys wins.
    let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let Review { api_version, kind, response } = serde_json::from_value(body).map_err(|error| error.to_string())?;
    if (&*api_version, &*kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        return Err(format!("{api_version}, {kind}"));
    }
    let response = response.ok_or("no response")?;
    if response.uid.as_deref() != Some(uid) {
        return Err(format!("uid {:?}, expected {uid}", response.uid));
    }
    check_patch(&response, mutating)?;
    Ok(response)
}

fn check_patch(response: &Response, mutating: bool) -> Result<(), String> {
    let patch = match &response.patch {
        None => Vec::new(),
        Some(PatchBytes::Numbers(bytes)) => bytes.clone(),
        Some(PatchBytes::Base64(text)) => STANDARD.decode(text).map_err(|error| error.to_string())?,
    };
    match (patch.is_empty(), response.patch_type.as_deref()) {
        (true, None) => Ok(()),
        _ if !mutating => Err("a patch from a validating webhook".to_owned()),
        (true, Some(_)) => Err("a patchType without a patch".to_owned()),
        (false, None | Some("")) => Err("a patch without a patchType".to_owned()),
        (false, Some(patch_type)) => {
            let operations: Vec<Value> = serde_json::from_slice(&patch).map_err(|error| error.to_string())?;
            if patch_type == "JSONPatch" || operations.is_empty() {
                Ok(())
            } else {
                Err(format!("patchType {patch_type}"))
            }
        }
    }
}

/// Asserts that the API server accepts the answer, and that it loses nothing of it on the way: it cuts
/// long warnings, and drops those with control characters and annotations with invalid keys.
pub fn assert_acceptable(answer: &[u8], request_uid: &str, mutating: bool) {
    let text = String::from_utf8_lossy(answer);
    let answer = Answer { status: 200, content_type: Some("application/json"), body: answer };
    let response = read(&answer, request_uid, mutating).unwrap_or_else(|error| panic!("{error}: {text}"));
    if let Some(patch_type) = &response.patch_type {
        assert_eq!(patch_type, "JSONPatch", "{text}");
        assert!(matches!(response.patch, Some(PatchBytes::Base64(_))), "{text}");
    }
    match (response.allowed, &response.status) {
        (Some(true), None) => {}
        (Some(false), Some(Status { message: Some(message), reason: Some(reason), code: Some(code) })) => {
            assert!(matches!((*code, &**reason), (403, "Forbidden") | (400, "BadRequest")), "{text}");
            assert!(!message.is_empty() && !message.contains(char::is_control), "{text}");
            assert!(response.patch.is_none(), "{text}");
        }
        _ => panic!("{text}"),
    }
    let warnings = response.warnings.unwrap_or_default();
    for warning in &warnings {
        assert!((1..=256).contains(&warning.chars().count()) && !warning.contains(char::is_control), "{text}");
    }
    assert!(warnings.iter().map(|warning| warning.chars().count()).sum::<usize>() <= 4096, "{text}");
    for key in response.audit_annotations.unwrap_or_default().keys() {
        assert!(is_name(key), "{key:?}: {text}");
    }
}

/// The part of a qualified name behind the slash.
fn is_name(key: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let bytes = key.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| inside(*byte))
        && [bytes[0], bytes[bytes.len() - 1]].iter().all(u8::is_ascii_alphanumeric)
}

/// The decoded patch of a response.
pub fn patch_of(response: &Value) -> Option<json_patch::Patch> {
    let text = response.get("patch")?.as_str().unwrap();
    Some(serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap())
}
