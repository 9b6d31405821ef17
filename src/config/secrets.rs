//! Secrets: `${NAME}` in agent files, and the keys of models. Nothing here prints a value.

use super::{Environment, Settings};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;
use thiserror::Error;

/// What stands in a secret's place.
pub const MASK: &str = "***";

static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}").ok());

/// Why a text could not be filled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SecretError {
    /// The settings do not allow it.
    #[error("`${{{0}}}` is not allowed; add `{0}` to the setting `secrets.allow` (TURNWHEEL_SECRETS__ALLOW)")]
    NotAllowed(String),
    /// The environment does not have it.
    #[error("`${{{0}}}` is allowed by `secrets.allow`, but the environment variable `{0}` is not set; set it")]
    NotSet(String),
}

/// The names that `text` refers to as `${NAME}`.
pub fn references(text: &str) -> Vec<&str> {
    let Some(pattern) = REFERENCE.as_ref() else { return Vec::new() };
    pattern.captures_iter(text).filter_map(|found| found.get(1)).map(|name| name.as_str()).collect()
}

/// The values of secrets, from the environment as it was at the start.
#[derive(Clone, Default)]
pub struct SecretValues {
    allowed: BTreeSet<String>,
    values: BTreeMap<String, String>,
    keys: BTreeMap<String, String>,
    /// All forms in which values may turn up in a text, longest first.
    forms: Vec<String>,
}

impl SecretValues {
    /// Those that `settings` name, from the environment of this process.
    pub fn from_settings(settings: &Settings) -> Self {
        Self::new(settings, &Environment::of_process())
    }

    /// Those that `settings` name: `secrets.allow`, the models' keys, and the gateway's tokens for masking.
    pub fn new(settings: &Settings, env: &Environment) -> Self {
        let read = |names: &BTreeSet<String>| -> BTreeMap<String, String> {
            names.iter().filter_map(|name| Some((name.clone(), env.get(name)?.to_owned()))).collect()
        };
        let allowed: BTreeSet<String> = settings.secrets.allow.iter().cloned().collect();
        let named: BTreeSet<String> = settings.models.values().filter_map(|model| model.api_key_env.clone()).collect();
        let (values, keys) = (read(&allowed), read(&named));
        let mut forms: BTreeSet<String> = BTreeSet::new();
        for value in values.values().chain(keys.values()).chain(&settings.gateway.tokens) {
            forms.extend(spellings(value));
        }
        let mut forms: Vec<String> = forms.into_iter().filter(|form| !form.is_empty()).collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self { allowed, values, keys, forms }
    }

    /// `text` with every `${NAME}` replaced. What was filled in is not read again.
    pub fn fill(&self, text: &str) -> Result<String, SecretError> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(found) = REFERENCE.as_ref().and_then(|pattern| pattern.captures(rest)) {
            let (Some(whole), Some(name)) = (found.get(0), found.get(1)) else { break };
            filled.push_str(&rest[..whole.start()]);
            filled.push_str(self.value(name.as_str())?);
            rest = &rest[whole.end()..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, name: &str) -> Result<&str, SecretError> {
        if !self.allowed.contains(name) {
            return Err(SecretError::NotAllowed(name.to_owned()));
        }
        self.values.get(name).map(String::as_str).ok_or_else(|| SecretError::NotSet(name.to_owned()))
    }

    /// `text` with every secret value replaced by `***`, also where it is written as in a URL or in JSON.
    pub fn mask(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        for form in &self.forms {
            if masked.contains(form.as_str()) {
                masked = masked.replace(form.as_str(), MASK);
            }
        }
        masked
    }

    /// The key in the variable that a model's `api_key_env` names.
    pub fn api_key(&self, env_name: &str) -> Option<String> {
        self.keys.get(env_name).cloned()
    }

    /// True when a variable that the settings name is set.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.keys.contains_key(name)
    }
}

/// How a value may be written in a URL, in JSON and in a Basic header's neighbours.
fn spellings(value: &str) -> Vec<String> {
    let encoded: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
    let json = serde_json::to_string(value).map(|text| text.trim_matches('"').to_owned()).unwrap_or_default();
    vec![value.to_owned(), encoded.replace('+', "%20"), encoded, json]
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValues").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

impl fmt::Display for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} allowed secrets, {} of them set", self.allowed.len(), self.values.len())
    }
}

/// A connection address, or a list of them, without its password, token and secret parameters. It rather hides too much
/// than too little: a password with `/` or `?` in it is no legal URI, but somebody will write one.
pub fn masked_address(text: &str) -> String {
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 1 && parts.iter().all(|part| part.contains("://")) {
        return parts.into_iter().map(mask_one).collect::<Vec<_>>().join(",");
    }
    mask_one(text)
}

fn mask_one(text: &str) -> String {
    let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + 3));
    let (user, host) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => (format!("{name}:{MASK}@"), host),
            None => (format!("{MASK}@"), host),
        },
    };
    let Some((host, query)) = host.split_once('?') else { return format!("{scheme}{user}{host}") };
    let query: Vec<String> = query.split('&').map(mask_parameter).collect();
    format!("{scheme}{user}{host}?{}", query.join("&"))
}

fn mask_parameter(parameter: &str) -> String {
    let Some((name, _)) = parameter.split_once('=') else { return parameter.to_owned() };
    let lower = name.to_lowercase();
    let secret = ["password", "token", "secret", "key", "properties"].iter().any(|word| lower.contains(word));
    if secret { format!("{name}={MASK}") } else { parameter.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> SecretValues {
        let mut settings = Settings::default();
        settings.secrets.allow = vec!["ORDERS_TOKEN".into(), "GONE".into()];
        settings.gateway.tokens = vec!["tok-1".into()];
        let env = [("ORDERS_TOKEN", "s e/c\"ret ${GONE}"), ("PATH", "/bin")].into_iter().collect();
        SecretValues::new(&settings, &env)
    }

    #[test]
    fn fills_allowed_names_only_and_once() {
        let values = values();
        assert_eq!(values.fill("Bearer ${ORDERS_TOKEN}!").unwrap(), "Bearer s e/c\"ret ${GONE}!");
        assert_eq!(values.fill("你好 {name} $5 ${}").unwrap(), "你好 {name} $5 ${}");
        let refused = values.fill("${PATH}").unwrap_err();
        assert_eq!(refused, SecretError::NotAllowed("PATH".into()));
        assert!(
            refused.to_string().contains("`${PATH}`") && refused.to_string().contains("`secrets.allow`"),
            "{refused}"
        );
        assert_eq!(values.fill("${GONE}").unwrap_err(), SecretError::NotSet("GONE".into()));
    }

    #[test]
    fn values_never_show() {
        let values = values();
        let text = values.mask(r#"GET /?t=s+e%2Fc%22ret+%24%7BGONE%7D {"a":"s e/c\"ret ${GONE}"} tok-1"#);
        assert_eq!(text, r#"GET /?t=*** {"a":"***"} ***"#);
        assert!(!format!("{values:?}{values}").contains("s e/c"));
    }

    #[test]
    fn addresses_lose_their_passwords() {
        for (address, shown) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://u:p@a:4222,nats://token@b", "nats://u:***@a:4222,nats://***@b"),
            (
                "mongodb://u:p/@x?@a:1,b:2/db?replicaSet=rs&tlsCertificateKeyFilePassword=x",
                "mongodb://u:***@a:1,b:2/db?replicaSet=rs&tlsCertificateKeyFilePassword=***",
            ),
        ] {
            assert_eq!(masked_address(address), shown);
        }
    }
}
