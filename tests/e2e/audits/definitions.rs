use std::time::Duration;

use gpufence::audit::{ReportForm, ReportKind};
use serde_json::{Value, json};

use crate::api::admin;
use crate::poll;
use crate::world::World;

/// Defines the kinds of a form, as whoever installs them does, with every field that they have and nothing that lets
/// others through.
pub fn define(world: &World, form: ReportForm) {
    for (kind, scope) in [(form.of_namespaces(), "Namespaced"), (form.of_cluster(), "Cluster")] {
        world.make(&definition(form, kind, scope));
        poll::until("the kind is served", Duration::from_secs(20), || {
            let reply = admin().get(&format!("/apis/{}/{}", form.api_version(), kind.plural));
            let known = admin().get(&format!("/apis/{}", form.api_version()));
            let is_listed = known.body["resources"]
                .as_array()
                .is_some_and(|resources| resources.iter().any(|resource| resource["name"] == kind.plural));
            if reply.code == 200 && is_listed { Ok(()) } else { Err(format!("{reply:#?} {known:#?}")) }
        });
    }
}

fn definition(form: ReportForm, ReportKind { kind, plural }: ReportKind, scope: &str) -> Value {
    let string = json!({"type": "string"});
    let strings = json!({"type": "object", "additionalProperties": string});
    let one_of = |words: &[&str]| json!({"type": "string", "enum": words});
    let results = ["pass", "fail", "warn", "error", "skip"];
    let is_new = form == ReportForm::OpenReports;
    let severities =
        if is_new { &["critical", "high", "low", "medium", "info"][..] } else { &["high", "low", "medium"] };
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": string,
            "operator": string,
            "values": {"type": "array", "items": string},
        },
    });
    let selector = json!({
        "type": "object",
        "properties": {"matchLabels": strings, "matchExpressions": {"type": "array", "items": expression}},
    });
    let reference_fields = ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"];
    let reference_fields: serde_json::Map<_, _> =
        reference_fields.into_iter().map(|field| (field.to_owned(), string.clone())).collect();
    let reference = json!({"type": "object", "properties": reference_fields});
    let timestamp = json!({
        "type": "object",
        "required": ["nanos", "seconds"],
        "properties": {
            "nanos": {"type": "integer", "format": "int32"},
            "seconds": {"type": "integer", "format": "int64"},
        },
    });
    let result = json!({
        "type": "object",
        "required": ["policy"],
        "properties": {
            "category": string,
            "message": string,
            "policy": string,
            "properties": strings,
            "resourceSelector": selector,
            "resources": {"type": "array", "items": reference},
            "result": one_of(&results),
            "rule": string,
            "scored": {"type": "boolean"},
            "severity": one_of(severities),
            "source": string,
            "timestamp": timestamp,
        },
    });
    let counts: serde_json::Map<_, _> =
        results.into_iter().map(|result| (result.to_owned(), json!({"type": "integer"}))).collect();
    let mut properties = json!({
        "apiVersion": string,
        "kind": string,
        "metadata": {"type": "object"},
        "results": {"type": "array", "items": result},
        "scope": reference,
        "scopeSelector": selector,
        "summary": {"type": "object", "properties": counts},
    });
    if is_new {
        properties["source"] = string.clone();
        let limits = json!({
            "type": "object",
            "properties": {
                "maxResults": {"type": "integer"},
                "statusFilter": {"type": "array", "items": one_of(&results)},
            },
        });
        properties["configuration"] =
            json!({"type": "object", "required": ["limits"], "properties": {"limits": limits}});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{}", form.group()),
            // The API server keeps such groups for kinds whose definition was looked at by its own people.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": form.group(),
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
            },
            "versions": [{
                "name": form.version(),
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}
