//! Reading the settings: defaults, `turnwheel.toml`, environment, flags; and refusing what cannot work.

use super::{Provider, Settings};
use figment::providers::{Env, Serialized};
use figment::value::{Dict, Map as FigmentMap, Value};
use figment::{Figment, Metadata, Profile, Provider as Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "turnwheel.toml";
/// Variables of ours that are no settings.
const NOT_SETTINGS: [&str; 4] = ["config", "log", "test_nats", "test_mongodb"];

/// Why there are no settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The named file is not there.
    #[error("the settings file `{0}` cannot be read: {1}")]
    File(PathBuf, String),
    /// A setting is unknown or wrong.
    #[error("{0}")]
    Invalid(String),
}

/// Where settings come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// Flags, as dotted keys.
    pub flags: Vec<(String, String)>,
    /// The environment.
    pub env: BTreeMap<String, String>,
}

impl Sources {
    /// The process's environment.
    #[allow(clippy::disallowed_methods)] // The one place that reads the environment.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        let env = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { file, flags, env: env.collect() }
    }
}

/// Settings, and where each comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// By dotted key; what is not here is a default.
    pub origins: BTreeMap<String, String>,
}

impl Loaded {
    /// True when somebody chose the backend, by name or by a server's address.
    pub fn backend_is_explicit(&self) -> bool {
        ["backend", "nats.url", "mongodb.uri"].iter().any(|key| self.origins.contains_key(*key))
    }
}

/// One layer of settings, already nested.
struct Layer {
    name: String,
    values: Dict,
}

impl Source for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> figment::error::Result<FigmentMap<Profile, Dict>> {
        Ok(FigmentMap::from([(Profile::Default, self.values.clone())]))
    }
}

impl Settings {
    /// Reads and checks the settings.
    pub fn load(sources: &Sources) -> Result<Loaded, SettingsError> {
        let mut layers = Vec::new();
        layers.extend(file_layer(sources)?);
        layers.extend(env_layers(&sources.env));
        layers.extend(sources.flags.iter().map(|(key, text)| layer(format!("flag --set {key}"), key, text)));
        let mut origins = BTreeMap::new();
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        for layer in layers {
            for key in keys(&layer.values, "") {
                origins.insert(key, layer.name.clone());
            }
            figment = figment.merge(layer);
        }
        let settings: Self = figment.extract().map_err(|errors| SettingsError::Invalid(describe(errors)))?;
        let problems = settings.problems(&sources.env);
        if problems.is_empty() { Ok(Loaded { settings, origins }) } else { Err(SettingsError::Invalid(problems.join("\n"))) }
    }

    /// Everything that cannot work.
    fn problems(&self, env: &BTreeMap<String, String>) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |good: bool, problem: String| {
            if !good {
                problems.push(problem);
            }
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let namespace = &self.namespace;
        check(
            !namespace.is_empty() && namespace.chars().all(legal),
            format!("namespace: `{namespace}` must be letters, digits, `_` and `-`"),
        );
        check(self.worker.concurrency >= 1, "worker.concurrency: must be at least 1".into());
        check(self.worker.max_attempts >= 1, "worker.max_attempts: must be at least 1".into());
        check(self.lane.max_depth >= 1, "lane.max_depth: must be at least 1".into());
        check(self.worker.ack_wait.0.as_millis() >= 100, "worker.ack_wait: must be at least `100ms`".into());
        check(
            self.gateway.listen.ip().is_loopback() || !self.gateway.tokens.is_empty(),
            format!(
                "gateway.tokens: none is set, so gateway.listen = {} would be open to everybody; set tokens, or listen on 127.0.0.1",
                self.gateway.listen
            ),
        );
        for (name, model) in self.models.iter().filter(|(_, model)| model.provider == Provider::Openai) {
            check(
                model.base_url.starts_with("http://") || model.base_url.starts_with("https://"),
                format!("models.{name}.base_url: found `{}`; give the server's address, such as `https://api.example.com/v1`", model.base_url),
            );
            check(!model.model.is_empty(), format!("models.{name}.model: missing; give the model's name at its server"));
            if let Some(variable) = &model.api_key_env {
                check(
                    env.get(variable).is_some_and(|value| !value.is_empty()),
                    format!("models.{name}.api_key_env: the environment has no variable `{variable}`; set it to the key"),
                );
            }
        }
        problems
    }
}

fn file_layer(sources: &Sources) -> Result<Option<Layer>, SettingsError> {
    let named = sources.file.clone().or_else(|| sources.env.get("TURNWHEEL_CONFIG").map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(_) if named.is_none() => return Ok(None),
        Err(error) => return Err(SettingsError::File(path, error.to_string())),
    };
    let values: figment::error::Result<Dict> = figment::providers::Format::from_str(&text)
        .map_err(|error| figment::Error::from(format!("{error}")));
    let mut values = parse_toml(&text).or(values).map_err(|problem| {
        SettingsError::Invalid(format!("{}: {}", path.display(), problem))
    })?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        for key in ["data_dir", "agents_dir", "workflows_dir", "prompts_dir"] {
            relative_to(folder, values.get_mut(key));
        }
        if let Some(Value::Dict(_, nats)) = values.get_mut("nats") {
            relative_to(folder, nats.get_mut("creds"));
        }
    }
    Ok(Some(Layer { name: path.display().to_string(), values }))
}

fn relative_to(folder: &Path, value: Option<&mut Value>) {
    if let Some(Value::String(_, path)) = value {
        *path = folder.join(&path).display().to_string();
    }
}

fn env_layers(env: &BTreeMap<String, String>) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (name, key) in [("NATS_URL", "nats.url"), ("MONGODB_URI", "mongodb.uri")] {
        if let Some(text) = env.get(name).filter(|text| !text.is_empty()) {
            layers.push(layer(format!("environment {name}"), key, text));
        }
    }
    for (name, text) in env {
        let Some(key) = name.strip_prefix("TURNWHEEL_") else { continue };
        let key = key.to_lowercase().replace("__", ".");
        if !NOT_SETTINGS.contains(&key.as_str()) {
            layers.push(layer(format!("environment {name}"), &key, text));
        }
    }
    layers
}
