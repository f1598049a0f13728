//! The `exemptions` section: who is exempt, and what an exemption may not say. One that covers more than
//! its author can have meant is refused: whatever it exempts, nobody else looks at.

use super::reader::{Node, Table};
use super::schema::{distinct, patterns};
use super::syntax;
use crate::policy::{Controller, Exemption, Expiry, Identities, Owner, Patterns, Pool, PoolSet, Rule, is_glob};

const KEYS: [&str; 12] = [
    "name",
    "reason",
    "owner",
    "expires",
    "pools",
    "rules",
    "namespaces",
    "users",
    "groups",
    "serviceAccounts",
    "owners",
    "daemonSets",
];

/// What is said where a name is all that an owner is known by.
const CHOSEN: &str = "whoever makes an object chooses its name";

/// The list of exemptions. `pools` is `None` where the pools themselves are at fault.
pub(super) fn read(node: &Node<'_>, pools: Option<&[Pool]>, identities: &Identities) -> Vec<Exemption> {
    let mut exemptions: Vec<Exemption> = Vec::new();
    for item in node.list() {
        let Some(exemption) = exemption(&item, pools, identities) else { continue };
        if exemptions.iter().any(|other| other.name == exemption.name) {
            item.fault_found(format!("a second exemption named {}", exemption.name), "a name of its own for each");
        }
        exemptions.push(exemption);
    }
    exemptions
}

fn exemption(node: &Node<'_>, pools: Option<&[Pool]>, identities: &Identities) -> Option<Exemption> {
    let table = node.table(&KEYS)?;
    let before = table.faults();
    let name = table.require("name", "the exemption's name").and_then(|node| node.checked(syntax::dns_label));
    let reason = table.require("reason", "why there is an exemption").and_then(|node| node.checked(syntax::line));
    // A key without a value is a fault: left out, each of them makes the exemption wider.
    let list = |key: &str, valid: &str, check: fn(&str) -> Result<(), String>| {
        table.written(key).map(|node| patterns(&node, node.full_list(valid), check))
    };
    // Contracts that are deployed repeat what is built in.
    let is_built_in =
        |line: &str, value: &str| super::BUILT_IN.lines().any(|own| own.trim() == format!("{line}: {value}"));
    let is_built_in = name.as_ref().is_some_and(|name| is_built_in("- name", name))
        && reason.as_ref().is_some_and(|reason| is_built_in("reason", reason));
    let exemption = Exemption {
        is_built_in,
        name: name.unwrap_or_default(),
        reason: reason.unwrap_or_default(),
        owner: table.written("owner").and_then(|node| node.checked(syntax::line)),
        expires: table.written("expires").and_then(|node| expiry(&node)),
        pools: table.written("pools").map(|node| limit(&node, pools)),
        rules: table.written("rules").map(|node| rules(&node)),
        namespaces: list("namespaces", "at least one namespace", syntax::namespace_pattern),
        users: list("users", "at least one user name", syntax::user_pattern),
        groups: table.written("groups").map(|node| distinct(node.full_list("at least one group"), syntax::group_name)),
        service_accounts: list("serviceAccounts", "at least one service account", syntax::service_account_pattern),
        owners: table.written("owners").map(|node| {
            let items = node.full_list("at least one owner");
            items.iter().filter_map(owner).collect()
        }),
        daemon_sets: list("daemonSets", "at least one DaemonSet's name", syntax::object_pattern),
    };
    // What is at fault by itself says nothing of whom it would cover.
    if table.faults() == before {
        covers_somebody(&table, node, &exemption);
        covers_not_everybody(&table, node, &exemption, identities);
    }
    (table.faults() == before).then_some(exemption)
}

fn expiry(node: &Node<'_>) -> Option<Expiry> {
    let valid = "a day such as 2027-01-31, which still counts, or an instant such as 2027-01-31T18:00:00Z";
    let at = node.parsed(valid, syntax::end_of)?;
    Some(Expiry { at, written: node.text()?.to_owned() })
}

fn limit(node: &Node<'_>, pools: Option<&[Pool]>) -> PoolSet {
    let items = node.full_list("at least one pool");
    let Some(pools) = pools else { return PoolSet::default() };
    let place = |name: &str| pools.iter().position(|pool| pool.name == name);
    let known = |name: &str| {
        let names: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
        place(name).map(|_| ()).ok_or_else(|| format!("a pool of this contract: {}", names.join(", ")))
    };
    distinct(items, known).iter().filter_map(|name| place(name)).collect()
}

fn rules(node: &Node<'_>) -> Vec<Rule> {
    let known = |id: &str| {
        let ids = Rule::ALL.map(Rule::id);
        if ids.contains(&id) { Ok(()) } else { Err(ids.join(", ")) }
    };
    let named = distinct(node.full_list("at least one rule"), known);
    Rule::ALL.into_iter().filter(|rule| named.iter().any(|id| id == rule.id())).collect()
}

fn owner(node: &Node<'_>) -> Option<Owner> {
    let table = node.table(&["kind", "name", "apiGroup"])?;
    let kind = table.require("kind", "a kind, such as StatefulSet").and_then(|node| node.checked(syntax::kind));
    let name = table.require("name", "the owner's name, or a glob").and_then(|node| {
        let name = node.checked(syntax::object_pattern)?;
        Some((node, name))
    });
    let api_group = table.get("apiGroup").map(|node| node.checked(syntax::api_group));
    let ((name_node, name), kind) = (name?, kind?);
    let name = Patterns::new(vec![name]).map_err(|error| name_node.fault(format!("a glob ({})", error.kind()))).ok()?;
    let api_group = match api_group {
        Some(group) => Some(group?),
        None => None,
    };
    let controller = Controller::ALL.into_iter().find(|controller| {
        let own = controller.kind();
        own.name() == kind && api_group.as_ref().is_none_or(|group| group == own.group())
    });
    Some(Owner { kind, api_group, name, controller })
}

