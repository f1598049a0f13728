//! A stream of YAML documents as a person would write them: what an object is and is called comes first,
//! the other keys in alphabetical order, and text of several lines as such. The same objects always make
//! the same text.

use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::LitStr;

/// What comes first, in this order.
const FIRST: [&str; 7] = ["apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations"];

/// Writes the objects one after the other, below comment lines.
pub(super) fn stream(comments: &[String], objects: &[Value]) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for line in comments {
        text.push_str("# ");
        text.push_str(line);
        text.push('\n');
    }
    // Quoted for readers of YAML 1.1, which kubectl's is in part: `on` and `012` stay strings.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    for object in objects {
        text.push_str("---\n");
        serde_saphyr::to_fmt_writer_with_options(&mut text, &Ordered(object), options.clone())?;
    }
    Ok(text)
}

struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_by_key(|(key, _)| {
                    (FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len()), key.as_str())
                });
                serializer.collect_map(fields.into_iter().map(|(key, value)| (key, Ordered(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Ordered)),
            Value::String(text) if text.contains('\n') => LitStr(text).serialize(serializer),
            other => other.serialize(serializer),
        }
    }
}
