//! Health, metrics and the certificate that is served, over plain HTTP on a port of their own.
//!
//! A certificate is public: whoever connects is shown it. It is here as well because the API server's
//! proxy reaches each pod on this port, where it could not tell one replica's certificate from another's
//! through the Service.
//!
//! Liveness says only that the process answers: nothing outside of it may get it restarted.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::refusal::plain;
use super::tls::Identity;
use crate::lifecycle::Readiness;
use crate::telemetry::metrics::{self, Metrics};

/// The admin listener's paths. `identity` is what a process serves that serves webhooks.
pub(super) fn router(readiness: Readiness, metrics: Arc<Metrics>, identity: Option<Arc<Identity>>) -> Router {
    let valid = match &identity {
        Some(_) => "valid are GET /livez, /readyz, /metrics and /certificate\n",
        None => "valid are GET /livez, /readyz and /metrics\n",
    };
    let unknown = move || async move { text(StatusCode::NOT_FOUND, valid) };
    let router = Router::new()
        .route("/livez", get(|| async { text(StatusCode::OK, "ok") }))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(exposition).with_state(metrics))
        .fallback(unknown);
    match identity {
        Some(identity) => router.route("/certificate", get(certificate).with_state(identity)),
        None => router,
    }
}

async fn ready(State(readiness): State<Readiness>) -> Response {
    match readiness.not_ready().as_slice() {
        [] => text(StatusCode::OK, "ok"),
        parts => text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {}", parts.join(", "))),
    }
}

async fn exposition(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE))], text).into_response(),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
    }
}

async fn certificate(State(identity): State<Arc<Identity>>) -> Response {
    let media_type = HeaderValue::from_static("application/pem-certificate-chain");
    ([(CONTENT_TYPE, media_type)], identity.current().chain_pem()).into_response()
}

fn text(status: StatusCode, text: &str) -> Response {
    plain(status, text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Shutdown;
    use crate::server::tls::Credentials;

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn get(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing_and_liveness_does_not_care() {
        let shutdown = Shutdown::new();
        let readiness = Readiness::new(&shutdown);
        let identity = Identity::new(Credentials::self_signed(&[]).unwrap());
        let router = router(readiness.clone(), Arc::new(Metrics::new()), Some(Arc::new(identity)));
        let handle = readiness.handle("https listener");
        assert_eq!(get(&router, "/readyz").await, (503, "not ready: https listener".to_owned()));
        handle.ready();
        assert_eq!(get(&router, "/readyz").await, (200, "ok".to_owned()));
        shutdown.drain();
        assert_eq!(get(&router, "/readyz").await, (503, "not ready: draining".to_owned()));
        assert_eq!(get(&router, "/livez").await, (200, "ok".to_owned()));
        assert_eq!(get(&router, "/metric").await.0, 404);
        let (status, text) = get(&router, "/metrics").await;
        assert_eq!(status, 200);
        assert!(text.contains("\ngpufence_panics_total 0\n"));
    }
}
