//! `${NAME}` in agent files: filled from the environment for the names that `secrets.allow` lists, never shown.

use super::Settings;
use std::collections::BTreeMap;
use thiserror::Error;

/// Values shorter than this are not masked: they would hit by chance.
const SHORTEST_MASKED: usize = 4;

/// Why `${NAME}` is not filled.
#[derive(Debug, Error)]
pub enum SecretError {
    /// Not listed.
    #[error("`${{{0}}}` is not allowed; list `{0}` in the setting `secrets.allow`")]
    NotAllowed(String),
    /// Listed, but the environment has no such variable.
    #[error("`${{{0}}}` is allowed, but the environment has no variable `{0}`; set it for this process")]
    NotSet(String),
}

/// The values that agent files and models may use. Its `Debug` shows names only.
pub struct SecretValues {
    allowed: BTreeMap<String, Option<String>>,
    keys: BTreeMap<String, Option<String>>,
}

impl std::fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.allowed.keys()).entries(self.keys.keys()).finish()
    }
}

impl SecretValues {
    /// Reads the variables that the settings name.
    pub fn from_settings(settings: &Settings) -> Self {
        Self::new(settings, variable)
    }

    /// As [`SecretValues::from_settings`], from any environment.
    pub fn new(settings: &Settings, variable: impl Fn(&str) -> Option<String>) -> Self {
        let read = |name: &String| (name.clone(), variable(name));
        Self {
            allowed: settings.secrets.allow.iter().map(read).collect(),
            keys: settings.models.values().filter_map(|model| model.api_key_env.as_ref()).map(read).collect(),
        }
    }

    /// Fills every `${NAME}` of an operator's text.
    pub fn fill(&self, text: &str) -> Result<String, SecretError> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            let name = &rest[start + 2..start + length];
            filled.push_str(&rest[..start]);
            filled.push_str(self.value(name)?);
            rest = &rest[start + length + 1..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Replaces every secret value in a text.
    pub fn mask(&self, text: &str) -> String {
        let values = self.allowed.values().chain(self.keys.values()).flatten();
        let known = values.filter(|value| value.len() >= SHORTEST_MASKED);
        known.fold(text.to_owned(), |text, value| text.replace(value.as_str(), "***"))
    }

    /// The key that a model's `api_key_env` names.
    pub fn api_key(&self, variable: &str) -> Option<String> {
        self.keys.get(variable).cloned().flatten()
    }

    fn value(&self, name: &str) -> Result<&str, SecretError> {
        match self.allowed.get(name) {
            None => Err(SecretError::NotAllowed(name.to_owned())),
            Some(None) => Err(SecretError::NotSet(name.to_owned())),
            Some(Some(value)) => Ok(value),
        }
    }
}

#[allow(clippy::disallowed_methods)] // The settings name the variables; this room may read them.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_only_what_is_allowed_and_masks_it() {
        let mut settings = Settings::default();
        settings.secrets.allow = vec!["TOKEN".into(), "EMPTY".into()];
        let secrets = SecretValues::new(&settings, |name| (name == "TOKEN").then(|| "s3cret-value".to_owned()));
        assert_eq!(secrets.fill("Bearer ${TOKEN}, ${TOKEN}").unwrap(), "Bearer s3cret-value, s3cret-value");
        assert!(secrets.fill("${HOME}").unwrap_err().to_string().contains("secrets.allow"));
        assert!(secrets.fill("${EMPTY}").unwrap_err().to_string().contains("no variable"));
        assert_eq!(secrets.fill("{x} $ {").unwrap(), "{x} $ {");
        assert_eq!(secrets.mask("got s3cret-value back"), "got *** back");
        assert!(!format!("{secrets:?}").contains("s3cret"));
    }
}
