//! The exact words of every rule, as they reach a person: in the refusal's `status.message`, in the
//! warnings, and in the API server's audit log.

use gpufence::policy::{Facts, Kind, NoFacts};
use gpufence::review::{self, Webhook};
use serde_json::{Value, json};

use crate::support::{gpu_pod, pod, policy};

/// The longest warning that the API server is sure to show whole.
const LIMIT: usize = 256;

/// An enforcing contract with ordinary names.
const CONTRACT: &str = "
mode: enforce
pools:
- name: nvidia
  resources: [nvidia.com/gpu, nvidia.com/gpu.shared, 'nvidia.com/mig-*']
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {workload.example.com/accelerator: nvidia}
  namespaces: {names: [ml-team, 'research-*']}
  models: {annotation: gpu.example.com/model, nodeLabel: gpu.example.com/model, values: [a100, h100, l40s]}
- name: amd
  resources: [amd.com/gpu]
  taints: [{key: amd.com/gpu, effect: NoSchedule}, {key: amd.com/gpu, effect: NoExecute}]
  nodeSelector: {workload.example.com/accelerator: amd}
  namespaces: {names: [ml-team]}
";

const CONTACT: &str = "contact: '#gpu-platform'\n";

/// The `response` to the creation of an object.
fn respond(yaml: &str, namespace: &str, kind: Kind, object: &Value) -> Value {
    respond_with(yaml, &NoFacts, namespace, kind, object)
}

fn respond_with(yaml: &str, facts: &dyn Facts, namespace: &str, kind: Kind, object: &Value) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": kind.group(), "version": "v1", "kind": kind.name()},
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": "someone"},
            "object": object,
        },
    });
    let body = review.to_string();
    let answer = review::answer(&policy(yaml), facts, Webhook::Validate, body.as_bytes());
    assert_eq!(answer.status, 200);
    serde_json::from_slice::<Value>(&answer.body).unwrap()["response"].take()
}

/// The one message of a refusal or, in its absence, the one warning.
fn message(response: &Value) -> String {
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    match (response["status"]["message"].as_str(), &*warnings) {
        (Some(message), []) => message.to_owned(),
        (None, [Value::String(warning)]) => warning.clone(),
        _ => panic!("not one message: {response}"),
    }
}

/// A pod with what the mutation gives.
fn complete_gpu_pod(spec: &Value) -> Value {
    let mut pod = gpu_pod(spec);
    if pod["spec"]["tolerations"].is_null() {
        pod["spec"]["tolerations"] = json!([]);
    }
    let exact = json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"});
    pod["spec"]["tolerations"].as_array_mut().unwrap().push(exact);
    for label in ["workload.example.com/accelerator"] {
        if pod["spec"]["nodeSelector"][label].is_null() {
            pod["spec"]["nodeSelector"][label] = json!("nvidia");
        }
    }
    pod
}

fn tolerating(tolerations: &Value) -> Value {
    pod(&json!({}), &json!({ "tolerations": tolerations }))
}

/// The workload with the pod as its template.
fn workload(kind: Kind, pod: &Value) -> Value {
    let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    let mut workload = match kind {
        Kind::CronJob => json!({"spec": {"jobTemplate": {"spec": {"template": template}}}}),
        _ => json!({"spec": {"template": template}}),
    };
    workload["metadata"] = json!({"name": "w"});
    workload
}

fn exists() -> Value {
    json!([{"operator": "Exists"}])
}

