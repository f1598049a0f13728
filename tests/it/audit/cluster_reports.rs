use gpufence::audit::{Audit, Check, Finding, ObjectRef, ReportForm, Severity};
use gpufence::report::audit::cluster::{LEFT_OUT, MANAGED_BY, MOST, NAME, reports as each};
use serde_json::{Value, json};

use super::cluster::{Cluster, NOW};

fn reports(audit: &Audit, form: ReportForm) -> Vec<Value> {
    each(audit, form).collect()
}

fn of(rule: Check, severity: Severity, object: ObjectRef) -> Finding {
    Finding::new(rule, severity, object, format!("what {}", rule.id()), "do it")
}

fn pod(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::new("v1", "Pod", namespace, name)
}

fn node(name: &str) -> ObjectRef {
    ObjectRef::new("v1", "Node", "", name)
}

fn audit(findings: Vec<Finding>) -> Audit {
    let mut audit = Cluster::new().audit();
    audit.findings = findings;
    audit
}

#[test]
fn each_namespace_has_a_report_and_the_cluster_another() {
    let ordinary = of(Check::OrdinaryPod, Severity::High, pod("web", "shop-1"))
        .made_by(Some(&ObjectRef::new("apps/v1", "Deployment", "web", "shop")))
        .in_pool("nvidia")
        .on_node("gpu-1")
        .at("spec.tolerations[0]");
    let audit = audit(vec![of(Check::NodeWithoutTaint, Severity::High, node("gpu-1")), ordinary]);
    let [cluster, web] = &*reports(&audit, ReportForm::OpenReports) else { panic!() };
    let timestamp = json!({"seconds": NOW, "nanos": 0});
    assert_eq!(
        *cluster,
        json!({
            "apiVersion": "openreports.io/v1alpha1",
            "kind": "ClusterReport",
            "metadata": {"name": "gpufence-audit", "labels": {"app.kubernetes.io/managed-by": "gpufence"}},
            "source": "gpufence",
            "summary": {"pass": 0, "fail": 1, "warn": 0, "error": 0, "skip": 0},
            "results": [{
                "source": "gpufence",
                "policy": "gpufence",
                "rule": "node-without-taint",
                "category": "GPU",
                "severity": "high",
                "result": "fail",
                "scored": true,
                "resources": [{"apiVersion": "v1", "kind": "Node", "name": "gpu-1"}],
                "message": "what node-without-taint",
                "properties": {"action": "do it", "fingerprint": "node-without-taint//Node//gpu-1/"},
                "timestamp": timestamp,
            }],
        })
    );
    assert_eq!(
        *web,
        json!({
            "apiVersion": "openreports.io/v1alpha1",
            "kind": "Report",
            "metadata": {
                "name": "gpufence-audit",
                "namespace": "web",
                "labels": {"app.kubernetes.io/managed-by": "gpufence"},
            },
            "source": "gpufence",
            "scope": {"apiVersion": "v1", "kind": "Namespace", "name": "web"},
            "summary": {"pass": 0, "fail": 1, "warn": 0, "error": 0, "skip": 0},
            "results": [{
                "source": "gpufence",
                "policy": "gpufence",
                "rule": "ordinary-pod-on-gpu-node",
                "category": "GPU",
                "severity": "high",
                "result": "fail",
                "scored": true,
                "resources": [{"apiVersion": "v1", "kind": "Pod", "namespace": "web", "name": "shop-1"}],
                "message": "what ordinary-pod-on-gpu-node",
                "properties": {
                    "action": "do it",
                    "controller": "Deployment web/shop",
                    "field": "spec.tolerations[0]",
                    "fingerprint": "ordinary-pod-on-gpu-node/apps/Deployment/web/shop/nvidia",
                    "node": "gpu-1",
                    "pool": "nvidia",
                },
                "timestamp": timestamp,
            }],
        })
    );
}

