use super::*;
use std::fs;

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use crate::policy::{NoFacts, Policy};
use crate::review::{self, Webhook};

const SOUND: &str = include_str!("../../contract/built-in.yaml");

/// Numbers without a pattern, the same in every run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// What the API server would be answered, for pods that the contract injects into, refuses and leaves alone.
fn answers(policy: &Policy) -> Vec<Vec<u8>> {
    let pod = |namespace: &str, spec: Value| {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "operation": "CREATE",
                "namespace": namespace,
                "userInfo": {"username": "someone"},
                "object": {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec},
            },
        })
        .to_string()
    };
    let gpu = json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]});
    let bodies = [
        pod("ml-team", gpu.clone()),
        pod("research-a", gpu.clone()),
        pod("web", gpu),
        pod("web", json!({"tolerations": [{"operator": "Exists"}]})),
        pod("web", json!({})),
    ];
    let both = bodies.iter().flat_map(|body| Webhook::ALL.map(|webhook| (webhook, body)));
    both.map(|(webhook, body)| review::answer(policy, &NoFacts, webhook, body.as_bytes()).body).collect()
}

/// A file that is spoilt in one place.
fn spoilt(noise: &mut Noise) -> Vec<u8> {
    let mut bytes = SOUND.as_bytes().to_vec();
    match noise.below(4) {
        0 => {
            let place = noise.below(bytes.len());
            bytes[place] ^= 1 << noise.below(8);
        }
        1 => bytes.truncate(noise.below(bytes.len())),
        2 => {
            let at = noise.below(bytes.len());
            let end = (at + 1 + noise.below(40)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            // A value of a wrong type, where one stands.
            let values: Vec<_> = SOUND.match_indices(": ").map(|(at, _)| at + 2).collect();
            let at = values[noise.below(values.len())];
            let wrong: [&[u8]; 6] = [b"{a: ", b"7 #", b"[", b"~ #", b"!!binary ", b"*x "];
            bytes.splice(at..at, wrong[noise.below(wrong.len())].iter().copied());
        }
    }
    bytes
}

#[test]
fn a_thousand_spoilt_files_change_no_decision() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contract.yaml");
    fs::write(&path, SOUND).unwrap();
    let environment = vec![("GPUFENCE__MODE".to_owned(), "enforce".to_owned())];
    let (mut file, loaded) = ContractFile::open(&path, environment).map_err(|_| "refused").unwrap();
    let in_force = ArcSwap::from_pointee(loaded.contract.policy);
    let (before, sha256) = (answers(&in_force.load()), loaded.sha256);
    let metrics = Metrics::new();
    let mut applied = 0;
    let mut look = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let look = file.look();
        let refused = matches!(look, Look::Refused(_));
        file.take(look, &metrics, &mut |loaded| {
            in_force.store(Arc::new(loaded.contract.policy));
            applied += 1;
        });
        (refused, file.sha256.clone())
    };

    let mut noise = Noise(20_261_130);
    let mut refused = 0;
    while refused < 1_000 {
        let bytes = spoilt(&mut noise);
        let text = String::from_utf8_lossy(&bytes);
        if look(&bytes).0 {
            refused += 1;
        } else {
            // A changed comment, or a name that is as good: a contract that somebody could mean.
            look(SOUND.as_bytes());
        }
        assert_eq!(answers(&in_force.load()), before, "{text}");
    }
    assert_eq!(look(SOUND.as_bytes()), (false, sha256.clone()), "what was in force all the time");

    let (refused, other) = look(SOUND.replace("ml-team", "web").as_bytes());
    assert!(!refused && other != sha256);
    assert_ne!(answers(&in_force.load()), before, "the pods would tell a change");
    assert!(applied > 0);
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_told_once_and_what_comes_after_it_is_applied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contract.yaml");
    fs::write(&path, "mode: audit").unwrap();
    let (file, _) = ContractFile::open(&path, Vec::new()).map_err(|_| "refused").unwrap();
    let metrics = Arc::new(Metrics::new());
    let (sender, mut applied) = tokio::sync::mpsc::unbounded_channel();
    let follow = file.follow(Arc::clone(&metrics), move |loaded| sender.send(loaded).unwrap());
    let follower = tokio::spawn(follow);
    let has = |series: &str| metrics.encode().unwrap().contains(&format!("\n{series}\n"));
    let failures = |count: u32| format!("gpufence_contract_reloads_total{{outcome=\"failure\"}} {count}");

    for (count, spoilt) in [(1, "mode: x"), (2, "mode: y"), (3, "mode: [")] {
        fs::write(&path, spoilt).unwrap();
        tokio::time::timeout(Duration::from_secs(600), async {
            while !has(&failures(count)) {
                tokio::time::sleep(POLL).await;
            }
        })
        .await
        .unwrap();
        for _ in 0..10 {
            tokio::time::sleep(POLL).await;
        }
        assert!(has(&failures(count)), "{spoilt}: once");
        assert!(has("gpufence_contract_last_reload_successful 0"));
    }
    assert!(applied.try_recv().is_err(), "nothing was applied");
    fs::write(&path, "mode: enforce").unwrap();
    assert_eq!(applied.recv().await.unwrap().mode(), "enforce");
    follower.abort();
}
