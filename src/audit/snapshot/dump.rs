//! What the dump of a cluster leaves no doubt about, and what it does not hold: nobody says of files what they are all of,
//! so that it follows from what is there, and from what that names.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash as _, Hasher as _};

use serde_json::Value;

use super::{Builder, ObjectRef, Phase, Pod, Resource, Snapshot, read};
use crate::policy::{Kind, Policy, visible};

/// How many objects are named that are given twice.
const NAMED: usize = 10;

/// What was seen of the objects as they came.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    given: Kinds,
    /// The kinds of which a list had no items: there is none of them.
    empty: Kinds,
    /// The kinds that were seen in the text that is being read.
    current: Kinds,
    /// The kinds of which there may be more, since the text that held them broke off.
    cut: Kinds,
    /// Whether a stored pod says who wrote what of it.
    has_managed_fields: bool,
    /// By what an object is called, as a digest: which object that is, as a digest too.
    objects: HashMap<u64, u64>,
    /// What several objects are called.
    twice: BTreeSet<ObjectRef>,
}

/// Kinds by API group and name; they are few.
#[derive(Debug, Default)]
struct Kinds(Vec<(String, String)>);

impl Kinds {
    fn has(&self, group: &str, kind: &str) -> bool {
        self.0.iter().any(|(own_group, own)| own_group == group && own == kind)
    }

    fn add(&mut self, group: &str, kind: &str) {
        if !self.has(group, kind) {
            self.0.push((group.to_owned(), kind.to_owned()));
        }
    }
}

impl Evidence {
    /// Another text is read.
    pub(super) fn begins(&mut self) {
        self.current.0.clear();
    }

    /// The text broke off, or is none.
    pub(super) fn breaks_off(&mut self) {
        for (group, kind) in std::mem::take(&mut self.current.0) {
            self.cut.add(&group, &kind);
        }
    }

    /// There is an object of the kind.
    pub(super) fn gives(&mut self, group: &str, kind: &str) {
        self.given.add(group, kind);
        self.current.add(group, kind);
    }

    /// There is a list of the kind without items.
    pub(super) fn gives_none(&mut self, group: &str, kind: &str) {
        self.empty.add(group, kind);
    }

    /// An object is kept: which it is follows from its uid, or where no API server gave it one from what it says.
    pub(super) fn keeps(&mut self, object: &ObjectRef, uid: &str, json: &str) {
        let digest = |write: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            write(&mut hasher);
            hasher.finish()
        };
        let key = digest(&|hasher| (object.group(), &object.kind, &object.namespace, &object.name).hash(hasher));
        let itself = digest(&|hasher| {
            if uid.is_empty() {
                let mut value: Value = serde_json::from_str(json).unwrap_or_default();
                // The items of a typed list leave these to the list.
                if let Some(fields) = value.as_object_mut() {
                    fields.retain(|name, _| name != "apiVersion" && name != "kind");
                }
                value.to_string().hash(hasher);
            } else {
                uid.hash(hasher);
            }
        });
        match self.objects.entry(key) {
            Entry::Occupied(known) if *known.get() != itself => drop(self.twice.insert(object.clone())),
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => drop(entry.insert(itself)),
        }
    }

    /// A pod was stored, with these managed fields.
    pub(super) fn manages(&mut self, metadata: &read::Metadata<'_>) {
        self.has_managed_fields |= metadata.managed_fields.iter().next().is_some();
    }

    /// Whether all objects of the kind are among the files, as far as they show.
    fn knows(&self, group: &str, kind: &str) -> bool {
        (self.given.has(group, kind) || self.empty.has(group, kind)) && !self.cut.has(group, kind)
    }
}

