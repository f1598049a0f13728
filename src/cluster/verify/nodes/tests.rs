use serde_json::{Value, json};

use super::super::Outcome;
use super::*;
use crate::policy::{
    Action, Allowlist, Effect, Identities, Levers, Markers, Mode, Patterns, Pool, Rule, Selection, Taint, WhenTolerated,
};

fn pool(name: &str, labels: &[(&str, &str)], value: &str, effects: &[Effect]) -> Pool {
    let taint = |effect: &Effect| Taint { key: "dedicated".to_owned(), value: value.to_owned(), effect: *effect };
    Pool {
        name: name.to_owned(),
        resources: Patterns::new(vec!["nvidia.com/gpu".to_owned()]).unwrap(),
        taints: effects.iter().map(taint).collect(),
        node_selector: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        namespaces: Allowlist::default(),
        models: None,
        priority_class_name: None,
        markers: Markers::default(),
    }
}

fn policy() -> Policy {
    let both = [Effect::NoSchedule, Effect::NoExecute];
    Policy {
        mode: Mode::Enforce,
        rollout: Vec::new(),
        pools: vec![
            pool("any", &[("accelerator", "nvidia")], "gpu", &[Effect::NoSchedule]),
            pool("h100", &[("accelerator", "nvidia"), ("model", "h100")], "h100", &both),
        ],
        selection: Selection::default(),
        exemptions: Vec::new(),
        rules: Rule::ALL.map(|_| Action::Deny),
        templates: Action::Off,
        when_tolerated: WhenTolerated::Add,
        fence_ordinary: Vec::new(),
        identities: Identities::default(),
        when_unknown: Action::Warn,
        levers: Levers::default(),
        custom_resources: Vec::new(),
        contact: None,
    }
}

fn node(name: &str, labels: &Value, taints: &[(&str, &str)], gpus: &str) -> Value {
    let taint = |(value, effect): &(&str, &str)| json!({"key": "dedicated", "value": value, "effect": effect});
    let amounts = json!({"cpu": "8", "nvidia.com/gpu": gpus});
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints.iter().map(taint).collect::<Vec<_>>()},
        "status": {"capacity": amounts, "allocatable": amounts},
    })
}

/// The checks as outcome, message and hint.
fn checked(nodes: &[Value]) -> Vec<(Outcome, String, String)> {
    let policy = policy();
    let mut builder = Builder::new(&policy);
    for node in nodes {
        builder.take("a node", "v1", "Node", &node.to_string());
    }
    let mut checks = Vec::new();
    conclude(&audit_nodes(&policy, &builder.finish(), "here"), &mut checks);
    checks.into_iter().map(|check| (check.outcome, check.message, check.hint.unwrap_or_default())).collect()
}

#[test]
fn a_node_that_has_nothing_to_do_with_gpus_is_no_ones() {
    let checks = checked(&[
        node("a", &json!({}), &[], "0"),
        node("b", &json!({"accelerator": "amd"}), &[("web", "NoSchedule")], "0"),
    ]);
    let message = "none of the 2 nodes offers a pool's resource or carries a pool's label or taint";
    assert_eq!(checks.len(), 1);
    assert_eq!((checks[0].0, &*checks[0].1), (Outcome::Skipped, message));
}

#[test]
fn a_node_is_right_by_the_closest_pool() {
    let checks = checked(&[
        node("any", &json!({"accelerator": "nvidia"}), &[("gpu", "NoSchedule")], "8"),
        node(
            "h100",
            &json!({"accelerator": "nvidia", "model": "h100"}),
            &[("h100", "NoSchedule"), ("h100", "NoExecute")],
            "8",
        ),
        // It is not used yet, and nobody can get in: the audit says so, and verify lets it pass.
        node("later", &json!({"accelerator": "nvidia"}), &[("gpu", "NoSchedule")], "0"),
    ]);
    let message = "all 3 GPU nodes carry the label and the taints of their pool".to_owned();
    assert_eq!(checks, [(Outcome::Passed, message, String::new())]);
}

#[test]
fn what_a_node_lacks_is_named_with_the_command() {
    let model = json!({"accelerator": "nvidia", "model": "h100"});
    let checks = checked(&[
        node("a", &model, &[("h100", "NoSchedule")], "8"),
        node("b", &json!({}), &[("gpu", "NoSchedule")], "8"),
        node("c", &json!({}), &[], "8"),
    ]);
    let told: Vec<_> = checks.iter().map(|(outcome, message, hint)| (*outcome, &**message, &**hint)).collect();
    assert_eq!(
        told,
        [
            (
                Outcome::Failed,
                "the node a of the pool h100 has 8 nvidia.com/gpu and lacks the taint dedicated=h100:NoExecute: a pod that \
                 tolerates dedicated=h100:NoSchedule alone gets in, and admission takes it for one that does not",
                "kubectl taint node a dedicated=h100:NoExecute (it evicts at once who does not tolerate it: gpufence audit \
                 --what-if taint --pool h100 --node a shows whom)"
            ),
            (
                Outcome::Failed,
                "the node b of the pool any has 8 nvidia.com/gpu and lacks the label accelerator=nvidia: no GPU pod finds it",
                "kubectl label node b accelerator=nvidia"
            ),
            (
                Outcome::Failed,
                "the node c is of no pool: it offers what pools any and h100 have, and is counted under any; it has 8 nvidia.com/gpu and lacks the taint dedicated=gpu:NoSchedule or dedicated=h100:NoSchedule, dedicated=h100:NoExecute: any pod may run on it; the node c is of no pool: it offers what pools any and h100 have, and is counted under any; it has 8 nvidia.com/gpu and lacks the label accelerator=nvidia or accelerator=nvidia, model=h100: no GPU pod finds it",
                "for the pool any: kubectl taint node c dedicated=gpu:NoSchedule; or, for the pool h100: kubectl taint node c dedicated=h100:NoSchedule dedicated=h100:NoExecute (it evicts at once who does not tolerate it: gpufence audit --what-if taint --pool h100 --node c shows whom) && for the pool any: kubectl label node c accelerator=nvidia; or, for the pool h100: kubectl label node c accelerator=nvidia model=h100"
            ),
            (Outcome::Skipped, "0 of 3 GPU nodes are right", "see the nodes before"),
        ]
    );
}

/// Another value, or an effect that only asks politely, is another taint.
#[test]
fn a_taint_that_is_almost_right_is_wrong() {
    for taint in [("cpu", "NoSchedule"), ("gpu", "PreferNoSchedule"), ("gpu", "NoExecute")] {
        let checks = checked(&[node("a", &json!({"accelerator": "nvidia"}), &[taint], "8")]);
        assert_eq!(checks[0].0, Outcome::Failed, "{checks:?}");
        assert!(checks[0].1.contains("where the contract says dedicated=gpu:NoSchedule"), "{checks:?}");
    }
}

#[test]
fn of_many_faulty_nodes_some_are_named_and_the_others_counted() {
    let nodes: Vec<_> = (0..13).map(|index| node(&format!("n-{index:02}"), &json!({}), &[], "1")).collect();
    let checks = checked(&nodes);
    assert_eq!(checks.len(), NAMED + 2);
    assert_eq!(checks[NAMED].1, "3 more nodes are not right");
    assert_eq!(checks[NAMED + 1].1, "0 of 13 GPU nodes are right");
}
