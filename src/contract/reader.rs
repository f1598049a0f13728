//! Reads the layered tree that the `config` crate makes, and collects every fault in it instead of
//! stopping at the first. Nothing is coerced: a number is not a string, however harmless it looks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use config::{Value, ValueKind};

use crate::policy::visible;

/// Something in the contract that cannot stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where the value comes from: a file, an environment variable, or the built-in contract.
    pub origin: String,
    /// The key's path, such as `pools[0].taints[1].effect`.
    pub path: String,
    /// What was found.
    pub found: String,
    /// What is valid, or what to do.
    pub valid: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, path, found, valid } = self;
        write!(f, "{origin}: {path}: found {found}; valid is {valid}")
    }
}

/// The faults found so far, and how many there were at a point, to tell whether a part is sound.
#[derive(Debug, Default)]
pub(super) struct Faults(RefCell<Vec<Fault>>);

impl Faults {
    pub(super) fn into_inner(self) -> Vec<Fault> {
        self.0.into_inner()
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

/// A value of the tree with its path.
#[derive(Debug, Clone)]
pub(super) struct Node<'v> {
    path: String,
    value: &'v Value,
    faults: &'v Faults,
}

/// A table of the tree, its keys checked.
#[derive(Debug)]
pub(super) struct Table<'v> {
    node: Node<'v>,
    entries: BTreeMap<&'v str, &'v Value>,
}

impl<'v> Node<'v> {
    pub(super) fn root(value: &'v Value, faults: &'v Faults) -> Self {
        Self { path: String::new(), value, faults }
    }

    /// Records that the value cannot stand.
    pub(super) fn fault(&self, valid: impl Into<String>) {
        self.fault_found(describe(self.value), valid);
    }

    /// Records a fault with its own words for what was found.
    pub(super) fn fault_found(&self, found: impl Into<String>, valid: impl Into<String>) {
        let origin = match origin(self.value) {
            None => "the built-in contract".to_owned(),
            // The environment's origin has no name; the path gives it.
            Some("the environment") => format!("GPUFENCE__{}", self.path.to_uppercase().replace('.', "__")),
            Some(file) => file.to_owned(),
        };
        let path = if self.path.is_empty() { "the whole file".to_owned() } else { self.path.clone() };
        self.faults.0.borrow_mut().push(Fault {
            origin,
            path: visible(&path).into_owned(),
            found: visible(&found.into()).into_owned(),
            valid: valid.into(),
        });
    }

    /// A table that has none but the named keys.
    pub(super) fn table(&self, keys: &[&str]) -> Option<Table<'v>> {
        let table = self.open_table(&format!("a map with the keys {}", keys.join(", ")))?;
        for key in table.entries.keys().filter(|key| !keys.contains(key)) {
            table.at(key).fault_found(format!("the unknown key {key}"), format!("one of {}", keys.join(", ")));
        }
        Some(table)
    }

    /// A table whose keys are data.
    pub(super) fn open_table(&self, valid: &str) -> Option<Table<'v>> {
        let ValueKind::Table(entries) = &self.value.kind else {
            self.fault(valid);
            return None;
        };
        let entries = entries.iter().map(|(key, value)| (key.as_str(), value)).collect();
        Some(Table { node: self.clone(), entries })
    }

    /// A map of strings.
    pub(super) fn strings(&self) -> BTreeMap<String, (String, Node<'v>)> {
        let Some(table) = self.open_table("a map of labels") else {
            return BTreeMap::new();
        };
        let entries = table.entries.keys().map(|key| (*key, table.at(key)));
        entries.filter_map(|(key, node)| Some((key.to_owned(), (node.text()?.to_owned(), node)))).collect()
    }

    /// Whether the value is a map without keys.
    pub(super) fn is_empty_map(&self) -> bool {
        matches!(&self.value.kind, ValueKind::Table(entries) if entries.is_empty())
    }

    /// The items of a list.
    pub(super) fn list(&self) -> Vec<Node<'v>> {
        let ValueKind::Array(items) = &self.value.kind else {
            self.fault("a list");
            return Vec::new();
        };
        let node = |(index, value)| Node { path: format!("{}[{index}]", self.path), value, faults: self.faults };
        items.iter().enumerate().map(node).collect()
    }

    /// The items of a list that must have some.
    pub(super) fn full_list(&self, valid: &str) -> Vec<Node<'v>> {
        let items = self.list();
        if matches!(&self.value.kind, ValueKind::Array(items) if items.is_empty()) {
            self.fault_found("an empty list", valid);
        }
        items
    }

    /// A string.
    pub(super) fn text(&self) -> Option<&'v str> {
        match &self.value.kind {
            ValueKind::String(text) => Some(text),
            ValueKind::Nil | ValueKind::Table(_) | ValueKind::Array(_) => {
                self.fault("a string");
                None
            }
            scalar => {
                self.fault(format!("a string: write \"{scalar}\""));
                None
            }
        }
    }

    /// A string that meets a condition, which gives what is valid where it does not.
    pub(super) fn checked(&self, check: impl Fn(&str) -> Result<(), String>) -> Option<String> {
        let text = self.text()?;
        match check(text) {
            Ok(()) => Some(text.to_owned()),
            Err(valid) => {
                self.fault(valid);
                None
            }
        }
    }

    /// A string parsed into something else; `valid` says what is valid.
    pub(super) fn parsed<T>(&self, valid: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let parsed = match &self.value.kind {
            ValueKind::String(text) => parse(text),
            _ => None,
        };
        if parsed.is_none() {
            self.fault(valid);
        }
        parsed
    }

    /// One of a closed set of words.
    pub(super) fn choice<T: Copy>(&self, all: &[T], word: impl Fn(T) -> &'static str) -> Option<T> {
        // YAML 1.1 writers turn `off` into false.
        let text = match &self.value.kind {
            ValueKind::Boolean(false) => "off",
            _ => self.text()?,
        };
        let chosen = all.iter().copied().find(|candidate| word(*candidate) == text);
        if chosen.is_none() {
            self.fault(all.iter().map(|candidate| word(*candidate)).collect::<Vec<_>>().join(", "));
        }
        chosen
    }
}

