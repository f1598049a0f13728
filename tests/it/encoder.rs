//! The encoder against the API server's own verdicts: first the checker that holds our answers to its
//! rules, then our patches.

use gpufence::policy::{DAEMON_SET_CONTROLLER, Kind, NoFacts, Policy};
use gpufence::review::{Webhook, answer};
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use crate::support::{Form, cases, policy};
use crate::wire::{self, assert_acceptable, patch_of};

/// The uid for which the responses were recorded.
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// Recorded answers that the checker does not judge.
const SKIPPED: [(&str, &str); 1] = [("resp-56/yaml-body", "the API server reads YAML too; we only ever write JSON")];

#[test]
fn the_checker_says_what_the_api_server_said() {
    let mut judged = 0;
    for case in cases("webhook-responses.jsonl") {
        let id = case["id"].as_str().unwrap();
        if SKIPPED.iter().any(|(skipped, _)| *skipped == id) {
            continue;
        }
        let body = case["body"].as_str().unwrap().replace("${request.uid}", UID);
        let answer = wire::Answer {
            status: case["http_status"].as_u64().unwrap().try_into().unwrap(),
            content_type: case["headers"]["Content-Type"].as_str(),
            body: body.as_bytes(),
        };
        let verdict = wire::verdict(&answer, UID, case["mutating"].as_bool().unwrap());
        assert_eq!(verdict.is_ok(), case["outcome"] == "accepted", "{id}: {verdict:?}, recorded {}", case["error"]);
        assert_eq!(verdict.ok(), case["allowed"].as_bool(), "{id}");
        judged += 1;
    }
    assert_eq!(judged, 56);
}

/// Whether a patch is of the kind that we make: additions to what we own.
fn is_ours(patch: &Patch) -> bool {
    let owned = |path: &str| {
        let mut tokens = path.split('/').skip(1);
        tokens.next() == Some("spec") && matches!(tokens.next(), Some("tolerations" | "nodeSelector"))
    };
    !patch.is_empty()
        && patch.iter().all(|operation| matches!(operation, PatchOperation::Add(add) if owned(add.path.as_str())))
}

#[test]
fn patches_of_our_kind_do_what_the_api_server_makes_of_them() {
    let mut judged = Vec::new();
    for case in cases("webhook-patches.jsonl") {
        let id = case["id"].as_str().unwrap();
        let Ok(patch) = serde_json::from_str::<Patch>(case["patch"].as_str().unwrap()) else { continue };
        if !is_ours(&patch) {
            continue;
        }
        judged.push(id.to_owned());
        let mut object = case["object"].clone();
        let applied = json_patch::patch(&mut object, &patch);
        let text = object.to_string();
        let outcome = match applied {
            Err(_) => "apply_error",
            Ok(()) if Kind::Pod.read(&text).is_err() => "decode_error",
            Ok(()) => "applied",
        };
        assert_eq!(outcome, case["outcome"], "{id}");
        if outcome == "applied" {
            assert_eq!(object != case["object"], case["changed"] == true, "{id}");
            assert_eq!(object["spec"]["tolerations"], case["tolerations_after"], "{id}");
        }
    }
    assert_eq!(judged.len(), 9, "{judged:?}");
}

/// The pod of an object from the wild: itself, the one of a request, or the one of a template.
fn pod_of(object: &Value) -> &Value {
    let places = ["/request/object", "/spec/jobTemplate/spec/template", "/spec/template"];
    places.iter().find_map(|place| object.pointer(place)).unwrap_or(object)
}

/// A request to create a pod.
fn creation(pod: &Value, namespace: &str, username: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": username},
            "object": pod,
            "oldObject": null,
            "dryRun": false,
        },
    })
}

/// The answer to a review, found acceptable.
fn answered(policy: &Policy, webhook: Webhook, review: &Value) -> Value {
    let body = review.to_string();
    let answer = answer(policy, &NoFacts, webhook, body.as_bytes());
    assert_eq!(answer.status, 200);
    assert_acceptable(&answer.body, UID, webhook == Webhook::Mutate);
    serde_json::from_slice::<Value>(&answer.body).unwrap()["response"].take()
}

#[test]
fn every_patch_for_an_object_from_the_wild_adds_to_what_we_own() {
    let mut patched = 0;
    for case in cases("objects.jsonl").iter().filter(|case| case["kind"] != "node") {
        let namespace = case["namespace"].as_str().unwrap();
        for (form, skip) in Form::ALL.into_iter().flat_map(|form| [(form, "skip"), (form, "add")]) {
            let id = format!("{} under {}, {skip}", case["id"], form.name());
            let policy = policy(&form.yaml(&[namespace], &format!("injection: {{whenTolerated: {skip}}}")));
            for username in ["someone", DAEMON_SET_CONTROLLER] {
                let review = creation(pod_of(&case["object"]), namespace, username);
                let response = answered(&policy, Webhook::Mutate, &review);
                answered(&policy, Webhook::Validate, &review);
                let Some(patch) = patch_of(&response) else { continue };
                assert!(is_ours(&patch), "{id}: {patch}");
                patched += 1;

                let mut review = review;
                json_patch::patch(&mut review["request"]["object"], &patch).unwrap_or_else(|e| panic!("{id}: {e}"));
                let again = answered(&policy, Webhook::Mutate, &review);
                assert_eq!(patch_of(&again), None, "{id}: a second patch");
            }
        }
    }
    assert!(patched > 300, "{patched}");
}
