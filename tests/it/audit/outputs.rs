//! What an audit looks like: golden files of each form, and the command as the built binary runs it.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it audit::outputs` writes the golden files anew; the diff is then for a person to
//! read.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gpufence::audit::snapshot::{Amounts, Qos};
use gpufence::audit::{
    Affected, Audit, BudgetInTheWay, ByClass, Check, Class, Coverage, DaemonSetChange, DaemonSetFate, Entry, Fate,
    Finding, GpuResource, Gpus, Newcomers, NodeAccount, NodeBackup, NodeChange, ObjectRef, Occupant, Pending,
    PoolAccount, Severity, Since, Step, Summary, Then, Totals, What, WhatIf,
};
use gpufence::policy::Rule;
use gpufence::report::audit::{
    LONGEST_MARKDOWN, MOST_RESULTS, Shown, by_rule, dump_command, facts, json, markdown, next_steps, sarif, text,
    verdict,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster::{CONTRACT, Cluster, gpu_node, node, pod, workload};

const SCHEMA: &str = include_str!("../../../deploy/audit-v1.schema.json");

fn object(api_version: &str, kind: &str, name: &str) -> ObjectRef {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectRef::new(api_version, kind, namespace, name)
}

fn amounts(cpu_milli: i64, gib: i64) -> Amounts {
    let extended = vec![("nvidia.com/gpu".into(), 1)];
    Amounts { cpu_milli, memory_bytes: gib << 30, ephemeral_storage_bytes: 1 << 30, pods: 1, extended }
}

fn ordinary(name: &str, node: &str) -> Finding {
    let message = format!("is on {node}, requests no GPU, and takes 2 cores and 8Gi of it");
    Finding::new(Check::OrdinaryPod, Severity::High, object("v1", "Pod", name), message, "move it off the GPU nodes")
        .in_pool("nvidia")
        .on_node(node)
}

/// An audit that says nothing.
fn clean() -> Audit {
    let audit = Cluster::new().objects([gpu_node("gpu-1")]).audit();
    Audit {
        summary: Summary { nodes: 1, gpu_nodes: 1, ..Summary::default() },
        pools: Vec::new(),
        nodes: Vec::new(),
        daemon_sets: Vec::new(),
        pending: Vec::new(),
        findings: Vec::new(),
        gaps: Vec::new(),
        ..audit
    }
}

/// Findings of every severity, and of one and of several about the same.
fn findings() -> Vec<Finding> {
    let shop = object("apps/v1", "Deployment", "web/shop");
    let mut findings: Vec<_> = ["gpu-2", "gpu-3"]
        .into_iter()
        .map(|name| {
            let (message, action) = (
                "has 8 nvidia.com/gpu and lacks the taint dedicated=gpu:NoSchedule of pool nvidia",
                format!("kubectl taint node {name} dedicated=gpu:NoSchedule"),
            );
            Finding::new(Check::NodeWithoutTaint, Severity::High, object("v1", "Node", name), message, action)
                .in_pool("nvidia")
        })
        .collect();
    findings.extend((1..=12).map(|pod| ordinary(&format!("web/shop-{pod:02}"), "gpu-2").made_by(Some(&shop))));
    findings.extend((1..=11).map(|pod| ordinary(&format!("web/bare-{pod:02}"), "gpu-3")));
    findings.push(ordinary("web/odd|<b>`name`\u{1b}[2J", "gpu-3"));
    findings.push(ordinary("web/cron-1-x", "gpu-3").made_by(Some(&object("batch/v1", "CronJob", "web/cron"))));
    let rule = Check::Contract(Rule::BroadToleration);
    let message = "tolerates every taint of the key dedicated";
    let action = "replace it by:\n- {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}";
    let broad = Finding::new(rule, Severity::Medium, object("apps/v1", "Deployment", "ml/train"), message, action);
    findings.push(broad.clone().at("spec.template.spec.tolerations[0]"));
    findings.push(broad.at("spec.template.spec.tolerations[2]"));
    let waiting = object("v1", "Pod", "ml/train-1");
    let (message, action) = ("finds no node: 2 GPUs are free and blocked on gpu-2", "move web/shop off gpu-2");
    let train = object("apps/v1", "Deployment", "ml/train");
    findings.push(
        Finding::new(Check::PodPending, Severity::Medium, waiting.clone(), message, action).made_by(Some(&train)),
    );
    let message = "takes no new pods; 8 GPUs of it are not counted as free";
    let action = "kubectl uncordon gpu-4, once it is fit";
    findings.push(Finding::new(Check::NodeCordoned, Severity::Info, object("v1", "Node", "gpu-4"), message, action));
    findings
}

const GPUS: Gpus = Gpus { allocatable: 24, requested: 10, free: 6, blocked: 2, out_of_use: 8 };

/// A node with a pod of each class, each of which got in by another way.
fn account() -> NodeAccount {
    let shop = object("apps/v1", "Deployment", "web/shop");
    let tolerates = Entry::Tolerates {
        taint: "dedicated=gpu:NoSchedule".into(),
        field: "spec.tolerations[0]".into(),
        toleration: "{operator: Exists}".into(),
        exact: false,
    };
    let entries = [tolerates, Entry::NodeName, Entry::BeforeTaint { taint: "dedicated=gpu:NoSchedule".into() }];
    let occupant = |(index, entry)| Occupant {
        namespace: "web".into(),
        name: format!("shop-{index}"),
        class: [Class::GpuWorkload, Class::DaemonSet, Class::Platform, Class::Ordinary][index],
        controller: (index > 0).then(|| shop.clone()),
        qos: [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort, Qos::BestEffort][index],
        requests: amounts(2_000, 8),
        entry,
        action: String::new(),
    };
    NodeAccount {
        name: "gpu-2".into(),
        pools: vec!["nvidia".into()],
        group: "node pool gpu-a100".into(),
        ready: Some(true),
        taints: vec!["example.com/maintenance:NoExecute".into()],
        gpus: GPUS,
        resources: vec![GpuResource { name: "nvidia.com/gpu".into(), capacity: 8, allocatable: 8, requested: 4 }],
        blocked_by: vec!["cpu", "pods"],
        allocatable: amounts(64_000, 512),
        requested: ByClass { gpu_workload: amounts(8_000, 64), ..ByClass::default() },
        occupants: entries.into_iter().chain([Entry::NoTaint]).enumerate().map(occupant).collect(),
        ..NodeAccount::default()
    }
}

/// An audit that says everything that one can say.
fn sample() -> Audit {
    let findings = findings();
    let train = object("apps/v1", "Deployment", "ml/train");
    let agent = |name: &str, role, missing: &[&str], with_taints| Coverage {
        daemon_set: object("apps/v1", "DaemonSet", name),
        role,
        expected: true,
        selected: 4,
        running: 4 - missing.len(),
        missing: missing.iter().map(|name| (*name).to_owned()).collect(),
        with_taints,
        add: if with_taints < 4 { vec!["{key: dedicated, operator: Exists}".into()] } else { Vec::new() },
    };
    let pending = |name: &str, causes: &[&'static str], scheduler: Option<&str>| Pending {
        object: object("v1", "Pod", name),
        controller: name.starts_with("ml/train").then(|| train.clone()),
        pool: Some("nvidia".into()),
        causes: causes.to_vec(),
        scheduler: scheduler.map(str::to_owned),
        message: "lacks the toleration of dedicated=gpu:NoSchedule".into(),
        action: "use a namespace that the pool allows".into(),
    };
    let counted = findings.iter().fold(gpufence::audit::BySeverity::default(), |mut counts, finding| {
        *counts.of(finding.severity) += 1;
        counts
    });
    Audit {
        source: "dump.json".into(),
        contract: "contract.yaml".into(),
        mode: "audit",
        summary: Summary {
            nodes: 40,
            gpu_nodes: 4,
            drifted_nodes: 2,
            pods: 900,
            pods_unknown: false,
            pods_on_gpu_nodes: ByClass { gpu_workload: 6, daemon_set: 12, platform: 1, ordinary: 25 },
            findings: counted,
            hidden: None,
            resolved: None,
        },
        pools: vec![
            PoolAccount {
                name: "nvidia".into(),
                nodes: 4,
                gpus: GPUS,
                ordinary_pods: 25,
                needs: Some(amounts(8_000, 64)),
                gpus_per_pod: Some(1),
            },
            PoolAccount { name: "spare".into(), ..PoolAccount::default() },
        ],
        nodes: vec![account()],
        daemon_sets: vec![
            agent("kube-system/cilium", Some("network"), &[], 4),
            agent("logging/fluent-bit", Some("logs"), &["gpu-1", "gpu-4"], 0),
            agent("web/agent", None, &[], 2),
        ],
        pending: vec![
            pending("ml/train-1", &["blocked"], Some("0/40 nodes are available: 4 Insufficient cpu.")),
            pending("ml/train-2", &["blocked"], None),
            pending("web/probe", &["toleration", "gpus"], None),
        ],
        findings,
        gaps: vec!["the events of the cluster are not all known".into(), "dump.json#7: the Pod cannot be read".into()],
        ..clean()
    }
}

/// A change of which there is something to say in every field.
fn changed() -> WhatIf {
    let pod = |then: Then| Affected {
        namespace: "web".into(),
        name: "shop-01".into(),
        node: "gpu-2".into(),
        controller: Some(object("apps/v1", "Deployment", "web/shop")),
        requests_gpu: false,
        fate: Fate::EvictedLater,
        after_seconds: Some(60),
        then,
    };
    WhatIf {
        change: What::TaintNoexecute,
        pool: "nvidia".into(),
        adds: vec!["dedicated=gpu:NoExecute".into()],
        verdict: "2 pods would be evicted.".into(),
        summary: Totals { nodes_changed: 1, evicted: 2, ..Totals::default() },
        nodes: vec![NodeChange {
            name: "gpu-2".into(),
            adds: vec!["dedicated=gpu:NoExecute".into()],
            replaces: vec!["dedicated=gpu:NoSchedule".into()],
            removes: Vec::new(),
            offers_gpus: true,
            ordinary_pods: 2,
        }],
        pods: vec![pod(Then::Elsewhere { to: "cpu-1".into() }), pod(Then::Nowhere { why: "no CPU is left".into() })],
        daemon_sets: vec![DaemonSetChange {
            daemon_set: object("apps/v1", "DaemonSet", "logging/fluent-bit"),
            fate: DaemonSetFate::Deleted,
            nodes: vec!["gpu-2".into()],
            add: vec!["{key: dedicated, operator: Exists}".into()],
        }],
        budgets: vec![BudgetInTheWay {
            namespace: "web".into(),
            name: "shop".into(),
            pods: 2,
            disruptions_allowed: Some(0),
            is_passed_by: true,
        }],
        newcomers: Newcomers {
            pending: vec![object("v1", "Pod", "ml/train-1")],
            ordinary: vec![object("v1", "Pod", "web/odd")],
        },
        gaps: vec!["the events of the cluster are not all known".into()],
        backup: vec![NodeBackup {
            name: "gpu-2".into(),
            labels: [("accelerator".into(), "nvidia".into())].into(),
            taints: vec!["dedicated=gpu:NoSchedule".into()],
        }],
        backup_commands: vec!["kubectl get node gpu-2 -o yaml > backup.yaml".into()],
        pilot_node: Some("gpu-2".into()),
        pilot: vec![Step { note: "Cordon it".into(), command: "kubectl cordon gpu-2".into() }],
        rollback: vec!["kubectl taint node gpu-2 dedicated=gpu:NoExecute-".into()],
    }
}

/// What of the sample is new since a baseline that had nearly all of it.
fn since() -> Audit {
    let mut audit = sample();
    let hidden = audit.findings.len() - 3;
    audit.findings.retain(|finding| finding.object.name.ends_with("gpu-3") || finding.rule == Check::PodPending);
    audit.summary.hidden = Some(hidden);
    audit.summary.resolved = Some(2);
    audit.baseline = Some(Since { source: "base.json".into(), known_gaps: vec![audit.gaps[0].clone()] });
    audit
}

const FROM_FILES: Shown = Shown { everything: false, coloured: false, from_files: true };

#[track_caller]
fn is_golden(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/audit").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| !value.is_empty()) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    let at = expected.lines().zip(found.lines()).position(|(expected, found)| expected != found);
    let [old, new] = [&expected, found].map(|text| text.lines().nth(at.unwrap_or_default()).unwrap_or_default());
    assert!(expected == found, "tests/golden/audit/{name} is not what is printed, line {at:?}:\n-{old}\n+{new}");
}

#[test]
fn the_golden_files_are_what_is_printed() {
    let audit = sample();
    is_golden("audit.txt", &text(&audit, FROM_FILES));
    is_golden("all.txt", &text(&audit, Shown { everything: true, from_files: false, coloured: false }));
    is_golden("clean.txt", &text(&clean(), Shown::default()));
    is_golden("audit.md", &markdown(&audit, FROM_FILES));
    is_golden("since.txt", &text(&since(), FROM_FILES));
    is_golden("since.md", &markdown(&since(), FROM_FILES));
    is_golden("clean.md", &markdown(&clean(), Shown::default()));
    is_golden("what-if.md", &markdown(&Audit { what_if: Some(changed()), ..clean() }, Shown::default()));
    is_golden("audit.json", &json(&audit).unwrap());
    is_golden("audit.sarif", &format!("{:#}\n", sarif(&audit, Some("dump.json"))));
}

/// A terminal obeys nothing that stands in an object, and with colours nothing but our own.
#[test]
fn nothing_of_an_object_reaches_the_terminal() {
    let evil = "evil\u{1b}[2J\u{7}\u{202e}\r";
    let mut audit = sample();
    audit.source = evil.into();
    audit.gaps.push(evil.into());
    for finding in &mut audit.findings {
        (finding.object.name, finding.message, finding.action) = (evil.into(), evil.into(), evil.into());
        finding.fingerprint = "same".into();
        finding.controller = finding.controller.as_ref().map(|_| object(evil, evil, evil));
        (finding.node, finding.pool, finding.field) = (Some(evil.into()), Some(evil.into()), Some(evil.into()));
    }
    for pending in &mut audit.pending {
        (pending.message, pending.action, pending.scheduler) = (evil.into(), evil.into(), Some(evil.into()));
        (pending.object, pending.pool) = (object(evil, evil, evil), Some(evil.into()));
    }
    for coverage in &mut audit.daemon_sets {
        coverage.daemon_set = object(evil, evil, evil);
        coverage.missing = vec![evil.into()];
        coverage.add = vec![evil.into()];
    }
    audit.pools[0].name = evil.into();
    let obeyed = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    for everything in [false, true] {
        for coloured in [false, true] {
            let shown = Shown { everything, coloured, from_files: true };
            let mut printed = text(&audit, shown);
            for code in ["1;31", "1;33", "1;36", "1;32", "1", "0"] {
                printed = printed.replace(&format!("\u{1b}[{code}m"), "");
            }
            assert_eq!(printed.find(obeyed), None, "{printed}");
            // Colours only add to what is said without.
            assert_eq!(printed, text(&audit, Shown { coloured: false, ..shown }));
        }
    }
    let printed = markdown(&audit, FROM_FILES);
    assert_eq!(printed.find(obeyed), None, "{printed}");
    let printed = sarif(&audit, None).to_string();
    assert_eq!(printed.find(obeyed), None);
    assert!(!printed.contains("\\u001b"));
}

#[test]
fn pods_of_one_maker_are_one_line() {
    let deployment = object("apps/v1", "Deployment", "web/shop");
    let mut audit = clean();
    audit.findings =
        (0..10_000).map(|pod| ordinary(&format!("web/shop-{pod}"), "gpu-1").made_by(Some(&deployment))).collect();
    let printed = text(&audit, Shown::default());
    let about: Vec<_> = printed.lines().filter(|line| line.contains("shop")).collect();
    assert_eq!(about, ["  Deployment web/shop (pool nvidia): 10000 pods, such as Pod web/shop-0 on gpu-1"]);
    assert!(printed.contains("HIGH  ordinary-pod-on-gpu-node (10000): an ordinary pod on a GPU node\n"), "{printed}");
    let groups = by_rule(&audit.findings);
    assert_eq!((groups.len(), groups[0].subjects.len(), groups[0].count()), (1, 1, 10_000));
    assert_eq!(text(&audit, Shown { everything: true, ..Shown::default() }).matches("Pod web/shop-").count(), 10_000);
}

/// The template comes first and its pods follow from it; where each finding has a command of its own, that is said.
#[test]
fn what_is_made_follows_from_its_template() {
    let rule = Check::Contract(Rule::BroadToleration);
    let maker = object("workload.example.com/v1", "Widget", "ml/train");
    let at = |who: ObjectRef, action: &str| Finding::new(rule, Severity::High, who, "tolerates too much", action);
    let of_pod =
        |name: &str| at(object("v1", "Pod", name), &format!("kubectl delete pod {name}")).made_by(Some(&maker));
    let mut audit = clean();
    audit.findings = vec![of_pod("ml/a"), of_pod("ml/b"), at(maker.clone(), "change the template")];
    let lines = |audit: &Audit, everything: bool| {
        let printed = text(audit, Shown { everything, ..Shown::default() });
        let from = printed.find("HIGH").unwrap();
        printed[from..].lines().skip(1).take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let whole = ["  Widget ml/train and 2 pods of it", "    tolerates too much", "    -> change the template"];
    assert_eq!(lines(&audit, false), whole);
    assert_eq!(lines(&audit, true).len(), 5, "each pod is named: {:?}", lines(&audit, true));
    // Without the template each pod has its own.
    audit.findings.pop();
    assert_eq!(
        lines(&audit, false),
        [
            "  Widget ml/train: 2 pods, such as Pod ml/a",
            "    tolerates too much",
            "    -> kubectl delete pod ml/a",
            "       that is for this one; each of the others has its own: --all",
        ]
    );
    let all = lines(&audit, true);
    assert!(all.contains(&"      -> kubectl delete pod ml/b".to_owned()), "{all:?}");
    // What is the same for both stands once.
    audit.findings[1].action = audit.findings[0].action.clone();
    assert_eq!(lines(&audit, false).len(), 3);
}

/// What a baseline had is not told as new, and never as nothing.
#[test]
fn a_baseline_is_said_to_be_one() {
    let mut audit = since();
    let said = "New since base.json (28 known findings are not shown, 2 of the baseline are gone): 1 finding is high: the \
                fence is open, or GPUs cannot be used.";
    assert_eq!(verdict(&audit).1, said);
    let (sets, pods, gaps) = audit.unseen();
    assert_eq!((sets.len(), pods.len(), gaps.len()), (0, 1, 1));
    audit.findings.clear();
    audit.summary.resolved = Some(0);
    assert_eq!(verdict(&audit), (None, "Nothing new since base.json (28 known findings are not shown).".into()));
    audit.summary.resolved = Some(1);
    assert!(verdict(&audit).1.ends_with("not shown, 1 of the baseline is gone)."));
    let known = "As in the baseline, and not shown: 2 DaemonSets that miss GPU nodes, 3 pods that find no node, 1 gap.";
    for printed in [text(&audit, FROM_FILES), markdown(&audit, FROM_FILES)] {
        assert!(printed.contains(known), "{printed}");
        assert!(!printed.contains("fluent-bit") && !printed.contains("Nothing breaks"), "{printed}");
    }
    assert_eq!(sample().unseen().0.len(), sample().daemon_sets.len());
}

/// The worst severity comes first, then the rule's place in the catalogue, then who has most of it.
#[test]
fn the_worst_comes_first() {
    let mut audit = sample();
    let order = |audit: &Audit| {
        let groups = by_rule(&audit.findings);
        let of = |group: &gpufence::report::audit::RuleGroup<'_>| {
            format!("{} {} {}", group.severity.as_str(), group.rule, group.subjects[0].maker)
        };
        groups.iter().map(of).collect::<Vec<_>>()
    };
    let expected = [
        "high node-without-taint Node gpu-2",
        "high ordinary-pod-on-gpu-node Deployment web/shop",
        "medium broad-toleration Deployment ml/train",
        "medium pod-pending Deployment ml/train",
        "info node-cordoned Node gpu-4",
    ];
    assert_eq!(order(&audit), expected);
    audit.findings.reverse();
    assert_eq!(order(&audit), expected);
}

#[test]
fn a_line_says_what_the_audit_comes_to() {
    let mut audit = clean();
    assert_eq!(verdict(&audit), (None, "Nothing breaks the contract.".into()));
    let at = |severity| Finding::new(Check::NodeCordoned, severity, object("v1", "Node", "gpu-1"), "is so", "do so");
    for (severity, said) in [
        (Severity::Info, "Nothing has to be done; 1 finding is for information."),
        (Severity::Low, "1 finding is low: untidy, but no harm is done."),
        (Severity::Medium, "1 finding is medium: it costs something, or will when something else happens."),
        (Severity::High, "1 finding is high: the fence is open, or GPUs cannot be used."),
    ] {
        audit.findings.push(at(severity));
        assert_eq!(verdict(&audit), (Some(severity), said.into()));
    }
    audit.gaps.push("the events of the cluster are not all known".into());
    audit.summary.gpu_nodes = 0;
    assert_eq!(facts(&audit), "No node that has to do with GPUs is known. Not everything could be judged: see below.");
    audit.summary.gpu_nodes = 1;
    assert_eq!(facts(&audit), "Not everything could be judged: see below.");
    assert_eq!(verdict(&sample()).1, "27 findings are high: the fence is open, or GPUs cannot be used.");
    let told = "25 ordinary pods are on GPU nodes, 2 of 6 free GPUs cannot be used, 2 of 4 GPU nodes differ from the \
                contract. Not everything could be judged: see below.";
    assert_eq!(facts(&sample()), told);
    assert_eq!(facts(&clean()), "");
}

#[test]
fn what_to_do_next_follows_from_what_was_found() {
    let words = |audit: &Audit| {
        let steps = next_steps(audit).join("\n");
        ["--what-if", "--adopt 30d", "mode audit", "--baseline", "--fail-on"].map(|word| steps.contains(word))
    };
    assert_eq!(words(&sample()), [true, true, true, true, false]);
    assert_eq!(words(&clean()), [false, false, false, false, true]);
    let mut audit = clean();
    audit.findings = vec![ordinary("web/a", "gpu-1")];
    assert_eq!(words(&audit), [false, true, false, true, false]);
    audit.findings = vec![sample().findings[0].clone()];
    assert_eq!(words(&audit), [true, false, false, true, false]);
}

/// However much was found, a ticket takes it, the worst of it is there, and what is not is counted.
#[test]
fn markdown_is_never_too_long_for_a_ticket() {
    let mut audit = sample();
    let long = "|<&`*_\u{1b}".repeat(1_000);
    for index in 0..3_000 {
        let severity = Severity::WORST_FIRST[index % 4];
        let mut finding = ordinary(&format!("web/pod-{index}"), "gpu-1");
        (finding.severity, finding.message, finding.action) = (severity, long.clone(), long.clone());
        audit.findings.push(finding);
        audit.gaps.push(long.clone());
        audit.daemon_sets.push(Coverage { missing: vec![long.clone()], ..audit.daemon_sets[1].clone() });
        audit.pending.push(Pending { message: long.clone(), ..audit.pending[0].clone() });
        audit.pools.push(PoolAccount { name: long.clone(), ..PoolAccount::default() });
    }
    audit.source = long;
    let printed = markdown(&audit, FROM_FILES);
    let length = printed.chars().count();
    assert!((30_000..=LONGEST_MARKDOWN).contains(&length), "{length}");
    assert!(printed.contains("Node gpu-2 (pool nvidia)"), "{printed}");
    assert!(printed.contains(" more rows have no room here: `--output json` has them.\n"));
    assert_eq!(printed.matches("<details>").count(), printed.matches("</details>").count());
    assert!(printed.contains("## What to do next"));
}

/// Every cell is one cell, whatever the text in it.
#[test]
fn markdown_takes_no_markup_from_an_object() {
    let mut audit = clean();
    let message = "a|b `c` <img src=x> [d](e) *f* \\ ~g~ & #1\n| h |";
    audit.findings =
        vec![Finding::new(Check::NodeCordoned, Severity::Low, object("v1", "Node", "n|<b>"), message, "do")];
    let printed = markdown(&audit, Shown::default());
    let row = printed.lines().find(|line| line.starts_with("| node-cordoned")).unwrap();
    let expected = "| node-cordoned | Node n\\|&lt;b&gt; | a\\|b \\`c\\` &lt;img src=x&gt; \\[d\\](e) \\*f\\* \\\\ \\~g\\~ \
                    &amp; \\#1<br>\\| h \\| | do |";
    assert_eq!(row, expected);
}

/// What SARIF 2.1.0 requires, and what GitHub asks beyond that.
#[test]
fn sarif_has_what_its_readers_require() {
    let audit = sample();
    for (file, uri) in [
        (Some("dump.json"), Some("dump.json")),
        (Some("./a b/ü#1.json"), Some("a%20b/%C3%BC%231.json")),
        (Some("/tmp/dump.json"), Some("file:///tmp/dump.json")),
        (None, None),
    ] {
        let log = sarif(&audit, file);
        assert_eq!(log["version"], "2.1.0");
        assert!(log["$schema"].as_str().unwrap().ends_with("sarif-schema-2.1.0.json"));
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["name"], "gpufence");
        assert_eq!(run["tool"]["driver"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(run["invocations"][0]["executionSuccessful"], true);
        assert_eq!(run["invocations"][0]["toolExecutionNotifications"].as_array().unwrap().len(), 2);
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        let ids: Vec<_> = rules.iter().map(|rule| rule["id"].as_str().unwrap()).collect();
        assert_eq!(ids, Check::all().map(Check::id).collect::<Vec<_>>());
        let levels = ["error", "warning", "note"];
        for (rule, check) in rules.iter().zip(Check::all()) {
            assert_eq!(rule["shortDescription"]["text"], check.title());
            assert!(levels.contains(&rule["defaultConfiguration"]["level"].as_str().unwrap()));
        }
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), audit.findings.len());
        for (result, finding) in results.iter().zip(&audit.findings) {
            assert_eq!(result["ruleId"], finding.rule.id());
            assert_eq!(ids[usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()], finding.rule.id());
            assert!(result["message"]["text"].as_str().unwrap().ends_with(&finding.action));
            assert_eq!(result["partialFingerprints"]["gpufence/v1"], finding.fingerprint.as_str());
            let level = match finding.severity {
                Severity::High => "error",
                Severity::Medium => "warning",
                Severity::Low | Severity::Info => "note",
            };
            assert_eq!(result["level"], level);
            let location = &result["locations"][0];
            assert_eq!(location["physicalLocation"]["artifactLocation"]["uri"].as_str(), uri);
            assert_eq!(location.get("physicalLocation").is_some(), uri.is_some());
            assert_eq!(location["physicalLocation"].get("region"), None, "no line is known");
        }
        let names = |index: usize| results[index]["locations"][0]["logicalLocations"][0]["fullyQualifiedName"].clone();
        assert_eq!((names(0), names(2)), (json!("Node/gpu-2"), json!("Pod/web/shop-01")));
    }
}

