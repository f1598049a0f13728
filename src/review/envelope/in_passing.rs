//! Reading the `request` with its objects in one pass. A pod is most of a body, and scanning it twice,
//! first as part of the envelope and then for itself, would double the cost of a review.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Object, Request, Verb};
use crate::policy::{Kind, Workload};

/// A request whose objects are read on the way, where kind and operation came before them.
pub(super) type InPassing<'b> = Reading<'b, true>;

/// A request whose objects stay raw.
pub(super) type Untouched<'b> = Reading<'b, false>;

/// A request, and how its objects are read.
#[derive(Debug, Clone)]
pub(super) struct Reading<'b, const IN_PASSING: bool>(pub(super) Request<'b>);

impl<'de: 'b, 'b, const IN_PASSING: bool> Deserialize<'de> for Reading<'b, IN_PASSING> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestVisitor { in_passing: IN_PASSING }).map(Self)
    }
}

struct RequestVisitor {
    in_passing: bool,
}

#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Uid,
    Kind,
    SubResource,
    Name,
    Namespace,
    Operation,
    UserInfo,
    Object,
    OldObject,
    DryRun,
    #[serde(other)]
    Unread,
}

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = Request<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request of an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut request = Request::default();
        let mut seen = 0_u32;
        while let Some(key) = map.next_key::<Key>()? {
            // As serde's own: a second `object` behind the judged one must not be the one that counts.
            let bit = 1 << key as u32;
            if seen & bit != 0 && !matches!(key, Key::Unread) {
                return Err(A::Error::custom("a field is there twice, and readers differ on which of the two counts"));
            }
            seen |= bit;
            match key {
                Key::Uid => request.uid = map.next_value()?,
                Key::Kind => request.kind = map.next_value()?,
                Key::SubResource => request.sub_resource = map.next_value()?,
                Key::Name => request.name = map.next_value()?,
                Key::Namespace => request.namespace = map.next_value()?,
                Key::Operation => request.operation = map.next_value()?,
                Key::UserInfo => request.user_info = map.next_value()?,
                Key::Object => request.object = self.object(&request, seen, &mut map)?,
                Key::OldObject => request.old_object = self.object(&request, seen, &mut map)?,
                Key::DryRun => request.dry_run = map.next_value::<Option<_>>()?.unwrap_or_default(),
                Key::Unread => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(request)
    }
}

impl RequestVisitor {
    fn object<'de, A: MapAccess<'de>>(
        &self,
        request: &Request<'de>,
        seen: u32,
        map: &mut A,
    ) -> Result<Object<'de>, A::Error> {
        let known = [Key::Kind, Key::Operation].iter().all(|key| seen & (1 << *key as u32) != 0);
        // kube-apiserver writes subResource before the object, and leaves it out where there is none.
        match request.judged_kind() {
            Some(kind) if self.in_passing && known && matches!(request.verb(), Ok(Verb::Create | Verb::Update)) => {
                map.next_value_seed(Nullable(kind)).map(|object| object.map_or(Object::None, Object::Read))
            }
            _ => map.next_value::<Option<&RawValue>>().map(|object| object.map_or(Object::None, Object::Raw)),
        }
    }
}

/// An object of the kind, or null.
struct Nullable(Kind);

impl<'de> DeserializeSeed<'de> for Nullable {
    type Value = Option<Workload<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Nullable {
    type Value = Option<Workload<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} or null", self.0.name())
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.read_from(deserializer).map(Some)
    }
}
