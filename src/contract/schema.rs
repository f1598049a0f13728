//! From the raw tree to a contract: which keys there are, what each may hold, and what must fit
//! together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use config::Value;

use super::reader::{Fault, Faults, Node, Table};
use super::{
    Contract, Log, LogFormat, Server, Tls, TlsSource, TlsVersion, audit, choice, custom, exemption, levers, syntax,
};
use crate::policy::{
    Action, Allowlist, Controller, Effect, Identities, LabelOperator, LabelRequirement, LabelSelector, Mode, Models,
    Patterns, Policy, Pool, PoolSet, Rollout, Rule, Taint, WhenTolerated,
};

const KEYS: [&str; 17] = [
    "mode",
    "contact",
    "pools",
    "selection",
    "exemptions",
    "rules",
    "levers",
    "templates",
    "injection",
    "customResources",
    "nodes",
    "identities",
    "rollout",
    "audit",
    "server",
    "tls",
    "log",
];

/// Reads the whole tree.
pub(super) fn read(tree: &Value) -> Result<Contract, Vec<Fault>> {
    let faults = Faults::default();
    let contract = Node::root(tree, &faults).table(&KEYS).and_then(|root| contract(&root));
    match (contract, faults.into_inner()) {
        (Some(contract), faults) if faults.is_empty() => Ok(contract),
        (_, mut faults) => {
            faults.sort_by(|one, other| one.path.cmp(&other.path));
            Err(faults)
        }
    }
}

/// `None` only where a fault was recorded.
fn contract(root: &Table<'_>) -> Option<Contract> {
    // Each section is read before the first is given up, so that all faults come at once.
    let mode = root.require("mode", "audit, warn, enforce").and_then(|node| node.choice(&Mode::ALL, Mode::as_str));
    let contact = root.get("contact").map(|node| node.checked(syntax::line));
    let before = root.faults();
    let pools = root.require("pools", "a list of pools").map(|node| pools(&node));
    // Of pools that are at fault it is not known which an exemption may name.
    let sound = pools.as_deref().filter(|_| root.faults() == before);
    let selection = root.get("selection").map(|node| choice::selection(&node)).unwrap_or_default();
    if let Some(pools) = sound {
        choice::hold_apart(root, pools, &selection);
    }
    let identities = root.get("identities").map(|node| identities(&node)).unwrap_or_default();
    let exemptions = root.get("exemptions").map(|node| exemption::read(&node, sound, &identities)).unwrap_or_default();
    let rules = root.get("rules").map_or_else(|| Rule::ALL.map(Rule::default_action), |node| rules(&node));
    let levers = levers::read(root, rules[Rule::LeverChange as usize]);
    let templates =
        root.require("templates", "off, audit, warn, deny").and_then(|node| node.choice(&Action::ALL, Action::as_str));
    let injection = root.get("injection").map(|node| injection(&node, sound));
    let when_unknown = root.require("nodes", "whenUnknown").and_then(|node| nodes(&node));
    let custom_resources = root.get("customResources").map(|node| custom::read(&node)).unwrap_or_default();
    let rollout = root.get("rollout").map(|node| rollout(&node)).unwrap_or_default();
    let audit = root.require("audit", "interval and reports").and_then(|node| audit::read(&node));
    let server = root.require("server", "the listeners").and_then(|node| server(&node));
    let tls = root.require("tls", "the source of the certificate").and_then(|node| tls(&node));
    let log = root.require("log", "level and format").and_then(|node| log(&node));
    let (when_tolerated, fence_ordinary) = injection.unwrap_or(Some((WhenTolerated::Add, Vec::new())))?;
    let policy = Policy {
        mode: mode?,
        rollout,
        pools: pools?,
        selection,
        exemptions,
        rules,
        templates: templates?,
        when_tolerated,
        fence_ordinary,
        identities,
        when_unknown: when_unknown?,
        levers,
        custom_resources,
        contact: contact.flatten(),
    };
    Some(Contract { policy, audit: audit?, server: server?, tls: tls?, log: log? })
}

fn pools(node: &Node<'_>) -> Vec<Pool> {
    let items = node.full_list("at least one pool");
    if items.len() > PoolSet::CAPACITY {
        node.fault_found(format!("{} pools", items.len()), format!("at most {}", PoolSet::CAPACITY));
        return Vec::new();
    }
    let mut pools: Vec<Pool> = Vec::new();
    for (item, pool) in items.iter().filter_map(|item| Some((item, pool(item)?))) {
        if pools.iter().any(|other| other.name == pool.name) {
            item.fault_found(format!("a second pool named {}", pool.name), "a name of its own for each pool");
        }
        if let Some(twin) = pools.iter().find(|other| other.node_selector == pool.node_selector) {
            item.fault_found(
                format!("the nodeSelector of pool {} in pool {}", twin.name, pool.name),
                "labels that tell the nodes of the two pools apart",
            );
        }
        pools.push(pool);
    }
    pools
}

