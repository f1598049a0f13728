use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpufence::certificate::Authority;
use gpufence::certificate::rotation::State;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::api::{Patch, admin};
use crate::certificates::Certificates;
use crate::cluster::cluster;
use crate::installed::{ACT, Installed, TARGET, VALIDATE, configuration, contract, is_refused, log_line, stored};
use crate::line::Line;
use crate::poll;
use crate::requests::tolerating;

const SECRET: &str = "/api/v1/namespaces/gpufence/secrets/gpufence-ca";

/// Two of a controller's rounds.
const ROUNDS: Duration = Duration::from_secs(12);

fn bundle(kind: &str) -> String {
    stored(kind)["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned()
}

fn replace_data(data: &Value) {
    let change = json!([{"op": "add", "path": "/data", "value": data}]);
    admin().patch(Patch::Json, SECRET, &change).stored();
}

fn change(kind: &str, operations: &Value) {
    admin().patch(Patch::Json, &configuration(kind), operations).stored();
}

fn wait_until_refused(installed: &Installed, namespace: &str, limit: Duration) {
    poll::until("the webhook refuses", limit, || {
        let reply = admin().dry_run().create(&tolerating(namespace));
        if is_refused(&reply) { Ok(()) } else { Err(format!("{reply:#?}\n{}", installed.logs())) }
    });
}

fn said(installed: &Installed, what: &str, words: &str) {
    poll::until("the controller says so", ACT, || {
        let output = installed.controllers[0].output();
        let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = lines
            .into_iter()
            .any(|line| line["what"] == what && line["why"].as_str().is_some_and(|why| why.contains(words)));
        if found { Ok(()) } else { Err(installed.logs()) }
    });
}

#[test]
fn a_ca_that_was_emptied_is_replaced_and_the_registrations_follow() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    let before = bundle("validating");
    replace_data(&json!({}));
    poll::until("both registrations have another CA", Duration::from_secs(15), || {
        let followed = ["validating", "mutating"].iter().all(|kind| bundle(kind) != before);
        if followed { Ok(()) } else { Err(installed.logs()) }
    });
    wait_until_refused(&installed, &web, ACT);
}

/// As of a cluster that was off for longer than a CA lives.
#[test]
fn a_ca_that_expired_meanwhile_is_replaced_at_once() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let made = OffsetDateTime::now_utc() - time::Duration::days(400);
    let signing = Authority::generate(made, time::Duration::days(365)).unwrap();
    let data = State::Stable { signing }.to_data();
    let data: Value = data.iter().map(|(key, value)| (key.clone(), json!(STANDARD.encode(value)))).collect();
    replace_data(&data);
    installed.begin_replica(&[]);
    let began = std::time::Instant::now();
    installed.start_controller();
    installed.wait_for_replica();
    installed.wait_for_bundle();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    installed.wait_for_failure_policy("Fail");
}

/// What cannot be read is let alone. That it is there keeps nobody from making an outage harmless.
#[test]
fn a_broken_ca_keeps_nobody_from_going_back_to_audit() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    let broken = json!({"phase": STANDARD.encode("stable"), "ca.crt": STANDARD.encode("no certificate")});
    replace_data(&broken);
    said(&installed, "round", "the Secret gpufence-ca in the namespace gpufence");
    // The last certificate serves on.
    assert!(is_refused(&admin().dry_run().create(&tolerating(&web))));
    installed.mount_contract(&contract("audit").to_string());
    installed.wait_for_failure_policy("Ignore");
    assert_eq!(admin().get(SECRET).stored()["data"], broken);
}

#[test]
fn a_registration_of_another_installation_is_let_alone() {
    let Some(installed) = Installed::running(&contract("audit"), &[]) else { return };
    let foreign = [
        json!({"service": {"name": "gpufence", "namespace": "elsewhere", "path": "/validate", "port": 443}}),
        json!({"url": "https://gpufence.example.com/validate"}),
    ];
    for client in foreign {
        // By the contract of this installation it would be disarmed.
        change(
            "validating",
            &json!([
                {"op": "replace", "path": "/webhooks/0/clientConfig", "value": client},
                {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
                {"op": "add", "path": "/metadata/annotations", "value": {TARGET: "Fail"}},
            ]),
        );
        let before = stored("validating");
        std::thread::sleep(ROUNDS);
        assert_eq!(stored("validating"), before, "{}", installed.logs());
        let output = installed.run(&["verify"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text.contains("and not the Service gpufence in the namespace gpufence: it is another"), "{text}");
    }
    said(&installed, "registration", "calls the Service gpufence in the namespace elsewhere");
    said(&installed, "registration", "calls a URL");
    // The command for emergencies asks for no owner.
    assert!(installed.run(&["disarm"]).status.success());
    assert_eq!(installed.failure_policy(), "Ignore");
}

#[test]
fn other_webhooks_in_a_registration_are_let_alone_wherever_they_stand() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    let foreign = json!({
        "name": "first.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://first.example.com/"},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}],
    });
    change("validating", &json!([{"op": "add", "path": "/webhooks/0", "value": foreign}]));
    let wiped = json!([
        {"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"},
        {"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Ignore"},
    ]);
    change("validating", &wiped);
    installed.wait_for_failure_policy("Fail");
    wait_until_refused(&installed, &web, ACT);
    let hooks = stored("validating")["webhooks"].take();
    assert_eq!((&hooks[0]["clientConfig"], &hooks[0]["failurePolicy"]), (&foreign["clientConfig"], &json!("Ignore")));
}

