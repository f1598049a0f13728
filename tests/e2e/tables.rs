//! The written tables of attacks and of what real clusters do, each row against the API server.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gpufence::manifest::{Options, render};
use gpufence::policy::DAEMON_SET_CONTROLLER;
use serde_json::{Value, json};

use crate::api::{Patch, Reply, User, admin, collection};
use crate::cluster::cluster;
use crate::contract::{Contract, LABEL};
use crate::features::{needs_field, needs_resource, skip};
use crate::fence::Fence;
use crate::levers::shows_old_nodes;
use crate::objects::{Pod, TEMPLATES, api_server_object, exact_tolerations, workload};
use crate::{editor, poll};

/// How long the API server may take to notice what was told to it.
const NOTICE: Duration = Duration::from_secs(20);

/// One fence for all rows of a table.
struct Table {
    fence: Fence,
    rows: Vec<Row>,
}

/// A row of a table, its names filled in, in namespaces of its own.
struct Row {
    /// What the row is about.
    title: String,
    /// As written.
    fields: Value,
    /// The namespace of the request.
    namespace: String,
}

/// `group` is that of the custom resource of which the contract names the templates.
fn contract(group: &str) -> Contract {
    let schedulers = ["system:kube-scheduler", "system:serviceaccount:kai-scheduler:binder"];
    Contract::enforcing()
        .with_pool("resources", json!(["nvidia.com/gpu", "nvidia.com/mig-*", "deviceclass.resource.kubernetes.io/gpu.*"]))
        .with_pool("markers", json!({"claims": ["*-gpu"], "annotations": ["gpu-fraction"]}))
        .with_pool(
            "namespaces",
            json!({"names": ["ml-*"], "selector": {"matchLabels": {"gpu.example.com/allowed": "true"}}}),
        )
        .with("selection", json!({"annotation": "gpu.example.com/pool"}))
        .with("templates", "deny")
        .with("rules", json!({"lever-change": "deny"}))
        .with("levers", json!({"groups": ["system:masters"], "users": ["admin"]}))
        .with("identities", json!({"schedulers": schedulers}))
        .with(
            "customResources",
            json!([{"group": group, "kind": "Trainer", "resource": "trainers", "templates": ["$.spec.workers[*].template"]}]),
        )
        .with(
            "exemptions",
            json!([
                {"name": "node-agents", "reason": "agents", "namespaces": ["agents-*"], "daemonSets": ["*"]},
                {
                    "name": "validators",
                    "reason": "the GPU operator tries each node",
                    "namespaces": ["agents-*"],
                    "serviceAccounts": ["agents-*/nvidia-operator-validator"],
                },
            ]),
        )
}

impl Table {
    /// A table, what its rows need made, the fence standing.
    fn open(name: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
        let written: Vec<Value> = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        // Of its own: the tables are run side by side.
        let group = format!("{}.gpufence.example", cluster().unique());
        let contract = contract(&group);
        let fence = Fence::serving(&contract);
        fence.make(&definition(&group));
        let rows = written.iter().enumerate().map(|(place, row)| Row::new(&fence, &group, place, row)).collect();
        let table = Self { fence, rows };
        table.given(true);
        table.register(contract);
        table.given(false);
        table
    }

    /// Makes what the rows want to be there before the fence, or after.
    fn given(&self, before: bool) {
        for row in self.rows.iter().filter(|row| row.fields["before"].as_bool().unwrap_or_default() == before) {
            for object in row.fields["given"].as_array().into_iter().flatten() {
                admin().create(&row.filled(&self.fence, object)).stored();
            }
        }
    }

