//! A path of the contract: where in a custom resource pods stand.

use std::fmt;

use serde_json::Value;
use serde_json_path::{LocatedNode, NormalizedPath, PathElement};

use super::json::Excerpt;

/// A path of names, indexes, slices and wildcards (RFC 9535).
///
/// Neither `..` nor filters: what a query costs is then bound by the object, and what it finds by where it stands.
#[derive(Debug, Clone)]
pub struct JsonPath {
    written: String,
    query: serde_json_path::JsonPath,
}

impl JsonPath {
    /// Reads a path as RFC 9535 or as kubectl writes it: without the `$`, and with braces around it.
    ///
    /// # Errors
    /// What is valid.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text).trim();
        let written = match text.chars().next() {
            Some('$') => text.to_owned(),
            Some('.' | '[') => format!("${text}"),
            _ => format!("$.{text}"),
        };
        let bare = unquoted(&written);
        if bare.contains("..") {
            return Err("a JSONPath without `..`: one that names each field on the way".to_owned());
        }
        if bare.contains('?') {
            return Err("a JSONPath without filters: names, indexes, slices and `*`".to_owned());
        }
        match serde_json_path::JsonPath::parse(&written) {
            Ok(query) => Ok(Self { written, query }),
            Err(error) => Err(format!("a JSONPath, such as $.spec.template or $.spec.tasks[*].template ({error})")),
        }
    }

    /// The path as RFC 9535 writes it.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The field of the object with which the path begins; `None` where it does not begin with one.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        let rest = &self.written[1..];
        if let Some(rest) = rest.strip_prefix('.') {
            let name = rest.split(['.', '[']).next().unwrap_or_default();
            return Some(name).filter(|name| !name.is_empty() && *name != "*" && !name.contains(char::is_whitespace));
        }
        let quoted = rest.strip_prefix('[')?;
        let quote = quoted.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (name, rest) = quoted[1..].split_once(quote)?;
        (rest.starts_with(']') && !name.contains('\\')).then_some(name)
    }

    /// All that stands at the path, each with its own place.
    pub(super) fn find<'v>(&self, value: &'v Value) -> impl Iterator<Item = (Place<'v>, &'v Value)> + use<'v> {
        let nodes = self.query.query_located(value).dedup();
        nodes.into_iter().map(|node: LocatedNode<'v>| {
            let value = node.node();
            (Place(node.to_location()), value)
        })
    }
}

/// The text without what stands in quotes.
fn unquoted(text: &str) -> String {
    let mut quote = None;
    let mut escaped = false;
    let mut bare = String::new();
    for letter in text.chars() {
        match quote {
            None if matches!(letter, '\'' | '"') => quote = Some(letter),
            None => bare.push(letter),
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(open) if letter == open => quote = None,
            Some(_) => {}
        }
    }
    bare
}

/// Where something stands, written as Kubernetes writes a field: `spec.workerGroupSpecs[1].template`.
pub(super) struct Place<'v>(NormalizedPath<'v>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, element) in self.0.iter().enumerate() {
            match element {
                PathElement::Index(index) => write!(f, "[{index}]")?,
                PathElement::Name(name) if is_plain(name) && at == 0 => f.write_str(name)?,
                PathElement::Name(name) if is_plain(name) => write!(f, ".{name}")?,
                PathElement::Name(name) => write!(f, "[\"{}\"]", Excerpt(name))?,
            }
        }
        Ok(())
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
