//! What is kept of an object as JSON: what rules read of it, and next to nothing else.

use std::fmt::Write as _;

use serde_json::Value;

use super::read;
use crate::policy::RawMap;

/// An annotation that no rule reads and that holds the whole object again.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What rules read of an object's metadata.
pub(super) fn metadata_json(metadata: &read::Metadata<'_>) -> String {
    let mut json = format!("{{\"name\":{}", Value::from(&*metadata.name));
    for (key, value) in [("generateName", &metadata.generate_name), ("namespace", &metadata.namespace)] {
        if !value.is_empty() {
            let _ = write!(json, ",\"{key}\":{}", Value::from(&**value));
        }
    }
    for (key, raw) in [("labels", metadata.labels), ("ownerReferences", metadata.owners)] {
        if let Some(raw) = raw {
            let _ = write!(json, ",\"{key}\":{}", compact(raw.get()));
        }
    }
    let mut separator = ",\"annotations\":{";
    for (key, raw) in metadata.annotations.0.iter().filter(|(key, _)| &**key != LAST_APPLIED) {
        let _ = write!(json, "{separator}{}:{}", Value::from(&**key), raw.get());
        separator = ",";
    }
    json.push_str(if separator == "," { "}}" } else { "}" });
    json
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

pub(super) fn workload_json(api_version: &str, kind: &str, workload: &read::Workload<'_>) -> String {
    let mut json = format!(
        "{{\"apiVersion\":{},\"kind\":{},\"metadata\":{}",
        Value::from(api_version),
        Value::from(kind),
        metadata_json(&workload.metadata)
    );
    for (key, raw) in [("spec", workload.spec), ("template", workload.template)] {
        if let Some(raw) = raw {
            let _ = write!(json, ",\"{key}\":{}", compact(raw.get()));
        }
    }
    json.push('}');
    json
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
