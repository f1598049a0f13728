//! What is rendered for a cluster: golden files, and what holds for every choice of options.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it manifests` writes the golden files anew; the diff is then for a
//! person to read.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpufence::audit::snapshot::READS;
use gpufence::contract::Contract;
use gpufence::manifest::{
    FailurePolicy, KubernetesVersion, Manifests, Monitor, OptionError, Options, Tls, conditions, names, render,
};
use gpufence::policy::{Decision, Kind, Mode, NoFacts, Phase};
use serde_json::{Value, json};

use crate::support::{Form, Request, contract, policy};

type Arguments<'a> = &'a [&'a str];
type Environment<'a> = &'a [(&'a str, &'a str)];

/// The golden files, with the arguments and the environment that make them.
const GOLDEN: [(&str, Arguments<'_>, Environment<'_>); 6] = [
    ("audit", &[], &[]),
    ("enforce", &[], &[("GPUFENCE__MODE", "enforce")]),
    ("files", &["--tls", "files", "--ca-file", "ca.pem"], &[("GPUFENCE__MODE", "enforce")]),
    ("cert-manager", &["--tls", "cert-manager", "--audit-only"], &[("GPUFENCE__MODE", "enforce")]),
    (
        "everything",
        &[
            "--config",
            "contract.yaml",
            "--namespace",
            "gpu-fence",
            "--image",
            "registry.example.com:5000/gpufence@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "--replicas",
            "3",
            "--mutating-failure-policy",
            "Fail",
            "--network-policy",
            "--monitor",
            "pod",
            "--priority-class",
            "webhooks",
            "--audit-cron-job",
            "0 6 * * *",
        ],
        &[],
    ),
    ("old-server", &["--kubernetes-version", "1.20", "--replicas", "1", "--monitor", "service"], &[]),
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Runs `gpufence manifests` beside the golden files: exit code, output and errors.
fn run(arguments: Arguments<'_>, environment: Environment<'_>) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
    command.arg("manifests").args(arguments).env_clear().envs(environment.iter().copied()).current_dir(golden(""));
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The objects of a stream.
fn parsed(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { budget: None, with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options).unwrap()
}

fn rendered(yaml: &str, options: &Options) -> Manifests {
    render(&contract(yaml), options).unwrap_or_else(|error| panic!("{error}"))
}

fn enforcing(more: &str) -> String {
    Form::Dedicated.yaml(&["ml-team"], more)
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The one object of this kind and name.
fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found: Vec<_> =
        of_kind(objects, kind).into_iter().filter(|object| object["metadata"]["name"] == name).collect();
    assert_eq!(found.len(), 1, "{kind} {name}");
    found[0]
}

/// Every webhook of both configurations, with the annotation of its configuration.
fn hooks(objects: &[Value]) -> Vec<(&str, &Value)> {
    let configurations =
        objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("WebhookConfiguration"));
    let hooks = configurations.flat_map(|configuration| {
        let target = configuration["metadata"]["annotations"][names::FAILURE_POLICY_ANNOTATION].as_str().unwrap();
        configuration["webhooks"].as_array().unwrap().iter().map(move |hook| (target, hook))
    });
    hooks.collect()
}

fn pod_specs(objects: &[Value]) -> Vec<&Value> {
    of_kind(objects, "Deployment").into_iter().map(|deployment| &deployment["spec"]["template"]["spec"]).collect()
}

#[test]
fn the_golden_files_are_what_is_rendered() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| !value.is_empty());
    for (name, arguments, environment) in GOLDEN {
        let (code, text, errors) = run(arguments, environment);
        assert_eq!((code, errors.as_str()), (0, ""), "{name}");
        let file = golden(&format!("{name}.yaml"));
        if update {
            std::fs::write(&file, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            text == expected,
            "tests/golden/{name}.yaml is not what is rendered:\n{}",
            difference(&expected, &text)
        );
        // The very same again: nothing depends on a clock or on chance.
        assert_eq!(run(arguments, environment).1, text, "{name}");
    }
}

/// The lines between what both texts begin and end with.
fn difference(expected: &str, found: &str) -> String {
    const AROUND: usize = 3;
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let most = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
    let show = |sign: &str, lines: &[&str]| lines.iter().flat_map(|line| [sign, line, "\n"]).collect::<String>();
    let before = show(" ", &new[start.saturating_sub(AROUND)..start]);
    let after = show(" ", &new[new.len() - end..(new.len() - end + AROUND).min(new.len())]);
    let (old, new) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    format!("from line {}\n{before}{}{}{after}", start + 1, show("-", old), show("+", new))
}

#[test]
fn a_difference_shows_what_differs() {
    assert_eq!(difference("a\nb\nc\nd\n", "a\nx\ny\nc\nd\n"), "from line 2\n a\n-b\n+x\n+y\n c\n d\n");
    assert_eq!(difference("", "a\n"), "from line 1\n+a\n");
    assert_eq!(difference("a\na\n", "a\n"), "from line 2\n a\n-a\n");
}

