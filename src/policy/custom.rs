//! Custom resources that hold pods: which the contract names, and how their templates are read.
//!
//! The texts of an object's templates are found first ([`CustomResource::find`]); these are then read like those of any other workload, each with the place at which it stands. What stands nowhere below a
//! path of the contract is not looked at.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::json::{RawMap, Text, located, object};
use super::json_path::JsonPath;
use super::pod::{Container, Metadata, Pod, PodSpec, Resources};
use super::workload::{Kind, Part, Requested, Workload};

/// The most templates of one object that are judged.
const TEMPLATES: usize = 250;

/// A kind of custom resource that holds pods, and where in it.
#[derive(Debug, Clone)]
pub struct CustomResource {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The plural by which a webhook's rule names it.
    pub resource: String,
    /// Where pod templates stand: metadata and spec.
    pub templates: Vec<JsonPath>,
    /// Where something stands that is itself like a pod's spec.
    pub pod_specs: Vec<PodSpecs>,
}

/// Where something like a pod's spec stands, and what in it asks for resources beside `containers` and
/// `initContainers`.
#[derive(Debug, Clone)]
pub struct PodSpecs {
    /// Where it stands.
    pub path: JsonPath,
    /// Below it: containers, or lists of them.
    pub containers: Vec<JsonPath>,
    /// Below it: requests and limits that stand outside of a container.
    pub resources: Vec<JsonPath>,
    /// Below it: a resource's name and quantity.
    pub amounts: Vec<JsonPath>,
}

/// What cannot be read in an object.
#[derive(Debug)]
pub struct Unreadable {
    /// The field; empty for the object as a whole.
    pub field: String,
    /// What is wrong, which begins with `[` or `.` where it names more of the field itself.
    pub message: String,
}

impl CustomResource {
    /// The fields of the object with which the paths begin: nothing else of it counts.
    #[must_use]
    pub fn fields(&self) -> BTreeSet<&str> {
        let pod_specs = self.pod_specs.iter().map(|specs| &specs.path);
        self.templates.iter().chain(pod_specs).filter_map(JsonPath::field).collect()
    }

    /// Reads an object as far as the paths lead into it.
    ///
    /// # Errors
    /// Where it is no object.
    pub fn read<'a>(&self, json: &'a str) -> Result<CustomObject<'a>, Unreadable> {
        let own: Own<'a> = serde_json::from_str(json).map_err(|_| Unreadable::whole(located::<Own<'_>>(json)))?;
        let fields = Fields(&self.fields())
            .deserialize(&mut serde_json::Deserializer::from_str(json))
            .map_err(|error| Unreadable::whole(super::without_position(&error)))?;
        Ok(CustomObject { own, fields: Value::Object(fields) })
    }

    /// Finds the templates of an object.
    ///
    /// # Errors
    /// Where it holds more than can be judged.
    pub fn find(&self, object: &CustomObject<'_>) -> Result<Templates, Unreadable> {
        let fields = &object.fields;
        let mut found = Vec::new();
        let mut places = BTreeSet::new();
        let mut add = |place: String, template: &dyn Fn(String) -> Template| {
            if !places.insert(place.clone()) {
                return Ok(());
            }
            if found.len() == TEMPLATES {
                return Err(Unreadable::whole(format!("more than {TEMPLATES} pod templates, which cannot be judged")));
            }
            found.push(template(place));
            Ok(())
        };
        let present = |(_, value): &(_, &Value)| !value.is_null();
        for (place, value) in self.templates.iter().flat_map(|path| path.find(fields)).filter(present) {
            add(place.to_string(), &|place| Template::of_template(place, value))?;
        }
        for specs in &self.pod_specs {
            for (place, value) in specs.path.find(fields).filter(present) {
                add(place.to_string(), &|place| Template::of_spec(place, value, specs))?;
            }
        }
        Ok(Templates(found))
    }
}

/// An object of a custom resource, taken apart.
#[derive(Debug)]
pub struct CustomObject<'a> {
    own: Own<'a>,
    fields: Value,
}

impl CustomObject<'_> {
    /// The kind that the object itself says it is; empty where it does not say.
    #[must_use]
    pub fn declared_kind(&self) -> &str {
        &self.own.kind
    }

    /// The object's name, or its generateName with `*` for what the API server adds.
    #[must_use]
    pub fn display_name(&self) -> String {
        let Metadata { name, generate_name, .. } = &self.own.metadata;
        if name.is_empty() && !generate_name.is_empty() { format!("{generate_name}*") } else { name.to_string() }
    }

    /// Whether all that the paths lead into is as it was.
    #[must_use]
    pub fn is_as(&self, old: &Self) -> bool {
        self.fields == old.fields
    }
}

/// The templates of an object, not read yet.
#[derive(Debug)]
pub struct Templates(Vec<Template>);

impl Templates {
    /// The templates of the object, each read by itself.
    pub fn workloads<'a>(
        &'a self,
        object: &CustomObject<'a>,
    ) -> impl Iterator<Item = Result<Workload<'a>, Unreadable>> {
        let Own { kind, metadata } = &object.own;
        let kind = kind.clone();
        // Annotations of the object are none of its pods', and there may be many, for each template anew.
        let metadata = Metadata { annotations: RawMap::default(), ..metadata.clone() };
        self.0.iter().map(move |template| template.read((kind.clone(), metadata.clone())))
    }
}

