//! The exemption that a DaemonSet of every node needs in the contract.

use std::collections::HashMap;

use super::{Ground, role};
use crate::audit::ObjectRef;
use crate::audit::view::View;
use crate::policy::{self, Kind, yaml_word};

/// The exemptions that DaemonSets would need, each made once.
#[derive(Debug)]
pub(in crate::audit) struct Exempting<'v, 's> {
    view: &'v View<'s>,
    ground: Option<Ground<'v, 's>>,
    known: HashMap<ObjectRef, Option<String>>,
}

impl<'v, 's> Exempting<'v, 's> {
    pub(in crate::audit) fn new(view: &'v View<'s>) -> Self {
        Self { view, ground: None, known: HashMap::new() }
    }

    /// The exemption for what makes a pod, as a contract writes it, where that is a DaemonSet which belongs on GPU nodes.
    pub(in crate::audit) fn of(&mut self, maker: &ObjectRef) -> Option<&str> {
        if Kind::of(maker.group(), &maker.kind) != Some(Kind::DaemonSet) {
            return None;
        }
        if !self.known.contains_key(maker) {
            let made = self.make(maker);
            self.known.insert(maker.clone(), made);
        }
        self.known.get(maker)?.as_deref()
    }

    fn make(&mut self, maker: &ObjectRef) -> Option<String> {
        let workloads = &self.view.snapshot.workloads;
        let place = workloads.binary_search_by(|workload| workload.object.cmp(maker)).ok()?;
        let workload = workloads.get(place)?;
        let object = workload.kind.read(workload.json()).ok()?;
        let own = serde_json::from_str::<role::DaemonSet<'_>>(workload.json()).ok()?;
        let ground = self.ground.get_or_insert_with(|| Ground::of(self.view));
        let reach = ground.cover(workload, &object.pod.spec, &own);
        reach.expected.then(|| exemption(self.view.policy, &maker.namespace, &maker.name, reach.role))
    }
}

/// An exemption for the DaemonSet as a contract writes it.
pub(super) fn exemption(policy: &policy::Policy, namespace: &str, name: &str, role: Option<&str>) -> String {
    /// A DNS label is no longer.
    const LONGEST: usize = 63;
    let base = format!("{namespace}-{name}").replace('.', "-");
    let is_free = |name: &String| !policy.exemptions().iter().any(|exemption| exemption.name == *name);
    let numbered = |number: usize| {
        let ending = if number == 1 { String::new() } else { format!("-{number}") };
        let kept: String = base.chars().take(LONGEST.saturating_sub(ending.len())).collect();
        format!("{}{ending}", kept.trim_end_matches('-'))
    };
    // One of so many names is free.
    let own = (1..=policy.exemptions().len() + 1).map(numbered).find(is_free).unwrap_or_default();
    let reason = role.map_or_else(|| "runs on every node".to_owned(), |role| format!("{role} of every node"));
    format!(
        "{{name: {}, reason: {reason}, namespaces: [{}], daemonSets: [{}]}}",
        yaml_word(&own),
        yaml_word(namespace),
        yaml_word(name)
    )
}
