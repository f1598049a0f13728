//! Custom resources that hold pods: which the contract names, and how their templates are read.
//!
//! The texts of an object's templates are found first ([`CustomResource::find`]); these are then read like those of
//! any other workload, each with the place at which it stands, and one at a time: all of them read take many times
//! the room of the object. What stands nowhere below a path of the contract is not looked at.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{MOST, RawMap, Text, located, object};
use super::json_path::{Finds, Found, JsonPath, find};
use super::pod::{Container, Metadata, Pod, PodSpec, Resources};
use super::toleration::Toleration;
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub fn read<'a>(&'a self, json: &'a str) -> Result<CustomObject<'a>, Unreadable> {
        let own: Own<'a> = serde_json::from_str(json).map_err(|_| Unreadable::whole(located::<Own<'_>>(json)))?;
        // Annotations of the object are none of its pods', and there may be many, for each template anew.
        let metadata = Metadata { annotations: RawMap::default(), ..own.metadata };
        let fields = Fields(&self.fields())
            .deserialize(&mut serde_json::Deserializer::from_str(json))
            .map_err(|error| Unreadable::whole(super::without_position(&error)))?;
        Ok(CustomObject { own: Own { kind: own.kind, metadata }, fields, json })
    }

    /// Finds the templates of an object.
    ///
    /// # Errors
    /// Where it cannot be followed along the paths.
    pub fn find<'a>(&'a self, object: &'a CustomObject<'a>) -> Result<Templates<'a>, Unreadable> {
        let paths: Vec<_> = self.templates.iter().chain(self.pod_specs.iter().map(|specs| &specs.path)).collect();
        let Finds { found, is_cut } =
            find(&paths, object.json, TEMPLATES).map_err(|error| Unreadable::whole(super::without_position(&error)))?;
        let template = |Found { path, place, value }| {
            let specs = path.checked_sub(self.templates.len()).map(|index| &self.pod_specs[index]);
            Template { place, text: value, specs }
        };
        Ok(Templates { own: &object.own, found: found.into_iter().map(template).collect(), is_cut })
    }
}

/// An object of a custom resource, taken apart.
#[derive(Debug)]
pub struct CustomObject<'a> {
    own: Own<'a>,
    fields: BTreeMap<String, &'a RawValue>,
    json: &'a str,
}

impl<'a> CustomObject<'a> {
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

    /// Whether all that the paths lead into is as it was, to the letter.
    #[must_use]
    pub fn is_as(&self, old: &Self) -> bool {
        let alike =
            |(new, old): ((&String, &&RawValue), (&String, &&RawValue))| new.0 == old.0 && new.1.get() == old.1.get();
        self.fields.len() == old.fields.len() && self.fields.iter().zip(&old.fields).all(alike)
    }

    /// The object without its templates: as a whole it is the subject of a request.
    #[must_use]
    pub fn whole(&self) -> Workload<'a> {
        let Own { kind, metadata } = self.own.clone();
        Workload { kind: Kind::Custom, own: Some((kind, metadata)), pod: Pod::default(), part: None }
    }
}

/// The templates of an object, not read yet.
#[derive(Debug)]
pub struct Templates<'a> {
    own: &'a Own<'a>,
    found: Vec<Template<'a>>,
    is_cut: bool,
}

impl<'a> Templates<'a> {
    /// What is wrong where there are more than can be judged.
    #[must_use]
    pub fn excess(&self) -> Option<Unreadable> {
        let message = || format!("more than {TEMPLATES} pod templates, which cannot be judged");
        self.is_cut.then(|| Unreadable::whole(message()))
    }

