//! The rotation with real certificates: a whole one, what the Secret says of it, and each odd turn.

use super::*;
use crate::certificate::{Leaf, verify};

use rustls::pki_types::CertificateDer;
use time::macros::datetime;

const NOW: OffsetDateTime = datetime!(2027-03-01 12:00 UTC);
const NAME: &str = "gpufence.gpufence.svc";

/// A cluster of two registrations and some replicas, and one who drives the rotation in it.
struct Cluster {
    secret: Data,
    registrations: [Vec<u8>; 2],
    replicas: Vec<Option<Leaf>>,
    now: OffsetDateTime,
    schedule: Schedule,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self {
            secret: Data::new(),
            registrations: [vec![], vec![]],
            replicas: vec![None, None],
            now: NOW,
            schedule: Schedule::default(),
        };
        assert_eq!(cluster.round(), Some(Reason::Initialised));
        cluster.serve();
        assert_eq!(cluster.round(), None);
        cluster
    }

    fn state(&self) -> State {
        State::from_data(&self.secret).unwrap().unwrap()
    }

    fn observation(&self) -> Observation {
        let bundles = self.registrations.each_ref().map(Vec::as_slice);
        let chain = |leaf: &Option<Leaf>| leaf.as_ref().map(|leaf| leaf.chain.clone());
        let chains: Vec<Option<Vec<CertificateDer<'_>>>> = self.replicas.iter().map(chain).collect();
        Observation::of(State::from_data(&self.secret).unwrap().as_ref(), &bundles, &chains)
    }

    /// One round, through the Secret's data; the registrations get their bundles.
    fn round(&mut self) -> Option<Reason> {
        let state = State::from_data(&self.secret).unwrap();
        let observation = self.observation();
        let reason = match step(state.as_ref(), self.now, &observation, &self.schedule).unwrap() {
            Step::Keep => None,
            Step::Write(state, reason) => {
                self.secret = state.to_data();
                assert_eq!(self.state(), state, "what is written is what is read");
                Some(reason)
            }
        };
        let state = self.state();
        for registration in &mut self.registrations {
            let bundle = bundle_for(&state, registration, &observation);
            assert_eq!(is_current(&state, registration, &observation), bundle.as_bytes() == registration);
            *registration = bundle.into_bytes();
        }
        reason
    }

    /// Every replica looks at the Secret and at its clock.
    fn serve(&mut self) {
        for at in 0..self.replicas.len() {
            self.serve_one(at);
        }
    }

    fn serve_one(&mut self, at: usize) {
        let signing = State::signing_from_data(&self.secret).unwrap().unwrap();
        let good = |leaf: &Leaf| leaf.authority == signing.fingerprint() && !leaf.is_due(self.now);
        if !self.replicas[at].as_ref().is_some_and(good) {
            self.replicas[at] = Some(signing.issue(&[NAME.to_owned()], self.schedule.leaf_validity, self.now).unwrap());
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Every API server accepts every replica, with its bundle of now or that of before.
    fn assert_accepted(&self, held: &[&[u8]]) {
        for leaf in self.replicas.iter().flatten() {
            for bundle in self.registrations.iter().map(Vec::as_slice).chain(held.iter().copied()) {
                assert_eq!(verify(&leaf.chain, bundle, NAME, self.now), Ok(()));
                shake_hands(leaf, bundle, self.now);
            }
        }
    }

    fn names(&self) -> Vec<String> {
        Anchor::all_of_pem(&self.registrations[0]).iter().map(|anchor| anchor.name().to_owned()).collect()
    }
}

/// A TLS handshake in memory, at a time of ours.
fn shake_hands(leaf: &Leaf, bundle: &[u8], now: OffsetDateTime) {
    #[derive(Debug)]
    struct At(OffsetDateTime);
    impl rustls::time_provider::TimeProvider for At {
        fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
            let seconds = u64::try_from(self.0.unix_timestamp()).ok()?;
            Some(rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
        }
    }
    use std::sync::Arc;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clock: Arc<dyn rustls::time_provider::TimeProvider> = Arc::new(At(now));
    let mut roots = rustls::RootCertStore::empty();
    for anchor in Anchor::all_of_pem(bundle) {
        roots.add(anchor.der().clone()).unwrap();
    }
    let client = rustls::ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_details(provider, clock)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(leaf.chain.clone(), leaf.key.clone_key())
        .unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(client), NAME.try_into().unwrap()).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
}

