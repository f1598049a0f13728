//! The templates of pods in custom resources: those of `deploy/custom-resources.yaml`, kind by kind, and what holds
//! for all of them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use gpufence::policy::{Action, NoFacts, Policy, Rule};
use gpufence::review::{self, Reviewed, Webhook};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::properties::holds;
use crate::support::{cases_path, policy};

const READY_MADE: &str = include_str!("../../deploy/custom-resources.yaml");

/// Enforces, templates as well, with the built-in pool.
static POLICY: LazyLock<Policy> = LazyLock::new(|| with("templates: deny"));

fn with(more: &str) -> Policy {
    policy(&format!("mode: enforce\n{more}\n{READY_MADE}"))
}

/// A contract with one kind of one template and one spec like a pod's.
fn of_widgets(more: &str) -> Policy {
    of_widgets_in("enforce", more)
}

pub fn of_widgets_in(mode: &str, keys: &str) -> Policy {
    policy(&format!(
        "mode: {mode}\ntemplates: deny\n{keys}\ncustomResources:\n- group: example.com\n  kind: Widget\n  resource: \
         widgets\n  templates: ['spec.templates[*]']\n  podSpecs: [{{path: '.spec.specs[*]', containers: [main], \
         amounts: ['{{.gpu}}']}}]\n"
    ))
}

pub fn request(object: &Value, old: Option<&Value>) -> Value {
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": group, "version": version, "kind": object["kind"]},
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "namespace": object["metadata"]["namespace"],
            "userInfo": {"username": "jane"},
            "object": object,
            "oldObject": old,
        },
    })
}

/// `rule field` of each finding.
fn found(policy: &Policy, object: &Value, old: Option<&Value>) -> Vec<String> {
    let body = request(object, old).to_string();
    let Reviewed { decision, account } =
        review::examine(policy, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(account.resource, "custom");
    assert_eq!(decision.faults, []);
    decision.findings.iter().map(|finding| format!("{} {}", finding.rule, finding.field)).collect()
}

fn answer(policy: &Policy, request: &Value) -> Value {
    let body = request.to_string();
    let answer = review::answer(policy, &NoFacts, Webhook::Validate, body.as_bytes());
    assert_eq!(answer.status, 200);
    let review: Value = serde_json::from_slice(&answer.body).unwrap();
    review["response"].clone()
}

fn message(policy: &Policy, object: &Value) -> String {
    answer(policy, &request(object, None))["status"]["message"].as_str().unwrap_or_default().to_owned()
}

struct Case {
    object: Value,
    field: String,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let text = std::fs::read_to_string(cases_path("custom-resources.yaml")).unwrap();
    let cases: Vec<Value> = serde_saphyr::from_str(&text).unwrap();
    let case = |case: Value| Case { field: case["field"].as_str().unwrap().to_owned(), object: case["object"].clone() };
    cases.into_iter().map(case).collect()
});

impl Case {
    /// The same without what breaks the contract: proof that the finding names it.
    fn mended(&self) -> Value {
        let mut object = self.object.clone();
        let (path, last) = match self.field.strip_suffix("[\"nvidia.com/gpu\"]") {
            Some(path) => (path, "nvidia.com/gpu"),
            None => (self.field.strip_suffix("[0]").or(self.field.strip_suffix("[1]")).unwrap_or(&self.field), "list"),
        };
        let mut value = &mut object;
        for step in path.replace('[', ".").replace(']', "").split('.') {
            value = match step.parse::<usize>() {
                Ok(index) => &mut value[index],
                Err(_) => &mut value[step],
            };
        }
        match value {
            Value::Array(tolerations) => assert!(tolerations.pop().is_some()),
            Value::Object(amounts) => assert!(amounts.remove(last).is_some(), "{}", self.field),
            quantity => {
                assert!(quantity.is_number(), "{}: {quantity}", self.field);
                *quantity = json!(0);
            }
        }
        object
    }
}

