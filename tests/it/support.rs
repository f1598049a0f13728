//! What several topics share: the contracts of the cases, and the cases as data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpufence::contract::Contract;
use gpufence::policy::{
    Decision, Facts, LabelSelector, NoFacts, Node, NodeFact, Operation, Phase, Policy, Requester, Subject, Text,
    Workload,
};
use serde_json::{Value, json};

/// A file under `tests/cases`.
pub fn cases_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)
}

/// The lines of a table of cases.
pub fn cases(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(cases_path(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The policy of a contract given as YAML over the built-in one.
pub fn policy(yaml: &str) -> Policy {
    contract(yaml).policy
}

/// A contract given as YAML over the built-in one.
pub fn contract(yaml: &str) -> Contract {
    try_contract(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

/// The outcome of loading a contract given as YAML over the built-in one.
pub fn try_contract(yaml: &str) -> Result<Contract, gpufence::contract::ContractError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("contract.yaml");
    std::fs::write(&file, yaml).unwrap();
    Contract::load(Some(&file), [])
}

/// A pod of a spec's own fields, with one container that has the resources as limits.
pub fn pod(resources: &Value, spec: &Value) -> Value {
    let mut pod = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "resources": {"limits": resources}}]);
    pod
}

/// As [`pod`], asking for one GPU.
pub fn gpu_pod(spec: &Value) -> Value {
    pod(&json!({"nvidia.com/gpu": 1}), spec)
}

/// The two common forms of the contract.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// Label `workload.example.com/accelerator=nvidia`, taint `dedicated=gpu:NoSchedule`.
    Dedicated,
    /// Label `accelerator=nvidia`, taint `nvidia.com/gpu=present:NoSchedule`.
    Nvidia,
}

impl Form {
    pub const ALL: [Self; 2] = [Self::Dedicated, Self::Nvidia];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dedicated => "dedicated",
            Self::Nvidia => "nvidia",
        }
    }

    /// An enforcing contract of this form. `more` is YAML for further keys.
    pub fn yaml(self, namespaces: &[&str], more: &str) -> String {
        let (label, taint) = match self {
            Self::Dedicated => ("workload.example.com/accelerator", "{key: dedicated, value: gpu, effect: NoSchedule}"),
            Self::Nvidia => ("accelerator", "{key: nvidia.com/gpu, value: present, effect: NoSchedule}"),
        };
        let namespaces = namespaces.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        format!(
            "mode: enforce\n\
             pools:\n\
             - name: nvidia\n\
             \x20 resources: [nvidia.com/gpu, nvidia.com/gpu.shared, 'nvidia.com/mig-*']\n\
             \x20 taints: [{taint}]\n\
             \x20 nodeSelector: {{{label}: nvidia}}\n\
             \x20 namespaces: {{names: [{namespaces}]}}\n\
             {more}\n"
        )
    }
}

/// A request against a policy, judged as the API server's two phases would.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub namespace: &'a str,
    pub username: &'a str,
    pub groups: &'a [&'a str],
    pub object: &'a Workload<'a>,
    pub old: Option<&'a Workload<'a>>,
}

impl Request<'_> {
    pub fn decide(&self, policy: &Policy, phase: Phase) -> Decision {
        self.decide_with(policy, phase, &NoFacts)
    }

    pub fn decide_with(&self, policy: &Policy, phase: Phase, facts: &dyn Facts) -> Decision {
        let groups: Vec<_> = self.groups.iter().map(|group| Text::from(*group)).collect();
        let subject = Subject {
            phase,
            operation: self.old.map_or(Operation::Create, Operation::Update),
            namespace: self.namespace,
            requester: Requester { username: self.username, groups: &groups },
            object: self.object,
        };
        policy.decide(&subject, facts)
    }
}

/// Some nodes of a cluster, and what is known of all others.
#[derive(Debug)]
pub struct Nodes {
    pub known: BTreeMap<&'static str, NodeFact>,
    pub others: NodeFact,
}

impl Facts for Nodes {
    fn namespace_meets(&self, _: &str, _: &LabelSelector) -> Option<bool> {
        None
    }

    fn node(&self, name: &str) -> NodeFact {
        self.known.get(name).unwrap_or(&self.others).clone()
    }

    fn now(&self) -> i64 {
        0
    }
}

/// A node with these labels, and these taints by key, value and effect.
pub fn node(labels: &[(&str, &str)], taints: &[[&str; 3]]) -> NodeFact {
    let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    NodeFact::Known(Arc::new(Node::new(labels, taints.iter().map(|taint| taint.map(Into::into)))))
}
