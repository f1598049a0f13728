use std::time::{Duration, Instant};

use gpufence::audit::{Audit, Check, Finding, ObjectRef, ReportForm, Severity, Snapshot, audit};
use gpufence::cluster::reports::{PublishError, Published, publish};
use gpufence::report::audit::cluster::{MOST, reports};
use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::cluster::cluster;
use crate::contract::LABEL;
use crate::definitions::define;
use crate::objects::Pod;
use crate::rights::{bind, role};
use crate::world::{World, found};

const FORMS: [ReportForm; 2] = [ReportForm::OpenReports, ReportForm::PolicyReports];
const NOW: i64 = 1_796_040_000;

/// An audit with these findings, at a time.
fn audit_of(findings: Vec<Finding>, now: i64) -> Audit {
    let contract = gpufence::contract::Contract::read("contract.yaml".as_ref(), b"{}", []).unwrap();
    let mut audit = audit(&contract.policy, &Snapshot::default(), "a test", now);
    audit.gaps.clear();
    audit.findings = findings;
    audit
}

fn finding(severity: Severity, kind: &str, namespace: &str, name: &str) -> Finding {
    let object = ObjectRef::new("v1", kind, namespace, name);
    Finding::new(Check::OrdinaryPod, severity, object, format!("about {name}"), "move it")
}

fn published(form: ReportForm, audit: &Audit) -> Published {
    try_to_publish(form, audit, Duration::ZERO).unwrap()
}

fn try_to_publish(form: ReportForm, audit: &Audit, pace: Duration) -> Result<Published, PublishError> {
    let cluster = cluster();
    cluster.runtime.block_on(publish(&cluster.client, form, reports(audit, form), pace))
}

fn counts(published: &Published) -> (usize, usize, usize) {
    assert_eq!(published.faults, [""; 0]);
    (published.written, published.unchanged, published.deleted)
}

/// The path of a report, of the cluster where the namespace is empty.
fn at(form: ReportForm, namespace: &str) -> String {
    let api_version = form.api_version();
    if namespace.is_empty() {
        format!("/apis/{api_version}/{}/gpufence-audit", form.of_cluster().plural)
    } else {
        format!("/apis/{api_version}/namespaces/{namespace}/{}/gpufence-audit", form.of_namespaces().plural)
    }
}

fn stored(form: ReportForm, namespace: &str) -> Value {
    admin().get(&at(form, namespace)).stored()
}

/// A report of somebody's, with a label or without.
fn somebodys(form: ReportForm, namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": form.api_version(),
        "kind": form.of_namespaces().kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "results": [{"policy": "somebody's", "result": "fail"}],
    })
}

