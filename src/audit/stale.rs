//! What of the contract leads nowhere: namespaces of allowlists that do not exist, exemptions that have expired or that
//! nobody needs.

use std::collections::{BTreeMap, BTreeSet};

use super::view::View;
use super::words::command;
use super::{Audit, Check, Finding, ObjectRef, Resource, Severity};
use crate::policy::{Allowlist, Decision, Exemption, Facts as _, Rule, is_glob, visible};

/// Which exemptions made a difference, or would without their expiry, to whatever was judged.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The names of those that have not been seen to make one.
    unseen: BTreeSet<String>,
    /// By the name of what expired.
    lapsed: BTreeMap<String, Losers>,
}

/// Who was covered by an exemption until it expired.
#[derive(Debug, Default)]
struct Losers {
    pods: usize,
    /// The last of their owners, or they themselves.
    makers: BTreeSet<ObjectRef>,
}

impl Uses {
    pub(super) fn of(view: &View<'_>) -> Self {
        let unseen = view.policy.exemptions().iter().map(|exemption| exemption.name.clone()).collect();
        Self { unseen, lapsed: BTreeMap::new() }
    }

    /// Whether there are exemptions that have not been seen to make a difference.
    pub(super) fn some_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Notes what a decision owes to exemptions. `maker` is the last of the object's owners, or it itself.
    pub(super) fn note(&mut self, decision: &Decision, maker: &ObjectRef, is_pod: bool) {
        self.note_completion(Some(decision));
        let lapsed: BTreeSet<_> = decision.findings.iter().filter_map(|finding| finding.lapsed.as_ref()).collect();
        for lapsed in lapsed {
            let losers = self.lapsed.entry(lapsed.exemption.clone()).or_default();
            losers.pods += usize::from(is_pod);
            losers.makers.insert(maker.clone());
        }
    }

    /// Notes the exemptions by which nothing is injected.
    pub(super) fn note_completion(&mut self, decision: Option<&Decision>) {
        for exempted in decision.iter().flat_map(|decision| &decision.exempted) {
            self.unseen.remove(&exempted.exemption);
        }
    }
}

pub(super) fn judge(view: &View<'_>, audit: &mut Audit, uses: &Uses) {
    if view.snapshot.knows_all(Resource::Namespaces) {
        for (index, pool) in view.policy.pools().iter().enumerate() {
            allowlist(view, audit, (index, &pool.name), &pool.namespaces);
        }
    }
    for (index, exemption) in view.policy.exemptions().iter().enumerate() {
        let found = if exemption.is_expired(view.now) {
            Some(expired(view, exemption, uses.lapsed.get(&exemption.name)))
        } else {
            unused(view, exemption, uses)
        };
        audit.findings.extend(found.map(|found| found.at(format!("exemptions[{index}]"))));
    }
}

/// An entry of the contract, as an object that findings are about.
fn entry(list: &str, name: &str) -> ObjectRef {
    ObjectRef::new("gpufence.io/v1", "Contract", "", &format!("{list}/{name}"))
}

