//! The exemptions under which what runs today goes on running.

use gpufence::audit::adopt;
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
    adopt(policy, &cluster.snapshot(policy), NOW, NOW + MONTH)
}

/// The contract with the printed exemptions beside its own, enforced everywhere.
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
    full["exemptions"].as_array_mut().unwrap().extend(printed["exemptions"].as_array().unwrap().iter().cloned());
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
        r#"# What runs on 2026-11-30 and the contract would refuse. Add these to its exemptions; each counts until 2026-12-30.
exemptions:
  # Owner: DaemonSet web/agent
  - name: "adopted-web-agent"
    reason: "DaemonSet web/agent has no pod today"
    expires: "2026-12-30"
    pools: ["nvidia"]
    rules: [toleration-outside-allowlist]
    namespaces: ["web"]
    daemonSets: ["agent"]
  # Owner: Deployment web/shop
  - name: "adopted-web-shop"
    reason: "Deployment web/shop runs since 2026-11-01 on 2 GPU nodes"
    expires: "2026-12-30"
    pools: ["nvidia"]
    rules: [toleration-outside-allowlist]
    namespaces: ["web"]
    owners: [{kind: ReplicaSet, apiGroup: apps, name: "shop-*"}]
  # Owner: CronJob web/nightly
  - name: "adopted-web-nightly"
    reason: "CronJob web/nightly has no pod today"
    expires: "2026-12-30"
    pools: ["nvidia"]
    rules: [gpu-request-outside-allowlist]
    namespaces: ["web"]
    owners: [{kind: Job, apiGroup: batch, name: "nightly-*"}]
# Pods that no controller makes. What runs goes on running; to create one again, exempt who does (users, groups or serviceAccounts):
#   Pod web/alone: toleration-outside-allowlist
# Owners whose pods no controller of Kubernetes' own makes. Exempt the user name under which they are made (serviceAccounts beside owners):
#   CloneSet web/odd: toleration-outside-allowlist
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
    assert!(printed(&policy, &cluster).ends_with(".\nexemptions: []\n"), "{}", printed(&policy, &cluster));
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
    assert!(text.ends_with("#   Widget web/w: toleration-outside-allowlist\n"), "{text}");
    let mut set = workload("ReplicaSet", "web/w-7f6b9d5c48", pod("web/x"));
    set["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "controller": true}]);
    let with_pods = alone.object(set).object(pod("web/w-x").tolerates(exact()).owned_by("ReplicaSet/w-7f6b9d5c48"));
    let text = printed(&policy, &with_pods);
    assert!(text.contains("# Owner: Widget web/w\n") && text.contains(r#"name: "w-*"}"#), "{text}");
    assert!(!text.contains("#   Widget"), "{text}");
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
        let text = adopt(policy, &snapshot, NOW, NOW + MONTH);
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
                line.strip_prefix(&format!("#   {top}")).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
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
