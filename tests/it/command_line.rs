//! The built binary as a person or a pipeline runs it: output, exit codes, and what is read from where.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cases_path;

/// An enforcing contract with a team by name, and others by label.
const CONTRACT: &str = "
mode: enforce
pools:
- name: nvidia
  resources: [nvidia.com/gpu, 'nvidia.com/mig-*']
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  nodeSelector: {workload.example.com/accelerator: nvidia}
  namespaces: {names: [ml-team], selector: {matchLabels: {gpu.example.com/allowed: 'true'}}}
exemptions:
- {name: agents, reason: they run everywhere, namespaces: [monitoring], daemonSets: ['node-*']}
";

/// A folder with a contract, in which the binary runs.
struct Bench {
    folder: TempDir,
}

/// How the binary ended.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Bench {
    fn new(contract: &str) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        bench.write("contract.yaml", contract);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, &[], "")
    }

    fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
        command.args(arguments).env_clear().envs(environment.iter().copied()).current_dir(self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Whoever does not read it has ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ended {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The review of one input under the bench's contract.
    fn review(&self, input: &str) -> Ended {
        self.review_with(&[], input)
    }

    fn review_with(&self, options: &[&str], input: &str) -> Ended {
        let arguments = [&["review", "--config", "contract.yaml", "-"], options].concat();
        self.run_with(&arguments, &[], input)
    }

    fn review_json(&self, input: &str) -> (i32, Value) {
        let ended = self.review_with(&["--output", "json"], input);
        (
            ended.code,
            serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}{}", ended.out, ended.err)),
        )
    }
}

impl Ended {
    #[track_caller]
    fn is(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n--- out\n{}\n--- err\n{}", self.out, self.err);
        // A command speaks to one of the two.
        assert_eq!(self.err.is_empty(), code != 2, "\n--- out\n{}\n--- err\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    fn says(self, out: &str) -> Self {
        assert_eq!(self.out, out.trim_start_matches('\n'));
        self
    }

    #[track_caller]
    fn complains(self, parts: &[&str]) {
        assert!(self.err.starts_with("gpufence: "), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in\n{}", self.err);
        }
    }
}

const CLEAN_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: web}
spec:
  containers: [{name: c, image: i}]
";

const DENIED_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: sneaky, namespace: web}
spec:
  containers: [{name: c, image: i}]
  tolerations: [{key: other, value: x}, {key: dedicated, operator: Exists}]
";

const DENIED_TEXT: &str = "
deny  Pod web/sneaky  standard input
  deny: toleration-outside-allowlist
    at spec.tolerations[1]
    {message}

1 object: 1 denied
";

const GPU_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml-team}
spec:
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
  tolerations: [{key: other, value: x}]
";

fn deployment(namespace: &str, limits: &str, tolerations: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: inference, namespace: {namespace}}}\nspec:\n  template:\n    \
         spec:\n      containers: [{{name: c, resources: {{limits: {limits}}}}}]\n      tolerations: {tolerations}\n"
    )
}

#[test]
fn config_prints_a_contract_that_check_accepts() {
    let bench = Bench::new(CONTRACT);
    for arguments in [&["config"][..], &["config", "--config", "contract.yaml"]] {
        let printed = bench.run(arguments).is(0).out;
        assert!(printed.ends_with('\n'));
        bench.write("printed.yaml", &printed);
        bench.run(&["config", "--check", "printed.yaml"]).is(0).says("printed.yaml: a valid contract\n");
        bench.run(&["config", "--config", "printed.yaml"]).is(0).says(&printed);
    }
}