    /// Registers all that the contract renders for this API server, for the namespaces and nodes of the fence.
    fn register(&self, contract: Contract) {
        let text = contract.with("server", json!({"listen": "0.0.0.0:8443", "metrics": "0.0.0.0:9090"})).text();
        let contract = gpufence::contract::Contract::read(Path::new("contract.yaml"), text.as_bytes(), []).unwrap();
        let version = admin().get("/version").stored();
        let part = |key: &str| version[key].as_str().unwrap().trim_end_matches('+').to_owned();
        let kubernetes = format!("{}.{}", part("major"), part("minor")).parse().unwrap();
        let manifests = render(&contract, &Options { kubernetes, ..Options::default() }).unwrap();
        for mut configuration in manifests.objects.into_iter().filter(|object| object["webhooks"].is_array()) {
            let hooks = configuration["webhooks"].as_array_mut().unwrap();
            for hook in hooks.iter_mut() {
                let webhook = self.fence.webhook(
                    "",
                    self.fence.port(),
                    hook["clientConfig"]["service"]["path"].as_str().unwrap(),
                );
                let (label, value) = self.fence.label();
                let is_of_labels = hook["name"] == "levers.validate.gpufence.io";
                let own = hook.as_object_mut().unwrap();
                own.insert("clientConfig".to_owned(), webhook["clientConfig"].clone());
                // Or what nobody answers would pass for admitted.
                own.insert("failurePolicy".to_owned(), "Fail".into());
                own.remove("namespaceSelector");
                let selector = if is_of_labels { "objectSelector" } else { "namespaceSelector" };
                own.insert(selector.to_owned(), json!({"matchLabels": {label: value}}));
            }
            let kind = configuration["kind"].as_str().unwrap();
            let hooks = json!({"webhooks": hooks_of(&configuration)});
            self.fence.make(&api_server_object(kind, &self.fence.unique("tables"), &hooks));
        }
        let web = self.fence.namespace("web");
        let tolerating = Pod::named("probe").tolerating(&json!({"operator": "Exists"})).in_namespace(&web);
        let gpu = Pod::named("probe").with_gpu().in_namespace(&self.fence.namespace("ml"));
        poll::until("the API server calls the webhooks", NOTICE, || {
            let (refused, completed) = (admin().dry_run().create(&tolerating), admin().dry_run().create(&gpu));
            let ready = refused.code == 403 && exact_tolerations(&completed.body) == 1;
            if ready { Ok(()) } else { Err(format!("{refused:#?} {completed:#?}")) }
        });
    }

    /// Runs every row that this API server can run, and asserts what came of each.
    fn run(&self, check: impl Fn(&Row, &str, &Value, &Reply) -> Result<(), String>) {
        let mut wrong = Vec::new();
        let mut run = 0;
        for row in self.rows.iter().filter(|row| row.is_possible()) {
            run += 1;
            let user = row.user(&self.fence);
            for (what, object, reply) in row.replies(&self.fence, &user) {
                if let Err(error) = check(row, &what, &object, &reply) {
                    wrong.push(format!("{} ({what}): {error}\n{reply:#?}", row.title));
                }
            }
        }
        assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(run > 20, "only {run} rows were run");
    }
}

fn hooks_of(configuration: &Value) -> Value {
    configuration["webhooks"].clone()
}

