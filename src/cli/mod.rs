//! The command line: one file a subcommand, one meaning for each exit code.

mod arm;
mod audit;
mod cluster_audit;
mod config;
mod continuous;
mod contract_file;
mod controller;
mod documents;
mod installation;
mod live;
mod manifests;
mod review;
mod serve;
mod verify;
mod what_if;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tokio::runtime::Builder;

use crate::contract::{Contract, ContractError};

/// Keeps GPU nodes for GPU work in a Kubernetes cluster.
///
/// A node of a GPU pool carries a label and a taint. gpufence gives GPU pods the exact toleration and the
/// nodeSelector, and refuses tolerations that pass the taint outside the namespaces that may use the pool.
/// What it does is written in one file, the contract; without one a built-in contract serves, which only
/// reports (mode audit).
#[derive(Debug, Parser)]
#[command(name = "gpufence", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done and clean; 1 a finding that denies, or the command failed; \
                        2 input that cannot be used.")]
pub struct Cli {
    /// The contract [default: the built-in one]
    ///
    /// Variables GPUFENCE__SECTION__KEY override it: `GPUFENCE__MODE=enforce`.
    /// The variable GPUFENCE_CONFIG names it as well.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Review(review::Review),
    Audit(audit::Audit),
    Config(config::Config),
    Manifests(manifests::Manifests),
    Verify(verify::Verify),
    Arm(arm::Arm),
    Disarm(arm::Disarm),
    Controller(controller::Controller),
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Why a command did not do what it should; decides the exit code.
#[derive(Debug)]
enum Failure {
    /// The input cannot be used: the caller's to mend.
    Input(anyhow::Error),
    /// The environment or we failed.
    Other(anyhow::Error),
}

impl From<ContractError> for Failure {
    fn from(error: ContractError) -> Self {
        Self::Input(error.into())
    }
}

/// The command did what it should, and what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Success {
    Clean,
    Findings,
}

/// Parses the command line, runs it and maps the outcome to an exit code.
#[must_use]
pub fn run() -> ExitCode {
    let Cli { config, command } = Cli::parse();
    // Not clap's: it takes an empty variable for an empty file name, and a manifest may well leave it empty.
    let named = std::env::var_os("GPUFENCE_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from);
    let config = config.or(named);
    let outcome = match command {
        Command::Serve(serve) => serve.run(config.as_deref()),
        Command::Review(review) => review.run(config.as_deref()),
        Command::Audit(audit) => audit.run(config.as_deref()),
        Command::Config(command) => command.run(config.as_deref()),
        Command::Manifests(command) => command.run(config.as_deref()),
        Command::Verify(command) => command.run(config.as_deref()),
        Command::Arm(command) => command.run(),
        Command::Disarm(command) => command.run(),
        Command::Controller(command) => command.run(config.as_deref()),
    };
    let (failure, code) = match outcome {
        Ok(Success::Clean) => return ExitCode::SUCCESS,
        Ok(Success::Findings) => return ExitCode::from(1),
        Err(Failure::Other(error)) => (error, 1),
        Err(Failure::Input(error)) => (error, 2),
    };
    complain(&format!("gpufence: {failure:#}\n"));
    ExitCode::from(code)
}

/// The contract in force: the built-in one, the file and the environment.
fn load_contract(file: Option<&std::path::Path>) -> Result<Contract, ContractError> {
    Contract::load(file, environment())
}

/// The environment of the process. Names that are not Unicode cannot be ours.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .collect()
}

/// Runs a future to its end, on a runtime of its own.
fn run_to_end<F: Future>(builder: &mut Builder, future: F) -> Result<F::Output, Failure> {
    let runtime = builder.enable_all().build().map_err(|error| Failure::Other(error.into()))?;
    let output = runtime.block_on(future);
    // What still computes on a thread of its own, such as an audit that was given up, is waited for by nobody.
    runtime.shutdown_background();
    Ok(output)
}

/// Writes to the standard error. There is nobody to tell that this cannot be done.
fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes to the standard output. That whoever read it has gone, such as `head`, changes nothing of what
/// was found.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Other(error.into())),
        _ => Ok(()),
    }
}
