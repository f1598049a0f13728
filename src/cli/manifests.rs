//! Objects out of files: YAML or JSON, several documents, Lists, AdmissionReviews.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// An object and where it was found.
#[derive(Debug)]
pub(super) struct Found {
    /// The file and, where it holds several objects, the place in it.
    pub(super) source: String,
    pub(super) object: Value,
}

/// The objects of all files, in order. `-` is the standard input, and a folder stands for the manifests
/// in and below it.
pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    for file in files {
        if file.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the standard input")?;
            found.extend(objects("standard input", &text)?);
            continue;
        }
        for file in manifests_below(file)? {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {name}"))?;
            found.extend(objects(&name, &text)?);
        }
    }
    Ok(found)
}

/// The file itself, or the manifests of a folder, in order.
fn manifests_below(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = || format!("cannot read {}", path.display());
    if !std::fs::metadata(path).with_context(read)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries = std::fs::read_dir(path).with_context(read)?.collect::<Result<Vec<_>, _>>().with_context(read)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.path();
        // A link could lead back up.
        let kind = entry.file_type().with_context(read)?;
        if kind.is_dir() {
            files.extend(manifests_below(&path)?);
        } else if path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known)) {
            files.push(path);
        }
    }
    Ok(files)
}

/// The objects of one file, Lists taken apart.
fn objects(name: &str, text: &str) -> anyhow::Result<Vec<Found>> {
    let mut flat = Vec::new();
    for document in documents(text).with_context(|| format!("{name} is neither YAML nor JSON"))? {
        take_apart(document, &mut flat);
    }
    let several = flat.len() > 1;
    let mut found = Vec::new();
    for (index, object) in flat.into_iter().enumerate() {
        let source = if several { format!("{name}#{}", index + 1) } else { name.to_owned() };
        if !object["kind"].is_string() || !object["apiVersion"].is_string() {
            bail!("{source} is not a Kubernetes object: it has no apiVersion and kind");
        }
        found.push(Found { source, object });
    }
    Ok(found)
}

fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>()?
    } else {
        serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { budget: None })?
    };
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn take_apart(mut object: Value, flat: &mut Vec<Value>) {
    let list = object["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).map(str::to_owned);
    let (Some(kind), Some(items)) = (list, object.get_mut("items").and_then(Value::as_array_mut)) else {
        flat.push(object);
        return;
    };
    let items = std::mem::take(items);
    for mut item in items {
        // The items of a typed list, such as a PodList, leave out what the list says.
        if let (false, Some(fields)) = (kind.is_empty(), item.as_object_mut()) {
            fields.entry("kind").or_insert_with(|| kind.as_str().into());
            fields.entry("apiVersion").or_insert_with(|| object["apiVersion"].clone());
        }
        take_apart(item, flat);
    }
}
