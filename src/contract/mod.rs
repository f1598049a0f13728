//! The contract: what may be written in it, and what may run.
//!
//! [`Contract::load`] lays the built-in contract, a file and the environment over each other through
//! the `config` crate, then reads the result strictly. Either everything in it stands, or the error
//! lists every fault with its key's path and origin. The raw tree cannot decide anything; the
//! [`Policy`] in a [`Contract`] cannot be invalid.

mod audit;
mod choice;
mod custom;
mod exemption;
mod layer;
mod levers;
mod print;
mod reader;
mod schema;
mod syntax;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use audit::{Audit, Reports};
pub use print::exemptions_yaml;
pub use reader::Fault;

use crate::policy::Policy;

/// The contract that serves where no file says otherwise, and the defaults below every file.
pub const BUILT_IN: &str = include_str!("built-in.yaml");

/// The prefix of the environment variables that override the contract, as in `GPUFENCE__MODE`. Two
/// underscores, because the kubelet sets `GPUFENCE_PORT` and the like for a Service of that name.
pub const ENVIRONMENT_PREFIX: &str = "GPUFENCE";

const SEPARATOR: &str = "__";

/// A contract that holds together.
#[derive(Debug, Clone)]
pub struct Contract {
    /// What decides.
    pub policy: Policy,
    /// Whether what already runs is looked at again and again.
    pub audit: Audit,
    /// Where the server listens.
    pub server: Server,
    /// Where its certificate comes from.
    pub tls: Tls,
    /// What it logs.
    pub log: Log,
}

/// The `server` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The HTTPS listener for admission.
    pub listen: SocketAddr,
    /// The plain listener for health and metrics.
    pub metrics: SocketAddr,
    /// How long to go on accepting connections after SIGTERM, until no endpoint leads here.
    pub drain: Duration,
}

/// The `tls` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Where the certificate comes from.
    pub source: TlsSource,
    /// The oldest TLS version that is spoken.
    pub minimum: TlsVersion,
}

/// Where the server's certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsSource {
    /// Made in memory at start, for trying out.
    SelfSigned {
        /// DNS names and addresses beside the local ones.
        names: Vec<String>,
    },
    /// A PEM certificate chain and key, followed when they change.
    Files {
        /// The certificate chain, leaf first.
        cert: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// Signed in memory with the CA of the installation, which its controller keeps in a Secret.
    Managed,
}

/// A TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl TlsVersion {
    const ALL: [Self; 2] = [Self::V1_2, Self::V1_3];

    fn as_str(self) -> &'static str {
        match self {
            Self::V1_2 => "1.2",
            Self::V1_3 => "1.3",
        }
    }
}

/// The `log` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// A level, or directives such as `info,gpufence=debug`.
    pub level: String,
    /// Text or JSON.
    pub format: LogFormat,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    const ALL: [Self; 3] = [Self::Auto, Self::Text, Self::Json];

    fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Why there is no contract.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// The file cannot be read.
    #[error("cannot read the contract {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A layer is not YAML, or not a map.
    #[error("the contract {origin} is not a map in YAML: {cause}")]
    Syntax {
        /// The file, or where else the layer comes from.
        origin: String,
        /// What is wrong with it, and where.
        cause: String,
    },
    /// The contract does not hold together.
    #[error("{}", FaultList(.0))]
    Invalid(Vec<Fault>),
}

struct FaultList<'a>(&'a [Fault]);

impl fmt::Display for FaultList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "fault" } else { "faults" };
        write!(f, "the contract has {} {plural}:", self.0.len())?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl Contract {
    /// The built-in contract alone.
    ///
    /// # Errors
    /// Never for the contract as it stands in the source; a test holds it.
    pub fn built_in() -> Result<Self, ContractError> {
        Self::load(None, [])
    }

    /// Lays the built-in contract, a file, and the variables `GPUFENCE__SECTION__KEY` of an environment
    /// over each other, the later over the earlier: maps are merged, lists replaced.
    ///
    /// # Errors
    /// With every fault that the contract has.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ContractError> {
        match file.map(|path| (path, std::fs::read(path))) {
            None => Self::of(None, environment),
            Some((path, Ok(bytes))) => Self::read(path, &bytes, environment),
            Some((path, Err(error))) => Err(ContractError::Unreadable { path: path.to_owned(), error }),
        }
    }

    /// As [`load`](Self::load), with what the file holds.
    ///
    /// # Errors
    /// With every fault that the contract has.
    pub fn read(
        file: &Path,
        bytes: &[u8],
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ContractError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            ContractError::Unreadable { path: file.to_owned(), error }
        })?;
        Self::of(Some((file, text)), environment)
    }

    fn of(
        file: Option<(&Path, &str)>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ContractError> {
        let tree = layer::tree(file, environment.into_iter().collect())?;
        schema::read(&tree).map_err(ContractError::Invalid)
    }

    /// The contract in force as YAML, which loads as the same contract.
    ///
    /// # Errors
    /// Where the YAML writer fails, which it does not for a contract.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        serde_saphyr::to_string(&print::Printed::from(self))
    }
}
