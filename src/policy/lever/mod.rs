//! What the fence stands on: the labels of Namespaces that selectors of the contract read, and the labels and
//! taints of a pool's nodes. Who may change them decides who may use the nodes, whatever is said of pods.

mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::allowlist::Patterns;
use super::decision::{Action, Decision, Finding, Mode, Rule};
use super::exemption::{self, Exemption, Standing};
use super::facts::{Facts, NamespaceLabels};
use super::json::Excerpt;
use super::pool::{Pool, PoolSet};
use super::rules::listing;
use super::subject::Requester;
use super::{LabelSelector, Policy, Rollout};

pub use object::{Lever, LeverKind};

/// A Namespace or a Node that is made or changed.
#[derive(Debug, Clone, Copy)]
pub struct LeverChange<'a> {
    /// The kind of the object.
    pub kind: LeverKind,
    /// The object's name.
    pub name: &'a str,
    /// Who asks.
    pub requester: Requester<'a>,
    /// The object as it would be stored.
    pub object: &'a Lever<'a>,
    /// The object that it replaces; `None` where it is new.
    pub old: Option<&'a Lever<'a>>,
}

/// Who may change what the fence stands on: whoever one of the lists names.
#[derive(Debug, Clone, Default)]
pub struct Levers {
    /// User names.
    pub(crate) users: Patterns,
    /// Groups.
    pub(crate) groups: Vec<String>,
    /// Service accounts, as `NAMESPACE/NAME`.
    pub(crate) service_accounts: Patterns,
}

impl Levers {
    /// Whether nobody is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.written().is_empty() && self.groups.is_empty() && self.service_accounts.written().is_empty()
    }

    /// Whether a user name, or one of its groups, is named.
    pub(crate) fn include(&self, username: &str, is_in: impl Fn(&str) -> bool) -> bool {
        self.users.matches(username)
            || self.groups.iter().any(|group| is_in(group))
            || exemption::is_account_of(&self.service_accounts, username)
    }
}

/// As in a message: `groups system:masters, service accounts karpenter/karpenter`.
impl fmt::Display for Levers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("users", self.users.written()),
            ("groups", &self.groups),
            ("service accounts", self.service_accounts.written()),
        ];
        let named = lists.iter().filter(|(_, names)| !names.is_empty());
        f.write_str(&named.map(|(what, names)| format!("{what} {}", names.join(", "))).collect::<Vec<_>>().join(", "))
    }
}

/// What reads a label or a taint.
#[derive(Debug, Clone, Copy, Default)]
struct Readers {
    pools: PoolSet,
    rollout: bool,
}

/// One change to what the fence stands on.
struct Pull {
    readers: Readers,
    field: String,
    /// What is changed, from what to what.
    change: String,
    /// What that decides.
    decides: String,
}

impl Policy {
    /// Who may change what the fence stands on.
    #[must_use]
    pub fn levers(&self) -> &Levers {
        &self.levers
    }

    /// The labels of namespaces that a selector of the contract reads.
    #[must_use]
    pub fn guarded_namespace_labels(&self) -> BTreeSet<&str> {
        self.namespace_readers().into_keys().collect()
    }

    /// The labels of nodes by which a pool knows them, or the model of their GPUs.
    #[must_use]
    pub fn guarded_node_labels(&self) -> BTreeSet<&str> {
        self.node_readers().into_keys().collect()
    }

    /// The keys of the taints by which pools are fenced.
    #[must_use]
    pub fn guarded_node_taints(&self) -> BTreeSet<&str> {
        self.taint_readers().into_keys().collect()
    }

