//! `certs/dev.sh`, and the server with what it makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpufence::certificate::{Anchor, Authority, verify};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::{Duration, OffsetDateTime};

use crate::binary::{NAME, Server, files, trusting};
use crate::wire::recorded;

fn dev(directory: &Path) -> Output {
    let openssl = Command::new("openssl").arg("version").output();
    assert!(openssl.is_ok_and(|output| output.status.success()), "openssl is not installed; certs/dev.sh needs it");
    Command::new("sh").arg(script()).arg(directory).output().unwrap()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("certs/dev.sh")
}

/// The last word of each line is the file, the first what became of it.
fn made(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let words = |line: &str| {
        let (what, path) = line.split_once("  ").unwrap();
        format!("{what} {}", path.rsplit('/').next().unwrap())
    };
    text.lines().map(words).collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn the_server_serves_with_a_developers_certificate() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(made(&dev(directory.path())), "made ca.crt, made tls.crt");
    let bundle = fs::read(directory.path().join("ca.crt")).unwrap();
    let authority = Anchor::all_of_pem(&bundle).pop().unwrap();
    let server = Server::start_with("", "0s", &files(directory.path()), trusting(authority.der())).await;
    let stream = server.try_dial().await.unwrap();
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    let now = OffsetDateTime::now_utc();
    for name in ["localhost", "127.0.0.1", NAME] {
        assert_eq!(verify(chain, &bundle, name, now), Ok(()), "{name}");
    }
    let refused = verify(chain, &bundle, NAME, now + Duration::days(91)).unwrap_err().to_string();
    assert!(refused.starts_with("gpufence expired at "), "{refused}");
    let (status, answer) = server.review("/mutate", &recorded("mutate-create-pod-gpu-pod")).await;
    assert_eq!(status, 200, "{answer}");
    // The very CA that the managed rotation would take: P-256, of its own, signing leaves.
    let key = fs::read(directory.path().join("ca.key")).unwrap();
    Authority::from_pem(&bundle, &key).unwrap();
}

#[test]
fn a_second_run_keeps_what_is_good_and_makes_the_rest_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name| directory.path().join(name);
    dev(directory.path());
    let before = fs::read(path("tls.crt")).unwrap();
    assert_eq!(made(&dev(directory.path())), "kept ca.crt, kept tls.crt");
    assert_eq!(fs::read(path("tls.crt")).unwrap(), before);
    fs::write(path("tls.key"), "").unwrap();
    assert_eq!(made(&dev(directory.path())), "kept ca.crt, made tls.crt");
    fs::remove_file(path("ca.key")).unwrap();
    assert_eq!(made(&dev(directory.path())), "made ca.crt, made tls.crt", "no other CA's leaf is kept");
    let leaf = CertificateDer::from_pem_file(path("tls.crt")).unwrap();
    let bundle = fs::read(path("ca.crt")).unwrap();
    assert_eq!(verify(&[leaf], &bundle, NAME, OffsetDateTime::now_utc()), Ok(()));
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 4, "and nothing else is left");
}

#[test]
fn what_stands_in_the_way_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let output = dev(&file);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot make the directory"), "{error}");
    let sh = Command::new("sh").args(["-c", "command -v sh"]).output().unwrap();
    let sh = String::from_utf8(sh.stdout).unwrap();
    let output = Command::new(sh.trim()).arg(script()).arg(directory.path()).env("PATH", directory.path()).output();
    let output = output.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("openssl is not installed; expected"), "{error}");
}
