//! One CA follows another, and no call fails meanwhile.
//!
//! The whole of the rotation's state lies in one Secret. Whoever drives it reads the Secret and the
//! cluster, asks [`step`] what comes next, writes that with the Secret's resourceVersion, and then brings
//! the registrations to [`bundle_for`] what the Secret holds.
//!
//! ```text
//!            half of A's life            both registrations have {A, B}
//! Stable {A} ───────────────> Publish {A, B} ─────────────────────────> Soak {A, B}
//!     ▲                             ▲    one of them has lost it            │
//!     │ all replicas serve B,       └───────────────────────────────────────┤
//!     │ or A has expired                                                    │ five minutes
//!     └──────────────────────── Retire {A, B} <─────────────────────────────┘
//!        B is A from now on       B signs
//! ```
//!
//! # What holds
//!
//! - Every leaf served verifies under every bundle that an API server may hold, given that it holds one
//!   that a registration had less than [`Schedule::soak`] ago.
//! - A CA signs only after it was trusted for that long, and is trusted until nobody serves a leaf of it.
//!   The one exception is [`Reason::Emergency`]: a CA that has run out is replaced at once, for nothing
//!   that it signed is of use any more.
//! - Two who drive it at once end with one CA, for each change is of the state that was read. That asks
//!   four things of whoever drives it: read the registrations before the Secret; write the Secret with its
//!   resourceVersion, and end the round where that is refused; patch a registration with the
//!   resourceVersion that was read first; read from the API server, not from a cache.
//! - A clock that is set back delays a rotation and does nothing else.

mod data;
mod observation;

use std::fmt;

use time::{Duration, OffsetDateTime};

pub use data::{Data, DataError};
pub use observation::{Observation, Serving, bundle_for, is_current};

use super::{Anchor, Authority, AuthorityError, CLOCK_SKEW};

/// How long everything lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// How long a CA is valid. The next one is made after half of it.
    pub authority_validity: Duration,
    /// How long a leaf is valid.
    pub leaf_validity: Duration,
    /// How long both CAs are trusted before the new one signs: far longer than any API server takes to
    /// hear of a changed registration.
    pub soak: Duration,
    /// How long the old CA is trusted at least after the new one began to sign.
    pub retire_after: Duration,
    /// A signing CA with less life than this left is as good as expired: what it signs is gone before
    /// anybody has seen it.
    pub useless: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            authority_validity: Duration::days(365),
            leaf_validity: Duration::days(7),
            soak: Duration::minutes(5),
            retire_after: Duration::hours(24),
            useless: Duration::minutes(1),
        }
    }
}

/// A certificate, as far as the rotation looks at it.
pub trait Certified: Clone + fmt::Debug + Eq {
    /// What tells it from any other.
    type Id: Clone + Ord;
    /// The same for two copies of one certificate only.
    fn id(&self) -> Self::Id;
    /// From when on it is valid.
    fn not_before(&self) -> OffsetDateTime;
    /// When it expires.
    fn not_after(&self) -> OffsetDateTime;
}

/// A certificate with the key to sign others.
pub trait Signer: Clone + fmt::Debug + Eq {
    /// What is left of it without the key.
    type Certificate: Certified;
    /// The certificate.
    fn certificate(&self) -> &Self::Certificate;
}

impl Certified for Anchor {
    type Id = String;

    fn id(&self) -> String {
        self.fingerprint().to_owned()
    }

    fn not_before(&self) -> OffsetDateTime {
        self.not_before()
    }

    fn not_after(&self) -> OffsetDateTime {
        self.not_after()
    }
}

impl Signer for Authority {
    type Certificate = Anchor;

    fn certificate(&self) -> &Anchor {
        self.anchor()
    }
}

/// Where the rotation stands: what the Secret says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State<A: Signer = Authority> {
    /// One CA signs and is trusted.
    Stable {
        /// The CA that signs.
        signing: A,
    },
    /// The next CA is there and is to be trusted before it signs.
    Publish {
        /// The CA that signs.
        signing: A,
        /// The one that will.
        next: A,
        /// Since when all registrations have both: the soak has begun.
        published_at: Option<OffsetDateTime>,
    },
    /// The next CA signs; the previous one is trusted until nobody serves a leaf of it.
    Retire {
        /// The CA that signs.
        signing: A,
        /// The one that did, without its key.
        previous: A::Certificate,
        /// Since when.
        switched_at: OffsetDateTime,
    },
}

