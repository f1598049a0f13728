use serde_json::{Value, json};

use super::*;
use crate::policy::{Allowlist, Effect, Patterns, Taint};

fn pool(name: &str, labels: &[(&str, &str)], value: &str, effects: &[Effect]) -> Pool {
    let taint = |effect: &Effect| Taint { key: "dedicated".to_owned(), value: value.to_owned(), effect: *effect };
    Pool {
        name: name.to_owned(),
        resources: Patterns::new(vec!["nvidia.com/gpu".to_owned()]).unwrap(),
        taints: effects.iter().map(taint).collect(),
        node_selector: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        namespaces: Allowlist::default(),
        models: None,
        priority_class_name: None,
        markers: crate::policy::Markers::default(),
    }
}

fn pools() -> [Pool; 2] {
    [
        pool("any", &[("accelerator", "nvidia")], "gpu", &[Effect::NoSchedule]),
        pool("h100", &[("accelerator", "nvidia"), ("model", "h100")], "h100", &[Effect::NoSchedule, Effect::NoExecute]),
    ]
}

fn verdict(labels: &Value, taints: &Value, capacity: &Value) -> Option<Result<(), (String, String)>> {
    let node = json!({
        "metadata": {"name": "node", "labels": labels},
        "spec": {"taints": taints},
        "status": {"capacity": capacity},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    let judged = judge(&node, &pools())?;
    Some(judged.map_err(|check| (check.message, check.hint.unwrap_or_default())))
}

#[test]
fn a_node_that_has_nothing_to_do_with_gpus_is_no_ones() {
    let tainted = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    for capacity in [json!({"cpu": "8"}), json!({"cpu": "8", "nvidia.com/gpu": "0"}), json!({"amd.com/gpu": "1"})] {
        assert_eq!(verdict(&json!({}), &json!([]), &capacity), None);
        // The taint alone may be anybody's.
        assert_eq!(verdict(&json!({}), &tainted, &capacity), None);
    }
}

#[test]
fn a_node_is_right_by_the_closest_pool_and_by_any() {
    let (gpus, none) = (json!({"nvidia.com/gpu": "8"}), json!({}));
    let gpu = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    let h100 = json!([
        {"key": "dedicated", "value": "h100", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "h100", "effect": "NoExecute"},
    ]);
    let model = json!({"accelerator": "nvidia", "model": "h100"});
    for capacity in [&gpus, &none] {
        assert_eq!(verdict(&json!({"accelerator": "nvidia"}), &gpu, capacity), Some(Ok(())));
        assert_eq!(verdict(&model, &h100, capacity), Some(Ok(())));
    }
    let half = json!([{"key": "dedicated", "value": "h100", "effect": "NoSchedule"}]);
    let (message, hint) = verdict(&model, &half, &gpus).unwrap().unwrap_err();
    assert_eq!(
        message,
        "the node node of the pool h100 lacks the taint dedicated=h100:NoExecute: any pod may run on it"
    );
    assert_eq!(hint, "kubectl taint node node dedicated=h100:NoExecute");
}

#[test]
fn what_a_node_lacks_is_named_with_the_command() {
    let gpus = json!({"nvidia.com/gpu": "8"});
    let gpu = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    let told = |labels: Value, taints: &Value| verdict(&labels, taints, &gpus).unwrap().unwrap_err();
    assert_eq!(
        told(json!({}), &gpu),
        (
            "the node node has GPUs and the taints of the pool any, and lacks its label accelerator=nvidia: no GPU pod \
             finds it"
                .to_owned(),
            "kubectl label node node accelerator=nvidia".to_owned()
        )
    );
    assert_eq!(
        told(json!({}), &json!([])),
        (
            "the node node offers nvidia.com/gpu and belongs to no pool: it has neither the label accelerator=nvidia nor \
             the taint dedicated=gpu:NoSchedule"
                .to_owned(),
            "kubectl label node node accelerator=nvidia && kubectl taint node node dedicated=gpu:NoSchedule".to_owned()
        )
    );
    // Another value, or an effect that only asks politely, is another taint.
    for (value, effect) in [("cpu", "NoSchedule"), ("gpu", "PreferNoSchedule")] {
        let other = json!([{"key": "dedicated", "value": value, "effect": effect}]);
        let (message, _) = told(json!({"accelerator": "nvidia"}), &other);
        assert!(message.contains("lacks the taint dedicated=gpu:NoSchedule"), "{message}");
    }
}