#[test]
fn the_stream_reads_back_as_what_was_rendered() {
    // Words that some reader of YAML takes for something else.
    let more = "contact: 'yes: #1'\n\
                exemptions: [{name: n, reason: \"off\\u00e9 - {x} 'y' \\\"z\\\" \\\\ & * !\", namespaces: ['on'], daemonSets: ['012', '*']}]\n";
    for value in ["on", "yes", "null", "1e3", "0x10", "012", "1_000", "1.0", "true", "2026-01-01", "y"] {
        let yaml = enforcing(more).replace("value: gpu", &format!("value: '{value}'"));
        let options = Options { monitor: Monitor::Service, network_policy: true, ..Options::default() };
        let manifests = rendered(&yaml, &options);
        let text = manifests.to_yaml().unwrap();
        assert_eq!(parsed(&text), manifests.objects, "{value}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("contract.yaml");
        let config = &named(&manifests.objects, "ConfigMap", "gpufence")["data"]["contract.yaml"];
        std::fs::write(&file, config.as_str().unwrap()).unwrap();
        let installed = Contract::load(Some(&file), []).unwrap();
        assert_eq!(installed.to_yaml().unwrap(), config.as_str().unwrap());
        assert_eq!(installed.policy.pools()[0].taints[0].value, value);
    }
}

#[test]
fn the_stream_reads_well() {
    let (_, text, _) = run(&[], &[("GPUFENCE__MODE", "enforce")]);
    assert!(text.starts_with("# Rendered by gpufence "), "{text}");
    assert!(text.ends_with('\n') && !text.ends_with("\n\n"));
    for line in text.lines() {
        assert_eq!(line.trim_end(), line);
        assert!(!line.contains('\t'), "{line}");
    }
    for document in text.split("---\n").skip(1) {
        let lines: Vec<_> = document.lines().collect();
        assert!(lines[0].starts_with("apiVersion: ") && lines[1].starts_with("kind: ") && lines[2] == "metadata:");
        assert!(lines[3].starts_with("  name: "), "{document}");
    }
    // Text of several lines stands as such.
    assert!(text.contains("\n  contract.yaml: |\n    mode: enforce\n"), "{text}");
    assert!(text.contains("\n    expression: |-\n"), "{text}");
    assert!(text.contains("\n      - name: gpufence\n        args:\n        - serve\n"), "{text}");
}

/// kubectl deletes what it reads in the order in which it reads it: the namespace's end must not leave hooks
/// behind that nobody answers.
#[test]
fn what_is_removed_begins_with_the_registrations() {
    for (name, arguments, environment) in GOLDEN {
        let mut objects = parsed(&run(arguments, environment).1);
        objects.reverse();
        let reversed = parsed(&run(&[arguments, &["--reverse"]].concat(), environment).1);
        assert_eq!(reversed, objects, "{name}");
        assert!(reversed[0]["kind"].as_str().unwrap().ends_with("WebhookConfiguration"), "{name}");
        assert_eq!(reversed.last().unwrap()["kind"], "Namespace", "{name}");
    }
}

#[test]
fn objects_come_in_the_order_in_which_they_are_applied() {
    for (name, arguments, environment) in GOLDEN {
        let objects = parsed(&run(arguments, environment).1);
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds[..3], ["Namespace", "Namespace", "ResourceQuota"], "{name}");
        let last = &kinds[kinds.len() - 2..];
        assert_eq!(last, ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"], "{name}");
        let place = |kind: &str| kinds.iter().position(|found| *found == kind).unwrap();
        assert!(place("ServiceAccount") < place("Role") && place("RoleBinding") < place("Deployment"), "{name}");
        assert!(place("ConfigMap") < place("Deployment") && place("Service") < place("Deployment"), "{name}");
        let mut identities: Vec<_> = objects
            .iter()
            .map(|object| {
                format!("{} {} {}", object["kind"], object["metadata"]["namespace"], object["metadata"]["name"])
            })
            .collect();
        identities.sort();
        let all = identities.len();
        identities.dedup();
        assert_eq!(identities.len(), all, "{name}");
        for object in &objects {
            assert_eq!(object["metadata"]["labels"][names::NAME_LABEL], "gpufence", "{name} {object}");
        }
    }
}

#[test]
fn no_choice_of_options_renders_audit_with_fail() {
    let choices = [None, Some(FailurePolicy::Fail), Some(FailurePolicy::Ignore)];
    let ca = std::fs::read_to_string(golden("ca.pem")).unwrap();
    let tls = [Tls::Managed, Tls::Files { ca: None }, Tls::Files { ca: Some(ca) }, Tls::CertManager];
    let mut rendered = 0;
    let mut refused = 0;
    for mode in Mode::ALL {
        let yaml = enforcing("templates: deny\nrollout: [{namespaces: [canary], mode: enforce}]");
        let contract = contract(&yaml.replace("mode: enforce\npools", &format!("mode: {mode}\npools")));
        assert_eq!(contract.policy.mode(), mode);
        for (audit_only, validating, mutating, tls, kubernetes, network_policy) in combinations(choices, &tls) {
            let options = Options {
                audit_only,
                validating_failure_policy: validating,
                mutating_failure_policy: mutating,
                tls,
                kubernetes,
                network_policy,
                ..Options::default()
            };
            let audits = audit_only || mode == Mode::Audit;
            let asks_to_fail = [validating, mutating].contains(&Some(FailurePolicy::Fail));
            let held_back = audits || mode == Mode::Warn;
            let manifests = match render(&contract, &options) {
                Ok(manifests) => manifests,
                Err(error) => {
                    assert!(matches!(error, OptionError::FailWithoutEnforcement { .. }), "{error}");
                    assert!(held_back && asks_to_fail, "{options} in mode {mode}: {error}");
                    refused += 1;
                    continue;
                }
            };
            assert!(!(held_back && asks_to_fail), "{options} in mode {mode}");
            rendered += 1;
            for (target, hook) in hooks(&manifests.objects) {
                // Whatever it shall become, it comes harmless.
                assert_eq!(hook["failurePolicy"], "Ignore", "{options}");
                assert!(!(audits && target == "Fail"), "{options} in mode {mode}");
                let seconds = hook["timeoutSeconds"].as_u64().unwrap();
                assert!(if audits { seconds <= 2 } else { seconds <= 5 }, "{options}: {seconds}");
                let path = hook["clientConfig"]["service"]["path"].as_str().unwrap();
                assert_eq!(path.starts_with("/audit/"), audit_only, "{options}: {path}");
            }
            let config = named(&manifests.objects, "ConfigMap", "gpufence")["data"]["contract.yaml"].as_str().unwrap();
            assert!(config.starts_with(&format!("mode: {mode}\n")));
            // The dry run is judged as it will be, unless nothing ever is.
            assert_eq!(config.contains("- gpufence-probe\n  mode: enforce\n"), mode != Mode::Audit);
        }
    }
    assert!(rendered > 200 && refused > 200, "{rendered} {refused}");
}

type Chosen = (bool, Option<FailurePolicy>, Option<FailurePolicy>, Tls, KubernetesVersion, bool);

fn combinations(choices: [Option<FailurePolicy>; 3], tls: &[Tls; 4]) -> Vec<Chosen> {
    let mut all = Vec::new();
    for audit_only in [true, false] {
        for validating in choices {
            for mutating in choices {
                for tls in tls {
                    for version in ["1.20", "1.29", "1.36"] {
                        let version = version.parse().unwrap();
                        all.push((audit_only, validating, mutating, tls.clone(), version, !audit_only));
                    }
                }
            }
        }
    }
    all
}

#[test]
fn where_the_contract_enforces_the_validation_shall_fail_closed() {
    let target = |yaml: &str, options: &Options| {
        let objects = rendered(yaml, options).objects;
        let annotation = |kind| {
            let annotations = &named(&objects, kind, "gpufence")["metadata"]["annotations"];
            annotations["gpufence.io/failure-policy"].as_str().unwrap().to_owned()
        };
        [annotation("ValidatingWebhookConfiguration"), annotation("MutatingWebhookConfiguration")]
    };
    let usual = Options::default();
    assert_eq!(target(&enforcing(""), &usual), ["Fail", "Ignore"]);
    assert_eq!(target("mode: warn", &usual), ["Ignore", "Ignore"]);
    assert_eq!(target("mode: audit", &usual), ["Ignore", "Ignore"]);
    assert_eq!(target(&enforcing(""), &Options { audit_only: true, ..usual.clone() }), ["Ignore", "Ignore"]);
    let chosen = Options {
        validating_failure_policy: Some(FailurePolicy::Ignore),
        mutating_failure_policy: Some(FailurePolicy::Fail),
        ..usual
    };
    assert_eq!(target(&enforcing(""), &chosen), ["Ignore", "Fail"]);
}

#[test]
fn the_hooks_see_pods_and_templates_outside_of_what_keeps_a_cluster_alive() {
    let options = Options { namespace: "fence".to_owned(), ..Options::default() };
    let objects = rendered(&enforcing(""), &options).objects;
    let names: Vec<_> = hooks(&objects).iter().map(|(_, hook)| hook["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "pods.mutate.gpufence.io",
            "pods.validate.gpufence.io",
            "templates.validate.gpufence.io",
            "bindings.validate.gpufence.io"
        ]
    );
    for (_, hook) in hooks(&objects) {
        let expression = json!({
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["fence", "kube-system", "kube-node-lease", "kube-public"],
        });
        // The probe namespace is none of them, or nothing could ever be proved.
        assert_eq!(hook["namespaceSelector"], json!({"matchExpressions": [expression]}));
        assert_eq!(hook["matchPolicy"], "Equivalent");
        assert_eq!(hook["sideEffects"], "None");
        assert_eq!(hook["admissionReviewVersions"], json!(["v1"]));
        let service = &hook["clientConfig"]["service"];
        assert_eq!((&service["name"], &service["namespace"]), (&json!("gpufence"), &json!("fence")));
        for rule in hook["rules"].as_array().unwrap() {
            assert_eq!(rule["scope"], "Namespaced");
            for (group, resource) in each(rule, "apiGroups").zip(each(rule, "resources").collect::<Vec<_>>()) {
                // No node, no lease, no status: nothing without which a node is lost.
                let known = Kind::ALL.iter().any(|kind| kind.resource() == resource);
                assert!(known || ["pods/binding", "bindings"].contains(&resource), "{group}/{resource}");
            }
        }
    }
    let operations = |index: usize| hooks(&objects)[index].1["rules"][0]["operations"].clone();
    assert_eq!([operations(0), operations(1)], [json!(["CREATE"]), json!(["CREATE", "UPDATE"])]);
    assert_eq!(hooks(&objects)[0].1["reinvocationPolicy"], "IfNeeded");
    let rules = hooks(&objects)[2].1["rules"].as_array().unwrap();
    let templates: Vec<_> = rules
        .iter()
        .flat_map(|rule| {
            each(rule, "resources").map(move |resource| (rule["apiGroups"][0].as_str().unwrap(), resource))
        })
        .collect();
    assert_eq!(templates.len(), 8);
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_template()) {
        assert!(templates.contains(&(kind.group(), kind.resource())), "{}", kind.name());
    }
    let off = rendered(&enforcing("templates: 'off'"), &options).objects;
    assert_eq!(hooks(&off).len(), 3);
    let unguarded = rendered(&enforcing("templates: 'off'\nrules: {node-name-bypass: 'off'}"), &options).objects;
    assert_eq!(hooks(&unguarded).len(), 2);
}

