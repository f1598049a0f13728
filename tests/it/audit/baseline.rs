//! What is new since an earlier audit.

use std::collections::BTreeSet;

use gpufence::audit::{Audit, Baseline, BaselineError};
use serde_json::{Value, json};

use super::cluster::{Cluster, Pod, findings, found, gpu_node, node, owners, pod, policy, workload};

fn exact() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

fn baseline(audit: &Audit) -> Baseline {
    Baseline::read("base.json", &serde_json::to_string_pretty(audit).unwrap()).unwrap()
}

/// What is new in a cluster since an earlier audit.
fn since(cluster: &Cluster, earlier: &Audit) -> Audit {
    let mut audit = cluster.audit();
    audit.since(&baseline(earlier), &cluster.snapshot(&policy(&cluster.contract)));
    audit
}

/// Everything of which something is found: pods of each kind of maker, nodes, templates, the contract.
fn cluster(version: &str, run: &str, suffix: &str, nodes: [&str; 2]) -> Cluster {
    let sneaky = |name: String| pod(&name).tolerates(exact()).on(nodes[0]);
    let mut set = workload("ReplicaSet", &format!("web/shop-{version}"), pod("web/x"));
    set["metadata"]["ownerReferences"] = owners("Deployment/shop");
    let mut job = workload("Job", &format!("web/nightly-{run}"), pod("web/x"));
    job["metadata"]["ownerReferences"] = owners("CronJob/nightly");
    Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(gpu_node("gpu-2"))
        .object(gpu_node("gpu-3").untainted())
        .object(node("cpu-1").label("accelerator", "nvidia"))
        .object(workload("Deployment", "web/shop", pod("web/x").tolerates(exact())))
        .object(workload("CronJob", "web/nightly", pod("web/x").tolerates(exact())))
        .object(set)
        .object(job)
        .object(sneaky(format!("web/shop-{version}-{suffix}")).owned_by(&format!("ReplicaSet/shop-{version}")))
        .object(sneaky(format!("web/nightly-{run}-{suffix}")).owned_by(&format!("Job/nightly-{run}")))
        .object(sneaky(format!("web/orphan-{version}-{suffix}")).owned_by(&format!("ReplicaSet/orphan-{version}")))
        .object(sneaky(format!("web/late-{run}-{suffix}")).owned_by(&format!("Job/late-{run}")))
        .object(sneaky("web/db-0".to_owned()).owned_by("StatefulSet/db").on(nodes[1]))
        .object(sneaky("web/alone".to_owned()))
}

#[test]
fn the_same_again_reports_nothing() {
    let cluster = cluster("5d4f8c7b9c", "29000000", "aaaaa", ["gpu-1", "gpu-2"]);
    let first = cluster.audit();
    assert!(first.findings.len() >= 8, "{:#?}", first.findings);
    let again = since(&cluster, &first);
    assert!(again.findings.is_empty(), "{:#?}", again.findings);
    assert_eq!((again.summary.hidden, again.summary.resolved), (Some(first.findings.len()), Some(0)));
    assert_eq!(again.summary.findings, gpufence::audit::BySeverity::default());
    assert_eq!((first.summary.hidden, first.summary.resolved), (None, None));
    let json = serde_json::to_value(&first).unwrap();
    assert!(json["summary"].get("hidden").is_none(), "without a baseline nothing is said of one");
}

/// New pods, a new ReplicaSet, the next Job, other nodes, objects in another order.
#[test]
fn what_controllers_make_anew_is_not_new() {
    let first = cluster("5d4f8c7b9c", "29000000", "aaaaa", ["gpu-1", "gpu-2"]).audit();
    let mut later = cluster("7f6b9d5c48", "29001440", "bbbbb", ["gpu-2", "gpu-1"]);
    later.objects.reverse();
    let later = since(&later, &first);
    assert!(later.findings.is_empty(), "{:#?}", later.findings);
    assert_eq!(later.summary.resolved, Some(0));
}

