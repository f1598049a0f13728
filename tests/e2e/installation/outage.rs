use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Patch, admin, get_plain};
use crate::cluster::cluster;
use crate::features;
use crate::installed::{ACT, Installed, Replica, contract, is_refused, log_line, with_selector};
use crate::line::Line;
use crate::poll;
use crate::requests::{gpu, ordinary, tolerating};

const ALLOWED: &str = "gpu.example.com/allowed";

/// The longest pause of a watch that failed several times, and what a busy machine adds.
const SEEN_AGAIN: Duration = Duration::from_secs(40);

/// An installation whose replica has a line of its own.
fn running_by_a_line(contract: &Value) -> Option<(Installed, Line)> {
    let mut installed = Installed::apply(contract, &[])?;
    let line = Line::to(&cluster().started.as_ref().unwrap().url);
    installed.start_controller();
    installed.way = Some(line.url());
    installed.start_replica();
    installed.wait_for_bundle();
    Some((installed, line))
}

fn set_allowed(namespace: &str, value: &Value) {
    let change = json!({"metadata": {"labels": {ALLOWED: value}}});
    admin().patch(Patch::Merge, &format!("/api/v1/namespaces/{namespace}"), &change).stored();
}

fn is_ready(replica: &Replica) -> bool {
    get_plain(replica.metrics, "/readyz").is_ok()
}

fn metric(replica: &Replica, series: &str) -> f64 {
    let text = get_plain(replica.metrics, "/metrics").unwrap();
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or_default()
}

/// Waits until a GPU pod is admitted in the namespace, or refused.
fn wait_until_admitted(installed: &Installed, namespace: &str, admitted: bool, limit: Duration) {
    poll::until("the change of a label counts", limit, || {
        let reply = admin().dry_run().create(&gpu(namespace));
        let as_wanted = if admitted { reply.code == 201 } else { is_refused(&reply) };
        if as_wanted { Ok(()) } else { Err(format!("{reply:#?}\n{}", installed.logs())) }
    });
}

#[test]
fn the_fence_stands_while_a_replica_has_no_api_server() {
    let Some((installed, line)) = running_by_a_line(&with_selector(contract("enforce"))) else { return };
    installed.wait_for_failure_policy("Fail");
    let team = installed.namespace("team", &json!({ALLOWED: "true"}));
    let web = installed.namespace("web", &json!({}));
    wait_until_admitted(&installed, &team, true, ACT);
    wait_until_admitted(&installed, &web, false, ACT);

    line.cut();
    let replica = &installed.replicas[0];
    let complaints = || {
        let output = replica.process.output();
        output.lines().filter(|line| line.contains("\"WARN\"") && line.contains("gpufence::cluster")).count()
    };
    let before = complaints();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        admin().dry_run().create(&gpu(&team)).quietly();
        let reply = admin().dry_run().create(&tolerating(&web));
        assert!(is_refused(&reply), "{reply:#?}");
        assert!(is_ready(replica), "{}", replica.process.last_lines());
        std::thread::sleep(Duration::from_millis(100));
    }
    let output = replica.process.output();
    assert!(output.contains("the namespaces cannot be watched; the labels last seen stay"), "{}", installed.logs());
    let complaints = complaints() - before;
    assert!(complaints < 12, "{complaints} complaints in 20 s:\n{output}");
    assert!(!output.contains("kube_client"), "the client's own lines: {output}");

    // What changes meanwhile is not seen: what was known stays, and what was not is not guessed.
    set_allowed(&team, &Value::Null);
    admin().dry_run().create(&gpu(&team)).quietly();
    let fresh = installed.namespace("fresh", &json!({ALLOWED: "true"}));
    let reply = admin().dry_run().create(&gpu(&fresh));
    assert!(is_refused(&reply), "{reply:#?}");
    assert!(reply.message().contains(&format!("the labels of {fresh} are not known")), "{reply:#?}");
    assert!(metric(replica, "gpufence_namespace_lookups_total{outcome=\"error\"}") > 0.0);
    // Nor does it concern anybody else.
    admin().dry_run().create(&ordinary(&fresh)).quietly();

    line.heal();
    wait_until_admitted(&installed, &team, false, SEEN_AGAIN);
    wait_until_admitted(&installed, &fresh, true, SEEN_AGAIN);
}

#[test]
fn audit_admits_what_it_cannot_judge_and_reports_it() {
    let Some((installed, line)) = running_by_a_line(&with_selector(contract("audit"))) else { return };
    line.cut();
    let fresh = installed.namespace("fresh", &json!({ALLOWED: "true"}));
    admin().create(&gpu(&fresh)).quietly();
    let output = installed.replicas[0].process.output();
    let reported = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(|line| {
        line["target"] == "gpufence::decision"
            && line.to_string().contains(&format!("the labels of {fresh} are not known"))
    });
    assert!(reported, "{output}");
    assert!(is_ready(&installed.replicas[0]));
}

