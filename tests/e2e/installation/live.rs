use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Patch, admin, get_plain};
use crate::installed::{ACT, Installed, contract, is_refused, with_selector};
use crate::poll;
use crate::requests::{exact_toleration, gpu, tolerating, tolerations};

const ALLOWED: &str = "gpu.example.com/allowed";

fn set_label(namespace: &str, value: &Value) {
    let change = json!({"metadata": {"labels": {ALLOWED: value}}});
    admin().patch(Patch::Merge, &format!("/api/v1/namespaces/{namespace}"), &change).stored();
}

#[test]
fn a_label_of_a_namespace_opens_and_closes_the_pool() {
    let Some(installed) = Installed::running(&with_selector(contract("enforce")), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let team = installed.namespace("team", &json!({}));
    let metric = |name: &str| {
        let text = get_plain(installed.replicas[0].metrics, "/metrics").unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
    };
    assert!(is_refused(&admin().create(&gpu(&team))));
    set_label(&team, &json!("true"));
    let pod = poll::until("the label counts", Duration::from_secs(5), || {
        let reply = admin().create(&gpu(&team));
        if reply.code == 201 { Ok(reply.stored()) } else { Err(format!("{reply:#?}")) }
    });
    assert_eq!(tolerations(&pod), [exact_toleration()]);
    set_label(&team, &Value::Null);
    poll::until("its absence counts", Duration::from_secs(5), || {
        let reply = admin().create(&gpu(&team));
        if is_refused(&reply) { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    // A namespace is known the moment that it is there, label and all.
    for _ in 0..5 {
        let fresh = installed.namespace("fresh", &json!({ALLOWED: "true"}));
        admin().create(&gpu(&fresh)).quietly();
    }
    let current = metric("gpufence_namespace_labels_current_timestamp_seconds ").unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - current).abs() < 120.0, "{current} {now}");
}

#[test]
fn a_rollout_goes_by_the_labels_of_namespaces() {
    let mut contract = contract("audit");
    contract["rollout"] = json!([{"selector": {"matchLabels": {"stage": "enforce"}}, "mode": "enforce"}]);
    let Some(installed) = Installed::running(&contract, &[]) else { return };
    let [early, late] = [json!({"stage": "enforce"}), json!({})].map(|labels| installed.namespace("web", &labels));
    assert!(is_refused(&admin().create(&tolerating(&early))), "{}", installed.logs());
    admin().create(&tolerating(&late)).quietly();
    // Not everywhere: so an outage refuses nobody.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(installed.failure_policy(), "Ignore");
}

#[test]
fn the_contract_is_reloaded_and_a_bad_one_is_not() {
    let first = contract("enforce");
    let Some(installed) = Installed::running(&first, &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    let hash = || {
        let text = get_plain(installed.replicas[0].metrics, "/metrics").unwrap();
        text.lines().find(|line| line.starts_with("gpufence_contract_info{")).unwrap().to_owned()
    };
    let before = hash();
    assert!(is_refused(&admin().create(&tolerating(&web))));

    let mut second = first.clone();
    second["pools"][0]["namespaces"]["names"] = json!(["ml-*", "web-*"]);
    installed.reapply(&second, &[]);
    poll::until("the new contract counts", ACT, || {
        let reply = admin().create(&tolerating(&web));
        if reply.code == 201 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    let after = hash();
    assert_ne!(before, after);

    installed.mount_contract("mode: enforced\n");
    poll::until("the fault is reported", ACT, || {
        let log = installed.replicas[0].process.output();
        if log.contains("enforced") { Ok(()) } else { Err(installed.logs()) }
    });
    assert_eq!(hash(), after);
    admin().create(&tolerating(&web));

    // Back to audit by the ConfigMap alone: the controller disarms, and nothing is refused.
    let mut third = first;
    third["mode"] = json!("audit");
    installed.mount_contract(&third.to_string());
    installed.wait_for_failure_policy("Ignore");
    poll::until("nothing is refused", ACT, || {
        let reply = admin().create(&tolerating(&web));
        if reply.code == 201 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
}