/// GitHub refuses more, so that the least of it is left out, and said to be.
#[test]
fn sarif_has_no_more_results_than_are_taken() {
    let mut audit = clean();
    audit.findings = vec![ordinary("web/a", "gpu-1"); MOST_RESULTS + 2];
    let log = sarif(&audit, None);
    assert_eq!(log["runs"][0]["results"].as_array().unwrap().len(), MOST_RESULTS);
    let note = &log["runs"][0]["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"];
    assert_eq!(note, "2 findings are left out, the least of them: --output json has all");
}

/// Holds a value to the schema, with the keywords that ours uses, and notes which of its properties there were.
struct Schema<'s> {
    root: &'s Value,
    seen: BTreeSet<String>,
}

impl Schema<'_> {
    /// `owner` is the definition that the value belongs to.
    fn check(&mut self, value: &Value, schema: &Value, owner: &str) -> Result<(), String> {
        for (keyword, wanted) in schema.as_object().unwrap() {
            let holds = match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" => true,
                "$ref" => {
                    let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                    self.check(value, &self.root["$defs"][name], name)?;
                    true
                }
                "type" => match wanted.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64(),
                    "boolean" => value.is_boolean(),
                    other => panic!("{other}"),
                },
                "format" => time::OffsetDateTime::parse(
                    value.as_str().unwrap_or_default(),
                    &time::format_description::well_known::Rfc3339,
                )
                .is_ok(),
                "minimum" => value.as_i64() >= wanted.as_i64(),
                "const" => value == wanted,
                "enum" => wanted.as_array().unwrap().contains(value),
                "required" => wanted.as_array().unwrap().iter().all(|key| value.get(key.as_str().unwrap()).is_some()),
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.check(item, wanted, owner)?;
                    }
                    true
                }
                "additionalProperties" => {
                    for item in value.as_object().into_iter().flatten().map(|(_, item)| item) {
                        self.check(item, wanted, owner)?;
                    }
                    true
                }
                "properties" => {
                    for (key, item) in value.as_object().into_iter().flatten() {
                        let Some(wanted) = wanted.get(key) else {
                            return Err(format!("{owner} does not have {key}"));
                        };
                        self.check(item, wanted, owner)?;
                        self.seen.insert(format!("{owner}.{key}"));
                    }
                    true
                }
                "oneOf" => {
                    let choices = wanted.as_array().unwrap();
                    choices.iter().filter(|choice| self.check(value, choice, owner).is_ok()).count() == 1
                }
                other => panic!("the schema has the keyword {other}, which this test does not know"),
            };
            if !holds {
                return Err(format!("{owner}: {value} breaks {keyword} {wanted}"));
            }
        }
        Ok(())
    }

    /// Checks the document against the whole schema.
    #[track_caller]
    fn holds(text: &str) -> BTreeSet<String> {
        let root: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut schema = Schema { root: &root, seen: BTreeSet::new() };
        let value = serde_json::from_str(text).unwrap();
        schema.check(&value, &root, "audit").unwrap();
        schema.seen
    }
}

