//! A certificate without its key: what an API server is told to trust.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use super::{sha256, written};

/// A CA's certificate, as it stands in a `caBundle`.
#[derive(Clone)]
pub struct Anchor {
    der: CertificateDer<'static>,
    name: String,
    fingerprint: String,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Anchor {
    /// Reads a certificate; `None` where the bytes are none.
    #[must_use]
    pub fn from_der(der: &CertificateDer<'_>) -> Option<Self> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        let validity = parsed.validity();
        rest.is_empty().then(|| Self {
            name: name(parsed.subject()),
            fingerprint: sha256(der),
            not_before: validity.not_before.to_datetime(),
            not_after: validity.not_after.to_datetime(),
            der: der.clone().into_owned(),
        })
    }

    /// Every certificate of a PEM text, once each and in its order. A block that is no certificate is
    /// left out: so does the API server.
    #[must_use]
    pub fn all_of_pem(pem: &[u8]) -> Vec<Self> {
        let mut anchors: Vec<Self> = Vec::new();
        // A broken block ends nothing: the reader goes on behind it.
        for anchor in CertificateDer::pem_slice_iter(pem).flatten().filter_map(|der| Self::from_der(&der)) {
            if !anchors.contains(&anchor) {
                anchors.push(anchor);
            }
        }
        anchors
    }

    /// The certificate itself.
    #[must_use]
    pub const fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The certificate as a PEM block.
    #[must_use]
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// Its common name, or the whole subject where it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its SHA-256 in hexadecimal, as `openssl x509 -fingerprint` computes it.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// From when on it is valid.
    #[must_use]
    pub const fn not_before(&self) -> OffsetDateTime {
        self.not_before
    }

    /// When it expires.
    #[must_use]
    pub const fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// Whether this CA has signed that certificate, whatever the dates say.
    #[must_use]
    pub fn issued(&self, certificate: &CertificateDer<'_>) -> bool {
        let (Ok((_, own)), Ok((_, other))) =
            (X509Certificate::from_der(&self.der), X509Certificate::from_der(certificate))
        else {
            return false;
        };
        own.subject().as_raw() == other.issuer().as_raw() && other.verify_signature(Some(own.public_key())).is_ok()
    }
}

impl PartialEq for Anchor {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Anchor {}

/// Says which certificate it is rather than showing its bytes.
impl fmt::Debug for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anchor")
            .field("name", &self.name)
            .field("fingerprint", &self.fingerprint)
            .field("not_before", &written(self.not_before))
            .field("not_after", &written(self.not_after))
            .finish_non_exhaustive()
    }
}

/// How people call who is named so.
pub(super) fn name(name: &X509Name<'_>) -> String {
    let common = name.iter_common_name().next().and_then(|common| common.as_str().ok());
    common.map_or_else(|| name.to_string(), ToOwned::to_owned)
}

/// Bytes as a PEM block, with the line length that OpenSSL and Go write.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let text = STANDARD.encode(der);
    // Base64 is ASCII, so every index is a boundary.
    let lines = (0..text.len()).step_by(LINE).map(|start| &text[start..text.len().min(start + LINE)]);
    let lines: Vec<_> = lines.collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
