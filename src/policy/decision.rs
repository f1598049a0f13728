//! What a decision says: findings with stable ids, what is injected, who was exempt.

use std::fmt;

use json_patch::Patch;

use super::exemption::Lapsed;
use super::pool::PoolSet;

/// How strongly a rule acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The rule is not evaluated.
    Off,
    /// Recorded: log, metrics, audit annotation.
    Audit,
    /// Recorded, and the client sees a warning.
    Warn,
    /// Recorded, and the request is refused.
    Deny,
}

impl Action {
    /// Every action, weakest first.
    pub const ALL: [Self; 4] = [Self::Off, Self::Audit, Self::Warn, Self::Deny];

    /// The contract's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Warn => "warn",
            Self::Deny => "deny",
        }
    }
}

/// The most that any rule may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing is changed, denied or shown to the client.
    Audit,
    /// Pods are completed and warnings shown; nothing is denied.
    Warn,
    /// The contract is enforced.
    Enforce,
}

impl Mode {
    /// Every mode, weakest first.
    pub const ALL: [Self; 3] = [Self::Audit, Self::Warn, Self::Enforce];

    /// The contract's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Warn => "warn",
            Self::Enforce => "enforce",
        }
    }

    /// The strongest action that the mode lets a rule take.
    #[must_use]
    pub fn ceiling(self) -> Action {
        match self {
            Self::Audit => Action::Audit,
            Self::Warn => Action::Warn,
            Self::Enforce => Action::Deny,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A rule of the contract. The ids are stable: they stand in messages, metrics and contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A toleration that passes a pool's taints, in a namespace that the pool does not allow.
    TolerationOutsideAllowlist,
    /// A GPU request in such a namespace.
    GpuRequestOutsideAllowlist,
    /// A pod put past the scheduler onto a pool's node, by `spec.nodeName` or by a Binding.
    NodeNameBypass,
    /// A field on which it depends whether the pod reaches a pool, of a form that is not known here.
    NotUnderstood,
    /// A change to what the fence stands on: the labels of namespaces that selectors read, the labels and
    /// taints of a pool's nodes.
    LeverChange,
    /// In an allowed namespace, a toleration wider than the exact one.
    BroadToleration,
    /// In an allowed namespace, a pod that passes the taints and requests no GPU.
    TolerationWithoutGpuRequest,
    /// A GPU pod that can never run on the pool's nodes.
    PlacementConflict,
    /// A GPU pod that reaches validation without the exact toleration and nodeSelector.
    PlacementMissing,
}

impl Rule {
    /// Every rule, in the order in which findings are reported.
    pub const ALL: [Self; 9] = [
        Self::TolerationOutsideAllowlist,
        Self::GpuRequestOutsideAllowlist,
        Self::NodeNameBypass,
        Self::NotUnderstood,
        Self::LeverChange,
        Self::BroadToleration,
        Self::TolerationWithoutGpuRequest,
        Self::PlacementConflict,
        Self::PlacementMissing,
    ];

    /// The stable id.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::TolerationOutsideAllowlist => "toleration-outside-allowlist",
            Self::GpuRequestOutsideAllowlist => "gpu-request-outside-allowlist",
            Self::NodeNameBypass => "node-name-bypass",
            Self::NotUnderstood => "not-understood",
            Self::LeverChange => "lever-change",
            Self::BroadToleration => "broad-toleration",
            Self::TolerationWithoutGpuRequest => "toleration-without-gpu-request",
            Self::PlacementConflict => "placement-conflict",
            Self::PlacementMissing => "placement-missing",
        }
    }

    /// What it catches, in half a sentence.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::TolerationOutsideAllowlist => {
                "a toleration that passes a pool's taints, in a namespace that may not use it"
            }
            Self::GpuRequestOutsideAllowlist => "a GPU request in a namespace that may not use the pool",
            Self::NodeNameBypass => "a pod put past the scheduler onto a pool's node",
            Self::NotUnderstood => "a field of a form that is not known, on which access to a pool depends",
            Self::LeverChange => "a change to what the fence stands on",
            Self::BroadToleration => "a toleration wider than the exact one",
            Self::TolerationWithoutGpuRequest => "a pod that passes the taints and requests no GPU",
            Self::PlacementConflict => "a GPU pod that can never run on the pool's nodes",
            Self::PlacementMissing => "a GPU pod without the exact toleration and the nodeSelector",
        }
    }

    /// What the rule does where the contract does not say.
    #[must_use]
    pub fn default_action(self) -> Action {
        match self {
            Self::TolerationOutsideAllowlist
            | Self::GpuRequestOutsideAllowlist
            | Self::NodeNameBypass
            | Self::NotUnderstood
            | Self::PlacementConflict => Action::Deny,
            // Nobody is trusted with them until the contract says whom.
            Self::LeverChange => Action::Off,
            Self::BroadToleration | Self::TolerationWithoutGpuRequest | Self::PlacementMissing => Action::Warn,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A place where the object breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The pools that it concerns.
    pub pools: PoolSet,
    /// What the contract wants done: the rule's own action.
    pub configured: Action,
    /// What is done, after the ceilings of mode, rollout and templates.
    pub action: Action,
    /// The field, such as `spec.tolerations[2]`.
    pub field: String,
    /// What is wrong and what to do, without the rule's id.
    pub message: String,
    /// The exemption without whose expiry the rule would not speak.
    pub lapsed: Option<Lapsed>,
}

impl Finding {
    /// The message, and which exemption has expired.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.lapsed {
            None => self.message.clone(),
            Some(lapsed) => format!("{} {lapsed}", self.message),
        }
    }
}