#[test]
fn what_is_new_is_shown_and_what_is_gone_is_counted() {
    let before = Cluster::new().object(pod("web/a").tolerates(exact())).object(pod("web/b").tolerates(exact()));
    let after = Cluster::new().object(pod("web/b").tolerates(exact())).object(pod("web/c").tolerates(exact()));
    let audit = since(&after, &before.audit());
    assert_eq!(found(&audit, "toleration-outside-allowlist"), ["Pod web/c"]);
    assert_eq!((audit.summary.hidden, audit.summary.resolved), (Some(1), Some(1)));
    assert_eq!((audit.summary.findings.high, audit.findings.len()), (1, 1));
    let json = serde_json::to_value(&audit).unwrap();
    assert_eq!((&json["summary"]["hidden"], &json["summary"]["resolved"]), (&json!(1), &json!(1)));
}

/// Pods of one maker, of which some were there before: the youngest are new, whatever the others are called now.
#[test]
fn more_of_the_same_is_new() {
    for owner in ["ReplicaSet/shop-5d4f8c7b9c", "DaemonSet/agent", "StatefulSet/db", "Job/once"] {
        let at = |day: usize| {
            move |pod: &mut Value| pod["metadata"]["creationTimestamp"] = format!("2026-11-{day:02}T00:00:00Z").into()
        };
        let of = |name: &str, day| pod(name).tolerates(exact()).on("gpu-1").owned_by(owner).edit(at(day));
        let with = |pods: Vec<Pod>| Cluster::new().object(gpu_node("gpu-1")).objects(pods);
        let first = with((0..12).map(|index| of(&format!("web/old-{index}"), 1)).collect()).audit();
        // All are others, as many as before.
        let replaced: Vec<_> = (0..12).map(|index| of(&format!("web/anew-{index}"), 20)).collect();
        assert_eq!(since(&with(replaced.clone()), &first).findings, [], "{owner}");
        let grown: Vec<_> =
            replaced.iter().cloned().chain((1..=3).map(|day| of(&format!("web/a-{day}"), 20 + day))).collect();
        let audit = since(&with(grown.clone()), &first);
        let rule = "toleration-outside-allowlist";
        assert_eq!(found(&audit, rule), ["Pod web/a-1", "Pod web/a-2", "Pod web/a-3"], "{owner}");
        for finding in findings(&audit, rule) {
            assert!(finding.message.ends_with(" (12 like this before, 15 now)"), "{}", finding.message);
        }
        let known = first.findings.len();
        assert_eq!((audit.summary.hidden, audit.summary.resolved), (Some(known), Some(0)), "{owner}");
        assert_eq!(audit.summary.findings.high, 3, "{owner}: a pipeline sees them");
        // And the way back.
        let shrunk = since(&with(replaced), &with(grown).audit());
        assert_eq!((shrunk.findings.len(), shrunk.summary.resolved), (0, Some(audit.findings.len())), "{owner}");
    }
}

/// A template is no younger than its pods.
#[test]
fn a_surplus_is_of_pods_rather_than_of_their_template() {
    let of = |name: &str| pod(name).tolerates(exact()).owned_by("StatefulSet/db");
    let before = Cluster::new()
        .object(workload("StatefulSet", "web/db", pod("web/x").tolerates(exact())))
        .object(of("web/db-0"));
    let audit = since(&before.clone().object(of("web/db-1")), &before.audit());
    assert_eq!(found(&audit, "toleration-outside-allowlist"), ["Pod web/db-1"]);
}

#[test]
fn a_gap_that_was_there_is_known() {
    let mut first = Cluster::new().object(gpu_node("gpu-1")).audit();
    first.gaps = vec!["the events of the cluster are not all known".into()];
    let cluster = Cluster::new().object(gpu_node("gpu-1"));
    let mut audit = cluster.audit();
    audit.gaps = vec![first.gaps[0].clone(), "another".into()];
    audit.since(&baseline(&first), &cluster.snapshot(&policy(&cluster.contract)));
    assert_eq!(audit.baseline.as_ref().unwrap().known_gaps, first.gaps);
    assert_eq!(audit.unseen().2, ["another"]);
    assert_eq!(audit.gaps.len(), 2, "the whole is in the JSON");
}

