//! Loads [`Settings`] from its layers: defaults, file, `NATS_URL` and `MONGODB_URI`, `TURNWHEEL_…`, flags. All problems
//! are reported together, each with its key, its origin, the value found and the values allowed.

use super::schema;
use super::{Environment, Settings, check};
use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value as Raw};
use figment::{Figment, Metadata, Profile, Provider};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// The settings file in the working directory, read unless another file is named.
pub(crate) const DEFAULT_FILE: &str = "turnwheel.toml";

/// Variables with the prefix `TURNWHEEL_` that are not settings: the file's name, and variables of the command line.
pub(crate) const NOT_SETTINGS: &[&str] = &["BIN", "CONFIG", "LOG", "URL", "TOKEN"];

const PREFIX: &str = "TURNWHEEL_";

/// The sources of settings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file named by `--config`.
    pub file: Option<PathBuf>,
    /// Flags as dotted key and value. The last one with the same key wins.
    pub overrides: Vec<(String, String)>,
    /// The environment variables.
    pub env: Environment,
    /// The folder that is searched for `turnwheel.toml`; empty for the working directory.
    pub directory: PathBuf,
    /// True for a command that neither serves nor calls models. Missing keys and tokens are then no problem.
    pub client_only: bool,
}

impl Sources {
    /// The sources of this process.
    pub fn from_process(file: Option<PathBuf>, overrides: Vec<(String, String)>) -> Self {
        Self { file, overrides, env: Environment::from_process(), ..Self::default() }
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default value.
    Default,
    /// This settings file.
    File(PathBuf),
    /// This environment variable.
    Env(String),
    /// A command-line flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// A problem with one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The dotted name.
    pub key: String,
    /// Where the value came from.
    pub origin: Option<Origin>,
    /// The value or problem that was found.
    pub found: String,
    /// The allowed values, or the action to take.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.key)?;
        if let Some(origin) = &self.origin {
            write!(f, " ({origin})")?;
        }
        write!(f, ": {}; {}", self.found, self.remedy)
    }
}

/// Why the settings could not be loaded.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A named file could not be read.
    #[error("cannot read the settings file `{}` (from {named_by}): {source}; correct the path", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// Where the file is named: `--config`, `TURNWHEEL_CONFIG` or the working directory.
        named_by: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is not valid TOML.
    #[error("the settings file `{}` is not TOML: {problem}", path.display())]
    Syntax {
        /// The path of the file.
        path: PathBuf,
        /// The line and the syntax error.
        problem: String,
    },
    /// Some values are invalid or contradict each other.
    #[error("the settings cannot be used:{}", .0.iter().map(|problem| format!("\n  - {problem}")).collect::<String>())]
    Invalid(Vec<Problem>),
}

/// Loaded settings and their origins.
#[derive(Clone, Debug)]
pub struct LoadedSettings {
    /// The settings.
    pub settings: Settings,
    /// Where each dotted key came from. Every key of the settings has an entry.
    pub origins: BTreeMap<String, Origin>,
    /// The file that was read; `None` if there is no file.
    pub file: Option<PathBuf>,
    /// The environment that was read.
    pub env: Environment,
}

impl LoadedSettings {
    /// True if a file, a variable or a flag set the backend or the address of one of its servers.
    pub fn backend_is_explicit(&self) -> bool {
        ["backend", "nats.url", "mongodb.uri"]
            .iter()
            .any(|key| self.origins.get(*key).is_some_and(|origin| *origin != Origin::Default))
    }
}

