use gpufence::policy::Kind;
use serde_json::{Value, json};

/// Whether a pod with this spec selects a node named `gpu-1` with the labels `zone=a` and `cores=64`.
fn selects(spec: &Value) -> bool {
    let json = json!({"kind": "Pod", "spec": spec}).to_string();
    let object = Kind::Pod.read(&json).unwrap();
    object.pod.spec.selects_node("gpu-1", |key| match key {
        "zone" => Some("a"),
        "cores" => Some("64"),
        _ => None,
    })
}

fn required(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

#[test]
fn a_node_selector_wants_each_label_with_its_value() {
    for (selector, expected) in [
        (json!({}), true),
        (json!({"zone": "a"}), true),
        (json!({"zone": "a", "cores": "64"}), true),
        (json!({"zone": "b"}), false),
        (json!({"zone": "a", "cores": "32"}), false),
        (json!({"zone": ""}), false),
        (json!({"rack": ""}), false),
    ] {
        assert_eq!(selects(&json!({"nodeSelector": selector})), expected, "{selector}");
    }
    assert!(selects(&json!({})));
    assert!(selects(&json!({"nodeSelector": null, "affinity": {"nodeAffinity": null}})));
}

/// Each operator as `labels.Requirement.Matches` of apimachinery has it, and as its constructor refuses it.
#[test]
fn an_expression_admits_what_the_scheduler_admits() {
    for (key, operator, values, expected) in [
        ("zone", "In", &["a", "b"][..], true),
        ("zone", "In", &["b"], false),
        ("zone", "In", &[], false),
        ("rack", "In", &["a"], false),
        ("zone", "NotIn", &["b"], true),
        ("zone", "NotIn", &["a"], false),
        ("rack", "NotIn", &["a"], true),
        ("rack", "NotIn", &[], false),
        ("zone", "Exists", &[], true),
        ("rack", "Exists", &[], false),
        ("zone", "Exists", &["a"], false),
        ("zone", "DoesNotExist", &[], false),
        ("rack", "DoesNotExist", &[], true),
        ("rack", "DoesNotExist", &["a"], false),
        ("cores", "Gt", &["63"], true),
        ("cores", "Gt", &["64"], false),
        ("cores", "Gt", &["063"], true),
        ("cores", "Lt", &["65"], true),
        ("cores", "Lt", &["64"], false),
        ("cores", "Gt", &["63", "1"], false),
        ("cores", "Gt", &[], false),
        ("cores", "Gt", &["few"], false),
        ("zone", "Gt", &["1"], false),
        ("rack", "Lt", &["1"], false),
        ("zone", "in", &["a"], false),
        ("zone", "", &["a"], false),
    ] {
        let spec = required(&json!([{"matchExpressions": [expression(key, operator, values)]}]));
        assert_eq!(selects(&spec), expected, "{key} {operator} {values:?}");
    }
}

#[test]
fn terms_are_alternatives_and_expressions_add_up() {
    let (yes, no) = (expression("zone", "In", &["a"]), expression("zone", "In", &["b"]));
    let name = |operator: &str, values: &[&str]| expression("metadata.name", operator, values);
    for (terms, expected) in [
        (json!([]), false),
        (json!([{}]), false),
        (json!([{"matchExpressions": [], "matchFields": []}]), false),
        (json!([{}, {"matchExpressions": [yes]}]), true),
        (json!([{"matchExpressions": [no]}, {"matchExpressions": [yes]}]), true),
        (json!([{"matchExpressions": [no, yes]}]), false),
        (json!([{"matchExpressions": [yes, yes]}]), true),
        (json!([{"matchFields": [name("In", &["gpu-1"])]}]), true),
        (json!([{"matchFields": [name("In", &["gpu-2"])]}]), false),
        (json!([{"matchFields": [name("NotIn", &["gpu-2"])]}]), true),
        (json!([{"matchFields": [name("NotIn", &["gpu-1"])]}]), false),
        (json!([{"matchFields": [name("In", &["gpu-1", "gpu-2"])]}]), false),
        (json!([{"matchFields": [name("Exists", &[])]}]), false),
        (json!([{"matchFields": [expression("metadata.uid", "In", &["gpu-1"])]}]), false),
        (json!([{"matchFields": [name("In", &["gpu-1"])], "matchExpressions": [no]}]), false),
        (json!([{"matchFields": [name("In", &["gpu-1"])], "matchExpressions": [yes]}]), true),
    ] {
        assert_eq!(selects(&required(&terms)), expected, "{terms}");
    }
    let mut both = required(&json!([{"matchExpressions": [yes]}]));
    both["nodeSelector"] = json!({"zone": "b"});
    assert!(!selects(&both), "the nodeSelector and the affinity must both admit it");
}