/// The state's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// One CA.
    Stable,
    /// The next one is being published.
    Publish,
    /// It is published everywhere, and API servers get the time to hear of it.
    Soak,
    /// It signs, and the previous one is on its way out.
    Retire,
}

impl Phase {
    /// Every phase, in the order of a rotation.
    pub const ALL: [Self; 4] = [Self::Stable, Self::Publish, Self::Soak, Self::Retire];

    /// As the Secret has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Publish => "publish",
            Self::Soak => "soak",
            Self::Retire => "retire",
        }
    }
}

impl<A: Signer> State<A> {
    /// Where in the rotation it stands.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Stable { .. } => Phase::Stable,
            Self::Publish { published_at: None, .. } => Phase::Publish,
            Self::Publish { published_at: Some(_), .. } => Phase::Soak,
            Self::Retire { .. } => Phase::Retire,
        }
    }

    /// The CA that signs now.
    #[must_use]
    pub const fn signing(&self) -> &A {
        match self {
            Self::Stable { signing } | Self::Publish { signing, .. } | Self::Retire { signing, .. } => signing,
        }
    }

    /// The CAs that an API server must trust now, the one that signs first.
    #[must_use]
    pub fn anchors(&self) -> Vec<&A::Certificate> {
        let signing = self.signing().certificate();
        match self {
            Self::Stable { .. } => vec![signing],
            Self::Publish { next, .. } => vec![signing, next.certificate()],
            Self::Retire { previous, .. } => vec![signing, previous],
        }
    }
}

impl State {
    /// The CAs that an API server must trust now, as PEM blocks.
    #[must_use]
    pub fn bundle_pem(&self) -> String {
        self.anchors().into_iter().map(Anchor::pem).collect()
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<A: Signer = Authority> {
    /// The state stays; the registrations may still need their bundle.
    Keep,
    /// The Secret gets this state.
    Write(State<A>, Reason),
}

/// Why the state changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There was no CA.
    Initialised,
    /// Half of the CA's life is over, or by the clock its time is still to come.
    Due,
    /// All registrations have both CAs.
    Published,
    /// A registration has lost what it had.
    Lost,
    /// The soak is over.
    Soaked,
    /// Every replica serves a leaf of the new CA.
    Retired,
    /// The previous CA has expired.
    PreviousExpired,
    /// The CA that signs has expired.
    Emergency,
    /// The next CA went out of date before it came to sign.
    NextUnusable,
    /// What has been written lies in the future.
    ClockSetBack,
}

impl Reason {
    /// A stable name for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initialised => "initialised",
            Self::Due => "due",
            Self::Published => "published",
            Self::Lost => "lost",
            Self::Soaked => "soaked",
            Self::Retired => "retired",
            Self::PreviousExpired => "previous-expired",
            Self::Emergency => "emergency",
            Self::NextUnusable => "next-unusable",
            Self::ClockSetBack => "clock-set-back",
        }
    }

    /// Whether calls may have failed and somebody should know.
    #[must_use]
    pub const fn is_emergency(self) -> bool {
        matches!(self, Self::Emergency)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initialised => "there was no CA yet: one was made and signs",
            Self::Due => "the CA is past half of its life: the next one is made and published beside it",
            Self::Published => "both registrations have the next CA: the soak begins",
            Self::Lost => "a registration has lost a CA: the soak begins anew once it has it again",
            Self::Soaked => "every API server knows the next CA: it signs from now on",
            Self::Retired => "every replica serves a certificate of the new CA: the previous one is retired",
            Self::PreviousExpired => "the previous CA has expired: it is retired",
            Self::Emergency => "the CA has expired before its successor could take over: a valid one signs at once",
            Self::NextUnusable => "the next CA went out of date before it came to sign: another is published",
            Self::ClockSetBack => "the Secret tells of a time still to come: the wait begins anew",
        })
    }
}