#[test]
fn a_violation_in_each_ready_made_kind_is_found_by_its_field() {
    for case @ Case { object, field } in &*CASES {
        let rule = if field.ends_with("[0]") || field.ends_with("[1]") {
            Rule::TolerationOutsideAllowlist
        } else {
            Rule::GpuRequestOutsideAllowlist
        };
        assert_eq!(found(&POLICY, object, None), [format!("{rule} {field}")], "{object}");
        assert_eq!(found(&POLICY, &case.mended(), None), [""; 0], "{object}");
        // It comes in by an update as well.
        assert_eq!(found(&POLICY, object, Some(&case.mended())), [format!("{rule} {field}")]);
    }
}

#[test]
fn every_ready_made_kind_has_a_case() {
    let kinds: BTreeSet<_> = CASES
        .iter()
        .map(|case| {
            let (group, _) = case.object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
            (group.to_owned(), case.object["kind"].as_str().unwrap().to_owned())
        })
        .collect();
    let known: BTreeSet<_> =
        POLICY.custom_resources().iter().map(|custom| (custom.group.clone(), custom.kind.clone())).collect();
    assert_eq!(kinds, known);
}

#[test]
fn what_an_object_had_already_is_not_held_against_an_update() {
    for Case { object, .. } in &*CASES {
        for (parent, key, value) in [("metadata", "labels", json!({"a": "b"})), ("spec", "replicas", json!(7))] {
            let mut edited = object.clone();
            edited[parent][key] = value;
            assert_eq!(found(&POLICY, &edited, Some(object)), [""; 0], "{object}");
        }
    }
}

#[test]
fn templates_decides_what_is_done() {
    let object = &CASES[0].object;
    for (action, allowed, warnings) in [("deny", false, 0), ("warn", true, 1), ("audit", true, 0), ("off", true, 0)] {
        let policy = with(&format!("templates: '{action}'"));
        let response = answer(&policy, &request(object, None));
        assert_eq!(response["allowed"], allowed, "{action}");
        assert_eq!(response["warnings"].as_array().map_or(0, Vec::len), warnings, "{action}");
        assert_eq!(response["auditAnnotations"].is_object(), action != "off", "{action}");
    }
    assert_eq!(
        message(&POLICY, object),
        "toleration-outside-allowlist: spec.template.spec.tolerations[1] passes the taint dedicated=gpu:NoSchedule of \
         pool nvidia, closed to namespace web (allowed: ml-team, research-*). Remove it or use an allowed namespace."
    );
}

#[test]
fn nothing_is_injected_into_a_custom_resource() {
    let mut object = CASES[0].object.clone();
    object["metadata"]["namespace"] = "ml-team".into();
    object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": 1});
    let body = request(&object, None).to_string();
    let Reviewed { decision, .. } = review::examine(&POLICY, &NoFacts, Webhook::Mutate, body.as_bytes()).unwrap();
    assert_eq!(decision.injection, None);
    assert_eq!(found(&POLICY, &object, None), [""; 0]);
}

#[test]
fn subresources_pass() {
    let mut request = request(&CASES[0].object, None);
    for subresource in ["status", "scale"] {
        request["request"]["subResource"] = subresource.into();
        assert_eq!(answer(&POLICY, &request), json!({"uid": "u", "allowed": true}));
    }
}

pub fn widget(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "web"},
        "spec": null,
    });
    object["spec"] = spec;
    object
}

fn exact() -> Value {
    json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
}

#[test]
fn what_many_templates_have_in_common_is_said_once() {
    let group = json!({"spec": {"tolerations": [exact()], "containers": [{"name": "c"}]}});
    let object = |groups: usize| widget(json!({"templates": vec![group.clone(); groups]}));
    let policy = of_widgets("");
    let rest = "passes the taint dedicated=gpu:NoSchedule of pool nvidia, closed to namespace web (allowed: ml-team, \
                research-*). Remove it or use an allowed namespace.";
    for (groups, more) in [(1, ""), (2, " (and in 1 more template)"), (50, " (and in 49 more templates)")] {
        assert_eq!(
            message(&policy, &object(groups)),
            format!("toleration-outside-allowlist: spec.templates[0].spec.tolerations[0]{more} {rest}")
        );
    }
}

