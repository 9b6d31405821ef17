//! Reads YAML and JSON files, single files and whole folders.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The largest accepted file. It stops a mistaken path before the file fills the memory.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// How many of the lines with a full-width colon before an error are tried as its cause, from the last one.
const MAX_COLONS: usize = 8;

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Why a file could not be read.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// The text is not valid YAML or JSON, or a table has a key twice.
    #[error("line {line}, column {column}: {problem}")]
    Syntax {
        /// The line, from 1; 0 if it is unknown.
        line: u64,
        /// The column, from 1; 0 if it is unknown.
        column: u64,
        /// The syntax error.
        problem: String,
    },
    /// The operating system reported an error.
    #[error("cannot read it: {0}")]
    Read(#[source] std::io::Error),
    /// The file is not UTF-8, for example GBK.
    #[error("it is not UTF-8 (byte {0}); save it as UTF-8 in your editor")]
    Encoding(usize),
    /// The file's name has another extension.
    #[error("the file's name must end in .yaml, .yml or .json")]
    Extension,
    /// The file is larger than the limit.
    #[error("it has {0} bytes; the limit is {MAX_BYTES}")]
    TooLarge(u64),
}

/// Each file with its content or its error. The error does not repeat the file's name.
pub(crate) type LoadedFiles<T, E> = Vec<(PathBuf, Result<T, E>)>;

