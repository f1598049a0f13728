//! The integration tests: one binary, a module a topic.

#![expect(unreachable_pub, reason = "what the modules share is public to nobody else")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as a test does")]

/// The alert rules of `deploy/`.
mod alerts;
/// Who may import whom, and how long a file may be.
mod architecture;
/// What is found in a cluster that runs already.
mod audit;
/// What each mode does, and what it tells in the answer, the log and the metrics.
mod audit_mode;
/// Requests that no API server sends.
mod bad_input;
/// The built binary, and a caller that behaves as kube-apiserver does.
mod binary;
/// What a developer makes to serve with.
mod certificate;
/// The subcommands, as the built binary runs them.
mod command_line;
/// Faults of a contract, and how its layers lie over each other.
mod contract;
/// The templates in custom resources.
mod custom_resources;
/// The server in this process, with parts that the binary takes from a cluster.
mod embedded;
/// Our answers and patches against the API server's recorded verdicts.
mod encoder;
/// Who is exempt, from what, and until when.
mod exemptions;
/// What their match conditions keep from the hook, evaluated beside the decision.
mod lever_conditions;
/// What the fence stands on, and who may change it.
mod levers;
/// What is rendered for a cluster.
mod manifests;
/// GPU requests that are no resources: claims on devices, and annotations.
mod markers;
/// What the rendered match conditions keep from the webhooks, evaluated beside the decision.
mod match_conditions;
/// What people read, word for word.
mod messages;
/// Decisions that depend on the labels of namespaces, known, unknown and looked up.
mod namespace_labels;
/// Decisions that depend on nodes, known, unknown and looked up.
mod node_lookups;
/// Pods that somebody puts onto a node past the scheduler.
mod node_name;
/// Objects from the wild, judged as the API server would.
mod objects;
/// Decisions that no recorded object shows.
mod policy;
/// What holds for every pod.
mod properties;
/// Quantities against apimachinery's own outcome.
mod quantities;
/// Pools that share a taint and differ by label.
mod reach;
/// The contract's file, changed while the binary serves.
mod reload;
/// A replica that is replaced while it is called.
mod replacement;
/// What the contract can add beside the taint.
mod second_lines;
/// Signals, the drain, and certificate files that change.
mod shutdown;
/// Pools that offer the same resource, and which of them a pod means.
mod side_by_side;
/// What several topics share.
mod support;
/// The in-tree plugin that merges tolerations, and how the fence lives with it.
mod toleration_restriction;
/// Tolerations against Kubernetes' own outcome.
mod tolerations;
/// Recorded requests over TLS, and the API server's rules for an answer.
mod wire;