#[test]
fn config_check_lists_every_fault_and_exits_with_2() {
    let bench = Bench::new("mode: strict\npools: []\nserver: {drain: soon}\n");
    let ended = bench.run(&["config", "--check", "contract.yaml"]).is(2);
    assert_eq!(ended.out, "");
    assert_eq!(
        ended.err,
        "gpufence: the contract has 3 faults:\n  \
         contract.yaml: mode: found \"strict\"; valid is audit, warn, enforce\n  \
         contract.yaml: pools: found an empty list; valid is at least one pool\n  \
         contract.yaml: server.drain: found \"soon\"; valid is a number of seconds of at most 600, such as 12s\n"
    );
    bench.run(&["config", "--check", "missing.yaml"]).is(2).complains(&["cannot read the contract missing.yaml"]);
    for subcommand in [&["config"][..], &["review", "-"], &["serve"]] {
        let arguments = [subcommand, &["--config", "contract.yaml"]].concat();
        bench.run(&arguments).is(2).complains(&["the contract has 3 faults"]);
    }
}

#[test]
fn the_contract_comes_from_the_option_or_the_environment() {
    let bench = Bench::new("mode: warn");
    bench.write("other.yaml", "mode: enforce");
    let mode = |arguments: &[&str], environment: &[(&str, &str)]| {
        let ended = bench.run_with(arguments, environment, "").is(0);
        ended.out.lines().next().unwrap().to_owned()
    };
    assert_eq!(mode(&["config"], &[]), "mode: audit");
    assert_eq!(mode(&["config"], &[("GPUFENCE_CONFIG", "contract.yaml")]), "mode: warn");
    assert_eq!(mode(&["config", "--config", "other.yaml"], &[("GPUFENCE_CONFIG", "contract.yaml")]), "mode: enforce");
    assert_eq!(mode(&["--config", "other.yaml", "config"], &[]), "mode: enforce");
    assert_eq!(mode(&["config", "--config", "other.yaml"], &[("GPUFENCE__MODE", "audit")]), "mode: audit");
    // What the kubelet sets for a Service of our name.
    let kubelet = [("GPUFENCE_PORT", "tcp://10.0.0.1:443"), ("GPUFENCE_SERVICE_HOST", "10.0.0.1")];
    assert_eq!(mode(&["config"], &kubelet), "mode: audit");
    let wrong = bench.run_with(&["config"], &[("GPUFENCE__MODE", "strict")], "").is(2);
    wrong.complains(&["GPUFENCE__MODE: mode: found \"strict\""]);
    let missing = bench.run_with(&["config"], &[("GPUFENCE_CONFIG", "missing.yaml")], "").is(2);
    missing.complains(&["missing.yaml"]);
}

#[test]
fn every_subcommand_explains_itself() {
    let bench = Bench::new("");
    for (arguments, words) in [
        (&["--help"][..], &["serve", "review", "config", "--config <FILE>", "GPUFENCE_CONFIG", "Exit codes"][..]),
        (&["serve", "--help"], &["--config <FILE>", "/mutate", "SIGTERM"]),
        (
            &["review", "--help"],
            &[
                "<FILE>...",
                "--namespace",
                "--as <USER>",
                "--group <GROUP>",
                "--all",
                "--output",
                "text",
                "json",
                "--config <FILE>",
                "Exit code 1",
            ],
        ),
        (&["config", "--help"], &["--check <FILE>", "--config <FILE>", "GPUFENCE__SECTION__KEY"]),
        (&["review", "-h"], &["--namespace"]),
        (&["--version"], &[env!("CARGO_PKG_VERSION")]),
    ] {
        let ended = bench.run(arguments).is(0);
        for word in words {
            assert!(ended.out.contains(word), "no {word} in {arguments:?}:\n{}", ended.out);
        }
        assert!(ended.out.lines().all(|line| line.chars().count() <= 100), "{}", ended.out);
    }
}

#[test]
fn a_command_line_that_cannot_be_read_exits_with_2() {
    let bench = Bench::new("");
    for arguments in
        [&[][..], &["judge"], &["review"], &["review", "-", "--output", "xml"], &["config", "--frob"], &["serve", "x"]]
    {
        let ended = bench.run(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}");
        assert_eq!(ended.out, "", "{arguments:?}");
        assert!(ended.err.contains("Usage: ") || ended.err.contains("try '--help'"), "{}", ended.err);
    }
}