#[test]
fn a_whole_rotation_fails_no_handshake() {
    let mut cluster = Cluster::new();
    let first = cluster.state().signing().clone();
    cluster.assert_accepted(&[]);
    // A month passes on a machine that slept: the leaves are long out of date, and renewed at the first look.
    cluster.pass(Duration::days(30));
    cluster.serve();
    cluster.assert_accepted(&[]);
    assert_eq!(cluster.round(), None);

    cluster.pass(Duration::days(152) + Duration::hours(11));
    assert_eq!(cluster.round(), None, "not yet half of its life");
    cluster.pass(Duration::hours(1));
    let before = cluster.registrations[0].clone();
    cluster.serve();
    assert_eq!(cluster.round(), Some(Reason::Due));
    assert_eq!(cluster.state().phase(), Phase::Publish);
    assert_eq!(cluster.names().len(), 2);
    cluster.serve();
    cluster.assert_accepted(&[&before]);
    assert_eq!(cluster.state().signing(), &first, "the next one is published and does not sign");

    assert_eq!(cluster.round(), Some(Reason::Published));
    assert_eq!(cluster.state().phase(), Phase::Soak);
    cluster.pass(Duration::minutes(5) - Duration::SECOND);
    assert_eq!(cluster.round(), None);
    cluster.pass(Duration::SECOND);
    let both = cluster.registrations[0].clone();
    assert_eq!(cluster.round(), Some(Reason::Soaked));
    assert_ne!(cluster.state().signing(), &first);
    cluster.assert_accepted(&[&both]);
    cluster.serve_one(0);
    cluster.assert_accepted(&[&both]);
    cluster.pass(Duration::hours(24));
    assert_eq!(cluster.round(), None, "one replica still serves a leaf of the old CA");
    cluster.replicas[1] = None;
    assert_eq!(cluster.round(), None, "one replica serves nobody knows what");
    cluster.serve();
    cluster.assert_accepted(&[&both]);
    assert_eq!(cluster.round(), Some(Reason::Retired));
    assert_eq!(cluster.state().phase(), Phase::Stable);
    assert_eq!(cluster.names(), [cluster.state().signing().anchor().name()]);
    cluster.assert_accepted(&[&both]);
    assert_eq!(cluster.round(), None);
}

#[test]
fn what_lies_unused_for_years_serves_again_after_one_round() {
    let mut cluster = Cluster::new();
    let first = cluster.state().signing().clone();
    cluster.pass(Duration::days(400));
    assert_eq!(cluster.round(), Some(Reason::Emergency));
    assert!(Reason::Emergency.is_emergency());
    cluster.serve();
    cluster.assert_accepted(&[]);
    assert_ne!(cluster.state().signing(), &first);
    assert_eq!(cluster.round(), Some(Reason::PreviousExpired));
    assert_eq!(cluster.names().len(), 1);
    cluster.assert_accepted(&[]);
}

#[test]
fn an_expired_authority_is_followed_by_the_one_that_is_published_already() {
    let mut cluster = Cluster::new();
    cluster.pass(Duration::days(190));
    assert_eq!(cluster.round(), Some(Reason::Due));
    let State::Publish { next, .. } = cluster.state() else { panic!("published") };
    cluster.pass(Duration::days(175));
    assert_eq!(cluster.round(), Some(Reason::Emergency));
    assert_eq!(cluster.state().signing(), &next);
    cluster.serve();
    cluster.assert_accepted(&[]);
}

#[test]
fn a_next_authority_that_has_waited_too_long_is_replaced() {
    let mut cluster = Cluster::new();
    cluster.pass(Duration::days(190));
    cluster.round();
    let State::Publish { signing, next, .. } = cluster.state() else { panic!("published") };
    let stale = Authority::generate(cluster.now - Duration::days(365), Duration::days(365)).unwrap();
    let waiting = State::Publish { signing, next: stale, published_at: None };
    cluster.secret = waiting.to_data();
    assert_eq!(cluster.round(), Some(Reason::NextUnusable));
    let State::Publish { next: another, .. } = cluster.state() else { panic!("published") };
    assert_ne!(another, next);
    assert!(another.not_after() > cluster.now + Duration::days(364));
}

