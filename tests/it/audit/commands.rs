//! Every command that an audit prints, of a cluster whose names are meant for a shell. No API server takes such names; a
//! file can hold them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use gpufence::audit::{Audit, Change, What, Which, what_if};

use super::cluster::{CONTRACT, Cluster, NOW, gpu_node, node, pod, policy, workload};

/// In every hostile name, at its start and at its end.
const MARK: &str = "MARK";

/// The names: each with something that a shell obeys.
const HOSTILE: [&str; 7] = [
    "MARK a MARK",
    "MARK;reboot;MARK",
    "MARK$(reboot)MARK",
    "MARK`reboot`MARK",
    "MARK'MARK",
    "MARK\nreboot\u{1b}[2JMARK",
    "-MARK|reboot&MARK",
];

/// The words of a command at the start of a text, as bash takes them apart, up to what ends the command or
/// begins the prose behind it.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    loop {
        while letters.next_if_eq(&' ').is_some() {}
        let mut word = String::new();
        let mut is_word = false;
        while let Some(&letter) = letters.peek() {
            match letter {
                ' ' => break,
                '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' | '`' | '"' | '*' | '?' | '#' | '~' | '[' | '{' => {
                    words.extend(is_word.then_some(word));
                    return words;
                }
                '\'' => {
                    letters.next();
                    is_word = true;
                    word.extend(letters.by_ref().take_while(|letter| *letter != '\''));
                }
                '\\' => {
                    letters.next();
                    is_word = true;
                    word.extend(letters.next());
                }
                '$' => {
                    letters.next();
                    is_word = true;
                    assert_eq!(letters.next(), Some('\''), "an expansion in {text:?}");
                    while let Some(letter) = letters.next().filter(|letter| *letter != '\'') {
                        match letter {
                            '\\' => match letters.next().unwrap() {
                                'U' => {
                                    let code: String = letters.by_ref().take(8).collect();
                                    word.extend(char::from_u32(u32::from_str_radix(&code, 16).unwrap()));
                                }
                                escaped => word.push(escaped),
                            },
                            letter => word.push(letter),
                        }
                    }
                }
                letter => {
                    letters.next();
                    is_word = true;
                    word.push(letter);
                }
            }
        }
        if !is_word {
            return words;
        }
        // A sentence goes on behind the command.
        let ends = word.ends_with(['.', ',', ':']);
        words.push(word);
        if ends {
            return words;
        }
    }
}

/// Whether the word is a hostile name, as it is or in the forms that commands have it in.
fn is_whole(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ',', ':', '-']);
    let word = word.split_once("spec.nodeName=").map_or(word, |(_, name)| name);
    let word = word.strip_prefix("--node=").unwrap_or(word);
    let word =
        ["NoSchedule", "NoExecute"].iter().find_map(|effect| word.strip_suffix(&format!(":{effect}"))).unwrap_or(word);
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    [key, value].iter().all(|part| !part.contains(MARK) || HOSTILE.contains(part))
}

/// Every command of a text.
fn check(text: &str, seen: &mut BTreeSet<String>) {
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    for start in ["kubectl ", "gpufence audit"] {
        for (place, _) in text.match_indices(start) {
            let words = words(&text[place..]);
            for word in words.iter().filter(|word| word.contains(MARK)) {
                assert!(is_whole(word), "{word:?} is no name whole, in {words:?} of {text:?}");
            }
            // What begins with a dash is a name only after `--` or a flag that takes a value.
            let named = words.iter().position(|word| word.starts_with("-MARK"));
            if let Some(named) = named {
                let takes = |word: &String| ["--", "--namespace"].contains(&&**word);
                assert!(words[..named].contains(&"--".to_owned()) || takes(&words[named - 1]), "{words:?}");
            }
            if words.iter().any(|word| word.contains(MARK)) {
                seen.insert(
                    words.iter().take(3).take_while(|word| !word.contains(MARK)).cloned().collect::<Vec<_>>().join(" "),
                );
            }
        }
    }
}

fn check_audit(audit: &Audit, seen: &mut BTreeSet<String>) {
    for finding in &audit.findings {
        check(&finding.action, seen);
    }
    audit.pending.iter().for_each(|pending| check(&pending.action, seen));
    audit.nodes.iter().flat_map(|node| &node.occupants).for_each(|occupant| check(&occupant.action, seen));
}

