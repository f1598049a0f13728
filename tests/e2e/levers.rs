use std::path::Path;
use std::time::Duration;

use gpufence::manifest::{Options, render};
use serde_json::{Value, json};

use crate::api::{Patch, User, admin, path};
use crate::contract::{Contract, LABEL};
use crate::fence::{Fence, LEVERS};
use crate::{features, poll};

const ALLOWED: &str = "gpu.example.com/allowed";

/// A fence that the label opens, and that guards it.
fn guarded() -> Fence {
    let contract = Contract::enforcing()
        .with(
            "pools",
            json!([{
                "name": "nvidia",
                "resources": ["nvidia.com/gpu"],
                "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
                "nodeSelector": {LABEL: "nvidia"},
                "namespaces": {"selector": {"matchLabels": {ALLOWED: "true"}}},
            }]),
        )
        .with("rules", json!({"lever-change": "deny"}))
        .with("levers", json!({"groups": ["system:masters"]}))
        .with("contact", "the GPU team");
    let fence = Fence::serving(&contract);
    fence.register_levers(&rendered(contract));
    // The API server calls once it refuses. The administrator is nobody whom it would refuse.
    let tester = member(&fence, "tester", "namespaces", &["create"], None);
    let probe = namespace(&fence, &fence.unique("probe"), Some("true"));
    poll::until("the API server calls the webhook", Duration::from_secs(20), || {
        let reply = tester.dry_run().create(&probe);
        if reply.message().contains(LEVERS) { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    fence
}

/// The hook as an installation registers it with an API server of this version.
fn rendered(contract: Contract) -> Value {
    let text = contract.with("server", json!({"listen": "0.0.0.0:8443", "metrics": "0.0.0.0:9090"})).text();
    let contract = gpufence::contract::Contract::read(Path::new("contract.yaml"), text.as_bytes(), []).unwrap();
    let version = admin().get("/version").stored();
    let part = |key: &str| version[key].as_str().unwrap().trim_end_matches('+').to_owned();
    let kubernetes = format!("{}.{}", part("major"), part("minor")).parse().unwrap();
    let manifests = render(&contract, &Options { kubernetes, ..Options::default() }).unwrap();
    let mut hooks = manifests.objects.iter().filter_map(|object| object["webhooks"].as_array()).flatten();
    hooks.find(|hook| hook["name"] == "levers.validate.gpufence.io").unwrap().clone()
}

fn namespace(fence: &Fence, name: &str, allowed: Option<&str>) -> Value {
    let (label, value) = fence.label();
    let mut namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {label: value}}});
    if let Some(allowed) = allowed {
        namespace["metadata"]["labels"][ALLOWED] = allowed.into();
    }
    namespace
}

/// Somebody who may do this with a resource and its subresources, of one name or of any, and has no other right.
fn member(fence: &Fence, word: &str, resource: &str, verbs: &[&str], name: Option<&str>) -> User {
    let user = fence.unique(word);
    let resources = [resource.to_owned(), format!("{resource}/status"), format!("{resource}/finalize")];
    let mut rule = json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    fence.make(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": user},
        "rules": [rule],
    }));
    bound(fence, &user, &user, resource, verbs[0], name)
}