impl Builder<'_> {
    /// Takes for complete what the dump of a cluster leaves no doubt about, and names what it does not hold though
    /// something in it shows that it is there.
    pub fn completes_as_dumped(&mut self) {
        if self.is_saved {
            return;
        }
        let (policy, evidence, snapshot) = (self.policy, &self.evidence, &mut self.snapshot);
        snapshot.is_dump = true;
        let has_pods = snapshot.pods.iter().any(|pod| pod.is_stored);
        let is_cluster = has_pods || !snapshot.nodes.is_empty();
        let mut gaps = Vec::new();
        if evidence.knows("", "Node") {
            snapshot.complete.insert(Resource::Nodes);
        } else if evidence.cut.has("", "Node") {
            gaps.push(cut("nodes", "nothing is concluded from there being no other node"));
        } else if has_pods {
            gaps.push(
                "no node is among the files, though pods are: nothing is concluded about nodes, about who is on GPU nodes \
                 and about what is free there"
                    .to_owned(),
            );
        }
        match pods(evidence, snapshot) {
            Ok(()) => drop(snapshot.complete.insert(Resource::Pods)),
            Err(gap) => gaps.extend(gap),
        }
        if !is_cluster && !evidence.empty.has("", "Pod") && !evidence.empty.has("", "Node") {
            gaps.push(
                "neither nodes nor pods of a cluster are among the files: only what the objects themselves say is judged, \
                 and nothing is concluded about what runs where"
                    .to_owned(),
            );
        }
        let of_owners = workloads(policy, evidence, snapshot);
        if of_owners.is_empty() && snapshot.knows_all(Resource::Pods) && !snapshot.workloads.is_empty() {
            snapshot.complete.insert(Resource::Workloads);
        }
        gaps.extend(of_owners);
        let every = ["default", "kube-system"];
        if every.iter().all(|name| snapshot.namespaces.contains_key(*name)) && !evidence.cut.has("", "Namespace") {
            snapshot.complete.insert(Resource::Namespaces);
        } else if is_cluster {
            gaps.push(
                "not all namespaces are among the files, for every cluster has default and kube-system: whether the \
                 contract allows any that does not exist is not concluded"
                    .to_owned(),
            );
        }
        if evidence.knows("policy", "PodDisruptionBudget") {
            snapshot.complete.insert(Resource::PodDisruptionBudgets);
        }
        if evidence.knows("", "Event") || evidence.knows("events.k8s.io", "Event") {
            snapshot.complete.insert(Resource::Events);
        } else {
            gaps.extend(events(snapshot));
        }
        let is_placed = |pod: &&Pod| pod.is_stored && pod.node.is_some() && !pod.is_mirror && !pod.is_over();
        if !evidence.has_managed_fields && snapshot.pods.iter().any(|pod| is_placed(&pod)) {
            gaps.push(
                "the dump has no managed fields, so that pods whose creator wrote spec.nodeName are not told from those \
                 that the scheduler placed: dump with --show-managed-fields"
                    .to_owned(),
            );
        }
        gaps.extend(twice(&evidence.twice));
        snapshot.gaps = gaps;
    }
}

fn cut(what: &str, unconcluded: &str) -> String {
    format!("the {what} are not all known, since what holds them breaks off: {unconcluded}")
}

/// Whether all pods are there; or else what is to be said of it.
fn pods(evidence: &Evidence, snapshot: &Snapshot) -> Result<(), Option<String>> {
    const UNCONCLUDED: &str = "nothing is concluded about what is free, and little about who is on GPU nodes";
    if evidence.cut.has("", "Pod") {
        return Err(Some(cut("pods", UNCONCLUDED)));
    }
    let mut stored = snapshot.pods.iter().filter(|pod| pod.is_stored);
    let Some(first) = stored.next() else {
        if evidence.empty.has("", "Pod") {
            return Ok(());
        }
        let absent = || {
            "no pod is among the files, though nodes are: nothing is concluded about who is on them and about what is free"
                .to_owned()
        };
        return Err((!snapshot.nodes.is_empty()).then(absent));
    };
    let is_one = !snapshot.nodes.is_empty()
        && &*first.namespace != "kube-system"
        && stored.all(|pod| pod.namespace == first.namespace);
    if is_one {
        return Err(Some(format!(
            "pods of one namespace only: those of {} are among the files, and those of kube-system, which every cluster \
             has, are not; {UNCONCLUDED}",
            visible(&first.namespace)
        )));
    }
    Ok(())
}

