//! The narrow views of objects from which a snapshot is made. All else is skipped without being kept.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::policy::{LabelOperator, LabelRequirement, LabelSelector, List, RawMap, StringMap, Text, object, visible};

object! {
    pub(super) struct Header<'a> as "a Kubernetes object" {
        pub(super) api_version: Text<'a> = "apiVersion",
        pub(super) kind: Text<'a> = "kind",
        pub(super) items: Option<&'a RawValue> = "items",
    }
}

object! {
    pub(super) struct Metadata<'a> as "an object's metadata" {
        pub(super) name: Text<'a> = "name",
        pub(super) generate_name: Text<'a> = "generateName",
        pub(super) namespace: Text<'a> = "namespace",
        pub(super) uid: Text<'a> = "uid",
        pub(super) created: Text<'a> = "creationTimestamp",
        pub(super) deleted: Text<'a> = "deletionTimestamp",
        pub(super) labels: Option<&'a RawValue> = "labels",
        pub(super) annotations: RawMap<'a> = "annotations",
        pub(super) owners: Option<&'a RawValue> = "ownerReferences",
        pub(super) managed_fields: List<ManagedFields<'a>> = "managedFields",
    }
}

object! {
    pub(super) struct ManagedFields<'a> as "managed fields" {
        pub(super) subresource: Text<'a> = "subresource",
        pub(super) fields: Option<&'a RawValue> = "fieldsV1",
    }
}

object! {
    pub(super) struct Owner<'a> as "an owner reference" {
        pub(super) api_version: Text<'a> = "apiVersion",
        pub(super) kind: Text<'a> = "kind",
        pub(super) name: Text<'a> = "name",
        pub(super) controller: Option<bool> = "controller",
    }
}

object! {
    pub(super) struct Anything<'a> as "an object" {
        pub(super) metadata: Metadata<'a> = "metadata",
    }
}

object! {
    pub(super) struct Pod<'a> as "a pod" {
        pub(super) metadata: Metadata<'a> = "metadata",
        pub(super) spec: PodSpec<'a> = "spec",
        pub(super) status: PodStatus<'a> = "status",
    }
}

object! {
    pub(super) struct PodSpec<'a> as "a pod spec" {
        pub(super) node_name: Text<'a> = "nodeName",
        pub(super) tolerations: Option<&'a RawValue> = "tolerations",
        pub(super) node_selector: Option<&'a RawValue> = "nodeSelector",
        pub(super) affinity: Option<&'a RawValue> = "affinity",
        pub(super) priority_class_name: Text<'a> = "priorityClassName",
        pub(super) priority: Option<i64> = "priority",
        pub(super) preemption_policy: Option<&'a RawValue> = "preemptionPolicy",
        pub(super) scheduling_gates: List<&'a RawValue> = "schedulingGates",
        pub(super) overhead: RawMap<'a> = "overhead",
        pub(super) resources: Resources<'a> = "resources",
        pub(super) containers: List<Container<'a>> = "containers",
        pub(super) init_containers: List<Container<'a>> = "initContainers",
        pub(super) resource_claims: Option<&'a RawValue> = "resourceClaims",
    }
}

object! {
    pub(super) struct Container<'a> as "a container" {
        pub(super) name: Text<'a> = "name",
        pub(super) restart_policy: Text<'a> = "restartPolicy",
        pub(super) resources: Resources<'a> = "resources",
    }
}

object! {
    pub(super) struct Resources<'a> as "requests and limits" {
        pub(super) requests: RawMap<'a> = "requests",
        pub(super) limits: RawMap<'a> = "limits",
    }
}

object! {
    pub(super) struct PodStatus<'a> as "a pod's status" {
        pub(super) phase: Text<'a> = "phase",
        pub(super) qos_class: Text<'a> = "qosClass",
        pub(super) conditions: List<Condition<'a>> = "conditions",
        pub(super) container_statuses: List<ContainerStatus<'a>> = "containerStatuses",
        pub(super) init_container_statuses: List<ContainerStatus<'a>> = "initContainerStatuses",
    }
}

object! {
    /// What a container has now, which a resize in place changes after its spec.
    pub(super) struct ContainerStatus<'a> as "a container's status" {
        pub(super) name: Text<'a> = "name",
        pub(super) allocated: RawMap<'a> = "allocatedResources",
        pub(super) resources: Option<Resources<'a>> = "resources",
    }
}

object! {
    pub(super) struct Condition<'a> as "a condition" {
        pub(super) kind: Text<'a> = "type",
        pub(super) status: Text<'a> = "status",
        pub(super) reason: Text<'a> = "reason",
        pub(super) message: Text<'a> = "message",
    }
}

object! {
    pub(super) struct Node<'a> as "a node" {
        pub(super) metadata: Metadata<'a> = "metadata",
        pub(super) spec: NodeSpec<'a> = "spec",
        pub(super) status: NodeStatus<'a> = "status",
    }
}

object! {
    pub(super) struct NodeSpec<'a> as "a node's spec" {
        pub(super) taints: List<Taint<'a>> = "taints",
        pub(super) unschedulable: Option<bool> = "unschedulable",
    }
}

