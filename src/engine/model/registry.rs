//! The models of this process by name: those of the settings, `offline`, and models added from Rust.

use super::budgeted::{Admission, Budgeted};
use super::chain::Chain;
use super::circuit::{CircuitBreaker, CircuitState};
use super::metered::Metered;
use super::offline::Offline;
use super::openai::OpenAi;
use super::{Model, ModelError};
use base::config::{Provider, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;
use tracing::warn;
use types::model_names::ModelNames;

/// An invalid entry `[models.<name>]` in the settings.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("models.{model}.{setting}: {problem}")]
pub struct ModelSettingsError {
    /// Name of the model in the settings.
    pub model: String,
    /// The invalid setting.
    pub setting: String,
    /// The problem and the remedy.
    pub problem: String,
}

/// A model in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// Name of the model in the settings and in agent files.
    pub name: String,
    /// `openai`, `offline`, or `rust` for a model added from Rust.
    pub provider: String,
    /// Name of the model at its server.
    pub model: String,
    /// State of the circuit in this process; null if this process calls no models, and for a model without a circuit.
    #[serde(default)]
    pub circuit: Option<CircuitState>,
}

impl ModelInfo {
    fn new(name: &str, provider: &str, at_server: &str) -> Self {
        Self { name: name.into(), provider: provider.into(), model: at_server.into(), circuit: None }
    }

    /// Describes a model that was added from Rust.
    pub fn from_rust(name: &str) -> Self {
        Self::new(name, "rust", name)
    }

    /// The models that agents may name. `offline` always exists; it is also `default` if the settings have no
    /// `default`.
    pub fn from_settings(settings: &Settings) -> Vec<Self> {
        let offline = |name: &str| Self::new(name, "offline", "offline");
        let mut models: Vec<Self> = settings
            .models
            .iter()
            .map(|(name, model)| match model.provider {
                Provider::Offline => offline(name),
                Provider::Openai => Self::new(name, "openai", &model.model),
            })
            .collect();
        for name in ["default", "offline"] {
            if !settings.models.contains_key(name) {
                models.push(offline(name));
            }
        }
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models
    }
}

#[derive(Clone)]
struct Entry {
    model: Arc<dyn Model>,
    info: ModelInfo,
    breaker: Option<Arc<CircuitBreaker>>,
}

/// The models of this process by name. Cheap to clone.
#[derive(Clone)]
pub struct Models {
    entries: Arc<BTreeMap<String, Entry>>,
    /// Decides whether a model may be called.
    budget: Option<Arc<dyn Admission>>,
    /// The same for all calls, whatever turn they belong to.
    meter: Option<Arc<dyn Admission>>,
}

impl Models {
    /// Only the offline model, as `offline` and as `default`.
    pub fn offline() -> Self {
        let offline: Arc<dyn Model> = Arc::new(Offline::new());
        Self { entries: Arc::default(), budget: None, meter: None }
            .insert("offline", Arc::clone(&offline), None, "offline", "offline")
            .insert("default", offline, None, "offline", "offline")
    }

