//! The PodTolerationRestriction plugin, which some clusters run behind every mutating webhook. It merges
//! a pod's tolerations with those of its namespace, and one that covers another swallows it. Later
//! updates it compares with the merged list and refuses what differs: a pod that holds the exact
//! toleration beside a wider one can never be updated again. `injection.whenTolerated: skip` is for
//! those clusters.
//!
//! The plugin is modelled here (`pkg/util/tolerations`), and the model is scored against Kubernetes' own
//! outcome.

use gpufence::policy::{Kind, Phase};
use serde_json::{Value, json};

use crate::support::{Form, Request, cases, policy};

/// A field of a toleration or a taint, empty where it is absent.
fn field<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// `isSuperset`: whether the one tolerates all that the other does.
fn is_superset(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    // A wildcard key needs `Exists`.
    let any_key = field(wide, "key").is_empty() && field(wide, "operator") == "Exists";
    if !any_key && field(wide, "key") != field(narrow, "key") {
        return false;
    }
    if !field(wide, "effect").is_empty() && field(wide, "effect") != field(narrow, "effect") {
        return false;
    }
    if field(wide, "effect") == "NoExecute"
        && let Some(stay) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|needed| stay < needed)
    {
        return false;
    }
    match field(wide, "operator") {
        // The one without an operator is no `Equal` here.
        "" | "Equal" => field(narrow, "operator") == "Equal" && field(wide, "value") == field(narrow, "value"),
        "Exists" => true,
        _ => false,
    }
}

/// `MergeTolerations`: both lists, without what another one covers.
fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    let all: Vec<_> = first.iter().chain(second).collect();
    for (index, toleration) in all.iter().enumerate() {
        let kept = merged.iter().any(|kept| is_superset(kept, toleration));
        let swallowed = all[index + 1..].iter().any(|later| later != toleration && is_superset(later, toleration));
        if !kept && !swallowed {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// `VerifyAgainstWhitelist`: an empty list allows everything.
fn passes_whitelist(tolerations: &[Value], whitelist: &[Value]) -> bool {
    whitelist.is_empty()
        || tolerations.iter().all(|toleration| whitelist.iter().any(|allowed| is_superset(allowed, toleration)))
}

/// `MatchToleration` and `MatchTaint`: the same by the fields that make an identity.
fn same(one: &Value, other: &Value, identity: &[&str]) -> bool {
    identity.iter().all(|name| field(one, name) == field(other, name))
}

#[test]
fn the_model_decides_as_kubernetes_does() {
    let mut judged = [0; 5];
    for case in cases("tolerations.jsonl") {
        let id = &case["id"];
        let kind = match case["kind"].as_str().unwrap() {
            "toleration_superset" => {
                let found = is_superset(&case["superset"], &case["subset"]);
                assert_eq!(Some(found), case["is_superset"].as_bool(), "{id}");
                0
            }
            "merge_tolerations" => {
                assert_eq!(merge(&list(&case["first"]), &list(&case["second"])), list(&case["merged"]), "{id}");
                1
            }
            "whitelist_check" => {
                let found = passes_whitelist(&list(&case["tolerations"]), &list(&case["whitelist"]));
                assert_eq!(Some(found), case["allowed"].as_bool(), "{id}");
                2
            }
            "match_toleration" => {
                let identity = ["key", "operator", "value", "effect"];
                let found = same(&case["toleration"], &case["other_toleration"], &identity);
                assert_eq!(Some(found), case["match"].as_bool(), "{id}");
                3
            }
            "match_taint" => {
                let found = same(&case["taint"], &case["other_taint"], &["key", "effect"]);
                assert_eq!(Some(found), case["match"].as_bool(), "{id}");
                4
            }
            _ => continue,
        };
        judged[kind] += 1;
    }
    assert_eq!(judged, [138, 2, 6, 4, 1]);
}

/// The tolerations of a GPU pod behind the mutating webhook.
fn after_mutation(when_tolerated: &str, tolerations: &Value) -> Vec<Value> {
    let policy =
        policy(&Form::Dedicated.yaml(&["ml-team"], &format!("injection: {{whenTolerated: {when_tolerated}}}")));
    let containers = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    let mut pod = json!({"spec": {"containers": containers, "tolerations": tolerations}});
    let text = pod.to_string();
    let object = Kind::Pod.read(&text).unwrap();
    let request = Request { namespace: "ml-team", username: "someone", groups: &[], object: &object, old: None };
    let decision = request.decide(&policy, Phase::Mutating);
    json_patch::patch(&mut pod, &decision.injection.unwrap().patch).unwrap();
    list(&pod["spec"]["tolerations"])
}

#[test]
fn the_plugin_leaves_alone_what_skip_returns_and_swallows_what_add_adds() {
    let other = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
    for wide in [
        json!({"operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "dedicated", "operator": "Exists"}),
        json!({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "dedicated", "operator": "Equal", "value": "gpu"}),
        json!({"key": "dedicated", "value": "gpu"}),
    ] {
        for given in [json!([wide]), json!([wide, other]), json!([other, wide])] {
            let skipped = after_mutation("skip", &given);
            assert_eq!(skipped, list(&given), "a wider toleration is enough");
            assert_eq!(merge(&skipped, &[]), skipped, "the plugin changes nothing");

            let added = after_mutation("add", &given);
            assert_eq!(added.len(), list(&given).len() + 1, "the exact toleration is added beside a wider one");
            assert_eq!(merge(&added, &[]), list(&given), "the plugin swallows it");
        }
    }
    // Without a wider one, both choices add the exact toleration, and the plugin keeps it.
    for when_tolerated in ["skip", "add"] {
        for given in [json!(null), json!([]), json!([other])] {
            let after = after_mutation(when_tolerated, &given);
            assert_eq!(after.len(), list(&given).len() + 1, "{when_tolerated}");
            assert_eq!(merge(&after, &[]), after, "{when_tolerated}");
        }
    }
}

/// The plugin also puts the namespace's own list in front, and checks against the namespace's whitelist.
#[test]
fn what_is_added_doubles_nothing_and_must_be_on_the_whitelist() {
    let exact = [json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})];
    let after = after_mutation("add", &json!(null));
    assert_eq!(after, exact);
    assert_eq!(merge(&exact, &after), exact);
    assert!(passes_whitelist(&after, &exact));
    assert!(passes_whitelist(&after, &[json!({"key": "dedicated", "operator": "Exists"})]));
    assert!(!passes_whitelist(&after, &[json!({"key": "other", "operator": "Exists"})]));
}
