//! How the JSON of an object is read: borrowed from the document, only the named fields, `null` as absent,
//! and nothing but a map where a map belongs. (serde's own derive takes a list for a struct as well.)

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON string, borrowed from the document unless it holds escapes. `null` reads as empty, as it
/// does in Kubernetes' own decoder.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

/// Text out of an object as it stands in a message: cut, because it may be as long as a body, and
/// [`visible`].
pub(super) struct Excerpt<'a>(pub(super) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 80;
        let cut = self.0.char_indices().nth(LONGEST).map(|(end, _)| end);
        f.write_str(&visible(&self.0[..cut.unwrap_or(self.0.len())]))?;
        if cut.is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// The text with what a terminal would obey replaced: control characters, and those that turn the
/// direction of writing around. (The API server drops a warning that has a control character.)
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(obeyed) { Cow::Owned(text.replace(obeyed, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The most items that a list or a map may have that is kept. Two bytes of JSON can become a hundred in
/// memory, and no object that runs comes near it.
pub(super) const MOST: usize = 10_000;

/// Fails where `most` items are there already.
pub(super) fn within_bounds<E: serde::de::Error>(items: usize, most: usize) -> Result<(), E> {
    if items < most { Ok(()) } else { Err(E::custom(format_args!("more than {most} items, which cannot be judged"))) }
}

/// A map of strings, such as a nodeSelector, in the order of the document.
#[derive(Debug, Clone, Default)]
pub struct StringMap<'a>(pub Vec<(Text<'a>, Text<'a>)>);

impl StringMap<'_> {
    /// The value of a key. A key given twice counts with its last value, as in Kubernetes.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }
}

/// A map whose values are looked at only when asked for, such as annotations.
#[derive(Debug, Clone, Default)]
pub struct RawMap<'a>(pub Vec<(Text<'a>, &'a RawValue)>);

impl<'a> RawMap<'a> {
    /// Whether the key is there.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| &**name == key)
    }

    /// The string at a key; `None` where it is absent or not a string.
    #[must_use]
    pub fn string(&self, key: &str) -> Option<Text<'a>> {
        let (_, raw) = self.0.iter().rev().find(|(name, _)| &**name == key)?;
        serde_json::from_str(raw.get()).ok()
    }
}

/// A map that is kept as it stands and read only where somebody asks, such as labels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unread<'a>(Option<&'a RawValue>);

impl<'a> Unread<'a> {
    /// What it holds; nothing where it is absent or no map.
    #[must_use]
    pub fn read(self) -> RawMap<'a> {
        self.0.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Unread<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}

/// Resources named `vendor/resource`, with their quantities unread. Native ones (cpu, memory,
/// hugepages) are passed over: a pool's resources always have a vendor.
#[derive(Debug, Clone, Default)]
pub(super) struct ExtendedResources<'a>(pub(super) Vec<(Text<'a>, &'a RawValue)>);

macro_rules! from_map {
    ($name:ident, $expecting:literal, |$map:ident, $entries:ident, $key:ident| $take:expr) => {
        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct MapVisitor;

                impl<'de> Visitor<'de> for MapVisitor {
                    type Value = $name<'de>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_unit<E>(self) -> Result<Self::Value, E> {
                        Ok($name::default())
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut $map: A) -> Result<Self::Value, A::Error> {
                        let mut $entries = Vec::new();
                        while let Some($key) = $map.next_key::<Text<'de>>()? {
                            $take;
                        }
                        Ok($name($entries))
                    }
                }

                deserializer.deserialize_any(MapVisitor)
            }
        }
    };
}

from_map!(StringMap, "a map of strings", |map, entries, key| {
    within_bounds(entries.len(), MOST)?;
    entries.push((key, map.next_value()?));
});
from_map!(RawMap, "a map", |map, entries, key| {
    within_bounds(entries.len(), MOST)?;
    entries.push((key, map.next_value()?));
});
from_map!(ExtendedResources, "a map of quantities", |map, entries, key| {
    if key.contains('/') {
        within_bounds(entries.len(), MOST)?;
        entries.push((key, map.next_value()?));
    } else {
        map.next_value::<IgnoredAny>()?;
    }
});

/// A value together with the JSON it was read from.
#[derive(Debug, Clone)]
pub struct Verbatim<'a, T> {
    /// The JSON as it stands in the document.
    pub json: &'a RawValue,
    /// What it says.
    pub value: T,
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Verbatim<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?;
        let value = serde_json::from_str(json.get()).map_err(|_| D::Error::custom(located::<T>(json.get())))?;
        Ok(Self { json, value })
    }
}

/// What is wrong in a value, with the path to it, which begins with `[` or `.` so that it reads on from the
/// path of the value itself.
pub(super) fn located<'de, T: Deserialize<'de>>(json: &'de str) -> String {
    let mut json = serde_json::Deserializer::from_str(json);
    match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Ok(_) => "cannot be read".to_owned(),
        Err(error) => at_path(error.path(), error.inner()),
    }
}

/// What is wrong, behind the path to it.
pub(super) fn at_path(path: &serde_path_to_error::Path, error: &serde_json::Error) -> String {
    let message = without_position(error);
    match path.to_string().as_str() {
        "." => message,
        path => {
            let start = if path.starts_with('[') { "" } else { "." };
            // A value that is read by itself knows the rest of the path.
            let separator = if message.starts_with(['[', '.']) { "" } else { ": " };
            format!("{start}{path}{separator}{message}")
        }
    }
}

/// The message without the place in the text, which is of no use where the path says it better.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}

/// A list of at most so many items, with null as the empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T, const MOST: usize = { self::MOST }>(pub Vec<T>);

impl<T, const MOST: usize> Default for List<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MOST: usize> Deref for List<T, MOST> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for List<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for ListVisitor<T, MOST> {
            type Value = List<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(List::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    within_bounds(items.len(), MOST)?;
                    items.push(item);
                }
                Ok(List(items))
            }
        }

        deserializer.deserialize_any(ListVisitor::<T, MOST>(PhantomData))
    }
}

/// Defines a struct for the fields of a JSON object that are read. Each has a default, which absent and
/// null fields take; a field given twice is an error, since readers differ on which of the two counts.
macro_rules! object {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident<$life:lifetime> as $expecting:literal {
            $( $(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty = $key:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default)]
        $visibility struct $name<$life> {
            $( $(#[$field_meta])* $field_visibility $field: $type, )*
        }

        impl<'de: $life, $life> serde::Deserialize<'de> for $name<$life> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ObjectVisitor;

                impl<'de> serde::de::Visitor<'de> for ObjectVisitor {
                    type Value = $name<'de>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_unit<E>(self) -> Result<Self::Value, E> {
                        Ok($name::default())
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        $( let mut $field = None; )*
                        while let Some(key) = map.next_key::<$crate::policy::Text<'de>>()? {
                            match &*key {
                                $( $key if $field.is_some() => {
                                    return Err(serde::de::Error::duplicate_field($key));
                                }
                                $key => $field = Some(map.next_value()?), )*
                                _ => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                }
                            }
                        }
                        Ok($name { $( $field: $field.unwrap_or_default(), )* })
                    }
                }

                deserializer.deserialize_any(ObjectVisitor)
            }
        }
    };
}
pub(crate) use object;
