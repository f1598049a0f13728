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
    metrics.contract_in_force("old", "audit");
    metrics.contract_in_force("0a1b", "enforce");
    let lines = lines(&metrics);
    for series in [
        "gpufence_admission_requests_total{webhook=\"validate\",resource=\"pods\",operation=\"CREATE\",outcome=\"denied\",dry_run=\"true\"} 1",
        "gpufence_decisions_total{webhook=\"validate\",rule=\"broad-toleration\",action=\"deny\",dry_run=\"false\"} 1",
        "gpufence_admission_duration_seconds_bucket{webhook=\"mutate\",le=\"0.00025\"} 0",
        "gpufence_admission_duration_seconds_bucket{webhook=\"mutate\",le=\"0.0005\"} 1",
        "gpufence_admission_duration_seconds_bucket{webhook=\"mutate\",le=\"10\"} 1",
        "gpufence_certificate_not_after_timestamp_seconds{kind=\"serving\"} 1900000000",
        "gpufence_contract_info{hash=\"0a1b\",mode=\"enforce\"} 1",
    ] {
        assert!(lines.iter().any(|line| line == series), "{series} in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("hash=\"old\"")), "one contract is in force");
}

#[test]
fn a_gauge_falls_when_its_guard_is_dropped() {
    let metrics = Metrics::new();
    let guard = metrics.in_flight();
    assert!(lines(&metrics).contains(&"gpufence_admission_in_flight 1".to_owned()));
    drop(guard);
    assert!(lines(&metrics).contains(&"gpufence_admission_in_flight 0".to_owned()));
}
