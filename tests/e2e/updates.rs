use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::contract::{Contract, exact_toleration};
use crate::fence::{Fence, Registration, pods_with_label};
use crate::findings::{refusal, toleration, toleration_outside};
use crate::objects::{Pod, completed, exact_tolerations};

/// A namespace outside with pods that break the contract, as they are in a cluster on the day when the
/// webhook comes.
struct Old {
    fence: Fence,
    web: String,
    /// Tolerates the taint.
    tolerating: Value,
    /// Asks for a GPU.
    asking: Value,
}

impl Old {
    fn new() -> Self {
        let fence = Fence::serving(&Contract::enforcing());
        let web = fence.namespace("web");
        let hold = json!(["e2e.gpufence.example/hold"]);
        let pod = |name| Pod::named(name).with(&["metadata", "finalizers"], hold.clone());
        let create = |pod: Pod| admin().create(&pod.in_namespace(&web)).stored();
        let tolerating = create(pod("tolerating").tolerating(&json!({"operator": "Exists"})));
        let asking = create(pod("asking").with_gpu());
        fence.register(&Registration::default());
        Self { fence, web, tolerating, asking }
    }

    fn both(&self) -> [&Value; 2] {
        [&self.tolerating, &self.asking]
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        // A namespace does not go away under a finalizer.
        for pod in self.both() {
            admin().patch(Patch::Merge, &path(pod), &json!({"metadata": {"finalizers": null}}));
        }
    }
}

/// The patch of a form that adds a toleration to those that a pod has.
fn adding(form: Patch, pod: &Value, toleration: &Value) -> Value {
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    tolerations.push(toleration.clone());
    match form {
        Patch::Strategic | Patch::Merge => json!({"spec": {"tolerations": tolerations}}),
        Patch::Json if tolerations.len() == 1 => {
            json!([{"op": "add", "path": "/spec/tolerations", "value": tolerations}])
        }
        Patch::Json => json!([{"op": "add", "path": "/spec/tolerations/-", "value": toleration}]),
        Patch::Apply => json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
            "spec": {"tolerations": tolerations},
        }),
    }
}

fn outside(index: usize, namespace: &str) -> String {
    refusal(&toleration_outside(&toleration(index), namespace))
}

fn tolerations(pod: &Value) -> usize {
    pod["spec"]["tolerations"].as_array().map_or(0, Vec::len)
}

#[test]
fn an_old_violating_pod_can_be_labelled_in_every_form_of_patch() {
    let old = Old::new();
    for pod in old.both() {
        for form in Patch::ALL {
            let label = format!("{form:?}");
            let patch = match form {
                Patch::Json => json!([{"op": "add", "path": format!("/metadata/labels/{label}"), "value": "yes"}]),
                _ => json!({
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": pod["metadata"]["name"], "labels": {&label: "yes"}},
                }),
            };
            let stored = admin().patch(form, &path(pod), &patch).quietly();
            assert_eq!(stored["metadata"]["labels"][&label], "yes");
        }
        let mut replacement = admin().read(pod).stored();
        replacement["metadata"]["labels"]["replaced"] = "yes".into();
        assert_eq!(admin().replace(&replacement).quietly()["metadata"]["labels"]["replaced"], "yes");
    }
}

#[test]
fn the_status_of_an_old_violating_pod_can_be_written() {
    let old = Old::new();
    for pod in old.both() {
        let status = format!("{}/status", path(pod));
        let stored = admin().patch(Patch::Merge, &status, &json!({"status": {"reason": "E2e"}})).quietly();
        assert_eq!(stored["status"]["reason"], "E2e");
    }
}

#[test]
fn an_old_violating_pod_can_be_deleted_and_loses_its_finalizer() {
    let old = Old::new();
    for pod in old.both() {
        admin().delete(&path(pod)).quietly();
        assert!(admin().read(pod).stored()["metadata"]["deletionTimestamp"].is_string());
        admin().patch(Patch::Merge, &path(pod), &json!({"metadata": {"finalizers": null}})).quietly();
        assert!(admin().read(pod).is_missing());
    }
}

