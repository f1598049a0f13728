//! The contract in force as it would be written: the mirror of the schema.

use std::collections::BTreeMap;

use serde::Serialize;

use super::custom::PrintedCustomResource;
use super::{Contract, TlsSource, audit};
use crate::policy::{
    Action, Allowlist, Controller, Exemption, Identities, LabelOperator, LabelSelector, Levers, Markers, Models, Owner,
    Patterns, Policy, Pool, Rollout, Rule, Selection, Taint,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Printed<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    contact: Option<&'a str>,
    pools: Vec<PrintedPool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selection: Option<PrintedSelection<'a>>,
    exemptions: Vec<PrintedExemption<'a>>,
    rules: Rules,
    #[serde(skip_serializing_if = "Option::is_none")]
    levers: Option<PrintedLevers<'a>>,
    templates: &'static str,
    injection: Injection<'a>,
    custom_resources: Vec<PrintedCustomResource<'a>>,
    nodes: PrintedNodes,
    identities: PrintedIdentities<'a>,
    rollout: Vec<PrintedRollout<'a>>,
    audit: PrintedAudit,
    server: PrintedServer,
    tls: PrintedTls<'a>,
    log: PrintedLog<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedPool<'a> {
    name: &'a str,
    resources: &'a [String],
    taints: Vec<PrintedTaint<'a>>,
    node_selector: &'a BTreeMap<String, String>,
    namespaces: Namespaces<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<PrintedModels<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_class_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    markers: Option<PrintedMarkers<'a>>,
}

#[derive(Serialize)]
struct PrintedTaint<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
    effect: &'static str,
}

#[derive(Serialize)]
struct Namespaces<'a> {
    names: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<PrintedSelector<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedSelector<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    match_labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<PrintedRequirement<'a>>,
}

#[derive(Serialize)]
struct PrintedRequirement<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    values: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedModels<'a> {
    annotation: &'a str,
    node_label: &'a str,
    values: &'a [String],
}

#[derive(Serialize)]
struct PrintedMarkers<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    claims: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    annotations: &'a [String],
}

#[derive(Serialize)]
struct PrintedSelection<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    annotation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedExemption<'a> {
    name: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_accounts: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owners: Option<Vec<PrintedOwner<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon_sets: Option<&'a [String]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedOwner<'a> {
    kind: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_group: Option<&'a str>,
}

/// Those who are named.
struct PrintedLevers<'a>(&'a Levers);

/// In the order of [`Rule::ALL`], which a map would lose.
struct Rules([Action; Rule::ALL.len()]);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Injection<'a> {
    when_tolerated: &'static str,
    fence_ordinary: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedNodes {
    when_unknown: &'static str,
}

/// Those of DaemonSets and of schedulers always, as in the built-in contract; others where they are not as usual.
struct PrintedIdentities<'a>(&'a Identities);

#[derive(Serialize)]
struct PrintedRollout<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    namespaces: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<PrintedSelector<'a>>,
    mode: &'static str,
}

#[derive(Serialize)]
struct PrintedAudit {
    interval: String,
    reports: &'static str,
}

#[derive(Serialize)]
struct PrintedServer {
    listen: String,
    metrics: String,
    drain: String,
}

#[derive(Serialize)]
struct PrintedTls<'a> {
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    names: &'a [String],
    minimum: &'static str,
}

#[derive(Serialize)]
struct PrintedLog<'a> {
    level: &'a str,
    format: &'static str,
}

impl Serialize for Rules {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Rule::ALL.into_iter().map(|rule| (rule.id(), self.0[rule as usize].as_str())))
    }
}

impl Serialize for PrintedLevers<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lists = [
            ("users", self.0.users.written()),
            ("groups", &self.0.groups),
            ("serviceAccounts", self.0.service_accounts.written()),
        ];
        serializer.collect_map(lists.into_iter().filter(|(_, names)| !names.is_empty()))
    }
}

impl Serialize for PrintedIdentities<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unusual = |controller: &Controller| {
            *controller == Controller::DaemonSet || self.0.of(*controller) != [controller.default_identity()]
        };
        let shown = Controller::ALL.into_iter().filter(unusual);
        let shown = shown.map(|controller| (controller.key(), self.0.of(controller)));
        serializer.collect_map(shown.chain([("schedulers", self.0.schedulers())]))
    }
}

