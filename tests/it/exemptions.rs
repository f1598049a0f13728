//! Who is exempt, from what, and until when; and that nothing which a pod says of itself makes it so.

use gpufence::policy::{
    At, DAEMON_SET_CONTROLLER, Decision, Exempted, Kind, Lapsed, MIRROR_ANNOTATION, NamespaceLabels, NoFacts, Phase,
    Policy, Rule,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::support::{Request, gpu_pod, pod, policy};

const REPLICA_SETS: &str = "system:serviceaccount:kube-system:replicaset-controller";
const STATEFUL_SETS: &str = "system:serviceaccount:kube-system:statefulset-controller";
const JOBS: &str = "system:serviceaccount:kube-system:job-controller";
const REPLICATION: &str = "system:serviceaccount:kube-system:replication-controller";

/// Two pools that only `ml-team` may use, and exemptions as YAML in a line each.
fn fenced(exemptions: &[&str]) -> Policy {
    fenced_with("", exemptions)
}

fn fenced_with(more: &str, exemptions: &[&str]) -> Policy {
    let exemptions: Vec<_> = exemptions.iter().map(|one| format!("- {one}")).collect();
    let exemptions = exemptions.join("\n");
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
  taints: [{{key: amd.com/gpu, effect: NoSchedule}}]
  nodeSelector: {{accelerator: amd}}
  namespaces: {{names: [ml-team]}}
{more}
exemptions:
{exemptions}"
    ))
}

/// One exemption for everything that is not given otherwise.
fn exemption(fields: &str) -> String {
    format!("{{name: e, reason: r, {fields}}}")
}

/// Who asks where, and when.
#[derive(Clone, Copy)]
struct Who<'a> {
    namespace: &'a str,
    user: &'a str,
    groups: &'a [&'a str],
    now: i64,
}

const PERSON: Who<'static> = Who { namespace: "web", user: "jane", groups: &["system:authenticated"], now: 0 };

impl Who<'_> {
    fn decide(&self, policy: &Policy, phase: Phase, kind: Kind, object: &Value) -> Decision {
        let object = object.to_string();
        let object = kind.read(&object).unwrap();
        let Self { namespace, user, groups, now } = *self;
        let request = Request { namespace, username: user, groups, object: &object, old: None };
        request.decide_with(policy, phase, &At { facts: NoFacts, now })
    }

    fn judge(&self, policy: &Policy, pod: &Value) -> Decision {
        self.decide(policy, Phase::Validating, Kind::Pod, pod)
    }
}

fn wildcard() -> Value {
    pod(&json!({}), &json!({"tolerations": [{"operator": "Exists"}]}))
}

fn owned(api_version: &str, kind: &str, name: &str) -> Value {
    let mut pod = wildcard();
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "1", "controller": true}]);
    pod
}

/// The findings, each with the pool that its message names first.
fn told(decision: &Decision) -> Vec<(Rule, &'static str)> {
    let pool = |message: &str| {
        let place = |pool: &&str| message.find(&format!("pool {pool}")).unwrap_or(usize::MAX);
        ["nvidia", "amd"].into_iter().min_by_key(place).unwrap()
    };
    decision.findings.iter().map(|finding| (finding.rule, pool(&finding.message))).collect()
}

fn exempted(exemption: &str, rules: &[Rule]) -> Exempted {
    Exempted { exemption: exemption.to_owned(), rules: rules.to_vec() }
}

