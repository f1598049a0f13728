//! What an audit finds in clusters made from a few lines.

pub mod cluster;
/// The forms of an audit, and the command.
mod outputs;
/// What is read of objects, in whatever form they come.
mod snapshot;
