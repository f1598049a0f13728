//! Certificates that the program makes itself: a CA, the leaves it signs, and its rotation.
//!
//! Owns what a certificate of ours looks like ([`Authority`], [`Leaf`]), what an API server makes of a
//! chain ([`verify`]) and when one CA follows another ([`rotation`]). It knows no cluster, no socket and
//! no clock: whoever calls says what time it is, and does the reading and the writing.

mod anchor;
mod authority;
mod leaf;
pub mod rotation;
mod trust;

pub use anchor::Anchor;
pub use authority::{Authority, AuthorityError};
pub use leaf::Leaf;
pub use trust::{Distrust, verify};

use std::fmt::Write as _;

use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// How far validity reaches back: a machine whose clock is behind must not find a new certificate
/// "not yet valid".
pub const CLOCK_SKEW: Duration = Duration::hours(1);

/// A point in time for people and for the Secret. Certificates know whole seconds only.
fn written(time: OffsetDateTime) -> String {
    // Fails for no year that a certificate can carry.
    seconds(time).format(&Rfc3339).unwrap_or_else(|_| time.unix_timestamp().to_string())
}

fn seconds(time: OffsetDateTime) -> OffsetDateTime {
    time.replace_nanosecond(0).unwrap_or(time).to_offset(time::UtcOffset::UTC)
}

/// The SHA-256 of some bytes in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What is in a PEM text, for a person who expected something else. Says nothing of the contents.
fn blocks(pem: &[u8]) -> String {
    let text = String::from_utf8_lossy(pem);
    let labels: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
        .map(|label| format!("`BEGIN {label}`"))
        .collect();
    if labels.is_empty() { format!("{} bytes without a PEM block", pem.len()) } else { labels.join(", ") }
}
