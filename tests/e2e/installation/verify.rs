use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::installed::{Installed, configuration, contract};
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
    for id in ["registration", "replicas", "certificate", "contract", "ordinary-pod", "refused-pod", "gpu-pod", "nodes"]
    {
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