    /// Reads the templates one after the other, and hands each over.
    pub(super) fn each(
        &self,
        mut judge: impl FnMut(&Template<'a>, Result<&Workload<'_>, Unreadable>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        self.found.iter().try_for_each(|template| {
            let requests = template.requests();
            let workload = requests.as_ref().map_err(Unreadable::clone);
            let workload = workload.and_then(|requests| template.read(self.own, requests));
            judge(template, workload.as_ref().map_err(Unreadable::clone))
        })
    }

    /// Those tolerations of all templates that count. In boxes: there may be many, and the table of a set has room for
    /// more than it holds.
    pub(super) fn tolerations(&self, counts: impl Fn(&Toleration<'_>) -> bool) -> HashSet<Box<Toleration<'a>>> {
        let mut tolerations = HashSet::new();
        for template in &self.found {
            let text = template.text.get();
            let spec: Option<PodSpec<'a>> = match template.specs {
                Some(_) => serde_json::from_str(text).ok(),
                None => serde_json::from_str(text).ok().map(|pod: Pod<'a>| pod.spec),
            };
            let list = spec.and_then(|spec| spec.tolerations).map(|list| list.value.0).unwrap_or_default();
            tolerations.extend(list.into_iter().filter(&counts).map(Box::new));
        }
        tolerations
    }

    /// Whether a template is among these, to the letter, wherever it stands.
    pub(super) fn hold(&self, template: &Template<'_>) -> bool {
        let is_alike = |old: &Template<'_>| {
            let specs = |template: &Template<'_>| template.specs.map(std::ptr::from_ref);
            specs(old) == specs(template) && old.text.get() == template.text.get()
        };
        self.found.iter().any(is_alike)
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
    type Value = BTreeMap<String, &'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = BTreeMap<String, &'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a custom resource")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if self.0.contains(&*key) {
                if fields.insert(key.0.into_owned(), map.next_value()?).is_some() {
                    return Err(A::Error::custom(
                        "a field is there twice, and readers differ on which of the two counts",
                    ));
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(fields)
    }
}

/// A pod template of an object, not read yet.
#[derive(Debug)]
pub(super) struct Template<'a> {
    place: String,
    text: &'a RawValue,
    /// What is known of something like a pod's spec; `None` for a template.
    specs: Option<&'a PodSpecs>,
}

/// Something that asks for resources outside of the lists of containers.
#[derive(Debug)]
struct Request<'a> {
    /// Below the spec.
    place: String,
    text: &'a RawValue,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Container,
    Resources,
    Amount,
}

impl<'a> Template<'a> {
    /// Where it stands, for people.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// What asks for resources at the paths of the contract.
    fn requests(&self) -> Result<Vec<Request<'a>>, Unreadable> {
        let mut requests = Vec::new();
        let Some(PodSpecs { containers, resources, amounts, .. }) = self.specs else { return Ok(requests) };
        // Each may be one container or a list of them.
        let items: Vec<_> = containers.iter().map(JsonPath::items).collect();
        let mut add = |paths: Vec<&JsonPath>, form, counts: fn(&RawValue) -> bool| {
            if paths.is_empty() {
                return Ok(());
            }
            let Finds { found, is_cut } = find(&paths, self.text.get(), MOST)
                .map_err(|error| Unreadable { field: self.place.clone(), message: super::without_position(&error) })?;
            if is_cut || requests.len() + found.len() > MOST {
                let message = format!("more than {MOST} items, which cannot be judged");
                return Err(Unreadable { field: self.place.clone(), message });
            }
            let found = found.into_iter().filter(|found| counts(found.value));
            requests.extend(found.map(|Found { place, value, .. }| Request { place, text: value, form }));
            Ok(())
        };
        add(containers.iter().collect(), Form::Container, |value| !is_list(value))?;
        add(items.iter().collect(), Form::Container, |_| true)?;
        add(resources.iter().collect(), Form::Resources, |_| true)?;
        add(amounts.iter().collect(), Form::Amount, |_| true)?;
        Ok(requests)
    }

