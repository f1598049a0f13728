//! A patch, as the lines it adds and takes out.

use std::fmt::Write as _;

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

/// One line for each value that the patch adds to the object, such as `spec.tolerations[0]: {key: dedicated}`, and for
/// each that it takes out.
#[must_use]
pub fn added(object: &Value, patch: &Patch) -> Vec<String> {
    let mut lines = Vec::new();
    let mut appended = 0;
    for operation in &patch.0 {
        let (place, value) = match operation {
            PatchOperation::Add(add) => (&add.path, Some(&add.value)),
            PatchOperation::Remove(remove) => (&remove.path, None),
            _ => continue,
        };
        let mut field = String::new();
        let mut parent = Some(object);
        for token in place.tokens() {
            let token = token.decoded();
            let list = parent.and_then(Value::as_array);
            match (list, &*token) {
                (Some(list), "-") => {
                    let _ = write!(field, "[{}]", list.len() + appended);
                    appended += 1;
                }
                (Some(_), index) => {
                    let _ = write!(field, "[{index}]");
                }
                (None, key) => push_key(&mut field, key),
            }
            parent = parent.and_then(|parent| parent.get(&*token));
        }
        match value {
            Some(value) => spell_out(&field, value, &mut lines),
            None => lines.push(format!("{field}: left out")),
        }
    }
    lines
}

/// A list or map that is added whole is shown by its items.
fn spell_out(path: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                lines.push(format!("{path}[{index}]: {}", flow(item)));
            }
        }
        Value::Object(entries) if path.ends_with("nodeSelector") => {
            for (key, value) in entries {
                let mut path = path.to_owned();
                push_key(&mut path, key);
                lines.push(format!("{path}: {}", flow(value)));
            }
        }
        value => lines.push(format!("{path}: {}", flow(value))),
    }
}

fn push_key(path: &mut String, key: &str) {
    if key.contains(['.', '/']) {
        let _ = write!(path, "[\"{key}\"]");
    } else {
        let dot = if path.is_empty() { "" } else { "." };
        let _ = write!(path, "{dot}{key}");
    }
}

/// A value as YAML on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(entries) => {
            // A toleration reads best in the order of the API's documentation.
            let order = ["key", "operator", "value", "effect"];
            let known = order.iter().filter_map(|key| Some((*key, entries.get(*key)?)));
            let other = entries.iter().map(|(key, value)| (key.as_str(), value));
            let other = other.filter(|(key, _)| !order.contains(key));
            let fields: Vec<_> = known.chain(other).map(|(key, value)| format!("{key}: {}", flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}
