//! The tokens of the settings, and the caller of each. Tokens in files are read again when a file changes.

use super::caller::Caller;
use base::config::access::Weakness;
use base::config::{Environment, Gateway, NamedToken};
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tracing::warn;

/// How often files with tokens are read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// All tokens. Cheap to clone.
#[derive(Clone)]
pub(super) struct Tokens(Arc<TokenTable>);

struct TokenTable {
    entries: Vec<TokenEntry>,
    /// Whether clients need a token, also while none can be read.
    required: bool,
    refreshed: Mutex<Instant>,
    /// Whether others than this machine can reach the gateway.
    is_public: bool,
}

struct TokenEntry {
    caller: Caller,
    tokens: RwLock<Vec<String>>,
    /// The entry of the settings, if its tokens are in a file.
    file: Option<NamedToken>,
}

impl Tokens {
    /// Reads all tokens. `name` is that of the callers with one of `gateway.tokens`. An entry whose tokens cannot be
    /// read admits no caller until they can.
    pub(super) fn new(settings: &Gateway, env: &Environment, name: Option<&str>) -> Self {
        // A request with an empty token would match a blank one.
        let plain = settings.tokens.iter().filter(|token| !token.trim().is_empty()).cloned().collect::<Vec<_>>();
        let required = !plain.is_empty() || !settings.access.is_empty();
        let administrator = TokenEntry { caller: Caller::administrator(name), tokens: RwLock::new(plain), file: None };
        let named = settings.access.iter().map(|entry| {
            let tokens = entry.tokens(env).unwrap_or_else(|error| {
                warn!("no caller can use the token `{}` of gateway.access: {error}", entry.name);
                Vec::new()
            });
            let file = entry.token_file.is_some().then(|| entry.clone());
            TokenEntry { caller: Caller::named(entry), tokens: RwLock::new(tokens), file }
        });
        let entries = std::iter::once(administrator).chain(named).collect();
        let mut addresses = [Some(settings.listen), settings.grpc_listen].into_iter().flatten();
        let is_public = addresses.any(|address| !address.ip().to_canonical().is_loopback());
        Self(Arc::new(TokenTable { entries, required, refreshed: Mutex::new(Instant::now()), is_public }))
    }

    /// True if clients need no token.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.required
    }

    /// The caller with this token. Compares with every token in full, so that the response time reveals nothing about
    /// them.
    pub(super) fn caller(&self, given: &str) -> Option<Caller> {
        self.refresh();
        let mut found = None;
        for entry in &self.0.entries {
            let tokens = entry.tokens.read().unwrap_or_else(PoisonError::into_inner);
            let admitted =
                tokens.iter().fold(false, |admitted, token| equal(token.as_bytes(), given.as_bytes()) | admitted);
            if admitted {
                found = Some(entry.caller.clone());
            }
        }
        found
    }

    /// The caller of this name, one of whose tokens `is` the asked one.
    pub(super) fn caller_with(&self, name: &str, is: impl Fn(&str) -> bool) -> Option<Caller> {
        self.refresh();
        let mut named = self.0.entries.iter().filter(|entry| entry.caller.name() == name);
        let entry = named.find(|entry| {
            let tokens = entry.tokens.read().unwrap_or_else(PoisonError::into_inner);
            tokens.iter().any(|token| is(token))
        });
        entry.map(|entry| entry.caller.clone())
    }

    /// Reads files with tokens again, if the last time is long ago. A file that cannot be read leaves its tokens valid.
    fn refresh(&self) {
        let mut refreshed = self.0.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
        if refreshed.elapsed() < REFRESH_INTERVAL {
            return;
        }
        *refreshed = Instant::now();
        for (entry, file) in self.0.entries.iter().filter_map(|entry| Some((entry, entry.file.as_ref()?))) {
            match file.tokens(&Environment::default()) {
                // The settings have been checked at the start, but the file is a new one.
                Ok(tokens) if let Some(weak) = tokens.iter().find_map(|new| Weakness::of(new, self.0.is_public)) => {
                    warn!("the tokens of `{}` stay as they were: its file {}", file.name, weak.found());
                }
                Ok(tokens) => *entry.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens,
                Err(error) => warn!("the tokens of `{}` stay as they were: {error}", file.name),
            }
        }
    }
}

/// Compares in a time that depends only on the length of `given`.
fn equal(token: &[u8], given: &[u8]) -> bool {
    let differ = given.iter().enumerate().fold(token.len() ^ given.len(), |differ, (index, byte)| {
        differ | usize::from(byte ^ token[index % token.len()])
    });
    black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::Settings;
    use types::access::Role;

    fn gateway(tokens: &[&str], access: serde_json::Value) -> Gateway {
        let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
        Gateway { tokens, access: serde_json::from_value(access).unwrap(), ..Settings::default().gateway }
    }

    fn env() -> Environment {
        [("WEB", "web-token"), ("DESK", "desk-token")].into_iter().collect()
    }

    #[test]
    fn only_a_whole_token_is_admitted() {
        let tokens = Tokens::new(&gateway(&["s3cret", "other", " "], serde_json::json!([])), &env(), None);
        for (given, admitted) in
            [("s3cret", true), ("other", true), ("s3cre", false), ("s3crets3cret", false), ("", false), (" ", false)]
        {
            assert_eq!(tokens.caller(given).is_some(), admitted, "{given:?}");
        }
    }

    #[test]
    fn blank_tokens_are_none_and_an_unreadable_one_admits_nobody() {
        assert!(Tokens::new(&gateway(&["", "  "], serde_json::json!([])), &env(), None).is_empty());
        let entry = serde_json::json!([{"name": "x", "token_env": "NOWHERE", "role": "admin"}]);
        let unset = Tokens::new(&gateway(&[], entry), &env(), None);
        assert!(!unset.is_empty() && unset.caller("").is_none());
    }

    #[test]
    fn each_token_has_its_caller() {
        let access = serde_json::json!([
            {"name": "web", "token_env": "WEB", "role": "channel"},
            {"name": "desk", "token_env": "DESK", "role": "agent"},
        ]);
        let tokens = Tokens::new(&gateway(&["root"], access), &env(), Some("cli"));
        let named = |token: &str| tokens.caller(token).map(|caller| (caller.name().to_owned(), caller.role()));
        assert_eq!(named("web-token"), Some(("web".to_owned(), Role::Channel)));
        assert_eq!(named("desk-token"), Some(("desk".to_owned(), Role::Agent)));
        assert_eq!(named("root"), Some(("cli".to_owned(), Role::Admin)));
    }

    #[test]
    fn a_changed_file_counts_without_a_restart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old-token\n").unwrap();
        let access = serde_json::json!([{"name": "web", "token_file": file.path(), "role": "viewer"}]);
        let tokens = Tokens::new(&gateway(&[], access), &Environment::default(), None);
        std::fs::write(file.path(), "new-token\nold-token\n").unwrap();
        let is_due = || *tokens.0.refreshed.lock().unwrap() = Instant::now().checked_sub(REFRESH_INTERVAL).unwrap();
        is_due();
        assert!(tokens.caller("new-token").is_some() && tokens.caller("old-token").is_some());
        std::fs::write(file.path(), "new-token\n").unwrap();
        is_due();
        assert!(tokens.caller("old-token").is_none() && tokens.caller("new-token").is_some());
        std::fs::write(file.path(), "x\n").unwrap();
        is_due();
        assert!(tokens.caller("x").is_none() && tokens.caller("new-token").is_some(), "a weak token is not taken");
        drop(file);
        is_due();
        assert!(tokens.caller("new-token").is_some(), "a file that cannot be read leaves its tokens valid");
    }
}
