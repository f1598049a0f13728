//! What is said of templates, of the allowlists, and of exemptions.

use std::collections::BTreeSet;

use gpufence::audit::{Audit, Finding, Severity, audit};
use gpufence::policy::{Kind, Mode, Policy};
use gpufence::review::{self, Webhook};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::cluster::{CONTRACT, Cluster, NOW, Pod, findings, found, gpu_node, pod, policy, workload};
use super::rules::{INTRICATE, World, world};
use crate::custom_resources;
use crate::properties::{self, CONTRACTS, holds};
use crate::support::{self, cases_path};

const NONE: [&str; 0] = [];

/// Every kind that holds a template, with where the pod stands in it.
const KINDS: [(&str, &str); 8] = [
    ("Deployment", "spec.template."),
    ("ReplicaSet", "spec.template."),
    ("StatefulSet", "spec.template."),
    ("DaemonSet", "spec.template."),
    ("Job", "spec.template."),
    ("CronJob", "spec.jobTemplate.spec.template."),
    ("ReplicationController", "spec.template."),
    ("PodTemplate", "template."),
];

fn exact() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

fn only(audit: &Audit, rule: &str) -> Finding {
    let all: Vec<_> = findings(audit, rule).collect();
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0].clone()
}

fn in_mode(mode: &str) -> String {
    CONTRACT.replace("mode: enforce", &format!("mode: {mode}"))
}

/// An owner reference is a word of who wrote the object.
#[test]
fn a_template_does_not_hide_behind_an_owner() {
    for (kind, owner) in
        [("Deployment", "Deployment"), ("DaemonSet", "CronJob"), ("Job", "Deployment"), ("ReplicaSet", "Job")]
    {
        let mut sneaky = workload(kind, "web/sneaky", pod("web/x").tolerates(exact()));
        sneaky["metadata"]["ownerReferences"] = super::cluster::owners(&format!("{owner}/innocent"));
        let innocent = workload(owner, "web/innocent", pod("web/x"));
        for objects in [[sneaky.clone(), innocent.clone()], [innocent, sneaky]] {
            let finding = only(&Cluster::new().objects(objects).audit(), "toleration-outside-allowlist");
            assert_eq!(finding.object.to_string(), format!("{kind} web/sneaky"));
        }
    }
}

#[test]
fn the_template_of_every_kind_is_judged_running_or_not() {
    for (kind, path) in KINDS {
        let mut sneaky = workload(kind, "web/w", pod("web/x").tolerates(exact()));
        sneaky["spec"]["replicas"] = 0.into();
        let audit = Cluster::new().object(sneaky).object(workload(kind, "web/fine", pod("web/x"))).audit();
        let finding = only(&audit, "toleration-outside-allowlist");
        assert_eq!(finding.object.to_string(), format!("{kind} web/w"));
        assert_eq!((finding.severity, finding.pool.as_deref()), (Severity::High, Some("nvidia")));
        let field = format!("{path}spec.tolerations[0]");
        assert_eq!(finding.field.as_ref(), Some(&field));
        let expected = match kind {
            "Job" => {
                format!("Delete Job web/w and create it anew without {field}: the template of a Job cannot change.")
            }
            _ => format!("Remove {field} of {kind} web/w."),
        };
        assert_eq!(finding.action, expected);
    }
}

/// They are judged where the contract lets the templates alone, too.
#[test]
fn templates_are_judged_whatever_the_webhook_does_about_them() {
    for templates in ["off", "audit", "warn", "deny"] {
        let contract = format!("{CONTRACT}templates: '{templates}'\n");
        let wide = pod("ml/x").gpus(1).placed().tolerates(json!({"operator": "Exists"}));
        let audit = Cluster::new().contract(&contract).object(workload("Deployment", "ml/d", wide)).audit();
        assert_eq!(only(&audit, "broad-toleration").severity, Severity::Medium, "{templates}");
    }
}

/// What the webhook says of an object, as `rule field`.
fn webhook(policy: &Policy, cluster: &Cluster, object: &Value, group: &str) -> Result<BTreeSet<String>, String> {
    let body = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": group, "version": "v1", "kind": object["kind"]},
            "namespace": object["metadata"]["namespace"],
            "operation": "CREATE",
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": object,
        },
    })
    .to_string();
    let decision = review::examine(policy, &World(cluster), Webhook::Validate, body.as_bytes())?.decision;
    Ok(decision.findings.iter().map(|finding| format!("{} {}", finding.rule, finding.field)).collect())
}