/// One case for each form that a rule's message has, each in a namespace where it is the only one.
fn every_form() -> Vec<(&'static str, Value, &'static str)> {
    let model = |value: &str| {
        let mut pod = complete_gpu_pod(&json!({}));
        pod["metadata"]["annotations"] = json!({"gpu.example.com/model": value});
        pod
    };
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "workload.example.com/accelerator", "operator": "NotIn", "values": ["nvidia"]}]},
    ]}}});
    let other = json!({"key": "other", "value": "x"});
    let wide = |key: &str| json!([{"key": key, "operator": "Exists"}]);
    let exact = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
    vec![
        (
            "web",
            tolerating(&json!([other, exact])),
            "toleration-outside-allowlist: spec.tolerations[1] passes the taint dedicated=gpu:NoSchedule of pool nvidia, closed to namespace web (allowed: ml-team, research-*). Remove it or use an allowed namespace{contact}.",
        ),
        (
            "web",
            tolerating(&wide("amd.com/gpu")),
            "toleration-outside-allowlist: spec.tolerations[0] passes the taint amd.com/gpu:NoSchedule of pool amd, closed to namespace web (allowed: ml-team). Remove it or use an allowed namespace{contact}.",
        ),
        (
            "web",
            gpu_pod(&json!({})),
            "gpu-request-outside-allowlist: spec.containers[0].resources.limits[\"nvidia.com/gpu\"] asks for pool nvidia, closed to namespace web (allowed: ml-team, research-*). Remove it or use an allowed namespace{contact}.",
        ),
        (
            "ml-team",
            complete_gpu_pod(&json!({ "tolerations": exists() })),
            "broad-toleration: spec.tolerations[0] has no key, operator Exists and no effect, wider than pool nvidia needs. Write {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}, or leave it out: GPU pods get it.",
        ),
        (
            "ml-team",
            complete_gpu_pod(&json!({"tolerations": [{"key": "dedicated", "value": "gpu"}]})),
            "broad-toleration: spec.tolerations[0] has no effect, wider than pool nvidia needs. Write {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}, or leave it out: GPU pods get it.",
        ),
        (
            "ml-team",
            tolerating(&json!([exact])),
            "toleration-without-gpu-request: spec.tolerations[0] lets this pod onto the GPU nodes of pool nvidia, but it requests none of nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-*. Remove the toleration or request a GPU.",
        ),
        (
            "ml-team",
            complete_gpu_pod(&json!({"nodeSelector": {"workload.example.com/accelerator": "amd"}})),
            "placement-conflict: spec.nodeSelector[\"workload.example.com/accelerator\"] is amd, and the nodes of pool nvidia that this pod asks for have nvidia: it could never run. Remove the label or set it to nvidia.",
        ),
        (
            "ml-team",
            complete_gpu_pod(&json!({ "affinity": affinity })),
            "placement-conflict: spec.affinity.nodeAffinity wants workload.example.com/accelerator NotIn [nvidia], and the nodes of pool nvidia have nvidia: this pod could never run. Change the expression.",
        ),
        (
            "ml-team",
            pod(&json!({"nvidia.com/gpu": 1, "amd.com/gpu": 1}), &json!({})),
            "placement-conflict: spec.containers[0].resources.limits[\"nvidia.com/gpu\"]: this pod asks for nvidia.com/gpu (pool nvidia) and amd.com/gpu (pool amd), and no pool offers all of it. Request the resources of one pool.",
        ),
        (
            "ml-team",
            model("b200"),
            "placement-conflict: metadata.annotations[\"gpu.example.com/model\"] is \"b200\", a model that pool nvidia does not have. Use one of a100, h100, l40s, or leave it out.",
        ),
        (
            "ml-team",
            gpu_pod(&json!({})),
            "placement-missing: this GPU pod lacks the toleration of dedicated=gpu:NoSchedule and the nodeSelector workload.example.com/accelerator=nvidia of pool nvidia: mutation did not run or was undone. Recreate the pod; check the mutating webhook.",
        ),
    ]
}

#[test]
fn each_rules_message_for_a_pod() {
    for (namespace, pod, expected) in every_form() {
        for (yaml, contact) in [(CONTRACT.to_owned(), ""), (format!("{CONTACT}{CONTRACT}"), "; ask #gpu-platform")] {
            let message = message(&respond(&yaml, namespace, Kind::Pod, &pod));
            assert_eq!(message, as_shown(&message, &expected.replace("{contact}", contact)));
        }
    }
}

/// The text itself, or what a warning shows of one that is too long.
fn as_shown(shown: &str, text: &str) -> String {
    if shown.ends_with('…') { text.chars().take(LIMIT - 1).chain(['…']).collect() } else { text.to_owned() }
}