impl Unreadable {
    fn whole(message: String) -> Self {
        Self { field: String::new(), message }
    }
}

object! {
    struct Own<'a> as "a custom resource" {
        kind: Text<'a> = "kind",
        metadata: Metadata<'a> = "metadata",
    }
}

/// The fields of an object that count.
struct Fields<'f>(&'f BTreeSet<&'f str>);

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a custom resource")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if self.0.contains(&*key) {
                fields.insert(key.0.into_owned(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(fields)
    }
}

/// A pod template of an object, not read yet.
#[derive(Debug)]
struct Template {
    place: String,
    text: String,
    /// What stands in for the metadata of something like a pod's spec; `None` for a template.
    spec: Option<SpecMetadata>,
    requests: Vec<Request>,
    /// Whether it holds no container, and is a part of a pod's spec at best.
    is_fragment: bool,
}

/// The annotations that something like a pod's spec gives its pods, and where in it.
#[derive(Debug)]
struct SpecMetadata {
    field: &'static str,
    annotations: Option<String>,
}

/// Something that asks for resources outside of the lists of containers.
#[derive(Debug)]
struct Request {
    /// Below the spec.
    place: String,
    text: String,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Container,
    Resources,
    Amount,
}

impl Template {
    fn of_template(place: String, template: &Value) -> Self {
        let is_fragment = !has_containers(&template["spec"]);
        Self { place, text: template.to_string(), spec: None, requests: Vec::new(), is_fragment }
    }

    fn of_spec(place: String, spec: &Value, specs: &PodSpecs) -> Self {
        // Of whatever form: only one that is a pod's own is known to be meant.
        let annotations = |holder: &Value| holder["annotations"].as_object().map(|_| holder["annotations"].to_string());
        let metadata = match annotations(&spec["metadata"]) {
            Some(text) => SpecMetadata { field: "metadata.annotations", annotations: Some(text) },
            None => SpecMetadata { field: "annotations", annotations: annotations(spec) },
        };
        let mut requests = Vec::new();
        let forms =
            [(&specs.containers, Form::Container), (&specs.resources, Form::Resources), (&specs.amounts, Form::Amount)];
        for (path, form) in forms.into_iter().flat_map(|(paths, form)| paths.iter().map(move |path| (path, form))) {
            for (place, value) in path.find(spec) {
                match (form, value) {
                    (_, Value::Null) => {}
                    (Form::Container, Value::Array(items)) => {
                        let one = |(index, item): (usize, &Value)| Request {
                            place: format!("{place}[{index}]"),
                            text: item.to_string(),
                            form,
                        };
                        requests.extend(items.iter().enumerate().map(one));
                    }
                    _ => requests.push(Request { place: place.to_string(), text: value.to_string(), form }),
                }
            }
        }
        let holds = |request: &Request| matches!(request.form, Form::Container);
        let is_fragment = !has_containers(spec) && specs.amounts.is_empty() && !requests.iter().any(holds);
        Self { place, text: spec.to_string(), spec: Some(metadata), requests, is_fragment }
    }

    fn read<'a>(&'a self, own: (Text<'a>, Metadata<'a>)) -> Result<Workload<'a>, Unreadable> {
        let pod = match &self.spec {
            None => read::<Pod<'a>>(&self.place, &self.text)?,
            Some(SpecMetadata { annotations, .. }) => {
                let annotations: RawMap<'a> =
                    annotations.as_ref().map_or_else(|| Ok(RawMap::default()), |text| read(&self.place, text))?;
                let metadata = Metadata { annotations, ..Metadata::default() };
                Pod { metadata, spec: read::<PodSpec<'a>>(&self.place, &self.text)?, ..Pod::default() }
            }
        };
        let requests = self.requests.iter().map(|request| {
            let Request { place, text, form } = request;
            let field = || if place.is_empty() { self.place.clone() } else { format!("{}.{place}", self.place) };
            Ok(match form {
                Form::Container => {
                    Requested::Container { place, resources: read::<Container<'a>>(&field(), text)?.resources }
                }
                Form::Resources => Requested::Resources { place, resources: read::<Resources<'a>>(&field(), text)? },
                Form::Amount => {
                    let Amount { name, quantity } = read(&field(), text)?;
                    Requested::Amount { place, name, quantity }
                }
            })
        });
        let part = Part {
            place: &self.place,
            annotations: self.spec.as_ref().map(|metadata| metadata.field),
            requests: requests.collect::<Result<_, _>>()?,
            is_fragment: self.is_fragment,
        };
        Ok(Workload { kind: Kind::Custom, own: Some(own), pod, part: Some(Box::new(part)) })
    }
}

object! {
    struct Amount<'a> as "a resource's name and quantity" {
        name: Text<'a> = "name",
        quantity: Option<&'a RawValue> = "quantity",
    }
}

fn has_containers(spec: &Value) -> bool {
    spec["containers"].as_array().is_some_and(|containers| !containers.is_empty())
}

fn read<'a, T: Deserialize<'a>>(field: &str, text: &'a str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|_| Unreadable { field: field.to_owned(), message: located::<T>(text) })
}
