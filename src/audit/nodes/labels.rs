//! Whether a GPU node carries its pool's labels.

use super::{Subject, differences, label, name_in};
use crate::audit::finding::{Check, Finding, Severity};
use crate::audit::snapshot::Node;
use crate::audit::words::label_command;
use crate::policy::{Pool, visible};

/// A node with GPUs has the labels by which GPU pods find it.
pub(super) fn judge(subject: &Subject<'_, '_>, findings: &mut Vec<Finding>) {
    findings.extend(of_model(subject));
    // A label alone, or a taint alone, makes no GPU node: that is said of the GPUs that are not there.
    if !subject.offers() || subject.is_labelled() {
        return;
    }
    let gpus = subject.gpus();
    let lacks: Vec<_> = subject.choices().into_iter().map(|pool| Lack::of(subject.node, pool)).collect();
    let action = subject.for_each_choice(|pool| Lack::of(subject.node, pool).command(subject.node));
    if lacks.iter().all(|lack| lack.unlike().next().is_none()) {
        let mut wanted: Vec<_> = lacks.iter().map(|lack| lack.wanted().join(", ")).collect();
        wanted.dedup();
        let message =
            format!("{} has {gpus} and lacks the label {}: no GPU pod finds it", subject.whose(), wanted.join(" or "));
        let finding = subject.finding(Check::NodeWithoutLabel, Severity::High, &message, &action);
        return findings.push(finding.at("metadata.labels"));
    }
    let mut said: Vec<_> = lacks.iter().map(Lack::differences).collect();
    said.dedup();
    let message = format!("{} has {gpus} and {}: no GPU pod finds it", subject.whose(), said.join("; or "));
    let field = lacks.iter().flat_map(Lack::unlike).next().map(|(_, _, (own, _))| own);
    let field = field.map(|own| format!("metadata.labels[\"{}\"]", visible(own)));
    let finding = subject.finding(Check::NodeLabelDiffers, Severity::High, &message, &action);
    findings.push(finding.at(field.unwrap_or_default()));
}

/// A label that is wanted, by key and value, and what the node has that is like it.
type Missing<'n> = (&'n str, &'n str, Option<(&'n str, &'n str)>);

/// The labels of a pool that a node lacks.
struct Lack<'n>(Vec<Missing<'n>>);

impl<'n> Lack<'n> {
    fn of(node: &'n Node, pool: &'n Pool) -> Self {
        let missing = pool.node_selector.iter().filter(|(key, value)| label(node, key) != Some(value));
        Self(missing.map(|(key, value)| (key.as_str(), value.as_str(), like(node, key, value))).collect())
    }

    /// As they are wanted.
    fn wanted(&self) -> Vec<String> {
        self.0.iter().map(|(key, value, _)| format!("{key}={value}")).collect()
    }

    /// Those for which the node has something like it.
    fn unlike(&self) -> impl Iterator<Item = (&'n str, &'n str, (&'n str, &'n str))> {
        self.0.iter().filter_map(|(key, value, like)| Some((*key, *value, (*like)?)))
    }

    fn differences(&self) -> String {
        let difference = |(key, value, (own_key, own_value)): (&str, &str, (&str, &str))| {
            let difference = differences(&[("key", key, own_key), ("value", value, own_value)]);
            let (own_key, own_value) = (visible(own_key), visible(own_value));
            format!("the label {own_key}={own_value} where the contract says {key}={value} ({difference})")
        };
        let differences: Vec<_> = self.unlike().map(difference).collect();
        let absent = self.0.iter().filter(|(_, _, like)| like.is_none());
        let absent: Vec<_> = absent.map(|(key, value, _)| format!("{key}={value}")).collect();
        match (&*differences, &*absent) {
            ([], absent) => format!("lacks {}", absent.join(", ")),
            (differences, []) => differences.join(", "),
            (differences, absent) => format!("{}, and lacks {}", differences.join(", "), absent.join(", ")),
        }
    }

    /// A label under its own key is overwritten; one under another key stays until it is removed.
    fn command(&self, node: &Node) -> String {
        let overwrites = self.unlike().any(|(key, _, (own, _))| own == key);
        let strange = self.unlike().filter(|(key, _, (own, _))| own != key);
        let removed = strange.map(|(_, _, (own, _))| format!("{own}-"));
        let changes: Vec<_> = self.wanted().into_iter().chain(removed).collect();
        label_command(&node.name, &changes, overwrites)
    }
}

/// A node says a model of its pool, or none.
fn of_model(subject: &Subject<'_, '_>) -> Option<Finding> {
    let models = subject.pool.models.as_ref().filter(|_| !subject.standing.is_undecided)?;
    let key = &models.node_label;
    // A label of the pool itself is looked at with the others.
    let own = label(subject.node, key).filter(|_| !subject.pool.node_selector.contains_key(key))?;
    if models.has(own) {
        return None;
    }
    let known = models.values.join(", ");
    let whose = subject.whose();
    let set = |value: &str| label_command(&subject.node.name, &[format!("{key}={value}")], true);
    let meant = models.values.iter().find(|value| value.eq_ignore_ascii_case(own));
    let shown = visible(own);
    let (why, action) = match meant {
        Some(value) => {
            (format!("the contract says {value} (the value in other letters, and their case counts)"), set(value))
        }
        None => (
            format!("the models of the pool are {known}"),
            format!(
                "{}, with the one of {known} that it has; or add {shown} to models.values of the pool {}",
                set("MODEL"),
                subject.pool.name
            ),
        ),
    };
    let message = format!("{whose} has the label {key}={shown} where {why}: no pod that asks for a model finds it");
    let finding = subject.finding(Check::NodeLabelDiffers, Severity::Medium, &message, &action);
    Some(finding.at(format!("metadata.labels[\"{key}\"]")).particularly(key))
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