/// A second mistake in the same pod is new; so is the same mistake under another owner, pool, namespace or kind.
#[test]
fn different_things_have_different_fingerprints() {
    let wide = |key: &str| json!({"key": key, "operator": "Exists"});
    let gpu = |name: &str| pod(name).gpus(1).placed();
    let one = Cluster::new().object(gpu("ml/a").tolerates(wide("dedicated")).owned_by("StatefulSet/a"));
    let two = gpu("ml/a").tolerates(wide("dedicated")).tolerates(wide("")).owned_by("StatefulSet/a");
    let audit = since(&Cluster::new().object(two), &one.audit());
    let fields: Vec<_> = audit.findings.iter().map(|finding| finding.field.as_deref().unwrap()).collect();
    assert_eq!(fields, ["spec.tolerations[2]"]);

    let sneaky = |name: &str| pod(name).tolerates(exact());
    let others: Vec<Pod> = vec![
        sneaky("web/p").owned_by("StatefulSet/a"),
        sneaky("web/p").owned_by("StatefulSet/b"),
        sneaky("web/p").owned_by("ReplicaSet/a"),
        sneaky("web/p").owned_by("DaemonSet/a"),
        sneaky("web/p").owned_by("Job/a"),
        sneaky("default/p").owned_by("StatefulSet/a"),
        sneaky("web/p"),
        sneaky("web/q"),
        sneaky("web/q").owned_by("ReplicaSet/a-5d4f8c7b9c"),
        sneaky("web/q").owned_by("ReplicaSet/a-shop"),
        sneaky("web/q").owned_by("Job/a-29000000"),
        sneaky("web/q").owned_by("Job/a-7"),
    ];
    let count = others.len();
    let fingerprints: BTreeSet<_> =
        others.into_iter().map(|pod| Cluster::new().object(pod).audit().findings[0].fingerprint.clone()).collect();
    assert_eq!(fingerprints.len(), count, "{fingerprints:#?}");
}