fn covers_somebody(table: &Table<'_>, node: &Node<'_>, exemption: &Exemption) {
    let Exemption { namespaces, users, groups, service_accounts, owners, daemon_sets, .. } = exemption;
    let by_owner = owners.is_some() || daemon_sets.is_some();
    if by_owner {
        table.require("namespaces", &format!("a list of namespaces: {CHOSEN}"));
    }
    if by_owner && exemption.rules.as_ref().is_some_and(|rules| rules.contains(&Rule::LeverChange)) {
        table.at("rules").fault_found(
            "lever-change beside owners or daemonSets",
            "users, groups, serviceAccounts or namespaces for that rule: nobody changes a namespace or a node for an owner",
        );
    }
    for (place, owner) in owners.iter().flatten().enumerate() {
        if owner.controller.is_none() && users.is_none() && service_accounts.is_none() {
            let owners = table.at("owners").list();
            owners.get(place).unwrap_or(node).fault_found(
                format!("the kind {}, whose pods no known controller makes", owner.kind),
                "users or serviceAccounts beside it, who do: an owner reference alone can be forged",
            );
        }
    }
    let by_requester = users.is_some() || groups.is_some() || service_accounts.is_some();
    if namespaces.is_none() && !by_owner && !by_requester {
        node.fault_found(
            "nobody whom it covers",
            "at least one of namespaces, users, groups, serviceAccounts, owners, daemonSets",
        );
    }
}

fn covers_not_everybody(table: &Table<'_>, node: &Node<'_>, exemption: &Exemption, identities: &Identities) {
    let Exemption { namespaces, users, groups, service_accounts, owners, daemon_sets, .. } = exemption;
    let everywhere = namespaces.as_ref().is_none_or(matches_everything);
    if owners.is_some() && namespaces.is_some() && everywhere {
        table.at("namespaces").fault_found("every namespace", format!("the namespaces of the owners: {CHOSEN}"));
    }
    if owners.is_some() || daemon_sets.is_some() {
        return;
    }
    if users.is_none() && groups.is_none() && service_accounts.is_none() {
        let written = namespaces.iter().flat_map(Patterns::written);
        if let Some(glob) = written.into_iter().find(|name| is_glob(name)) {
            table.at("namespaces").fault_found(
                format!("the glob {glob} and no other condition"),
                "whole names where all of a namespace is exempt: a glob covers namespaces that nobody has made yet",
            );
        }
        return;
    }
    if !everywhere {
        return;
    }
    if names_everybody(|user, group| exemption.matches_requester(user, |wanted| wanted == group)) {
        node.fault_found("an exemption of everybody", "namespaces, or users, groups and serviceAccounts of some");
        return;
    }
    if let Some(identity) = identities.all().find(|identity| exemption.matches_requester(identity, is_in(identity))) {
        node.fault_found(
            format!("an exemption of {identity}, which makes pods for everybody"),
            "its namespaces, and the owners whose pods are exempt",
        );
        return;
    }
    let by_account = service_accounts.as_ref().is_some_and(of_every_namespace);
    if by_account || names_every_account(|user, is_in| exemption.matches_requester(user, is_in)) {
        node.fault_found("an exemption of service accounts in every namespace", format!("{OF_SOME}, or namespaces"));
    }
}

/// Whether conditions on a user and its group hold for everybody, as far as names that have nothing in common show.
pub(super) fn names_everybody(holds: impl Fn(&str, &str) -> bool) -> bool {
    let strangers = ["a", "9", "https://issuer.example.com#4d-9z", "Zoë (ops)"];
    strangers.iter().all(|user| holds(user, "system:authenticated"))
        || holds("system:anonymous", "system:unauthenticated")
}

/// What is valid where service accounts of every namespace are named: whoever has a namespace has one of them.
pub(super) const OF_SOME: &str = "service accounts of namespaces that no tenant has";

/// Whether patterns of `NAMESPACE/NAME` name a service account in whatever namespace.
pub(super) fn of_every_namespace(accounts: &Patterns) -> bool {
    let namespace = |pattern: &String| pattern.split_once('/').map(|(namespace, _)| namespace.to_owned());
    let everywhere = |namespace| Patterns::new(vec![namespace]).is_ok_and(|namespace| matches_everything(&namespace));
    accounts.written().iter().filter_map(namespace).any(everywhere)
}

/// Whether conditions on a user and its groups hold for a service account in whatever namespace.
pub(super) fn names_every_account(holds: impl Fn(&str, &dyn Fn(&str) -> bool) -> bool) -> bool {
    STRANGE.iter().all(|namespace| {
        let account = format!("system:serviceaccount:{namespace}:default");
        holds(&account, &is_in(&account))
    })
}

/// Whether a controller's identity is in a group, as the API server puts service accounts into theirs.
fn is_in(identity: &str) -> impl Fn(&str) -> bool {
    let account = identity.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    move |group| {
        group == "system:authenticated"
            || account.is_some_and(|(namespace, _)| {
                group == "system:serviceaccounts" || group.strip_prefix("system:serviceaccounts:") == Some(namespace)
            })
    }
}

/// Names that have nothing in common.
const STRANGE: [&str; 5] =
    ["a", "9", "kube-system", "zq-0-x", "x1y2z3w4v5u6t7s8r9q0-p1o2n3m4l5k6j7i8h9g0-f1e2d3c4b5a6z7y8x9w0v"];

/// Whether the patterns match every name, as far as names that have nothing in common show.
fn matches_everything(patterns: &Patterns) -> bool {
    STRANGE.iter().all(|name| patterns.matches(name))
}
