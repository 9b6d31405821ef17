//! Events: the messages on `tw.out.…` for channels and watchers. docs/contract/nats.md describes their fields.

use crate::authoring;
use crate::handoff::Handoff;
use crate::outcome::Outcome;
use crate::status::Status;
use crate::timestamp::Timestamp;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Serialises a payload as text, for documents that contain events.
pub(super) mod text {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer, de, ser};

    pub(crate) fn serialize<S: Serializer>(payload: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(std::str::from_utf8(payload).map_err(ser::Error::custom)?)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        String::deserialize(from).map(Bytes::from).map_err(de::Error::custom)
    }
}

/// The last token of an event's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    /// A text for the user, see [`Reply`].
    Reply,
    /// A status transition, see [`StatusEvent`].
    Status,
    /// A step that has ended, or that is under way; see [`StepEvent`].
    Step,
    /// An event of a workflow's run.
    Run,
    /// A coordinator's decision, or the verdict on it.
    Decision,
    /// The end of a turn whose last event is not a status, see [`TurnEvent`].
    Turn,
    /// An event of an authoring dialogue, see [`authoring::Event`].
    Authoring,
    /// A change of a handoff, see [`HandoffEvent`].
    Handoff,
}

impl EventType {
    const ALL: [Self; 8] =
        [Self::Reply, Self::Status, Self::Step, Self::Run, Self::Decision, Self::Turn, Self::Authoring, Self::Handoff];

    /// The last token of the subject.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Status => "status",
            Self::Step => "step",
            Self::Run => "run",
            Self::Decision => "decision",
            Self::Turn => "turn",
            Self::Authoring => "authoring",
            Self::Handoff => "handoff",
        }
    }

    /// Parses the last token of a subject.
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == token)
    }
}

/// The purpose of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyKind {
    /// The agent's greeting.
    Greeting,
    /// A text that precedes an action of the turn.
    Interim,
    /// The agent's answer.
    Response,
    /// The text before a human takes over, or a text of this human.
    Handoff,
    /// The message of a follow-up timer.
    Timer,
    /// The apology for a failed turn.
    Apology,
    /// A part of a text that is still being written.
    Chunk,
    /// The whole text of a flow or of a chunk stream.
    Final,
}

impl ReplyKind {
    /// The lower-case name in JSON and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greeting => "greeting",
            Self::Interim => "interim",
            Self::Response => "response",
            Self::Handoff => "handoff",
            Self::Timer => "timer",
            Self::Apology => "apology",
            Self::Chunk => "chunk",
            Self::Final => "final",
        }
    }
}

/// A text for the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reply {
    /// Idempotency key `<session_id>/<turn_id>/<key>`. It is the same however often the turn is repeated.
    pub reply_id: String,
    /// The session that the reply belongs to.
    pub session_id: String,
    /// The agent that replies.
    pub agent_id: String,
    /// The user to show the reply to.
    pub user_id: String,
    /// The channel that delivers the reply.
    pub channel: String,
    /// The turn that made the reply.
    pub turn_id: String,
    /// The purpose of the reply.
    pub kind: ReplyKind,
    /// The text to show. In a `chunk`: the next part of it.
    pub text: String,
    /// Number of the chunk in its stream, from 0; 0 in all other replies.
    pub seq: u64,
    /// Id of a chunk stream. Its chunks and the whole text that follows them share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
    /// The chunk stream that this reply replaces. Its text no longer counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    /// When the reply was made.
    pub at: Timestamp,
    /// Further data, such as the sources of an answer.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// A status transition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusEvent {
    /// The session whose status changed.
    pub session_id: String,
    /// The turn that changed it.
    pub turn_id: String,
    /// The new status.
    pub status: Status,
    /// The status before the transition.
    pub previous: Status,
    /// Why the status is `cancelled`; null for other statuses.
    pub reason: Option<String>,
    /// When the status changed.
    pub at: Timestamp,
    /// The end of the turn; only in the turn's last event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnEnd>,
}

