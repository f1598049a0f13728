//! `gpufence arm` and `gpufence disarm`: whether an outage of the webhook may refuse pods.

use anyhow::anyhow;
use clap::Args;
use tokio::runtime::Builder;

use super::installation::installation;
use super::{Failure, Success, print, run_to_end};
use crate::cluster::{self, Armed, ConnectError, FailurePolicy, RegistrationError, set_target};
use crate::manifest::names;

/// Let the controller set failurePolicy to Fail
///
/// The controller does so once the contract enforces in every namespace, and a dry run was refused by the
/// webhook as it should be. Until then nothing changes, and with an installation that only audits nothing ever does.
#[derive(Debug, Args)]
pub(super) struct Arm {}

/// Set failurePolicy to Ignore at once, and keep it there
///
/// From then on an outage of the webhook stands in nobody's way. The webhook goes on refusing what the
/// contract refuses for as long as it answers. `gpufence arm` takes it back, and so does whoever applies the
/// manifests again: pause what does so by itself first.
#[derive(Debug, Args)]
pub(super) struct Disarm {}

impl Arm {
    #[expect(clippy::unused_self, reason = "every subcommand runs itself, and this one has no options yet")]
    pub(super) fn run(&self) -> Result<Success, Failure> {
        aim(FailurePolicy::Fail)
    }
}

impl Disarm {
    #[expect(clippy::unused_self, reason = "every subcommand runs itself, and this one has no options yet")]
    pub(super) fn run(&self) -> Result<Success, Failure> {
        aim(FailurePolicy::Ignore)
    }
}

fn aim(target: FailurePolicy) -> Result<Success, Failure> {
    // A cluster has room for one installation, and the names of its configurations do not depend on where it is.
    let installation = installation(names::NAMESPACE);
    let set = async {
        let client = cluster::connect().await?;
        Ok(set_target(&client, &installation, target).await)
    };
    let name = &installation.name;
    let (mut done, mut failed, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for set in run_to_end(&mut Builder::new_current_thread(), set)?
        .map_err(|error: ConnectError| Failure::Input(error.into()))?
    {
        match set {
            Ok(Armed { kind, now: FailurePolicy::Ignore, target: FailurePolicy::Fail }) => done.push(format!(
                "{kind} {name}: failurePolicy is Ignore, and the controller sets Fail once the contract enforces in every \
                 namespace, it is not applied with --audit-only, and a dry run is refused"
            )),
            Ok(Armed { kind, now, .. }) => done.push(format!("{kind} {name}: failurePolicy is {now}")),
            // One that is not there stands in nobody's way.
            Err(error @ RegistrationError::Missing { .. }) if target == FailurePolicy::Ignore => {
                missing.push(error.to_string());
            }
            // The mutation is armed where somebody asked for it once, and else it is not the point.
            Err(error @ RegistrationError::Missing { kind, .. }) if kind.starts_with("Mutating") => {
                missing.push(error.to_string());
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    // But where there is none at all, this may be the wrong cluster.
    if done.is_empty() {
        failed.append(&mut missing);
    }
    done.append(&mut missing);
    if !done.is_empty() {
        print(&format!("{}\n", done.join("\n")))?;
    }
    if failed.is_empty() { Ok(Success::Clean) } else { Err(Failure::Other(anyhow!(failed.join("\n")))) }
}
