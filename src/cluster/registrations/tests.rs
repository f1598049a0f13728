use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};

use super::*;

fn registration(version: &str) -> Registration {
    Registration {
        kind: Kind::Validating,
        name: "gpufence".to_owned(),
        resource_version: version.to_owned(),
        hooks: Vec::new(),
        pod_hook: 0,
        bindings_hook: "bindings".to_owned(),
        namespaces: LabelSelector::default(),
        target: FailurePolicy::Fail,
        audit_path: "/audit/".to_owned(),
    }
}

/// An API server that refuses each patch as one that cannot be processed, and has the configuration in a version.
fn refusing(version: &'static str) -> Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (code, body) = if request.method() == Method::PATCH {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
                "message": "the server rejected our request due to an error in our request",
            });
            (StatusCode::UNPROCESSABLE_ENTITY, status)
        } else {
            let metadata = json!({"name": "gpufence", "resourceVersion": version});
            (StatusCode::OK, json!({"apiVersion": "v1", "kind": "PartialObjectMetadata", "metadata": metadata}))
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = code;
        async { Ok::<_, std::convert::Infallible>(response) }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_change_that_came_too_late_is_no_fault_and_one_that_is_refused_is() {
    let change = || vec![json!({"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Fail"})];
    assert!(!registration("7").apply(&refusing("8"), change()).await.unwrap());
    let error = registration("7").apply(&refusing("7"), change()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "ValidatingWebhookConfiguration gpufence: the server rejected our request due to an error in our request (code 422)"
    );
}

fn hook(name: &str, policy: FailurePolicy, conditions: &[(&str, &str)]) -> Hook {
    Hook {
        name: name.to_owned(),
        path: "/validate".to_owned(),
        is_ours: true,
        ca_bundle: Vec::new(),
        failure_policy: policy,
        conditions: conditions.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
    }
}

/// An outage must never stop a scheduler: so the hook for Bindings is armed only where none is asked about.
#[test]
fn the_webhook_for_bindings_is_armable_only_where_schedulers_are_kept_from_it() {
    let condition = ("is-not-a-scheduler", "!(request.userInfo.username in ['system:kube-scheduler'])");
    let other = ("is-not-a-scheduler", "!(request.userInfo.username in ['another'])");
    let wanted: MatchConditions =
        [("bindings".to_owned(), [(condition.0.to_owned(), condition.1.to_owned())].into())].into();
    let armable = |conditions: &[(&str, &str)], wanted: &MatchConditions| {
        let mut registration = registration("7");
        registration.hooks = vec![
            hook("pods", FailurePolicy::Ignore, &[]),
            hook("templates", FailurePolicy::Ignore, &[condition]),
            hook("bindings", FailurePolicy::Ignore, conditions),
        ];
        let names = registration.armable(wanted).map(|hook| hook.name.clone()).collect::<Vec<_>>();
        let armed = registration.with_failure_policy(&|hook| {
            if registration.is_armable(hook, wanted) { FailurePolicy::Fail } else { FailurePolicy::Ignore }
        });
        // A test of the name and the change of each.
        assert_eq!(armed.len(), 2 * names.len());
        names
    };
    assert_eq!(armable(&[condition], &wanted), ["pods", "bindings"]);
    assert_eq!(armable(&[], &wanted), ["pods"], "an API server before 1.30 keeps none");
    assert_eq!(armable(&[other], &wanted), ["pods"], "those of another contract");
    assert_eq!(armable(&[condition, ("more", "true")], &wanted), ["pods"]);
    assert_eq!(armable(&[condition], &MatchConditions::new()), ["pods"], "the contract has no such webhook");
}
