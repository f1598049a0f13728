use serde_json::{Value, json};

use crate::api::{Patch, User, admin, path};
use crate::contract::{Contract, exact_toleration};
use crate::features::needs_field;
use crate::fence::{Fence, MUTATE, Registration, VALIDATE};
use crate::findings::{refusal, toleration, toleration_outside};
use crate::objects::{Pod, api_server_object, exact_tolerations};

/// A fence that is registered and gone.
fn gone(failure_policy: &'static str) -> Fence {
    let mut fence = Fence::serving(&Contract::enforcing());
    fence.register(&Registration { failure_policy, ..Registration::default() });
    fence.stop();
    fence
}

#[test]
fn without_the_webhook_failure_policy_fail_refuses_every_pod() {
    let fence = gone("Fail");
    for (word, pod) in [("web", Pod::named("ordinary")), ("ml", Pod::named("gpu").with_gpu())] {
        let pod = pod.in_namespace(&fence.namespace(word));
        let reply = admin().create(&pod);
        assert_eq!(reply.code, 500, "{reply:#?}");
        let expected = format!("Internal error occurred: failed calling webhook \"{MUTATE}\"");
        assert!(reply.message().starts_with(&expected), "{reply:#?}");
        assert!(admin().read(&pod).is_missing());
    }
}

#[test]
fn without_the_webhook_failure_policy_ignore_admits_every_pod_as_it_is() {
    let fence = gone("Ignore");
    let web = fence.namespace("web");
    for pod in [Pod::named("ordinary"), Pod::named("violating").tolerating(&exact_toleration())] {
        admin().create(&pod.in_namespace(&web)).stored();
    }
    let gpu = admin().create(&Pod::named("gpu").with_gpu().in_namespace(&fence.namespace("ml"))).stored();
    assert_eq!(exact_tolerations(&gpu), 0);
    assert_eq!(gpu["spec"]["nodeSelector"], Value::Null);
}

#[test]
fn match_conditions_keep_requests_from_the_webhook() {
    let conditions = json!([{"name": "no-kubelets", "expression": "!('system:nodes' in request.userInfo.groups)"}]);
    let fence = Fence::serving(&Contract::enforcing());
    let mut webhook = fence.webhook(VALIDATE, 443, "/validate");
    webhook["matchConditions"] = conditions.clone();
    let fields = json!({"webhooks": [webhook]});
    let object = api_server_object("ValidatingWebhookConfiguration", &fence.unique("conditions"), &fields);
    if !needs_field(&object, "/webhooks/0/matchConditions", "registrations with matchConditions") {
        return;
    }
    fence.register(&Registration { match_conditions: conditions, ..Registration::default() });
    let web = fence.namespace("web");
    let pod = Pod::named("any").in_namespace(&web);
    admin().create(&pod).quietly();
    let before = fence.count("admission_requests_total", &[]);
    // An administrator's rights, a kubelet's group.
    let kubelet = User::named("somebody").in_group("system:nodes").in_group("system:masters");
    kubelet.patch(Patch::Merge, &path(&pod), &json!({"metadata": {"labels": {"a": "b"}}})).quietly();
    assert_eq!(fence.count("admission_requests_total", &[]), before);
    let refused = Pod::named("refused").tolerating(&exact_toleration()).in_namespace(&web);
    assert_eq!(admin().create(&refused).refusal(), refusal(&toleration_outside(&toleration(0), &web)));
}
