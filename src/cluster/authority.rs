//! The Secret that holds the CA, and all that its rotation has to remember.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};

use super::{Installation, Said, has_code};
use crate::certificate::rotation::{Data, DataError, State};

/// The label by which a Secret is known to be ours, with its value.
const OWNER: (&str, &str) = ("app.kubernetes.io/name", "gpufence");

/// Why the CA is not known, or could not be stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorityError {
    /// There is no Secret: it comes, empty, with the manifests.
    #[error("there is no Secret {name} in the namespace {namespace}; apply the output of `gpufence manifests`")]
    Missing {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// The Secret is somebody else's.
    #[error(
        "the Secret {name} in the namespace {namespace} has no label {}={}, so it is not gpufence's and is let alone; \
         remove it, and apply the output of `gpufence manifests`", OWNER.0, OWNER.1
    )]
    Foreign {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// The Secret holds something else than it should.
    #[error("the Secret {name} in the namespace {namespace}: {source}")]
    Data {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// What is wrong with it.
        source: DataError,
    },
    /// The API server did not answer.
    #[error("the Secret {name} in the namespace {namespace}: {}", Said(.source))]
    Api {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// What the API server said.
        source: kube::Error,
    },
}

/// Reads and writes the Secret.
#[derive(Debug)]
pub(super) struct Store {
    api: Api<Secret>,
    name: String,
    namespace: String,
}

/// The Secret as it was read; only it can be replaced.
#[derive(Debug)]
pub(super) struct Stored {
    secret: Secret,
    /// `None` where nothing has been stored yet.
    pub(super) state: Option<State>,
}

impl Store {
    pub(super) fn new(client: Client, installation: &Installation) -> Self {
        let Installation { namespace, authority, .. } = installation;
        Self { api: Api::namespaced(client, namespace), name: authority.clone(), namespace: namespace.clone() }
    }

    /// Reads the Secret from the API server itself: a cache may be older than what another controller wrote.
    pub(super) async fn read(&self) -> Result<Stored, AuthorityError> {
        let (name, namespace) = (self.name.clone(), self.namespace.clone());
        let found = self.api.get_opt(&self.name).await.map_err(|source| self.failed(source))?;
        let Some(secret) = found else { return Err(AuthorityError::Missing { name, namespace }) };
        if !is_ours(&secret) {
            return Err(AuthorityError::Foreign { name, namespace });
        }
        let state =
            State::from_data(&data(&secret)).map_err(|source| AuthorityError::Data { name, namespace, source })?;
        Ok(Stored { secret, state })
    }

    /// Replaces what was read. Whether nobody else was faster.
    pub(super) async fn replace(&self, stored: Stored, state: &State) -> Result<bool, AuthorityError> {
        let data = state.to_data().into_iter().map(|(key, value)| (key, ByteString(value))).collect();
        let secret = Secret { data: Some(data), ..stored.secret };
        match self.api.replace(&self.name, &PostParams::default(), &secret).await {
            Ok(_) => Ok(true),
            Err(error) if has_code(&error, 409) => Ok(false),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: kube::Error) -> AuthorityError {
        AuthorityError::Api { name: self.name.clone(), namespace: self.namespace.clone(), source }
    }
}

/// Whether the Secret was made for us.
pub(super) fn is_ours(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(OWNER.0)).is_some_and(|value| value == OWNER.1)
}

/// What the Secret holds.
pub(super) fn data(secret: &Secret) -> Data {
    secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
}
