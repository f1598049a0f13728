//! Exemptions under which what runs today goes on running when the contract starts to enforce.
//!
//! Only what is made anew meets a webhook, so that what counts is what the contract would refuse of each pod and template
//! were it created as it is. Each exemption is for the owner by which its pods are known, and for the rules and pools
//! that they break. Whom no exemption can name without naming others is told in a comment.

mod print;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use time::OffsetDateTime;

use super::snapshot::{ObjectRef, Pod, Snapshot};
use super::templates;
use super::view::View;
use crate::policy::{
    Action, Controller, Decision, Exemption, Expiry, Kind, MIRROR_POD, Owner, Patterns, Policy, PoolSet, Rule, visible,
};

/// The longest reason that a contract takes.
const REASON: usize = 120;

/// The longest name that a contract takes.
const NAME: usize = 63;

const SECONDS_A_DAY: i64 = 86_400;

/// The exemptions as YAML: the whole list of a contract. `present` is what the contract has of them, as the items of a
/// list; `now` and `until`, on whose day the adopted ones still count, are in seconds since 1970.
#[must_use]
pub fn adopt(policy: &Policy, snapshot: &Snapshot, present: &str, now: i64, until: i64) -> String {
    let policy = policy.clone().judging_templates();
    let (mut adopted, mut left) = (BTreeMap::new(), Left::default());
    // Whoever is exempt in one pool can be told of the next, which the first stood for. Each round adds to what an
    // exemption covers, so that there is a last one.
    loop {
        let with =
            policy.clone().exempting(Names::of(&policy).exemptions(&adopted, until).into_iter().map(|(own, _)| own));
        let view = View::new(&with, snapshot, now);
        if !gather(&view, &mut adopted, &mut left) {
            break;
        }
    }
    let view = View::new(&policy, snapshot, now);
    left.without(&adopted);
    count(&view, &mut adopted, &mut left);
    let mut names = Names::of(&policy);
    let adopted = names.exemptions(&adopted, until);
    let unknown = names.unknown(&left.unknown, until);
    print::list(&policy, present, &[adopted, unknown], &left.others, (now, until))
}

/// By what an exemption knows an owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    namespace: String,
    /// The place of its controller in [`Controller::ALL`].
    controller: usize,
    /// Its name; with `*` for what a Deployment or a CronJob makes up.
    name: String,
}

/// What an owner's pods need.
#[derive(Debug)]
struct Need {
    /// The last of the owners.
    top: ObjectRef,
    rules: BTreeSet<Rule>,
    pools: PoolSet,
    /// Who answers for it, as its own labels or those of its namespace say it.
    answers: Option<String>,
    /// Whether its pods must not be completed either.
    untouched: bool,
    /// The pods that have a node, and those that wait for one.
    pods: usize,
    waiting: usize,
    nodes: BTreeSet<String>,
    since: Option<i64>,
    /// Whom else its name covers.
    beside: BTreeSet<String>,
}

/// What no exemption can be for as it is.
#[derive(Debug, Default)]
struct Left {
    /// Owners of whose pods nobody knows who makes them.
    unknown: BTreeMap<ObjectRef, Need>,
    others: Others,
}

/// By why not; each object with the rules that it breaks.
type Others = BTreeMap<Why, BTreeMap<String, BTreeSet<Rule>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// Nobody controls the pod.
    Alone,
    /// It is not known who makes the pods of such an owner: an exemption has to name whoever does.
    Custom,
    /// Its name cannot stand in a contract.
    Misnamed,
    /// It cannot be read.
    Unreadable,
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Self::Alone => {
                "Pods that no controller makes. What runs goes on running; to create one again, exempt who does (users, \
                 groups or serviceAccounts):"
            }
            Self::Custom => "Owners of whose pods nobody knows who makes them:",
            Self::Misnamed => "Owners whose names cannot stand in a contract:",
            Self::Unreadable => "What cannot be judged, and is refused as it is:",
        }
    }
}

