//! The contract's rules, asked of every pod of a cluster: the webhook and the audit say the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpufence::audit::{Audit, Finding, Severity, audit};
use gpufence::policy::{Action, Facts, Kind, LabelSelector, MIRROR_ANNOTATION, Mode, Node, NodeFact, Policy};
use gpufence::review::{self, Webhook};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::cluster::{CONTRACT, Cluster, NOW, findings, found, gpu_node, node, pod, policy, workload};
use crate::objects;
use crate::properties::{self, CONTRACTS, holds};
use crate::support::{self, Form};

/// What the webhook's caches would hold of the cluster.
#[derive(Debug)]
pub struct World<'c>(pub &'c Cluster);

impl World<'_> {
    fn named(&self, kind: &str, name: &str) -> Option<&Value> {
        self.0.objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }
}

impl Facts for World<'_> {
    fn namespace_meets(&self, namespace: &str, selector: &LabelSelector) -> Option<bool> {
        let Some(namespace) = self.named("Namespace", namespace) else { return Some(false) };
        let labels = serde_json::from_value(namespace["metadata"]["labels"].clone()).unwrap_or_default();
        Some(selector.matches(&labels))
    }

    fn node(&self, name: &str) -> NodeFact {
        let Some(node) = self.named("Node", name) else { return NodeFact::Absent };
        let text = |value: &Value| -> Arc<str> { value.as_str().unwrap_or_default().into() };
        let labels = node["metadata"]["labels"].as_object().unwrap();
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        NodeFact::Known(Arc::new(Node::new(
            labels.iter().map(|(key, value)| (key.as_str().into(), text(value))),
            taints.iter().map(|taint| ["key", "value", "effect"].map(|field| text(&taint[field]))),
        )))
    }

    fn now(&self) -> i64 {
        NOW
    }
}

/// Who made a pod that is stored, and its groups: the kubelet of a mirror pod, the controller of its owner, or somebody.
fn maker(pod: &Value) -> (String, Vec<String>) {
    let groups = |own: &[&str]| [&["system:authenticated"], own].concat().into_iter().map(str::to_owned).collect();
    let somebody = (String::new(), groups(&[]));
    let is_stored = ["uid", "creationTimestamp"].iter().any(|key| pod["metadata"].get(*key).is_some());
    if !is_stored && pod["status"]["phase"].is_null() {
        return somebody;
    }
    if let (true, Some(node)) = (is_mirror(pod), pod["spec"]["nodeName"].as_str()) {
        return (format!("system:node:{node}"), groups(&["system:nodes"]));
    }
    let owners = pod["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else { return somebody };
    let account = match (owner["apiVersion"].as_str().unwrap(), owner["kind"].as_str().unwrap()) {
        ("apps/v1", "DaemonSet") => "daemon-set-controller",
        ("apps/v1", "ReplicaSet") => "replicaset-controller",
        ("apps/v1", "StatefulSet") => "statefulset-controller",
        ("batch/v1", "Job") => "job-controller",
        ("v1", "ReplicationController") => "replication-controller",
        _ => return somebody,
    };
    let name = format!("system:serviceaccount:kube-system:{account}");
    (name, groups(&["system:serviceaccounts", "system:serviceaccounts:kube-system"]))
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].as_object().is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
}

/// The request that made the pod: before the scheduler wrote the node's name into it.
pub fn request(pod: &Value, object: &Value) -> Value {
    let (username, groups) = maker(pod);
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": pod["metadata"]["namespace"],
            "operation": "CREATE",
            "userInfo": {"username": username, "groups": groups},
            "object": object,
        },
    })
}

