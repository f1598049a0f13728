//! The acceptance test of an installation, as a dry run: nothing is stored, and nothing else changed.
//!
//! It asks as a user of the cluster does, through the API server, so that what it finds right is right for
//! them. It waits for nothing: what is not there yet is a failed check with a hint.

mod admission;
mod installed;
mod nodes;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Serialize;

use super::{Installation, Intent, Said};
use crate::policy::Policy;

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is as it should be.
    Passed,
    /// It is not.
    Failed,
    /// It could not be asked.
    Skipped,
}

/// One line of the checklist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was asked, the same in every version.
    pub id: &'static str,
    /// The answer.
    pub outcome: Outcome,
    /// What was found.
    pub message: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Check {
    fn passed(id: &'static str, message: impl Into<String>) -> Self {
        Self { id, outcome: Outcome::Passed, message: message.into(), hint: None }
    }

    fn failed(id: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { id, outcome: Outcome::Failed, message: message.into(), hint: Some(hint.into()) }
    }

    fn skipped(id: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { id, outcome: Outcome::Skipped, message: message.into(), hint: Some(hint.into()) }
    }

    /// What could not be asked because the API server did not answer, or did not allow it.
    fn unanswered(id: &'static str, what: &str, error: &kube::Error) -> Self {
        Self::failed(
            id,
            format!("{what}: {}", Said(error)),
            "run this with the rights of a cluster administrator, against the right cluster (kubectl config \
             current-context)",
        )
    }
}

/// What is verified.
#[derive(Debug)]
pub struct Expectation<'a> {
    /// The contract that the installation should be serving.
    pub policy: &'a Policy,
    /// Its SHA-256, as replicas report it.
    pub contract_sha256: &'a str,
    /// What the contract wants of the installation.
    pub intent: &'a Intent,
    /// A namespace that exists, for a pod that has nothing to do with GPUs.
    pub ordinary_namespace: &'a str,
    /// A namespace that the contract allows; found where none is named.
    pub gpu_namespace: Option<&'a str>,
}

/// The contract in the installation's `ConfigMap`, under this key of it; `None` where there is none.
///
/// # Errors
/// Where the API server does not say.
pub async fn stored_contract(
    client: &Client,
    installation: &Installation,
    key: &str,
) -> Result<Option<String>, kube::Error> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &installation.namespace);
    Ok(maps.get_opt(&installation.name).await?.and_then(|map| map.data?.remove(key)))
}

/// Goes through the whole checklist.
pub async fn verify(client: &Client, installation: &Installation, expected: &Expectation<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let registered = installed::registrations(client, installation, expected, &mut checks).await;
    installed::replicas(client, installation, expected, &registered, &mut checks).await;
    checks.push(admission::ordinary(client, installation, expected).await);
    checks.push(admission::refused(client, installation, expected, &registered).await);
    checks.push(admission::injected(client, installation, expected, &registered).await);
    nodes::check(client, expected.policy, &mut checks).await;
    checks
}
