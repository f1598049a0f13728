use std::fmt;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{Request, Uri};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::api::get_plain;
use crate::certificates::Certificates;
use crate::process::{Leash, Process};
use crate::{features, poll};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How long etcd and the API server may take to start. It is some seconds even on a busy machine.
const START: Duration = Duration::from_secs(60);

const TOKEN: &str = Cluster::TOKEN;

const NO_CLUSTER: &str = "there is no API server to test against. Set KUBEBUILDER_ASSETS to a folder with etcd and \
                          kube-apiserver (tests/e2e/assets.sh makes one and prints it), or KUBECONFIG to the \
                          kubeconfig of a cluster";

/// The API server that all tests share.
pub struct Cluster {
    /// Where all requests and the rivals run: a client belongs to one runtime, and a test has none.
    pub runtime: Runtime,
    /// Asks as the administrator.
    pub client: Client,
    /// How the API server is reached, where it was started here.
    pub started: Option<Started>,
    /// The webhooks' certificates.
    pub certificates: Certificates,
    /// The host under which the API server reaches this machine.
    pub webhook_host: String,
    /// The address on which it does.
    pub webhook_address: IpAddr,
    scratch: TempDir,
    unique: AtomicUsize,
    _processes: Vec<Process>,
    _scratch_leash: Leash,
}

/// An API server that was started here.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its URL.
    pub url: String,
    /// The file with the CA of its certificate.
    pub authority: PathBuf,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

/// The API server, started or found when the first test asks for it.
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    // What fails here fails every test, and at once: hence a stored message rather than a panic in here,
    // after which each test would try again.
    let opened = CLUSTER.get_or_init(|| {
        std::panic::catch_unwind(open).map_err(|panic| match panic.downcast::<String>() {
            Ok(message) => *message,
            Err(panic) => {
                panic.downcast::<&str>().map_or_else(|_| "the cluster failed".to_owned(), |text| text.to_string())
            }
        })
    });
    opened.as_ref().unwrap_or_else(|message| panic!("{message}"))
}

impl Cluster {
    /// The administrator's token for an API server that was started here.
    pub const TOKEN: &str = "e2e-administrator";

    /// A part of a name that nothing else in the cluster has, not even of an earlier run.
    pub fn unique(&self) -> String {
        let run = self.scratch.path().file_name().unwrap().to_string_lossy().to_lowercase();
        format!("{run}-{}", self.unique.fetch_add(1, Ordering::Relaxed))
    }

    /// A new folder that is gone after the run.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.scratch.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    }
}

fn open() -> Cluster {
    // Its random end also tells this run's objects from those of others.
    let scratch = tempfile::Builder::new().prefix("e2e").rand_bytes(5).tempdir().unwrap();
    // Once more after a moment, for what a process that is being killed still writes.
    let remove = "rm -rf -- \"$1\" || { sleep 1; rm -rf -- \"$1\"; }";
    let scratch_leash = Leash::new(remove, scratch.path().to_str().unwrap());
    let runtime = Runtime::new().unwrap();
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut processes = Vec::new();
    let (kubeconfig, started) = match variable("KUBEBUILDER_ASSETS") {
        Some(assets) => {
            let started = start(&runtime, Path::new(&assets), scratch.path(), &mut processes);
            (started.kubeconfig(TOKEN), Some(started))
        }
        None if variable("KUBECONFIG").is_some() => {
            (Kubeconfig::read().unwrap_or_else(|error| panic!("{error}")), None)
        }
        None => panic!("{NO_CLUSTER}"),
    };
    let config = runtime.block_on(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()));
    let mut config = config.unwrap_or_else(|error| panic!("cannot use the kubeconfig: {error}"));
    // A test wants to see the first answer.
    config.default_retry = false;
    let (webhook_host, webhook_address) = webhook_host(&config.cluster_url);
    let client = {
        let _in_runtime = runtime.enter();
        Client::try_from(config).unwrap_or_else(|error| panic!("cannot use the kubeconfig: {error}"))
    };
    let version = runtime.block_on(client.apiserver_version());
    let version = version.unwrap_or_else(|error| panic!("the API server does not answer: {error}"));
    features::tell(&format!("the API server is {}", version.git_version));
    Cluster {
        certificates: Certificates::make(scratch.path(), &webhook_host),
        runtime,
        client,
        started,
        webhook_host,
        webhook_address,
        scratch,
        unique: AtomicUsize::new(0),
        _processes: processes,
        _scratch_leash: scratch_leash,
    }
}