/// The rule's id, the message, and which exemption has expired.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text())
    }
}

/// What a pod is given, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Injection {
    /// What it is given for.
    pub purpose: Purpose,
    /// The smallest patch that does it.
    pub patch: Patch,
    /// Whether the patch is made; in audit mode it is only reported.
    pub enforced: bool,
}

/// What an injection is for. Displays as in `inject pool a100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A GPU pod is completed for this pool.
    Complete(String),
    /// An ordinary pod is kept off nodes with these labels.
    Fence(Vec<String>),
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete(pool) => write!(f, "pool {pool}"),
            Self::Fence(labels) => write!(f, "off nodes with {}", labels.join(", ")),
        }
    }
}

/// Findings and an injection that did not count, because the subject proved to be exempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exempted {
    /// The exemption's name, or `mirror-pod`.
    pub exemption: String,
    /// The rules that would have spoken; empty where only an injection was left out.
    pub rules: Vec<Rule>,
}

impl Exempted {
    /// The rules that did not speak, or that nothing was injected.
    #[must_use]
    pub fn spared(&self) -> String {
        match &*self.rules {
            [] => "injection".to_owned(),
            rules => rules.iter().map(|rule| rule.id()).collect::<Vec<_>>().join(", "),
        }
    }
}

/// Something in the object that could not be read and was passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field.
    pub field: String,
    /// What was found and what is valid.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.message)
    }
}

/// What the policy says about one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The mode in force for the namespace.
    pub mode: Mode,
    /// What breaks the contract, strongest rule order first.
    pub findings: Vec<Finding>,
    /// What the pod is given, in the mutating phase.
    pub injection: Option<Injection>,
    /// What exempted the subject, where it made a difference, in the contract's order.
    pub exempted: Vec<Exempted>,
    /// What could not be read.
    pub faults: Vec<Fault>,
    /// Whether the decision could be another if the labels of the namespace were known.
    pub labels_unknown: bool,
    /// The node of which it is not known whether it is a pool's, where the decision could be another if it
    /// were.
    pub node_unknown: Option<String>,
}

impl Decision {
    /// A decision with nothing to say.
    #[must_use]
    pub fn quiet(mode: Mode) -> Self {
        Self {
            mode,
            findings: Vec::new(),
            injection: None,
            exempted: Vec::new(),
            faults: Vec::new(),
            labels_unknown: false,
            node_unknown: None,
        }
    }

    /// A rule does not speak because of an exemption.
    pub(super) fn exempt(&mut self, name: &str, rule: Rule) {
        match self.exempted.iter_mut().find(|exempted| exempted.exemption == name) {
            Some(exempted) if exempted.rules.contains(&rule) => {}
            Some(exempted) => exempted.rules.push(rule),
            None => self.exempted.push(Exempted { exemption: name.to_owned(), rules: vec![rule] }),
        }
    }

    /// Nothing is injected, or less, because of an exemption.
    pub(super) fn exempt_from_injection(&mut self, name: String) {
        if self.exempted.iter().all(|exempted| exempted.exemption != name) {
            self.exempted.push(Exempted { exemption: name, rules: Vec::new() });
        }
    }

    /// The findings for which the request is refused.
    pub fn denials(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.action == Action::Deny)
    }

    /// Whether the request is refused.
    #[must_use]
    pub fn denies(&self) -> bool {
        self.denials().next().is_some()
    }

    /// Whether the request would be refused if no ceiling held the rules back.
    #[must_use]
    pub fn would_deny(&self) -> bool {
        self.findings.iter().any(|finding| finding.configured == Action::Deny)
    }
}
