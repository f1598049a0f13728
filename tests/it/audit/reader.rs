use std::collections::BTreeSet;
use std::path::Path;

use gpufence::audit::snapshot::READS;
use serde_json::Value;

/// The role that the repository offers is for exactly what is read, and for reading.
#[test]
fn the_readers_role_has_what_an_audit_lists_and_no_more() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/audit-reader.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let (reader, reporter) = text.split_once("\n---\n").unwrap();
    let role: Value = serde_saphyr::from_str(reader).unwrap();
    let words = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        if words(&rule["resources"]) == ["configmaps"] {
            assert_eq!(
                (words(&rule["resourceNames"]), words(&rule["verbs"])),
                (vec!["gpufence".into()], vec!["get".into()])
            );
            continue;
        }
        assert_eq!(words(&rule["verbs"]), ["list"]);
        for group in words(&rule["apiGroups"]) {
            granted.extend(words(&rule["resources"]).into_iter().map(|resource| (group.clone(), resource)));
        }
    }
    let read: BTreeSet<_> =
        READS.iter().map(|(group, resource)| ((*group).to_owned(), (*resource).to_owned())).collect();
    assert_eq!(granted, read);

    // And the other for what is done with reports: those of namespaces come and go, that of the cluster stays.
    let role: Value = serde_saphyr::from_str(reporter).unwrap();
    for rule in role["rules"].as_array().unwrap() {
        let [resource] = &*words(&rule["resources"]) else { panic!("{rule}") };
        let done: &[&str] = match resource.as_str() {
            "reports" | "policyreports" => &["get", "list", "create", "update", "delete"],
            "clusterreports" | "clusterpolicyreports" => &["get", "create", "update"],
            other => panic!("{other}"),
        };
        assert_eq!(words(&rule["verbs"]), done, "{resource}");
    }
}
