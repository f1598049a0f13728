//! JSON of any size, read an object at a time: the dump of a cluster's pods is larger than what is kept of it by far.

use std::fmt;
use std::io::{BufReader, Read};

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

/// How much of a file is read at once.
const CHUNK: usize = 1 << 20;

/// The text is no JSON, or no objects.
#[derive(Debug, thiserror::Error)]
#[error("is not JSON of Kubernetes objects: {0}")]
pub struct StreamError(#[from] serde_json::Error);

/// Calls for each object of a JSON text, lists taken apart, but for a typed list without items, which is called for
/// itself: with its place, and the apiVersion and kind that its list
/// gives it where it says none itself.
///
/// # Errors
/// Where the text ends early or is no JSON; what came before has been called for.
pub fn stream(reader: impl Read, mut each: impl FnMut(usize, &str, &str, &str)) -> Result<(), StreamError> {
    let mut deserializer = Deserializer::from_reader(BufReader::with_capacity(CHUNK, reader));
    let mut count = 0;
    // Whether there is more is seen without taking it.
    while deserializer.end().is_err() {
        Document { each: &mut each, count: &mut count }.deserialize(&mut deserializer)?;
    }
    Ok(())
}

/// One object, or a list of them.
struct Document<'e, E> {
    each: &'e mut E,
    count: &'e mut usize,
}

impl<E: FnMut(usize, &str, &str, &str)> Document<'_, E> {
    fn call(&mut self, api_version: &str, kind: &str, json: &str) {
        (self.each)(*self.count, api_version, kind, json);
        *self.count += 1;
    }
}

impl<'de, E: FnMut(usize, &str, &str, &str)> DeserializeSeed<'de> for Document<'_, E> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, E: FnMut(usize, &str, &str, &str)> Visitor<'de> for Document<'_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object or a list of them")
    }

    /// Null, which is what an empty YAML document becomes.
    fn visit_unit<E2>(self) -> Result<(), E2> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            self.call("", "", item.get());
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
        let mut is_list = false;
        // Items of a typed list that came before its kind.
        let mut waiting = Vec::new();
        let before = *self.count;
        while let Some(key) = map.next_key::<String>()? {
            if key != "items" {
                fields.push((key, map.next_value()?));
                continue;
            }
            is_list = true;
            let (api_version, kind) = (text(&fields, "apiVersion"), item_kind(&fields));
            let mut items = Items { document: &mut self, api_version, kind, waiting: &mut waiting };
            map.next_value_seed(&mut items)?;
        }
        if is_list {
            let (api_version, kind) = (text(&fields, "apiVersion"), item_kind(&fields));
            for item in &waiting {
                self.call(&api_version, &kind, item.get());
            }
            if *self.count == before && !kind.is_empty() {
                let empty = serde_json::json!({"apiVersion": api_version, "kind": format!("{kind}List"), "items": []});
                self.call("", "", &empty.to_string());
            }
            return Ok(());
        }
        let fields: Vec<_> =
            fields.iter().map(|(key, json)| format!("{}:{}", serde_json::Value::from(&**key), json.get())).collect();
        self.call("", "", &format!("{{{}}}", fields.join(",")));
        Ok(())
    }
}

/// The items of a list.
struct Items<'s, 'e, E> {
    document: &'s mut Document<'e, E>,
    api_version: String,
    /// The kind of the items; empty where they say it themselves, or the list has not said it yet.
    kind: String,
    waiting: &'s mut Vec<Box<RawValue>>,
}

impl<'de, E: FnMut(usize, &str, &str, &str)> DeserializeSeed<'de> for &mut Items<'_, '_, E> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, E: FnMut(usize, &str, &str, &str)> Visitor<'de> for &mut Items<'_, '_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E2>(self) -> Result<(), E2> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            if self.kind.is_empty() && !names_its_kind(item.get()) {
                self.waiting.push(item);
            } else {
                self.document.call(&self.api_version, &self.kind, item.get());
            }
        }
        Ok(())
    }
}

/// Whether an item says itself what it is. The two fields come first wherever somebody writes them, so that a glance
/// is enough.
fn names_its_kind(json: &str) -> bool {
    let first = json.trim_start_matches(|letter: char| letter == '{' || letter.is_ascii_whitespace());
    first.starts_with("\"apiVersion\"") || first.starts_with("\"kind\"")
}

fn text(fields: &[(String, Box<RawValue>)], key: &str) -> String {
    let json = fields.iter().find(|(own, _)| own == key).map(|(_, json)| json.get());
    json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}

/// The kind of the items of a typed list; empty for a list of anything.
fn item_kind(fields: &[(String, Box<RawValue>)]) -> String {
    text(fields, "kind").strip_suffix("List").unwrap_or_default().to_owned()
}
