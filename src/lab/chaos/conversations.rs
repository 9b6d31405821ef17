//! The language of a run's conversations. The script writes messages in it, the model reads them, and the checker
//! derives the expected replies.
//!
//! A message is `<verb> #<tag>`. The tag is the id of its job, so that every text, action and reply can be traced to
//! its job.

use serde::Serialize;
use std::fmt;

/// Greeting of every new session.
pub(super) const GREETING: &str = "Hello, this is the run.";

/// The request in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// A plain reply.
    Say,
    /// One action, then a reply.
    Order,
    /// Two actions, then a reply.
    OrderEta,
    /// A graph that does two actions concurrently and then replies.
    Errands,
    /// A silent action that updates the profile.
    Note,
    /// A silent action that closes the conversation.
    Bye,
    /// In an authoring dialogue: a wish with a missing fact, so that the model asks for it.
    Wish,
    /// In an authoring dialogue: all facts that a workflow needs.
    Detail,
}

impl Verb {
    const ALL: [Self; 8] =
        [Self::Say, Self::Order, Self::OrderEta, Self::Errands, Self::Note, Self::Bye, Self::Wish, Self::Detail];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Say => "say",
            Self::Order => "order",
            Self::OrderEta => "order-and-eta",
            Self::Errands => "errands",
            Self::Note => "note",
            Self::Bye => "bye",
            Self::Wish => "wish",
            Self::Detail => "detail",
        }
    }

    /// The actions that the request leads to, in order.
    pub(super) const fn targets(self) -> &'static [Target] {
        match self {
            Self::Order => &[Target::Order],
            Self::OrderEta | Self::Errands => &[Target::Order, Target::Eta],
            Self::Say | Self::Note | Self::Bye | Self::Wish | Self::Detail => &[],
        }
    }

    /// True if the request gets no reply.
    pub(super) const fn is_silent(self) -> bool {
        matches!(self, Self::Note | Self::Bye)
    }
}

/// An action with an effect outside of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Target {
    /// A skill.
    Order,
    /// A tool.
    Eta,
}

impl Target {
    /// Id of the action in the agent files.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Eta => "eta",
        }
    }

    /// Type of the action.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Order => "SKILL",
            Self::Eta => "TOOL",
        }
    }
}

/// One message of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScriptMessage {
    pub(super) verb: Verb,
    pub(super) tag: String,
}

impl fmt::Display for ScriptMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.verb.as_str(), self.tag)
    }
}

impl ScriptMessage {
    pub(super) fn new(verb: Verb, tag: impl Into<String>) -> Self {
        Self { verb, tag: tag.into() }
    }

    /// Parses one message.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (verb, tag) = text.trim().split_once(" #")?;
        let verb = Verb::ALL.into_iter().find(|known| known.as_str() == verb)?;
        Some(Self::new(verb, tag))
    }

    /// Parses the messages of a turn, one per line.
    pub(super) fn parse_all(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::parse).collect()
    }
}

/// An action, and the tag of the message that leads to it.
pub(super) type Action<'a> = (Target, &'a str);

/// The actions of a turn, in the order of its messages.
pub(super) fn actions(lines: &[ScriptMessage]) -> Vec<Action<'_>> {
    lines.iter().flat_map(|line| line.verb.targets().iter().map(|target| (*target, line.tag.as_str()))).collect()
}

/// The reply to a turn's messages, given the receipt of each action in order; `None` if the turn is silent.
pub(super) fn answer(lines: &[ScriptMessage], receipts: &[String]) -> Option<String> {
    let mut receipts = receipts.iter();
    let mut said = Vec::new();
    for line in lines.iter().filter(|line| !line.verb.is_silent()) {
        let own: Vec<&str> = line.verb.targets().iter().filter_map(|_| receipts.next()).map(String::as_str).collect();
        said.push(format!("#{}: {}", line.tag, if own.is_empty() { "ok".to_owned() } else { own.join(" and ") }));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// Adds the number of the model call to a reply, so that the texts of two calls always differ.
pub(super) fn worded(answer: &str, call: u64) -> String {
    format!("{answer} ~{call}")
}

/// A reply without the number of the model call.
pub(super) fn plain(text: &str) -> &str {
    match text.rsplit_once(" ~") {
        Some((plain, call)) if call.parse::<u64>().is_ok() => plain,
        _ => text,
    }
}

/// A hash of `text` that decides how long something takes and whether it fails at first.
pub(super) fn fate(text: &str) -> u64 {
    md5::compute(text).0.iter().fold(0, |number, byte| (number << 7) ^ (number >> 57) ^ u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_can_be_read_back() {
        for verb in Verb::ALL {
            let line = ScriptMessage::new(verb, "c1-2");
            assert_eq!(ScriptMessage::parse(&line.to_string()), Some(line));
        }
        assert_eq!(ScriptMessage::parse("hello"), None);
        assert_eq!(ScriptMessage::parse_all("say #a\nnonsense\nbye #b").len(), 2);
    }

    #[test]
    fn an_answer_names_each_message_with_the_receipts_of_its_actions() {
        let lines = [
            ScriptMessage::new(Verb::Say, "a"),
            ScriptMessage::new(Verb::OrderEta, "b"),
            ScriptMessage::new(Verb::Note, "c"),
        ];
        assert_eq!(actions(&lines), [(Target::Order, "b"), (Target::Eta, "b")]);
        let receipts = ["order-1".to_owned(), "eta-2".to_owned()];
        assert_eq!(answer(&lines, &receipts).unwrap(), "#a: ok; #b: order-1 and eta-2");
        assert_eq!(answer(&lines[2..], &[]), None);
        assert_eq!(plain(&worded("#a: ok", 17)), "#a: ok");
        assert_eq!(plain("#a ~ok"), "#a ~ok");
    }
}
