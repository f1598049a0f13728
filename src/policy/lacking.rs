//! What templates of GPU pods lack of what the webhook gives their pods.

use super::custom::Templates;
use super::placement::Missing;
use super::subject::Field;
use super::{Case, Facts, Kind, Policy, Subject, Taint};

/// What a template of GPU pods lacks, so that each of its pods has to be given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// The place in the contract of the pool that it asks for.
    pub pool: usize,
    /// The taints without an exact toleration.
    pub taints: Vec<Taint>,
    /// The labels that its nodeSelector does not name.
    pub labels: Vec<(String, String)>,
    /// Where its tolerations stand, such as `spec.template.spec.tolerations`.
    pub tolerations: String,
    /// Where its nodeSelector stands.
    pub node_selector: String,
}

impl Policy {
    /// What a template lacks of the pool that its pods are completed for; `None` where they are not, or nothing is
    /// missing.
    #[must_use]
    pub fn lacking(&self, subject: &Subject<'_>, facts: &dyn Facts) -> Option<Lacking> {
        self.lacking_in(&Case::new(self, subject, subject.object, facts))
    }

    /// The same of an object that holds several templates: of the first of them that lacks something.
    #[must_use]
    pub fn lacking_several(
        &self,
        subject: &Subject<'_>,
        templates: &Templates<'_>,
        facts: &dyn Facts,
    ) -> Option<Lacking> {
        let mut first = None;
        // What cannot be read lacks nothing that could be named; the closure never fails.
        let _ = templates.each(|_, object| {
            if let (None, Ok(object)) = (&first, object) {
                first = self.lacking_in(&Case::new(self, subject, object, facts));
            }
            Ok(())
        });
        first
    }

    fn lacking_in(&self, case: &Case<'_, '_>) -> Option<Lacking> {
        let index = case.clear()?;
        // A part of a pod's spec says nothing of what stands in the rest.
        if case.object.is_fragment() || self.spares_injection(case.subject, index, case.facts).is_some() {
            return None;
        }
        let mut terms = case.terms(&self.pools[index]);
        // Its controller pins each pod to a node itself.
        if case.object.kind == Kind::DaemonSet {
            terms.labels.clear();
        }
        let Missing { taints, labels, .. } = Missing::of(&terms, &case.object.pod.spec);
        (!taints.is_empty() || !labels.is_empty()).then(|| Lacking {
            pool: index,
            taints: taints.into_iter().cloned().collect(),
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            tolerations: Field(case.object, "spec.tolerations").to_string(),
            node_selector: Field(case.object, "spec.nodeSelector").to_string(),
        })
    }
}
