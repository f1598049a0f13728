//! The process from its start to its end: who is not ready yet, when to stop, what must not stop.
//!
//! Knows nothing of sockets, policies or clusters. Parts of the program take a [`ReadyHandle`]
//! each, watch one [`Shutdown`], and hand their endless work to [`Tasks`].

mod readiness;
mod shutdown;
mod signals;
mod tasks;

pub use readiness::{Readiness, ReadyHandle};
pub use shutdown::Shutdown;
pub use signals::{SignalError, signals};
pub use tasks::{TaskError, Tasks};
