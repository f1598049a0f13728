use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Patch, Reply, admin, collection, get_plain, path};
use crate::cluster::{Cluster, Started, cluster};
pub use crate::contracts::{contract, with_selector};
use crate::process::Process;
use crate::{features, poll};

pub const NAMESPACE: &str = "gpufence";
pub const PROBE_NAMESPACE: &str = "gpufence-probe";
pub const VALIDATE: &str = "pods.validate.gpufence.io";

/// The annotation with the failurePolicy that a configuration aims at.
pub const TARGET: &str = "gpufence.io/failure-policy";

/// What a process here takes to start.
pub const START: Duration = Duration::from_secs(30);

/// What a controller takes to see something and to act on it: two of its rounds, on a busy machine.
pub const ACT: Duration = Duration::from_secs(30);

/// The label by which namespaces are told apart. API servers set it since 1.21.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// An installation. Nothing of it is left when it is dropped.
#[derive(Debug)]
pub struct Installed {
    pub replicas: Vec<Replica>,
    pub controllers: Vec<Process>,
    /// The URL of the API server for the processes that are started next, where it is another than its own.
    pub way: Option<String>,
    /// The namespace that the options name, or the usual one.
    namespace: String,
    /// The folder that plays the mounted ConfigMap.
    mount: PathBuf,
    started: Started,
    host: IpAddr,
    made: RefCell<Vec<Value>>,
    _turn: MutexGuard<'static, ()>,
}

/// A process that serves, and the pod that stands for it.
#[derive(Debug)]
pub struct Replica {
    pub process: Process,
    pub pod: Value,
    pub https: SocketAddr,
    pub metrics: SocketAddr,
}