/// Notes what would be refused. Whether that is more than was known.
fn gather(view: &View<'_>, adopted: &mut BTreeMap<Key, Need>, left: &mut Left) -> bool {
    let mut is_more = false;
    for pod in view.snapshot.pods.iter().filter(|pod| !pod.is_over()) {
        // What a manifest says of its owner is a claim of who wrote it.
        let top = view.top_controller(pod).filter(|_| pod.is_stored);
        let object = top.cloned().unwrap_or_else(|| pod.object());
        let Ok(decision) = view.judge(pod).decision else {
            left.note(Why::Unreadable, &object, &[]);
            continue;
        };
        let owner = pod.controller.as_ref().filter(|_| pod.is_stored).unwrap_or(&object);
        is_more |= need(&decision, adopted, left, (&object, owner), || owner_of(pod, top));
    }
    for workload in &view.snapshot.workloads {
        let object = &workload.object;
        // It makes no pods.
        if workload.kind == Kind::PodTemplate {
            continue;
        }
        match templates::Judged::of(view, workload) {
            Ok(judged) => {
                let key = || owner_made_by(workload.kind, object);
                is_more |= need(&judged.decision, adopted, left, (object, object), key);
            }
            Err(_) => left.note(Why::Unreadable, object, &[]),
        }
    }
    is_more
}

/// Adds what a decision would refuse to the needs of its owner.
fn need(
    decision: &Decision,
    adopted: &mut BTreeMap<Key, Need>,
    left: &mut Left,
    (top, owner): (&ObjectRef, &ObjectRef),
    key: impl FnOnce() -> Result<Key, Why>,
) -> bool {
    // What mutation makes good is never refused of a pod that is created anew.
    let refused = || {
        decision
            .findings
            .iter()
            .filter(|finding| finding.configured == Action::Deny && finding.rule != Rule::PlacementMissing)
    };
    let rules: BTreeSet<Rule> = refused().map(|finding| finding.rule).collect();
    if rules.is_empty() {
        return false;
    }
    let need = match key() {
        Ok(key) => adopted.entry(key).or_insert_with(|| Need::of(top)),
        Err(Why::Custom) => left.unknown.entry(owner.clone()).or_insert_with(|| Need::of(top)),
        Err(why) => {
            left.note(why, top, &rules.into_iter().collect::<Vec<_>>());
            return false;
        }
    };
    let before = (need.rules.len(), need.pools, need.untouched);
    // A pod that contradicts its pool runs only where it is not completed for it.
    need.untouched |= rules.contains(&Rule::PlacementConflict);
    need.rules.extend(rules);
    need.pools = need.pools.iter().chain(refused().flat_map(|finding| finding.pools.iter())).collect();
    before != (need.rules.len(), need.pools, need.untouched)
}

/// By what an exemption would know the owner of a pod.
fn owner_of(pod: &Pod, top: Option<&ObjectRef>) -> Result<Key, Why> {
    let Some(owner) = pod.controller.as_ref().filter(|_| pod.is_stored) else { return Err(Why::Alone) };
    let own = |controller: &Controller| {
        let kind = controller.kind();
        owner.group() == kind.group() && &*owner.kind == kind.name()
    };
    let controller = Controller::ALL.iter().position(own).ok_or(Why::Custom)?;
    // The next version of a Deployment makes another ReplicaSet, the next run of a CronJob another Job.
    let is_made = |top: &&ObjectRef| {
        *top != owner && owner.name.strip_prefix(&*top.name).is_some_and(|rest| rest.starts_with('-'))
    };
    let name = match top.filter(is_made) {
        Some(top) => format!("{}-*", top.name),
        None => owner.lasting_name().into_owned(),
    };
    Key::new(&pod.namespace, controller, name)
}

