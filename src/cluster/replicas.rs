//! The webhook's pods, and the certificate that each of them serves.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Installation;

/// How long a replica may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(2);

const HTTPS_PORT: &str = "https";
const METRICS_PORT: &str = "metrics";

/// A pod of the webhook that may serve: also one that is just starting or ending.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    pub(super) name: String,
    /// Whether API servers reach it through the Service.
    pub(super) is_ready: bool,
    /// The port of its health and metrics.
    pub(super) metrics_port: Option<u16>,
    https: Option<SocketAddr>,
}

/// The replicas as the API server knows them.
pub(super) async fn list(client: &Client, installation: &Installation) -> Result<Vec<Replica>, kube::Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), &installation.namespace);
    let found = pods.list(&ListParams::default().labels(&installation.replicas)).await?;
    Ok(found.items.iter().filter_map(Replica::of).collect())
}

impl Replica {
    /// `None` for a pod that has ended.
    fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.clone().unwrap_or_default();
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let ports: Vec<_> = containers.flat_map(|container| container.ports.iter().flatten()).collect();
        let port = |name: &str| {
            let found = ports.iter().find(|port| port.name.as_deref() == Some(name))?;
            u16::try_from(found.container_port).ok()
        };
        let address = status.pod_ip.as_deref().and_then(|address| address.parse::<IpAddr>().ok());
        let mut conditions = status.conditions.iter().flatten();
        Some(Self {
            name: pod.metadata.name.clone()?,
            is_ready: pod.metadata.deletion_timestamp.is_none()
                && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            metrics_port: port(METRICS_PORT),
            https: address.zip(port(HTTPS_PORT)).map(|(address, port)| SocketAddr::new(address, port)),
        })
    }
}

/// The certificate chains that the replicas serve now, in their order; where one does not answer, why.
pub(super) async fn chains(
    replicas: &[Replica],
    server_name: &str,
) -> Vec<Result<Vec<CertificateDer<'static>>, String>> {
    join_all(replicas.iter().map(|replica| chain(replica.https, server_name))).await
}

async fn chain(address: Option<SocketAddr>, server_name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let address = address.ok_or("it has no address yet")?;
    let handshake = async {
        let name = ServerName::try_from(server_name.to_owned()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(any_certificate().map_err(|error| error.to_string())?));
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(chain.iter().map(|certificate| certificate.clone().into_owned()).collect())
    };
    let answered = timeout(HANDSHAKE, handshake).await;
    answered.unwrap_or_else(|_| Err(format!("no TLS handshake within {} s", HANDSHAKE.as_secs())))
}

fn any_certificate() -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Possession(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Takes any certificate whose key the other side has. Whether it is to be trusted is asked afterwards, of
/// the bundle that API servers hold, and no more than the handshake is done over the connection.
#[derive(Debug)]
struct Possession(Arc<CryptoProvider>);

impl ServerCertVerifier for Possession {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
