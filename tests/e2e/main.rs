//! The end-to-end tests: the built program against a real API server, judged by what a user of kubectl
//! would see.
//!
//! Which API server is said by the environment, and nothing else is looked at:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `KUBEBUILDER_ASSETS` | a folder with `etcd` and `kube-apiserver`, which are started and ended here; `tests/e2e/assets.sh` makes one |
//! | `KUBECONFIG` | otherwise: a cluster that runs already, with the rights of a cluster administrator |
//! | `GPUFENCE_E2E_URL` | `https://HOST` under which that cluster's API server reaches this machine, where it does not run on it |
//!
//! Every test has a `gpufence serve` of its own, with its own contract, registered for the namespaces of
//! that test alone. So the tests run side by side and in any order, and leave nothing behind.
//!
//! What the API server is too old for is skipped, and said on stderr.

#![expect(unreachable_pub, reason = "what the modules share is public to nobody else")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as a test does")]

/// Requests to the API server, as a user of kubectl makes them.
mod api;
/// The certificates of this run's webhooks.
mod certificates;
/// The API server.
mod cluster;
/// The contract of a test.
mod contract;
/// What an API server may be too old for.
mod features;
/// The program under test and its registration.
mod fence;
/// What the program says, word for word: the one place to follow a change of its wording.
mod findings;
/// Pods and what carries their templates.
mod objects;
/// Waiting, but not for ever.
mod poll;
/// Processes that do not outlive the tests.
#[allow(dead_code, reason = "shared with the tests of an installation")]
mod process;
/// A mutating webhook that is not ours.
mod rival;

/// Mode audit: everything is reported and nothing is done.
mod audit;
/// Custom resources that hold pods.
mod custom_resources;
/// A person with the rights of a namespace's editor.
mod editor;
/// Mode enforce: what is completed, refused and let be.
mod enforce;
/// DaemonSets' pods, mirror pods, and who pretends.
mod identities;
/// Who may change what the fence stands on.
mod levers;
/// Who puts a pod onto a node past the scheduler.
mod node_name;
/// Pods that could never run on the pool's nodes.
mod placement;
/// What the registration decides: the webhook is not there, or not asked.
mod registration;
/// Other mutating webhooks before and after ours.
mod reinvocation;
/// What the contract adds beside the taint.
mod second_lines;
/// What is done to a pod by other doors than the pod itself.
mod subresources;
/// The written tables of attacks and of what real clusters do.
mod tables;
/// What carries the template of a pod.
mod templates;
/// What may be done to pods that are there already.
mod updates;
