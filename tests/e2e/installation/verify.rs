use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::installed::{ACT, Installed, configuration, contract, with_selector};
use crate::poll;
use crate::requests::LABEL;

/// What `gpufence verify` finds: its exit code, and each check with its outcome.
fn verify(installed: &Installed, options: &[&str]) -> (i32, Vec<(String, String, String)>) {
    let arguments = [&["verify", "--output", "json"], options].concat();
    let output = installed.run(&arguments);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let checks = report["checks"].as_array().unwrap().iter();
    let checks: Vec<_> =
        checks.map(|check| (text(check, "id"), text(check, "outcome"), text(check, "message"))).collect();
    let failed = checks.iter().any(|(_, outcome, _)| outcome == "failed");
    assert_eq!(report["passed"], !failed);
    (output.status.code().unwrap(), checks)
}

fn outcome<'a>(checks: &'a [(String, String, String)], id: &str) -> Vec<(&'a str, &'a str)> {
    let named = checks.iter().filter(|(known, ..)| known == id);
    named.map(|(_, outcome, message)| (outcome.as_str(), message.as_str())).collect()
}

fn gpu_node(name: &str, labels: &Value, taints: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
    })
}

fn with_gpus(node: &Value) {
    let status = json!({"status": {"capacity": {"cpu": "8", "nvidia.com/gpu": "8"}}});
    admin().patch(Patch::Merge, &format!("{}/status", path(node)), &status).stored();
}

