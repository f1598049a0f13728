//! What an audit finds in clusters made from a few lines.

/// What there is of GPUs, what is free, and what is blocked.
mod accounts;
/// The exemptions under which what runs today goes on running.
mod adopt;
/// Causes and numbers that are true, and advice that does no harm.
mod advice;
/// What is new since an earlier audit.
mod baseline;
pub mod cluster;
/// An audit as objects of the cluster.
mod cluster_reports;
/// Which DaemonSets reach the GPU nodes.
mod commands;
mod coverage;
mod dumps;
/// Whether a pod selects a node.
mod fit;
/// What is read of a live cluster, against an API server that does what it is told.
mod live;
/// Labels, taints, GPUs and groups of nodes.
mod nodes;
/// Who is on GPU nodes, how that came in, and what to do.
mod occupants;
/// The forms of an audit, and the command.
mod outputs;
/// The page for a browser.
mod page;
/// Why pods wait.
mod pending;
/// What the role of a reader allows.
mod reader;
/// What the contract's rules say of pods.
mod rules;
/// A snapshot that is written and read again.
mod saved;
/// What is read of objects, in whatever form they come.
mod snapshot;
/// What is said of templates, and of entries of the contract that lead nowhere.
mod templates;
/// What a taint or a label would do.
mod what_if;