#[test]
fn a_clean_pod_is_counted_and_shown_only_on_request() {
    let bench = Bench::new(CONTRACT);
    bench.review(CLEAN_POD).is(0).says("1 object: 1 clean\n");
    bench.review_with(&["--all"], CLEAN_POD).is(0).says("allow  Pod web/web-1  standard input\n\n1 object: 1 clean\n");
}

#[test]
fn a_denied_pod_is_shown_with_rule_field_and_message() {
    let bench = Bench::new(CONTRACT);
    let (_, report) = bench.review_json(DENIED_POD);
    let message = report["objects"][0]["findings"][0]["message"].as_str().unwrap();
    bench.review(DENIED_POD).is(1).says(&DENIED_TEXT.replace("{message}", message));
}

#[test]
fn a_gpu_pod_is_shown_with_what_it_is_given() {
    let bench = Bench::new(CONTRACT);
    bench.review(GPU_POD).is(0).says(
        "
inject  Pod ml-team/train  standard input
  inject: pool nvidia
    + spec.tolerations[1]: {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}
    + spec.nodeSelector[\"workload.example.com/accelerator\"]: nvidia

1 object: 1 injected
",
    );
    let bare = GPU_POD.replace("  tolerations: [{key: other, value: x}]", "  nodeSelector: {a: b}");
    bench.review(&bare).is(0).says(
        "
inject  Pod ml-team/train  standard input
  inject: pool nvidia
    + spec.tolerations[0]: {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}
    + spec.nodeSelector[\"workload.example.com/accelerator\"]: nvidia

1 object: 1 injected
",
    );
}

#[test]
fn audit_mode_says_what_it_would_do_and_fails_all_the_same() {
    let bench = Bench::new(&CONTRACT.replace("enforce", "audit"));
    let (_, report) = bench.review_json(DENIED_POD);
    let message = report["objects"][0]["findings"][0]["message"].as_str().unwrap();
    let expected = DENIED_TEXT.replace("{message}", message);
    let ended = bench.review(DENIED_POD).is(1);
    let expected = expected.replace("\ndeny  Pod", "would-deny (mode audit)  Pod").replace("  deny:", "  would deny:");
    ended.says(&expected.replace("1 denied", "1 would be denied"));
    let ended = bench.review(GPU_POD).is(0);
    assert!(ended.out.starts_with("would-inject (mode audit)  Pod ml-team/train"), "{}", ended.out);
    assert!(
        ended.out.contains("  would inject: pool nvidia\n    + spec.tolerations[1]: {key: dedicated"),
        "{}",
        ended.out
    );
    assert!(ended.out.ends_with("1 object: 1 would be injected\n"), "{}", ended.out);
}

#[test]
fn every_form_of_input_is_read() {
    let bench = Bench::new(CONTRACT);
    let object = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [],
            "tolerations": [{"operator": "Exists"}]}})
    };
    let mut bare = object("b");
    bare.as_object_mut().unwrap().remove("kind");
    bare.as_object_mut().unwrap().remove("apiVersion");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}});
    let list = |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "items": items}).to_string();
    let documents = format!("---\n{DENIED_POD}\n---\n# nothing\n---\n{service}\n---\n{CLEAN_POD}\n");
    let stream = format!("{}\n{}", object("a"), object("b"));
    for (input, code, objects, passed_over) in [
        (object("a").to_string(), 1, vec![("deny", "a", "standard input")], 0),
        (stream, 1, vec![("deny", "a", "standard input#1"), ("deny", "b", "standard input#2")], 0),
        (
            list("List", json!([object("a"), service, object("b")])),
            1,
            vec![("deny", "a", "standard input#1"), ("deny", "b", "standard input#3")],
            1,
        ),
        (
            list("PodList", json!([bare, object("c")])),
            1,
            vec![("deny", "b", "standard input#1"), ("deny", "c", "standard input#2")],
            0,
        ),
        (documents, 1, vec![("deny", "sneaky", "standard input#1"), ("allow", "web-1", "standard input#3")], 1),
        (service.to_string(), 0, vec![], 1),
        (list("List", json!([])), 0, vec![], 0),
        (String::new(), 0, vec![], 0),
        ("---\n# a comment\n---\n".to_owned(), 0, vec![], 0),
        (format!("\u{feff}{}", CLEAN_POD.trim_start()), 0, vec![("allow", "web-1", "standard input")], 0),
        (CLEAN_POD.replace('\n', "\r\n"), 0, vec![("allow", "web-1", "standard input")], 0),
    ] {
        let (found, report) = bench.review_json(&input);
        let told: Vec<_> = report["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|object| {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                (text(&object["outcome"]), text(&object["object"]["name"]), text(&object["source"]))
            })
            .collect();
        let objects: Vec<_> = objects
            .iter()
            .map(|(outcome, name, source)| ((*outcome).to_owned(), (*name).to_owned(), (*source).to_owned()))
            .collect();
        let kinds = report["passedOver"].as_array().unwrap().iter();
        let counted: u64 = kinds.map(|kind| kind["count"].as_u64().unwrap()).sum();
        assert_eq!((found, told, counted), (code, objects, passed_over), "{input}");
    }
}

