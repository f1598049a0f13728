use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::features;
use crate::installed::{ACT, Installed, NAMESPACE, configuration, contract, is_refused, log_line, stored};
use crate::poll;
use crate::requests::{ordinary, tolerating};

const SECRET: &str = "/api/v1/namespaces/gpufence/secrets/gpufence-ca";

fn bundle(kind: &str) -> String {
    let configuration = stored(kind);
    configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_ca_bundle_that_is_wiped_comes_back() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    let before = bundle("validating");
    assert_eq!(before, bundle("mutating"));
    for (kind, value) in [("validating", ""), ("mutating", "Zm9yZWlnbg==")] {
        // What is no certificate at all the API server refuses today; nothing and the CA of another it takes.
        let wipe = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": value}]);
        let reply = admin().patch(Patch::Json, &configuration(kind), &wipe);
        if reply.code >= 300 {
            features::skip(&format!("a foreign caBundle in the {kind} configuration"), reply.message());
        }
    }
    poll::until("both are back", Duration::from_secs(15), || {
        let back = ["validating", "mutating"].iter().all(|kind| bundle(kind) == before);
        if back { Ok(()) } else { Err(installed.logs()) }
    });
    poll::until("it refuses", ACT, || {
        let reply = admin().create(&tolerating(&web));
        if is_refused(&reply) { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
}

#[test]
fn nothing_but_our_fields_of_a_registration_is_written() {
    let Some(installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let strip = |mut configuration: Value| {
        configuration["metadata"] = json!({"name": configuration["metadata"]["name"], "annotations": configuration["metadata"]["annotations"], "labels": configuration["metadata"]["labels"]});
        for hook in configuration["webhooks"].as_array_mut().unwrap() {
            hook["failurePolicy"] = Value::Null;
            hook["clientConfig"]["caBundle"] = Value::Null;
        }
        configuration
    };
    let before = ["validating", "mutating"].map(|kind| strip(stored(kind)));
    let mut installed = installed;
    installed.start_controller();
    installed.start_replica();
    installed.wait_for_failure_policy("Fail");
    let after = ["validating", "mutating"].map(|kind| strip(stored(kind)));
    assert_eq!(before, after);
}

#[test]
fn no_ca_bundle_before_somebody_serves_by_it() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    installed.start_controller();
    poll::until("there is a CA", ACT, || {
        let secret = admin().get(SECRET).stored();
        if secret["data"].is_object() { Ok(()) } else { Err(installed.logs()) }
    });
    thread::sleep(Duration::from_secs(12));
    assert_eq!(bundle("validating"), "");
    assert_eq!(installed.failure_policy(), "Ignore");
    installed.start_replica();
    installed.wait_for_bundle();
}

#[test]
fn a_foreign_secret_is_let_alone() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    admin().delete(SECRET);
    let foreign = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "gpufence-ca", "namespace": NAMESPACE},
        "data": {"ca.crt": STANDARD.encode("somebody's")},
    });
    let before = admin().create(&foreign).stored();
    installed.start_controller();
    let line = poll::until("the controller says so", ACT, || log_line(&installed.controllers[0], "waiting"));
    assert_eq!(
        line["why"],
        "the Secret gpufence-ca in the namespace gpufence has no label app.kubernetes.io/name=gpufence, so it is not \
         gpufence's and is let alone; remove it, and apply the output of `gpufence manifests`"
    );
    thread::sleep(Duration::from_secs(6));
    assert_eq!(admin().get(SECRET).stored(), before);
    admin().delete(SECRET).stored();
}

#[test]
fn two_controllers_make_one_ca() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    installed.start_controller();
    installed.start_controller();
    installed.start_replica();
    installed.wait_for_bundle();
    let rotations: usize = installed
        .controllers
        .iter()
        .map(|controller| controller.output().matches("the CA's rotation went on").count())
        .sum();
    assert_eq!(rotations, 1, "{}", installed.logs());
}

/// The CA is replaced several times over while pods are created without a pause. No request may be answered by
/// anybody but the webhook.
#[test]
fn the_ca_is_rotated_under_load_without_a_failed_call() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    installed.start_controller_with(&["--ca-validity", "60s", "--ca-soak", "3s", "--ca-retire", "5s"]);
    installed.start_replica();
    installed.start_replica();
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let reply = admin().dry_run().create(&tolerating(&web));
                    assert!(is_refused(&reply), "{reply:#?}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let serving = || installed.replicas.iter().map(|replica| served_by(replica.metrics)).collect::<Vec<_>>();
        let first = serving();
        assert_eq!(first[0], first[1], "both by one CA");
        poll::until("the CA was rotated twice", Duration::from_secs(150), || {
            let switched = installed.controllers[0].output().matches("retire").count();
            let others = serving().iter().all(|name| *name != first[0]);
            if switched >= 2 && others { Ok(()) } else { Err(installed.logs()) }
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!installed.controllers[0].output().contains("without an overlap"), "{}", installed.logs());
    features::tell(&format!("{} calls while the CA was rotated twice, none failed", calls.into_inner()));
}

/// The certificate that a replica serves, in PEM; its first line after the frame tells it from others.
fn served_by(metrics: std::net::SocketAddr) -> String {
    let chain = crate::api::get_plain(metrics, "/certificate").unwrap();
    let (_, parsed) = x509_parser::pem::parse_x509_pem(chain.as_bytes()).unwrap();
    parsed.parse_x509().unwrap().issuer().to_string()
}

/// With certificates from files, such as cert-manager's, the controller arms and touches no caBundle.
#[test]
fn certificates_from_files_are_armed_too() {
    let folder = crate::cluster::cluster().folder("files");
    let certificates = crate::certificates::Certificates::make(&folder, "gpufence.gpufence.svc");
    let authority = folder.join("ca.crt");
    std::fs::write(&authority, &certificates.authority).unwrap();
    let options = ["--tls", "files", "--ca-file", authority.to_str().unwrap()];
    let Some(mut installed) = Installed::apply(&contract("enforce"), &options) else { return };
    let map = admin().get(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps/gpufence")).stored();
    let text = map["data"]["contract.yaml"].as_str().unwrap();
    let local = text
        .replace("/etc/gpufence/tls/tls.crt", certificates.certificate.to_str().unwrap())
        .replace("/etc/gpufence/tls/tls.key", certificates.key.to_str().unwrap());
    installed.mount_contract(&local);
    installed.start_replica();
    installed.start_controller();
    installed.wait_for_failure_policy("Fail");
    assert_eq!(STANDARD.decode(bundle("validating")).unwrap(), certificates.authority.as_bytes());
    assert!(admin().get(SECRET).is_missing());
    let web = installed.namespace("web", &json!({}));
    assert!(is_refused(&admin().create(&tolerating(&web))));
    let pod = admin().create(&ordinary(&web)).quietly();
    admin().delete(&path(&pod));
}
