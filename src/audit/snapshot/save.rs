//! A snapshot as a file of objects, from which the same snapshot is read again: what an audit reads of each object and
//! no more. A snapshot holds nothing else, so that there is nothing to leave out.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Amounts, Budget, Event, Namespace, Node, ObjectRef, Phase, Pod, Snapshot, Taint, Workload};
use crate::policy::{Kind, LabelOperator, LabelRequirement, LabelSelector};

/// The object of a saved snapshot that says what the others together are.
pub(super) const API_VERSION: &str = "gpufence.io/v1";
pub(super) const KIND: &str = "Snapshot";

impl Snapshot {
    /// Writes all that is in it as a `List`, an object a line.
    ///
    /// # Errors
    /// As the writer's.
    pub fn save(&self, out: &mut impl Write) -> io::Result<()> {
        // What was passed over is of no concern again.
        let Self {
            nodes,
            pods,
            workloads,
            namespaces,
            budgets,
            unscheduled,
            controllers,
            complete,
            passed_over: _,
            foreign: _,
            faults,
            is_dump,
            gaps,
        } = self;
        let complete: Vec<_> = complete.iter().map(|resource| resource.as_str()).collect();
        let itself = json!({
            "apiVersion": API_VERSION, "kind": KIND, "complete": complete, "faults": faults, "isDump": is_dump, "gaps": gaps,
        });
        write!(out, "{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n{itself}")?;
        for node in nodes {
            write!(out, ",\n{}", of_node(node))?;
        }
        for (name, namespace) in namespaces {
            write!(out, ",\n{}", of_namespace(name, namespace))?;
        }
        for workload in workloads {
            write!(out, ",\n{}", of_workload(workload))?;
        }
        // Of what stands between them and their pods only whose it is.
        let written: BTreeSet<_> = workloads.iter().map(|workload| &workload.object).collect();
        let mut links: Vec<_> = controllers.iter().filter(|(object, _)| !written.contains(object)).collect();
        links.sort();
        for (object, controller) in links {
            write!(out, ",\n{}", of_link(object, controller))?;
        }
        for budget in budgets {
            write!(out, ",\n{}", of_budget(budget))?;
        }
        for pod in pods {
            write!(out, ",\n{}", of_pod(pod))?;
        }
        let mut events: Vec<_> = unscheduled.iter().collect();
        events.sort_by_key(|(pod, _)| *pod);
        for ((namespace, name), event) in events {
            write!(out, ",\n{}", of_event(namespace, name, event))?;
        }
        out.write_all(b"\n]}\n")
    }
}

fn of_node(node: &Node) -> Value {
    let Node { name, labels, taints, unschedulable, ready, capacity, allocatable, fact: _ } = node;
    let taint = |Taint { key, value, effect }: &Taint| json!({"key": key, "value": value, "effect": effect});
    let condition = ready.map(|ready| json!({"type": "Ready", "status": if ready { "True" } else { "False" }}));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints.iter().map(taint).collect::<Vec<_>>(), "unschedulable": unschedulable},
        "status": {
            "capacity": quantities(capacity),
            "allocatable": quantities(allocatable),
            "conditions": condition.into_iter().collect::<Vec<_>>(),
        },
    })
}

fn quantities(amounts: &Amounts) -> Map<String, Value> {
    let Amounts { cpu_milli, memory_bytes, ephemeral_storage_bytes, pods, extended } = amounts;
    let mut quantities = natives(*cpu_milli, *memory_bytes, *ephemeral_storage_bytes);
    quantities.insert("pods".to_owned(), pods.to_string().into());
    quantities.extend(extended.iter().map(|(name, amount)| (name.to_string(), amount.to_string().into())));
    quantities
}

fn natives(cpu_milli: i64, memory_bytes: i64, ephemeral_storage_bytes: i64) -> Map<String, Value> {
    let amounts = [
        ("cpu", format!("{cpu_milli}m")),
        ("memory", memory_bytes.to_string()),
        ("ephemeral-storage", ephemeral_storage_bytes.to_string()),
    ];
    amounts.into_iter().map(|(name, amount)| (name.to_owned(), amount.into())).collect()
}

fn of_namespace(name: &str, Namespace { labels, terminating }: &Namespace) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
        "status": {"phase": if *terminating { "Terminating" } else { "Active" }},
    })
}

