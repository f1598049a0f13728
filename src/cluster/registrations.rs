//! Both webhook configurations, and the two things of them that are kept here: caBundle and failurePolicy.
//!
//! Everything else in them belongs to whoever applied the manifests. Each write is a JSON patch of single
//! fields that tests first whether the configuration is still the one that was read.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{FIELD_MANAGER, Installation, MatchConditions, Said, has_code};
use crate::policy::{LabelOperator, LabelRequirement, LabelSelector};

/// The label with a namespace's own name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// What a failing call to a webhook means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request goes on without it.
    Ignore,
    /// The request is refused.
    Fail,
}

impl FailurePolicy {
    /// As in a webhook configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Fail => "Fail",
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        [Self::Ignore, Self::Fail].into_iter().find(|policy| policy.as_str() == text)
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which of the two configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Validating,
    Mutating,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Validating, Self::Mutating];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The label of a metric.
    pub(super) const fn webhook(self) -> &'static str {
        match self {
            Self::Validating => "validate",
            Self::Mutating => "mutate",
        }
    }

    /// The name of the webhook that judges or completes pods.
    pub(super) fn pod_hook(self, installation: &Installation) -> &str {
        match self {
            Self::Validating => &installation.hooks.validate,
            Self::Mutating => &installation.hooks.mutate,
        }
    }

    fn resource(self) -> ApiResource {
        match self {
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        }
    }
}

/// Why a configuration is not as it should be, or could not be made so.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// There is none.
    #[error("there is no {kind} {name}; apply the output of `gpufence manifests`")]
    Missing {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// It has no webhook of the name.
    #[error("the {kind} {name} has no webhook {hook}; apply the output of `gpufence manifests`")]
    NoHook {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The webhook that it should have.
        hook: String,
    },
    /// It calls something else.
    #[error(
        "the {kind} {name} calls {calls}, and not the Service {name} in the namespace {namespace}: it is another \
         installation's, and a cluster has room for one"
    )]
    Foreign {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The namespace of this installation.
        namespace: String,
        /// What it calls instead.
        calls: String,
    },
    /// The API server did not do it.
    #[error("{kind} {name}: {}", Said(.error))]
    Api {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What the API server said.
        error: kube::Error,
    },
}

/// One webhook of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hook {
    pub(super) name: String,
    /// The path at which the Service is called; empty for another way of calling.
    pub(super) path: String,
    /// Whether it calls this installation's Service.
    pub(super) is_ours: bool,
    /// What the API server verifies the webhook's certificate by; empty where nothing is given.
    pub(super) ca_bundle: Vec<u8>,
    pub(super) failure_policy: FailurePolicy,
    /// The match conditions by name; none where the API server asks about everything.
    conditions: BTreeMap<String, String>,
}

/// A configuration as it is in the cluster.
#[derive(Debug, Clone)]
pub(super) struct Registration {
    pub(super) kind: Kind,
    name: String,
    resource_version: String,
    pub(super) hooks: Vec<Hook>,
    /// The webhook that judges or completes pods.
    pod_hook: usize,
    /// The name of the webhook that judges Bindings, whether it is there or not.
    bindings_hook: String,
    /// The namespaces of which the API server asks it.
    namespaces: LabelSelector,
    /// What the annotation asks for; without it or with another word Ignore, which harms nobody.
    pub(super) target: FailurePolicy,
    audit_path: String,
}

impl Registration {
    /// Reads a configuration.
    pub(super) async fn read(
        client: &Client,
        installation: &Installation,
        kind: Kind,
    ) -> Result<Self, RegistrationError> {
        let name = installation.name.clone();
        let fault = |error| RegistrationError::Api { kind: kind.name(), name: name.clone(), error };
        let found = api(client, kind).get_opt(&name).await.map_err(fault)?;
        let Some(found) = found else {
            return Err(RegistrationError::Missing { kind: kind.name(), name });
        };
        let wanted = kind.pod_hook(installation);
        let hooks = read_hooks(&found, installation);
        let Some(pod_hook) = hooks.iter().position(|hook| hook.name == wanted) else {
            return Err(RegistrationError::NoHook { kind: kind.name(), name, hook: wanted.to_owned() });
        };
        if !hooks[pod_hook].is_ours {
            let service = &found.data["webhooks"][pod_hook]["clientConfig"]["service"];
            let calls = match (&service["name"], &service["namespace"]) {
                (Value::String(name), Value::String(namespace)) => {
                    format!("the Service {name} in the namespace {namespace}")
                }
                _ => "a URL".to_owned(),
            };
            let namespace = installation.namespace.clone();
            return Err(RegistrationError::Foreign { kind: kind.name(), name, namespace, calls });
        }
        let annotations = found.metadata.annotations.unwrap_or_default();
        let target = annotations.get(&installation.target_annotation).and_then(|text| FailurePolicy::read(text));
        Ok(Self {
            kind,
            name,
            resource_version: found.metadata.resource_version.unwrap_or_default(),
            namespaces: read_selector(&found.data["webhooks"][pod_hook]["namespaceSelector"]),
            hooks,
            pod_hook,
            bindings_hook: installation.hooks.bindings.clone(),
            target: target.unwrap_or(FailurePolicy::Ignore),
            audit_path: installation.audit_path.clone(),
        })
    }

