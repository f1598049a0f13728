use serde_json::{Value, json};

use crate::api::{User, admin};
use crate::contract::{Contract, LABEL};
use crate::fence::{Fence, Registration};
use crate::identities::daemon_pod;
use crate::objects::{Pod, workload};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn fencing() -> Contract {
    Contract::enforcing().with("injection", json!({"fenceOrdinary": [LABEL]}))
}

fn terms(pod: &Value) -> &Value {
    &pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
}

#[test]
fn ordinary_pods_are_kept_off_by_affinity_and_daemon_sets_are_not() {
    let fence = Fence::registered(&fencing());
    let web = fence.namespace("web");
    let absent = json!({"key": LABEL, "operator": "DoesNotExist"});
    let stored = admin().create(&Pod::named("ordinary").in_namespace(&web)).quietly();
    assert_eq!(*terms(&stored), json!([{"matchExpressions": [absent]}]));

    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let own = json!([{"matchExpressions": [zone]}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
    let affinity = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": own}}});
    let stored = admin().create(&Pod::named("own").with(&["spec", "affinity"], affinity).in_namespace(&web)).quietly();
    assert_eq!(terms(&stored)[0], json!({"matchExpressions": [zone, absent]}));
    assert_eq!(terms(&stored)[1]["matchExpressions"], json!([absent]));

    let (daemon_set, _) = workload("DaemonSet", "collector", &web, &Pod::named("collector"));
    let owner = admin().create(&daemon_set).stored();
    let pod = daemon_pod("collector-1", &owner).in_namespace(&web);
    let stored = User::named(gpufence::policy::DAEMON_SET_CONTROLLER).create(&pod).quietly();
    assert_eq!(*terms(&stored), pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]);

    let gpu = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&fence.namespace("ml"))).quietly();
    assert_eq!(gpu["spec"]["affinity"], Value::Null);
}

/// The API server's own Priority plugin runs before and after us, and has its own opinion of what the pod's priority is.
#[test]
fn a_gpu_pod_without_a_priority_class_gets_the_pools() {
    let class = |word: &str, value: i32, policy: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": word},
            "value": value,
            "preemptionPolicy": policy,
        })
    };
    let probe = Fence::enforcing();
    let (batch, own) = (probe.unique("gpu-batch"), probe.unique("own"));
    probe.make(&class(&batch, 1_000, "Never"));
    probe.make(&class(&own, 7, "PreemptLowerPriority"));
    let fence = Fence::serving(&Contract::enforcing().with_pool("priorityClassName", batch.as_str()));
    // The second round is what the plugin must agree with as well.
    fence.register(&Registration { reinvocation_policy: "IfNeeded", ..Registration::default() });
    let ml = fence.namespace("ml");
    let stored = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&ml)).quietly();
    let priority = |pod: &Value| {
        [&pod["spec"]["priorityClassName"], &pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]]
            .map(Value::clone)
    };
    assert_eq!(priority(&stored), [json!(batch), json!(1_000), json!("Never")]);
    let chosen = Pod::named("chosen").with_gpu().with(&["spec", "priorityClassName"], own.as_str()).in_namespace(&ml);
    assert_eq!(priority(&admin().create(&chosen).quietly()), [json!(own), json!(7), json!("PreemptLowerPriority")]);
    let ordinary = admin().create(&Pod::named("ordinary").in_namespace(&ml)).quietly();
    assert_eq!(priority(&ordinary)[1], json!(0));
}
