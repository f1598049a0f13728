//! Which tolerations tolerate which taints, against Kubernetes' own functions.

use gpufence::policy::{ComparisonOperators, Effect, NodeTaint, Taint, Toleration};
use serde_json::Value;

use crate::support::cases;

fn read<T: serde::de::Deserialize<'static>>(case: &Value) -> T {
    serde_json::from_str(Box::leak(case.to_string().into_boxed_str())).unwrap()
}

fn toleration(case: &Value) -> Toleration<'static> {
    read(case)
}

fn taint(case: &Value) -> NodeTaint<'static> {
    read(case)
}

fn comparison(case: &Value) -> ComparisonOperators {
    if case["comparison_operators_gate"] == true { ComparisonOperators::Known } else { ComparisonOperators::Unknown }
}

#[test]
fn one_toleration_against_one_taint() {
    let mut judged = 0;
    for case in cases("tolerations.jsonl").iter().filter(|case| case["kind"] == "toleration_vs_taint") {
        let tolerates = toleration(&case["toleration"]).tolerates_on_node(&taint(&case["taint"]), comparison(case));
        assert_eq!(Some(tolerates), case["tolerates"].as_bool(), "{}", case["id"]);
        judged += 1;
    }
    assert!(judged > 200, "{judged}");
}

#[test]
fn a_pods_tolerations_against_a_nodes_taints() {
    let mut judged = 0;
    for case in cases("tolerations.jsonl").iter().filter(|case| case["kind"] == "tolerations_vs_taints") {
        let counts = |effect: &str| match case["taint_filter"].as_str().unwrap() {
            "all" => true,
            "none" => false,
            "effect==NoExecute" => effect == "NoExecute",
            "effect==PreferNoSchedule" => effect == "PreferNoSchedule",
            "effect in (NoSchedule,NoExecute)" => matches!(effect, "NoSchedule" | "NoExecute"),
            other => panic!("{other}"),
        };
        let tolerations: Vec<_> = case["tolerations"].as_array().unwrap().iter().map(toleration).collect();
        let taints = case["taints"].as_array().unwrap().iter().map(taint);
        let tolerated = taints
            .filter(|taint| counts(&taint.effect))
            .all(|taint| tolerations.iter().any(|toleration| toleration.tolerates_on_node(&taint, comparison(case))));
        assert_eq!(Some(tolerated), case["tolerated"].as_bool(), "{}", case["id"]);
        judged += 1;
    }
    assert!(judged > 30, "{judged}");
}

/// A toleration that covers another (`isSuperset` of the PodTolerationRestriction plugin) tolerates at
/// least what the other does.
#[test]
fn what_covers_a_toleration_tolerates_as_much() {
    let values = ["", "bar", "baz"];
    let taints: Vec<_> = ["foo", "faz"]
        .into_iter()
        .flat_map(|key| values.map(|value| (key, value)))
        .flat_map(|(key, value)| Effect::ALL.map(|effect| Taint { key: key.into(), value: value.into(), effect }))
        .collect();
    for case in cases("tolerations.jsonl").iter().filter(|case| case["is_superset"] == true) {
        let (superset, subset) = (toleration(&case["superset"]), toleration(&case["subset"]));
        for taint in taints.iter().filter(|taint| subset.tolerates(taint)) {
            assert!(superset.tolerates(taint), "{}: {taint}", case["id"]);
        }
    }
}

#[test]
fn the_exact_toleration_is_known_with_and_without_its_operator() {
    let taint = Taint { key: "dedicated".into(), value: "gpu".into(), effect: Effect::NoSchedule };
    let exact = |json: &'static str| serde_json::from_str::<Toleration<'_>>(json).unwrap().is_exact_for(&taint);
    assert!(exact(r#"{"key":"dedicated","operator":"Equal","value":"gpu","effect":"NoSchedule"}"#));
    assert!(exact(r#"{"key":"dedicated","value":"gpu","effect":"NoSchedule"}"#));
    assert!(exact(r#"{"key":"dedicated","operator":null,"value":"gpu","effect":"NoSchedule"}"#));
    assert!(!exact(r#"{"key":"dedicated","operator":"Exists","effect":"NoSchedule"}"#));
    assert!(!exact(r#"{"key":"dedicated","value":"gpu"}"#));
    assert!(!exact(r#"{"key":"dedicated","value":"gpu","effect":"NoSchedule","tolerationSeconds":1}"#));
}
