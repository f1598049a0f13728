//! `gpufence audit`: what in a cluster breaks the contract already.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use super::documents;
use super::{Failure, Output, Success, contract_file, load_contract, print};
use crate::audit::snapshot::Builder;
use crate::audit::{self, Severity};

/// Find what already breaks the contract
///
/// Reads a cluster, or files: `kubectl get nodes,pods,... -A -o json`, and folders of manifests. Reports what is on GPU
/// nodes, which nodes differ from the contract, what will break it, and what to do. It reads only.
#[derive(Debug, Args)]
pub(super) struct Audit {
    /// Files or folders; - is the standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Exit with 1 where a finding is at least this severe
    #[arg(long, value_enum, value_name = "SEVERITY")]
    fail_on: Option<Severity>,

    /// The form of the report
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Audit {
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let policy = load_contract(file)?.policy;
        let mut builder = Builder::new(&policy);
        let faults = documents::each(&self.files, |source, reader| builder.take_all(source, reader));
        for fault in faults {
            builder.fault(fault);
        }
        builder.completes_as_dumped();
        let snapshot = builder.finish();
        let names: Vec<_> = self.files.iter().map(|file| file.display().to_string()).collect();
        let audit = audit::audit(&policy, &snapshot, &names.join(", "), contract_file::now());
        let json = serde_json::to_string_pretty(&audit).map_err(|error| Failure::Other(anyhow!(error)))?;
        print(&format!("{json}\n"))?;
        let fails = self.fail_on.is_some_and(|least| audit.findings.iter().any(|finding| finding.severity >= least));
        Ok(if fails { Success::Findings } else { Success::Clean })
    }
}
