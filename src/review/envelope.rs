//! The request as the API server sends it, its objects raw.

mod in_passing;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::BadRequest;
use crate::policy::{CustomResource, Kind, Lever, LeverKind, List, Policy, Text, Workload, object, without_position};
use in_passing::{InPassing, Reading, Untouched};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// What is done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Update,
    Delete,
    Connect,
}

impl Verb {
    const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

object! {
    struct Envelope<'b> as "an AdmissionReview" {
        api_version: Text<'b> = "apiVersion",
        kind: Text<'b> = "kind",
        request: Option<InPassing<'b>> = "request",
    }
}

object! {
    /// As [`Envelope`], its objects raw.
    struct RawEnvelope<'b> as "an AdmissionReview" {
        api_version: Text<'b> = "apiVersion",
        kind: Text<'b> = "kind",
        request: Option<Untouched<'b>> = "request",
    }
}

/// The `request` of an AdmissionReview, as far as it is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Request<'b> {
    pub(super) uid: Text<'b>,
    /// The kind as the webhook's rule names it, after conversion.
    pub(super) kind: GroupKind<'b>,
    pub(super) sub_resource: Text<'b>,
    pub(super) name: Text<'b>,
    pub(super) namespace: Text<'b>,
    operation: Text<'b>,
    pub(super) user_info: UserInfo<'b>,
    object: Object<'b>,
    old_object: Object<'b>,
    pub(super) dry_run: bool,
    /// Whether the object proved to be of a custom resource that the contract names.
    pub(super) is_custom: bool,
}

/// An object of a request.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are two of them a request, on the stack, and the large one is the rule"
)]
enum Object<'b> {
    /// Absent, null, or of no concern.
    #[default]
    None,
    /// Not read yet.
    Raw(&'b RawValue),
    /// Read in passing.
    Read(Workload<'b>),
}

object! {
    pub(super) struct GroupKind<'b> as "group, version and kind" {
        pub(super) group: Text<'b> = "group",
        pub(super) kind: Text<'b> = "kind",
    }
}

object! {
    pub(super) struct UserInfo<'b> as "the user info" {
        pub(super) username: Text<'b> = "username",
        pub(super) groups: List<Text<'b>> = "groups",
    }
}

/// A body that is no AdmissionReview v1 and yet holds a uid to answer to.
#[derive(Debug)]
pub(super) struct Salvaged<'b> {
    pub(super) uid: Text<'b>,
    pub(super) namespace: Text<'b>,
    pub(super) error: BadRequest,
}

/// Reads the envelope. The outer error is for a body without a readable uid.
///
/// The objects are read in the same pass as the envelope: kube-apiserver names kind and operation
/// before them. Where that does not go well the body is read again with the objects raw, so that the
/// uid is known whatever they hold, and the fault is found where it is.
pub(super) fn read(body: &[u8]) -> Result<Result<Request<'_>, Salvaged<'_>>, BadRequest> {
    let text = std::str::from_utf8(body)
        .map_err(|error| BadRequest::new(format!("the body is not UTF-8 from byte {}", error.valid_up_to())))?;
    let envelope = serde_json::from_str(text)
        .map(|Envelope { api_version, kind, request }| (api_version, kind, request.map(|Reading(request)| request)))
        .or_else(|_| {
            serde_json::from_str(text).map(|RawEnvelope { api_version, kind, request }| {
                (api_version, kind, request.map(|Reading(request)| request))
            })
        });
    let error = match envelope {
        Ok((api_version, kind, _)) if &*api_version != API_VERSION || &*kind != KIND => BadRequest::new(format!(
            "{} and {} of the body; valid is {API_VERSION} and {KIND}",
            or_nothing("apiVersion", &api_version),
            or_nothing("kind", &kind),
        )),
        Ok((_, _, None)) => BadRequest::new("the AdmissionReview has no request"),
        Ok((_, _, Some(request))) if request.uid.is_empty() => {
            return Err(BadRequest::new("request.uid is empty or missing, and an answer must carry it"));
        }
        Ok((_, _, Some(request))) => return Ok(Ok(request)),
        Err(_) => locate("", text, |json| RawEnvelope::deserialize(json)),
    };
    salvage(text, error).map(Err)
}

