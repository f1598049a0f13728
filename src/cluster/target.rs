//! What people want a failing webhook to mean, set by one command.

use std::collections::BTreeMap;

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::registrations::{FailurePolicy, Kind, RegistrationError, api, change, patch, read_hooks};
use super::{FIELD_MANAGER, Installation, has_code};

/// How often a configuration is read again that was changed while it was being changed.
const ATTEMPTS: u8 = 5;

/// What is added to the target's annotation for the one that remembers what was aimed at before it was taken back.
const BEFORE: &str = "-before-disarm";

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
/// made it insist. Fail does when the controller has seen a dry run refused: of the validation always, and of the
/// mutation where it was aimed at before Ignore was.
pub async fn set_target(
    client: &Client,
    installation: &Installation,
    target: FailurePolicy,
) -> Vec<Result<Armed, RegistrationError>> {
    let mut done = Vec::new();
    for kind in Kind::ALL {
        done.extend(set_one(client, installation, kind, target).await.transpose());
    }
    done
}

/// `None` where there was nothing to set.
async fn set_one(
    client: &Client,
    installation: &Installation,
    kind: Kind,
    target: FailurePolicy,
) -> Result<Option<Armed>, RegistrationError> {
    let name = installation.name.clone();
    let missing = || RegistrationError::Missing { kind: kind.name(), name: name.clone() };
    let fault = |error| {
        if has_code(&error, 404) {
            missing()
        } else {
            RegistrationError::Api { kind: kind.name(), name: name.clone(), error }
        }
    };
    let before = api(client, kind).get_metadata_opt(&name).await.map_err(fault)?.ok_or_else(missing)?;
    let Some(annotations) = annotations(before.metadata.annotations.as_ref(), installation, kind, target) else {
        return Ok(None);
    };
    let annotations = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    for attempt in 1.. {
        // The annotation first, and the webhooks as they are after it: a controller that arms meanwhile either did so
        // before, and is seen here, or is refused for the resourceVersion that it knows.
        let now = api(client, kind).patch(&name, &PatchParams::apply(FIELD_MANAGER), &annotations).await;
        let hooks = read_hooks(&now.map_err(fault)?, installation);
        if target == FailurePolicy::Fail {
            let wanted = kind.pod_hook(installation);
            let Some(hook) = hooks.iter().find(|hook| hook.name == wanted) else {
                return Err(RegistrationError::NoHook { kind: kind.name(), name, hook: wanted.to_owned() });
            };
            return Ok(Some(Armed { kind: kind.name(), now: hook.failure_policy, target }));
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
    Ok(Some(Armed { kind: kind.name(), now: FailurePolicy::Ignore, target }))
}

/// The annotations to set, and with `null` to remove.
fn annotations(
    now: Option<&BTreeMap<String, String>>,
    installation: &Installation,
    kind: Kind,
    target: FailurePolicy,
) -> Option<Value> {
    let key = &installation.target_annotation;
    let before = format!("{key}{BEFORE}");
    let is_fail =
        |key: &str| now.and_then(|now| now.get(key)).is_some_and(|value| value == FailurePolicy::Fail.as_str());
    match target {
        FailurePolicy::Ignore if is_fail(key) => Some(json!({key: "Ignore", before: "Fail"})),
        // What was remembered the last time stays.
        FailurePolicy::Ignore => Some(json!({key: "Ignore"})),
        FailurePolicy::Fail if kind == Kind::Validating || is_fail(&before) || is_fail(key) => {
            Some(json!({key: "Fail", before: null}))
        }
        FailurePolicy::Fail => None,
    }
}
