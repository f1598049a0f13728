use serde_json::Value;

use crate::api::admin;
use crate::contract::{Contract, LABEL, exact_toleration};
use crate::fence::Fence;
use crate::findings::{toleration, toleration_outside};
use crate::objects::{Pod, TEMPLATES, exact_tolerations, workload};

fn outcomes(fence: &Fence, namespace: &str) -> Vec<(Value, Value, Value)> {
    let decisions = fence.decisions_in(namespace);
    decisions.into_iter().map(|mut line| (line["name"].take(), line["rules"].take(), line["outcome"].take())).collect()
}

#[test]
fn in_audit_mode_nothing_is_refused_and_the_log_says_what_would_have_been() {
    let fence = Fence::registered(&Contract::of_mode("audit"));
    let web = fence.namespace("web");
    for pod in
        [Pod::named("toleration").tolerating(&exact_toleration()), Pod::named("gpu").with_gpu(), Pod::named("ordinary")]
    {
        let unfenced = admin().create(&pod.in_namespace(&fence.unfenced_namespace())).stored();
        let stored = admin().create(&pod.in_namespace(&web)).quietly();
        assert_eq!(stored["spec"], unfenced["spec"]);
    }
    let would_deny = |name: &str, rule: &str| (name.into(), rule.into(), "would-deny".into());
    assert_eq!(
        outcomes(&fence, &web),
        [would_deny("toleration", "toleration-outside-allowlist"), would_deny("gpu", "gpu-request-outside-allowlist"),]
    );
    let count = |action| fence.count("decisions_total", &[("action", action), ("dry_run", "false")]);
    assert_eq!((count("would-deny"), count("deny")), (2, 0));
    assert_eq!(fence.count("admission_requests_total", &[("outcome", "would-deny"), ("webhook", "validate")]), 2);
}

#[test]
fn in_audit_mode_nothing_is_injected_and_the_log_says_what_would_have_been() {
    let fence = Fence::registered(&Contract::of_mode("audit"));
    let ml = fence.namespace("ml");
    let pod = Pod::named("gpu").with_gpu();
    let unfenced = admin().create(&pod.in_namespace(&fence.unfenced_namespace())).stored();
    let stored = admin().create(&pod.in_namespace(&ml)).quietly();
    assert_eq!(stored["spec"], unfenced["spec"]);
    assert_eq!(outcomes(&fence, &ml), [("gpu".into(), "injection".into(), "would-inject".into())]);
    let count = |action| fence.count("decisions_total", &[("rule", "injection"), ("action", action)]);
    assert_eq!((count("would-inject"), count("inject")), (1, 0));
}

#[test]
fn in_audit_mode_templates_are_reported_and_nobody_is_warned() {
    let fence = Fence::registered(&Contract::of_mode("audit").with("templates", "deny"));
    let web = fence.namespace("web");
    for kind in TEMPLATES {
        let pod = Pod::named("shop").tolerating(&exact_toleration());
        admin().create(&workload(kind, "shop", &web, &pod).0).quietly();
    }
    let outcomes = outcomes(&fence, &web);
    assert_eq!(outcomes.len(), TEMPLATES.len());
    assert!(outcomes.iter().all(|(_, _, outcome)| outcome == "would-deny"), "{outcomes:?}");
}

#[test]
fn in_warn_mode_a_violating_pod_is_admitted_with_the_warning_and_a_gpu_pod_is_completed() {
    let fence = Fence::registered(&Contract::of_mode("warn"));
    let (ml, web) = (fence.namespace("ml"), fence.namespace("web"));
    let reply = admin().create(&Pod::named("toleration").tolerating(&exact_toleration()).in_namespace(&web));
    assert_eq!(reply.our_warnings(), [toleration_outside(&toleration(0), &web)]);
    reply.stored();
    let stored = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&ml)).quietly();
    assert_eq!((exact_tolerations(&stored), &stored["spec"]["nodeSelector"][LABEL]), (1, &"nvidia".into()));
}