#[test]
fn of_one_rule_no_more_findings_are_named_than_anybody_reads() {
    let broad = |index: usize| json!({"key": "dedicated", "operator": "Exists", "tolerationSeconds": index});
    let template = |index: usize| json!({"spec": {"tolerations": [broad(index)], "containers": [{}]}});
    let mut object = widget(json!({"templates": (0..100).map(template).collect::<Vec<_>>()}));
    object["metadata"]["namespace"] = "ml-team".into();
    // Each is another toleration, and in another place of its template.
    for index in 0..100 {
        let tolerations = object["spec"]["templates"][index]["spec"]["tolerations"].as_array_mut().unwrap();
        for _ in 0..index {
            tolerations.insert(0, json!({"key": "x", "operator": "Exists"}));
        }
    }
    let found = found(&of_widgets(""), &object, None);
    assert_eq!(found.iter().filter(|finding| finding.starts_with("broad-toleration ")).count(), 32);
    let body = request(&object, None).to_string();
    let reviewed = review::examine(&of_widgets(""), &NoFacts, Webhook::Validate, body.as_bytes()).unwrap();
    let last = reviewed.decision.findings.iter().rfind(|finding| finding.rule == Rule::BroadToleration).unwrap();
    assert!(last.message.ends_with(" 68 more findings of this rule are not named."), "{}", last.message);
}

#[test]
fn what_is_like_a_pods_spec_is_read_with_its_own_containers_amounts_and_annotations() {
    let policy = of_widgets("");
    let gpu = json!({"limits": {"nvidia.com/gpu": 1}});
    for (spec, field) in [
        (json!({"main": {"resources": gpu}}), "spec.specs[0].main.resources.limits[\"nvidia.com/gpu\"]"),
        (json!({"main": [{}, {"resources": gpu}]}), "spec.specs[0].main[1].resources.limits[\"nvidia.com/gpu\"]"),
        (
            json!({"containers": [{"resources": gpu}]}),
            "spec.specs[0].containers[0].resources.limits[\"nvidia.com/gpu\"]",
        ),
        (
            json!({"initContainers": [{"resources": gpu}]}),
            "spec.specs[0].initContainers[0].resources.limits[\"nvidia.com/gpu\"]",
        ),
        (json!({"gpu": {"name": "nvidia.com/gpu", "quantity": 2}}), "spec.specs[0].gpu.quantity"),
    ] {
        let expected = format!("gpu-request-outside-allowlist {field}");
        assert_eq!(found(&policy, &widget(json!({"specs": [spec]})), None), [expected]);
    }
    for spec in [
        json!({"gpu": {"name": "nvidia.com/gpu", "quantity": 0}}),
        json!({"gpu": {"name": "cpu", "quantity": 2}}),
        json!({"gpu": null, "main": null}),
        // Of forms that are not a pod's metadata.
        json!({"metadata": ["a"], "annotations": "b"}),
    ] {
        assert_eq!(found(&policy, &widget(json!({"specs": [spec, null]})), None), [""; 0]);
    }
    let unknown = json!({"gpu.example.com/model": "k80"});
    for (holder, field) in [
        (json!({"metadata": {"annotations": unknown}}), "metadata.annotations"),
        (json!({"annotations": unknown}), "annotations"),
    ] {
        let mut spec = holder;
        spec["main"] = json!({"resources": gpu});
        let mut object = widget(json!({"specs": [spec]}));
        object["metadata"]["namespace"] = "ml-team".into();
        let expected = format!("placement-conflict spec.specs[0].{field}[\"gpu.example.com/model\"]");
        assert_eq!(found(&policy, &object, None), [expected]);
    }
}

