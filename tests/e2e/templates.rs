use serde_json::json;

use crate::api::{Patch, admin, path};
use crate::contract::{AGENT, Contract, exact_toleration};
use crate::fence::Fence;
use crate::findings::{refusal, toleration, toleration_outside};
use crate::objects::{Pod, TEMPLATES, workload};

fn violating() -> Pod {
    Pod::named("shop").tolerating(&exact_toleration())
}

fn finding(pod_path: &str, namespace: &str) -> String {
    toleration_outside(&format!("{pod_path}{}", toleration(0)), namespace)
}

#[test]
fn a_violating_template_of_every_kind_is_stored_with_a_warning() {
    let fence = Fence::enforcing();
    let web = fence.namespace("web");
    for kind in TEMPLATES {
        let (object, pod_path) = workload(kind, "shop", &web, &violating());
        let reply = admin().create(&object);
        assert_eq!(reply.our_warnings(), [finding(pod_path, &web)], "{kind}");
        reply.stored();
        admin().read(&object).stored();
        // What it had already is not warned of again.
        let label = json!({"metadata": {"labels": {"edited": "yes"}}});
        admin().patch(Patch::Merge, &path(&object), &label).quietly();
    }
}

#[test]
fn a_violating_template_of_every_kind_is_refused_where_templates_deny() {
    let fence = Fence::registered(&Contract::enforcing().with("templates", "deny"));
    let web = fence.namespace("web");
    for kind in TEMPLATES {
        let (object, pod_path) = workload(kind, "shop", &web, &violating());
        assert_eq!(admin().create(&object).refusal(), refusal(&finding(pod_path, &web)), "{kind}");
        assert!(admin().read(&object).is_missing(), "{kind}");
    }
}

#[test]
fn a_template_that_keeps_the_contract_is_stored_as_it_is() {
    let fence = Fence::registered(&Contract::enforcing().with("templates", "deny"));
    let (ml, web) = (fence.namespace("ml"), fence.namespace("web"));
    let unfenced = fence.unfenced_namespace();
    for kind in TEMPLATES {
        for (namespace, pod) in [(&ml, Pod::named("trainer").with_gpu()), (&web, Pod::named("shop"))] {
            let mut stored = admin().create(&workload(kind, "fine", namespace, &pod).0).quietly();
            let mut alike = admin().dry_run().create(&workload(kind, "fine", &unfenced, &pod).0).stored();
            for object in [&mut stored, &mut alike] {
                // The API server's own mark of the job that it is.
                for pointer in ["/spec/selector", "/spec/template/metadata"] {
                    if let (true, Some(field)) = (kind == "Job", object.pointer_mut(pointer)) {
                        field.take();
                    }
                }
            }
            for field in ["spec", "template"] {
                assert_eq!(stored[field], alike[field], "{kind}");
            }
        }
    }
}

#[test]
fn an_exempt_daemon_set_is_stored_without_a_warning_and_another_is_not() {
    let fence = Fence::enforcing();
    let agents = fence.namespace("agents");
    let create = |name| admin().create(&workload("DaemonSet", name, &agents, &violating()).0);
    create(AGENT).quietly();
    let other = create("other-agent");
    assert_eq!(other.our_warnings(), [finding("spec.template.", &agents)]);
    other.stored();
}

#[test]
fn a_template_that_comes_to_violate_is_told_of_as_a_new_one_is() {
    for templates in ["warn", "deny"] {
        let fence = Fence::registered(&Contract::enforcing().with("templates", templates));
        let web = fence.namespace("web");
        // The template of a Job cannot be changed.
        for kind in TEMPLATES.into_iter().filter(|kind| *kind != "Job") {
            admin().create(&workload(kind, "shop", &web, &Pod::named("shop")).0).quietly();
            let (changed, pod_path) = workload(kind, "shop", &web, &violating());
            let reply = admin().replace(&changed);
            if templates == "deny" {
                assert_eq!(reply.refusal(), refusal(&finding(pod_path, &web)), "{kind}");
            } else {
                assert_eq!(reply.our_warnings(), [finding(pod_path, &web)], "{kind}");
                reply.stored();
            }
        }
    }
}