#[test]
fn each_condition_is_of_the_requester_or_the_namespace() {
    let here = "namespaces: [web]";
    for (fields, who, exempt) in [
        (here, PERSON, true),
        (here, Who { namespace: "web-2", ..PERSON }, false),
        ("users: [jane, 'ops-*']", PERSON, true),
        ("users: [jane, 'ops-*']", Who { user: "ops-7", ..PERSON }, true),
        ("users: [jane, 'ops-*']", Who { user: "janet", ..PERSON }, false),
        ("users: [jane, 'ops-*']", Who { user: "Jane", ..PERSON }, false),
        ("users: [jane, 'ops-*']", Who { user: "", ..PERSON }, false),
        ("groups: [gpu-admins]", Who { groups: &["a", "gpu-admins"], ..PERSON }, true),
        ("groups: [gpu-admins]", Who { groups: &["gpu-admins-2", "gpu"], ..PERSON }, false),
        ("groups: [gpu-admins]", Who { user: "gpu-admins", ..PERSON }, false),
        ("groups: [gpu-admins]", PERSON, false),
        ("serviceAccounts: [ci/deployer]", Who { user: "system:serviceaccount:ci:deployer", ..PERSON }, true),
        ("serviceAccounts: ['ci-*/*']", Who { user: "system:serviceaccount:ci-1:any", ..PERSON }, true),
        ("serviceAccounts: ['ci-*/*']", Who { user: "system:serviceaccount:ci:any", ..PERSON }, false),
        ("serviceAccounts: [ci/deployer]", Who { user: "system:serviceaccount:web:deployer", ..PERSON }, false),
        ("serviceAccounts: [ci/deployer]", Who { user: "ci/deployer", ..PERSON }, false),
        ("serviceAccounts: [ci/deployer]", Who { user: "system:serviceaccount:ci/deployer", ..PERSON }, false),
        // All must hold together.
        ("namespaces: [web], users: [jane], groups: [g]", Who { groups: &["g"], ..PERSON }, true),
        ("namespaces: [web], users: [jane], groups: [g]", PERSON, false),
        ("namespaces: [web], users: [jane], groups: [g]", Who { groups: &["g"], namespace: "a", ..PERSON }, false),
        ("namespaces: [web], users: [jane], groups: [g]", Who { groups: &["g"], user: "joe", ..PERSON }, false),
        ("users: [jane], serviceAccounts: [ci/deployer]", PERSON, false),
    ] {
        let decision = who.judge(&fenced(&[&exemption(fields)]), &wildcard());
        assert_eq!(decision.denies(), !exempt, "{fields} {} {} {:?}", who.namespace, who.user, who.groups);
        assert_eq!(!decision.exempted.is_empty(), exempt, "{fields}");
    }
}