fn of_workload(workload: &Workload) -> Value {
    // The replicas and the controller stand in the object itself.
    let Workload { object: _, kind: _, controller: _, replicas: _, desired, json } = workload;
    let mut object: Value = serde_json::from_str(json).unwrap_or_default();
    if let Some(desired) = desired {
        object["status"]["desiredNumberScheduled"] = (*desired).into();
    }
    object
}

fn of_link(object: &ObjectRef, controller: &ObjectRef) -> Value {
    let mut link = json!({
        "apiVersion": object.api_version,
        "kind": object.kind,
        "metadata": {
            "name": object.name,
            "ownerReferences": [{
                "apiVersion": controller.api_version,
                "kind": controller.kind,
                "name": controller.name,
                "controller": true,
            }],
        },
    });
    // A Job that is none of the workloads has ended, or another makes it: it is no template either way.
    if Kind::of(object.group(), &object.kind) == Some(Kind::Job) {
        link["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
    }
    if !object.namespace.is_empty() {
        link["metadata"]["namespace"] = json!(object.namespace);
    }
    link
}

fn of_budget(Budget { namespace, name, selector, disruptions_allowed }: &Budget) -> Value {
    let mut budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {},
    });
    if let Some(selector) = selector {
        budget["spec"]["selector"] = of_selector(selector);
    }
    if let Some(allowed) = disruptions_allowed {
        budget["status"]["disruptionsAllowed"] = (*allowed).into();
    }
    budget
}

fn of_selector(LabelSelector { match_labels, match_expressions }: &LabelSelector) -> Value {
    let expression = |LabelRequirement { key, operator }: &LabelRequirement| match operator {
        LabelOperator::In(values) => json!({"key": key, "operator": "In", "values": values}),
        LabelOperator::NotIn(values) => json!({"key": key, "operator": "NotIn", "values": values}),
        LabelOperator::Exists => json!({"key": key, "operator": "Exists"}),
        LabelOperator::DoesNotExist => json!({"key": key, "operator": "DoesNotExist"}),
    };
    json!({
        "matchLabels": match_labels,
        "matchExpressions": match_expressions.iter().map(expression).collect::<Vec<_>>(),
    })
}

fn of_pod(pod: &Pod) -> Value {
    // The namespace and the name stand in the metadata, and so do the controller and what makes a pod a mirror; the
    // priority stands in the spec.
    let Pod {
        namespace,
        name: _,
        node,
        names_node,
        is_stored,
        phase,
        created,
        deleting,
        controller: _,
        priority_class: _,
        priority: _,
        qos,
        requests,
        is_mirror: _,
        is_gated,
        unscheduled,
        metadata,
        spec,
    } = pod;
    let mut metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
    metadata["namespace"] = json!(namespace);
    if let Some(created) = created {
        metadata["creationTimestamp"] = time(*created).into();
    }
    if *deleting {
        metadata["deletionTimestamp"] = time(created.unwrap_or_default()).into();
    }
    if *names_node && *is_stored {
        metadata["managedFields"] = json!([{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    }
    let mut spec: Value = serde_json::from_str(&format!("{{{spec}}}")).unwrap_or_default();
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    // What the scheduler counts, whichever containers it came from.
    let Amounts { cpu_milli, memory_bytes, ephemeral_storage_bytes, .. } = *requests;
    spec["resources"] = json!({"requests": natives(cpu_milli, memory_bytes, ephemeral_storage_bytes)});
    if *is_gated {
        spec["schedulingGates"] = json!([{"name": "gated"}]);
    }
    let mut status = json!({"qosClass": qos});
    if *is_stored {
        status["phase"] = match phase {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
            Phase::Unknown => "Unknown",
        }
        .into();
    }
    if let Some(message) = unscheduled {
        status["conditions"] = json!([{"type": "PodScheduled", "status": "False", "message": message}]);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
}

fn of_event(namespace: &str, name: &str, Event { at, message }: &Event) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "reason": "FailedScheduling",
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name},
        "message": message,
        "lastTimestamp": time(*at),
    })
}

fn time(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|time| time.format(&Rfc3339).ok());
    time.unwrap_or_default()
}