    /// Decides about a Namespace or a Node that is made or changed.
    #[must_use]
    pub fn decide_lever(&self, change: &LeverChange<'_>, facts: &dyn Facts) -> Decision {
        let mut decision = Decision::quiet(self.mode_of_lever(change));
        let configured = self.action(Rule::LeverChange);
        if configured == Action::Off {
            return decision;
        }
        let pulled = match change.kind {
            LeverKind::Namespace => self.pulled_on_namespace(change),
            LeverKind::Node => self.pulled_on_node(change),
        };
        if pulled.is_empty() || self.may_pull(change) {
            return decision;
        }
        let covering: Vec<_> = self.exemptions.iter().filter(|exemption| exemption.covers_lever(change)).collect();
        let now = if covering.iter().any(|exemption| exemption.expires.is_some()) { facts.now() } else { i64::MIN };
        for Pull { readers, field, change: what, decides } in pulled {
            let unlimited = |exemption: &&Exemption| !readers.rollout || exemption.pools.is_none();
            let covering: Vec<_> = covering.iter().copied().filter(unlimited).collect();
            let lapsed = match exemption::standing(&covering, Rule::LeverChange, readers.pools, now) {
                Standing::Exempt(exemption) => {
                    decision.exempt(&exemption.name, Rule::LeverChange);
                    continue;
                }
                Standing::Lapsed(lapsed) => Some(lapsed),
                Standing::Bound => None,
            };
            let whom = self.contact.as_deref().unwrap_or("one of them");
            let act = if change.old.is_some() { "change" } else { "set" };
            decision.findings.push(Finding {
                rule: Rule::LeverChange,
                pools: readers.pools,
                configured,
                action: configured.min(decision.mode.ceiling()),
                field,
                message: format!("{what}: {decides}, and only {} may {act} it. Ask {whom}.", self.levers),
                lapsed,
            });
        }
        decision
    }

    /// The mode in force before the change: who writes the labels of a namespace must not choose by them how this is
    /// judged.
    fn mode_of_lever(&self, change: &LeverChange<'_>) -> Mode {
        match change.kind {
            LeverKind::Node => self.mode,
            LeverKind::Namespace => {
                let labels = change.old.map(Lever::labels).unwrap_or_default();
                self.mode_in(change.name, &NamespaceLabels([(change.name.to_owned(), labels)].into())).mode
            }
        }
    }

    fn may_pull(&self, change: &LeverChange<'_>) -> bool {
        let requester = change.requester;
        // A kubelet brings its node along with labels and taints, as it is told to.
        let registers = change.kind == LeverKind::Node && change.old.is_none() && requester.is_node(change.name);
        registers || self.levers.include(requester.username, |wanted| requester.is_in(wanted))
    }

    fn namespace_readers(&self) -> BTreeMap<&str, Readers> {
        let mut readers: BTreeMap<_, Readers> = BTreeMap::new();
        for (index, pool) in self.pools.iter().enumerate() {
            for key in pool.namespaces.selector.iter().flat_map(LabelSelector::keys) {
                readers.entry(key).or_default().pools.insert(index);
            }
        }
        for key in self.rollout.iter().filter_map(|rollout| rollout.selector.as_ref()).flat_map(LabelSelector::keys) {
            readers.entry(key).or_default().rollout = true;
        }
        readers
    }

    fn node_readers(&self) -> BTreeMap<&str, Readers> {
        self.readers_of(|pool| {
            let models = pool.models.iter().map(|models| models.node_label.as_str());
            pool.node_selector.keys().map(String::as_str).chain(models).collect()
        })
    }

    fn taint_readers(&self) -> BTreeMap<&str, Readers> {
        self.readers_of(|pool| pool.taints.iter().map(|taint| taint.key.as_str()).collect())
    }

