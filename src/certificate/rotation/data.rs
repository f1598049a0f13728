//! The rotation's state as the data of its Secret, and back.
//!
//! Reading is strict: what is not exactly what we write was written by somebody else, and is never
//! overwritten. Every value is text, so that `kubectl get secret -o yaml` and `base64 -d` show it.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Phase, State};
use crate::certificate::{Anchor, Authority, AuthorityError, written};

/// A Secret's data, as bytes.
pub type Data = BTreeMap<String, Vec<u8>>;

const PHASE: &str = "phase";
const SIGNING: [&str; 2] = ["signing.crt", "signing.key"];
const NEXT: [&str; 2] = ["next.crt", "next.key"];
const PREVIOUS: &str = "previous.crt";
const PUBLISHED_AT: &str = "published-at";
const SWITCHED_AT: &str = "switched-at";
/// For people and tools that want to trust what API servers trust; follows from the others.
const BUNDLE: &str = "bundle.crt";

const EXPECTED_PHASE: &str = "stable, publish, soak or retire";
const EXPECTED_TIME: &str = "a time such as 2027-03-01T12:00:00Z";
const EXPECTED_PREVIOUS: &str = "one PEM block `BEGIN CERTIFICATE`";
const EXPECTED_BUNDLE: &str = "exactly the other certificates of the Secret, the one that signs first";

/// Why a Secret is not the rotation's state. It stays as it is; a person has to look at it.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The Secret is somebody else's.
    #[error(
        "the Secret was not written by gpufence: it has {} and no key phase; expected an empty Secret, or one of ours",
        keys.join(", ")
    )]
    Foreign {
        /// The keys it has.
        keys: Vec<String>,
    },
    /// A key is not there.
    #[error("the Secret has no key {key}, which belongs to the phase {phase}; {REPAIR}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What the Secret says of itself.
        phase: &'static str,
    },
    /// A key is there that does not belong there.
    #[error("the Secret has the key {key}, which does not belong to the phase {phase}; {REPAIR}")]
    Unexpected {
        /// The key.
        key: String,
        /// What the Secret says of itself.
        phase: &'static str,
    },
    /// A key has a value that means nothing.
    #[error("the Secret's key {key}: found {found}; expected {expected}; {REPAIR}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// A certificate and a key are no CA of ours.
    #[error("the Secret's keys {} and {}: {source}; {REPAIR}", keys[0], keys[1])]
    Authority {
        /// The keys.
        keys: [&'static str; 2],
        /// What is wrong with them.
        #[source]
        source: AuthorityError,
    },
}

const REPAIR: &str = "restore it, or empty its data to begin with a new CA";

impl State {
    /// Reads the state; `None` where there is none yet.
    pub fn from_data(data: &Data) -> Result<Option<Self>, DataError> {
        if data.is_empty() {
            return Ok(None);
        }
        let phase = phase(data)?;
        let keys = keys(phase);
        if let Some(key) = data.keys().find(|key| !keys.contains(key.as_str())) {
            return Err(DataError::Unexpected { key: key.clone(), phase: phase.as_str() });
        }
        let value = |key| value(data, key, phase);
        let pair = |keys| pair(data, keys, phase);
        let time = |key| value(key).and_then(|text| time(key, text));
        let signing = pair(SIGNING)?;
        let state = match phase {
            Phase::Stable => Self::Stable { signing },
            Phase::Publish => Self::Publish { signing, next: pair(NEXT)?, published_at: None },
            Phase::Soak => Self::Publish { signing, next: pair(NEXT)?, published_at: Some(time(PUBLISHED_AT)?) },
            Phase::Retire => {
                let previous = previous(value(PREVIOUS)?)?;
                Self::Retire { signing, previous, switched_at: time(SWITCHED_AT)? }
            }
        };
        let bundle = Anchor::all_of_pem(value(BUNDLE)?);
        if bundle.iter().ne(state.anchors()) {
            let names: Vec<_> = bundle.iter().map(Anchor::name).collect();
            let found = if names.is_empty() { "no certificate".to_owned() } else { names.join(", ") };
            return Err(DataError::Value { key: BUNDLE, found, expected: EXPECTED_BUNDLE });
        }
        Ok(Some(state))
    }