/// A step that has ended, or one that has been under way for 300 ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepEvent {
    /// The session that the step belongs to.
    pub session_id: String,
    /// The turn that the step belongs to.
    pub turn_id: String,
    /// The path of the step in its turn.
    pub key: String,
    /// The kind of step.
    pub kind: String,
    /// The called model or the action's target.
    pub target: String,
    /// False if the step failed. True while it is under way.
    pub ok: bool,
    /// Duration of the step in milliseconds; of a step that is under way, until now.
    pub ms: u64,
    /// `begin` if the step is under way. Missing if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<StepPhase>,
    /// The start of the turn in which the step has begun, from 1. Only with `phase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When the step began. Only with `phase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// Where a step stands that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepPhase {
    /// It has begun and is under way.
    Begin,
}

impl StepEvent {
    /// The event of a step that has ended.
    pub fn ended(session_id: &str, turn_id: &str, key: &str, kind: &str, target: &str, ok: bool, ms: u64) -> Self {
        let own = str::to_owned;
        let (session_id, turn_id, key) = (own(session_id), own(turn_id), own(key));
        let (kind, target, phase, attempt, at) = (own(kind), own(target), None, None, None);
        Self { session_id, turn_id, key, kind, target, ok, ms, phase, attempt, at }
    }

    /// True if the step has ended.
    pub fn has_ended(&self) -> bool {
        self.phase.is_none()
    }
}

/// The end of a turn of a conversation. The last event of the turn has it as `turn`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnEnd {
    /// Ids of all jobs that the turn handled: one, or all messages that were merged.
    pub jobs: Vec<String>,
    /// How the turn ended.
    pub outcome: Outcome,
    /// How many replies the turn sent, without chunks.
    pub replies: u32,
    /// How often the turn was started.
    pub attempts: u32,
}

/// The end of a turn whose last event is not a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnEvent {
    /// The session that the turn belongs to.
    pub session_id: String,
    /// The turn that has ended.
    pub turn_id: String,
    /// Its end.
    pub turn: TurnEnd,
    /// When the turn was committed.
    pub at: Timestamp,
}

impl TurnEvent {
    /// The last part of the event's message id, `<session_id>/<turn_id>/ended`.
    pub const KEY: &str = "ended";
}

/// The kind of a change of a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HandoffChange {
    /// The conversation was handed off, or taken over.
    Opened,
    /// A person has the claim now, or has renewed it.
    Claimed,
    /// The claim was ended: the conversation waits for another person.
    Unclaimed,
    /// The claim was passed on to another person.
    Transferred,
    /// A note for colleagues was added.
    Noted,
    /// The handoff has ended.
    Released,
    /// The claim has ended because its person did not reply before the timeout.
    Expired,
    /// A reply was not sent, because another person has the claim.
    ReplyRefused,
    /// A person is writing. No turn has this event, and the session document does not change.
    Typing,
}

impl HandoffChange {
    /// The lower-case name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Claimed => "claimed",
            Self::Unclaimed => "unclaimed",
            Self::Transferred => "transferred",
            Self::Noted => "noted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::ReplyRefused => "reply_refused",
            Self::Typing => "typing",
        }
    }
}

/// A change of a handoff, for the people who handle conversations. Channels may ignore it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HandoffEvent {
    /// The session that is handed off.
    pub session_id: String,
    /// The turn that made the change; for `typing` the turn that handed the conversation off.
    pub turn_id: String,
    /// The kind of change.
    pub change: HandoffChange,
    /// Who made the change, or for `transferred`, who passed the claim on. Absent if no person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The handoff after the change. Absent after its end, and for `typing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Handoff>,
    /// When it changed.
    pub at: Timestamp,
}

/// A decoded event.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A text for the user.
    Reply(Reply),
    /// A status transition.
    Status(StatusEvent),
    /// A step that has ended, or that is under way.
    Step(StepEvent),
    /// An event of a workflow's run, as JSON.
    Run(Value),
    /// A decision of a coordinator, or the verdict on it, as JSON.
    Decision(Value),
    /// The end of a turn whose last event is not a status.
    Turn(TurnEvent),
    /// An event of an authoring dialogue.
    Authoring(Arc<authoring::Event>),
    /// A change of a handoff.
    Handoff(Box<HandoffEvent>),
}

