//! The tests of an installation: what `gpufence manifests` prints, applied to a real API server, with the
//! built program as its replicas and controllers, each under its own service account.
//!
//! They need an API server of their own: an installation is one for a whole cluster. It is started from
//! `KUBEBUILDER_ASSETS`; against a cluster that runs already these tests are skipped, since its API server could
//! not call processes here by a Service. The kubelet, the Deployment and the endpoints controller are played:
//! a replica is a process here, and a pod that the API server is told of.
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
#[path = "../features.rs"]
mod features;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../poll.rs"]
mod poll;
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
#[path = "../process.rs"]
mod process;

/// The contracts of the tests.
mod contracts;
/// An installation, and what can be done to it.
mod installed;
/// A way to the API server that can be cut.
mod line;
/// Who tolerates, who requests, who does neither.
mod requests;

/// What people and other programs do to an installation by hand.
mod amiss;
/// One of the replicas looks again and again at what already runs.
mod audits;
/// With nothing running, whatever the cluster itself needs still works.
mod bootstrap;
/// The CA, the caBundle and the certificates.
mod certificates_live;
/// Applied, completed by itself, and taken away.
mod lifecycle;
/// Labels of namespaces and the contract, changed while it runs.
mod live;
/// The API server is gone for some time, in one way or another.
mod outage;
/// The acceptance test finds what is right and what is not.
mod verify;