/// Every property that the schema describes, as `definition.property`.
fn described() -> BTreeSet<String> {
    fn collect(owner: &str, schema: &Value, all: &mut BTreeSet<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            all.insert(format!("{owner}.{key}"));
            collect(owner, property, all);
        }
        schema["oneOf"].as_array().into_iter().flatten().for_each(|choice| collect(owner, choice, all));
    }
    let root: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut all = BTreeSet::new();
    collect("audit", &root, &mut all);
    for (name, schema) in root["$defs"].as_object().unwrap() {
        collect(name, schema, &mut all);
    }
    all
}

#[test]
fn the_schema_says_what_the_json_has_and_no_more() {
    let mut seen = Schema::holds(&json(&Audit { what_if: Some(changed()), ..sample() }).unwrap());
    let summary = Summary { pods_unknown: true, ..Summary::default() };
    seen.extend(Schema::holds(&json(&Audit { summary, ..clean() }).unwrap()));
    seen.extend(Schema::holds(&json(&since()).unwrap()));
    assert_eq!(described().difference(&seen).collect::<Vec<_>>(), Vec::<&String>::new());
    Schema::holds(&json(&clean()).unwrap());
    // It is no schema of anything: what is amiss is seen.
    for (pointer, value) in [
        ("/findings/0/severity", json!("bad")),
        ("/findings/0/object", json!({"kind": "Pod"})),
        ("/nodes/0/occupants/0/entry", json!({"how": "by magic"})),
        ("/summary/nodes", json!(-1)),
        ("/taken", json!("today")),
    ] {
        let mut audit: Value = serde_json::from_str(&json(&sample()).unwrap()).unwrap();
        *audit.pointer_mut(pointer).unwrap() = value;
        let root: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut schema = Schema { root: &root, seen: BTreeSet::new() };
        assert!(schema.check(&audit, &root, "audit").is_err(), "{pointer}");
    }
}