/// The rule hits of an audit, as `rule field`, and whether something could not be read.
fn hits(audit: &Audit) -> (BTreeSet<String>, bool) {
    let contract = |finding: &&Finding| matches!(finding.rule, gpufence::audit::Check::Contract(_));
    let hit = |finding: &Finding| format!("{} {}", finding.rule, finding.field.as_deref().unwrap_or_default());
    let unreadable = audit.findings.iter().any(|finding| finding.rule.id() == "unreadable");
    (audit.findings.iter().filter(contract).map(hit).collect(), unreadable)
}

#[test]
fn the_audit_says_of_every_generated_template_what_the_webhook_says() {
    let policies: Vec<_> = CONTRACTS
        .iter()
        .chain(&INTRICATE)
        .flat_map(|yaml| {
            Mode::ALL.map(|mode| {
                support::policy(&format!("mode: {mode}\ntemplates: deny\n{}", yaml.replace("templates: deny\n", "")))
            })
        })
        .collect();
    let seen = std::cell::Cell::new(0);
    let namespace = select(vec!["ml-team", "research-1", "web", "kube-system"]);
    let name = select(vec!["node-agent", "trainer", "x"]);
    holds(500, (0..policies.len(), select(&KINDS[..]), namespace, name, properties::pod()), |case| {
        let (contract, (kind, _), namespace, name, mut pod) = case;
        // Of a template nobody owns the pods yet.
        pod["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
        let mut object = workload(kind, &format!("{namespace}/{name}"), super::cluster::pod("web/x"));
        match kind {
            "PodTemplate" => object["template"] = template,
            "CronJob" => object["spec"]["jobTemplate"]["spec"]["template"] = template,
            _ => object["spec"]["template"] = template,
        }
        let group = Kind::ALL.iter().find(|own| own.name() == kind).unwrap().group();
        let cluster = world().object(object.clone());
        let policy = &policies[contract];
        let (ours, unreadable) = hits(&audit(policy, &cluster.snapshot(policy), "", NOW));
        match webhook(policy, &cluster, &object, group) {
            Ok(theirs) => prop_assert_eq!(&ours, &theirs, "{} {}", kind, object),
            Err(error) => prop_assert!(unreadable && ours.is_empty(), "{error}: {object}"),
        }
        seen.set(seen.get() + ours.len());
        Ok(())
    });
    assert!(seen.get() > 100, "{}: such templates show little", seen.get());
}

/// Of every kind in `deploy/custom-resources.yaml` an object that breaks the contract.
#[test]
fn custom_resources_are_judged_by_the_paths_of_the_contract() {
    let cases = std::fs::read_to_string(cases_path("custom-resources.yaml")).unwrap();
    let cases: Vec<Value> = serde_saphyr::from_str(&cases).unwrap();
    let policy = support::policy(&format!("mode: enforce\n{}", include_str!("../../../deploy/custom-resources.yaml")));
    let mut judged = 0;
    for case in &cases {
        let object = &case["object"];
        let (group, _) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        if policy.custom_resource(group, object["kind"].as_str().unwrap()).is_none() {
            continue;
        }
        let cluster = Cluster::new().object(object.clone());
        let audit = audit(&policy, &cluster.snapshot(&policy), "", NOW);
        let (ours, unreadable) = hits(&audit);
        assert_eq!(Ok(&ours), webhook(&policy, &cluster, object, group).as_ref(), "{object}");
        assert!(!unreadable && ours.iter().any(|hit| hit.ends_with(case["field"].as_str().unwrap())), "{ours:?}");
        judged += 1;
    }
    assert!(judged > 20, "{judged}");
}

#[test]
fn a_custom_resource_that_cannot_be_judged_is_a_finding() {
    let policy = custom_resources::of_widgets_in("enforce", "");
    let widget = |templates: Value| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "web"},
            "spec": {"templates": templates},
        })
    };
    let said = |templates: Value| {
        let cluster = Cluster::new().object(widget(templates));
        let audit = audit(&policy, &cluster.snapshot(&policy), "", NOW);
        findings(&audit, "unreadable").map(|finding| finding.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        said(json!([{"spec": {"tolerations": 5}}])),
        ["it cannot be judged: spec.templates[0].spec.tolerations: invalid type: integer `5`, expected a list"]
    );
    assert_eq!(
        said(vec![json!({"spec": {}}); 251].into()),
        ["it cannot be judged: more than 250 pod templates, which cannot be judged"]
    );
    assert_eq!(said(json!([{"spec": {}}])), NONE);
}

