//! Settings of models.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;
use types::duration::Text;

/// The kind of server behind a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// A server with an OpenAI-compatible API.
    Openai,
    /// The offline model: rules in the agent file decide.
    Offline,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The kind of server.
    pub provider: Provider,
    /// Base URL, such as `https://api.example.com/v1`. Required for `openai`.
    #[serde(default)]
    pub base_url: String,
    /// Name of the environment variable that has the API key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// The model's name at its server. Required for `openai`.
    #[serde(default)]
    pub model: String,
    /// Timeout of one attempt; for a streamed answer, the time to its first chunk. 60 s unless given.
    #[serde(default = "default_model_timeout")]
    pub timeout: Text,
    /// Timeout between two chunks of a streamed answer, if shorter than `timeout`; 20 s unless given.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: Text,
    /// Retries after the first attempt; 3 unless given.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// Sampling temperature. Not sent unless given.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Limit on the tokens of an answer. Not sent unless given.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// Limit on the tokens of an answer, for servers that do not support `max_tokens`. Not sent unless given.
    #[serde(default)]
    pub max_completion_tokens: Option<u32>,
    /// Additional fields of each request. They override the engine's own fields.
    #[serde(default)]
    pub extra: Map<String, Value>,
    /// Header that carries the API key as it is. Unless given: `api-key` if `base_url` has an `api-version` (as for
    /// Azure OpenAI), otherwise `Authorization` with `Bearer`.
    #[serde(default)]
    pub api_key_header: Option<String>,
    /// True if the model accepts images. The images of a user's message are then sent to it. False unless given.
    #[serde(default)]
    pub vision: bool,
}

fn default_model_timeout() -> Text {
    Text(Duration::from_secs(60))
}

fn default_idle_timeout() -> Text {
    Text(Duration::from_secs(20))
}

fn default_max_retries() -> u32 {
    3
}