impl Settings {
    /// Loads the settings from all sources. The error lists every problem.
    pub fn load(sources: &Sources) -> Result<LoadedSettings, SettingsError> {
        let file = read_file(sources)?;
        let mut layers = Vec::new();
        if let Some((path, dict)) = &file {
            layers.push(Layer { origin: Origin::File(path.clone()), data: dict.clone() });
        }
        layers.extend(env_layers(&sources.env, file.as_ref().map(|(_, dict)| dict)));
        for (key, value) in &sources.overrides {
            layers.push(Layer { origin: Origin::Flag, data: nested(&split(key), value) });
        }
        let mut reading = SettingsReader::from_layers(layers);
        let settings = reading.settings();
        let known: BTreeSet<String> = reading.problems.iter().map(|problem| problem.key.clone()).collect();
        let found = check::check(&settings, &reading.origins, &sources.env, sources.client_only);
        // An unreadable value has been replaced by its default. Problems of the default would mislead.
        reading.problems.extend(found.into_iter().filter(|problem| !known.contains(&problem.key)));
        if !reading.problems.is_empty() {
            return Err(SettingsError::Invalid(reading.problems));
        }
        let file = file.map(|(path, _)| path);
        Ok(LoadedSettings { settings, origins: reading.origins, file, env: sources.env.clone() })
    }
}

/// Path and content of the settings file; `None` if no file is named and `turnwheel.toml` does not exist.
fn read_file(sources: &Sources) -> Result<Option<(PathBuf, Dict)>, SettingsError> {
    let by_flag = sources.file.clone().map(|path| (path, "--config"));
    let by_env = || sources.env.get("TURNWHEEL_CONFIG").map(|path| (PathBuf::from(path), "TURNWHEEL_CONFIG"));
    let named = by_flag.or_else(by_env);
    let (path, named_by) = match &named {
        Some((path, by)) => (sources.directory.join(path), *by),
        None => (sources.directory.join(DEFAULT_FILE), "the working directory"),
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(SettingsError::Read { path, named_by, source }),
    };
    let text = text.trim_start_matches('\u{feff}');
    match Toml::from_str::<Dict>(text) {
        Ok(dict) => Ok(Some((path, dict))),
        // The error's own text quotes the line, which may contain a password.
        Err(error) => {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            Err(SettingsError::Syntax { path, problem: format!("line {line}: {}", error.message()) })
        }
    }
}

/// One source for figment, which merges the sources and remembers the source of each value.
struct Layer {
    origin: Origin,
    data: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.data.clone())]))
    }
}

/// The layers of the environment: NATS_URL and MONGODB_URI first, then `TURNWHEEL_…`, which override them.
fn env_layers(env: &Environment, file: Option<&Dict>) -> Vec<Layer> {
    let layer = |name: &str, path: &[String], value: &str| Layer {
        origin: Origin::Env(name.to_owned()),
        data: nested(path, value),
    };
    let mut layers = Vec::new();
    for (name, key) in [("NATS_URL", "nats.url"), ("MONGODB_URI", "mongodb.uri")] {
        if let Some(value) = env.get(name) {
            layers.push(layer(name, &split(key), value));
        }
    }
    for (name, value) in env.iter() {
        if let Some(rest) = name.strip_prefix(PREFIX).filter(|rest| is_setting(rest)) {
            let mut path: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
            known_name(&mut path, file);
            layers.push(layer(name, &path, value));
        }
    }
    layers
}

/// True for a variable that is a setting. Kubernetes adds variables for every service of the namespace
/// (`TURNWHEEL_PORT`, `TURNWHEEL_GATEWAY_SERVICE_HOST`…). They are not settings, and neither are the command line's
/// own.
fn is_setting(rest: &str) -> bool {
    let ours = NOT_SETTINGS.contains(&rest) || rest.starts_with("LOG_") || rest.starts_with("TEST_");
    let service = !rest.contains("__")
        && (rest.ends_with("SERVICE_HOST")
            || rest.contains("SERVICE_PORT")
            || rest == "PORT"
            || rest.ends_with("_PORT")
            || rest.contains("PORT_"));
    !ours && !service
}

