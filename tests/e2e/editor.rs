use std::time::Duration;

use serde_json::json;

use crate::api::{Patch, User, admin, path};
use crate::contract::exact_toleration;
use crate::fence::Fence;
use crate::findings::{refusal, toleration, toleration_outside};
use crate::objects::{Pod, exact_tolerations, workload};
use crate::poll;

/// A person with the role `edit` in a namespace, and no other right.
pub fn of(fence: &Fence, namespace: &str) -> User {
    let name = fence.unique("editor");
    // `edit` is put together by a controller from roles such as the second. An API server alone has only
    // the parts.
    for role in ["edit", "system:aggregate-to-edit"] {
        fence.make(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        }));
    }
    let editor = User::named(name);
    until_allowed(&editor, namespace);
    editor
}

/// Waits until the API server knows that somebody may create pods in a namespace.
pub fn until_allowed(user: &User, namespace: &str) {
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": namespace, "verb": "create", "resource": "pods"}},
    });
    poll::until("the role binding is in force", Duration::from_secs(10), || {
        let reply = user.create(&question);
        if reply.body["status"]["allowed"] == true { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
}

#[test]
fn an_editor_of_the_namespace_is_refused_what_the_administrator_is() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let editor = of(&fence, &web);
    editor.create(&Pod::named("ordinary").in_namespace(&web)).quietly();
    for pod in [
        Pod::named("toleration").tolerating(&exact_toleration()),
        Pod::named("wildcard").tolerating(&json!({"operator": "Exists"})),
        Pod::named("gpu").with_gpu(),
        Pod::named("init").with_init_container("nvidia.com/gpu", None),
    ] {
        let pod = pod.in_namespace(&web);
        let reply = editor.create(&pod);
        assert!(reply.refusal().starts_with(&refusal("")), "{reply:#?}");
        assert_eq!(reply.refusal(), admin().create(&pod).refusal());
    }
}

#[test]
fn an_editor_cannot_patch_a_passing_toleration_into_a_pod() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let editor = of(&fence, &web);
    let pod = editor.create(&Pod::named("ordinary").in_namespace(&web)).quietly();
    let patch = json!([{"op": "add", "path": "/spec/tolerations/-", "value": exact_toleration()}]);
    let added = toleration(pod["spec"]["tolerations"].as_array().unwrap().len());
    let reply = editor.patch(Patch::Json, &path(&pod), &patch);
    assert_eq!(reply.refusal(), refusal(&toleration_outside(&added, &web)));
}

#[test]
fn an_editor_is_warned_of_a_deployment_whose_pods_will_be_refused() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    let (deployment, _) = workload("Deployment", "shop", &web, &Pod::named("shop").tolerating(&exact_toleration()));
    let reply = of(&fence, &web).create(&deployment);
    assert_eq!(reply.our_warnings().len(), 1, "{reply:#?}");
    reply.stored();
}

#[test]
fn an_editor_of_an_allowed_namespace_has_gpu_pods_completed() {
    let fence = Fence::enforcing();
    let ml = fence.namespace("ml");
    let stored = of(&fence, &ml).create(&Pod::named("gpu").with_gpu().in_namespace(&ml)).quietly();
    assert_eq!(exact_tolerations(&stored), 1);
}
