//! The exemptions under which what runs today goes on running.

use gpufence::audit::adopt;
use gpufence::contract::exemptions_yaml;
use gpufence::policy::{MIRROR_ANNOTATION, Policy};
use gpufence::review::{self, Webhook};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::cluster::{CONTRACT, Cluster, NOW, Pod, gpu_node, node, owners, pod, workload};
use super::rules::{INTRICATE, World, created, request, stored_pod, world};
use crate::custom_resources;
use crate::properties::{CONTRACTS, holds};
use crate::support;

const MONTH: i64 = 30 * 86_400;

fn exact() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

fn printed(policy: &Policy, cluster: &Cluster) -> String {
    adopt(policy, &cluster.snapshot(policy), &exemptions_yaml(policy).unwrap(), NOW, NOW + MONTH)
}

/// The contract with the printed exemptions in the place of its own, enforced everywhere.
fn adopting(contract: &str, printed: &str) -> Policy {
    with(whole(contract), printed)
}

/// All that a contract says, with what it leaves to the built-in one.
fn whole(contract: &str) -> Value {
    serde_saphyr::from_str(&support::contract(contract).to_yaml().unwrap()).unwrap()
}

fn with(mut full: Value, printed: &str) -> Policy {
    let printed: Value = serde_saphyr::from_str(printed).unwrap();
    full["mode"] = "enforce".into();
    full["rollout"] = json!([]);
    let own = full["exemptions"].as_array().unwrap();
    assert_eq!(printed["exemptions"].as_array().unwrap()[..own.len()], own[..], "its own come first, as they were");
    full["exemptions"] = printed["exemptions"].clone();
    support::policy(&full.to_string())
}

/// The rules for which the pod is refused when it is created again by its maker: mutated, then validated.
fn refused(policy: &Policy, cluster: &Cluster, pod: &Value) -> Result<Vec<&'static str>, String> {
    let mut object = created(pod);
    let examine = |webhook, object: &Value| {
        let body = request(pod, object).to_string();
        review::examine(policy, &World(cluster), webhook, body.as_bytes()).map(|reviewed| reviewed.decision)
    };
    if let Some(injection) = examine(Webhook::Mutate, &object)?.injection {
        json_patch::patch(&mut object, &injection.patch).unwrap();
    }
    let decision = examine(Webhook::Validate, &object)?;
    Ok(decision.denials().map(|finding| finding.rule.id()).collect())
}

#[test]
fn each_exemption_is_for_one_owner_and_for_what_it_breaks() {
    let mut set = workload("ReplicaSet", "web/shop-5d4f8c7b9c", pod("web/x"));
    set["metadata"]["ownerReferences"] = owners("Deployment/shop");
    let shop = |name: &str, node: &str| pod(name).tolerates(exact()).owned_by("ReplicaSet/shop-5d4f8c7b9c").on(node);
    let cluster = Cluster::new()
        .objects([gpu_node("gpu-1"), gpu_node("gpu-2"), node("cpu-1")])
        .object(workload("Deployment", "web/shop", pod("web/x").tolerates(exact())))
        .object(set)
        .objects([shop("web/shop-a", "gpu-1"), shop("web/shop-b", "gpu-2"), shop("web/shop-c", "cpu-1")])
        .object(workload("DaemonSet", "web/agent", pod("web/x").tolerates(json!({"operator": "Exists"}))))
        .object(workload("CronJob", "web/nightly", pod("web/x").gpus(1)))
        .object(workload("StatefulSet", "ml/fine", pod("ml/x").gpus(1)))
        .object(pod("web/alone").tolerates(exact()))
        .object(pod("web/odd").tolerates(exact()).owned_by("CloneSet/odd"));
    let policy = super::cluster::policy(CONTRACT);
    assert_eq!(
        printed(&policy, &cluster),
        r#"# All exemptions: those of the contract as it is, and those under which what runs on 2026-11-30 goes on running; these
# count until 2026-12-30. Put this list in the place of the contract's own exemptions, for a list replaces another.
# 1 workload needs you: who makes the pods is not known. They are below in comments: put the service account of the operator
# that does in the place of NAMESPACE/NAME, and take away the #.
# Not covered by this list: 1, named at its end.
exemptions:
  # DaemonSet web/agent
  - name: "adopted-web-agent"
    reason: "DaemonSet web/agent has no pod today"
    owner: "namespace web"
    expires: "2026-12-30"
    pools: ["nvidia"]
    rules: [toleration-outside-allowlist]
    namespaces: ["web"]
    daemonSets: ["agent"]
  # Deployment web/shop
  - name: "adopted-web-shop"
    reason: "Deployment web/shop runs since 2026-11-01 on 2 GPU nodes"
    owner: "namespace web"
    expires: "2026-12-30"
    pools: ["nvidia"]
    rules: [toleration-outside-allowlist]
    namespaces: ["web"]
    owners: [{kind: ReplicaSet, apiGroup: apps, name: "shop-*"}]
  # CronJob web/nightly
  - name: "adopted-web-nightly"
    reason: "CronJob web/nightly has no pod today"
    owner: "namespace web"
    expires: "2026-12-30"
    pools: ["nvidia"]
    rules: [gpu-request-outside-allowlist]
    namespaces: ["web"]
    owners: [{kind: Job, apiGroup: batch, name: "nightly-*"}]
  # Needs you: CloneSet web/odd
  # - name: "adopted-web-odd"
  #   reason: "CloneSet web/odd waits for a node"
  #   owner: "namespace web"
  #   expires: "2026-12-30"
  #   pools: ["nvidia"]
  #   rules: [toleration-outside-allowlist]
  #   namespaces: ["web"]
  #   owners: [{kind: CloneSet, apiGroup: apps, name: "odd"}]
  #   serviceAccounts: ["NAMESPACE/NAME"]
# Pods that no controller makes. What runs goes on running; to create one again, exempt who does (users, groups or serviceAccounts):
#   Pod web/alone: toleration-outside-allowlist
"#
    );
}