/// The pod as who made it sent it.
pub fn created(pod: &Value) -> Value {
    let mut object = pod.clone();
    let wrote_node = pod["metadata"]["managedFields"].to_string().contains("f:nodeName");
    let is_stored = pod["metadata"].get("uid").is_some();
    if is_stored && !wrote_node && !is_mirror(pod) {
        // Some have no spec at all.
        object["spec"].as_object_mut().map(|spec| spec.remove("nodeName"));
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

type Told = BTreeSet<(String, String, String, Severity)>;

fn told(finding: &Finding) -> (String, String, String, Severity) {
    let Finding { rule, field, message, severity, .. } = finding;
    (rule.id().to_owned(), field.clone().unwrap_or_default(), message.clone(), *severity)
}

/// What the webhook says of the pod: its findings, or that it cannot be read.
fn webhook(policy: &Policy, cluster: &Cluster, pod: &Value) -> Result<Told, String> {
    let body = request(pod, &created(pod)).to_string();
    let answer = review::answer(policy, &World(cluster), Webhook::Validate, body.as_bytes());
    assert_eq!(answer.status, 200);
    let decision = review::examine(policy, &World(cluster), Webhook::Validate, body.as_bytes())?.decision;
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer["response"]["allowed"], !decision.denies());
    let findings = decision.findings.iter().map(|finding| {
        (finding.rule.id().to_owned(), finding.field.clone(), finding.text(), Severity::from(finding.configured))
    });
    Ok(findings.collect())
}

/// Holds the audit of a cluster against the webhook, pod by pod. Returns how many findings there are in all.
fn agree(policy: &Policy, cluster: &Cluster) -> Result<usize, String> {
    let snapshot = cluster.snapshot(policy);
    let audit = audit(policy, &snapshot, "cluster.json", NOW);
    let mut findings = 0;
    for pod in cluster.objects.iter().filter(|object| object["kind"] == "Pod") {
        let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
        let mine = |object: &gpufence::audit::ObjectRef| {
            &*object.kind == "Pod" && *namespace == *object.namespace && *name == *object.name
        };
        let Some(known) = snapshot.pods.iter().find(|pod| mine(&pod.object())) else {
            assert!(!snapshot.faults.is_empty(), "{pod}");
            continue;
        };
        let of_it = audit.findings.iter().filter(|finding| mine(&finding.object));
        let (rules, others): (Vec<_>, Vec<_>) =
            of_it.partition(|finding| matches!(finding.rule, gpufence::audit::Check::Contract(_)));
        let ours: Told = rules.iter().map(|finding| told(finding)).collect();
        assert_eq!(ours.len(), rules.len(), "nothing is said twice");
        findings += ours.len();
        let theirs = if known.is_over() { Ok(Told::new()) } else { webhook(policy, cluster, pod) };
        match theirs {
            Ok(theirs) if ours == theirs => {}
            Err(_) if ours.is_empty() && others.iter().any(|other| other.rule.id() == "unreadable") => {}
            theirs => return Err(format!("the audit says {ours:#?}, the webhook {theirs:#?} of {pod}")),
        }
    }
    Ok(findings)
}

/// Modes by namespace, exemptions of every form, labels of namespaces, an action for each rule.
pub const INTRICATE: [&str; 3] = [
    "
rollout:
- {namespaces: [web], mode: audit}
- {selector: {matchLabels: {stage: warn}}, mode: warn}
pools:
- name: nvidia
  resources: [nvidia.com/gpu, 'nvidia.com/mig-*']
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: [ml-team], selector: {matchLabels: {gpu: 'yes'}}}
- name: amd
  resources: [amd.com/gpu]
  taints: [{key: amd.com/gpu, value: '5', effect: NoSchedule}]
  nodeSelector: {accelerator: amd}
  namespaces: {names: [web]}
exemptions:
- {name: agents, reason: r, namespaces: [kube-system], daemonSets: ['*'], expires: 2026-11-30}
- {name: gone, reason: r, namespaces: [web], daemonSets: [node-agent], expires: 2026-11-29}
- {name: sets, reason: r, namespaces: [web, research-1], owners: [{kind: ReplicaSet, name: 'train*'}], pools: [amd]}
- {name: one-rule, reason: r, namespaces: [research-1], groups: [system:serviceaccounts], rules: [broad-toleration]}
",
    "
rules: {placement-missing: deny, broad-toleration: 'off', toleration-without-gpu-request: audit}
injection: {whenTolerated: skip, fenceOrdinary: [accelerator]}
pools:
- name: nvidia
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: large, value: '5', effect: NoExecute}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {selector: {matchExpressions: [{key: gpu, operator: Exists}]}}
exemptions:
- {name: everybody-here, reason: r, namespaces: [kube-system], groups: ['system:authenticated']}
- {name: kubelets, reason: r, groups: ['system:nodes'], rules: [node-name-bypass]}
",
    "
