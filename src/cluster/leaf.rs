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
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::time::{MissedTickBehavior, interval};

use super::Installation;
use super::authority::{data, is_ours};
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
    Watch(String, kube::runtime::watcher::Error),
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
    let mut changes = pin!(watch_object(secrets, &name).default_backoff());
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let names = &installation.certificate_names;
    let mut authority: Option<Authority> = None;
    let mut served: Option<Leaf> = None;
    let mut last_fault = String::new();
    loop {
        let looked = tokio::select! {
            change = changes.next() => match change {
                Some(Ok(secret)) => signing(secret.as_ref(), &name).map(|signing| authority = Some(signing)),
                Some(Err(error)) => Err(LeafError::Watch(name.clone(), error)),
                // kube's watcher does not end.
                None => { looks.tick().await; Ok(()) }
            },
            _ = looks.tick() => Ok(()),
        };
        let now = OffsetDateTime::now_utc();
        let renewed = looked.and_then(|()| {
            let Some(authority) = &authority else { return Ok(()) };
            let is_current = |leaf: &Leaf| leaf.authority == authority.fingerprint() && !leaf.is_due(now);
            if served.as_ref().is_some_and(is_current) {
                return Ok(());
            }
            let issued = authority.issue(names, schedule.leaf_validity, now);
            let leaf = issued.map_err(|error| LeafError::Signing(name.clone(), error))?;
            serve(served.insert(leaf), authority);
            Ok(())
        });
        match renewed {
            Ok(()) => last_fault.clear(),
            Err(error) => {
                let fault = error.to_string();
                if fault != last_fault {
                    tracing::warn!(error = fault, "no new certificate; the one that is served stays");
                    last_fault = fault;
                }
            }
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
        State::signing_from_data(&data(secret)).map_err(|error| LeafError::Data(name.to_owned(), error.into()))?;
    found.ok_or_else(absent)
}