#[test]
fn old_violating_pods_can_be_deleted_all_at_once() {
    let old = Old::new();
    for pod in old.both() {
        let finalizers = json!({"metadata": {"finalizers": null, "labels": {"gone": "soon"}}});
        admin().patch(Patch::Merge, &path(pod), &finalizers).quietly();
    }
    admin().delete(&pods_with_label(&old.web, "gone=soon")).quietly();
    assert!(old.both().iter().all(|pod| admin().read(pod).is_missing()));
    let deletions = old.fence.count("admission_requests_total", &[("webhook", "validate"), ("operation", "DELETE")]);
    // Some API servers ask twice.
    assert!(deletions >= 2, "the webhook was asked about each: {deletions}");
}

#[test]
fn no_form_of_patch_adds_a_passing_toleration_to_a_pod_outside() {
    let old = Old::new();
    let ordinary = admin().create(&Pod::named("ordinary").in_namespace(&old.web)).quietly();
    for pod in [&ordinary, &old.asking] {
        for form in Patch::ALL {
            for added in [exact_toleration(), json!({"operator": "Exists"})] {
                let reply = admin().patch(form, &path(pod), &adding(form, pod, &added));
                assert_eq!(reply.refusal(), outside(tolerations(pod), &old.web), "{form:?}");
            }
        }
        let mut replacement = admin().read(pod).stored();
        replacement["spec"]["tolerations"].as_array_mut().unwrap().push(exact_toleration());
        assert_eq!(admin().replace(&replacement).refusal(), outside(tolerations(pod), &old.web));
        assert_eq!(admin().read(pod).stored()["spec"], pod["spec"]);
    }
}

#[test]
fn every_form_of_patch_adds_a_toleration_that_does_not_pass() {
    let old = Old::new();
    for form in Patch::ALL {
        for pod in old.both() {
            let pod = admin().read(pod).stored();
            let key = format!("spot-{form:?}").to_lowercase();
            let patch = adding(form, &pod, &json!({"key": key, "operator": "Exists"}));
            let stored = admin().patch(form, &path(&pod), &patch).quietly();
            assert_eq!(tolerations(&stored), tolerations(&pod) + 1, "{form:?}");
        }
    }
}

#[test]
fn a_pod_that_server_side_apply_creates_is_completed_or_refused() {
    let fence = Fence::enforcing();
    let (ml, web) = (fence.namespace("ml"), fence.namespace("web"));
    // As text: API servers up to 1.20 cannot apply a quantity that is a number.
    let gpu = Pod::named("gpu").requesting("nvidia.com/gpu", "1");
    let object = gpu.in_namespace(&ml);
    let unfenced = admin().create(&gpu.in_namespace(&fence.unfenced_namespace())).stored();
    let stored = admin().patch(Patch::Apply, &path(&object), &object).quietly();
    assert_eq!(stored["spec"], completed(&unfenced["spec"]));
    // Once more, as `kubectl apply` does: what was injected stays and belongs to nobody's manifest.
    let again = admin().patch(Patch::Apply, &path(&object), &object).quietly();
    assert_eq!(again["spec"], stored["spec"]);
    let object = Pod::named("refused").tolerating(&exact_toleration()).in_namespace(&web);
    assert_eq!(admin().patch(Patch::Apply, &path(&object), &object).refusal(), outside(0, &web));
    assert!(admin().read(&object).is_missing());
}

#[test]
fn a_completed_pod_can_be_changed_without_a_word() {
    let fence = Fence::enforcing();
    let pod = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&fence.namespace("ml"))).quietly();
    for form in Patch::ALL {
        let pod = admin().read(&pod).stored();
        let key = format!("spot-{form:?}").to_lowercase();
        let patch = adding(form, &pod, &json!({"key": key, "operator": "Exists"}));
        let stored = admin().patch(form, &path(&pod), &patch).quietly();
        assert_eq!(exact_tolerations(&stored), 1, "{form:?}");
    }
    admin().delete(&path(&pod)).quietly();
}