    /// Creates the models of the settings. `key_of` returns the value of an environment variable. `offline` always
    /// exists; it is also `default` if the settings have no `default`. Fails with the first invalid setting.
    pub fn from_settings(
        settings: &Settings,
        key_of: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ModelSettingsError> {
        let mut models = Self::offline();
        let offline: Arc<dyn Model> = Arc::new(Offline::new());
        for (name, entry) in &settings.models {
            let wrong = |setting: &str, problem: String| ModelSettingsError {
                model: name.clone(),
                setting: setting.to_owned(),
                problem,
            };
            models = match entry.provider {
                Provider::Offline => models.insert(name, Arc::clone(&offline), None, "offline", "offline"),
                Provider::Openai if name == "offline" => {
                    return Err(wrong("provider", "`offline` is always the offline model; choose another name".into()));
                }
                Provider::Openai => {
                    let key = match &entry.api_key_env {
                        None => None,
                        Some(variable) => Some(key_of(variable).ok_or_else(|| {
                            let problem =
                                format!("the environment variable `{variable}` is not set; set it to the key");
                            wrong("api_key_env", problem)
                        })?),
                    };
                    let breaker = Arc::new(CircuitBreaker::new(name, Arc::new(OpenAi::new(name, entry, key)?)));
                    let model: Arc<dyn Model> = Arc::<CircuitBreaker>::clone(&breaker);
                    models.insert(name, model, Some(breaker), "openai", &entry.model)
                }
            };
        }
        Ok(models)
    }

    /// Adds `model` under `name`, or replaces the model of this name.
    pub fn with(self, name: &str, model: Arc<dyn Model>) -> Self {
        self.insert(name, model, None, "rust", name)
    }

    /// The same models, called only while `budget` admits it.
    pub(crate) fn limited_by(&self, budget: Arc<dyn Admission>) -> Self {
        Self { budget: Some(budget), ..self.clone() }
    }

    /// The same models, called only while `meter` admits it as well.
    pub(crate) fn metered_by(&self, meter: Arc<dyn Admission>) -> Self {
        Self { meter: Some(meter), ..self.clone() }
    }

    fn insert(
        mut self,
        name: &str,
        model: Arc<dyn Model>,
        breaker: Option<Arc<CircuitBreaker>>,
        provider: &str,
        at_server: &str,
    ) -> Self {
        let info = ModelInfo::new(name, provider, at_server);
        let model = Arc::new(Metered::new(name, model));
        Arc::make_mut(&mut self.entries).insert(name.to_owned(), Entry { model, info, breaker });
        self
    }

    /// The model of this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.chain(&name.into())
    }

    /// Combines the models of these names, see [`ModelNames`]. Skips unknown names if at least one is known.
    pub fn chain(&self, names: &ModelNames) -> Result<Arc<dyn Model>, ModelError> {
        let mut links = Vec::new();
        for name in names.iter() {
            match self.entries.get(name) {
                Some(entry) => links.push(Arc::clone(&entry.model)),
                None if names.is_chain() => warn!("{}; skipping it", ModelError::Unknown(name.to_owned())),
                None => {}
            }
        }
        let model: Arc<dyn Model> = match links.len() {
            0 => return Err(ModelError::Unknown(names.first().to_owned())),
            1 => links.remove(0),
            _ => Arc::new(Chain::new(links)),
        };
        let limits = self.meter.iter().chain(&self.budget);
        Ok(limits.fold(model, |model, limit| Arc::new(Budgeted::new(model, Arc::clone(limit)))))
    }

    /// All models, sorted by name.
    pub fn names(&self) -> Vec<ModelInfo> {
        let info = |entry: &Entry| {
            let circuit = entry.breaker.as_deref().map(CircuitBreaker::state);
            ModelInfo { circuit, ..entry.info.clone() }
        };
        self.entries.values().map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(toml: &str) -> Settings {
        use figment::providers::{Format, Serialized, Toml};
        figment::Figment::from(Serialized::defaults(Settings::default())).merge(Toml::string(toml)).extract().unwrap()
    }

    #[test]
    fn offline_is_always_there_and_is_the_default() {
        let models = Models::from_settings(&Settings::default(), |_| None).unwrap();
        models.get("offline").unwrap();
        models.get("default").unwrap();
        let error = models.get("gpt").err().unwrap().to_string();
        assert!(error.contains("[models.gpt]") && error.contains("`offline`"), "{error}");
    }

    #[test]
    fn what_cannot_work_is_named_with_its_setting() {
        let good = "[models.default]\nprovider='openai'\nbase_url='https://api.example.com/v1'\nmodel='m'\n";
        for (toml, key, place) in [
            (format!("{good}api_key_env='K'"), None, "models.default.api_key_env: the environment variable `K`"),
            (format!("{good}api_key_env='K'"), Some("a\nb"), "models.default.api_key_env: the key in `K`"),
            (good.replace("https://", ""), None, "models.default.base_url: `api.example.com/v1`"),
            (good.replace("'m'", "''"), None, "models.default.model: is missing"),
            (good.replace("models.default", "models.offline"), None, "models.offline.provider"),
        ] {
            let error = Models::from_settings(&settings(&toml), |_| key.map(Into::into)).err().unwrap().to_string();
            assert!(error.starts_with(place), "{error}");
            assert!(!error.contains("a\nb"));
        }
        let models = Models::from_settings(&settings(good), |_| None).unwrap();
        let listed = models.names();
        assert_eq!(listed[0].provider, "openai");
        assert_eq!((listed[0].name.as_str(), listed[0].model.as_str()), ("default", "m"));
    }
}