fn pool(node: &Node<'_>) -> Option<Pool> {
    let table = node.table(&[
        "name",
        "resources",
        "taints",
        "nodeSelector",
        "namespaces",
        "models",
        "priorityClassName",
        "markers",
    ])?;
    let name = table.require("name", "the pool's name").and_then(|node| node.checked(syntax::dns_label));
    let resources = table
        .require("resources", choice::resources_of(&table))
        .map(|node| patterns(&node, node.full_list("at least one extended resource"), syntax::resource_pattern));
    let taints = table.require("taints", "a list of taints").map(|node| taints(&node));
    let node_selector = table.require("nodeSelector", "the label of the pool's nodes").map(|node| {
        let labels = labels(&node);
        if node.is_empty_map() {
            node.fault_found("an empty nodeSelector", "at least one label of the pool's nodes");
        }
        labels
    });
    let namespaces = table.get("namespaces").map(|node| allowlist(&node)).unwrap_or_default();
    let models = table.get("models").map(|node| models(&node));
    let priority_class_name = table.get("priorityClassName").map(|node| node.checked(syntax::object_name));
    let markers = choice::markers(&table);
    if let (Some(Some(models)), Some(labels)) = (&models, &node_selector)
        && labels.contains_key(&models.node_label)
    {
        table.at("models").fault_found(
            format!("the nodeLabel {}, which the nodeSelector sets already", models.node_label),
            "a label that only the model decides",
        );
    }
    Some(Pool {
        name: name?,
        resources: resources?,
        taints: taints?,
        node_selector: node_selector?,
        namespaces,
        models: models.flatten(),
        priority_class_name: priority_class_name.flatten(),
        markers,
    })
}

fn taints(node: &Node<'_>) -> Vec<Taint> {
    let mut taints: Vec<Taint> = Vec::new();
    for item in node.full_list("at least one taint") {
        let Some(taint) = taint(&item) else { continue };
        if taints.iter().any(|other| (&other.key, other.effect) == (&taint.key, taint.effect)) {
            item.fault_found(
                format!("a second taint {}:{}", taint.key, taint.effect),
                "one taint for each key and effect, as on a node",
            );
        }
        taints.push(taint);
    }
    taints
}

fn taint(node: &Node<'_>) -> Option<Taint> {
    let table = node.table(&["key", "value", "effect"])?;
    let key = table.require("key", "the taint's key").and_then(|node| node.checked(syntax::qualified_name));
    let value = table.get("value").map_or(Some(String::new()), |node| node.checked(syntax::label_value));
    let effect = table.require("effect", "NoSchedule or NoExecute").and_then(|node| {
        let hard: Vec<_> = Effect::ALL.into_iter().filter(|effect| effect.is_hard()).collect();
        node.choice(&hard, Effect::as_str)
    });
    Some(Taint { key: key?, value: value?, effect: effect? })
}

fn labels(node: &Node<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, (value, node)) in node.strings() {
        if let Err(valid) = syntax::qualified_name(&key) {
            node.fault_found(format!("the key {key}"), valid);
        } else if let Err(valid) = syntax::label_value(&value) {
            node.fault(valid);
        } else {
            labels.insert(key, value);
        }
    }
    labels
}

fn allowlist(node: &Node<'_>) -> Allowlist {
    let Some(table) = node.table(&["names", "selector"]) else {
        return Allowlist::default();
    };
    let names = table.get("names").map(|node| patterns(&node, node.list(), syntax::namespace_pattern));
    let selector = table.get("selector").and_then(|node| selector(&node));
    Allowlist { names: names.unwrap_or_default(), selector }
}

fn selector(node: &Node<'_>) -> Option<LabelSelector> {
    let table = node.table(&["matchLabels", "matchExpressions"])?;
    let match_labels = table.get("matchLabels").map(|node| labels(&node)).unwrap_or_default();
    let expressions = table.get("matchExpressions").map(|node| node.list()).unwrap_or_default();
    let given = expressions.len();
    let match_expressions: Vec<_> = expressions.iter().filter_map(requirement).collect();
    // One whose only label is faulty is not empty, and its fault is told already.
    let labels_given = table.get("matchLabels").is_some_and(|node| !node.is_empty_map());
    if match_labels.is_empty() && given == 0 && labels_given {
        return None;
    }
    if match_labels.is_empty() && given == 0 {
        node.fault_found("an empty selector", "at least one label: an empty selector matches every namespace");
        return None;
    }
    Some(LabelSelector { match_labels, match_expressions })
}

