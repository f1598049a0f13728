use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Patch, User, admin, collection, get_plain, path};
use crate::cluster::cluster;
use crate::features;
use crate::installed::{ACT, Installed, TARGET, configuration, contract, is_refused, log_line, stored};
use crate::poll;
use crate::requests::{LABEL, exact_toleration, gpu, ordinary, tolerating, tolerations};

#[test]
fn one_apply_leads_to_an_armed_fence() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let (ml, web) = (installed.namespace("ml", &json!({})), installed.namespace("web", &json!({})));

    let pod = admin().create(&gpu(&ml)).quietly();
    assert_eq!(tolerations(&pod), [exact_toleration()]);
    assert_eq!(pod["spec"]["nodeSelector"], json!({LABEL: "nvidia"}));

    for refused in [tolerating(&web), gpu(&web)] {
        let reply = admin().create(&refused);
        assert!(is_refused(&reply), "{reply:#?}");
        let reply = admin().dry_run().create(&refused);
        assert!(is_refused(&reply), "{reply:#?}");
    }
    let pod = admin().create(&ordinary(&web)).quietly();
    assert_eq!(tolerations(&pod), [json!(null); 0]);
    assert_eq!(pod["spec"].get("nodeSelector"), None);

    // The mutation fails open: what it missed the validation catches.
    let mutating = stored("mutating");
    assert_eq!(mutating["webhooks"][0]["failurePolicy"], "Ignore");
    assert_eq!(stored("validating")["metadata"]["annotations"][TARGET], "Fail");
}

/// From a template a controller makes the pods: what its author wrote is refused of the pod, and foretold of the
/// template.
#[test]
fn whoever_makes_a_pod_is_held_to_the_contract() {
    let mut contract = contract("enforce");
    contract["exemptions"] = json!([{
        "name": "agents", "reason": "they run on every node", "namespaces": ["agents-*"], "daemonSets": ["agent"],
    }]);
    let Some(installed) = Installed::running(&contract, &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let (web, agents) = (installed.namespace("web", &json!({})), installed.namespace("agents", &json!({})));
    let controller = |name: &str| {
        User::named(format!("system:serviceaccount:kube-system:{name}-controller")).in_group("system:serviceaccounts")
    };
    let owner = |kind: &str, name: &str, namespace: &str, template: Value| {
        json!({
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
            },
        })
    };
    let made_by = |mut pod: Value, owner: &Value| {
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1",
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": true,
        }]);
        pod
    };
    let reply = admin().create(&owner("ReplicaSet", "app", &web, tolerating(&web)));
    let warnings = reply.our_warnings();
    assert!(warnings.len() == 1 && warnings[0].starts_with("toleration-outside-allowlist"), "{warnings:?}");
    let replica_set = reply.stored();
    let reply = controller("replicaset").create(&made_by(tolerating(&web), &replica_set));
    assert!(is_refused(&reply), "{reply:#?}");

    let agent = admin().create(&owner("DaemonSet", "agent", &agents, tolerating(&agents))).stored();
    let pod = made_by(tolerating(&agents), &agent);
    controller("daemon-set").create(&pod).stored();
    // The same pod by anybody else, and another DaemonSet's.
    assert!(is_refused(&admin().create(&pod)));
    let other = admin().create(&owner("DaemonSet", "other", &agents, tolerating(&agents))).stored();
    assert!(is_refused(&controller("daemon-set").create(&made_by(tolerating(&agents), &other))));
}

/// A pod that was there before the fence is not punished for what is done to it.
#[test]
fn old_pods_may_be_changed_and_removed() {
    let Some(installed) = Installed::running(&contract("audit"), &[]) else { return };
    let web = installed.namespace("web", &json!({}));
    let old = admin().create(&tolerating(&web)).stored();
    installed.reapply(&contract("enforce"), &[]);
    poll::until("the contract enforces", ACT, || {
        let reply = admin().dry_run().create(&tolerating(&web));
        if is_refused(&reply) { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    let label = json!({"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/hold"]}});
    admin().patch(Patch::Merge, &path(&old), &label).quietly();
    admin().patch(Patch::Merge, &path(&old), &json!({"metadata": {"finalizers": null}})).quietly();
    admin().delete(&path(&old)).stored();
    // What an update adds is another matter.
    let pod = admin().create(&ordinary(&web)).quietly();
    let tolerations = json!([{"op": "add", "path": "/spec/tolerations/-", "value": exact_toleration()}]);
    let reply = admin().patch(Patch::Json, &path(&pod), &tolerations);
    assert!(is_refused(&reply), "{reply:#?}");
}

/// The API server keeps from the webhook what the policy would have let pass untouched.
#[test]
fn ordinary_pods_cost_nobody_a_call() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    if stored("validating")["webhooks"][0].get("matchConditions").is_none() {
        return features::skip("ordinary pods without a call", "this API server knows no matchConditions");
    }
    installed.wait_for_failure_policy("Fail");
    let (ml, web) = (installed.namespace("ml", &json!({})), installed.namespace("web", &json!({})));
    let before = installed.asked();
    for namespace in [&web, &ml] {
        let pod = admin().create(&ordinary(namespace)).quietly();
        admin().patch(Patch::Merge, &path(&pod), &json!({"metadata": {"labels": {"team": "a"}}})).quietly();
        let mut odd = ordinary(namespace);
        odd["spec"]["tolerations"] = json!([{"key": "example.com/other", "operator": "Exists"}]);
        odd["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1", "example.com/fpga": "1"}});
        admin().create(&odd).quietly();
        admin().delete(&path(&pod)).stored();
    }
    assert_eq!(installed.asked(), before);
    for kind in ["validating", "mutating"] {
        // Compiled, and none of them failed on any of these.
        assert!(stored(kind)["webhooks"][0]["matchConditions"].as_array().is_some_and(|all| !all.is_empty()));
    }
    // Whoever could pass is asked about, however it is written, and in whichever list the resource stands.
    let mut keyless = ordinary(&web);
    keyless["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let mut init = ordinary(&web);
    init["spec"]["initContainers"] = json!([{
        "name": "init", "image": "registry.invalid/e2e:1", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
    }]);
    for pod in [keyless, init] {
        let reply = admin().create(&pod);
        assert!(is_refused(&reply), "{reply:#?}");
    }
    let cron = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": web},
        "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "registry.invalid/e2e:1"}],
            "tolerations": [exact_toleration()],
        }}}}},
    });
    assert_eq!(admin().create(&cron).our_warnings().len(), 1);
}

