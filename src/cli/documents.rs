//! Objects out of files: YAML or JSON, several documents, Lists, AdmissionReviews.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::Value;

/// An object and where it was found.
#[derive(Debug)]
pub(super) struct Found {
    /// The file and, where it holds several objects, the place in it.
    pub(super) source: String,
    pub(super) object: Value,
}

/// What was found in all files, and what could not be used.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The objects, in order.
    pub(super) found: Vec<Found>,
    /// One for each file or document that cannot be used.
    pub(super) faults: Vec<String>,
    /// How many documents of a folder's files are no Kubernetes objects, such as a chart's values.
    pub(super) foreign: usize,
}

/// Reads all files. `-` is the standard input, and a folder stands for the manifests in and below it.
pub(super) fn read(files: &[PathBuf]) -> Input {
    let mut input = Input::default();
    for file in files {
        if file.as_os_str() == "-" {
            let mut text = String::new();
            match std::io::stdin().read_to_string(&mut text) {
                Ok(_) => input.take("standard input", &text, false),
                Err(error) => input.faults.push(format!("cannot read the standard input: {error}")),
            }
            continue;
        }
        let in_folder = file.is_dir();
        let mut manifests = Vec::new();
        if let Err(error) = manifests_below(file, &mut manifests) {
            input.faults.push(format!("{error:#}"));
        }
        for file in manifests {
            let name = file.display().to_string();
            match std::fs::read_to_string(&file) {
                Ok(text) => input.take(&name, &text, in_folder),
                Err(error) => input.faults.push(format!("cannot read {name}: {error}")),
            }
        }
    }
    input
}

/// Calls for the JSON of each file, with the file's name and whether it was found in a folder, without holding a large
/// file in memory; YAML becomes JSON first. Returns what cannot be used.
pub(super) fn each(files: &[PathBuf], mut take: impl FnMut(&str, bool, &mut dyn Read)) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        if file.as_os_str() == "-" {
            if let Err(error) =
                take_one("standard input", std::io::stdin().lock(), |name, reader| take(name, false, reader))
            {
                faults.push(format!("{error:#}"));
            }
            continue;
        }
        let in_folder = file.is_dir();
        let mut manifests = Vec::new();
        if let Err(error) = manifests_below(file, &mut manifests) {
            faults.push(format!("{error:#}"));
        }
        for file in manifests {
            let name = file.display().to_string();
            let opened = std::fs::File::open(&file).with_context(|| format!("cannot read {name}"));
            if let Err(error) =
                opened.and_then(|opened| take_one(&name, opened, |name, reader| take(name, in_folder, reader)))
            {
                faults.push(format!("{error:#}"));
            }
        }
    }
    faults
}

fn take_one(name: &str, reader: impl Read, mut take: impl FnMut(&str, &mut dyn Read)) -> anyhow::Result<()> {
    let mut reader = BufReader::new(reader);
    let read = || format!("cannot read {name}");
    let start = reader.fill_buf().with_context(read)?;
    if is_json(start) {
        take(name, &mut reader);
        return Ok(());
    }
    let mut text = String::new();
    reader.read_to_string(&mut text).with_context(read)?;
    let documents = documents(&text).with_context(|| format!("{name} is neither YAML nor JSON"))?;
    // At once, so that each document is named by its place in the file; what is no object is an item, which ends nothing.
    let json = |document: &Value| if document.is_object() { document.to_string() } else { format!("[{document}]") };
    let documents: Vec<_> = documents.iter().map(json).collect();
    take(name, &mut documents.join("\n").as_bytes());
    Ok(())
}

impl Input {
    /// Takes the objects of one file, Lists taken apart.
    fn take(&mut self, name: &str, text: &str, in_folder: bool) {
        let mut flat = Vec::new();
        match documents(text) {
            Ok(documents) => documents.into_iter().for_each(|document| take_apart(document, &mut flat)),
            Err(error) => self.faults.push(format!("{name} is neither YAML nor JSON: {error}")),
        }
        let several = flat.len() > 1;
        for (index, object) in flat.into_iter().enumerate() {
            let source = if several { format!("{name}#{}", index + 1) } else { name.to_owned() };
            if object["kind"].is_string() && object["apiVersion"].is_string() {
                self.found.push(Found { source, object });
            } else if in_folder {
                self.foreign += 1;
            } else {
                self.faults.push(format!("{source} is not a Kubernetes object: it has no apiVersion and kind"));
            }
        }
    }
}

/// The file itself, or the manifests of a folder, in order.
fn manifests_below(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let read = || format!("cannot read {}", path.display());
    if !std::fs::metadata(path).with_context(read)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries = std::fs::read_dir(path).with_context(read)?.collect::<Result<Vec<_>, _>>().with_context(read)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // A link could lead back up.
        let kind = entry.file_type().with_context(read)?;
        if kind.is_dir() {
            manifests_below(&path, files)?;
        } else if path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether a text that begins so is meant as JSON: YAML, and what templates write of it, may begin with a brace too.
fn is_json(start: &[u8]) -> bool {
    let mut marks = start.iter().filter(|byte| !byte.is_ascii_whitespace());
    match (marks.next(), marks.next()) {
        (Some(b'{'), next) => matches!(next, Some(b'"' | b'}') | None),
        (Some(b'['), next) => matches!(next, Some(b'{' | b'[' | b']' | b'"') | None),
        _ => false,
    }
}

fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = if is_json(text.as_bytes()) && text.trim_start().starts_with('{') {
        serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>()?
    } else {
        // Without the budget for untrusted input: the dump of a whole cluster is larger.
        let options = serde_saphyr::options! { budget: None, with_snippet: false };
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            // The rest of the message is advice to a caller of the library.
            anyhow!("{}", error.to_string().split(", set DuplicateKeyPolicy").next().unwrap_or_default())
        })?
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
