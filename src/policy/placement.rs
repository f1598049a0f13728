//! What a GPU pod still lacks, and the smallest patch that gives it.
//!
//! `/spec/tolerations` and `/spec/nodeSelector` are only ever added to, and never a value that is there is
//! touched: a conflicting one stays, and the rule `placement-conflict` speaks. With a priority class goes what
//! the API server made of its absence.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::pod::{Pod, PodSpec};
use super::pool::Pool;
use super::toleration::Taint;

/// Whether the exact toleration is added beside a wider one that tolerates the taint already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenTolerated {
    /// Add it: the contract wants the exact one.
    Add,
    /// Leave the pod alone, for clusters whose PodTolerationRestriction plugin merges a list that
    /// holds both, and then refuses every later update of the pod.
    Skip,
}

impl WhenTolerated {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Add, Self::Skip];

    /// The contract's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Skip => "skip",
        }
    }
}

/// The terms of a pool for one pod.
#[derive(Debug)]
pub(crate) struct Terms<'p> {
    pub(crate) taints: &'p [Taint],
    pub(crate) when_tolerated: WhenTolerated,
    /// The labels that the pod's nodeSelector must name: the pool's own, and that of the model.
    pub(crate) labels: Vec<(&'p str, &'p str)>,
    /// The priority class, where the pod names none.
    pub(crate) priority_class_name: Option<&'p str>,
}

impl<'p> Terms<'p> {
    /// The terms of a pool, with the label of the model that the pod names.
    pub(crate) fn of(pool: &'p Pool, pod: &Pod<'_>, when_tolerated: WhenTolerated) -> Self {
        Self {
            taints: &pool.taints,
            when_tolerated,
            labels: labels(pool, pod),
            priority_class_name: pool.priority_class_name.as_deref(),
        }
    }
}

/// The labels of a pool for one pod: its own, and that of the model that the pod names.
pub(crate) fn labels<'p>(pool: &'p Pool, pod: &Pod<'_>) -> Vec<(&'p str, &'p str)> {
    let own = pool.node_selector.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let model = pool.models.as_ref().and_then(|models| {
        let named = models.named(pod)?;
        let value = models.values.iter().find(|value| ***value == *named)?;
        Some((models.node_label.as_str(), value.as_str()))
    });
    own.chain(model).collect()
}

/// What a pod lacks of its pool's terms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing<'p> {
    /// Taints without an exact toleration.
    pub(crate) taints: Vec<&'p Taint>,
    /// Labels that the nodeSelector does not mention.
    pub(crate) labels: Vec<(&'p str, &'p str)>,
    /// The priority class.
    pub(crate) priority_class_name: Option<&'p str>,
}

