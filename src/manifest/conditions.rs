//! Match conditions: which objects the API server need not ask about, as CEL that it evaluates itself.
//!
//! An object is asked about where it tolerates a key of a pool's taints, tolerates every key, names a
//! resource of a pool or carries a marker of one, or is put onto a node past the scheduler; and on an update only where something changed
//! on which a decision depends. All else the policy lets pass untouched and silent, so it need not come here at all: most pods of a cluster wait
//! for nobody, and go on being made while gpufence is away.
//!
//! Written for the API server's own form of an object, in which what is null or empty is absent. Only
//! `containers` is ever null, in a pod that has none and is refused for it. No expression may fail on what
//! an object holds, since the failurePolicy would then decide. Where one cannot say exactly what the policy
//! reads it says more: that costs a call, and the other way round would be a gap in the fence.
//!
//! Nor may it cost more than the API server lets it (1,000,000 units), for then it fails as well. An object with a list
//! so long that going through it could cost that much is asked about, whatever is in the list.

mod levers;

use std::collections::BTreeSet;

pub use levers::of_levers;

use crate::policy::{Action, CustomResource, Policy, Rule, Selection, is_glob};

/// A match condition of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchCondition {
    /// The name, which an API server gives where the expression fails.
    pub name: &'static str,
    /// The expression. The webhook is called where those of all its conditions hold.
    pub expression: String,
}

/// For the hook that completes pods: nothing is added to a pod that names no resource of a pool, unless ordinary
/// pods are to be kept off.
#[must_use]
pub fn of_pod_mutation(policy: &Policy) -> Vec<MatchCondition> {
    if policy.fences_ordinary() {
        return Vec::new();
    }
    vec![MatchCondition { name: "requests-from-a-pool", expression: requests("object", policy) }]
}

/// For the hook that judges pods.
#[must_use]
pub fn of_pod_validation(policy: &Policy) -> Vec<MatchCondition> {
    let mut new = vec!["oldObject == null".to_owned(), "object.spec != oldObject.spec".to_owned()];
    new.extend(read_metadata(policy).into_iter().map(|(list, key)| {
        let value = |object: &str| format!("{object}.metadata.?{list}[?{}].orValue('')", literal(key));
        format!("{} !=\n  {}", value("object"), value("oldObject"))
    }));
    vec![
        MatchCondition { name: REACHES, expression: concerns("object", "oldObject == null && ", policy) },
        MatchCondition { name: "is-new-or-changed", expression: new.join(" ||\n") },
    ]
}

/// The annotations and labels of a pod on which a decision depends.
fn read_metadata(policy: &Policy) -> BTreeSet<(&'static str, &str)> {
    let models = policy.pools().iter().filter_map(|pool| Some(&pool.models.as_ref()?.annotation));
    let markers = policy.pools().iter().flat_map(|pool| &pool.markers.annotations);
    let Selection { annotation, label } = policy.selection();
    let annotations = models.chain(markers).chain(annotation).map(|key| ("annotations", key.as_str()));
    annotations.chain(label.as_deref().map(|key| ("labels", key))).collect()
}

/// For the hook that judges workload templates, whose pods lie at one of three places.
#[must_use]
pub fn of_template_validation(policy: &Policy) -> Vec<MatchCondition> {
    let template = |object: &str| {
        format!(
            "{object}.?spec.?template.or({object}.?spec.?jobTemplate.?spec.?template)\
             .or({object}.?template).orValue({{}})"
        )
    };
    let (new, old) = (template("object"), template("oldObject"));
    vec![
        MatchCondition {
            name: REACHES,
            expression: format!("[{new}].exists(pod,\n{})", indented(&concerns("pod", "", policy))),
        },
        MatchCondition { name: "is-new-or-changed", expression: format!("oldObject == null ||\n{new} !=\n{old}") },
    ]
}

/// For the hook that judges custom resources: those of which a field changed into which a path of the contract
/// leads. What reaches a pool stands too deep, and in too many forms, to be looked for here.
#[must_use]
pub fn of_custom_resources(policy: &Policy) -> Vec<MatchCondition> {
    let fields: BTreeSet<_> = policy.custom_resources().iter().flat_map(CustomResource::fields).collect();
    let value = |object: &str, field: &str| format!("{object}[?{}].orValue({{}})", literal(field));
    let changed =
        fields.into_iter().map(|field| format!("{} != {}", value("object", field), value("oldObject", field)));
    let new: Vec<_> = std::iter::once("oldObject == null".to_owned()).chain(changed).collect();
    vec![MatchCondition { name: "is-new-or-changed", expression: new.join(" ||\n") }]
}

/// For the hook that judges Bindings: whom the contract trusts to place pods is not asked about, so that no pod
/// waits for gpufence to be scheduled.
#[must_use]
pub fn of_bindings(policy: &Policy) -> Vec<MatchCondition> {
    let schedulers = policy.identities().schedulers().iter().map(String::as_str);
    let expression = format!("!(request.userInfo.username in {})", list(schedulers));
    vec![MatchCondition { name: "is-not-a-scheduler", expression }]
}