/// Restores the name of a model or connector, which a variable cannot contain as it is: `MODELS__GPT_4_1__…` means the
/// file's `[models."GPT-4.1"]`.
fn known_name(path: &mut [String], file: Option<&Dict>) {
    let [table, name, ..] = path else { return };
    let is_named = schema::NAMED.iter().any(|(named, ..)| table == named);
    let Some(entries) = file.and_then(|file| file.get(table)).and_then(Raw::as_dict).filter(|_| is_named) else {
        return;
    };
    if let Some(known) = entries.keys().find(|known| known.to_lowercase().replace(['-', '.'], "_") == *name) {
        *name = known.clone();
    }
}

/// Splits a dotted key. A model's name may contain dots.
fn split(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('.').collect();
    match parts.as_slice() {
        ["models", name @ .., "extra", field] if !name.is_empty() => {
            vec!["models".into(), name.join("."), "extra".into(), (*field).into()]
        }
        ["models", name @ .., field] if name.len() > 1 => vec!["models".into(), name.join("."), (*field).into()],
        parts => parts.iter().map(|part| (*part).to_owned()).collect(),
    }
}

fn nested(path: &[String], value: &str) -> Dict {
    let Some((first, rest)) = path.split_first() else { return Dict::new() };
    let inner = if rest.is_empty() { Raw::from(value) } else { Raw::from(nested(rest, value)) };
    Dict::from([(first.clone(), inner)])
}

/// The merged layers while they are converted to settings.
struct SettingsReader {
    merged: Figment,
    by_name: BTreeMap<String, Origin>,
    values: Value,
    origins: BTreeMap<String, Origin>,
    problems: Vec<Problem>,
}

impl SettingsReader {
    fn from_layers(layers: Vec<Layer>) -> Self {
        let mut by_name = BTreeMap::new();
        let mut merged = Figment::new();
        for layer in layers {
            by_name.insert(layer.origin.to_string(), layer.origin.clone());
            merged = merged.merge(layer);
        }
        let values = serde_json::to_value(Settings::default()).unwrap_or_default();
        Self { merged, by_name, values, origins: BTreeMap::new(), problems: Vec::new() }
    }

    /// Converts the values. An invalid value adds a problem and keeps its default.
    fn settings(&mut self) -> Settings {
        let merged = self.merged.data().ok().and_then(|mut data| data.remove(&Profile::Default)).unwrap_or_default();
        self.walk(&merged, &mut Vec::new());
        self.needed(&merged);
        let settings = serde_path_to_error::deserialize(&self.values).unwrap_or_else(|error| {
            let (key, found) = (error.path().to_string(), error.inner().to_string());
            self.problems.push(Problem { key, origin: None, found, remedy: "correct it".into() });
            Settings::default()
        });
        for key in schema::KEYS {
            let Some((table, field)) = key.of_name() else {
                self.note_default(key.path.to_owned());
                continue;
            };
            let names: Vec<_> =
                self.values[table].as_object().into_iter().flat_map(|table| table.keys().cloned()).collect();
            names.into_iter().for_each(|name| self.note_default(format!("{table}.{name}.{field}")));
        }
        settings
    }

    fn note_default(&mut self, key: String) {
        self.origins.entry(key).or_insert(Origin::Default);
    }

    fn walk(&mut self, dict: &Dict, path: &mut Vec<String>) {
        for (name, raw) in dict {
            path.push(name.clone());
            match (schema::find(path), raw) {
                (Some(key), raw) => self.leaf(key, path, raw),
                (None, Raw::Dict(_, inner)) if !schema::below(path).is_empty() => self.walk(inner, path),
                (None, raw) => self.unknown(path, raw),
            }
            path.pop();
        }
    }

    fn origin(&self, raw: &Raw) -> Option<Origin> {
        // A table into which several sources wrote has no source of its own. The source of its first value stands in.
        let tag = match raw {
            Raw::Dict(_, inner) => return inner.values().find_map(|value| self.origin(value)),
            Raw::Array(_, items) if items.iter().any(|item| item.as_dict().is_some()) => {
                return items.iter().find_map(|item| self.origin(item));
            }
            other => other.tag(),
        };
        self.merged.get_metadata(tag).and_then(|metadata| self.by_name.get(metadata.name.as_ref())).cloned()
    }