impl<'p> Missing<'p> {
    pub(crate) fn of(terms: &Terms<'p>, spec: &PodSpec<'_>) -> Self {
        let has = |taint: &Taint| {
            spec.tolerations().iter().any(|toleration| match terms.when_tolerated {
                WhenTolerated::Add => toleration.is_exact_for(taint),
                WhenTolerated::Skip => toleration.tolerates(taint) && !toleration.is_bounded(taint),
            })
        };
        Self {
            taints: terms.taints.iter().filter(|taint| !has(taint)).collect(),
            labels: terms.labels.iter().copied().filter(|(key, _)| spec.selects(key).is_none()).collect(),
            priority_class_name: terms.priority_class_name.filter(|_| spec.priority_class_name.is_empty()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taints.is_empty() && self.labels.is_empty() && self.priority_class_name.is_none()
    }

    /// The patch that adds what is missing; `None` where nothing is.
    fn patch(&self, spec: &PodSpec<'_>) -> Option<Patch> {
        let mut operations = Vec::with_capacity(self.taints.len() + self.labels.len());
        let tolerations = self.taints.iter().map(|taint| taint.exact_toleration());
        if spec.tolerations.is_some() {
            operations.extend(tolerations.map(|toleration| add(&["spec", "tolerations", "-"], toleration)));
        } else if !self.taints.is_empty() {
            operations.push(add(&["spec", "tolerations"], tolerations.collect()));
        }
        let mut labels = self.labels.iter().map(|(key, value)| (*key, Value::from(*value)));
        if spec.node_selector.is_some() {
            operations.extend(labels.map(|(key, value)| add(&["spec", "nodeSelector", key], value)));
        } else if !self.labels.is_empty() {
            let map: Map<_, _> = labels.by_ref().map(|(key, value)| (key.to_owned(), value)).collect();
            operations.push(add(&["spec", "nodeSelector"], Value::Object(map)));
        }
        if let Some(name) = self.priority_class_name {
            operations.push(add(&["spec", "priorityClassName"], name.into()));
            // The in-tree Priority plugin has been here, wrote what a pod without a class gets, and comes again
            // after this patch: then it refuses numbers and policies that are not those of the class.
            for (written, field) in [(spec.priority, "priority"), (spec.preemption_policy, "preemptionPolicy")] {
                operations.extend(written.map(|_| remove(&["spec", field])));
            }
        }
        (!operations.is_empty()).then_some(Patch(operations))
    }
}

/// The patch that completes a pod; `None` where it is complete.
///
/// The API server answers 500 to a patch that does not apply, whatever the failurePolicy. So the patch
/// is first applied to the pod's own JSON, and the outcome is judged.
///
/// # Errors
/// What is wrong with the patch, were there ever a pod for which it is.
pub(crate) fn complete(terms: &Terms<'_>, spec: &PodSpec<'_>) -> Result<Option<Patch>, String> {
    let Some(patch) = Missing::of(terms, spec).patch(spec) else {
        return Ok(None);
    };
    let before = owned_paths(spec).map_err(|error| error.to_string())?;
    let mut after = before.clone();
    json_patch::patch(&mut after, &patch).map_err(|error| error.to_string())?;
    let text = after.to_string();
    let completed =
        Pod::deserialize(&mut serde_json::Deserializer::from_str(&text)).map_err(|error| error.to_string())?;
    if !Missing::of(terms, &completed.spec).is_empty() {
        return Err("the patched pod would still lack its placement".to_owned());
    }
    if !keeps(&before["spec"], &after["spec"]) {
        return Err("the patch would change what the pod has".to_owned());
    }
    Ok(Some(patch))
}

fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path.iter().copied()) })
}

pub(super) fn add(path: &[&str], value: Value) -> PatchOperation {
    // From tokens, so that `/` and `~` in a label's key are escaped.
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path.iter().copied()), value })
}

/// The pod reduced to the owned paths, verbatim. An RFC 6902 `add` or `remove` reads nothing but the parent of
/// what it adds or removes, so what it does here it does to the whole object.
fn owned_paths(spec: &PodSpec<'_>) -> Result<Value, serde_json::Error> {
    let mut paths = Map::new();
    if let Some(tolerations) = &spec.tolerations {
        paths.insert("tolerations".to_owned(), serde_json::from_str(tolerations.json.get())?);
    }
    if let Some(selector) = &spec.node_selector {
        paths.insert("nodeSelector".to_owned(), serde_json::from_str(selector.json.get())?);
    }
    paths.insert("priorityClassName".to_owned(), (&*spec.priority_class_name).into());
    for (key, json) in [("priority", spec.priority), ("preemptionPolicy", spec.preemption_policy)] {
        if let Some(json) = json {
            paths.insert(key.to_owned(), serde_json::from_str(json.get())?);
        }
    }
    Ok(json!({ "spec": paths }))
}

/// Whether every toleration and label of `before` stands in `after` as it was.
fn keeps(before: &Value, after: &Value) -> bool {
    let mut labels = before["nodeSelector"].as_object().into_iter().flatten();
    tolerations(after).starts_with(tolerations(before))
        && labels.all(|(key, value)| after["nodeSelector"].get(key) == Some(value))
}

fn tolerations(spec: &Value) -> &[Value] {
    spec["tolerations"].as_array().map_or(&[], Vec::as_slice)
}