#[test]
fn no_message_with_ordinary_names_is_cut() {
    let mut long = Vec::new();
    for (namespace, pod, _) in every_form() {
        for kind in [Kind::Pod, Kind::Deployment, Kind::CronJob] {
            let object = if kind == Kind::Pod { pod.clone() } else { workload(kind, &pod) };
            let response = respond(&format!("{CONTACT}{CONTRACT}"), namespace, kind, &object);
            if response == json!({"uid": "u", "allowed": true}) {
                continue;
            }
            // The audit log has all of it, behind what was done.
            let annotations = response["auditAnnotations"].as_object().unwrap();
            let (rule, text) =
                annotations.iter().find(|(key, _)| !["mode", "decision"].contains(&key.as_str())).unwrap();
            let (_, words) = text.as_str().unwrap().split_once(": ").unwrap();
            let length = format!("{rule}: {words}").chars().count();
            if length > LIMIT {
                long.push(format!("{} has {length} characters: {rule}: {words}", kind.name()));
            }
        }
    }
    assert!(long.is_empty(), "longer than {LIMIT}:\n{}", long.join("\n"));
}

#[test]
fn each_rules_message_for_a_template_names_the_field_in_the_workload() {
    for (kind, prefix) in [(Kind::Deployment, "spec.template."), (Kind::CronJob, "spec.jobTemplate.spec.template.")] {
        for templates in ["warn", "deny"] {
            for (namespace, pod, expected) in every_form() {
                let yaml = format!("templates: {templates}\n{CONTACT}{CONTRACT}");
                let response = respond(&yaml, namespace, kind, &workload(kind, &pod));
                if expected.starts_with("placement-missing") {
                    assert_eq!(response, json!({"uid": "u", "allowed": true}), "templates are never injected");
                    continue;
                }
                let message = message(&response);
                let (rule, rest) = expected.split_once(": ").unwrap();
                let expected = format!("{rule}: {prefix}{}", rest.replace("{contact}", "; ask #gpu-platform"));
                assert_eq!(message, as_shown(&message, &expected));
                let denied = templates == "deny" && !rule.starts_with("broad") && !rule.ends_with("gpu-request");
                assert_eq!(response["allowed"], !denied, "{rule}");
            }
        }
    }
}

#[test]
fn a_message_says_that_the_labels_are_not_known() {
    let labels = "names: [ml-team], selector: {matchLabels: {gpu.example.com/allowed: 'true'}}";
    let yaml = format!("{CONTACT}{CONTRACT}").replace("names: [ml-team, 'research-*']", labels);
    let exact = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    for (pod, expected) in [
        (
            gpu_pod(&json!({})),
            "gpu-request-outside-allowlist: spec.containers[0].resources.limits[\"nvidia.com/gpu\"] asks for pool nvidia, closed to namespace web (allowed: ml-team, or labels gpu.example.com/allowed=true; the labels of web are not known). Remove it or use an allowed namespace; ask #gpu-platform.",
        ),
        (
            tolerating(&exact),
            "toleration-outside-allowlist: spec.tolerations[0] passes the taint dedicated=gpu:NoSchedule of pool nvidia, closed to namespace web (allowed: ml-team, or labels gpu.example.com/allowed=true; the labels of web are not known). Remove it or use an allowed namespace; ask #gpu-platform.",
        ),
    ] {
        assert_eq!(message(&respond(&yaml, "web", Kind::Pod, &pod)), expected);
        // Where they are known, there is nothing to add.
        let known = gpufence::policy::NamespaceLabels([("web".to_owned(), [].into())].into());
        let expected = expected.replace("; the labels of web are not known", "");
        assert_eq!(message(&respond_with(&yaml, &known, "web", Kind::Pod, &pod)), expected);
    }
    for (selector, shown) in [
        ("{matchExpressions: [{key: tier, operator: In, values: [a, b]}]}", "labels tier in (a, b)"),
        ("{matchExpressions: [{key: tier, operator: NotIn, values: [a]}]}", "labels tier notin (a)"),
        ("{matchExpressions: [{key: a, operator: Exists}, {key: b, operator: DoesNotExist}]}", "labels a,!b"),
    ] {
        let yaml = CONTRACT.replace("names: [ml-team, 'research-*']", &format!("selector: {selector}"));
        let message = message(&respond(&yaml, "web", Kind::Pod, &gpu_pod(&json!({}))));
        assert!(message.contains(&format!("(allowed: {shown}; the labels of web are not known)")), "{message}");
    }
}

#[test]
fn a_long_allowlist_is_cut_short() {
    for (names, shown) in [
        ("[a, b, c]", "(allowed: a, b, c)"),
        ("[a, b, c, d]", "(allowed: a, b, c and 1 more)"),
        ("[z-team, 'a-*', m, d, e, f, g]", "(allowed: z-team, a-*, m and 4 more)"),
        ("[]", "(allowed: none)"),
    ] {
        let yaml = CONTRACT.replace("[ml-team, 'research-*']", names);
        let message = message(&respond(&yaml, "web", Kind::Pod, &gpu_pod(&json!({}))));
        assert!(message.contains(shown), "{message}");
        assert!(message.chars().count() <= LIMIT, "{message}");
    }
}