nodes: {whenUnknown: deny}
identities: {replicaSetController: [system:serviceaccount:kube-system:replicaset-controller, robot]}
pools:
- name: nvidia
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: ['*-team', web]}
- name: twin
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: small}
  namespaces: {names: [ml-team]}
exemptions: [{name: whole, reason: r, namespaces: [kube-system], pools: [twin]}]
",
];

/// A pod as a cluster holds it, or as a manifest does.
pub fn stored_pod() -> impl Strategy<Value = Value> {
    let namespace = select(vec!["ml-team", "ml-team", "research-1", "web", "web", "kube-system", "gone"]);
    let owner = select(vec!["", "", "ReplicaSet/trainer-1", "Job/trainer", "DaemonSet/node-agent", "Widget/w"]);
    let phase = select(vec!["Running", "Running", "Running", "Pending", "Succeeded"]);
    let node = select(vec!["", "", "", "gpu-1", "node-1", "lost"]);
    (properties::pod(), namespace, owner, phase, node, any::<bool>(), any::<bool>()).prop_map(
        |(mut pod, namespace, owner, phase, node, is_stored, wrote_node)| {
            pod["metadata"]["namespace"] = namespace.into();
            if !owner.is_empty() {
                pod["metadata"]["ownerReferences"] = super::cluster::owners(owner);
            }
            if !node.is_empty() {
                pod["spec"]["nodeName"] = node.into();
            }
            if is_stored {
                pod["metadata"]["uid"] = "u".into();
                pod["status"]["phase"] = phase.into();
                if wrote_node {
                    pod["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
                }
            }
            pod
        },
    )
}

pub fn world() -> Cluster {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    Cluster { objects: Vec::new(), contract: String::new() }
        .object(namespace("ml-team", json!({"stage": "warn"})))
        .object(namespace("research-1", json!({"gpu": "yes"})))
        .object(namespace("web", json!({"gpu": "no"})))
        .object(namespace("kube-system", json!({})))
        .object(gpu_node("gpu-1"))
        .object(node("node-1"))
}

#[test]
fn the_audit_says_of_every_generated_pod_what_the_webhook_says() {
    let contracts: Vec<_> = CONTRACTS.iter().chain(&INTRICATE).collect();
    let policies: Vec<_> = contracts
        .iter()
        .flat_map(|yaml| Mode::ALL.map(|mode| support::policy(&format!("mode: {mode}\n{yaml}"))))
        .collect();
    let findings = std::cell::Cell::new(0);
    holds(600, (0..policies.len(), vec(stored_pod(), 1..5)), |(contract, pods)| {
        let mut cluster = world();
        for (index, mut pod) in pods.into_iter().enumerate() {
            pod["metadata"].as_object_mut().unwrap().remove("generateName");
            pod["metadata"]["name"] = format!("p-{index}").into();
            cluster = cluster.object(pod);
        }
        match agree(&policies[contract], &cluster) {
            Ok(count) => findings.set(findings.get() + count),
            Err(difference) => prop_assert!(false, "{difference}"),
        }
        Ok(())
    });
    assert!(findings.get() > 300, "{}: such pods show little", findings.get());
}

/// The objects of which it is known what becomes of them, all in one cluster.
#[test]
fn the_audit_says_of_every_pod_from_the_wild_what_the_webhook_says() {
    let mut cluster = world();
    for (index, (id, mut pod)) in objects::pods().into_iter().enumerate() {
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        pod["metadata"]["name"] = format!("{index}-{id}").into();
        pod["metadata"]["uid"] = "u".into();
        pod["metadata"].as_object_mut().unwrap().remove("managedFields");
        cluster = cluster.object(pod);
    }
    for form in Form::ALL {
        for allowed in [&["ml-team"][..], &["research-1", "*-allowed"]] {
            for more in ["", "exemptions: []", "rules: {placement-missing: deny, broad-toleration: deny}"] {
                let findings = agree(&support::policy(&form.yaml(allowed, more)), &cluster).unwrap();
                assert!(findings > 20, "{}: {findings}", form.name());
            }
        }
    }
}

const EXACT: &str = r#"{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}"#;

fn exact() -> Value {
    serde_json::from_str(EXACT).unwrap()
}

fn only(audit: &Audit, rule: &str) -> Finding {
    let all: Vec<_> = findings(audit, rule).collect();
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0].clone()
}

