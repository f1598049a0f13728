//! Pods that somebody puts onto a node past the scheduler.

use std::collections::BTreeMap;

use gpufence::policy::{Action, DAEMON_SET_CONTROLLER, Decision, Kind, NodeFact, Phase, Policy, Rule, SCHEDULER};
use serde_json::{Value, json};

use crate::support::{Nodes, Request, gpu_pod, node, pod, policy};

/// The nodes of a cluster; of all others it is known that they are not there, or nothing.
fn nodes(others: NodeFact) -> Nodes {
    let (label, taint) = (("accelerator", "nvidia"), ["dedicated", "gpu", "NoSchedule"]);
    Nodes {
        known: BTreeMap::from([
            ("gpu-1", node(&[("zone", "a"), label], &[["node.kubernetes.io/unschedulable", "", "NoSchedule"], taint])),
            ("labelled", node(&[label], &[])),
            ("tainted", node(&[], &[taint])),
            ("amd-1", node(&[("accelerator", "amd")], &[taint])),
            ("cpu-1", node(&[("zone", "a"), ("accelerator", "none")], &[["dedicated", "gpu", "PreferNoSchedule"]])),
        ]),
        others,
    }
}

fn fence(more: &str) -> Policy {
    policy(&format!(
        "mode: enforce
pools:
- name: nvidia
  resources: [nvidia.com/gpu]
  taints: [{{key: dedicated, value: gpu, effect: NoSchedule}}]
  nodeSelector: {{accelerator: nvidia}}
  namespaces: {{names: [ml-team]}}
- name: amd
  resources: [amd.com/gpu]
  taints: [{{key: dedicated, value: gpu, effect: NoSchedule}}]
  nodeSelector: {{accelerator: amd}}
  namespaces: {{names: [hpc]}}
{more}"
    ))
}

/// Who asks, where, and what is known.
struct Asks<'a> {
    namespace: &'a str,
    username: &'a str,
    groups: &'a [&'a str],
    kind: Kind,
    others: NodeFact,
}

const PERSON: Asks<'static> =
    Asks { namespace: "web", username: "jane", groups: &[], kind: Kind::Pod, others: NodeFact::Unknown };

impl Asks<'_> {
    fn judge(&self, policy: &Policy, object: &Value, old: Option<&Value>) -> Decision {
        let (object, old) = (object.to_string(), old.map(Value::to_string));
        let object = self.kind.read(&object).unwrap();
        let old = old.as_ref().map(|old| self.kind.read(old).unwrap());
        let Self { namespace, username, groups, .. } = *self;
        let request = Request { namespace, username, groups, object: &object, old: old.as_ref() };
        request.decide_with(policy, Phase::Validating, &nodes(self.others.clone()))
    }

    fn message(&self, policy: &Policy, object: &Value) -> String {
        let decision = self.judge(policy, object, None);
        let told: Vec<_> =
            decision.findings.iter().map(|finding| format!("{} {finding}", finding.action.as_str())).collect();
        told.join("\n")
    }
}

fn on(node: &str, spec: &Value) -> Value {
    let mut pod = pod(&json!({}), spec);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

fn binding(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}})
}

fn tolerating() -> Value {
    json!({"tolerations": [{"operator": "Exists"}]})
}

#[test]
fn onto_a_node_of_a_pool_by_label_or_by_taint() {
    let closed = "(allowed: ml-team). Remove it or use an allowed namespace.";
    for node in ["gpu-1", "labelled", "tainted"] {
        assert_eq!(
            PERSON.message(&fence(""), &on(node, &json!({}))),
            format!(
                "deny node-name-bypass: spec.nodeName puts this pod onto node {node} of pool nvidia past the scheduler, \
                 closed to namespace web {closed}"
            ),
        );
    }
    // A taint that two pools share does not make a node one of both where its label says which.
    assert!(PERSON.message(&fence(""), &on("amd-1", &json!({}))).contains("of pool amd"));
    assert_eq!(PERSON.message(&fence(""), &on("cpu-1", &json!({}))), "");
    assert_eq!(PERSON.message(&fence("rules: {node-name-bypass: off}"), &on("gpu-1", &json!({}))), "");
}

#[test]
fn in_an_allowed_namespace_it_is_a_way_around_the_taint_alone() {
    let asks = Asks { namespace: "ml-team", ..PERSON };
    assert_eq!(
        asks.message(&fence(""), &on("gpu-1", &json!({}))),
        "deny node-name-bypass: spec.nodeName puts this pod onto node gpu-1 of pool nvidia past the scheduler and its taint \
         dedicated=gpu:NoSchedule, which the pod does not tolerate. Leave it out: the scheduler places the pod."
    );
    // As kubectl debug node/gpu-1 makes them. What lets it in is worth a warning for itself.
    let debugging = asks.judge(&fence(""), &on("gpu-1", &tolerating()), None);
    assert!(!debugging.denies() && debugging.findings.iter().all(|finding| finding.rule != Rule::NodeNameBypass));
    // A GPU pod is given the toleration.
    let mut gpu = gpu_pod(&json!({}));
    gpu["spec"]["nodeName"] = json!("gpu-1");
    assert!(!asks.judge(&fence(""), &gpu, None).denies());
    // But not onto the nodes of a pool that is closed to it, whose taint is the same.
    assert!(
        asks.message(&fence(""), &on("amd-1", &tolerating())).contains("of pool amd past the scheduler, closed to")
    );
}