/// A folder with a contract, in which the binary runs.
struct Bench(TempDir);

struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        bench.write("contract.yaml", CONTRACT);
        bench
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn audit(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpufence"));
        command.args(["audit", "--config", "contract.yaml"]).args(arguments).env_clear().current_dir(self.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Whoever does not read it has ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        Ended { code: output.status.code().unwrap(), out, err }
    }

    fn json(&self, arguments: &[&str], input: &str) -> (i32, Value) {
        let ended = self.audit(&[arguments, &["--output", "json"]].concat(), input);
        Schema::holds(&ended.out);
        (ended.code, serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.err)))
    }
}

/// A GPU node with GPU work on it, and an ordinary node.
fn dump() -> Cluster {
    Cluster::new()
        .objects([gpu_node("gpu-1"), node("plain")])
        .objects([pod("ml/train").gpus(1).placed().on("gpu-1"), pod("web/shop").on("plain")])
        .object(workload("Deployment", "web/shop", pod("web/shop")))
}

#[test]
fn the_same_dump_at_the_same_time_is_the_same_audit() {
    let bench = Bench::new();
    bench.write("dump.json", &dump().list().to_string());
    for output in ["text", "json", "markdown", "sarif"] {
        let run = || {
            let ended = bench.audit(&["dump.json", "--at", "2026-11-30T12:00:00Z", "--output", output], "");
            assert_eq!((ended.code, &*ended.err), (0, ""), "{output}");
            ended.out
        };
        let first = run();
        assert!(first.contains("2026-11-30T12:00:00Z"), "{output}: {first}");
        assert!(first.contains("dump.json"), "{output}: {first}");
        assert!(!first.contains('\u{1b}'), "a pipe has no colours: {first}");
        assert_eq!(run(), first, "{output}");
    }
    let (code, audit) = bench.json(&["dump.json", "--at", "2026-11-30T13:00:00+01:00"], "");
    assert_eq!((code, &audit["taken"], &audit["source"]), (0, &json!("2026-11-30T12:00:00Z"), &json!("dump.json")));
    assert_eq!((&audit["summary"]["nodes"], &audit["summary"]["gpuNodes"]), (&json!(2), &json!(1)));
    let (_, audit) = bench.json(&["-"], &dump().list().to_string());
    assert_eq!(audit["source"], "the standard input");
}