/// What comes next, given what the Secret says, the time, and what was seen of the cluster.
pub fn step(
    state: Option<&State>,
    now: OffsetDateTime,
    observation: &Observation,
    schedule: &Schedule,
) -> Result<Step, AuthorityError> {
    let now = super::seconds(now);
    step_with(state, now, observation, schedule, || Authority::generate(now, schedule.authority_validity))
}

/// The same for any kind of CA. What is made and not written is forgotten.
fn step_with<A: Signer, E>(
    state: Option<&State<A>>,
    now: OffsetDateTime,
    observation: &Observation<<A::Certificate as Certified>::Id>,
    schedule: &Schedule,
    make: impl FnOnce() -> Result<A, E>,
) -> Result<Step<A>, E> {
    let Some(state) = state else {
        return Ok(Step::Write(State::Stable { signing: make()? }, Reason::Initialised));
    };
    let usable = |certificate: &A::Certificate| now < certificate.not_after() - schedule.useless;
    let timely = |certificate: &A::Certificate| usable(certificate) && now >= certificate.not_before();
    let current = state.signing();
    if !usable(current.certificate()) {
        // Leaves of an expired CA are refused whatever the registrations say, so waiting saves nobody.
        let signing = match state {
            State::Publish { next, .. } if timely(next.certificate()) => next.clone(),
            _ => make()?,
        };
        let previous = current.certificate().clone();
        return Ok(Step::Write(State::Retire { signing, previous, switched_at: now }, Reason::Emergency));
    }
    // One whose time is still to come is the work of a wrong clock, this machine's or another's. It is
    // replaced in good order: if it is this clock that is wrong, then leaves of it serve well.
    let due = now < current.certificate().not_before();
    Ok(match state {
        State::Stable { signing } if due || now >= half_life(signing.certificate()) => {
            publish(signing, make()?, None, Reason::Due)
        }
        State::Stable { .. } => Step::Keep,
        State::Retire { signing, .. } if due => publish(signing, make()?, None, Reason::Due),
        State::Publish { signing, next, .. } if !timely(next.certificate()) => {
            publish(signing, make()?, None, Reason::NextUnusable)
        }
        State::Publish { signing, next, published_at } => {
            let again = |at, reason| publish(signing, next.clone(), at, reason);
            match (published_at, observation.all_trust(&state.anchors())) {
                (None, false) => Step::Keep,
                (None, true) => again(Some(now), Reason::Published),
                (Some(_), false) => again(None, Reason::Lost),
                (Some(since), true) if *since > now => again(Some(now), Reason::ClockSetBack),
                (Some(since), true) if now - *since < schedule.soak => Step::Keep,
                (Some(_), true) => {
                    let previous = signing.certificate().clone();
                    Step::Write(State::Retire { signing: next.clone(), previous, switched_at: now }, Reason::Soaked)
                }
            }
        }
        State::Retire { signing, previous, switched_at } => {
            let retire = |reason| Step::Write(State::Stable { signing: signing.clone() }, reason);
            if now >= previous.not_after() {
                retire(Reason::PreviousExpired)
            } else if *switched_at > now {
                let (signing, previous) = (signing.clone(), previous.clone());
                Step::Write(State::Retire { signing, previous, switched_at: now }, Reason::ClockSetBack)
            } else if now - *switched_at >= schedule.retire_after && observation.all_serve(&signing.certificate().id())
            {
                retire(Reason::Retired)
            } else {
                Step::Keep
            }
        }
    })
}

fn publish<A: Signer>(signing: &A, next: A, published_at: Option<OffsetDateTime>, reason: Reason) -> Step<A> {
    Step::Write(State::Publish { signing: signing.clone(), next, published_at }, reason)
}

/// When half of a CA's life is over, counted from when it was made and not from where its validity
/// reaches back to.
fn half_life(certificate: &impl Certified) -> OffsetDateTime {
    let made_at = certificate.not_before() + CLOCK_SKEW;
    made_at + (certificate.not_after() - made_at) / 2
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
