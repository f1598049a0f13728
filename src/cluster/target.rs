//! What people want a failing webhook to mean, set by one command.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::registrations::{FailurePolicy, Kind, RegistrationError, api, change, patch, read_hooks};
use super::{Installation, has_code};

/// How often a configuration is read again that was changed while it was being changed.
const ATTEMPTS: u8 = 5;

/// What [`set_target`] did to a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Armed {
    /// The configuration's kind.
    pub kind: &'static str,
    /// The failurePolicy that it has now.
    pub now: FailurePolicy,
    /// The one that the controller brings about once it is safe.
    pub target: FailurePolicy,
}

/// Sets what the controller aims at, and tells for each configuration what came of it: what is wrong with one keeps
/// nobody from changing the other.
///
/// Ignore takes effect at once, with or without a controller, on every webhook there is in the configurations, whoever
/// made it insist. Fail does when the controller has seen a dry run refused. The mutating webhook is only ever disarmed
/// here: it fails open unless its manifest says otherwise.
pub async fn set_target(
    client: &Client,
    installation: &Installation,
    target: FailurePolicy,
) -> Vec<Result<Armed, RegistrationError>> {
    let kinds: &[Kind] = match target {
        FailurePolicy::Ignore => &Kind::ALL,
        FailurePolicy::Fail => &[Kind::Validating],
    };
    let mut done = Vec::new();
    for kind in kinds {
        done.push(set_one(client, installation, *kind, target).await);
    }
    done
}

async fn set_one(
    client: &Client,
    installation: &Installation,
    kind: Kind,
    target: FailurePolicy,
) -> Result<Armed, RegistrationError> {
    let name = installation.name.clone();
    let fault = |source| {
        let (kind, name) = (kind.name(), name.clone());
        if has_code(&source, 404) {
            RegistrationError::Missing { kind, name }
        } else {
            RegistrationError::Api { kind, name, source }
        }
    };
    let annotation = json!({"metadata": {"annotations": {&installation.target_annotation: target.as_str()}}});
    for attempt in 1.. {
        // The annotation first, and the webhooks as they are after it: a controller that arms meanwhile either did so
        // before, and is seen here, or is refused for the resourceVersion that it knows.
        let now = api(client, kind).patch(&name, &PatchParams::default(), &Patch::Merge(&annotation)).await;
        let hooks = read_hooks(&now.map_err(fault)?, installation);
        if target == FailurePolicy::Fail {
            let wanted = kind.pod_hook(installation);
            let Some(hook) = hooks.iter().find(|hook| hook.name == wanted) else {
                return Err(RegistrationError::NoHook { kind: kind.name(), name, hook: wanted.to_owned() });
            };
            return Ok(Armed { kind: kind.name(), now: hook.failure_policy, target });
        }
        let disarmed = change(&hooks, "failurePolicy", |hook| {
            (hook.failure_policy != FailurePolicy::Ignore).then(|| json!(FailurePolicy::Ignore.as_str()))
        });
        match patch(client, kind, &name, disarmed).await {
            Ok(()) => break,
            // The webhooks stand in another order by now, or somebody else wrote at the same time.
            Err(error) if attempt < ATTEMPTS && (has_code(&error, 409) || has_code(&error, 422)) => {}
            Err(error) => return Err(fault(error)),
        }
    }
    Ok(Armed { kind: kind.name(), now: FailurePolicy::Ignore, target })
}