/// Only who asks for it gets another exit code, and only where something is as bad as that.
#[test]
fn fail_on_decides_the_exit_code() {
    let bench = Bench::new();
    let code = |cluster: &Cluster, arguments: &[&str]| {
        let (code, audit) = bench.json(&[&["-"], arguments].concat(), &cluster.list().to_string());
        (code, audit["summary"]["findings"]["high"] != 0)
    };
    let open = Cluster::new().object(gpu_node("gpu-1").untainted()).object(pod("web/shop").on("gpu-1"));
    assert_eq!(code(&open, &[]), (0, true));
    for severity in ["high", "medium", "low", "info"] {
        assert_eq!(code(&open, &["--fail-on", severity]), (1, true), "{severity}");
        let sound = Cluster::new().object(gpu_node("gpu-1")).object(pod("web/shop"));
        assert_eq!(code(&sound, &["--fail-on", severity]), (0, false), "{severity}");
    }
}

/// Of nodes alone nobody can tell what is on them.
#[test]
fn fail_on_wants_something_of_pods() {
    let ended = Bench::new().audit(&["-", "--fail-on", "high"], &json!(Value::from(gpu_node("gpu-1"))).to_string());
    assert_eq!(
        (ended.code, &*ended.err),
        (
            1,
            "gpufence: the audit is not complete: not all pods are known, as its gaps say; --fail-on cannot be answered\n"
        )
    );
}

