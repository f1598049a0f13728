//! Amounts, lists and commands as a person reads them.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::snapshot::{Amounts, Pod};
use crate::policy::{Policy, visible};

/// CPU as a person reads it: `2 CPU`, `1.5 CPU`, and below one `500m CPU`.
#[must_use]
pub fn cpu_text(milli: i64) -> String {
    if milli == 0 || milli >= 1000 { format!("{} CPU", decimal(milli, 1000, 3)) } else { format!("{milli}m CPU") }
}

/// Bytes as Kubernetes writes them, to a tenth of the greatest unit that is not above them: `4Gi`, `1.5Gi`, `512Mi`.
/// Rounded down: what is free must not seem more than it is.
#[must_use]
pub fn bytes_text(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unit = UNITS.into_iter().zip(1_u32..).take_while(|(_, power)| bytes >> (10 * power) > 0).last();
    unit.map_or_else(|| bytes.to_string(), |(unit, power)| format!("{}{unit}", decimal(bytes, 1 << (10 * power), 1)))
}

/// A quotient to some places, rounded down, without zeros at its end.
fn decimal(amount: i64, unit: i64, places: u32) -> String {
    let scale = i128::from(10_i64.pow(places));
    let (amount, unit) = (i128::from(amount), i128::from(unit));
    let rounded = amount * scale / unit;
    let mut text = format!("{}", rounded / scale);
    let rest = rounded % scale;
    if rest > 0 {
        let _ = write!(text, ".{rest:0places$}", places = places as usize);
        text.truncate(text.trim_end_matches('0').len());
    }
    text
}

/// What is requested of the CPU, memory and storage of a node, what comes to nothing left out: `2 CPU, 4Gi memory`.
#[must_use]
pub fn amounts_text(amounts: &Amounts) -> String {
    let Amounts { cpu_milli, memory_bytes, ephemeral_storage_bytes, .. } = *amounts;
    let bytes = |bytes: i64, of: &str| (bytes > 0).then(|| format!("{} {of}", bytes_text(bytes)));
    let parts = [
        (cpu_milli > 0).then(|| cpu_text(cpu_milli)),
        bytes(memory_bytes, "memory"),
        bytes(ephemeral_storage_bytes, "ephemeral storage"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A list within a sentence: `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn list_text(items: &[impl AsRef<str>]) -> String {
    match items {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [init @ .., last] => {
            let init: Vec<_> = init.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", init.join(", "), last.as_ref())
        }
    }
}

/// A number of things: `1 pod`, `3 pods`.
#[must_use]
pub fn count_text(count: impl TryInto<u64>, thing: &str) -> String {
    match count.try_into() {
        Ok(1) => format!("1 {thing}"),
        count => format!("{} {thing}s", count.unwrap_or_default()),
    }
}

/// A text with which a sentence begins.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// A word as a shell takes it for itself and nothing more. No name that an API server accepts needs quotes, but a file
/// can hold any.
#[must_use]
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/=:,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    if visible(word) == word {
        return format!("'{}'", word.replace('\'', r"'\''")).into();
    }
    // What a terminal would obey must not be in it as it is.
    let mut escaped = String::from("$'");
    for letter in word.chars() {
        match letter {
            '\\' | '\'' => escaped.extend(['\\', letter]),
            ' '..='~' => escaped.push(letter),
            _ => drop(write!(escaped, "\\U{:08x}", u32::from(letter))),
        }
    }
    escaped.push('\'');
    escaped.into()
}

/// A command about things of these names, with its flags, which stand as they are: `kubectl taint node gpu-1 a:NoSchedule
/// --overwrite`. What begins with a dash would be a flag, and so comes after `--`.
pub(super) fn command(verb: &str, words: &[impl AsRef<str>], flags: &str) -> String {
    let is_flag = words.iter().any(|word| word.as_ref().starts_with('-'));
    let words: Vec<_> = words.iter().map(|word| shell_word(word.as_ref())).collect();
    let words = words.join(" ");
    let parts = if is_flag { [verb, flags, "--", &words] } else { [verb, &words, flags, ""] };
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// A command about things of a namespace.
pub(super) fn command_in(namespace: &str, verb: &str, words: &[impl AsRef<str>], flags: &str) -> String {
    let namespace = format!("--namespace {}", shell_word(namespace));
    let flags = if flags.is_empty() { namespace } else { format!("{namespace} {flags}") };
    command(verb, words, &flags)
}

/// The command that gives a node taints, or takes those away that have a dash at their end.
pub(super) fn taint_command(node: &str, taints: &[impl AsRef<str>], overwrite: bool) -> String {
    change_command("taint", node, taints, overwrite)
}

/// The command that gives a node labels, or takes those away that have a dash at their end.
pub(super) fn label_command(node: &str, labels: &[impl AsRef<str>], overwrite: bool) -> String {
    change_command("label", node, labels, overwrite)
}

fn change_command(verb: &str, node: &str, changes: &[impl AsRef<str>], overwrite: bool) -> String {
    let words: Vec<_> = std::iter::once(node).chain(changes.iter().map(AsRef::as_ref)).collect();
    command(&format!("kubectl {verb} node"), &words, if overwrite { "--overwrite" } else { "" })
}

/// The command that deletes a pod.
pub(super) fn delete_command(pod: &Pod) -> String {
    command(&format!("kubectl delete pod --namespace {}", shell_word(&pod.namespace)), &[&*pod.name], "")
}

/// The command that says what the taint of a pool would do to a node. It asks for the pool where there are several.
pub(super) fn what_if_command(policy: &Policy, pool: &str, node: &str) -> String {
    // What begins with a dash would be a flag.
    let between = if node.starts_with('-') { '=' } else { ' ' };
    let pool = if policy.pools().len() > 1 { format!("--pool {} ", shell_word(pool)) } else { String::new() };
    command("gpufence audit --what-if taint", &[""; 0], &format!("{pool}--node{between}{}", shell_word(node)))
}