#[test]
fn several_denials_are_joined_and_each_has_its_cause() {
    let pod = pod(
        &json!({"nvidia.com/gpu": 1, "amd.com/gpu": 1}),
        &json!({"tolerations": [{"key": "a"}, {"operator": "Exists"}]}),
    );
    let response = respond(CONTRACT, "web", Kind::Pod, &pod);
    let status = &response["status"];
    assert_eq!(status["message"], {
        "toleration-outside-allowlist: spec.tolerations[1] passes the taint dedicated=gpu:NoSchedule of pool nvidia, closed to namespace web (allowed: ml-team, research-*). Remove it or use an allowed namespace. Also: toleration-outside-allowlist: spec.tolerations[1] passes the taint amd.com/gpu:NoSchedule of pool amd, closed to namespace web (allowed: ml-team). Remove it or use an allowed namespace. Also: gpu-request-outside-allowlist: spec.containers[0].resources.limits[\"nvidia.com/gpu\"] asks for pool nvidia, closed to namespace web (allowed: ml-team, research-*). Remove it or use an allowed namespace. Also: 2 more"
    });
    assert_eq!(
        (&status["code"], &status["reason"], &status["status"]),
        (&json!(403), &json!("Forbidden"), &json!("Failure"))
    );
    let causes = status["details"]["causes"].as_array().unwrap();
    let told: Vec<_> =
        causes.iter().map(|cause| (cause["reason"].as_str().unwrap(), cause["field"].as_str().unwrap())).collect();
    let (nvidia, amd) = (
        "spec.containers[0].resources.limits[\"nvidia.com/gpu\"]",
        "spec.containers[0].resources.limits[\"amd.com/gpu\"]",
    );
    let expected = [
        ("toleration-outside-allowlist", "spec.tolerations[1]"),
        ("toleration-outside-allowlist", "spec.tolerations[1]"),
        ("gpu-request-outside-allowlist", nvidia),
        ("gpu-request-outside-allowlist", amd),
        ("placement-conflict", nvidia),
    ];
    assert_eq!(told, expected);
    // A cause has the words without the rule's id, which is its reason.
    for cause in causes {
        let message = cause["message"].as_str().unwrap();
        assert!(message.starts_with(cause["field"].as_str().unwrap()), "{message}");
        assert_eq!(cause.as_object().unwrap().len(), 3);
    }
}

#[test]
fn the_audit_log_has_the_same_words_and_what_was_done() {
    for (namespace, pod, expected) in every_form() {
        let expected = expected.replace("{contact}", "");
        let (rule, words) = expected.split_once(": ").unwrap();
        let denies = !matches!(rule, "broad-toleration" | "toleration-without-gpu-request" | "placement-missing");
        for (mode, done) in [
            ("enforce", if denies { "deny" } else { "warn" }),
            ("warn", if denies { "would-deny" } else { "warn" }),
            ("audit", if denies { "would-deny" } else { "would-warn" }),
        ] {
            let yaml = CONTRACT.replace("mode: enforce", &format!("mode: {mode}"));
            let response = respond(&yaml, namespace, Kind::Pod, &pod);
            if mode == "audit" && rule == "placement-missing" {
                assert_eq!(response, json!({"uid": "u", "allowed": true}), "nothing is injected on purpose");
                continue;
            }
            let annotations = json!({"mode": mode, "decision": done, rule: format!("{done}: {words}")});
            assert_eq!(response["auditAnnotations"], annotations);
        }
    }
}

#[test]
fn several_findings_of_one_rule_share_an_annotation() {
    let response = respond(CONTRACT, "web", Kind::Pod, &tolerating(&exists()));
    assert_eq!(
        response["auditAnnotations"],
        json!({
            "mode": "enforce",
            "decision": "deny",
            "toleration-outside-allowlist":
                "deny: spec.tolerations[0] passes the taint dedicated=gpu:NoSchedule of pool nvidia, closed to namespace web (allowed: ml-team, research-*). Remove it or use an allowed namespace. deny: spec.tolerations[0] passes the taint amd.com/gpu:NoSchedule of pool amd, closed to namespace web (allowed: ml-team). Remove it or use an allowed namespace.",
        })
    );
}

