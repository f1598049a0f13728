//! `gpufence audit`: what in a cluster breaks the contract already.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::cluster_audit::{self, OfCluster, Taken, contract_name};
use super::documents;
use super::what_if::WhatIf;
use super::{Failure, Success, contract_file, load_contract, print};
use crate::audit::snapshot::Builder;
use crate::audit::{self, Baseline, Resource, Severity, Snapshot};
use crate::contract::exemptions_yaml;
use crate::policy::visible;
use crate::report::audit::{self as report, Shown};

/// The last second of which a contract can write the day.
const END_OF_YEAR_9999: i64 = 253_402_300_799;

/// The shortest time for which anything is adopted.
const SHORTEST: Duration = Duration::from_secs(3600);

/// Find what already breaks the contract
///
/// Reads a cluster, page by page; or files: what kubectl get prints with --output json, what --save wrote, and folders of
/// manifests. Reports what is on GPU nodes, which nodes differ from the contract, what will break it, and what to do. It
/// changes nothing; with --report it keeps its findings in the cluster.
///
/// Exit code 0 says that the audit was made, whatever it found; with --fail-on, 1 says that a finding is at least that
/// severe, or that the cluster did not show enough to tell. 1 is also what a command ends with that failed, such as by
/// reports that the cluster did not keep, after the audit was printed; the standard error says so. 2 is input that cannot be
/// used, or a cluster that cannot be reached: what could be read of the input is reported all the same.
#[derive(Debug, Args)]
pub(super) struct Audit {
    /// Files or folders; - is the standard input [default: the cluster of the kubeconfig or, in a pod, its own]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Exit with 1 where a finding is at least this severe
    #[arg(long, value_enum, value_name = "SEVERITY")]
    fail_on: Option<Severity>,

    /// The time against which expiries are held [default: now]
    ///
    /// As RFC 3339 has it, such as 2026-11-30T12:00:00Z. With the time of a dump, its audit can be repeated to the byte.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    at: Option<i64>,

    /// Show everything as text, rather than the first few of each kind
    #[arg(long)]
    all: bool,

    /// Show only what is new since an earlier audit: what --output json printed
    ///
    /// A pod that its controller replaced is not new; more of them than before are.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Print instead, as YAML, the exemptions under which what runs today goes on running for so long when the contract
    /// starts to enforce, such as 30d
    ///
    /// It is the whole list, with the contract's own first: put it in the place of the contract's.
    #[arg(long, value_name = "DURATION", value_parser = lasting, conflicts_with_all = ["baseline", "fail_on", "output"])]
    adopt: Option<Duration>,

    /// The form of the report
    #[arg(long, short, value_enum, default_value_t = AuditOutput::Text)]
    output: AuditOutput,

    #[command(flatten)]
    cluster: OfCluster,

    #[command(flatten)]
    what_if: WhatIf,
}

/// How an audit is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuditOutput {
    /// For people
    Text,
    /// For programs: deploy/audit-v1.schema.json describes it
    Json,
    /// For a ticket
    Markdown,
    /// One self-contained page, for a browser
    Html,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

