//! The wire: `AdmissionReview` in, `AdmissionReview` out, as bytes. The only place that knows its form;
//! it knows nothing of HTTP but two status codes.
//!
//! The uid is known whatever the objects of a request hold. An answer that carries it is always an
//! `AdmissionReview` with HTTP status 200, because the API server takes any other status as a failed call
//! and lets the failurePolicy decide.

mod account;
mod custom;
mod envelope;
mod response;

use std::borrow::Cow;

pub use account::{Account, Entry, ExemptionUse};

use crate::policy::{
    Action, Decision, Facts, InForce, LeverChange, LeverKind, Mode, Operation, Phase, Policy, Requester, Rule, Subject,
    Workload, visible,
};
use envelope::{Request, Verb};
use response::{Response, shorten};

/// Which of the two webhooks was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Webhook {
    /// `POST /mutate`: completes GPU pods. Refuses nothing but what it cannot read.
    Mutate,
    /// `POST /validate`: judges what will be stored.
    Validate,
}

impl Webhook {
    /// Both webhooks.
    pub const ALL: [Self; 2] = [Self::Mutate, Self::Validate];

    /// The word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }

    fn phase(self) -> Phase {
        match self {
            Self::Mutate => Phase::Mutating,
            Self::Validate => Phase::Validating,
        }
    }
}

/// What goes back over HTTP, and what the log and the metrics are told.
#[derive(Debug)]
pub struct Answer<'b> {
    /// The HTTP status: 200, or 400 where no uid could be read.
    pub status: u16,
    /// An `AdmissionReview` as JSON, or with status 400 a line of text.
    pub body: Vec<u8>,
    /// The account of the decision.
    pub account: Account<'b>,
}

/// A request that cannot be judged, with what was found and what is valid.
#[derive(Debug)]
struct BadRequest {
    message: String,
    /// The most that is done about it, whatever the mode.
    most: Action,
}

impl BadRequest {
    /// The message is one line, and cut: what was found may be as long as a body.
    fn new(message: impl Into<String>) -> Self {
        Self { message: shorten(&visible(&message.into()), 512), most: Action::Deny }
    }

    /// The same with no more being done about it.
    fn at_most(self, most: Action) -> Self {
        Self { most: self.most.min(most), ..self }
    }

    /// The mode in which it is answered.
    fn mode(&self, mode: Mode) -> Mode {
        match self.most {
            Action::Deny => mode,
            Action::Warn => mode.min(Mode::Warn),
            Action::Audit | Action::Off => Mode::Audit,
        }
    }
}

/// What the policy says of one request, and the account of it.
#[derive(Debug)]
pub struct Reviewed<'b> {
    /// The decision.
    pub decision: Decision,
    /// The account of it.
    pub account: Account<'b>,
}

/// Decides the request in a body without wrapping the decision up, for callers that are not the API
/// server.
///
/// # Errors
/// What was found and what is valid, where the request cannot be judged.
pub fn examine<'b>(
    policy: &Policy,
    facts: &dyn Facts,
    webhook: Webhook,
    body: &'b [u8],
) -> Result<Reviewed<'b>, String> {
    match envelope::read(body) {
        Ok(Ok(mut request)) => match decide(policy, facts, webhook, &mut request) {
            Ok((decision, name)) => Ok(Reviewed { account: Account::of(&request, name, &decision), decision }),
            Err(error) => Err(error.message),
        },
        Ok(Err(salvaged)) => Err(salvaged.error.message),
        Err(error) => Err(error.message),
    }
}

/// Answers the body of one request. Total: no input makes it panic, wait or run long.
#[must_use]
pub fn answer<'b>(policy: &Policy, facts: &dyn Facts, webhook: Webhook, body: &'b [u8]) -> Answer<'b> {
    let mut request = match envelope::read(body) {
        Ok(Ok(request)) => request,
        Ok(Err(salvaged)) => {
            let InForce { mode, labels_unknown } = in_force(policy, facts, &salvaged.namespace);
            let account = Account::salvaged(salvaged.uid, salvaged.namespace, labels_unknown);
            return refuse(account, mode, &salvaged.error);
        }
        Err(unreadable) => {
            let body = format!("{}\n", unreadable.message).into_bytes();
            return Answer { status: 400, body, account: Account::unreadable(unreadable.message) };
        }
    };
    match decide(policy, facts, webhook, &mut request) {
        Ok((decision, name)) => {
            let account = Account::of(&request, name, &decision);
            Answer { status: 200, body: Response::of(&account, &decision).encode(), account }
        }
        Err(error) => {
            let InForce { mode, labels_unknown } = in_force(policy, facts, &request.namespace);
            let name = request.name.0.clone();
            let decision = Decision { labels_unknown, ..Decision::quiet(mode) };
            refuse(Account::of(&request, name, &decision), mode, &error)
        }
    }
}