impl Installed {
    /// Applies the manifests of a contract. Nothing runs yet. `None` where this API server cannot be used.
    pub fn apply(contract: &Value, options: &[&str]) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        // A test that failed has cleaned up all the same.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(started) = cluster().started.clone() else {
            features::skip("an installation", "the API server was not started here");
            return None;
        };
        let host = reachable_host();
        let mount = cluster().folder(&cluster().unique());
        let named = options.iter().skip_while(|option| **option != "--namespace").nth(1);
        let namespace = named.copied().unwrap_or(NAMESPACE).to_owned();
        let installed = Self {
            replicas: Vec::new(),
            controllers: Vec::new(),
            way: None,
            namespace,
            mount,
            started,
            host,
            made: RefCell::default(),
            _turn: turn,
        };
        label_namespace("kube-system");
        label_namespace("default");
        installed.reapply(contract, options);
        Some(installed)
    }

    /// Installs with one replica and one controller, and waits until the registrations carry a caBundle.
    pub fn running(contract: &Value, options: &[&str]) -> Option<Self> {
        let mut installed = Self::apply(contract, options)?;
        installed.start_controller();
        installed.start_replica();
        installed.wait_for_bundle();
        Some(installed)
    }

    /// `gpufence manifests | kubectl apply -f -`: also what an upgrade is.
    pub fn reapply(&self, contract: &Value, options: &[&str]) {
        let objects = self.render(contract, options);
        for object in &objects {
            // An API server that has just started may still be without an address for a Service.
            poll::until(&format!("{} {}", object["kind"], object["metadata"]["name"]), START, || {
                let reply = admin().patch(Patch::Apply, &path(object), object);
                assert!(reply.code < 300 || reply.code >= 500, "{reply:#?}");
                if reply.code < 300 { Ok(()) } else { Err(format!("{reply:#?}")) }
            });
            if object["kind"] == "Namespace" {
                label_namespace(object["metadata"]["name"].as_str().unwrap());
            }
            if object["kind"] == "ConfigMap" {
                self.mount_contract(object["data"]["contract.yaml"].as_str().unwrap());
            }
            let mut made = self.made.borrow_mut();
            if !made.iter().any(|known| path(known) == path(object)) {
                made.push(object.clone());
            }
        }
    }

    /// What the built program prints for this API server, object by object.
    pub fn render(&self, contract: &Value, options: &[&str]) -> Vec<Value> {
        let file = self.mount.join("given.yaml");
        std::fs::write(&file, contract.to_string()).unwrap();
        let version = server_version();
        let output = Command::new(env!("CARGO_BIN_EXE_gpufence"))
            .args(["manifests", "--config"])
            .arg(&file)
            .args(["--image", "registry.invalid/gpufence:e2e", "--kubernetes-version", &version])
            // One process plays them all, but where a test says otherwise.
            .args(if options.contains(&"--replicas") { &[][..] } else { &["--replicas", "1"] })
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Brings a contract into the mounted folder, as the kubelet does: by swapping a symlink.
    pub fn mount_contract(&self, text: &str) {
        let version = self.mount.join(format!("..{}", cluster().unique()));
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("contract.yaml"), text).unwrap();
        let (next, data) = (self.mount.join("..data_tmp"), self.mount.join("..data"));
        std::os::unix::fs::symlink(&version, &next).unwrap();
        std::fs::rename(&next, &data).unwrap();
        let file = self.mount.join("contract.yaml");
        if !file.exists() {
            std::os::unix::fs::symlink("..data/contract.yaml", file).unwrap();
        }
    }

    /// A command of the built program under a service account of the installation.
    fn command(&self, account: &str, pod: &str) -> Command {
        let file = self.mount.join(format!("{account}.kubeconfig"));
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let namespace = &self.namespace;
        let token = admin().post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"), &request);
        let token = token.stored()["status"]["token"].as_str().unwrap().to_owned();
        let url = self.way.clone().unwrap_or_else(|| self.started.url.clone());
        let started = Started { url, ..self.started.clone() };
        std::fs::write(&file, started.kubeconfig_text(&token)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
        command
            .env("KUBECONFIG", &file)
            .env("GPUFENCE_CONFIG", self.mount.join("contract.yaml"))
            .env("POD_NAMESPACE", namespace)
            .env("POD_NAME", pod);
        command
    }

    /// Starts a process that serves, and tells the API server of it as a kubelet would once it is ready. The first one
    /// has the ports of the contract.
    pub fn start_replica(&mut self) {
        self.start_replica_with(&[]);
    }

    /// The same with further variables.
    pub fn start_replica_with(&mut self, variables: &[(&str, &str)]) {
        self.begin_replica(variables);
        self.wait_for_replica();
    }

    /// The first half: the process listens, and the API server knows of a pod that is not ready.
    pub fn begin_replica(&mut self, variables: &[(&str, &str)]) {
        let name = format!("gpufence-{}", cluster().unique());
        let mut command = self.command("gpufence", &name);
        command.arg("serve").envs(variables.iter().copied());
        if !self.replicas.is_empty() {
            command.env("GPUFENCE__SERVER__LISTEN", "0.0.0.0:0").env("GPUFENCE__SERVER__METRICS", "0.0.0.0:0");
        }
        let folder = cluster().folder(&name);
        let mut process = Process::start("gpufence", command, &folder);
        let (https, metrics) = poll::until("gpufence listens", START, || {
            process.must_run();
            let line = log_line(&process, "listening")?;
            let port = |name: &str| line[name].as_str().unwrap().parse::<SocketAddr>().unwrap().port();
            Ok((SocketAddr::new(self.host, port("https")), SocketAddr::new(self.host, port("metrics"))))
        });
        let pod = self.pod(&name, https.port(), metrics.port());
        self.make(&pod);
        self.set_status(&pod, false);
        self.replicas.push(Replica { process, pod, https, metrics });
    }

    /// The second: it is ready, and called.
    pub fn wait_for_replica(&mut self) {
        let replica = self.replicas.last().unwrap();
        poll::until("the replica is ready", START, || {
            get_plain(replica.metrics, "/readyz").map_err(|error| format!("{error}\n{}", replica.process.last_lines()))
        });
        self.set_status(&replica.pod, true);
        self.set_endpoints();
    }

    /// The pod that stands for a process, as the Deployment's template makes it.
    fn pod(&self, name: &str, https: u16, metrics: u16) -> Value {
        let namespace = &self.namespace;
        let deployment = admin().get(&format!("/apis/apps/v1/namespaces/{namespace}/deployments/gpufence")).stored();
        let template = &deployment["spec"]["template"];
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        });
        // Its processes end by themselves: nobody is there to confirm it.
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        for port in pod["spec"]["containers"][0]["ports"].as_array_mut().unwrap() {
            port["containerPort"] = json!(if port["name"] == "https" { https } else { metrics });
        }
        pod
    }

    fn set_status(&self, pod: &Value, ready: bool) {
        let status = json!({"status": {
            "phase": "Running",
            "podIP": self.host.to_string(),
            "podIPs": [{"ip": self.host.to_string()}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        }});
        admin().patch(Patch::Merge, &format!("{}/status", path(pod)), &status).stored();
    }

    /// What the endpoints controllers would write.
    fn set_endpoints(&self) {
        let ports = |replica: &Replica| json!([{"name": "https", "port": replica.https.port(), "protocol": "TCP"}]);
        let subsets: Vec<_> = self
            .replicas
            .iter()
            .map(|replica| json!({"addresses": [{"ip": self.host.to_string()}], "ports": ports(replica)}))
            .collect();
        let namespace = &self.namespace;
        let metadata = json!({"name": "gpufence", "namespace": namespace});
        let mut all = vec![json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})];
        if features::has_resource("/apis/discovery.k8s.io/v1", "endpointslices") {
            all.extend(self.replicas.iter().map(|replica| {
                json!({
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "name": replica.pod["metadata"]["name"],
                        "namespace": namespace,
                        "labels": {"kubernetes.io/service-name": "gpufence"},
                    },
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": [self.host.to_string()], "conditions": {"ready": true}}],
                    "ports": ports(replica),
                })
            }));
        }
        for object in all {
            // The plural of Endpoints is its own.
            let place = if object["kind"] == "Endpoints" {
                format!("/api/v1/namespaces/{namespace}/endpoints/gpufence")
            } else {
                path(&object)
            };
            admin().patch(Patch::Apply, &place, &object).stored();
        }
        let current = |name: &Value| self.replicas.iter().any(|replica| replica.pod["metadata"]["name"] == *name);
        self.forget_endpoint_slices(|name| !current(name));
    }

    /// Removes what a newer API server keeps beside the endpoints, of those names, where the API server knows the kind.
    fn forget_endpoint_slices(&self, which: impl Fn(&Value) -> bool) {
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", self.namespace);
        let found = admin().get(&format!("{slices}?labelSelector=kubernetes.io/service-name=gpufence"));
        for slice in found.body["items"].as_array().into_iter().flatten() {
            let name = &slice["metadata"]["name"];
            if which(name) {
                admin().delete(&format!("{slices}/{}", name.as_str().unwrap()));
            }
        }
    }

    /// The contract as it stands in the rendered ConfigMap.
    pub fn contract_of(&self, contract: &Value) -> String {
        let objects = self.render(contract, &[]);
        let map = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        map["data"]["contract.yaml"].as_str().unwrap().to_owned()
    }

    /// Ends every replica, as a node that is gone. Their endpoints stay.
    pub fn stop_replicas(&mut self) {
        for replica in std::mem::take(&mut self.replicas) {
            admin().delete(&path(&replica.pod));
        }
    }

    /// Ends one replica as a node that is gone, and takes it out of the Service as its controllers would.
    pub fn lose_replica(&mut self, index: usize) {
        let lost = self.replicas.remove(index);
        self.set_status(&lost.pod, false);
        admin().delete(&path(&lost.pod)).stored();
        let slice = lost.pod["metadata"]["name"].as_str().unwrap();
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", self.namespace);
        admin().delete(&format!("{slices}/{slice}"));
        self.set_endpoints();
        // As long as the Service calls it a pod lives on.
        drop(lost);
    }

    /// Starts a controller under the installation's own service account.
    pub fn start_controller(&mut self) {
        self.start_controller_with(&[]);
    }

    /// The same with further options.
    pub fn start_controller_with(&mut self, options: &[&str]) {
        let name = format!("controller-{}", cluster().unique());
        let mut command = self.command("gpufence-controller", &name);
        command.arg("controller").args(options).env("GPUFENCE__SERVER__METRICS", "127.0.0.1:0");
        let folder = cluster().folder(&name);
        self.controllers.push(Process::start("controller", command, &folder));
    }

    /// A subcommand of the built program with the rights of a service account of the installation.
    pub fn run_as(&self, account: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(account, "nobody");
        command.env_remove("GPUFENCE_CONFIG").env_remove("POD_NAMESPACE").args(arguments).output().unwrap()
    }

    /// A subcommand of the built program with the rights of the administrator.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let file = self.mount.join("admin.kubeconfig");
        std::fs::write(&file, self.started.kubeconfig_text(Cluster::TOKEN)).unwrap();
        Command::new(env!("CARGO_BIN_EXE_gpufence")).env("KUBECONFIG", &file).args(arguments).output().unwrap()
    }

    /// Creates an object that goes with the installation.
    pub fn make(&self, object: &Value) -> Value {
        let stored = admin().create(object).stored();
        self.made.borrow_mut().push(object.clone());
        stored
    }

    /// A new namespace with labels, its name beginning with the word.
    pub fn namespace(&self, word: &str, labels: &Value) -> String {
        let name = format!("{word}-{}", cluster().unique());
        self.make(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        }));
        label_namespace(&name);
        name
    }

    /// The failurePolicy of the webhook that judges pods.
    #[expect(clippy::unused_self, reason = "reads better where it is asked")]
    pub fn failure_policy(&self) -> String {
        let webhooks = stored("validating")["webhooks"].take();
        let pods = webhooks.as_array().unwrap().iter().find(|hook| hook["name"] == VALIDATE).unwrap();
        pods["failurePolicy"].as_str().unwrap().to_owned()
    }

    /// How many requests the replicas have been asked about, the controller's dry runs aside.
    pub fn asked(&self) -> u64 {
        let count = |replica: &Replica| {
            let text = get_plain(replica.metrics, "/metrics").unwrap();
            let series = text.lines().filter(|line| {
                line.starts_with("gpufence_admission_requests_total{") && line.contains("dry_run=\"false\"")
            });
            series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>()
        };
        self.replicas.iter().map(count).sum()
    }

    /// Waits until the controller has given both configurations a caBundle.
    pub fn wait_for_bundle(&self) {
        poll::until("the caBundle is set", ACT, || {
            let all = ["validating", "mutating"].map(stored);
            let mut hooks = all.iter().flat_map(|configuration| configuration["webhooks"].as_array().unwrap());
            let has = hooks.all(|hook| hook["clientConfig"]["caBundle"].as_str().is_some_and(|text| !text.is_empty()));
            if has { Ok(()) } else { Err(self.logs()) }
        });
    }

    /// Waits until the failurePolicy is the one given.
    pub fn wait_for_failure_policy(&self, wanted: &str) {
        poll::until(&format!("the failurePolicy is {wanted}"), ACT, || {
            if self.failure_policy() == wanted { Ok(()) } else { Err(self.logs()) }
        });
    }

    /// The end of every process's log, for messages.
    pub fn logs(&self) -> String {
        let controllers = self.controllers.iter().map(Process::last_lines);
        let replicas = self.replicas.iter().map(|replica| replica.process.last_lines());
        controllers.chain(replicas).collect::<Vec<_>>().join("\n---\n")
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // The registrations first, as the README says.
        for kind in ["validating", "mutating"] {
            admin().delete(&configuration(kind));
        }
        self.controllers.clear();
        self.stop_replicas();
        let made = self.made.get_mut();
        made.sort_by_key(|object| object["kind"] == "Namespace");
        for object in made.iter() {
            // Nobody here empties a namespace that is being deleted, so that it would stay for ever and take nothing
            // in: those of the installation have fixed names.
            let name = object["metadata"]["name"].as_str();
            if object["kind"] != "Namespace" || ![Some(NAMESPACE), Some(PROBE_NAMESPACE)].contains(&name) {
                admin().discard(object);
            }
        }
        admin().delete(&format!("/api/v1/namespaces/{}/endpoints/gpufence", self.namespace));
        self.forget_endpoint_slices(|_| true);
        admin().delete(&collection(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": self.namespace},
        })));
    }
}