#[test]
fn the_other_form_of_contract_works_the_same() {
    let mut other = contract("enforce");
    other["pools"][0]["taints"] = json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]);
    other["pools"][0]["nodeSelector"] = json!({"accelerator": "nvidia"});
    let Some(installed) = Installed::running(&other, &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let (ml, web) = (installed.namespace("ml", &json!({})), installed.namespace("web", &json!({})));
    let pod = admin().create(&gpu(&ml)).quietly();
    let exact = json!({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"});
    assert_eq!(tolerations(&pod), std::slice::from_ref(&exact));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"accelerator": "nvidia"}));
    let mut tolerating = ordinary(&web);
    tolerating["spec"]["tolerations"] = json!([exact]);
    assert!(is_refused(&admin().create(&tolerating)));
}

#[test]
fn audit_is_never_armed_and_refuses_nothing() {
    let Some(mut installed) = Installed::running(&contract("audit"), &[]) else { return };
    let web = installed.namespace("web", &json!({}));
    // Even where somebody sets both by hand, the controller takes it back.
    let change = json!({"metadata": {"annotations": {TARGET: "Fail"}}});
    admin().patch(Patch::Merge, &configuration("validating"), &change).stored();
    let armed = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]);
    admin().patch(Patch::Json, &configuration("validating"), &armed).stored();
    installed.wait_for_failure_policy("Ignore");
    for pod in [tolerating(&web), gpu(&web)] {
        let stored = admin().create(&pod).quietly();
        assert_eq!(stored["spec"].get("nodeSelector"), None);
    }
    installed.stop_replicas();
    admin().create(&tolerating(&web)).quietly();
}

