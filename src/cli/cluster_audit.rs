//! What `gpufence audit` has to do with a live cluster: what it reads there, by which contract, and the reports that it
//! keeps there.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::runtime::Builder;

use super::installation::{contract_place, installation, installed_contract};
use super::{Failure, complain, load_contract, run_to_end};
use crate::audit::{Audit, ReportForm, Snapshot};
use crate::cluster::audit::{Progress, snapshot};
use crate::cluster::reports::{Published, publish};
use crate::cluster::{self, Client, Said};
use crate::contract::Contract;
use crate::manifest::names;
use crate::policy::Policy;
use crate::report::audit::cluster::reports;

/// The least time between two reports that are written.
const PACE: Duration = Duration::from_millis(100);

/// After how long somebody who waits is told how far it is, and how often.
const PATIENCE: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(100);

/// Where a cluster comes in.
#[derive(Debug, Args)]
pub(super) struct OfCluster {
    /// The namespace of the installation whose contract counts where --config names none
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE)]
    namespace: String,

    /// Also write what was read to a file, which `gpufence audit` takes again
    ///
    /// Only what an audit by this contract reads of each object is written, field by field: no environment, no commands,
    /// no volumes, and no annotations that the contract does not name. Only the user may read the file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Also keep the findings in the cluster: one report for each namespace, and one for nodes and the like
    ///
    /// Only reports named gpufence-audit with the label app.kubernetes.io/managed-by=gpufence are touched.
    #[arg(long, value_enum, value_name = "KIND", conflicts_with = "files")]
    report: Option<ReportForm>,
}

/// What was read of a cluster.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) policy: Policy,
    /// Which contract that is, for people.
    pub(super) contract: String,
    pub(super) snapshot: Snapshot,
    /// Where it is from, for people.
    pub(super) source: String,
    /// The file that it is from, where it is one.
    pub(super) file: Option<String>,
    /// Whether it is a cluster that was asked.
    pub(super) is_live: bool,
}

impl OfCluster {
    /// Reads the cluster of the kubeconfig or, in a pod, its own.
    pub(super) fn read(&self, config: Option<&Path>) -> Result<Taken, Failure> {
        run_to_end(&mut Builder::new_current_thread(), self.take(config))?
    }

    async fn take(&self, config: Option<&Path>) -> Result<Taken, Failure> {
        let (client, server) = cluster::connect_to().await.map_err(|error| Failure::Input(error.into()))?;
        let (contract, name, gap) = self.contract(&client, config).await?;
        let mut display = Display::new();
        let taken = snapshot(&client, &contract.policy, |progress| display.show(progress)).await;
        drop(display);
        let mut snapshot = taken.map_err(|error| Failure::Other(error.into()))?;
        snapshot.faults.splice(0..0, gap);
        let source = format!("cluster {server}");
        Ok(Taken { policy: contract.policy, contract: name, snapshot, source, file: None, is_live: true })
    }

    /// The contract that counts, with its name and what may be wrong about the choice.
    async fn contract(
        &self,
        client: &Client,
        config: Option<&Path>,
    ) -> Result<(Contract, String, Option<String>), Failure> {
        if config.is_some() {
            return Ok((load_contract(config)?, contract_name(config), None));
        }
        let installation = installation(&self.namespace);
        let place = contract_place(&installation);
        match installed_contract(client, &installation).await {
            Ok(Some(contract)) => Ok((contract?, format!("the {place}"), None)),
            Ok(None) => Ok((load_contract(None)?, contract_name(None), None)),
            Err(cluster::ApiError::Api(status)) if status.code == 403 => {
                let gap = format!(
                    "the {place} may not be read, so that the built-in contract counts and not one that may be in force: \
                     {} (code 403); name the contract with --config, or grant the verb get on it",
                    status.message
                );
                Ok((load_contract(None)?, contract_name(None), Some(gap)))
            }
            Err(error) => Err(Failure::Other(anyhow!("the {place} cannot be read: {}", Said(&error)))),
        }
    }

    /// Writes what was read, where somebody wants it.
    pub(super) fn save(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let Some(file) = &self.save else { return Ok(()) };
        let write = || {
            let mut out = std::io::BufWriter::new(create(file)?);
            snapshot.save(&mut out)?;
            out.flush()
        };
        write().with_context(|| format!("cannot write {}", file.display())).map_err(Failure::Other)
    }

    /// The form in which findings are to be kept in the cluster, if at all.
    pub(super) fn report(&self) -> Option<ReportForm> {
        self.report
    }
}

/// Makes or empties a file, which then nobody else may read: it tells a lot of a cluster.
fn create(file: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        let file = options.mode(0o600).open(file)?;
        // One that was there keeps its mode otherwise.
        if file.metadata()?.is_file() {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(file)
    }
    #[cfg(not(unix))]
    options.open(file)
}

/// Keeps the findings in the cluster.
pub(super) fn keep(form: ReportForm, audit: &Audit) -> Result<(), Failure> {
    let publishing = async {
        let client = cluster::connect().await.map_err(|error| Failure::Input(error.into()))?;
        publish(&client, form, reports(audit, form), PACE).await.map_err(|error| Failure::Other(error.into()))
    };
    let Published { written, unchanged, deleted, faults } =
        run_to_end(&mut Builder::new_current_thread(), publishing)??;
    complain(&format!("gpufence: {written} reports written, {unchanged} as they were, {deleted} deleted\n"));
    if faults.is_empty() { Ok(()) } else { Err(Failure::Other(anyhow!(faults.join("\n")))) }
}

/// Which contract [`load_contract`] reads, for people.
pub(super) fn contract_name(config: Option<&Path>) -> String {
    config.map_or_else(|| "the built-in contract".to_owned(), |file| file.display().to_string())
}

/// How far a long reading has come, for a person at a terminal: one line, which is gone afterwards. Elsewhere nothing but
/// that a page is late.
struct Display {
    is_terminal: bool,
    next: Instant,
    is_drawn: bool,
}

impl Display {
    fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), next: Instant::now() + PATIENCE, is_drawn: false }
    }

    fn show(&mut self, progress: Progress<'_>) {
        let now = Instant::now();
        if !self.is_terminal {
            // Of a log every line counts.
            if progress.is_late {
                complain(&format!("gpufence: still {}, the API server answers slowly\n", line(progress)));
            }
        } else if now >= self.next {
            complain(&format!("\r\x1b[K{}", line(progress)));
            self.next = now + REDRAW;
            self.is_drawn = true;
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if self.is_drawn {
            complain("\r\x1b[K");
        }
    }
}

fn line(Progress { resource, read, left, is_late: _ }: Progress<'_>) -> String {
    let read_so_far = grouped(read as u64);
    match left {
        Some(left) => format!("reading {resource}: {read_so_far} of {}", grouped(read as u64 + left)),
        None => format!("reading {resource}: {read_so_far}"),
    }
}

/// A number with a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_what_and_how_far() {
        let lines = [(0, None), (999, None), (12_500, Some(0)), (1_234_567, Some(1_000_000))]
            .map(|(read, left)| line(Progress { resource: "pods", read, left, is_late: false }));
        assert_eq!(
            lines,
            [
                "reading pods: 0",
                "reading pods: 999",
                "reading pods: 12,500 of 12,500",
                "reading pods: 1,234,567 of 2,234,567"
            ]
        );
    }
}