#[test]
fn an_owner_counts_where_its_own_controller_asks() {
    let widgets = "namespaces: [web], owners: [{kind: Widget, name: 'w-*', apiGroup: example.com}], users: [robot]";
    let anywhere = "namespaces: [web], owners: [{kind: Widget, name: 'w-*'}], serviceAccounts: [ops/robot]";
    let robot = "system:serviceaccount:ops:robot";
    for (fields, user, (version, kind, name), exempt) in [
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", REPLICA_SETS, ("apps/v1", "ReplicaSet", "op-1"), true),
        ("owners: [{kind: StatefulSet, name: db}]", STATEFUL_SETS, ("apps/v1", "StatefulSet", "db"), true),
        ("owners: [{kind: Job, name: 'check-*'}]", JOBS, ("batch/v1", "Job", "check-1"), true),
        ("owners: [{kind: DaemonSet, name: a}]", DAEMON_SET_CONTROLLER, ("apps/v1", "DaemonSet", "a"), true),
        ("owners: [{kind: ReplicationController, name: a}]", REPLICATION, ("v1", "ReplicationController", "a"), true),
        ("owners: [{kind: Job, name: a, apiGroup: batch}]", JOBS, ("batch/v1", "Job", "a"), true),
        ("owners: [{kind: Job, name: a}, {kind: ReplicaSet, name: b}]", JOBS, ("batch/v1", "Job", "a"), true),
        // Of any of its parts another.
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", REPLICA_SETS, ("apps/v1", "ReplicaSet", "shop-1"), false),
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", REPLICA_SETS, ("x.io/v1", "ReplicaSet", "op-1"), false),
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", REPLICA_SETS, ("v1", "ReplicaSet", "op-1"), false),
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", REPLICA_SETS, ("apps/v1", "StatefulSet", "op-1"), false),
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", STATEFUL_SETS, ("apps/v1", "ReplicaSet", "op-1"), false),
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", DAEMON_SET_CONTROLLER, ("apps/v1", "ReplicaSet", "op-1"), false),
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", "jane", ("apps/v1", "ReplicaSet", "op-1"), false),
        ("owners: [{kind: ReplicaSet, name: 'op-*'}]", "", ("apps/v1", "ReplicaSet", "op-1"), false),
        ("owners: [{kind: Job, name: a}, {kind: ReplicaSet, name: b}]", JOBS, ("apps/v1", "ReplicaSet", "b"), false),
        (
            "owners: [{kind: ReplicationController, name: a}]",
            REPLICATION,
            ("x/v1", "ReplicationController", "a"),
            false,
        ),
    ] {
        let policy = fenced(&[&exemption(&format!("namespaces: [web], {fields}"))]);
        let decision = Who { user, ..PERSON }.judge(&policy, &owned(version, kind, name));
        assert_eq!(decision.denies(), !exempt, "{fields} {user} {version} {kind} {name}");
        // In any other namespace the same owner is somebody else's.
        let elsewhere = Who { user, namespace: "shop", ..PERSON };
        assert!(elsewhere.judge(&policy, &owned(version, kind, name)).denies(), "{fields}");
    }
    for (fields, user, (version, kind, name), exempt) in [
        (widgets, "robot", ("example.com/v1", "Widget", "w-1"), true),
        (widgets, "robot", ("example.org/v1", "Widget", "w-1"), false),
        (widgets, "robot", ("example.com/v1", "Widget", "x-1"), false),
        (widgets, "jane", ("example.com/v1", "Widget", "w-1"), false),
        (anywhere, robot, ("example.org/v1", "Widget", "w-1"), true),
        (anywhere, robot, ("example.org/v1", "Gadget", "w-1"), false),
        (anywhere, "jane", ("example.org/v1", "Widget", "w-1"), false),
    ] {
        let decision = Who { user, ..PERSON }.judge(&fenced(&[&exemption(fields)]), &owned(version, kind, name));
        assert_eq!(decision.denies(), !exempt, "{fields} {user} {version} {kind} {name}");
        let unowned = Who { user, ..PERSON }.judge(&fenced(&[&exemption(fields)]), &wildcard());
        assert!(unowned.denies(), "{fields} {user}");
    }
}

#[test]
fn the_contract_names_who_each_controller_is() {
    let policy = fenced_with(
        "identities: {jobController: [system:kube-controller-manager]}",
        &[&exemption("namespaces: [web], owners: [{kind: Job, name: a}, {kind: ReplicaSet, name: a}]")],
    );
    for (user, kind, exempt) in [
        ("system:kube-controller-manager", "Job", true),
        (JOBS, "Job", false),
        ("system:kube-controller-manager", "ReplicaSet", false),
        (REPLICA_SETS, "ReplicaSet", true),
    ] {
        let pod = owned(if kind == "Job" { "batch/v1" } else { "apps/v1" }, kind, "a");
        assert_eq!(Who { user, ..PERSON }.judge(&policy, &pod).denies(), !exempt, "{user} {kind}");
    }
}

#[test]
fn a_template_is_exempt_where_its_pods_will_be() {
    let fields = |kind: Kind| match kind {
        Kind::CronJob => ("schedule", json!({"jobTemplate": {"spec": {"template": wildcard()}}})),
        _ => ("replicas", json!({"template": wildcard()})),
    };
    for (exemption_fields, kind, name, exempt) in [
        ("namespaces: [web]", Kind::Deployment, "shop", true),
        ("namespaces: [web], owners: [{kind: ReplicaSet, name: 'op-*'}]", Kind::Deployment, "op", true),
        ("namespaces: [web], owners: [{kind: ReplicaSet, name: 'op-*'}]", Kind::Deployment, "shop", false),
        ("namespaces: [web], owners: [{kind: ReplicaSet, name: 'op-*'}]", Kind::ReplicaSet, "op-1", true),
        ("namespaces: [web], owners: [{kind: ReplicaSet, name: 'op-*'}]", Kind::StatefulSet, "op-1", false),
        ("namespaces: [web], owners: [{kind: Job, name: 'op-*'}]", Kind::CronJob, "op", true),
        ("namespaces: [web], owners: [{kind: Job, name: 'op-*'}]", Kind::Job, "op-1", true),
        ("namespaces: [web], owners: [{kind: Widget, name: 'op-*'}], users: [jane]", Kind::Job, "op-1", false),
        // A controller makes the pods, and is not exempt.
        ("users: [jane]", Kind::Deployment, "shop", false),
        ("groups: [g]", Kind::DaemonSet, "shop", false),
        ("serviceAccounts: [a/b]", Kind::Job, "shop", false),
    ] {
        let policy = fenced_with("templates: deny", &[&exemption(exemption_fields)]);
        let (_, spec) = fields(kind);
        let object = json!({"metadata": {"name": name}, "spec": spec});
        let decision = PERSON.decide(&policy, Phase::Validating, kind, &object);
        assert_eq!(decision.denies(), !exempt, "{exemption_fields} {kind:?} {name}");
    }
}