    /// The webhook that judges or completes pods.
    pub(super) fn pod_hook(&self) -> &Hook {
        &self.hooks[self.pod_hook]
    }

    /// Whether the API server asks about pods in a namespace of these labels.
    pub(super) fn asks_in(&self, labels: &BTreeMap<String, String>) -> bool {
        self.namespaces.matches(labels)
    }

    /// The first of the namespaces without which there would be no cluster, or nobody to answer, that is not kept from
    /// the webhook. API servers label each namespace with its name, and let nobody else do it.
    pub(super) fn reaches<'a>(&self, installation: &'a Installation) -> Option<&'a str> {
        let vital = ["kube-system", installation.namespace.as_str()];
        vital.into_iter().find(|name| self.asks_in(&[(NAME_LABEL.to_owned(), (*name).to_owned())].into()))
    }

    /// Whether the webhook is called in the way that only audits.
    pub(super) fn is_audit_only(&self) -> bool {
        self.pod_hook().path.starts_with(&self.audit_path)
    }

    /// The caBundle of each webhook that calls the installation.
    pub(super) fn bundles(&self) -> impl Iterator<Item = &[u8]> {
        self.hooks.iter().filter(|hook| hook.is_ours).map(|hook| hook.ca_bundle.as_slice())
    }

    /// The first webhook of ours whose match conditions are those of another contract: what they keep from it
    /// is not what this contract wants to be kept. One without any is asked about everything, and fine.
    pub(super) fn stale_hook(&self, wanted: &MatchConditions) -> Option<&str> {
        let is_stale = |hook: &&Hook| {
            !hook.conditions.is_empty() && wanted.get(&hook.name).is_some_and(|wanted| *wanted != hook.conditions)
        };
        self.hooks.iter().filter(|hook| hook.is_ours).find(is_stale).map(|hook| hook.name.as_str())
    }

    /// The change that gives the webhooks of ours other bundles, each from the one that it has. Empty where
    /// nothing is to be done.
    pub(super) fn with_bundles(&self, other: &impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<Value> {
        self.change("clientConfig/caBundle", |hook| {
            let other = hook.is_ours.then(|| other(&hook.ca_bundle))??;
            Some(json!(STANDARD.encode(other)))
        })
    }

    /// Whether an outage of the webhook may refuse anything: of the one for pods, and of the one for Bindings where the
    /// API server keeps from it exactly what the contract wants to be kept, which are those of schedulers. One that is
    /// asked about them too, or about those of another contract, would end all scheduling.
    pub(super) fn is_armable(&self, hook: &Hook, wanted: &MatchConditions) -> bool {
        let leaves_schedulers_out =
            || !hook.conditions.is_empty() && wanted.get(&hook.name).is_some_and(|wanted| *wanted == hook.conditions);
        hook.is_ours
            && (hook.name == self.pod_hook().name || hook.name == self.bindings_hook && leaves_schedulers_out())
    }

    /// The webhooks that [`Self::is_armable`] says may be armed, the one for pods among them.
    pub(super) fn armable<'a>(&'a self, wanted: &'a MatchConditions) -> impl Iterator<Item = &'a Hook> {
        self.hooks.iter().filter(|hook| self.is_armable(hook, wanted))
    }

    /// The change that sets the failurePolicy of the webhooks of ours. Empty where nothing is to be done.
    pub(super) fn with_failure_policy(&self, wanted: &impl Fn(&Hook) -> FailurePolicy) -> Vec<Value> {
        self.change("failurePolicy", |hook| {
            let wanted = wanted(hook);
            (hook.is_ours && hook.failure_policy != wanted).then(|| json!(wanted.as_str()))
        })
    }

    fn change(&self, field: &str, value: impl Fn(&Hook) -> Option<Value>) -> Vec<Value> {
        change(&self.hooks, field, value)
    }

    /// Makes a change. Whether it was made: not where the configuration was changed meanwhile, which the next
    /// look will see.
    pub(super) async fn apply(&self, client: &Client, mut operations: Vec<Value>) -> Result<bool, RegistrationError> {
        // A controller that slept must not undo what another did since.
        let version = json!({"op": "test", "path": "/metadata/resourceVersion", "value": self.resource_version});
        operations.insert(0, version);
        let error = match patch(client, self.kind, &self.name, operations).await {
            Ok(()) => return Ok(true),
            Err(error) if has_code(&error, 409) => return Ok(false),
            Err(error) => error,
        };
        let fault = |error| RegistrationError::Api { kind: self.kind.name(), name: self.name.clone(), error };
        // A test that failed, and as well a configuration that this API server no longer takes: the code is the same
        // and the words say nothing, but the first is no fault and the second would come again for ever.
        if has_code(&error, 422) {
            let now = api(client, self.kind).get_metadata_opt(&self.name).await.map_err(fault)?;
            let version = now.and_then(|now| now.metadata.resource_version);
            if version.as_ref() != Some(&self.resource_version) {
                return Ok(false);
            }
        }
        Err(fault(error))
    }
}