#[test]
fn a_part_of_a_spec_is_not_told_that_it_requests_no_gpu() {
    let policy = of_widgets("");
    let rule = "toleration-without-gpu-request";
    for (spec, expected) in [
        (
            json!({"specs": [{"tolerations": [exact()], "main": {}}]}),
            vec![format!("{rule} spec.specs[0].tolerations[0]")],
        ),
        (json!({"templates": [{"spec": {"tolerations": [exact()]}}]}), vec![]),
        (
            json!({"templates": [{"spec": {"tolerations": [exact()], "containers": [{}]}}]}),
            vec![format!("{rule} spec.templates[0].spec.tolerations[0]")],
        ),
    ] {
        let mut object = widget(spec);
        object["metadata"]["namespace"] = "ml-team".into();
        assert_eq!(found(&policy, &object, None), expected, "{object}");
    }
    // The spec of a workflow places pods whose containers stand in its templates.
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "ml-team"},
        "spec": {
            "tolerations": [exact()],
            "templates": [{"container": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}],
        },
    });
    assert_eq!(found(&POLICY, &workflow, None), [""; 0]);
}

#[test]
fn what_cannot_be_read_is_refused_where_it_is_enforced() {
    let toleration = json!([{"key": 5}]);
    for (spec, told) in [
        (
            json!({"templates": [{}, {"spec": {"tolerations": toleration}}]}),
            "request.object.spec.templates[1].spec.tolerations[0].key: invalid type: integer `5`, expected a string",
        ),
        (
            json!({"specs": [{"tolerations": toleration}]}),
            "request.object.spec.specs[0].tolerations[0].key: invalid type: integer `5`, expected a string",
        ),
        (
            json!({"specs": [{"main": "x"}]}),
            "request.object.spec.specs[0].main: invalid type: string \"x\", expected a container",
        ),
        (
            json!({"specs": [{"main": [{"resources": []}]}]}),
            "request.object.spec.specs[0].main[0].resources: invalid type: sequence, expected requests and limits",
        ),
        (
            json!({"specs": [{"gpu": 1}]}),
            "request.object.spec.specs[0].gpu: invalid type: integer `1`, expected a resource's name and quantity",
        ),
        (json!({"templates": ["x"]}), "request.object.spec.templates[0]: invalid type: string \"x\", expected a pod"),
        (
            json!({"templates": vec![json!({}); 251]}),
            "request.object: more than 250 pod templates, which cannot be judged",
        ),
    ] {
        let object = widget(spec);
        let response = answer(&of_widgets(""), &request(&object, None));
        let status = &response["status"];
        assert_eq!((&status["code"], &status["message"]), (&json!(400), &json!(format!("bad-request: {told}"))));
        let response = answer(&of_widgets_in("audit", ""), &request(&object, None));
        assert_eq!((&response["allowed"], &response["status"]), (&json!(true), &Value::Null));
        assert_eq!(response["auditAnnotations"]["bad-request"], format!("bad-request: {told}"));
        // Whoever does not touch it is not stopped by it, and what was unreadable excuses nothing.
        let mut labelled = object.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(answer(&of_widgets(""), &request(&labelled, Some(&object)))["allowed"], true);
        let violating = widget(json!({"templates": [{"spec": {"tolerations": [exact()]}}]}));
        assert_eq!(answer(&of_widgets(""), &request(&violating, Some(&object)))["allowed"], false);
    }
}

#[test]
fn an_object_in_which_no_path_finds_anything_is_admitted_silently() {
    for spec in [json!(null), json!({}), json!([]), json!("x"), json!({"templates": null}), json!({"templates": {}})] {
        let response = answer(&of_widgets(""), &request(&widget(spec), None));
        assert_eq!(response, json!({"uid": "u", "allowed": true}));
    }
}