#[test]
fn who_places_pods_may() {
    let mut agent = on("gpu-1", &json!({}));
    let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "agent", "controller": true}]);
    agent["metadata"]["ownerReferences"] = owner("DaemonSet");
    let mut forged = agent.clone();
    forged["metadata"]["ownerReferences"] = owner("ReplicaSet");
    let plain = on("gpu-1", &json!({}));
    let node = &["system:nodes"][..];
    let volcano = "identities: {schedulers: ['system:serviceaccount:volcano-system:volcano-scheduler']}";
    for (username, groups, more, pod, refused) in [
        (DAEMON_SET_CONTROLLER, &[][..], "", &agent, false),
        (DAEMON_SET_CONTROLLER, &[], "", &forged, true),
        ("jane", &[], "", &agent, true),
        ("system:node:gpu-1", node, "", &plain, false),
        ("system:node:gpu-2", node, "", &plain, true),
        ("system:node:gpu-1", &[], "", &plain, true),
        (SCHEDULER, &[], "", &plain, false),
        (SCHEDULER, &[], volcano, &plain, true),
        ("system:serviceaccount:volcano-system:volcano-scheduler", &[], volcano, &plain, false),
        ("system:serviceaccount:kube-system:replicaset-controller", &[], "", &plain, true),
        ("admin", &["system:masters"], "", &plain, true),
    ] {
        let asks = Asks { username, groups, ..PERSON };
        assert_eq!(asks.judge(&fence(more), pod, None).denies(), refused, "{username} {pod}");
    }
}

#[test]
fn bindings_are_the_schedulers_affair() {
    let asks = Asks { kind: Kind::Binding, ..PERSON };
    assert_eq!(
        asks.message(&fence("contact: gpu-team@example.com"), &binding("gpu-1")),
        "deny node-name-bypass: target.name puts this pod onto node gpu-1 of pool nvidia past the scheduler, which is \
         closed to namespace web (allowed: ml-team), and jane is not in identities.schedulers. Add it there if it schedules \
         pods, or leave the Binding to who does."
    );
    let allowed = Asks { namespace: "ml-team", kind: Kind::Binding, ..PERSON };
    assert_eq!(
        allowed.message(&fence(""), &binding("gpu-1")),
        "warn node-name-bypass: target.name puts this pod onto node gpu-1 of pool nvidia past the scheduler, and jane is not \
         in identities.schedulers. Add it there if it schedules pods, or leave the Binding to who does."
    );
    // Onto the nodes of a pool that is closed to the namespace it is refused there as well.
    assert!(allowed.judge(&fence(""), &binding("amd-1"), None).denies());
    assert_eq!(allowed.message(&fence(""), &binding("cpu-1")), "");
    for username in [DAEMON_SET_CONTROLLER, "system:node:gpu-1", "jane"] {
        let asks = Asks { username, groups: &["system:nodes"], kind: Kind::Binding, ..PERSON };
        assert!(asks.judge(&fence(""), &binding("gpu-1"), None).denies(), "{username}");
    }
    let scheduler = Asks { username: SCHEDULER, kind: Kind::Binding, ..PERSON };
    assert_eq!(scheduler.message(&fence(""), &binding("gpu-1")), "");
}

#[test]
fn what_is_not_known_is_said_and_counts_as_the_contract_says() {
    let unknown = on("gpu-9", &json!({}));
    let told = "node-name-bypass: spec.nodeName puts this pod onto node gpu-9 past the scheduler and its taints, and it is not \
                known whether that is a GPU node. Leave it out: the scheduler places the pod.";
    assert_eq!(PERSON.message(&fence(""), &unknown), format!("warn {told}"));
    for action in [Action::Audit, Action::Warn, Action::Deny] {
        let policy = fence(&format!("nodes: {{whenUnknown: {}}}", action.as_str()));
        assert_eq!(PERSON.message(&policy, &unknown), format!("{} {told}", action.as_str()));
    }
    let off = PERSON.judge(&fence("nodes: {whenUnknown: off}"), &unknown, None);
    assert!(off.findings.is_empty());
    // It is worth asking for, whatever not knowing counts for.
    assert_eq!(off.node_unknown.as_deref(), Some("gpu-9"));
    // No more than the rule itself does.
    let weak = fence("rules: {node-name-bypass: audit}\nnodes: {whenUnknown: deny}");
    assert_eq!(PERSON.message(&weak, &unknown), format!("audit {told}"));
    // A name can be waited for.
    let absent = Asks { others: NodeFact::Absent, ..PERSON };
    assert_eq!(
        absent.message(&fence(""), &unknown),
        "deny node-name-bypass: spec.nodeName is gpu-9, and there is no such node: one that comes by this name may be a GPU \
         node, and no taint keeps out who waits for it. Leave it out: the scheduler places the pod."
    );
    assert_eq!(absent.judge(&fence(""), &unknown, None).node_unknown, None);
}

