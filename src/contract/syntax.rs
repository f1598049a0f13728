//! The forms of Kubernetes' names, as the API server checks them. Each function returns what is valid
//! where a text is not.

use crate::policy::{Patterns, is_glob};

type Check = Result<(), String>;

/// A DNS-1123 label: a namespace's name.
pub(super) fn dns_label(text: &str) -> Check {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    let sound = bytes.len() <= 63
        && alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|byte| alphanumeric(Some(byte)) || *byte == b'-');
    verdict(sound, "a name of at most 63 lower-case letters, digits and '-', such as ml-team")
}

fn dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok())
}

/// The part of a label key behind the slash, and a label value that is not empty.
fn name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// A qualified name: the key of a label, an annotation or a taint.
pub(super) fn qualified_name(text: &str) -> Check {
    let sound = match text.split_once('/') {
        Some((prefix, name)) => dns_subdomain(prefix) && name_part(name),
        None => name_part(text),
    };
    verdict(sound, "a qualified name, such as dedicated or gpu.example.com/model")
}

/// The value of a label or a taint.
pub(super) fn label_value(text: &str) -> Check {
    verdict(
        text.is_empty() || name_part(text),
        "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    )
}

/// A label value that names something.
pub(super) fn label_word(text: &str) -> Check {
    verdict(name_part(text), "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends")
}

/// The name of an extended resource, or a glob of such names.
pub(super) fn resource_pattern(text: &str) -> Check {
    let valid = "an extended resource VENDOR/NAME or a glob of such, such as nvidia.com/gpu or nvidia.com/mig-*";
    let Some((vendor, name)) = text.split_once('/') else {
        return verdict(false, valid);
    };
    if is_glob(text) {
        readable_glob(text)?;
        return verdict(!vendor.is_empty() && !name.is_empty() && !name.contains('/'), valid);
    }
    verdict(dns_subdomain(vendor) && name_part(name), valid)
}

/// A namespace's name, or a glob that some namespace's name can match.
pub(super) fn namespace_pattern(text: &str) -> Check {
    if is_glob(text) { glob_of(text, "-", "a namespace's name") } else { dns_label(text) }
}

/// The name of an object, or a glob that some object's name can match.
pub(super) fn object_pattern(text: &str) -> Check {
    if is_glob(text) {
        return glob_of(text, "-.", "an object's name");
    }
    verdict(dns_subdomain(text), "an object's name, such as node-exporter, or a glob of such")
}

/// A glob that can match a name of lower-case letters, digits and these marks.
fn glob_of(text: &str, marks: &str, what: &str) -> Check {
    readable_glob(text)?;
    let possible = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || marks.contains(letter) || "*?[]{},!".contains(letter)
    };
    let marks: Vec<_> = marks.chars().map(|mark| format!("'{mark}'")).collect();
    let valid = format!("a glob that {what} can match: lower-case letters, digits, {}, '*', '?'", marks.join(", "));
    verdict(text.chars().all(possible), &valid)
}

/// One line of text that fits into a message.
pub(super) fn line(text: &str) -> Check {
    let sound = !text.trim().is_empty() && text.chars().count() <= 120 && !text.contains(char::is_control);
    verdict(sound, "one line of 1 to 120 characters")
}

/// Log directives: a level, or a list of levels each for a module. A word that is no level would be taken
/// for a module's name, and silence everything else.
pub(super) fn log_directives(text: &str) -> Check {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let module =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte));
    let directive = |text: &str| match text.split_once('=') {
        None => LEVELS.contains(&text),
        Some((name, level)) => module(name) && LEVELS.contains(&level),
    };
    verdict(
        text.split(',').all(directive),
        "off, error, warn, info, debug or trace, or such for modules: info,gpufence::decision=debug",
    )
}

/// The name of a user: no glob, since whoever it matches is believed.
pub(super) fn user_name(text: &str) -> Check {
    verdict(line(text).is_ok() && !text.contains(['*', '?']), "the whole name of a user, without globs")
}

fn readable_glob(text: &str) -> Check {
    match Patterns::new(vec![text.to_owned()]) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("a glob ({})", error.kind())),
    }
}

fn verdict(sound: bool, valid: &str) -> Check {
    if sound { Ok(()) } else { Err(valid.to_owned()) }
}