    fn readers_of<'p>(&'p self, keys: impl Fn(&'p Pool) -> Vec<&'p str>) -> BTreeMap<&'p str, Readers> {
        let mut readers: BTreeMap<_, Readers> = BTreeMap::new();
        for (index, pool) in self.pools.iter().enumerate() {
            for key in keys(pool) {
                readers.entry(key).or_default().pools.insert(index);
            }
        }
        readers
    }

    /// Whether the contract names namespaces that may use a pool, or are judged less strictly than others: then who
    /// makes a namespace of such a name opens the fence as well.
    #[must_use]
    pub fn guards_namespace_names(&self) -> bool {
        self.pools.iter().any(|pool| !pool.namespaces.names.written().is_empty())
            || self.rollout.iter().any(|rollout| self.eases(rollout))
            || self.exemptions.iter().any(Exemption::trusts_namespaces)
    }

    /// Whether a rollout entry lets the namespaces that it names off. One for all namespaces singles out none.
    fn eases(&self, rollout: &Rollout) -> bool {
        let names = rollout.namespaces.written();
        rollout.mode < self.mode && !names.is_empty() && !names.iter().any(|name| name == "*")
    }

    /// What the name of a new namespace opens.
    fn pulled_by_name(&self, change: &LeverChange<'_>) -> Option<Pull> {
        let name = change.name;
        let pools: PoolSet = self.pools_where(|pool| pool.namespaces.names.matches(name));
        let first = self.rollout.iter().find(|rollout| rollout.namespaces.matches(name));
        let rollout = first.is_some_and(|rollout| self.eases(rollout));
        let exemptions: Vec<_> = self
            .exemptions
            .iter()
            .filter(|exemption| exemption.trusts_namespaces())
            .filter(|exemption| exemption.namespaces.as_ref().is_some_and(|names| names.matches(name)))
            .map(|exemption| exemption.name.clone())
            .collect();
        if change.old.is_some() || (pools.is_empty() && !rollout && exemptions.is_empty()) {
            return None;
        }
        let mut who = Vec::new();
        if !pools.is_empty() {
            let (plural, names) = self.named(pools);
            who.push(format!("the allowlist{plural} of pool{plural} {names}"));
        }
        if rollout {
            who.push("the rollout".to_owned());
        }
        if !exemptions.is_empty() {
            let plural = if exemptions.len() > 1 { "s" } else { "" };
            who.push(format!("the exemption{plural} {}", listing(&exemptions)));
        }
        let several = who.len() > 1 || exemptions.len() > 1 || pools.iter().nth(1).is_some();
        let field = "metadata.name".to_owned();
        let change = format!("{field} of the new namespace is {}", Excerpt(name));
        let decides = format!("{} {} it", listing(&who), if several { "name" } else { "names" });
        Some(Pull { readers: Readers { pools, rollout }, field, change, decides })
    }

    fn pulled_on_namespace(&self, change: &LeverChange<'_>) -> Vec<Pull> {
        let labels = self.namespace_readers().into_iter().filter_map(|(key, readers)| {
            let (field, what) = change.of_label(key)?;
            let mut who = Vec::new();
            if !readers.pools.is_empty() {
                let (plural, pools) = self.named(readers.pools);
                who.push(format!("the allowlist{plural} of pool{plural} {pools}"));
            }
            if readers.rollout {
                who.push("the rollout".to_owned());
            }
            let several = who.len() > 1 || readers.pools.iter().nth(1).is_some();
            let decides = format!("{} {} it", listing(&who), if several { "read" } else { "reads" });
            Some(Pull { readers, field, change: what, decides })
        });
        self.pulled_by_name(change).into_iter().chain(left_out(change)).chain(labels).collect()
    }

    fn pulled_on_node(&self, change: &LeverChange<'_>) -> Vec<Pull> {
        let labels = self.node_readers().into_iter().filter_map(|(key, readers)| {
            let (field, what) = change.of_label(key)?;
            Some(Pull { readers, field, change: what, decides: self.decided_by(key, readers.pools, change) })
        });
        let taints = self.taint_readers().into_iter().filter_map(|(key, readers)| {
            let (field, what) = change.of_taint(key)?;
            let (plural, pools) = self.named(readers.pools);
            let decides = format!("a taint of this key fences the nodes of pool{plural} {pools}");
            Some(Pull { readers, field, change: what, decides })
        });
        labels.chain(taints).collect()
    }

    /// What the label of a node decides about it.
    fn decided_by(&self, key: &str, readers: PoolSet, change: &LeverChange<'_>) -> String {
        let those = |holds: &dyn Fn(&Pool) -> bool| -> PoolSet {
            readers
                .iter()
                .filter(|index| self.pools[*index].node_selector.contains_key(key) && holds(&self.pools[*index]))
                .collect()
        };
        let is = |pool: &Pool| change.object.is_labelled_for(pool);
        let was = |pool: &Pool| change.old.is_some_and(|old| old.is_labelled_for(pool));
        let (entered, left) = (those(&|pool| is(pool) && !was(pool)), those(&|pool| was(pool) && !is(pool)));
        let pools = |pools| {
            let (plural, names) = self.named(pools);
            format!("pool{plural} {names}")
        };
        match (left.is_empty(), entered.is_empty()) {
            (false, false) => {
                format!("it takes the node out of {} and makes it one of {}", pools(left), pools(entered))
            }
            (false, true) => format!("it takes the node out of {}", pools(left)),
            (true, false) => format!("it makes the node one of {}", pools(entered)),
            (true, true) => {
                let known = those(&|_| true);
                let (pools, what) = if known.is_empty() { (readers, "GPU models") } else { (known, "nodes") };
                let (plural, names) = self.named(pools);
                let (verb, their) = if plural.is_empty() { ("knows", "its") } else { ("know", "their") };
                format!("pool{plural} {names} {verb} {their} {what} by it")
            }
        }
    }

    /// An `s` where there are several, and the pools' names.
    fn named(&self, pools: PoolSet) -> (&'static str, String) {
        let names: Vec<_> = pools.iter().map(|index| self.pools[index].name.clone()).collect();
        (if names.len() > 1 { "s" } else { "" }, listing(&names))
    }
}

