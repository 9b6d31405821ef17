//! Named tokens of the gateway, `[[gateway.access]]`: who may do what, on which sessions, and how often.

use super::load::Problem;
use super::mask::MIN_SECRET_BYTES;
use super::{Environment, Gateway};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use thiserror::Error;
use types::access::Role;
use types::ids;

/// Tokens that example files use. Everybody knows them.
const WELL_KNOWN: [&str; 5] = ["change-me", "changeme", "secret", "token", "password"];

/// The least length of a token on an address that others can reach.
pub const MIN_PUBLIC_BYTES: usize = 16;

/// A named token: its source, its role and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedToken {
    /// The name: `by` of the caller's actions. An id.
    pub name: String,
    /// Name of the environment variable that has the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// Path of a file with tokens, one in each line. All of them are valid, so that an old one can be replaced. A
    /// changed file counts after a few seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The rights of the caller.
    pub role: Role,
    /// Only sessions of these channels; all unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
    /// Only sessions of these agents; all unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Only sessions whose ids begin with this text; all unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_prefix: Option<String>,
    /// The most requests in a minute at one gateway; 0, which is no limit, unless given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requests_per_minute: u32,
    /// The most requests at the same time at one gateway, event streams included; 0, which is no limit, unless given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_in_flight: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why the tokens of an entry cannot be read.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The environment variable is not set, or empty.
    #[error("the environment variable `{0}` is not set")]
    NotSet(String),
    /// The file cannot be read.
    #[error("the file `{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file has no token.
    #[error("the file `{}` has no token", .0.display())]
    Empty(PathBuf),
}

impl NamedToken {
    /// Reads the valid tokens of this entry: one from the environment, or those in the file.
    pub fn tokens(&self, env: &Environment) -> Result<Vec<String>, TokenError> {
        if let Some(variable) = &self.token_env {
            let token = env.get(variable).map(str::trim).filter(|token| !token.is_empty());
            return token.map(|token| vec![token.to_owned()]).ok_or_else(|| TokenError::NotSet(variable.clone()));
        }
        let Some(path) = &self.token_file else { return Ok(Vec::new()) };
        let text = fs::read_to_string(path).map_err(|source| TokenError::Unreadable { path: path.clone(), source })?;
        let tokens: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if tokens.is_empty() { Err(TokenError::Empty(path.clone())) } else { Ok(tokens) }
    }
}

/// Finds the problems of the entries. `env` is missing for a command that does not serve: it needs no tokens.
pub(super) fn problems(entries: &[NamedToken], env: Option<&Environment>) -> Vec<Problem> {
    let (mut found, mut names) = (Vec::new(), BTreeSet::new());
    for (index, entry) in entries.iter().enumerate() {
        let mut report = |field: &str, problem: String, remedy: &str| {
            let key = format!("gateway.access[{index}].{field}");
            found.push(Problem { key, origin: None, found: problem, remedy: remedy.to_owned() });
        };
        if let Err(error) = ids::check("name", &entry.name) {
            report("name", error.to_string(), "choose a short name such as `web-chat`");
        }
        if !names.insert(entry.name.as_str()) {
            report("name", format!("`{}` occurs twice", entry.name), "give each token a name of its own");
        }
        match (&entry.token_env, &entry.token_file, env) {
            (None, None, _) | (Some(_), Some(_), _) => {
                report("token_env", "needs one source".into(), "set either `token_env` or `token_file`");
            }
            (.., Some(env)) => match entry.tokens(env) {
                Ok(tokens) if tokens.iter().any(|token| token.contains(char::is_whitespace)) => {
                    report("token_env", "holds a token with spaces".into(), "write another token");
                }
                Ok(_) => {}
                Err(error) => report("token_env", error.to_string(), "set it, or remove the entry"),
            },
            (.., None) => {}
        }
    }
    found
}

/// A fault of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// Everybody knows it from example files.
    WellKnown,
    /// It has fewer than [`MIN_PUBLIC_BYTES`].
    Short,
    /// It has fewer bytes than a secret that is masked.
    NotMasked,
}

impl Weakness {
    /// The weakness of a token. `is_public` says whether others than this machine can reach the gateway.
    pub fn of(token: &str, is_public: bool) -> Option<Self> {
        if token.len() < MIN_SECRET_BYTES {
            return Some(Self::NotMasked);
        }
        let is_known = WELL_KNOWN.contains(&token.to_ascii_lowercase().as_str());
        let weakness = if is_known { Self::WellKnown } else { Self::Short };
        (is_public && (is_known || token.len() < MIN_PUBLIC_BYTES)).then_some(weakness)
    }

    /// The weakness as the end of a sentence about a setting.
    pub const fn found(self) -> &'static str {
        match self {
            Self::WellKnown => "holds a token that everybody knows from example files",
            Self::Short => "holds a token of fewer than 16 characters, which can be guessed",
            Self::NotMasked => "holds a token of fewer than 4 characters, which logs and errors could not hide",
        }
    }
}

/// The settings that hold a weak token.
pub(super) fn weak(gateway: &Gateway, env: &Environment, is_public: bool) -> Vec<(String, Weakness)> {
    let weakness = |tokens: &[String]| {
        // An empty token is another problem.
        let mut given = tokens.iter().map(|token| token.trim()).filter(|token| !token.is_empty());
        given.find_map(|token| Weakness::of(token, is_public))
    };
    let plain = weakness(&gateway.tokens).map(|weakness| ("gateway.tokens".to_owned(), weakness));
    let named = gateway.access.iter().enumerate().filter_map(|(index, entry)| {
        let weakness = weakness(&entry.tokens(env).unwrap_or_default())?;
        Some((format!("gateway.access[{index}]"), weakness))
    });
    plain.into_iter().chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> NamedToken {
        serde_json::from_value(serde_json::json!({"name": name, "token_env": "A_TOKEN", "role": "viewer"})).unwrap()
    }

    #[test]
    fn an_entry_needs_a_name_of_its_own_and_one_source() {
        let env: Environment = [("A_TOKEN", "0123456789abcdef")].into_iter().collect();
        assert!(problems(&[entry("web")], Some(&env)).is_empty());
        let twice = problems(&[entry("web"), entry("web")], Some(&env));
        assert!(twice[0].to_string().contains("gateway.access[1].name") && twice[0].found.contains("twice"));
        let none = NamedToken { token_env: None, ..entry("web") };
        assert!(problems(&[none], Some(&env))[0].remedy.contains("either `token_env` or `token_file`"));
        let unset = NamedToken { token_env: Some("NOWHERE".into()), ..entry("web") };
        assert!(problems(std::slice::from_ref(&unset), Some(&env))[0].found.contains("`NOWHERE` is not set"));
        assert!(problems(&[unset], None).is_empty(), "a command that does not serve needs no token");
        assert!(!problems(&[entry("a/b")], Some(&env)).is_empty());
    }

    #[test]
    fn a_file_has_a_token_in_each_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = NamedToken { token_env: None, token_file: Some(file.path().to_owned()), ..entry("web") };
        assert!(matches!(entry.tokens(&Environment::default()), Err(TokenError::Empty(_))));
        fs::write(file.path(), "new-token\n\n old-token \n").unwrap();
        assert_eq!(entry.tokens(&Environment::default()).unwrap(), ["new-token", "old-token"]);
    }
}