#[test]
fn custom_resources_have_a_hook_of_their_own() {
    let yaml = enforcing(
        "customResources:\n- {group: ray.io, kind: RayJob, resource: rayjobs, templates: [spec.a]}\n- {group: argoproj.io, \
         kind: Rollout, resource: rollouts, templates: [spec.template]}\n- {group: ray.io, kind: RayCluster, resource: \
         rayclusters, podSpecs: [{path: '[\"o''clock\"].b'}]}",
    );
    let hook = |yaml: &str, options: &Options| {
        let objects = rendered(yaml, options).objects;
        let hooks = hooks(&objects);
        hooks
            .into_iter()
            .find(|(_, hook)| hook["name"] == "customresources.validate.gpufence.io")
            .map(|(_, hook)| hook.clone())
    };
    let rendered = hook(&yaml, &Options::default()).unwrap();
    let rule = |group: &str, resources: &[&str]| {
        json!({
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": resources,
            "scope": "Namespaced",
        })
    };
    assert_eq!(
        rendered["rules"],
        json!([rule("argoproj.io", &["rollouts"]), rule("ray.io", &["rayclusters", "rayjobs"])])
    );
    assert_eq!((&rendered["failurePolicy"], &rendered["timeoutSeconds"]), (&json!("Ignore"), &json!(3)));
    assert_eq!(rendered["clientConfig"]["service"]["path"], "/validate");
    assert_eq!(
        rendered["matchConditions"],
        json!([{
            "name": "is-new-or-changed",
            "expression": "oldObject == null ||\nobject[?'o\\'clock'].orValue({}) != oldObject[?'o\\'clock'].orValue({}) \
                           ||\nobject[?'spec'].orValue({}) != oldObject[?'spec'].orValue({})",
        }])
    );
    let audit = Options { audit_only: true, ..Options::default() };
    assert_eq!(hook(&yaml, &audit).unwrap()["clientConfig"]["service"]["path"], "/audit/validate");
    assert_eq!(hook(&enforcing(""), &Options::default()), None);
    assert_eq!(hook(&format!("{yaml}\ntemplates: 'off'"), &Options::default()), None);
}

fn each<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    rule[field].as_array().unwrap().iter().map(|item| item.as_str().unwrap())
}

#[test]
fn the_conditions_are_rendered_for_servers_that_have_them() {
    let yaml = enforcing("");
    let of = |version: &str| {
        let options = Options { kubernetes: version.parse().unwrap(), ..Options::default() };
        rendered(&yaml, &options)
    };
    let manifests = of("1.30");
    let expected = [
        conditions::of_pod_mutation(&policy(&yaml)),
        conditions::of_pod_validation(&policy(&yaml)),
        conditions::of_template_validation(&policy(&yaml)),
    ];
    for ((_, hook), expected) in hooks(&manifests.objects).iter().zip(expected) {
        let expected: Vec<_> = expected
            .iter()
            .map(|condition| json!({"name": condition.name, "expression": condition.expression}))
            .collect();
        assert_eq!(hook["matchConditions"], Value::from(expected));
    }
    assert_eq!(manifests.notes, Vec::<String>::new());
    let old = of("1.29");
    assert!(hooks(&old.objects).iter().all(|(_, hook)| hook.get("matchConditions").is_none()));
    assert!(
        old.notes[0].contains("no matchConditions") && old.to_yaml().unwrap().contains("\n# Note: no matchConditions")
    );
    assert_eq!(of_kind(&of("1.21").objects, "PodDisruptionBudget").len(), 1);
    let oldest = of("1.20");
    assert_eq!(of_kind(&oldest.objects, "PodDisruptionBudget").len(), 0);
    assert!(oldest.notes.iter().any(|note| note.contains("no PodDisruptionBudget")), "{:?}", oldest.notes);
    assert!(oldest.notes.iter().any(|note| note.contains("kubernetes.io/metadata.name")), "{:?}", oldest.notes);
}