#[test]
fn the_request_must_fit_the_object() {
    let told = |object: &Value, edit: &dyn Fn(&mut Value)| {
        let mut request = request(object, None);
        edit(&mut request["request"]);
        answer(&of_widgets(""), &request)["status"]["message"].clone()
    };
    let object = widget(json!({}));
    assert_eq!(
        told(&object, &|request| request["object"]["kind"] = "Gadget".into()),
        "bad-request: request.object is a Gadget, and request.kind says it is a Widget"
    );
    assert_eq!(
        told(&object, &|request| request["object"] = Value::Null),
        "bad-request: request.object is null; CREATE of a Widget carries one"
    );
    assert_eq!(
        told(&object, &|request| request["operation"] = "UPDATE".into()),
        "bad-request: request.oldObject is null; UPDATE of a Widget carries one"
    );
    assert_eq!(
        told(&object, &|request| request["object"] = json!([])),
        "bad-request: request.object: invalid type: sequence, expected a custom resource"
    );
}

/// Templates of all kinds of pods, ordinary, placed and asking.
pub fn templates() -> impl Strategy<Value = Vec<Value>> {
    let tolerations = vec![
        json!([]),
        json!([exact()]),
        json!([{"operator": "Exists"}]),
        json!([{"key": "dedicated", "operator": "Exists"}]),
        json!([{"key": "dedicated", "operator": "Near", "value": "gpu"}]),
    ];
    let limits = vec![json!({}), json!({"nvidia.com/gpu": 1}), json!({"nvidia.com/gpu": "x"})];
    let node = vec![json!(null), json!("somewhere")];
    let template = (select(tolerations), select(limits), select(node)).prop_map(|(tolerations, limits, node)| {
        json!({"spec": {
            "tolerations": tolerations,
            "nodeName": node,
            "containers": [{"resources": {"limits": limits}}],
        }})
    });
    vec(template, 0..5)
}

fn verdict(object: &Value, old: Option<&Value>) -> BTreeSet<(Rule, Action)> {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| of_widgets("nodes: {whenUnknown: deny}"));
    let body = request(object, old).to_string();
    let reviewed = review::examine(&POLICY, &NoFacts, Webhook::Validate, body.as_bytes()).unwrap();
    reviewed.decision.findings.iter().map(|finding| (finding.rule, finding.action)).collect()
}

#[test]
fn where_in_an_object_a_template_stands_changes_no_verdict() {
    holds(
        300,
        (templates(), templates(), 0..5_usize, select(vec!["web", "ml-team"])),
        |(new, old, turn, namespace)| {
            let object = |templates: &[Value]| {
                let mut object = widget(json!({ "templates": templates }));
                object["metadata"]["namespace"] = namespace.into();
                object
            };
            let mut turned = new.clone();
            turned.rotate_left(if new.is_empty() { 0 } else { turn % new.len() });
            let (new, old, turned) = (object(&new), object(&old), object(&turned));
            prop_assert_eq!(verdict(&new, None), verdict(&turned, None));
            prop_assert_eq!(verdict(&new, Some(&old)), verdict(&turned, Some(&old)));
            prop_assert_eq!(verdict(&old, Some(&new)), verdict(&old, Some(&turned)));
            prop_assert_eq!(verdict(&turned, Some(&new)), BTreeSet::new());
            Ok(())
        },
    );
}

#[test]
fn an_object_is_judged_as_its_templates_are() {
    holds(300, templates(), |templates| {
        let alone = templates.iter().flat_map(|template| {
            let pod = json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "w", "namespace": "web"},
                "spec": {"template": template},
            });
            verdict(&pod, None)
        });
        let alone: BTreeSet<_> = alone.collect();
        prop_assert_eq!(verdict(&widget(json!({ "templates": templates })), None), alone);
        Ok(())
    });
}

#[test]
fn a_large_object_is_judged_in_time() {
    // Thousands of tolerations, all different and all too broad, before and after.
    let template = |salt: usize| {
        let toleration = |index: usize| json!({"operator": "Exists", "value": format!("v{}", index + salt)});
        json!({"spec": {"tolerations": (0..100).map(toleration).collect::<Vec<_>>()}})
    };
    let object = |salt: usize| {
        let templates: Vec<_> = (0..250).map(|index| template(index * 100 + salt)).collect();
        let mut object = widget(json!({ "templates": templates }));
        object["metadata"]["namespace"] = "ml-team".into();
        object
    };
    let (new, old) = (object(0), object(1_000_000));
    let started = std::time::Instant::now();
    assert_eq!(found(&of_widgets(""), &new, Some(&old)).len(), 32);
    // A debug build on a busy machine; what grows with the square of the object takes minutes.
    let elapsed = started.elapsed();
    assert!(elapsed.as_secs() < 20, "{elapsed:?}");
}

