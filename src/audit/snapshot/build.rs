//! How a snapshot is made from objects.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::dump::Evidence;
use super::followers::Followers;
use super::prune::{Kept, spec_json};
use super::{Amounts, Budget, Event, Namespace, Node, ObjectRef, Phase, Pod, Qos, Resource, Snapshot, Taint, Workload};
use super::{read, requests, save, stream};
use crate::policy::{self, Kind, MIRROR_ANNOTATION, Policy, RawMap};

/// How many faults are kept in words; the others are counted.
const FAULTS: usize = 100;

/// How many lists, each within another, are read within the list that is a file or an answer.
const LISTS: usize = 3;

/// Makes a snapshot from objects, given one after the other.
#[derive(Debug)]
pub struct Builder<'p> {
    pub(super) policy: &'p Policy,
    kept: Kept,
    pub(super) snapshot: Snapshot,
    pub(super) evidence: Evidence,
    texts: HashSet<Arc<str>>,
    followers: Followers,
    more_faults: usize,
    /// Whether what is no Kubernetes object is passed over.
    is_lenient: bool,
    /// What the objects say together is written with them, and need not be guessed.
    pub(super) is_saved: bool,
}

impl<'p> Builder<'p> {
    /// Nothing is known yet. The policy says which custom resources hold pods.
    #[must_use]
    pub fn new(policy: &'p Policy) -> Self {
        Self {
            policy,
            kept: Kept::of(policy),
            snapshot: Snapshot::default(),
            evidence: Evidence::default(),
            texts: HashSet::new(),
            followers: Followers::default(),
            more_faults: 0,
            is_lenient: false,
            is_saved: false,
        }
    }

    /// All objects of the kind are given.
    pub fn completes(&mut self, resource: Resource) {
        self.snapshot.complete.insert(resource);
    }

    /// Notes something that could not be read.
    pub fn fault(&mut self, fault: String) {
        if self.snapshot.faults.len() < FAULTS {
            self.snapshot.faults.push(fault);
        } else {
            self.more_faults += 1;
        }
    }

    /// Takes an object. What cannot be read of it becomes a fault. `source` says where it is from, for that; the
    /// apiVersion and kind count where the object itself, an item of a typed list, says none.
    pub fn take(&mut self, source: &str, api_version: &str, kind: &str, json: &str) {
        self.take_within(0, source, api_version, kind, json);
    }

    /// The same of what stands within so many lists that came as objects.
    fn take_within(&mut self, lists: usize, source: &str, api_version: &str, kind: &str, json: &str) {
        let header = match serde_json::from_str::<read::Header<'_>>(json) {
            Ok(header) => header,
            Err(_) if self.is_lenient => {
                self.snapshot.foreign += 1;
                return;
            }
            Err(error) => return self.fault(format!("{source} cannot be read: {error}")),
        };
        let given =
            |own: policy::Text<'_>, listed: &str| if own.is_empty() { listed.to_owned() } else { own.to_string() };
        let (api_version, kind) = (given(header.api_version, api_version), given(header.kind, kind));
        if api_version.is_empty() || kind.is_empty() {
            if self.is_lenient {
                self.snapshot.foreign += 1;
                return;
            }
            return self.fault(format!("{source} is not a Kubernetes object: it has no apiVersion and kind"));
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.evidence.gives(group, &kind);
        let taken = match (group, kind.as_str()) {
            ("", "Node") => self.node(json),
            ("", "Pod") => self.pod(json),
            ("", "Namespace") => self.namespace(json),
            ("policy", "PodDisruptionBudget") => self.budget(json),
            ("" | "events.k8s.io", "Event") => self.event(json),
            _ if (api_version.as_str(), kind.as_str()) == (save::API_VERSION, save::KIND) => self.saved(json),
            (_, list) if list.ends_with("List") && header.items.is_some() && lists == LISTS => {
                return self.fault(format!(
                    "{source}: the {} is the last of {} lists, each within another, and is not read: give its items in a \
                     list of their own",
                    policy::visible(list),
                    LISTS + 2
                ));
            }
            (_, list) if list.ends_with("List") && header.items.is_some() => {
                let items: Vec<&RawValue> =
                    header.items.and_then(|items| serde_json::from_str(items.get()).ok()).unwrap_or_default();
                let item = list.strip_suffix("List").unwrap_or_default();
                if items.is_empty() && !item.is_empty() {
                    self.evidence.gives_none(group, item);
                }
                for (index, json) in items.iter().enumerate() {
                    self.take_within(lists + 1, &format!("{source}#{}", index + 1), &api_version, item, json.get());
                }
                Ok(())
            }
            _ => self.workload(&api_version, group, &kind, json),
        };
        if let Err(error) = taken {
            self.fault(format!("{source}: the {kind} cannot be read: {error}"));
        }
    }

