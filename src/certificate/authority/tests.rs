use super::*;

use time::macros::datetime;

const NOW: OffsetDateTime = datetime!(2027-03-01 12:00:00.5 UTC);

fn authority() -> Authority {
    Authority::generate(NOW, Duration::days(365)).unwrap()
}

fn names() -> Vec<String> {
    vec!["gpufence.gpufence.svc".to_owned(), "127.0.0.1".to_owned()]
}

/// A certificate and its key that are not what we make.
fn other(algorithm: &'static rcgen::SignatureAlgorithm, parameters: &CertificateParams) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", key.serialized_der()))
}

fn refusal(certificate: &str, key: &str) -> String {
    Authority::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err().to_string()
}

#[test]
fn an_authority_signs_leaves_and_nothing_else() {
    let authority = authority();
    let (_, parsed) = X509Certificate::from_der(authority.anchor().der()).unwrap();
    let constraints = parsed.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = parsed.key_usage().unwrap().unwrap();
    assert!(usage.critical);
    assert_eq!(usage.value.flags, 0b110_0000, "certificates and CRLs");
    assert!(
        parsed
            .iter_extensions()
            .any(|extension| extension.oid == x509_parser::oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER)
    );
    assert_eq!(authority.not_before(), datetime!(2027-03-01 11:00 UTC));
    assert_eq!(authority.not_after(), datetime!(2028-02-29 12:00 UTC));
    let id = authority.anchor().name().strip_prefix("gpufence CA ").unwrap();
    assert_eq!(id.len(), SHORT_ID);
    assert_ne!(authority.anchor().name(), self::authority().anchor().name(), "each has a name of its own");
}

#[test]
fn an_authority_survives_its_pem() {
    let authority = authority();
    let again = Authority::from_pem(authority.certificate_pem().as_bytes(), authority.key_pem().as_bytes()).unwrap();
    assert_eq!(again, authority);
    assert_eq!(again.key_pem(), authority.key_pem());
    assert!(authority.certificate_pem().lines().all(|line| line.len() <= 64));
    let leaf = again.issue(&names(), Duration::days(7), NOW).unwrap();
    assert!(authority.anchor().issued(&leaf.chain[0]), "the same key");
}

#[test]
fn a_leaf_is_a_server_certificate_for_its_names() {
    let authority = authority();
    let leaf = authority.issue(&names(), Duration::days(7), NOW).unwrap();
    let (_, parsed) = X509Certificate::from_der(&leaf.chain[0]).unwrap();
    assert!(!parsed.is_ca());
    assert_eq!(parsed.key_usage().unwrap().unwrap().value.flags, 1, "digital signatures");
    let purposes = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(purposes.server_auth && !purposes.client_auth && !purposes.any);
    assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 2);
    let oid = x509_parser::oid_registry::OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER;
    assert!(parsed.iter_extensions().any(|extension| extension.oid == oid));
    let algorithm = &parsed.public_key().algorithm;
    assert_eq!(algorithm.parameters.as_ref().unwrap().as_oid().unwrap(), OID_EC_P256);
    assert_eq!(leaf.not_before, datetime!(2027-03-01 11:00 UTC));
    assert_eq!(leaf.not_after, datetime!(2027-03-08 12:00 UTC));
    assert_eq!(parsed.validity().not_after.to_datetime(), leaf.not_after);
    assert_eq!(leaf.authority, authority.fingerprint());
    let next = authority.issue(&names(), Duration::days(7), NOW).unwrap();
    assert_ne!(leaf.key, next.key, "each leaf has a key of its own");
}

#[test]
fn a_leaf_is_renewed_by_the_wall_clock() {
    let leaf = authority().issue(&names(), Duration::days(6), NOW).unwrap();
    assert_eq!(leaf.renew_at(), datetime!(2027-03-05 12:00 UTC));
    assert!(!leaf.is_due(NOW));
    assert!(!leaf.is_due(leaf.renew_at() - Duration::SECOND));
    assert!(leaf.is_due(leaf.renew_at()));
    assert!(leaf.is_due(NOW + Duration::days(30)), "the machine slept");
    assert!(!leaf.is_due(NOW - Duration::minutes(50)), "a clock that is a little behind");
    assert!(leaf.is_due(NOW - Duration::hours(2)), "a clock that was set back");
}

