//! Files and the environment as layers of one tree. Files are read and laid over each other by us: the
//! `config` crate's builder looks for neighbours of a file that it does not like, takes keys at the top of
//! a file for paths, and forgets where a map was written.

use std::collections::HashMap;
use std::path::Path;

use config::{Config, Environment, FileFormat, Format as _, Value, ValueKind};

use super::{BUILT_IN, ContractError, ENVIRONMENT_PREFIX, SEPARATOR};

/// The tree of all layers, the later over the earlier.
pub(super) fn tree(file: Option<&Path>, environment: HashMap<String, String>) -> Result<Value, ContractError> {
    let mut tree = parse(None, BUILT_IN)?;
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ContractError::Unreadable { path: path.to_owned(), error })?;
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
    let table = FileFormat::Yaml.parse(name, text).map_err(|cause| {
        let origin = name.map_or("built in", String::as_str).to_owned();
        // The cause names the file as well, and calls nothing a unit.
        let cause = cause.to_string().replace(&format!(" in {origin}"), "").replace("unit value", "nothing");
        ContractError::Syntax { origin, cause }
    })?;
    Ok(Value::new(name, ValueKind::Table(table)))
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
