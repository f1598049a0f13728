//! Exemptions under which what runs today goes on running when the contract starts to enforce.
//!
//! Only what is made anew meets a webhook, so that what counts is what the contract would refuse of each pod and template
//! were it created as it is. Each exemption is for the owner by which its pods are known, and for the rules and pools
//! that they break. Whom no exemption can name without naming others is told in a comment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

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

/// The exemptions as YAML for a contract. `now` and `until`, on whose day they still count, are in seconds since 1970.
#[must_use]
pub fn adopt(policy: &Policy, snapshot: &Snapshot, now: i64, until: i64) -> String {
    let policy = policy.clone().judging_templates();
    let (mut adopted, mut left) = (BTreeMap::new(), Left::default());
    // Whoever is exempt in one pool can be told of the next, which the first stood for. Each round adds to what an
    // exemption covers, so that there is a last one.
    loop {
        let with = policy.clone().exempting(exemptions(&policy, &adopted, until).into_iter().map(|(own, _)| own));
        let view = View::new(&with, snapshot, now);
        if !gather(&view, &mut adopted, &mut left) {
            break;
        }
    }
    let view = View::new(&policy, snapshot, now);
    count(&view, &mut adopted);
    left.without(&adopted);
    print(&policy, &exemptions(&policy, &adopted, until), &left, (now, until))
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
    /// Whether its pods must not be completed either.
    untouched: bool,
    pods: usize,
    nodes: BTreeSet<String>,
    since: Option<i64>,
    /// Whom else its name covers.
    beside: BTreeSet<String>,
}

