use std::time::Instant;

use super::*;
use crate::audit::Finding;
use crate::audit::ObjectRef;
use crate::audit::snapshot::Builder;

fn contract(yaml: &str) -> Contract {
    Contract::read(std::path::Path::new("contract.yaml"), yaml.as_bytes(), []).unwrap()
}

fn finding(rule: Check, severity: Severity) -> Finding {
    Finding::new(rule, severity, ObjectRef::new("v1", "Node", "", "gpu-1"), "found", "do")
}

#[test]
fn every_rule_and_severity_has_a_number_and_nothing_else() {
    let policy = contract("").policy;
    let mut audit = audit::audit(&policy, &Builder::new(&policy).finish(), "nowhere", 0);
    audit.findings = vec![
        finding(Check::NodeWithoutTaint, Severity::High),
        finding(Check::NodeWithoutTaint, Severity::High),
        finding(Check::NodeWithoutTaint, Severity::Low),
    ];
    audit.summary.drifted_nodes = 4;
    audit.gaps = vec!["a".to_owned(), "b".to_owned()];
    audit.pools = vec![PoolAccount {
        name: "nvidia".to_owned(),
        nodes: 3,
        gpus: Gpus { allocatable: 8, requested: 5, free: 2, blocked: 2, out_of_use: 1 },
        ordinary_pods: 6,
        ..PoolAccount::default()
    }];
    let numbers = numbers(&audit);
    assert_eq!(numbers.findings.len(), Check::all().count() * Severity::WORST_FIRST.len());
    let other: u64 = numbers.findings.iter().map(|finding| finding.count).sum();
    let count = |severity: &str| {
        let found = numbers.findings.iter().find(|own| own.rule == "node-without-taint" && own.severity == severity);
        found.unwrap().count
    };
    assert_eq!((count("high"), count("low"), count("info"), other), (2, 1, 0, 3));
    assert_eq!((numbers.drifted_nodes, numbers.gaps), (4, 2));
    let gpus = [("allocatable", 8), ("requested", 5), ("free", 2), ("blocked", 2), ("out-of-use", 1)];
    assert_eq!(numbers.pools, [PoolNumbers { pool: "nvidia".to_owned(), nodes: 3, ordinary_pods: 6, gpus }]);
}

#[test]
fn a_line_of_the_log_has_room_for_a_few() {
    let all: Vec<_> = (1..=7).map(|number| format!("gap {number}")).collect();
    assert_eq!(listed(&all[..0]), "");
    assert_eq!(listed(&all[..2]), "gap 1; gap 2");
    assert_eq!(listed(&all), "gap 1; gap 2; gap 3; gap 4; gap 5; and 2 more");
}

#[test]
fn an_order_is_what_the_contract_says() {
    let off = order(&contract(""));
    assert_eq!((off.interval, off.wanted.reports), (Duration::ZERO, None));
    let on = order(&contract("audit: {interval: 6h, reports: policyreports}"));
    assert_eq!((on.interval, on.wanted.reports), (Duration::from_secs(6 * 3600), Some(ReportForm::PolicyReports)));
    let other = order(&contract("audit: {interval: 1m, reports: openreports}"));
    assert_eq!((other.interval, other.wanted.reports), (Duration::from_secs(60), Some(ReportForm::OpenReports)));
}

#[tokio::test]
async fn a_process_that_never_audits_ends_without_waiting() {
    let (orders, ordered) = watch::channel(order(&contract("")));
    let (mut tasks, shutdown) = (Tasks::new(), Shutdown::new());
    let metrics = Arc::new(Metrics::new());
    let ending = spawn(&mut tasks, Arc::default(), "gpufence", ordered, metrics, shutdown.clone());
    yield_now().await;
    let began = Instant::now();
    shutdown.drain();
    ending.wait().await;
    assert!(began.elapsed() < GIVEN_BACK / 2, "{:?}", began.elapsed());
    drop(orders);
}
