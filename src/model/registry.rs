//! Models by name: those of the settings, `offline`, and those added from Rust.

use super::circuit::Guarded;
use super::metered::Metered;
use super::offline::Offline;
use super::openai::OpenAi;
use super::{Model, ModelError};
use crate::config::{Provider, Settings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;
use utoipa::ToSchema;

/// A `[models.<name>]` that cannot work.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("models.{model}.{setting}: {problem}")]
pub struct ModelSettingsError {
    /// Its name.
    pub model: String,
    /// The setting in question.
    pub setting: String,
    /// What is wrong with it, and the remedy.
    pub problem: String,
}

/// What a listing shows of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelInfo {
    /// What agents call it.
    pub name: String,
    /// `openai`, `offline`, or `rust` for one added from Rust.
    pub provider: String,
    /// Its name at its server.
    pub model: String,
}

impl ModelInfo {
    /// Of a model that was added from Rust.
    pub fn of_rust(name: &str) -> Self {
        Self { name: name.to_owned(), provider: "rust".into(), model: name.to_owned() }
    }

    /// The models that agents may name; `offline` is always there, and is `default` when the settings have none.
    pub fn of_settings(settings: &Settings) -> Vec<Self> {
        let offline = |name: &str| Self { name: name.into(), provider: "offline".into(), model: "offline".into() };
        let mut models: Vec<Self> = settings
            .models
            .iter()
            .map(|(name, model)| match model.provider {
                Provider::Offline => offline(name),
                Provider::Openai => Self { name: name.clone(), provider: "openai".into(), model: model.model.clone() },
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
}

/// Models by name. Cheap to clone.
#[derive(Clone)]
pub struct Models {
    entries: BTreeMap<String, Entry>,
}

impl Models {
    /// Only `offline`, and `default`, which is the same.
    pub fn offline() -> Self {
        let offline: Arc<dyn Model> = Arc::new(Offline::new());
        Self { entries: BTreeMap::new() }
            .insert("offline", Arc::clone(&offline), "offline", "offline")
            .insert("default", offline, "offline", "offline")
    }

    /// Those of the settings; `key_of` gives the value of an environment variable. `offline` always exists, and is also
    /// `default` when the settings have none.
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
                Provider::Offline => models.insert(name, Arc::clone(&offline), "offline", "offline"),
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
                    let model: Arc<dyn Model> = Arc::new(Guarded::new(name, Arc::new(OpenAi::new(name, entry, key)?)));
                    models.insert(name, model, "openai", &entry.model)
                }
            };
        }
        Ok(models)
    }

    /// These and `model` under `name`, in place of one that had the name.
    pub fn with(self, name: &str, model: Arc<dyn Model>) -> Self {
        self.insert(name, model, "rust", name)
    }

    fn insert(mut self, name: &str, model: Arc<dyn Model>, provider: &str, at_server: &str) -> Self {
        let info = ModelInfo { name: name.to_owned(), provider: provider.to_owned(), model: at_server.to_owned() };
        let model = Arc::new(Metered::new(name, model));
        self.entries.insert(name.to_owned(), Entry { model, info });
        self
    }

    /// The model of that name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let entry = self.entries.get(name).ok_or_else(|| ModelError::Unknown(name.to_owned()))?;
        Ok(Arc::clone(&entry.model))
    }

    /// All of them, by name.
    pub fn names(&self) -> Vec<ModelInfo> {
        self.entries.values().map(|entry| entry.info.clone()).collect()
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
