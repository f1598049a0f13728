//! The end of the process, and a certificate that changes while it runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use hyper::body::Bytes;
use hyper::header;
use serde_json::json;

use crate::binary::{Authority, NAME, Reply, Server, files, pieces, post, soon, trusting};
use crate::wire::{answers_well, recorded};

const GPU: &str = "mutate-create-pod-gpu-pod";

/// Waits until the metrics have this line.
pub async fn measured(server: &Server, line: &str) {
    let seen = async { while !server.get_metrics().await.lines().any(|found| found == line) {} };
    soon(line, seen).await;
}

/// Asserts that a GPU pod is completed, and that the caller is asked to go.
fn assert_answered_and_closed(reply: &Reply) {
    let uid = recorded(GPU)["request"]["uid"].as_str().unwrap().to_owned();
    let answer = reply.accepted("/mutate", &uid);
    assert_eq!(answer["response"]["patchType"], "JSONPatch", "{answer}");
    assert_eq!(reply.header(header::CONNECTION), Some("close"));
}

/// A request whose body is half sent when the signal comes is answered, and then the process ends well.
async fn check_signal(signal: &str) {
    let server = Server::start("mode: enforce").await;
    let mut idle = server.connect().await;
    answers_well(&mut idle).await;

    let body = recorded(GPU).to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let (sender, pieces) = pieces();
    let request = post("/mutate").header(header::CONTENT_LENGTH, body.len()).body(pieces).unwrap();
    let mut busy = server.connect().await;
    let halves = async {
        sender.send(Bytes::copy_from_slice(first.as_bytes())).await.unwrap();
        measured(&server, "gpufence_admission_in_flight 1").await;
        server.signal(signal);
        server.logged("stopped accepting").await;
        sender.send(Bytes::copy_from_slice(second.as_bytes())).await.unwrap();
        drop(sender);
    };
    let (reply, ()) = tokio::join!(busy.send(request), halves);
    assert_answered_and_closed(&reply);
    busy.closed().await;
    idle.closed().await;

    assert_eq!(server.logged("draining").await["signal"], format!("SIG{signal}"));
    let (code, lines) = server.ended().await;
    assert_eq!(code, Some(0), "{lines:#?}");
    assert_eq!(lines.last().unwrap()["message"], "ended");
}

#[tokio::test]
async fn sigterm_lets_a_request_finish() {
    check_signal("TERM").await;
}

#[tokio::test]
async fn sigint_lets_a_request_finish() {
    check_signal("INT").await;
}

#[tokio::test]
async fn a_draining_server_says_so_and_goes_on_serving() {
    let server = Server::start_draining("mode: enforce", "2s").await;
    let mut kept = server.connect().await;
    answers_well(&mut kept).await;
    server.signal("TERM");
    server.logged("draining").await;

    assert_eq!(server.get("/readyz").await, (503, "not ready: draining".to_owned()));
    assert_eq!(server.get("/livez").await.0, 200);
    for connection in [&mut kept, &mut server.connect().await] {
        assert_answered_and_closed(&connection.post("/mutate", recorded(GPU).to_string()).await);
        connection.closed().await;
    }
    let (code, lines) = server.ended().await;
    assert_eq!(code, Some(0), "{lines:#?}");
}

#[tokio::test]
async fn a_second_signal_ends_the_drain() {
    let server = Server::start_draining("mode: enforce", "600s").await;
    server.signal("TERM");
    server.logged("draining").await;
    server.signal("TERM");
    let (code, lines) = server.ended().await;
    assert_eq!(code, Some(1), "{lines:#?}");
}

/// Publishes a version of a mounted Secret or ConfigMap as the kubelet does: a directory of its own, to
/// which the symlink `..data` is swapped.
pub fn publish(mounted: &Path, version: &str, write: impl FnOnce(&Path)) {
    fs::create_dir(mounted.join(version)).unwrap();
    write(&mounted.join(version));
    symlink(version, mounted.join("..data_tmp")).unwrap();
    fs::rename(mounted.join("..data_tmp"), mounted.join("..data")).unwrap();
}

#[tokio::test]
async fn a_secret_that_the_kubelet_swaps_is_served() {
    let authority = Authority::new();
    let secret = tempfile::tempdir().unwrap();
    let (old, new) = (authority.issue(&[NAME]), authority.issue(&[NAME]));
    publish(secret.path(), "..1", |version| old.write(version));
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), secret.path().join(name)).unwrap();
    }
    let tls = files(secret.path());
    let server = Server::start_with("mode: enforce", "0s", &tls, trusting(authority.certificate())).await;
    let mut before = server.connect().await;
    assert!(before.certificate == *old.certificate.der(), "the certificate in the files is served");
    answers_well(&mut before).await;
    assert_eq!(server.get("/certificate").await, (200, old.pem()), "what each replica serves, for whoever checks them");

    publish(secret.path(), "..2", |version| new.write(version));
    let reloaded = server.logged("certificate reloaded").await;
    // Counted once it is served; the line in the log comes a moment earlier.
    measured(&server, "gpufence_certificate_reloads_total{result=\"success\"} 1").await;
    let mut after = server.connect().await;
    assert!(after.certificate == *new.certificate.der(), "the new certificate is served");
    assert_eq!(server.get("/certificate").await, (200, new.pem()));
    assert_eq!(reloaded["sha256"], json!(gpufence::server::tls::sha256(&after.certificate)));
    answers_well(&mut after).await;
    answers_well(&mut before).await;
}