#[test]
fn a_sound_installation_passes_and_each_fault_is_found() {
    let Some(mut installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let ml = installed.namespace("ml", &json!({}));
    let taint = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    let good = gpu_node(&format!("good-{ml}"), &json!({LABEL: "nvidia"}), &taint);
    installed.make(&good);
    with_gpus(&good);
    let only = ["--gpu-namespace", ml.as_str()];

    let (code, checks) = verify(&installed, &only);
    assert_eq!(code, 0, "{checks:#?}");
    assert!(checks.iter().all(|(_, outcome, _)| outcome == "passed"), "{checks:#?}");
    for id in [
        "registration",
        "exclusions",
        "ca",
        "replicas",
        "certificate",
        "contract",
        "ordinary-pod",
        "refused-pod",
        "nodes",
    ] {
        assert!(!outcome(&checks, id).is_empty(), "{id}: {checks:#?}");
    }
    let text = String::from_utf8(installed.run(&[&["verify"], &only[..]].concat()).stdout).unwrap();
    assert!(text.ends_with("0 failed, 0 skipped\n"), "{text}");
    assert!(
        text.starts_with("ok    ValidatingWebhookConfiguration gpufence: caBundle set, failurePolicy Fail\n"),
        "{text}"
    );

    // A node that lacks its taint, and one that belongs to no pool.
    let untainted = gpu_node(&format!("untainted-{ml}"), &json!({LABEL: "nvidia"}), &json!([]));
    let stray = gpu_node(&format!("stray-{ml}"), &json!({}), &json!([]));
    for node in [&untainted, &stray] {
        installed.make(node);
        with_gpus(node);
    }
    let (code, checks) = verify(&installed, &only);
    let nodes = outcome(&checks, "nodes");
    assert_eq!((code, nodes.iter().filter(|(outcome, _)| *outcome == "failed").count()), (1, 2), "{checks:#?}");
    assert!(nodes[1].1.contains("lacks the taint dedicated=gpu:NoSchedule: any pod may run on it"), "{nodes:#?}");
    for node in [&untainted, &stray] {
        admin().delete(&path(node)).stored();
    }

    // A webhook that is registered and gone.
    installed.stop_replicas();
    let (code, checks) = verify(&installed, &only);
    assert_eq!(code, 1);
    assert_eq!(outcome(&checks, "replicas")[0].0, "failed", "{checks:#?}");
    assert_eq!(outcome(&checks, "refused-pod")[0].0, "failed", "{checks:#?}");

    // No registration at all.
    for kind in ["validating", "mutating"] {
        admin().delete(&configuration(kind)).stored();
    }
    let (code, checks) = verify(&installed, &only);
    assert_eq!(code, 1);
    assert_eq!(outcome(&checks, "registration").iter().filter(|(outcome, _)| *outcome == "failed").count(), 2);
    assert_eq!(outcome(&checks, "gpu-pod")[0].0, "failed", "{checks:#?}");
}

#[test]
fn audit_only_passes_as_audit_only() {
    let Some(installed) = Installed::running(&contract("enforce"), &["--audit-only"]) else { return };
    let ml = installed.namespace("ml", &json!({}));
    let (code, checks) = verify(&installed, &["--gpu-namespace", &ml]);
    assert_eq!(code, 0, "{checks:#?}");
    assert_eq!(
        outcome(&checks, "refused-pod"),
        [("skipped", "nothing is refused: the webhook is registered as audit only")]
    );
    assert_eq!(outcome(&checks, "gpu-pod")[0].0, "passed", "{checks:#?}");
}

#[test]
fn what_is_not_installed_is_said() {
    let Some(installed) = Installed::apply(&contract("audit"), &[]) else { return };
    let output = installed.run(&["verify", "--namespace", "elsewhere"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is no ConfigMap gpufence in the namespace elsewhere"), "{said}");
    assert!(said.contains("gpufence manifests"), "{said}");
}

#[test]
fn an_installation_in_another_namespace_works_and_passes() {
    let namespace = format!("fence-{}", crate::cluster::cluster().unique());
    let options = ["--namespace", namespace.as_str()];
    let Some(installed) = Installed::running(&contract("enforce"), &options) else { return };
    installed.wait_for_failure_policy("Fail");
    let ml = installed.namespace("ml", &json!({}));
    let (code, checks) = verify(&installed, &[&options[..], &["--gpu-namespace", &ml]].concat());
    assert_eq!(code, 0, "{checks:#?}");
    for id in ["registration", "replicas", "certificate", "contract", "ordinary-pod", "refused-pod", "gpu-pod"] {
        let found = outcome(&checks, id);
        assert!(!found.is_empty() && found.iter().all(|(outcome, _)| *outcome == "passed"), "{id}: {checks:#?}");
    }
}

#[test]
fn whoever_may_not_ask_is_told_so() {
    let Some(installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let contract = crate::cluster::cluster().folder(&crate::cluster::cluster().unique()).join("contract.yaml");
    std::fs::write(&contract, crate::installed::contract("enforce").to_string()).unwrap();
    // The serving identity may read its Secret and nothing else.
    let output = installed.run_as("gpufence", &["verify", "--config", contract.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, told) = text.split_once("the ValidatingWebhookConfiguration gpufence cannot be read: ").unwrap();
    assert!(told.contains("hint: run this with the rights of a cluster administrator"), "{text}");
    assert!(!text.contains("kubectl apply what"), "{text}");
}

/// With the failurePolicy Ignore a pod that nobody was asked about looks like one that was found to be in order.
#[test]
fn in_audit_it_is_seen_whether_anybody_is_asked() {
    let Some(installed) = Installed::running(&contract("audit"), &[]) else { return };
    let ml = installed.namespace("ml", &json!({}));
    let only = ["--gpu-namespace", ml.as_str()];
    let (code, checks) = verify(&installed, &only);
    assert_eq!(code, 0, "{checks:#?}");
    let path = "/webhooks/0/namespaceSelector/matchExpressions/0/values/-";
    let left_out = json!([{"op": "add", "path": path, "value": ml}]);
    admin().patch(Patch::Json, &configuration("mutating"), &left_out).stored();
    let expected = format!("a GPU pod in the namespace {ml} passes untouched, and no replica was asked about it");
    poll::until("verify sees that nobody is asked", ACT, || {
        let (code, checks) = verify(&installed, &only);
        let seen = code == 1 && outcome(&checks, "gpu-pod") == [("failed", expected.as_str())];
        if seen { Ok(()) } else { Err(format!("{checks:#?}")) }
    });
}

/// What is only named wrongly is not passed over.
#[test]
fn a_namespace_that_was_named_must_be_there() {
    let Some(installed) = Installed::running(&contract("audit"), &[]) else { return };
    let web = installed.namespace("web", &json!({}));
    for options in [["--gpu-namespace", web.as_str()], ["--gpu-namespace", "nope"], ["--ordinary-namespace", "nope"]] {
        let (code, checks) = verify(&installed, &options);
        assert_eq!(code, 1, "{options:?}: {checks:#?}");
    }
}

/// Whoever opened the fence in an emergency is reminded of it.
#[test]
fn a_fence_that_was_disarmed_is_seen() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    assert!(installed.run(&["disarm"]).status.success());
    let (_, checks) = verify(&installed, &[]);
    assert_eq!(
        outcome(&checks, "registration")[0],
        (
            "skipped",
            "ValidatingWebhookConfiguration gpufence: failurePolicy Ignore, and kept there: an outage lets pass what the \
             contract refuses"
        )
    );
}

#[test]
fn what_no_pod_of_the_cluster_may_wait_for_is_checked() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let opened = json!([{"op": "remove", "path": "/webhooks/0/namespaceSelector/matchExpressions"}]);
    admin().patch(Patch::Json, &configuration("validating"), &opened).stored();
    let (code, checks) = verify(&installed, &[]);
    assert_eq!(code, 1, "{checks:#?}");
    assert!(outcome(&checks, "exclusions")[0].1.contains("its namespaceSelector was changed"), "{checks:#?}");
    // And the controller no longer lets an outage count.
    installed.wait_for_failure_policy("Ignore");
}

/// What is left of an installation that was removed in the wrong order still refuses pods.
#[test]
fn registrations_without_an_installation_are_seen() {
    let Some(installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let armed = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]);
    admin().patch(Patch::Json, &configuration("validating"), &armed).stored();
    admin().delete("/api/v1/namespaces/gpufence/configmaps/gpufence").stored();
    let output = installed.run(&["verify"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the ValidatingWebhookConfiguration gpufence is still there with failurePolicy Fail"),
        "{said}"
    );
    assert!(said.contains("gpufence disarm"), "{said}");
}

/// A contract that begins to go by labels needs rights that only the manifests bring.
#[test]
fn labels_that_cannot_be_read_are_seen() {
    let first = contract("enforce");
    let Some(installed) = Installed::running(&first, &[]) else { return };
    let team = with_selector(first);
    installed.mount_contract(&installed.contract_of(&team));
    let in_map = json!({"data": {"contract.yaml": installed.contract_of(&team)}});
    admin().patch(Patch::Merge, "/api/v1/namespaces/gpufence/configmaps/gpufence", &in_map).stored();
    poll::until("verify sees it", ACT, || {
        let (code, checks) = verify(&installed, &[]);
        let labels = outcome(&checks, "namespace-labels");
        let seen = code == 1 && labels.iter().any(|(_, message)| message.contains("has never read the labels"));
        if seen { Ok(()) } else { Err(format!("{checks:#?}")) }
    });
    // With the manifests of the new contract all is well.
    installed.reapply(&team, &[]);
    poll::until("the labels are read", Duration::from_secs(60), || {
        let (_, checks) = verify(&installed, &[]);
        let labels = outcome(&checks, "namespace-labels");
        let well = !labels.is_empty() && labels.iter().all(|(outcome, _)| *outcome == "passed");
        if well { Ok(()) } else { Err(format!("{checks:#?}")) }
    });
}

/// What the contract in force has others judge than pods needs a webhook of its own, which a changed ConfigMap does not bring
/// and anybody may have taken away.
#[test]
fn a_webhook_that_is_not_there_is_seen() {
    let first = contract("enforce");
    let Some(installed) = Installed::running(&first, &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let missing = |hook: &str| {
        format!(
            "ValidatingWebhookConfiguration gpufence has no webhook {hook}, which the contract in force needs: what it would \
             judge goes unseen"
        )
    };
    let registration = || {
        let (code, checks) = verify(&installed, &[]);
        let (outcome, message) = outcome(&checks, "registration")[0];
        (code, outcome.to_owned(), message.to_owned())
    };

    // Never applied: the rule was turned on in the ConfigMap alone.
    let mut guarded = first;
    guarded["rules"] = json!({"lever-change": "deny"});
    guarded["levers"] = json!({"groups": ["system:masters"]});
    let in_map = |contract: &Value| {
        installed.mount_contract(&installed.contract_of(contract));
        let map = json!({"data": {"contract.yaml": installed.contract_of(contract)}});
        admin().patch(Patch::Merge, "/api/v1/namespaces/gpufence/configmaps/gpufence", &map).stored();
    };
    in_map(&guarded);
    assert_eq!(registration(), (1, "failed".to_owned(), missing("levers.validate.gpufence.io")));
    guarded["customResources"] =
        json!([{"group": "argoproj.io", "kind": "Rollout", "resource": "rollouts", "templates": ["$.spec.template"]}]);
    in_map(&guarded);
    assert_eq!(registration(), (1, "failed".to_owned(), missing("customresources.validate.gpufence.io")));

    // Applied, and then taken away.
    installed.reapply(&guarded, &[]);
    installed.wait_for_bundle();
    installed.wait_for_failure_policy("Fail");
    let sound = "ValidatingWebhookConfiguration gpufence: caBundle set, failurePolicy Fail";
    poll::until("verify passes the registration", ACT, || {
        let (_, outcome, message) = registration();
        if (outcome.as_str(), message.as_str()) == ("passed", sound) { Ok(()) } else { Err(message) }
    });
    let hooks = crate::installed::stored("validating")["webhooks"].take();
    for name in ["bindings.validate.gpufence.io", "templates.validate.gpufence.io"] {
        let index = hooks.as_array().unwrap().iter().position(|hook| hook["name"] == name).unwrap();
        let removed = json!([{"op": "remove", "path": format!("/webhooks/{index}")}]);
        admin().patch(Patch::Json, &configuration("validating"), &removed).stored();
        assert_eq!(registration(), (1, "failed".to_owned(), missing(name)));
        let back = json!([{"op": "add", "path": format!("/webhooks/{index}"), "value": hooks[index]}]);
        admin().patch(Patch::Json, &configuration("validating"), &back).stored();
    }
    assert_eq!(registration().1, "passed");
}

/// An apply that stopped half-way leaves one webhook that acts beside one that only watches.
#[test]
fn half_of_a_rollback_is_seen() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    let path = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": "/audit/mutate"}]);
    admin().patch(Patch::Json, &configuration("mutating"), &path).stored();
    let (code, checks) = verify(&installed, &[]);
    let told = "only the MutatingWebhookConfiguration is audit only, and the other webhook acts";
    assert_eq!(code, 1, "{checks:#?}");
    assert!(outcome(&checks, "registration").contains(&("failed", told)), "{checks:#?}");
}

/// What is wrong with the contract in the cluster is a finding like others, and not the end of the program.
#[test]
fn a_contract_with_faults_is_a_failed_check() {
    let Some(installed) = Installed::apply(&contract("audit"), &[]) else { return };
    let broken = json!({"data": {"contract.yaml": "mode: enforced"}});
    admin().patch(Patch::Merge, "/api/v1/namespaces/gpufence/configmaps/gpufence", &broken).stored();
    let (code, checks) = verify(&installed, &[]);
    assert_eq!((code, checks.len()), (1, 1), "{checks:#?}");
    let (outcome, message) = outcome(&checks, "contract")[0];
    assert!(outcome == "failed" && message.contains("enforced"), "{message}");
}

/// With an outage of what is armed, the way out is named first.
#[test]
fn the_way_out_of_an_outage_is_named() {
    let Some(mut installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    installed.stop_replicas();
    let text = String::from_utf8(installed.run(&["verify"]).stdout).unwrap();
    let refused = text.lines().skip_while(|line| !line.starts_with("FAIL  the webhook cannot be called: ")).nth(1);
    assert!(refused.is_some_and(|hint| hint.contains("gpufence disarm")), "{text}");
}
