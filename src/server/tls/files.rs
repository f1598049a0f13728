//! Certificate and key in files, followed as they change.
//!
//! The files are polled and their bytes compared. To watch the files would not do: the kubelet updates
//! a mounted Secret by swapping the symlink `..data`, which never writes to the files that a watch
//! was set on (kubernetes#111947). To watch their directory would, and still need the poll beside it
//! for what a watch can miss; two small reads every two seconds leave it nothing to add.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Credentials, Identity, TlsError};
use crate::telemetry::metrics::Metrics;

/// How often the files are looked at. The kubelet itself takes up to a minute to bring a changed
/// Secret, so two seconds more do not count.
const POLL: Duration = Duration::from_secs(2);

/// A file's bytes and its path.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pem {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Reads a file whole.
pub(super) fn read(path: &Path) -> Result<Pem, TlsError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Pem { path: path.to_owned(), bytes }),
        Err(source) => Err(TlsError::Read { path: path.to_owned(), source }),
    }
}

impl Pem {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is in the file, for a person who expected something else.
    pub(super) fn blocks(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let blocks: Vec<_> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
            .map(|label| format!("`BEGIN {label}`"))
            .collect();
        if blocks.is_empty() { format!("{} bytes without a PEM block", self.bytes.len()) } else { blocks.join(", ") }
    }

    pub(super) fn refused(&self, found: String, expected: &'static str) -> TlsError {
        TlsError::Content { path: self.path.clone(), found, expected }
    }
}

/// Says which file it is: one of the two is a private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The pair of files, with the bytes that are being served.
#[derive(Debug, Clone)]
pub(in crate::server) struct Files {
    cert: Pem,
    key: Pem,
}

impl Files {
    /// Reads the pair for the first time.
    pub(in crate::server) fn open(cert: &Path, key: &Path) -> Result<(Self, Credentials), TlsError> {
        let files = Self { cert: read(cert)?, key: read(key)? };
        let credentials = Credentials::from_pem(&files.cert, &files.key)?;
        Ok((files, credentials))
    }

    /// The pair as it is now, where it is another than the one that is being served.
    fn changed(&self) -> Result<Option<(Self, Credentials)>, TlsError> {
        let (cert, key) = (read(&self.cert.path)?, read(&self.key.path)?);
        if cert == self.cert && key == self.key {
            return Ok(None);
        }
        let credentials = Credentials::from_pem(&cert, &key)?;
        Ok(Some((Self { cert, key }, credentials)))
    }

    /// Follows the files for ever: a changed pair that is sound is served from then on; with any
    /// other the last good one stays, and the fault is logged once, not at every look. Half of a
    /// pair that is just being written is such a fault, gone at the next look.
    pub(in crate::server) async fn follow(
        mut self,
        identity: Arc<Identity>,
        metrics: Arc<Metrics>,
    ) -> Result<Infallible, tokio::task::JoinError> {
        let mut looks = interval_at(Instant::now() + POLL, POLL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_fault = None;
        loop {
            looks.tick().await;
            let served = self.clone();
            match spawn_blocking(move || served.changed()).await? {
                Ok(None) => last_fault = None,
                Ok(Some((files, credentials))) => {
                    let not_after = credentials.not_after();
                    let sha256 = credentials.fingerprint();
                    identity.replace(credentials);
                    tracing::info!(sha256, not_after, "certificate reloaded");
                    metrics.certificate_reloaded(true);
                    metrics.serving_certificate_expires(not_after);
                    self = files;
                    last_fault = None;
                }
                Err(error) => {
                    let fault = error.to_string();
                    if last_fault.as_ref() != Some(&fault) {
                        let source = error.source().map(ToString::to_string);
                        tracing::error!(error = fault, source, "certificate not reloaded; the last good one stays");
                        metrics.certificate_reloaded(false);
                        last_fault = Some(fault);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
