//! The report as one page for a browser, which asks the network for nothing.
//!
//! The page carries the audit's JSON and a script that draws it. Whatever the JSON holds came out of objects that
//! anybody may have written: it is text here and in the script, never markup. The page's own policy lets no other
//! script run than the one whose digest it names.

use std::fmt::Write as _;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::words;
use crate::audit::{Audit, Finding, PoolAccount, Severity};
use crate::policy::visible;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = concat!(include_str!("page.css"), include_str!("map.css"));
const SCRIPT: &str = concat!(include_str!("page.js"), include_str!("told.js"), include_str!("map.js"));

/// How many findings a reader without scripts is shown: a browser lays out a table as a whole, and they come worst
/// first.
const MOST: usize = 200;

/// The report as a page.
#[must_use]
pub fn html(audit: &Audit) -> String {
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len());
    let mut rest = PAGE;
    // In one pass: a value may hold what looks like the name of another.
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or_default();
        page.push_str(before);
        match name {
            "policy" => write_policy(&mut page),
            "title" => write_text(&mut page, &format!("gpufence audit: {}", audit.source)),
            "style" => page.push_str(STYLE),
            "summary" => write_summary(&mut page, audit),
            "data" => page.push_str(&data(audit)),
            "script" => page.push_str(SCRIPT),
            _ => {}
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// What a browser may do for the page: run its script, apply its style, and nothing else.
fn write_policy(page: &mut String) {
    let sum = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    let _ = write!(
        page,
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action \
         'none'",
        sum(SCRIPT),
        sum(STYLE)
    );
}

/// The audit's JSON, as an element of a page may hold it.
fn data(audit: &Audit) -> String {
    let mut json = Vec::new();
    // Neither a vector nor an audit's maps, whose keys are strings, can fail.
    let _ = audit.serialize(&mut Serializer::with_formatter(&mut json, Embedded));
    String::from_utf8(json).unwrap_or_default()
}

/// Writes JSON of which nothing ends the element that holds it, or begins a comment in it: `<` is only ever within a
/// string. The two separators end a line in a script, should anybody paste it into one.
struct Embedded;

impl Formatter for Embedded {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut plain = 0;
        for (at, found) in fragment.match_indices(['<', '\u{2028}', '\u{2029}']) {
            writer.write_all(&fragment.as_bytes()[plain..at])?;
            writer.write_all(match found {
                "<" => b"\\u003c",
                "\u{2028}" => b"\\u2028",
                _ => b"\\u2029",
            })?;
            plain = at + found.len();
        }
        writer.write_all(&fragment.as_bytes()[plain..])
    }
}

/// What a reader without scripts is shown.
fn write_summary(page: &mut String, audit: &Audit) {
    let Audit { source, taken, mode, summary, pools, findings, gaps, .. } = audit;
    let counts = &summary.findings;
    page.push_str("<header class=\"top\">\n<p class=\"kind\">gpufence audit</p>\n<h1>");
    write_text(page, source);
    let _ = writeln!(page, "</h1>\n<p class=\"facts\">{taken}, contract in mode {mode}</p>");
    let _ = writeln!(
        page,
        "<p>{} high, {} medium, {} low, {} info. {} of {} nodes have to do with GPUs, {} of them differ from the \
         contract.</p>",
        counts.high, counts.medium, counts.low, counts.info, summary.gpu_nodes, summary.nodes, summary.drifted_nodes
    );
    if summary.pods_unknown {
        write_element(page, "p", words::PODS_UNKNOWN);
    }
    if audit.baseline.is_some() {
        page.push_str("<p>");
        write_text(page, &words::verdict(audit).1);
        page.push_str("</p>\n");
    }
    page.push_str("<p>Scripts are off: this is the summary alone, without the map of nodes.</p>\n</header>\n<main>\n");
    if !gaps.is_empty() {
        page.push_str("<section>\n<h2>What the audit could not see</h2>\n<ul>\n");
        for gap in gaps.iter().take(MOST) {
            write_element(page, "li", gap);
        }
        write_rest(page, "li", gaps.len());
        page.push_str("</ul>\n</section>\n");
    }
    if !pools.is_empty() {
        write_table(page, "Pools", &["Pool", "Nodes", "GPUs", "Requested", "Free", "Out of use", "Ordinary pods"]);
        for PoolAccount { name, nodes, gpus, ordinary_pods, .. } in pools {
            page.push_str("<tr>");
            write_element(page, "td", name);
            let _ = writeln!(
                page,
                "<td>{nodes}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{ordinary_pods}</td></tr>",
                gpus.allocatable,
                gpus.requested,
                words::free(gpus),
                gpus.out_of_use
            );
        }
        page.push_str("</tbody>\n</table>\n</div>\n</section>\n");
    }
    write_table(page, "Findings", &["Severity", "Rule", "Object", "Finding", "What to do"]);
    for Finding { rule, severity, object, message, action, .. } in findings.iter().take(MOST) {
        let severity: Severity = *severity;
        let _ = write!(page, "<tr><td>{}</td><td>{rule}</td>", severity.as_str());
        write_element(page, "td", &object.to_string());
        write_element(page, "td", message);
        write_element(page, "td", action);
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
    write_rest(page, "p", findings.len());
    page.push_str("</section>\n</main>");
}

fn write_table(page: &mut String, title: &str, columns: &[&str]) {
    let _ = write!(page, "<section>\n<h2>{title}</h2>\n<div class=\"table\">\n<table>\n<thead><tr>");
    for column in columns {
        let _ = write!(page, "<th scope=\"col\">{column}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
}

/// Says how many were left out.
fn write_rest(page: &mut String, tag: &str, all: usize) {
    if let Some(rest @ 1..) = all.checked_sub(MOST) {
        let _ = writeln!(page, "<{tag}>And {rest} more: open the page with scripts, or write --output json.</{tag}>");
    }
}

fn write_element(page: &mut String, tag: &str, text: &str) {
    let _ = write!(page, "<{tag}>");
    write_text(page, text);
    let _ = writeln!(page, "</{tag}>");
}

/// Text that stays text.
fn write_text(page: &mut String, text: &str) {
    for letter in visible(text).chars() {
        match letter {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            letter => page.push(letter),
        }
    }
}