/// Decides a request; the name of the object comes along, since the request may lack it.
fn decide<'b>(
    policy: &Policy,
    facts: &dyn Facts,
    webhook: Webhook,
    request: &mut Request<'b>,
) -> Result<(Decision, Cow<'b, str>), BadRequest> {
    let verb = request.verb()?;
    if matches!(verb, Verb::Create | Verb::Update) && request.kind.kind.is_empty() {
        return Err(BadRequest::new("request.kind is missing; valid is the group, version and kind of the object"));
    }
    if let (Verb::Create | Verb::Update, Some(kind), Webhook::Validate) = (verb, request.lever_kind(), webhook)
        && policy.action(Rule::LeverChange) > Action::Off
    {
        return decide_lever(policy, facts, kind, verb, request);
    }
    if let (Verb::Create | Verb::Update, Some(resource)) = (verb, request.custom_resource(policy)) {
        return custom::decide(policy, facts, webhook, request, (resource, verb));
    }
    let (Verb::Create | Verb::Update, Some(kind)) = (verb, request.judged_kind()) else {
        // Nothing is said of it in whatever mode.
        let InForce { mode, .. } = in_force(policy, facts, &request.namespace);
        return Ok((Decision::quiet(mode), request.name.0.clone()));
    };
    if request.namespace.is_empty() {
        return Err(BadRequest::new(format!("request.namespace is empty, and a {} is in a namespace", kind.name())));
    }
    // Of a template that cannot be read no more is made than of one that breaks the contract.
    let most = if kind.is_template() { policy.templates } else { Action::Deny };
    let object = request.take_object(kind).map_err(|error| error.at_most(most))?;
    let old = match verb {
        Verb::Update => Some(request.take_old_object(kind).map_err(|error| error.at_most(most))?),
        _ => None,
    };
    let subject = Subject {
        phase: webhook.phase(),
        operation: old.as_ref().map_or(Operation::Create, Operation::Update),
        namespace: &request.namespace,
        requester: Requester { username: &request.user_info.username, groups: &request.user_info.groups },
        object: &object,
    };
    let decision = policy.decide(&subject, facts);
    let name = if request.name.is_empty() { name_of(&object) } else { request.name.0.clone() };
    Ok((decision, name))
}

/// As [`decide`], for what the fence stands on.
fn decide_lever<'b>(
    policy: &Policy,
    facts: &dyn Facts,
    kind: LeverKind,
    verb: Verb,
    request: &mut Request<'b>,
) -> Result<(Decision, Cow<'b, str>), BadRequest> {
    let object = request.take_lever(kind)?;
    let old = if verb == Verb::Update { Some(request.take_old_lever(kind)?) } else { None };
    // Neither is in a namespace, whatever the request says; and who creates one may leave the name to the object.
    let name = if request.name.is_empty() { object.display_name().into() } else { request.name.0.clone() };
    let change = LeverChange {
        kind,
        name: &name,
        requester: Requester { username: &request.user_info.username, groups: &request.user_info.groups },
        object: &object,
        old: old.as_ref(),
    };
    Ok((policy.decide_lever(&change, facts), name))
}

fn name_of<'b>(object: &Workload<'b>) -> Cow<'b, str> {
    object.display_name().0
}

fn in_force(policy: &Policy, facts: &dyn Facts, namespace: &str) -> InForce {
    if namespace.is_empty() {
        InForce { mode: policy.mode(), labels_unknown: false }
    } else {
        policy.mode_in(namespace, facts)
    }
}

/// Refuses what cannot be judged in enforce mode, and admits it in every other: nothing may make an
/// audit installation stand in anyone's way.
fn refuse<'b>(mut account: Account<'b>, mode: Mode, error: &BadRequest) -> Answer<'b> {
    let mode = error.mode(mode);
    account.refuse(mode, &error.message);
    let body = Response::bad_request(&account, mode, &error.message).encode();
    Answer { status: 200, body, account }
}
