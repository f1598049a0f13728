//! What an installation may be, beside what the contract says.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::names;
use crate::policy::Mode;

/// What is rendered beside what the contract says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The namespace of the installation.
    pub namespace: String,
    /// The image of both Deployments.
    pub image: String,
    /// How many replicas serve. One is enough to try things out; it is down whenever its node is.
    pub replicas: u16,
    /// Where the certificate comes from.
    pub tls: Tls,
    /// The oldest API server that the objects must suit.
    pub kubernetes: KubernetesVersion,
    /// Registers the hooks for watching alone, whatever the contract says.
    pub audit_only: bool,
    /// What the validation shall do where gpufence cannot be reached. By default `Fail` where the contract
    /// is enforced.
    pub validating_failure_policy: Option<FailurePolicy>,
    /// What the mutation shall do there. By default `Ignore`: the validation catches what it missed.
    pub mutating_failure_policy: Option<FailurePolicy>,
    /// Whether to render NetworkPolicies.
    pub network_policy: bool,
    /// What finds the metrics.
    pub monitor: Monitor,
    /// The priority class of the pods.
    pub priority_class: String,
    /// When a CronJob audits the cluster, as cron writes it; none without.
    pub audit_cron_job: Option<String>,
    /// Whether to render nothing but that CronJob and what it needs, for an installation that is there already.
    pub only_audit: bool,
    /// The name of the contract's file, and the variables that lie over it. They are told at the head of the text, so
    /// that whoever finds it can render the same again, and change nothing.
    pub contract: Origin,
}

/// Where the contract comes from, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The file's name; none for the built-in contract.
    pub file: Option<String>,
    /// Variables with their values.
    pub environment: Vec<(String, String)>,
    /// Whether the objects come in the order in which they are removed.
    pub reverse: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: names::NAMESPACE.to_owned(),
            image: concat!("gpufence:", env!("CARGO_PKG_VERSION")).to_owned(),
            replicas: 2,
            tls: Tls::Managed,
            kubernetes: KubernetesVersion::DEFAULT,
            audit_only: false,
            validating_failure_policy: None,
            mutating_failure_policy: None,
            network_policy: false,
            monitor: Monitor::None,
            priority_class: "system-cluster-critical".to_owned(),
            audit_cron_job: None,
            only_audit: false,
            contract: Origin::default(),
        }
    }
}

/// Where the server's certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// From a CA that the controller keeps in a Secret.
    Managed,
    /// From the Secret [`names::TLS_SECRET`], which somebody else fills.
    Files {
        /// The CA that API servers shall trust, in PEM.
        ca: Option<String>,
    },
    /// From the same Secret, which cert-manager fills.
    CertManager,
}

/// What an API server does where a webhook cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Refuses the request.
    Fail,
    /// Goes on without the webhook.
    Ignore,
}

impl FailurePolicy {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Fail, Self::Ignore];

    /// The API's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// What finds the metrics, in clusters with the Prometheus operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Monitor {
    /// Nothing is rendered.
    None,
    /// A PodMonitor, for the replicas and the controller.
    Pod,
    /// A ServiceMonitor, for the replicas.
    Service,
}

impl Monitor {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::None, Self::Pod, Self::Service];

    /// The word on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pod => "pod",
            Self::Service => "service",
        }
    }
}

/// A version of Kubernetes, of which only the minor one ever differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion {
    minor: u16,
}

impl KubernetesVersion {
    /// The version where no other is chosen.
    pub const DEFAULT: Self = Self { minor: 36 };

    /// The oldest version: the objects' own APIs are younger than what came before.
    const OLDEST: Self = Self { minor: 20 };

