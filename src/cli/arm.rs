//! `gpufence arm` and `gpufence disarm`: whether an outage of the webhook may refuse pods.

use clap::Args;

use super::installation::installation;
use super::{Failure, Success, print};
use crate::cluster::{self, Armed, FailurePolicy, set_target};
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
        anyhow::Ok(set_target(&client, &installation, target).await?)
    };
    let done = runtime.block_on(set).map_err(Failure::Other)?;
    let said = done.iter().map(|Armed { kind, now, target }| match (now, target) {
        (FailurePolicy::Ignore, FailurePolicy::Fail) => format!(
            "{kind} {}: failurePolicy is Ignore, and the controller sets Fail once a dry run is refused\n",
            installation.name
        ),
        (now, _) => format!("{kind} {}: failurePolicy is {now}\n", installation.name),
    });
    print(&said.collect::<String>())?;
    Ok(Success::Clean)
}