#[test]
fn a_ca_is_registered_where_one_is_given_and_nowhere_else() {
    let pem = std::fs::read_to_string(golden("ca.pem")).unwrap();
    let bundles = |tls: Tls| {
        let objects = rendered(&enforcing(""), &Options { tls, ..Options::default() }).objects;
        hooks(&objects).iter().map(|(_, hook)| hook["clientConfig"].get("caBundle").cloned()).collect::<Vec<_>>()
    };
    for bundle in bundles(Tls::Files { ca: Some(pem.clone()) }) {
        assert_eq!(STANDARD.decode(bundle.unwrap().as_str().unwrap()).unwrap(), pem.as_bytes());
    }
    for tls in [Tls::Managed, Tls::Files { ca: None }, Tls::CertManager] {
        assert!(bundles(tls).iter().all(Option::is_none));
    }
    let objects = rendered(&enforcing(""), &Options { tls: Tls::CertManager, ..Options::default() }).objects;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let annotations = &named(&objects, kind, "gpufence")["metadata"]["annotations"];
        assert_eq!(annotations["cert-manager.io/inject-ca-from"], "gpufence/gpufence");
    }
    let certificate = named(&objects, "Certificate", "gpufence");
    assert_eq!(certificate["spec"]["secretName"], names::TLS_SECRET);
    assert_eq!(certificate["spec"]["dnsNames"][0], "gpufence.gpufence.svc");
    // The Secret that the server reads is the one that cert-manager fills.
    assert!(of_kind(&objects, "Secret").is_empty());
}

#[test]
fn an_update_loses_no_request_and_ends_in_time() {
    for (drain, expected) in [("0s", 12), ("1s", 1), ("45s", 45), ("600s", 600)] {
        let yaml = enforcing(&format!("server: {{drain: {drain}}}"));
        let objects = rendered(&yaml, &Options::default()).objects;
        let config = named(&objects, "ConfigMap", "gpufence")["data"]["contract.yaml"].as_str().unwrap();
        assert!(config.contains(&format!("\n  drain: {expected}s\n")), "{config}");
        let deployment = named(&objects, "Deployment", "gpufence");
        let grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace > expected + 10, "{grace} for a drain of {expected}");
        let update = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        assert_eq!(deployment["spec"]["strategy"], update);
        assert_eq!(named(&objects, "PodDisruptionBudget", "gpufence")["spec"]["maxUnavailable"], 1);
        assert_eq!(deployment["spec"]["replicas"], 2);
    }
}

#[test]
fn the_pods_are_restricted_and_hold_what_the_contract_says() {
    let yaml = enforcing("server: {listen: '0.0.0.0:9443', metrics: '[::]:9191'}");
    let objects = rendered(&yaml, &Options { replicas: 5, ..Options::default() }).objects;
    let deployments = of_kind(&objects, "Deployment");
    let names: Vec<_> = deployments.iter().map(|deployment| &deployment["metadata"]["name"]).collect();
    assert_eq!(names, ["gpufence", "gpufence-controller"]);
    assert_eq!(deployments[0]["spec"]["replicas"], 5);
    for deployment in &deployments {
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
        assert_eq!(labels.as_object().unwrap().len(), 2);
    }
    for spec in pod_specs(&objects) {
        let security = &spec["securityContext"];
        assert_eq!((&security["runAsNonRoot"], &security["runAsUser"]), (&json!(true), &json!(65532)));
        assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(spec["priorityClassName"], "system-cluster-critical");
        assert_eq!(spec["enableServiceLinks"], false);
        assert!(spec.get("tolerations").is_none() && spec.get("hostNetwork").is_none());
        let keys: Vec<_> =
            spec["topologySpreadConstraints"].as_array().unwrap().iter().map(|one| &one["topologyKey"]).collect();
        assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
        let [container] = spec["containers"].as_array().unwrap().as_slice() else { panic!("{spec}") };
        let security = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        });
        assert_eq!(container["securityContext"], security);
        let resources = &container["resources"];
        assert!(resources["requests"]["cpu"].is_string() && resources["requests"]["memory"].is_string());
        assert_eq!(resources["limits"], json!({"memory": "192Mi"}), "a throttled webhook is a late one");
        for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz"), ("startupProbe", "/livez")] {
            assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "metrics"}));
        }
        let variable = |name: &str| {
            let variables = container["env"].as_array().unwrap();
            variables.iter().find(|variable| variable["name"] == name).unwrap().clone()
        };
        assert_eq!(variable("GPUFENCE_CONFIG")["value"], "/etc/gpufence/contract.yaml");
        assert_eq!(variable("POD_NAME")["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name");
        assert_eq!(variable("POD_NAMESPACE")["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace");
        // A directory: a single file is never updated.
        let mount = &container["volumeMounts"][0];
        assert_eq!((&mount["mountPath"], mount.get("subPath")), (&json!("/etc/gpufence"), None));
        let metrics = container["ports"].as_array().unwrap().iter().find(|port| port["name"] == "metrics").unwrap();
        assert_eq!(metrics["containerPort"], 9191);
    }
    assert_eq!(pod_specs(&objects)[0]["containers"][0]["ports"][0]["containerPort"], 9443);
    let service = &named(&objects, "Service", "gpufence")["spec"];
    assert_eq!(service["selector"], deployments[0]["spec"]["template"]["metadata"]["labels"]);
    let ports: Vec<_> =
        service["ports"].as_array().unwrap().iter().map(|port| (&port["port"], &port["targetPort"])).collect();
    assert_eq!(ports, [(&json!(443), &json!("https")), (&json!(9090), &json!("metrics"))]);
    let files = rendered(&yaml, &Options { tls: Tls::Files { ca: None }, ..Options::default() }).objects;
    let spec = pod_specs(&files)[0];
    assert_eq!(spec["volumes"][1]["secret"]["secretName"], "gpufence-tls");
    assert_eq!(spec["containers"][0]["volumeMounts"][1]["mountPath"], "/etc/gpufence/tls");
    let config = named(&files, "ConfigMap", "gpufence")["data"]["contract.yaml"].as_str().unwrap();
    assert!(
        config.contains("  source: files\n  cert: /etc/gpufence/tls/tls.crt\n  key: /etc/gpufence/tls/tls.key\n"),
        "{config}"
    );
}

#[test]
fn our_own_pods_keep_the_contract() {
    let everything = std::fs::read_to_string(golden("contract.yaml")).unwrap();
    let forms = Form::ALL.map(|form| form.yaml(&["ml-team"], ""));
    for yaml in [&everything, &forms[0], &forms[1]] {
        let policy = policy(yaml);
        let objects = rendered(yaml, &Options::default()).objects;
        for deployment in of_kind(&objects, "Deployment") {
            let mut pod = deployment["spec"]["template"].clone();
            pod["kind"] = json!("Pod");
            for (kind, object) in [(Kind::Deployment, deployment), (Kind::Pod, &pod)] {
                let text = object.to_string();
                let workload = kind.read(&text).unwrap();
                for phase in [Phase::Mutating, Phase::Validating] {
                    // Even where the registrations do not leave the namespace out.
                    let request = Request {
                        namespace: "gpufence",
                        username: "someone",
                        groups: &[],
                        object: &workload,
                        old: None,
                    };
                    let mut decision = request.decide_with(&policy, phase, &NoFacts);
                    if policy.fences_ordinary() {
                        // That they are kept off the nodes of pools is no fault of theirs.
                        decision.injection = None;
                    }
                    assert_eq!(decision, Decision::quiet(Mode::Enforce));
                }
            }
        }
    }
}

