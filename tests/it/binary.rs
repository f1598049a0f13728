//! The built binary as a process, and a caller of it that behaves as kube-apiserver does.
//!
//! The caller is HTTP/1.1 over TLS on kept-alive connections, verifies the certificate for the webhook's
//! name as a Service, and holds each review's answer to the API server's own rules.

use std::convert::Infallible;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fs, thread};

use gpufence::server::tls::{Credentials, TlsError};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response, header, http};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::wire::assert_acceptable;

/// The name under which the API server calls the webhook.
pub const NAME: &str = "gpufence.gpufence.svc";

/// How long a test waits for what must happen. Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a future comes to; a test that would wait for ever fails and says for what.
pub async fn soon<T>(what: impl Display, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// `gpufence serve`, ready. Killed when dropped.
pub struct Server {
    child: Child,
    log: watch::Receiver<Log>,
    https: SocketAddr,
    metrics: SocketAddr,
    trust: TlsConnector,
    _directory: Option<TempDir>,
}

/// What the process has logged so far.
#[derive(Default)]
struct Log {
    lines: Vec<Value>,
    ended: bool,
}

impl Server {
    /// Serves a contract, given as YAML over the built-in one, with a certificate of a CA of its own.
    pub async fn start(contract: &str) -> Self {
        Self::start_draining(contract, "0s").await
    }

    /// The same, with a time to drain.
    pub async fn start_draining(contract: &str, drain: &str) -> Self {
        let authority = Authority::new();
        let directory = tempfile::tempdir().unwrap();
        authority.issue(&[NAME]).write(directory.path());
        let tls = files(directory.path());
        Self::start_with(contract, drain, &tls, trusting(authority.certificate())).await
    }

    /// Serves with this `tls` section, for callers with this trust.
    pub async fn start_with(contract: &str, drain: &str, tls: &str, trust: TlsConnector) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("contract.yaml");
        fs::write(&file, with_shell(contract, drain, tls)).unwrap();
        Self::spawn(&file, trust, Some(directory)).await
    }

    /// Serves the contract in this file, which has all that [`with_shell`] adds.
    pub async fn start_file(file: &Path, trust: TlsConnector) -> Self {
        Self::spawn(file, trust, None).await
    }

    async fn spawn(file: &Path, trust: TlsConnector, directory: Option<TempDir>) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gpufence"))
            .args(["serve", "--config"])
            .arg(file)
            // Whoever runs the tests may well have a cluster.
            .env("KUBECONFIG", "/dev/null")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = follow(child.stderr.take().unwrap());
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Self { child, log, https: nowhere, metrics: nowhere, trust, _directory: directory };
        let ready = server.logged("ready").await;
        let address = |key: &str| ready[key].as_str().unwrap().parse().unwrap();
        (server.https, server.metrics) = (address("https"), address("metrics"));
        server
    }

    /// Waits for a log line with this message.
    pub async fn logged(&self, message: &str) -> Value {
        let is_it = |line: &&Value| line["message"] == message;
        let mut log = self.log.clone();
        let seen = log.wait_for(|log| log.ended || log.lines.iter().any(|line| is_it(&line)));
        let log = soon(format_args!("the log line {message:?}"), seen).await.unwrap();
        let line = log.lines.iter().find(is_it);
        line.unwrap_or_else(|| panic!("ended without {message:?}: {:#?}", log.lines)).clone()
    }

    /// Where the webhooks are.
    pub fn https(&self) -> SocketAddr {
        self.https
    }

    /// Lets later callers trust something else.
    pub fn trust(&mut self, trust: TlsConnector) {
        self.trust = trust;
    }

    /// Opens a TCP connection and shakes hands.
    pub async fn try_dial(&self) -> io::Result<TlsStream<TcpStream>> {
        dial(self.https, &self.trust).await
    }

    /// Opens a connection for requests.
    pub async fn connect(&self) -> Connection {
        Connection::over(self.try_dial().await.unwrap()).await
    }

    /// Sends a review over a connection of its own.
    pub async fn review(&self, path: &str, review: &Value) -> (u16, Value) {
        self.connect().await.review(path, review).await
    }

    /// Asks the plain listener.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let reply = get(self.metrics, path).await;
        (reply.status, reply.text())
    }

    /// The metrics as text.
    pub async fn get_metrics(&self) -> String {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        text
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        // The shell's own: not every system has a program for it.
        let command = format!("kill -s {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    }

    /// Waits for the process to end by itself: its exit code and all that it logged.
    pub async fn ended(mut self) -> (Option<i32>, Vec<Value>) {
        let mut log = self.log.clone();
        let lines = soon("the end", log.wait_for(|log| log.ended)).await.unwrap().lines.clone();
        (self.child.wait().unwrap().code(), lines)
    }

    /// Stops the process, and returns the log lines of all its decisions.
    pub async fn decisions(self) -> Vec<Value> {
        self.signal("TERM");
        let (code, mut lines) = self.ended().await;
        assert_eq!(code, Some(0), "{lines:#?}");
        lines.retain(|line| line["target"] == "gpufence::decision");
        lines
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads log lines until the process closes its end.
fn follow(stderr: ChildStderr) -> watch::Receiver<Log> {
    let (sender, receiver) = watch::channel(Log::default());
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
            sender.send_modify(|log| log.lines.push(line));
        }
        sender.send_modify(|log| log.ended = true);
    });
    receiver
}

