//! What the contract's exemptions are used for, and when they expire.
//!
//! The names come from the contract in force, never from a request: a review that was under way when the
//! contract changed brings no old name back.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The labels of one use of an exemption.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExemptionUse {
    /// The exemption's name.
    pub exemption: String,
    /// `mutate` or `validate`.
    pub webhook: &'static str,
    /// `exempt`, or `expired` where it would have been.
    pub outcome: &'static str,
    /// Whether the request was a dry run.
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExemptionLabels {
    exemption: String,
}

/// Every way in which an exemption is used: a mutation that one spares tells of nothing expired.
const USES: [(&str, &str); 3] = [("mutate", "exempt"), ("validate", "exempt"), ("validate", "expired")];

#[derive(Debug, Default)]
pub(super) struct Exemptions {
    uses: Family<ExemptionUse, Counter>,
    expires: Family<ExemptionLabels, Gauge>,
    /// The names that have series, to tell which of them to take away.
    names: std::sync::Mutex<Vec<String>>,
}

impl Exemptions {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("exemptions", "Requests that an exemption spared, or would have", self.uses.clone());
        registry.register(
            "exemption_expires_timestamp_seconds",
            "When an exemption stops counting, in seconds since 1970; none for one that does not",
            self.expires.clone(),
        );
    }

    pub(super) fn used(&self, used: &ExemptionUse) {
        if let Some(counter) = self.uses.get(used) {
            counter.inc();
        }
    }

    /// Counters go on for exemptions that were there before.
    pub(super) fn in_force<'a>(&self, exemptions: impl Iterator<Item = (&'a str, Option<i64>)>) {
        let mut names = self.names.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = std::mem::take(&mut *names);
        self.expires.clear();
        for (exemption, expires) in exemptions {
            for used in uses(exemption) {
                drop(self.uses.get_or_create(&used));
            }
            if let Some(at) = expires {
                self.expires.get_or_create(&ExemptionLabels { exemption: exemption.to_owned() }).set(at);
            }
            names.push(exemption.to_owned());
        }
        for used in before.iter().filter(|name| !names.contains(name)).flat_map(|name| uses(name)) {
            self.uses.remove(&used);
        }
    }
}

fn uses(exemption: &str) -> impl Iterator<Item = ExemptionUse> {
    USES.into_iter().flat_map(move |(webhook, outcome)| {
        [false, true].map(|dry_run| ExemptionUse { exemption: exemption.to_owned(), webhook, outcome, dry_run })
    })
}
