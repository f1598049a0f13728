//! What a replica serves: a certificate that its CA has signed, and when to ask for the next.

use std::fmt;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;

use super::written;

/// A server's certificate with its key, made in memory and kept there.
pub struct Leaf {
    /// The certificate; the CA's own is what the caller trusts, so it does not go with it.
    pub chain: Vec<CertificateDer<'static>>,
    /// The certificate's private key.
    pub key: PrivateKeyDer<'static>,
    /// From when on it is valid: an hour before it was made.
    pub not_before: OffsetDateTime,
    /// When it expires.
    pub not_after: OffsetDateTime,
    /// The fingerprint of the CA that signed it.
    pub authority: String,
    pub(super) issued_at: OffsetDateTime,
}

impl Leaf {
    /// When to make the next one: after two thirds of its life, so that there is a third left in which
    /// whatever stands in the way can be put right.
    #[must_use]
    pub fn renew_at(&self) -> OffsetDateTime {
        self.issued_at + (self.not_after - self.issued_at) * 2 / 3
    }

    /// Whether the next one is to be made now. Also where the clock stands before this one's time:
    /// it was wrong then or it is wrong now, and a leaf made now is valid by both.
    #[must_use]
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        now >= self.renew_at() || now < self.not_before
    }
}

/// Says which certificate it is, and nothing of the key.
impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("authority", &self.authority)
            .field("not_before", &written(self.not_before))
            .field("not_after", &written(self.not_after))
            .finish_non_exhaustive()
    }
}
