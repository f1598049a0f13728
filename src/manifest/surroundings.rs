//! What only some clusters have, or want: cert-manager, NetworkPolicies, the Prometheus operator.

use serde_json::{Value, json};

use super::{Monitor, Plan, Tls, names, selector, with};

const CERT_MANAGER: &str = "cert-manager.io/v1";

/// The Issuer that signs for itself, from which the CA comes.
const BOOTSTRAP: &str = "gpufence-bootstrap";

/// The CA as cert-manager keeps it: Certificate and Secret.
const ISSUER_CA: &str = "gpufence-issuer-ca";

/// A CA of the installation's own, and the server's certificate from it.
pub(super) fn certificates(plan: &Plan<'_>) -> Vec<Value> {
    if plan.options.tls != Tls::CertManager {
        return Vec::new();
    }
    let object =
        |kind: &str, name: &str, spec: Value| with(plan.object(CERT_MANAGER, kind, name, None), json!({"spec": spec}));
    let issuer = |name: &str| json!({"group": "cert-manager.io", "kind": "Issuer", "name": name});
    let key = |rotation: &str| json!({"algorithm": "ECDSA", "rotationPolicy": rotation, "size": 256});
    vec![
        object("Issuer", BOOTSTRAP, json!({"selfSigned": {}})),
        object(
            "Certificate",
            ISSUER_CA,
            json!({
                "commonName": "gpufence CA",
                "duration": "87600h",
                "isCA": true,
                "issuerRef": issuer(BOOTSTRAP),
                // cert-manager knows no overlap of two CAs: with another key, API servers would refuse what the last one
                // signed until both configurations have the next.
                "privateKey": key("Never"),
                "renewBefore": "8760h",
                "secretName": ISSUER_CA,
                "usages": ["cert sign", "crl sign"],
            }),
        ),
        object("Issuer", names::INSTANCE, json!({"ca": {"secretName": ISSUER_CA}})),
        object(
            "Certificate",
            names::INSTANCE,
            json!({
                "dnsNames": names::dns_names(plan.namespace()),
                "duration": "2160h",
                "issuerRef": issuer(names::INSTANCE),
                "privateKey": key("Always"),
                "renewBefore": "720h",
                "secretName": names::TLS_SECRET,
                "usages": ["digital signature", "server auth"],
            }),
        ),
    ]
}

/// Who may call, and whom is called.
pub(super) fn network_policies(plan: &Plan<'_>) -> Vec<Value> {
    if !plan.options.network_policy {
        return Vec::new();
    }
    let tcp = |port: Value| json!({"port": port, "protocol": "TCP"});
    // By number: what an API server's address and port are after the Service is nowhere written down.
    let api = json!([tcp(443.into()), tcp(6443.into())]);
    let dns = json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]);
    let with_api = json!([{"ports": dns}, {"ports": api}]);
    let policy = |name: &str, component: &str, open: &[&str], egress: Value| {
        // From anywhere: API servers call from addresses outside the cluster's own network.
        let ports: Vec<_> = open.iter().map(|port| tcp((*port).into())).collect();
        // A rule without ports would open them all.
        let ingress = if ports.is_empty() { json!([]) } else { json!([{"ports": ports}]) };
        with(
            plan.object("networking.k8s.io/v1", "NetworkPolicy", name, Some(component)),
            json!({
                "spec": {
                    "egress": egress,
                    "ingress": ingress,
                    "podSelector": {"matchLabels": selector(component)},
                    "policyTypes": ["Ingress", "Egress"],
                },
            }),
        )
    };
    let (https, metrics) = (names::HTTPS_PORT.0, names::METRICS_PORT.0);
    let mut for_controller = with_api.clone();
    if let Value::Array(rules) = &mut for_controller {
        // It looks at the certificate that each replica serves.
        let replicas = json!([{"podSelector": {"matchLabels": selector(names::WEBHOOK_COMPONENT)}}]);
        rules.push(json!({"ports": [tcp(https.into())], "to": replicas}));
    }
    let for_server = if plan.server_needs_api() { with_api.clone() } else { json!([]) };
    let mut policies = vec![
        policy(names::INSTANCE, names::WEBHOOK_COMPONENT, &[https, metrics], for_server),
        policy(names::CONTROLLER, names::CONTROLLER_COMPONENT, &[metrics], for_controller),
    ];
    if plan.options.audit_cron_job.is_some() {
        policies.push(policy(names::AUDIT, names::AUDIT_COMPONENT, &[], with_api));
    }
    policies
}

/// How the Prometheus operator finds the metrics.
pub(super) fn monitors(plan: &Plan<'_>) -> Option<Value> {
    let endpoints = json!([{"port": names::METRICS_PORT.0}]);
    let (kind, spec) = match plan.options.monitor {
        Monitor::None => return None,
        Monitor::Pod => {
            let all = json!({names::NAME_LABEL: names::INSTANCE});
            ("PodMonitor", json!({"podMetricsEndpoints": endpoints, "selector": {"matchLabels": all}}))
        }
        Monitor::Service => {
            let service = selector(names::WEBHOOK_COMPONENT);
            ("ServiceMonitor", json!({"endpoints": endpoints, "selector": {"matchLabels": service}}))
        }
    };
    Some(with(plan.object("monitoring.coreos.com/v1", kind, names::INSTANCE, None), json!({"spec": spec})))
}