#[test]
fn an_object_without_a_namespace_is_judged_in_the_one_that_is_given() {
    let bench = Bench::new(CONTRACT);
    for namespace in [
        "metadata: {name: train}",
        "metadata: {name: train, namespace: ''}",
        "metadata: {generateName: train-, namespace: null}",
    ] {
        let pod = GPU_POD.replace("metadata: {name: train, namespace: ml-team}", namespace);
        let ended = bench.review_with(&["--namespace", "ml-team"], &pod).is(0);
        assert!(ended.out.starts_with("inject  Pod ml-team/train"), "{namespace}: {}", ended.out);
        let ended = bench.review(&pod).is(1);
        assert!(ended.out.starts_with("deny  Pod default/train"), "{namespace}: {}", ended.out);
    }
}

#[test]
fn a_recorded_review_is_judged_as_it_stands() {
    let bench = Bench::new("mode: enforce");
    let recorded = |name: &str| cases_path("admission-reviews").join(name).to_str().unwrap().to_owned();
    let gpu = recorded("mutate-create-pod-gpu-pod.json");
    let ended = bench.run(&["review", "--config", "contract.yaml", &gpu]).is(0);
    assert!(ended.out.starts_with("inject  Pod ml-team/gpu-pod"), "{}", ended.out);
    assert!(
        ended.out.contains("    + spec.nodeSelector[\"workload.example.com/accelerator\"]: nvidia\n"),
        "{}",
        ended.out
    );

    let folder = cases_path("admission-reviews");
    let ended = bench.run(&["review", "--config", "contract.yaml", "-o", "json", folder.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["objects"].as_array().unwrap().len(), 38, "{}", ended.err);
    assert_eq!(ended.code, 1);
}

#[test]
fn folders_are_searched_for_manifests_in_order() {
    let bench = Bench::new(CONTRACT);
    bench.write("deploy/b.yaml", CLEAN_POD);
    bench.write("deploy/a/c.yml", CLEAN_POD);
    bench.write("deploy/z.json", &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "z"}}).to_string());
    bench.write("deploy/README.md", "{ no manifest");
    bench.write("deploy/values.yaml.tpl", "{{ no manifest");
    let ended = bench.run(&["review", "--config", "contract.yaml", "--all", "deploy", "deploy/b.yaml"]).is(0);
    let heads: Vec<_> = ended.out.lines().filter(|line| line.starts_with("allow")).collect();
    assert_eq!(
        heads,
        [
            "allow  Pod web/web-1  deploy/a/c.yml",
            "allow  Pod web/web-1  deploy/b.yaml",
            "allow  Pod default/z  deploy/z.json",
            "allow  Pod web/web-1  deploy/b.yaml",
        ]
    );
}

