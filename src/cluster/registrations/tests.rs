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
