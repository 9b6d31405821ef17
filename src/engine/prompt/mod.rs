//! Prompts. The files of `prompts/` are compiled in. A file of the same name in `prompts_dir` replaces one, without a
//! restart.
//!
//! Prompts are rendered with minijinja in one pass: `{{ name }}` inserts a value, and inserted text is never
//! interpreted. Every insertion is escaped: `</` becomes `<\/`, so that no value can close a tag of the prompt. In JSON
//! `\/` is another way to write `/`, so inserted JSON keeps its meaning, and models read both alike. Control tokens of
//! chat templates (`<|im_end|>`, `[INST]`) are broken up by a space.

pub(crate) mod control_tokens;

use crate::prompt::control_tokens::defused;
use base::error::SharedError;
use include_dir::{Dir, include_dir};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Object, ObjectRepr, Serde, Value};
use minijinja::{Environment, Error, UndefinedBehavior};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use thiserror::Error as ThisError;
use tracing::{error, info, warn};

static COMPILED_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../prompts");

/// The reason for which a prompt could not be rendered.
#[derive(Debug, ThisError)]
pub enum PromptError {
    /// No prompt has this name.
    #[error("there is no prompt `{name}`; the prompts are {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A prompt file cannot be read or rendered.
    #[error("{file}:{line}: {source}")]
    Broken {
        /// Path of the file.
        file: String,
        /// Line number, from 1.
        line: usize,
        /// The error in this line.
        source: SharedError,
    },
}

type Stamp = (SystemTime, u64);

/// A file of `prompts_dir` as last read. `environment` is `None` if the file is broken.
struct Replacement {
    stamp: Stamp,
    environment: Option<Arc<Environment<'static>>>,
}

/// A text that is used in several prompts without being copied.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct SharedText(Value);

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Arc::<str>::from(text).into()
    }
}

impl From<Arc<str>> for SharedText {
    fn from(text: Arc<str>) -> Self {
        Self(Value::from(text))
    }
}

impl From<SharedText> for Value {
    fn from(text: SharedText) -> Self {
        text.0
    }
}

impl SharedText {
    /// The text as a string slice.
    pub fn as_str(&self) -> &str {
        self.0.as_str().unwrap_or_default()
    }
}

/// A text that is escaped once and not in every prompt: for the long ones that are compiled in.
#[derive(Debug)]
pub(crate) struct EscapedText(String);

impl EscapedText {
    /// Escapes the text.
    pub(crate) fn value(text: &str) -> Value {
        Value::from_object(Self(escaped(text).into_owned()))
    }
}

impl Object for EscapedText {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The variables of a prompt, by name. A linear search is enough, so this needs no map.
#[derive(Debug, Default)]
pub struct Variables(Vec<(&'static str, Value)>);

impl Variables {
    /// Adds a variable.
    pub fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name, value.into()));
    }
}

impl FromIterator<(&'static str, SharedText)> for Variables {
    fn from_iter<T: IntoIterator<Item = (&'static str, SharedText)>>(texts: T) -> Self {
        Self(texts.into_iter().map(|(name, text)| (name, text.0)).collect())
    }
}

impl Object for Variables {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let key = key.as_str()?;
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    }
}

/// All prompts: those compiled in, and their replacements in `prompts_dir`.
pub struct Prompts {
    compiled_in: Environment<'static>,
    directory: Option<PathBuf>,
    replacements: RwLock<HashMap<String, Replacement>>,
}

impl Prompts {
    /// Loads the compiled-in prompts, which the files in `directory` replace.
    pub fn new(directory: Option<PathBuf>) -> Self {
        let mut compiled_in = environment();
        for file in COMPILED_IN.files() {
            let name = file.path().file_stem().and_then(|name| name.to_str());
            let (Some(name), Some(source)) = (name, file.contents_utf8()) else { continue };
            if let Err(problem) = compiled_in.add_template(name, source) {
                error!(prompt = name, "a compiled-in prompt is broken: {problem}");
            }
        }
        Self { compiled_in, directory, replacements: RwLock::default() }
    }

    /// Renders a prompt. If its replacement is broken, logs file and line and uses the compiled-in prompt.
    pub fn render(&self, name: &str, context: &impl Serialize) -> Result<String, PromptError> {
        self.rendered(name, &Value::from(Serde(context)))
    }

    /// Like [`Prompts::render`], with the variables as a list.
    pub fn fill(&self, name: &str, variables: Variables) -> Result<String, PromptError> {
        self.rendered(name, &Value::from_object(variables))
    }