#[test]
fn where_nothing_breaks_the_contract_there_is_nothing_to_adopt() {
    let policy = super::cluster::policy(CONTRACT);
    let mirror = |pod: &mut Value| pod["metadata"]["annotations"][MIRROR_ANNOTATION] = "hash".into();
    let cluster = Cluster::new()
        .object(gpu_node("gpu-1"))
        .object(pod("web/a"))
        .object(pod("ml/train").gpus(1).owned_by("Job/train"))
        .object(pod("web/static").on("gpu-1").tolerates(json!({"operator": "Exists"})).edit(mirror))
        .object(pod("web/ended").tolerates(exact()).phase("Succeeded"));
    assert!(
        printed(&policy, &cluster).ends_with(" replaces another.\nexemptions: []\n"),
        "{}",
        printed(&policy, &cluster)
    );
}

/// Each kind of owner, by pods alone and by its template alone, and every rule that can refuse.
#[test]
fn what_was_adopted_is_created_again() {
    let by_name = |pod: &mut Value| {
        pod["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    };
    let breaking: [(&str, Pod); 6] = [
        ("web", pod("web/x").tolerates(exact())),
        ("web", pod("web/x").gpus(1)),
        ("web", pod("web/x").on("gpu-1").edit(by_name)),
        ("web", pod("web/x").tolerates(json!({"key": "dedicated", "operator": "Like", "value": "gpu"}))),
        ("ml", pod("ml/x").gpus(1).tolerates(json!({"operator": "Exists"})).selects("accelerator", "amd")),
        ("ml", pod("ml/x").gpus(1)),
    ];
    let strict = CONTRACT.replace(
        "exemptions: []",
        "exemptions: []\ntemplates: deny\nrules: {broad-toleration: deny, placement-missing: deny, \
         toleration-without-gpu-request: deny}",
    );
    for owner in [
        "ReplicaSet/s-5d4f8c7b9c",
        "ReplicaSet/s",
        "StatefulSet/s",
        "DaemonSet/s",
        "Job/s",
        "Job/s-29000000",
        "ReplicationController/s",
    ] {
        for (index, (namespace, breach)) in breaking.iter().enumerate() {
            let owned = breach.clone().owned_by(owner).edit(|pod| pod["metadata"]["name"] = "p".into());
            let cluster = Cluster::new().contract(&strict).object(gpu_node("gpu-1")).object(owned.clone());
            let policy = super::cluster::policy(&strict);
            let text = printed(&policy, &cluster);
            let adopted = adopting(&strict, &text);
            let object = Value::from(owned.clone());
            assert_eq!(refused(&adopted, &cluster, &object), Ok(vec![]), "{owner} {index} {namespace}\n{text}");
            // Without them it is refused, but for what mutation makes good.
            let before = refused(&policy, &cluster, &object).unwrap();
            assert_eq!(
                before.is_empty(),
                index == 5 || (index == 2 && owner.starts_with("DaemonSet")),
                "{owner} {index}: {before:?}"
            );
            // Nobody else gains by it.
            let mut other = object.clone();
            other["metadata"]["ownerReferences"] = owners(&owner.replace("/s", "/other"));
            assert_eq!(refused(&adopted, &cluster, &other).unwrap(), before, "{owner} {index}");
        }
    }
}

#[test]
fn whom_a_name_covers_beside_its_owner_is_told() {
    let policy = super::cluster::policy(CONTRACT);
    let cluster = Cluster::new()
        .object(workload("Deployment", "web/shop", pod("web/x").tolerates(exact())))
        .object(workload("Deployment", "web/shop-admin", pod("web/x")))
        .object(workload("Deployment", "web/shopping", pod("web/x")))
        .object(workload("Deployment", "ml/shop-admin", pod("ml/x")));
    let text = printed(&policy, &cluster);
    assert!(text.contains("\n  # Its name covers others as well: Deployment web/shop-admin\n"), "{text}");
}

/// Names that are alike once they are cut, and one that the contract has already.
#[test]
fn every_exemption_has_a_name_and_a_reason_that_a_contract_takes() {
    let long = "a".repeat(60);
    let contract =
        CONTRACT.replace("exemptions: []", "exemptions: [{name: adopted-web-shop, reason: r, users: [jane]}]");
    let set = |name: &str| workload("StatefulSet", &format!("web/{name}"), pod("web/x").tolerates(exact()));
    let cluster = Cluster::new()
        .contract(&contract)
        .objects([set("shop"), set(&format!("{long}1")), set(&format!("{long}2")), set("dotted.name")])
        .object(set("b.".repeat(120).trim_end_matches('.')))
        .object(set("Not A Name"));
    let policy = super::cluster::policy(&contract);
    let text = printed(&policy, &cluster);
    assert!(text.ends_with(
        "# Owners whose names cannot stand in a contract:\n#   StatefulSet web/Not A Name: toleration-outside-allowlist\n"
    ), "{text}");
    let names: Vec<_> =
        adopting(&contract, &text).exemptions().iter().map(|exemption| exemption.name.clone()).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    assert!(names.contains(&"adopted-web-shop-2".to_owned()) && names.contains(&"adopted-web-dotted-name".to_owned()));
}

/// The pods of a custom resource may be known by owners of Kubernetes' own kinds.
#[test]
fn a_custom_resource_is_left_out_where_its_pods_cannot_be_named() {
    let contract = "pools:\n- {name: nvidia, resources: [nvidia.com/gpu], taints: [{key: dedicated, value: gpu, effect: \
                    NoSchedule}], nodeSelector: {a: b}, namespaces: {names: [ml]}}\n";
    let policy = custom_resources::of_widgets_in("enforce", contract);
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "web"},
        "spec": {"templates": [{"spec": {"tolerations": [exact()]}}]},
    });
    let alone = Cluster::new().object(widget.clone());
    let text = printed(&policy, &alone);
    assert!(text.contains("  # Needs you: Widget web/w\n"), "{text}");
    let mut set = workload("ReplicaSet", "web/w-7f6b9d5c48", pod("web/x"));
    set["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "controller": true}]);
    let with_pods = alone.object(set).object(pod("web/w-x").tolerates(exact()).owned_by("ReplicaSet/w-7f6b9d5c48"));
    let text = printed(&policy, &with_pods);
    assert!(text.contains("\n  # Widget web/w\n") && text.contains(r#"name: "w-*"}"#), "{text}");
    assert!(!text.contains("Needs you"), "{text}");
}

/// Under every contract, in every mode: what a controller makes is created again, and all else is named.
#[test]
fn nothing_that_can_be_exempted_is_refused_when_the_contract_starts_to_enforce() {
    let contracts: Vec<_> = CONTRACTS.iter().chain(&INTRICATE).copied().collect();
    let policies: Vec<_> = contracts.iter().map(|yaml| support::policy(&format!("mode: audit\n{yaml}"))).collect();
    let wholes: Vec<_> = contracts.iter().map(|yaml| whole(&format!("mode: audit\n{yaml}"))).collect();
    let adopted = std::cell::Cell::new(0);
    holds(250, (0..policies.len(), vec(stored_pod(), 1..5)), |(contract, pods)| {
        let mut cluster = world();
        for (index, mut pod) in pods.into_iter().enumerate() {
            pod["metadata"].as_object_mut().unwrap().remove("generateName");
            pod["metadata"]["name"] = format!("p-{index}").into();
            cluster = cluster.object(pod);
        }
        let policy = &policies[contract];
        let snapshot = cluster.snapshot(policy);
        let text = adopt(policy, &snapshot, &exemptions_yaml(policy).unwrap(), NOW, NOW + MONTH);
        let enforcing = with(wholes[contract].clone(), &text);
        adopted.set(adopted.get() + enforcing.exemptions().len() - policy.exemptions().len());
        for pod in &snapshot.pods {
            let object = cluster.objects.iter().find(|object| {
                object["kind"] == "Pod"
                    && object["metadata"]["name"] == *pod.name
                    && object["metadata"]["namespace"] == *pod.namespace
            });
            if pod.is_over() || refused(&enforcing, &cluster, object.unwrap()) == Ok(vec![]) {
                continue;
            }
            let top = snapshot.top_controller(pod.controller.as_ref()).filter(|_| pod.is_stored);
            let top = top.cloned().unwrap_or_else(|| pod.object());
            let is_named = text.lines().any(|line| {
                let rest =
                    ["#   ", "  # Needs you: "].iter().find_map(|start| line.strip_prefix(&format!("{start}{top}")));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            });
            prop_assert!(
                is_named,
                "{top}: {:?} of {object:?} under\n{text}",
                refused(&enforcing, &cluster, object.unwrap())
            );
            let is_own = matches!(
                (top.group(), &*top.kind),
                ("apps", "DaemonSet" | "ReplicaSet" | "StatefulSet") | ("batch", "Job")
            );
            let readable = refused(&enforcing, &cluster, object.unwrap()).is_ok();
            prop_assert!(!is_own || !pod.is_stored || !readable, "{top} could be exempted: {object:?}\n{text}");
        }
        Ok(())
    });
    assert!(adopted.get() > 15, "{}: such pods show little", adopted.get());
}

/// A list of a contract replaces the one beneath it: what is printed holds all that the contract has, the built-in
/// exemption of the agents of nodes among it.
#[test]
fn the_list_is_whole() {
    let yaml = CONTRACT.replace("exemptions: []\n", "");
    let policy = super::cluster::policy(&yaml);
    let names = |text: &str| {
        let policy = super::cluster::policy(&format!("{yaml}\n{text}"));
        policy.exemptions().iter().map(|exemption| exemption.name.clone()).collect::<Vec<_>>()
    };
    let quiet = Cluster::new().contract(&yaml).object(gpu_node("gpu-1"));
    assert_eq!(names(&printed(&policy, &quiet)), ["node-agents"]);
    let agent = pod("kube-system/proxy").tolerates(json!({"operator": "Exists"})).owned_by("DaemonSet/kube-proxy");
    let sneaky = pod("web/db-0").tolerates(exact()).owned_by("StatefulSet/db").on("gpu-1");
    let cluster = quiet.object(agent.clone()).object(sneaky);
    let text = printed(&policy, &cluster);
    assert_eq!(names(&text), ["node-agents", "adopted-web-db"], "{text}");
    let adopted = super::cluster::policy(&format!("{yaml}\n{text}"));
    assert_eq!(refused(&adopted, &cluster, &agent.into()), Ok(vec![]), "{text}");
}

/// Whom an exemption can name but for the one who makes the pods: a person fills that in, and then it counts.
#[test]
fn an_unknown_maker_is_for_a_person_to_fill_in() {
    let policy = super::cluster::policy(CONTRACT);
    let ray = |name: &str| {
        pod(name).tolerates(exact()).on("gpu-1").label("team", "vision").edit(|pod| {
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "u", "controller": true}]);
        })
    };
    let cluster = Cluster::new().object(gpu_node("gpu-1")).objects([ray("web/ray-head"), ray("web/ray-worker")]);
    let text = printed(&policy, &cluster);
    assert!(text.contains("# 1 workload needs you: who makes the pods is not known."), "{text}");
    let expected = r#"exemptions: []
  # Needs you: RayCluster web/ray
  # - name: "adopted-web-ray"
  #   reason: "RayCluster web/ray runs since 2026-11-01 on 1 GPU node"
  #   owner: "vision"
  #   expires: "2026-12-30"
  #   pools: ["nvidia"]
  #   rules: [toleration-outside-allowlist]
  #   namespaces: ["web"]
  #   owners: [{kind: RayCluster, apiGroup: ray.io, name: "ray"}]
  #   serviceAccounts: ["NAMESPACE/NAME"]
