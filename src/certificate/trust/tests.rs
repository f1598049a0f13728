use super::*;
use crate::certificate::Authority;

use time::Duration;
use time::macros::datetime;

const NOW: OffsetDateTime = datetime!(2027-03-01 12:00 UTC);
const NAME: &str = "gpufence.gpufence.svc";

fn authority() -> Authority {
    Authority::generate(NOW, Duration::days(365)).unwrap()
}

fn chain(authority: &Authority) -> Vec<CertificateDer<'static>> {
    authority.issue(&[NAME.to_owned(), "gpufence".to_owned()], Duration::days(7), NOW).unwrap().chain
}

#[test]
fn a_leaf_is_trusted_through_any_bundle_with_its_authority() {
    let (ours, other) = (authority(), authority());
    let chain = chain(&ours);
    let both = other.certificate_pem() + &ours.certificate_pem();
    for bundle in [ours.certificate_pem(), both.clone(), format!("# ours\n{both}-----BEGIN RUBBISH-----\n")] {
        assert_eq!(verify(&chain, bundle.as_bytes(), NAME, NOW), Ok(()));
    }
    assert_eq!(verify(&chain, both.as_bytes(), NAME, NOW - Duration::minutes(59)), Ok(()), "a clock that is behind");
}

#[test]
fn each_refusal_says_why() {
    let (ours, other) = (authority(), authority());
    let chain = chain(&ours);
    let bundle = ours.certificate_pem();
    let why = |bundle: &str, name: &str, now| verify(&chain, bundle.as_bytes(), name, now).unwrap_err().to_string();
    assert_eq!(why(&bundle, NAME, NOW + Duration::days(8)), "gpufence expired at 2027-03-08T12:00:00Z");
    assert_eq!(why(&bundle, NAME, NOW - Duration::hours(2)), "gpufence is valid only from 2027-03-01T11:00:00Z on");
    let (issuer, trusted) = (ours.anchor().name(), other.anchor().name());
    assert_eq!(
        why(&other.certificate_pem(), NAME, NOW),
        format!("issued by {issuer}, which is not in the CA bundle (it has {trusted})")
    );
    assert_eq!(
        why(&bundle, "gpufence.other.svc", NOW),
        "does not cover gpufence.other.svc (it has gpufence.gpufence.svc, gpufence)"
    );
    assert_eq!(why("", NAME, NOW), "the CA bundle holds no certificate");
    assert!(why(&bundle, "no name", NOW).contains("\"no name\" is no name"));
    assert_eq!(verify(&[], bundle.as_bytes(), NAME, NOW), Err(Distrust::NoCertificate));
    let rubbish = [CertificateDer::from(vec![1, 2, 3])];
    assert_eq!(verify(&rubbish, bundle.as_bytes(), NAME, NOW), Err(Distrust::Unreadable));
}

#[test]
fn an_authority_that_has_expired_is_named() {
    let ours = Authority::generate(NOW, Duration::days(2)).unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    parameters.not_after = NOW + Duration::days(30);
    let key = rcgen::KeyPair::generate().unwrap();
    let theirs = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(
        &rustls::pki_types::pem::PemObject::from_pem_slice(ours.key_pem().as_bytes()).unwrap(),
        &rcgen::PKCS_ECDSA_P256_SHA256,
    )
    .unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(ours.anchor().der(), theirs).unwrap();
    let chain = [parameters.signed_by(&key, &issuer).unwrap().der().clone()];
    assert_eq!(verify(&chain, ours.certificate_pem().as_bytes(), NAME, NOW), Ok(()));
    let late = verify(&chain, ours.certificate_pem().as_bytes(), NAME, NOW + Duration::days(3)).unwrap_err();
    assert_eq!(late.to_string(), format!("{} expired at 2027-03-03T12:00:00Z", ours.anchor().name()));
}

#[test]
fn a_namesake_of_the_authority_is_told_from_it() {
    let named = |name: &str| {
        let mut parameters = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters
    };
    let authority = || {
        let mut parameters = named("a CA");
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        rcgen::CertifiedIssuer::self_signed(parameters, rcgen::KeyPair::generate().unwrap()).unwrap()
    };
    let (ours, theirs) = (authority(), authority());
    let key = rcgen::KeyPair::generate().unwrap();
    let chain = [named("a server").signed_by(&key, &ours).unwrap().der().clone()];
    assert_eq!(verify(&chain, ours.pem().as_bytes(), NAME, NOW), Ok(()));
    let refused = verify(&chain, theirs.pem().as_bytes(), NAME, NOW).unwrap_err();
    assert_eq!(refused, Distrust::Signature { issuer: "a CA".to_owned() });
}