/// The text without the byte order mark that some editors write at its beginning.
pub fn plain(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// Parses a text. The extension of `name` selects YAML or JSON.
pub fn parse(name: &Path, text: &str) -> Result<Value, DocumentError> {
    match name.extension().and_then(|extension| extension.to_str()) {
        Some("json") => json(plain(text)),
        Some("yaml" | "yml") => yaml(plain(text)),
        _ => Err(DocumentError::Extension),
    }
}

/// Reads a file as text. Fails for a file above the size limit.
pub fn text(path: &Path) -> Result<String, DocumentError> {
    let length = std::fs::metadata(path).map_err(DocumentError::Read)?.len();
    if length > MAX_BYTES {
        return Err(DocumentError::TooLarge(length));
    }
    let bytes = std::fs::read(path).map_err(DocumentError::Read)?;
    String::from_utf8(bytes).map_err(|error| DocumentError::Encoding(error.utf8_error().valid_up_to()))
}

/// Reads the given files and the files in the given folders, sorted by name, each file once. In a folder, subfolders,
/// hidden files and files of other kinds are skipped. A file that fails does not stop the others.
pub fn read_paths<T, E: From<DocumentError>>(
    paths: &[PathBuf],
    read: impl Fn(&Path) -> Result<T, E>,
) -> LoadedFiles<T, E> {
    let mut files: Vec<(PathBuf, Option<DocumentError>)> = Vec::new();
    for path in paths {
        let found = if path.is_dir() { listing(path) } else { Ok(vec![path.clone()]) };
        match found {
            Ok(found) => files.extend(found.into_iter().map(|file| (file, None))),
            Err(error) => files.push((path.clone(), Some(DocumentError::Read(error)))),
        }
    }
    let mut seen = BTreeSet::new();
    files.retain(|(path, _)| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    let read = |(path, error): (PathBuf, Option<DocumentError>)| {
        let result = error.map_or_else(|| read(&path), |error| Err(error.into()));
        (path, result)
    };
    files.into_iter().map(read).collect()
}

/// Replaces files that have the same id by errors, because the intended one is unknown. `refuse` makes the error from
/// the id and the path of another file with this id.
pub(crate) fn without_duplicates<T, E>(
    mut loaded: LoadedFiles<T, E>,
    id: impl Fn(&T) -> &str,
    refuse: impl Fn(String, PathBuf) -> E,
) -> LoadedFiles<T, E> {
    let mut files: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, (_, read)) in loaded.iter().enumerate() {
        if let Ok(read) = read {
            files.entry(id(read).to_owned()).or_default().push(at);
        }
    }
    for (id, same) in files.into_iter().filter(|(_, same)| same.len() > 1) {
        let paths: Vec<PathBuf> = same.iter().map(|at| loaded[*at].0.clone()).collect();
        for (nth, at) in same.into_iter().enumerate() {
            let other = paths[usize::from(nth == 0)].clone();
            loaded[at].1 = Err(refuse(id.clone(), other));
        }
    }
    loaded
}

fn listing(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        if is_document(&file) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// True for a file that is read as part of a folder.
pub(crate) fn is_document(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|e| EXTENSIONS.contains(&e)) && !name.starts_with('.') && !name.ends_with(".schema.json")
}

/// The type of a value, in the terms of these files.
pub(crate) fn yaml_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

fn yaml(text: &str) -> Result<Value, DocumentError> {
    read(text).map_err(|error| syntax(&error, text))
}

fn read(text: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
}

fn syntax(error: &serde_saphyr::Error, text: &str) -> DocumentError {
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error {
        return located(error, format!("the key `{key}` appears twice; remove one"));
    }
    if let Some((line, column)) = wrong_colon(error, text) {
        let problem = "the colon `：` is a full-width character; write `:` and a space behind the key".to_owned();
        return DocumentError::Syntax { line, column, problem };
    }
    let problem = error.to_string();
    let problem = problem.trim().split(" at line ").next().unwrap_or_default();
    let hint = match problem {
        _ if problem.contains("mapping values are not allowed") => "; put a text that contains `: ` between quotes",
        _ if problem.contains("tab") => "; indent with spaces",
        _ => "",
    };
    located(error, format!("{problem}{hint}"))
}

fn located(error: &serde_saphyr::Error, problem: String) -> DocumentError {
    let at = error.location();
    DocumentError::Syntax { line: at.map_or(0, |at| at.line()), column: at.map_or(0, |at| at.column()), problem }
}

/// The line and column of a full-width colon that causes the error: if `: ` replaces it, the text has no error, or
/// only a later one. Such a line in a block of text is innocent.
fn wrong_colon(error: &serde_saphyr::Error, text: &str) -> Option<(u64, u64)> {
    let place = |error: &serde_saphyr::Error| error.location().map_or((0, 0), |at| (at.line(), at.column()));
    let reported = place(error);
    let mut before = 0;
    let mut colons = Vec::new();
    for (line, number) in text.split_inclusive('\n').zip(1_u64..) {
        // The reader notices such a line only at the next one.
        if reported.0 != 0 && number > reported.0 {
            break;
        }
        if let Some(at) = full_width_colon(line) {
            colons.push((number, line[..at].chars().count() as u64 + 1, before + at));
        }
        before += line.len();
    }
    let causes = |at: usize| {
        let mended = [&text[..at], ": ", &text[at + '：'.len_utf8()..]].concat();
        read(&mended).err().is_none_or(|later| place(&later) > reported)
    };
    let (line, column, _) = colons.into_iter().rev().take(MAX_COLONS).find(|(_, _, at)| causes(*at))?;
    Some((line, column))
}

/// Where a line has a full-width colon behind its key, as Chinese input methods write it. In bytes.
fn full_width_colon(line: &str) -> Option<usize> {
    let key = line.trim_start_matches([' ', '-']);
    let at = key.find('：')?;
    let is_key = !key[..at].is_empty() && key[..at].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_key.then(|| line.len() - key.len() + at)
}

fn json(text: &str) -> Result<Value, DocumentError> {
    let value = serde_json::from_str(text).map_err(|error| DocumentError::Syntax {
        line: error.line() as u64,
        column: error.column() as u64,
        problem: error.to_string(),
    })?;
    // The JSON reader keeps the last of two equal keys without an error. JSON is YAML, and the YAML reader reports
    // them.
    match yaml(text) {
        Err(error @ DocumentError::Syntax { .. }) if error.to_string().contains("appears twice") => Err(error),
        _ => Ok(value),
    }
}
