//! A path of the contract: where in a custom resource pods stand, and how it is followed.
//!
//! An object is followed as it is read, along all paths at once. What no path leads through is not kept, so that
//! memory is bound by what is found, whatever else an object holds.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::json::{Excerpt, Text};

/// A path of names, indexes and wildcards: a part of RFC 9535.
///
/// Neither `..` nor filters: what a query costs is then bound by the object, and what it finds by where it stands.
/// Neither slices nor indexes from the end: an object is read once, from its beginning.
#[derive(Debug, Clone)]
pub struct JsonPath {
    written: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Name(String),
    Index(usize),
    Every,
    /// Every item of a list, and nothing of a map.
    Item,
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
        let mut steps = Vec::new();
        let mut rest = &written[1..];
        while !rest.is_empty() {
            let Some((step, behind)) = step(rest) else {
                return Err(if rest.starts_with("..") {
                    "a JSONPath without `..`: one that names each field on the way".to_owned()
                } else if rest.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('?')) {
                    "a JSONPath without filters: names, indexes and `*`".to_owned()
                } else {
                    format!(
                        "a JSONPath of names, indexes and `*`, such as $.spec.template or $.spec.tasks[*].template \
                         (what follows {} cannot be read)",
                        Excerpt(&written[..written.len() - rest.len()])
                    )
                });
            };
            steps.push(step);
            rest = behind;
        }
        Ok(Self { written, steps })
    }

    /// The path as RFC 9535 writes it.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The field of the object with which the path begins; `None` where it does not begin with one.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self.steps.first() {
            Some(Step::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// Copies what stands at the path, as `keep` makes it, to the same place in another object. Of what stands beside
    /// it on the way there is nothing but the places of a list's items.
    pub fn copy(&self, from: &Value, into: &mut Value, keep: &dyn Fn(&Value) -> Value) {
        copy(&self.steps, from, into, keep);
    }

    /// The path to the items of a list that stands at this one.
    pub(super) fn items(&self) -> Self {
        let mut items = self.clone();
        items.steps.push(Step::Item);
        items
    }
}

fn copy(steps: &[Step], from: &Value, into: &mut Value, keep: &dyn Fn(&Value) -> Value) {
    let Some((step, steps)) = steps.split_first() else { return merge(into, keep(from)) };
    match from {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| step.leads_to_name(name)) {
                if !into.is_object() {
                    *into = Value::Object(Map::new());
                }
                if let Some(own) = into.as_object_mut() {
                    copy(steps, value, own.entry(name.as_str()).or_insert(Value::Null), keep);
                }
            }
        }
        Value::Array(items) => {
            if !into.is_array() {
                *into = Value::Array(Vec::new());
            }
            for (at, item) in items.iter().enumerate().filter(|(at, _)| step.leads_to_item(*at)) {
                if let Some(own) = into.as_array_mut() {
                    own.resize(own.len().max(items.len()), Value::Null);
                    if let Some(place) = own.get_mut(at) {
                        copy(steps, item, place, keep);
                    }
                }
            }
        }
        // No path leads through any other. What it is stays to be told, and not what it says.
        other if into.is_null() => *into = blank(other),
        _ => {}
    }
}

/// Adds to a value what it lacks of another.
fn merge(into: &mut Value, other: Value) {
    match (into, other) {
        (Value::Object(own), Value::Object(other)) => {
            for (name, value) in other {
                merge(own.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(own), Value::Array(other)) => {
            own.resize(own.len().max(other.len()), Value::Null);
            own.iter_mut().zip(other).for_each(|(own, other)| merge(own, other));
        }
        (into @ Value::Null, other) => *into = other,
        _ => {}
    }
}

/// A value of the same type that says nothing.
#[must_use]
pub fn blank(value: &Value) -> Value {
    match value {
        Value::String(_) => Value::String(String::new()),
        Value::Array(_) => Value::Array(Vec::new()),
        Value::Object(_) => Value::Object(Map::new()),
        other => other.clone(),
    }
}

impl Step {
    fn leads_to_name(&self, key: &str) -> bool {
        match self {
            Self::Name(name) => name == key,
            Self::Index(_) | Self::Item => false,
            Self::Every => true,
        }
    }

    fn leads_to_item(&self, at: usize) -> bool {
        match self {
            Self::Name(_) => false,
            Self::Index(index) => *index == at,
            Self::Every | Self::Item => true,
        }
    }
}

/// The first step of a path, and what is behind it.
fn step(text: &str) -> Option<(Step, &str)> {
    if let Some(text) = text.strip_prefix('.') {
        if let Some(rest) = text.strip_prefix('*') {
            return Some((Step::Every, rest));
        }
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii();
        let (name, rest) = text.split_at(text.find(|letter| !is_of_name(letter)).unwrap_or(text.len()));
        let is_name = !name.is_empty() && !name.starts_with(|letter: char| letter.is_ascii_digit());
        return is_name.then(|| (Step::Name(name.to_owned()), rest));
    }
    let text = text.strip_prefix('[')?.trim_start();
    let (step, rest) = match text.chars().next()? {
        '*' => (Step::Every, &text[1..]),
        quote @ ('\'' | '"') => {
            let (name, rest) = quoted(&text[1..], quote)?;
            (Step::Name(name), rest)
        }
        _ => {
            let (digits, rest) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
            (Step::Index(digits.parse().ok().filter(|_| digits == "0" || !digits.starts_with('0'))?), rest)
        }
    };
    Some((step, rest.trim_start().strip_prefix(']')?))
}

/// A name up to the quote that ends it, and what is behind that.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next().map(|(_, escaped)| escaped).filter(|letter| "\\'\"/".contains(*letter))?),
            _ if letter == quote => return Some((name, &text[at + 1..])),
            _ => name.push(letter),
        }
    }
    None
}

