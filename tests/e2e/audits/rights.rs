use std::time::Duration;

use gpufence::audit::snapshot::READS;
use serde_json::{Value, json};

use crate::api::{User, admin};
use crate::contract::Contract;
use crate::objects::Pod;
use crate::poll;
use crate::world::{World, timeless};

const ROLES: &str = include_str!("../../../deploy/audit-reader.yaml");

/// A role that the repository offers.
pub fn role(name: &str) -> Value {
    let mut roles = ROLES.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    roles.find(|role| role["metadata"]["name"] == name).unwrap()
}

/// The role of a reader, with another name.
fn reader(name: &str) -> Value {
    let mut role = role("gpufence-audit-reader");
    role["metadata"]["name"] = name.into();
    role
}

fn list(group: &str, version: &str, resource: &str) -> String {
    let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    format!("{root}/{version}/{resource}?limit=1")
}

/// Gives a user the role and nothing else, and waits until that is in force.
pub fn bind(world: &World, role: &Value) -> String {
    let name = role["metadata"]["name"].as_str().unwrap().to_owned();
    world.make(role);
    world.make(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }));
    poll::until("the role is in force", Duration::from_secs(10), || {
        let reply = User::named(&name).get(&list("", "v1", "pods"));
        if reply.code == 200 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    name
}

/// A contract in the cluster, where an installation has it.
fn install(world: &World, contract: &Contract) {
    world.namespace("gpufence");
    world.make(&json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpufence", "namespace": "gpufence"},
        "data": {"contract.yaml": contract.text()},
    }));
}

/// The role that the repository offers is enough for all that the administrator sees, by the contract that is installed.
#[test]
fn a_reader_audits_all_that_the_administrator_does() {
    let Some(world) = World::new() else { return };
    install(&world, &Contract::enforcing());
    world.namespace("web");
    world.gpu_node("gpu-1");
    world.pod_on(&Pod::named("shop").in_namespace("web"), "gpu-1", "Running");
    let reader = bind(&world, &reader("audit-reader"));
    let audit = world.run_as(Some(&reader), &["--output", "json"]).audit();
    assert_eq!(audit["gaps"], json!([]));
    assert_eq!(audit["contract"], "the ConfigMap gpufence in the namespace gpufence");
    assert_eq!(audit["mode"], "enforce");
    let of_administrator = world.run(&["--output", "json"]).audit();
    assert_eq!(timeless(&audit), timeless(&of_administrator));
    // And it may change nothing.
    let web = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "reader"}});
    assert_eq!(User::named(&reader).create(&web).code, 403);
    assert_eq!(User::named(&reader).get("/api/v1/secrets").code, 403);
}

/// Without an installation the built-in contract counts, and an installed one that is broken is no reason to guess.
#[test]
fn the_contract_is_the_named_or_the_installed_or_the_built_in_one() {
    let Some(world) = World::new() else { return };
    let audit = world.run(&["--output", "json"]).audit();
    assert_eq!((&audit["contract"], &audit["mode"]), (&json!("the built-in contract"), &json!("audit")));
    install(&world, &Contract::enforcing().with("mode", "perhaps"));
    let ended = world.run(&["--output", "json"]);
    assert_eq!((ended.code, &*ended.stdout), (2, ""));
    assert!(ended.stderr.contains("ConfigMap gpufence in the namespace gpufence"), "{}", ended.stderr);
    let audit = world.audit();
    assert_eq!(audit["contract"], world.contract().to_str().unwrap());
}