/// The kinds of owners that are named and of which there is no object, and what to say of them and of those that break
/// off.
fn workloads(policy: &Policy, evidence: &Evidence, snapshot: &Snapshot) -> Vec<String> {
    let knows = |group: &str, kind: &str| evidence.given.has(group, kind);
    let is_read = |owner: &ObjectRef| {
        Kind::of(owner.group(), &owner.kind).is_some_and(|kind| kind != Kind::Pod)
            || policy.custom_resource(owner.group(), &owner.kind).is_some()
    };
    let owners = snapshot.pods.iter().filter(|pod| pod.is_stored && !pod.is_over());
    let owners = owners.filter_map(|pod| pod.controller.as_ref()).chain(snapshot.controllers.values());
    let mut absent: BTreeSet<&str> = BTreeSet::new();
    for owner in owners.filter(|owner| is_read(owner) && !knows(owner.group(), &owner.kind)) {
        absent.insert(&owner.kind);
        // What made that in turn cannot be seen either.
        match (owner.group(), &*owner.kind) {
            ("apps", "ReplicaSet") if !knows("apps", "Deployment") => drop(absent.insert("Deployment")),
            ("batch", "Job") if !knows("batch", "CronJob") && *owner.lasting_name() != *owner.name => {
                absent.insert("CronJob");
            }
            _ => {}
        }
    }
    let mut gaps = Vec::new();
    if !absent.is_empty() {
        let kinds: Vec<_> = absent.iter().map(|kind| format!("no {}", visible(kind))).collect();
        let reach = if absent.contains("DaemonSet") { ", nor about which DaemonSets reach GPU nodes" } else { "" };
        gaps.push(format!(
            "{} is among the files, though pods are made by such: nothing is concluded about their templates, nor about who \
             makes those pods in the end{reach}",
            crate::audit::list_text(&kinds)
        ));
    }
    let is_workload = |(group, kind): &&(String, String)| {
        Kind::of(group, kind).is_some_and(|kind| kind != Kind::Pod) || policy.custom_resource(group, kind).is_some()
    };
    let mut broken: Vec<_> = evidence.cut.0.iter().filter(is_workload).map(|(_, kind)| visible(kind)).collect();
    broken.sort();
    if !broken.is_empty() {
        let what = format!("objects of kind {}", crate::audit::list_text(&broken));
        gaps.push(cut(&what, "nothing is concluded about the templates of the others"));
    }
    gaps
}

/// What is to be said where there are no events: pods may wait of which nothing else says why.
fn events(snapshot: &Snapshot) -> Option<String> {
    let is_unexplained = |pod: &&Pod| {
        pod.phase == Phase::Pending
            && pod.is_stored
            && pod.node.is_none()
            && !pod.is_gated
            && !pod.deleting
            && pod.unscheduled.as_ref().is_none_or(|message| message.is_empty())
    };
    let count = snapshot.pods.iter().filter(is_unexplained).count();
    let pods = if count == 1 { "1 pod waits".to_owned() } else { format!("{count} pods wait") };
    (count > 0).then(|| {
        format!(
            "no event is among the files, though {pods} without a word of the scheduler: what it would say of that is not \
             concluded"
        )
    })
}

/// What is to be said of objects that are called alike and are not the same.
fn twice(twice: &BTreeSet<ObjectRef>) -> impl Iterator<Item = String> {
    let one = |object: &ObjectRef| {
        format!(
            "two different objects among the files are {object}: the first counts, and nothing is concluded about the other"
        )
    };
    let more = twice.len().checked_sub(NAMED).filter(|more| *more > 0);
    twice
        .iter()
        .take(NAMED)
        .map(one)
        .chain(more.map(|more| format!("{more} more objects are there twice, and differ: of each the first counts")))
}