    /// Reads the CA that signs, which is all that a replica needs. Every other key is left alone, so that
    /// a replica of one version serves under a controller of another.
    pub fn signing_from_data(data: &Data) -> Result<Option<Authority>, DataError> {
        if data.is_empty() {
            return Ok(None);
        }
        if !data.contains_key(PHASE) {
            return Err(foreign(data));
        }
        pair(data, SIGNING, Phase::Stable).map(Some)
    }

    /// Writes the state. This is the whole of the Secret's data: a key of an earlier phase must not stay.
    #[must_use]
    pub fn to_data(&self) -> Data {
        let mut data = Data::new();
        let mut put = |key: &str, value: String| {
            data.insert(key.to_owned(), value.into_bytes());
        };
        let pair = |[certificate, key]: [&'static str; 2], authority: &Authority| {
            [(certificate, authority.certificate_pem()), (key, authority.key_pem())]
        };
        put(PHASE, self.phase().as_str().to_owned());
        put(BUNDLE, self.bundle_pem());
        for (key, value) in pair(SIGNING, self.signing()) {
            put(key, value);
        }
        match self {
            Self::Stable { .. } => {}
            Self::Publish { next, published_at, .. } => {
                for (key, value) in pair(NEXT, next) {
                    put(key, value);
                }
                if let Some(at) = published_at {
                    put(PUBLISHED_AT, written(*at));
                }
            }
            Self::Retire { previous, switched_at, .. } => {
                put(PREVIOUS, previous.pem());
                put(SWITCHED_AT, written(*switched_at));
            }
        }
        data
    }
}

/// The keys of a phase: each must be there, and no other.
fn keys(phase: Phase) -> BTreeSet<&'static str> {
    let own: &[&str] = match phase {
        Phase::Stable => &[],
        Phase::Publish => &NEXT,
        Phase::Soak => &[NEXT[0], NEXT[1], PUBLISHED_AT],
        Phase::Retire => &[PREVIOUS, SWITCHED_AT],
    };
    [PHASE, BUNDLE].iter().chain(&SIGNING).chain(own).copied().collect()
}

fn foreign(data: &Data) -> DataError {
    DataError::Foreign { keys: data.keys().cloned().collect() }
}

fn phase(data: &Data) -> Result<Phase, DataError> {
    let value = data.get(PHASE).ok_or_else(|| foreign(data))?;
    Phase::ALL.into_iter().find(|phase| phase.as_str().as_bytes() == value).ok_or_else(|| DataError::Value {
        key: PHASE,
        found: quoted(value),
        expected: EXPECTED_PHASE,
    })
}

fn value<'a>(data: &'a Data, key: &'static str, phase: Phase) -> Result<&'a [u8], DataError> {
    data.get(key).map(Vec::as_slice).ok_or(DataError::Missing { key, phase: phase.as_str() })
}

fn pair(data: &Data, keys: [&'static str; 2], phase: Phase) -> Result<Authority, DataError> {
    let [certificate, key] = keys;
    Authority::from_pem(value(data, certificate, phase)?, value(data, key, phase)?)
        .map_err(|source| DataError::Authority { keys, source })
}

fn previous(pem: &[u8]) -> Result<Anchor, DataError> {
    let [anchor] = Anchor::all_of_pem(pem).try_into().map_err(|found: Vec<_>| DataError::Value {
        key: PREVIOUS,
        found: format!("{} certificates", found.len()),
        expected: EXPECTED_PREVIOUS,
    })?;
    Ok(anchor)
}

fn time(key: &'static str, text: &[u8]) -> Result<OffsetDateTime, DataError> {
    let refused = || DataError::Value { key, found: quoted(text), expected: EXPECTED_TIME };
    let text = std::str::from_utf8(text).map_err(|_| refused())?;
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| refused())
}

/// A value that should have been short and is no secret.
fn quoted(value: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text: String = String::from_utf8_lossy(value).chars().take(SHOWN).collect();
    format!("{text:?}")
}

#[cfg(test)]
mod tests;