#[test]
fn no_leaf_outlives_its_authority() {
    let authority = authority();
    let late = authority.not_after() - Duration::hours(1);
    let leaf = authority.issue(&names(), Duration::days(7), late).unwrap();
    assert_eq!(leaf.not_after, authority.not_after());
    assert_eq!(leaf.renew_at(), late + Duration::minutes(40));
    let error = authority.issue(&names(), Duration::days(7), authority.not_after()).unwrap_err().to_string();
    assert!(error.contains("expired at 2028-02-29T12:00:00Z"), "{error}");
    let early = authority.not_before() - Duration::SECOND;
    let error = authority.issue(&names(), Duration::days(7), early).unwrap_err().to_string();
    assert!(
        error.contains("valid from 2027-03-01T11:00:00Z") && error.contains("says 2027-03-01T10:59:59Z"),
        "{error}"
    );
    let skewed = authority.issue(&names(), Duration::days(7), authority.not_before()).unwrap();
    assert_eq!(skewed.not_before, authority.not_before(), "nor is it older");
}

#[test]
fn names_that_no_certificate_can_carry_are_refused() {
    for names in [vec![], vec!["gpufence.\u{e9}".to_owned()]] {
        let error = authority().issue(&names, Duration::days(7), NOW).unwrap_err().to_string();
        assert!(error.contains("expected DNS names"), "{error}");
    }
}

#[test]
fn what_is_no_authority_of_ours_is_refused_with_what_was_found() {
    let (ours, theirs) = (authority(), authority());
    let (certificate, key) = (ours.certificate_pem(), ours.key_pem());
    let error = refusal(&certificate, &theirs.key_pem());
    assert!(error.contains(ours.anchor().name()) && error.contains("does not belong"), "{error}");
    let error = refusal("", &key);
    assert!(error.contains("0 bytes without a PEM block"), "{error}");
    let error = refusal(&key, &key);
    assert!(error.contains("found `BEGIN PRIVATE KEY`"), "{error}");
    let error = refusal(&(certificate.clone() + &theirs.certificate_pem()), &key);
    assert!(error.contains("found 2 certificates"), "{error}");
    let error = refusal(&pem("CERTIFICATE", b"nothing"), &key);
    assert!(error.contains("no certificate"), "{error}");
    let error = refusal(&certificate, &certificate);
    assert!(error.contains("the CA's key: found `BEGIN CERTIFICATE`"), "{error}");
    let error = refusal(&certificate, &key.replace("PRIVATE KEY", "EC PRIVATE KEY"));
    assert!(error.contains("found `BEGIN EC PRIVATE KEY`"), "{error}");
    let error = refusal(&certificate, &pem("PRIVATE KEY", b"nothing"));
    assert!(error.contains("not of ECDSA P-256"), "{error}");

    let mut parameters = CertificateParams::new(names()).unwrap();
    parameters.distinguished_name = named("a server");
    let (leaf, leaf_key) = other(&PKCS_ECDSA_P256_SHA256, &parameters);
    let error = refusal(&leaf, &leaf_key);
    assert!(error.contains("a server, which is not a CA's"), "{error}");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::CrlSign];
    let (revoking, revoking_key) = other(&PKCS_ECDSA_P256_SHA256, &parameters);
    let error = refusal(&revoking, &revoking_key);
    assert!(error.contains("which is not a CA's"), "{error}");
    parameters.key_usages.clear();
    for algorithm in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let (certificate, key) = other(algorithm, &parameters);
        let error = refusal(&certificate, &key);
        assert!(error.contains("key is not of ECDSA P-256"), "{error}");
    }
}

#[test]
fn no_key_is_shown() {
    let authority = authority();
    let leaf = authority.issue(&names(), Duration::days(7), NOW).unwrap();
    let shown = format!("{authority:?} {leaf:?}");
    assert!(!shown.contains("key"), "{shown}");
    assert!(shown.contains("gpufence CA") && shown.contains("2027-03-08T12:00:00Z"), "{shown}");
    let body = authority.key_pem().lines().nth(1).unwrap().to_owned();
    let error = refusal(&authority.certificate_pem(), &authority.key_pem().replace("BEGIN PRIVATE", "BEGIN OTHER"));
    assert!(!error.contains(&body), "{error}");
}