/// A Rollout whose tolerations are these, and that has so many replicas.
fn rollout(tolerations: &Value, replicas: usize) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "metadata": {"name": "r", "namespace": "web"},
        "spec": {"replicas": replicas, "template": {"spec": {"tolerations": tolerations, "containers": [{}]}}},
    })
}

#[test]
fn of_what_cannot_be_read_no_more_is_made_than_of_a_violation() {
    const TOLD: &str = "bad-request: request.object.spec.template.spec.tolerations[0].key: invalid type: integer `5`, \
                        expected a string";
    let custom = rollout(&json!([{"key": 5}]), 1);
    let mut built_in = custom.clone();
    built_in["apiVersion"] = "apps/v1".into();
    built_in["kind"] = "Deployment".into();
    let (refused, warned) = (Some((400, TOLD)), Some(TOLD));
    for (mode, templates, status, warning, outcome) in [
        ("enforce", "deny", refused, None, "refuse"),
        ("enforce", "warn", None, warned, "would-refuse"),
        ("enforce", "audit", None, None, "would-refuse"),
        ("warn", "deny", None, warned, "would-refuse"),
        ("warn", "audit", None, None, "would-refuse"),
        ("audit", "deny", None, None, "would-refuse"),
    ] {
        let policy = policy(&format!("mode: {mode}\ntemplates: {templates}\n{READY_MADE}"));
        for object in [&custom, &built_in] {
            let response = answer(&policy, &request(object, None));
            let case = format!("{mode} {templates} {response}");
            assert_eq!(response["allowed"], status.is_none(), "{case}");
            let told = response["status"]["code"].as_u64().zip(response["status"]["message"].as_str());
            assert_eq!(told, status, "{case}");
            assert_eq!(response["warnings"][0].as_str(), warning, "{case}");
            assert_eq!(response["auditAnnotations"]["decision"], outcome, "{case}");
            assert_eq!(response["auditAnnotations"]["bad-request"], TOLD, "{case}");
        }
    }
    // Where templates are not judged nothing is said of them.
    assert_eq!(answer(&with("templates: 'off'"), &request(&custom, None)), json!({"uid": "u", "allowed": true}));
}

#[test]
fn what_could_not_be_read_before_is_not_held_against_an_update() {
    let silent = json!({"uid": "u", "allowed": true});
    let judged = |new: &Value, old: &Value| answer(&of_widgets(""), &request(new, Some(old)));
    for (list, unreadable) in [
        ("templates", json!({"spec": {"tolerations": [{"key": 5}]}})),
        ("templates", json!("x")),
        ("specs", json!({"tolerations": [{"key": 5}]})),
        ("specs", json!({"main": "x"})),
        ("specs", json!({"gpu": 1})),
    ] {
        let object = |items: Value| widget(json!({"replicas": items.as_array().unwrap().len(), list: items}));
        let old = object(json!([unreadable]));
        // It stays, it moves, it goes.
        for items in [json!([unreadable]), json!([{}, unreadable]), json!([{}])] {
            let mut new = object(items);
            new["spec"]["paused"] = true.into();
            assert_eq!(judged(&new, &old), silent, "{new}");
        }
        // What cannot be read either, and was not there, is refused.
        let other = object(json!([unreadable, ["y"]]));
        assert_eq!(judged(&other, &old)["status"]["code"], 400, "{other}");
        // What stands beside it is judged.
        let mut beside = object(json!([unreadable]));
        beside["spec"]["templates"] = json!([beside["spec"]["templates"][0], {"spec": {"tolerations": [exact()]}}]);
        let response = judged(&beside, &old);
        assert_eq!(response["status"]["code"], 403, "{response}");
        assert_eq!(response["status"]["details"]["causes"][0]["field"], "spec.templates[1].spec.tolerations[0]");
    }
    // A template is no spec.
    let (template, spec) = (json!({"templates": [{"tolerations": 5}]}), json!({"specs": [{"tolerations": 5}]}));
    assert_eq!(judged(&widget(spec), &widget(template))["status"]["code"], 400);
}