#[test]
fn pods_stay_off_the_nodes_of_every_pool_where_they_can() {
    let everything = std::fs::read_to_string(golden("contract.yaml")).unwrap();
    let objects = rendered(&everything, &Options::default()).objects;
    let affinity = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [{"key": "accelerator", "operator": "NotIn", "values": ["nvidia", "amd"]}]}},
        {"weight": 100, "preference": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}},
    ]});
    for spec in pod_specs(&objects) {
        assert_eq!(spec["affinity"]["nodeAffinity"], affinity);
    }
}

/// What a role allows, a line for each verb.
fn grants(objects: &[Value]) -> Vec<String> {
    let mut grants = Vec::new();
    for role in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role")) {
        let place = role["metadata"]["namespace"].as_str().unwrap_or("everywhere");
        for rule in role["rules"].as_array().unwrap() {
            let names: Vec<_> =
                rule.get("resourceNames").map(|_| each(rule, "resourceNames").collect()).unwrap_or_default();
            for resource in each(rule, "resources") {
                let verbs = each(rule, "verbs").collect::<Vec<_>>().join(",");
                let name = role["metadata"]["name"].as_str().unwrap();
                grants.push(format!("{name} in {place}: {verbs} {resource} {}", names.join(",")).trim_end().to_owned());
            }
        }
    }
    grants
}

#[test]
fn each_identity_may_do_what_it_does_and_no_more() {
    const CONTROLLER: [&str; 4] = [
        "gpufence-controller in gpufence: get,list pods",
        "gpufence-controller in gpufence: get,update leases gpufence-controller",
        "gpufence-controller in gpufence: get,update secrets gpufence-ca",
        "gpufence-controller in gpufence-probe: create pods",
    ];
    const REGISTRATIONS: [&str; 2] = [
        "gpufence-controller in everywhere: get,patch mutatingwebhookconfigurations gpufence",
        "gpufence-controller in everywhere: get,patch validatingwebhookconfigurations gpufence",
    ];
    const CA: &str = "gpufence in gpufence: get,list,watch secrets gpufence-ca";
    const LABELS: &str = "gpufence in everywhere: get,list,watch namespaces";
    const NODES: &str = "gpufence in everywhere: get,list,watch nodes";
    let without_secret = [CONTROLLER[0], CONTROLLER[1], CONTROLLER[3]];
    let anywhere = "rules: {node-name-bypass: 'off'}\n";
    let selector = "rollout: [{selector: {matchLabels: {a: b}}, mode: warn}]";
    let [selects, blind] = [selector, anywhere].map(enforcing);
    let selects_blindly = enforcing(&format!("{anywhere}{selector}"));
    let files = Tls::Files { ca: None };
    for (yaml, tls, expected) in [
        (&enforcing(""), Tls::Managed, [&[CA][..], &CONTROLLER, &[NODES], &REGISTRATIONS].concat()),
        (&blind, Tls::Managed, [&[CA][..], &CONTROLLER, &REGISTRATIONS].concat()),
        (&selects, Tls::Managed, [&[CA][..], &CONTROLLER, &[LABELS, NODES], &REGISTRATIONS].concat()),
        (&selects_blindly, Tls::Managed, [&[CA][..], &CONTROLLER, &[LABELS], &REGISTRATIONS].concat()),
        (&enforcing(""), files.clone(), [&without_secret[..], &[NODES], &REGISTRATIONS].concat()),
        (&blind, files.clone(), [&without_secret[..], &REGISTRATIONS].concat()),
        (&selects, Tls::CertManager, [&without_secret[..], &[LABELS, NODES], &REGISTRATIONS].concat()),
        (&selects_blindly, files, [&without_secret[..], &[LABELS], &REGISTRATIONS].concat()),
    ] {
        let objects = rendered(yaml, &Options { tls: tls.clone(), ..Options::default() }).objects;
        assert_eq!(grants(&objects), expected, "{tls:?}");
        for binding in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding")) {
            let name = &binding["metadata"]["name"];
            assert_eq!(&binding["roleRef"]["name"], name);
            let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": "gpufence"}]);
            assert_eq!(binding["subjects"], subjects);
        }
        // A token only where there is something to do with it.
        let reads = tls == Tls::Managed || expected.contains(&LABELS) || expected.contains(&NODES);
        let tokens: Vec<_> = pod_specs(&objects).iter().map(|spec| &spec["automountServiceAccountToken"]).collect();
        assert_eq!(tokens, [&json!(reads), &json!(true)], "{tls:?}");
        for account in of_kind(&objects, "ServiceAccount") {
            assert_eq!(account["automountServiceAccountToken"], false);
        }
        // They are there, so that nobody needs the right to create them.
        assert_eq!(of_kind(&objects, "Lease").len(), 1);
        let secrets = of_kind(&objects, "Secret");
        assert_eq!(secrets.len(), usize::from(tls == Tls::Managed));
        assert!(secrets.iter().all(|secret| secret.get("data").is_none()));
    }
}

const AUDITS: &str = "audit: {interval: 15m, reports: REPORTS}\n\
    customResources: [{group: argoproj.io, kind: Rollout, resource: rollouts, templates: [$.spec.template]}]";

/// The rules of the role of this kind and name, a line for each group, resource and verbs.
fn rules(objects: &[Value], kind: &str, name: &str) -> Vec<String> {
    let role = named(objects, kind, name);
    let rules = role["rules"].as_array().unwrap().iter();
    let lines = rules.flat_map(|rule| {
        let (group, verbs) =
            (each(rule, "apiGroups").next().unwrap(), each(rule, "verbs").collect::<Vec<_>>().join(","));
        each(rule, "resources").map(move |resource| format!("{group}/{resource}: {verbs}")).collect::<Vec<_>>()
    });
    lines.collect()
}

/// What an audit reads, as lines of [`rules`].
fn reads() -> Vec<String> {
    let custom = ("argoproj.io", "rollouts");
    let mut reads: Vec<_> =
        READS.iter().chain([&custom]).map(|(group, name)| format!("{group}/{name}: list")).collect();
    reads.sort();
    reads
}