/// The longest lists that are gone through: no pod that is meant well has longer ones. Together, in each container
/// of both lists, they are 4,000 names of resources, which stay within the limit for a contract of fifty globs.
const MOST_TOLERATIONS: usize = 1_000;
const MOST_CONTAINERS: usize = 50;
const MOST_AMOUNTS: usize = 20;

/// The condition that holds where the object could reach a pool.
const REACHES: &str = "may-reach-a-pool";

/// Whether a pod could reach a pool; `when` is the condition under which its nodeName counts.
fn concerns(pod: &str, when: &str, policy: &Policy) -> String {
    let mut ways = Vec::new();
    if policy.action(Rule::NodeNameBypass) > Action::Off {
        ways.push(format!("{when}{pod}.?spec.?nodeName.orValue('') != ''"));
    }
    ways.extend([tolerates(pod, policy), requests(pod, policy)]);
    ways.join(" ||\n")
}

/// Whether a toleration could pass a taint of a pool. One without a key passes every taint.
fn tolerates(pod: &str, policy: &Policy) -> String {
    let taints = policy.pools().iter().flat_map(|pool| &pool.taints);
    let keys: BTreeSet<_> = std::iter::once("").chain(taints.map(|taint| taint.key.as_str())).collect();
    let tolerations = format!("{pod}.?spec.?tolerations.orValue([])");
    format!(
        "{tolerations}.size() > {MOST_TOLERATIONS} ||\n\
         {tolerations}.exists(toleration, toleration.?key.orValue('') in {})",
        list(keys)
    )
}

/// Whether a pod could request a GPU of a pool, by a resource or by a marker.
fn requests(pod: &str, policy: &Policy) -> String {
    let mut ways = Vec::new();
    let markers = || policy.pools().iter().map(|pool| &pool.markers);
    // By which name is looked at by us: few pods have claims.
    if markers().any(|markers| !markers.claims.written().is_empty()) {
        ways.push(format!("{pod}.?spec.?resourceClaims.orValue([]) != []"));
    }
    let annotations: BTreeSet<_> = markers().flat_map(|markers| &markers.annotations).map(String::as_str).collect();
    if !annotations.is_empty() {
        ways.push(format!(
            "{}.exists(marker, marker in {pod}.?metadata.?annotations.orValue({{}}))",
            list(annotations)
        ));
    }
    ways.push(names_a_resource(pod, policy));
    ways.join(" ||\n")
}

/// Whether a container names a resource of a pool. How much of it is not looked at: what is no quantity is
/// reported as well.
fn names_a_resource(pod: &str, policy: &Policy) -> String {
    let patterns = policy.pools().iter().flat_map(|pool| pool.resources.written());
    let (globs, names): (BTreeSet<_>, BTreeSet<_>) = patterns.map(String::as_str).partition(|pattern| is_glob(pattern));
    let mut tests = Vec::new();
    if !names.is_empty() {
        tests.push(format!("name in {}", list(names)));
    }
    tests.extend(globs.into_iter().map(glob));
    format!(
        "[{pod}.?spec.?containers.orValue([]), {pod}.?spec.?initContainers.orValue([])].exists(containers,\n  \
         containers != null && (containers.size() > {MOST_CONTAINERS} || containers.exists(container,\n    \
         [container.?resources.?requests.orValue({{}}), container.?resources.?limits.orValue({{}})].exists(amounts,\n      \
         amounts.size() > {MOST_AMOUNTS} || amounts.exists(name,\n        {})))))",
        tests.join(" ||\n        ")
    )
}

/// Whether a name matches a glob. Of any but the plainest it is asked whether the name is an extended
/// resource's at all, which those of a pool are: that is a call too many, never a pod too few.
fn glob(pattern: &str) -> String {
    if let Some(prefix) = pattern.strip_suffix('*').filter(|prefix| !is_glob(prefix)) {
        return format!("name.startsWith({})", literal(prefix));
    }
    if let Some(suffix) = pattern.strip_prefix('*').filter(|suffix| !is_glob(suffix)) {
        return format!("name.endsWith({})", literal(suffix));
    }
    if let Some((prefix, suffix)) =
        pattern.split_once('*').filter(|(prefix, suffix)| !is_glob(prefix) && !is_glob(suffix))
    {
        return format!("(name.startsWith({}) && name.endsWith({}))", literal(prefix), literal(suffix));
    }
    "name.contains('/')".to_owned()
}

fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    format!("[{}]", words.into_iter().map(literal).collect::<Vec<_>>().join(", "))
}

/// A string literal of CEL.
fn literal(text: &str) -> String {
    let escaped = text.chars().map(|letter| match letter {
        '\'' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    });
    format!("'{}'", escaped.collect::<String>())
}

fn indented(text: &str) -> String {
    format!("  {}", text.replace('\n', "\n  "))
}
