//! The paths of the webhooks: from bytes to bytes.
//!
//! A handler reads the body within its bounds, hands it to [`review::answer`], counts, logs, and
//! writes the answer. What the bytes mean is the review's affair. Where the answer rests on labels of a
//! namespace or on a node that are not known, they are looked up and the same bytes answered once more: only
//! the last answer counts.
//!
//! The paths below `/audit` answer by the same contract, but in audit mode at most: which of the two an
//! installation calls is in its registration, where one change takes effect at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use tokio::time::Instant;

use super::body::{Budget, Held};
use super::refusal::{Refusal, plain};
use super::{App, allowance, decision_log, lookup};
use crate::policy::Facts;
use crate::review::{self, Account, Answer, Webhook};
use crate::telemetry::metrics::{Decision, ExemptionUse, Metrics, Request as Answered};

struct Shared {
    app: Arc<App>,
    budget: Budget,
}

/// The webhooks' paths, answered by `app`.
pub(super) fn router(app: Arc<App>) -> Router {
    let shared = Arc::new(Shared { app, budget: Budget::new() });
    Router::new()
        .route("/mutate", path(Webhook::Mutate, Under::Contract))
        .route("/validate", path(Webhook::Validate, Under::Contract))
        .route("/audit/mutate", path(Webhook::Mutate, Under::Audit))
        .route("/audit/validate", path(Webhook::Validate, Under::Audit))
        .fallback(unknown_path)
        .with_state(shared)
}

/// Which of the policies in force answers.
#[derive(Debug, Clone, Copy)]
enum Under {
    Contract,
    Audit,
}

fn path(webhook: Webhook, under: Under) -> MethodRouter<Arc<Shared>> {
    post(move |State(shared): State<Arc<Shared>>, request: Request| async move {
        admit(&shared, webhook, under, request).await
    })
    .fallback(wrong_method)
}

async fn unknown_path(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    refuse(&shared.app.metrics, Refusal::Path(uri.path().to_owned()))
}

async fn wrong_method(State(shared): State<Arc<Shared>>, method: Method) -> Response {
    refuse(&shared.app.metrics, Refusal::Method(method))
}

fn refuse(metrics: &Metrics, refusal: Refusal) -> Response {
    if let Some(rejection) = refusal.counted_as() {
        metrics.rejected(rejection);
        tracing::debug!(reason = rejection.as_str(), %refusal, "request refused");
    }
    refusal.into_response()
}

async fn admit(shared: &Shared, webhook: Webhook, under: Under, request: Request) -> Response {
    let app = &shared.app;
    let began = Instant::now();
    let deadline = began + allowance::of(request.uri().query());
    let _in_flight = app.metrics.in_flight();
    match receive(&shared.budget, request).await {
        Ok(held) => {
            let response = review(app, webhook, under, held.bytes(), deadline).await;
            app.metrics.took(webhook.as_str(), began.elapsed().as_secs_f64());
            response
        }
        Err(refusal) => refuse(&app.metrics, refusal),
    }
}

async fn receive(budget: &Budget, request: Request) -> Result<Held, Refusal> {
    let (head, body) = request.into_parts();
    require_json(&head.headers)?;
    budget.read(body, allowance::of(head.uri.query())).await
}

/// kube-apiserver always says `application/json`. Whoever does not is somebody else.
fn require_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let found = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let essence = found.as_deref().and_then(|text| text.split(';').next()).map(str::trim);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        Ok(())
    } else {
        Err(Refusal::MediaType(found.map(String::from)))
    }
}

/// The answer that counts, counted and logged.
async fn review(app: &App, webhook: Webhook, under: Under, body: &[u8], deadline: Instant) -> Response {
    let answer = match answer(app, webhook, under, &*app.facts, body) {
        Ok(first) => informed(app, webhook, under, body, deadline, first).await,
        Err(panicked) => Err(panicked),
    };
    match answer {
        Ok(answer) => {
            count(&app.metrics, webhook, &answer.account);
            decision_log::write(webhook, &answer.account);
            respond(answer)
        }
        Err(panicked) => refuse(&app.metrics, panicked),
    }
}

/// The first answer, or where that rests on what is not known and can be looked up, the second.
/// The only wait between a body and its answer.
async fn informed<'b>(
    app: &App,
    webhook: Webhook,
    under: Under,
    body: &'b [u8],
    deadline: Instant,
    first: Answer<'b>,
) -> Result<Answer<'b>, Refusal> {
    let account = &first.account;
    let wanted = lookup::Wanted {
        namespace: account.labels_unknown.then_some(&*account.namespace),
        node: account.node_unknown.as_deref(),
    };
    let is_certain = wanted.namespace.is_none() && wanted.node.is_none();
    let Some(lookup) = app.lookup.as_deref().filter(|_| !is_certain) else { return Ok(first) };
    match lookup::until(deadline, lookup, wanted, &*app.facts, &app.metrics).await {
        Some(facts) => answer(app, webhook, under, &facts, body),
        None => Ok(first),
    }
}

/// Answers on the worker thread itself: a review takes microseconds and never waits, and a thread
/// of its own would cost more than the review does.
///
/// A review that panics is answered 500 without `Retry-After`: the same bytes would panic again.
/// The webhook's failurePolicy then decides, which an audit installation sets to Ignore.
fn answer<'b>(
    app: &App,
    webhook: Webhook,
    under: Under,
    facts: &dyn Facts,
    body: &'b [u8],
) -> Result<Answer<'b>, Refusal> {
    let policies = app.policies.load();
    let policy = match under {
        Under::Contract => &policies.contract,
        Under::Audit => &policies.audit,
    };
    // Sound to go on after a panic: a review changes nothing that outlives it.
    catch_unwind(AssertUnwindSafe(|| review::answer(policy, facts, webhook, body))).map_err(|_| {
        app.metrics.panicked();
        tracing::error!(webhook = webhook.as_str(), bytes = body.len(), "a review panicked");
        Refusal::Panicked
    })
}

fn count(metrics: &Metrics, webhook: Webhook, account: &Account<'_>) {
    let webhook = webhook.as_str();
    let dry_run = account.dry_run;
    metrics.answered(&Answered {
        webhook,
        resource: account.resource,
        operation: account.operation,
        outcome: account.outcome,
        dry_run,
    });
    for entry in &account.entries {
        metrics.decided(&Decision { webhook, rule: entry.rule, action: entry.action, dry_run });
    }
    for review::ExemptionUse { exemption, outcome } in &account.exemptions {
        metrics.exemption_used(&ExemptionUse { exemption: exemption.clone(), webhook, outcome, dry_run });
    }
}

fn respond(answer: Answer<'_>) -> Response {
    match StatusCode::from_u16(answer.status) {
        Ok(StatusCode::OK) => {
            ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], answer.body).into_response()
        }
        Ok(status) => plain(status, answer.body),
        Err(_) => Refusal::Malformed.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(content_type: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        require_json(&headers).is_ok()
    }

    #[test]
    fn json_is_taken_with_any_parameters_and_nothing_else_is() {
        for taken in ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;"] {
            assert!(judged(taken), "{taken}");
        }
        for refused in ["", "text/plain", "application/jsonp", "application/yaml", "application/json, text/plain"] {
            assert!(!judged(refused), "{refused}");
        }
        assert!(matches!(require_json(&HeaderMap::new()), Err(Refusal::MediaType(None))));
    }
}