/// Where the API server finds the webhooks: here, if it is here, and else where the environment says.
fn webhook_host(api_server: &Uri) -> (String, IpAddr) {
    const VARIABLE: &str = "GPUFENCE_E2E_URL";
    if let Ok(url) = std::env::var(VARIABLE) {
        let url: Uri = url.parse().unwrap_or_else(|error| panic!("{VARIABLE} is {url}: {error}"));
        let (Some("https"), Some(host), None) = (url.scheme_str(), url.host(), url.port()) else {
            panic!("{VARIABLE} is {url}; valid is https://HOST without a port, since each test has its own");
        };
        return (host.to_owned(), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    }
    let host = api_server.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    if !is_local {
        features::tell(&format!(
            "skipped all tests: the API server {api_server} is not on this machine and cannot reach a webhook on its \
             loopback. Set {VARIABLE} to https://HOST under which it can reach this machine"
        ));
        // Each of them would have to say it otherwise. None has begun: they all wait for the cluster.
        std::process::exit(0);
    }
    (LOOPBACK.to_string(), LOOPBACK)
}

/// Starts etcd and the API server, and waits until it is ready.
fn start(runtime: &Runtime, assets: &Path, scratch: &Path, processes: &mut Vec<Process>) -> Started {
    let binary = |name: &str| {
        let binary = assets.join(name);
        assert!(binary.is_file(), "KUBEBUILDER_ASSETS has no {}", binary.display());
        Command::new(binary)
    };
    let [etcd_port, port] = free_ports();

    let etcd_url = format!("http://{LOOPBACK}:{etcd_port}");
    let mut etcd = binary("etcd");
    etcd.arg(flag("data-dir", scratch.join("etcd").display()))
        .arg("--unsafe-no-fsync")
        .arg(flag("listen-client-urls", &etcd_url))
        .arg(flag("advertise-client-urls", &etcd_url))
        .arg(flag("listen-peer-urls", format_args!("http://{LOOPBACK}:0")));
    let mut etcd = Process::start("etcd", etcd, scratch);
    poll::until("etcd is healthy", START, || {
        etcd.must_run();
        get_plain((LOOPBACK, etcd_port).into(), "/health")
    });
    processes.push(etcd);

    let pair = KeyPair::generate().unwrap();
    let write = |name: &str, text: &str| {
        let file = scratch.join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let signing_key = write("service-accounts.key", &pair.serialize_pem());
    let public_key = write("service-accounts.pub", &pair.public_key_pem());
    let tokens = write("tokens.csv", &format!("{TOKEN},admin,admin,\"system:masters\"\n"));
    let mut api_server = binary("kube-apiserver");
    api_server
        .arg(flag("etcd-servers", &etcd_url))
        .arg(flag("cert-dir", scratch.join("certs").display()))
        .arg(flag("bind-address", LOOPBACK))
        .arg(flag("advertise-address", LOOPBACK))
        .arg(flag("secure-port", port))
        .arg("--endpoint-reconciler-type=none")
        .arg("--service-account-issuer=https://localhost")
        .arg(flag("service-account-key-file", public_key.display()))
        .arg(flag("service-account-signing-key-file", signing_key.display()))
        .arg(flag("token-auth-file", tokens.display()))
        .arg("--authorization-mode=RBAC")
        // No controller makes the service accounts that it would demand.
        .arg("--disable-admission-plugins=ServiceAccount")
        .arg("--service-cluster-ip-range=10.0.0.0/24")
        // Nothing routes a Service's address here, so that its endpoints are called themselves.
        .arg("--enable-aggregator-routing=true")
        .arg("--allow-privileged=true");
    let mut api_server = Process::start("kube-apiserver", api_server, scratch);
    // The API server makes its own certificate, and writes it with its CA into the file.
    let started = Started { url: format!("https://{LOOPBACK}:{port}"), authority: scratch.join("certs/apiserver.crt") };
    let kubeconfig = started.kubeconfig(TOKEN);
    poll::until("the API server is ready", START, || {
        api_server.must_run();
        runtime.block_on(ready(&kubeconfig))
    });
    processes.push(api_server);
    started
}

impl Started {
    /// What a client needs that has the token.
    pub fn kubeconfig(&self, token: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(&self.kubeconfig_text(token)).unwrap()
    }

    /// The same as a file's text: YAML, which JSON is.
    pub fn kubeconfig_text(&self, token: &str) -> String {
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {"server": self.url, "certificate-authority": self.authority}}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        });
        text.to_string()
    }
}

async fn ready(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    let request = Request::get("/readyz").body(Vec::new()).unwrap();
    client.request_text(request).await.map(drop).map_err(|error| error.to_string())
}

fn flag(name: &str, value: impl fmt::Display) -> String {
    format!("--{name}={value}")
}

/// Ports that are free now. All are held until the last is found, so that they differ.
fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind((LOOPBACK, 0)).unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}