/// What is on a node of this name, and what waits.
fn cluster(name: &str) -> Cluster {
    let rename = |object: &mut Value| object["metadata"]["namespace"] = name.into();
    let cluster = Cluster::new().namespace(name).contract(&CONTRACT.replace("names: [ml]", "names: [ml, '*']"));
    let owned = |owner: &str, pod: super::cluster::Pod| pod.owned_by(owner).on(name);
    cluster
        .object(owned(&format!("ReplicaSet/{name}"), pod(&format!("web/{name}")).requests("cpu", "60")))
        .object(pod("web/named").requests("cpu", "1").edit(rename).on(name))
        .object(pod("web/bare").on(name))
        .object(pod(&format!("ml/{name}")).gpus(1).placed().requests("cpu", "16").unschedulable("x"))
        .object(pod("ml/none").gpus(1).unschedulable("x").owned_by("ReplicaSet/x"))
        .object(pod("ml/gated").gpus(1).placed().unschedulable("x").edit(|pod| {
            pod["metadata"]["name"] = name.into();
            pod["metadata"]["namespace"] = name.into();
            pod["spec"]["schedulingGates"] = json!([{"name": "queue"}]);
        }))
        .object(pod("ml/lost").gpus(1).edit(rename).owned_by(&format!("StatefulSet/{name}")).on(name))
        .object(workload("DaemonSet", &format!("gpu-operator/{name}"), pod("x/x").selects("accelerator", "nvidia")))
        .object(workload("Deployment", &format!("ml/{name}"), pod("x/x").gpus(1)))
}

/// Nodes of a hostile name in every state that an audit speaks of.
fn states(name: &str) -> Vec<super::cluster::Node> {
    vec![
        gpu_node(name),
        gpu_node(name).untainted(),
        gpu_node(name).without_label("accelerator"),
        gpu_node(name).taint(name, name, "NoSchedule"),
        gpu_node(name).untainted().taint("Dedicated", name, "NoSchedule"),
        gpu_node(name).untainted().taint("dedicated", name, "NoExecute"),
        gpu_node(name).untainted().taint("dedicated", name, "NoSchedule"),
        gpu_node(name).label("accelerator", name),
        gpu_node(name).cordoned(),
        gpu_node(name).not_ready(),
        node(name).label("accelerator", "nvidia"),
        node(name).label("accelerator", "nvidia").taint("dedicated", "gpu", "NoSchedule"),
        gpu_node(name).has("nvidia.com/mig-1g.5gb", "7"),
    ]
}

#[test]
fn no_name_of_a_cluster_is_more_than_a_word_of_a_command() {
    let mut seen = BTreeSet::new();
    for name in HOSTILE {
        for state in states(name) {
            let cluster = cluster(name).object(state).object(node("cpu-1"));
            check_audit(&cluster.audit(), &mut seen);
            let policy = policy(&cluster.contract);
            let snapshot = cluster.snapshot(&policy);
            for what in [What::Taint, What::TaintNoexecute, What::Label] {
                let change = Change { what, nodes: Which::Named(vec![name.to_owned()]), pool: None };
                let told = what_if(&policy, &snapshot, &change, NOW).unwrap();
                told.pilot.iter().for_each(|step| check(&step.command, &mut seen));
                told.rollback.iter().chain(&told.backup_commands).for_each(|command| check(command, &mut seen));
            }
        }
    }
    // The test sees what it is to see.
    for command in [
        "kubectl taint node",
        "kubectl label node",
        "kubectl uncordon",
        "kubectl describe node",
        "kubectl delete pod",
        "kubectl get node",
        "kubectl get nodes",
        "kubectl get pods",
        "kubectl rollout restart",
        "gpufence audit --what-if",
    ] {
        assert!(seen.iter().any(|own| own.starts_with(command)), "{command} in {seen:?}");
    }
}

#[test]
fn the_parser_of_this_test_takes_words_apart_as_a_shell_does() {
    assert_eq!(words(r"a 'b c'd $'\U0000000ae' f\'g; h"), ["a", "b cd", "\ne", "f'g"]);
    assert!(!is_whole("MARK"));
    assert!(is_whole("MARK a MARK=MARK;reboot;MARK:NoSchedule-"));
}
