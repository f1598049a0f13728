use super::*;

fn lines(metrics: &Metrics) -> Vec<String> {
    metrics.encode().unwrap().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn a_fresh_process_shows_its_fixed_series_at_zero() {
    let lines = lines(&Metrics::new());
    for rejection in Rejection::ALL {
        let series = format!("gpufence_http_rejections_total{{reason=\"{}\"}} 0", rejection.as_str());
        assert!(lines.contains(&series), "{series} in {lines:#?}");
    }
    for series in [
        "gpufence_panics_total 0",
        "gpufence_tls_handshake_failures_total 0",
        "gpufence_admission_in_flight 0",
        "gpufence_connections 0",
        "gpufence_certificate_reloads_total{result=\"failure\"} 0",
        concat!("gpufence_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(lines.iter().any(|line| line == series), "{series} in {lines:#?}");
    }
}

#[test]
fn every_label_and_bucket_is_written_as_named() {
    let metrics = Metrics::new();
    metrics.answered(&Request {
        webhook: "validate",
        resource: "pods",
        operation: "CREATE",
        outcome: "denied",
        dry_run: true,
    });
    metrics.decided(&Decision { webhook: "validate", rule: "broad-toleration", action: "deny", dry_run: false });
    metrics.took("mutate", 0.000_3);
    metrics.serving_certificate_expires(1_900_000_000);
    metrics.contract_in_force("old", "audit", 1);
    metrics.contract_in_force("0a1b", "enforce", 1_800_000_000);
    metrics.ca_certificate_expires(2_000_000_000);
    metrics.namespace_looked_up(Lookup::Missing);
    metrics.node_looked_up(Lookup::Error);
    metrics.contract_reloaded(true);
    metrics.contract_reloaded(false);
    let lines = lines(&metrics);
    for series in [
        "gpufence_admission_requests_total{webhook=\"validate\",resource=\"pods\",operation=\"CREATE\",outcome=\"denied\",dry_run=\"true\"} 1",
        "gpufence_decisions_total{webhook=\"validate\",rule=\"broad-toleration\",action=\"deny\",dry_run=\"false\"} 1",
        "gpufence_admission_duration_seconds_bucket{webhook=\"mutate\",le=\"0.00025\"} 0",
        "gpufence_admission_duration_seconds_bucket{webhook=\"mutate\",le=\"0.0005\"} 1",
        "gpufence_admission_duration_seconds_bucket{webhook=\"mutate\",le=\"10\"} 1",
        "gpufence_certificate_not_after_timestamp_seconds{kind=\"serving\"} 1900000000",
        "gpufence_certificate_not_after_timestamp_seconds{kind=\"ca\"} 2000000000",
        "gpufence_contract_info{hash=\"0a1b\",mode=\"enforce\"} 1",
        "gpufence_contract_last_reload_success_timestamp_seconds 1800000000",
        "gpufence_contract_last_reload_successful 0",
        "gpufence_contract_reloads_total{outcome=\"success\"} 1",
        "gpufence_contract_reloads_total{outcome=\"failure\"} 1",
        "gpufence_namespace_lookups_total{outcome=\"missing\"} 1",
        "gpufence_namespace_lookups_total{outcome=\"timeout\"} 0",
        "gpufence_node_lookups_total{outcome=\"error\"} 1",
        "gpufence_node_lookups_total{outcome=\"found\"} 0",
    ] {
        assert!(lines.iter().any(|line| line == series), "{series} in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("hash=\"old\"")), "one contract is in force");
    let ages = ["gpufence_namespace_labels_current_timestamp_seconds", "gpufence_nodes_current_timestamp_seconds"];
    assert!(!lines.iter().any(|line| ages.iter().any(|age| line.starts_with(age))), "nobody watches them");
    metrics.namespace_labels_current(1_800_000_001);
    metrics.nodes_current(1_800_000_001);
    for age in ages {
        assert!(metrics.encode().unwrap().contains(&format!("\n{age} 1800000001\n")), "{age}");
    }
}

#[test]
fn a_gauge_falls_when_its_guard_is_dropped() {
    let metrics = Metrics::new();
    let guard = metrics.in_flight();
    assert!(lines(&metrics).contains(&"gpufence_admission_in_flight 1".to_owned()));
    drop(guard);
    assert!(lines(&metrics).contains(&"gpufence_admission_in_flight 0".to_owned()));
}

#[test]
fn exemptions_have_series_as_long_as_the_contract_has_them() {
    let metrics = Metrics::new();
    let used = |exemption: &str, outcome| ExemptionUse {
        exemption: exemption.to_owned(),
        webhook: "validate",
        outcome,
        dry_run: false,
    };
    let series =
        || lines(&metrics).into_iter().filter(|line| line.starts_with("gpufence_exemption")).collect::<Vec<_>>();
    assert_eq!(series(), [""; 0]);
    metrics.exemptions_in_force([("agents", None), ("old", Some(1_800_000_000))].into_iter());
    assert_eq!(series().len(), 2 * 6 + 1, "{:#?}", series());
    let agents =
        "gpufence_exemptions_total{exemption=\"agents\",webhook=\"validate\",outcome=\"exempt\",dry_run=\"false\"}";
    assert!(series().contains(&format!("{agents} 0")), "{:#?}", series());
    assert!(
        series().contains(&"gpufence_exemption_expires_timestamp_seconds{exemption=\"old\"} 1800000000".to_owned()),
        "{:#?}",
        series()
    );
    metrics.exemption_used(&used("agents", "exempt"));
    metrics.exemption_used(&used("old", "expired"));
    metrics.exemption_used(&used("unknown", "exempt"));
    metrics.exemptions_in_force([("new", Some(1_900_000_000)), ("agents", None)].into_iter());
    metrics.exemption_used(&used("old", "expired"));
    let after = series();
    assert!(after.contains(&format!("{agents} 1")), "a counter goes on: {after:#?}");
    assert!(!after.iter().any(|line| line.contains("\"old\"") || line.contains("\"unknown\"")), "{after:#?}");
    assert_eq!(after.len(), 2 * 6 + 1, "{after:#?}");
}

#[test]
fn an_audit_is_shown_whole_and_forgotten_whole() {
    let metrics = Metrics::new();
    let series = || {
        let own = lines(&metrics).into_iter().filter(|line| line.starts_with("gpufence_audit_"));
        own.filter(|line| !line.starts_with("gpufence_audit_runs_total")).collect::<Vec<_>>()
    };
    for run in AuditRun::ALL {
        let line = format!("gpufence_audit_runs_total{{outcome=\"{}\"}} 0", run.as_str());
        assert!(lines(&metrics).contains(&line), "{line}");
    }
    assert_eq!(series(), [""; 0], "nobody audits");
    let pool = |pool: &str| PoolNumbers {
        pool: pool.to_owned(),
        nodes: 3,
        ordinary_pods: 2,
        gpus: [("allocatable", 24), ("requested", 10), ("free", 14), ("blocked", 4), ("out-of-use", 0)],
    };
    let finding = |rule, count| FindingCount { rule, severity: "high", count };
    let mut numbers = AuditNumbers {
        findings: vec![finding("gpus-blocked", 4), finding("node-without-taint", 0)],
        pools: vec![pool("nvidia"), pool("amd")],
        drifted_nodes: 1,
        gaps: 0,
        at: 1_800_000_000,
        seconds: 1.5,
    };
    metrics.audits_every(Some(900));
    metrics.audit_ran(AuditRun::Success);
    metrics.audit_found(&numbers);
    let expected = [
        "gpufence_audit_interval_seconds 900",
        "gpufence_audit_findings{rule=\"gpus-blocked\",severity=\"high\"} 4",
        "gpufence_audit_findings{rule=\"node-without-taint\",severity=\"high\"} 0",
        "gpufence_audit_ordinary_pods{pool=\"nvidia\"} 2",
        "gpufence_audit_nodes{pool=\"amd\"} 3",
        "gpufence_audit_gpus{pool=\"nvidia\",state=\"allocatable\"} 24",
        "gpufence_audit_gpus{pool=\"nvidia\",state=\"requested\"} 10",
        "gpufence_audit_gpus{pool=\"nvidia\",state=\"free\"} 14",
        "gpufence_audit_gpus{pool=\"amd\",state=\"blocked\"} 4",
        "gpufence_audit_gpus{pool=\"amd\",state=\"out-of-use\"} 0",
        "gpufence_audit_drifted_nodes 1",
        "gpufence_audit_gaps 0",
        "gpufence_audit_last_success_timestamp_seconds 1800000000",
        "gpufence_audit_duration_seconds 1.5",
    ];
    for line in expected {
        assert!(series().iter().any(|own| own == line), "{line} in {:#?}", series());
    }
    assert_eq!(series().len(), 1 + 2 + 2 + 2 + 10 + 4);
    // A pool that is gone from the contract is gone from here.
    numbers.pools.pop();
    metrics.audit_found(&numbers);
    assert!(!series().iter().any(|line| line.contains("amd")), "{:#?}", series());
    metrics.audit_forgotten();
    assert_eq!(series(), ["gpufence_audit_interval_seconds 900"]);
    metrics.audits_every(None);
    assert_eq!(series(), [""; 0]);
    assert!(lines(&metrics).contains(&"gpufence_audit_runs_total{outcome=\"success\"} 1".to_owned()));
}