    fn leaf(&mut self, key: &schema::Key, path: &[String], raw: &Raw) {
        let origin = self.origin(raw);
        let is_plain = |raw: &Raw| matches!(self.origin(raw), Some(Origin::Env(_) | Origin::Flag));
        let dotted = path.join(".");
        let Some(mut value) = key.kind.read(raw, &is_plain) else {
            let found =
                if key.secret { "found a value of another type".into() } else { format!("found {}", brief(raw)) };
            let remedy = format!("allowed is {}", key.kind.allowed());
            self.problems.push(Problem { key: dotted, origin, found, remedy });
            return;
        };
        if let Some(Origin::File(file)) = &origin {
            value = key.kind.beside(file, value);
        }
        put(&mut self.values, path, value);
        self.origins.insert(dotted, origin.unwrap_or(Origin::Default));
    }

    fn unknown(&mut self, path: &[String], raw: &Raw) {
        let origin = self.origin(raw);
        let names = schema::below(path);
        let (found, remedy) = if !names.is_empty() {
            // A text instead of a table may be a secret.
            let found = if raw.as_str().is_some() { "found a text".into() } else { format!("found {}", brief(raw)) };
            (found, format!("it is a table of {}", names.join(", ")))
        } else {
            let from_env = matches!(origin, Some(Origin::Env(_)));
            let spelled = |key: String| {
                if from_env { format!("{PREFIX}{}", key.to_uppercase().replace('.', "__")) } else { key }
            };
            let remedy = match schema::suggestion(path).map(spelled) {
                Some(key) => format!("did you mean `{key}`?"),
                None => match schema::below(&path[..path.len().saturating_sub(1)]) {
                    siblings if siblings.is_empty() => "remove it".to_owned(),
                    siblings => format!("known here are {}", siblings.join(", ")),
                },
            };
            ("there is no such setting".to_owned(), remedy)
        };
        self.problems.push(Problem { key: path.join("."), origin, found, remedy });
    }

    /// Adds a problem for each model without a provider and each connector without a kind.
    fn needed(&mut self, merged: &Dict) {
        for (table, field, remedy, stand_in) in schema::NAMED {
            for (name, entry) in merged.get(table).and_then(Raw::as_dict).into_iter().flatten() {
                let Some(fields) = entry.as_dict() else { continue };
                if !fields.contains_key(field) {
                    let (key, origin) = (format!("{table}.{name}.{field}"), self.origin(entry));
                    self.problems.push(Problem { key, origin, found: "is missing".into(), remedy: remedy.into() });
                }
                if self.values.pointer(&format!("/{table}/{}/{field}", pointer(name))).is_none() {
                    put(&mut self.values, &[table.into(), name.clone(), field.into()], stand_in.into());
                }
            }
        }
    }
}

fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn put(target: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    if let Some(fields) = target.as_object_mut() {
        match rest {
            [] => drop(fields.insert(first.clone(), value)),
            rest => put(fields.entry(first.clone()).or_insert(Value::Null), rest, value),
        }
    }
}

/// Describes a value in a few words.
fn brief(raw: &Raw) -> String {
    match raw {
        Raw::String(_, text) => format!("`{}`", text.chars().take(80).collect::<String>()),
        Raw::Dict(..) => "a table".into(),
        Raw::Array(..) => "a list".into(),
        Raw::Char(_, char) => format!("`{char}`"),
        Raw::Bool(_, bool) => format!("`{bool}`"),
        Raw::Num(..) => serde_json::to_string(raw).map_or_else(|_| "a number".into(), |text| format!("`{text}`")),
        Raw::Empty(..) => "nothing".into(),
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