#[test]
fn an_exemption_for_some_pools_and_rules_leaves_the_others_alone() {
    use Rule::{
        BroadToleration as Broad, GpuRequestOutsideAllowlist as Asks, PlacementConflict as Conflict,
        TolerationOutsideAllowlist as Passes, TolerationWithoutGpuRequest as Idle,
    };
    let both = pod(&json!({"nvidia.com/gpu": 1, "amd.com/gpu": 1}), &json!({"tolerations": [{"operator": "Exists"}]}));
    let asking = gpu_pod(&json!({"tolerations": [{"operator": "Exists"}]}));
    for (fields, namespace, pod, spared, speaking) in [
        ("pools: [nvidia]", "web", wildcard(), &[Passes][..], &[(Passes, "amd")][..]),
        ("pools: [amd]", "web", wildcard(), &[Passes], &[(Passes, "nvidia")]),
        ("pools: [amd, nvidia]", "web", wildcard(), &[Passes], &[]),
        ("rules: [toleration-outside-allowlist]", "web", asking.clone(), &[Passes], &[(Asks, "nvidia")]),
        (
            "rules: [gpu-request-outside-allowlist]",
            "web",
            asking.clone(),
            &[Asks],
            &[(Passes, "nvidia"), (Passes, "amd")],
        ),
        (
            "rules: [toleration-outside-allowlist], pools: [amd]",
            "web",
            asking,
            &[Passes],
            &[(Passes, "nvidia"), (Asks, "nvidia")],
        ),
        ("rules: [placement-missing]", "web", wildcard(), &[], &[(Passes, "nvidia"), (Passes, "amd")]),
        // A pod that asks for two pools is exempt for both or not at all.
        ("pools: [nvidia]", "ml-team", both.clone(), &[Broad], &[(Broad, "amd"), (Conflict, "nvidia")]),
        ("pools: [nvidia, amd]", "ml-team", both, &[Broad, Conflict], &[]),
        // One finding stands for both pools, and must not be lost with one of them.
        ("pools: [nvidia]", "ml-team", wildcard(), &[Broad, Idle], &[(Broad, "amd"), (Idle, "amd")]),
        ("pools: [amd]", "ml-team", wildcard(), &[Broad, Idle], &[(Broad, "nvidia"), (Idle, "nvidia")]),
        ("pools: [nvidia, amd]", "ml-team", wildcard(), &[Broad, Idle], &[]),
        ("rules: [broad-toleration]", "ml-team", wildcard(), &[Broad], &[(Idle, "nvidia"), (Idle, "amd")]),
    ] {
        let policy = fenced(&[&exemption(&format!("users: [jane], {fields}"))]);
        let decision = Who { namespace, ..PERSON }.judge(&policy, &pod);
        assert_eq!(told(&decision), speaking, "{fields} {namespace} {pod}");
        let expected: Vec<_> = if spared.is_empty() { vec![] } else { vec![exempted("e", spared)] };
        assert_eq!(decision.exempted, expected, "{fields} {namespace} {pod}");
    }
}