/// Binds a user to a role, and waits until the API server knows.
fn bound(fence: &Fence, role: &str, name: &str, resource: &str, verb: &str, object: Option<&str>) -> User {
    fence.make(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": fence.unique(&name.replace(':', "-"))},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }));
    let user = User::named(name);
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "name": object.unwrap_or_default()}},
    });
    poll::until("the role binding is in force", Duration::from_secs(10), || {
        let reply = user.create(&question);
        if reply.body["status"]["allowed"] == true { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    user
}

fn refusal(change: &str, decides: &str, act: &str) -> String {
    format!(
        "admission webhook \"{LEVERS}\" denied the request: lever-change: {change}: {decides}, and only groups system:masters \
         may {act} it. Ask the GPU team."
    )
}

/// A change of one label as each form of patch writes it.
fn relabelled(form: Patch, object: &Value, key: &str, value: Option<&str>) -> Value {
    match (form, value) {
        (Patch::Json, Some(value)) => {
            json!([{"op": "add", "path": format!("/metadata/labels/{}", key.replace('/', "~1")), "value": value}])
        }
        (Patch::Json, None) => {
            json!([{"op": "remove", "path": format!("/metadata/labels/{}", key.replace('/', "~1"))}])
        }
        (Patch::Apply, _) => json!({
            "apiVersion": "v1",
            "kind": object["kind"],
            "metadata": {"name": object["metadata"]["name"], "labels": {key: value.unwrap_or_default()}},
        }),
        _ => json!({"metadata": {"labels": {key: value}}}),
    }
}

#[test]
fn a_tenant_with_every_right_on_its_namespace_cannot_opt_in_or_out() {
    let fence = guarded();
    let name = fence.namespace("web");
    let tenant = member(&fence, "tenant", "namespaces", &["update", "patch", "get"], Some(&name));
    let plain = namespace(&fence, &name, None);
    let at = path(&plain);
    let parts = [at.clone(), format!("{at}/status"), format!("{at}/finalize")];
    let reads = "the allowlist of pool nvidia reads it";
    let refused = |change: &str| {
        refusal(
            &format!("metadata.labels[\"{ALLOWED}\"] of namespace {name} is changed from {change}"),
            reads,
            "change",
        )
    };
    for (before, after, change) in [
        (None, Some("true"), "nothing to \"true\""),
        (Some("true"), Some("false"), "\"true\" to \"false\""),
        (Some("true"), None, "\"true\" to nothing"),
    ] {
        // Who is named may, by the same doors.
        for form in [Patch::Merge, Patch::Strategic] {
            let patch = json!({"metadata": {"labels": {ALLOWED: before}}});
            admin().patch(form, &at, &patch).quietly();
        }
        for (place, form) in parts[..2].iter().flat_map(|place| Patch::ALL.map(|form| (place, form))) {
            if form == Patch::Apply && after.is_none() {
                // Who never owned the label cannot take it away so.
                continue;
            }
            let patch = relabelled(form, &plain, ALLOWED, after);
            assert_eq!(tenant.patch(form, place, &patch).refusal(), refused(change), "{place} {form:?}");
            assert_eq!(tenant.dry_run().patch(form, place, &patch).refusal(), refused(change), "{place} {form:?}");
        }
        for place in &parts {
            let mut stored = tenant.read(&plain).stored();
            stored["metadata"]["labels"][ALLOWED] = json!(after);
            if after.is_none() {
                stored["metadata"]["labels"].as_object_mut().unwrap().remove(ALLOWED);
            }
            assert_eq!(tenant.replace_at(place, &stored).refusal(), refused(change), "{place}");
        }
        assert_eq!(tenant.read(&plain).stored()["metadata"]["labels"][ALLOWED], json!(before));
    }
    // Everything else is the tenant's own.
    for place in &parts {
        let mut stored = tenant.read(&plain).stored();
        stored["metadata"]["labels"]["team"] = json!("web");
        stored["metadata"]["annotations"] = json!({ALLOWED: "no label", "at": place});
        assert_eq!(tenant.replace_at(place, &stored).quietly()["metadata"]["annotations"]["at"], json!(place));
    }
    for form in Patch::ALL {
        tenant.patch(form, &at, &relabelled(form, &plain, "team", Some("shop"))).quietly();
    }
    for place in &parts[..2] {
        admin().patch(Patch::Merge, place, &json!({"metadata": {"labels": {ALLOWED: "x"}}})).quietly();
        admin().patch(Patch::Merge, place, &json!({"metadata": {"labels": {ALLOWED: null}}})).quietly();
    }
    assert!(fence.count("admission_requests_total", &[("resource", "namespaces"), ("outcome", "deny")]) > 0);
    assert!(fence.decisions_in(&name).iter().all(|line| line["rules"] == "lever-change" && line["name"] == *name));
}

#[test]
fn who_may_make_namespaces_cannot_make_one_that_is_allowed() {
    let fence = guarded();
    let maker = member(&fence, "maker", "namespaces", &["create"], None);
    let (bare, allowed) = (fence.unique("bare"), fence.unique("allowed"));
    let reads = "the allowlist of pool nvidia reads it";
    let refused =
        refusal(&format!("metadata.labels[\"{ALLOWED}\"] of the new namespace {allowed} is \"true\""), reads, "set");
    assert_eq!(maker.create(&namespace(&fence, &allowed, Some("true"))).refusal(), refused);
    let mut nameless = namespace(&fence, "", Some("true"));
    nameless["metadata"]["generateName"] = "team-".into();
    assert!(maker.create(&nameless).refusal().contains(" denied the request: lever-change: metadata.labels["));
    let bare = namespace(&fence, &bare, None);
    fence.adopt(&bare);
    maker.create(&bare).quietly();
    // A namespace goes, whatever it was.
    let allowed = namespace(&fence, &allowed, Some("true"));
    admin().create(&allowed).quietly();
    admin().delete(&path(&allowed)).stored();
}

/// Whether the API server shows a webhook what a node was before an update: until CVE-2021-25735 was mended it showed
/// the new node twice. What is skipped is said.
pub fn shows_old_nodes(what: &str) -> bool {
    let version = admin().get("/version").stored();
    let git = version["gitVersion"].as_str().unwrap().trim_start_matches('v').to_owned();
    let mut parts = git.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or_default());
    let (_, minor, patch) = (parts.next(), parts.next().unwrap(), parts.next().unwrap_or_default());
    let mended = match minor {
        ..=17 => false,
        18 => patch >= 18,
        19 => patch >= 10,
        20 => patch >= 6,
        _ => true,
    };
    if !mended {
        features::skip(what, &format!("Kubernetes {git} does not show webhooks the old node (CVE-2021-25735)"));
    }
    mended
}

fn gpu_node(fence: &Fence, name: &str) -> Value {
    let (label, value) = fence.label();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {label: value, LABEL: "nvidia"}},
        "spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]},
    })
}

