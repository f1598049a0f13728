//! What an API server makes of a certificate chain, with the reason where it refuses it.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::anchor::name;
use super::{Anchor, written};

/// Why an API server would refuse a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The server shows nothing.
    #[error("no certificate was shown")]
    NoCertificate,
    /// What the server shows cannot be read.
    #[error("what was shown is no certificate")]
    Unreadable,
    /// There is nothing to trust.
    #[error("the CA bundle holds no certificate")]
    EmptyBundle,
    /// It was valid once.
    #[error("{name} expired at {since}")]
    Expired {
        /// The certificate's name.
        name: String,
        /// When.
        since: String,
    },
    /// It will be valid.
    #[error("{name} is valid only from {from} on")]
    NotYetValid {
        /// The certificate's name.
        name: String,
        /// From when on.
        from: String,
    },
    /// Its CA is not among those trusted.
    #[error("issued by {issuer}, which is not in the CA bundle (it has {})", bundle.join(", "))]
    UnknownIssuer {
        /// Who says that they signed it.
        issuer: String,
        /// The names of those trusted.
        bundle: Vec<String>,
    },
    /// Its CA is called as one of those trusted, and is another.
    #[error("not signed by the {issuer} of the CA bundle, but by another CA of that name")]
    Signature {
        /// What both are called.
        issuer: String,
    },
    /// It is somebody else's.
    #[error("does not cover {expected} (it has {})", if presented.is_empty() { "no names".to_owned() } else { presented.join(", ") })]
    Name {
        /// Who was called.
        expected: String,
        /// Whose it is.
        presented: Vec<String>,
    },
    /// What was to be called cannot be called over TLS.
    #[error("{name:?} is no name that a certificate could cover; expected a DNS name or an IP address")]
    InvalidName {
        /// What it is.
        name: String,
    },
    /// Any other reason.
    #[error("refused: {reason}")]
    Other {
        /// What rustls says.
        reason: String,
    },
}

/// Whether an API server that trusts this bundle of PEM blocks accepts the chain for this name.
///
/// Stricter than rustls in one thing, as Go is: the CA itself must not have expired.
pub fn verify(
    chain: &[CertificateDer<'_>],
    bundle: &[u8],
    dns_name: &str,
    now: OffsetDateTime,
) -> Result<(), Distrust> {
    let (leaf, intermediates) = chain.split_first().ok_or(Distrust::NoCertificate)?;
    let shown = Anchor::from_der(leaf).ok_or(Distrust::Unreadable)?;
    let server = ServerName::try_from(dns_name).map_err(|_| Distrust::InvalidName { name: dns_name.to_owned() })?;
    let anchors = Anchor::all_of_pem(bundle);
    if anchors.is_empty() {
        return Err(Distrust::EmptyBundle);
    }
    let mut roots = RootCertStore::empty();
    for anchor in anchors.iter().filter(|anchor| validity(anchor, now).is_ok()) {
        // One that rustls cannot use is one that trusts nothing.
        let _ = roots.add(anchor.der().clone());
    }
    // The leaf's own dates first: of two things that have run out, the leaf is what there is to replace.
    validity(&shown, now)?;
    let issuer = chain.last().and_then(issuer).ok_or(Distrust::Unreadable)?;
    let unknown = || unknown(chain, &issuer, &anchors, now);
    if roots.is_empty() {
        return Err(unknown());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| Distrust::Other { reason: error.to_string() })?;
    let since_epoch = std::time::Duration::from_secs(u64::try_from(now.unix_timestamp()).unwrap_or(0));
    let time = UnixTime::since_unix_epoch(since_epoch);
    match verifier.verify_server_cert(leaf, intermediates, &server, &[], time) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InvalidCertificate(error)) => Err(match error {
            CertificateError::UnknownIssuer => unknown(),
            CertificateError::BadSignature => Distrust::Signature { issuer },
            CertificateError::NotValidForNameContext { presented, .. } => Distrust::Name {
                expected: dns_name.to_owned(),
                presented: presented.iter().map(|name| plain(name)).collect(),
            },
            CertificateError::BadEncoding => Distrust::Unreadable,
            other => Distrust::Other { reason: other.to_string() },
        }),
        Err(other) => Err(Distrust::Other { reason: other.to_string() }),
    }
}

fn validity(certificate: &Anchor, now: OffsetDateTime) -> Result<(), Distrust> {
    let name = || certificate.name().to_owned();
    if now > certificate.not_after() {
        return Err(Distrust::Expired { name: name(), since: written(certificate.not_after()) });
    }
    if now < certificate.not_before() {
        return Err(Distrust::NotYetValid { name: name(), from: written(certificate.not_before()) });
    }
    Ok(())
}

/// Why no CA was found: the one that signed is not there, or it is there and its time is not now.
fn unknown(chain: &[CertificateDer<'_>], issuer: &str, anchors: &[Anchor], now: OffsetDateTime) -> Distrust {
    let signed = |anchor: &&Anchor| chain.iter().any(|certificate| anchor.issued(certificate));
    let outdated = anchors.iter().filter(signed).find_map(|anchor| validity(anchor, now).err());
    let bundle: Vec<_> = anchors.iter().map(|anchor| anchor.name().to_owned()).collect();
    let issuer = issuer.to_owned();
    let other = if bundle.contains(&issuer) {
        Distrust::Signature { issuer }
    } else {
        Distrust::UnknownIssuer { issuer, bundle }
    };
    outdated.unwrap_or(other)
}

fn issuer(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(name(parsed.issuer()))
}

/// A name as rustls presents it, `DnsName("a.b")`, without what is Rust's.
fn plain(presented: &str) -> String {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests;