#[test]
fn a_time_that_is_none_is_refused() {
    let ended = Bench::new().audit(&["-", "--at", "today"], "");
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("valid is a time as RFC 3339 has it, such as 2026-11-30T12:00:00Z"), "{}", ended.err);
}

/// Nothing is lost: what can be read is reported, and all that cannot is named.
#[test]
fn input_that_cannot_be_used_is_named_beside_the_report() {
    let bench = Bench::new();
    bench.write("dump.json", &dump().list().to_string());
    bench.write("broken.yaml", "a: [");
    bench.write("odd.yaml", "kind: Pod\n---\napiVersion: v1\nkind: Pod\nspec: all\n---\njust text\n");
    let ended = bench.audit(&["dump.json", "broken.yaml", "absent.json", "odd.yaml", "--fail-on", "info"], "");
    assert_eq!(ended.code, 2);
    let complaints: Vec<_> = ended.err.lines().collect();
    assert!(complaints.iter().all(|line| line.starts_with("gpufence: ")), "{}", ended.err);
    for part in [
        "broken.yaml is neither YAML nor JSON",
        "cannot read absent.json: ",
        "odd.yaml#1 is not a Kubernetes object: it has no apiVersion and kind",
        "odd.yaml#2: the Pod cannot be read: ",
        "odd.yaml#3 cannot be read: ",
    ] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    assert!(
        ended.out.starts_with("Audit of dump.json, broken.yaml, absent.json and 1 more, held against "),
        "{}",
        ended.out
    );
    assert!(ended.out.contains("What could not be judged\n"), "{}", ended.out);
}