#[test]
fn a_workload_is_judged_by_its_pods() {
    let bench = Bench::new(CONTRACT);
    bench.review(&deployment("ml-team", "{nvidia.com/gpu: 1}", "[]")).is(0).says(
        "
inject  Deployment ml-team/inference  standard input
  inject into its pods: pool nvidia
    + spec.tolerations[0]: {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}
    + spec.nodeSelector[\"workload.example.com/accelerator\"]: nvidia

1 object: 1 injected
",
    );
    // The templates action only warns, and the pods will be denied.
    let ended = bench.review(&deployment("web", "{nvidia.com/gpu: 1}", "[]")).is(1);
    assert!(
        ended.out.starts_with(
            "deny  Deployment web/inference  standard input\n  deny its pods: gpu-request-outside-allowlist\n"
        ),
        "{}",
        ended.out
    );
    assert!(
        ended.out.contains("    at spec.template.spec.containers[0].resources.limits[\"nvidia.com/gpu\"]\n"),
        "{}",
        ended.out
    );
    bench.review(&deployment("web", "{cpu: 1}", "[]")).is(0).says("1 object: 1 clean\n");
}

#[test]
fn a_workload_is_judged_by_its_pods_even_where_templates_are_let_alone() {
    let bench = Bench::new(&format!("templates: off\n{CONTRACT}"));
    let ended = bench.review(&deployment("web", "{nvidia.com/gpu: 1}", "[]")).is(1);
    assert!(ended.out.contains("gpu-request-outside-allowlist"), "{}", ended.out);
}

#[test]
fn a_workload_without_a_template_is_no_reason_to_stop() {
    let bench = Bench::new(CONTRACT);
    let empty = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: web}\nspec: {}\n";
    let ended = bench.review(&format!("{empty}---\n{DENIED_POD}"));
    assert_eq!(ended.code, 1, "{}", ended.err);
}

#[test]
fn a_cron_jobs_field_is_named_in_full() {
    let bench = Bench::new(CONTRACT);
    let cron_job = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly, namespace: web}\nspec:\n  jobTemplate:\n    \
                    spec: {template: {spec: {tolerations: [{operator: Exists}]}}}\n";
    let ended = bench.review(cron_job).is(1);
    assert!(ended.out.contains("    at spec.jobTemplate.spec.template.spec.tolerations[0]\n"), "{}", ended.out);
}

#[test]
fn a_custom_resource_of_the_contract_is_judged() {
    let rollout = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: canary, namespace: web}\nspec:\n  \
                   template: {spec: {tolerations: [{operator: Exists}], containers: [{name: c}]}}\n";
    let unknown = Bench::new(CONTRACT).review_json(rollout);
    assert_eq!((unknown.0, &unknown.1["objects"]), (0, &json!([])));
    let paths =
        "customResources: [{group: argoproj.io, kind: Rollout, resource: rollouts, templates: [spec.template]}]";
    for templates in ["warn", "deny", "'off'"] {
        let bench = Bench::new(&format!("{CONTRACT}\n{paths}\ntemplates: {templates}"));
        let (code, report) = bench.review_json(rollout);
        let object = &report["objects"][0];
        assert_eq!(
            (code, &object["object"]["kind"], &object["object"]["name"]),
            (1, &json!("Rollout"), &json!("canary")),
            "{report:#}"
        );
        assert_eq!(object["outcome"], "deny");
        assert_eq!(object["findings"][0]["field"], "spec.template.spec.tolerations[0]");
    }
    let bench = Bench::new(&format!("{CONTRACT}\n{paths}"));
    let broken = rollout.replace("[{operator: Exists}]", "5");
    let ended = bench.review_with(&[], &broken);
    assert_eq!(ended.code, 2);
    assert!(
        ended.err.contains("spec.template.spec.tolerations: invalid type: integer `5`, expected a list"),
        "{}",
        ended.err
    );
}

