//! What the program tells its operators: log lines and metrics.
//!
//! Every metric's name, labels and buckets are in [`metrics`], the shape of every log line in
//! [`log`]. Nothing in here knows what is being told: it imports no other module of ours, and
//! never sees a request's object.

pub mod log;
pub mod metrics;
