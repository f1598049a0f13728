//! `gpufence manifests`: everything that a cluster needs, rendered from the contract.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};

use super::{Failure, Success, environment, load_contract, print};
use crate::contract::ENVIRONMENT_PREFIX;
use crate::manifest::{FailurePolicy, KubernetesVersion, Monitor, OptionError, Options, Origin, Tls, render};

/// Print the manifests that install gpufence
///
/// Renders from the contract everything that a cluster needs, as one stream of YAML for kubectl or Git:
/// namespaces, RBAC, the contract, Deployments, and the webhook registrations. The same contract and
/// options always make the same text.
///
/// Nothing in it can block a pod: every hook comes with failurePolicy Ignore. The controller raises it to
/// the target, which is an annotation, once the hook has proved itself.
#[derive(Debug, Args)]
#[command(after_help = "Watch first, then enforce the same contract:\n  \
    gpufence --config contract.yaml manifests --audit-only | kubectl apply -f -\n  \
    gpufence --config contract.yaml manifests | kubectl apply -f -\n\n\
    Remove it, the registrations first:\n  \
    gpufence manifests --reverse | kubectl delete --ignore-not-found -f -")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct Manifests {
    /// The namespace of the installation; a second one is named after it, with -probe added
    #[arg(long, short, value_name = "NAME", default_value_t = Options::default().namespace)]
    namespace: String,

    /// The image, with its registry and its tag or digest
    #[arg(long, default_value_t = Options::default().image)]
    image: String,

    /// How many replicas serve the webhooks; with 1 nothing is judged while its node is down
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().replicas)]
    replicas: u16,

    /// Where the server's certificate comes from
    #[arg(long, value_enum, value_name = "SOURCE", default_value_t = Source::Managed)]
    tls: Source,

    /// The CA that API servers shall trust, in PEM; with --tls files
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// The oldest API server that the manifests must suit
    #[arg(long, value_name = "1.MINOR", default_value_t = KubernetesVersion::DEFAULT.to_string())]
    kubernetes_version: String,

    /// Only watch, whatever the contract's mode: record what would be changed and denied
    #[arg(long)]
    audit_only: bool,

    /// What becomes of pods where gpufence cannot judge them [default: Fail where the mode is enforce]
    #[arg(long, value_name = "POLICY")]
    validating_failure_policy: Option<Policy>,

    /// What becomes of pods where gpufence cannot complete them [default: Ignore]
    #[arg(long, value_name = "POLICY")]
    mutating_failure_policy: Option<Policy>,

    /// Print the objects in the order in which they are removed: the registrations first
    #[arg(long)]
    reverse: bool,

    /// Add NetworkPolicies
    #[arg(long)]
    network_policy: bool,

    /// Add what the Prometheus operator finds the metrics by
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Finder::None)]
    monitor: Finder,

    /// The priority class of the pods
    #[arg(long, value_name = "NAME", default_value_t = Options::default().priority_class)]
    priority_class: String,

    /// Add a CronJob that audits the cluster, such as "0 6 * * *" for every day at six
    ///
    /// Its job fails where a finding is of severity high. With audit.interval the contract has the replicas audit
    /// instead, and show what they find as metrics.
    #[arg(long, value_name = "SCHEDULE")]
    audit_cron_job: Option<String>,

    /// Print nothing but that CronJob, its service account and its rights, for an installation that is there already
    #[arg(long, requires = "audit_cron_job")]
    only_audit: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// From a CA in a Secret that gpufence keeps itself
    Managed,
    /// From the Secret gpufence-tls, which you fill
    Files,
    /// From the Secret gpufence-tls, which cert-manager fills
    CertManager,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Policy {
    /// They are refused
    Fail,
    /// They pass
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Finder {
    /// Nothing
    None,
    /// A PodMonitor, for the replicas and the controller
    Pod,
    /// A ServiceMonitor, for the replicas
    Service,
}

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        Self::Input(error.into())
    }
}

impl From<Policy> for FailurePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fail => Self::Fail,
            Policy::Ignore => Self::Ignore,
        }
    }
}

impl Manifests {
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let contract = load_contract(file)?;
        let file = file.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let reverse = self.reverse;
        let mut manifests = render(&contract, &Options { contract: origin(file, reverse), ..self.options()? })?;
        if reverse {
            manifests.objects.reverse();
        }
        // Whole before the first byte is written.
        print(&manifests.to_yaml().map_err(|error| Failure::Other(error.into()))?)?;
        Ok(Success::Clean)
    }

    fn options(self) -> Result<Options, Failure> {
        let tls = match (self.tls, self.ca_file) {
            (Source::Files, None) => Tls::Files { ca: None },
            (Source::Files, Some(file)) => {
                let unreadable = |error| Failure::Input(anyhow!("cannot read the CA file {}: {error}", file.display()));
                Tls::Files { ca: Some(std::fs::read_to_string(&file).map_err(unreadable)?) }
            }
            (Source::Managed, None) => Tls::Managed,
            (Source::CertManager, None) => Tls::CertManager,
            (Source::Managed | Source::CertManager, Some(_)) => {
                return Err(Failure::Input(anyhow!(
                    "--ca-file is only for --tls files; with managed and cert-manager the CA is set in the cluster"
                )));
            }
        };
        Ok(Options {
            namespace: self.namespace,
            image: self.image,
            replicas: self.replicas,
            tls,
            kubernetes: self.kubernetes_version.parse()?,
            audit_only: self.audit_only,
            validating_failure_policy: self.validating_failure_policy.map(FailurePolicy::from),
            mutating_failure_policy: self.mutating_failure_policy.map(FailurePolicy::from),
            network_policy: self.network_policy,
            monitor: match self.monitor {
                Finder::None => Monitor::None,
                Finder::Pod => Monitor::Pod,
                Finder::Service => Monitor::Service,
            },
            priority_class: self.priority_class,
            audit_cron_job: self.audit_cron_job,
            only_audit: self.only_audit,
            contract: Origin::default(),
        })
    }
}

/// What the contract was made of, without where it lies on this machine.
fn origin(file: Option<String>, reverse: bool) -> Origin {
    let prefix = format!("{ENVIRONMENT_PREFIX}__");
    let mut variables: Vec<_> = environment().into_iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
    variables.sort();
    Origin { file, environment: variables, reverse }
}
