//! What was seen of the cluster, and what may be put into a registration because of it.

use rustls::pki_types::CertificateDer;

use super::{Certified, State};
use crate::certificate::Anchor;

/// What was seen of the cluster, before a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Observation<Id = String> {
    /// The CAs that each registration has.
    pub registrations: Vec<Vec<Id>>,
    /// What each replica serves: every pod that may answer a call, or may yet come to.
    pub replicas: Vec<Serving<Id>>,
}

/// What a replica serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Serving<Id = String> {
    /// A leaf of this CA.
    By(Id),
    /// A leaf of none of the CAs that the Secret or a registration has.
    Stranger,
    /// Nothing that was seen. It may be of any CA.
    Unseen,
}

impl<Id: Ord> Observation<Id> {
    /// Whether each registration has all of these. Registrations that do not exist call nobody.
    pub(super) fn all_trust(&self, certificates: &[&impl Certified<Id = Id>]) -> bool {
        let trusted = |bundle: &Vec<Id>| certificates.iter().all(|certificate| bundle.contains(&certificate.id()));
        self.registrations.iter().all(trusted)
    }

    /// Whether each replica was seen to serve a leaf of this CA.
    pub(super) fn all_serve(&self, authority: &Id) -> bool {
        self.replicas.iter().all(|serving| matches!(serving, Serving::By(id) if id == authority))
    }

    /// Whether each replica was seen, and none serves a leaf of this CA.
    fn none_serves(&self, authority: &Id) -> bool {
        self.replicas.iter().all(|serving| match serving {
            Serving::By(id) => id != authority,
            Serving::Stranger => true,
            Serving::Unseen => false,
        })
    }

    /// The CAs for a registration: those that are required, and of those it has now each that a replica
    /// serves a leaf of, or may serve one of. Its expiry takes none away: an expired CA does no harm, and
    /// the clock that says so may be wrong.
    pub(super) fn bundle(&self, required: Vec<Id>, current: Vec<Id>) -> Vec<Id> {
        let mut bundle = required;
        for id in current {
            if !bundle.contains(&id) && !self.none_serves(&id) {
                bundle.push(id);
            }
        }
        bundle
    }
}

impl Observation {
    /// Reads what was seen: the `caBundle` of every hook of every registration that exists, and what each
    /// replica showed, `None` for one that could not be asked.
    #[must_use]
    pub fn of(state: Option<&State>, bundles: &[&[u8]], replicas: &[Option<Vec<CertificateDer<'_>>>]) -> Self {
        let registered: Vec<_> = bundles.iter().map(|bundle| Anchor::all_of_pem(bundle)).collect();
        let of_state = state.map(State::anchors).unwrap_or_default();
        let known = || of_state.iter().copied().chain(registered.iter().flatten());
        let serving = |chain: &Option<Vec<CertificateDer<'_>>>| match chain.as_deref() {
            None | Some([]) => Serving::Unseen,
            Some(chain) => known()
                .find(|anchor| chain.iter().any(|certificate| anchor.issued(certificate)))
                .map_or(Serving::Stranger, |anchor| Serving::By(anchor.id())),
        };
        Self {
            replicas: replicas.iter().map(serving).collect(),
            registrations: registered.iter().map(|bundle| bundle.iter().map(Certified::id).collect()).collect(),
        }
    }
}

/// The bundle for a registration that has this one now, as PEM blocks: all that the state asks for, and
/// no CA less while a replica serves a leaf of it or may do so.
///
/// It is right for the registration that was read before the state, so it must be written with the
/// resourceVersion of that reading.
#[must_use]
pub fn bundle_for(state: &State, current: &[u8], observation: &Observation) -> String {
    let present = Anchor::all_of_pem(current);
    let required = state.anchors();
    let ids = observation
        .bundle(required.iter().map(|anchor| anchor.id()).collect(), present.iter().map(Certified::id).collect());
    let anchors = || required.iter().copied().chain(&present);
    ids.iter().filter_map(|id| anchors().find(|anchor| anchor.fingerprint() == id)).map(Anchor::pem).collect()
}

/// Whether a registration has its bundle already, byte for byte.
#[must_use]
pub fn is_current(state: &State, current: &[u8], observation: &Observation) -> bool {
    bundle_for(state, current, observation).as_bytes() == current
}
