//! Who is exempt, and what proves it: the requester's identity, which the API server authenticated, and
//! the namespace. Labels, annotations, owner references and names in the object are claims that anyone
//! can write.

use std::fmt;

use super::allowlist::Patterns;
use super::decision::Rule;
use super::identity::{Controller, Identities};
use super::pod::MIRROR_ANNOTATION;
use super::pool::PoolSet;
use super::subject::Subject;
use super::workload::Kind;
use super::{Facts, Policy};

/// What exempts the mirror of a static pod, as if the contract named it.
pub const MIRROR_POD: &str = "mirror-pod";

/// A named exception to the contract. All conditions that it gives must hold together.
#[derive(Debug, Clone)]
pub struct Exemption {
    /// The exemption's name, for messages.
    pub name: String,
    /// Why it is there.
    pub reason: String,
    /// Who answers for it, for people.
    pub owner: Option<String>,
    /// When it stops counting.
    pub expires: Option<Expiry>,
    /// The pools that it is limited to.
    pub pools: Option<PoolSet>,
    /// The rules that it is limited to.
    pub rules: Option<Vec<Rule>>,
    /// The request's namespace.
    pub namespaces: Option<Patterns>,
    /// The requester's user name.
    pub users: Option<Patterns>,
    /// Groups, of which the requester must be in one.
    pub groups: Option<Vec<String>>,
    /// The requester's service account, as `NAMESPACE/NAME`.
    pub service_accounts: Option<Patterns>,
    /// The name of the DaemonSet whose pod it is.
    pub daemon_sets: Option<Patterns>,
    /// The owners whose pod it is.
    pub owners: Option<Vec<Owner>>,
    /// Whether it is one of the contract's own defaults, by its name and its reason.
    pub is_built_in: bool,
}

/// An instant from which on an exemption no longer counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// In seconds since 1970.
    pub at: i64,
    /// As the contract writes it.
    pub written: String,
}

/// Owners that control pods.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The kind.
    pub kind: String,
    /// The kind's API group, where it was given.
    pub api_group: Option<String>,
    /// The owner's name, or a glob.
    pub name: Patterns,
    /// Who makes the pods of the kind. Where nobody is known to, the exemption names the requester.
    pub controller: Option<Controller>,
}

/// An exemption that would have covered the subject, had it not expired.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lapsed {
    /// The exemption's name.
    pub exemption: String,
    /// When it expired, as the contract writes it.
    pub expired: String,
}

impl fmt::Display for Lapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exemption {} expired on {}.", self.exemption, self.expired)
    }
}

/// What the exemptions that cover a subject make of a breach.
#[derive(Debug)]
pub(super) enum Standing<'p> {
    Exempt(&'p Exemption),
    Lapsed(Lapsed),
    Bound,
}

impl Exemption {
    /// Whether it has expired at a time in seconds since 1970.
    #[must_use]
    pub fn is_expired(&self, now: i64) -> bool {
        self.expires.as_ref().is_some_and(|expiry| expiry.at <= now)
    }

    /// Whether it asks who makes the request.
    #[must_use]
    pub fn names_requesters(&self) -> bool {
        self.users.is_some() || self.groups.is_some() || self.service_accounts.is_some()
    }

    /// Whether it covers all that a contract asks for.
    pub(super) fn is_unlimited(&self) -> bool {
        self.pools.is_none() && self.rules.is_none()
    }

    /// Whether what it is limited to includes a rule in all of these pools.
    pub(super) fn extends_to(&self, rule: Rule, pools: PoolSet) -> bool {
        self.includes(pools) && self.rules.as_ref().is_none_or(|rules| rules.contains(&rule))
    }

    /// Whether pods that ask for this pool are left as they are.
    pub(super) fn extends_to_injection(&self, pool: usize) -> bool {
        self.rules.is_none() && self.includes(PoolSet::from_iter([pool]))
    }

    fn includes(&self, pools: PoolSet) -> bool {
        self.pools.is_none_or(|own| pools.without(own).is_empty())
    }

    /// Whether all its conditions hold, expired or not.
    pub(super) fn covers(&self, subject: &Subject<'_>, identities: &Identities) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.matches(subject.namespace))
            && self.covers_requester(subject)
            && self
                .daemon_sets
                .as_ref()
                .is_none_or(|names| owned(subject, Controller::DaemonSet, identities, |name| names.matches(name)))
            && self.owners.as_ref().is_none_or(|owners| owners.iter().any(|owner| owner.owns(subject, identities)))
    }

    fn covers_requester(&self, subject: &Subject<'_>) -> bool {
        if !self.names_requesters() {
            return true;
        }
        // Who writes a template makes none of its pods.
        if subject.object.kind.is_template() {
            return false;
        }
        let requester = subject.requester;
        self.matches_requester(requester.username, |wanted| requester.is_in(wanted))
    }

    /// Whether its conditions on the requester hold for a user name and its groups.
    pub(crate) fn matches_requester(&self, username: &str, is_in: impl Fn(&str) -> bool) -> bool {
        self.users.as_ref().is_none_or(|names| names.matches(username))
            && self.groups.as_ref().is_none_or(|groups| groups.iter().any(|group| is_in(group)))
            && self.service_accounts.as_ref().is_none_or(|names| is_account_of(names, username))
    }
}