fn allowlist(view: &View<'_>, audit: &mut Audit, (index, pool): (usize, &str), allowlist: &Allowlist) {
    let mut tell = |field: String, entry_is: &str, message: String, action: String| {
        let field = format!("pools[{index}].namespaces.{field}");
        let finding = Finding::new(Check::NamespaceMissing, Severity::Low, entry("pools", pool), message, action);
        audit.findings.push(finding.in_pool(pool).at(field).particularly(entry_is));
    };
    let existing = || view.snapshot.namespaces.keys();
    for (place, name) in allowlist.names.written().iter().enumerate() {
        let field = format!("names[{place}]");
        if !is_glob(name) {
            if !view.snapshot.namespaces.contains_key(&**name) {
                let message = format!("pool {pool} allows namespace {name}, which does not exist");
                let action = format!(
                    "Remove {name} from namespaces.names of pool {pool}, or create it: {}. Until then whoever \
                     may create it may use the pool.",
                    command("kubectl create namespace", &[name], "")
                );
                tell(field, name, message, action);
            }
            continue;
        }
        // A glob by itself; it was compiled once, so that it can be again.
        let matches = crate::policy::Patterns::new(vec![name.clone()]);
        if matches.is_ok_and(|glob| !existing().any(|namespace| glob.matches(namespace))) {
            let message = format!("pool {pool} allows namespaces {name}, and there is none of such a name");
            let action = format!(
                "Remove {name} from namespaces.names of pool {pool}, unless such namespaces are still to come: whoever \
                 may create one may use the pool."
            );
            tell(field, name, message, action);
        }
    }
    let Some(selector) = &allowlist.selector else { return };
    if !existing().any(|namespace| view.namespace_meets(namespace, selector) == Some(true)) {
        let message = format!("pool {pool} allows namespaces with labels {selector}, and no namespace has them");
        let action = format!(
            "Label the namespaces that are meant, or remove namespaces.selector of pool {pool}: kubectl get namespaces \
             --show-labels shows which labels there are."
        );
        tell("selector".to_owned(), "selector", message, action);
    }
}

fn expired(view: &View<'_>, exemption: &Exemption, losers: Option<&Losers>) -> Finding {
    let Exemption { name, expires, .. } = exemption;
    let when = expires.as_ref().map(|expiry| expiry.written.as_str()).unwrap_or_default();
    let (severity, rest, action) = if let Some(losers) = losers {
        let action = format!(
            "Do what the findings about them say, then remove exemption {name} from the contract; or give it a later \
             expires, with a reason."
        );
        (Severity::Medium, format!("without it the contract is broken by {}", losers.named()), action)
    } else {
        let rest = if exemption.names_requesters() {
            "whether anybody still needs it depends on who asks, which an audit does not see"
        } else if knows_all(view) {
            "nothing in the cluster would need it"
        } else {
            "nothing that is known of the cluster would need it"
        };
        (Severity::Low, rest.to_owned(), format!("Remove exemption {name} from the contract."))
    };
    let message = format!("exemption {name} expired on {when}; {rest}");
    Finding::new(Check::ExemptionExpired, severity, entry("exemptions", name), message, action)
}

fn unused(view: &View<'_>, exemption: &Exemption, uses: &Uses) -> Option<Finding> {
    let Exemption { name, rules, .. } = exemption;
    // Who asks is not seen here, and who changes namespaces and nodes is not either.
    let is_seen = !exemption.names_requesters()
        && !rules.as_ref().is_some_and(|rules| rules.contains(&Rule::LeverChange))
        && knows_all(view);
    if !is_seen || exemption.is_built_in || !uses.unseen.contains(name) {
        return None;
    }
    let message =
        format!("no pod needs exemption {name} today, and no template: without it none would be told of more");
    let action = format!(
        "Keep exemption {name} where what it is for is still to come, such as agents that are not installed yet; otherwise \
         remove it from the contract, for it exempts whoever comes next."
    );
    Some(Finding::new(Check::ExemptionUnused, Severity::Low, entry("exemptions", name), message, action))
}

/// Whether all is known that an exemption could cover.
fn knows_all(view: &View<'_>) -> bool {
    [Resource::Pods, Resource::Workloads].into_iter().all(|resource| view.snapshot.knows_all(resource))
}

impl Losers {
    /// As in a sentence: `Deployment web/shop and 2 more (7 pods)`.
    fn named(&self) -> String {
        const SHOWN: usize = 3;
        let shown: Vec<_> = self.makers.iter().take(SHOWN).map(ToString::to_string).collect();
        let more = match self.makers.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let pods = if self.pods == 1 { "1 pod".to_owned() } else { format!("{} pods", self.pods) };
        format!("{}{more} ({pods})", visible(&shown.join(", ")))
    }
}
