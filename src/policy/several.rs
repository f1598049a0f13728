//! One decision about an object that holds several pods, as custom resources do.
//!
//! Each template is judged as if it were alone. Of an update only what it adds counts, in whichever template it
//! stood before: which of them became which nobody can say.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::custom::{Templates, Unreadable};
use super::rules::Violation;
use super::{
    Action, Case, Decision, FAULTS, Facts, Finding, InForce, Mode, Policy, PoolSet, Rule, Subject, Toleration,
};

/// How many findings of one rule are named of an object. A template can have dozens, and each costs a message.
const NAMED: usize = 32;

type Tolerations<'t> = HashSet<&'t Toleration<'t>>;

impl Policy {
    /// Decides one request about an object with these templates, which replace the old ones, if there were any. The
    /// subject's object is the one that holds them.
    ///
    /// # Errors
    /// Where a template cannot be read, and was not there before.
    pub fn decide_several(
        &self,
        subject: &Subject<'_>,
        templates: &Templates<'_>,
        old: Option<&Templates<'_>>,
        facts: &dyn Facts,
    ) -> Result<Decision, Unreadable> {
        let InForce { mode, labels_unknown } = self.mode_in(subject.namespace, facts);
        let mut decision = Decision::quiet(mode);
        // Of any other toleration nobody asks whether it is new.
        let passes = |toleration: &Toleration<'_>| {
            self.pools.iter().flat_map(|pool| &pool.taints).any(|taint| toleration.tolerates(taint))
        };
        let old_tolerations = old.map(|old| old.tolerations(passes)).unwrap_or_default();
        let old_tolerations: Tolerations<'_> = old_tolerations.iter().map(AsRef::as_ref).collect();
        let mut before: Option<Before> = None;
        let mut seen = Seen::default();
        templates.each(|template, object| {
            let object = match object {
                Ok(object) => object,
                // Nor are old objects punished for what cannot be read in them.
                Err(_) if old.is_some_and(|old| old.hold(template)) => return Ok(()),
                Err(fault) => return Err(fault),
            };
            let mut case = Case::new(self, subject, object, facts);
            case.old_tolerations = Some(&old_tolerations);
            let room = FAULTS.saturating_sub(decision.faults.len());
            decision.faults.extend(std::mem::take(&mut case.faults).into_iter().take(room));
            if case.is_ordinary() {
                return Ok(());
            }
            decision.labels_unknown |= labels_unknown || !case.unknown.is_empty();
            let mut violations = self.violations(&case, mode);
            if let (Some(old), false) = (old, violations.is_empty()) {
                let before = before.get_or_insert_with(|| self.before(subject, old, &old_tolerations, (mode, facts)));
                decision.labels_unknown |= before.labels_unknown;
                violations.retain(|violation| !before.includes(violation));
            }
            for mut violation in violations {
                if let Some(node) = violation.node.take() {
                    decision.node_unknown.get_or_insert(node);
                }
                seen.add(violation, template.place());
            }
            Ok(())
        })?;
        decision.labels_unknown |= labels_unknown && !decision.faults.is_empty();
        self.conclude_seen(subject, seen, facts, &mut decision);
        let waits = decision.labels_unknown || decision.node_unknown.is_some();
        if waits && decision.faults.is_empty() && self.is_exempt(subject, facts) {
            decision.labels_unknown = false;
            decision.node_unknown = None;
        }
        Ok(decision)
    }

    /// What broke the contract before. What cannot be read excuses nothing.
    fn before(
        &self,
        subject: &Subject<'_>,
        old: &Templates<'_>,
        old_tolerations: &Tolerations<'_>,
        (mode, facts): (Mode, &dyn Facts),
    ) -> Before {
        let mut before = Before::default();
        // The closure never fails.
        let _ = old.each(|_, object| {
            if let Ok(object) = object {
                let mut case = Case::new(self, subject, object, facts);
                case.old_tolerations = Some(old_tolerations);
                before.labels_unknown |= !case.unknown.is_empty();
                self.violations(&case, mode).into_iter().for_each(|violation| before.add(violation));
            }
            Ok(())
        });
        before
    }

    /// What is done about what was seen, of each rule no more being named than can be. What is done about the object
    /// does not depend on the others: they do the same as those of their group that are named.
    fn conclude_seen(&self, subject: &Subject<'_>, seen: Seen, facts: &dyn Facts, decision: &mut Decision) {
        let mut counts: HashMap<_, usize> = HashMap::new();
        let alike = |finding: &Finding| (finding.rule, finding.configured, finding.action);
        for Group { rule, pools, most, count } in seen.groups.iter().filter(|group| group.count > NAMED) {
            let (what, field, message) = (Vec::new(), String::new(), String::new());
            let one = Violation { rule: *rule, pools: *pools, what, field, message, most: *most, node: None };
            let mut alone = Decision::quiet(decision.mode);
            self.conclude(subject, vec![one], facts, &mut alone);
            for finding in &alone.findings {
                *counts.entry(alike(finding)).or_default() += count - NAMED;
            }
        }
        let violations = seen.violations();
        if violations.is_empty() {
            return;
        }
        self.conclude(subject, violations, facts, decision);
        let mut named: HashMap<_, usize> = HashMap::new();
        decision.findings.retain(|finding| {
            let named = named.entry(alike(finding)).or_default();
            *named += 1;
            if *named > NAMED {
                *counts.entry(alike(finding)).or_default() += 1;
            }
            *named <= NAMED
        });
        for (kind, count) in counts {
            if let Some(last) = decision.findings.iter_mut().rfind(|finding| alike(finding) == kind) {
                let more = format!(" {count} more findings of this rule are not named.");
                last.message.push_str(&more);
            }
        }
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
    labels_unknown: bool,
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

/// What templates break, each said once. Many thousands can fit into an object: what is not named is only counted.
#[derive(Default)]
struct Seen {
    /// Each with the number of other templates that have it at the same place of theirs.
    kept: Vec<(Violation, usize)>,
    /// All, by what they are, and where in the kept ones, if there.
    known: HashMap<(Breach, u64), Option<usize>>,
    groups: Vec<Group>,
    hasher: RandomState,
}

/// Violations about which the same is done.
struct Group {
    rule: Rule,
    pools: PoolSet,
    most: Action,
    count: usize,
}

impl Seen {
    /// Adds a violation in the template that stands at the place.
    fn add(&mut self, violation: Violation, place: &str) {
        let breach = (violation.rule, violation.pools.first());
        // The message repeats the field.
        let alike = self.hasher.hash_one((&violation.what, violation.message.replace(place, "")));
        if let Some(known) = self.known.get(&(breach, alike)) {
            if let Some(at) = known {
                self.kept[*at].1 += 1;
            }
            return;
        }
        let Violation { rule, pools, most, .. } = violation;
        let is_alike = |group: &Group| (group.rule, group.pools, group.most) == (rule, pools, most);
        let at = self.groups.iter().position(is_alike).unwrap_or(self.groups.len());
        if at == self.groups.len() {
            self.groups.push(Group { rule, pools, most, count: 0 });
        }
        self.groups[at].count += 1;
        let is_kept = self.groups[at].count <= NAMED;
        self.known.insert((breach, alike), is_kept.then_some(self.kept.len()));
        if is_kept {
            self.kept.push((violation, 0));
        }
    }

    /// The kept ones in the order of the rules. What several templates have is said of the first, with the number of
    /// the others.
    fn violations(mut self) -> Vec<Violation> {
        self.kept.sort_by_key(|(violation, _)| Rule::ALL.iter().position(|rule| *rule == violation.rule));
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
        self.kept.into_iter().map(with_number).collect()
    }
}
