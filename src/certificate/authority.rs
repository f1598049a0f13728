//! The CA: a P-256 key and its own certificate.

use std::fmt;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::anchor::pem;
use super::{Anchor, CLOCK_SKEW, Leaf, blocks, seconds, sha256, written};

const EXPECTED_CERTIFICATE: &str = "one PEM block `BEGIN CERTIFICATE` with the certificate of a CA";
const EXPECTED_KEY: &str = "one PEM block `BEGIN PRIVATE KEY` (PKCS #8) with an ECDSA P-256 key";

/// How much of its key's digest a CA bears in its name: two of them never have the same one.
const SHORT_ID: usize = 12;

/// A P-256 CA with its key.
#[derive(Clone)]
pub struct Authority {
    anchor: Anchor,
    key: Arc<KeyPair>,
}

/// Why there is no CA, or no leaf of it.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate is not that of a CA of ours.
    #[error("the CA's certificate: found {found}; expected {expected}")]
    Certificate {
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// The key is none that we use.
    #[error("the CA's key: found {found}; expected {expected}")]
    Key {
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// The key belongs to another certificate.
    #[error("the CA's key does not belong to its certificate, {name}; expected the two of one pair")]
    Mismatch {
        /// The CA's name.
        name: String,
    },
    /// The CA has expired, so nothing that it signs is worth anything.
    #[error("{name} expired at {since} and signs nothing more; expected a CA that the rotation has replaced by then")]
    Expired {
        /// The CA's name.
        name: String,
        /// When.
        since: String,
    },
    /// The CA's time is still to come, or the clock is wrong.
    #[error("{name} is valid from {from} on, and this machine's clock says {now}; expected one of the two to be right")]
    NotYetValid {
        /// The CA's name.
        name: String,
        /// From when on.
        from: String,
        /// What the clock says.
        now: String,
    },
    /// A certificate cannot be made for the names given.
    #[error("cannot make a certificate for {names:?}; expected DNS names or IP addresses, one at least")]
    Names {
        /// The names.
        names: Vec<String>,
    },
    /// The crypto library refuses.
    #[error("cannot make a certificate")]
    Generate(#[from] rcgen::Error),
}

impl Authority {
    /// Makes a CA that is valid from an hour ago until this long from now.
    pub fn generate(now: OffsetDateTime, validity: Duration) -> Result<Self, AuthorityError> {
        let now = seconds(now);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let digest = sha256(&key.subject_public_key_info());
        let mut parameters = CertificateParams::default();
        parameters.not_before = now - CLOCK_SKEW;
        parameters.not_after = now + validity;
        parameters.distinguished_name = named(&format!("gpufence CA {}", &digest[..SHORT_ID]));
        // No CA below this one: it signs leaves.
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.key_identifier_method = KeyIdMethod::Sha256;
        let der = parameters.self_signed(&key)?.der().clone();
        let anchor = Anchor::from_der(&der).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        Ok(Self { anchor, key: Arc::new(key) })
    }

    /// Reads a CA and its key, and checks that they are a pair and what we make ourselves.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, AuthorityError> {
        let anchor = ca(certificate)?;
        let refused = || AuthorityError::Key { found: blocks(key), expected: EXPECTED_KEY };
        let der = PrivatePkcs8KeyDer::from_pem_slice(key).map_err(|_| refused())?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256).map_err(|_| {
            let found = "a key that is not of ECDSA P-256".to_owned();
            AuthorityError::Key { found, expected: EXPECTED_KEY }
        })?;
        let own = X509Certificate::from_der(anchor.der()).is_ok_and(|(_, parsed)| {
            let public = &parsed.public_key().subject_public_key.data;
            public.as_ref() == key.public_key_raw()
        });
        if !own {
            return Err(AuthorityError::Mismatch { name: anchor.name().to_owned() });
        }
        Ok(Self { anchor, key: Arc::new(key) })
    }

    /// The CA's certificate.
    #[must_use]
    pub const fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The CA's certificate as a PEM block.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        self.anchor.pem()
    }

    /// The CA's private key as a PEM block, for the Secret and nothing else.
    #[must_use]
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.serialized_der())
    }

    /// The SHA-256 of the CA's certificate in hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.anchor.fingerprint()
    }

    /// From when on the CA is valid.
    #[must_use]
    pub const fn not_before(&self) -> OffsetDateTime {
        self.anchor.not_before()
    }

    /// When the CA expires.
    #[must_use]
    pub const fn not_after(&self) -> OffsetDateTime {
        self.anchor.not_after()
    }

    /// Makes a server's certificate with a key of its own, valid from an hour ago until this long from
    /// now, and never beyond the CA: an API server accepts no leaf of an expired one.
    pub fn issue(&self, names: &[String], validity: Duration, now: OffsetDateTime) -> Result<Leaf, AuthorityError> {
        let (now, name) = (seconds(now), || self.anchor.name().to_owned());
        if now >= self.not_after() {
            return Err(AuthorityError::Expired { name: name(), since: written(self.not_after()) });
        }
        if now < self.not_before() {
            let from = written(self.not_before());
            return Err(AuthorityError::NotYetValid { name: name(), from, now: written(now) });
        }
        let unusable = || AuthorityError::Names { names: names.to_vec() };
        if names.is_empty() {
            return Err(unusable());
        }
        let mut parameters = CertificateParams::new(names).map_err(|_| unusable())?;
        parameters.not_before = (now - CLOCK_SKEW).max(self.not_before());
        parameters.not_after = (now + validity).min(self.not_after());
        // A common name has room for 64 characters, which a Service's name may exceed; nobody reads it.
        parameters.distinguished_name = named("gpufence");
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let issuer = Issuer::from_ca_cert_der(self.anchor.der(), &*self.key)?;
        let certificate = parameters.signed_by(&key, &issuer)?;
        Ok(Leaf {
            chain: vec![certificate.der().clone()],
            key: PrivatePkcs8KeyDer::from(key).into(),
            issued_at: now,
            not_before: parameters.not_before,
            not_after: parameters.not_after,
            authority: self.fingerprint().to_owned(),
        })
    }
}

/// The certificate says which key it is.
impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.anchor == other.anchor
    }
}

impl Eq for Authority {}

/// Says which CA it is, and nothing of the key.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("anchor", &self.anchor).finish_non_exhaustive()
    }
}

fn named(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// Reads the certificate of a P-256 CA.
fn ca(certificate: &[u8]) -> Result<Anchor, AuthorityError> {
    let refused = |found| AuthorityError::Certificate { found, expected: EXPECTED_CERTIFICATE };
    let found = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let [der] = found.map_err(|error| refused(error.to_string()))?.try_into().map_err(|found: Vec<_>| {
        refused(if found.is_empty() { blocks(certificate) } else { format!("{} certificates", found.len()) })
    })?;
    let broken = || refused("a block that is no certificate".to_owned());
    let anchor = Anchor::from_der(&der).ok_or_else(broken)?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| broken())?;
    let signs = parsed.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    if !(parsed.is_ca() && signs) {
        return Err(refused(format!("{}, which is not a CA's", anchor.name())));
    }
    let algorithm = &parsed.public_key().algorithm;
    let curve = algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    if algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || curve != Some(OID_EC_P256) {
        let expected = "a CA with an ECDSA P-256 key";
        let found = format!("{}, whose key is not of ECDSA P-256", anchor.name());
        return Err(AuthorityError::Certificate { found, expected });
    }
    Ok(anchor)
}

#[cfg(test)]
mod tests;
