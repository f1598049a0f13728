//! The certificate of a replica: made by the replica itself, in memory, from the CA in the Secret.
//!
//! No private key of a certificate is ever written anywhere, nothing waits for the kubelet to bring a file,
//! and a replica that starts has its certificate at once. It is renewed by the wall clock, looked at often,
//! so that a machine that slept renews when it wakes.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::time::{MissedTickBehavior, interval};

use super::authority::{data, is_ours};
use super::{Installation, WATCH_SECONDS};
use crate::certificate::rotation::{DataError, Schedule, State};
use crate::certificate::{Authority, Leaf};

/// How often the clock is asked whether a renewal is due.
const LOOK: Duration = Duration::from_secs(30);

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum LeafError {
    /// The Secret is not there, or holds nothing yet.
    #[error("there is no CA yet; the controller puts it into the Secret {0}")]
    Absent(String),
    /// The Secret is somebody else's.
    #[error("the Secret {0} is not gpufence's: it has no label app.kubernetes.io/name=gpufence")]
    Foreign(String),
    /// The Secret's content cannot be used.
    #[error("the Secret {0}: {1}")]
    Data(String, Box<DataError>),
    /// The CA cannot sign.
    #[error("the CA in the Secret {0} cannot sign: {1}")]
    Signing(String, crate::certificate::AuthorityError),
    /// The API server does not say what is in the Secret.
    #[error("the Secret {0} cannot be watched: {1}")]
    Watch(String, Box<watcher::Error>),
}

/// Follows the CA for ever, and hands each new certificate, with the CA that signed it, to `serve`. While
/// anything is wrong the last certificate stays, and the fault is logged once.
pub async fn follow(
    client: Client,
    installation: Installation,
    schedule: Schedule,
    mut serve: impl FnMut(&Leaf, &Authority),
) -> Infallible {
    let name = installation.authority.clone();
    let secrets = Api::<Secret>::namespaced(client, &installation.namespace);
    let one = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut changes = pin!(watcher(secrets, one).default_backoff());
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let names = &installation.certificate_names;
    let mut authority: Option<Authority> = None;
    let mut served: Option<Leaf> = None;
    // Whether the list that is being read has the Secret.
    let mut listed = false;
    let mut unread = None;
    let mut last_fault = None;
    loop {
        let read = tokio::select! {
            change = changes.next() => match change {
                Some(Ok(Event::Init)) => { listed = false; None }
                Some(Ok(Event::InitApply(secret))) => { listed = true; Some(signing(Some(&secret), &name)) }
                Some(Ok(Event::Apply(secret))) => Some(signing(Some(&secret), &name)),
                Some(Ok(Event::InitDone)) => (!listed).then(|| signing(None, &name)),
                Some(Ok(Event::Delete(_))) => Some(signing(None, &name)),
                Some(Err(error)) => Some(Err(LeafError::Watch(name.clone(), Box::new(error)))),
                // kube's watcher does not end.
                None => { looks.tick().await; None }
            },
            _ = looks.tick() => None,
        };
        match read {
            Some(Ok(read)) => (authority, unread) = (Some(read), None),
            Some(Err(error)) => unread = Some(error),
            // Whatever was wrong before still is.
            None => {}
        }
        let now = OffsetDateTime::now_utc();
        let mut unsigned = None;
        if let Some(authority) = &authority {
            let is_current = |leaf: &Leaf| leaf.authority == authority.fingerprint() && !leaf.is_due(now);
            if !served.as_ref().is_some_and(is_current) {
                match authority.issue(names, schedule.leaf_validity, now) {
                    Ok(leaf) => serve(served.insert(leaf), authority),
                    Err(error) => unsigned = Some(LeafError::Signing(name.clone(), error)),
                }
            }
        }
        let fault = unread.as_ref().or(unsigned.as_ref()).map(ToString::to_string);
        if fault != last_fault {
            if let Some(error) = &fault {
                tracing::warn!(error, "no new certificate; the one that is served stays");
            }
            last_fault = fault;
        }
    }
}

fn signing(secret: Option<&Secret>, name: &str) -> Result<Authority, LeafError> {
    let absent = || LeafError::Absent(name.to_owned());
    let secret = secret.ok_or_else(absent)?;
    if !is_ours(secret) {
        return Err(LeafError::Foreign(name.to_owned()));
    }
    let found =
        State::signing_from_data(&data(secret)).map_err(|error| LeafError::Data(name.to_owned(), Box::new(error)))?;
    found.ok_or_else(absent)
}
