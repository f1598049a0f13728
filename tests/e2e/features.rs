use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::api::admin;

/// Says something about the run, past the harness, which keeps the output of tests that pass from view.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "e2e: {text}");
}

/// Says that something is not tested, and how often that has been said: the last line's number is the
/// run's.
pub fn skip(what: &str, reason: &str) {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    let number = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    tell(&format!("skipped, number {number}: {what}: {reason}"));
}

/// Whether the API server has a resource, such as `pods/resize`, in `/api/v1` or another group's version.
pub fn has_resource(version: &str, resource: &str) -> bool {
    let list = admin().get(version);
    let resources = list.body["resources"].as_array();
    resources.is_some_and(|resources| resources.iter().any(|known| known["name"] == resource))
}

/// Whether the API server has a resource; what is skipped without it is said.
pub fn needs_resource(version: &str, resource: &str, what: &str) -> bool {
    let has = has_resource(version, resource);
    if !has {
        skip(what, &format!("this API server has no {resource} in {version}"));
    }
    has
}

/// Whether the API server knows a field, or drops it from an object; what is skipped without it is said.
pub fn needs_field(object: &Value, pointer: &str, what: &str) -> bool {
    let reply = admin().dry_run().create(object);
    let keeps = reply.code == 201 && reply.body.pointer(pointer).is_some();
    if !keeps {
        skip(what, &format!("this API server does not know the field {pointer} of a {}", object["kind"]));
    }
    keeps
}
