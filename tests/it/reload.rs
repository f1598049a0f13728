//! The contract's file, changed while the built binary serves: as the kubelet changes a mounted ConfigMap.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Authority, NAME, Server, files, trusting, with_shell};
use crate::shutdown::{measured, publish};
use crate::support::contract;
use crate::wire::recorded;

const SNEAKY: &str = "mutate-create-pod-sneaky";

/// A server whose contract is in a mounted ConfigMap.
struct Mounted {
    server: Server,
    config: TempDir,
    tls: String,
    _secret: TempDir,
}

impl Mounted {
    async fn start(contract: &str) -> Self {
        let authority = Authority::new();
        let secret = tempfile::tempdir().unwrap();
        authority.issue(&[NAME]).write(secret.path());
        let tls = files(secret.path());
        let config = tempfile::tempdir().unwrap();
        swap(config.path(), "..0", &with_shell(contract, "0s", &tls));
        let file = config.path().join("contract.yaml");
        symlink("..data/contract.yaml", &file).unwrap();
        let server = Server::start_file(&file, trusting(authority.certificate())).await;
        Self { server, config, tls, _secret: secret }
    }

    /// The contract with what the server in the test needs, and its hash.
    fn whole(&self, contract: &str) -> (String, String) {
        let yaml = with_shell(contract, "0s", &self.tls);
        let sha256 = hash(&yaml);
        (yaml, sha256)
    }

    fn publish(&self, version: &str, yaml: &str) {
        swap(self.config.path(), version, yaml);
    }

    /// Whether a pod that passes the taint in a foreign namespace is let in, asked over a path.
    async fn admits(&self, path: &str) -> bool {
        let (status, answer) = self.server.review(path, &recorded(SNEAKY)).await;
        assert_eq!(status, 200, "{answer}");
        answer["response"]["allowed"].as_bool().unwrap()
    }

    async fn assert_in_force(&self, sha256: &str, mode: &str, current: u8) {
        let metrics = self.server.get_metrics().await;
        let info: Vec<_> = metrics.lines().filter(|line| line.starts_with("gpufence_contract_info{")).collect();
        let expected = format!("gpufence_contract_info{{hash=\"{sha256}\",mode=\"{mode}\"}} 1");
        assert_eq!(info, [expected], "one contract is in force");
        let line = format!("gpufence_contract_last_reload_successful {current}\n");
        assert!(metrics.contains(&line), "{line} {metrics}");
    }
}

fn swap(mounted: &Path, version: &str, yaml: &str) {
    publish(mounted, version, |version| fs::write(version.join("contract.yaml"), yaml).unwrap());
}

fn hash(yaml: &str) -> String {
    gpufence::server::tls::sha256(contract(yaml).to_yaml().unwrap().as_bytes())
}

fn reloads(outcome: &str, count: u32) -> String {
    format!("gpufence_contract_reloads_total{{outcome=\"{outcome}\"}} {count}")
}

const KEPT: &str = "contract not reloaded; the last good one stays";