#[test]
fn an_exempt_daemon_set_passes_and_says_why() {
    let bench = Bench::new(CONTRACT);
    let daemon_set = |name: &str| {
        format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: {name}, namespace: monitoring}}\nspec: {{template: {{spec: \
             {{tolerations: [{{operator: Exists}}], containers: []}}}}}}\n"
        )
    };
    bench.review(&daemon_set("node-exporter")).is(0).says(
        "
exempt  DaemonSet monitoring/node-exporter  standard input
  exempt by agents: toleration-outside-allowlist

1 object: 1 exempt
",
    );
    bench.review(&daemon_set("miner")).is(1);
    // A pod that a person applies claims its owner in vain; the controller's own identity counts.
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: monitoring, ownerReferences: [{apiVersion: apps/v1, \
               kind: DaemonSet, name: node-exporter, controller: true}]}\nspec: {tolerations: [{operator: Exists}]}\n";
    bench.review(pod).is(1);
    bench.review_with(&["--as", "system:serviceaccount:kube-system:daemon-set-controller"], pod).is(0);
}

#[test]
fn a_namespace_among_the_manifests_brings_its_labels() {
    let bench = Bench::new(CONTRACT);
    let pod = GPU_POD.replace("ml-team", "vision");
    let namespace = |label: &str| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: vision, labels: {{gpu.example.com/allowed: '{label}'}}}}\n---\n{pod}"
        )
    };
    let ended = bench.review(&namespace("true")).is(0);
    assert!(ended.out.ends_with("2 objects: 1 injected, 1 not judged (1 v1 Namespace)\n"), "{}", ended.out);
    let ended = bench.review(&namespace("false")).is(1);
    assert!(!ended.out.contains("not known"), "{}", ended.out);
    let ended = bench.review(&pod).is(1);
    assert!(ended.out.contains("the labels of vision are not known"), "{}", ended.out);
    assert!(!ended.out.contains("unreadable"), "{}", ended.out);

    let rollout = "rollout: [{selector: {matchLabels: {gpu.example.com/allowed: 'true'}}, mode: audit}]";
    let bench = Bench::new(&format!("{CONTRACT}{rollout}\n"));
    let ended = bench.review(&pod).is(1);
    let told = "unreadable: metadata.namespace is vision, whose labels are not known, and rollout asks for them: judged in \
                mode enforce; give the Namespace too";
    assert!(ended.out.contains(told), "{}", ended.out);
    let ended = bench.review(&namespace("true")).is(0);
    assert!(ended.out.contains("1 would be injected"), "{}", ended.out);
    assert!(!ended.out.contains("unreadable"), "{}", ended.out);
}

