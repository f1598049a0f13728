//! A certificate chain with its private key, checked to be a pair.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use rustls::InconsistentKeys;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files::{Pem, read};
use super::{TlsError, provider};

/// How far a self-signed certificate's validity reaches back: an API server whose clock is behind
/// ours must not find it "not yet valid".
const CLOCK_SKEW: Duration = Duration::hours(1);

/// How long a self-signed certificate is valid. It is made anew whenever the process starts.
const SELF_SIGNED_VALIDITY: Duration = Duration::days(365);

/// What every self-signed certificate is valid for besides the names given: whoever tries the
/// server out on their own machine, and the server's own readiness probe.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const EXPECTED_CERTIFICATE: &str = "PEM blocks `BEGIN CERTIFICATE`, the server's own certificate first";
const EXPECTED_KEY: &str =
    "one unencrypted PEM block `BEGIN PRIVATE KEY`, `BEGIN EC PRIVATE KEY` or `BEGIN RSA PRIVATE KEY`";

const EXPECTED_DER: &str = "certificates in DER, the server's own first and its key";
const EXPECTED_ALGORITHM: &str = "an ECDSA (P-256 or P-384), Ed25519 or RSA key";

/// The characters in a line of a PEM block.
const PEM_LINE: usize = 64;

/// Why a chain and a key do not serve.
enum Unfit {
    NoCertificate,
    Certificate(String),
    Key(String),
    Mismatch,
}

/// A certificate chain and its private key.
pub struct Credentials {
    key: Arc<CertifiedKey>,
    leaf: CertificateDer<'static>,
    not_after: i64,
}

impl Credentials {
    /// Reads a chain and its key from PEM files, once.
    pub fn from_files(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        Self::from_pem(&read(cert)?, &read(key)?)
    }

    pub(super) fn from_pem(cert: &Pem, key: &Pem) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(cert.bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| cert.refused(error.to_string(), EXPECTED_CERTIFICATE))?;
        let private =
            PrivateKeyDer::from_pem_slice(key.bytes()).map_err(|_| key.refused(key.blocks(), EXPECTED_KEY))?;
        Self::paired(chain, private).map_err(|unfit| match unfit {
            Unfit::NoCertificate => cert.refused(cert.blocks(), EXPECTED_CERTIFICATE),
            Unfit::Certificate(found) => cert.refused(found, EXPECTED_CERTIFICATE),
            Unfit::Key(found) => key.refused(found, EXPECTED_ALGORITHM),
            Unfit::Mismatch => TlsError::Mismatch { cert: cert.path().to_owned(), key: key.path().to_owned() },
        })
    }

    /// Takes a chain and its key that were made in memory: certificates in DER, the server's own first,
    /// and the key in PKCS #8, SEC 1 or PKCS #1.
    pub fn from_der(chain: Vec<Vec<u8>>, key: Vec<u8>) -> Result<Self, TlsError> {
        let made = |found: String, expected| TlsError::Made { found, expected };
        let private = PrivateKeyDer::try_from(key).map_err(|error| made(error.to_owned(), EXPECTED_ALGORITHM))?;
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        Self::paired(chain, private).map_err(|unfit| match unfit {
            Unfit::NoCertificate => made("no certificate".to_owned(), EXPECTED_DER),
            Unfit::Certificate(found) => made(found, EXPECTED_DER),
            Unfit::Key(found) => made(found, EXPECTED_ALGORITHM),
            Unfit::Mismatch => made("the key of another certificate".to_owned(), EXPECTED_DER),
        })
    }

    fn paired(chain: Vec<CertificateDer<'static>>, private: PrivateKeyDer<'static>) -> Result<Self, Unfit> {
        let leaf = chain.first().cloned().ok_or(Unfit::NoCertificate)?;
        let not_after =
            not_after(&leaf).ok_or_else(|| Unfit::Certificate("a block that is no certificate".to_owned()))?;
        let loaded = provider().key_provider.load_private_key(private);
        let pair = CertifiedKey::new(chain, loaded.map_err(|error| Unfit::Key(error.to_string()))?);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Self { key: Arc::new(pair), leaf, not_after })
            }
            Err(rustls::Error::InconsistentKeys(_)) => Err(Unfit::Mismatch),
            Err(error) => Err(Unfit::Certificate(error.to_string())),
        }
    }

    /// Makes a P-256 key and a certificate for these names and the loopback ones, in memory.
    pub fn self_signed(names: &[String]) -> Result<Self, TlsError> {
        let refused = |source: rcgen::Error| TlsError::Generate { names: names.to_vec(), source: source.into() };
        let mut subjects = names.to_vec();
        subjects.extend(LOOPBACK_NAMES.map(ToOwned::to_owned));
        let mut parameters = CertificateParams::new(subjects).map_err(refused)?;
        let now = OffsetDateTime::now_utc();
        parameters.not_before = now - CLOCK_SKEW;
        parameters.not_after = now + SELF_SIGNED_VALIDITY;
        parameters.distinguished_name.push(DnType::CommonName, "gpufence");
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(refused)?;
        let leaf = parameters.self_signed(&pair).map_err(refused)?.der().clone();
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let key = CertifiedKey::from_der(vec![leaf.clone()], private, &provider())?;
        let not_after = parameters.not_after.unix_timestamp();
        Ok(Self { key: Arc::new(key), leaf, not_after })
    }

    /// The server's own certificate, the first of the chain.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.leaf
    }

    /// When the server's own certificate expires, in seconds since 1970.
    #[must_use]
    pub const fn not_after(&self) -> i64 {
        self.not_after
    }

    /// The SHA-256 of the server's own certificate in hexadecimal, as `openssl x509 -fingerprint`
    /// computes it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        super::sha256(&self.leaf)
    }

    /// The whole chain as PEM: what every caller is shown, and nothing of the key.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        let mut text = String::new();
        for certificate in &self.key.cert {
            text.push_str("-----BEGIN CERTIFICATE-----\n");
            let encoded = STANDARD.encode(certificate);
            for line in encoded.as_bytes().chunks(PEM_LINE) {
                text.push_str(&String::from_utf8_lossy(line));
                text.push('\n');
            }
            text.push_str("-----END CERTIFICATE-----\n");
        }
        text
    }

    pub(super) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}

/// Says which certificate it is, and nothing of the key.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("fingerprint", &self.fingerprint())
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tls::{Identity, server_config};

    #[test]
    fn self_signed_credentials_serve() {
        let credentials = Credentials::self_signed(&["gpufence.gpufence.svc".to_owned()]).unwrap();
        let (_, parsed) = X509Certificate::from_der(credentials.certificate()).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len();
        assert_eq!(names, 4, "the name given, localhost, 127.0.0.1 and ::1");
        assert!(parsed.extended_key_usage().unwrap().unwrap().value.server_auth);
        let now = OffsetDateTime::now_utc().unix_timestamp();
        assert!(parsed.validity().not_before.timestamp() <= now - 3_590, "an hour back");
        assert_eq!(parsed.validity().not_after.timestamp(), credentials.not_after());
        assert_eq!(credentials.fingerprint().len(), 64);
        let config = server_config(Arc::new(Identity::new(credentials)), true).unwrap();
        assert_eq!(config.alpn_protocols, [b"http/1.1"]);
    }

    #[test]
    fn a_name_that_no_certificate_can_carry_is_refused() {
        let error = Credentials::self_signed(&["gpufence.\u{e9}".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("gpufence."), "{error}");
    }
}
