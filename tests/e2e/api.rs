use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, WARNING};
use axum::http::{HeaderMap, Method, Request};
use kube::client::Body;
use serde_json::{Value, json};

use crate::cluster::cluster;

/// Longer than anything here takes, and shorter than a person's patience.
const PLAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Somebody who asks the API server.
#[derive(Debug, Clone, Default)]
pub struct User {
    /// Whom the administrator impersonates; nobody where empty.
    name: String,
    groups: Vec<String>,
    dry_run: bool,
}

/// The administrator.
pub fn admin() -> User {
    User::default()
}

/// The forms that a patch can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    Strategic,
    Merge,
    Json,
    /// Server-side apply, as another field manager that insists.
    Apply,
}

impl Patch {
    pub const ALL: [Self; 4] = [Self::Strategic, Self::Merge, Self::Json, Self::Apply];

    fn media_type(self) -> &'static str {
        match self {
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

impl User {
    /// Somebody else, without any group but the API server's own.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The same in a group as well.
    pub fn in_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// The same with `--dry-run=server`.
    pub fn dry_run(&self) -> Self {
        Self { dry_run: true, ..self.clone() }
    }

    /// `kubectl create`
    pub fn create(&self, object: &Value) -> Reply {
        self.send(&Method::POST, &collection(object), "application/json", object)
    }

    /// `kubectl replace`
    pub fn replace(&self, object: &Value) -> Reply {
        self.send(&Method::PUT, &path(object), "application/json", object)
    }

    /// `kubectl replace --raw`
    pub fn replace_at(&self, path: &str, object: &Value) -> Reply {
        self.send(&Method::PUT, path, "application/json", object)
    }

    /// `kubectl get --raw`
    pub fn get(&self, path: &str) -> Reply {
        self.send(&Method::GET, path, "application/json", &Value::Null)
    }

    /// `kubectl get` of the object as it is now.
    pub fn read(&self, object: &Value) -> Reply {
        self.get(&path(object))
    }

    /// `kubectl patch --type`
    pub fn patch(&self, form: Patch, path: &str, change: &Value) -> Reply {
        let path = match form {
            Patch::Apply => format!("{path}?fieldManager=another&force=true"),
            _ => path.to_owned(),
        };
        self.send(&Method::PATCH, &path, form.media_type(), change)
    }

    /// `kubectl delete --grace-period=0` of an object or, with a selector, of several.
    pub fn delete(&self, path: &str) -> Reply {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
        self.send(&Method::DELETE, path, "application/json", &options)
    }

    /// A request to a subresource that is not stored.
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&Method::POST, path, "application/json", body)
    }

    /// Deletes an object that may be gone, of an API server that may be gone too.
    pub fn discard(&self, object: &Value) {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        let _ = self.try_send(&Method::DELETE, &path(object), "application/json", &options);
    }

    fn send(&self, method: &Method, path: &str, media_type: &str, body: &Value) -> Reply {
        let reply = self.try_send(method, path, media_type, body);
        reply.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_send(&self, method: &Method, path: &str, media_type: &str, body: &Value) -> Result<Reply, kube::Error> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let dry_run = if self.dry_run { format!("{separator}dryRun=All") } else { String::new() };
        let mut request =
            Request::builder().method(method).uri(format!("{path}{dry_run}")).header(CONTENT_TYPE, media_type);
        if !self.name.is_empty() {
            request = request.header("Impersonate-User", &self.name);
        }
        for group in &self.groups {
            request = request.header("Impersonate-Group", group);
        }
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.body(Body::from(body)).unwrap();
        let cluster = cluster();
        cluster.runtime.block_on(async {
            let response = cluster.client.send(request).await?;
            let (code, warnings) = (response.status().as_u16(), warnings(response.headers()));
            let body = response.into_body().collect_bytes().await?;
            let body = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into());
            Ok(Reply { request: format!("{method} {path}"), code, warnings, body })
        })
    }
}

/// What comes back.
#[derive(Debug)]
pub struct Reply {
    request: String,
    /// The HTTP status.
    pub code: u16,
    /// What kubectl prints after `Warning: `.
    pub warnings: Vec<String>,
    /// An object, or a Status where there was none.
    pub body: Value,
}

impl Reply {
    /// The object of a request that was granted, with whatever warnings.
    #[track_caller]
    pub fn stored(self) -> Value {
        assert!((200..300).contains(&self.code), "not granted: {self:#?}");
        self.body
    }

    /// The object of a request that was granted without a word.
    #[track_caller]
    pub fn quietly(self) -> Value {
        assert_eq!(self.our_warnings(), [""; 0], "{}", self.request);
        self.stored()
    }

    /// Whether the API server has no such object.
    pub fn is_missing(&self) -> bool {
        self.code == 404
    }

    /// What kubectl prints of a refusal after `Error from server (Forbidden): `.
    #[track_caller]
    pub fn refusal(&self) -> &str {
        assert_eq!((self.code, &self.body["reason"]), (403, &json!("Forbidden")), "not refused: {self:#?}");
        self.message()
    }

    /// The message of a Status.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The warnings without the API server's own: ours begin with the id of a rule.
    pub fn our_warnings(&self) -> Vec<&str> {
        let ours = |warning: &&str| {
            warning.split_once(": ").is_some_and(|(rule, _)| {
                gpufence::policy::Rule::ALL.iter().any(|known| known.id() == rule) || rule == "bad-request"
            })
        };
        self.warnings.iter().map(String::as_str).filter(ours).collect()
    }
}

/// The texts of the headers `Warning: 299 - "text"`, one or several to a header.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let mut warnings = Vec::new();
    for header in headers.get_all(WARNING) {
        let mut rest = std::str::from_utf8(header.as_bytes()).unwrap();
        while let Some((_, quoted)) = rest.split_once('"') {
            let mut text = String::new();
            let mut characters = quoted.chars();
            while let Some(character) = characters.next().filter(|character| *character != '"') {
                let literal = if character == '\\' { characters.next() } else { Some(character) };
                text.extend(literal);
            }
            warnings.push(text);
            rest = characters.as_str();
        }
    }
    warnings
}

/// The path of a stored object.
pub fn path(object: &Value) -> String {
    format!("{}/{}", collection(object), object["metadata"]["name"].as_str().unwrap())
}

/// The path of all objects of the kind in the namespace.
pub fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let resource = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    format!("/{root}/{version}{namespace}/{resource}")
}

/// A GET over plain HTTP: the body of a 200.
pub fn get_plain(address: SocketAddr, path: &str) -> Result<String, String> {
    let exchange = || {
        let mut stream = TcpStream::connect_timeout(&address, PLAIN_TIMEOUT)?;
        stream.set_read_timeout(Some(PLAIN_TIMEOUT))?;
        // HTTP/1.0, which ends the body with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let response = exchange().map_err(|error: std::io::Error| format!("{address}{path}: {error}"))?;
    match response.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(format!("{address}{path}: {response}")),
    }
}