/// Written, and not again while they say the same; changed where they do not; deleted where there is nothing to say.
#[test]
fn reports_follow_the_findings() {
    let Some(world) = World::new() else { return };
    for namespace in ["ml-a", "web"] {
        world.namespace(namespace);
    }
    for form in FORMS {
        define(&world, form);
        let first = vec![
            finding(Severity::High, "Node", "", "gpu-1"),
            finding(Severity::High, "Pod", "web", "shop"),
            finding(Severity::Info, "Pod", "ml-a", "train"),
        ];
        assert_eq!(counts(&published(form, &audit_of(first.clone(), NOW))), (3, 0, 0));
        let before = ["", "web", "ml-a"].map(|namespace| stored(form, namespace));
        // Nothing of it was dropped or refused.
        for (stored, wanted) in before.iter().zip(["", "web", "ml-a"]) {
            let audit = audit_of(first.clone(), NOW);
            let all: Vec<_> = reports(&audit, form).collect();
            let namespace = |report: &Value| report["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let wanted = all.iter().find(|report| namespace(report) == wanted).unwrap();
            for field in ["source", "scope", "summary", "results"] {
                assert_eq!(stored[field], wanted[field], "{field}");
            }
        }

        // Later, the same.
        assert_eq!(counts(&published(form, &audit_of(first.clone(), NOW + 60))), (0, 3, 0));
        assert_eq!(["", "web", "ml-a"].map(|namespace| stored(form, namespace)), before);

        // A new finding is written, and an old one has the time at which it was found.
        let mut second = first.clone();
        second.push(finding(Severity::Low, "Pod", "web", "mail"));
        assert_eq!(counts(&published(form, &audit_of(second, NOW + 120))), (1, 2, 0));
        let web = stored(form, "web");
        let times: Vec<_> =
            web["results"].as_array().unwrap().iter().map(|result| &result["timestamp"]["seconds"]).collect();
        assert_eq!(times, [&json!(NOW), &json!(NOW + 120)]);
        assert_eq!(web["summary"], json!({"pass": 0, "fail": 1, "warn": 1, "error": 0, "skip": 0}));
        assert_eq!(stored(form, "ml-a"), before[2]);

        // Of what is mended nothing stays but the report of the cluster.
        assert_eq!(counts(&published(form, &audit_of(Vec::new(), NOW + 180))), (1, 0, 2));
        assert!(["web", "ml-a"].iter().all(|namespace| admin().get(&at(form, namespace)).is_missing()));
        assert_eq!(stored(form, "")["results"].as_array().map(Vec::len).unwrap_or_default(), 0);
        admin().delete(&at(form, "")).stored();
    }
}

/// What is of our name and not ours, or ours and of another name, is as it was.
#[test]
fn what_is_not_ours_is_left_alone() {
    let Some(world) = World::new() else { return };
    for namespace in ["foreign", "other", "stale"] {
        world.namespace(namespace);
    }
    for form in FORMS {
        define(&world, form);
        let ours = json!({"app.kubernetes.io/managed-by": "gpufence"});
        let foreign = somebodys(form, "foreign", "gpufence-audit", &json!({"app.kubernetes.io/managed-by": "kyverno"}));
        let other = somebodys(form, "other", "another", &ours);
        let stale = somebodys(form, "stale", "gpufence-audit", &ours);
        let before = [&foreign, &other].map(|object| world.make(object));
        world.make(&stale);
        let audit = audit_of(vec![finding(Severity::High, "Pod", "foreign", "shop")], NOW);
        let outcome = published(form, &audit);
        assert_eq!((outcome.written, outcome.unchanged, outcome.deleted), (1, 0, 1));
        assert_eq!(
            outcome.faults,
            [format!(
                "{} foreign/gpufence-audit is not ours, since it has no label app.kubernetes.io/managed-by=gpufence, and \
                 is left alone: rename or delete it",
                form.of_namespaces().kind
            )]
        );
        assert_eq!([&foreign, &other].map(|object| admin().read(object).stored()), before);
        assert!(admin().read(&stale).is_missing());

        // Nor is a foreign one cleared where nothing is found.
        published(form, &audit_of(Vec::new(), NOW));
        assert_eq!(admin().read(&foreign).stored(), before[0]);
        admin().delete(&at(form, "")).stored();
    }
}

/// What somebody adds to the metadata of ours stays; what somebody changes of what it says does not.
#[test]
fn others_may_label_our_reports_and_not_change_them() {
    let Some(world) = World::new() else { return };
    let form = ReportForm::OpenReports;
    define(&world, form);
    world.namespace("web");
    let audit = audit_of(vec![finding(Severity::High, "Pod", "web", "shop")], NOW);
    published(form, &audit);
    let before = stored(form, "web");
    let label = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"seen": "yes"}}});
    let labelled = admin().patch(Patch::Merge, &path(&before), &label).stored();
    assert_eq!(counts(&published(form, &audit)), (0, 2, 0));
    assert_eq!(stored(form, "web"), labelled);
    admin().patch(Patch::Merge, &path(&before), &json!({"summary": {"fail": 0}})).stored();
    assert_eq!(counts(&published(form, &audit)), (1, 1, 0));
    let after = stored(form, "web");
    assert_eq!((&after["summary"], &after["metadata"]["labels"]["team"]), (&before["summary"], &json!("a")));
    published(form, &audit_of(Vec::new(), NOW));
    admin().delete(&at(form, "")).stored();
}