impl<'v> Table<'v> {
    /// The value at a key; `None` where it is absent or null.
    pub(super) fn get(&self, key: &str) -> Option<Node<'v>> {
        let (key, value) = self.entries.get_key_value(key)?;
        (value.kind != ValueKind::Nil).then(|| self.child(key, value))
    }

    /// The value at a key that is written, be it with nothing behind it: for keys whose absence means more
    /// than an empty value would.
    pub(super) fn written(&self, key: &str) -> Option<Node<'v>> {
        self.entries.get_key_value(key).map(|(key, value)| self.child(key, value))
    }

    /// How many faults there are so far.
    pub(super) fn faults(&self) -> usize {
        self.node.faults.len()
    }

    /// The value at a key that must be there.
    pub(super) fn require(&self, key: &str, valid: &str) -> Option<Node<'v>> {
        let node = self.get(key);
        if node.is_none() {
            let absent = Node { path: join(&self.node.path, key), ..self.node.clone() };
            absent.fault_found("nothing", valid);
        }
        node
    }

    /// The value at a key that is there.
    pub(super) fn at(&self, key: &str) -> Node<'v> {
        match self.entries.get_key_value(key) {
            Some((key, value)) => self.child(key, value),
            None => self.node.clone(),
        }
    }

    fn child(&self, key: &str, value: &'v Value) -> Node<'v> {
        Node { path: join(&self.node.path, key), value, faults: self.node.faults }
    }
}

/// Where the value was written. A map that only the environment writes has no origin but its values'.
fn origin(value: &Value) -> Option<&str> {
    value.origin().or_else(|| match &value.kind {
        ValueKind::Table(entries) => entries.values().find_map(origin),
        ValueKind::Array(items) => items.iter().find_map(origin),
        _ => None,
    })
}

fn join(path: &str, key: &str) -> String {
    match (path.is_empty(), key.contains(['.', '/'])) {
        (true, _) => key.to_owned(),
        (false, true) => format!("{path}[\"{key}\"]"),
        (false, false) => format!("{path}.{key}"),
    }
}

fn describe(value: &Value) -> String {
    match &value.kind {
        ValueKind::Nil => "nothing".to_owned(),
        ValueKind::Boolean(value) => format!("the boolean {value}"),
        ValueKind::String(text) => format!("\"{text}\""),
        ValueKind::Table(_) => "a map".to_owned(),
        ValueKind::Array(_) => "a list".to_owned(),
        number => format!("the number {number}"),
    }
}
