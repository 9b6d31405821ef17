//! Prompts: files in `prompts/`, compiled in; a file of the same name in `prompts_dir` replaces one, without a restart.
//!
//! They are rendered with minijinja in one pass: `{{ name }}` inserts a value, and what is inserted is never interpreted.
//! Every insertion is escaped: `</` becomes `<\/`, so that no value can close a tag of the prompt. In JSON `\/` is just
//! another way to write `/`, so inserted JSON keeps its meaning, and models read both alike.

use crate::session::history::{Entry, Role};
use include_dir::{Dir, include_dir};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, UndefinedBehavior};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use thiserror::Error as ThisError;
use tracing::{error, info, warn};

static COMPILED_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/prompts");

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
        Self(Value::from(Arc::<str>::from(text)))
    }
}

impl SharedText {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str().unwrap_or_default()
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
        let template = self.compiled_in.get_template(name).map_err(|_| self.unknown(name))?;
        let context = Value::from(Serde(context));
        if let Some(environment) = self.replacement(name) {
            match environment.get_template(name).and_then(|template| template.render(&context)) {
                Ok(text) => return Ok(text),
                Err(problem) => warn!("the compiled-in prompt is used: {}", broken(self.file(name), &problem)),
            }
        }
        template.render(&context).map_err(|problem| broken(format!("prompts/{name}.md"), &problem))
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

/// Puts a backslash before every `/` that would make a closing tag, also where blanks stand between it and its `<`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains('<') {
        return Cow::Borrowed(text);
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

/// A conversation as lines for a prompt. Further lines of one entry are indented, so that no text can pose as another
/// speaker's line.
pub fn transcript<'e>(history: impl IntoIterator<Item = &'e Entry>) -> String {
    // What else ends a line to some reader.
    let split = |line: &'e str| line.split(['\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']);
    let mut transcript = String::new();
    for entry in history {
        if !transcript.is_empty() {
            transcript.push('\n');
        }
        transcript.push_str(match entry.role {
            Role::User => "User: ",
            Role::Assistant => "Agent: ",
            Role::Human => "Human agent: ",
        });
        let text = entry.text.trim();
        if is_one_line(text) {
            transcript.push_str(text);
            continue;
        }
        for (number, line) in text.lines().flat_map(split).enumerate() {
            if number > 0 {
                transcript.push_str("\n    ");
            }
            transcript.push_str(line);
        }
    }
    transcript
}

/// True when nothing in a text ends a line: nearly always, and told without decoding it.
fn is_one_line(text: &str) -> bool {
    // Looked at as a whole, which takes a few instructions, in place of byte by byte up to the first that is found.
    let any = |found: fn(u8) -> bool| text.bytes().fold(false, |any, byte| any | found(byte));
    if any(|byte| matches!(byte, b'\n' | b'\r' | 0x0b | 0x0c)) {
        return false;
    }
    // Dashes and quotation marks begin with the same byte as the others.
    !any(|byte| matches!(byte, 0xc2 | 0xe2)) || !["\u{85}", "\u{2028}", "\u{2029}"].iter().any(|end| text.contains(end))
}

/// True for a text with Chinese characters, whose writer is answered in Chinese by the engine's own sentences.
pub fn is_chinese(text: &str) -> bool {
    text.chars().any(|c| matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}'))
}

#[cfg(test)]
#[path = "prompt_tests.rs"]
mod tests;
