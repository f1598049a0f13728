//! `gpufence config`: the contract in force, or whether a file is one.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, Success, load_contract, print};

/// Print the contract in force, or check one
///
/// Prints what results from the built-in contract, the file given with --config, and the environment
/// variables GPUFENCE__SECTION__KEY: a good start for a contract of your own.
#[derive(Debug, Args)]
pub(super) struct Config {
    /// Check this contract instead: every fault is listed, with its key
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

impl Config {
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let contract = load_contract(self.check.as_deref().or(file))?;
        let text = match self.check {
            Some(file) => format!("{}: a valid contract\n", file.display()),
            None => contract.to_yaml().map_err(|error| Failure::Other(error.into()))?,
        };
        print(&text)?;
        Ok(Success::Clean)
    }
}
