use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::{admin, collection, get_plain};
use crate::cluster::{Cluster, cluster};
use crate::contract::Contract;
use crate::objects::{Pod, api_server_object};
use crate::poll;
use crate::process::Process;

/// The names of the webhooks, which stand in the API server's messages.
pub const MUTATE: &str = "mutate.gpufence.example";
pub const VALIDATE: &str = "validate.gpufence.example";
pub const LEVERS: &str = "levers.gpufence.example";

const LABEL: &str = "e2e.gpufence.example/fence";

const START: Duration = Duration::from_secs(20);

/// A `gpufence serve` with its own contract, for its own namespaces. Ends with all that it made.
#[derive(Debug)]
pub struct Fence {
    id: String,
    process: Option<Process>,
    https: SocketAddr,
    metrics: SocketAddr,
    made: RefCell<Vec<Value>>,
}

/// How the webhooks are registered: for all that can be done to a pod, since what is not worth a call
/// in production must still be answered well.
#[derive(Debug, Clone)]
pub struct Registration {
    pub failure_policy: &'static str,
    pub reinvocation_policy: &'static str,
    pub match_conditions: Value,
}

impl Default for Registration {
    fn default() -> Self {
        Self { failure_policy: "Fail", reinvocation_policy: "Never", match_conditions: Value::Null }
    }
}

impl Fence {
    /// Enforces, and looks at its namespaces already.
    pub fn enforcing() -> Self {
        Self::registered(&Contract::enforcing())
    }

    /// Serves a contract, and looks at its namespaces already.
    pub fn registered(contract: &Contract) -> Self {
        let fence = Self::serving(contract);
        fence.register(&Registration::default());
        fence
    }