/// What is missing is said, with the rule that would give it, and the rest is audited.
#[test]
fn rights_that_are_missing_are_gaps() {
    let Some(world) = World::new() else { return };
    install(&world, &Contract::enforcing());
    world.gpu_node("gpu-1");
    let mut role = reader("nodes-and-pods");
    role["rules"] = json!([{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]);
    let user = bind(&world, &role);
    let audit = world.run_as(Some(&user), &["--output", "json"]).audit();
    assert_eq!(audit["summary"]["gpuNodes"], 1);
    assert_eq!(audit["contract"], "the built-in contract");
    let gaps: Vec<_> = audit["gaps"].as_array().unwrap().iter().map(|gap| gap.as_str().unwrap()).collect();
    for (group, resource) in READS.iter().filter(|(_, resource)| !matches!(*resource, "nodes" | "pods")) {
        let remedy = format!("{{apiGroups: [\"{group}\"], resources: [{resource}], verbs: [list]}}");
        let gap = gaps.iter().find(|gap| gap.starts_with(&format!("{resource} cannot be listed")));
        assert!(gap.is_some_and(|gap| gap.ends_with(&remedy)), "{resource}: {gaps:#?}");
    }
    assert!(
        gaps.iter().any(|gap| gap.starts_with("the ConfigMap gpufence in the namespace gpufence may not be read")),
        "{gaps:#?}"
    );
    // Of each kind that is not known whole, and no other.
    let unknown = gaps.iter().filter(|gap| gap.ends_with("of the cluster are not all known")).count();
    assert_eq!(unknown, 4, "{gaps:#?}");
}

#[test]
fn who_may_read_nothing_is_told_what_it_takes() {
    let Some(world) = World::new() else { return };
    let contract = world.contract();
    let ended = world.run_as(Some("nobody"), &["--config", contract.to_str().unwrap(), "--output", "json"]);
    assert_eq!((ended.code, &*ended.stdout), (1, ""));
    assert!(
        ended.stderr.starts_with(
            "gpufence: there is nothing to audit, since neither nodes nor pods can be read: nodes is forbidden: User \
             \"nobody\" cannot list resource \"nodes\""
        ),
        "{}",
        ended.stderr
    );
}

/// A custom resource of the contract is read where the role has a rule for it, and a gap where it has none.
#[test]
fn custom_resources_take_a_rule_of_their_own() {
    let Some(world) = World::new() else { return };
    let group = "audits.example.com";
    world.make(&json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("rollouts.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Rollout", "plural": "rollouts"},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }},
            }],
        },
    }));
    let path = list(group, "v1alpha1", "rollouts");
    poll::until("the kind is served", Duration::from_secs(20), || {
        let reply = admin().get(&path);
        if reply.code == 200 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    // The discovery knows of it a moment later.
    poll::until("the group is known", Duration::from_secs(20), || {
        let known = admin().get("/apis").body.to_string().contains(group);
        if known { Ok(()) } else { Err("it is not".to_owned()) }
    });
    world.namespace("web");
    world.make(&json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": "Rollout",
        "metadata": {"name": "shop", "namespace": "web"},
        "spec": {"replicas": 1, "template": {"spec": Pod::named("shop").in_namespace("web")["spec"]}},
    }));
    let custom = json!([
        {"group": group, "kind": "Rollout", "resource": "rollouts", "templates": ["{.spec.template}"]},
        {"group": group, "kind": "Experiment", "resource": "experiments", "templates": ["{.spec.template}"]},
        {"group": "absent.example.com", "kind": "Thing", "resource": "things", "templates": ["{.spec.template}"]},
    ]);
    std::fs::write(world.contract(), Contract::enforcing().with("customResources", custom).text()).unwrap();
    let (audit, saved) = world.audit_and_save();
    assert_eq!((&audit["gaps"], saved.of("Rollout")), (&json!([]), vec!["web/shop".to_owned()]));

    let contract = world.contract();
    let arguments = ["--config", contract.to_str().unwrap(), "--output", "json"];
    let user = bind(&world, &reader("no-custom-kinds"));
    let audit = world.run_as(Some(&user), &arguments).audit();
    let gaps = audit["gaps"].to_string();
    for (resource, is_there) in [("rollouts", true), ("experiments", true), ("things", false)] {
        assert_eq!(gaps.contains(&format!("{resource} cannot be listed")), is_there, "{gaps}");
    }
    let mut role = reader("custom-kinds");
    let more = json!({"apiGroups": [group], "resources": ["rollouts", "experiments"], "verbs": ["list"]});
    role["rules"].as_array_mut().unwrap().push(more);
    let user = bind(&world, &role);
    assert_eq!(world.run_as(Some(&user), &arguments).audit()["gaps"], json!([]));
}