impl<'a> From<&'a Contract> for Printed<'a> {
    fn from(contract: &'a Contract) -> Self {
        let Contract { policy, audit, server, tls, log } = contract;
        let (source, cert, key, names): (_, _, _, &[String]) = match &tls.source {
            TlsSource::SelfSigned { names } => ("self-signed", None, None, names),
            TlsSource::Files { cert, key } => {
                ("files", Some(cert.display().to_string()), Some(key.display().to_string()), &[])
            }
            TlsSource::Managed => ("managed", None, None, &[]),
        };
        let exemptions = policy.exemptions.iter().map(|exemption| PrintedExemption::of(exemption, policy));
        let rollout = policy.rollout.iter().map(|Rollout { namespaces, selector, mode }| PrintedRollout {
            namespaces: namespaces.written(),
            selector: selector.as_ref().map(PrintedSelector::from),
            mode: mode.as_str(),
        });
        Self {
            mode: policy.mode.as_str(),
            contact: policy.contact.as_deref(),
            pools: policy.pools.iter().map(PrintedPool::from).collect(),
            selection: PrintedSelection::of(&policy.selection),
            exemptions: exemptions.collect(),
            rules: Rules(policy.rules),
            levers: (!policy.levers.is_empty()).then_some(PrintedLevers(&policy.levers)),
            templates: policy.templates.as_str(),
            injection: Injection {
                when_tolerated: policy.when_tolerated.as_str(),
                fence_ordinary: &policy.fence_ordinary,
            },
            custom_resources: policy.custom_resources.iter().map(PrintedCustomResource::from).collect(),
            nodes: PrintedNodes { when_unknown: policy.when_unknown.as_str() },
            identities: PrintedIdentities(&policy.identities),
            rollout: rollout.collect(),
            audit: PrintedAudit { interval: audit::printed(audit.interval), reports: audit.reports.as_str() },
            server: PrintedServer {
                listen: server.listen.to_string(),
                metrics: server.metrics.to_string(),
                drain: format!("{}s", server.drain.as_secs()),
            },
            tls: PrintedTls { source, cert, key, names, minimum: tls.minimum.as_str() },
            log: PrintedLog { level: &log.level, format: log.format.as_str() },
        }
    }
}

/// The exemptions of a contract as the items of its list; empty where it has none.
///
/// # Errors
/// Where the YAML writer fails, which it does not for a contract.
pub fn exemptions_yaml(policy: &Policy) -> Result<String, serde_saphyr::ser::Error> {
    let exemptions: Vec<_> =
        policy.exemptions.iter().map(|exemption| PrintedExemption::of(exemption, policy)).collect();
    if exemptions.is_empty() { Ok(String::new()) } else { serde_saphyr::to_string(&exemptions) }
}

impl<'a> PrintedExemption<'a> {
    fn of(exemption: &'a Exemption, policy: &'a Policy) -> Self {
        let pool = |index: usize| policy.pools[index].name.as_str();
        let owner = |owner: &'a Owner| PrintedOwner {
            kind: &owner.kind,
            name: owner.name.written().first().map_or("", String::as_str),
            api_group: owner.api_group.as_deref(),
        };
        Self {
            name: &exemption.name,
            reason: &exemption.reason,
            owner: exemption.owner.as_deref(),
            expires: exemption.expires.as_ref().map(|expiry| expiry.written.as_str()),
            pools: exemption.pools.map(|pools| pools.iter().map(pool).collect()),
            rules: exemption.rules.as_ref().map(|rules| rules.iter().map(|rule| rule.id()).collect()),
            namespaces: exemption.namespaces.as_ref().map(Patterns::written),
            users: exemption.users.as_ref().map(Patterns::written),
            groups: exemption.groups.as_deref(),
            service_accounts: exemption.service_accounts.as_ref().map(Patterns::written),
            owners: exemption.owners.as_ref().map(|owners| owners.iter().map(owner).collect()),
            daemon_sets: exemption.daemon_sets.as_ref().map(Patterns::written),
        }
    }
}

impl<'a> From<&'a Pool> for PrintedPool<'a> {
    fn from(pool: &'a Pool) -> Self {
        let taint =
            |taint: &'a Taint| PrintedTaint { key: &taint.key, value: &taint.value, effect: taint.effect.as_str() };
        let Allowlist { names, selector } = &pool.namespaces;
        Self {
            name: &pool.name,
            resources: pool.resources.written(),
            taints: pool.taints.iter().map(taint).collect(),
            node_selector: &pool.node_selector,
            namespaces: Namespaces { names: names.written(), selector: selector.as_ref().map(PrintedSelector::from) },
            models: pool.models.as_ref().map(|Models { annotation, node_label, values }| PrintedModels {
                annotation,
                node_label,
                values,
            }),
            priority_class_name: pool.priority_class_name.as_deref(),
            markers: PrintedMarkers::of(&pool.markers),
        }
    }
}

impl<'a> PrintedMarkers<'a> {
    fn of(markers: &'a Markers) -> Option<Self> {
        let Markers { claims, annotations } = markers;
        (!markers.is_empty()).then(|| Self { claims: claims.written(), annotations })
    }
}

impl<'a> PrintedSelection<'a> {
    fn of(Selection { annotation, label }: &'a Selection) -> Option<Self> {
        let given = annotation.is_some() || label.is_some();
        given.then_some(Self { annotation: annotation.as_deref(), label: label.as_deref() })
    }
}

impl<'a> From<&'a LabelSelector> for PrintedSelector<'a> {
    fn from(selector: &'a LabelSelector) -> Self {
        let requirements = selector.match_expressions.iter().map(|requirement| {
            let (operator, values): (_, &[String]) = match &requirement.operator {
                LabelOperator::In(values) => ("In", values),
                LabelOperator::NotIn(values) => ("NotIn", values),
                LabelOperator::Exists => ("Exists", &[]),
                LabelOperator::DoesNotExist => ("DoesNotExist", &[]),
            };
            PrintedRequirement { key: &requirement.key, operator, values }
        });
        Self { match_labels: &selector.match_labels, match_expressions: requirements.collect() }
    }
}