/// By what an exemption would know the owner of the pods that an object makes.
fn owner_made_by(kind: Kind, object: &ObjectRef) -> Result<Key, Why> {
    let (controller, _) = Controller::of_pods(kind, &object.name).ok_or(Why::Custom)?;
    let name = match kind {
        Kind::Deployment | Kind::CronJob => format!("{}-*", object.name),
        _ => object.lasting_name().into_owned(),
    };
    let place = Controller::ALL.iter().position(|own| *own == controller).ok_or(Why::Custom)?;
    Key::new(&object.namespace, place, name)
}

/// Whether a name can stand in a contract.
fn is_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let is_sound = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(byte);
    edge(bytes.first()) && edge(bytes.last()) && bytes.len() <= 253 && bytes.iter().all(is_sound)
}

impl Key {
    fn new(namespace: &str, controller: usize, name: String) -> Result<Self, Why> {
        let is_sound = is_name(namespace) && is_name(name.strip_suffix("-*").unwrap_or(&name));
        if is_sound { Ok(Self { namespace: namespace.to_owned(), controller, name }) } else { Err(Why::Misnamed) }
    }

    fn controller(&self) -> Controller {
        Controller::ALL.get(self.controller).copied().unwrap_or(Controller::DaemonSet)
    }
}

impl Left {
    fn note(&mut self, why: Why, object: &ObjectRef, rules: &[Rule]) {
        self.others.entry(why).or_default().entry(object.to_string()).or_default().extend(rules);
    }

    /// Leaves out the custom resources whose pods are known by an owner of Kubernetes' own kinds, and names those whose
    /// own names no contract takes.
    fn without(&mut self, adopted: &BTreeMap<Key, Need>) {
        let adopted: BTreeSet<_> = adopted.values().map(|need| &need.top).collect();
        self.unknown.retain(|_, need| !adopted.contains(&need.top));
        let is_misnamed = |owner: &ObjectRef| {
            let is_kind = owner.kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let is_group = owner.group().is_empty() || is_name(owner.group());
            !(is_name(&owner.namespace) && is_name(&owner.name) && is_kind && is_group)
        };
        let (misnamed, unknown): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unknown).into_iter().partition(|(owner, _)| is_misnamed(owner));
        self.unknown = unknown.into_iter().collect();
        for (_, need) in misnamed {
            self.note(Why::Misnamed, &need.top, &need.rules.iter().copied().collect::<Vec<_>>());
        }
    }
}