/// The path of a configuration.
pub fn configuration(kind: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gpufence")
}

/// A configuration as it is now.
pub fn stored(kind: &str) -> Value {
    admin().get(&configuration(kind)).stored()
}

/// The API server's version as `--kubernetes-version` takes it.
pub fn server_version() -> String {
    let version = admin().get("/version").stored();
    let minor = version["minor"].as_str().unwrap().trim_end_matches('+');
    format!("{}.{minor}", version["major"].as_str().unwrap())
}

/// Whether the API server refuses the pod in the webhook's words.
pub fn is_refused(reply: &Reply) -> bool {
    reply.code == 403 && reply.message().contains(VALIDATE) && reply.message().contains("denied the request")
}

/// The first line of a process's log that has the message.
pub fn log_line(process: &Process, message: &str) -> Result<Value, String> {
    let output = process.output();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = lines.into_iter().find(|line| line["message"] == message);
    found.ok_or_else(|| process.last_lines())
}

/// API servers of today set the label themselves, and let nobody change it.
fn label_namespace(name: &str) {
    let label = json!({"metadata": {"labels": {NAME_LABEL: name}}});
    // The API server makes its own namespaces some moments after it is ready.
    poll::until(&format!("the namespace {name} is there"), START, || {
        let reply = admin().patch(Patch::Merge, &format!("/api/v1/namespaces/{name}"), &label);
        if reply.code == 200 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
}

/// An address of this machine that an endpoint may have: not a loopback one.
fn reachable_host() -> IpAddr {
    // Nothing is sent: the system only says from where it would.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    match address {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        other => panic!(
            "this machine has no address but its loopback ({other:?}), and an endpoint must not have that one; give it \
             one with: ip address add 192.0.2.2/32 dev lo && ip route add default dev lo"
        ),
    }
}
