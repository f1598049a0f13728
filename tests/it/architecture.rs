//! Who may import whom, as `lib.rs` and the design say, read from the sources themselves; what keeps the
//! decision pure; and how large a file may be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A source file with the module at the top of which it stands.
struct Source {
    path: String,
    module: String,
    /// Without comments and doc comments, whose links are no imports.
    code: String,
    lines: usize,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let source = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        let path = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let module = path.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        Source { path, module, code, lines: text.lines().count() }
    };
    files.into_iter().map(source).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// The modules of ours that the code names through `crate::`, or through `super::` as far as the root.
fn imports(source: &Source) -> BTreeSet<String> {
    let depth = source.path.split('/').count() - usize::from(source.path.ends_with("/mod.rs"));
    // From `policy/rules/x.rs` three steps lead to the root; inline modules in a file add to that, and
    // what they climb stays inside.
    let to_root = "super::".repeat(depth);
    let mut found = BTreeSet::new();
    // Only the binary names the library by its name; elsewhere that is the target of a log line.
    let library = if source.path == "main.rs" { "gpufence::" } else { "crate::" };
    for prefix in ["crate::", library, &to_root] {
        for (at, _) in source.code.match_indices(prefix) {
            let before = source.code[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                continue;
            }
            let rest = &source.code[at + prefix.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(heads(group)),
                None => found.extend([word(rest).to_owned()]),
            }
        }
    }
    found.remove("super");
    found.remove(&source.module);
    found
}

/// The first segment of each path in a `use crate::{...}`.
fn heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut heads = Vec::new();
    let mut fresh = true;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if fresh && !letter.is_whitespace() => {
                heads.push(word(&group[at..]).to_owned());
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

fn word(text: &str) -> &str {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next().unwrap_or_default()
}

#[test]
fn modules_import_only_whom_they_may() {
    let all = [
        "audit",
        "certificate",
        "cluster",
        "contract",
        "lifecycle",
        "manifest",
        "policy",
        "report",
        "review",
        "server",
        "telemetry",
    ];
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("main", &["cli"][..]),
        ("lib", &[]),
        ("cli", &all),
        ("server", &["review", "policy", "lifecycle", "telemetry"]),
        ("cluster", &["policy", "audit", "certificate", "lifecycle", "telemetry"]),
        ("audit", &["policy"]),
        ("report", &["audit", "policy"]),
        ("contract", &["policy"]),
        ("manifest", &["contract", "policy"]),
        ("review", &["policy"]),
        ("policy", &[]),
        ("lifecycle", &[]),
        ("telemetry", &[]),
        ("certificate", &[]),
    ]);
    let mut seen = BTreeSet::new();
    for source in sources() {
        let Some(allowed) = allowed.get(source.module.as_str()) else {
            panic!("src/{} is in no module that the design knows", source.path);
        };
        seen.insert(source.module.clone());
        for import in imports(&source) {
            assert!(allowed.contains(&import.as_str()), "src/{} imports {import}", source.path);
        }
    }
    for module in allowed.keys() {
        assert!(seen.contains(*module), "{module} is gone");
    }
}

#[test]
fn the_reader_of_imports_sees_every_form() {
    let read = |path: &str, code: &str| {
        let module = path.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        let source = Source { path: path.to_owned(), module, code: code.to_owned(), lines: 1 };
        imports(&source).into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(read("policy/pod.rs", "use crate::review::x;"), "review");
    assert_eq!(read("policy/pod.rs", "fn f() -> crate::review::X {}"), "review");
    assert_eq!(read("policy/pod.rs", "use crate::{cli::{a, b}, policy, server::{self}};"), "cli server");
    assert_eq!(read("policy/pod.rs", "use super::super::contract::X;"), "contract");
    assert_eq!(read("policy/mod.rs", "use super::contract::X;"), "contract");
    assert_eq!(read("policy/rules/x.rs", "use super::super::Case;"), "");
    assert_eq!(read("policy/rules/mod.rs", "use super::super::report::X;"), "report");
    assert_eq!(read("main.rs", "gpufence::cli::run()"), "cli");
    assert_eq!(read("policy/pod.rs", "use other_crate::server; serde::crate_x();"), "");
}

/// Whether the code uses a crate, a module of the standard library or a macro.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':')
    })
}

#[test]
fn the_decision_is_pure() {
    let crates =
        ["tokio::", "kube::", "k8s_openapi::", "axum::", "hyper::", "tracing::", "rustls::", "clap::", "config::"];
    let standard =
        ["time", "env", "fs", "net", "io", "process", "thread", "sync"].map(|module| format!("std::{module}"));
    let words = ["SystemTime::", "Instant::", "println!", "eprintln!", "thread_local!", "static mut "];
    for source in sources().iter().filter(|source| source.module == "policy") {
        // An Arc only shares what never changes.
        let code = source.code.replace("use std::sync::Arc;", "");
        let banned = crates.iter().chain(&words).copied().chain(standard.iter().map(String::as_str));
        for name in banned {
            assert!(!names(&code, name), "src/{} names {name}", source.path);
        }
        assert!(!source.code.contains("use std::{"), "src/{}: one line for each, or this test is blind", source.path);
    }
}

#[test]
fn the_wire_knows_no_http_and_the_core_no_shell() {
    for source in sources() {
        let banned: &[&str] = match source.module.as_str() {
            "review" => &["axum::", "hyper::", "http::", "tokio::", "tracing::", "std::fs", "std::env", "std::time"],
            "contract" | "report" | "manifest" => &["axum::", "hyper::", "tokio::", "tracing::", "std::env"],
            // Whoever calls says what time it is.
            "certificate" if !source.path.contains("tests") => {
                &["axum::", "hyper::", "tokio::", "tracing::", "std::env", "std::fs", "SystemTime::", "Instant::"]
            }
            _ => &[],
        };
        for name in banned {
            assert!(!names(&source.code, name), "src/{} names {name}", source.path);
        }
    }
}

#[test]
fn only_one_module_speaks_to_an_api_server() {
    for source in sources().iter().filter(|source| source.module != "cluster") {
        for name in ["kube::", "k8s_openapi::"] {
            assert!(!names(&source.code, name), "src/{} names {name}", source.path);
        }
    }
    for source in sources().iter().filter(|source| source.module == "certificate" && !source.path.contains("tests")) {
        assert!(!source.code.contains("now_utc"), "src/{} looks at the clock", source.path);
    }
}

#[test]
fn files_stay_small() {
    for Source { path, lines, .. } in sources() {
        let limit = if path == "main.rs" { 60 } else { 500 };
        assert!(lines < limit, "src/{path} has {lines} lines, and {limit} are too many (300 are plenty)");
    }
}