/// Whether a user name is that of a service account which the patterns name as `NAMESPACE/NAME`.
pub(super) fn is_account_of(names: &Patterns, username: &str) -> bool {
    let account = username.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    account.is_some_and(|(namespace, name)| names.matches(&format!("{namespace}/{name}")))
}

impl Owner {
    fn owns(&self, subject: &Subject<'_>, identities: &Identities) -> bool {
        if let Some(controller) = self.controller {
            return owned(subject, controller, identities, |name| self.name.matches(name));
        }
        // The exemption names the requester, which proves it.
        subject.object.kind == Kind::Pod
            && subject.object.pod.metadata.controller.0.as_ref().is_some_and(|owner| {
                owner.is_of(self.api_group.as_deref(), &self.kind) && self.name.matches(&owner.name)
            })
    }
}

/// Whether the subject is a pod that a controller makes for a listed owner, or what its pods are made from.
fn owned(
    subject: &Subject<'_>,
    controller: Controller,
    identities: &Identities,
    listed: impl Fn(&str) -> bool,
) -> bool {
    let object = subject.object;
    if object.kind == Kind::Pod {
        // The controller acts for every tenant, so the owner must be listed.
        return identities.owner(controller, subject).is_some_and(listed);
    }
    // Its pods will be exempt, and here the name is no claim: it is the object's own.
    Controller::of_pods(object.kind, &object.metadata().name)
        .is_some_and(|(own, name)| own == controller && listed(&name))
}

impl Policy {
    /// The same policy with more exemptions, for callers that ask what these would change.
    #[must_use]
    pub fn exempting(mut self, more: impl IntoIterator<Item = Exemption>) -> Self {
        self.exemptions.extend(more);
        self
    }

    /// The exemptions that cover the subject, expired or not.
    pub(super) fn covering(&self, subject: &Subject<'_>) -> Vec<&Exemption> {
        self.exemptions.iter().filter(|exemption| exemption.covers(subject, &self.identities)).collect()
    }

    /// The exemptions that cover the subject and count.
    fn counting(&self, subject: &Subject<'_>, facts: &dyn Facts) -> impl Iterator<Item = &Exemption> {
        self.exemptions.iter().filter(move |exemption| {
            exemption.covers(subject, &self.identities)
                && (exemption.expires.is_none() || !exemption.is_expired(facts.now()))
        })
    }

    /// Whether nothing is asked of the subject, whatever the rule and the pool.
    pub(super) fn is_exempt(&self, subject: &Subject<'_>, facts: &dyn Facts) -> bool {
        is_mirror_pod(subject) || self.counting(subject, facts).any(Exemption::is_unlimited)
    }

    /// The name of what exempts the subject from being completed for a pool.
    pub(super) fn spares_injection(&self, subject: &Subject<'_>, pool: usize, facts: &dyn Facts) -> Option<String> {
        if is_mirror_pod(subject) {
            return Some(MIRROR_POD.to_owned());
        }
        let exemption = self.counting(subject, facts).find(|exemption| exemption.extends_to_injection(pool))?;
        Some(exemption.name.clone())
    }

    /// The pools in which the subject is exempt from a rule, for rules that tell of several pools at once
    /// and must not tell of a spared one alone. None where no exemption tells pools apart.
    pub(super) fn spared_pools(&self, subject: &Subject<'_>, rule: Rule, facts: &dyn Facts) -> PoolSet {
        if self.exemptions.iter().all(|exemption| exemption.pools.is_none()) {
            return PoolSet::default();
        }
        let exemptions: Vec<_> = self.counting(subject, facts).collect();
        let spared =
            |index: &usize| exemptions.iter().any(|exemption| exemption.extends_to(rule, PoolSet::from_iter([*index])));
        (0..self.pools.len()).filter(spared).collect()
    }
}

/// Of the exemptions that cover a subject, what the first that counts makes of a rule in these pools.
pub(super) fn standing<'p>(covering: &[&'p Exemption], rule: Rule, pools: PoolSet, now: i64) -> Standing<'p> {
    let extending = || covering.iter().filter(|exemption| exemption.extends_to(rule, pools));
    if let Some(exemption) = extending().find(|exemption| !exemption.is_expired(now)) {
        return Standing::Exempt(exemption);
    }
    let lapsed = extending().find_map(|exemption| {
        let expiry = exemption.expires.as_ref()?;
        Some(Lapsed { exemption: exemption.name.clone(), expired: expiry.written.clone() })
    });
    lapsed.map_or(Standing::Bound, Standing::Lapsed)
}

/// Whether the subject is the mirror of a static pod, made by the kubelet of the node it runs on.
pub(crate) fn is_mirror_pod(subject: &Subject<'_>) -> bool {
    let pod = &subject.object.pod;
    subject.object.kind == Kind::Pod
        && pod.metadata.annotations.contains(MIRROR_ANNOTATION)
        && subject.requester.is_node(&pod.spec.node_name)
}