#[test]
fn who_may_edit_nodes_cannot_take_one_out_of_its_pool_or_put_one_in() {
    let fence = guarded();
    let verbs = ["update", "patch", "get", "create"];
    let editor = member(&fence, "editor", "nodes", &verbs, None);
    let (name, other) = (fence.unique("gpu"), fence.unique("other"));
    let node = gpu_node(&fence, &name);
    let mut plain = gpu_node(&fence, &other);
    plain["metadata"]["labels"].as_object_mut().unwrap().remove(LABEL);
    plain["spec"] = json!({"taints": [{"key": "example.com/maintenance", "effect": "NoSchedule"}]});
    fence.make(&node);
    fence.make(&plain);
    let fences = "a taint of this key fences the nodes of pool nvidia";
    let taint = "dedicated=gpu:NoSchedule";
    let seen = shows_old_nodes("the refusal of changes of nodes");
    for (node, taints, change) in [
        (&node, json!([]), format!("{name} is changed from {taint} to nothing")),
        (
            &node,
            json!([{"key": "dedicated", "value": "gpu", "effect": "PreferNoSchedule"}]),
            format!("{name} is changed from {taint} to dedicated=gpu:PreferNoSchedule"),
        ),
        (
            &plain,
            json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]),
            format!("{other} is changed from nothing to {taint}"),
        ),
    ] {
        if !seen {
            break;
        }
        let reply = editor.patch(Patch::Merge, &path(node), &json!({"spec": {"taints": taints}}));
        assert_eq!(reply.refusal(), refusal(&format!("spec.taints of node {change}"), fences, "change"));
    }
    for (node, value, change, decides) in [
        (&node, None, format!("{name} is changed from \"nvidia\" to nothing"), "it takes the node out of pool nvidia"),
        (
            &plain,
            Some("nvidia"),
            format!("{other} is changed from nothing to \"nvidia\""),
            "it makes the node one of pool nvidia",
        ),
    ] {
        for place in [path(node), format!("{}/status", path(node))].iter().filter(|_| seen) {
            for form in [Patch::Strategic, Patch::Merge, Patch::Json] {
                let reply = editor.patch(form, place, &relabelled(form, node, LABEL, value));
                let change = format!("metadata.labels[\"{LABEL}\"] of node {change}");
                assert_eq!(reply.refusal(), refusal(&change, decides, "change"), "{place} {form:?}");
            }
        }
    }
    assert_eq!(editor.create(&gpu_node(&fence, &fence.unique("new"))).code, 403);
    // What is no lever, and the levers of who is named.
    for node in [&node, &plain] {
        editor.patch(Patch::Merge, &path(node), &json!({"metadata": {"labels": {"zone": "a"}}})).quietly();
        editor.patch(Patch::Merge, &path(node), &json!({"spec": {"unschedulable": true}})).quietly();
        let beat = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
        editor.patch(Patch::Strategic, &format!("{}/status", path(node)), &beat).quietly();
    }
    let cordoned = json!([
        {"op": "add", "path": "/spec/taints/-", "value": {"key": "example.com/drain", "effect": "NoSchedule"}},
    ]);
    editor.patch(Patch::Json, &path(&node), &cordoned).quietly();
    admin().patch(Patch::Merge, &path(&node), &json!({"spec": {"taints": []}})).quietly();
    admin().patch(Patch::Merge, &path(&node), &json!({"metadata": {"labels": {LABEL: null}}})).quietly();
}

#[test]
fn a_kubelet_brings_its_node_along_and_changes_nothing_of_it_later() {
    let fence = guarded();
    let name = fence.unique("node");
    let user = format!("system:node:{name}");
    let kubelet = bound(&fence, "system:node", &user, "nodes", "create", None).in_group("system:nodes");
    let node = gpu_node(&fence, &name);
    fence.adopt(&node);
    let stored = kubelet.create(&node).quietly();
    assert_eq!(stored["metadata"]["labels"][LABEL], "nvidia");
    let beat = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
    let status = format!("{}/status", path(&node));
    kubelet.patch(Patch::Strategic, &status, &beat).quietly();
    let change = format!("metadata.labels[\"{LABEL}\"] of node {name} is changed from \"nvidia\" to \"none\"");
    let refused = refusal(&change, "it takes the node out of pool nvidia", "change");
    let places =
        if shows_old_nodes("the refusal of what a kubelet changes") { vec![path(&node), status] } else { vec![] };
    for place in places {
        let reply = kubelet.patch(Patch::Merge, &place, &json!({"metadata": {"labels": {LABEL: "none"}}}));
        assert_eq!(reply.refusal(), refused);
    }
    let other = gpu_node(&fence, &fence.unique("other"));
    assert!(kubelet.create(&other).message().contains(LEVERS));
    admin().delete(&path(&node)).stored();
}