    /// Serves a contract, and no API server knows of it.
    pub fn serving(contract: &Contract) -> Self {
        let id = cluster().unique();
        let folder = cluster().folder(&id);
        let file = folder.join("contract.yaml");
        std::fs::write(&file, contract.text()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
        command.arg("serve").arg("--config").arg(&file);
        // Of a cluster that runs already the environment tells.
        if let Some(started) = &cluster().started {
            let kubeconfig = folder.join("kubeconfig");
            std::fs::write(&kubeconfig, started.kubeconfig_text(Cluster::TOKEN)).unwrap();
            command.env("KUBECONFIG", kubeconfig);
        }
        let mut process = Process::start("gpufence", command, &folder);
        let (https, metrics) = poll::until("gpufence is ready", START, || {
            process.must_run();
            let output = process.output();
            let line = lines(&output).find(|line| line["message"] == "ready").ok_or_else(|| process.last_lines())?;
            let address = |name: &str| line[name].as_str().unwrap().parse().unwrap();
            Ok((address("https"), address("metrics")))
        });
        Self { id, process: Some(process), https, metrics, made: RefCell::default() }
    }

    /// A new namespace that the fence looks at, its name beginning with the word: pods in `ml` may use
    /// the GPU nodes, and those in `web` may not.
    pub fn namespace(&self, word: &str) -> String {
        self.new_namespace(word, &json!({LABEL: self.id}))
    }

    /// A new namespace that no webhook looks at.
    pub fn unfenced_namespace(&self) -> String {
        self.new_namespace("unfenced", &json!({}))
    }

    fn new_namespace(&self, word: &str, labels: &Value) -> String {
        let name = format!("{word}-{}", cluster().unique());
        self.make(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        }));
        name
    }

    /// Creates an object that is deleted with the fence.
    pub fn make(&self, object: &Value) -> Value {
        let stored = admin().create(object).stored();
        self.made.borrow_mut().push(object.clone());
        stored
    }

    /// A name that nothing else has.
    pub fn unique(&self, word: &str) -> String {
        format!("{word}-{}", self.id)
    }

    /// What a registration says of a webhook that is called for the fence's namespaces.
    pub fn webhook(&self, name: &str, port: u16, path: &str) -> Value {
        json!({
            "name": name,
            "clientConfig": {
                "url": format!("https://{}:{port}{path}", cluster().webhook_host),
                "caBundle": STANDARD.encode(&cluster().certificates.authority),
            },
            "namespaceSelector": {"matchLabels": {LABEL: self.id}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/*"]}],
        })
    }

    /// The port at which the webhooks are served.
    pub fn port(&self) -> u16 {
        self.https.port()
    }

    /// Registers both webhooks, and waits until the API server calls them.
    pub fn register(&self, registration: &Registration) {
        let Registration { failure_policy, reinvocation_policy, match_conditions } = registration;
        let mut mutate = self.webhook(MUTATE, self.https.port(), "/mutate");
        mutate["reinvocationPolicy"] = json!(reinvocation_policy);
        let mut validate = self.webhook(VALIDATE, self.https.port(), "/validate");
        let others = json!([
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["bindings"]},
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["replicationcontrollers", "podtemplates"],
            },
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["apps"],
                "apiVersions": ["*"],
                "resources": ["deployments", "replicasets", "statefulsets", "daemonsets"],
            },
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["batch"],
                "apiVersions": ["*"],
                "resources": ["jobs", "cronjobs"],
            },
        ]);
        validate["rules"].as_array_mut().unwrap().extend(others.as_array().unwrap().iter().cloned());
        for webhook in [&mut mutate, &mut validate] {
            webhook["failurePolicy"] = json!(failure_policy);
            if !match_conditions.is_null() {
                webhook["matchConditions"] = match_conditions.clone();
            }
        }
        let probe = Pod::named("probe").in_namespace(&self.namespace("probe"));
        for (kind, webhook) in [("MutatingWebhookConfiguration", mutate), ("ValidatingWebhookConfiguration", validate)]
        {
            self.make(&api_server_object(kind, &self.unique("gpufence"), &json!({"webhooks": [webhook]})));
        }
        poll::until("the API server calls the webhooks", START, || {
            let reply = admin().dry_run().create(&probe);
            let called = ["mutate", "validate"]
                .iter()
                .all(|webhook| self.count("admission_requests_total", &[("webhook", webhook)]) > 0);
            if called { Ok(()) } else { Err(format!("{reply:#?}")) }
        });
    }

    /// The label of the objects that the fence looks at.
    pub fn label(&self) -> (&'static str, &str) {
        (LABEL, &self.id)
    }

    /// Deletes with the fence what somebody else creates.
    pub fn adopt(&self, object: &Value) {
        self.made.borrow_mut().push(object.clone());
    }

    /// Registers the hook for levers with the rules and conditions of a rendered one, for objects with the fence's
    /// [`label`](Self::label).
    pub fn register_levers(&self, rendered: &Value) {
        let mut webhook = self.webhook(LEVERS, self.https.port(), "/validate");
        let (label, value) = self.label();
        // That of a namespace would be its own, and gone with the change that takes it away.
        webhook.as_object_mut().unwrap().remove("namespaceSelector");
        webhook["objectSelector"] = json!({"matchLabels": {label: value}});
        for key in ["rules", "matchConditions"] {
            if !rendered[key].is_null() {
                webhook[key] = rendered[key].clone();
            }
        }
        // Or an expression that fails would go unseen.
        webhook["failurePolicy"] = json!("Fail");
        let name = self.unique("levers");
        self.make(&api_server_object("ValidatingWebhookConfiguration", &name, &json!({"webhooks": [webhook]})));
    }

    /// The sum of the series of a metric that have the labels.
    pub fn count(&self, metric: &str, labels: &[(&str, &str)]) -> u64 {
        let text = get_plain(self.metrics, "/metrics").unwrap();
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let series = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("gpufence_")?.split_once('{')?;
            let (found, value) = rest.split_once("} ")?;
            let found: Vec<_> = found.split(',').collect();
            let matches = name == metric && labels.iter().all(|label| found.contains(&label.as_str()));
            matches.then(|| value.parse::<u64>().unwrap())
        });
        series.sum()
    }

    /// What the log says of decisions in a namespace.
    pub fn decisions_in(&self, namespace: &str) -> Vec<Value> {
        let output = self.process.as_ref().map(Process::output).unwrap_or_default();
        lines(&output).filter(|line| line["target"] == "gpufence::decision" && line["namespace"] == namespace).collect()
    }

    /// Ends the process. The API server still knows of it.
    pub fn stop(&mut self) {
        self.process = None;
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let made = self.made.get_mut();
        // The registrations before the namespaces: nobody must be asked about what goes with them.
        made.sort_by_key(|object| object["kind"] == "Namespace");
        for object in made.iter() {
            admin().discard(object);
        }
    }
}

/// The lines of the log, which are all JSON.
fn lines(output: &str) -> impl Iterator<Item = Value> {
    // A line that is just being written has no end yet.
    let complete = output.rsplit_once('\n').map_or("", |(complete, _)| complete);
    complete.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")))
}

/// All pods of a namespace that have a label.
pub fn pods_with_label(namespace: &str, label: &str) -> String {
    format!("{}?labelSelector={label}", collection(&Pod::named("any").in_namespace(namespace)))
}
