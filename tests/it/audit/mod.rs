//! What an audit finds in clusters made from a few lines.

/// What there is of GPUs, what is free, and what is blocked.
mod accounts;
pub mod cluster;
/// The forms of an audit, and the command.
mod outputs;
/// Who is on GPU nodes, how that came in, and what to do.
mod occupants;
/// What is read of objects, in whatever form they come.
mod snapshot;