fn requirement(node: &Node<'_>) -> Option<LabelRequirement> {
    const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
    let table = node.table(&["key", "operator", "values"])?;
    let key = table.require("key", "a label").and_then(|node| node.checked(syntax::qualified_name));
    let operator = table.require("operator", "In, NotIn, Exists, DoesNotExist")?.choice(&OPERATORS, |word| word)?;
    let values = table.get("values").map(|node| words(&node, syntax::label_value)).unwrap_or_default();
    let takes_values = matches!(operator, "In" | "NotIn");
    if takes_values == values.is_empty() {
        let valid = if takes_values { "at least one value" } else { "no values with this operator" };
        node.fault_found(format!("{} values with the operator {operator}", values.len()), valid);
    }
    let operator = match operator {
        "In" => LabelOperator::In(values),
        "NotIn" => LabelOperator::NotIn(values),
        "Exists" => LabelOperator::Exists,
        _ => LabelOperator::DoesNotExist,
    };
    Some(LabelRequirement { key: key?, operator })
}

fn models(node: &Node<'_>) -> Option<Models> {
    let table = node.table(&["annotation", "nodeLabel", "values"])?;
    let annotation =
        table.require("annotation", "the pod's annotation").and_then(|node| node.checked(syntax::qualified_name));
    let node_label =
        table.require("nodeLabel", "the label of the node").and_then(|node| node.checked(syntax::qualified_name));
    let values = table
        .require("values", "a list of models")
        .map(|node| distinct(node.full_list("at least one model"), syntax::label_word));
    Some(Models { annotation: annotation?, node_label: node_label?, values: values? })
}

fn rules(node: &Node<'_>) -> [Action; Rule::ALL.len()] {
    let mut actions = Rule::ALL.map(Rule::default_action);
    let Some(table) = node.table(&Rule::ALL.map(Rule::id)) else {
        return actions;
    };
    for rule in Rule::ALL {
        let chosen = table.get(rule.id()).and_then(|node| node.choice(&Action::ALL, Action::as_str));
        if let Some(action) = chosen {
            actions[rule as usize] = action;
        }
    }
    actions
}

/// `pools` is `None` where the pools themselves are at fault.
fn injection(node: &Node<'_>, pools: Option<&[Pool]>) -> Option<(WhenTolerated, Vec<String>)> {
    let table = node.table(&["whenTolerated", "fenceOrdinary"])?;
    let when_tolerated = match table.get("whenTolerated") {
        Some(node) => node.choice(&WhenTolerated::ALL, WhenTolerated::as_str),
        None => Some(WhenTolerated::Add),
    };
    let is_a_pools = |label: &str| {
        let labels: BTreeSet<_> = pools.into_iter().flatten().flat_map(|pool| pool.node_selector.keys()).collect();
        if pools.is_none() || labels.contains(&label.to_owned()) {
            return Ok(());
        }
        let labels: Vec<_> = labels.into_iter().map(String::as_str).collect();
        Err(format!("a label of a pool's nodeSelector: {}", labels.join(", ")))
    };
    let fence_ordinary = table.get("fenceOrdinary").map(|node| words(&node, is_a_pools)).unwrap_or_default();
    Some((when_tolerated?, fence_ordinary))
}

fn nodes(node: &Node<'_>) -> Option<Action> {
    let valid = "off, audit, warn, deny";
    node.table(&["whenUnknown"])?.require("whenUnknown", valid)?.choice(&Action::ALL, Action::as_str)
}

fn identities(node: &Node<'_>) -> Identities {
    let mut identities = Identities::default();
    let Some(table) = node.table(&[&Controller::ALL.map(Controller::key)[..], &["schedulers"]].concat()) else {
        return identities;
    };
    if let Some(node) = table.require("schedulers", "a list of user names") {
        identities.schedulers = distinct(node.full_list("at least one user name"), syntax::user_name);
    }
    for controller in Controller::ALL {
        let key = controller.key();
        // The built-in contract names the first itself, and no file can do without it.
        let node = match controller {
            Controller::DaemonSet => table.require(key, "a list of user names"),
            _ => table.written(key),
        };
        if let Some(node) = node {
            identities.controllers[controller as usize] =
                distinct(node.full_list("at least one user name"), syntax::user_name);
        }
    }
    identities
}

