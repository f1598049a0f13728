//! One decision about an object that holds several pods, as custom resources do.
//!
//! Each template is judged as if it were alone. Of an update only what it adds counts, in whichever template it
//! stood before: which of them became which nobody can say.

use std::collections::{HashMap, HashSet};

use super::exemption::is_mirror_pod;
use super::rules::{Violation, tolerations_of};
use super::{Case, Decision, FAULTS, Facts, Finding, InForce, Operation, Policy, Rule, Subject, Workload};

/// How many findings of one rule are named of an object. A template can have dozens, and each costs a message.
const NAMED: usize = 32;

/// A violation, and the template in which it is.
struct Seen {
    template: usize,
    violation: Violation,
}

impl Policy {
    /// Decides one request about an object with these templates, of which the subject's object is the first.
    #[must_use]
    pub fn decide_several(&self, subject: &Subject<'_>, templates: &[Workload<'_>], facts: &dyn Facts) -> Decision {
        let InForce { mode, labels_unknown } = self.mode_in(subject.namespace, facts);
        let mut decision = Decision::quiet(mode);
        let old: &[Workload<'_>] = match subject.operation {
            Operation::Update(old) => old,
            Operation::Create => &[],
        };
        let old_tolerations = tolerations_of(old);
        let mut seen = Vec::new();
        for (template, object) in templates.iter().enumerate() {
            let mut case = Case::new(self, subject, object, facts);
            case.old_tolerations = Some(&old_tolerations);
            let room = FAULTS.saturating_sub(decision.faults.len());
            decision.faults.extend(std::mem::take(&mut case.faults).into_iter().take(room));
            if case.is_ordinary() {
                continue;
            }
            decision.labels_unknown |= labels_unknown || !case.unknown.is_empty();
            let found = self.violations(&case, mode).into_iter();
            seen.extend(found.map(|violation| Seen { template, violation }));
        }
        decision.labels_unknown |= labels_unknown && !decision.faults.is_empty();
        if !(seen.is_empty() || old.is_empty()) {
            let mut before = Before::default();
            for old in old {
                let mut old = Case::new(self, subject, old, facts);
                old.old_tolerations = Some(&old_tolerations);
                decision.labels_unknown |= !old.unknown.is_empty();
                self.violations(&old, mode).into_iter().for_each(|violation| before.add(violation));
            }
            seen.retain(|seen| !before.includes(&seen.violation));
        }
        decision.node_unknown = seen.iter_mut().find_map(|seen| seen.violation.node.take());
        if !seen.is_empty() {
            self.conclude(subject, once_each(seen, templates), facts, &mut decision);
            decision.findings = named(std::mem::take(&mut decision.findings));
        }
        let waits = decision.labels_unknown || decision.node_unknown.is_some();
        if waits && decision.faults.is_empty() && !is_mirror_pod(subject) && self.is_exempt(subject, facts) {
            decision.labels_unknown = false;
            decision.node_unknown = None;
        }
        decision
    }
}

/// A rule and the first pool that a violation concerns.
type Breach = (Rule, Option<usize>);

/// What broke the contract in the object that is replaced, ordered by what is asked of it: there can be as many
/// violations here as there.
#[derive(Default)]
struct Before {
    parts: HashSet<(Breach, String)>,
    whole: HashMap<Breach, Vec<Vec<String>>>,
}

impl Before {
    fn add(&mut self, violation: Violation) {
        let breach = (violation.rule, violation.pools.first());
        self.parts.extend(violation.what.iter().map(|part| (breach, part.clone())));
        let whole = self.whole.entry(breach).or_default();
        // Of a single part the set knows already.
        if whole.is_empty() || violation.what.len() > 1 {
            whole.push(violation.what);
        }
    }

    /// As [`Violation::is_within`] for any of them.
    fn includes(&self, violation: &Violation) -> bool {
        let breach = (violation.rule, violation.pools.first());
        match &*violation.what {
            [] => self.whole.contains_key(&breach),
            [part] => self.parts.contains(&(breach, part.clone())),
            parts => self
                .whole
                .get(&breach)
                .is_some_and(|whole| whole.iter().any(|old| parts.iter().all(|part| old.contains(part)))),
        }
    }
}

/// The violations in the order of the rules. What several templates have at the same place of theirs is said of
/// the first, with the number of the others.
fn once_each(seen: Vec<Seen>, templates: &[Workload<'_>]) -> Vec<Violation> {
    let place = |template: usize| templates[template].part.as_ref().map_or("", |part| part.place);
    let mut kept: Vec<(Violation, usize)> = Vec::new();
    let mut known = HashMap::new();
    for Seen { template, violation, .. } in seen {
        // The message repeats the field.
        let alike = violation.message.replace(place(template), "");
        let key = (violation.rule, violation.pools.first(), violation.what.clone(), alike);
        let at = *known.entry(key).or_insert(kept.len());
        match kept.get_mut(at) {
            Some((_, others)) => *others += 1,
            None => kept.push((violation, 0)),
        }
    }
    kept.sort_by_key(|(violation, _)| Rule::ALL.iter().position(|rule| *rule == violation.rule));
    let with_number = |(mut violation, others): (Violation, usize)| {
        let plural = if others == 1 { "" } else { "s" };
        let number = format!(" (and in {others} more template{plural})");
        match (others, violation.message.strip_prefix(&*violation.field)) {
            (0, _) => {}
            // Behind the field, where no shortening cuts it off.
            (_, Some(rest)) => violation.message = format!("{}{number}{rest}", violation.field),
            (_, None) => violation.message.push_str(&number),
        }
        violation
    };
    kept.into_iter().map(with_number).collect()
}

/// The findings, of each rule no more than can be named. What is done about the object does not depend on the
/// others: they do the same as those of their rule that are named.
fn named(findings: Vec<Finding>) -> Vec<Finding> {
    let mut counts: HashMap<_, usize> = HashMap::new();
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        let count = counts.entry((finding.rule, finding.configured, finding.action)).or_default();
        *count += 1;
        if *count <= NAMED {
            kept.push(finding);
        }
    }
    for ((rule, configured, action), count) in counts.into_iter().filter(|(_, count)| *count > NAMED) {
        let alike = |kept: &&mut Finding| (kept.rule, kept.configured, kept.action) == (rule, configured, action);
        if let Some(last) = kept.iter_mut().rfind(alike) {
            let more = format!(" {} more findings of this rule are not named.", count - NAMED);
            last.message.push_str(&more);
        }
    }
    kept
}