/// The uid of a body that is not what it should be, if it has one.
fn salvage(text: &str, error: BadRequest) -> Result<Salvaged<'_>, BadRequest> {
    object! {
        struct Remains<'b> as "an AdmissionReview" {
            request: Identity<'b> = "request",
        }
    }

    object! {
        struct Identity<'b> as "the request of an AdmissionReview" {
            uid: Text<'b> = "uid",
            namespace: Option<&'b RawValue> = "namespace",
        }
    }

    match serde_json::from_str(text) {
        Ok(Remains { request: Identity { uid, namespace } }) if !uid.is_empty() => {
            let namespace = namespace.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
            Ok(Salvaged { uid, namespace, error })
        }
        _ => Err(error),
    }
}

impl GroupKind<'_> {
    fn is(&self, kind: Kind) -> bool {
        &*self.group == kind.group() && &*self.kind == kind.name()
    }
}

impl<'b> Request<'b> {
    pub(super) fn verb(&self) -> Result<Verb, BadRequest> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == &*self.operation).ok_or_else(|| {
            let found = or_nothing("request.operation", &self.operation);
            BadRequest::new(format!("{found}; valid is CREATE, UPDATE, DELETE or CONNECT"))
        })
    }

    /// The kind of the object, where it is one that is judged.
    ///
    /// A subresource can change neither tolerations nor requests: status and ephemeralcontainers keep
    /// the stored spec, and resize does not reach extended resources. What a client put there beside it
    /// is dropped after mutation, and never worth standing in the way of a kubelet.
    pub(super) fn judged_kind(&self) -> Option<Kind> {
        match (Kind::of(&self.kind.group, &self.kind.kind), &*self.sub_resource) {
            (Some(kind), "") => Some(kind),
            // A Binding comes by the pod's subresource or by a resource of its own, and is only ever created.
            (None, "" | "binding") if self.kind.is(Kind::Binding) && &*self.operation == Verb::Create.as_str() => {
                Some(Kind::Binding)
            }
            _ => None,
        }
    }

    /// The kind of the object, where it is one that the fence stands on, and the request can change its labels.
    pub(super) fn lever_kind(&self) -> Option<LeverKind> {
        let kind = LeverKind::of(&self.kind.group, &self.kind.kind)?;
        let part = &*self.sub_resource;
        (part.is_empty() || kind.subresources().contains(&part)).then_some(kind)
    }

    /// The resource's name, as far as it is known here.
    pub(super) fn resource(&self) -> Option<&'static str> {
        let GroupKind { group, kind } = &self.kind;
        let binding = || self.kind.is(Kind::Binding).then_some(Kind::Binding);
        let judged = Kind::of(group, kind).or_else(binding).map(Kind::resource);
        judged.or_else(|| LeverKind::of(group, kind).map(LeverKind::resource))
    }

    pub(super) fn take_lever(&mut self, kind: LeverKind) -> Result<Lever<'b>, BadRequest> {
        let object = std::mem::take(&mut self.object);
        object.read_lever("request.object", kind, &self.operation)
    }

    pub(super) fn take_old_lever(&mut self, kind: LeverKind) -> Result<Lever<'b>, BadRequest> {
        let object = std::mem::take(&mut self.old_object);
        object.read_lever("request.oldObject", kind, &self.operation)
    }

    /// The custom resource that the object is of, where the contract names it. Its subresources, such as status and
    /// scale, change no template.
    pub(super) fn custom_resource<'p>(&self, policy: &'p Policy) -> Option<&'p CustomResource> {
        let GroupKind { group, kind } = &self.kind;
        if self.sub_resource.is_empty() { policy.custom_resource(group, kind) } else { None }
    }

    /// The object and the one that it replaces, of a kind that is not read in passing.
    pub(super) fn take_raw_objects(&mut self) -> (Option<&'b RawValue>, Option<&'b RawValue>) {
        let raw = |object: &mut Object<'b>| match std::mem::take(object) {
            Object::Raw(json) => Some(json),
            Object::None | Object::Read(_) => None,
        };
        (raw(&mut self.object), raw(&mut self.old_object))
    }

    pub(super) fn take_object(&mut self, kind: Kind) -> Result<Workload<'b>, BadRequest> {
        let object = std::mem::take(&mut self.object);
        object.read("request.object", kind, &self.operation)
    }

    pub(super) fn take_old_object(&mut self, kind: Kind) -> Result<Workload<'b>, BadRequest> {
        let object = std::mem::take(&mut self.old_object);
        object.read("request.oldObject", kind, &self.operation)
    }
}

