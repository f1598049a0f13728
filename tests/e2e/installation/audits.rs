use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{admin, get_plain};
use crate::cluster::cluster;
use crate::installed::{ACT, Installed, Replica, START, contract};
use crate::{features, poll};

/// How long a Lease is valid that nobody renews, and what it takes until the first audit of a new holder is made.
const TAKEN_OVER: Duration = Duration::from_secs(15 + 15);

fn auditing(interval: &str) -> Value {
    let mut contract = contract("audit");
    contract["audit"] = json!({"interval": interval});
    contract
}

/// What a replica shows of audits, but how often they are made.
fn series(replica: &Replica) -> Vec<String> {
    let text = get_plain(replica.metrics, "/metrics").unwrap_or_default();
    let told = text.lines().filter(|line| line.starts_with("gpufence_audit_"));
    let told = told.filter(|line| !line.contains("_runs_total") && !line.contains("_interval_"));
    told.map(ToOwned::to_owned).collect()
}

fn holder() -> String {
    let lease = admin().get("/apis/coordination.k8s.io/v1/namespaces/gpufence/leases/gpufence-audit").stored();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// The one replica that shows what it found.
fn who_audits(installed: &Installed) -> Result<usize, String> {
    let has = |replica: &Replica| series(replica).iter().any(|line| line.starts_with("gpufence_audit_last_success_"));
    let all: Vec<_> = (0..installed.replicas.len()).filter(|index| has(&installed.replicas[*index])).collect();
    match all.as_slice() {
        [one] => Ok(*one),
        _ => Err(format!("{all:?}\n{}", installed.logs())),
    }
}

#[test]
fn one_replica_audits_and_another_takes_over() {
    let wanted = auditing("1m");
    let Some(mut installed) = Installed::running(&wanted, &[]) else { return };
    installed.start_replica();
    let first = poll::until("one of two audits", START, || who_audits(&installed));
    assert_eq!(installed.replicas[first].pod["metadata"]["name"], holder());
    let shown = series(&installed.replicas[first]);
    for series in
        ["gpufence_audit_findings{rule=\"node-without-taint\",severity=\"high\"} ", "gpufence_audit_drifted_nodes "]
    {
        assert!(shown.iter().any(|line| line.starts_with(series)), "{series} in {shown:#?}");
    }
    // Its rights are all that an audit needs.
    assert!(shown.contains(&"gpufence_audit_gaps 0".to_owned()), "{shown:#?}\n{}", installed.logs());
    let other = 1 - first;
    let text = get_plain(installed.replicas[other].metrics, "/metrics").unwrap();
    assert!(text.contains("\ngpufence_audit_interval_seconds 60\n"), "{text}");
    assert_eq!(series(&installed.replicas[other]), Vec::<String>::new());

    // Who ends in order gives the Lease back: the other need not wait until it runs out.
    installed.replicas[first].process.terminate(Duration::from_secs(15));
    // And it may be that quick.
    assert_ne!(installed.replicas[first].pod["metadata"]["name"], holder());
    let began = Instant::now();
    let second = poll::until("the other takes over", TAKEN_OVER, || who_audits(&installed));
    assert_eq!(second, other);
    assert_eq!(installed.replicas[second].pod["metadata"]["name"], holder());
    assert!(began.elapsed() < TAKEN_OVER);

    // A contract that wants no audits any more: no restart, and nothing is left to be taken for true.
    installed.mount_contract(&installed.contract_of(&auditing("0s")));
    poll::until("the gauges are gone", ACT, || {
        let shown = series(&installed.replicas[second]);
        if shown.is_empty() { Ok(()) } else { Err(format!("{shown:#?}")) }
    });
    poll::until("the Lease is given back", ACT, || {
        let holder = holder();
        if holder.is_empty() { Ok(()) } else { Err(holder) }
    });
}

#[test]
fn the_account_of_the_cron_job_may_read_all_that_an_audit_does() {
    if !features::has_resource("/apis/batch/v1", "cronjobs") {
        features::skip("a CronJob", "the API server has none of batch/v1");
        return;
    }
    let wanted = contract("audit");
    let Some(installed) = Installed::apply(&wanted, &["--audit-cron-job", "0 6 * * *"]) else { return };
    let file = cluster().folder(&cluster().unique()).join("contract.yaml");
    std::fs::write(&file, wanted.to_string()).unwrap();
    let output = installed.run_as("gpufence-audit", &["audit", "--config", file.to_str().unwrap(), "--output", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let audit: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(audit["gaps"], json!([]), "{audit:#}");
}
