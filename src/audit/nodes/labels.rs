//! Whether a GPU node carries its pool's labels.

use super::{Subject, differences, label, name_in};
use crate::audit::finding::{Check, Finding, Severity};
use crate::audit::snapshot::Node;
use crate::audit::words::label_command;
use crate::policy::visible;

/// A node with GPUs has the labels by which GPU pods find it.
pub(super) fn judge(subject: &Subject<'_, '_>, findings: &mut Vec<Finding>) {
    // A label alone, or a taint alone, makes no GPU node: that is said of the GPUs that are not there.
    if !subject.offers() || subject.is_labelled() {
        return;
    }
    let Subject { node, pool, .. } = *subject;
    let (name, gpus) = (subject.name(), subject.gpus());
    let missing = pool.node_selector.iter().filter(|(key, value)| label(node, key) != Some(value));
    let missing: Vec<_> = missing.map(|(key, value)| (key, value, like(node, key, value))).collect();
    let wanted: Vec<_> = missing.iter().map(|(key, value, _)| format!("{key}={value}")).collect();
    // More than one pool may be meant where the node does not say which.
    let others: Vec<_> = subject.view.pools(subject.standing.pools).filter(|other| other.name != pool.name).collect();
    let choice = if others.is_empty() {
        String::new()
    } else {
        let names: Vec<_> = others.iter().map(|other| other.name.as_str()).collect();
        format!(", or the labels of the pool that it is meant for instead: {}", names.join(", "))
    };
    let unlike: Vec<_> = missing.iter().filter_map(|(key, value, like)| Some((key, value, (*like)?))).collect();
    if unlike.is_empty() {
        let message = format!(
            "the node {name} of the pool {} has {gpus} and lacks the label {}: no GPU pod finds it",
            pool.name,
            wanted.join(", ")
        );
        let action = label_command(&node.name, &wanted, false) + &choice;
        let finding = subject.finding(Check::NodeWithoutLabel, Severity::High, &message, &action);
        return findings.push(finding.at("metadata.labels"));
    }
    let differences: Vec<_> = unlike
        .iter()
        .map(|(key, value, (own_key, own_value))| {
            let difference = differences(&[("key", key, own_key), ("value", value, own_value)]);
            let (own_key, own_value) = (visible(own_key), visible(own_value));
            format!("the label {own_key}={own_value} where the contract says {key}={value} ({difference})")
        })
        .collect();
    let absent = missing.iter().filter(|(_, _, like)| like.is_none());
    let absent: Vec<_> = absent.map(|(key, value, _)| format!("{key}={value}")).collect();
    let absent = if absent.is_empty() { String::new() } else { format!(", and lacks {}", absent.join(", ")) };
    let message = format!(
        "the node {name} of the pool {} has {gpus} and {}{absent}: no GPU pod finds it",
        pool.name,
        differences.join(", ")
    );
    // A label under its own key is overwritten; one under another key stays until it is removed.
    let overwrites = unlike.iter().any(|(key, _, (own, _))| *own == key.as_str());
    let strange = unlike.iter().filter(|(key, _, (own, _))| *own != key.as_str());
    let removed = strange.map(|(_, _, (own, _))| format!("{own}-"));
    let changes: Vec<_> = wanted.into_iter().chain(removed).collect();
    let action = label_command(&node.name, &changes, overwrites) + &choice;
    let field = unlike.first().map(|(_, _, (own, _))| format!("metadata.labels[\"{}\"]", visible(own)));
    let finding = subject.finding(Check::NodeLabelDiffers, Severity::High, &message, &action);
    findings.push(finding.at(field.unwrap_or_default()));
}

/// A label of the node that was probably meant to be this one: under the same key with another value, under the key in
/// other letters, or the same under another prefix.
pub(super) fn like<'n>(node: &'n Node, key: &str, value: &str) -> Option<(&'n str, &'n str)> {
    let own = node.labels.get_key_value(key).filter(|(_, own)| ***own != *value);
    let spelled = || node.labels.iter().find(|(own, _)| ***own != *key && own.eq_ignore_ascii_case(key));
    let moved = || {
        node.labels.iter().find(|(own, own_value)| {
            ***own != *key
                && name_in(own).eq_ignore_ascii_case(name_in(key))
                && own_value.eq_ignore_ascii_case(value)
                && !value.is_empty()
        })
    };
    let found = if node.labels.contains_key(key) { own } else { spelled().or_else(moved) };
    found.map(|(key, value)| (&**key, &**value))
}
