//! Requests about custom resources, whose templates stand where the contract says.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::envelope::{Request, Verb};
use super::{BadRequest, Webhook, in_force};
use crate::policy::{
    CustomObject, CustomResource, Decision, Facts, Operation, Policy, Requester, Subject, Unreadable, Workload,
};

/// Decides a request; the name of the object comes along.
pub(super) fn decide<'b>(
    policy: &Policy,
    facts: &dyn Facts,
    webhook: Webhook,
    request: &mut Request<'b>,
    (resource, verb): (&CustomResource, Verb),
) -> Result<(Decision, Cow<'b, str>), BadRequest> {
    request.is_custom = true;
    let kind = &resource.kind;
    if request.namespace.is_empty() {
        return Err(BadRequest::new(format!("request.namespace is empty, and a {kind} is in a namespace")));
    }
    let (object, old_object) = request.take_raw_objects();
    let object = read("request.object", object, resource, verb)?;
    let old_object = match verb {
        Verb::Update => Some(read("request.oldObject", old_object, resource, verb)?),
        _ => None,
    };
    let name = if request.name.is_empty() { object.display_name().into() } else { request.name.0.clone() };
    let quiet = || Decision::quiet(in_force(policy, facts, &request.namespace).mode);
    // A controller that writes the status, or a person who edits a label, is not told of a template that nobody
    // changed, be it one that cannot be read.
    if old_object.as_ref().is_some_and(|old| object.is_as(old)) {
        return Ok((quiet(), name));
    }
    let found = resource.find(&object).map_err(|fault| unreadable("request.object", &fault))?;
    let templates = found.workloads(&object).collect::<Result<Vec<_>, _>>();
    let templates = templates.map_err(|fault| unreadable("request.object", &fault))?;
    let Some(first) = templates.first() else {
        return Ok((quiet(), name));
    };
    // What cannot be read in the old object excuses nothing in the new one.
    let old_found = old_object.as_ref().and_then(|old| Some((old, resource.find(old).ok()?)));
    let old = old_found.iter().flat_map(|(old, found)| found.workloads(old)).filter_map(Result::ok);
    let old: Vec<Workload<'_>> = old.collect();
    let subject = Subject {
        phase: webhook.phase(),
        operation: if old_object.is_some() { Operation::Update(&old) } else { Operation::Create },
        namespace: &request.namespace,
        requester: Requester { username: &request.user_info.username, groups: &request.user_info.groups },
        object: first,
    };
    let decision = match webhook {
        // Nothing is ever injected into a template.
        Webhook::Mutate => quiet(),
        Webhook::Validate => policy.decide_several(&subject, &templates, facts),
    };
    Ok((decision, name))
}

fn read<'b>(
    path: &str,
    json: Option<&'b RawValue>,
    resource: &CustomResource,
    verb: Verb,
) -> Result<CustomObject<'b>, BadRequest> {
    let kind = &resource.kind;
    let Some(json) = json else {
        return Err(BadRequest::new(format!("{path} is null; {} of a {kind} carries one", verb.as_str())));
    };
    let object = resource.read(json.get()).map_err(|fault| unreadable(path, &fault))?;
    let declared = object.declared_kind();
    if !declared.is_empty() && declared != kind {
        return Err(BadRequest::new(format!("{path} is a {declared}, and request.kind says it is a {kind}")));
    }
    Ok(object)
}

fn unreadable(path: &str, Unreadable { field, message }: &Unreadable) -> BadRequest {
    let field = if field.is_empty() { String::new() } else { format!(".{field}") };
    let separator = if message.starts_with(['[', '.']) { "" } else { ": " };
    BadRequest::new(format!("{path}{field}{separator}{message}"))
}
