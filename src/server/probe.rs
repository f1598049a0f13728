//! The server's own first request.
//!
//! A socket that listens proves little: the process is ready once a caller that trusts exactly the
//! certificate being served got an HTTP answer over TLS.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::tls::{Identity, provider};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// How long one try may take: as long as any handshake.
const TRY: Duration = Duration::from_secs(5);

/// The smallest request that goes all the way to the router without being a review.
const REQUEST: &[u8] = b"GET /mutate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// How the answer to it begins.
const ANSWER: &[u8] = b"HTTP/1.1 405 ";

type Fault = Box<dyn Error + Send + Sync>;

/// Tries until the server answers on `address` with the certificate that it should serve.
pub(super) async fn until_answered(address: SocketAddr, identity: &Identity) {
    let address = reachable(address);
    let mut logged = false;
    loop {
        let fault = match timeout(TRY, answered(address, identity)).await {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        if !logged {
            tracing::warn!(%address, fault, "the server does not answer its own request yet");
            logged = true;
        }
        sleep(PAUSE).await;
    }
}

async fn answered(address: SocketAddr, identity: &Identity) -> Result<(), Fault> {
    let provider = provider();
    let verifier = Exactly {
        certificate: identity.current().certificate().clone(),
        algorithms: provider.signature_verification_algorithms,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await?;
    let mut stream = connector.connect(ServerName::try_from("localhost")?, stream).await?;
    stream.write_all(REQUEST).await?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer).await?;
    if answer == ANSWER {
        Ok(())
    } else {
        Err(format!("unexpected answer {:?}", String::from_utf8_lossy(&answer)).into())
    }
}

/// A server that listens on every address is reached on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Trusts one certificate, byte for byte, and still wants proof of its key.
#[derive(Debug)]
struct Exactly {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Exactly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_all_is_probed_on_loopback() {
        let probed = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(probed("0.0.0.0:8443"), "127.0.0.1:8443");
        assert_eq!(probed("[::]:8443"), "[::1]:8443");
        assert_eq!(probed("127.0.0.2:8443"), "127.0.0.2:8443");
    }
}