/// The label by which API servers name namespaces, and registrations leave some out. From 1.21 on an API server writes
/// it itself; before, whoever may edit a Namespace may write another name there.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A namespace that would be taken for another.
fn left_out(change: &LeverChange<'_>) -> Option<Pull> {
    let (field, what) = change.of_label(NAME_LABEL)?;
    // With a generateName it has none yet.
    change.object.label(NAME_LABEL).filter(|value| *value != change.name)?;
    let decides = "the webhooks leave namespaces out by it".to_owned();
    Some(Pull { readers: Readers { rollout: true, ..Readers::default() }, field, change: what, decides })
}

impl LeverChange<'_> {
    /// The label's field and what is changed about it, if anything is.
    fn of_label(&self, key: &str) -> Option<(String, String)> {
        let value = |lever: &Lever<'_>| match lever.label(key) {
            Some(value) => format!("\"{}\"", Excerpt(value)),
            None => "nothing".to_owned(),
        };
        let (new, old) = (self.object.label(key), self.old.and_then(|old| old.label(key)));
        (new != old).then(|| {
            let field = format!("metadata.labels[\"{key}\"]");
            let what = self.sentence(&field, value);
            (field, what)
        })
    }

    /// As [`LeverChange::of_label`], of the taints with a key.
    fn of_taint(&self, key: &str) -> Option<(String, String)> {
        let taints = |lever: &Lever<'_>| {
            let all = lever.taints(key);
            let taint = |(value, effect): &(&str, &str)| {
                let equals = if value.is_empty() { "" } else { "=" };
                format!("{key}{equals}{}:{}", Excerpt(value), Excerpt(effect))
            };
            match all.len() {
                0 => "nothing".to_owned(),
                _ => all.iter().map(taint).collect::<Vec<_>>().join(", "),
            }
        };
        let (new, old) = (self.object.taints(key), self.old.map(|old| old.taints(key)).unwrap_or_default());
        (new != old).then(|| {
            let field = "spec.taints".to_owned();
            let what = self.sentence(&field, taints);
            (field, what)
        })
    }

    fn sentence(&self, field: &str, value: impl Fn(&Lever<'_>) -> String) -> String {
        let (kind, name) = (self.kind.word(), Excerpt(self.name));
        let new = value(self.object);
        match self.old {
            Some(old) => format!("{field} of {kind} {name} is changed from {} to {new}", value(old)),
            None => format!("{field} of the new {kind} {name} is {new}"),
        }
    }
}

impl Exemption {
    /// Whether who has a namespace of a name that it names is exempt for that, whoever they are.
    fn trusts_namespaces(&self) -> bool {
        self.namespaces.is_some() && self.users.is_none() && self.groups.is_none() && self.service_accounts.is_none()
    }

    /// Whether it covers a change to what the fence stands on. Only one that names the rule does: nobody who wrote an
    /// exemption for pods meant that.
    fn covers_lever(&self, change: &LeverChange<'_>) -> bool {
        let Requester { username, .. } = change.requester;
        self.rules.as_ref().is_some_and(|rules| rules.contains(&Rule::LeverChange))
            // Nobody makes a Namespace or a Node for an owner.
            && self.owners.is_none()
            && self.daemon_sets.is_none()
            // A node is in no namespace.
            && self
                .namespaces
                .as_ref()
                .is_none_or(|names| change.kind == LeverKind::Namespace && names.matches(change.name))
            && self.matches_requester(username, |wanted| change.requester.is_in(wanted))
    }
}