/// A kept-alive connection to the webhooks.
pub struct Connection {
    sender: http1::SendRequest<Body>,
    /// The certificate that the server showed.
    pub certificate: CertificateDer<'static>,
}

impl Connection {
    /// Over a connection that has shaken hands.
    pub async fn over(stream: TlsStream<TcpStream>) -> Self {
        let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        Self { sender: speak(TokioIo::new(stream)).await, certificate }
    }

    /// Sends a review as kube-apiserver does, and holds its answer to the API server's rules.
    pub async fn review(&mut self, path: &str, review: &Value) -> (u16, Value) {
        let reply = self.post(path, review.to_string()).await;
        if reply.status != 200 {
            return (reply.status, Value::String(reply.text()));
        }
        (200, reply.accepted(path, review["request"]["uid"].as_str().unwrap()))
    }

    /// Sends a body as kube-apiserver would.
    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.send(post(path).body(whole(body)).unwrap()).await
    }

    /// Sends a request.
    pub async fn send(&mut self, request: Request<Body>) -> Reply {
        let what = request.uri().to_string();
        self.sender.ready().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        match soon(&what, self.sender.send_request(request)).await {
            Ok(response) => Reply::of(response).await,
            Err(error) => panic!("{what}: {error}"),
        }
    }

    /// Asserts that the server still takes requests on this connection.
    pub async fn assert_open(&mut self) {
        let ready = soon("the connection", self.sender.ready()).await;
        assert!(ready.is_ok(), "the server closed the connection: {ready:?}");
    }

    /// Waits until the server has closed the connection.
    pub async fn closed(&self) {
        let closed = async {
            while !self.sender.is_closed() {
                yield_now().await;
            }
        };
        soon("the close of a connection", closed).await;
    }
}

/// Opens a TCP connection to the webhooks and shakes hands.
pub async fn dial(https: SocketAddr, trust: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(https).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(NAME).unwrap();
    soon("the handshake", trust.connect(name, stream)).await
}

/// Asks the plain listener.
pub async fn get(admin: SocketAddr, path: &str) -> Reply {
    let stream = TcpStream::connect(admin).await.unwrap();
    let request = Request::get(path).header(header::HOST, "localhost").body(whole("")).unwrap();
    let mut sender = speak(TokioIo::new(stream)).await;
    Reply::of(soon(path, sender.send_request(request)).await.unwrap()).await
}

/// A contract with what a server in a test needs besides.
pub fn with_shell(contract: &str, drain: &str, tls: &str) -> String {
    format!(
        "{contract}\n\
         server: {{listen: '127.0.0.1:0', metrics: '127.0.0.1:0', drain: {drain}}}\n\
         log: {{format: json}}\n\
         tls: {tls}\n"
    )
}

async fn speak<IO>(io: IO) -> http1::SendRequest<Body>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    async fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = soon("the answer's body", body.collect()).await.unwrap().to_bytes();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The AdmissionReview that the API server accepts as the answer to this uid.
    pub fn accepted(&self, path: &str, uid: &str) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header(header::CONTENT_TYPE), Some("application/json"));
        assert_acceptable(&self.body, uid, path.ends_with("/mutate"));
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The request that kube-apiserver makes.
pub fn post(path: &str) -> http::request::Builder {
    Request::post(format!("{path}?timeout=10s"))
        .header(header::HOST, format!("{NAME}:443"))
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT_ENCODING, "gzip")
}

/// A request's body.
pub type Body = BoxBody<Bytes, Infallible>;

/// A body that is there from the start.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

/// A body that is sent piece by piece, and ends when the sender is dropped. Chunked, unless the request
/// has a Content-Length.
pub fn pieces() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Pieces(receiver).boxed())
}

struct Pieces(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.0.der()
    }

    /// A certificate for these names, with its key.
    pub fn issue(&self, names: &[&str]) -> Leaf {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        Leaf { certificate, key }
    }
}

/// A server's certificate with its key.
pub struct Leaf {
    pub certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Leaf {
    /// As the server takes them from memory.
    pub fn credentials(&self) -> Result<Credentials, TlsError> {
        Credentials::from_der(vec![self.certificate.der().to_vec()], self.key_der())
    }

    /// The key in PKCS #8.
    pub fn key_der(&self) -> Vec<u8> {
        self.key.serialize_der()
    }

    /// The certificate as a PEM file holds it.
    pub fn pem(&self) -> String {
        self.certificate.pem().replace("\r\n", "\n")
    }

    /// Writes `tls.crt` and `tls.key`, as a Secret holds them.
    pub fn write(&self, directory: &Path) {
        fs::write(directory.join("tls.crt"), self.certificate.pem()).unwrap();
        fs::write(directory.join("tls.key"), self.key.serialize_pem()).unwrap();
    }
}

/// The `tls` section for the files of a Secret in this directory.
pub fn files(directory: &Path) -> String {
    let file = |name| directory.join(name).display().to_string();
    format!("{{source: files, cert: '{}', key: '{}'}}", file("tls.crt"), file("tls.key"))
}

/// A caller that trusts one certificate or what it has signed, as a webhook's `caBundle` says.
pub fn trusting(root: &CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    connector(|config| config.with_root_certificates(roots).with_no_client_auth())
}

/// A caller's TLS, with the one protocol that kube-apiserver offers to a Service.
pub fn connector(
    verify: impl FnOnce(rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>) -> ClientConfig,
) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = verify(builder);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}
