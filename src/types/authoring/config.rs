//! The settings of a dialogue that a client can choose.

use super::stage::{Artifact, Language, Publish};
use crate::ids::{self, IdError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// The default number of user messages in a dialogue.
pub const DEFAULT_TURNS: u32 = 50;
/// The largest number of user messages in a dialogue.
pub const MAX_TURNS: u32 = 500;
/// The default time limit of one stage, in seconds.
pub const DEFAULT_TIMEOUT: u32 = 30;
/// The largest time limit of one stage, in seconds.
pub const MAX_TIMEOUT: u32 = 300;
/// The largest number of preferences.
pub const MAX_PREFERENCES: usize = 32;
/// The largest size of a preference's name, and of its value, in bytes.
pub const MAX_PREFERENCE: usize = 200;

/// The settings of a dialogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConversationConfig {
    /// Sends texts piece by piece while the model writes them.
    pub enable_streaming: bool,
    /// The largest number of user messages.
    pub max_turns: u32,
    /// The time limit of one stage, in seconds.
    pub timeout_seconds: u32,
    /// The language of the engine's own texts.
    pub language: Language,
    /// Shows passages of the agent's knowledge to the model.
    pub enable_rag: bool,
    /// Further wishes. The engine reads `artifact`, `publish` and `target_id`; the model gets all of them.
    pub preferences: BTreeMap<String, String>,
}

impl Default for ConversationConfig {
    fn default() -> Self {
        Self {
            enable_streaming: true,
            max_turns: DEFAULT_TURNS,
            timeout_seconds: DEFAULT_TIMEOUT,
            language: Language::default(),
            enable_rag: false,
            preferences: BTreeMap::new(),
        }
    }
}

/// The settings as a client sends them. An absent field keeps its value. A 0 or an empty language means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigRequest {
    /// Sends texts piece by piece while the model writes them.
    pub enable_streaming: Option<bool>,
    /// The largest number of user messages, 1 to 500; 50 by default.
    pub max_turns: Option<i64>,
    /// The time limit of one stage, 1 to 300 s; 30 s by default.
    pub timeout_seconds: Option<i64>,
    /// The language of the engine's own texts: `zh`, the default, or `en`.
    pub language: Option<String>,
    /// Shows passages of the agent's knowledge to the model.
    pub enable_rag: Option<bool>,
    /// Further wishes. The engine reads `artifact`, `publish` and `target_id`; the model gets all of them.
    pub preferences: Option<BTreeMap<String, String>>,
}

