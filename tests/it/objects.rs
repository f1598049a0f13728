//! Objects from the wild, under both forms of the contract, in a namespace that is allowed, one that is
//! not, and with an exempt owner. Judged as the API server would: mutation, then validation.

use gpufence::policy::{DAEMON_SET_CONTROLLER, Kind, Phase, Policy};
use serde_json::{Value, json};

use crate::support::{Form, Request, cases, policy};

/// A pod of a case with the identity that asks for it.
struct Asked {
    pod: Value,
    old: Option<Value>,
    username: String,
    groups: Vec<String>,
    create: bool,
}

/// What became of a request.
#[derive(Debug, PartialEq)]
enum Outcome {
    Rejected(Vec<&'static str>),
    Admitted { pod: Value, patched: bool },
}

impl Asked {
    /// The request of a case: its own where it is one, else what would ask for its pod.
    fn of(case: &Value) -> Self {
        let object = &case["object"];
        let (pod, username, groups) = match case["kind"].as_str().unwrap() {
            "review" => {
                let request = &object["request"];
                let groups = request["userInfo"]["groups"].as_array().cloned().unwrap_or_default();
                let groups = groups.iter().map(|group| group.as_str().unwrap().to_owned()).collect();
                let username = request["userInfo"]["username"].as_str().unwrap().to_owned();
                (request["object"].clone(), username, groups)
            }
            "daemonset" => {
                let mut pod = object["spec"]["template"].clone();
                pod["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": object["metadata"]["name"], "controller": true,
                }]);
                (pod, DAEMON_SET_CONTROLLER.to_owned(), Vec::new())
            }
            "cronjob" if object["kind"] == "CronJob" => {
                (object["spec"]["jobTemplate"]["spec"]["template"].clone(), "controller".to_owned(), Vec::new())
            }
            "deployment" | "cronjob" => (object["spec"]["template"].clone(), "controller".to_owned(), Vec::new()),
            _ => (object.clone(), "someone".to_owned(), Vec::new()),
        };
        let old = case.get("old_object").or_else(|| object["request"].get("oldObject")).filter(|old| !old.is_null());
        Self { pod, old: old.cloned(), username, groups, create: case["operation"] == "CREATE" }
    }

    fn outcome(&self, policy: &Policy, namespace: &str) -> Outcome {
        let mut pod = self.pod.clone();
        let decision = self.decide(policy, Phase::Mutating, namespace, &pod);
        assert_eq!(decision.findings, [], "rules are silent while the pod may still be completed");
        let patched = decision.injection.is_some();
        if let Some(injection) = decision.injection {
            json_patch::patch(&mut pod, &injection.patch).unwrap();
        }
        let decision = self.decide(policy, Phase::Validating, namespace, &pod);
        if decision.denies() {
            return Outcome::Rejected(decision.denials().map(|finding| finding.rule.id()).collect());
        }
        Outcome::Admitted { pod, patched }
    }

    fn decide(&self, policy: &Policy, phase: Phase, namespace: &str, pod: &Value) -> gpufence::policy::Decision {
        let (object, old) = (pod.to_string(), self.old.as_ref().map(Value::to_string));
        let object = Kind::Pod.read(&object).unwrap();
        let old = old.as_ref().map(|old| Kind::Pod.read(old).unwrap());
        let groups: Vec<_> = self.groups.iter().map(String::as_str).collect();
        let request =
            Request { namespace, username: &self.username, groups: &groups, object: &object, old: old.as_ref() };
        assert_eq!(old.is_none(), self.create);
        request.decide(policy, phase)
    }
}

