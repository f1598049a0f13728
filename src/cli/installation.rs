//! What the subcommands that speak to a cluster share: the names of an installation, and what its contract
//! wants of it.

use std::path::Path;

use serde_json::{Value, json};

use crate::cluster::verify::stored_contract;
use crate::cluster::{self, Client, Hooks, Installation, Intent, MatchConditions, Probe, pods};
use crate::contract::{Contract, ContractError, TlsSource};
use crate::manifest::conditions::{self, MatchCondition};
use crate::manifest::names;
use crate::policy::{Action, NoFacts, Policy, Rule};
use crate::review::{self, Webhook};

/// The installation in a namespace, by the names that its manifests have.
pub(super) fn installation(namespace: &str) -> Installation {
    let certificate_names = names::dns_names(namespace);
    Installation {
        server_name: certificate_names[0].clone(),
        certificate_names: certificate_names.into(),
        namespace: namespace.to_owned(),
        probe_namespace: names::probe_namespace(namespace),
        authority: names::CA_SECRET.to_owned(),
        lease: names::CONTROLLER.to_owned(),
        name: names::INSTANCE.to_owned(),
        replicas: format!(
            "{}={},{}={}",
            names::NAME_LABEL,
            names::INSTANCE,
            names::COMPONENT_LABEL,
            names::WEBHOOK_COMPONENT
        ),
        hooks: Hooks {
            validate: names::PODS_VALIDATE_HOOK.to_owned(),
            bindings: names::BINDINGS_VALIDATE_HOOK.to_owned(),
            mutate: names::PODS_MUTATE_HOOK.to_owned(),
        },
        target_annotation: names::FAILURE_POLICY_ANNOTATION.to_owned(),
        audit_path: "/audit/".to_owned(),
    }
}

/// The contract that the cluster holds for an installation, or what is wrong with it; `None` where it holds none.
pub(super) async fn installed_contract(
    client: &Client,
    installation: &Installation,
) -> Result<Option<Result<Contract, ContractError>>, cluster::ApiError> {
    let found = stored_contract(client, installation, names::CONTRACT_KEY).await?;
    let place = contract_place(installation);
    Ok(found.map(|text| Contract::read(Path::new(&place), text.as_bytes(), [])))
}

/// Where it holds it.
pub(super) fn contract_place(Installation { namespace, name, .. }: &Installation) -> String {
    format!("ConfigMap {name} in the namespace {namespace}")
}

/// What the contract wants of the installation.
pub(super) fn intent(contract: &Contract, installation: &Installation) -> Intent {
    let policy = &contract.policy;
    let by_name = |conditions: Vec<MatchCondition>| {
        conditions.into_iter().map(|condition| (condition.name.to_owned(), condition.expression)).collect()
    };
    let mut match_conditions: MatchConditions = [
        (names::PODS_MUTATE_HOOK, conditions::of_pod_mutation(policy)),
        (names::PODS_VALIDATE_HOOK, conditions::of_pod_validation(policy)),
        (names::TEMPLATES_VALIDATE_HOOK, conditions::of_template_validation(policy)),
        (names::BINDINGS_VALIDATE_HOOK, conditions::of_bindings(policy)),
        (names::LEVERS_VALIDATE_HOOK, conditions::of_levers(policy)),
        (names::CUSTOM_RESOURCES_VALIDATE_HOOK, conditions::of_custom_resources(policy)),
    ]
    .map(|(hook, conditions)| (hook.to_owned(), by_name(conditions)))
    .into();
    // Of hooks that the contract does not need there is nothing to want.
    for (hook, needed) in [
        (names::TEMPLATES_VALIDATE_HOOK, policy.judges_templates()),
        (names::CUSTOM_RESOURCES_VALIDATE_HOOK, policy.judges_templates() && !policy.custom_resources().is_empty()),
        (names::BINDINGS_VALIDATE_HOOK, policy.judges_bindings()),
        (names::LEVERS_VALIDATE_HOOK, policy.action(Rule::LeverChange) > Action::Off),
    ] {
        if !needed {
            match_conditions.remove(hook);
        }
    }
    Intent {
        keeps_authority: matches!(contract.tls.source, TlsSource::Managed),
        enforces_everywhere: policy.enforces_everywhere(),
        probe: probe(policy, &installation.probe_namespace),
        match_conditions,
    }
}

/// A pod that the contract refuses in the namespace, with the rule that does: found by asking the policy, as
/// the webhook will.
fn probe(policy: &Policy, namespace: &str) -> Option<Probe> {
    let refused = |pod: Value| {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "probe",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "operation": "CREATE",
                "namespace": namespace,
                "userInfo": {},
                "object": pod,
            },
        });
        let body = review.to_string();
        let judged = review::examine(policy, &NoFacts, Webhook::Validate, body.as_bytes()).ok()?;
        let denial = judged.decision.findings.iter().find(|finding| finding.action == Action::Deny)?;
        Some(Probe { pod, rule: denial.rule.id().to_owned() })
    };
    policy.pools().iter().find_map(|pool| refused(pods::tolerating(namespace, pool)))
}
