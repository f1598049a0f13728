//! The contract: every fault is refused at load by its key's path, with what was found, what is valid and
//! where it was written; layers lie over each other as documented; what is printed loads again.

use std::path::Path;

use gpufence::contract::{BUILT_IN, Contract, ContractError, Fault, Reports, TlsSource};
use gpufence::policy::{Action, Mode, Rule};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::{contract, try_contract};

/// The faults of a contract given as YAML over the built-in one.
fn faults(yaml: &str) -> Vec<Fault> {
    match try_contract(yaml) {
        Err(ContractError::Invalid(faults)) => faults,
        other => panic!("expected faults, and there is {other:?}\n{yaml}"),
    }
}

/// What is wrong with a contract of which nothing can be read.
fn syntax_error(yaml: &str) -> String {
    match try_contract(yaml) {
        Err(error @ ContractError::Syntax { .. }) => error.to_string(),
        other => panic!("expected a syntax error, and there is {other:?}\n{yaml}"),
    }
}

/// `path: found F; valid is V` of each fault, in order.
fn told(yaml: &str) -> Vec<String> {
    faults(yaml)
        .iter()
        .map(|Fault { path, found, valid, .. }| format!("{path}: found {found}; valid is {valid}"))
        .collect()
}

/// A contract with one pool, sound but for the fields given.
fn pool(fields: &Value) -> String {
    json!({ "pools": [sound_pool("p", fields)] }).to_string()
}

fn sound_pool(name: &str, fields: &Value) -> Value {
    let mut pool = json!({
        "name": name,
        "resources": ["nvidia.com/gpu"],
        "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
        "nodeSelector": {"accelerator": name},
        "namespaces": {"names": ["ml-team"]},
    });
    for (key, value) in fields.as_object().unwrap() {
        pool[key] = value.clone();
    }
    pool
}

fn exemption(fields: &Value) -> String {
    let mut exemption = json!({"name": "e", "reason": "r", "namespaces": ["kube-system"], "daemonSets": ["*"]});
    for (key, value) in fields.as_object().unwrap() {
        exemption[key] = value.clone();
    }
    json!({ "exemptions": [exemption] }).to_string()
}

/// Every row is one fault and no other, at a key that the file itself writes.
fn each_is_refused<'r>(rows: impl IntoIterator<Item = (String, &'r str)>) {
    for (yaml, expected) in rows {
        assert_eq!(told(&yaml), [expected], "{yaml}");
        let fault = &faults(&yaml)[0];
        assert!(fault.origin.ends_with("contract.yaml"), "{fault}");
        assert_eq!(fault.to_string(), format!("{}: {expected}", fault.origin));
    }
}

fn rows<'r, const N: usize>(rows: [(&str, &'r str); N]) -> impl Iterator<Item = (String, &'r str)> {
    rows.into_iter().map(|(yaml, expected)| (yaml.to_owned(), expected))
}

const QUALIFIED: &str = "valid is a qualified name, such as dedicated or gpu.example.com/model";
const LABEL_VALUE: &str = "valid is at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";