#[test]
fn more_templates_than_can_be_judged_are_only_recorded_where_there_were_too_many_before() {
    let object = |count: usize, replicas: usize| widget(json!({"templates": vec![json!({}); count], "a": replicas}));
    let judged = |new: usize, old: usize| answer(&of_widgets(""), &request(&object(new, 1), Some(&object(old, 2))));
    let told = "bad-request: request.object: more than 250 pod templates, which cannot be judged";
    assert_eq!(judged(251, 250)["status"]["message"], told);
    let response = judged(252, 251);
    assert_eq!(
        response,
        json!({
            "uid": "u",
            "allowed": true,
            "auditAnnotations": {"decision": "would-refuse", "bad-request": told},
        })
    );
    assert_eq!(judged(250, 251), json!({"uid": "u", "allowed": true}));
}

#[test]
fn an_object_that_could_not_be_read_as_a_whole_may_be_mended_and_kept() {
    let broken = |replicas: usize| {
        let mut object = widget(json!({ "replicas": replicas }));
        object["metadata"]["annotations"] = json!(["a"]);
        object
    };
    let judged = |new: &Value, old: &Value| answer(&of_widgets(""), &request(new, Some(old)));
    let response = judged(&broken(1), &broken(2));
    assert_eq!((&response["allowed"], &response["warnings"]), (&json!(true), &Value::Null));
    let told = "bad-request: request.object.metadata.annotations: invalid type: sequence, expected a map";
    assert_eq!(response["auditAnnotations"]["bad-request"], told);
    assert_eq!(judged(&widget(json!({})), &broken(2)), json!({"uid": "u", "allowed": true}));
    assert_eq!(judged(&broken(1), &widget(json!({})))["status"]["message"], told);
}

#[test]
fn templates_whose_places_are_written_alike_are_all_judged() {
    let clean = json!({"spec": {"containers": [{}]}});
    let violating = json!({"spec": {"tolerations": [exact()], "containers": [{}]}});
    for (first, second) in [("a".repeat(90) + "1", "a".repeat(90) + "2"), ("a\u{1}".to_owned(), "a\u{2}".to_owned())] {
        for (one, other) in [(&clean, &violating), (&violating, &clean)] {
            let object = json!({
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "p", "namespace": "web"},
                "spec": {"pytorchReplicaSpecs": {&first: {"template": one}, &second: {"template": other}}},
            });
            assert_eq!(answer(&POLICY, &request(&object, None))["status"]["code"], 403, "{object}");
        }
    }
}

#[test]
fn a_template_to_which_several_paths_lead_is_judged_once() {
    let policy = policy(
        "mode: enforce\ntemplates: deny\ncustomResources:\n- group: example.com\n  kind: Widget\n  resource: widgets\n  \
         templates: ['$.spec.*[0]', '$.spec.a[*]', \"$['spec']['a'][1]\"]\n",
    );
    let template = json!({"spec": {"tolerations": [exact()]}});
    let told = message(&policy, &widget(json!({"a": [template, template], "b": {"0": template}, "c": 1})));
    assert!(told.contains(" spec.a[0].spec.tolerations[0] (and in 1 more template) passes "), "{told}");
}

#[test]
fn more_that_asks_for_resources_than_can_be_judged_is_refused() {
    let object = widget(json!({"specs": [{"main": vec![json!({}); 10_001]}]}));
    assert_eq!(
        message(&of_widgets(""), &object),
        "bad-request: request.object.spec.specs[0]: more than 10000 items, which cannot be judged"
    );
}