    /// Whether the version is 1.`minor` or newer.
    pub(super) fn has(self, minor: u16) -> bool {
        self.minor >= minor
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

impl FromStr for KubernetesVersion {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        // As `kubectl version` says it, v1.36.2-gke.1 and 36+ included: only the minor version counts.
        let minor = text.trim_start_matches('v').strip_prefix("1.").and_then(|rest| rest.split('.').next());
        let version = minor.map(|minor| minor.trim_end_matches('+')).and_then(digits).map(|minor| Self { minor });
        version
            .filter(|version| *version >= Self::OLDEST)
            .ok_or_else(|| OptionError::KubernetesVersion(text.to_owned()))
    }
}

/// Why nothing is rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No name of a namespace that could be an installation's own.
    #[error(
        "the namespace {0:?} cannot hold an installation; valid is a namespace of its own, neither default nor kube-*: \
         at most {longest} lower-case letters, digits and '-', such as {example}",
        longest = LONGEST_NAMESPACE,
        example = names::NAMESPACE
    )]
    Namespace(String),
    /// No image.
    #[error("the image {0:?} is no image; valid is a name such as registry.example.com/gpufence:0.1.0")]
    Image(String),
    /// No replicas.
    #[error("{0} replicas; valid is 1 to 100, and 2 or more to survive the loss of a node")]
    Replicas(u16),
    /// No name of a priority class.
    #[error("the priority class {0:?} is no name; valid is one such as system-cluster-critical")]
    PriorityClass(String),
    /// No schedule.
    #[error(
        "the schedule {0:?} of --audit-cron-job; valid is what a CronJob takes: five fields for minute, hour, day of the \
         month, month and day of the week, such as \"0 6 * * *\" for every day at six, or @hourly, @daily, @weekly, \
         @monthly, @yearly"
    )]
    Schedule(String),
    /// A CronJob for an API server that has none.
    #[error(
        "--audit-cron-job cannot be had with Kubernetes {0}, which has no CronJob of batch/v1; valid is 1.21 or newer, or \
         audit.interval in the contract"
    )]
    NoCronJob(KubernetesVersion),
    /// No version of Kubernetes, or too old a one.
    #[error("the Kubernetes version {0:?}; valid is {oldest} or newer, such as {example}",
        oldest = KubernetesVersion::OLDEST, example = KubernetesVersion::DEFAULT)]
    KubernetesVersion(String),
    /// A failurePolicy that would let an installation that only watches stand in the way.
    #[error(
        "{option} Fail cannot be had with {held_back_by}: nothing may make it stand in anyone's way. Valid is Fail with \
         mode: enforce in the contract and without --audit-only, or Ignore"
    )]
    FailWithoutEnforcement {
        /// The option.
        option: &'static str,
        /// What says that nothing is enforced.
        held_back_by: &'static str,
    },
    /// A listener that nobody outside the pod reaches.
    #[error(
        "the contract's {key} is {address}, which no API server reaches in a pod; valid is an address such as \
         0.0.0.0:{port}, with a port of its own"
    )]
    Listener {
        /// The contract's key.
        key: &'static str,
        /// What it says.
        address: SocketAddr,
        /// A port that would do.
        port: u16,
    },
    /// A contract that cannot be written down.
    #[error("the contract cannot be written as YAML: {0}")]
    Contract(String),
    /// Not what an API server may trust.
    #[error("the CA file {0}; valid is PEM with nothing but certificates")]
    Ca(&'static str),
}

/// So that the probe namespace's name fits as well.
const LONGEST_NAMESPACE: usize = 63 - names::PROBE_SUFFIX.len();

impl Options {
    pub(super) fn check(&self) -> Result<(), OptionError> {
        let reserved = self.namespace == "default" || self.namespace.starts_with("kube-");
        if reserved || !is_label(&self.namespace) || self.namespace.len() > LONGEST_NAMESPACE {
            return Err(OptionError::Namespace(self.namespace.clone()));
        }
        // Names, registries, tags and digests hold no other characters.
        let of_image = |byte: u8| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte);
        if self.image.is_empty() || !self.image.bytes().all(of_image) {
            return Err(OptionError::Image(self.image.clone()));
        }
        if !(1..=100).contains(&self.replicas) {
            return Err(OptionError::Replicas(self.replicas));
        }
        if self.priority_class.len() > 253 || !self.priority_class.split('.').all(is_label) {
            return Err(OptionError::PriorityClass(self.priority_class.clone()));
        }
        if let Some(schedule) = &self.audit_cron_job {
            if !is_schedule(schedule) {
                return Err(OptionError::Schedule(schedule.clone()));
            }
            if !self.kubernetes.has(21) {
                return Err(OptionError::NoCronJob(self.kubernetes));
            }
        }
        match &self.tls {
            Tls::Files { ca: Some(pem) } => is_bundle(pem).map_err(OptionError::Ca),
            _ => Ok(()),
        }
    }

    /// The failurePolicies that the pods' hooks shall come to, validation first.
    pub(super) fn targets(&self, mode: Mode) -> Result<(FailurePolicy, FailurePolicy), OptionError> {
        let held_back_by = match mode {
            _ if self.audit_only => Some("--audit-only"),
            Mode::Audit => Some("mode: audit in the contract"),
            Mode::Warn => Some("mode: warn in the contract"),
            Mode::Enforce => None,
        };
        let target = |option, chosen: Option<FailurePolicy>, otherwise| match (chosen, held_back_by) {
            (Some(FailurePolicy::Fail), Some(held_back_by)) => {
                Err(OptionError::FailWithoutEnforcement { option, held_back_by })
            }
            (None, Some(_)) => Ok(FailurePolicy::Ignore),
            (chosen, _) => Ok(chosen.unwrap_or(otherwise)),
        };
        Ok((
            target("--validating-failure-policy", self.validating_failure_policy, FailurePolicy::Fail)?,
            target("--mutating-failure-policy", self.mutating_failure_policy, FailurePolicy::Ignore)?,
        ))
    }
}

