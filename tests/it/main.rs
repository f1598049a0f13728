//! The integration tests: one binary, a module a topic.

#![expect(unreachable_pub, reason = "what the modules share is public to nobody else")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as a test does")]

/// Objects from the wild, judged as the API server would.
mod objects;
/// Quantities against apimachinery's own outcome.
mod quantities;
/// What several topics share.
mod support;
/// Tolerations against Kubernetes' own outcome.
mod tolerations;