/// What stands at a path.
#[derive(Debug)]
pub(super) struct Found<'v> {
    /// Which of the paths leads there: the first that does.
    pub(super) path: usize,
    /// Where it stands, for people: different places may be written alike.
    pub(super) place: String,
    pub(super) value: &'v RawValue,
}

/// What stands at several paths, in the order of the paths.
#[derive(Debug, Default)]
pub(super) struct Finds<'v> {
    pub(super) found: Vec<Found<'v>>,
    /// Whether there is more than what was found.
    pub(super) is_cut: bool,
}

/// Finds what stands at the paths, each place once, up to so many places; null is nothing.
///
/// # Errors
/// Where the text is not JSON.
pub(super) fn find<'v>(paths: &[&JsonPath], json: &'v str, most: usize) -> Result<Finds<'v>, serde_json::Error> {
    let mut walk = Walk { paths, most, finds: Finds::default() };
    let active: Vec<_> = (0..paths.len()).collect();
    let outcome = Node { walk: &mut walk, active, place: Place::Root, depth: 0 }
        .deserialize(&mut serde_json::Deserializer::from_str(json));
    let Walk { mut finds, .. } = walk;
    match outcome {
        Err(error) if !finds.is_cut => Err(error),
        _ => {
            finds.found.sort_by_key(|found| found.path);
            Ok(finds)
        }
    }
}

struct Walk<'w, 'v> {
    paths: &'w [&'w JsonPath],
    most: usize,
    finds: Finds<'v>,
}

/// A value on the way, and the paths that lead there: without `..` all have come equally far.
struct Node<'n, 'w, 'v> {
    walk: &'n mut Walk<'w, 'v>,
    active: Vec<usize>,
    place: Place<'n>,
    depth: usize,
}

impl<'v> DeserializeSeed<'v> for Node<'_, '_, 'v> {
    type Value = ();

    fn deserialize<D: Deserializer<'v>>(mut self, deserializer: D) -> Result<(), D::Error> {
        let paths = self.walk.paths;
        let depth = self.depth;
        let end = self.active.iter().copied().find(|path| paths[*path].steps.len() == depth);
        self.active.retain(|path| paths[*path].steps.len() > depth);
        match (end, self.active.is_empty()) {
            (None, true) => IgnoredAny::deserialize(deserializer).map(|_| ()),
            (None, false) => deserializer.deserialize_any(self),
            (Some(path), ends) => {
                let value = <&RawValue>::deserialize(deserializer)?;
                if value.get() != "null" {
                    let finds = &mut self.walk.finds;
                    if finds.found.len() == self.walk.most {
                        finds.is_cut = true;
                        return Err(D::Error::custom("more than is asked for"));
                    }
                    finds.found.push(Found { path, place: self.place.to_string(), value });
                }
                if ends {
                    return Ok(());
                }
                self.deserialize(&mut serde_json::Deserializer::from_str(value.get())).map_err(D::Error::custom)
            }
        }
    }
}

impl Node<'_, '_, '_> {
    /// The paths that lead on by a step.
    fn onwards(&self, leads: impl Fn(&Step) -> bool) -> Vec<usize> {
        let leads = |path: &usize| leads(&self.walk.paths[*path].steps[self.depth]);
        self.active.iter().copied().filter(leads).collect()
    }
}

impl<'v> Visitor<'v> for Node<'_, '_, 'v> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'v>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'v>>()? {
            let active = self.onwards(|step| step.leads_to_name(&key));
            let place = Place::Name(&self.place, &key);
            map.next_value_seed(Node { walk: &mut *self.walk, active, place, depth: self.depth + 1 })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'v>>(self, mut seq: A) -> Result<(), A::Error> {
        for at in 0.. {
            let active = self.onwards(|step| step.leads_to_item(at));
            let place = Place::Index(&self.place, at);
            if seq.next_element_seed(Node { walk: &mut *self.walk, active, place, depth: self.depth + 1 })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    // No path leads through any of these.

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// Where something stands, written as Kubernetes writes a field: `spec.workerGroupSpecs[1].template`.
enum Place<'p> {
    Root,
    Name(&'p Place<'p>, &'p str),
    Index(&'p Place<'p>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Index(above, index) => write!(f, "{above}[{index}]"),
            Self::Name(Self::Root, name) if is_plain(name) => f.write_str(name),
            Self::Name(above, name) if is_plain(name) => write!(f, "{above}.{name}"),
            Self::Name(above, name) => write!(f, "{above}[\"{}\"]", Excerpt(name)),
        }
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