#[tokio::test]
async fn a_contract_is_swapped_while_it_serves_and_a_bad_one_is_not() {
    let mounted = Mounted::start("mode: audit").await;
    let (server, (_, first)) = (&mounted.server, mounted.whole("mode: audit"));
    mounted.assert_in_force(&first, "audit", 1).await;
    assert!(mounted.admits("/validate").await);

    let (yaml, second) = mounted.whole("mode: enforce");
    mounted.publish("..1", &yaml);
    measured(server, &reloads("success", 1)).await;
    mounted.assert_in_force(&second, "enforce", 1).await;
    assert!(!mounted.admits("/validate").await);
    assert!(mounted.admits("/audit/validate").await, "both policies were swapped");
    let line = server.logged("contract reloaded").await;
    let told = ["old_sha256", "contract_sha256", "mode"].map(|key| line[key].as_str().unwrap().to_owned());
    assert_eq!(told, [first.clone(), second.clone(), "enforce".to_owned()]);

    // Two faults, told at once and once.
    mounted.publish("..2", &with_shell("mode: strict\ntemplates: maybe", "0s", &mounted.tls));
    measured(server, &reloads("failure", 1)).await;
    let line = server.logged(KEPT).await;
    let error = line["error"].as_str().unwrap();
    for part in
        ["the contract has 2 faults:", "mode: found \"strict\"; valid is", "templates: found \"maybe\"; valid is"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(line["contract_sha256"], second);
    mounted.assert_in_force(&second, "enforce", 0).await;
    assert!(!mounted.admits("/validate").await);

    fs::remove_file(mounted.config.path().join("..data")).unwrap();
    measured(server, &reloads("failure", 2)).await;
    assert!(!mounted.admits("/validate").await);
    // Two looks and more: none of them is another fault.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    measured(server, &reloads("failure", 2)).await;

    // Back is what was in force: no reload, and all is well.
    mounted.publish("..3", &yaml);
    server.logged("contract as it was again").await;
    measured(server, "gpufence_contract_last_reload_successful 1").await;
    mounted.assert_in_force(&second, "enforce", 1).await;

    let (yaml, third) = mounted.whole("mode: warn");
    mounted.publish("..4", &yaml);
    measured(server, &reloads("success", 2)).await;
    mounted.assert_in_force(&third, "warn", 1).await;
    assert!(mounted.admits("/validate").await);
    measured(server, &reloads("failure", 2)).await;

    let Mounted { server, .. } = mounted;
    server.signal("TERM");
    let (code, lines) = server.ended().await;
    assert_eq!(code, Some(0), "{lines:#?}");
    let count = |message: &str| lines.iter().filter(|line| line["message"] == message).count();
    assert_eq!((count("contract reloaded"), count(KEPT)), (2, 2), "{lines:#?}");
}

#[tokio::test]
async fn what_counts_at_the_start_alone_is_named_and_the_rest_takes_effect() {
    let mounted = Mounted::start("mode: audit").await;
    let changed = "mode: enforce\n\
                   server: {listen: '127.0.0.2:0', metrics: '127.0.0.1:1', drain: 9s}\n\
                   tls: {source: managed, minimum: '1.2'}\n\
                   log: {level: 'info,gpufence::decision=off', format: text}\n";
    mounted.publish("..1", changed);
    measured(&mounted.server, &reloads("success", 1)).await;
    let line = mounted.server.logged("these keys of the contract take effect at the next start").await;
    assert_eq!(line["keys"], "server.listen, server.metrics, server.drain, tls.source, tls.minimum, log.format");
    assert_eq!(line["level"], "WARN");
    // It serves where it served, and no longer logs decisions.
    assert!(!mounted.admits("/validate").await);
    mounted.assert_in_force(&hash(changed), "enforce", 1).await;

    let shell = "server: {listen: '127.0.0.1:0', metrics: '127.0.0.1:0', drain: 0s}\nlog: {format: json}\n";
    let certificate = "tls: {source: files, cert: /a, key: /b}\n";
    mounted.publish("..2", &format!("mode: audit\n{shell}{certificate}"));
    measured(&mounted.server, &reloads("success", 2)).await;
    assert!(mounted.admits("/validate").await);

    let Mounted { server, .. } = mounted;
    let (mut keys, mut decisions) = (Vec::new(), 0);
    server.signal("TERM");
    for line in server.ended().await.1 {
        decisions += usize::from(line["target"] == "gpufence::decision");
        keys.extend(line.get("keys").cloned());
    }
    assert_eq!(keys.last(), Some(&json!("tls.cert, tls.key")), "{keys:?}");
    assert_eq!(decisions, 1, "the log's level took effect twice");
}

#[tokio::test]
async fn a_contract_that_begins_to_select_by_labels_without_a_cluster_says_so() {
    let mounted = Mounted::start("mode: enforce").await;
    let selecting = "mode: enforce\nrollout: [{selector: {matchLabels: {a: b}}, mode: audit}]";
    mounted.publish("..1", &mounted.whole(selecting).0);
    measured(&mounted.server, &reloads("success", 1)).await;
    let line = mounted.server.logged("the contract selects namespaces by their labels, and they cannot be read").await;
    let error = line["error"].as_str().unwrap();
    assert!(error.starts_with("no cluster to speak to: this is no pod with a service account"), "{error}");
    let (_, answer) = mounted.server.review("/validate", &recorded(SNEAKY)).await;
    let response: &Value = &answer["response"];
    assert_eq!(response["allowed"], false, "the contract's own mode counts: {response}");
    assert!(response["auditAnnotations"]["namespace-labels"].is_string(), "{response}");
}

#[tokio::test]
async fn exemptions_are_on_the_metrics_as_long_as_they_are_in_the_contract() {
    let mounted =
        Mounted::start("mode: enforce\nexemptions: [{name: old, reason: r, users: [a], expires: 2020-01-31}]").await;
    let warning = "an exemption of the contract has expired and does not count";
    let line = mounted.server.logged(warning).await;
    assert_eq!(
        (&line["exemption"], &line["expired"], &line["level"]),
        (&json!("old"), &json!("2020-01-31"), &json!("WARN"))
    );
    let series = |name: &str, count: u64| {
        format!(
            "gpufence_exemptions_total{{exemption=\"{name}\",webhook=\"validate\",outcome=\"exempt\",dry_run=\"false\"}} {count}"
        )
    };
    measured(&mounted.server, &series("old", 0)).await;
    measured(&mounted.server, "gpufence_exemption_expires_timestamp_seconds{exemption=\"old\"} 1580515200").await;
    let changed = "mode: enforce\nexemptions: [{name: new, reason: r, namespaces: [web]}]";
    mounted.publish("..1", &mounted.whole(changed).0);
    measured(&mounted.server, &series("new", 0)).await;
    let metrics = mounted.server.get_metrics().await;
    assert!(!metrics.contains("exemption=\"old\""), "{metrics}");
    assert!(metrics.contains(&series("mirror-pod", 0)), "{metrics}");
}