#[test]
fn pools_that_taints_cannot_tell_apart_are_exempt_one_by_one() {
    let twins = "mode: enforce
pools:
- {name: nvidia, resources: [a/gpu], taints: [{key: d, effect: NoSchedule}], nodeSelector: {p: a}, namespaces: {names: [ml]}}
- {name: amd, resources: [b/gpu], taints: [{key: d, effect: NoSchedule}], nodeSelector: {p: b}, namespaces: {names: [ml]}}
exemptions: [{name: e, reason: r, users: [jane], pools: [nvidia]}]";
    let pod = pod(&json!({}), &json!({"tolerations": [{"key": "d", "operator": "Equal", "effect": "NoSchedule"}]}));
    let decision = Who { namespace: "ml", ..PERSON }.judge(&policy(twins), &pod);
    assert_eq!(told(&decision), [(Rule::TolerationWithoutGpuRequest, "amd")]);
    let decision = Who { namespace: "ml", user: "joe", ..PERSON }.judge(&policy(twins), &pod);
    assert_eq!(told(&decision), [(Rule::TolerationWithoutGpuRequest, "nvidia")], "one reach, told once");
}

#[test]
fn several_exemptions_each_say_what_they_spared() {
    let policy = fenced(&[
        "{name: one, reason: r, users: [jane], pools: [nvidia]}",
        "{name: two, reason: r, groups: [system:authenticated], namespaces: [web], pools: [amd, nvidia]}",
    ]);
    let rule = Rule::TolerationOutsideAllowlist;
    let decision = PERSON.judge(&policy, &wildcard());
    assert_eq!(decision.findings, []);
    assert_eq!(decision.exempted, [exempted("one", &[rule]), exempted("two", &[rule])]);
}

#[test]
fn injection_is_spared_without_rules_and_for_the_pools_named() {
    for (fields, injected) in [
        ("users: [jane]", false),
        ("users: [jane], pools: [nvidia]", false),
        ("users: [jane], pools: [amd]", true),
        ("users: [jane], rules: [broad-toleration]", true),
        ("users: [jane], rules: [broad-toleration], pools: [nvidia]", true),
        ("users: [jane], expires: 1969-12-30", true),
        ("users: [joe]", true),
    ] {
        let policy = fenced(&[&exemption(fields)]);
        let who = Who { namespace: "ml-team", ..PERSON };
        let decision = who.decide(&policy, Phase::Mutating, Kind::Pod, &gpu_pod(&json!({})));
        assert_eq!(decision.injection.is_some(), injected, "{fields}");
        assert_eq!(decision.exempted, if injected { vec![] } else { vec![exempted("e", &[])] }, "{fields}");
    }
}

#[test]
fn an_exemption_counts_until_it_expires_and_says_so_after() {
    // 2027-01-31 begins at 1801353600.
    const DAY: i64 = 1_801_353_600;
    for (written, last) in [
        ("2027-01-31", DAY + 86_399),
        ("2027-01-31T00:00:00Z", DAY - 1),
        ("2027-01-31t01:30:00.25+01:30", DAY - 1),
        ("2027-01-30T19:00:00-05:00", DAY - 1),
        ("2028-02-29", 1_835_481_599),
        ("1970-01-01", 86_399),
        ("1969-12-31T23:59:59Z", -2),
    ] {
        let policy = fenced(&[&exemption(&format!("users: [jane], expires: {written}"))]);
        let decision = Who { now: last, ..PERSON }.judge(&policy, &wildcard());
        assert_eq!(decision.findings, [], "{written}");
        for now in [last + 1, i64::MAX] {
            let decision = Who { now, ..PERSON }.judge(&policy, &wildcard());
            assert_eq!((decision.findings.len(), &*decision.exempted), (2, &[][..]), "{written} at {now}");
            for finding in &decision.findings {
                let lapsed = Lapsed { exemption: "e".to_owned(), expired: written.to_owned() };
                assert_eq!(finding.lapsed, Some(lapsed), "{written} at {now}");
            }
            // It is not told to whom it never covered.
            let decision = Who { now, user: "joe", ..PERSON }.judge(&policy, &wildcard());
            assert!(decision.findings.iter().all(|finding| finding.lapsed.is_none()), "{written} at {now}");
        }
        let object = wildcard().to_string();
        let object = Kind::Pod.read(&object).unwrap();
        let request = Request { namespace: "web", username: "jane", groups: &[], object: &object, old: None };
        assert!(request.decide(&policy, Phase::Validating).denies(), "without a clock nothing outlives its date");
    }
}

