//! How a pod says that it wants a GPU, and of which pool: `selection`, and the `markers` of a pool.

use super::reader::{Node, Table};
use super::schema::{distinct, patterns};
use super::syntax;
use crate::policy::{Markers, Pool, Selection};

/// The `markers` of a pool, if it has any.
pub(super) fn markers(pool: &Table<'_>) -> Markers {
    let Some(node) = pool.get("markers") else {
        return Markers::default();
    };
    let Some(table) = node.table(&["claims", "annotations"]) else {
        return Markers::default();
    };
    let claims =
        table.get("claims").map(|node| patterns(&node, node.full_list("at least one name"), syntax::object_pattern));
    let annotations = table
        .get("annotations")
        .map(|node| distinct(node.full_list("at least one annotation"), syntax::qualified_name));
    if claims.is_none() && annotations.is_none() {
        node.fault_found("neither claims nor annotations", "a list of resource claims, of annotations, or both");
    }
    Markers { claims: claims.unwrap_or_default(), annotations: annotations.unwrap_or_default() }
}

/// What a pool must offer, which is more than markers.
pub(super) fn resources_of(pool: &Table<'_>) -> &'static str {
    if pool.get("markers").is_some() {
        "a list of extended resources: markers do not replace it"
    } else {
        "a list of extended resources"
    }
}

/// The `selection` section.
pub(super) fn selection(node: &Node<'_>) -> Selection {
    let Some(table) = node.table(&["annotation", "label"]) else {
        return Selection::default();
    };
    let key = |key| table.get(key).map(|node| node.checked(syntax::qualified_name));
    let (annotation, label) = (key("annotation"), key("label"));
    if annotation.is_none() && label.is_none() {
        node.fault_found("neither annotation nor label", "an annotation, a label, or both, by which pods name a pool");
    }
    Selection { annotation: annotation.flatten(), label: label.flatten() }
}

/// Holds the annotations of a contract apart: each means one thing. Naming a pool or a model requests nothing.
pub(super) fn hold_apart(root: &Table<'_>, pools: &[Pool], selection: &Selection) {
    for (item, pool) in root.at("pools").list().iter().zip(pools) {
        let taken = |annotation: &String| {
            if selection.annotation.as_ref() == Some(annotation) {
                return Some("by which pods name a pool");
            }
            let models = pool.models.as_ref()?;
            (models.annotation == *annotation).then_some("by which pods name a model")
        };
        for annotation in &pool.markers.annotations {
            if let Some(meaning) = taken(annotation) {
                item.fault_found(
                    format!("the annotation {annotation}, {meaning}, in the markers of pool {}", pool.name),
                    "annotations that request a GPU",
                );
            }
        }
        let model = pool.models.as_ref().map(|models| &models.annotation);
        if model.is_some() && model == selection.annotation.as_ref() {
            item.fault_found(
                format!("the annotation of selection for the models of pool {}", pool.name),
                "an annotation that names a model and no pool",
            );
        }
    }
}