/// As when a node between the two is gone: no end of the connection ever comes, and no error either.
#[test]
fn a_watch_that_died_without_a_word_is_noticed() {
    let Some((installed, line)) = running_by_a_line(&with_selector(contract("enforce"))) else { return };
    let team = installed.namespace("team", &json!({}));
    wait_until_admitted(&installed, &team, false, ACT);
    line.lose_connections();
    let began = Instant::now();
    set_allowed(&team, &json!("true"));
    wait_until_admitted(&installed, &team, true, Duration::from_secs(120));
    let took = began.elapsed();
    features::tell(&format!("a dead watch was noticed after {} s", took.as_secs()));
    assert!(took > Duration::from_secs(5), "the line was whole");
}

#[test]
fn a_replica_that_starts_during_an_outage_is_ready_after_it() {
    let Some(mut installed) = Installed::apply(&with_selector(contract("enforce")), &[]) else { return };
    let line = Line::to(&cluster().started.as_ref().unwrap().url);
    installed.start_controller();
    installed.way = Some(line.url());
    line.cut();
    installed.begin_replica(&[]);
    std::thread::sleep(Duration::from_secs(5));
    assert!(!is_ready(&installed.replicas[0]));
    line.heal();
    installed.wait_for_replica();
    installed.wait_for_bundle();
    installed.wait_for_failure_policy("Fail");
}

#[test]
fn a_replica_that_starts_before_the_controller_waits_for_its_ca() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    installed.begin_replica(&[]);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!is_ready(&installed.replicas[0]));
    let waits = log_line(&installed.replicas[0].process, "no new certificate; the one that is served stays").unwrap();
    assert_eq!(waits["error"], "there is no CA yet; the controller puts it into the Secret gpufence-ca");
    installed.start_controller();
    installed.wait_for_replica();
    installed.wait_for_failure_policy("Fail");
}

/// A controller must be gone before a kubelet loses patience, even if the API server never answers.
#[test]
fn a_controller_ends_in_time_without_an_answer() {
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    let line = Line::to(&cluster().started.as_ref().unwrap().url);
    installed.way = Some(line.url());
    installed.start_controller();
    poll::until("it leads", ACT, || log_line(&installed.controllers[0], "lead"));
    line.mute();
    // Into a round.
    std::thread::sleep(Duration::from_secs(6));
    let took = installed.controllers[0].terminate(Duration::from_secs(12));
    features::tell(&format!("a controller ended in {} ms while the API server did not answer", took.as_millis()));
}

#[test]
fn of_two_replicas_one_is_lost_and_nothing_blocked() {
    let Some(mut installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.start_replica();
    installed.wait_for_failure_policy("Fail");
    let (ml, web) = (installed.namespace("ml", &json!({})), installed.namespace("web", &json!({})));
    installed.lose_replica(0);
    // The API server takes a moment to see that.
    poll::until("the other is called", ACT, || {
        let reply = admin().dry_run().create(&tolerating(&web));
        if is_refused(&reply) { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        admin().dry_run().create(&gpu(&ml)).quietly();
        assert!(is_refused(&admin().dry_run().create(&tolerating(&web))));
    }
    assert_eq!(installed.failure_policy(), "Fail");
}

/// A contract that asks for labels comes with the right to read them. Where it comes alone, nothing is guessed.
#[test]
fn labels_that_nobody_allowed_to_read_are_not_known() {
    let plain = contract("enforce");
    let Some(installed) = Installed::running(&plain, &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let team = installed.namespace("team", &json!({ALLOWED: "true"}));
    wait_until_admitted(&installed, &team, false, ACT);
    let selecting = with_selector(plain);
    let objects = installed.render(&selecting, &[]);
    let map = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    installed.mount_contract(map["data"]["contract.yaml"].as_str().unwrap());
    let words = format!("the labels of {team} are not known");
    poll::until("the labels are missed", ACT, || {
        let reply = admin().dry_run().create(&gpu(&team));
        if is_refused(&reply) && reply.message().contains(&words) { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    let replica = &installed.replicas[0];
    assert!(is_ready(replica), "{}", replica.process.last_lines());
    assert!(replica.process.output().contains("namespaces is forbidden"), "{}", installed.logs());
    installed.reapply(&selecting, &[]);
    wait_until_admitted(&installed, &team, true, SEEN_AGAIN);
}