/// The kinds of the configurations that have a webhook with the failurePolicy Fail, whomever it calls.
pub async fn insisting(client: &Client, installation: &Installation) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        let found = api(client, kind).get_opt(&installation.name).await.ok().flatten();
        let hooks = found.map(|found| read_hooks(&found, installation)).unwrap_or_default();
        if hooks.iter().any(|hook| hook.failure_policy == FailurePolicy::Fail) {
            kinds.push(kind.name());
        }
    }
    kinds
}

/// The change of one field of the webhooks for which there is a value.
pub(super) fn change(hooks: &[Hook], field: &str, value: impl Fn(&Hook) -> Option<Value>) -> Vec<Value> {
    let hooks = hooks.iter().enumerate().filter_map(|(index, hook)| Some((index, hook, value(hook)?)));
    hooks
        .flat_map(|(index, hook, value)| {
            [
                json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": hook.name}),
                // Adds as well as replaces.
                json!({"op": "add", "path": format!("/webhooks/{index}/{field}"), "value": value}),
            ]
        })
        .collect()
}

pub(super) fn api(client: &Client, kind: Kind) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind.resource())
}

pub(super) async fn patch(client: &Client, kind: Kind, name: &str, operations: Vec<Value>) -> Result<(), kube::Error> {
    if operations.is_empty() {
        return Ok(());
    }
    let patch = serde_json::from_value(operations.into()).map_err(kube::Error::SerdeError)?;
    api(client, kind).patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Json::<()>(patch)).await.map(drop)
}

/// A label selector as the API server writes it. What it does not know is left out, which selects more.
fn read_selector(selector: &Value) -> LabelSelector {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    LabelSelector {
        match_labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
        match_expressions: expressions
            .filter_map(|expression| {
                let operator = match expression["operator"].as_str()? {
                    "In" => LabelOperator::In(texts(&expression["values"])),
                    "NotIn" => LabelOperator::NotIn(texts(&expression["values"])),
                    "Exists" => LabelOperator::Exists,
                    "DoesNotExist" => LabelOperator::DoesNotExist,
                    _ => return None,
                };
                Some(LabelRequirement { key: text(&expression["key"]), operator })
            })
            .collect(),
    }
}

/// The webhooks of a configuration, in their order.
pub(super) fn read_hooks(configuration: &DynamicObject, installation: &Installation) -> Vec<Hook> {
    let hooks = configuration.data["webhooks"].as_array().into_iter().flatten();
    hooks.map(|hook| read_hook(hook, installation)).collect()
}

fn read_hook(hook: &Value, installation: &Installation) -> Hook {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let service = &hook["clientConfig"]["service"];
    let conditions = hook["matchConditions"].as_array().into_iter().flatten();
    Hook {
        name: text(&hook["name"]),
        path: text(&service["path"]),
        is_ours: service["name"] == installation.name && service["namespace"] == installation.namespace,
        // What cannot be decoded the API server has refused.
        ca_bundle: STANDARD.decode(text(&hook["clientConfig"]["caBundle"])).unwrap_or_default(),
        // The API server's default.
        failure_policy: FailurePolicy::read(&text(&hook["failurePolicy"])).unwrap_or(FailurePolicy::Fail),
        conditions: conditions.map(|condition| (text(&condition["name"]), text(&condition["expression"]))).collect(),
    }
}

#[cfg(test)]
mod tests;