#[test]
fn input_without_anything_to_audit_is_refused() {
    let bench = Bench::new();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "web"}});
    let input = Cluster::new().object(service).list().to_string();
    let ended = bench.audit(&["-"], &input);
    assert_eq!((ended.code, &*ended.out), (2, ""));
    let expected = format!(
        "gpufence: the standard input holds no node, no pod and nothing that makes pods: found 4 v1 Namespace, 1 v1 \
         Service; valid are manifests, and what this writes: {}\n",
        dump_command()
    );
    assert_eq!(ended.err, expected);
    bench.write("chart/values.yaml", "replicas: 1\n");
    let ended = bench.audit(&["chart"], "");
    assert_eq!((ended.code, &*ended.out), (2, ""));
    assert!(ended.err.contains("found 1 documents that are no Kubernetes objects; "), "{}", ended.err);
    let ended = bench.audit(&["absent.json"], "");
    assert_eq!((ended.code, &*ended.out, ended.err.lines().count()), (2, "", 1), "{}", ended.err);
}

/// A folder holds what is no manifest; a file that was named has to be one.
#[test]
fn a_folder_may_hold_files_that_are_no_manifests() {
    let bench = Bench::new();
    bench.write("folder/values.yaml", "replicas: 1\n---\n- some\n- text\n");
    bench.write("folder/package.json", "{\"name\": \"app\"}");
    bench.write("folder/shop.yaml", &workload("Deployment", "web/shop", pod("web/shop")).to_string());
    let ended = bench.audit(&["folder"], "");
    assert_eq!((ended.code, &*ended.err), (0, ""));
    let ended = bench.audit(&["folder/shop.yaml", "folder/values.yaml"], "");
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("folder/values.yaml#1 is not a Kubernetes object"), "{}", ended.err);
}

