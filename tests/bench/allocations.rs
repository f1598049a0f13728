//! What one review allocates must not grow with the parts of a pod that the policy does not read, and the review of a
//! custom resource takes no more room than a small multiple of its body, whatever that holds.
//!
//! A test without a harness: the counting allocator belongs to the whole process.

#![expect(clippy::expect_used, reason = "a benchmark may fail as a test does")]

mod payload;

use gpufence::contract::Contract;
use gpufence::policy::NoFacts;
use gpufence::review::{Webhook, answer};
use payload::{Pod, review};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Blocks and bytes that one review of a pod of this size allocates.
fn allocated(pod: Pod, webhook: Webhook, size: usize) -> (u64, u64) {
    let environment = [("GPUFENCE__MODE".to_owned(), "enforce".to_owned())];
    let policy = Contract::load(None, environment).expect("the built-in contract is valid").policy;
    let body = review(pod, size);
    let before = dhat::HeapStats::get();
    let answer = answer(&policy, &NoFacts, webhook, body.as_bytes());
    let after = dhat::HeapStats::get();
    assert_eq!(answer.status, 200);
    (after.total_blocks - before.total_blocks, after.total_bytes - before.total_bytes)
}

/// Custom resources of about three megabytes, made of what takes the least text: name, field of the spec, value.
fn crowded() -> Vec<(&'static str, String)> {
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    let templates = |template: &str, count: usize| format!(r#"{{"templates":{}}}"#, list(template, count));
    let specs = |spec: &str| format!(r#"{{"specs":[{spec}]}}"#);
    let broad = |index: usize| format!(r#"{{"operator":"Exists","value":"{index}"}}"#);
    let tolerations = |salt: usize| {
        let list: Vec<_> = (0..300).map(|index| broad(salt * 300 + index)).collect();
        format!(r#"{{"spec":{{"tolerations":[{}]}}}}"#, list.join(","))
    };
    let different: Vec<_> = (0..250).map(tolerations).collect();
    vec![
        ("what no path leads to", format!(r#"{{"free":{}}}"#, list(r#"{"":0}"#, 425_000))),
        ("numbers for templates", templates("0", 1_490_000)),
        ("empty templates", templates("{}", 1_000_000)),
        ("null for templates", templates("null", 600_000)),
        ("maps in templates", templates(&format!(r#"{{"free":{}}}"#, list(r#"{"":0}"#, 1_600)), 250)),
        ("containers", templates(&format!(r#"{{"spec":{{"containers":{}}}}}"#, list("{}", 4_000)), 250)),
        ("tolerations", templates(&format!(r#"{{"spec":{{"tolerations":{}}}}}"#, list("{}", 4_000)), 250)),
        ("different tolerations", format!(r#"{{"templates":[{}]}}"#, different.join(","))),
        ("containers elsewhere", specs(&format!(r#"{{"main":{}}}"#, list("{}", 1_000_000)))),
        ("a long name", format!(r#"{{"map":{{"{}":{}}}}}"#, "a".repeat(1_500_000), list("{}", 500_000))),
    ]
}

/// The most bytes that one review of these specs takes at once.
fn peak(spec: &str, old: Option<&str>) -> (usize, usize) {
    let contract = "mode: enforce\ntemplates: deny\ncustomResources:\n- group: example.com\n  kind: Widget\n  resource: \
                    widgets\n  templates: ['$.spec.templates[*]', '$.spec.map.*[*]']\n  podSpecs: [{path: \
                    '$.spec.specs[*]', containers: [$.main]}]\n";
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("contract.yaml");
    std::fs::write(&file, contract).expect("the file is written");
    let policy = Contract::load(Some(&file), []).expect("the contract is valid").policy;
    let object = |spec: &str| {
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"w","namespace":"ml-team"}},"spec":{spec}}}"#
        )
    };
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"example.com","version":"v1","kind":"Widget"}},"operation":"{}","namespace":"ml-team","userInfo":{{"username":"jane"}},"object":{},"oldObject":{}}}}}"#,
        if old.is_some() { "UPDATE" } else { "CREATE" },
        object(spec),
        old.map_or_else(|| "null".to_owned(), object),
    );
    let _profiler = dhat::Profiler::builder().testing().trim_backtraces(Some(1)).build();
    let answer = answer(&policy, &NoFacts, Webhook::Validate, body.as_bytes());
    assert_eq!(answer.status, 200);
    (body.len(), dhat::HeapStats::get().max_bytes)
}

fn custom_resources() {
    for (name, spec) in crowded() {
        for old in [None, Some(spec.replacen("[{", "[null,{", 1))] {
            let (body, peak) = peak(&spec, old.as_deref());
            let operation = if old.is_some() { "update" } else { "create" };
            println!("{operation} of a custom resource, {name}: {peak} bytes at most for a body of {body}");
            assert!(peak < 4 * body, "{operation}, {name}: {peak} bytes for a body of {body}");
        }
    }
}

fn main() {
    custom_resources();
    let _profiler = dhat::Profiler::builder().testing().build();
    for (name, pod, webhook) in [
        ("ordinary pod, validate", Pod::Ordinary, Webhook::Validate),
        ("ordinary pod, mutate", Pod::Ordinary, Webhook::Mutate),
        ("GPU pod, mutate", Pod::Gpu, Webhook::Mutate),
    ] {
        let small = allocated(pod, webhook, 10_000);
        let large = allocated(pod, webhook, 1_000_000);
        println!(
            "{name}: {} blocks, {} bytes for 10 KB; {} blocks, {} bytes for 1 MB",
            small.0, small.1, large.0, large.1
        );
        assert_eq!(small, large, "{name}: allocations grow with what the policy does not read");
    }
    println!("test result: ok. 23 passed; 0 failed");
}
