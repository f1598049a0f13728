//! `gpufence verify`: the acceptance test of an installation.

use std::fmt;
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use tokio::runtime::Builder;

use super::installation::{contract_place, installation, installed_contract, intent};
use super::{Failure, Output, Success, load_contract, print, run_to_end};
use crate::cluster::verify::{Check, Expectation, Outcome, verify};
use crate::cluster::{self, Client, Installation, Said, insisting};
use crate::contract::{Contract, ContractError};
use crate::manifest::names;
use crate::server::tls::sha256;

/// Check a live installation, as a dry run
///
/// Asks the cluster of the current kubeconfig context as its users do: whether both webhooks are registered,
/// every replica serves a certificate that API servers accept and the contract that the cluster holds, an
/// ordinary pod passes untouched, a pod with a GPU toleration is refused where it should be, a GPU pod gets
/// exactly its toleration and nodeSelector, and the GPU nodes carry label and taint. Nothing is stored and
/// nothing changed. Exits 1 where a check failed.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The namespace of the installation
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE)]
    namespace: String,

    /// A namespace in which an ordinary pod is tried
    #[arg(long, value_name = "NAME", default_value = "default")]
    ordinary_namespace: String,

    /// A namespace in which a GPU pod is tried [default: the first that the contract allows]
    #[arg(long, value_name = "NAME")]
    gpu_namespace: Option<String>,

    /// How the checklist is printed
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Verify {
    /// With a file, that contract is what should be served; otherwise it is the one in the cluster.
    pub(super) fn run(self, file: Option<&Path>) -> Result<Success, Failure> {
        let checks = run_to_end(&mut Builder::new_current_thread(), self.check(file))??;
        let failed = checks.iter().any(|check| check.outcome == Outcome::Failed);
        print(&match self.output {
            Output::Text => Checklist(&checks).to_string(),
            Output::Json => format!("{:#}\n", json!({"passed": !failed, "checks": checks})),
        })?;
        Ok(if failed { Success::Findings } else { Success::Clean })
    }

    async fn check(&self, file: Option<&Path>) -> Result<Vec<Check>, Failure> {
        let installation = installation(&self.namespace);
        let client = cluster::connect().await.map_err(|error| Failure::Input(error.into()))?;
        let contract = match file {
            Some(_) => load_contract(file)?,
            None => match in_cluster(&client, &installation).await? {
                Ok(contract) => contract,
                // Nothing else can be asked without knowing what is expected.
                Err(faults) => {
                    return Ok(vec![Check {
                        id: "contract",
                        outcome: Outcome::Failed,
                        message: faults.to_string(),
                        hint: Some(
                            "replicas that run go on with the last good contract, and new ones do not start: mend the \
                             ConfigMap; gpufence config --check FILE lists the faults of a file"
                                .to_owned(),
                        ),
                    }]);
                }
            },
        };
        let yaml = contract.to_yaml().map_err(|error| Failure::Other(error.into()))?;
        let intent = intent(&contract, &installation);
        let expected = Expectation {
            policy: &contract.policy,
            contract_sha256: &sha256(yaml.as_bytes()),
            intent: &intent,
            ordinary_namespace: &self.ordinary_namespace,
            gpu_namespace: self.gpu_namespace.as_deref(),
        };
        Ok(verify(&client, &installation, &expected).await)
    }
}

/// The contract in the ConfigMap of the installation, or what is wrong with it.
async fn in_cluster(client: &Client, installation: &Installation) -> Result<Result<Contract, ContractError>, Failure> {
    let (name, place) = (&installation.name, contract_place(installation));
    let found = installed_contract(client, installation).await;
    let found = found.map_err(|error| Failure::Other(anyhow!("the {place} cannot be read: {}", Said(&error))))?;
    if let Some(contract) = found {
        return Ok(contract);
    }
    let insisting = insisting(client, installation).await;
    let missing = format!("there is no {place} with the key {}", names::CONTRACT_KEY);
    Err(Failure::Other(if insisting.is_empty() {
        anyhow!(
            "{missing}: gpufence is not installed there; kubectl apply what `gpufence manifests` prints, or name another \
             namespace with --namespace"
        )
    } else {
        // What is left of an installation that was removed in the wrong order.
        anyhow!(
            "{missing}, but the {} {name} is still there with failurePolicy Fail, and refuses pods where nobody answers: run \
             `gpufence disarm`, then remove it with kubectl delete or install gpufence again",
            insisting.join(" and the ")
        )
    }))
}

/// The checklist, for people.
struct Checklist<'a>(&'a [Check]);

impl fmt::Display for Checklist<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Check { outcome, message, hint, .. } in self.0 {
            let mark = match outcome {
                Outcome::Passed => "ok  ",
                Outcome::Failed => "FAIL",
                Outcome::Skipped => "skip",
            };
            writeln!(f, "{mark}  {message}")?;
            if let Some(hint) = hint {
                writeln!(f, "      hint: {hint}")?;
            }
        }
        let count = |wanted| self.0.iter().filter(|check| check.outcome == wanted).count();
        let [passed, failed, skipped] = [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(count);
        writeln!(f, "\n{passed} passed, {failed} failed, {skipped} skipped")
    }
}