impl Event {
    /// Decodes the payload of an event of this type.
    pub fn decode(event_type: EventType, payload: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(match event_type {
            EventType::Reply => Self::Reply(serde_json::from_slice(payload)?),
            EventType::Status => Self::Status(serde_json::from_slice(payload)?),
            EventType::Step => Self::Step(serde_json::from_slice(payload)?),
            EventType::Run => Self::Run(serde_json::from_slice(payload)?),
            EventType::Decision => Self::Decision(serde_json::from_slice(payload)?),
            EventType::Turn => Self::Turn(serde_json::from_slice(payload)?),
            EventType::Authoring => Self::Authoring(Arc::new(serde_json::from_slice(payload)?)),
            EventType::Handoff => Self::Handoff(Box::new(serde_json::from_slice(payload)?)),
        })
    }

    /// The id of the event's turn; `None` for an event of a run.
    pub fn turn_id(&self) -> Option<&str> {
        match self {
            Self::Reply(reply) => Some(&reply.turn_id),
            Self::Status(status) => Some(&status.turn_id),
            Self::Step(step) => Some(&step.turn_id),
            Self::Turn(turn) => Some(&turn.turn_id),
            Self::Authoring(event) => Some(&event.turn_id),
            Self::Handoff(event) => Some(&event.turn_id),
            Self::Run(_) => None,
            Self::Decision(decision) => decision["turn_id"].as_str(),
        }
    }

    /// The id and the end of the turn that ends with this event; `None` for every other event.
    pub fn end(&self) -> Option<(&str, &TurnEnd)> {
        match self {
            Self::Status(status) => Some((&status.turn_id, status.turn.as_ref()?)),
            Self::Turn(turn) => Some((&turn.turn_id, &turn.turn)),
            Self::Reply(_)
            | Self::Step(_)
            | Self::Run(_)
            | Self::Decision(_)
            | Self::Authoring(_)
            | Self::Handoff(_) => None,
        }
    }

    /// The id and the end of the turn that handled this job; `None` for every other event.
    pub fn end_of(&self, job_id: &str) -> Option<(&str, &TurnEnd)> {
        self.end().filter(|(_, end)| end.jobs.iter().any(|job| job == job_id))
    }
}

/// An event to publish on `tw.out.<channel>.<session>.<type>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutEvent {
    /// The channel whose events it belongs to.
    pub channel: String,
    /// The id of the session or run.
    pub session_id: String,
    /// The last token of the subject.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Id for deduplication: the stream drops a second event with this id within its duplicate window.
    pub msg_id: Option<String>,
    /// The event as JSON.
    #[serde(with = "text")]
    pub payload: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_of_a_turn_ends_it_for_all_its_jobs() {
        let (at, jobs) = (Timestamp::from_millis(0), vec!["m-1".into(), "m-2".into()]);
        let end = TurnEnd { jobs, outcome: Outcome::Answered, replies: 1, attempts: 1 };
        let status = |turn| StatusEvent {
            session_id: "s1".into(),
            turn_id: "m-1".into(),
            status: Status::Ready,
            previous: Status::Processing,
            reason: None,
            at,
            turn,
        };
        let turn = TurnEvent { session_id: "s1".into(), turn_id: "m-1".into(), turn: end.clone(), at };
        let last = [
            (EventType::Status, serde_json::to_vec(&status(Some(end.clone())))),
            (EventType::Turn, serde_json::to_vec(&turn)),
        ];
        for (event_type, payload) in last {
            let event = Event::decode(event_type, &payload.unwrap()).unwrap();
            assert_eq!(event.end_of("m-1"), Some(("m-1", &end)));
            assert_eq!(event.end_of("m-2"), Some(("m-1", &end)), "a merged message");
            assert_eq!(event.end_of("m-3"), None);
        }
        assert_eq!(Event::Status(status(None)).end_of("m-1"), None, "not the last status");
    }
}