impl Audit {
    pub(super) fn run(self, config: Option<&Path>) -> Result<Success, Failure> {
        // Before anything is asked of a cluster.
        let baseline = self.baseline.as_deref().map(read_baseline).transpose()?;
        let change = self.what_if.change()?;
        if change.is_some() && self.output == AuditOutput::Sarif {
            return Err(Failure::Input(anyhow!(
                "--output sarif has no --what-if: SARIF holds findings alone; text, json, markdown and html say what a \
                 change would do"
            )));
        }
        let taken = if self.files.is_empty() { self.cluster.read(config)? } else { from_files(&self.files, config)? };
        self.cluster.save(&taken.snapshot)?;
        let now = self.at.unwrap_or_else(contract_file::now);
        if let Some(duration) = self.adopt {
            print(&adopt(&taken, now, duration)?)?;
            return taken.end(Success::Clean);
        }
        let mut audit = audit::audit(&taken.policy, &taken.snapshot, &taken.source, now);
        audit.contract.clone_from(&taken.contract);
        // What the cluster keeps is all that there is, whatever somebody has seen already.
        let whole = self.cluster.report().and(baseline.as_ref()).map(|_| audit.clone());
        if let Some(baseline) = &baseline {
            audit.since(baseline, &taken.snapshot);
        }
        if let Some(change) = change {
            let what_if = audit::what_if(&taken.policy, &taken.snapshot, &change, now);
            audit.what_if = Some(what_if.map_err(|error| Failure::Input(anyhow!(error).context("--what-if")))?);
        }
        print(&self.report(&audit, &taken)?)?;
        let mut unanswered = Vec::new();
        if let Some(form) = self.cluster.report() {
            match taken.snapshot.unseen(&Resource::VITAL) {
                // What was not seen would be taken for mended.
                Some(unseen) => unanswered.push(incomplete(&unseen, "the reports in the cluster are left as they are")),
                None => cluster_audit::keep(form, whole.as_ref().unwrap_or(&audit))?,
            }
        }
        if let Some(least) = self.fail_on {
            if audit.findings.iter().any(|finding| finding.severity >= least) {
                return match taken.end(Success::Findings) {
                    Ok(_) if !unanswered.is_empty() => Err(unanswerable(&unanswered)),
                    end => end,
                };
            }
            unanswered.extend(taken.unjudged().map(|unseen| incomplete(&unseen, "--fail-on cannot be answered")));
        }
        match taken.end(Success::Clean) {
            Ok(_) if !unanswered.is_empty() => Err(unanswerable(&unanswered)),
            end => end,
        }
    }

    fn report(&self, audit: &audit::Audit, taken: &Taken) -> Result<String, Failure> {
        let shown = Shown { everything: self.all, coloured: is_coloured(), from_files: !taken.is_live };
        Ok(match self.output {
            // Who asks what a change would do is answered that.
            AuditOutput::Text if audit.what_if.is_some() => audit.what_if.iter().map(report::what_if_text).collect(),
            AuditOutput::Text => report::text(audit, shown),
            AuditOutput::Json => report::json(audit).map_err(|error| Failure::Other(error.into()))?,
            AuditOutput::Markdown => report::markdown(audit, shown),
            AuditOutput::Html => report::html(audit),
            AuditOutput::Sarif => format!("{:#}\n", report::sarif(audit, taken.file.as_deref())),
        })
    }
}

impl Taken {
    /// The kinds that keep an audit in which nothing is found from being a pass. Who gives files knows what is in them,
    /// and is only told where nothing of them is about pods.
    fn unjudged(&self) -> Option<String> {
        let Self { snapshot, .. } = self;
        let holds_pods = !snapshot.pods.is_empty() || !snapshot.workloads.is_empty();
        if self.is_live {
            snapshot.unseen(&[Resource::Nodes, Resource::Pods])
        } else if holds_pods {
            None
        } else {
            snapshot.unseen(&[Resource::Pods])
        }
    }

    /// What a file holds is the caller's to mend; what a cluster does not show is a gap of the audit.
    fn end(&self, success: Success) -> Result<Success, Failure> {
        let faults = &self.snapshot.faults;
        if self.is_live || faults.is_empty() { Ok(success) } else { Err(unusable(faults)) }
    }
}

fn incomplete(unseen: &str, consequence: &str) -> String {
    format!("the audit is not complete: not all {unseen} are known, as its gaps say; {consequence}")
}

fn unanswerable(unanswered: &[String]) -> Failure {
    Failure::Other(anyhow!("{}", unanswered.join("\ngpufence: ")))
}

