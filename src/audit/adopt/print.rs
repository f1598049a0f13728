//! The list of exemptions as YAML.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Need, Others, day};
use crate::policy::{Exemption, Owner, Patterns, Policy, visible};

/// In the place of who makes the pods of an owner; no contract takes it as it is.
const PLACEHOLDER: &str = "NAMESPACE/NAME";

/// What the contract has, then what is adopted, then what a person has to complete, as comments.
pub(super) fn list(
    policy: &Policy,
    present: &str,
    [adopted, unknown]: &[Vec<(Exemption, &Need)>; 2],
    others: &Others,
    (now, until): (i64, i64),
) -> String {
    let mut yaml = format!(
        "# All exemptions: those of the contract as it is, and those under which what runs on {} goes on running; these\n\
         # count until {}. Put this list in the place of the contract's own exemptions, for a list replaces another.\n",
        day(now),
        day(until)
    );
    if !unknown.is_empty() {
        let need = if unknown.len() == 1 { "1 workload needs" } else { &format!("{} workloads need", unknown.len()) };
        let _ = writeln!(
            yaml,
            "# {need} you: who makes the pods is not known. They are below in comments: put the service account of the \
             operator\n# that does in the place of {PLACEHOLDER}, and take away the #."
        );
    }
    let left: usize = others.values().map(std::collections::BTreeMap::len).sum();
    if left > 0 {
        let _ = writeln!(yaml, "# Not covered by this list: {left}, named at its end.");
    }
    let is_empty = present.is_empty() && adopted.is_empty();
    yaml.push_str(if is_empty { "exemptions: []\n" } else { "exemptions:\n" });
    for line in present.lines() {
        let _ = writeln!(yaml, "  {line}");
    }
    for (exemption, need) in adopted {
        let _ = writeln!(yaml, "  # {}", need.top);
        if !need.beside.is_empty() {
            let others: Vec<_> = need.beside.iter().map(String::as_str).collect();
            let _ = writeln!(yaml, "  # Its name covers others as well: {}", visible(&others.join(", ")));
        }
        for line in lines(policy, exemption) {
            let _ = writeln!(yaml, "  {line}");
        }
    }
    for (exemption, need) in unknown {
        let _ = writeln!(yaml, "  # Needs you: {}", need.top);
        for line in lines(policy, exemption) {
            let _ = writeln!(yaml, "  # {line}");
        }
        let _ = writeln!(yaml, "  #   serviceAccounts: [{}]", quoted(PLACEHOLDER));
    }
    for (why, objects) in others {
        let _ = writeln!(yaml, "# {}", why.text());
        for (object, rules) in objects {
            let rules: Vec<_> = rules.iter().map(|rule| rule.id()).collect();
            let separator = if rules.is_empty() { "" } else { ": " };
            let _ = writeln!(yaml, "#   {}{separator}{}", visible(object), rules.join(", "));
        }
    }
    yaml
}

/// An item of the list.
fn lines(policy: &Policy, exemption: &Exemption) -> Vec<String> {
    let list = |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
    let written = |patterns: &Option<Patterns>| list(patterns.as_ref().map(Patterns::written).unwrap_or_default());
    let Exemption { name, reason, owner, expires, pools, rules, namespaces, daemon_sets, owners, .. } = exemption;
    let mut lines = vec![format!("- name: {}", quoted(name)), format!("  reason: {}", quoted(reason))];
    lines.extend(owner.as_ref().map(|owner| format!("  owner: {}", quoted(owner))));
    lines.extend(expires.as_ref().map(|expiry| format!("  expires: {}", quoted(&expiry.written))));
    let pools = pools.iter().flat_map(|pools| pools.iter()).filter_map(|index| policy.pools().get(index));
    lines.push(format!("  pools: [{}]", list(&pools.map(|pool| pool.name.clone()).collect::<Vec<_>>())));
    lines.push(match rules {
        Some(rules) => {
            let rules: Vec<_> = rules.iter().map(|rule| rule.id()).collect();
            format!("  rules: [{}]", rules.join(", "))
        }
        None => "  # Of every rule: completed for its pool it could not run.".to_owned(),
    });
    lines.push(format!("  namespaces: [{}]", written(namespaces)));
    if daemon_sets.is_some() {
        lines.push(format!("  daemonSets: [{}]", written(daemon_sets)));
    }
    for Owner { kind, api_group, name, .. } in owners.iter().flatten() {
        let group = api_group.as_ref().map(|group| format!("apiGroup: {group}, ")).unwrap_or_default();
        lines.push(format!("  owners: [{{kind: {kind}, {group}name: {}}}]", list(name.written())));
    }
    lines
}

/// The text as it stands in YAML: as JSON writes it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
