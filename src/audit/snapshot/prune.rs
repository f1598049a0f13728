//! What is kept of an object as JSON: what an audit reads of it, named field by field. Whatever else an object holds,
//! secrets among it, is in no snapshot, and so in no file that one is saved to.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::read;
use crate::audit::adopt::ANSWERS;
use crate::policy::{CustomResource, JsonPath, Kind, MIRROR_ANNOTATION, PodSpecs, Policy, RawMap, blank};

/// What is read of something like a pod's spec, beside its containers and resources.
const OF_SPEC: [&str; 12] = [
    "affinity",
    "hostNetwork",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "schedulerName",
    "schedulingGates",
    "tolerations",
];

/// What is read of an owner reference.
const OF_OWNER: [&str; 4] = ["apiVersion", "controller", "kind", "name"];

/// What a contract leads to in objects.
#[derive(Debug)]
pub(super) struct Kept {
    annotations: BTreeSet<String>,
}

impl Kept {
    pub(super) fn of(policy: &Policy) -> Self {
        let of_pools = policy.pools().iter().flat_map(|pool| {
            let models = pool.models.iter().map(|models| &models.annotation);
            models.chain(&pool.markers.annotations)
        });
        let selection = policy.selection().annotation.iter();
        let others = ANSWERS.into_iter().chain([MIRROR_ANNOTATION]).map(str::to_owned);
        let annotations = of_pools.chain(selection).cloned().chain(others).collect();
        Self { annotations }
    }

    /// What is read of an object's metadata.
    pub(super) fn metadata(&self, metadata: &read::Metadata<'_>) -> String {
        let mut json = format!("{{\"name\":{}", Value::from(&*metadata.name));
        for (key, value) in [("generateName", &metadata.generate_name), ("namespace", &metadata.namespace)] {
            if !value.is_empty() {
                let _ = write!(json, ",\"{key}\":{}", Value::from(&**value));
            }
        }
        if let Some(labels) = metadata.labels {
            let _ = write!(json, ",\"labels\":{}", compact(labels.get()));
        }
        if let Some(owners) = metadata.owners {
            let owners = serde_json::from_str(owners.get()).unwrap_or_default();
            let _ = write!(json, ",\"ownerReferences\":{}", list(&owners, owner));
        }
        let mut separator = ",\"annotations\":{";
        for (key, raw) in metadata.annotations.0.iter().filter(|(key, _)| self.annotations.contains(&**key)) {
            let _ = write!(json, "{separator}{}:{}", Value::from(&**key), raw.get());
            separator = ",";
        }
        json.push_str(if separator == "," { "}}" } else { "}" });
        json
    }

    /// What is read of a workload: the metadata, and what stands at the path of its kind, or at the contract's paths.
    pub(super) fn workload(
        &self,
        api_version: &str,
        (kind, name): (Kind, &str),
        custom: Option<&CustomResource>,
        metadata: &read::Metadata<'_>,
        object: &str,
    ) -> String {
        let whole: Value = serde_json::from_str(object).unwrap_or_default();
        let metadata: Value = serde_json::from_str(&self.metadata(metadata)).unwrap_or_default();
        let mut kept = json!({"apiVersion": api_version, "kind": name, "metadata": metadata});
        let mut copy = |path: &str, keep: &dyn Fn(&Value) -> Value| {
            if let Ok(path) = JsonPath::new(path) {
                path.copy(&whole, &mut kept, keep);
            }
        };
        copy("$.spec.replicas", &|value| if value.is_number() { value.clone() } else { Value::Null });
        let template = |value: &Value| self.template(value);
        if kind != Kind::Custom {
            copy("$.spec.selector", &Value::clone);
            copy(&format!("$.{}", kind.pod_path().trim_end_matches('.')), &template);
        }
        for path in custom.iter().flat_map(|custom| &custom.templates) {
            path.copy(&whole, &mut kept, &template);
        }
        for specs in custom.iter().flat_map(|custom| &custom.pod_specs) {
            specs.path.copy(&whole, &mut kept, &|value| self.pod_specs(specs, value));
        }
        kept.to_string()
    }

    fn template(&self, template: &Value) -> Value {
        fields(template, |key, value| match key {
            "metadata" => Some(fields(value, |key, value| match key {
                "name" | "generateName" | "namespace" | "labels" => Some(value.clone()),
                "ownerReferences" => Some(list(value, owner)),
                "annotations" => Some(self.annotations(value)),
                _ => None,
            })),
            "spec" => Some(spec(value)),
            _ => None,
        })
    }