#[test]
fn the_soak_begins_anew_when_a_registration_has_lost_its_bundle() {
    let mut cluster = Cluster::new();
    cluster.pass(Duration::days(190));
    cluster.serve();
    cluster.round();
    assert_eq!(cluster.round(), Some(Reason::Published));
    cluster.registrations[1].clear();
    cluster.pass(Duration::minutes(10));
    assert_eq!(cluster.round(), Some(Reason::Lost), "rather than switching");
    cluster.assert_accepted(&[]);
    assert_eq!(cluster.round(), Some(Reason::Published));
    cluster.pass(Duration::minutes(5));
    assert_eq!(cluster.round(), Some(Reason::Soaked));
}

#[test]
fn a_clock_that_is_set_back_breaks_nothing() {
    let mut cluster = Cluster::new();
    cluster.pass(Duration::days(190));
    cluster.serve();
    cluster.round();
    cluster.round();
    let soaking = cluster.state();
    cluster.pass(-Duration::minutes(30));
    assert_eq!(cluster.round(), Some(Reason::ClockSetBack));
    cluster.pass(Duration::minutes(5));
    assert_eq!(cluster.round(), Some(Reason::Soaked), "five minutes of this clock are enough");
    cluster.pass(-Duration::minutes(20));
    assert_eq!(cluster.round(), Some(Reason::ClockSetBack));
    cluster.assert_accepted(&[soaking.bundle_pem().as_bytes()]);

    // A year back, far before any of the CAs: one that is valid by this clock follows in good order, and
    // the one that replicas serve leaves of stays in the registrations.
    let before = cluster.registrations[0].clone();
    cluster.pass(-Duration::days(365));
    assert_eq!(cluster.round(), Some(Reason::Due));
    let kept: Vec<_> = Anchor::all_of_pem(&cluster.registrations[0]);
    assert!(Anchor::all_of_pem(&before).iter().all(|anchor| {
        let serves = cluster.replicas.iter().flatten().any(|leaf| leaf.authority == anchor.fingerprint());
        !serves || kept.contains(anchor)
    }));
    assert_eq!(cluster.round(), Some(Reason::Published));
    cluster.pass(Duration::minutes(5));
    assert_eq!(cluster.round(), Some(Reason::Soaked));
    cluster.serve();
    for leaf in cluster.replicas.iter().flatten() {
        assert_eq!(verify(&leaf.chain, &cluster.registrations[0], NAME, cluster.now), Ok(()));
    }
}

#[test]
fn a_registration_keeps_a_stranger_while_a_replica_serves_its_leaf() {
    let mut cluster = Cluster::new();
    let theirs = Authority::generate(NOW, Duration::days(90)).unwrap();
    let unused = Authority::generate(NOW, Duration::days(90)).unwrap();
    let leaf = theirs.issue(&[NAME.to_owned()], Duration::days(7), NOW).unwrap();
    cluster.replicas.push(Some(leaf));
    cluster.registrations[0].extend((theirs.certificate_pem() + &unused.certificate_pem()).into_bytes());
    assert_eq!(cluster.observation().replicas[2], Serving::By(theirs.fingerprint().to_owned()));
    cluster.round();
    let kept = Anchor::all_of_pem(&cluster.registrations[0]);
    assert!(kept.contains(theirs.anchor()), "a replica needs it");
    assert!(!kept.contains(unused.anchor()), "nobody needs it");
    assert_eq!(cluster.observation().replicas[2], Serving::By(theirs.fingerprint().to_owned()));
    cluster.replicas[2] = None;
    cluster.round();
    assert!(Anchor::all_of_pem(&cluster.registrations[0]).contains(theirs.anchor()), "a replica may need it");
    cluster.replicas.pop();
    cluster.round();
    assert_eq!(cluster.registrations[0], cluster.state().bundle_pem().into_bytes());
    cluster.replicas.push(Some(theirs.issue(&[NAME.to_owned()], Duration::days(7), NOW).unwrap()));
    assert_eq!(cluster.observation().replicas[2], Serving::Stranger);
}