#[test]
fn audit_only_watches_the_contract_that_will_be_enforced_and_back() {
    let enforce = contract("enforce");
    let Some(installed) = Installed::running(&enforce, &["--audit-only"]) else { return };
    let (ml, web) = (installed.namespace("ml", &json!({})), installed.namespace("web", &json!({})));
    admin().create(&tolerating(&web)).quietly();
    let pod = admin().create(&gpu(&ml)).quietly();
    assert_eq!((tolerations(&pod).len(), pod["spec"].get("nodeSelector")), (0, None));
    assert_eq!(installed.failure_policy(), "Ignore");

    installed.reapply(&enforce, &[]);
    installed.wait_for_failure_policy("Fail");
    assert!(is_refused(&admin().create(&tolerating(&web))));

    // One apply leads back, and the controller does not arm it again.
    let began = Instant::now();
    installed.reapply(&enforce, &["--audit-only"]);
    poll::until("nothing is refused any more", Duration::from_secs(5), || {
        let reply = admin().create(&tolerating(&web));
        if reply.code == 201 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    features::tell(&format!("from enforcement to audit in {} ms", began.elapsed().as_millis()));
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(installed.failure_policy(), "Ignore");
    admin().create(&tolerating(&web)).quietly();
}

#[test]
fn disarm_takes_effect_at_once_and_stays() {
    let Some(mut installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    installed.stop_replicas();
    let reply = admin().create(&tolerating(&web));
    assert_eq!(reply.code, 500, "{reply:#?}");
    assert!(reply.message().contains("failed calling webhook"), "{reply:#?}");

    let disarmed = installed.run(&["disarm"]);
    assert!(disarmed.status.success(), "{disarmed:?}");
    assert_eq!(
        String::from_utf8(disarmed.stdout).unwrap(),
        "ValidatingWebhookConfiguration gpufence: failurePolicy is Ignore\n\
         MutatingWebhookConfiguration gpufence: failurePolicy is Ignore\n"
    );
    poll::until("pods are admitted", Duration::from_secs(5), || {
        let reply = admin().create(&tolerating(&web));
        if reply.code == 201 { Ok(()) } else { Err(format!("{reply:#?}")) }
    });

    // The webhook is back, and refuses again; but it is not armed before somebody says so.
    installed.start_replica();
    poll::until("the webhook refuses", ACT, || {
        let reply = admin().create(&tolerating(&web));
        if is_refused(&reply) { Ok(()) } else { Err(format!("{reply:#?}")) }
    });
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(installed.failure_policy(), "Ignore");
    let armed = installed.run(&["arm"]);
    assert!(armed.status.success(), "{armed:?}");
    installed.wait_for_failure_policy("Fail");
}

/// What was taken back is given back: the mutation too, where somebody had asked for it.
#[test]
fn arm_gives_back_what_disarm_took() {
    let options = ["--mutating-failure-policy", "Fail"];
    let Some(installed) = Installed::running(&contract("enforce"), &options) else { return };
    let both = |wanted: &str| {
        poll::until(&format!("both are {wanted}"), ACT, || {
            let now = ["validating", "mutating"].map(|kind| stored(kind)["webhooks"][0]["failurePolicy"].take());
            if now.iter().all(|now| now == wanted) { Ok(()) } else { Err(installed.logs()) }
        });
    };
    both("Fail");
    for _ in 0..2 {
        assert!(installed.run(&["disarm"]).status.success());
        both("Ignore");
    }
    assert!(installed.run(&["arm"]).status.success());
    both("Fail");
}

/// Nobody but people takes back what is armed; but nobody has to find out by themselves that it refuses pods.
#[test]
fn an_outage_of_what_is_armed_is_told() {
    let Some(mut installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let listening = log_line(&installed.controllers[0], "listening").unwrap();
    let metrics: SocketAddr = listening["metrics"].as_str().unwrap().parse().unwrap();
    installed.stop_replicas();
    let line = poll::until("the controller says so", Duration::from_secs(60), || {
        let output = installed.controllers[0].output();
        let line = output.lines().find(|line| line.contains("\"armed webhook\"")).map(str::to_owned);
        line.ok_or_else(|| installed.logs())
    });
    assert!(line.contains("failed calling webhook"), "{line}");
    let text = get_plain(metrics, "/metrics").unwrap();
    assert!(text.contains("gpufence_webhook_probes_total{outcome=\"error\"} "), "{text}");
    assert!(text.contains("gpufence_webhook_armed{webhook=\"validate\"} 1"), "{text}");
    assert_eq!(installed.failure_policy(), "Fail");
}

#[test]
fn a_webhook_that_does_not_refuse_is_not_armed() {
    // The contract is enforced by nobody here: the replica serves another one.
    let Some(mut installed) = Installed::apply(&contract("enforce"), &[]) else { return };
    installed.start_controller();
    let mut other = contract("audit");
    other["tls"] = json!({"source": "managed"});
    let file = cluster().folder(&cluster().unique()).join("other.yaml");
    std::fs::write(&file, other.to_string()).unwrap();
    installed.start_replica_with(&[("GPUFENCE_CONFIG", file.to_str().unwrap())]);
    installed.wait_for_bundle();
    let waits = poll::until("the controller says why", ACT, || {
        let output = installed.controllers[0].output();
        let line = output.lines().find(|line| line.contains("\"failurePolicy\"")).map(str::to_owned);
        line.ok_or_else(|| installed.logs())
    });
    assert!(waits.contains("which the webhook should refuse, was not refused by it: it was admitted"), "{waits}");
    assert_eq!(installed.failure_policy(), "Ignore", "{}", installed.logs());
}

#[test]
fn registrations_that_were_removed_do_not_come_back() {
    let Some(installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    let web = installed.namespace("web", &json!({}));
    for kind in ["validating", "mutating"] {
        admin().delete(&configuration(kind)).stored();
    }
    std::thread::sleep(Duration::from_secs(12));
    for kind in ["validating", "mutating"] {
        assert!(admin().get(&configuration(kind)).is_missing(), "{kind}");
    }
    admin().create(&tolerating(&web)).quietly();
    let why = log_line(&installed.controllers[0], "waiting").unwrap();
    assert_eq!(
        why["why"],
        "there is no MutatingWebhookConfiguration gpufence; apply the output of `gpufence manifests`"
    );
}

#[test]
fn of_two_controllers_the_other_takes_over() {
    let Some(mut installed) = Installed::running(&contract("enforce"), &[]) else { return };
    installed.wait_for_failure_policy("Fail");
    installed.start_controller();
    let wipe = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    drop(installed.controllers.remove(0));
    admin().patch(Patch::Json, &configuration("validating"), &wipe).stored();
    // The first was killed, and its Lease has to run out.
    poll::until("the other arms again", Duration::from_secs(60), || {
        if installed.failure_policy() == "Fail" { Ok(()) } else { Err(installed.logs()) }
    });
    let leases = admin().get(&collection(&json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "gpufence"},
    })));
    assert_eq!(leases.stored()["items"].as_array().unwrap().len(), 1);
}