#[test]
fn a_finding_names_the_pod_its_maker_its_node_and_what_to_change() {
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(workload("Deployment", "web/shop", pod("web/x")))
        .object(pod("web/shop-5d4f8c7b9c-x").tolerates(exact()).owned_by("ReplicaSet/shop-5d4f8c7b9c").on("gpu-1"))
        .object({
            let mut set = workload("ReplicaSet", "web/shop-5d4f8c7b9c", pod("web/x"));
            set["metadata"]["ownerReferences"] = super::cluster::owners("Deployment/shop");
            set
        });
    let finding = only(&cluster.audit(), "toleration-outside-allowlist");
    assert_eq!(finding.severity, Severity::High);
    assert_eq!(finding.object.to_string(), "Pod web/shop-5d4f8c7b9c-x");
    assert_eq!(finding.controller.unwrap().to_string(), "Deployment web/shop");
    assert_eq!((finding.pool.as_deref(), finding.node.as_deref()), (Some("nvidia"), Some("gpu-1")));
    assert_eq!(finding.field.as_deref(), Some("spec.tolerations[0]"));
    assert_eq!(
        finding.message,
        "spec.tolerations[0] passes the taint dedicated=gpu:NoSchedule of pool nvidia, closed to namespace web \
         (allowed: ml). Remove it or use an allowed namespace."
    );
    assert_eq!(finding.action, "Remove spec.template.spec.tolerations[0] of Deployment web/shop.");
}

/// What to do depends on who makes the pod: nothing of a pod or a Job can be taken out.
#[test]
fn the_action_is_what_the_maker_of_the_pod_can_do() {
    let spec = "spec.template.spec.tolerations[0] of";
    let then = "Then delete its pods: they are not replaced by themselves.";
    for (owner, action) in [
        (
            "",
            "Remove spec.tolerations[0] of Pod web/p. A pod stays as it was created: delete it and create it anew."
                .into(),
        ),
        ("StatefulSet/db", format!("Remove {spec} StatefulSet web/db.")),
        (
            "ReplicaSet/r",
            format!("Remove {spec} whoever owns ReplicaSet web/r (its Deployment, most likely)."),
        ),
        ("ReplicationController/r", format!("Remove {spec} ReplicationController web/r. {then}")),
        ("CronJob/c", "Remove spec.jobTemplate.spec.template.spec.tolerations[0] of CronJob web/c.".into()),
        (
            "Job/j",
            "Delete Job web/j and create it anew without spec.template.spec.tolerations[0]: the template of a Job cannot \
             change."
                .into(),
        ),
        ("CloneSet/c", "Remove spec.tolerations[0] of the pods that CloneSet web/c makes.".into()),
    ] {
        let pod = pod("web/p").tolerates(exact());
        let pod = if owner.is_empty() { pod } else { pod.owned_by(owner) };
        let finding = only(&Cluster::new().object(pod).audit(), "toleration-outside-allowlist");
        assert_eq!(finding.action, action, "{owner}");
    }
    // A ReplicaSet that is there has no owner.
    let alone = Cluster::new()
        .object(workload("ReplicaSet", "web/r", pod("web/x")))
        .object(pod("web/p").tolerates(exact()).owned_by("ReplicaSet/r"));
    assert_eq!(
        only(&alone.audit(), "toleration-outside-allowlist").action,
        format!("Remove {spec} ReplicaSet web/r. {then}")
    );
}

