//! The tests of audits: a cluster made object by object in a real API server, and what the built program says of it.
//!
//! They need an API server of their own, since an audit is of a whole cluster: what it says must be what was made. It is
//! started from `KUBEBUILDER_ASSETS`; against a cluster that runs already these tests are skipped. The scheduler, the
//! kubelets and the controllers are played: nodes have the status that they are given, and pods are bound by hand.
//!
//! The tests run one after the other, whatever the harness is told.

#![expect(unreachable_pub, reason = "what the modules share is public to nobody else")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as a test does")]

#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../api.rs"]
mod api;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../certificates.rs"]
mod certificates;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../cluster.rs"]
mod cluster;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../contract.rs"]
mod contract;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../features.rs"]
mod features;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../objects.rs"]
mod objects;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../poll.rs"]
mod poll;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../process.rs"]
mod process;

/// The definitions of the kinds in which a cluster keeps reports.
mod definitions;
/// A cluster that is made, and the program that audits it.
mod world;

/// What an audit finds, and does not find again.
mod found;
/// What is read equals what was made.
mod read;
/// The reports that an audit keeps in the cluster.
mod reports;
/// Who may read what, and what is said where that is not everything.
mod rights;
