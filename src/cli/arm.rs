//! `gpufence arm` and `gpufence disarm`: whether an outage of the webhook may refuse pods.

use anyhow::anyhow;
use clap::Args;

use super::installation::installation;
use super::{Failure, Success, print};
use crate::cluster::{self, Armed, FailurePolicy, RegistrationError, set_target};
use crate::manifest::names;

/// The installation that is meant.
#[derive(Debug, Args)]
struct Which {
    /// The namespace of the installation
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE)]
    namespace: String,
}

/// Let the controller set failurePolicy to Fail
///
/// The controller does so once the contract enforces in every namespace, and a dry run was refused by the
/// webhook as it should be. Until then nothing changes.
#[derive(Debug, Args)]
pub(super) struct Arm {
    #[command(flatten)]
    which: Which,
}

/// Set failurePolicy to Ignore at once, and keep it there
///
/// From then on an outage of the webhook stands in nobody's way. The webhook goes on refusing what the
/// contract refuses for as long as it answers. `gpufence arm` takes it back, and so does applying manifests that
/// say otherwise.
#[derive(Debug, Args)]
pub(super) struct Disarm {
    #[command(flatten)]
    which: Which,
}

impl Arm {
    pub(super) fn run(&self) -> Result<Success, Failure> {
        aim(&self.which, FailurePolicy::Fail)
    }
}

impl Disarm {
    pub(super) fn run(&self) -> Result<Success, Failure> {
        aim(&self.which, FailurePolicy::Ignore)
    }
}

fn aim(which: &Which, target: FailurePolicy) -> Result<Success, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(error.into()))?;
    let installation = installation(&which.namespace);
    let set = async {
        let client = cluster::connect().await?;
        anyhow::Ok(set_target(&client, &installation, target).await)
    };
    let name = &installation.name;
    let (mut done, mut failed, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for set in runtime.block_on(set).map_err(Failure::Other)? {
        match set {
            Ok(Armed { kind, now: FailurePolicy::Ignore, target: FailurePolicy::Fail }) => done.push(format!(
                "{kind} {name}: failurePolicy is Ignore, and the controller sets Fail once a dry run is refused"
            )),
            Ok(Armed { kind, now, .. }) => done.push(format!("{kind} {name}: failurePolicy is {now}")),
            // One that is not there stands in nobody's way.
            Err(error @ RegistrationError::Missing { .. }) if target == FailurePolicy::Ignore => {
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
