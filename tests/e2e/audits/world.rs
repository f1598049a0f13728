use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Patch, admin, path};
use crate::cluster::{Cluster, cluster};
use crate::contract::{Contract, LABEL};
use crate::features;

/// The namespaces that an API server makes by itself.
pub const OWN_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// A cluster that is made for one test, and is gone after it.
#[derive(Debug)]
pub struct World {
    /// For the test's files.
    pub folder: PathBuf,
    made: RefCell<Vec<Value>>,
    _alone: MutexGuard<'static, ()>,
}

/// What the program did.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The audit that was printed.
    #[track_caller]
    pub fn audit(&self) -> Value {
        assert_eq!(self.code, 0, "{self:#?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

impl World {
    /// An empty cluster; `None` where there is only one that is somebody's.
    pub fn new() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if cluster().started.is_none() {
            features::skip("audits", "they need an API server of their own, which KUBEBUILDER_ASSETS gives them");
            return None;
        }
        let folder = cluster().folder(&format!("audit-{}", cluster().unique()));
        let world = Self { folder, made: RefCell::default(), _alone: alone };
        std::fs::write(world.contract(), Contract::enforcing().text()).unwrap();
        Some(world)
    }

    /// The file of the contract.
    pub fn contract(&self) -> PathBuf {
        self.folder.join("contract.yaml")
    }

    /// Creates an object that is deleted with the world.
    pub fn make(&self, object: &Value) -> Value {
        let stored = admin().create(object).stored();
        self.adopt(object);
        stored
    }

    /// Deletes with the world what somebody else creates.
    pub fn adopt(&self, object: &Value) {
        self.made.borrow_mut().push(object.clone());
    }

    pub fn namespace(&self, name: &str) {
        self.make(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }

    /// A node that is ready and has so many GPUs, with these labels and taints.
    pub fn node(&self, name: &str, gpus: u32, labels: &Value, taints: &Value) -> Value {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.make(&node);
        // Those that the API server itself gave it go.
        let spec = json!({"spec": {"taints": taints}});
        admin().patch(Patch::Merge, &path(&node), &spec).stored();
        let mut amounts = json!({"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"});
        if gpus > 0 {
            amounts["nvidia.com/gpu"] = gpus.to_string().into();
        }
        let conditions = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played"}]);
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}});
        admin().patch(Patch::Merge, &format!("{}/status", path(&node)), &status).stored()
    }

    /// A node as the contract wants it.
    pub fn gpu_node(&self, name: &str) -> Value {
        let taint = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
        self.node(name, 8, &json!({LABEL: "nvidia"}), &taint)
    }

    /// A pod that is bound to a node by a scheduler, and has come to a phase there.
    pub fn pod_on(&self, pod: &Value, node: &str, phase: &str) -> Value {
        self.make(pod);
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        admin().post(&format!("{}/binding", path(pod)), &binding).stored();
        let status = json!({"status": {"phase": phase}});
        admin().patch(Patch::Merge, &format!("{}/status", path(pod)), &status).stored()
    }

    /// Runs `gpufence audit`, as the administrator.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.run_as(None, arguments)
    }

    /// Runs `gpufence audit`, as somebody.
    pub fn run_as(&self, user: Option<&str>, arguments: &[&str]) -> Ended {
        let started = cluster().started.as_ref().unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&started.kubeconfig_text(Cluster::TOKEN)).unwrap();
        if let Some(user) = user {
            kubeconfig["users"][0]["user"]["as"] = user.into();
        }
        let file = self.folder.join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_gpufence"))
            .arg("audit")
            .args(arguments)
            .env("KUBECONFIG", file)
            .env_remove("GPUFENCE_CONFIG")
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ended { code: output.status.code().unwrap(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Audits the cluster by the world's contract.
    #[track_caller]
    pub fn audit(&self) -> Value {
        self.run(&["--config", self.contract().to_str().unwrap(), "--output", "json"]).audit()
    }

    /// Audits the cluster by the world's contract; the audit, and what it saved of the cluster.
    #[track_caller]
    pub fn audit_and_save(&self) -> (Value, Saved) {
        let (contract, file) = (self.contract(), self.folder.join("saved.json"));
        let (contract, file) = (contract.to_str().unwrap(), file.to_str().unwrap());
        let audit = self.run(&["--config", contract, "--output", "json", "--save", file]).audit();
        let again = self.run(&["--config", contract, "--output", "json", file]).audit();
        assert_eq!(timeless(&again), timeless(&audit));
        (audit, Saved(serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()))
    }
}

/// An audit without where it is from and when it was.
pub fn timeless(audit: &Value) -> Value {
    let mut audit = audit.clone();
    for field in ["source", "taken"] {
        assert!(audit.as_object_mut().unwrap().remove(field).is_some());
    }
    audit
}

/// What was read of a cluster.
#[derive(Debug)]
pub struct Saved(Value);

impl Saved {
    /// The objects of a kind, as `namespace/name`, in order.
    pub fn of(&self, kind: &str) -> Vec<String> {
        let items = self.0["items"].as_array().unwrap().iter();
        let mut names: Vec<_> = items.filter(|item| item["kind"] == kind).map(full_name).collect();
        names.sort();
        names
    }
}

fn full_name(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str();
    match text("namespace") {
        Some(namespace) => format!("{namespace}/{}", text("name").unwrap()),
        None => text("name").unwrap().to_owned(),
    }
}

/// A name or `namespace/name` of each of these findings, with their rule.
pub fn found<'a>(audit: &'a Value, rule: &'a str) -> Vec<String> {
    let findings = audit["findings"].as_array().unwrap().iter();
    let object = |finding: &Value| {
        let text = |key: &str| finding["object"][key].as_str().unwrap_or_default().to_owned();
        format!("{} {}/{}", text("kind"), text("namespace"), text("name"))
    };
    findings.filter(|finding| finding["rule"] == rule).map(object).collect()
}

impl Drop for World {
    fn drop(&mut self) {
        for object in self.made.get_mut().iter().rev() {
            admin().delete(&path(object));
            // A definition goes after all objects of its kind, in its own time.
            let began = Instant::now();
            while object["kind"] == "CustomResourceDefinition"
                && !admin().read(object).is_missing()
                && began.elapsed() < Duration::from_secs(30)
            {
                sleep(Duration::from_millis(50));
            }
            // No controller does it.
            if object["kind"] == "Namespace" {
                let mut ended = object.clone();
                ended["spec"] = json!({"finalizers": []});
                admin().replace_at(&format!("{}/finalize", path(object)), &ended);
            }
        }
    }
}
