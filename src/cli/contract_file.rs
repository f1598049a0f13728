//! The contract's file, followed while the process runs.
//!
//! The file is polled and its bytes compared, as a certificate's are: the kubelet brings a changed
//! ConfigMap by swapping the symlink `..data`, which never writes to the file that a watch was set on
//! (kubernetes#111947). What was read is laid between the built-in contract and the environment as at the
//! start, and is in force either whole or not at all: with a fault in it, the last good contract stays.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Failure, environment, load_contract};
use crate::contract::{Contract, ContractError};
use crate::policy::{Exemption, MIRROR_POD};
use crate::server::tls::sha256;
use crate::telemetry::metrics::Metrics;

/// How often the file is looked at. The kubelet itself takes up to a minute to bring a changed
/// ConfigMap, so two seconds more do not count.
const POLL: Duration = Duration::from_secs(2);

/// A contract, and by what it is told from another.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) contract: Contract,
    /// Of the whole contract as `gpufence config` prints it: equal wherever the same one is in force.
    pub(super) sha256: String,
}

impl Loaded {
    pub(super) fn of(contract: Contract) -> anyhow::Result<Self> {
        Ok(Self { sha256: sha256(contract.to_yaml()?.as_bytes()), contract })
    }

    pub(super) fn mode(&self) -> &'static str {
        self.contract.policy.mode().as_str()
    }
}

/// The file, with the bytes and the hash of the contract in force.
#[derive(Debug, Clone)]
pub(super) struct ContractFile {
    source: Arc<Source>,
    bytes: Arc<[u8]>,
    sha256: String,
    /// What is wrong with the file as it is now.
    last_fault: Option<String>,
}

/// Where a contract comes from.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    /// What the process was started with: it lies over every version of the file.
    environment: Vec<(String, String)>,
}

/// What a look at the file shows.
#[derive(Debug)]
enum Look {
    /// What is in force.
    Same,
    /// Another contract, with the bytes that it was read from.
    Changed(Arc<[u8]>, Box<Loaded>),
    /// Something that cannot be in force, and everything that is wrong with it.
    Refused(String),
}

impl ContractFile {
    /// Reads the file for the first time.
    pub(super) fn open(path: &Path, environment: Vec<(String, String)>) -> Result<(Self, Loaded), Failure> {
        let source = Arc::new(Source { path: path.to_owned(), environment });
        let bytes = source.bytes()?;
        let loaded = Loaded::of(source.contract(&bytes)?).map_err(Failure::Other)?;
        let sha256 = loaded.sha256.clone();
        Ok((Self { source, bytes: bytes.into(), sha256, last_fault: None }, loaded))
    }

    pub(super) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Follows the file for ever: hands each changed contract that is valid to `apply`, which puts it in
    /// force. With any other the last good one stays, and all its faults are logged once, not at every look.
    pub(super) async fn follow(mut self, metrics: Arc<Metrics>, mut apply: impl FnMut(Loaded)) -> Infallible {
        let mut looks = interval_at(Instant::now() + POLL, POLL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let current = self.clone();
            // A panic while a file is read is a fault of that file.
            let look = spawn_blocking(move || current.look()).await;
            let look = look.unwrap_or_else(|error| Look::Refused(format!("the contract cannot be read: {error}")));
            self.take(look, &metrics, &mut apply);
        }
    }

    fn take(&mut self, look: Look, metrics: &Metrics, apply: &mut impl FnMut(Loaded)) {
        let path = self.source.path.display().to_string();
        match look {
            Look::Same => {
                if self.last_fault.take().is_some() {
                    tracing::info!(contract = path, contract_sha256 = self.sha256, "contract as it was again");
                    metrics.contract_file_current(true);
                }
            }
            Look::Changed(bytes, loaded) => {
                let (mode, pools) = (loaded.mode(), loaded.contract.policy.pools().len());
                let old_sha256 = std::mem::replace(&mut self.sha256, loaded.sha256.clone());
                self.bytes = bytes;
                self.last_fault = None;
                let exemptions = loaded.contract.policy.exemptions().to_vec();
                apply(*loaded);
                exemptions_in_force(&exemptions, metrics);
                metrics.contract_in_force(&self.sha256, mode, now());
                metrics.contract_reloaded(true);
                let contract_sha256 = &self.sha256;
                tracing::info!(contract = path, old_sha256, contract_sha256, mode, pools, "contract reloaded");
            }
            Look::Refused(fault) => {
                if self.last_fault.as_ref() != Some(&fault) {
                    tracing::error!(
                        contract = path,
                        contract_sha256 = self.sha256,
                        error = fault,
                        "contract not reloaded; the last good one stays"
                    );
                    metrics.contract_reloaded(false);
                    self.last_fault = Some(fault);
                }
            }
        }
    }

    fn look(&self) -> Look {
        let loaded = self.source.bytes().map_err(anyhow::Error::from).and_then(|bytes| {
            if *bytes == *self.bytes {
                return Ok(None);
            }
            let loaded = Loaded::of(self.source.contract(&bytes)?)?;
            Ok(Some((bytes, loaded)))
        });
        match loaded {
            Ok(None) => Look::Same,
            Ok(Some((bytes, loaded))) => Look::Changed(bytes.into(), Box::new(loaded)),
            Err(error) => Look::Refused(format!("{error:#}")),
        }
    }
}

impl Source {
    fn bytes(&self) -> Result<Vec<u8>, ContractError> {
        std::fs::read(&self.path).map_err(|error| ContractError::Unreadable { path: self.path.clone(), error })
    }

    fn contract(&self, bytes: &[u8]) -> Result<Contract, ContractError> {
        Contract::read(&self.path, bytes, self.environment.iter().cloned())
    }
}

/// Shows these exemptions on the metrics, and warns of those that no longer count.
pub(super) fn exemptions_in_force(exemptions: &[Exemption], metrics: &Metrics) {
    let now = now();
    let shown = exemptions
        .iter()
        .map(|exemption| (exemption.name.as_str(), exemption.expires.as_ref().map(|expiry| expiry.at)))
        .chain([(MIRROR_POD, None)]);
    metrics.exemptions_in_force(shown);
    for Exemption { name, reason, expires, .. } in exemptions.iter().filter(|exemption| exemption.is_expired(now)) {
        let expired = expires.as_ref().map(|expiry| expiry.written.as_str());
        tracing::warn!(
            exemption = name,
            reason,
            expired,
            "an exemption of the contract has expired and does not count"
        );
    }
}

/// What a process starts with: the file's contract and the file to follow, or the built-in one.
pub(super) fn load(path: Option<&Path>) -> Result<(Option<ContractFile>, Loaded), Failure> {
    match path {
        Some(path) => ContractFile::open(path, environment()).map(|(file, loaded)| (Some(file), loaded)),
        None => Ok((None, Loaded::of(load_contract(None)?).map_err(Failure::Other)?)),
    }
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

#[cfg(test)]
mod tests;
