//! What the server proves its identity with, and the TLS it speaks.
//!
//! Owns the certificate that is served now ([`Identity`]) and the one place where a rustls
//! configuration is made. The crypto provider is always named: with two of them in the tree,
//! rustls panics when it is asked to choose.

mod credentials;
mod files;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

pub use credentials::Credentials;
pub(super) use files::Files;

/// The one protocol that is offered by ALPN. kube-apiserver offers nothing else to a Service, and
/// without HTTP/2 its whole family of floods is out of reach.
const ALPN: &[u8] = b"http/1.1";

/// Where the certificate and its key come from.
#[derive(Debug, Clone)]
pub enum TlsSource {
    /// Made at the start and kept in memory, for these names besides the loopback ones.
    SelfSigned {
        /// DNS names or IP addresses.
        names: Vec<String>,
    },
    /// Read from PEM files, and read again when they change.
    Files {
        /// The server's certificate, then those that lead to its CA.
        cert: PathBuf,
        /// The certificate's private key.
        key: PathBuf,
    },
    /// Put into this identity by the caller, before the server runs and while it does.
    ///
    /// Until there is a certificate that callers trust, the identity holds one that nobody does
    /// ([`Credentials::self_signed`]), and the caller keeps the process from being ready by a handle of
    /// its own. When the certificate expires is for the caller to tell the metrics, too.
    Provided(Arc<Identity>),
}

/// Why there is no certificate to serve.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: found {found}; expected {expected}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is in it.
        found: String,
        /// What should be in it.
        expected: &'static str,
    },
    /// The key belongs to another certificate.
    #[error(
        "the private key in {} does not belong to the first certificate in {}; expected the \
         server's own certificate first and its key",
        key.display(), cert.display()
    )]
    Mismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Credentials that were not read from files do not serve.
    #[error("the certificate that was made cannot be served: found {found}; expected {expected}")]
    Made {
        /// What was given.
        found: String,
        /// What should have been.
        expected: &'static str,
    },
    /// A certificate cannot be made for the names given.
    #[error("cannot make a self-signed certificate for {names:?}; expected DNS names or IP addresses")]
    Generate {
        /// The names.
        names: Vec<String>,
        /// What stands in the way.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// rustls refuses the configuration.
    #[error("TLS cannot be set up")]
    Config(#[from] rustls::Error),
}

/// The certificate that is served now. New handshakes see a new one at once; open connections
/// keep the one they began with.
#[derive(Debug)]
pub struct Identity(ArcSwap<Credentials>);

impl Identity {
    /// Serves these credentials first.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self(ArcSwap::from_pointee(credentials))
    }

    /// Serves these credentials from now on.
    pub fn replace(&self, credentials: Credentials) {
        self.0.store(Arc::new(credentials));
    }

    /// The credentials that are served now.
    #[must_use]
    pub fn current(&self) -> Arc<Credentials> {
        self.0.load_full()
    }
}

impl ResolvesServerCert for Identity {
    /// One certificate whatever name the client asked for: it is the client that checks the name.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().certified_key())
    }
}

/// The SHA-256 of some bytes in hexadecimal, by which a certificate or a contract is told from another.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    let digest = ::ring::digest::digest(&::ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The crypto provider of everything in here.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// TLS 1.3, and 1.2 where `tls12` asks for it: every API server still supported speaks 1.3.
pub fn server_config(identity: Arc<Identity>, tls12: bool) -> Result<ServerConfig, TlsError> {
    let versions: &[_] = if tls12 { &[&TLS13, &TLS12] } else { &[&TLS13] };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(identity);
    config.alpn_protocols = vec![ALPN.to_vec()];
    // kube-apiserver keeps no sessions, so tickets would be made and sent for nobody.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}
