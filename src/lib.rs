//! gpufence keeps GPU nodes for GPU work in a Kubernetes cluster.
//!
//! A node of a GPU pool carries a label and a taint; a GPU pod carries the exact toleration and the
//! nodeSelector; no other pod carries a toleration that passes the taint. One declarative
//! [contract] says so, and every part of the program is derived from it.
//!
//! # Bird's-eye view
//!
//! A functional core in an imperative shell. The core answers one question, [`policy::Policy::decide`]:
//! given the contract, what is known of the cluster, and one request, what is found and what is injected?
//! Everything else brings it requests and carries its decisions away.
//!
//! ```text
//! contract.yaml, environment ──> contract ──> Policy::decide(subject, facts) ──> Decision
//!                                                ▲                                  │
//!   server ── AdmissionReview ──> review ────────┘                                  ├──> review ──> server
//!   cli review ── manifests ────> review ───────────────────────────────────────────┴──> report
//!   cli audit ── cluster, files ──> audit ── findings, numbers ────────────────────────> report
//! ```
//!
//! # Entry points
//!
//! - `main.rs` calls [`cli::run`]; each subcommand is a file in [`cli`].
//! - [`server::run`] binds, serves and drains; a request's bytes go to [`review::answer`] and its answer's
//!   bytes come back.
//! - Benchmarks and tests call [`review::answer`] and [`policy::Policy::decide`] themselves.
//!
//! # Code map
//!
//! | module | owns |
//! | --- | --- |
//! | [`policy`] | the decision: tolerations, quantities, pools, rules, injection; pure |
//! | [`contract`] | what may be written, and how it becomes a [`policy::Policy`] |
//! | [`review`] | the form of an AdmissionReview, bytes to bytes |
//! | [`manifest`] | every object of an installation, rendered from the contract; pure |
//! | [`server`] | HTTPS and the plain listener: limits, deadlines, certificates, drain |
//! | [`audit`] | what already runs: a snapshot in, findings out; pure |
//! | [`certificate`] | our own CA: its leaves, its rotation, what an API server makes of a chain; pure |
//! | [`cluster`] | everything that is said to an API server: watches, registrations, dry runs |
//! | [`lifecycle`] | readiness, shutdown, background tasks |
//! | [`telemetry`] | the log and the metrics: every name and label |
//! | [`report`] | verdicts and audits as text and JSON, audits as Markdown and SARIF too |
//! | [`cli`] | subcommands and exit codes |
//!
//! # Invariants
//!
//! - `policy` is pure: no clock, environment, file, socket, log or metric. It imports nothing of ours and
//!   cannot fail; what it could not read is data in the decision.
//! - Only `contract` makes a [`policy::Policy`], so an invalid one cannot exist.
//! - Only `review` knows the form of an AdmissionReview; it knows nothing of HTTP but two status codes.
//! - `server` never looks into a body. Nothing on its path from request to answer waits on anything but the
//!   client, and once, for a short time, on the labels of a namespace and on a node that an answer would rest
//!   on and that are not known.
//! - The library without the feature `server` is `policy`, `contract`, `review` and `manifest` alone. A test
//!   holds who may import whom.

pub mod contract;
pub mod manifest;
pub mod policy;
pub mod review;

#[cfg(feature = "server")]
pub mod audit;
#[cfg(feature = "server")]
pub mod certificate;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod cluster;
#[cfg(feature = "server")]
pub mod lifecycle;
#[cfg(feature = "server")]
pub mod report;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod telemetry;
