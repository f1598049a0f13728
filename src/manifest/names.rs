//! The names by which the parts of an installation know each other. They never change: selectors,
//! bindings and clients' commands hold them.

/// The name of an installation's objects, wherever no other is given here.
pub const INSTANCE: &str = "gpufence";

/// The namespace of an installation where no other is chosen.
pub const NAMESPACE: &str = "gpufence";

/// What is added to the namespace's name for the one in which dry runs are made.
pub const PROBE_SUFFIX: &str = "-probe";

/// The quota that keeps the probe namespace empty.
pub const PROBE_QUOTA: &str = "no-pods";

/// The service account, the roles, the Deployment and the Lease of the controller.
pub const CONTROLLER: &str = "gpufence-controller";

/// The Lease by which the replicas elect the one that audits; and the service account, the roles and the CronJob where
/// audits are a CronJob's.
pub const AUDIT: &str = "gpufence-audit";

/// The Secret with the CA, where TLS is managed.
pub const CA_SECRET: &str = "gpufence-ca";

/// The Secret with the server's certificate, where it comes from files.
pub const TLS_SECRET: &str = "gpufence-tls";

/// The key of the ConfigMap that holds the contract.
pub const CONTRACT_KEY: &str = "contract.yaml";

/// The directory at which the ConfigMap is mounted. A directory and not a file, or changes would never
/// arrive.
pub const CONTRACT_DIRECTORY: &str = "/etc/gpufence";

/// The directory at which [`TLS_SECRET`] is mounted.
pub const TLS_DIRECTORY: &str = "/etc/gpufence/tls";

/// The hook that judges pods, in the ValidatingWebhookConfiguration.
pub const PODS_VALIDATE_HOOK: &str = "pods.validate.gpufence.io";

/// The hook that judges workload templates, in the ValidatingWebhookConfiguration.
pub const TEMPLATES_VALIDATE_HOOK: &str = "templates.validate.gpufence.io";

/// The hook that judges the templates in custom resources, in the ValidatingWebhookConfiguration.
pub const CUSTOM_RESOURCES_VALIDATE_HOOK: &str = "customresources.validate.gpufence.io";

/// The hook that judges who puts pods onto nodes, in the ValidatingWebhookConfiguration.
pub const BINDINGS_VALIDATE_HOOK: &str = "bindings.validate.gpufence.io";

/// The hook that judges changes to what the fence stands on, in the ValidatingWebhookConfiguration.
pub const LEVERS_VALIDATE_HOOK: &str = "levers.validate.gpufence.io";

/// The hook that completes pods, in the MutatingWebhookConfiguration.
pub const PODS_MUTATE_HOOK: &str = "pods.mutate.gpufence.io";

/// The annotation of a webhook configuration that says what the failurePolicy of its hook for pods shall
/// become once the hook has proved itself.
pub const FAILURE_POLICY_ANNOTATION: &str = "gpufence.io/failure-policy";

/// Where pods are judged.
pub const VALIDATE_PATH: &str = "/validate";

/// Where pods are completed.
pub const MUTATE_PATH: &str = "/mutate";

/// Where pods are judged and nothing is done, whatever the contract says.
pub const AUDIT_VALIDATE_PATH: &str = "/audit/validate";

/// Where it is said how pods would be completed, whatever the contract says.
pub const AUDIT_MUTATE_PATH: &str = "/audit/mutate";

/// The port of the Service at which API servers call, and its name on containers.
pub const HTTPS_PORT: (&str, u16) = ("https", 443);

/// The port of the Service for metrics, and its name on containers.
pub const METRICS_PORT: (&str, u16) = ("metrics", 9090);

/// The label that every object of an installation carries, with the value [`INSTANCE`].
pub const NAME_LABEL: &str = "app.kubernetes.io/name";

/// The label that tells the Deployments and their pods apart.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";

/// The component that serves the webhooks.
pub const WEBHOOK_COMPONENT: &str = "webhook";

/// The component that keeps certificates and registrations right.
pub const CONTROLLER_COMPONENT: &str = "controller";

/// The component that audits, where a CronJob does.
pub const AUDIT_COMPONENT: &str = "audit";

/// The namespace in which dry runs are made for an installation.
#[must_use]
pub fn probe_namespace(namespace: &str) -> String {
    format!("{namespace}{PROBE_SUFFIX}")
}

/// The DNS names of the server's certificate. The first is the one that API servers verify.
#[must_use]
pub fn dns_names(namespace: &str) -> [String; 4] {
    [
        format!("{INSTANCE}.{namespace}.svc"),
        format!("{INSTANCE}.{namespace}.svc.cluster.local"),
        format!("{INSTANCE}.{namespace}"),
        INSTANCE.to_owned(),
    ]
}
