//! The alert rules speak of metrics that there are.

use std::collections::BTreeSet;
use std::path::Path;

use gpufence::telemetry::metrics::{AuditNumbers, Metrics, PoolNumbers};
use serde_json::Value;

fn rules() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/alerts.yaml");
    let object: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!((&object["kind"], &object["metadata"]["name"]), (&"PrometheusRule".into(), &"gpufence".into()));
    object["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
}

/// The names in an expression that are ours.
fn metrics_in(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("gpufence_")).collect()
}

#[test]
fn every_metric_of_an_alert_is_exported() {
    let (metrics, controller) = Metrics::for_controller();
    // A family shows itself with its first series.
    metrics.contract_in_force("0", "audit", 0);
    metrics.ca_certificate_expires(0);
    metrics.namespace_labels_current(0);
    metrics.nodes_current(0);
    metrics.exemptions_in_force([("any", Some(0))].into_iter());
    metrics.audits_every(Some(60));
    metrics.audit_found(&AuditNumbers { pools: vec![PoolNumbers::default()], ..AuditNumbers::default() });
    controller.armed("validate", true, true);
    controller.probed("refused");
    controller.match_conditions_current(true);
    controller.replicas_trusted(true);
    let text = metrics.encode().unwrap();
    // The text format writes a counter's and an info's own ending in their names.
    let known: BTreeSet<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let rules = rules();
    assert!(rules.len() >= 10, "{}", rules.len());
    let mut seen = BTreeSet::new();
    for rule in &rules {
        let expression = rule["expr"].as_str().unwrap();
        for metric in metrics_in(expression) {
            let plain = metric.trim_end_matches("_total").trim_end_matches("_info");
            assert!(
                known.contains(metric) || known.contains(plain),
                "{metric} of {} is not in {known:#?}",
                rule["alert"]
            );
            seen.insert(metric);
        }
    }
    assert!(seen.len() >= 10, "{seen:?}");
}

#[test]
fn every_alert_says_what_is_wrong_and_what_to_do() {
    let mut names = BTreeSet::new();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        assert!(name.starts_with("Gpufence") && names.insert(name.clone()), "{name}");
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].as_str().is_some_and(|text| text.ends_with('.')), "{name} {text}");
        }
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
    }
}
