use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

/// A CA, and a certificate of it for this machine.
#[derive(Debug)]
pub struct Certificates {
    /// What goes into a registration as `caBundle`, before base64.
    pub authority: String,
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

impl Certificates {
    /// Makes both, for the host under which the API server calls.
    pub fn make(folder: &Path, host: &str) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let mut leaf = CertificateParams::new([host.to_owned()]).unwrap();
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = KeyPair::generate().unwrap();
        let leaf = leaf.signed_by(&pair, &authority).unwrap();
        let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
        std::fs::write(&certificate, leaf.pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        Self { authority: authority.pem(), certificate, key }
    }
}
