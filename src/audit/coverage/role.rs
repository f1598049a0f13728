//! What a DaemonSet is for, by the names that its makers give it.

use crate::policy::{List, StringMap, Text, object};

/// The role of what offers GPUs to the kubelet.
pub(in crate::audit) const DEVICE_PLUGIN: &str = "device plugin";
const GPU_METRICS: &str = "GPU metrics";
const FEATURES: &str = "node feature discovery";
const GPU_OPERATOR: &str = "GPU operator";
const PROXY: &str = "proxy";
const STORAGE: &str = "storage";
const NETWORK: &str = "network";
const SECURITY: &str = "security";
const LOGS: &str = "logs";
const METRICS: &str = "metrics";

/// The roles without which GPU pods do not run.
pub(super) const VITAL: [&str; 5] = [DEVICE_PLUGIN, GPU_OPERATOR, NETWORK, STORAGE, PROXY];

/// The names by which each role is known, as words that stand together in a name: `node-exporter` is in
/// `prometheus-node-exporter`. A name after `=` must be the whole: its words alone may be anybody's.
const ROLES: [(&str, &[&str]); 10] = [
    (
        DEVICE_PLUGIN,
        &["device-plugin", "gpu-plugin", "amdgpu-dp", "dra-driver-gpu", "k8s-dra-driver", "nvidia-dra-driver"],
    ),
    (GPU_METRICS, &["dcgm", "dcgm-exporter", "gpu-exporter", "nvidia-smi-exporter", "device-metrics-exporter"]),
    (FEATURES, &["node-feature-discovery", "nfd", "gpu-feature-discovery", "gfd", "node-labeller"]),
    (
        GPU_OPERATOR,
        &[
            "gpu-operator",
            "nvidia-driver",
            "nvidia-gpu-driver",
            "nvidia-container-toolkit",
            "nvidia-operator-validator",
            "nvidia-mig-manager",
            "mig-manager",
            "nvidia-mps",
            "mps-control-daemon",
            "nvidia-fabricmanager",
            "nvidia-vgpu",
            "nvidia-vfio-manager",
            "nvidia-sandbox-validator",
            "nvidia-cc-manager",
            "nvidia-gds",
            "amdgpu-driver",
        ],
    ),
    (PROXY, &["kube-proxy"]),
    (
        STORAGE,
        &[
            "csi",
            "pdcsi",
            "gcsfusecsi",
            "filestore-node",
            "lustre-node",
            "longhorn-manager",
            "engine-image",
            "portworx",
            "=px-cluster",
            "openebs",
            "rook-discover",
            "local-volume-provisioner",
            "local-static-provisioner",
            "csi-node-driver-registrar",
        ],
    ),
    (
        NETWORK,
        &[
            "calico",
            "canal",
            "cilium",
            "flannel",
            "weave-net",
            "weave-kube",
            "=aws-node",
            "amazon-k8s-cni",
            "kube-router",
            "antrea",
            "multus",
            "kube-ovn",
            "ovnkube-node",
            "kindnet",
            "azure-cni",
            "azure-cns",
            "azure-npm",
            "ip-masq-agent",
            "=netd",
            "terway",
            "whereabouts",
            "sriov-network-config-daemon",
            "sriov-cni",
            "cni",
            "ztunnel",
            "metallb",
            "node-local-dns",
            "nodelocaldns",
        ],
    ),
    (
        SECURITY,
        &[
            "falco",
            "falcon-sensor",
            "falcon-node-sensor",
            "tetragon",
            "tracee",
            "sysdig-agent",
            "twistlock-defender",
            "kubearmor",
            "neuvector-enforcer",
            "aqua-enforcer",
            "wazuh-agent",
            "kubescape-node-agent",
            "microsoft-defender-collector",
            "aws-guardduty-agent",
        ],
    ),
    (
        LOGS,
        &[
            "fluent-bit",
            "fluentbit",
            "fluentd",
            "promtail",
            "filebeat",
            "=vector",
            "vector-agent",
            "=alloy",
            "grafana-alloy",
            "grafana-agent",
            "datadog",
            "elastic-agent",
            "splunk",
            "sumologic",
            "newrelic-logging",
            "cloudwatch-agent",
            "ama-logs",
            "omsagent",
            "logdna-agent",
            "otel-collector",
            "opentelemetry-collector",
            "opentelemetry-collector-agent",
        ],
    ),
    (
        METRICS,
        &[
            "node-exporter",
            "gke-metrics-agent",
            "ama-metrics-node",
            "telegraf",
            "netdata",
            "cadvisor",
            "collectd",
            "newrelic-infrastructure",
            "oneagent",
            "node-problem-detector",
        ],
    ),
];

/// The labels in which a maker writes the name of what it is.
const NAME_LABELS: [&str; 4] = ["app.kubernetes.io/name", "k8s-app", "app", "name"];

object! {
    pub(super) struct DaemonSet<'a> as "a DaemonSet" {
        pub(super) metadata: Metadata<'a> = "metadata",
        pub(super) spec: DaemonSetSpec<'a> = "spec",
    }
}

object! {
    pub(super) struct Metadata<'a> as "an object's metadata" {
        labels: StringMap<'a> = "labels",
    }
}

object! {
    pub(super) struct DaemonSetSpec<'a> as "a DaemonSet's spec" {
        pub(super) template: Template<'a> = "template",
    }
}

object! {
    pub(super) struct Template<'a> as "a pod template" {
        metadata: Metadata<'a> = "metadata",
        pub(super) spec: PodSpec<'a> = "spec",
    }
}

object! {
    pub(super) struct PodSpec<'a> as "a pod spec" {
        pub(super) host_network: Option<bool> = "hostNetwork",
        containers: List<Container<'a>> = "containers",
    }
}

object! {
    struct Container<'a> as "a container" {
        image: Text<'a> = "image",
    }
}

impl DaemonSet<'_> {
    /// What it is for, by its name, or else by its labels, or else by its images: many of an operator's DaemonSets share
    /// images, and many names are chosen by who installs.
    pub(super) fn role(&self, name: &str) -> Option<&'static str> {
        let template = &self.spec.template;
        let labels = [&self.metadata.labels, &template.metadata.labels];
        let labels = || labels.iter().flat_map(|labels| NAME_LABELS.iter().filter_map(|key| labels.get(key)));
        let images = || template.spec.containers.iter().map(|container| image_name(&container.image));
        role_of_name(name).or_else(|| labels().find_map(role_of_name)).or_else(|| images().find_map(role_of_name))
    }
}

/// What a name says that something is for.
pub(in crate::audit) fn role_of_name(name: &str) -> Option<&'static str> {
    let words = words(name);
    let is_named = |known: &str| match known.strip_prefix('=') {
        Some(whole) => words.trim_matches('-') == whole,
        None => words.contains(&format!("-{known}-")),
    };
    ROLES.iter().find(|(_, names)| names.iter().any(|known| is_named(known))).map(|(role, _)| *role)
}

/// The words of a name, each between two hyphens.
fn words(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    format!("-{}-", name.chars().map(letter).collect::<String>())
}

/// The last part of an image's path, without tag and digest.
fn image_name(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}
