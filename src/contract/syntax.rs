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

/// The name of an object.
pub(super) fn object_name(text: &str) -> Check {
    verdict(dns_subdomain(text), "an object's name, such as gpu-batch")
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
    // As exemptions and levers name service accounts; no user has such a name.
    let is_account =
        text.split_once('/').is_some_and(|(namespace, name)| dns_label(namespace).is_ok() && dns_subdomain(name));
    let valid = "the whole name of a user, such as system:serviceaccount:NAMESPACE:NAME, without globs";
    verdict(line(text).is_ok() && !text.contains(['*', '?']) && !is_account, valid)
}

/// The name of a user, or a glob of such.
pub(super) fn user_pattern(text: &str) -> Check {
    if is_glob(text) {
        readable_glob(text)?;
    }
    verdict(line(text).is_ok(), "the name of a user, such as jane@example.com, or a glob of such")
}

/// The name of a group: no glob, since groups come from whoever runs the identity provider.
pub(super) fn group_name(text: &str) -> Check {
    verdict(line(text).is_ok() && !text.contains(['*', '?']), "the whole name of a group, without globs")
}

/// A service account with its namespace, or a glob of such.
pub(super) fn service_account_pattern(text: &str) -> Check {
    let valid = "NAMESPACE/NAME of a service account, or a glob of such, such as ci/deployer or ci-*/deployer";
    let Some((namespace, name)) = text.split_once('/') else {
        return verdict(false, valid);
    };
    verdict(namespace_pattern(namespace).is_ok() && object_pattern(name).is_ok(), valid)
}

/// A kind of object.
pub(super) fn kind(text: &str) -> Check {
    let sound = text.len() <= 63
        && text.starts_with(|letter: char| letter.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    verdict(sound, "a kind as objects write it, such as StatefulSet")
}

/// An API group, without a version.
pub(super) fn api_group(text: &str) -> Check {
    verdict(text.is_empty() || dns_subdomain(text), "an API group without its version, such as batch")
}

/// The API group of a custom resource. The core group has none.
pub(super) fn custom_group(text: &str) -> Check {
    verdict(
        text.contains('.') && dns_subdomain(text),
        "the API group of a custom resource without its version, such as argoproj.io",
    )
}

/// The plural of a kind, by which paths and webhooks' rules name it.
pub(super) fn plural(text: &str) -> Check {
    verdict(dns_label(text).is_ok(), "the kind's plural in lower case, such as rollouts")
}

/// The end of a day in UTC, or the instant of RFC 3339, in seconds since 1970.
pub(super) fn end_of(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let day = days(date)?;
    if rest.is_empty() {
        return Some((day + 1) * 86_400);
    }
    let time = rest.strip_prefix(['T', 't'])?;
    let (clock, rest) = time.split_at_checked(8)?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|letter: char| letter.is_ascii_digit());
            if rest.len() == fraction.len() {
                return None;
            }
            rest
        }
        None => rest,
    };
    let offset = match rest.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), clock) => {
            let [hours, minutes] = numbers(clock, ':', [2, 2])?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 3_600 + minutes * 60) * if sign == "-" { -1 } else { 1 }
        }
        _ => return None,
    };
    // A leap second is the first of the next minute.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(day * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// Days since 1970 of a date such as `2027-01-31`.
fn days(date: &str) -> Option<i64> {
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Counted from March, so that the day that only some years have comes last.
    let year = year - i64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468)
}

/// Numbers of so many digits each, with a mark between them.
fn numbers<const N: usize>(text: &str, mark: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(mark);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part =
            parts.next().filter(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
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