impl<'b> Object<'b> {
    fn read(self, path: &str, kind: Kind, operation: &str) -> Result<Workload<'b>, BadRequest> {
        let workload = match self {
            Self::Read(workload) => workload,
            Self::Raw(json) => {
                kind.read(json.get()).map_err(|_| locate(path, json.get(), |json| kind.read_from(json)))?
            }
            Self::None => return Err(missing(path, kind.name(), operation)),
        };
        same_kind(path, workload.declared_kind(), kind.name())?;
        Ok(workload)
    }

    fn read_lever(self, path: &str, kind: LeverKind, operation: &str) -> Result<Lever<'b>, BadRequest> {
        // Nothing but a workload is read in passing.
        let Self::Raw(json) = self else { return Err(missing(path, kind.name(), operation)) };
        let lever = kind
            .read_from(&mut serde_json::Deserializer::from_str(json.get()))
            .map_err(|_| locate(path, json.get(), |json| kind.read_from(json)))?;
        same_kind(path, lever.declared_kind(), kind.name())?;
        Ok(lever)
    }
}

fn missing(path: &str, kind: &str, operation: &str) -> BadRequest {
    BadRequest::new(format!("{path} is null; {operation} of a {kind} carries one"))
}

fn same_kind(path: &str, declared: &str, expected: &str) -> Result<(), BadRequest> {
    if !declared.is_empty() && declared != expected {
        return Err(BadRequest::new(format!("{path} is a {declared}, and request.kind says it is a {expected}")));
    }
    Ok(())
}

type Json<'de> = serde_json::Deserializer<serde_json::de::StrRead<'de>>;

/// Reads once more what could not be read, this time keeping track of the path, and says where it
/// failed. The price of that is paid for errors alone.
fn locate<'de, T>(
    root: &str,
    text: &'de str,
    read: impl FnOnce(serde_path_to_error::Deserializer<'_, '_, &mut Json<'de>>) -> Result<T, serde_json::Error>,
) -> BadRequest {
    let mut track = serde_path_to_error::Track::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let outcome = read(serde_path_to_error::Deserializer::new(&mut json, &mut track)).map(|_| ());
    let Err(error) = outcome.and_then(|()| json.end()) else {
        return BadRequest::new(format!("{} cannot be read", if root.is_empty() { "the body" } else { root }));
    };
    let path = match (root, track.path().to_string().as_str()) {
        // `?` is the place where the text ends too early or goes on too long.
        ("", "." | "?") => "the body".to_owned(),
        ("", path) => path.to_owned(),
        (root, "." | "?") => root.to_owned(),
        (root, path) => format!("{root}.{path}"),
    };
    if !error.is_data() {
        return BadRequest::new(format!("{path} is not JSON: {error}"));
    }
    let message = without_position(&error);
    // A value that is read by itself knows the rest of the path.
    let separator = if message.starts_with(['[', '.']) { "" } else { ": " };
    BadRequest::new(format!("{path}{separator}{message}"))
}

fn or_nothing(name: &str, value: &str) -> String {
    if value.is_empty() { format!("{name} is missing") } else { format!("{name} is \"{value}\"") }
}