/// Counts the pods of each owner, and where they run, and finds whom else its name covers.
fn count(view: &View<'_>, adopted: &mut BTreeMap<Key, Need>, left: &mut Left) {
    let gpu_nodes: BTreeSet<&str> = view.gpu_nodes().map(|(node, _)| &*node.name).collect();
    // Owners as they are named, each with the last of its own.
    let mut owners: BTreeMap<Key, String> = BTreeMap::new();
    for pod in view.snapshot.pods.iter().filter(|pod| !pod.is_over()) {
        let top = view.top_controller(pod);
        let Ok(key) = owner_of(pod, top) else {
            let unknown = pod.controller.as_ref().and_then(|owner| left.unknown.get_mut(owner));
            if let Some(need) = unknown {
                need.add(pod, &gpu_nodes);
            }
            continue;
        };
        if let (Some(owner), Some(top)) = (&pod.controller, top) {
            owners.insert(Key { name: owner.name.to_string(), ..key.clone() }, top.to_string());
        }
        if let Some(need) = adopted.get_mut(&key) {
            need.add(pod, &gpu_nodes);
        }
    }
    let mut needs: BTreeMap<ObjectRef, Vec<&mut Need>> = BTreeMap::new();
    for need in adopted.values_mut().chain(left.unknown.values_mut()) {
        needs.entry(need.top.clone()).or_default().push(need);
    }
    // What an object says of itself counts more than what its pods say.
    for workload in &view.snapshot.workloads {
        let Some(needs) = needs.get_mut(&workload.object) else { continue };
        let object = serde_json::from_str::<Value>(workload.json()).unwrap_or_default();
        let Some(answers) = who_answers(&object["metadata"]) else { continue };
        for need in needs.iter_mut() {
            need.answers = Some(answers.clone());
        }
    }
    for need in needs.into_values().flatten().filter(|need| need.answers.is_none()) {
        let namespace = view.snapshot.namespaces.get(&need.top.namespace);
        let label = |key: &&str| namespace?.labels.get(*key).cloned();
        let named = || format!("namespace {}", need.top.namespace);
        need.answers = Some(ANSWERS.iter().find_map(label).filter(|name| is_line(name)).unwrap_or_else(named));
    }
    for workload in &view.snapshot.workloads {
        let Ok(key) = owner_made_by(workload.kind, &workload.object) else { continue };
        if let Some((_, name)) = Controller::of_pods(workload.kind, &workload.object.name) {
            owners.insert(Key { name: name.into_owned(), ..key }, workload.object.to_string());
        }
    }
    for (key, need) in adopted {
        let Some(start) = key.name.strip_suffix('*') else { continue };
        let first = Key { name: start.to_owned(), ..key.clone() };
        let covered = owners.range(first..).take_while(|(own, _)| {
            (&own.namespace, own.controller) == (&key.namespace, key.controller) && own.name.starts_with(start)
        });
        let top = need.top.to_string();
        need.beside = covered.map(|(_, own)| own.clone()).filter(|own| *own != top).collect();
    }
}

/// The names that are taken.
struct Names(BTreeSet<String>);

impl Names {
    fn of(policy: &Policy) -> Self {
        let present = policy.exemptions().iter().map(|exemption| exemption.name.clone());
        Self(present.chain([MIRROR_POD.to_owned()]).collect())
    }

    /// The exemptions, each with what it answers.
    fn exemptions<'n>(&mut self, adopted: &'n BTreeMap<Key, Need>, until: i64) -> Vec<(Exemption, &'n Need)> {
        let exemption = |(key, need): (&Key, &'n Need)| {
            let (controller, plain) = (key.controller(), self.plain(&key.namespace, need, until));
            let exemption = if controller == Controller::DaemonSet {
                Exemption { daemon_sets: Some(one(&key.name)), ..plain }
            } else {
                let kind = controller.kind();
                let owner = owner(kind.name(), kind.group(), &key.name, Some(controller));
                Exemption { owners: Some(vec![owner]), ..plain }
            };
            (exemption, need)
        };
        adopted.iter().map(exemption).collect()
    }

    /// The same for owners of whose pods nobody knows who makes them: each lacks the one who does.
    fn unknown<'n>(&mut self, unknown: &'n BTreeMap<ObjectRef, Need>, until: i64) -> Vec<(Exemption, &'n Need)> {
        let exemption = |(object, need): (&ObjectRef, &'n Need)| {
            let owner = owner(&object.kind, object.group(), &object.name, None);
            (Exemption { owners: Some(vec![owner]), ..self.plain(&object.namespace, need, until) }, need)
        };
        unknown.iter().map(exemption).collect()
    }

    /// All of an exemption but whom it is for.
    fn plain(&mut self, namespace: &str, need: &Need, until: i64) -> Exemption {
        let end = until.div_euclid(SECONDS_A_DAY).saturating_add(1).saturating_mul(SECONDS_A_DAY);
        Exemption {
            is_built_in: false,
            name: unique(&mut self.0, namespace, &need.top.name),
            reason: need.reason(),
            owner: need.answers.clone(),
            expires: Some(Expiry { at: end, written: day(until) }),
            pools: Some(need.pools),
            rules: (!need.untouched).then(|| need.rules.iter().copied().collect()),
            namespaces: Some(one(namespace)),
            users: None,
            groups: None,
            service_accounts: None,
            daemon_sets: None,
            owners: None,
        }
    }
}