#[test]
fn what_has_expired_for_one_rule_is_told_with_that_rule_alone() {
    let policy = fenced(&[
        "{name: old, reason: r, users: [jane], pools: [nvidia], expires: 1969-12-30}",
        "{name: older, reason: r, users: [jane], expires: 1969-12-29}",
        "{name: new, reason: r, users: [jane], pools: [amd], expires: 2027-01-31}",
    ]);
    let decision = PERSON.judge(&policy, &wildcard());
    assert_eq!(decision.exempted, [exempted("new", &[Rule::TolerationOutsideAllowlist])]);
    assert_eq!(told(&decision), [(Rule::TolerationOutsideAllowlist, "nvidia")]);
    let lapsed = decision.findings[0].lapsed.as_ref().unwrap();
    assert_eq!((&*lapsed.exemption, &*lapsed.expired), ("old", "1969-12-30"), "the first in the contract");
}

#[test]
fn labels_are_looked_up_for_whoever_is_exempt_from_a_part_alone() {
    for (fields, unknown) in [
        ("users: [jane]", false),
        ("users: [jane], pools: [nvidia]", true),
        ("users: [jane], rules: [broad-toleration]", true),
        ("users: [jane], expires: 1969-12-30", true),
        ("users: [jane], expires: 1970-01-01", false),
    ] {
        let policy = fenced_with("rollout: [{selector: {matchLabels: {a: b}}, mode: audit}]", &[&exemption(fields)]);
        assert_eq!(PERSON.judge(&policy, &wildcard()).labels_unknown, unknown, "{fields}");
    }
    let known = At { facts: NamespaceLabels([("web".to_owned(), [].into())].into()), now: 7 };
    assert_eq!(gpufence::policy::Facts::now(&known), 7);
}

/// What a pod can say of itself, most of it true for pods that are exempt: a place in it, and a value.
fn claims() -> Vec<(&'static str, Value)> {
    let owner = |api_version: &str, kind: &str| owned(api_version, kind, "agent")["metadata"]["ownerReferences"].take();
    vec![
        ("/metadata/labels", json!({"app": "agent", "gpufence.io/exempt": "true", "exemption": "e"})),
        ("/metadata/annotations", json!({MIRROR_ANNOTATION: "hash", "kubernetes.io/config.source": "file"})),
        ("/metadata/annotations", json!({"gpufence.io/exemption": "e", "user": "robot"})),
        ("/metadata/ownerReferences", owner("apps/v1", "DaemonSet")),
        ("/metadata/ownerReferences", owner("apps/v1", "ReplicaSet")),
        ("/metadata/ownerReferences", owner("batch/v1", "Job")),
        ("/metadata/ownerReferences", owner("example.com/v1", "Widget")),
        ("/metadata/ownerReferences", owner("v1", "Node")),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/metadata/namespace", json!("exempt")),
        ("/metadata/name", json!("agent")),
        ("/metadata/managedFields", json!([{"manager": "daemon-set-controller"}])),
        ("/spec/serviceAccountName", json!("robot")),
        ("/spec/serviceAccount", json!("daemon-set-controller")),
        ("/spec/nodeName", json!("node-1")),
        ("/spec/priorityClassName", json!("system-node-critical")),
        ("/userInfo", json!({"username": "robot", "groups": ["admins"]})),
    ]
}

fn claim(pod: &mut Value, place: &str, value: Value) {
    let (parent, key) = place.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
}