#[test]
fn templates_are_judged_and_pods_that_run_are_not() {
    let template = |node: &str| json!({"metadata": {"name": "w"}, "spec": {"template": on(node, &json!({}))}});
    let asks = |kind| Asks { kind, ..PERSON };
    let deployment = asks(Kind::Deployment).judge(&fence("templates: deny"), &template("gpu-1"), None);
    assert_eq!(deployment.findings[0].field, "spec.template.spec.nodeName");
    assert!(deployment.denies());
    // The DaemonSet controller looks at the taints itself, and is the one that may.
    assert!(asks(Kind::DaemonSet).judge(&fence(""), &template("gpu-1"), None).findings.is_empty());
    let update = |old, new| asks(Kind::Deployment).judge(&fence(""), &new, Some(&old)).findings.len();
    assert_eq!([update(template("gpu-1"), template("gpu-1")), update(template("cpu-1"), template("gpu-1"))], [0, 1]);
    assert_eq!(update(template("gpu-1"), template("tainted")), 1);
    // A pod is placed once, and edited for as long as it lives.
    let mut labelled = on("gpu-1", &json!({}));
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert!(PERSON.judge(&fence(""), &labelled, Some(&on("gpu-1", &json!({})))).findings.is_empty());
}

/// The scheduler of a later Kubernetes may let pass what today's matches with nothing.
#[test]
fn an_operator_that_is_not_known_is_not_taken_to_match_nothing() {
    let pod = |toleration: Value| pod(&json!({}), &json!({"tolerations": [{"key": "x"}, toleration]}));
    let telling = |policy: &Policy, asks: &Asks<'_>, toleration: Value| asks.message(policy, &pod(toleration));
    let exact = json!({"key": "dedicated", "operator": "Resembles", "value": "gpu"});
    // One for each pool that it may open.
    assert_eq!(
        telling(&fence(""), &PERSON, exact.clone()).split('\n').next().unwrap(),
        "deny not-understood: spec.tolerations[1].operator is Resembles, which is not known here (Equal, Exists, Gt, Lt are): \
         the toleration may pass the taint dedicated=gpu:NoSchedule of pool nvidia, closed to namespace web (allowed: \
         ml-team). Remove it or use an allowed namespace."
    );
    let wide = json!({"operator": "Everything"});
    assert!(telling(&fence(""), &PERSON, wide).starts_with("deny not-understood: "));
    let other = json!({"key": "dedicated", "operator": "NotEqual", "value": "cpu"});
    assert!(telling(&fence(""), &PERSON, other.clone()).starts_with("warn not-understood: "));
    // What is no value of a taint is not taken for another.
    for value in ["g.*", "gpu,tpu", "*"] {
        let toleration = json!({"key": "dedicated", "operator": "Regex", "value": value});
        assert!(telling(&fence(""), &PERSON, toleration).starts_with("deny not-understood: "), "{value}");
        assert!(
            telling(&fence(""), &PERSON, json!({"operator": "Regex", "value": "cpu"}))
                .starts_with("deny not-understood: ")
        );
    }
    // One that is warned of hides none that is refused, whether it came with it or before.
    let before = pod(other.clone());
    let mut both = before.clone();
    both["spec"]["tolerations"].as_array_mut().unwrap().push(exact.clone());
    assert!(PERSON.judge(&fence(""), &both, None).denies());
    assert!(PERSON.judge(&fence(""), &both, Some(&before)).denies());
    assert!(!PERSON.judge(&fence(""), &both, Some(&both)).denies());
    for harmless in [
        json!({"key": "team", "operator": "Resembles", "value": "gpu"}),
        json!({"key": "dedicated", "operator": "Resembles", "value": "gpu", "effect": "NoExecute"}),
        json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoAdmission"}),
    ] {
        assert_eq!(telling(&fence(""), &PERSON, harmless), "");
    }
    let both = "mode: enforce
pools:
- name: nvidia
  resources: [nvidia.com/gpu]
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {accelerator: nvidia}
  namespaces: {names: [ml-team]}";
    let allowed = Asks { namespace: "ml-team", ..PERSON };
    assert_eq!(telling(&policy(both), &allowed, exact.clone()), "");
    assert_eq!(telling(&fence("rules: {not-understood: off}"), &PERSON, exact), "");
}
