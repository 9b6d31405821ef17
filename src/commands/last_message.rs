//! The last message of a conversation, as listings show it.

use base::config::SecretValues;
use serde::{Deserialize, Serialize};
use types::excerpt::first_chars;
use types::session::{Entry, Role, Session};
use types::timestamp::Timestamp;

/// The longest text that is shown, in characters.
const MAX_CHARS: usize = 200;

/// The last message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LastMessage {
    /// The speaker.
    pub role: Role,
    /// The text, at most 200 characters, with secrets masked. A longer text ends with `…`.
    pub text: String,
    /// When it was recorded.
    pub at: Timestamp,
}

impl LastMessage {
    /// The last message of a session; `None` for an empty history.
    pub(crate) fn of(session: &Session, secrets: &SecretValues) -> Option<Self> {
        session.history.last().map(|entry| Self::new(entry, secrets))
    }

    /// Masks before it cuts: a secret whose end is cut off would not be found.
    fn new(entry: &Entry, secrets: &SecretValues) -> Self {
        let mut text = secrets.mask(&entry.text);
        if first_chars(&text, MAX_CHARS).len() < text.len() {
            text = format!("{}…", first_chars(&text, MAX_CHARS - 1));
        }
        Self { role: entry.role, text, at: entry.at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::Settings;
    use base::config::environment::Environment;

    fn entry(text: &str) -> Entry {
        let (at, turn_id) = (Timestamp::default(), String::new());
        Entry { role: Role::User, text: text.into(), at, turn_id, kind: None, metadata: Default::default() }
    }

    #[test]
    fn a_last_message_is_masked_before_it_is_cut() {
        let settings = Settings {
            gateway: base::config::Gateway { tokens: vec!["0123456789abcdef".into()], ..Default::default() },
            ..Settings::default()
        };
        let secrets = SecretValues::new(&settings, &Environment::default());
        let last = |text: &str| LastMessage::new(&entry(text), &secrets).text;
        assert_eq!(last("短"), "短");
        assert_eq!(last(&"长".repeat(200)), "长".repeat(200));
        assert_eq!(last(&"长".repeat(201)), format!("{}…", "长".repeat(199)));
        let cut = last(&format!("{}0123456789abcdef", "长".repeat(195)));
        assert!(!cut.contains("0123") && cut.chars().count() <= 200, "{cut}");
    }
}
