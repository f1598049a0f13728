//! The labels of every metric, and the closed sets that their values come from.

use prometheus_client::encoding::EncodeLabelSet;

/// The labels of one answered review.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Request {
    /// `mutate` or `validate`.
    pub webhook: &'static str,
    /// A resource that the review knows, or `other`.
    pub resource: &'static str,
    /// The admission operation.
    pub operation: &'static str,
    /// What the review came to.
    pub outcome: &'static str,
    /// Whether the request was a dry run.
    pub dry_run: bool,
}

/// The labels of one entry in a review's account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Decision {
    /// `mutate` or `validate`.
    pub webhook: &'static str,
    /// The rule's id.
    pub rule: &'static str,
    /// What the rule did.
    pub action: &'static str,
    /// Whether the request was a dry run.
    pub dry_run: bool,
}

/// Why an HTTP request was refused before it became a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// No such path.
    Path,
    /// The path takes another method.
    Method,
    /// The body is not said to be JSON.
    MediaType,
    /// The body is larger than the limit.
    TooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body broke off.
    BodyBroken,
    /// The caller's own `timeout` had passed.
    Expired,
    /// Too many bytes were in flight already.
    Overload,
}

impl Rejection {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Path,
        Self::Method,
        Self::MediaType,
        Self::TooLarge,
        Self::BodyTimeout,
        Self::BodyBroken,
        Self::Expired,
        Self::Overload,
    ];

    /// The value of the label `reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Method => "method",
            Self::MediaType => "media_type",
            Self::TooLarge => "too_large",
            Self::BodyTimeout => "body_timeout",
            Self::BodyBroken => "body_broken",
            Self::Expired => "expired",
            Self::Overload => "overload",
        }
    }
}

/// What came of the lookup of one namespace or node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lookup {
    /// It is known now.
    Found,
    /// There is none of this name.
    Missing,
    /// The API server could not be asked, or refused.
    Error,
    /// It did not end in the time that there was.
    Timeout,
}

impl Lookup {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Found, Self::Missing, Self::Error, Self::Timeout];

    /// The value of the label `outcome`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Missing => "missing",
            Self::Error => "error",
            Self::Timeout => "timeout",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    pub(super) outcome: &'static str,
}

impl OutcomeLabels {
    pub(super) const fn of_reload(succeeded: bool) -> Self {
        Self { outcome: if succeeded { "success" } else { "failure" } }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct NoLabels {}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RejectionLabels {
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WebhookLabels {
    pub(super) webhook: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReloadLabels {
    pub(super) result: &'static str,
}

impl ReloadLabels {
    pub(super) const fn new(serves: bool) -> Self {
        Self { result: if serves { "success" } else { "failure" } }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CertificateLabels {
    pub(super) kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BuildLabels {
    pub(super) version: &'static str,
}

/// The one family whose values are not known when the program is built. There is never more than
/// one series of it at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ContractLabels {
    pub(super) hash: String,
    pub(super) mode: &'static str,
}
