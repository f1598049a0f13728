//! Every answer that is not a review's.
//!
//! Each says what was found and what is valid, in plain text under 1 KiB. None is a redirect: the
//! API server would follow it (CVE-2020-8561). Only [`Refusal::Overload`] carries `Retry-After`:
//! the API server takes it as an invitation to send the same request again.

use std::time::Duration;

use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

use super::body::LIMIT;
use crate::telemetry::metrics::Rejection;

/// How much of what the caller sent is repeated to it, in characters. Escaped, a character can
/// become ten bytes (`\u{10ffff}`); the whole stays under 1 KiB.
const QUOTED: usize = 64;

/// Seconds after which the caller may try again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// Why a request is not answered by a review.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("no such path: {}; valid are POST /mutate, /validate, /audit/mutate and /audit/validate", quoted(.0))]
    Path(String),
    #[error("method {} is not taken here; valid is POST", quoted(.0.as_str()))]
    Method(Method),
    #[error("content type {} is not taken; valid is application/json", .0.as_deref().map_or_else(|| "(none)".to_owned(), quoted))]
    MediaType(Option<String>),
    #[error("the body is larger than {LIMIT} bytes, the most that is taken{}", announced(*.0))]
    TooLarge(Option<u64>),
    #[error("the body did not arrive within {:.1} s", .0.as_secs_f64())]
    BodyTimeout(Duration),
    #[error("the body broke off before its end")]
    BodyBroken,
    #[error("no time is left of the timeout in the query; valid is one above 100ms, such as timeout=5s")]
    Expired,
    #[error("too many requests are being answered; try again in a second")]
    Overload,
    #[error("the review failed through a fault of this server; its log says where")]
    Panicked,
    #[error("the review's answer is no HTTP response")]
    Malformed,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Path(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout(_) | Self::Expired => StatusCode::REQUEST_TIMEOUT,
            Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::Overload => StatusCode::TOO_MANY_REQUESTS,
            Self::Panicked | Self::Malformed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What it counts as; nothing where the request did become a review.
    pub(super) const fn counted_as(&self) -> Option<Rejection> {
        match self {
            Self::Path(_) => Some(Rejection::Path),
            Self::Method(_) => Some(Rejection::Method),
            Self::MediaType(_) => Some(Rejection::MediaType),
            Self::TooLarge(_) => Some(Rejection::TooLarge),
            Self::BodyTimeout(_) => Some(Rejection::BodyTimeout),
            Self::BodyBroken => Some(Rejection::BodyBroken),
            Self::Expired => Some(Rejection::Expired),
            Self::Overload => Some(Rejection::Overload),
            Self::Panicked | Self::Malformed => None,
        }
    }

    /// Whether a body may be left unread, so that the connection is of no more use.
    const fn leaves_a_body(&self) -> bool {
        !matches!(self, Self::Panicked | Self::Malformed)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = plain(self.status(), format!("{self}\n").into_bytes());
        let headers = response.headers_mut();
        if self.leaves_a_body() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if matches!(self, Self::Overload) {
            headers.insert(RETRY_AFTER, RETRY_SECONDS);
        }
        response
    }
}

/// A response of plain text, which no browser takes for anything else.
pub(super) fn plain(status: StatusCode, text: Vec<u8>) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (status, headers, text).into_response()
}

fn quoted(text: impl AsRef<str>) -> String {
    format!("{:?}", text.as_ref().chars().take(QUOTED).collect::<String>())
}

fn announced(length: Option<u64>) -> String {
    length.map_or_else(String::new, |length| format!("; its Content-Length is {length}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn text(refusal: Refusal) -> (StatusCode, String) {
        let response = refusal.into_response();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn what_the_caller_sent_is_repeated_escaped_and_never_at_length() {
        let (status, body) = text(Refusal::Path("/\u{10ffff}\n".repeat(10_000))).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(body.len() <= 1024, "{} bytes", body.len());
        assert_eq!(body.lines().count(), 1);
        let (_, body) = text(Refusal::MediaType(None)).await;
        assert_eq!(body, "content type (none) is not taken; valid is application/json\n");
        let (_, body) = text(Refusal::TooLarge(Some(10_485_760))).await;
        assert!(body.contains("9437184 bytes") && body.contains("10485760"), "{body}");
    }

    #[test]
    fn only_overload_invites_a_retry() {
        let retry = |refusal: Refusal| refusal.into_response().headers().contains_key(RETRY_AFTER);
        assert!(retry(Refusal::Overload));
        assert!(!retry(Refusal::Panicked));
        assert!(!retry(Refusal::BodyTimeout(Duration::from_secs(5))));
    }
}