object! {
    pub(super) struct Taint<'a> as "a taint" {
        pub(super) key: Text<'a> = "key",
        pub(super) value: Text<'a> = "value",
        pub(super) effect: Text<'a> = "effect",
    }
}

object! {
    pub(super) struct NodeStatus<'a> as "a node's status" {
        pub(super) capacity: RawMap<'a> = "capacity",
        pub(super) allocatable: RawMap<'a> = "allocatable",
        pub(super) conditions: List<Condition<'a>> = "conditions",
    }
}

object! {
    pub(super) struct Workload<'a> as "a workload" {
        pub(super) metadata: Metadata<'a> = "metadata",
        pub(super) spec: Option<&'a RawValue> = "spec",
        pub(super) status: Option<WorkloadStatus<'a>> = "status",
    }
}

object! {
    pub(super) struct Namespace<'a> as "a namespace" {
        pub(super) metadata: Metadata<'a> = "metadata",
        pub(super) status: PodStatus<'a> = "status",
    }
}

object! {
    pub(super) struct Budget<'a> as "a PodDisruptionBudget" {
        pub(super) metadata: Metadata<'a> = "metadata",
        pub(super) spec: BudgetSpec<'a> = "spec",
        pub(super) status: Option<BudgetStatus> = "status",
    }
}

object! {
    pub(super) struct BudgetSpec<'a> as "a PodDisruptionBudget's spec" {
        pub(super) selector: Option<Selector<'a>> = "selector",
    }
}

object! {
    pub(super) struct Selector<'a> as "a label selector" {
        pub(super) match_labels: StringMap<'a> = "matchLabels",
        pub(super) match_expressions: List<Expression<'a>> = "matchExpressions",
    }
}

object! {
    pub(super) struct Expression<'a> as "a label selector requirement" {
        pub(super) key: Text<'a> = "key",
        pub(super) operator: Text<'a> = "operator",
        pub(super) values: List<Text<'a>> = "values",
    }
}

object! {
    pub(super) struct Event<'a> as "an event" {
        pub(super) metadata: Metadata<'a> = "metadata",
        pub(super) reason: Text<'a> = "reason",
        pub(super) involved: Involved<'a> = "involvedObject",
        /// What events.k8s.io calls the same.
        pub(super) regarding: Involved<'a> = "regarding",
        pub(super) message: Text<'a> = "message",
        pub(super) note: Text<'a> = "note",
        pub(super) last: Text<'a> = "lastTimestamp",
        pub(super) time: Text<'a> = "eventTime",
        pub(super) series: Series<'a> = "series",
    }
}

object! {
    pub(super) struct Series<'a> as "a series of events" {
        pub(super) last: Text<'a> = "lastObservedTime",
    }
}

object! {
    pub(super) struct Involved<'a> as "an object reference" {
        pub(super) kind: Text<'a> = "kind",
        pub(super) namespace: Text<'a> = "namespace",
        pub(super) name: Text<'a> = "name",
    }
}

/// What is read of the spec of a workload of whatever kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WorkloadSpec {
    pub(super) replicas: Option<i64>,
}

object! {
    /// What is read of the status of a DaemonSet, and of a Job.
    pub(super) struct WorkloadStatus<'a> as "the status of a workload" {
        pub(super) desired_number_scheduled: Option<i64> = "desiredNumberScheduled",
        pub(super) completed: Text<'a> = "completionTime",
        pub(super) conditions: List<Condition<'a>> = "conditions",
    }
}

impl Workload<'_> {
    /// Whether it is a Job that makes no pods any more.
    pub(super) fn is_finished(&self) -> bool {
        let is_end = |condition: &Condition<'_>| {
            matches!(&*condition.kind, "Complete" | "Failed") && &*condition.status == "True"
        };
        self.status.as_ref().is_some_and(|status| !status.completed.is_empty() || status.conditions.iter().any(is_end))
    }
}

/// What is read of the status of a PodDisruptionBudget.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct BudgetStatus {
    pub(super) disruptions_allowed: Option<i64>,
}

/// What a saved snapshot says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Saved {
    pub(super) complete: Vec<String>,
    pub(super) faults: Vec<String>,
    pub(super) gaps: Vec<String>,
    #[serde(rename = "isDump")]
    pub(super) is_dump: bool,
}

impl Selector<'_> {
    /// The selector as rules hold labels against it.
    pub(super) fn as_policy(&self) -> Result<LabelSelector, String> {
        let match_labels =
            self.match_labels.0.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let requirement = |expression: &Expression<'_>| {
            let values = || expression.values.iter().map(ToString::to_string).collect();
            let operator = match &*expression.operator {
                "In" => LabelOperator::In(values()),
                "NotIn" => LabelOperator::NotIn(values()),
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                other => return Err(format!("the operator of a label selector is {}", visible(other))),
            };
            Ok(LabelRequirement { key: expression.key.to_string(), operator })
        };
        let match_expressions = self.match_expressions.iter().map(requirement).collect::<Result<_, _>>()?;
        Ok(LabelSelector { match_labels, match_expressions })
    }
}
