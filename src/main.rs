//! Parses, runs and maps the outcome to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpufence::cli::run()
}