    fn read<'t>(&'t self, own: &Own<'t>, requests: &'t [Request<'t>]) -> Result<Workload<'t>, Unreadable> {
        let text = self.text.get();
        let (pod, annotations, has_containers) = if self.specs.is_some() {
            let spec = read::<PodSpec<'t>>(&self.place, text)?;
            let head = read::<SpecHead<'t>>(&self.place, text)?;
            // Of whatever form: only one that is a pod's own is known to be meant.
            let of_metadata = head.metadata.and_then(|metadata| serde_json::from_str(metadata.get()).ok());
            let of_metadata = of_metadata.and_then(|Annotated { annotations }| annotations);
            let (field, annotations) = match (of_metadata.filter(is_map), head.annotations.filter(is_map)) {
                (Some(annotations), _) => ("metadata.annotations", Some(annotations)),
                (None, annotations) => ("annotations", annotations),
            };
            let annotations: RawMap<'t> =
                annotations.map_or_else(|| Ok(RawMap::default()), |map| read(&self.place, map.get()))?;
            let metadata = Metadata { annotations, ..Metadata::default() };
            (Pod { metadata, spec, ..Pod::default() }, Some(field), head.has_containers())
        } else {
            let pod = read::<Pod<'t>>(&self.place, text)?;
            let TemplateHead { spec } = read(&self.place, text)?;
            (pod, None, spec.has_containers())
        };
        let has_amounts = self.specs.is_some_and(|specs| !specs.amounts.is_empty());
        let holds_container = requests.iter().any(|request| request.form == Form::Container);
        let part = Part {
            place: &self.place,
            annotations,
            requests: requests.iter().map(|request| self.requested(request)).collect::<Result<_, _>>()?,
            is_fragment: !has_containers && !has_amounts && !holds_container,
        };
        let Own { kind, metadata } = own.clone();
        Ok(Workload { kind: Kind::Custom, own: Some((kind, metadata)), pod, part: Some(Box::new(part)) })
    }

    fn requested<'t>(&self, request: &'t Request<'t>) -> Result<Requested<'t>, Unreadable> {
        let Request { place, text, form } = request;
        let (place, text) = (place.as_str(), text.get());
        let field = match place {
            "" => self.place.clone(),
            place if place.starts_with('[') => format!("{}{place}", self.place),
            place => format!("{}.{place}", self.place),
        };
        Ok(match form {
            Form::Container => {
                Requested::Container { place, resources: read::<Container<'t>>(&field, text)?.resources }
            }
            Form::Resources => Requested::Resources { place, resources: read::<Resources<'t>>(&field, text)? },
            Form::Amount => {
                let Amount { name, quantity } = read(&field, text)?;
                Requested::Amount { place, name, quantity }
            }
        })
    }
}

object! {
    struct Amount<'a> as "a resource's name and quantity" {
        name: Text<'a> = "name",
        quantity: Option<&'a RawValue> = "quantity",
    }
}

object! {
    struct TemplateHead<'a> as "a pod" {
        spec: SpecHead<'a> = "spec",
    }
}

object! {
    /// What is read of something like a pod's spec beside the spec.
    struct SpecHead<'a> as "a pod spec" {
        metadata: Option<&'a RawValue> = "metadata",
        annotations: Option<&'a RawValue> = "annotations",
        containers: Option<&'a RawValue> = "containers",
    }
}

object! {
    struct Annotated<'a> as "metadata" {
        annotations: Option<&'a RawValue> = "annotations",
    }
}

impl SpecHead<'_> {
    fn has_containers(&self) -> bool {
        let items = self.containers.and_then(|list| list.get().strip_prefix('['));
        items.is_some_and(|items| !items.trim_start().starts_with(']'))
    }
}

fn is_map(value: &&RawValue) -> bool {
    value.get().starts_with('{')
}

fn is_list(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

fn read<'a, T: Deserialize<'a>>(field: &str, text: &'a str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|_| Unreadable { field: field.to_owned(), message: located::<T>(text) })
}