fn one(name: &str) -> Patterns {
    Patterns::new(vec![name.to_owned()]).unwrap_or_default()
}

fn owner(kind: &str, group: &str, name: &str, controller: Option<Controller>) -> Owner {
    let api_group = Some(group.to_owned()).filter(|group| !group.is_empty());
    Owner { kind: kind.to_owned(), api_group, name: one(name), controller }
}

/// The labels and annotations that say who answers for something, the most telling first.
pub(super) const ANSWERS: [&str; 3] = ["owner", "team", "app.kubernetes.io/part-of"];

/// Who answers for an object, as its metadata say.
fn who_answers(metadata: &Value) -> Option<String> {
    let said = |key: &&str| ["labels", "annotations"].iter().find_map(|map| metadata[*map][*key].as_str());
    ANSWERS.iter().filter_map(said).find(|name| is_line(name)).map(str::to_owned)
}

/// Whether a contract takes it as one line.
fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= REASON && visible(text) == text
}

/// A name of its own for an exemption, as a contract takes it.
fn unique(names: &mut BTreeSet<String>, namespace: &str, name: &str) -> String {
    let sound = |letter: char| if letter.is_ascii_lowercase() || letter.is_ascii_digit() { letter } else { '-' };
    let base: String = format!("adopted-{namespace}-{name}").chars().map(sound).collect();
    let cut = |room: usize| base.chars().take(room).collect::<String>().trim_end_matches('-').to_owned();
    let numbered = (2..).map(|number: usize| {
        let end = format!("-{number}");
        format!("{}{end}", cut(NAME.saturating_sub(end.len())))
    });
    let mut all = std::iter::once(cut(NAME)).chain(numbered);
    // There are more numbers than names.
    let own = all.find(|name| !names.contains(name)).unwrap_or_default();
    names.insert(own.clone());
    own
}

impl Need {
    fn of(top: &ObjectRef) -> Self {
        Self {
            top: top.clone(),
            rules: BTreeSet::new(),
            pools: PoolSet::default(),
            answers: None,
            untouched: false,
            pods: 0,
            waiting: 0,
            nodes: BTreeSet::new(),
            since: None,
            beside: BTreeSet::new(),
        }
    }

    /// Counts a pod of it.
    fn add(&mut self, pod: &Pod, gpu_nodes: &BTreeSet<&str>) {
        if self.pods + self.waiting == 0 {
            self.answers = serde_json::from_str(&pod.metadata).ok().as_ref().and_then(who_answers);
        }
        let Some(node) = &pod.node else {
            self.waiting += 1;
            return;
        };
        self.pods += 1;
        self.since = self.since.into_iter().chain(pod.created).min();
        self.nodes.extend(Some(&**node).filter(|node| gpu_nodes.contains(node)).map(str::to_owned));
    }

    fn reason(&self) -> String {
        let nodes = match self.nodes.len() {
            0 => "no GPU node".to_owned(),
            1 => "1 GPU node".to_owned(),
            more => format!("{more} GPU nodes"),
        };
        let runs = match (self.pods, self.since) {
            (0, _) if self.waiting > 0 => " waits for a node".to_owned(),
            (0, _) => " has no pod today".to_owned(),
            (_, Some(since)) => format!(" runs since {} on {nodes}", day(since)),
            (_, None) => format!(" runs on {nodes}"),
        };
        let who = self.top.to_string();
        let room = REASON.saturating_sub(runs.chars().count());
        let who = if who.chars().count() > room {
            format!("{}...", who.chars().take(room.saturating_sub(3)).collect::<String>())
        } else {
            who
        };
        format!("{who}{runs}")
    }
}

/// The day of a time, as a contract writes it.
fn day(time: i64) -> String {
    OffsetDateTime::from_unix_timestamp(time).map(|time| time.date().to_string()).unwrap_or_default()
}