    /// Takes all objects of a JSON text, however large: a list is read an object at a time.
    pub fn take_all(&mut self, source: &str, reader: impl std::io::Read) {
        self.evidence.begins();
        let outcome = stream(reader, |index, api_version, kind, json| {
            self.take(&format!("{source}#{}", index + 1), api_version, kind, json);
        });
        if let Err(error) = outcome {
            self.evidence.breaks_off();
            self.fault(format!("{source}: {error}"));
        }
    }

    /// The same of a file that was found in a folder, where there may be others, such as a chart's values: what is no
    /// Kubernetes object is counted, and no fault.
    pub fn take_manifests(&mut self, source: &str, reader: impl std::io::Read) {
        self.is_lenient = true;
        self.take_all(source, reader);
        self.is_lenient = false;
    }

    /// The snapshot, in order.
    #[must_use]
    pub fn finish(mut self) -> Snapshot {
        let snapshot = &mut self.snapshot;
        snapshot.workloads.extend(self.followers.finish());
        in_order(&mut snapshot.nodes, |a, b| a.name.cmp(&b.name));
        in_order(&mut snapshot.pods, |a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        in_order(&mut snapshot.workloads, |a, b| a.object.cmp(&b.object));
        in_order(&mut snapshot.budgets, |a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        if self.more_faults > 0 {
            snapshot.faults.push(format!("{} more objects that cannot be read", self.more_faults));
        }
        self.snapshot
    }

    fn share(&mut self, text: &str) -> Arc<str> {
        share(&mut self.texts, text)
    }

    fn node(&mut self, json: &str) -> Result<(), String> {
        let node: read::Node<'_> = parse(json)?;
        let labels: BTreeMap<_, _> = map_of(node.metadata.labels)
            .iter()
            .map(|(key, value)| (share(&mut self.texts, key), share(&mut self.texts, value)))
            .collect();
        let taint = |taint: &read::Taint<'_>| {
            let mut text = |text: &str| share(&mut self.texts, text);
            Taint { key: text(&taint.key), value: text(&taint.value), effect: text(&taint.effect) }
        };
        let taints: Vec<_> = node.spec.taints.iter().map(taint).collect();
        let ready = node.status.conditions.iter().find(|condition| &*condition.kind == "Ready");
        let fact = policy::Node::new(
            labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))),
            taints.iter().map(|Taint { key, value, effect }| [key, value, effect].map(Arc::clone)),
        );
        let capacity = self.amounts(&node.status.capacity)?;
        let allocatable = self.amounts(&node.status.allocatable)?;
        let name = self.share(&node.metadata.name);
        self.keeps("v1", "Node", "", &node.metadata, json);
        self.snapshot.nodes.push(Node {
            name,
            labels,
            taints,
            unschedulable: node.spec.unschedulable.unwrap_or_default(),
            ready: ready.map(|condition| &*condition.status == "True"),
            capacity,
            allocatable,
            fact: Arc::new(fact),
        });
        Ok(())
    }

    fn pod(&mut self, json: &str) -> Result<(), String> {
        let pod: read::Pod<'_> = parse(json)?;
        let read::Pod { metadata, spec, status } = &pod;
        let is_stored = !metadata.uid.is_empty() || !metadata.created.is_empty() || !status.phase.is_empty();
        let wrote_node = metadata.managed_fields.iter().any(|managed| {
            managed.subresource.is_empty()
                && managed.fields.is_some_and(|fields| fields.get().contains("\"f:nodeName\""))
        });
        let mut requests = requests::requests(&pod, &mut |name| share(&mut self.texts, name))?;
        requests.pods = 1;
        let scheduled = status.conditions.iter().find(|condition| &*condition.kind == "PodScheduled");
        let unscheduled = scheduled.filter(|condition| &*condition.status == "False");
        let kept = Pod {
            namespace: self.share(namespace_or_default(&metadata.namespace)),
            name: self.name(metadata).into(),
            node: Some(&*spec.node_name).filter(|node| !node.is_empty()).map(|node| self.share(node)),
            names_node: wrote_node || !is_stored,
            is_stored,
            phase: match &*status.phase {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                "Unknown" => Phase::Unknown,
                _ => Phase::Pending,
            },
            created: seconds(&metadata.created),
            deleting: !metadata.deleted.is_empty(),
            controller: self.controller(metadata)?,
            priority_class: self.share(&spec.priority_class_name),
            priority: spec.priority.unwrap_or_default(),
            qos: match &*status.qos_class {
                "Guaranteed" => Qos::Guaranteed,
                "Burstable" => Qos::Burstable,
                "BestEffort" => Qos::BestEffort,
                _ => spec.qos(&requests),
            },
            requests,
            is_mirror: metadata.annotations.contains(MIRROR_ANNOTATION),
            is_gated: !spec.scheduling_gates.is_empty(),
            unscheduled: unscheduled.map(|condition| self.share(&condition.message)),
            metadata: self.kept.metadata(metadata).into(),
            spec: self.share(&spec_json(spec)),
        };
        if is_stored {
            self.evidence.manages(metadata);
        }
        self.keeps("v1", "Pod", &kept.namespace, metadata, json);
        self.snapshot.pods.push(kept);
        Ok(())
    }

    fn namespace(&mut self, json: &str) -> Result<(), String> {
        let namespace: read::Namespace<'_> = parse(json)?;
        let labels = map_of(namespace.metadata.labels);
        let name = self.share(&namespace.metadata.name);
        self.keeps("v1", "Namespace", "", &namespace.metadata, json);
        let terminating = &*namespace.status.phase == "Terminating";
        self.snapshot.namespaces.insert(name, Namespace { labels, terminating });
        Ok(())
    }

    fn budget(&mut self, json: &str) -> Result<(), String> {
        let budget: read::Budget<'_> = parse(json)?;
        let selector = match &budget.spec.selector {
            Some(selector) => Some(selector.as_policy()?),
            None => None,
        };
        let kept = Budget {
            namespace: self.share(namespace_or_default(&budget.metadata.namespace)),
            name: (&*budget.metadata.name).into(),
            selector,
            disruptions_allowed: budget.status.and_then(|status| status.disruptions_allowed),
        };
        self.keeps("policy/v1", "PodDisruptionBudget", &kept.namespace, &budget.metadata, json);
        self.snapshot.budgets.push(kept);
        Ok(())
    }

    fn event(&mut self, json: &str) -> Result<(), String> {
        let event: read::Event<'_> = parse(json)?;
        let involved = if event.involved.kind.is_empty() { &event.regarding } else { &event.involved };
        if &*event.reason != "FailedScheduling" || &*involved.kind != "Pod" {
            return Ok(());
        }
        let message = if event.message.is_empty() { &event.note } else { &event.message };
        let times = [&event.last, &event.series.last, &event.time, &event.metadata.created];
        let at = times.into_iter().filter_map(|time| seconds(time)).max().unwrap_or_default();
        let kept = Event { at, message: self.share(message) };
        let pod = (self.share(&involved.namespace), self.share(&involved.name));
        match self.snapshot.unscheduled.entry(pod) {
            Entry::Occupied(mut entry) if entry.get().at <= at => drop(entry.insert(kept)),
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => drop(entry.insert(kept)),
        }
        Ok(())
    }

    fn saved(&mut self, json: &str) -> Result<(), String> {
        let read::Saved { complete, faults, gaps, is_dump } = parse(json)?;
        self.is_saved = true;
        self.snapshot.is_dump = is_dump;
        self.snapshot.gaps.extend(gaps);
        let complete =
            Resource::ALL.into_iter().filter(|resource| complete.iter().any(|name| name == resource.as_str()));
        self.snapshot.complete.extend(complete);
        for fault in faults {
            self.fault(fault);
        }
        Ok(())
    }

    fn workload(&mut self, api_version: &str, group: &str, name: &str, json: &str) -> Result<(), String> {
        let kind = match Kind::of(group, name) {
            None if self.policy.custom_resource(group, name).is_some() => Kind::Custom,
            Some(kind) => kind,
            None => {
                *self.snapshot.passed_over.entry((api_version.to_owned(), name.to_owned())).or_default() += 1;
                // Its owner, at least, may stand between a pod and who is to be asked about it.
                if let Ok(read::Anything { metadata }) = parse(json) {
                    let object = self.object(api_version, name, &metadata);
                    self.link(&object, &metadata)?;
                }
                return Ok(());
            }
        };
        let workload: read::Workload<'_> = parse(json)?;
        let metadata = &workload.metadata;
        // A manifest may leave the namespace to who applies it.
        let namespace = self.share(namespace_or_default(&metadata.namespace));
        let object = ObjectRef { namespace, ..self.object(api_version, name, metadata) };
        let controller = self.link(&object, metadata)?;
        // A Job that has ended makes no pods any more.
        if kind == Kind::Job && workload.is_finished() {
            return Ok(());
        }
        self.evidence.keeps(&object, &metadata.uid, json);
        let spec: read::WorkloadSpec = parse_or_default(workload.spec);
        let custom = self.policy.custom_resource(group, name).filter(|_| kind == Kind::Custom);
        let json = self.kept.workload(api_version, (kind, name), custom, metadata, json);
        let workload = Workload {
            object,
            kind,
            controller,
            replicas: spec.replicas,
            desired: workload.status.as_ref().and_then(|status| status.desired_number_scheduled),
            json: json.into(),
        };
        self.snapshot.workloads.extend(self.followers.take(self.policy, workload));
        Ok(())
    }

    fn object(&mut self, api_version: &str, kind: &str, metadata: &read::Metadata<'_>) -> ObjectRef {
        ObjectRef {
            api_version: self.share(api_version),
            kind: self.share(kind),
            namespace: self.share(&metadata.namespace),
            name: self.name(metadata).into(),
        }
    }

    /// Remembers which object it is, for the next of its name. What only its maker's name stands for has none yet.
    fn keeps(&mut self, version: &str, kind: &str, namespace: &str, metadata: &read::Metadata<'_>, json: &str) {
        if !metadata.name.is_empty() {
            self.evidence.keeps(&ObjectRef::new(version, kind, namespace, &metadata.name), &metadata.uid, json);
        }
    }

    /// Remembers who controls an object.
    fn link(&mut self, object: &ObjectRef, metadata: &read::Metadata<'_>) -> Result<Option<ObjectRef>, String> {
        let controller = self.controller(metadata)?;
        if let Some(controller) = &controller {
            self.snapshot.controllers.insert(object.clone(), controller.clone());
        }
        Ok(controller)
    }

    #[expect(clippy::unused_self, reason = "reads as its neighbours")]
    fn name<'a>(&self, metadata: &'a read::Metadata<'_>) -> Cow<'a, str> {
        if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
            return format!("{}*", metadata.generate_name).into();
        }
        (&*metadata.name).into()
    }

    fn controller(&mut self, metadata: &read::Metadata<'_>) -> Result<Option<ObjectRef>, String> {
        let Some(owners) = metadata.owners else { return Ok(None) };
        let owners: policy::List<read::Owner<'_>> = parse(owners.get())?;
        Ok(owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| ObjectRef {
            api_version: self.share(&owner.api_version),
            kind: self.share(&owner.kind),
            namespace: self.share(match (&*owner.api_version, &*owner.kind) {
                // The owner of a mirror pod is in no namespace.
                ("v1", "Node") => "",
                _ => namespace_or_default(&metadata.namespace),
            }),
            name: self.share(&owner.name),
        }))
    }

    fn amounts(&mut self, quantities: &RawMap<'_>) -> Result<Amounts, String> {
        requests::amounts(quantities, &mut |name| share(&mut self.texts, name))
    }
}

