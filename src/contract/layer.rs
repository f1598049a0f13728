//! Files and the environment as layers of one tree. Files are read and laid over each other by us: the
//! `config` crate's builder looks for neighbours of a file that it does not like, takes keys at the top of
//! a file for paths, and forgets where a map was written.

use std::collections::HashMap;
use std::path::Path;

use config::{Config, Environment, FileFormat, Format as _, Value, ValueKind};

use super::{BUILT_IN, ContractError, ENVIRONMENT_PREFIX, SEPARATOR};

/// How far the text of a line may be indented, by spaces and the marks of lists. It bounds how deep a file
/// can be nested, which the parser itself does not: a file of a million marks would overflow its stack and
/// end the process, and a reload must never do that.
const INDENT: usize = 200;

/// The largest file, in bytes: what a ConfigMap holds.
const LARGEST: usize = 1024 * 1024;

/// The tree of all layers, the later over the earlier.
pub(super) fn tree(file: Option<(&Path, &str)>, environment: HashMap<String, String>) -> Result<Value, ContractError> {
    let mut tree = parse(None, BUILT_IN)?;
    if let Some((path, text)) = file {
        merge(&mut tree, parse(Some(&path.display().to_string()), text.trim_start_matches('\u{feff}'))?);
    }
    let variables = Environment::with_prefix(ENVIRONMENT_PREFIX)
        .prefix_separator(SEPARATOR)
        .separator(SEPARATOR)
        .source(Some(environment));
    let variables = Config::builder()
        .add_source(variables)
        .build()
        .map_err(|error| ContractError::Syntax { origin: "in the environment".to_owned(), cause: error.to_string() })?;
    merge(&mut tree, variables.cache);
    Ok(tree)
}

fn parse(name: Option<&String>, text: &str) -> Result<Value, ContractError> {
    let origin = || name.map_or("built in", String::as_str).to_owned();
    bounded(text).map_err(|cause| ContractError::Syntax { origin: origin(), cause })?;
    let table = FileFormat::Yaml.parse(name, text).map_err(|cause| {
        let origin = origin();
        // The cause names the file as well, and calls nothing a unit.
        let cause = cause.to_string().replace(&format!(" in {origin}"), "").replace("unit value", "nothing");
        ContractError::Syntax { origin, cause }
    })?;
    Ok(Value::new(name, ValueKind::Table(table)))
}

/// What is wrong with a file that is not worth parsing.
fn bounded(text: &str) -> Result<(), String> {
    if text.len() > LARGEST {
        return Err(format!("it has {} bytes, and {LARGEST} are the most that a ConfigMap holds", text.len()));
    }
    let indent = |line: &str| line.bytes().take_while(|byte| b" -?\t".contains(byte)).count();
    match text.split(['\n', '\r']).position(|line| indent(line) > INDENT && !line.trim().is_empty()) {
        None => Ok(()),
        Some(place) => Err(format!("line {} is indented by more than {INDENT} spaces and list marks", place + 1)),
    }
}

/// Maps are merged and belong to whoever wrote into them last; all else is replaced.
fn merge(under: &mut Value, over: Value) {
    let origin = over.origin().or(under.origin()).map(str::to_owned);
    let kind = match (std::mem::replace(&mut under.kind, ValueKind::Nil), over.kind) {
        (ValueKind::Table(mut below), ValueKind::Table(above)) => {
            for (key, value) in above {
                merge(below.entry(key).or_insert_with(|| ValueKind::Nil.into()), value);
            }
            ValueKind::Table(below)
        }
        (_, kind) => kind,
    };
    *under = Value::new(origin.as_ref(), kind);
}