#[test]
fn an_uneventful_answer_says_nothing_at_all() {
    for (namespace, pod) in [
        ("web", tolerating(&json!([{"key": "other", "operator": "Exists"}]))),
        ("ml-team", complete_gpu_pod(&json!({}))),
        ("ml-team", pod(&json!({"cpu": 1}), &json!({}))),
    ] {
        assert_eq!(respond(CONTRACT, namespace, Kind::Pod, &pod), json!({"uid": "u", "allowed": true}));
    }
}

#[test]
fn a_quantity_that_cannot_be_read_is_said_and_passed_over() {
    let pod = pod(&json!({"nvidia.com/gpu": "one"}), &json!({}));
    let words = "spec.containers[0].resources.limits[\"nvidia.com/gpu\"] is \"one\": not a quantity: expected a number with an optional suffix, such as 1, 500m or 2Gi";
    for mode in ["enforce", "warn", "audit"] {
        let response = respond(&CONTRACT.replace("enforce", mode), "web", Kind::Pod, &pod);
        assert_eq!(response["allowed"], true);
        let annotations = json!({"mode": mode, "decision": "report", "fault": format!("report: {words}")});
        assert_eq!(response["auditAnnotations"], annotations);
        let warnings = if mode == "audit" { Value::Null } else { json!([words]) };
        assert_eq!(response["warnings"], warnings);
    }
}

#[test]
fn an_expired_exemption_is_named_with_its_date_wherever_the_finding_is() {
    let expired = |mode: &str, name: &str, expires: &str| {
        let exemption = format!("exemptions: [{{name: {name}, reason: r, users: [someone], expires: '{expires}'}}]\n");
        CONTRACT.replace("mode: enforce", &format!("mode: {mode}")) + &exemption
    };
    let words = "spec.containers[0].resources.limits[\"nvidia.com/gpu\"] asks for pool nvidia, closed to namespace web (allowed: ml-team, research-*). Remove it or use an allowed namespace. Exemption migration expired on 2026-01-31.";
    let response = respond(&expired("enforce", "migration", "2026-01-31"), "web", Kind::Pod, &gpu_pod(&json!({})));
    assert_eq!(response["status"]["message"], format!("gpu-request-outside-allowlist: {words}"));
    assert_eq!(response["status"]["details"]["causes"][0]["message"], words);
    assert_eq!(
        response["auditAnnotations"],
        json!({"mode": "enforce", "decision": "deny", "gpu-request-outside-allowlist": format!("deny: {words}")})
    );
    // A warning is cut in its middle, and its end stays.
    let name = "m".repeat(63);
    for (expires, given) in
        [("2026-01-31", "2026-01-31"), ("2026-01-31T10:00:00.123456+01:00", "2026-01-31T10:00:00.123456+01:00")]
    {
        let pod = tolerating(&exists());
        let response = respond(&expired("warn", &name, expires), "ml-team", Kind::Pod, &pod);
        let warnings = response["warnings"].as_array().unwrap();
        assert!(!warnings.is_empty());
        for warning in warnings.iter().map(|warning| warning.as_str().unwrap()) {
            assert!(warning.ends_with(&format!(" Exemption {name} expired on {given}.")), "{warning}");
            assert!(warning.chars().count() <= LIMIT, "{warning}");
        }
    }
}

#[test]
fn an_exemption_says_what_it_spared_and_the_rest_is_told() {
    let yaml = CONTRACT.to_owned() + "exemptions: [{name: migration, reason: r, users: [someone], pools: [nvidia]}]\n";
    let response = respond(&yaml, "web", Kind::Pod, &tolerating(&exists()));
    let words = "spec.tolerations[0] passes the taint amd.com/gpu:NoSchedule of pool amd, closed to namespace web (allowed: ml-team). Remove it or use an allowed namespace.";
    assert_eq!(message(&response), format!("toleration-outside-allowlist: {words}"));
    assert_eq!(
        response["auditAnnotations"],
        json!({
            "mode": "enforce",
            "decision": "deny",
            "toleration-outside-allowlist": format!("deny: {words}"),
            "exemption": "exempt: migration exempts from toleration-outside-allowlist",
        })
    );
}