/// Sorts, and keeps of what comes more than once what came last: a list that is begun anew tells of the same objects
/// again, as they are now.
fn in_order<T>(all: &mut Vec<T>, order: impl Fn(&T, &T) -> Ordering) {
    all.sort_by(&order);
    all.dedup_by(|later, kept| {
        let is_same = order(later, kept).is_eq();
        if is_same {
            std::mem::swap(later, kept);
        }
        is_same
    });
}

/// Each text once: a cluster's objects say the same things over and over.
fn share(texts: &mut HashSet<Arc<str>>, text: &str) -> Arc<str> {
    if let Some(known) = texts.get(text) {
        return Arc::clone(known);
    }
    let text: Arc<str> = text.into();
    texts.insert(Arc::clone(&text));
    text
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| policy::without_position(&error))
}

fn parse_or_default<'a, T: Deserialize<'a> + Default>(json: Option<&'a RawValue>) -> T {
    json.and_then(|json| serde_json::from_str(json.get()).ok()).unwrap_or_default()
}

fn namespace_or_default(namespace: &str) -> &str {
    if namespace.is_empty() { "default" } else { namespace }
}

fn map_of(json: Option<&RawValue>) -> BTreeMap<String, String> {
    parse_or_default::<policy::StringMap<'_>>(json)
        .0
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn seconds(time: &str) -> Option<i64> {
    OffsetDateTime::parse(time, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}