    /// Something like a pod's spec, which may hold annotations, and at the contract's paths more that asks for resources.
    fn pod_specs(
        &self,
        PodSpecs { path: _, containers, resources: amounts_of, amounts }: &PodSpecs,
        own: &Value,
    ) -> Value {
        let mut kept = spec(own);
        if let (Value::Object(own), Value::Object(kept)) = (own, &mut kept) {
            if let Some(annotations) = own.get("annotations") {
                kept.insert("annotations".to_owned(), self.annotations(annotations));
            }
            if let Some(metadata) = own.get("metadata") {
                let metadata = fields(metadata, |key, value| (key == "annotations").then(|| self.annotations(value)));
                kept.insert("metadata".to_owned(), metadata);
            }
        }
        let mut copy = |paths: &[JsonPath], keep: fn(&Value) -> Value| {
            let keep = |value: &Value| if value.is_array() { list(value, keep) } else { keep(value) };
            for path in paths {
                path.copy(own, &mut kept, &keep);
            }
        };
        copy(containers, container);
        copy(amounts_of, resources);
        copy(amounts, |amount| picked(amount, &["name", "quantity"]));
        kept
    }

    fn annotations(&self, annotations: &Value) -> Value {
        fields(annotations, |key, value| self.annotations.contains(key).then(|| value.clone()))
    }
}

fn spec(spec: &Value) -> Value {
    fields(spec, |key, value| match key {
        "containers" | "initContainers" => Some(list(value, container)),
        "resources" => Some(resources(value)),
        _ => OF_SPEC.contains(&key).then(|| value.clone()),
    })
}

fn container(container: &Value) -> Value {
    fields(container, |key, value| match key {
        "image" | "restartPolicy" => Some(value.clone()),
        "resources" => Some(resources(value)),
        _ => None,
    })
}

fn resources(resources: &Value) -> Value {
    picked(resources, &["limits", "requests"])
}

fn owner(owner: &Value) -> Value {
    picked(owner, &OF_OWNER)
}

fn picked(value: &Value, names: &[&str]) -> Value {
    fields(value, |key, value| names.contains(&key).then(|| value.clone()))
}

/// The fields that are kept of an object. What is no object is wrong there, which is for who reads it to tell.
fn fields(value: &Value, keep: impl Fn(&str, &Value) -> Option<Value>) -> Value {
    let Value::Object(fields) = value else { return blank(value) };
    let fields = fields.iter().filter_map(|(key, value)| Some((key.clone(), keep(key, value)?)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn list(value: &Value, keep: impl Fn(&Value) -> Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(keep).collect(),
        other => blank(other),
    }
}

/// What rules read of a pod's spec but the node's name, without braces.
pub(super) fn spec_json(spec: &read::PodSpec<'_>) -> String {
    let mut fields = Vec::new();
    for (key, raw) in [
        ("tolerations", spec.tolerations),
        ("nodeSelector", spec.node_selector),
        ("affinity", spec.affinity),
        ("preemptionPolicy", spec.preemption_policy),
        ("resourceClaims", spec.resource_claims),
    ] {
        fields.extend(raw.map(|raw| format!("\"{key}\":{}", compact(raw.get()))));
    }
    if !spec.priority_class_name.is_empty() {
        fields.push(format!("\"priorityClassName\":{}", Value::from(&*spec.priority_class_name)));
    }
    fields.extend(spec.priority.map(|priority| format!("\"priority\":{priority}")));
    for (key, containers) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
        if containers.iter().any(|container| has_extended(&container.resources)) {
            let containers: Vec<_> = containers.iter().map(resources_json).collect();
            fields.push(format!("\"{key}\":[{}]", containers.join(",")));
        }
    }
    fields.join(",")
}

fn has_extended(resources: &read::Resources<'_>) -> bool {
    resources.requests.0.iter().chain(&resources.limits.0).any(|(name, _)| name.contains('/'))
}

fn resources_json(container: &read::Container<'_>) -> String {
    let resources = &container.resources;
    let map = |map: &RawMap<'_>| {
        let entries: Vec<_> =
            map.0.iter().map(|(name, raw)| format!("{}:{}", Value::from(&**name), raw.get())).collect();
        entries.join(",")
    };
    let sidecar = if &*container.restart_policy == "Always" { "\"restartPolicy\":\"Always\"," } else { "" };
    format!(
        "{{{sidecar}\"resources\":{{\"requests\":{{{}}},\"limits\":{{{}}}}}}}",
        map(&resources.requests),
        map(&resources.limits)
    )
}

/// The same JSON without the space between its tokens, of which kubectl writes more than of all else.
pub(super) fn compact(json: &str) -> String {
    let mut compact = String::with_capacity(json.len());
    let mut rest = json;
    // Outside of strings space means nothing; a string ends at the first quote that no backslash stands before.
    while let Some(quote) = rest.find('"') {
        compact.extend(rest[..quote].split_ascii_whitespace());
        let string = &rest[quote + 1..];
        let mut escaped = false;
        let end = string.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let end = end.map_or(string.len(), |end| end + 1);
        compact.push('"');
        compact.push_str(&string[..end]);
        rest = &string[end..];
    }
    compact.extend(rest.split_ascii_whitespace());
    compact
}