#[test]
fn a_replica_that_audits_may_read_what_an_audit_does_and_write_the_reports_that_are_wanted() {
    // That of the cluster is always there; those of namespaces come and go.
    let writes = [("cluster", "get,create,update"), ("", "get,list,create,update,delete")];
    let open = writes.map(|(of, verbs)| format!("openreports.io/{of}reports: {verbs}"));
    let policy = writes.map(|(of, verbs)| format!("wgpolicyk8s.io/{of}policyreports: {verbs}"));
    for (reports, writes) in [("none", &[][..]), ("openreports", &open), ("policyreports", &policy)] {
        let audits = enforcing(&AUDITS.replace("REPORTS", reports));
        for tls in [Tls::Managed, Tls::CertManager] {
            let options = Options { tls: tls.clone(), network_policy: true, ..Options::default() };
            let objects = rendered(&audits, &options).objects;
            let mut found = rules(&objects, "ClusterRole", "gpufence");
            assert_eq!(found.remove(0), "/nodes: get,list,watch");
            found.sort();
            let mut expected = [&reads()[..], writes].concat();
            expected.sort();
            assert_eq!(found, expected, "{reports}");
            // Among them no Secret, and nothing that changes what runs.
            let leases: Vec<_> = of_kind(&objects, "Lease").iter().map(|lease| &lease["metadata"]["name"]).collect();
            assert_eq!(leases, ["gpufence-controller", "gpufence-audit"]);
            let own: Vec<_> = grants(&objects).into_iter().filter(|grant| grant.contains("leases")).collect();
            let holds = |who: &str, lease: &str| format!("{who} in gpufence: get,update leases {lease}");
            assert_eq!(
                own,
                [holds("gpufence-audit", "gpufence-audit"), holds("gpufence-controller", "gpufence-controller")]
            );
            let binding = named(&objects, "RoleBinding", "gpufence-audit");
            assert_eq!(binding["roleRef"]["name"], "gpufence-audit");
            assert_eq!(
                binding["subjects"],
                json!([{"kind": "ServiceAccount", "name": "gpufence", "namespace": "gpufence"}])
            );
            let specs = pod_specs(&objects);
            assert_eq!(specs[0]["automountServiceAccountToken"], true, "{tls:?}");
            // A cluster is in its memory then, and in nobody else's.
            let memory = |spec: &Value| spec["containers"][0]["resources"]["limits"]["memory"].clone();
            assert_eq!((memory(specs[0]), memory(specs[1])), (json!("1Gi"), json!("192Mi")));
            assert!(of_kind(&objects, "CronJob").is_empty());
        }
    }
    let off = enforcing(&AUDITS.replace("REPORTS", "openreports").replace("15m", "0s"));
    let objects = rendered(&off, &Options::default()).objects;
    assert_eq!(rules(&objects, "ClusterRole", "gpufence"), ["/nodes: get,list,watch"]);
    assert_eq!(of_kind(&objects, "Lease").len(), 1);
}

#[test]
fn a_replica_that_audits_has_a_token_and_a_way_to_the_api_server() {
    let yaml = enforcing("rules: {node-name-bypass: 'off'}\naudit: {interval: 1h}");
    let options = Options { tls: Tls::Files { ca: None }, network_policy: true, ..Options::default() };
    let objects = rendered(&yaml, &options).objects;
    assert_eq!(pod_specs(&objects)[0]["automountServiceAccountToken"], true);
    let egress = &named(&objects, "NetworkPolicy", "gpufence")["spec"]["egress"];
    assert_eq!(egress.as_array().unwrap().len(), 2, "{egress}");
    let quiet = rendered(&yaml.replace("1h", "0s"), &options).objects;
    assert_eq!(pod_specs(&quiet)[0]["automountServiceAccountToken"], false);
    assert_eq!(named(&quiet, "NetworkPolicy", "gpufence")["spec"]["egress"], json!([]));
}

#[test]
fn a_cron_job_audits_where_one_is_wanted() {
    let options = Options {
        audit_cron_job: Some("*/30 6-18 * * MON-FRI".to_owned()),
        network_policy: true,
        ..Options::default()
    };
    let yaml = enforcing(&AUDITS.replace("REPORTS", "none").replace("15m", "0s"));
    let objects = rendered(&yaml, &options).objects;
    let cron_job = named(&objects, "CronJob", "gpufence-audit");
    assert_eq!(cron_job["metadata"]["namespace"], "gpufence");
    let spec = &cron_job["spec"];
    assert_eq!((&spec["schedule"], &spec["concurrencyPolicy"]), (&json!("*/30 6-18 * * MON-FRI"), &json!("Forbid")));
    assert_eq!((&spec["successfulJobsHistoryLimit"], &spec["failedJobsHistoryLimit"]), (&json!(1), &json!(3)));
    let job = &spec["jobTemplate"]["spec"];
    assert_eq!((&job["backoffLimit"], &job["activeDeadlineSeconds"]), (&json!(0), &json!(1800)));
    let pod = &job["template"]["spec"];
    assert_eq!((&pod["serviceAccountName"], &pod["restartPolicy"]), (&json!("gpufence-audit"), &json!("Never")));
    assert_eq!(pod["automountServiceAccountToken"], true);
    assert!(pod.get("priorityClassName").is_none(), "an audit may wait");
    // As restricted as the others, and by the same contract.
    let webhook = pod_specs(&objects)[0];
    assert_eq!(pod["securityContext"], webhook["securityContext"]);
    assert_eq!(pod["affinity"], webhook["affinity"]);
    assert_eq!(pod["volumes"][0], webhook["volumes"][0]);
    let (container, other) = (&pod["containers"][0], &webhook["containers"][0]);
    for field in ["image", "securityContext"] {
        assert_eq!(container[field], other[field], "{field}");
    }
    assert_eq!(container["volumeMounts"][0], other["volumeMounts"][0]);
    assert_eq!(container["env"], json!([other["env"][0]]));
    assert_eq!(container["resources"]["limits"], json!({"memory": "1Gi"}));
    assert_eq!(container["args"], json!(["audit", "--output", "text", "--fail-on", "high"]));
    // It reads, in its own name, and nobody else may do more for it.
    let mut found = rules(&objects, "ClusterRole", "gpufence-audit");
    found.sort();
    assert_eq!(found, reads());
    assert_eq!(rules(&objects, "ClusterRole", "gpufence"), ["/nodes: get,list,watch"]);
    let binding = named(&objects, "ClusterRoleBinding", "gpufence-audit");
    assert_eq!(binding["roleRef"]["name"], "gpufence-audit");
    assert_eq!(binding["subjects"][0]["name"], "gpufence-audit");
    assert_eq!(named(&objects, "ServiceAccount", "gpufence-audit")["automountServiceAccountToken"], false);
    assert_eq!(of_kind(&objects, "Lease").len(), 1);
    // Nobody calls it, the Service and the budget of the webhook are not about it, and it calls the API server alone.
    let labels = &job["template"]["metadata"]["labels"];
    let network = &named(&objects, "NetworkPolicy", "gpufence-audit")["spec"];
    assert_eq!(&network["podSelector"]["matchLabels"], labels);
    assert_eq!(network["ingress"], json!([]));
    assert_eq!(network["egress"].as_array().unwrap().len(), 2);
    assert_ne!(&named(&objects, "Service", "gpufence")["spec"]["selector"], labels);
    // What the contract is for holds for its own pod as well.
    let text = cron_job.to_string();
    let workload = Kind::CronJob.read(&text).unwrap();
    let request = Request { namespace: "gpufence", username: "someone", groups: &[], object: &workload, old: None };
    assert_eq!(request.decide_with(&policy(&yaml), Phase::Validating, &NoFacts), Decision::quiet(Mode::Enforce));
    // With the reports that the contract wants.
    let reporting = enforcing("audit: {reports: policyreports}");
    let objects = rendered(&reporting, &options).objects;
    let args = &named(&objects, "CronJob", "gpufence-audit")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        [0]["args"];
    assert_eq!(*args, json!(["audit", "--output", "text", "--fail-on", "high", "--report", "policyreports"]));
    assert!(of_kind(&rendered(&yaml, &Options::default()).objects, "CronJob").is_empty());
}

