//! Requests about custom resources, whose templates stand where the contract says.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::envelope::{Request, Verb};
use super::{BadRequest, Webhook, in_force};
use crate::policy::{
    Action, CustomObject, CustomResource, Decision, Facts, Operation, Policy, Requester, Subject, Unreadable,
};

/// Decides a request; the name of the object comes along. Of what cannot be judged no more is made than of a template
/// that breaks the contract.
pub(super) fn decide<'b>(
    policy: &Policy,
    facts: &dyn Facts,
    webhook: Webhook,
    request: &mut Request<'b>,
    (resource, verb): (&CustomResource, Verb),
) -> Result<(Decision, Cow<'b, str>), BadRequest> {
    request.is_custom = true;
    if !policy.judges_templates() {
        return Ok((Decision::quiet(in_force(policy, facts, &request.namespace).mode), request.name.0.clone()));
    }
    judge(policy, facts, webhook, request, (resource, verb)).map_err(|error| error.at_most(policy.templates))
}

fn judge<'b>(
    policy: &Policy,
    facts: &dyn Facts,
    webhook: Webhook,
    request: &mut Request<'b>,
    (resource, verb): (&CustomResource, Verb),
) -> Result<(Decision, Cow<'b, str>), BadRequest> {
    let kind = &resource.kind;
    if request.namespace.is_empty() {
        return Err(BadRequest::new(format!("request.namespace is empty, and a {kind} is in a namespace")));
    }
    let (object, old) = request.take_raw_objects();
    let object = raw("request.object", object, kind, verb)?;
    let old = if verb == Verb::Update { Some(raw("request.oldObject", old, kind, verb)?) } else { None };
    let is_update = old.is_some();
    // What cannot be read in the old object excuses nothing in the new one but the same.
    let old = old.map(|old| resource.read(old.get()));
    let object = match (resource.read(object.get()), &old) {
        (Ok(object), _) => object,
        (Err(fault), Some(Err(before))) if fault == *before => return Err(old_fault(&fault)),
        (Err(fault), _) => return Err(unreadable("request.object", &fault)),
    };
    let old = old.and_then(Result::ok);
    for (path, object) in [("request.object", Some(&object)), ("request.oldObject", old.as_ref())] {
        let declared = object.map(CustomObject::declared_kind).unwrap_or_default();
        if !declared.is_empty() && declared != kind {
            return Err(BadRequest::new(format!("{path} is a {declared}, and request.kind says it is a {kind}")));
        }
    }
    let name = if request.name.is_empty() { object.display_name().into() } else { request.name.0.clone() };
    let quiet = || Decision::quiet(in_force(policy, facts, &request.namespace).mode);
    // A controller that writes the status, or a person who edits a label, is not told of a template that nobody
    // changed, be it one that cannot be read. And nothing is ever injected into a template.
    if webhook == Webhook::Mutate || old.as_ref().is_some_and(|old| object.is_as(old)) {
        return Ok((quiet(), name));
    }
    let templates = resource.find(&object).map_err(|fault| unreadable("request.object", &fault))?;
    let old = old.as_ref().and_then(|old| resource.find(old).ok());
    if let Some(fault) = templates.excess() {
        let is_old = old.is_some_and(|old| old.excess().is_some());
        return Err(if is_old { old_fault(&fault) } else { unreadable("request.object", &fault) });
    }
    let whole = object.whole();
    let subject = Subject {
        phase: webhook.phase(),
        // The old templates are handed over beside it.
        operation: if is_update { Operation::Update(&whole) } else { Operation::Create },
        namespace: &request.namespace,
        requester: Requester { username: &request.user_info.username, groups: &request.user_info.groups },
        object: &whole,
    };
    let decision = policy.decide_several(&subject, &templates, old.as_ref(), facts);
    Ok((decision.map_err(|fault| unreadable("request.object", &fault))?, name))
}

fn raw<'b>(path: &str, json: Option<&'b RawValue>, kind: &str, verb: Verb) -> Result<&'b RawValue, BadRequest> {
    json.ok_or_else(|| BadRequest::new(format!("{path} is null; {} of a {kind} carries one", verb.as_str())))
}

/// What could not be read before either is only recorded: old objects are not punished.
fn old_fault(fault: &Unreadable) -> BadRequest {
    unreadable("request.object", fault).at_most(Action::Audit)
}

fn unreadable(path: &str, Unreadable { field, message }: &Unreadable) -> BadRequest {
    let field = if field.is_empty() { String::new() } else { format!(".{field}") };
    let separator = if message.starts_with(['[', '.']) { "" } else { ": " };
    BadRequest::new(format!("{path}{field}{separator}{message}"))
}
