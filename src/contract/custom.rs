//! The `customResources` section: which custom resources hold pods, and where.

use serde::Serialize;

use super::reader::{Node, Table};
use super::syntax;
use crate::policy::{CustomResource, JsonPath, Kind, PodSpecs};

const KEYS: [&str; 5] = ["group", "kind", "resource", "templates", "podSpecs"];

/// The list of custom resources.
pub(super) fn read(node: &Node<'_>) -> Vec<CustomResource> {
    let mut resources: Vec<CustomResource> = Vec::new();
    for item in node.list() {
        let Some(resource) = resource(&item) else { continue };
        let CustomResource { group, kind, .. } = &resource;
        if resources.iter().any(|other| (&other.group, &other.kind) == (group, kind)) {
            item.fault_found(format!("a second entry for the kind {kind} of {group}"), "one entry for each kind");
        }
        resources.push(resource);
    }
    resources
}

fn resource(node: &Node<'_>) -> Option<CustomResource> {
    let table = node.table(&KEYS)?;
    let written = |key, valid| table.require(key, valid).and_then(|node| Some((node.text()?, node)));
    let group = written("group", "an API group, such as argoproj.io");
    let kind = written("kind", "a kind, such as Rollout");
    if let (Some((group, _)), Some((kind, _))) = (&group, &kind)
        && Kind::of(group, kind).is_some()
    {
        let group = if group.is_empty() { "the core group" } else { group };
        node.fault_found(
            format!("the kind {kind} of {group}, which is judged without being named"),
            "a custom resource: leave out what Kubernetes itself makes pods from",
        );
        return None;
    }
    let group = group.and_then(|(_, node)| node.checked(syntax::custom_group));
    let kind = kind.and_then(|(_, node)| node.checked(syntax::kind));
    let resource =
        table.require("resource", "the kind's plural, such as rollouts").and_then(|node| node.checked(syntax::plural));
    let templates = paths(&table, "templates", below_the_object);
    let pod_specs = table.get("podSpecs").map(|node| node.full_list("at least one path"));
    let pod_specs = pod_specs.map(|items| items.iter().filter_map(specs).collect());
    if templates.is_none() && pod_specs.is_none() {
        node.fault_found("neither templates nor podSpecs", "the JSONPaths of pod templates, of pod specs, or of both");
    }
    Some(CustomResource {
        group: group?,
        kind: kind?,
        resource: resource?,
        templates: templates.unwrap_or_default(),
        pod_specs: pod_specs.unwrap_or_default(),
    })
}

fn specs(node: &Node<'_>) -> Option<PodSpecs> {
    let table = node.table(&["path", "containers", "resources", "amounts"])?;
    let path = table.require("path", "a JSONPath").and_then(|node| path(&node, below_the_object));
    // Relative to the pod spec, which may be like a container itself.
    let relative = |key| paths(&table, key, |_| Ok(())).unwrap_or_default();
    let (containers, resources, amounts) = (relative("containers"), relative("resources"), relative("amounts"));
    Some(PodSpecs { path: path?, containers, resources, amounts })
}

type Check = fn(&JsonPath) -> Result<(), String>;

fn below_the_object(path: &JsonPath) -> Result<(), String> {
    let valid = "a JSONPath that begins with the name of a field of the object, such as $.spec.template";
    path.field().map(|_| ()).ok_or_else(|| valid.to_owned())
}

/// `None` where the key is absent.
fn paths(table: &Table<'_>, key: &str, check: Check) -> Option<Vec<JsonPath>> {
    let items = table.get(key)?.full_list("at least one JSONPath");
    Some(items.iter().filter_map(|item| path(item, check)).collect())
}

fn path(node: &Node<'_>, check: Check) -> Option<JsonPath> {
    let path = JsonPath::new(node.text()?).and_then(|path| check(&path).map(|()| path));
    path.map_err(|valid| node.fault(valid)).ok()
}

/// An entry as it would be written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PrintedCustomResource<'a> {
    group: &'a str,
    kind: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    templates: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_specs: Vec<PrintedPodSpecs<'a>>,
}

#[derive(Serialize)]
struct PrintedPodSpecs<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    amounts: Vec<&'a str>,
}

impl<'a> From<&'a CustomResource> for PrintedCustomResource<'a> {
    fn from(resource: &'a CustomResource) -> Self {
        let CustomResource { group, kind, resource, templates, pod_specs } = resource;
        let written = |paths: &'a [JsonPath]| paths.iter().map(JsonPath::written).collect();
        let specs = pod_specs.iter().map(|PodSpecs { path, containers, resources, amounts }| PrintedPodSpecs {
            path: path.written(),
            containers: written(containers),
            resources: written(resources),
            amounts: written(amounts),
        });
        Self { group, kind, resource, templates: written(templates), pod_specs: specs.collect() }
    }
}