impl Row {
    fn new(fence: &Fence, group: &str, place: usize, written: &Value) -> Self {
        let place = |word: &str| fence.unique(&format!("{word}-{place}"));
        let mut names: BTreeMap<String, String> =
            ["web", "ml", "agents"].map(|word| (format!("${word}"), fence.namespace(word))).into();
        names.extend(["gpu", "cpu"].map(|word| (format!("${word}"), place(word))));
        names.insert("$group".to_owned(), group.to_owned());
        let (label, value) = fence.label();
        let (gpu, cpu) = (names["$gpu"].clone(), names["$cpu"].clone());
        for (name, labels, taints) in [
            (
                &gpu,
                json!({LABEL: "nvidia", label: value}),
                json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]),
            ),
            (&cpu, json!({label: value}), json!([])),
        ] {
            let metadata = json!({"name": name, "labels": labels});
            fence.make(&json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}}));
        }
        let mut text = written.to_string();
        for (word, name) in &names {
            text = text.replace(word, name);
        }
        let fields: Value = serde_json::from_str(&text).unwrap();
        let title = [&written["way"], &written["what"]].into_iter().find_map(Value::as_str).unwrap().to_owned();
        let word = if written.get("daemonSet").is_some() { "agents" } else { written["in"].as_str().unwrap_or("web") };
        Self { title, namespace: names[&format!("${word}")].clone(), fields }
    }

    /// Whether the API server can do it at all; what it cannot is said.
    fn is_possible(&self) -> bool {
        let pod = |field: &str, value: Value| Pod::named("asks").with(&["spec", field], value).in_namespace("default");
        match self.fields["needs"].as_str() {
            None => true,
            Some("ephemeralcontainers") => needs_resource("/api/v1", "pods/ephemeralcontainers", &self.title),
            Some("schedulingGates") => needs_field(
                &pod("schedulingGates", json!([{"name": "e2e.gpufence.example/gate"}])),
                "/spec/schedulingGates",
                &self.title,
            ),
            Some("resourceClaims") => {
                let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}]);
                needs_field(&pod("resourceClaims", claims), "/spec/resourceClaims", &self.title)
            }
            Some("oldNodes") => shows_old_nodes(&self.title),
            Some("deviceClasses") => {
                let pod = Pod::named("asks").limiting("deviceclass.resource.kubernetes.io/gpu.example.com", 1);
                let is_valid = admin().dry_run().create(&pod.in_namespace("default")).code == 201;
                if !is_valid {
                    skip(&self.title, "this API server takes no device class for a resource");
                }
                is_valid
            }
            Some(other) => panic!("{}: needs {other}, which nobody knows", self.title),
        }
    }

    /// Who asks, with the rights for it.
    fn user(&self, fence: &Fence) -> User {
        let who = self.fields["who"].as_str().unwrap_or("editor");
        let rights: Vec<_> = self.fields["may"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match who {
            "admin" => admin(),
            "editor" => {
                let editor = editor::of(fence, &self.namespace);
                let name = fence.unique("editor");
                let rules = rights.iter().map(|right| {
                    let (verb, resource) = right.split_once(' ').unwrap();
                    json!({"apiGroups": [""], "verbs": [verb], "resources": [resource]})
                });
                grant(fence, &name, &rules.collect::<Vec<_>>());
                for right in rights {
                    let (verb, resource) = right.split_once(' ').unwrap();
                    until_granted(&editor, &self.namespace, verb, resource);
                }
                editor
            }
            name => {
                // Whatever these may do in a real cluster, it is not for the want of rights that they are refused.
                grant(fence, name, &[json!({"apiGroups": ["*"], "verbs": ["*"], "resources": ["*"]})]);
                let user = User::named(name);
                let user = if name.starts_with("system:node:") { user.in_group("system:nodes") } else { user };
                until_granted(&user, &self.namespace, "create", "pods/binding");
                user
            }
        }
    }

    /// The request, or where it stands for several all of them: what it is called, the object, and the answer.
    fn replies(&self, fence: &Fence, user: &User) -> Vec<(String, Value, Reply)> {
        let Self { fields, .. } = self;
        let one = |object: Value, reply: Reply| vec![("the request".to_owned(), object, reply)];
        let place = |key: &str| fields[key].as_str();
        if let Some(spec) = fields.get("templates").map(|pod| &pod["spec"]) {
            let pod = spec
                .as_object()
                .unwrap()
                .iter()
                .fold(Pod::named("made"), |pod, (key, value)| pod.with(&["spec", key], value.clone()));
            let made = TEMPLATES.iter().map(|kind| {
                let (object, _) = workload(kind, "made", &self.namespace, &pod);
                let reply = user.create(&object);
                ((*kind).to_owned(), object, reply)
            });
            return made.collect();
        }
        if let Some(name) = place("daemonSet") {
            let pod = fields["spec"]
                .as_object()
                .unwrap()
                .iter()
                .fold(Pod::named(name), |pod, (key, value)| pod.with(&["spec", key], value.clone()));
            let (set, _) = workload("DaemonSet", name, &self.namespace, &pod);
            let owner = user.create(&set);
            let mut object = pod.owned_by(&owner.body).in_namespace(&self.namespace);
            object["metadata"]["name"] = format!("{name}-x7k2p").into();
            let reply = User::named(DAEMON_SET_CONTROLLER).create(&object);
            return vec![("the DaemonSet".to_owned(), set, owner), ("its pod".to_owned(), object, reply)];
        }
        if let Some(object) = fields.get("create") {
            let object = self.filled(fence, object);
            let reply = user.create(&object);
            if object["kind"] == "Node" || object["kind"] == "Namespace" {
                fence.adopt(&object);
            }
            return one(object, reply);
        }
        if let Some(object) = fields.get("apply") {
            let object = self.filled(fence, object);
            let path = format!("{}/{}", collection(&object), object["metadata"]["name"].as_str().unwrap());
            let reply = user.patch(Patch::Apply, &path, &object);
            return one(object, reply);
        }
        let body = &fields["body"];
        let reply = if let Some(path) = place("patch") {
            user.patch(Patch::Json, path, body)
        } else if let Some(path) = place("merge") {
            user.patch(Patch::Strategic, path, body)
        } else if let Some(path) = place("post") {
            user.post(path, body)
        } else {
            user.delete(place("delete").unwrap_or_else(|| panic!("{}: no request", self.title)))
        };
        one(Value::Null, reply)
    }

    /// The object with what it must have and the table does not say.
    fn filled(&self, fence: &Fence, written: &Value) -> Value {
        let mut object = written.clone();
        if object["kind"] == "Pod" {
            let mut pod = Pod::named("row").in_namespace(&self.namespace);
            if object["metadata"]["generateName"].is_string() {
                pod["metadata"].as_object_mut().unwrap().remove("name");
            }
            merge(&mut pod, &object);
            return pod;
        }
        if object["metadata"].is_null() {
            object["metadata"] = json!({"name": "row"});
        }
        if object["kind"] == "Node" || object["kind"] == "Namespace" {
            let (label, value) = fence.label();
            object["metadata"]["labels"][label] = value.into();
        } else {
            object["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        object
    }
}

/// Lays a map over another; lists and all else are replaced.
fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// Gives somebody rights in the whole cluster, for as long as the fence stands.
fn grant(fence: &Fence, user: &str, rules: &[Value]) {
    if rules.is_empty() {
        return;
    }
    let name = format!("{}-{}", fence.unique("grant"), cluster().unique());
    let role =
        |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    let (mut own, mut binding) = (role("ClusterRole"), role("ClusterRoleBinding"));
    own["rules"] = rules.into();
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    binding["subjects"] = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
    fence.make(&own);
    fence.make(&binding);
}

fn until_granted(user: &User, namespace: &str, verb: &str, resource: &str) {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = json!({"namespace": namespace, "verb": verb, "resource": resource, "subresource": subresource});
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    poll::until("the role binding is in force", NOTICE, || {
        let reply = user.create(&question);
        if reply.body["status"]["allowed"] == true { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
}

/// The definition of the custom resource.
fn definition(group: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("trainers.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Trainer", "plural": "trainers"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

#[test]
fn every_attack_is_refused() {
    Table::open("attacks.yaml").run(|row, _, _, reply| {
        let rule = row.fields["refused"].as_str().unwrap();
        let ours = reply.message().starts_with("admission webhook \"")
            && reply.message().contains(".gpufence.io\" denied the request: ");
        match reply.code {
            403 if ours && reply.message().contains(&format!("{rule}: ")) => Ok(()),
            _ => Err(format!("not refused by {rule}")),
        }
    });
}

#[test]
fn what_real_clusters_do_is_admitted() {
    Table::open("legitimate.yaml").run(|row, _, object, reply| {
        if !(200..300).contains(&reply.code) {
            return Err("refused".to_owned());
        }
        if object["kind"] != "Pod" {
            return Ok(());
        }
        let stored = &reply.body;
        let is_completed = row.fields["completed"] == true;
        let own = exact_tolerations(object);
        let expected = if is_completed { 1 } else { own };
        if exact_tolerations(stored) != expected {
            return Err(format!("it has {} exact tolerations", exact_tolerations(stored)));
        }
        let mut selector = object["spec"]["nodeSelector"].clone();
        if is_completed {
            selector[LABEL] = "nvidia".into();
        }
        if stored["spec"]["nodeSelector"] != selector {
            return Err("its nodeSelector is another".to_owned());
        }
        Ok(())
    });
}