fn rollout(node: &Node<'_>) -> Vec<Rollout> {
    let entry = |item: &Node<'_>| {
        let table = item.table(&["namespaces", "selector", "mode"])?;
        let namespaces = table
            .get("namespaces")
            .map(|node| patterns(&node, node.full_list("at least one namespace"), syntax::namespace_pattern));
        let selector = table.get("selector").map(|node| selector(&node));
        if namespaces.is_none() && selector.is_none() {
            item.fault_found("neither namespaces nor selector", "a list of namespaces, their labels, or both");
        }
        let mode = table.require("mode", "audit, warn, enforce")?.choice(&Mode::ALL, Mode::as_str);
        let selector = match selector {
            Some(selector) => Some(selector?),
            None => None,
        };
        Some(Rollout { namespaces: namespaces.unwrap_or_default(), selector, mode: mode? })
    };
    node.list().iter().filter_map(entry).collect()
}

fn server(node: &Node<'_>) -> Option<Server> {
    let table = node.table(&["listen", "metrics", "drain"])?;
    let address = |key, example: &str| {
        let valid = format!("an address and a port, such as {example}");
        table.require(key, &valid).and_then(|node| node.parsed(&valid, |text| text.parse().ok()))
    };
    let listen = address("listen", "0.0.0.0:8443");
    let metrics = address("metrics", "0.0.0.0:9090");
    let valid = "a number of seconds of at most 600, such as 12s";
    let drain = table.require("drain", valid).and_then(|node| {
        node.parsed(valid, |text| {
            let seconds = text.strip_suffix('s')?.parse().ok().filter(|seconds| *seconds <= 600)?;
            Some(Duration::from_secs(seconds))
        })
    });
    Some(Server { listen: listen?, metrics: metrics?, drain: drain? })
}

fn tls(node: &Node<'_>) -> Option<Tls> {
    const SOURCES: [&str; 3] = ["self-signed", "files", "managed"];
    let table = node.table(&["source", "cert", "key", "names", "minimum"])?;
    let minimum =
        table.require("minimum", "1.2, 1.3").and_then(|node| node.choice(&TlsVersion::ALL, TlsVersion::as_str));
    let chosen = table.require("source", "self-signed, files, managed")?.choice(&SOURCES, |word| word)?;
    if chosen != "files" {
        for key in ["cert", "key"].into_iter().filter(|key| table.get(key).is_some()) {
            let found = format!("a file with the source {chosen}");
            table.at(key).fault_found(found, "this key only with the source files");
        }
    }
    if chosen != "self-signed" && table.get("names").is_some() {
        let found = format!("names with the source {chosen}");
        table.at("names").fault_found(found, "this key only with the source self-signed");
    }
    let source = match chosen {
        "files" => {
            let file = |key, valid: &str| table.require(key, valid).and_then(|node| node.text().map(Into::into));
            let cert = file("cert", "the file of the PEM certificate chain");
            let key = file("key", "the file of the PEM private key");
            TlsSource::Files { cert: cert?, key: key? }
        }
        "managed" => TlsSource::Managed,
        _ => {
            let names = table.get("names").map(|node| words(&node, syntax::line)).unwrap_or_default();
            TlsSource::SelfSigned { names }
        }
    };
    Some(Tls { source, minimum: minimum? })
}

fn log(node: &Node<'_>) -> Option<Log> {
    let table = node.table(&["level", "format"])?;
    let level = table.require("level", "a level, such as info").and_then(|node| node.checked(syntax::log_directives));
    let format =
        table.require("format", "auto, text, json").and_then(|node| node.choice(&LogFormat::ALL, LogFormat::as_str));
    Some(Log { level: level?, format: format? })
}

/// A list of strings that are each valid and all different.
fn words(node: &Node<'_>, check: impl Fn(&str) -> Result<(), String>) -> Vec<String> {
    distinct(node.list(), check)
}

pub(super) fn patterns(node: &Node<'_>, items: Vec<Node<'_>>, check: impl Fn(&str) -> Result<(), String>) -> Patterns {
    Patterns::new(distinct(items, check)).unwrap_or_else(|error| {
        node.fault(format!("globs that can be compiled together ({error})"));
        Patterns::default()
    })
}

pub(super) fn distinct(items: Vec<Node<'_>>, check: impl Fn(&str) -> Result<(), String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut words = Vec::new();
    for item in items {
        let Some(word) = item.checked(&check) else { continue };
        if seen.insert(word.clone()) {
            words.push(word);
        } else {
            item.fault_found(format!("\"{word}\" a second time"), "each only once");
        }
    }
    words
}