/// Why settings are refused; `invalid_config` on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A number is outside its range.
    #[error("config.{field} is {found}; it must be 1 to {most}, or 0 for the default")]
    Number {
        /// The field.
        field: &'static str,
        /// The given value.
        found: i64,
        /// The largest value.
        most: u32,
    },
    /// The field does not accept the given word.
    #[error("config.{field} is `{found}`; it must be {expected}")]
    Word {
        /// The field.
        field: &'static str,
        /// The given value.
        found: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// There are too many preferences.
    #[error("config.preferences has {0} entries; it may have {MAX_PREFERENCES}")]
    Preferences(usize),
    /// A preference is too long.
    #[error("config.preferences: the name or value of `{0}` has more than {MAX_PREFERENCE} bytes")]
    Preference(String),
    /// The id that is wanted is no legal id.
    #[error(transparent)]
    Id(#[from] IdError),
}

impl ConfigRequest {
    /// Applies a request to the settings `current`.
    pub fn apply(self, current: &ConversationConfig) -> Result<ConversationConfig, ConfigError> {
        let mut config = current.clone();
        config.enable_streaming = self.enable_streaming.unwrap_or(config.enable_streaming);
        config.enable_rag = self.enable_rag.unwrap_or(config.enable_rag);
        if let Some(turns) = self.max_turns {
            config.max_turns = number("max_turns", turns, DEFAULT_TURNS, MAX_TURNS)?;
        }
        if let Some(seconds) = self.timeout_seconds {
            config.timeout_seconds = number("timeout_seconds", seconds, DEFAULT_TIMEOUT, MAX_TIMEOUT)?;
        }
        match self.language.as_deref() {
            None => {}
            Some("") => config.language = Language::default(),
            Some(name) => config.language = word("language", name, Language::parse(name), "`zh` or `en`")?,
        }
        if let Some(preferences) = self.preferences {
            check_preferences(&preferences)?;
            config.preferences = preferences;
        }
        Ok(config)
    }
}

impl ConversationConfig {
    /// The preferred kind of artefact; `None` if the client has no preference. [`ConfigRequest::apply`] has checked its
    /// name.
    pub fn artifact(&self) -> Option<Artifact> {
        self.preferences.get("artifact").and_then(|name| Artifact::parse(name))
    }

    /// Decides who publishes the result. Without a preference, the dialogue publishes a workflow. The user publishes an
    /// agent, because an agent has live conversations.
    pub fn publish(&self, artifact: Artifact) -> Publish {
        let preferred = self.preferences.get("publish").and_then(|name| Publish::parse(name));
        preferred.unwrap_or(match artifact {
            Artifact::Workflow => Publish::Auto,
            Artifact::Agent => Publish::Manual,
        })
    }

    /// The id that a new artefact must have; `None` if the client does not require one.
    pub fn target_id(&self) -> Option<&str> {
        self.preferences.get("target_id").map(String::as_str).filter(|id| !id.is_empty())
    }
}

fn number(field: &'static str, found: i64, default: u32, most: u32) -> Result<u32, ConfigError> {
    match u32::try_from(found) {
        Ok(0) => Ok(default),
        Ok(number) if number <= most => Ok(number),
        _ => Err(ConfigError::Number { field, found, most }),
    }
}

fn word<T>(field: &'static str, found: &str, known: Option<T>, expected: &'static str) -> Result<T, ConfigError> {
    known.ok_or_else(|| ConfigError::Word { field, found: found.to_owned(), expected })
}

fn check_preferences(preferences: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    if preferences.len() > MAX_PREFERENCES {
        return Err(ConfigError::Preferences(preferences.len()));
    }
    for (name, value) in preferences {
        if name.len() > MAX_PREFERENCE || value.len() > MAX_PREFERENCE {
            return Err(ConfigError::Preference(name.chars().take(40).collect()));
        }
    }
    if let Some(name) = preferences.get("artifact") {
        word("preferences.artifact", name, Artifact::parse(name), "`workflow` or `agent`")?;
    }
    if let Some(name) = preferences.get("publish") {
        word("preferences.publish", name, Publish::parse(name), "`auto` or `manual`")?;
    }
    // An empty one means none.
    if let Some(id) = preferences.get("target_id").filter(|id| !id.is_empty()) {
        ids::check("config.preferences.target_id", id)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(request: serde_json::Value) -> Result<ConversationConfig, ConfigError> {
        serde_json::from_value::<ConfigRequest>(request).unwrap().apply(&ConversationConfig::default())
    }

    #[test]
    fn nothing_and_zero_mean_the_defaults() {
        let defaults = ConversationConfig::default();
        assert_eq!(apply(json!({})).unwrap(), defaults);
        assert_eq!(apply(json!({"max_turns": 0, "timeout_seconds": 0, "language": ""})).unwrap(), defaults);
        let json = json!({"enable_streaming": true, "max_turns": 50, "timeout_seconds": 30, "language": "zh",
            "enable_rag": false, "preferences": {}});
        assert_eq!(serde_json::to_value(&defaults).unwrap(), json);
    }

    #[test]
    fn a_value_outside_its_range_is_refused_by_name() {
        let refused = |request| apply(request).unwrap_err().to_string();
        assert_eq!(
            refused(json!({"max_turns": 501})),
            "config.max_turns is 501; it must be 1 to 500, or 0 for the default"
        );
        assert!(refused(json!({"timeout_seconds": -1})).starts_with("config.timeout_seconds is -1"));
        assert_eq!(refused(json!({"language": "fr"})), "config.language is `fr`; it must be `zh` or `en`");
        assert!(refused(json!({"preferences": {"artifact": "poem"}})).contains("`workflow` or `agent`"));
        assert!(refused(json!({"preferences": {"publish": "later"}})).contains("`auto` or `manual`"));
        let illegal = refused(json!({"preferences": {"target_id": "a/b"}}));
        assert!(illegal.starts_with("config.preferences.target_id contains '/'"), "{illegal}");
        assert!(apply(json!({"preferences": {"target_id": ""}})).is_ok());
        assert!(refused(json!({"preferences": {"a": "x".repeat(201)}})).contains("`a`"));
        let many: BTreeMap<_, _> = (0..33).map(|n| (n.to_string(), String::new())).collect();
        assert!(refused(json!({"preferences": many})).contains("33 entries"));
    }

    #[test]
    fn agents_wait_for_a_yes_unless_it_is_given_before() {
        let config = apply(json!({"preferences": {"artifact": "agent", "target_id": "sales"}})).unwrap();
        assert_eq!(config.artifact(), Some(Artifact::Agent));
        assert_eq!(config.target_id(), Some("sales"));
        assert_eq!(config.publish(Artifact::Agent), Publish::Manual);
        assert_eq!(config.publish(Artifact::Workflow), Publish::Auto);
        let eager = apply(json!({"preferences": {"publish": "auto"}})).unwrap();
        assert_eq!(eager.publish(Artifact::Agent), Publish::Auto);
    }
}