/// What can be read of an audit's own JSON says whether it may serve.
#[test]
fn only_a_whole_audit_is_a_baseline() {
    let refused = |json: &str| Baseline::read("base.json", json).unwrap_err().to_string();
    let valid = "valid is what gpufence audit --output json prints";
    assert_eq!(refused("findings:"), format!("it is not JSON: expected ident at line 1 column 2; {valid}"));
    assert_eq!(refused(""), format!("it is not JSON: EOF while parsing a value at line 1 column 0; {valid}"));
    assert_eq!(refused("[]"), format!("it is JSON of something else; {valid}"));
    assert_eq!(refused("7"), format!("it is JSON of something else; {valid}"));
    assert_eq!(refused("{}"), format!("it has no version; {valid}"));
    assert_eq!(refused(r#"{"version": 1, "findings": []}"#), format!("it has no version; {valid}"));
    assert_eq!(
        refused(r#"{"version": "gpufence.io/audit/v2", "findings": {}}"#),
        "its version is gpufence.io/audit/v2; valid is gpufence.io/audit/v1"
    );
    assert_eq!(refused(r#"{"version": "gpufence.io/audit/v1"}"#), format!("it has no findings; {valid}"));
    assert_eq!(
        refused(r#"{"version": "gpufence.io/audit/v1", "findings": [{"rule": "x"}]}"#),
        format!("missing field `fingerprint` at line 1 column 62; {valid}")
    );
    let whole = cluster("5d4f8c7b9c", "29000000", "aaaaa", ["gpu-1", "gpu-2"]);
    let partial = since(&whole, &whole.audit());
    let hidden = partial.summary.hidden.unwrap();
    assert_eq!(
        Baseline::read("base.json", &serde_json::to_string(&partial).unwrap()).unwrap_err(),
        BaselineError::Partial(hidden)
    );
    assert_eq!(
        BaselineError::Partial(3).to_string(),
        "it was itself made with a baseline, which hides 3 of its findings; valid is an audit without one"
    );
    assert!(Baseline::read("base.json", r#"{"version": "gpufence.io/audit/v1", "findings": []}"#).is_ok());
}

/// The built binary, given a folder: the exit code, and what it says on the standard output and error.
fn run(folder: &std::path::Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gpufence"));
    let output = command.args(arguments).env_clear().current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Twice over the same files; and what cannot serve as a baseline ends the command before anything is read.
#[test]
fn the_command_takes_what_it_printed_as_a_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let cluster = cluster("5d4f8c7b9c", "29000000", "aaaaa", ["gpu-1", "gpu-2"]);
    write("contract.yaml", super::cluster::CONTRACT);
    write("cluster.json", &cluster.list().to_string());
    let audit = |more: &[&str]| {
        let base = ["audit", "--config", "contract.yaml", "cluster.json", "--output", "json"];
        run(folder.path(), &[&base, more].concat())
    };
    let (code, out, err) = audit(&["--fail-on", "high"]);
    assert_eq!((code, err.as_str()), (1, ""));
    write("baseline.json", &out);
    let (code, out, err) = audit(&["--fail-on", "info", "--baseline", "baseline.json"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let again: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&again["findings"], &again["summary"]["resolved"]), (&json!([]), &json!(0)));
    write("again.json", &out);
    let base = ["audit", "--config", "contract.yaml", "cluster.json", "--baseline", "baseline.json"];
    for (form, said) in
        [("text", "Nothing new since baseline.json ("), ("markdown", "**Nothing new since baseline.json (")]
    {
        let (code, out, _) = run(folder.path(), &[&base, &["--output", form][..]].concat());
        assert!(code == 0 && out.contains(said) && !out.contains("Nothing breaks"), "{out}");
    }
    write("contract.json", "{\"mode\": \"audit\"}");
    for (file, message) in [
        (
            "contract.json",
            "contract.json is no baseline: it has no version; valid is what gpufence audit --output json prints",
        ),
        ("again.json", "again.json is no baseline: it was itself made with a baseline"),
        ("missing.json", "the baseline missing.json cannot be read: No such file or directory"),
    ] {
        let (code, out, err) = audit(&["--baseline", file]);
        assert_eq!((code, out.as_str()), (2, ""), "{file}");
        assert!(err.starts_with(&format!("gpufence: {message}")), "{err}");
    }
}

#[test]
fn the_command_prints_the_exemptions_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let cluster = cluster("5d4f8c7b9c", "29000000", "aaaaa", ["gpu-1", "gpu-2"]);
    write("contract.yaml", super::cluster::CONTRACT);
    write("cluster.json", &cluster.list().to_string());
    let adopt = |more: &[&str]| {
        run(folder.path(), &[&["audit", "--config", "contract.yaml", "cluster.json", "--adopt"], more].concat())
    };
    let (code, out, err) = adopt(&["30d"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let printed: Value = serde_saphyr::from_str(&out).unwrap();
    let names: Vec<_> =
        printed["exemptions"].as_array().unwrap().iter().map(|exemption| exemption["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "adopted-web-orphan-5d4f8c7b9c",
            "adopted-web-shop",
            "adopted-web-db",
            "adopted-web-late-29000000",
            "adopted-web-nightly"
        ]
    );
    for (more, message) in [
        (&["soon"][..], "invalid value 'soon' for '--adopt <DURATION>'"),
        (&["9000y"], "--adopt is longer than any expiry can be"),
        (&["30d", "--fail-on", "high"], "cannot be used with"),
        (
            &["0d"],
            "invalid value '0d' for '--adopt <DURATION>': it is too short; valid is a time such as 30d, 1h or longer",
        ),
        (&["59m"], "it is too short"),
    ] {
        let (code, out, err) = adopt(more);
        assert_eq!((code, out.as_str()), (2, ""), "{more:?}");
        assert!(err.contains(message), "{err}");
    }
}