/// A node's name that the template does not have cannot be removed from it.
#[test]
fn a_node_name_is_removed_from_where_it_is() {
    let by_name = |pod: &mut Value| {
        pod["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    };
    let action = |template: super::cluster::Pod| {
        let cluster = Cluster::new()
            .object(gpu_node("gpu-1"))
            .object(workload("StatefulSet", "web/db", template))
            .object(pod("web/db-0").on("gpu-1").owned_by("StatefulSet/db").edit(by_name));
        let audit = cluster.audit();
        let finding = findings(&audit, "node-name-bypass").find(|finding| &*finding.object.kind == "Pod");
        finding.unwrap().action.clone()
    };
    assert_eq!(
        action(pod("web/x")),
        "Run kubectl delete pod --namespace web db-0: the template of StatefulSet web/db does not have spec.nodeName. If \
         the next pod has it again, something adds it, such as an admission webhook."
    );
    assert_eq!(action(pod("web/x").on("gpu-1")), "Remove spec.template.spec.nodeName of StatefulSet web/db.");
}

#[test]
fn a_pod_past_the_mutating_webhook_is_made_anew() {
    for (owner, action) in [
        ("", "kubectl delete pod p --namespace ml, and create it anew."),
        ("StatefulSet/db", "kubectl rollout restart statefulset db --namespace ml."),
        ("Job/j", "kubectl delete pod p --namespace ml."),
    ] {
        let pod = pod("ml/p").gpus(1);
        let pod = if owner.is_empty() { pod } else { pod.owned_by(owner) };
        let cluster = Cluster::new().object(pod);
        let finding = only(&cluster.audit(), "placement-missing");
        assert_eq!(finding.action, format!("Let the mutating webhook see it: {action}"));
        assert_eq!(finding.severity, Severity::Medium);
        let audited = cluster.contract(&CONTRACT.replace("mode: enforce", "mode: audit")).audit();
        assert_eq!(found(&audited, "placement-missing"), [""; 0], "nothing is injected in mode audit");
    }
    let complete = Cluster::new().object(pod("ml/p").gpus(1).placed());
    assert_eq!(found(&complete.audit(), "placement-missing"), [""; 0]);
}

/// Each rule has its own words for what to do; none is left out.
#[test]
fn every_rule_that_pods_can_break_says_what_to_do() {
    let wide = json!({"operator": "Exists"});
    let by_name = |pod: &mut Value| {
        pod["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    };
    let odd = json!({"key": "dedicated", "operator": "Like", "value": "gpu"});
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(pod("web/gpu").gpus(1))
        .object(pod("web/named").on("gpu-1").edit(by_name))
        .object(pod("web/odd").tolerates(odd))
        .object(pod("ml/wide").gpus(1).placed().tolerates(wide))
        .object(pod("ml/idle").tolerates(exact()))
        .object(pod("ml/torn").gpus(1).placed().edit(|pod| pod["spec"]["nodeSelector"]["accelerator"] = "amd".into()));
    let audit = cluster.audit();
    let action = |rule: &str| only(&audit, rule).action.split(" A pod stays").next().unwrap().to_owned();
    assert_eq!(
        action("gpu-request-outside-allowlist"),
        "Remove spec.containers[0].resources.requests[\"nvidia.com/gpu\"] of Pod web/gpu, or run it in a namespace that may \
         use the pool."
    );
    assert_eq!(action("node-name-bypass"), "Remove spec.nodeName of Pod web/named.");
    assert_eq!(action("not-understood"), "Correct spec.tolerations[0].operator of Pod web/odd.");
    assert_eq!(
        action("broad-toleration"),
        "Narrow spec.tolerations[1] of Pod ml/wide to the exact toleration, or remove it."
    );
    assert_eq!(
        action("toleration-without-gpu-request"),
        "Remove spec.tolerations[0] of Pod ml/idle, or request a GPU."
    );
    assert_eq!(action("placement-conflict"), "Correct spec.nodeSelector[\"accelerator\"] of Pod ml/torn.");
    let severities: BTreeSet<_> = audit.findings.iter().map(|finding| (finding.rule.id(), finding.severity)).collect();
    for rule in gpufence::policy::Rule::ALL {
        let expected = Severity::from(policy(CONTRACT).action(rule));
        let own: Vec<_> = severities.iter().filter(|(id, _)| *id == rule.id()).map(|(_, severity)| *severity).collect();
        if policy(CONTRACT).action(rule) > Action::Off && !own.is_empty() {
            assert_eq!(own, [expected], "{rule}");
        }
    }
}

#[test]
fn a_pod_that_cannot_be_read_is_a_finding_and_so_is_a_field() {
    let broken = pod("ml/broken").edit(|pod| pod["spec"]["tolerations"] = json!([{"key": 5}]));
    let audit = Cluster::new().object(broken).object(pod("ml/fine")).audit();
    let finding = only(&audit, "unreadable");
    assert_eq!((finding.object.to_string().as_str(), finding.severity), ("Pod ml/broken", Severity::Medium));
    assert_eq!(
        finding.message,
        "it cannot be judged: spec.tolerations[0].key: invalid type: integer `5`, expected a string"
    );
    assert_eq!(finding.action, "Correct Pod ml/broken: in mode enforce the webhook refuses what it cannot read.");
}

/// Where facts are missing the audit says which, and of how many objects the verdict rests on them.
#[test]
fn what_is_not_known_is_a_gap() {
    let contract = CONTRACT.replace("names: [ml]", "names: [ml], selector: {matchLabels: {gpu: 'yes'}}");
    let policy = policy(&contract);
    let by_name = pod("ml/named").on("lost").edit(|pod| {
        pod["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    });
    let mut builder = gpufence::audit::snapshot::Builder::new(&policy);
    let list = Cluster { objects: Vec::new(), contract }
        .object(pod("dark/a").tolerates(exact()))
        .object(pod("dark/b").tolerates(exact()))
        .object(pod("dark/ordinary"))
        .object(workload("Deployment", "dark/d", pod("dark/x").tolerates(exact())))
        .object(by_name)
        .list();
    builder.take_all("dump.json", list.to_string().as_bytes());
    let audit = audit(&policy, &builder.finish(), "dump.json", NOW);
    let gaps: Vec<_> = audit.gaps.iter().filter(|gap| gap.contains("verdict")).map(String::as_str).collect();
    assert_eq!(
        gaps,
        [
            "the labels of namespace dark are not known, on which the verdict on 3 objects depends",
            "node lost is not known, on which the verdict on 1 object depends",
        ]
    );
    assert_eq!(
        found(&audit, "toleration-outside-allowlist"),
        ["Deployment dark/d", "Pod dark/a", "Pod dark/b"],
        "unknown is outside"
    );
}

/// Nothing in a stored pod proves who created it, where no controller did.
#[test]
fn a_pod_whose_creator_may_be_exempt_says_so() {
    let contract = CONTRACT
        .replace("exemptions: []", "exemptions: [{name: robots, reason: r, namespaces: [web], users: [robot]}]");
    let cluster = Cluster::new()
        .contract(&contract)
        .object(pod("web/alone").tolerates(exact()))
        .object(pod("web/owned").tolerates(exact()).owned_by("StatefulSet/db"))
        .object(pod("default/alone").tolerates(exact()));
    let doubt = " Exemption robots may cover it: that depends on who creates it.";
    let audit = cluster.audit();
    let doubted: Vec<_> = findings(&audit, "toleration-outside-allowlist")
        .filter(|finding| finding.action.ends_with(doubt))
        .map(|finding| finding.object.to_string())
        .collect();
    assert_eq!(doubted, ["Pod web/alone"]);
}

#[test]
fn a_mirror_pod_is_the_kubelets_and_a_manifest_is_nobodys() {
    let mirror = |pod: &mut Value| pod["metadata"]["annotations"][MIRROR_ANNOTATION] = "hash".into();
    let manifest = |pod: &mut Value| {
        mirror(pod);
        pod.as_object_mut().unwrap().remove("status");
        for key in ["uid", "creationTimestamp"] {
            pod["metadata"].as_object_mut().unwrap().remove(key);
        }
    };
    let wide = || json!({"operator": "Exists"});
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(pod("web/static").on("gpu-1").tolerates(wide()).edit(mirror))
        .object(pod("web/forged").on("gpu-1").tolerates(wide()).edit(manifest));
    assert_eq!(found(&cluster.audit(), "toleration-outside-allowlist"), ["Pod web/forged"]);
    assert_eq!(Kind::Pod.name(), "Pod");
}

#[test]
fn a_pod_that_has_ended_breaks_nothing() {
    for (phase, count) in [("Succeeded", 0), ("Failed", 0), ("Running", 1), ("Pending", 1), ("Unknown", 1)] {
        let audit = Cluster::new().object(pod("web/p").tolerates(exact()).phase(phase)).audit();
        assert_eq!(found(&audit, "toleration-outside-allowlist").len(), count, "{phase}");
    }
}
