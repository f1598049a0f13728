use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::Listener;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api::admin;
use crate::cluster::cluster;
use crate::fence::Fence;
use crate::objects::{Pod, api_server_object};
use crate::poll;

/// Whether the rival is called before our webhook or after it. The API server goes by the names of the
/// configurations.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    Before,
    After,
}

/// Another mutating webhook. Ends when dropped.
#[derive(Debug)]
pub struct Rival {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Rival {
    /// Answers with the JSON patch that is made of the pod.
    pub fn serving(change: fn(&Value) -> Value) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let answer = move |body: String| async move {
            counter.fetch_add(1, Ordering::Relaxed);
            let review: Value = serde_json::from_str(&body).unwrap();
            let patch = change(&review["request"]["object"]).to_string();
            let response = json!({
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": {
                    "uid": review["request"]["uid"],
                    "allowed": true,
                    "patchType": "JSONPatch",
                    "patch": STANDARD.encode(patch),
                },
            });
            ([(CONTENT_TYPE, "application/json")], response.to_string())
        };
        let router = Router::new().route("/", post(answer));
        let listener = cluster().runtime.block_on(Tls::listen());
        let address = listener.local_addr().unwrap();
        let serving = cluster().runtime.spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { address, calls, serving }
    }

    /// Registers it for the creation of pods in the fence's namespaces, and waits until it is called.
    pub fn register(&self, fence: &Fence, order: Order, reinvocation_policy: &str) {
        let name = match order {
            Order::Before => "a-rival",
            Order::After => "z-rival",
        };
        let mut webhook = fence.webhook(&format!("{name}.example.com"), self.address.port(), "/");
        webhook["reinvocationPolicy"] = reinvocation_policy.into();
        webhook["rules"] =
            json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let probe = Pod::named("probe").in_namespace(&fence.namespace("probe"));
        let fields = json!({"webhooks": [webhook]});
        fence.make(&api_server_object("MutatingWebhookConfiguration", &fence.unique(name), &fields));
        poll::until("the API server calls the rival", Duration::from_secs(20), || {
            let reply = admin().dry_run().create(&probe);
            if self.calls.load(Ordering::Relaxed) > 0 { Ok(()) } else { Err(format!("{reply:#?}")) }
        });
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Tls {
    async fn listen() -> Self {
        let certificates = &cluster().certificates;
        let chain = CertificateDer::pem_file_iter(&certificates.certificate).unwrap().collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_file(&certificates.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain.unwrap(), key).unwrap();
        let listener = TcpListener::bind((cluster().webhook_address, 0)).await.unwrap();
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.listener.accept().await else { continue };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