/// Beside an installation that others rendered: nothing of that is rendered again.
#[test]
fn the_cron_job_can_be_had_alone() {
    let schedule = Some("@daily".to_owned());
    let options = Options { audit_cron_job: schedule, only_audit: true, network_policy: true, ..Options::default() };
    let yaml = enforcing(&AUDITS.replace("REPORTS", "openreports"));
    let alone = rendered(&yaml, &options);
    let names: Vec<_> = alone
        .objects
        .iter()
        .map(|object| format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            "ServiceAccount gpufence-audit",
            "ClusterRole gpufence-audit",
            "ClusterRoleBinding gpufence-audit",
            "CronJob gpufence-audit",
            "NetworkPolicy gpufence-audit"
        ]
    );
    let all = rendered(&yaml, &Options { only_audit: false, ..options.clone() }).objects;
    assert!(alone.objects.iter().all(|object| all.contains(object)), "they are the same as in the whole");
    assert_eq!(rendered(&yaml, &Options { network_policy: false, ..options }).objects.len(), 4);
    let image = "registry.example.com/gpufence:0.1.0";
    let (code, out, err) = run(&["--image", image, "--audit-cron-job", "0 6 * * *", "--only-audit"], &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.contains(&format!("gpufence manifests --image {image} --audit-cron-job '0 6 * * *' --only-audit\n")),
        "{out}"
    );
    assert_eq!((parsed(&out).len(), out.matches(image).count()), (4, 2));
    let (code, _, err) = run(&["--only-audit"], &[]);
    assert!(code == 2 && err.contains("--audit-cron-job <SCHEDULE>"), "{err}");
}

#[test]
fn a_schedule_is_five_fields_or_a_word() {
    let with = |schedule: &str, kubernetes: &str| {
        let options = Options {
            audit_cron_job: Some(schedule.to_owned()),
            kubernetes: kubernetes.parse().unwrap(),
            ..Options::default()
        };
        render(&contract(&enforcing("")), &options)
    };
    for schedule in ["0 6 * * *", "*/5 0-6,22 1,15 JAN-MAR ?", "@daily", "@hourly"] {
        assert!(with(schedule, "1.36").is_ok(), "{schedule}");
    }
    for schedule in [
        "",
        "daily",
        "@often",
        "0 6 * *",
        "0 6 * * * *",
        "0  6 * * *",
        "0 6 * * *\n",
        "TZ=UTC 0 6 * * *",
        "0 6 * * $(x)",
    ] {
        assert_eq!(with(schedule, "1.36").unwrap_err(), OptionError::Schedule(schedule.to_owned()));
    }
    assert!(with("0 6 * * *", "1.21").is_ok());
    let old = with("0 6 * * *", "1.20").unwrap_err().to_string();
    assert_eq!(
        old,
        "--audit-cron-job cannot be had with Kubernetes 1.20, which has no CronJob of batch/v1; valid is 1.21 or newer, or \
         audit.interval in the contract"
    );
}

#[test]
fn no_pod_can_ever_be_in_the_probe_namespace() {
    let objects = rendered(&enforcing(""), &Options { namespace: "fence".to_owned(), ..Options::default() }).objects;
    let quota = named(&objects, "ResourceQuota", "no-pods");
    assert_eq!(quota["metadata"]["namespace"], "fence-probe");
    assert_eq!(quota["spec"], json!({"hard": {"pods": "0"}}));
    for name in ["fence", "fence-probe"] {
        let labels = &named(&objects, "Namespace", name)["metadata"]["labels"];
        for mode in ["enforce", "audit", "warn"] {
            assert_eq!(labels[format!("pod-security.kubernetes.io/{mode}")], "restricted");
        }
    }
}