    fn rendered(&self, name: &str, context: &Value) -> Result<String, PromptError> {
        let template = self.compiled_in.get_template(name).map_err(|_| self.unknown(name))?;
        if let Some(environment) = self.replacement(name) {
            match environment.get_template(name).and_then(|template| template.render(context)) {
                Ok(text) => return Ok(text),
                Err(problem) => warn!(
                    "using the compiled-in prompt because its replacement is broken: {}",
                    broken(self.file(name), problem)
                ),
            }
        }
        template.render(context).map_err(|problem| broken(format!("prompts/{name}.md"), problem))
    }

    /// Returns an error for each file in the directory that cannot be used, for `turnwheel doctor`.
    pub fn check(&self) -> Vec<PromptError> {
        let names = self.compiled_in.templates().map(|(name, _)| name.to_owned());
        names.filter_map(|name| self.load(&name).and_then(Result::err)).collect()
    }

    fn unknown(&self, name: &str) -> PromptError {
        let mut known: Vec<_> = self.compiled_in.templates().map(|(name, _)| format!("`{name}`")).collect();
        known.sort();
        PromptError::Unknown { name: name.to_owned(), known: known.join(", ") }
    }

    fn file(&self, name: &str) -> String {
        self.directory.clone().unwrap_or_default().join(format!("{name}.md")).display().to_string()
    }

    /// The replacement of a prompt. Reads the file only if it has changed.
    fn replacement(&self, name: &str) -> Option<Arc<Environment<'static>>> {
        let stamp = self.stamp(name)?;
        if let Some(read) = self.replacements.read().unwrap_or_else(PoisonError::into_inner).get(name)
            && read.stamp == stamp
        {
            return read.environment.clone();
        }
        let environment = match self.load(name)? {
            Ok(environment) => {
                if source(&environment, name) != source(&self.compiled_in, name) {
                    info!(prompt = name, file = self.file(name), "using the replacement of a prompt");
                }
                Some(Arc::new(environment))
            }
            Err(problem) => {
                warn!("using the compiled-in prompt because its replacement is broken: {problem}");
                None
            }
        };
        let read = Replacement { stamp, environment: environment.clone() };
        self.replacements.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), read);
        environment
    }

    fn stamp(&self, name: &str) -> Option<Stamp> {
        let metadata = std::fs::metadata(self.directory.as_ref()?.join(format!("{name}.md"))).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Reads a replacement; `None` if there is no such file.
    fn load(&self, name: &str) -> Option<Result<Environment<'static>, PromptError>> {
        self.stamp(name)?;
        let file = self.file(name);
        let source = match std::fs::read_to_string(&file) {
            Ok(source) => source,
            Err(error) => return Some(Err(PromptError::Broken { file, line: 1, source: error.into() })),
        };
        let mut environment = environment();
        Some(match environment.add_template_owned(name.to_owned(), source) {
            Ok(()) => Ok(environment),
            Err(problem) => Err(broken(file, problem)),
        })
    }
}

fn source(environment: &Environment<'_>, name: &str) -> Option<String> {
    environment.get_template(name).ok().map(|template| template.source().to_owned())
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // A misspelt placeholder is an error. A test whether a variable exists is not.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    // A line with only a block tag leaves no empty line. Only the whitespace differs from the default syntax, so the
    // builder cannot fail.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_formatter(|out, _, value| {
        if let Some(EscapedText(text)) = value.downcast_object_ref() {
            return out.write_str(text).map_err(Error::from);
        }
        let text = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
        out.write_str(&escaped(&text)).map_err(Error::from)
    });
    environment
}

fn broken(file: String, error: Error) -> PromptError {
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    let line = error.line().unwrap_or(1);
    PromptError::Broken { file, line, source: SharedError::explained(format!("{}{detail}", error.kind()), error) }
}

/// Escapes a value for insertion, so that it contains no closing tag and no control token of a chat template. Adds a
/// backslash before each `/` that follows a `<`, possibly after white space.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let text = defused(text);
    // A prompt contains whole conversations, and a coordinator's has its rules with many a `<`. So the parts
    // between them are copied whole, and a text without a closing tag is not copied at all.
    let slash = |at: usize| {
        let rest = text[at + 1..].trim_start();
        rest.starts_with('/').then(|| text.len() - rest.len())
    };
    let mut slashes = memchr::memchr_iter(b'<', text.as_bytes()).filter_map(slash).peekable();
    if slashes.peek().is_none() {
        drop(slashes);
        return text;
    }
    let (mut safe, mut done) = (String::with_capacity(text.len() + 8), 0);
    for at in slashes {
        safe.push_str(&text[done..at]);
        safe.push('\\');
        done = at;
    }
    safe.push_str(&text[done..]);
    Cow::Owned(safe)
}

/// Whether a text has Chinese characters, so that the engine's own sentences are in Chinese for its author.
pub(crate) fn is_chinese(text: &str) -> bool {
    text.chars().any(|c| matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}'))
}

#[cfg(test)]
mod tests;
