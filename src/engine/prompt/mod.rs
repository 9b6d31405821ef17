//! Prompts: files in `prompts/`, compiled in; a file of the same name in `prompts_dir` replaces one, without a restart.
//!
//! They are rendered with minijinja in one pass: `{{ name }}` inserts a value, and what is inserted is never interpreted.
//! Every insertion is escaped: `</` becomes `<\/`, so that no value can close a tag of the prompt. In JSON `\/` is just
//! another way to write `/`, so inserted JSON keeps its meaning, and models read both alike. Control tokens of chat templates
//! (`<|im_end|>`, `[INST]`) are broken up by a blank.

pub mod control_tokens;

use crate::prompt::control_tokens::defused;
use include_dir::{Dir, include_dir};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Object, Serde, Value};
use minijinja::{Environment, Error, UndefinedBehavior};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use thiserror::Error as ThisError;
use tracing::{error, info, warn};

static COMPILED_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../prompts");

/// Why there is no prompt.
#[derive(Debug, ThisError)]
pub enum PromptError {
    /// No such file.
    #[error("there is no prompt `{name}`; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A file that cannot be rendered, or read.
    #[error("{file}:{line}: {problem}")]
    Broken {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

type Stamp = (SystemTime, u64);

/// A file of `prompts_dir` as last read; `None` when it was broken.
struct Replacement {
    stamp: Stamp,
    environment: Option<Arc<Environment<'static>>>,
}

/// A text that goes into several prompts, and is not copied for each.
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
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str().unwrap_or_default()
    }
}

/// What a prompt is filled with, by name. Each is looked up where the prompt has it, which needs no map of them.
#[derive(Debug, Default)]
pub struct Variables(Vec<(&'static str, Value)>);

impl Variables {
    /// One more.
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

/// All prompts.
pub struct Prompts {
    compiled_in: Environment<'static>,
    directory: Option<PathBuf>,
    replacements: RwLock<HashMap<String, Replacement>>,
}

impl Prompts {
    /// The prompts that are compiled in, replaced by the files in `directory`.
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

    /// Renders a prompt. A replacement that is broken is logged with file and line, and the compiled-in one is used.
    pub fn render(&self, name: &str, context: &impl Serialize) -> Result<String, PromptError> {
        self.rendered(name, &Value::from(Serde(context)))
    }

    /// Like [`Prompts::render`].
    pub fn fill(&self, name: &str, variables: Variables) -> Result<String, PromptError> {
        self.rendered(name, &Value::from_object(variables))
    }

    fn rendered(&self, name: &str, context: &Value) -> Result<String, PromptError> {
        let template = self.compiled_in.get_template(name).map_err(|_| self.unknown(name))?;
        if let Some(environment) = self.replacement(name) {
            match environment.get_template(name).and_then(|template| template.render(context)) {
                Ok(text) => return Ok(text),
                Err(problem) => warn!("the compiled-in prompt is used: {}", broken(self.file(name), &problem)),
            }
        }
        template.render(context).map_err(|problem| broken(format!("prompts/{name}.md"), &problem))
    }

    /// Every file in the directory that cannot be used, for `turnwheel doctor`.
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

    /// The replacement of a prompt, read again only when its file has changed.
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
                    info!(prompt = name, file = self.file(name), "a prompt is replaced");
                }
                Some(Arc::new(environment))
            }
            Err(problem) => {
                warn!("the compiled-in prompt is used: {problem}");
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

    /// Reads a replacement; `None` when there is no such file.
    fn load(&self, name: &str) -> Option<Result<Environment<'static>, PromptError>> {
        self.stamp(name)?;
        let file = self.file(name);
        let source = match std::fs::read_to_string(&file) {
            Ok(source) => source,
            Err(problem) => return Some(Err(PromptError::Broken { file, line: 1, problem: problem.to_string() })),
        };
        let mut environment = environment();
        Some(match environment.add_template_owned(name.to_owned(), source) {
            Ok(()) => Ok(environment),
            Err(problem) => Err(broken(file, &problem)),
        })
    }
}

fn source(environment: &Environment<'_>, name: &str) -> Option<String> {
    environment.get_template(name).ok().map(|template| template.source().to_owned())
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // A misspelt placeholder is an error; asking whether something is there is not.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    // A line that holds only a block tag leaves no empty line behind. Nothing but the whitespace differs from the default
    // syntax, so the builder has nothing to object to.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_formatter(|out, _, value| {
        let text = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
        out.write_str(&escaped(&text)).map_err(Error::from)
    });
    environment
}

fn broken(file: String, problem: &Error) -> PromptError {
    let detail = problem.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    PromptError::Broken { file, line: problem.line().unwrap_or(1), problem: format!("{}{detail}", problem.kind()) }
}

/// A value as it is inserted: no closing tag, and no control token of a chat template. Every `/` that would make a closing
/// tag, also where blanks stand between it and its `<`, gets a backslash.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let text = defused(text);
    // A prompt holds whole conversations.
    if memchr::memchr(b'<', text.as_bytes()).is_none() {
        return text;
    }
    let mut safe = String::with_capacity(text.len());
    let mut opened = false;
    for c in text.chars() {
        if c == '/' && opened {
            safe.push('\\');
        }
        opened = c == '<' || opened && c.is_whitespace();
        safe.push(c);
    }
    Cow::Owned(safe)
}

/// True for a text with Chinese characters, whose writer is answered in Chinese by the engine's own sentences.
pub fn is_chinese(text: &str) -> bool {
    text.chars().any(|c| matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}'))
}

#[cfg(test)]
mod tests;