/// What no exemption can be for, by why not; each object with the rules that it breaks.
#[derive(Debug, Default)]
struct Left(BTreeMap<Why, BTreeMap<String, BTreeSet<Rule>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// Nobody controls the pod.
    Alone,
    /// It is not known who makes the pods of such an owner.
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
            Self::Custom => {
                "Owners whose pods no controller of Kubernetes' own makes. Exempt the user name under which they are \
                 made (serviceAccounts beside owners):"
            }
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
        is_more |= need(&decision, adopted, left, &object, || owner_of(pod, top));
    }
    for workload in &view.snapshot.workloads {
        let object = &workload.object;
        // It makes no pods.
        if workload.kind == Kind::PodTemplate {
            continue;
        }
        match templates::Judged::of(view, workload) {
            Ok(judged) => {
                is_more |= need(&judged.decision, adopted, left, object, || owner_made_by(workload.kind, object));
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
    top: &ObjectRef,
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
    let key = match key() {
        Ok(key) => key,
        Err(why) => {
            left.note(why, top, &rules.into_iter().collect::<Vec<_>>());
            return false;
        }
    };
    let need = adopted.entry(key).or_insert_with(|| Need {
        top: top.clone(),
        rules: BTreeSet::new(),
        pools: PoolSet::default(),
        untouched: false,
        pods: 0,
        nodes: BTreeSet::new(),
        since: None,
        beside: BTreeSet::new(),
    });
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

impl Key {
    fn new(namespace: &str, controller: usize, name: String) -> Result<Self, Why> {
        let is_name = |name: &str| {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = name.as_bytes();
            let is_sound = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(byte);
            edge(bytes.first()) && edge(bytes.last()) && bytes.len() <= 253 && bytes.iter().all(is_sound)
        };
        let is_sound = is_name(namespace) && is_name(name.strip_suffix("-*").unwrap_or(&name));
        if is_sound { Ok(Self { namespace: namespace.to_owned(), controller, name }) } else { Err(Why::Misnamed) }
    }

    fn controller(&self) -> Controller {
        Controller::ALL.get(self.controller).copied().unwrap_or(Controller::DaemonSet)
    }
}

impl Left {
    fn note(&mut self, why: Why, object: &ObjectRef, rules: &[Rule]) {
        self.0.entry(why).or_default().entry(object.to_string()).or_default().extend(rules);
    }
}

impl Left {
    /// Leaves out the custom resources whose pods are known by an owner of Kubernetes' own kinds.
    fn without(&mut self, adopted: &BTreeMap<Key, Need>) {
        let adopted: BTreeSet<_> = adopted.values().map(|need| need.top.to_string()).collect();
        if let Some(custom) = self.0.get_mut(&Why::Custom) {
            custom.retain(|object, _| !adopted.contains(object));
        }
        self.0.retain(|_, objects| !objects.is_empty());
    }
}

/// Counts the pods of each owner, and where they run, and finds whom else its name covers.
fn count(view: &View<'_>, adopted: &mut BTreeMap<Key, Need>) {
    let gpu_nodes: BTreeSet<&str> = view.gpu_nodes().map(|(node, _)| &*node.name).collect();
    // Owners as they are named, each with the last of its own.
    let mut owners: BTreeMap<Key, String> = BTreeMap::new();
    for pod in view.snapshot.pods.iter().filter(|pod| !pod.is_over()) {
        let top = view.top_controller(pod);
        let Ok(key) = owner_of(pod, top) else { continue };
        if let (Some(owner), Some(top)) = (&pod.controller, top) {
            owners.insert(Key { name: owner.name.to_string(), ..key.clone() }, top.to_string());
        }
        let Some(need) = adopted.get_mut(&key) else { continue };
        need.pods += 1;
        need.since = need.since.into_iter().chain(pod.created).min();
        need.nodes.extend(pod.node.as_deref().filter(|node| gpu_nodes.contains(node)).map(str::to_owned));
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

/// The exemptions, each with what it answers.
fn exemptions<'n>(policy: &Policy, adopted: &'n BTreeMap<Key, Need>, until: i64) -> Vec<(Exemption, &'n Need)> {
    let mut names: BTreeSet<String> = policy.exemptions().iter().map(|exemption| exemption.name.clone()).collect();
    names.insert(MIRROR_POD.to_owned());
    let end = until.div_euclid(SECONDS_A_DAY).saturating_add(1).saturating_mul(SECONDS_A_DAY);
    let mut exemptions = Vec::new();
    for (key, need) in adopted {
        let one = |name: &str| Patterns::new(vec![name.to_owned()]).unwrap_or_default();
        let controller = key.controller();
        let is_daemon_set = controller == Controller::DaemonSet;
        let owner = || Owner {
            kind: controller.kind().name().to_owned(),
            api_group: Some(controller.kind().group().to_owned()).filter(|group| !group.is_empty()),
            name: one(&key.name),
            controller: Some(controller),
        };
        let exemption = Exemption {
            name: unique(&mut names, &key.namespace, &need.top.name),
            reason: need.reason(),
            expires: Some(Expiry { at: end, written: day(until) }),
            pools: Some(need.pools),
            rules: (!need.untouched).then(|| need.rules.iter().copied().collect()),
            namespaces: Some(one(&key.namespace)),
            users: None,
            groups: None,
            service_accounts: None,
            daemon_sets: is_daemon_set.then(|| one(&key.name)),
            owners: (!is_daemon_set).then(|| vec![owner()]),
        };
        exemptions.push((exemption, need));
    }
    exemptions
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
    fn reason(&self) -> String {
        let nodes = match self.nodes.len() {
            0 => "no GPU node".to_owned(),
            1 => "1 GPU node".to_owned(),
            more => format!("{more} GPU nodes"),
        };
        let runs = match (self.pods, self.since) {
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

fn print(policy: &Policy, exemptions: &[(Exemption, &Need)], Left(left): &Left, (now, until): (i64, i64)) -> String {
    let mut yaml = String::new();
    let _ = writeln!(
        yaml,
        "# What runs on {} and the contract would refuse. Add these to its exemptions; each counts until {}.",
        day(now),
        day(until)
    );
    if exemptions.is_empty() {
        yaml.push_str("exemptions: []\n");
    } else {
        yaml.push_str("exemptions:\n");
    }
    for (exemption, Need { top, beside, .. }) in exemptions {
        let list = |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
        let Exemption { name, reason, pools, rules, namespaces, daemon_sets, owners, .. } = exemption;
        let expires = exemption.expires.as_ref().map(|expiry| expiry.written.as_str()).unwrap_or_default();
        let pools: Vec<_> = pools
            .iter()
            .flat_map(|pools| pools.iter())
            .filter_map(|index| policy.pools().get(index))
            .map(|pool| pool.name.clone())
            .collect();
        let _ = writeln!(yaml, "  # Owner: {top}");
        if !beside.is_empty() {
            let others: Vec<_> = beside.iter().map(String::as_str).collect();
            let _ = writeln!(yaml, "  # Its name covers others as well: {}", visible(&others.join(", ")));
        }
        let _ = writeln!(yaml, "  - name: {}", quoted(name));
        let _ = writeln!(yaml, "    reason: {}", quoted(reason));
        let _ = writeln!(yaml, "    expires: {}", quoted(expires));
        let _ = writeln!(yaml, "    pools: [{}]", list(&pools));
        match rules {
            Some(rules) => {
                let rules: Vec<_> = rules.iter().map(|rule| rule.id()).collect();
                let _ = writeln!(yaml, "    rules: [{}]", rules.join(", "));
            }
            None => yaml.push_str("    # Of every rule: completed for its pool it could not run.\n"),
        }
        let written = |patterns: &Option<Patterns>| list(patterns.as_ref().map(Patterns::written).unwrap_or_default());
        let _ = writeln!(yaml, "    namespaces: [{}]", written(namespaces));
        if daemon_sets.is_some() {
            let _ = writeln!(yaml, "    daemonSets: [{}]", written(daemon_sets));
        }
        for Owner { kind, api_group, name, .. } in owners.iter().flatten() {
            let group = api_group.as_ref().map(|group| format!("apiGroup: {group}, ")).unwrap_or_default();
            let _ = writeln!(yaml, "    owners: [{{kind: {kind}, {group}name: {}}}]", list(name.written()));
        }
    }
    for (why, objects) in left {
        let _ = writeln!(yaml, "# {}", why.text());
        for (object, rules) in objects {
            let rules: Vec<_> = rules.iter().map(|rule| rule.id()).collect();
            let separator = if rules.is_empty() { "" } else { ": " };
            let _ = writeln!(yaml, "#   {}{separator}{}", visible(object), rules.join(", "));
        }
    }
    yaml
}

/// The text as it stands in YAML: as JSON writes it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