#[test]
fn network_policies_open_what_is_used() {
    let render = |contract: &str, network_policy, tls: Tls| {
        rendered(&enforcing(contract), &Options { network_policy, tls, ..Options::default() }).objects
    };
    let render_with = |network_policy, tls| render("", network_policy, tls);
    assert!(of_kind(&render_with(false, Tls::Managed), "NetworkPolicy").is_empty());
    let ports = |rules: &Value| {
        let rules = rules.as_array().unwrap().iter();
        let ports = rules.flat_map(|rule| rule["ports"].as_array().unwrap().iter());
        ports
            .map(|port| format!("{}/{}", port["protocol"].as_str().unwrap(), port["port"]))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let objects = render_with(true, Tls::Managed);
    let server = &named(&objects, "NetworkPolicy", "gpufence")["spec"];
    assert_eq!(server["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(ports(&server["ingress"]), r#"TCP/"https" TCP/"metrics""#);
    // From anywhere: an API server has no address that could be named.
    assert!(server["ingress"][0].get("from").is_none());
    assert_eq!(ports(&server["egress"]), "UDP/53 TCP/53 TCP/443 TCP/6443");
    let controller = &named(&objects, "NetworkPolicy", "gpufence-controller")["spec"];
    assert_eq!(ports(&controller["ingress"]), r#"TCP/"metrics""#);
    assert_eq!(ports(&controller["egress"]), r#"UDP/53 TCP/53 TCP/443 TCP/6443 TCP/"https""#);
    let pods = of_kind(&objects, "Deployment");
    for (policy, deployment) in [(server, pods[0]), (controller, pods[1])] {
        assert_eq!(policy["podSelector"]["matchLabels"], deployment["spec"]["template"]["metadata"]["labels"]);
    }
    // Without anything to read it calls nobody.
    let silent = render("rules: {node-name-bypass: 'off'}", true, Tls::Files { ca: None });
    assert_eq!(named(&silent, "NetworkPolicy", "gpufence")["spec"]["egress"], json!([]));
    let reads_nodes = render_with(true, Tls::Files { ca: None });
    let egress = &named(&reads_nodes, "NetworkPolicy", "gpufence")["spec"]["egress"];
    assert_eq!(ports(egress), "UDP/53 TCP/53 TCP/443 TCP/6443");
}

#[test]
fn metrics_are_found_by_pod_or_by_service() {
    let with = |monitor| rendered(&enforcing(""), &Options { monitor, ..Options::default() }).objects;
    assert!(!with(Monitor::None).iter().any(|object| object["kind"].as_str().unwrap().ends_with("Monitor")));
    let objects = with(Monitor::Service);
    let selector = &named(&objects, "ServiceMonitor", "gpufence")["spec"]["selector"]["matchLabels"];
    let labels = &named(&objects, "Service", "gpufence")["metadata"]["labels"];
    for (key, value) in selector.as_object().unwrap() {
        assert_eq!(&labels[key], value);
    }
    let objects = with(Monitor::Pod);
    assert_eq!(named(&objects, "PodMonitor", "gpufence")["spec"]["podMetricsEndpoints"], json!([{"port": "metrics"}]));
}

#[test]
fn what_cannot_be_rendered_is_refused_whole() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.pem");
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n").unwrap();
    let text = folder.path().join("text.pem");
    std::fs::write(&text, "hello\n").unwrap();
    let broken = folder.path().join("broken.pem");
    std::fs::write(&broken, "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n").unwrap();
    let [key, text, broken] = [&key, &text, &broken].map(|path| path.to_str().unwrap());
    let enforce: Environment<'_> = &[("GPUFENCE__MODE", "enforce")];
    let cases: &[(Arguments<'_>, Environment<'_>, &[&str])] = &[
        (
            &["--validating-failure-policy", "Fail"],
            &[],
            &["--validating-failure-policy Fail", "mode: audit", "Valid is"],
        ),
        (
            &["--audit-only", "--validating-failure-policy", "Fail"],
            enforce,
            &["--validating-failure-policy Fail", "with --audit-only", "Valid is"],
        ),
        (
            &["--audit-only", "--mutating-failure-policy", "Fail"],
            enforce,
            &["--mutating-failure-policy Fail", "--audit-only"],
        ),
        (&["--mutating-failure-policy", "Fail"], &[("GPUFENCE__MODE", "warn")], &["mode: warn"]),
        (&["--validating-failure-policy", "fail"], enforce, &["possible values: Fail, Ignore"]),
        (&["--namespace", "Fence"], &[], &["\"Fence\"", "such as gpufence"]),
        (&["--namespace", "kube-system"], &[], &["\"kube-system\"", "of its own"]),
        (&["--namespace", "default"], &[], &["\"default\""]),
        (&["--namespace", &"a".repeat(58)], &[], &["at most 57"]),
        (&["--image", "gpu fence"], &[], &["\"gpu fence\"", "registry.example.com"]),
        (&["--image", ""], &[], &["\"\" is no image"]),
        (&["--replicas", "0"], &[], &["0 replicas; valid is 1 to 100"]),
        (&["--replicas", "-1"], &[], &["-1"]),
        (&["--kubernetes-version", "1.19"], &[], &["\"1.19\"; valid is 1.20 or newer, such as 1.36"]),
        (&["--kubernetes-version", "2.0"], &[], &["\"2.0\""]),
        (&["--kubernetes-version", "1.+30"], &[], &["\"1.+30\""]),
        (&["--priority-class", "No Class"], &[], &["\"No Class\""]),
        (&["--ca-file", "ca.pem"], &[], &["--ca-file is only for --tls files"]),
        (&["--tls", "cert-manager", "--ca-file", "ca.pem"], &[], &["--ca-file is only for --tls files"]),
        (&["--tls", "files", "--ca-file", "missing.pem"], &[], &["cannot read the CA file missing.pem"]),
        (&["--tls", "files", "--ca-file", key], &[], &["holds a private key", "valid is PEM"]),
        (&["--tls", "files", "--ca-file", text], &[], &["holds no certificate"]),
        (&["--tls", "files", "--ca-file", broken], &[], &["holds a certificate that cannot be read"]),
        (&["--tls", "self-signed"], &[], &["possible values: managed, files, cert-manager"]),
        (&["--config", "missing.yaml"], &[], &["missing.yaml"]),
        (&[], &[("GPUFENCE__MODE", "loud")], &["loud"]),
        (&[], &[("GPUFENCE__SERVER__LISTEN", "127.0.0.1:8443")], &["server.listen is 127.0.0.1:8443", "0.0.0.0:8443"]),
        (&[], &[("GPUFENCE__SERVER__METRICS", "0.0.0.0:0")], &["server.metrics is 0.0.0.0:0", "0.0.0.0:9090"]),
        (&[], &[("GPUFENCE__SERVER__METRICS", "0.0.0.0:8443")], &["server.metrics is 0.0.0.0:8443"]),
    ];
    for (arguments, environment, parts) in cases {
        let (code, out, errors) = run(arguments, environment);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?} {environment:?}: {errors}");
        for part in *parts {
            assert!(errors.contains(part), "{arguments:?}: {part:?} is not in {errors}");
        }
    }
    assert_eq!(run(&["--replicas", "1", "--image", "r.example.com/a_b/gpufence:v1-x@sha256:0"], &[]).0, 0);
}

#[test]
fn the_head_says_how_to_render_the_same_again() {
    for (name, arguments, environment) in GOLDEN {
        let text = run(arguments, environment).1;
        let (_, command) = text.lines().next().unwrap().split_once(": ").unwrap();
        let (variables, again) = command.split_once("gpufence manifests").unwrap();
        let variables: Vec<_> = variables.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
        let again = again.replace("FILE", "ca.pem");
        // Every other piece stands between quotes.
        let pieces = again.split('\'').enumerate();
        let words = |(index, piece): (usize, _)| -> Vec<&str> {
            if index.is_multiple_of(2) { str::split_whitespace(piece).collect() } else { vec![piece] }
        };
        let again: Vec<_> = pieces.flat_map(words).collect();
        assert_eq!(run(&again, &variables).1, text, "{name}: {command}");
    }
}

#[test]
fn a_version_may_be_written_as_kubectl_says_it() {
    let minor = |text| run(&["--kubernetes-version", text], &[]).1;
    for text in ["v1.29", "1.29.7", "v1.29.4-gke.1043002", "1.29+"] {
        assert_eq!(minor(text), minor("1.29"), "{text}");
    }
}

/// kubectl's own copy of it would not fit into an annotation.
#[test]
fn a_contract_too_large_for_a_client_side_apply_comes_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.yaml");
    let names: Vec<_> = (0..7000).map(|number| format!("team-number-{number:0>20}")).collect();
    let pool = serde_json::json!([{
        "name": "nvidia",
        "resources": ["nvidia.com/gpu"],
        "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
        "nodeSelector": {"accelerator": "nvidia"},
        "namespaces": {"names": names},
    }]);
    std::fs::write(&file, serde_json::json!({"pools": pool}).to_string()).unwrap();
    let (code, text, errors) = run(&["--config", file.to_str().unwrap()], &[]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let head: String = text.lines().take_while(|line| line.starts_with('#')).collect();
    assert!(head.contains("--server-side --force-conflicts"), "{head}");
    assert!(text.starts_with("# Rendered by gpufence 0.1.0: gpufence manifests --config large.yaml\n"), "{head}");
}