#[test]
fn unknown_keys_are_refused_at_every_level() {
    each_is_refused(rows([
        (
            "modes: audit",
            "modes: found the unknown key modes; valid is one of mode, contact, pools, selection, exemptions, rules, levers, \
             templates, injection, customResources, nodes, identities, rollout, audit, server, tls, log",
        ),
        (
            "rules: {node-name: deny}",
            "rules.node-name: found the unknown key node-name; valid is one of toleration-outside-allowlist, \
             gpu-request-outside-allowlist, node-name-bypass, not-understood, lever-change, broad-toleration, \
             toleration-without-gpu-request, placement-conflict, placement-missing",
        ),
        (
            "injection: {whentolerated: skip}",
            "injection.whentolerated: found the unknown key whentolerated; valid is one of whenTolerated, fenceOrdinary",
        ),
        (
            "identities: {kubelet: x}",
            "identities.kubelet: found the unknown key kubelet; valid is one of daemonSetController, replicaSetController, \
             statefulSetController, jobController, replicationController, schedulers",
        ),
        ("audit: {every: 1h}", "audit.every: found the unknown key every; valid is one of interval, reports"),
        ("server: {port: x}", "server.port: found the unknown key port; valid is one of listen, metrics, drain"),
        ("tls: {ca: x}", "tls.ca: found the unknown key ca; valid is one of source, cert, key, names, minimum"),
        ("log: {colour: x}", "log.colour: found the unknown key colour; valid is one of level, format"),
        (
            "rollout: [{namespaces: [a], mode: warn, until: x}]",
            "rollout[0].until: found the unknown key until; valid is one of namespaces, selector, mode",
        ),
    ]));
    each_is_refused([
        (
            pool(&json!({"labels": {}})),
            "pools[0].labels: found the unknown key labels; valid is one of name, resources, taints, nodeSelector, \
             namespaces, models, priorityClassName, markers",
        ),
        (
            pool(&json!({"taints": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]})),
            "pools[0].taints[0].operator: found the unknown key operator; valid is one of key, value, effect",
        ),
        (
            pool(&json!({"namespaces": {"globs": ["a"]}})),
            "pools[0].namespaces.globs: found the unknown key globs; valid is one of names, selector",
        ),
        (
            pool(&json!({"namespaces": {"selector": {"matchLabels": {"a": "b"}, "labels": {}}}})),
            "pools[0].namespaces.selector.labels: found the unknown key labels; valid is one of matchLabels, \
             matchExpressions",
        ),
        (
            pool(
                &json!({"namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "value": "x"}]}}}),
            ),
            "pools[0].namespaces.selector.matchExpressions[0].value: found the unknown key value; valid is one of key, \
             operator, values",
        ),
        (
            pool(&json!({"models": {"annotation": "a", "nodeLabel": "b", "values": ["c"], "default": "c"}})),
            "pools[0].models.default: found the unknown key default; valid is one of annotation, nodeLabel, values",
        ),
        (
            exemption(&json!({"serviceAccount": ["a"]})),
            "exemptions[0].serviceAccount: found the unknown key serviceAccount; valid is one of name, reason, owner, expires, \
             pools, rules, namespaces, users, groups, serviceAccounts, owners, daemonSets",
        ),
    ]);
}

#[test]
fn wrong_types_are_refused_and_nothing_is_coerced() {
    each_is_refused(rows([
        ("mode: 5", "mode: found the number 5; valid is a string: write \"5\""),
        ("mode: [audit]", "mode: found a list; valid is a string"),
        ("contact: [x]", "contact: found a list; valid is a string"),
        ("contact: yes\ntemplates: true", "templates: found the boolean true; valid is a string: write \"true\""),
        ("pools: nvidia", "pools: found \"nvidia\"; valid is a list"),
        (
            "pools: [nvidia]",
            "pools[0]: found \"nvidia\"; valid is a map with the keys name, resources, taints, nodeSelector, namespaces, models, priorityClassName, markers",
        ),
        ("exemptions: x", "exemptions: found \"x\"; valid is a list"),
        (
            "rules: deny",
            "rules: found \"deny\"; valid is a map with the keys toleration-outside-allowlist, gpu-request-outside-allowlist, node-name-bypass, not-understood, lever-change, broad-toleration, toleration-without-gpu-request, placement-conflict, placement-missing",
        ),
        (
            "rules: {placement-missing: 1}",
            "rules.placement-missing: found the number 1; valid is a string: write \"1\"",
        ),
        ("rollout: audit", "rollout: found \"audit\"; valid is a list"),
        (
            "identities: {daemonSetController: [1]}",
            "identities.daemonSetController[0]: found the number 1; valid is a string: write \"1\"",
        ),
        (
            "server: {listen: 8443}",
            "server.listen: found the number 8443; valid is an address and a port, such as 0.0.0.0:8443",
        ),
        ("tls: {minimum: 1.3}", "tls.minimum: found the number 1.3; valid is a string: write \"1.3\""),
        ("tls: {names: gpufence.svc}", "tls.names: found \"gpufence.svc\"; valid is a list"),
        ("log: info", "log: found \"info\"; valid is a map with the keys level, format"),
    ]));
    each_is_refused([
        (pool(&json!({"name": 7})), "pools[0].name: found the number 7; valid is a string: write \"7\""),
        (
            pool(&json!({"resources": "nvidia.com/gpu"})),
            "pools[0].resources: found \"nvidia.com/gpu\"; valid is a list",
        ),
        (pool(&json!({"taints": {"key": "a"}})), "pools[0].taints: found a map; valid is a list"),
        (
            pool(&json!({"taints": ["a=b:NoSchedule"]})),
            "pools[0].taints[0]: found \"a=b:NoSchedule\"; valid is a map with the keys key, value, effect",
        ),
        (
            pool(&json!({"taints": [{"key": "a", "value": true, "effect": "NoSchedule"}]})),
            "pools[0].taints[0].value: found the boolean true; valid is a string: write \"true\"",
        ),
        (
            pool(&json!({"nodeSelector": {"gpu.example.com/present": true}})),
            "pools[0].nodeSelector[\"gpu.example.com/present\"]: found the boolean true; valid is a string: write \"true\"",
        ),
        (
            pool(&json!({"namespaces": ["ml-team"]})),
            "pools[0].namespaces: found a list; valid is a map with the keys names, selector",
        ),
        (
            pool(&json!({"namespaces": {"names": "ml-team"}})),
            "pools[0].namespaces.names: found \"ml-team\"; valid is a list",
        ),
    ]);
}

#[test]
fn one_mistake_is_one_fault() {
    each_is_refused([
        (
            "identities: {daemonSetController: me}".to_owned(),
            "identities.daemonSetController: found \"me\"; valid is a list",
        ),
        (
            pool(&json!({"models": {"annotation": "a", "nodeLabel": "b", "values": "c"}})),
            "pools[0].models.values: found \"c\"; valid is a list",
        ),
        (pool(&json!({"nodeSelector": "a=b"})), "pools[0].nodeSelector: found \"a=b\"; valid is a map of labels"),
    ]);
}

#[test]
fn names_words_and_numbers_must_be_ones() {
    let dns = "valid is a name of at most 63 lower-case letters, digits and '-', such as ml-team";
    let line = "valid is one line of 1 to 120 characters";
    let address = "valid is an address and a port, such as";
    let level = "valid is off, error, warn, info, debug or trace, or such for modules: info,gpufence::decision=debug";
    let drain = "valid is a number of seconds of at most 600, such as 12s";
    let interval = "valid is 0s for no audits, or a time from 1m to 7d such as 15m or 6h";
    let long = "x".repeat(121);
    let owned = [
        ("audit: {interval: often}".to_owned(), format!("audit.interval: found \"often\"; {interval}")),
        ("audit: {interval: 59s}".to_owned(), format!("audit.interval: found \"59s\"; {interval}")),
        ("audit: {interval: 8d}".to_owned(), format!("audit.interval: found \"8d\"; {interval}")),
        ("audit: {interval: 1h30m}".to_owned(), format!("audit.interval: found \"1h30m\"; {interval}")),
        ("audit: {interval: +5m}".to_owned(), format!("audit.interval: found \"+5m\"; {interval}")),
        ("audit: {interval: m}".to_owned(), format!("audit.interval: found \"m\"; {interval}")),
        ("audit: {interval: 99999999999999999999d}".to_owned(), format!("audit.interval: found \"99999999999999999999d\"; {interval}")),
        ("audit: {interval: 999999999999999999d}".to_owned(), format!("audit.interval: found \"999999999999999999d\"; {interval}")),
        ("audit: {interval: 300}".to_owned(), format!("audit.interval: found the number 300; {interval}")),
        ("audit: {interval: ~}".to_owned(), format!("audit.interval: found nothing; {interval}")),
        ("audit: {reports: kyverno}".to_owned(), "audit.reports: found \"kyverno\"; valid is none, openreports, policyreports".to_owned()),
        (r#"{"mode": "enforced"}"#.to_owned(), "mode: found \"enforced\"; valid is audit, warn, enforce".to_owned()),
        ("mode: Audit".to_owned(), "mode: found \"Audit\"; valid is audit, warn, enforce".to_owned()),
        ("templates: refuse".to_owned(), "templates: found \"refuse\"; valid is off, audit, warn, deny".to_owned()),
        ("rules: {broad-toleration: Deny}".to_owned(), "rules.broad-toleration: found \"Deny\"; valid is off, audit, warn, deny".to_owned()),
        ("rollout: [{namespaces: [a], mode: off}]".to_owned(), "rollout[0].mode: found \"off\"; valid is audit, warn, enforce".to_owned()),
        ("injection: {whenTolerated: merge}".to_owned(), "injection.whenTolerated: found \"merge\"; valid is add, skip".to_owned()),
        ("contact: ''".to_owned(), format!("contact: found \"\"; {line}")),
        ("contact: \"a\\nb\"".to_owned(), format!("contact: found \"a\u{fffd}b\"; {line}")),
        (format!("contact: {long}"), format!("contact: found \"{long}\"; {line}")),
        ("server: {listen: '8443'}".to_owned(), format!("server.listen: found \"8443\"; {address} 0.0.0.0:8443")),
        ("server: {listen: 'localhost:8443'}".to_owned(), format!("server.listen: found \"localhost:8443\"; {address} 0.0.0.0:8443")),
        ("server: {metrics: '0.0.0.0:90900'}".to_owned(), format!("server.metrics: found \"0.0.0.0:90900\"; {address} 0.0.0.0:9090")),
        ("log: {level: warning}".to_owned(), format!("log.level: found \"warning\"; {level}")),
        ("log: {level: 'gpufence=loud'}".to_owned(), format!("log.level: found \"gpufence=loud\"; {level}")),
        (
            "identities: {daemonSetController: ['*']}".to_owned(),
            "identities.daemonSetController[0]: found \"*\"; valid is the whole name of a user, such as system:serviceaccount:NAMESPACE:NAME, without globs".to_owned(),
        ),
        ("server: {drain: '12'}".to_owned(), format!("server.drain: found \"12\"; {drain}")),
        ("server: {drain: 601s}".to_owned(), format!("server.drain: found \"601s\"; {drain}")),
        ("server: {drain: -1s}".to_owned(), format!("server.drain: found \"-1s\"; {drain}")),
        ("server: {drain: 1m}".to_owned(), format!("server.drain: found \"1m\"; {drain}")),
        ("tls: {source: acme}".to_owned(), "tls.source: found \"acme\"; valid is self-signed, files, managed".to_owned()),
        ("tls: {source: managed, cert: a}".to_owned(), "tls.cert: found a file with the source managed; valid is this key only with the source files".to_owned()),
        ("tls: {source: managed, key: a}".to_owned(), "tls.key: found a file with the source managed; valid is this key only with the source files".to_owned()),
        ("tls: {source: managed, names: [a]}".to_owned(), "tls.names: found names with the source managed; valid is this key only with the source self-signed".to_owned()),
        ("tls: {minimum: '1.1'}".to_owned(), "tls.minimum: found \"1.1\"; valid is 1.2, 1.3".to_owned()),
        ("log: {format: yaml}".to_owned(), "log.format: found \"yaml\"; valid is auto, text, json".to_owned()),
        ("tls: {cert: a}".to_owned(), "tls.cert: found a file with the source self-signed; valid is this key only with the source files".to_owned()),
        ("tls: {key: a}".to_owned(), "tls.key: found a file with the source self-signed; valid is this key only with the source files".to_owned()),
        (pool(&json!({"name": "GPU Pool"})), format!("pools[0].name: found \"GPU Pool\"; {dns}")),
        (pool(&json!({"name": "-a"})), format!("pools[0].name: found \"-a\"; {dns}")),
        (pool(&json!({"nodeSelector": {"a b": "c"}})), format!("pools[0].nodeSelector.a b: found the key a b; {QUALIFIED}")),
        (pool(&json!({"nodeSelector": {"a": "b c"}})), format!("pools[0].nodeSelector.a: found \"b c\"; {LABEL_VALUE}")),
        (exemption(&json!({"name": "Node Agents"})), format!("exemptions[0].name: found \"Node Agents\"; {dns}")),
        (exemption(&json!({"reason": " "})), format!("exemptions[0].reason: found \" \"; {line}")),
        (exemption(&json!({"owner": " "})), format!("exemptions[0].owner: found \" \"; {line}")),
        (
            exemption(&json!({"daemonSets": ["Node_Agent"]})),
            "exemptions[0].daemonSets[0]: found \"Node_Agent\"; valid is an object's name, such as node-exporter, or a glob of such"
                .to_owned(),
        ),
    ];
    each_is_refused(owned.iter().map(|(yaml, expected)| (yaml.clone(), expected.as_str())));
}

#[test]
fn a_taint_must_keep_pods_off() {
    let taint = |key: &str, value: &str, effect: &str| {
        pool(&json!({"taints": [{"key": key, "value": value, "effect": effect}]}))
    };
    let effect = |found: &str| format!("pools[0].taints[0].effect: found \"{found}\"; valid is NoSchedule, NoExecute");
    let owned = [
        (taint("a", "b", "PreferNoSchedule"), effect("PreferNoSchedule")),
        (taint("a", "b", "noschedule"), effect("noschedule")),
        (taint("a", "b", ""), effect("")),
        (taint("", "b", "NoSchedule"), format!("pools[0].taints[0].key: found \"\"; {QUALIFIED}")),
        (taint("a/b/c", "b", "NoSchedule"), format!("pools[0].taints[0].key: found \"a/b/c\"; {QUALIFIED}")),
        (taint("a", "b=c", "NoSchedule"), format!("pools[0].taints[0].value: found \"b=c\"; {LABEL_VALUE}")),
    ];
    each_is_refused(owned.iter().map(|(yaml, expected)| (yaml.clone(), expected.as_str())));
}

#[test]
fn empty_lists_and_selectors_are_refused() {
    each_is_refused([
        ("pools: []".to_owned(), "pools: found an empty list; valid is at least one pool"),
        (
            "rollout: [{namespaces: [], mode: audit}]".to_owned(),
            "rollout[0].namespaces: found an empty list; valid is at least one namespace",
        ),
        (
            "rollout: [{selector: {}, mode: audit}]".to_owned(),
            "rollout[0].selector: found an empty selector; valid is at least one label: an empty selector matches every \
             namespace",
        ),
        (
            "identities: {daemonSetController: []}".to_owned(),
            "identities.daemonSetController: found an empty list; valid is at least one user name",
        ),
        (
            pool(&json!({"resources": []})),
            "pools[0].resources: found an empty list; valid is at least one extended resource",
        ),
        (pool(&json!({"taints": []})), "pools[0].taints: found an empty list; valid is at least one taint"),
        (
            pool(&json!({"nodeSelector": {}})),
            "pools[0].nodeSelector: found an empty nodeSelector; valid is at least one label of the pool's nodes",
        ),
        (
            pool(&json!({"namespaces": {"selector": {}}})),
            "pools[0].namespaces.selector: found an empty selector; valid is at least one label: an empty selector \
             matches every namespace",
        ),
        (
            pool(&json!({"namespaces": {"selector": {"matchLabels": {}, "matchExpressions": []}}})),
            "pools[0].namespaces.selector: found an empty selector; valid is at least one label: an empty selector \
             matches every namespace",
        ),
        (
            pool(
                &json!({"namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}}),
            ),
            "pools[0].namespaces.selector.matchExpressions[0]: found 0 values with the operator In; valid is at least \
             one value",
        ),
        (
            pool(
                &json!({"namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}}),
            ),
            "pools[0].namespaces.selector.matchExpressions[0]: found 1 values with the operator Exists; valid is no \
             values with this operator",
        ),
        (
            pool(&json!({"models": {"annotation": "a", "nodeLabel": "b", "values": []}})),
            "pools[0].models.values: found an empty list; valid is at least one model",
        ),
        (
            exemption(&json!({"namespaces": []})),
            "exemptions[0].namespaces: found an empty list; valid is at least one namespace",
        ),
        (
            exemption(&json!({"daemonSets": []})),
            "exemptions[0].daemonSets: found an empty list; valid is at least one DaemonSet's name",
        ),
    ]);
}

#[test]
fn what_asks_for_a_gpu_and_names_a_pool_must_be_able_to() {
    let markers = |markers: &Value| pool(&json!({"markers": markers}));
    let with = |selection: Value, fields: &Value| {
        json!({"selection": selection, "pools": [sound_pool("p", fields)]}).to_string()
    };
    let models = json!({"annotation": "gpu.example.com/model", "nodeLabel": "m", "values": ["a"]});
    each_is_refused([
        (
            markers(&json!({})),
            "pools[0].markers: found neither claims nor annotations; valid is a list of resource claims, of annotations, \
             or both",
        ),
        (
            markers(&json!({"claims": ["*"], "labels": ["a"]})),
            "pools[0].markers.labels: found the unknown key labels; valid is one of claims, annotations",
        ),
        (
            markers(&json!({"claims": [], "annotations": ["a"]})),
            "pools[0].markers.claims: found an empty list; valid is at least one name",
        ),
        (
            markers(&json!({"annotations": []})),
            "pools[0].markers.annotations: found an empty list; valid is at least one annotation",
        ),
        (
            markers(&json!({"claims": ["GPU"]})),
            "pools[0].markers.claims[0]: found \"GPU\"; valid is an object's name, such as node-exporter, or a glob of \
             such",
        ),
        (
            markers(&json!({"claims": ["gpu_*"]})),
            "pools[0].markers.claims[0]: found \"gpu_*\"; valid is a glob that an object's name can match: lower-case \
             letters, digits, '-', '.', '*', '?'",
        ),
        (
            markers(&json!({"claims": ["*", "*"]})),
            "pools[0].markers.claims[1]: found \"*\" a second time; valid is each only once",
        ),
        (
            markers(&json!({"annotations": ["gpu-*"]})),
            &format!("pools[0].markers.annotations[0]: found \"gpu-*\"; {QUALIFIED}"),
        ),
        (
            markers(&json!({"annotations": "gpu-fraction"})),
            "pools[0].markers.annotations: found \"gpu-fraction\"; valid is a list",
        ),
        (
            "selection: {}".to_owned(),
            "selection: found neither annotation nor label; valid is an annotation, a label, or both, by which pods name \
             a pool",
        ),
        ("selection: {annotation: a b}".to_owned(), &format!("selection.annotation: found \"a b\"; {QUALIFIED}")),
        ("selection: {label: [a]}".to_owned(), "selection.label: found a list; valid is a string"),
        (
            "selection: {label: a, taint: b}".to_owned(),
            "selection.taint: found the unknown key taint; valid is one of annotation, label",
        ),
        (
            pool(&json!({"models": models, "markers": {"annotations": ["gpu-fraction", "gpu.example.com/model"]}})),
            "pools[0]: found the annotation gpu.example.com/model, by which pods name a model, in the markers of pool p; \
             valid is annotations that request a GPU",
        ),
        (
            with(json!({"annotation": "x"}), &json!({"markers": {"annotations": ["x"]}})),
            "pools[0]: found the annotation x, by which pods name a pool, in the markers of pool p; valid is annotations \
             that request a GPU",
        ),
        (
            with(json!({"annotation": "gpu.example.com/model"}), &json!({"models": models})),
            "pools[0]: found the annotation of selection for the models of pool p; valid is an annotation that names a \
             model and no pool",
        ),
        (
            pool(&json!({"resources": null, "markers": {"claims": ["*"]}})),
            "pools[0].resources: found nothing; valid is a list of extended resources: markers do not replace it",
        ),
        (
            pool(&json!({"resources": [], "markers": {"claims": ["*"]}})),
            "pools[0].resources: found an empty list; valid is at least one extended resource",
        ),
    ]);
    // A label may have the name of an annotation, and a marker may be several pools'.
    contract(&with(json!({"label": "x"}), &json!({"markers": {"annotations": ["x"]}})));
    // What is implied by a device class is a resource like any other.
    contract(&pool(&json!({"resources": [
        "deviceclass.resource.kubernetes.io/gpu.nvidia.com", "deviceclass.resource.kubernetes.io/*.nvidia.com",
    ]})));
}

#[test]
fn what_is_missing_is_named() {
    let without = |key: &str| {
        let mut pool = sound_pool("p", &json!({}));
        pool.as_object_mut().unwrap().remove(key);
        json!({ "pools": [pool] }).to_string()
    };
    each_is_refused([
        (without("name"), "pools[0].name: found nothing; valid is the pool's name"),
        (without("resources"), "pools[0].resources: found nothing; valid is a list of extended resources"),
        (without("taints"), "pools[0].taints: found nothing; valid is a list of taints"),
        (without("nodeSelector"), "pools[0].nodeSelector: found nothing; valid is the label of the pool's nodes"),
        (
            pool(&json!({"taints": [{"key": "a"}]})),
            "pools[0].taints[0].effect: found nothing; valid is NoSchedule or NoExecute",
        ),
        (
            pool(&json!({"taints": [{"effect": "NoExecute"}]})),
            "pools[0].taints[0].key: found nothing; valid is the taint's key",
        ),
        ("rollout: [{namespaces: [a]}]".to_owned(), "rollout[0].mode: found nothing; valid is audit, warn, enforce"),
        (
            "rollout: [{mode: audit}]".to_owned(),
            "rollout[0]: found neither namespaces nor selector; valid is a list of namespaces, their labels, or both",
        ),
        (
            "rollout: [{selector: {matchExpressions: [{key: a}]}, mode: audit}]".to_owned(),
            "rollout[0].selector.matchExpressions[0].operator: found nothing; valid is In, NotIn, Exists, DoesNotExist",
        ),
        (
            exemption(&json!({"reason": null})),
            "exemptions[0].reason: found nothing; valid is why there is an exemption",
        ),
    ]);
    assert_eq!(contract(&without("namespaces")).policy.pools()[0].namespaces.to_string(), "none");
}

#[test]
fn globs_that_no_name_can_match_are_refused() {
    let namespace = "valid is a glob that a namespace's name can match: lower-case letters, digits, '-', '*', '?'";
    for (glob, valid) in [
        ("ml team*", namespace),
        ("ML-*", namespace),
        ("ml_*", namespace),
        ("ml.*", namespace),
        ("[A-Z]*", namespace),
        ("[", "valid is a glob (unclosed character class; missing ']')"),
        ("{a,b", "valid is a glob (unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?))"),
        ("ml team", "valid is a name of at most 63 lower-case letters, digits and '-', such as ml-team"),
        ("", "valid is a name of at most 63 lower-case letters, digits and '-', such as ml-team"),
    ] {
        let found = format!("found \"{glob}\"; {valid}");
        for (yaml, path) in [
            (pool(&json!({"namespaces": {"names": ["ok", glob]}})), "pools[0].namespaces.names[1]"),
            (exemption(&json!({"namespaces": [glob]})), "exemptions[0].namespaces[0]"),
            (json!({"rollout": [{"namespaces": [glob], "mode": "warn"}]}).to_string(), "rollout[0].namespaces[0]"),
        ] {
            assert_eq!(told(&yaml), [format!("{path}: {found}")]);
        }
    }
    let resource =
        "valid is an extended resource VENDOR/NAME or a glob of such, such as nvidia.com/gpu or nvidia.com/mig-*";
    for name in ["gpu", "*", "nvidia.com/", "nvidia.com/*/x", "nvidia.com/gpu/x", "NVIDIA.com/gpu", ""] {
        let expected = format!("pools[0].resources[0]: found \"{name}\"; {resource}");
        assert_eq!(told(&pool(&json!({"resources": [name]}))), [expected]);
    }
    for name in ["ml-team", "*", "ml-*", "ml-?", "ml-[0-9]*", "{a,b}-team"] {
        contract(&pool(&json!({"namespaces": {"names": [name]}})));
    }
}

#[test]
fn names_are_unique_and_pools_can_be_told_apart() {
    let two = |first: &Value, second: &Value| json!({"pools": [first, second]}).to_string();
    let (a, b) = (sound_pool("a", &json!({})), sound_pool("b", &json!({})));
    contract(&two(&a, &b));
    let models = |label: &str| json!({"models": {"annotation": "x", "nodeLabel": label, "values": ["m"]}});
    let e = json!({"name": "e", "reason": "r", "namespaces": ["a"], "daemonSets": ["*"]});
    each_is_refused([
        (
            two(&a, &sound_pool("a", &json!({"nodeSelector": {"x": "y"}}))),
            "pools[1]: found a second pool named a; valid is a name of its own for each pool",
        ),
        (
            two(&a, &sound_pool("b", &json!({"nodeSelector": {"accelerator": "a"}}))),
            "pools[1]: found the nodeSelector of pool a in pool b; valid is labels that tell the nodes of the two pools \
             apart",
        ),
        (
            json!({"exemptions": [e, e]}).to_string(),
            "exemptions[1]: found a second exemption named e; valid is a name of its own for each",
        ),
        (
            pool(&json!({"taints": [
                {"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "a", "value": "c", "effect": "NoSchedule"},
            ]})),
            "pools[0].taints[1]: found a second taint a:NoSchedule; valid is one taint for each key and effect, as on a \
             node",
        ),
        (
            pool(&models("accelerator")),
            "pools[0].models: found the nodeLabel accelerator, which the nodeSelector sets already; valid is a label \
             that only the model decides",
        ),
        (
            pool(&json!({"resources": ["nvidia.com/gpu", "nvidia.com/gpu"]})),
            "pools[0].resources[1]: found \"nvidia.com/gpu\" a second time; valid is each only once",
        ),
        (
            pool(&json!({"namespaces": {"names": ["a", "b-*", "b-*"]}})),
            "pools[0].namespaces.names[2]: found \"b-*\" a second time; valid is each only once",
        ),
    ]);
    // A NoExecute twin is no contradiction.
    contract(&pool(&json!({"taints": [
        {"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"},
    ]})));
    contract(&pool(&models("model")));
}

#[test]
fn audits_are_off_unless_the_contract_wants_them() {
    let off = contract("");
    assert!(!off.audit.is_on());
    assert_eq!((off.audit.interval.as_secs(), off.audit.reports), (0, Reports::None));
    // Each as it is written, in seconds, and as it is printed.
    for (written, seconds, printed) in [
        ("0s", 0, "0s"),
        ("0d", 0, "0s"),
        ("60s", 60, "1m"),
        ("61s", 61, "61s"),
        ("1m", 60, "1m"),
        ("90m", 5400, "90m"),
        ("120m", 7200, "2h"),
        ("06h", 21600, "6h"),
        ("24h", 86400, "1d"),
        ("7d", 604_800, "7d"),
    ] {
        let contract = contract(&format!("audit: {{interval: {written}}}"));
        assert_eq!((contract.audit.interval.as_secs(), contract.audit.is_on()), (seconds, seconds > 0), "{written}");
        let yaml = contract.to_yaml().unwrap();
        assert!(yaml.contains(&format!("\naudit:\n  interval: {printed}\n  reports: none\n")), "{yaml}");
    }
    for reports in Reports::ALL {
        assert_eq!(contract(&format!("audit: {{reports: {}}}", reports.as_str())).audit.reports, reports);
    }
}

#[test]
fn a_contract_has_at_most_64_pools() {
    let pools = |count: usize| {
        let pools: Vec<_> = (0..count).map(|index| sound_pool(&format!("p{index}"), &json!({}))).collect();
        json!({ "pools": pools }).to_string()
    };
    assert_eq!(contract(&pools(64)).policy.pools().len(), 64);
    each_is_refused([(pools(65), "pools: found 65 pools; valid is at most 64")]);
}

#[test]
fn every_fault_of_a_file_comes_at_once_in_the_order_of_the_paths() {
    let yaml = json!({
        "mode": "strict",
        "log": {"format": "xml", "colour": "x"},
        "pools": [
            {"name": "A", "resources": ["gpu"], "taints": [{"key": "a", "effect": "Prefer"}], "nodeSelector": {"a": 1}},
            sound_pool("b", &json!({"namespaces": {"names": ["B-*"], "selector": {}}})),
        ],
        "rules": {"broad-toleration": "maybe", "nothing": "deny"},
        "server": {"drain": "soon"},
    });
    let faults = faults(&yaml.to_string());
    let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    let expected = [
        "log.colour",
        "log.format",
        "mode",
        "pools[0].name",
        "pools[0].nodeSelector.a",
        "pools[0].resources[0]",
        "pools[0].taints[0].effect",
        "pools[1].namespaces.names[0]",
        "pools[1].namespaces.selector",
        "rules.broad-toleration",
        "rules.nothing",
        "server.drain",
    ];
    assert_eq!(paths, expected);
    let text = ContractError::Invalid(faults).to_string();
    assert!(text.starts_with("the contract has 12 faults:\n  "), "{text}");
    assert_eq!(text.lines().count(), 13);
    assert!(try_contract("mode: x").unwrap_err().to_string().starts_with("the contract has 1 fault:\n  "));
}

/// Where a fault was written, for faults of maps and of what is absent: the places that the layers lose.
#[test]
fn a_fault_of_a_map_or_of_an_absent_key_is_the_files_too() {
    for yaml in [
        "pools: {}",
        "exemptions: {a: b}",
        "rollout: {}",
        "mode: {a: b}",
        "contact: {name: x}",
        "serving: {listen: x}",
        "tls: {source: files}",
        "tls: {source: files, cert: a}",
    ] {
        for fault in faults(yaml) {
            assert!(fault.origin.ends_with("contract.yaml"), "{yaml}\n{fault}");
        }
    }
}

#[test]
fn a_certificate_of_files_needs_both() {
    let cert = "tls.cert: found nothing; valid is the file of the PEM certificate chain";
    let key = "tls.key: found nothing; valid is the file of the PEM private key";
    for (yaml, expected) in [
        ("tls: {source: files}", &[cert, key][..]),
        ("tls: {source: files, cert: a}", &[key]),
        ("tls: {source: files, key: a}", &[cert]),
    ] {
        assert_eq!(told(yaml), expected);
    }
    let files = contract("tls: {source: files, cert: /tls/tls.crt, key: /tls/tls.key}").tls.source;
    assert_eq!(files, TlsSource::Files { cert: "/tls/tls.crt".into(), key: "/tls/tls.key".into() });
}

#[test]
fn a_key_that_would_do_nothing_is_refused() {
    // Names are for a certificate that we make ourselves.
    let faults = told("tls: {source: files, cert: a, key: b, names: [gpufence.svc]}");
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("tls.names: "), "{faults:?}");
}

#[test]
fn a_dotted_key_is_no_path() {
    // The `config` crate takes the keys at the top of a file for paths.
    for yaml in ["server.listen: '127.0.0.1:1'", "x.y: 3", "'pools[0]': {name: x}"] {
        let found = try_contract(yaml).map(|contract| contract.server.listen).unwrap_err().to_string();
        let key = yaml.trim_start_matches('\'').split([':', '\'']).next().unwrap();
        assert!(found.contains(&format!("found the unknown key {key};")), "{yaml}\n{found}");
    }
}

#[test]
fn off_may_be_written_without_quotes() {
    for word in ["off", "'off'", "\"off\"", "false"] {
        let policy = contract(&format!("rules: {{broad-toleration: {word}}}\ntemplates: {word}")).policy;
        assert_eq!(policy.action(Rule::BroadToleration), Action::Off, "{word}");
        assert_eq!(policy.action(Rule::PlacementMissing), Action::Warn, "{word}");
    }
    let expected = ["mode: found the boolean false; valid is audit, warn, enforce"];
    assert_eq!(told("mode: false"), expected);
}

#[test]
fn what_is_not_one_yaml_map_is_refused_with_the_place() {
    for (yaml, parts) in [
        ("mode: audit\n bad: [\n", &["line 2", "contract.yaml"][..]),
        ("mode: 'audit\n", &["line", "contract.yaml"]),
        ("mode: audit\nmode: enforce\n", &["duplicated key", "line 2", "contract.yaml"]),
        ("mode: audit\n---\nmode: enforce\n", &["2 YAML documents", "contract.yaml"]),
        ("- mode: audit\n", &["expected a map", "contract.yaml"]),
        ("audit\n", &["expected a map", "contract.yaml"]),
        ("---\n", &["expected a map", "contract.yaml"]),
    ] {
        let error = syntax_error(yaml);
        for part in parts {
            assert!(error.contains(part), "{yaml}\n{error}");
        }
        assert!(!error.contains("the built-in contract"), "{error}");
    }
}

#[test]
fn an_error_is_told_once() {
    // As the command line prints it, with every cause behind the error.
    let chain = |error: &ContractError| {
        let mut texts = vec![error.to_string()];
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            texts.push(error.to_string());
            cause = error.source();
        }
        texts.join(": ")
    };
    let syntax = try_contract("mode: audit\nmode: enforce\n").unwrap_err();
    assert_eq!(chain(&syntax).matches("duplicated key").count(), 1, "{}", chain(&syntax));
    let missing = Contract::load(Some(Path::new("/nonexistent/contract.yaml")), []).unwrap_err();
    assert_eq!(chain(&missing).matches("os error 2").count(), 1, "{}", chain(&missing));
}

#[test]
fn an_empty_file_is_the_built_in_contract() {
    let built_in = Contract::built_in().unwrap().to_yaml().unwrap();
    for yaml in ["", "\n\n", "# nothing yet\n", "{}", "rules: {}\nserver: {}\n", BUILT_IN] {
        assert_eq!(contract(yaml).to_yaml().unwrap(), built_in, "{yaml:?}");
    }
}

#[test]
fn a_file_that_is_not_there_or_is_a_folder_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.yaml");
    let error = Contract::load(Some(&missing), []).unwrap_err();
    assert!(matches!(error, ContractError::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains("missing.yaml"), "{error}");
    // A neighbour with the ending is not what was asked for.
    std::fs::write(&missing, "mode: enforce").unwrap();
    assert!(Contract::load(Some(&directory.path().join("missing")), []).is_err());

    let folder = directory.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let error = Contract::load(Some(&folder), []).unwrap_err();
    assert!(error.to_string().contains("folder"), "{error}");
    assert!(!error.to_string().contains("not YAML"), "a folder is no syntax error: {error}");
}

#[test]
fn a_folder_does_not_stand_for_a_file_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("contract");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(directory.path().join("contract.yaml"), "mode: enforce").unwrap();
    let loaded = Contract::load(Some(&folder), []);
    assert!(loaded.is_err(), "the mode is {}", loaded.unwrap().policy.mode());
}

/// The contract of a file and an environment.
fn layered(yaml: &str, environment: &[(&str, &str)]) -> Result<Contract, ContractError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("contract.yaml");
    std::fs::write(&file, yaml).unwrap();
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Contract::load(Some(&file), environment)
}

#[test]
fn the_file_lies_over_the_built_in_contract_and_the_environment_over_both() {
    assert_eq!(layered("", &[]).unwrap().policy.mode(), Mode::Audit);
    assert_eq!(layered("mode: warn", &[]).unwrap().policy.mode(), Mode::Warn);
    assert_eq!(layered("mode: warn", &[("GPUFENCE__MODE", "enforce")]).unwrap().policy.mode(), Mode::Enforce);
    assert_eq!(layered("", &[("GPUFENCE__MODE", "enforce")]).unwrap().policy.mode(), Mode::Enforce);

    let all = [
        ("GPUFENCE__SERVER__LISTEN", "127.0.0.1:1"),
        ("GPUFENCE__SERVER__METRICS", "[::1]:2"),
        ("GPUFENCE__SERVER__DRAIN", "3s"),
        ("GPUFENCE__TLS__SOURCE", "files"),
        ("GPUFENCE__TLS__CERT", "c"),
        ("GPUFENCE__TLS__KEY", "k"),
        ("GPUFENCE__TLS__MINIMUM", "1.2"),
        ("GPUFENCE__LOG__LEVEL", "debug"),
        ("GPUFENCE__LOG__FORMAT", "json"),
        ("GPUFENCE__AUDIT__INTERVAL", "90m"),
        ("GPUFENCE__AUDIT__REPORTS", "openreports"),
        ("GPUFENCE__TEMPLATES", "deny"),
        ("GPUFENCE__CONTACT", "#gpu"),
    ];
    let yaml = layered("server: {listen: '0.0.0.0:9'}\nlog: {format: text}", &all).unwrap().to_yaml().unwrap();
    let own = r##"{
        "server": {"listen": "127.0.0.1:1", "metrics": "[::1]:2", "drain": "3s"},
        "tls": {"source": "files", "cert": "c", "key": "k", "minimum": "1.2"},
        "log": {"level": "debug", "format": "json"},
        "audit": {"interval": "90m", "reports": "openreports"},
        "templates": "deny",
        "contact": "#gpu"
    }"##;
    assert_eq!(yaml, contract(own).to_yaml().unwrap());
}

#[test]
fn maps_are_merged_and_lists_replaced() {
    let merged = contract("rules: {broad-toleration: deny}\nserver: {drain: 5s}\nlog: {level: debug}");
    assert_eq!(merged.policy.action(Rule::BroadToleration), Action::Deny);
    assert_eq!(merged.policy.action(Rule::PlacementConflict), Action::Deny);
    assert_eq!(merged.policy.action(Rule::PlacementMissing), Action::Warn);
    assert_eq!(merged.server.listen.to_string(), "0.0.0.0:8443");
    assert_eq!(merged.server.drain.as_secs(), 5);

    let replaced = contract(&pool(&json!({"nodeSelector": {"only": "this"}})));
    let [only] = replaced.policy.pools() else { panic!("the built-in pool is still there") };
    assert_eq!(only.node_selector.keys().collect::<Vec<_>>(), ["only"]);
    assert_eq!(only.namespaces.to_string(), "ml-team");
    assert!(only.models.is_none(), "nothing of the built-in pool is left");
    assert!(!contract("exemptions: []").to_yaml().unwrap().contains("node-agents"));
}

#[test]
fn what_the_kubelet_and_the_command_line_set_is_no_key_of_the_contract() {
    let foreign = [
        ("GPUFENCE_PORT", "tcp://10.0.0.1:443"),
        ("GPUFENCE_PORT_443_TCP", "tcp://10.0.0.1:443"),
        ("GPUFENCE_PORT_443_TCP_ADDR", "10.0.0.1"),
        ("GPUFENCE_SERVICE_HOST", "10.0.0.1"),
        ("GPUFENCE_SERVICE_PORT_HTTPS", "443"),
        ("GPUFENCE_CONFIG", "/etc/gpufence/contract.yaml"),
        ("GPUFENCE_MODE", "enforce"),
        ("MODE", "enforce"),
        ("PATH", "/bin"),
    ];
    let built_in = Contract::built_in().unwrap().to_yaml().unwrap();
    assert_eq!(layered("", &foreign).unwrap().to_yaml().unwrap(), built_in);
}

#[test]
fn a_fault_of_the_environment_names_the_variable() {
    for (variable, value, path) in [
        ("GPUFENCE__MODE", "strict", "mode"),
        ("GPUFENCE__MODE", "", "mode"),
        ("GPUFENCE__SERVER__LISTEN", "8443", "server.listen"),
        ("GPUFENCE__SERVER__PORT", "8443", "server.port"),
        ("GPUFENCE__TLS__SOURCE", "acme", "tls.source"),
        ("GPUFENCE__LOG__FORMAT", "xml", "log.format"),
        ("GPUFENCE__POOLS", "nvidia", "pools"),
        ("GPUFENCE__MODES", "audit", "modes"),
    ] {
        let error = layered("log: {level: info}", &[(variable, value)]).unwrap_err();
        let ContractError::Invalid(faults) = &error else { panic!("{error}") };
        let [fault] = &**faults else { panic!("{error}") };
        assert_eq!((fault.origin.as_str(), fault.path.as_str()), (variable, path), "{fault}");
    }
}

#[test]
fn a_section_that_only_the_environment_writes_is_the_environments_fault() {
    let error = layered("", &[("GPUFENCE__SERVING__LISTEN", "x")]).unwrap_err();
    assert!(error.to_string().contains("GPUFENCE__SERVING"), "{error}");
}

/// What a contract prints is the contract: it loads, and prints the same again.
fn survives_printing(contract: &Contract) {
    let printed = contract.to_yaml().unwrap();
    let again = self::contract(&printed).to_yaml().unwrap();
    assert_eq!(printed, again);
}

#[test]
fn what_is_printed_loads_as_the_same_contract() {
    let everything = json!({
        "mode": "enforce",
        "contact": "#gpu on chat: \"ask\" — or 'mail'",
        "pools": [
            sound_pool("full", &json!({
                "resources": ["nvidia.com/gpu", "nvidia.com/mig-*", "example.com/[ab]?"],
                "taints": [
                    {"key": "dedicated", "value": "true", "effect": "NoSchedule"},
                    {"key": "dedicated", "value": "1e3", "effect": "NoExecute"},
                    {"key": "bare", "effect": "NoExecute"},
                ],
                "nodeSelector": {"a": "no", "b.example.com/c": "1.0", "empty": "", "null": "null"},
                "namespaces": {
                    "names": ["*", "0", "0x1f", "1-2", "null", "true", "ml-?", "{a,b}"],
                    "selector": {
                        "matchLabels": {"gpu": "true", "n": "7"},
                        "matchExpressions": [
                            {"key": "a", "operator": "In", "values": ["off", "1"]},
                            {"key": "b", "operator": "NotIn", "values": ["x"]},
                            {"key": "c", "operator": "Exists"},
                            {"key": "d", "operator": "DoesNotExist"},
                        ],
                    },
                },
                "models": {"annotation": "gpu.example.com/model", "nodeLabel": "model", "values": ["a100", "4090", "on"]},
                "markers": {"claims": ["*", "0", "gpu-*.a"], "annotations": ["gpu-fraction", "no", "example.com/1.0"]},
            })),
            sound_pool("marked", &json!({"markers": {"annotations": ["gpu-memory"]}})),
            sound_pool("claimed", &json!({"markers": {"claims": ["true"]}})),
            sound_pool("bare", &json!({"namespaces": {}})),
            sound_pool("labels", &json!({"namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}})),
        ],
        "selection": {"annotation": "gpu.example.com/pool", "label": "on"},
        "exemptions": [
            {"name": "123", "reason": "yes", "namespaces": ["*"], "daemonSets": ["a.b-*", "off"]},
            {
                "name": "e",
                "reason": "r",
                "expires": "2027-01-31",
                "rules": ["toleration-outside-allowlist", "broad-toleration"],
                "namespaces": ["a-*"],
                "users": ["1", "on*"],
                "groups": ["oidc:null"],
                "serviceAccounts": ["ci/*"],
                "owners": [{"kind": "Job", "name": "7"}, {"kind": "Widget", "name": "*", "apiGroup": "example.com"}],
            },
            {"name": "whole", "reason": "r", "owner": "on: call", "expires": "2027-01-31T12:00:00+01:00", "namespaces": ["a"]},
        ],
        "rules": Rule::ALL.iter().map(|rule| (rule.id().to_owned(), json!("off"))).collect::<Map<_, _>>(),
        "templates": "off",
        "injection": {"whenTolerated": "skip", "fenceOrdinary": []},
        "customResources": [
            {"group": "example.com", "kind": "Widget", "resource": "widgets", "templates": ["$.spec.template", "$['a b'][0].*"]},
            {
                "group": "example.com",
                "kind": "Gadget",
                "resource": "gadgets",
                "podSpecs": [
                    {"path": "$.spec"},
                    {"path": "$.spec.parts[*]", "containers": ["$.main", "$"], "resources": ["$.each"], "amounts": ["$.gpu"]},
                ],
            },
        ],
        "identities": {"daemonSetController": ["system:kube-controller-manager", "a: b"], "jobController": ["c"], "schedulers": ["volcano"]},
        "nodes": {"whenUnknown": "deny"},
        "rollout": [
            {"namespaces": ["canary-*", "a"], "mode": "audit"},
            {"selector": {"matchLabels": {"stage": "1"}}, "mode": "enforce"},
            {"namespaces": ["b"], "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "mode": "audit"},
            {"namespaces": ["*"], "mode": "warn"},
        ],
        "server": {"listen": "[::]:8443", "metrics": "127.0.0.1:0", "drain": "600s"},
        "tls": {"source": "files", "cert": "/a b/c:d#e", "key": "./k", "minimum": "1.2"},
        "log": {"level": "info,gpufence=debug", "format": "json"},
    });
    let full = contract(&everything.to_string());
    survives_printing(&full);
    let printed: Value = serde_saphyr::from_str(&full.to_yaml().unwrap()).unwrap();
    for (key, value) in everything.as_object().unwrap().iter().filter(|(key, _)| *key != "pools") {
        assert_eq!(printed[key], *value, "{key}");
    }
    for yaml in [
        "",
        "tls: {source: managed}",
        "tls: {names: [gpufence.gpufence.svc, 10.0.0.1]}",
        "exemptions: []",
        "contact: 'yes'",
        "selection: {label: 'y'}",
        "selection: {annotation: 'null'}",
    ] {
        survives_printing(&contract(yaml));
    }
}

fn custom_resource(fields: &Value) -> String {
    let mut entry =
        json!({"group": "argoproj.io", "kind": "Rollout", "resource": "rollouts", "templates": ["spec.template"]});
    for (key, value) in fields.as_object().unwrap() {
        entry[key] = value.clone();
    }
    json!({ "customResources": [entry] }).to_string()
}

#[test]
fn custom_resources_that_cannot_be_judged_are_refused() {
    const STEPS: &str = "valid is a JSONPath of names, indexes and `*`, such as $.spec.template or \
                         $.spec.tasks[*].template";
    const GROUP: &str = "valid is the API group of a custom resource without its version, such as argoproj.io";
    let row = |fields: Value, expected: &str| (custom_resource(&fields), format!("customResources[0]{expected}"));
    let told = [
        row(json!({"group": ""}), &format!(".group: found \"\"; {GROUP}")),
        row(json!({"group": "apps"}), &format!(".group: found \"apps\"; {GROUP}")),
        row(
            json!({"group": "apps", "kind": "Deployment"}),
            ": found the kind Deployment of apps, which is judged without being named; valid is a custom resource: leave \
             out what Kubernetes itself makes pods from",
        ),
        row(
            json!({"group": "", "kind": "Pod"}),
            ": found the kind Pod of the core group, which is judged without being named; valid is a custom resource: \
             leave out what Kubernetes itself makes pods from",
        ),
        row(json!({"group": "argoproj.io/v1alpha1"}), &format!(".group: found \"argoproj.io/v1alpha1\"; {GROUP}")),
        row(
            json!({"kind": "rollout"}),
            ".kind: found \"rollout\"; valid is a kind as objects write it, such as StatefulSet",
        ),
        row(
            json!({"resource": "rollouts.argoproj.io"}),
            ".resource: found \"rollouts.argoproj.io\"; valid is the kind's plural in lower case, such as rollouts",
        ),
        row(json!({"resource": null}), ".resource: found nothing; valid is the kind's plural, such as rollouts"),
        row(
            json!({"templates": null}),
            ": found neither templates nor podSpecs; valid is the JSONPaths of pod templates, of pod specs, or of both",
        ),
        row(json!({"templates": []}), ".templates: found an empty list; valid is at least one JSONPath"),
        row(
            json!({"templates": ["$..template"]}),
            ".templates[0]: found \"$..template\"; valid is a JSONPath without `..`: one that names each field on the way",
        ),
        row(
            json!({"templates": ["$.spec.jobs[?@.name == 'a'].template"]}),
            ".templates[0]: found \"$.spec.jobs[?@.name == 'a'].template\"; valid is a JSONPath without filters: names, \
             indexes and `*`",
        ),
        row(
            json!({"templates": ["{}"]}),
            &format!(".templates[0]: found \"{{}}\"; {STEPS} (what follows $ cannot be read)"),
        ),
        row(
            json!({"templates": ["$.spec.tasks[-1].template"]}),
            &format!(
                ".templates[0]: found \"$.spec.tasks[-1].template\"; {STEPS} (what follows $.spec.tasks cannot be read)"
            ),
        ),
        row(
            json!({"templates": ["spec.tasks[:2].template"]}),
            &format!(
                ".templates[0]: found \"spec.tasks[:2].template\"; {STEPS} (what follows $.spec.tasks cannot be read)"
            ),
        ),
        row(
            json!({"templates": ["$.spec['a"]}),
            &format!(".templates[0]: found \"$.spec['a\"; {STEPS} (what follows $.spec cannot be read)"),
        ),
        row(
            json!({"templates": ["$"]}),
            ".templates[0]: found \"$\"; valid is a JSONPath that begins with the name of a field of the object, such as \
             $.spec.template",
        ),
        row(
            json!({"templates": ["$.*.template"]}),
            ".templates[0]: found \"$.*.template\"; valid is a JSONPath that begins with the name of a field of the \
             object, such as $.spec.template",
        ),
        row(json!({"podSpecs": []}), ".podSpecs: found an empty list; valid is at least one path"),
        row(json!({"podSpecs": [{}]}), ".podSpecs[0].path: found nothing; valid is a JSONPath"),
        row(
            json!({"podSpecs": [{"path": "$.spec", "containers": ["..a"]}]}),
            ".podSpecs[0].containers[0]: found \"..a\"; valid is a JSONPath without `..`: one that names each field on \
             the way",
        ),
    ];
    each_is_refused(told.iter().map(|(yaml, expected)| (yaml.clone(), expected.as_str())));
    let twice = "customResources:\n- &a {group: a.b, kind: C, resource: cs, templates: [spec]}\n- *a\n";
    let expected = "customResources[1]: found a second entry for the kind C of a.b; valid is one entry for each kind";
    assert_eq!(self::told(twice), [expected]);
}

#[test]
fn json_paths_are_read_as_kubectl_writes_them() {
    for (written, read) in [
        ("{.spec.template}", "$.spec.template"),
        (".spec.template", "$.spec.template"),
        ("spec.template", "$.spec.template"),
        (" { spec.template } ", "$.spec.template"),
        ("$.spec.tasks[*].template", "$.spec.tasks[*].template"),
        ("['spec'].template", "$['spec'].template"),
        ("$.spec['a..b?'].template", "$.spec['a..b?'].template"),
        ("$.spec[ \"it's\" ][ 0 ].*", "$.spec[ \"it's\" ][ 0 ].*"),
    ] {
        let contract = contract(&custom_resource(&json!({"templates": [written]})));
        let printed: Value = serde_saphyr::from_str(&contract.to_yaml().unwrap()).unwrap();
        assert_eq!(printed["customResources"][0]["templates"], json!([read]), "{written}");
        survives_printing(&contract);
    }
}

#[test]
fn text_that_yaml_could_take_for_something_else_survives_printing() {
    let words = [
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "true",
        "null",
        "~",
        "1",
        "1.0",
        ".5",
        "1e3",
        "0x1f",
        "0o17",
        "017",
        "1_000",
        "12:30:45",
        "2026-01-01",
        ".inf",
        ".nan",
        "=",
        "<<",
        "-",
        "- a",
        "? a",
        ": a",
        "a: b",
        "a #b",
        "#a",
        "@a",
        "`a",
        "%a",
        "&a",
        "*a",
        "!a",
        "!!str a",
        "|",
        ">",
        "'",
        "\"",
        "'a'",
        "\"a\"",
        "\\",
        "\\n",
        "[a]",
        "{a}",
        "a,",
        " a",
        "a ",
        "---",
        "...",
        "\u{feff}a",
        "é",
        "🙂",
        "a\u{a0}",
        "\u{2028}a",
        "a:",
        "a\u{85}b",
    ];
    for word in words {
        let environment = [("GPUFENCE__CONTACT".to_owned(), word.to_owned())];
        if let Ok(contract) = Contract::load(None, environment) {
            survives_printing(&contract);
        }
    }
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let text = prop_oneof!["\\PC{1,40}", "[-:#'\"!&*?|>%@`{}\\[\\], a0~=<.\\\\]{1,12}"];
    let outcome = runner.run(&text, |text| {
        if let Ok(contract) = Contract::load(None, [("GPUFENCE__CONTACT".to_owned(), text)]) {
            survives_printing(&contract);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// What would overflow the stack of a parser, or make it work for long.
#[test]
fn a_file_that_is_nested_too_deep_or_too_large_is_refused() {
    let marks = |mark: &str| format!("mode: audit\npools:\n{}x", mark.repeat(200_000));
    for mark in ["- ", "? ", "-\t", "- ? "] {
        let error = syntax_error(&marks(mark));
        assert!(error.contains("line 3 is indented by more than 200 spaces and list marks"), "{mark}: {error}");
    }
    for flow in ["[", "{a: ", "[{a: "] {
        let error = syntax_error(&format!("pools: {}", flow.repeat(100_000)));
        assert!(error.contains("contract.yaml is not a map in YAML"), "{error}");
    }
    let steps: Vec<_> = (0..500).map(|depth| format!("{}a:", " ".repeat(depth))).collect();
    assert!(syntax_error(&steps.join("\n")).contains("line 202 is indented"));
    let error = syntax_error(&format!("mode: audit # {}", "x".repeat(1024 * 1024)));
    assert!(error.contains("it has 1048590 bytes, and 1048576 are the most"), "{error}");
    let blank = format!("mode: warn\n{}\n", " ".repeat(500));
    assert_eq!(contract(&blank).policy.mode(), Mode::Warn, "blank lines are no indentation");
}

#[test]
fn the_contracts_of_the_readme_are_valid() {
    let readme = include_str!("../../README.md");
    let contracts: Vec<_> = readme.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(contracts.len() >= 2);
    for contract in contracts {
        try_contract(contract).unwrap_or_else(|error| panic!("{error}\n{contract}"));
    }
}

/// An exemption of nobody in particular yet, in a contract of one pool.
fn who(fields: &Value) -> String {
    let mut exemption = json!({"name": "e", "reason": "r"});
    for (key, value) in fields.as_object().unwrap() {
        exemption[key] = value.clone();
    }
    json!({ "pools": [sound_pool("p", &json!({}))], "exemptions": [exemption] }).to_string()
}

#[test]
fn an_exemption_of_nobody_or_of_everybody_is_refused() {
    let everybody = "exemptions[0]: found an exemption of everybody; valid is namespaces, or users, groups and \
                     serviceAccounts of some";
    let replica_sets = "exemptions[0]: found an exemption of system:serviceaccount:kube-system:replicaset-controller, \
                        which makes pods for everybody; valid is its namespaces, and the owners whose pods are exempt";
    let any_controller = "exemptions[0]: found an exemption of system:serviceaccount:kube-system:daemon-set-controller, \
                          which makes pods for everybody; valid is its namespaces, and the owners whose pods are exempt";
    let chosen = "whoever makes an object chooses its name";
    let nowhere = format!("exemptions[0].namespaces: found nothing; valid is a list of namespaces: {chosen}");
    let everywhere =
        format!("exemptions[0].namespaces: found every namespace; valid is the namespaces of the owners: {chosen}");
    let unproved = "exemptions[0].owners[0]: found the kind Widget, whose pods no known controller makes; valid is users \
                    or serviceAccounts beside it, who do: an owner reference alone can be forged";
    let job = json!([{"kind": "Job", "name": "a"}]);
    let widget = json!([{"kind": "Widget", "name": "a"}]);
    let every_account = "exemptions[0]: found an exemption of service accounts in every namespace; valid is service accounts of \
                         namespaces that no tenant has, or namespaces";
    let kube_system = json!(["system:serviceaccounts:kube-system"]);
    each_is_refused([
        (
            who(&json!({})),
            "exemptions[0]: found nobody whom it covers; valid is at least one of namespaces, users, groups, \
             serviceAccounts, owners, daemonSets",
        ),
        (
            who(&json!({"expires": "2027-01-31", "pools": ["p"], "rules": ["broad-toleration"]})),
            "exemptions[0]: found nobody whom it covers; valid is at least one of namespaces, users, groups, \
             serviceAccounts, owners, daemonSets",
        ),
        (who(&json!({"users": ["*"]})), everybody),
        (who(&json!({"users": ["**"], "namespaces": ["?*"]})), everybody),
        (who(&json!({"groups": ["system:authenticated"]})), everybody),
        (who(&json!({"groups": ["system:unauthenticated"]})), everybody),
        (who(&json!({"users": ["jane", "system:anonymous"]})), everybody),
        (who(&json!({"groups": ["system:authenticated"], "users": ["*"], "namespaces": ["*"]})), everybody),
        (who(&json!({"users": ["system:serviceaccount:kube-system:replicaset-controller"]})), replica_sets),
        (who(&json!({"serviceAccounts": ["*/replicaset-controller"]})), replica_sets),
        (who(&json!({"serviceAccounts": ["*/*"]})), any_controller),
        (who(&json!({"serviceAccounts": ["kube-system/*"], "namespaces": ["*"]})), any_controller),
        (who(&json!({"groups": kube_system})), any_controller),
        (who(&json!({"serviceAccounts": ["ci/deployer", "*/default"]})), every_account),
        (who(&json!({"groups": ["system:serviceaccounts"], "users": ["system:*"]})), any_controller),
        (
            who(&json!({"namespaces": ["web", "infra-*"]})),
            "exemptions[0].namespaces: found the glob infra-* and no other condition; valid is whole names where all of \
             a namespace is exempt: a glob covers namespaces that nobody has made yet",
        ),
        (
            who(&json!({"namespaces": ["*"]})),
            "exemptions[0].namespaces: found the glob * and no other condition; valid is whole names where all of a \
             namespace is exempt: a glob covers namespaces that nobody has made yet",
        ),
        (who(&json!({"owners": job})), &nowhere),
        (who(&json!({"daemonSets": ["*"]})), &nowhere),
        (who(&json!({"owners": job, "namespaces": ["*"]})), &everywhere),
        (who(&json!({"owners": widget, "namespaces": ["a"]})), unproved),
        (who(&json!({"owners": widget, "namespaces": ["a"], "groups": ["g"]})), unproved),
        (
            who(&json!({"owners": [{"kind": "Job", "name": "a", "apiGroup": "example.com"}], "namespaces": ["a"]})),
            &unproved.replace("Widget", "Job"),
        ),
    ]);
    for fields in [
        json!({"namespaces": ["web"]}),
        json!({"users": ["jane"]}),
        json!({"users": ["a"]}),
        json!({"groups": ["system:masters"]}),
        json!({"serviceAccounts": ["ci/*"]}),
        json!({"groups": kube_system, "namespaces": ["infra"]}),
        json!({"owners": job, "namespaces": ["infra-*"]}),
        json!({"owners": widget, "namespaces": ["a"], "users": ["robot"]}),
        json!({"owners": widget, "namespaces": ["a"], "serviceAccounts": ["a/robot"]}),
    ] {
        contract(&who(&fields));
    }
}

#[test]
fn what_limits_an_exemption_must_be_readable() {
    let day = "valid is a day such as 2027-01-31, which still counts, or an instant such as 2027-01-31T18:00:00Z";
    for expires in [
        "2027-02-29",
        "2027-00-10",
        "2027-13-01",
        "2027-04-31",
        "2027-1-31",
        "27-01-31",
        "2027/01/31",
        "tomorrow",
        "",
        "2027-01-31T",
        "2027-01-31T18:00",
        "2027-01-31T18:00:00",
        "2027-01-31T24:00:00Z",
        "2027-01-31T18:60:00Z",
        "2027-01-31T18:00:00.Z",
        "2027-01-31T18:00:00+1:00",
        "2027-01-31T18:00:00+24:00",
        "2027-01-31T18:00:00Zulu",
        "2027-01-31 ",
        "+027-01-31",
        "2027-01-31T18:00:61Z",
        "\u{fc}027-01-31",
    ] {
        let expected = format!("exemptions[0].expires: found \"{expires}\"; {day}");
        each_is_refused([(exemption(&json!({"expires": expires})), &*expected)]);
    }
    let user = "valid is the name of a user, such as jane@example.com, or a glob of such";
    let account =
        "valid is NAMESPACE/NAME of a service account, or a glob of such, such as ci/deployer or ci-*/deployer";
    let rows = [
        (json!({"expires": 20_270_131}), format!("expires: found the number 20270131; {day}")),
        (json!({"pools": ["q"]}), "pools[0]: found \"q\"; valid is a pool of this contract: p".to_owned()),
        (json!({"pools": []}), "pools: found an empty list; valid is at least one pool".to_owned()),
        (json!({"pools": ["p", "p"]}), "pools[1]: found \"p\" a second time; valid is each only once".to_owned()),
        (json!({"rules": ["x"]}), format!("rules[0]: found \"x\"; valid is {}", Rule::ALL.map(Rule::id).join(", "))),
        (json!({"rules": []}), "rules: found an empty list; valid is at least one rule".to_owned()),
        (json!({"users": [" "]}), format!("users[0]: found \" \"; {user}")),
        (json!({"users": []}), "users: found an empty list; valid is at least one user name".to_owned()),
        (
            json!({"groups": ["a*"]}),
            "groups[0]: found \"a*\"; valid is the whole name of a group, without globs".to_owned(),
        ),
        (json!({"groups": []}), "groups: found an empty list; valid is at least one group".to_owned()),
        (json!({"serviceAccounts": ["a"]}), format!("serviceAccounts[0]: found \"a\"; {account}")),
        (json!({"serviceAccounts": ["*"]}), format!("serviceAccounts[0]: found \"*\"; {account}")),
        (json!({"serviceAccounts": ["a/b/c"]}), format!("serviceAccounts[0]: found \"a/b/c\"; {account}")),
        (json!({"serviceAccounts": ["{a/b,c/d}"]}), format!("serviceAccounts[0]: found \"{{a/b,c/d}}\"; {account}")),
        (
            json!({"serviceAccounts": []}),
            "serviceAccounts: found an empty list; valid is at least one service account".to_owned(),
        ),
        (json!({"owners": []}), "owners: found an empty list; valid is at least one owner".to_owned()),
        (
            json!({"owners": [{"kind": "Job"}]}),
            "owners[0].name: found nothing; valid is the owner's name, or a glob".to_owned(),
        ),
        (
            json!({"owners": [{"name": "a"}]}),
            "owners[0].kind: found nothing; valid is a kind, such as StatefulSet".to_owned(),
        ),
        (
            json!({"owners": [{"kind": "jobs", "name": "a"}]}),
            "owners[0].kind: found \"jobs\"; valid is a kind as objects write it, such as StatefulSet".to_owned(),
        ),
        (
            json!({"owners": [{"kind": "Job", "name": "a", "apiGroup": "batch/v1"}]}),
            "owners[0].apiGroup: found \"batch/v1\"; valid is an API group without its version, such as batch"
                .to_owned(),
        ),
        (
            json!({"owners": [{"kind": "Job", "name": "a", "uid": "b"}]}),
            "owners[0].uid: found the unknown key uid; valid is one of kind, name, apiGroup".to_owned(),
        ),
        // Left empty, each would make the exemption wider.
        (json!({"expires": null}), format!("expires: found nothing; {day}")),
        (json!({"pools": null}), "pools: found nothing; valid is a list".to_owned()),
        (json!({"rules": null}), "rules: found nothing; valid is a list".to_owned()),
        (json!({"users": null}), "users: found nothing; valid is a list".to_owned()),
        (json!({"daemonSets": null}), "daemonSets: found nothing; valid is a list".to_owned()),
    ];
    for (mut fields, expected) in rows {
        fields["namespaces"] = json!(["kube-system"]);
        let expected = format!("exemptions[0].{expected}");
        each_is_refused([(who(&fields), &*expected)]);
    }
    // Which pools there are is not known where they are at fault themselves.
    let mut broken: Value = serde_json::from_str(&who(&json!({"users": ["jane"], "pools": ["q"]}))).unwrap();
    broken["pools"][0]["resources"] = json!([]);
    assert_eq!(
        told(&broken.to_string()),
        ["pools[0].resources: found an empty list; valid is at least one extended resource"]
    );
    assert_eq!(
        told("identities: {jobController: []}"),
        ["identities.jobController: found an empty list; valid is at least one user name"]
    );
}
