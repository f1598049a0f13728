//! Findings of one rule and one maker together: ten thousand pods of a Deployment are one thing to mend.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::audit::{Check, Finding, ObjectRef, Severity};

/// The findings of one rule and one severity.
#[derive(Debug)]
pub struct RuleGroup<'a> {
    /// How much they matter.
    pub severity: Severity,
    /// What was looked for.
    pub rule: Check,
    /// What they are about, that with the most findings first.
    pub subjects: Vec<Subject<'a>>,
}

/// The findings of one rule about what one maker makes.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Who makes the objects; or the object, where nobody makes it.
    pub maker: &'a ObjectRef,
    /// The findings, in the order of the audit.
    pub findings: Vec<&'a Finding>,
}

/// The findings by rule, the worst first.
#[must_use]
pub fn by_rule(findings: &[Finding]) -> Vec<RuleGroup<'_>> {
    let mut rules: BTreeMap<_, BTreeMap<&ObjectRef, Vec<&Finding>>> = BTreeMap::new();
    for finding in findings {
        let maker = finding.controller.as_ref().unwrap_or(&finding.object);
        let subjects = rules.entry((Reverse(finding.severity), finding.rule)).or_default();
        subjects.entry(maker).or_default().push(finding);
    }
    let group = |((Reverse(severity), rule), subjects): (_, BTreeMap<_, Vec<_>>)| {
        let subjects = subjects.into_iter().map(|(maker, findings)| Subject { maker, findings });
        let mut subjects: Vec<_> = subjects.collect();
        // The sort is stable: among equals the names decide.
        subjects.sort_by_key(|subject| Reverse(subject.findings.len()));
        RuleGroup { severity, rule, subjects }
    };
    rules.into_iter().map(group).collect()
}

impl RuleGroup<'_> {
    /// How many findings there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.subjects.iter().map(|subject| subject.findings.len()).sum()
    }
}

impl<'a> Subject<'a> {
    /// The finding that stands for all of them: that about the maker, where there is one, since what it makes follows.
    #[must_use]
    pub fn example(&self) -> Option<&'a Finding> {
        let own = self.findings.iter().find(|finding| finding.object == *self.maker);
        own.or_else(|| self.findings.first()).copied()
    }

    /// The findings beside the example.
    pub fn others(&self) -> impl Iterator<Item = &'a Finding> {
        let example = self.example();
        self.findings
            .iter()
            .copied()
            .filter(move |finding| example.is_none_or(|example| !std::ptr::eq(*finding, example)))
    }

    /// Whether there is one thing to do, rather than one for each finding. What is to be done about the maker does for
    /// the pods that follow from it.
    #[must_use]
    pub fn has_one_action(&self) -> bool {
        let Some(example) = self.example() else { return true };
        let follows = |finding: &Finding| example.object == *self.maker && is_pod(finding) && !is_pod(example);
        self.others().all(|finding| finding.action == example.action || follows(finding))
    }

    /// Whom the findings are about, in one line: `Deployment web/shop: 310 pods, such as Pod web/shop-1 on gpu-3`.
    #[must_use]
    pub fn title(&self) -> String {
        let Some(example) = self.example() else { return self.maker.to_string() };
        let node = example.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let pools: Vec<_> = self.findings.iter().map(|finding| &finding.pool).collect();
        let pool = example.pool.as_ref().filter(|_| pools.iter().all(|pool| *pool == &example.pool));
        let pool = pool.map(|pool| format!(" (pool {pool})")).unwrap_or_default();
        let is_made = *self.maker != example.object;
        match (self.findings.len(), is_made) {
            (1, false) => format!("{}{node}{pool}", example.object),
            (1, true) => format!("{}: {}{node}{pool}", self.maker, example.object),
            // Its template, and what was made from that.
            (count, false) if self.others().all(is_pod) && !is_pod(example) => {
                let pods = count - 1;
                let plural = if pods == 1 { "" } else { "s" };
                format!("{} and {pods} pod{plural} of it{pool}", self.maker)
            }
            (count, _) => {
                let are_pods = self.findings.iter().copied().all(is_pod);
                let (what, example) = match (are_pods && is_made, is_made) {
                    (true, _) => ("pods", format!(", such as {}{node}", example.object)),
                    (false, true) => ("findings", format!(", such as {}{node}", example.object)),
                    // Several about the object itself: the message of the first is the example.
                    (false, false) => ("findings", format!("{node}, of which the first")),
                };
                format!("{}{pool}: {count} {what}{example}", self.maker)
            }
        }
    }
}

fn is_pod(finding: &Finding) -> bool {
    &*finding.object.kind == "Pod"
}