/// Half of an installation may be gone when it has to be out of the way.
#[test]
fn disarm_does_what_is_left_to_do_and_tells_all_of_it() {
    let Some(installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let hooks = stored("validating")["webhooks"].as_array().unwrap().len();
    for index in 0..hooks {
        let path = format!("/webhooks/{index}/failurePolicy");
        change("validating", &json!([{"op": "replace", "path": path, "value": "Fail"}]));
    }
    admin().delete(&configuration("mutating")).stored();
    let disarmed = installed.run(&["disarm"]);
    assert!(disarmed.status.success(), "{disarmed:?}");
    assert_eq!(
        String::from_utf8(disarmed.stdout).unwrap(),
        "ValidatingWebhookConfiguration gpufence: failurePolicy is Ignore\n\
         there is no MutatingWebhookConfiguration gpufence; apply the output of `gpufence manifests`\n"
    );
    let policies = stored("validating")["webhooks"].take();
    assert!(policies.as_array().unwrap().iter().all(|hook| hook["failurePolicy"] == "Ignore"), "{policies:#}");

    admin().delete(&configuration("validating")).stored();
    for command in ["arm", "disarm"] {
        let nothing = installed.run(&[command]);
        assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
        let said = String::from_utf8(nothing.stderr).unwrap();
        assert!(said.contains("there is no ValidatingWebhookConfiguration gpufence"), "{said}");
    }
}

/// The controller's Deployment is the same for every source of certificates, so that no new one is started.
#[test]
fn a_controller_follows_the_contract_from_files_to_its_own_ca() {
    let folder = cluster().folder("to-managed");
    let certificates = Certificates::make(&folder, "gpufence.gpufence.svc");
    let authority = folder.join("ca.crt");
    std::fs::write(&authority, &certificates.authority).unwrap();
    let options = ["--tls", "files", "--ca-file", authority.to_str().unwrap()];
    let contract = contract("enforce");
    let Some(mut installed) = Installed::apply(&contract, &options) else { return };
    installed.start_controller();
    poll::until("it leads", ACT, || log_line(&installed.controllers[0], "lead"));
    installed.reapply(&contract, &[]);
    installed.start_replica();
    installed.wait_for_bundle();
    installed.wait_for_failure_policy("Fail");
}

#[test]
fn what_the_controller_needs_and_has_not_is_said() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let lease = "/apis/coordination.k8s.io/v1/namespaces/gpufence/leases/gpufence-controller";
    admin().delete(lease).stored();
    installed.start_controller();
    said(&installed, "round", "there is no Lease gpufence-controller in the namespace gpufence; apply the output of");
    installed.reapply(&contract("enforce"), &[]);
    installed.start_replica();
    installed.wait_for_failure_policy("Fail");

    admin().delete(SECRET).stored();
    said(&installed, "round", "there is no Secret gpufence-ca in the namespace gpufence; apply the output of");
    // A role that somebody took away.
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpufence-probe/rolebindings/gpufence-controller";
    admin().delete(role).stored();
    installed.reapply(&contract("enforce"), &[]);
    let hooks = stored("validating")["webhooks"].take();
    let index = hooks.as_array().unwrap().iter().position(|hook| hook["name"] == VALIDATE).unwrap();
    admin().delete(role).stored();
    let ignored = json!([{"op": "replace", "path": format!("/webhooks/{index}/failurePolicy"), "value": "Ignore"}]);
    change("validating", &ignored);
    said(&installed, "failurePolicy", "cannot create resource \"pods\"");
    assert_eq!(installed.failure_policy(), "Ignore");
}

/// One that has lost the API server serves by a CA of which nothing is left. The others need theirs to be trusted.
#[test]
fn a_replica_that_nobody_can_trust_keeps_none_from_being_trusted() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let line = Line::to(&cluster().started.as_ref().unwrap().url);
    installed.start_controller();
    installed.way = Some(line.url());
    installed.start_replica();
    installed.way = None;
    installed.start_replica();
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    line.cut();
    installed.controllers.remove(0).terminate(Duration::from_secs(12));
    replace_data(&json!({}));
    for kind in ["validating", "mutating"] {
        change(kind, &json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]));
    }
    installed.start_controller();
    poll::until("the new CA is trusted", ACT, || {
        let trusted = ["validating", "mutating"].iter().all(|kind| !bundle(kind).is_empty());
        if trusted { Ok(()) } else { Err(installed.logs()) }
    });
    installed.lose_replica(0);
    wait_until_refused(&installed, &web, ACT);
}
