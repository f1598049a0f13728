//! Amounts, lists and commands as a person reads them.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::snapshot::{Amounts, Pod};
use crate::policy::visible;

/// CPU as a person reads it: `2 CPU`, `1.5 CPU`, and below one `500m CPU`.
#[must_use]
pub fn cpu_text(milli: i64) -> String {
    if milli == 0 || milli >= 1000 { format!("{} CPU", decimal(milli, 1000, 3)) } else { format!("{milli}m CPU") }
}

/// Bytes as Kubernetes writes them, to a tenth of the greatest unit that is not above them: `4Gi`, `1.5Gi`, `512Mi`.
#[must_use]
pub fn bytes_text(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unit = UNITS.into_iter().zip(1_u32..).take_while(|(_, power)| bytes >> (10 * power) > 0).last();
    unit.map_or_else(|| bytes.to_string(), |(unit, power)| format!("{}{unit}", decimal(bytes, 1 << (10 * power), 1)))
}

/// A quotient to some places, rounded, without zeros at its end.
fn decimal(amount: i64, unit: i64, places: u32) -> String {
    let scale = i128::from(10_i64.pow(places));
    let (amount, unit) = (i128::from(amount), i128::from(unit));
    let rounded = (amount * scale + unit / 2) / unit;
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

/// A word of a command, quoted where a shell would make something else of it. No name that an API server accepts
/// needs that, but a file can hold any.
#[must_use]
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/=:,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", visible(word).replace('\'', r"'\''")).into()
}

/// The command that deletes a pod.
pub(super) fn delete_command(pod: &Pod) -> String {
    format!("kubectl delete pod --namespace {} {}", shell_word(&pod.namespace), shell_word(&pod.name))
}