/// The command line that chooses these options, without what is the default. Of a CA only that there is one
/// is told: where it lies differs from machine to machine.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::default();
        let quoted = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_=.,:/-".contains(&byte));
            // A line break would end the comment.
            if plain { text.to_owned() } else { format!("'{}'", text.replace(['\n', '\r'], " ")) }
        };
        for (name, value) in &self.contract.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str("gpufence manifests")?;
        if let Some(file) = &self.contract.file {
            write!(f, " --config {}", quoted(file))?;
        }
        if self.namespace != usual.namespace {
            write!(f, " --namespace {}", self.namespace)?;
        }
        if self.image != usual.image {
            write!(f, " --image {}", self.image)?;
        }
        if self.replicas != usual.replicas {
            write!(f, " --replicas {}", self.replicas)?;
        }
        match &self.tls {
            Tls::Managed => {}
            Tls::Files { ca: None } => f.write_str(" --tls files")?,
            Tls::Files { ca: Some(_) } => f.write_str(" --tls files --ca-file FILE")?,
            Tls::CertManager => f.write_str(" --tls cert-manager")?,
        }
        if self.kubernetes != usual.kubernetes {
            write!(f, " --kubernetes-version {}", self.kubernetes)?;
        }
        if self.audit_only {
            f.write_str(" --audit-only")?;
        }
        if let Some(policy) = self.validating_failure_policy {
            write!(f, " --validating-failure-policy {}", policy.as_str())?;
        }
        if let Some(policy) = self.mutating_failure_policy {
            write!(f, " --mutating-failure-policy {}", policy.as_str())?;
        }
        if self.network_policy {
            f.write_str(" --network-policy")?;
        }
        if self.monitor != Monitor::None {
            write!(f, " --monitor {}", self.monitor.as_str())?;
        }
        if self.priority_class != usual.priority_class {
            write!(f, " --priority-class {}", self.priority_class)?;
        }
        if let Some(schedule) = &self.audit_cron_job {
            write!(f, " --audit-cron-job {}", quoted(schedule))?;
        }
        if self.only_audit {
            f.write_str(" --only-audit")?;
        }
        if self.contract.reverse {
            f.write_str(" --reverse")?;
        }
        Ok(())
    }
}

/// A DNS-1123 label.
fn is_label(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

/// Whether a text could be a CronJob's schedule. What its numbers may be is known best to the API server.
fn is_schedule(text: &str) -> bool {
    const WORDS: [&str; 7] = ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"];
    let of_field = |byte: u8| byte.is_ascii_alphanumeric() || b"*/,-?".contains(&byte);
    let fields: Vec<_> = text.split(' ').collect();
    let are_fields = fields.len() == 5 && fields.iter().all(|field| !field.is_empty() && field.bytes().all(of_field));
    are_fields || WORDS.contains(&text)
}

/// Whether a text is certificates in PEM, and what it is where it is not. What an API server would take it
/// for is decided there: here only that no key is published and no wrong file.
fn is_bundle(pem: &str) -> Result<(), &'static str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    if pem.contains("PRIVATE KEY-----") {
        return Err("holds a private key, which would be published in the registrations");
    }
    let begins = pem.matches(BEGIN).count();
    if begins == 0 {
        return Err("holds no certificate");
    }
    if pem.matches("-----BEGIN ").count() != begins || pem.matches("-----END CERTIFICATE-----").count() != begins {
        return Err("holds something other than certificates");
    }
    let whole = |block: &str| {
        let body = block.split("-----END").next().unwrap_or_default();
        let body: String = body.split_whitespace().collect();
        let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, body).ok();
        // Every certificate is an ASN.1 sequence.
        der.is_some_and(|der| der.first() == Some(&0x30))
    };
    if pem.split(BEGIN).skip(1).all(whole) { Ok(()) } else { Err("holds a certificate that cannot be read") }
}
