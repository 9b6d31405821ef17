//! The search for words in a conversation.

use super::Entry;

/// Words that all occur in a conversation, in any of its kept messages. Upper and lower case are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(Vec<String>);

impl Words {
    /// The words of a text. Spaces and control characters separate them, so a phrase in Chinese is one word.
    pub fn of(text: &str) -> Self {
        let parts = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|part| !part.is_empty());
        Self(parts.map(str::to_lowercase).collect())
    }

    /// True without words: every conversation has them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The words in lower case.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// True if all words occur in these messages. The words may be in different messages.
    pub fn occur_in(&self, history: &[Entry]) -> bool {
        let mut missing: Vec<&str> = self.iter().collect();
        for entry in history.iter().rev() {
            if missing.is_empty() {
                return true;
            }
            let text = entry.text.to_lowercase();
            missing.retain(|word| !text.contains(word));
        }
        missing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Role;
    use crate::timestamp::Timestamp;

    #[test]
    fn all_words_occur_in_any_message_and_in_any_case() {
        let said = |text: &str| Entry {
            role: Role::User,
            text: text.into(),
            at: Timestamp::default(),
            turn_id: String::new(),
            kind: None,
            metadata: Default::default(),
        };
        let history = [said("我要退货，Order A-17"), said("Größe ÄRGER"), said("50% (off)")];
        for found in ["", " \t\n", "退货", "order 退货", "a-17\u{0}ärger", "ORDER größe", "(OFF) 50%", "货，o"]
        {
            assert!(Words::of(found).occur_in(&history), "{found}");
        }
        for absent in ["退款", "order refund", "退 款", "a.17", "50%(off)"] {
            assert!(!Words::of(absent).occur_in(&history), "{absent}");
        }
        assert!(!Words::of("x").occur_in(&[]));
    }
}