#[test]
fn the_older_form_has_other_kinds_and_no_severity_for_what_is_only_good_to_know() {
    let audit = audit(vec![
        of(Check::OrdinaryPod, Severity::Medium, pod("web", "shop")),
        of(Check::PodPending, Severity::Info, pod("ml", "waits")),
    ]);
    let [cluster, ml, web] = &*reports(&audit, ReportForm::PolicyReports) else { panic!() };
    let kind = |report: &Value| format!("{}/{}", report["apiVersion"], report["kind"]);
    assert_eq!(kind(cluster), "\"wgpolicyk8s.io/v1alpha2\"/\"ClusterPolicyReport\"");
    assert_eq!(kind(web), "\"wgpolicyk8s.io/v1alpha2\"/\"PolicyReport\"");
    assert!([cluster, ml, web].iter().all(|report| report["source"].is_null()));
    assert_eq!((&web["results"][0]["severity"], &ml["results"][0]["severity"]), (&json!("medium"), &Value::Null));
}

/// Every severity has a result, what cannot be judged is an error, and the summary counts each.
#[test]
fn severities_become_results() {
    let mut findings: Vec<_> = Severity::WORST_FIRST
        .into_iter()
        .map(|severity| of(Check::OrdinaryPod, severity, pod("web", severity.as_str())))
        .collect();
    findings.push(of(Check::Unreadable, Severity::Medium, pod("web", "odd")));
    let mut audit = audit(findings);
    audit.gaps = vec!["the events of the cluster are not all known".to_owned()];
    for form in [ReportForm::OpenReports, ReportForm::PolicyReports] {
        let [cluster, web] = &*reports(&audit, form) else { panic!() };
        let results: Vec<_> = web["results"].as_array().unwrap().iter().map(|result| &result["result"]).collect();
        assert_eq!(results, ["fail", "warn", "warn", "pass", "error"]);
        assert_eq!(web["summary"], json!({"pass": 1, "fail": 1, "warn": 2, "error": 1, "skip": 0}));
        assert_eq!(cluster["summary"], json!({"pass": 0, "fail": 0, "warn": 0, "error": 1, "skip": 0}));
        assert_eq!(cluster["results"][0]["message"], "the events of the cluster are not all known");
    }
}

/// Where nothing is found there is the report of the cluster, which says so.
#[test]
fn a_clean_cluster_has_one_empty_report() {
    let mut audit = audit(Vec::new());
    audit.gaps.clear();
    let [cluster] = &*reports(&audit, ReportForm::OpenReports) else { panic!() };
    assert_eq!((&cluster["results"], &cluster["summary"]["error"]), (&json!([]), &json!(0)));
    assert_eq!(
        (&cluster["metadata"]["name"], &cluster["metadata"]["labels"][MANAGED_BY.0]),
        (&json!(NAME), &json!("gpufence"))
    );
}

#[test]
fn a_report_is_cut_where_it_would_be_too_large_and_says_so() {
    let many = 5000;
    let severity = |index| if index < 10 { Severity::High } else { Severity::Low };
    let findings = (0..many).map(|index| of(Check::OrdinaryPod, severity(index), pod("web", &format!("pod-{index}"))));
    for form in [ReportForm::OpenReports, ReportForm::PolicyReports] {
        let audit = audit(findings.clone().collect());
        let reports = reports(&audit, form);
        let web = reports.iter().find(|report| report["metadata"]["namespace"] == "web").unwrap();
        let size = web.to_string().len();
        assert!((MOST - 16 * 1024..=MOST).contains(&size), "{size}");
        assert_eq!(web["summary"], json!({"pass": 0, "fail": 10, "warn": many - 10, "error": 0, "skip": 0}));
        let results = web["results"].as_array().unwrap();
        let (last, kept) = results.split_last().unwrap();
        let left_out = (many - kept.len()).to_string();
        assert_eq!((&last["result"], &last["properties"]["leftOut"]), (&json!("skip"), &json!(left_out)));
        assert_eq!(web["metadata"]["annotations"][LEFT_OUT], left_out);
        assert!(kept[..10].iter().all(|result| result["severity"] == "high"));
        assert!(kept.len() > 100, "{}", kept.len());
    }
}