#[test]
fn a_gpu_template_that_relies_on_the_webhook_is_told() {
    let template = |pod: Pod| workload("Deployment", "ml/train", pod);
    let bare = || Cluster::new().object(template(pod("ml/x").gpus(1)));
    let finding = only(&bare().audit(), "template-without-placement");
    assert_eq!((finding.severity, finding.pool.as_deref()), (Severity::Info, Some("nvidia")));
    assert_eq!(finding.field.as_deref(), Some("spec.template.spec.tolerations"));
    assert_eq!(
        finding.message,
        "its pods request GPUs of pool nvidia and have the toleration of dedicated=gpu:NoSchedule and the nodeSelector \
         accelerator=nvidia from the webhook alone"
    );
    assert_eq!(
        finding.action,
        "Nothing, while the webhook runs. So that its pods need no webhook, add {key: dedicated, operator: Equal, value: \
         gpu, effect: NoSchedule} to spec.template.spec.tolerations and accelerator: nvidia to \
         spec.template.spec.nodeSelector."
    );
    let audited = only(&bare().contract(&in_mode("audit")).audit(), "template-without-placement");
    assert_eq!(audited.severity, Severity::Low);
    assert_eq!(
        audited.message,
        "its pods request GPUs of pool nvidia and have not the toleration of dedicated=gpu:NoSchedule and the \
         nodeSelector accelerator=nvidia: in mode audit nobody gives it to them"
    );
    assert!(
        audited.action.ends_with("; or set the mode to warn or enforce, in which the webhook gives it to each pod.")
    );
    for (what, pod) in [
        ("complete", pod("ml/x").gpus(1).placed()),
        ("no GPU", pod("ml/x")),
        ("a namespace that gets nothing", pod("web/x").gpus(1)),
    ] {
        let namespace = if what.starts_with("a namespace") { "web/train" } else { "ml/train" };
        let audit = Cluster::new().object(workload("Deployment", namespace, pod)).audit();
        assert_eq!(found(&audit, "template-without-placement"), NONE, "{what}");
    }
    let selecting = Cluster::new().object(template(pod("ml/x").gpus(1).selects("accelerator", "nvidia")));
    assert!(
        only(&selecting.audit(), "template-without-placement").message.contains("have the toleration of dedicated")
    );
    let tolerating = Cluster::new().object(template(pod("ml/x").gpus(1).tolerates(exact())));
    let finding = only(&tolerating.audit(), "template-without-placement");
    assert_eq!(finding.field.as_deref(), Some("spec.template.spec.nodeSelector"));
}

#[test]
fn a_daemon_set_needs_no_selector_and_who_is_exempt_nothing() {
    let tolerating = workload("DaemonSet", "ml/agent", pod("ml/x").gpus(1).tolerates(exact()));
    let lacking = workload("DaemonSet", "ml/agent", pod("ml/x").gpus(1));
    assert_eq!(found(&Cluster::new().object(tolerating).audit(), "template-without-placement"), NONE);
    let audit = Cluster::new().object(lacking.clone()).audit();
    assert!(!only(&audit, "template-without-placement").message.contains("nodeSelector"));
    let exempting = CONTRACT
        .replace("exemptions: []", "exemptions: [{name: agents, reason: r, namespaces: [ml], daemonSets: [agent]}]");
    assert_eq!(found(&Cluster::new().contract(&exempting).object(lacking).audit(), "template-without-placement"), NONE);
    let wide = workload("DaemonSet", "ml/agent", pod("ml/x").tolerates(json!({"operator": "Exists"})));
    let audit = Cluster::new().contract(&exempting).object(wide.clone()).audit();
    assert!(audit.findings.is_empty(), "{:#?}", audit.findings);
    assert!(!Cluster::new().object(wide).audit().findings.is_empty());
}

/// A custom resource's template is told by its own path.
#[test]
fn the_template_of_a_custom_resource_can_lack_its_placement() {
    let policy = custom_resources::of_widgets_in("enforce", "");
    let spec = json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]});
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "ml-team"},
        "spec": {"templates": [{"spec": {"containers": []}}, {"spec": spec}]},
    });
    let cluster = Cluster::new().object(widget);
    let audit = audit(&policy, &cluster.snapshot(&policy), "", NOW);
    let finding = only(&audit, "template-without-placement");
    assert_eq!(finding.object.to_string(), "Widget ml-team/w");
    assert_eq!(finding.field.as_deref(), Some("spec.templates[1].spec.tolerations"));
}