/// The pods of all cases that are created: each with its case's id, in its case's namespace.
pub fn pods() -> Vec<(String, Value)> {
    let created = cases("objects.jsonl").into_iter().filter(|case| case["operation"] == "CREATE");
    let pod = |case: Value| {
        let mut pod = Asked::of(&case).pod;
        (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
        pod["metadata"]["namespace"] = case["namespace"].clone();
        (case["id"].as_str().unwrap().to_owned(), pod)
    };
    created.map(pod).collect()
}

fn list(value: &Value) -> Value {
    if value.is_null() { json!([]) } else { value.clone() }
}

fn map(value: &Value) -> Value {
    if value.is_null() { json!({}) } else { value.clone() }
}

fn check(id: &str, asked: &Asked, policy: &Policy, namespace: &str, expected: &Value, from_daemon_set: bool) {
    let outcome = asked.outcome(policy, namespace);
    let Outcome::Admitted { pod, patched } = outcome else {
        assert_eq!(expected["action"], "reject", "{id}: {outcome:?}");
        return;
    };
    assert_ne!(expected["action"], "reject", "{id} was admitted, expected: {expected}");
    if expected.get("tolerations").is_none() {
        assert!(!patched, "{id} must not be patched");
        return;
    }
    let tolerations = list(&pod["spec"]["tolerations"]);
    assert_eq!(tolerations, expected["tolerations"], "{id}");
    let selector = map(&pod["spec"]["nodeSelector"]);
    if from_daemon_set {
        assert_eq!(selector, map(&asked.pod["spec"]["nodeSelector"]), "{id}: a DaemonSet's pod keeps its nodeSelector");
    } else {
        assert_eq!(selector, expected["nodeSelector"], "{id}");
        assert_eq!(patched, expected["action"] == "inject", "{id}");
    }
}

fn judge(judgement: impl Fn(Form, &str, &Value, &Asked, &str, &Value)) {
    let mut judged = 0;
    for case in cases("objects.jsonl").iter().filter(|case| case.get("expect").is_some()) {
        let namespace = case["namespace"].as_str().unwrap();
        for form in Form::ALL {
            let id = format!("{} under {}", case["id"], form.name());
            judgement(form, &id, case, &Asked::of(case), namespace, &case["expect"][form.name()]);
            judged += 1;
        }
    }
    assert!(judged > 280, "{judged}");
}

#[test]
fn in_an_allowed_namespace() {
    judge(|form, id, case, asked, namespace, expected| {
        // The one thing that the API server would let pass and no node could ever run: the mutation
        // completes the pod, and validation speaks of the conflict.
        if case["id"] == "gpu-affinity-hostile" {
            let policy = policy(&form.yaml(&[namespace], "rules: {placement-conflict: warn}"));
            check(id, asked, &policy, namespace, &expected["allowlisted"], false);
            return;
        }
        let mut asked = Asked { ..clone(asked) };
        if expected.get("exempt").is_some() && case["kind"] == "review" && asked.username.starts_with("system:node:") {
            // What a mirror pod would be, were it not the kubelet's.
            asked.username = "someone".to_owned();
        }
        let from_daemon_set = asked.username == DAEMON_SET_CONTROLLER;
        let policy = policy(&form.yaml(&[namespace], "exemptions: []"));
        check(id, &asked, &policy, namespace, &expected["allowlisted"], from_daemon_set);
    });
}

#[test]
fn in_a_namespace_that_is_not_allowed() {
    judge(|form, id, case, asked, namespace, expected| {
        let mut asked = clone(asked);
        if expected.get("exempt").is_some() && case["kind"] == "review" && asked.username.starts_with("system:node:") {
            asked.username = "someone".to_owned();
        }
        let policy = policy(&form.yaml(&["some-other-namespace", "*-allowed"], "exemptions: []"));
        check(id, &asked, &policy, namespace, &expected["not_allowlisted"], false);
    });
}

#[test]
fn with_an_exempt_owner() {
    judge(|form, id, case, asked, namespace, expected| {
        let Some(exempt) = expected.get("exempt") else { return };
        let owner = match case["kind"].as_str().unwrap() {
            "daemonset" => case["object"]["metadata"]["name"].as_str().unwrap(),
            _ => asked.pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or("burnin"),
        };
        let exemptions =
            format!("exemptions: [{{name: e, reason: r, namespaces: [{namespace}], daemonSets: [{owner}]}}]");
        for allowed in [namespace, "some-other-namespace"] {
            let policy = policy(&form.yaml(&[allowed], &exemptions));
            check(id, asked, &policy, namespace, exempt, true);
        }
        // Another DaemonSet's exemption is no use.
        if case["kind"] == "daemonset" {
            let exemptions = exemptions.replace(owner, "another");
            let policy = policy(&form.yaml(&["some-other-namespace"], &exemptions));
            check(id, asked, &policy, namespace, &expected["not_allowlisted"], true);
        }
    });
}

#[test]
fn where_a_wider_toleration_is_enough() {
    judge(|form, id, _, asked, namespace, expected| {
        let Some(tolerations) = expected["allowlisted"].get("also_ok_tolerations") else { return };
        let policy = policy(&form.yaml(&[namespace], "injection: {whenTolerated: skip}\nexemptions: []"));
        let Outcome::Admitted { pod, .. } = asked.outcome(&policy, namespace) else { panic!("{id}") };
        assert_eq!(pod["spec"]["tolerations"], *tolerations, "{id}");
        assert_eq!(pod["spec"]["nodeSelector"], expected["allowlisted"]["nodeSelector"], "{id}");
    });
}

fn clone(asked: &Asked) -> Asked {
    Asked {
        pod: asked.pod.clone(),
        old: asked.old.clone(),
        username: asked.username.clone(),
        groups: asked.groups.clone(),
        create: asked.create,
    }
}
