//! Where log lines go and what they look like.
//!
//! Owns the process's one subscriber and its panic hook. Lines go to stderr: stdout belongs to
//! the data that a subcommand prints.

use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};

use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// How a log line is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text where stderr is a terminal, JSON where it is not.
    #[default]
    Auto,
    /// One line for a person, coloured on a terminal.
    Text,
    /// One JSON object a line, the event's fields at its top level.
    Json,
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not a list of directives.
    #[error(
        "log filter {found:?} is not valid; expected directives such as `info` or \
         `warn,gpufence::decision=info`"
    )]
    Filter {
        /// The filter as it was given.
        found: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// Something else in the process has claimed the log.
    #[error("logging was set up already")]
    Taken(#[from] TryInitError),
    /// Nobody listens to the log any more.
    #[error("the log's filter cannot be changed")]
    Gone(#[from] reload::Error),
}

/// Sends the process's events to stderr, those that `filter` lets through.
///
/// Timestamps are RFC 3339 in UTC. Control characters in field values are escaped in both
/// formats, so no name that a user chose can forge a second line. Panics are logged as events
/// too: the default hook would put lines that are not JSON among those that are.
///
/// The filter can be another one later: see [`Level`].
pub fn init(format: LogFormat, filter: &str) -> Result<Level, LogError> {
    let filter = parse(filter)?;
    let terminal = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(terminal);
    let text = match format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let level = if text {
        let lines = lines.with_filter_reloading();
        let handle = lines.reload_handle();
        lines.finish().try_init()?;
        Level(Box::new(move |filter| handle.reload(filter)))
    } else {
        let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
        let lines = lines.with_filter_reloading();
        let handle = lines.reload_handle();
        lines.finish().try_init()?;
        Level(Box::new(move |filter| handle.reload(filter)))
    };
    panic::set_hook(Box::new(log_panic));
    Ok(level)
}

/// Which events are let through, while the process runs.
pub struct Level(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl Level {
    /// Lets through what this filter does from now on.
    pub fn set(&self, filter: &str) -> Result<(), LogError> {
        Ok((self.0)(parse(filter)?)?)
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Level").finish_non_exhaustive()
    }
}

/// Libraries that report each failed call by themselves. Whoever made the call says what it means, and says it once.
const SAID_TWICE: [&str; 2] = ["kube_client", "kube_runtime"];

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    let fault = |source| LogError::Filter { found: filter.to_owned(), source };
    let mut parsed = EnvFilter::builder().parse(filter).map_err(fault)?;
    for library in SAID_TWICE.iter().filter(|library| !filter.contains(*library)) {
        parsed = parsed.add_directive(format!("{library}=off").parse().map_err(fault)?);
    }
    Ok(parsed)
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    tracing::error!(location, panic = text.unwrap_or("(not text)"), "panicked");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_filter_is_refused_with_its_text() {
        let error = init(LogFormat::Json, "gpufence=loud").unwrap_err();
        assert!(matches!(error, LogError::Filter { .. }));
        assert!(error.to_string().contains("\"gpufence=loud\""), "{error}");
    }

    #[test]
    fn what_is_said_twice_is_heard_only_where_it_is_asked_for() {
        let directives = |filter: &str| parse(filter).unwrap().to_string();
        assert!(directives("info").contains("kube_client=off"));
        assert!(directives("info,kube_client=debug").contains("kube_client=debug"));
    }
}