#[test]
fn a_manifest_without_a_namespace_is_of_the_default_one() {
    let mut object = workload("Deployment", "web/d", pod("web/x").tolerates(exact()));
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    let audit = Cluster::new().object(object).audit();
    assert_eq!(found(&audit, "toleration-outside-allowlist"), ["Deployment default/d"]);
}

#[test]
fn an_allowlist_that_leads_to_no_namespace_is_told() {
    let contract =
        CONTRACT.replace("names: [ml]", "names: [ml, gone, 'research-*', 'm*'], selector: {matchLabels: {gpu: 'yes'}}");
    let audit = Cluster::new().contract(&contract).audit();
    let told: Vec<_> = findings(&audit, "namespace-missing")
        .map(|finding| (finding.field.clone().unwrap(), finding.message.as_str(), finding.severity))
        .collect();
    let field = |rest: &str| format!("pools[0].namespaces.{rest}");
    assert_eq!(
        told,
        [
            (field("names[1]"), "pool nvidia allows namespace gone, which does not exist", Severity::Low),
            (
                field("names[2]"),
                "pool nvidia allows namespaces research-*, and there is none of such a name",
                Severity::Low
            ),
            (
                field("selector"),
                "pool nvidia allows namespaces with labels gpu=yes, and no namespace has them",
                Severity::Low
            ),
        ]
    );
    let first = findings(&audit, "namespace-missing").next().unwrap();
    assert_eq!(first.object.to_string(), "Contract pools/nvidia");
    assert_eq!(
        first.action,
        "Remove gone from namespaces.names of pool nvidia, or create it: kubectl create namespace gone. Until then \
         whoever may create it may use the pool."
    );
    let fingerprints: BTreeSet<_> = audit.findings.iter().map(|finding| &finding.fingerprint).collect();
    assert_eq!(fingerprints.len(), audit.findings.len());
    // With what is missing, nothing is.
    let labelled = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research-1", "labels": {"gpu": "yes"}},
    });
    let cluster = Cluster::new().contract(&contract).namespace("gone").object(labelled);
    assert_eq!(found(&cluster.audit(), "namespace-missing"), NONE);
}

#[test]
fn nothing_is_missing_where_not_all_is_known() {
    let contract = CONTRACT
        .replace("names: [ml]", "names: [gone], selector: {matchLabels: {gpu: 'yes'}}")
        .replace("exemptions: []", "exemptions: [{name: e, reason: r, namespaces: [gone]}]");
    let policy = policy(&contract);
    let mut builder = gpufence::audit::snapshot::Builder::new(&policy);
    builder.take_all("dump.json", Value::from(gpu_node("gpu-1")).to_string().as_bytes());
    builder.completes_as_dumped();
    let audit = audit(&policy, &builder.finish(), "dump.json", NOW);
    for rule in ["namespace-missing", "exemption-unused"] {
        assert_eq!(found(&audit, rule), NONE);
    }
}

/// A contract with these exemptions, a line each.
fn exempting(exemptions: &[&str]) -> String {
    CONTRACT.replace("exemptions: []", &format!("exemptions:\n- {}", exemptions.join("\n- ")))
}

