//! The `audit` section: whether a serving installation looks again and again at what already runs.

use std::time::Duration;

use super::reader::Node;

/// The `audit` section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// How long after one audit the next one follows. Zero: none is made.
    pub interval: Duration,
    /// What it leaves in the cluster.
    pub reports: Reports,
}

/// The reports that an audit leaves in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reports {
    /// None.
    None,
    /// Those of `openreports.io`.
    OpenReports,
    /// Those of `wgpolicyk8s.io`, which came before.
    PolicyReports,
}

impl Reports {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::None, Self::OpenReports, Self::PolicyReports];

    /// The word in the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OpenReports => "openreports",
            Self::PolicyReports => "policyreports",
        }
    }
}

impl Audit {
    /// Whether audits are made at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.interval.is_zero()
    }
}

/// An audit lists the whole cluster: more often than this it would be a burden for an API server.
const LEAST: u64 = 60;

/// Drift that is found after more than a week is found too late, and no number overflows.
const MOST: u64 = 7 * 24 * 3600;

const INTERVAL: &str = "0s for no audits, or a time from 1m to 7d such as 15m or 6h";

/// The units, the longest first.
const UNITS: [(char, u64); 4] = [('d', 24 * 3600), ('h', 3600), ('m', 60), ('s', 1)];

pub(super) fn read(node: &Node<'_>) -> Option<Audit> {
    let table = node.table(&["interval", "reports"])?;
    let interval = table.require("interval", INTERVAL).and_then(|node| node.parsed(INTERVAL, interval));
    let words = Reports::ALL.map(Reports::as_str).join(", ");
    let reports = table.require("reports", &words).and_then(|node| node.choice(&Reports::ALL, Reports::as_str));
    Some(Audit { interval: interval?, reports: reports? })
}

fn interval(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let (_, seconds) = UNITS.into_iter().find(|(own, _)| *own == unit)?;
    let digits = text.strip_suffix(unit).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let seconds = digits.parse::<u64>().ok()?.checked_mul(seconds)?;
    (seconds == 0 || (LEAST..=MOST).contains(&seconds)).then(|| Duration::from_secs(seconds))
}

/// In the longest unit that leaves nothing over.
pub(super) fn printed(interval: Duration) -> String {
    let seconds = interval.as_secs();
    let whole = UNITS.into_iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    whole.map_or_else(|| "0s".to_owned(), |(name, unit)| format!("{}{name}", seconds / unit))
}
