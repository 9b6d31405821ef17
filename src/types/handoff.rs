//! The handoff of a conversation to a human: who may write to the user, who waits for whom, and notes between
//! colleagues.

use crate::excerpt::cut;
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest number of notes of a handoff. Further ones displace the oldest.
pub const MAX_NOTES: usize = 50;
/// The largest size of one note, in bytes.
pub const MAX_NOTE: usize = 4 * 1024;
/// The largest number of texts that a handoff holds back.
pub const MAX_HELD: usize = 10;
/// The largest size of one held text, in bytes.
pub const MAX_HELD_TEXT: usize = 8 * 1024;
/// The largest size of a person's name, in bytes.
pub const MAX_NAME: usize = 256;

/// The name of a person without a login, on a gateway that serves only its own machine.
pub const NAMELESS: &str = "local";

/// The handoff of a conversation to a human.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Handoff {
    /// The turn that handed the conversation off; of a takeover the turn of the command.
    pub turn_id: String,
    /// When the handoff began.
    pub since: Timestamp,
    /// The summary for the service desk.
    #[serde(default)]
    pub summary: String,
    /// True if a human took the conversation over, without a handoff by the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
    /// The person who may write to the user. Without a claim the conversation waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Notes for colleagues, oldest first. Neither the user nor the model reads them.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// When the oldest user's message arrived that no human has answered; at first when the handoff began. Absent while
    /// nothing waits for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// The number of the user's messages since the last reply of a human.
    #[serde(default)]
    pub unread: u32,
    /// Texts that the agent wanted to send when a human took the conversation over, or later. They are never sent.
    #[serde(default)]
    pub held: Vec<HeldText>,
}

/// The right of one person to write in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The person.
    pub by: String,
    /// When the claim began.
    pub at: Timestamp,
    /// When the claim ends unless the person answers. Absent while nothing waits for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A note for colleagues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// The id of the note: that of the turn which added it.
    pub id: String,
    /// Who wrote it.
    pub by: String,
    /// When it was added.
    pub at: Timestamp,
    /// The text.
    pub text: String,
}

/// A text that the agent had decided to send, and did not send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldText {
    /// The text.
    pub text: String,
    /// When the agent decided to send it.
    pub at: Timestamp,
}

impl Handoff {
    /// A handoff that begins now. The user waits for an answer.
    pub fn begin(turn_id: &str, now: Timestamp, unread: u32) -> Self {
        Self { turn_id: turn_id.to_owned(), since: now, waiting_since: Some(now), unread, ..Self::default() }
    }

    /// The claim of a person other than `name`.
    pub fn claim_of_another(&self, name: &str) -> Option<&Claim> {
        self.claim.as_ref().filter(|claim| claim.by != name)
    }

    /// Gives the claim to `name` until the given time. A claim that the person already has is renewed.
    pub fn give_to(&mut self, name: &str, now: Timestamp, until: Timestamp) {
        let at = self.claim.as_ref().filter(|claim| claim.by == name).map_or(now, |claim| claim.at);
        self.claim = Some(Claim { by: name.to_owned(), at, until: Some(until) });
    }

    /// Counts messages of the user, the first of which arrived at this time.
    pub fn count_messages(&mut self, count: usize, at: Timestamp) {
        self.unread = self.unread.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        self.waiting_since.get_or_insert(at);
    }

    /// Records that a human has answered: nothing waits, and the claim has no end until the user's next message.
    pub fn answered(&mut self) {
        self.waiting_since = None;
        self.unread = 0;
        if let Some(claim) = &mut self.claim {
            claim.until = None;
        }
    }

    /// Holds a text of the agent back, cut at its limit. The oldest texts beyond the limit are dropped.
    pub fn hold(&mut self, held: HeldText) {
        let HeldText { text, at } = held;
        self.held.push(HeldText { text: cut(&text, MAX_HELD_TEXT).into_owned(), at });
        let excess = self.held.len().saturating_sub(MAX_HELD);
        self.held.drain(..excess);
    }

    /// Adds a note, cut at its limit. The oldest notes beyond the limit are dropped.
    pub fn add_note(&mut self, note: Note) {
        self.notes.push(Note { text: cut(&note.text, MAX_NOTE).into_owned(), ..note });
        let excess = self.notes.len().saturating_sub(MAX_NOTES);
        self.notes.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_handoff_of_an_earlier_version_is_read() {
        let old = serde_json::json!({"turn_id": "m-1", "since": at(7), "summary": "退款"});
        let read: Handoff = serde_json::from_value(old).unwrap();
        assert_eq!(read, Handoff { turn_id: "m-1".into(), since: at(7), summary: "退款".into(), ..Handoff::default() });
    }

    #[test]
    fn a_reply_ends_the_wait_and_the_next_message_begins_another() {
        let mut handoff = Handoff::begin("m-1", at(1), 1);
        handoff.give_to("li", at(2), at(9));
        handoff.count_messages(2, at(3));
        assert_eq!((handoff.unread, handoff.waiting_since), (3, Some(at(1))), "the first one waits longest");
        handoff.answered();
        assert_eq!((handoff.unread, handoff.waiting_since), (0, None));
        assert_eq!(handoff.claim, Some(Claim { by: "li".into(), at: at(2), until: None }));
        handoff.count_messages(1, at(5));
        assert_eq!((handoff.unread, handoff.waiting_since), (1, Some(at(5))));
    }

    #[test]
    fn a_renewed_claim_keeps_its_beginning_and_another_person_s_begins_now() {
        let mut handoff = Handoff::begin("m-1", at(1), 0);
        handoff.give_to("li", at(2), at(9));
        handoff.give_to("li", at(3), at(10));
        assert_eq!(handoff.claim, Some(Claim { by: "li".into(), at: at(2), until: Some(at(10)) }));
        assert!(handoff.claim_of_another("li").is_none() && handoff.claim_of_another("wang").is_some());
        handoff.give_to("wang", at(4), at(11));
        assert_eq!(handoff.claim, Some(Claim { by: "wang".into(), at: at(4), until: Some(at(11)) }));
    }

    #[test]
    fn notes_are_limited_in_number_and_size() {
        let mut handoff = Handoff::default();
        for number in 0..MAX_NOTES + 3 {
            let text = "字".repeat(MAX_NOTE);
            handoff.add_note(Note { id: number.to_string(), by: "li".into(), at: at(0), text });
        }
        assert_eq!((handoff.notes.len(), handoff.notes[0].id.as_str()), (MAX_NOTES, "3"));
        assert!(handoff.notes.iter().all(|note| note.text.len() < MAX_NOTE + 64));
    }
}