#[test]
fn an_exemption_that_has_expired_says_who_loses_it() {
    let contract = exempting(&[
        "{name: old, reason: r, namespaces: [web], owners: [{kind: ReplicaSet, name: 'shop-*'}], expires: 2026-11-29}",
        "{name: older, reason: r, namespaces: [web], daemonSets: [nobody], expires: 2026-01-01}",
        "{name: person, reason: r, users: [jane], expires: 2026-01-01}",
        "{name: valid, reason: r, namespaces: [kube-system], daemonSets: [agent], expires: 2026-11-30}",
    ]);
    let shop = |name: &str| pod(name).tolerates(exact()).owned_by("ReplicaSet/shop-5d4f8c7b9c");
    let cluster = Cluster::new()
        .contract(&contract)
        .object(shop("web/shop-a"))
        .object(shop("web/shop-b"))
        .object(workload("DaemonSet", "kube-system/agent", pod("web/x").tolerates(exact())));
    let audit = cluster.audit();
    let told: Vec<_> = findings(&audit, "exemption-expired")
        .map(|finding| (finding.object.name.to_string(), finding.severity, finding.message.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                "exemptions/old".to_owned(),
                Severity::Medium,
                "exemption old expired on 2026-11-29; without it the contract is broken by ReplicaSet \
                 web/shop-5d4f8c7b9c (2 pods)"
            ),
            (
                "exemptions/older".to_owned(),
                Severity::Low,
                "exemption older expired on 2026-01-01; nothing in the cluster would need it"
            ),
            (
                "exemptions/person".to_owned(),
                Severity::Low,
                "exemption person expired on 2026-01-01; whether anybody still needs it depends on who asks, which an \
                 audit does not see"
            ),
        ]
    );
    let field = |rule: &str| findings(&audit, rule).map(|finding| finding.field.clone().unwrap()).collect::<Vec<_>>();
    assert_eq!(field("exemption-expired"), ["exemptions[0]", "exemptions[1]", "exemptions[2]"]);
    assert_eq!(found(&audit, "exemption-unused"), NONE, "what has expired is told once");
}

/// Each row: an exemption, an object, and whether it needs the exemption.
#[test]
fn an_exemption_is_unused_where_nothing_changes_without_it() {
    let wide = || json!({"operator": "Exists"});
    let sets = "namespaces: [web], owners: [{kind: StatefulSet, name: db}]";
    let completing = "namespaces: [ml], owners: [{kind: StatefulSet, name: db}]";
    for (fields, object, mode, unused) in [
        (sets, Value::from(pod("web/db-0").tolerates(wide()).owned_by("StatefulSet/db")), "enforce", false),
        (sets, pod("web/db-0").owned_by("StatefulSet/db").into(), "enforce", true),
        (sets, pod("web/db-0").tolerates(wide()).owned_by("StatefulSet/other").into(), "enforce", true),
        (sets, workload("StatefulSet", "web/db", pod("web/x").tolerates(wide())), "enforce", false),
        (sets, workload("StatefulSet", "web/db", pod("web/x")), "enforce", true),
        // What is spared is the completion alone.
        (completing, pod("ml/db-0").gpus(1).owned_by("StatefulSet/db").into(), "audit", false),
        (completing, pod("ml/db-0").gpus(1).placed().owned_by("StatefulSet/db").into(), "audit", true),
        // Who asks, and who changes namespaces and nodes, is not seen.
        ("users: [jane]", pod("web/a").into(), "enforce", false),
        ("namespaces: [web], groups: [g]", pod("web/a").into(), "enforce", false),
        ("serviceAccounts: [ci/deployer]", pod("web/a").into(), "enforce", false),
        ("namespaces: [web], rules: [lever-change]", pod("web/a").into(), "enforce", false),
        ("namespaces: [web]", pod("web/a").into(), "enforce", true),
    ] {
        let contract = exempting(&[&format!("{{name: e, reason: r, {fields}}}")]);
        let contract = contract.replace("mode: enforce", &format!("mode: {mode}"));
        let audit = Cluster::new().contract(&contract).object(object.clone()).audit();
        let told = found(&audit, "exemption-unused");
        assert_eq!(told, if unused { vec!["Contract exemptions/e"] } else { vec![] }, "{fields} {object}");
        if unused {
            let finding = only(&audit, "exemption-unused");
            assert_eq!(finding.severity, Severity::Low);
            assert_eq!(
                finding.message,
                "no pod needs exemption e today, and no template: without it none would be told of more"
            );
            assert_eq!(
                finding.action,
                "Keep exemption e where what it is for is still to come, such as agents that are not installed yet; otherwise \
                 remove it from the contract, for it exempts whoever comes next."
            );
        }
    }
}

/// Where ordinary pods are kept off the pools' nodes, an exemption may spare them that.
#[test]
fn an_exemption_from_the_second_line_is_used() {
    let contract = exempting(&["{name: e, reason: r, namespaces: [web]}"]);
    let fencing = format!("{contract}injection: {{fenceOrdinary: [accelerator]}}\n");
    for (contract, unused) in [(contract, 1), (fencing, 0)] {
        let audit = Cluster::new().contract(&contract).object(pod("web/a")).audit();
        assert_eq!(found(&audit, "exemption-unused").len(), unused);
    }
}