"#;
    assert!(text.ends_with(expected), "{text}");
    // As it is, it is refused; filled in, it is taken.
    let uncommented = text.replace("exemptions: []", "exemptions:").replace("  # - ", "  - ").replace("  #   ", "    ");
    let contract = |text: &str| CONTRACT.replace("exemptions: []\n", text);
    assert!(support::try_contract(&contract(&uncommented)).is_err());
    let filled = contract(&uncommented.replace("NAMESPACE/NAME", "ray-system/kuberay-operator"));
    assert_eq!(super::cluster::policy(&filled).exemptions()[0].owner.as_deref(), Some("vision"));
    let two = cluster.object(pod("web/other").tolerates(exact()).owned_by("CloneSet/other"));
    assert!(printed(&policy, &two).contains("# 2 workloads need you"));
}

/// Its own label counts, then that of its pods, then that of the namespace; else the namespace answers.
#[test]
fn somebody_answers_for_each() {
    let policy = super::cluster::policy(CONTRACT);
    let sneaky = || pod("web/db-0").tolerates(exact()).owned_by("StatefulSet/db");
    let set = |owner: Option<&str>| {
        let mut set = workload("StatefulSet", "web/db", pod("web/x").tolerates(exact()));
        if let Some(owner) = owner {
            set["metadata"]["annotations"]["owner"] = owner.into();
        }
        set
    };
    let line = |cluster: &Cluster| {
        let text = printed(&policy, cluster);
        text.lines().find_map(|line| line.strip_prefix("    owner: ")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let plain = Cluster::new().object(sneaky()).object(set(None));
    assert_eq!(line(&plain), r#""namespace web""#);
    let team =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web", "labels": {"team": "shops"}}});
    let mut labelled = plain.clone();
    labelled.objects.retain(|object| object["metadata"]["name"] != "web");
    assert_eq!(line(&labelled.object(team)), r#""shops""#);
    let of_pods = |key| Cluster::new().object(sneaky().label(key, "pods")).object(set(None));
    assert_eq!(line(&of_pods("app.kubernetes.io/part-of")), r#""pods""#);
    assert_eq!(line(&of_pods("app.kubernetes.io/managed-by")), r#""namespace web""#);
    let own = |owner| Cluster::new().object(sneaky().label("team", "pods")).object(set(Some(owner)));
    assert_eq!(line(&own("jane@example.com, on call")), r#""jane@example.com, on call""#);
    for odd in ["two\nlines", " ", &"a".repeat(121)] {
        assert_eq!(line(&own(odd)), r#""pods""#, "{odd:?}");
    }
}

/// A pod that waits runs nowhere.
#[test]
fn what_waits_is_not_said_to_run() {
    let policy = super::cluster::policy(CONTRACT);
    let waiting = pod("web/db-0").tolerates(exact()).owned_by("StatefulSet/db").unschedulable("no");
    let text = printed(&policy, &Cluster::new().object(waiting.clone()));
    assert!(text.contains(r#"reason: "StatefulSet web/db waits for a node""#), "{text}");
    let running = pod("web/db-1").tolerates(exact()).owned_by("StatefulSet/db").on("gpu-1");
    let text = printed(&policy, &Cluster::new().object(gpu_node("gpu-1")).object(waiting).object(running));
    assert!(text.contains(r#"reason: "StatefulSet web/db runs since 2026-11-01 on 1 GPU node""#), "{text}");
}