/// However much is found, the API server takes the report.
#[test]
fn a_report_that_was_cut_is_stored() {
    let Some(world) = World::new() else { return };
    world.namespace("web");
    for form in FORMS {
        define(&world, form);
        let findings = (0..3000).map(|index| finding(Severity::High, "Pod", "web", &format!("pod-{index}")));
        assert_eq!(counts(&published(form, &audit_of(findings.collect(), NOW))), (2, 0, 0));
        let report = stored(form, "web");
        assert_eq!(report["summary"]["fail"], 3000);
        assert!(report.to_string().len() <= MOST, "{}", report.to_string().len());
        // Fewer findings, which fit: the note that some were left out goes.
        let few = audit_of(vec![finding(Severity::High, "Pod", "web", "pod-0")], NOW);
        assert_eq!(counts(&published(form, &few)), (1, 1, 0));
        assert_eq!(stored(form, "web")["metadata"]["annotations"], Value::Null);
        assert_eq!(counts(&published(form, &few)), (0, 2, 0));
        published(form, &audit_of(Vec::new(), NOW));
        admin().delete(&at(form, "")).stored();
    }
}

#[test]
fn without_the_definitions_nothing_is_written_and_the_missing_one_is_named() {
    let Some(world) = World::new() else { return };
    for (form, option, definition) in [
        (ReportForm::OpenReports, "openreports", "reports.openreports.io that serves v1alpha1"),
        (ReportForm::PolicyReports, "policyreports", "policyreports.wgpolicyk8s.io that serves v1alpha2"),
    ] {
        let contract = world.contract();
        let ended = world.run(&["--config", contract.to_str().unwrap(), "--output", "json", "--report", option]);
        assert_eq!(ended.code, 1);
        let expected = format!(
            "gpufence: the cluster has no CustomResourceDefinition {definition}, in which the reports would be kept: install \
             the definitions of {} (many policy engines bring them), or choose the other form with --report\n",
            form.home()
        );
        assert_eq!(ended.stderr, expected);
        assert!(ended.stdout.starts_with('{'), "the audit itself is printed all the same");
    }
}

/// With a namespace goes what was found there: nothing is left to report.
#[test]
fn a_namespace_that_is_gone_or_going_needs_no_report() {
    let Some(world) = World::new() else { return };
    let form = ReportForm::OpenReports;
    define(&world, form);
    for namespace in ["going", "web"] {
        world.namespace(namespace);
    }
    admin().delete("/api/v1/namespaces/going").stored();
    let findings = ["gone", "going", "web"].map(|namespace| finding(Severity::High, "Pod", namespace, "shop"));
    assert_eq!(counts(&published(form, &audit_of(findings.into(), NOW))), (2, 0, 0));
    published(form, &audit_of(Vec::new(), NOW));
    admin().delete(&at(form, "")).stored();
}

/// What the API server refuses about one report is said of that one, and the others are written.
#[test]
fn a_report_that_is_refused_keeps_no_other_from_being_written() {
    let Some(world) = World::new() else { return };
    let form = ReportForm::OpenReports;
    define(&world, form);
    world.namespace("web");
    let audit = audit_of(vec![finding(Severity::High, "Pod", "web", "shop")], NOW);
    let mut wanted: Vec<_> = reports(&audit, form).collect();
    wanted[0]["summary"] = "many".into();
    let cluster = cluster();
    let outcome = cluster.runtime.block_on(publish(&cluster.client, form, wanted, Duration::ZERO)).unwrap();
    assert_eq!((outcome.written, outcome.faults.len()), (1, 1));
    assert!(outcome.faults[0].starts_with("ClusterReport gpufence-audit cannot be written: "), "{:?}", outcome.faults);
    stored(form, "web");
    admin().delete(&at(form, "web")).stored();
}

