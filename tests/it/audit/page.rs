use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::Value;

use gpufence::audit::{Audit, Check, Finding, ObjectRef, Severity};
use gpufence::report::audit::html;

use super::cluster::{Cluster, gpu_node};

/// Names and texts of which a page must make nothing but text.
const HOSTILE: [&str; 8] = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "</ScRiPt >",
    "<!--<script>",
    "{{script}}{{data}}",
    "line\u{2028}paragraph\u{2029}",
    "safe\u{202e}gnp.exe",
    "\"'&amp;&",
];

/// An audit whose every text is hostile.
fn hostile() -> Audit {
    let mut audit = Cluster::new().object(gpu_node("gpu-1")).audit();
    audit.source = HOSTILE.concat();
    audit.gaps = HOSTILE.map(str::to_owned).to_vec();
    audit.findings = HOSTILE.iter().map(|text| about(text)).collect();
    audit
}

fn about(text: &str) -> Finding {
    Finding::new(Check::Unreadable, Severity::Low, ObjectRef::new("v1", "Pod", "web", text), text, text)
}

/// What stands between the first `begin` and the next `end`.
fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, after) = page.split_once(begin).unwrap_or_else(|| panic!("{begin} is not in the page"));
    after.split_once(end).unwrap_or_else(|| panic!("{end} is not in the page")).0
}

fn data(page: &str) -> &str {
    between(page, "<script id=\"audit\" type=\"application/json\">", "</script>")
}

#[test]
fn the_page_carries_the_audit_as_it_is() {
    for audit in [Cluster::new().object(gpu_node("gpu-1")).audit(), hostile()] {
        let carried: Value = serde_json::from_str(data(&html(&audit))).unwrap();
        assert_eq!(carried, serde_json::to_value(&audit).unwrap());
    }
}

/// Nothing within the JSON ends its element, begins a comment in it or ends a line of a script.
#[test]
fn no_text_of_an_object_ends_the_element_that_holds_it() {
    let page = html(&hostile());
    let data = data(&page);
    for banned in ['<', '\u{2028}', '\u{2029}'] {
        assert!(!data.contains(banned), "{banned:?} is in the data");
    }
    assert!(data.contains(r"\u003c/script>\u003cscript>alert(1)"));
    assert!(data.contains(r"line\u2028paragraph\u2029"));
    assert_eq!(page.matches("<script").count(), 2, "only the page's own scripts");
    assert_eq!(page.matches("</script>").count(), 2);
}

#[test]
fn without_scripts_hostile_text_stays_text() {
    let page = html(&hostile());
    let shown = between(&page, "<noscript>", "</noscript>");
    for banned in ["<img", "<script", "</script", "<!--", "\u{202e}", "\"'"] {
        assert!(!shown.contains(banned), "{banned} is in {shown}");
    }
    for text in [
        "<td>&lt;img src=x onerror=alert(1)&gt;</td>",
        "<td>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;</td>",
        "<td>{{script}}{{data}}</td>",
        "<td>safe\u{fffd}gnp.exe</td>",
        "<td>&quot;&#39;&amp;amp;&amp;</td>",
        "<td>Pod web/&lt;!--&lt;script&gt;</td>",
        "<li>&lt;!--&lt;script&gt;</li>",
    ] {
        assert!(shown.contains(text), "{text} is not in {shown}");
    }
    let title = between(&page, "<title>", "</title>");
    assert!(title.starts_with("gpufence audit: &lt;img src=x onerror=alert(1)&gt;&lt;/script&gt;"), "{title}");
}

#[test]
fn every_place_of_the_page_is_filled() {
    let page = html(&Cluster::new().audit());
    assert!(!page.contains("{{"), "a place is left");
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\">\n"));
    assert!(page.trim_end().ends_with("</html>"));
}

/// A browser runs the script and applies the style only where they are, to the byte, those that the policy names.
#[test]
fn the_policy_names_the_digests_of_what_is_there() {
    let page = html(&hostile());
    let policy = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    let directives: BTreeMap<_, _> = policy.split("; ").filter_map(|directive| directive.split_once(' ')).collect();
    let sum = |begin: &str, end: &str| {
        format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, between(&page, begin, end).as_bytes())))
    };
    assert_eq!(directives["default-src"], "'none'");
    assert_eq!(directives["script-src"], sum("<script type=\"module\">", "</script>"));
    assert_eq!(directives["style-src"], sum("<style>", "</style>"));
    assert_eq!((directives["base-uri"], directives["form-action"]), ("'none'", "'none'"));
    assert_eq!(directives["img-src"], "data:");
}

/// Nothing in the page names another place: what it needs, it has.
#[test]
fn the_page_asks_for_nothing() {
    let page = html(&Cluster::new().audit()).replace("http://www.w3.org/2000/svg", "");
    for banned in ["http:", "https:", "src=", "url(", "@import", "fetch(", "XMLHttpRequest", "innerHTML", "eval("] {
        assert!(!page.contains(banned), "{banned}");
    }
}

#[test]
fn what_a_reader_without_scripts_is_shown_is_bounded() {
    let mut audit = Cluster::new().audit();
    for (count, rest) in [(200, None), (201, Some("And 1 more")), (1_000, Some("And 800 more"))] {
        audit.findings = (0..count).map(|number| about(&format!("pod-{number}"))).collect();
        let page = html(&audit);
        let shown = between(&page, "<noscript>", "</noscript>");
        assert_eq!(shown.matches("<td>Pod web/pod-").count(), 200);
        match rest {
            Some(rest) => assert!(shown.contains(rest), "{rest}"),
            None => assert!(!shown.contains("more:"), "{shown}"),
        }
    }
}

/// Without scripts: the numbers, the pools and the findings, worst first.
#[test]
fn the_summary_without_scripts_says_what_was_found() {
    let mut audit = Cluster::new().object(gpu_node("gpu-1")).audit();
    audit.findings = vec![about("odd")];
    audit.summary.findings.low = 1;
    let page = html(&audit);
    let shown = between(&page, "<noscript>", "</noscript>");
    assert!(shown.contains("0 high, 0 medium, 1 low, 0 info. 1 of 1 nodes have to do with GPUs"), "{shown}");
    assert!(shown.contains("<p class=\"facts\">2026-11-30T12:00:00Z, contract in mode enforce</p>"), "{shown}");
    assert!(shown.contains("<tr><td>low</td><td>unreadable</td><td>Pod web/odd</td>"), "{shown}");
}

/// The script knows by their ids which findings make a node count as drifted.
#[test]
fn the_script_names_only_checks_that_there_are() {
    let page = html(&Cluster::new().audit());
    let named = between(&page, "const DRIFT = new Set([", "])");
    let named: Vec<_> = named.split('\'').skip(1).step_by(2).collect();
    assert_eq!(named.len(), 8);
    for id in named {
        assert!(Check::OWN.iter().any(|check| check.id() == id), "{id} is no check");
    }
}