/// The kinds that the command names are those that are read, each with its group.
#[test]
fn the_command_for_a_dump_names_all_that_is_read() {
    let kinds = [
        "nodes",
        "namespaces",
        "events",
        "poddisruptionbudgets.policy",
        "pods",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "daemonsets.apps",
        "jobs.batch",
        "cronjobs.batch",
        "replicationcontrollers",
        "podtemplates",
    ];
    assert_eq!(
        dump_command(),
        format!("kubectl get {} -A -o json --show-managed-fields > cluster.json", kinds.join(","))
    );
}

/// The README has each check with its meaning, in the catalogue's order.
#[test]
fn the_readme_lists_every_check() {
    let readme = include_str!("../../../README.md");
    let section = readme.split("\n## Find what already broke the contract\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let checks = section.split("\n| check | finds |\n").nth(1).unwrap();
    let rows: Vec<_> = checks.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<_> = Check::OWN.iter().map(|check| format!("| `{check}` | {} |", check.title())).collect();
    assert_eq!(rows, expected);
    for rule in Rule::ALL {
        assert!(readme.contains(&format!("\n| `{rule}` | ")), "{rule}");
    }
    let command = dump_command();
    for word in command.split([' ', ',']).filter(|word| !word.is_empty()) {
        assert!(section.contains(word), "{word}");
    }
}