/// The second role of the repository is what it takes to keep reports, beside the first.
#[test]
fn the_reporters_role_is_enough_and_without_it_nothing_is_written() {
    let Some(world) = World::new() else { return };
    let contract = world.contract();
    let (reader, reporter) = (bind(&world, &role("gpufence-audit-reader")), "both");
    for (form, option) in FORMS.into_iter().zip(["openreports", "policyreports"]) {
        define(&world, form);
        let arguments = ["--config", contract.to_str().unwrap(), "--output", "json", "--report", option];
        let ended = world.run_as(Some(&reader), &arguments);
        assert_eq!(ended.code, 1);
        let kind = form.of_cluster().kind;
        assert!(ended.stderr.contains(&format!("{kind} gpufence-audit cannot be written: ")), "{}", ended.stderr);
        assert!(admin().get(&at(form, "")).is_missing());
    }
    let mut both = role("gpufence-audit-reader");
    let rules = role("gpufence-audit-reporter")["rules"].as_array().unwrap().clone();
    both["rules"].as_array_mut().unwrap().extend(rules);
    both["metadata"]["name"] = reporter.into();
    let reporter = bind(&world, &both);
    for (form, option) in FORMS.into_iter().zip(["openreports", "policyreports"]) {
        world.namespace(option);
        world.make(&somebodys(form, option, "gpufence-audit", &json!({"app.kubernetes.io/managed-by": "gpufence"})));
        let arguments = ["--config", contract.to_str().unwrap(), "--output", "json", "--report", option];
        for said in ["1 reports written, 0 as they were, 1 deleted", "0 reports written, 1 as they were, 0 deleted"] {
            let ended = world.run_as(Some(&reporter), &arguments);
            ended.audit();
            assert_eq!(ended.stderr, format!("gpufence: {said}\n"));
        }
        admin().delete(&at(form, "")).stored();
    }
}

/// Writes keep the pace that they are given; what is as it was costs none.
#[test]
fn writes_follow_each_other_at_a_pace() {
    let Some(world) = World::new() else { return };
    let form = ReportForm::OpenReports;
    define(&world, form);
    let namespaces = ["a", "b", "c"];
    for namespace in namespaces {
        world.namespace(namespace);
    }
    let findings = namespaces.map(|namespace| finding(Severity::High, "Pod", namespace, "shop"));
    let audit = audit_of(findings.into(), NOW);
    let pace = Duration::from_millis(300);
    let began = Instant::now();
    assert_eq!(counts(&try_to_publish(form, &audit, pace).unwrap()), (4, 0, 0));
    assert!(began.elapsed() >= pace * 3);
    let began = Instant::now();
    assert_eq!(counts(&try_to_publish(form, &audit, Duration::from_secs(60)).unwrap()), (0, 4, 0));
    assert!(began.elapsed() < Duration::from_secs(30));
    published(form, &audit_of(Vec::new(), NOW));
    admin().delete(&at(form, "")).stored();
}

/// From the command line: what the audit found stands in the cluster.
#[test]
fn an_audit_keeps_its_findings_in_the_cluster() {
    let Some(world) = World::new() else { return };
    world.namespace("web");
    world.node("gpu-1", 8, &json!({LABEL: "nvidia"}), &json!([]));
    world.pod_on(&Pod::named("shop").in_namespace("web"), "gpu-1", "Running");
    let contract = world.contract();
    for (form, option) in FORMS.into_iter().zip(["openreports", "policyreports"]) {
        define(&world, form);
        let arguments = ["--config", contract.to_str().unwrap(), "--output", "json", "--report", option];
        let ended = world.run(&arguments);
        let audit = ended.audit();
        let results = |report: &Value, rule: &str| -> Vec<String> {
            let results = report["results"].as_array().cloned().unwrap_or_default();
            let of_rule = results.iter().filter(|result| result["rule"] == rule);
            of_rule.map(|result| result["resources"][0]["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(results(&stored(form, ""), "node-without-taint"), ["gpu-1"]);
        assert_eq!(results(&stored(form, "web"), "ordinary-pod-on-gpu-node"), ["shop"]);
        assert_eq!(found(&audit, "ordinary-pod-on-gpu-node"), ["Pod web/shop"]);
        let again = world.run(&arguments);
        assert!(again.stderr.starts_with("gpufence: 0 reports written, "), "{}", again.stderr);
        assert_eq!(timeless_results(&again.audit()), timeless_results(&audit));
        admin().delete(&at(form, "")).stored();
        admin().delete(&at(form, "web")).stored();
    }
}

fn timeless_results(audit: &Value) -> &Value {
    &audit["findings"]
}
