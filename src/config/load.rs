//! Reading the settings: defaults, `turnwheel.toml`, environment, flags; and refusing what cannot work.

use super::{Provider, Settings};
use figment::providers::{Format, Serialized, Toml};
use figment::util::nest;
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
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
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
        if problems.is_empty() {
            Ok(Loaded { settings, origins })
        } else {
            Err(SettingsError::Invalid(problems.join("\n")))
        }
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
                format!(
                    "models.{name}.base_url: found `{}`; give the server's address, such as `https://api.example.com/v1`",
                    model.base_url
                ),
            );
            check(
                !model.model.is_empty(),
                format!("models.{name}.model: missing; give the model's name at its server"),
            );
            if let Some(variable) = &model.api_key_env {
                check(
                    env.get(variable).is_some_and(|value| !value.is_empty()),
                    format!(
                        "models.{name}.api_key_env: the environment has no variable `{variable}`; set it to the key"
                    ),
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
    let mut values: Dict =
        Toml::from_str(&text).map_err(|problem| SettingsError::Invalid(format!("{}: {problem}", path.display())))?;
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

/// One value under a dotted key. Lists may be written `["a","b"]` or `a,b`; numbers and booleans as such.
fn layer(name: String, key: &str, text: &str) -> Layer {
    let value = if LISTS.contains(&key) && !text.trim_start().starts_with('[') {
        Value::from(text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect::<Vec<_>>())
    } else if TEXTS.iter().any(|text| key == *text || key.ends_with(text)) {
        Value::from(text)
    } else {
        // Parsing a text as a value never fails: what is nothing else is a string.
        text.parse().unwrap_or_else(|_| Value::from(text))
    };
    let values = match nest(key, value) {
        Value::Dict(_, values) => values,
        _ => Dict::new(),
    };
    Layer { name, values }
}

/// Settings that are lists.
const LISTS: [&str; 3] = ["gateway.tokens", "secrets.allow", "http.allow_private"];
/// Settings that stay texts even when they look like numbers.
const TEXTS: [&str; 6] = ["namespace", "mongodb.database", "nats.url", "mongodb.uri", ".model", "_dir"];

/// The dotted keys of all leaves.
fn keys(values: &Dict, prefix: &str) -> Vec<String> {
    let of = |(key, value): (&String, &Value)| {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Dict(_, inner) => keys(inner, &key),
            _ => vec![key],
        }
    };
    values.iter().flat_map(of).collect()
}

/// All errors, each with key, source, what was found and what is allowed.
fn describe(errors: figment::Error) -> String {
    let one = |error: figment::Error| {
        let key = error.path.join(".");
        let source = error.metadata.as_ref().map(|metadata| format!(" (from {})", metadata.name)).unwrap_or_default();
        match error.kind {
            figment::error::Kind::UnknownField(field, known) => {
                let key = if key.is_empty() || key.ends_with(&field) {
                    if key.is_empty() { field.clone() } else { key }
                } else {
                    format!("{key}.{field}")
                };
                let hint = closest(&field, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                format!("{key}: there is no such setting{source}{hint} Known here: {}", known.join(", "))
            }
            kind => format!("{key}: {kind}{source}"),
        }
    };
    errors.into_iter().map(one).collect::<Vec<_>>().join("\n")
}

/// The known name nearest to `name`, if one is near.
pub(crate) fn closest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = known.iter().map(|known| (distance(name, known), *known)).min()?;
    (near.0 <= name.chars().count().max(3) / 3 + 1).then_some(near.1)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turnwheel.toml");
        std::fs::write(&path, file).unwrap();
        let pairs =
            |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
        let sources = Sources { file: Some(path), flags: pairs(flags), env: pairs(env).into_iter().collect() };
        Settings::load(&sources).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_win_over_environment_over_file_and_origins_say_so() {
        let env = [
            ("NATS_URL", "nats://n:1"),
            ("TURNWHEEL_WORKER__CONCURRENCY", "8"),
            ("TURNWHEEL_LANE__MAX_DEPTH", "5"),
            ("TURNWHEEL_GATEWAY__TOKENS", "a,b"),
            ("TURNWHEEL_LOG", "debug"),
            ("TURNWHEEL_CONFIG", "x"),
        ];
        let file = "[worker]\nconcurrency = 4\nack_wait = \"10s\"\n[models.default]\nprovider = \"offline\"\n";
        let loaded = load(file, &env, &[("worker.concurrency", "16")]).unwrap();
        let settings = &loaded.settings;
        assert_eq!(settings.worker.concurrency, 16);
        assert_eq!(settings.worker.ack_wait.0.as_secs(), 10);
        assert_eq!(settings.lane.max_depth, 5);
        assert_eq!(settings.gateway.tokens, ["a", "b"]);
        assert_eq!(settings.nats.url, "nats://n:1");
        assert!(loaded.backend_is_explicit());
        assert_eq!(loaded.origins["worker.concurrency"], "flag --set worker.concurrency");
        assert_eq!(loaded.origins["lane.max_depth"], "environment TURNWHEEL_LANE__MAX_DEPTH");
        assert!(loaded.origins["worker.ack_wait"].ends_with("turnwheel.toml"));
        assert!(!loaded.origins.contains_key("namespace"));
    }

    #[test]
    fn relative_paths_in_the_file_are_relative_to_it() {
        let loaded = load("data_dir = \"d\"", &[], &[]).unwrap();
        assert!(loaded.settings.data_dir.is_absolute() && loaded.settings.data_dir.ends_with("d"));
        assert_eq!(loaded.settings.agents_dir, PathBuf::from("agents"));
    }

    #[test]
    fn errors_name_key_source_and_what_is_allowed() {
        let wrong = |file: &str| load(file, &[], &[]).unwrap_err();
        let unknown = wrong("[worker]\nconcurency = 1");
        assert!(
            unknown.contains("worker.concurency")
                && unknown.contains("`concurrency`")
                && unknown.contains("turnwheel.toml"),
            "{unknown}"
        );
        assert!(wrong("[worker]\nack_wait = \"soon\"").contains("worker.ack_wait"));
        assert!(wrong("backend = \"cloud\"").contains("cluster"));
        assert!(wrong("[gateway]\nlisten = \"0.0.0.0:80\"").contains("gateway.tokens"));
        assert!(wrong("[models.x]\nprovider = \"openai\"").contains("models.x.base_url"));
        assert!(wrong("namespace = \"a.b\"").contains("namespace"));
        assert!(wrong("x = [").contains("turnwheel.toml"));
        let env = load("", &[("TURNWHEEL_WORKER__ACK_WAIT", "1x")], &[]).unwrap_err();
        assert!(env.contains("TURNWHEEL_WORKER__ACK_WAIT"), "{env}");
        assert!(Settings::load(&Sources { file: Some("no/such.toml".into()), ..Sources::default() }).is_err());
    }
}