#[test]
fn input_that_cannot_be_used_exits_with_2_and_says_where() {
    let bench = Bench::new(CONTRACT);
    for (input, parts) in [
        ("a: [", &["standard input is neither YAML nor JSON"][..]),
        ("{\"kind\": ", &["standard input is neither YAML nor JSON"]),
        ("hello: world\n", &["standard input is not a Kubernetes object: it has no apiVersion and kind"]),
        ("kind: Pod\n", &["is not a Kubernetes object"]),
        ("just text\n", &["is not a Kubernetes object"]),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {tolerations: {key: a}}\n",
            &["standard input: spec.tolerations: invalid type: map, expected a list"],
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{}, {resources: {limits: [1]}}]}\n",
            &[
                "standard input: spec.containers[1].resources.limits: invalid type: sequence, expected a map of quantities",
            ],
        ),
    ] {
        let ended = bench.review(input).is(2);
        assert_eq!(ended.out, "", "{input}");
        ended.complains(parts);
    }
    let review = |file: &str| bench.run(&["review", "--config", "contract.yaml", file]);
    review("missing.yaml").is(2).complains(&["cannot read missing.yaml", "No such file"]);
    bench.write("second.yaml", &format!("{CLEAN_POD}---\nspec: {{}}\n"));
    review("second.yaml").is(2).complains(&["second.yaml#2 is not a Kubernetes object"]);
    std::fs::write(bench.path("bytes.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    review("bytes.yaml").is(2).complains(&["bytes.yaml"]);
}

#[test]
fn a_quantity_that_cannot_be_read_is_reported_and_the_review_goes_on() {
    let bench = Bench::new(CONTRACT);
    let garbage = GPU_POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: many");
    let ended = bench.review(&format!("{garbage}---\n{CLEAN_POD}")).is(0);
    ended.says(
        "
report  Pod ml-team/train  standard input#1
  unreadable: spec.containers[0].resources.limits[\"nvidia.com/gpu\"] is \"many\": not a quantity: expected a number with an \
         optional suffix, such as 1, 500m or 2Gi

2 objects: 1 with unreadable fields, 1 clean
",
    );
}

#[test]
fn the_report_for_programs_has_a_form_that_stays() {
    let bench = Bench::new(CONTRACT);
    let (code, report) = bench
        .review_json(&format!("{DENIED_POD}---\n{GPU_POD}---\n{}", deployment("ml-team", "{nvidia.com/gpu: 1}", "[]")));
    assert_eq!(code, 1);
    let message = report["objects"][0]["findings"][0]["message"].clone();
    assert!(message.as_str().unwrap().starts_with("spec.tolerations[1] passes the taint"), "{message}");
    let toleration = json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"});
    let labels = json!({"workload.example.com/accelerator": "nvidia"});
    let object = |api_version: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name});
    let expected = json!({
        "version": "gpufence.io/review/v1",
        "passedOver": [],
        "foreign": 0,
        "objects": [
            {
                "source": "standard input#1",
                "object": object("v1", "Pod", "web", "sneaky"),
                "mode": "enforce",
                "outcome": "deny",
                "findings": [{
                    "rule": "toleration-outside-allowlist",
                    "configured": "deny",
                    "action": "deny",
                    "field": "spec.tolerations[1]",
                    "message": message,
                }],
                "injection": null,
                "exempted": null,
                "exemptions": [],
                "faults": [],
            },
            {
                "source": "standard input#2",
                "object": object("v1", "Pod", "ml-team", "train"),
                "mode": "enforce",
                "outcome": "inject",
                "findings": [],
                "injection": {
                    "pool": "nvidia",
                    "patch": [
                        {"op": "add", "path": "/spec/tolerations/-", "value": toleration},
                        {"op": "add", "path": "/spec/nodeSelector", "value": labels},
                    ],
                    "enforced": true,
                    "toPods": false,
                },
                "exempted": null,
                "exemptions": [],
                "faults": [],
            },
            {
                "source": "standard input#3",
                "object": object("apps/v1", "Deployment", "ml-team", "inference"),
                "mode": "enforce",
                "outcome": "inject",
                "findings": [],
                "injection": {
                    "pool": "nvidia",
                    "patch": [
                        {"op": "add", "path": "/spec/tolerations/-", "value": toleration},
                        {"op": "add", "path": "/spec/nodeSelector", "value": labels},
                    ],
                    "enforced": true,
                    "toPods": true,
                },
                "exempted": null,
                "exemptions": [],
                "faults": [],
            },
        ],
    });
    assert_eq!(report, expected);
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let bench = Bench::new(CONTRACT);
    // More than a pipe holds, so that the writer meets the closed end.
    bench.write("many.yaml", &[DENIED_POD; 800].join("\n---\n"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
    command.args(["review", "--config", "contract.yaml", "many.yaml"]).env_clear().current_dir(bench.folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    assert_eq!(ended.status.code(), Some(1), "what was found counts, whoever reads it");
}

/// What a folder's rendered charts or `kubectl get pods -A -o yaml` come to.
#[test]
fn the_manifests_of_a_whole_cluster_are_read() {
    let bench = Bench::new(CONTRACT);
    let documents = vec![CLEAN_POD; 1500].join("\n---\n");
    bench.review(&documents).is(0).says("1500 objects: 1500 clean\n");
}

#[test]
fn a_very_long_list_is_read() {
    let bench = Bench::new(CONTRACT);
    let many = format!("args: [{}]", vec!["a"; 260_000].join(","));
    bench.review(&CLEAN_POD.replace("name: c,", &format!("name: c, {many},"))).is(0).says("1 object: 1 clean\n");
}

#[test]
fn a_folder_may_hold_files_that_are_no_manifests() {
    let bench = Bench::new(CONTRACT);
    std::fs::create_dir(bench.path("deploy")).unwrap();
    bench.write("deploy/values.yaml", "replicas: 3\n");
    bench.write("deploy/pod.yaml", DENIED_POD);
    let ended = bench.run(&["review", "--config", "contract.yaml", "deploy"]).is(1);
    assert!(ended.out.contains("deny  Pod web/sneaky  deploy/pod.yaml"), "{}", ended.out);
    assert!(ended.out.ends_with("2 objects: 1 denied, 1 documents that are no Kubernetes objects\n"), "{}", ended.out);
}

#[test]
fn what_cannot_be_used_does_not_keep_the_rest_from_being_judged() {
    let bench = Bench::new(CONTRACT);
    bench.write("pod.yaml", DENIED_POD);
    bench.write("broken.yaml", "a: [");
    let ended = bench.run(&["review", "--config", "contract.yaml", "missing.yaml", "broken.yaml", "pod.yaml"]).is(2);
    assert!(ended.out.contains("deny  Pod web/sneaky  pod.yaml"), "{}", ended.out);
    ended.complains(&["cannot read missing.yaml", "broken.yaml is neither YAML nor JSON"]);
}

#[test]
fn kinds_that_are_not_judged_are_named() {
    let bench = Bench::new(CONTRACT);
    let ended = bench.review("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\n").is(0);
    assert_eq!(ended.out, "1 object: 1 not judged (1 kubeflow.org/v1 PyTorchJob)\n");
}

#[test]
fn names_cannot_command_the_terminal() {
    let bench = Bench::new(CONTRACT);
    let pod = DENIED_POD.replace("sneaky", "\"a\\e[31m\\n::error b\\u202E\"");
    let ended = bench.review(&pod).is(1);
    assert!(
        ended.out.starts_with("deny  Pod web/a\u{fffd}[31m\u{fffd}::error b\u{fffd}  standard input\n"),
        "{:?}",
        ended.out
    );
}

#[test]
fn a_review_knows_the_user_and_the_groups() {
    let exemption = "exemptions:\n- {name: admins, reason: r, users: ['jane*'], groups: [gpu-admins]}\n\
                     - {name: old, reason: r, users: [joe], expires: 2020-01-31}\n\
                     - {name: checks, reason: r, namespaces: [web], owners: [{kind: ReplicaSet, name: 'checks-*'}]}\n";
    let (before, _) = CONTRACT.split_once("exemptions:\n").unwrap();
    let bench = Bench::new(&format!("{before}{exemption}"));
    for (options, code) in [
        (&[][..], 1),
        (&["--as", "jane"], 1),
        (&["--group", "gpu-admins"], 1),
        (&["--as", "jane", "--group", "other", "--group", "gpu-admins"], 0),
    ] {
        let ended = bench.review_with(options, DENIED_POD).is(code);
        assert_eq!(ended.out.contains("exempt by admins: "), code == 0, "{}", ended.out);
    }
    let ended = bench.review_with(&["--as", "joe"], DENIED_POD).is(1);
    assert!(ended.out.contains(" Exemption old expired on 2020-01-31.\n"), "{}", ended.out);
    let deployment = |name: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: web}}\nspec: {{template: {{spec: \
             {{tolerations: [{{operator: Exists}}], containers: []}}}}}}\n"
        )
    };
    bench.review(&deployment("checks")).is(0);
    bench.review(&deployment("shop")).is(1);
    // The contract is printed with what has expired, as it is.
    let printed = bench.run(&["config", "--config", "contract.yaml"]).is(0);
    assert!(printed.out.contains("2020-01-31"), "{}", printed.out);
}
