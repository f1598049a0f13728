//! A request that the webhook must refuse, made through the API server as a dry run.
//!
//! Only this shows the whole way: that the API server knows of the webhook, finds it, trusts it, and is told
//! no. It is made in a namespace of its own, whose quota lets no pod be created: should nobody refuse the
//! request, the quota does, and should both fail, it was a dry run.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;

use super::{FIELD_MANAGER, Installation, Said, has_code};

/// A pod that the contract refuses.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// The pod.
    pub pod: Value,
    /// The id of the rule that refuses it.
    pub rule: String,
}

/// What became of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The webhook refused it, for the rule's sake.
    Refused,
    /// The webhook did not refuse it, or was not asked: what happened instead.
    Passed(String),
}

/// Sends the probe.
///
/// # Errors
/// Where the API server could not be asked.
pub(super) async fn send(client: &Client, installation: &Installation, probe: &Probe) -> Result<Outcome, kube::Error> {
    let pod: Pod = serde_json::from_value(probe.pod.clone()).map_err(kube::Error::SerdeError)?;
    let pods = Api::<Pod>::namespaced(client.clone(), &installation.probe_namespace);
    let parameters = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
    Ok(match pods.create(&parameters, &pod).await {
        Ok(_) => Outcome::Passed("it was admitted, and the webhook not asked or of another mind".to_owned()),
        Err(error) if is_refusal(&error, &installation.hooks.validate, &probe.rule) => Outcome::Refused,
        Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => {
            Outcome::Passed("the webhook was not asked, and only the namespace's quota refused it".to_owned())
        }
        // Whoever else refuses it. A call that failed has the code 500, and is an error.
        Err(error) if has_code(&error, 403) => Outcome::Passed(Said(&error).to_string()),
        Err(error) => return Err(error),
    })
}

/// Whether it was the webhook that said no, and because of the rule. Its name stands in the API server's
/// words around ours.
fn is_refusal(error: &kube::Error, hook: &str, rule: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    has_code(error, 403)
        && status.message.contains(&format!("admission webhook \"{hook}\" denied the request"))
        && status.message.contains(rule)
}