const EVERY_KIND: [&str; 5] = [
    "{name: agents, reason: r, namespaces: ['*'], daemonSets: ['*']}",
    "{name: owners, reason: r, namespaces: [web, shop], owners: [{kind: ReplicaSet, name: '*'}, {kind: Job, name: '*'}]}",
    "{name: widgets, reason: r, namespaces: [web], owners: [{kind: Widget, name: '*'}], serviceAccounts: [web/robot]}",
    "{name: robots, reason: r, users: [robot], groups: [admins]}",
    "{name: whole, reason: r, namespaces: [exempt]}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_pod_says_of_itself_exempts_it(
        chosen in vec(select(claims()), 1..6),
        namespace in select(vec!["web", "shop", "other"]),
        (user, groups) in select(vec![
            ("jane", &["system:authenticated"][..]),
            ("robot", &["system:authenticated"]),
            ("jane", &["admins"]),
            ("system:serviceaccount:shop:robot", &["system:serviceaccounts"]),
            ("system:serviceaccount:kube-system:deployment-controller", &["system:serviceaccounts"]),
            ("system:node:node-2", &["system:nodes"]),
            ("", &[]),
        ]),
        gpu in any::<bool>(),
    ) {
        let who = Who { namespace, user, groups, now: 0 };
        let policy = fenced(&EVERY_KIND);
        let plain = if gpu { gpu_pod(&json!({"tolerations": [{"operator": "Exists"}]})) } else { wildcard() };
        let mut claiming = plain.clone();
        for (place, value) in chosen {
            claim(&mut claiming, place, value);
        }
        for phase in [Phase::Validating, Phase::Mutating] {
            let (before, mut after) =
                (who.decide(&policy, phase, Kind::Pod, &plain), who.decide(&policy, phase, Kind::Pod, &claiming));
            // To be on a node already is a claim that is a breach by itself.
            after.findings.retain(|finding| finding.rule != Rule::NodeNameBypass);
            prop_assert_eq!(&after.exempted, &vec![], "{}", claiming);
            prop_assert_eq!(before.findings, after.findings, "{}", claiming);
        }
    }
}

/// Each row is a pod that would be exempt, were it what it says.
#[test]
fn forging_attempts_are_refused() {
    let policy = fenced(&EVERY_KIND);
    let claiming = |claims: &[(&str, Value)]| {
        let mut pod = wildcard();
        for (place, value) in claims {
            claim(&mut pod, place, value.clone());
        }
        pod
    };
    for (attempt, namespace, user, groups, pod) in [
        ("an owner's name", "web", "jane", &[][..], owned("apps/v1", "DaemonSet", "agent")),
        ("an owner of a tenant's own", "web", "jane", &[], owned("apps/v1", "ReplicaSet", "agent")),
        ("another controller's owner", "web", JOBS, &[], owned("apps/v1", "ReplicaSet", "agent")),
        ("the owner in a namespace that is not listed", "other", JOBS, &[], owned("batch/v1", "Job", "agent")),
        ("a custom owner without its maker", "web", "robot", &[], owned("example.com/v1", "Widget", "agent")),
        ("the maker's namesake", "web", "system:serviceaccount:shop:robot", &[], owned("e.com/v1", "Widget", "agent")),
        ("a user without the group", "web", "robot", &["system:authenticated"], wildcard()),
        ("a group without the user", "web", "jane", &["admins"], wildcard()),
        ("a group's name as a user", "web", "admins", &[], wildcard()),
        ("a namespace that the pod names", "web", "jane", &[], claiming(&[("/metadata/namespace", json!("exempt"))])),
        (
            "a service account in the spec",
            "web",
            "jane",
            &[],
            claiming(&[("/spec/serviceAccountName", json!("robot"))]),
        ),
        (
            "a mirror pod by a person",
            "web",
            "jane",
            &[],
            claiming(&[
                ("/metadata/annotations", json!({MIRROR_ANNOTATION: "hash"})),
                ("/spec/nodeName", json!("node-1")),
            ]),
        ),
        (
            "a pod that is going",
            "web",
            "jane",
            &[],
            claiming(&[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))]),
        ),
    ] {
        let decision = Who { namespace, user, groups, now: 0 }.judge(&policy, &pod);
        assert!(decision.denies() && decision.exempted.is_empty(), "{attempt}: {decision:?}");
    }
    let allowed = Who { user: "robot", groups: &["admins"], ..PERSON }.judge(&policy, &wildcard());
    assert!(!allowed.denies(), "who is who the contract names");
}