/// The exemptions for what runs today.
fn adopt(taken: &Taken, now: i64, duration: Duration) -> Result<String, Failure> {
    let until = i64::try_from(duration.as_secs()).ok().and_then(|seconds| now.checked_add(seconds));
    let until = until.filter(|until| *until < END_OF_YEAR_9999);
    let until = until.ok_or_else(|| Failure::Input(anyhow!("--adopt is longer than any expiry can be")))?;
    let present = exemptions_yaml(&taken.policy).map_err(|error| Failure::Other(error.into()))?;
    Ok(audit::adopt(&taken.policy, &taken.snapshot, &present, now, until))
}

fn from_files(files: &[PathBuf], config: Option<&Path>) -> Result<Taken, Failure> {
    let policy = load_contract(config)?.policy;
    let mut builder = Builder::new(&policy);
    let faults = documents::each(files, |source, in_folder, reader| {
        if in_folder { builder.take_manifests(source, reader) } else { builder.take_all(source, reader) }
    });
    for fault in faults {
        builder.fault(fault);
    }
    builder.completes_as_dumped();
    let snapshot = builder.finish();
    let name = named(files);
    if snapshot.nodes.is_empty() && snapshot.pods.is_empty() && snapshot.workloads.is_empty() {
        return Err(match snapshot.faults.as_slice() {
            [] => unusable(&[nothing_in(&name, &snapshot)]),
            faults => unusable(faults),
        });
    }
    let file = match files {
        [file] if file.is_file() => Some(file.display().to_string()),
        _ => None,
    };
    Ok(Taken { policy, contract: contract_name(config), snapshot, source: name, file, is_live: false })
}

fn named(files: &[PathBuf]) -> String {
    const NAMED: usize = 3;
    let names = files.iter().take(NAMED).map(|file| match file.display().to_string() {
        file if file == "-" => "the standard input".to_owned(),
        file => file,
    });
    let names = names.collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// What there was instead of what an audit is about.
fn nothing_in(name: &str, snapshot: &Snapshot) -> String {
    let counts = [
        (snapshot.namespaces.len(), "v1 Namespace"),
        (snapshot.budgets.len(), "policy PodDisruptionBudget"),
        (snapshot.controllers.len(), "objects that others make"),
        (snapshot.foreign, "documents that are no Kubernetes objects"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let others = snapshot.passed_over.iter().map(|((version, kind), count)| format!("{count} {version} {kind}"));
    let found: Vec<_> = counts.chain(others).collect();
    let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
    format!(
        "{name} holds no node, no pod and nothing that makes pods: found {found}; valid are manifests, and what this \
         writes: {}",
        report::dump_command()
    )
}

fn unusable(faults: &[String]) -> Failure {
    let faults: Vec<_> = faults.iter().map(|fault| visible(fault)).collect();
    Failure::Input(anyhow!("{}", faults.join("\ngpufence: ")))
}

/// Whether who reads the standard output wants colours: a terminal that can, and a person who did not say no.
fn is_coloured() -> bool {
    let says = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stdout().is_terminal() && says("NO_COLOR").is_none() && says("TERM").is_none_or(|term| term != "dumb")
}

/// A time for which something can be adopted.
fn lasting(text: &str) -> Result<Duration, String> {
    let valid = "valid is a time such as 30d, 1h or longer";
    let duration = humantime::parse_duration(text).map_err(|error| format!("{error}; {valid}"))?;
    if duration < SHORTEST { Err(format!("it is too short; {valid}")) } else { Ok(duration) }
}

/// Seconds since 1970.
fn seconds(text: &str) -> Result<i64, String> {
    let time = OffsetDateTime::parse(text, &Rfc3339);
    time.map(OffsetDateTime::unix_timestamp)
        .map_err(|error| format!("{error}; valid is a time as RFC 3339 has it, such as 2026-11-30T12:00:00Z"))
}

fn read_baseline(file: &Path) -> Result<Baseline, Failure> {
    let name = file.display();
    let json = std::fs::read_to_string(file).with_context(|| format!("the baseline {name} cannot be read"));
    let baseline = json
        .and_then(|json| Baseline::read(&name.to_string(), &json).with_context(|| format!("{name} is no baseline")));
    baseline.map_err(Failure::Input)
}
