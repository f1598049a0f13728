//! What an audit finds in clusters made from a few lines.

pub mod cluster;
/// What is read of objects, in whatever form they come.
mod snapshot;
