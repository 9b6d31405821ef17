//! What is published on `tw.out.…` (CONTRACT.md, "Reply" and "Status").

use crate::status::Status;
use crate::timestamp::Timestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A payload as text, for documents that hold one.
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
    /// A text for the user.
    Reply,
    /// A status transition.
    Status,
    /// A finished step.
    Step,
    /// A workflow event.
    Run,
}

impl EventType {
    /// The token.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Status => "status",
            Self::Step => "step",
            Self::Run => "run",
        }
    }

    /// The type that a token names.
    pub fn from_token(token: &str) -> Option<Self> {
        [Self::Reply, Self::Status, Self::Step, Self::Run].into_iter().find(|kind| kind.as_str() == token)
    }
}

/// What a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyKind {
    /// The agent's greeting.
    Greeting,
    /// Said before an action runs.
    Interim,
    /// The answer.
    Response,
    /// Said before a human takes over; or what the human says.
    Handoff,
    /// A follow-up's message.
    Timer,
    /// The turn failed.
    Apology,
    /// A part of a streamed text.
    Chunk,
    /// The whole text of a flow or stream.
    Final,
}

impl ReplyKind {
    /// The lower-case name used on every wire.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reply {
    /// `<session_id>/<turn_id>/<key>`, the same however often the turn is repeated.
    pub reply_id: String,
    /// The session.
    pub session_id: String,
    /// The agent.
    pub agent_id: String,
    /// The user.
    pub user_id: String,
    /// The channel.
    pub channel: String,
    /// The turn.
    pub turn_id: String,
    /// What it is.
    pub kind: ReplyKind,
    /// The words.
    pub text: String,
    /// Counts the chunks of one text.
    pub seq: u64,
    /// Shared by the chunks of one text and the whole one that follows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
    /// The stream whose place this takes: what was said in it is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    /// When it was made.
    pub at: Timestamp,
    /// Sources and the like.
    #[schema(value_type = Object)]
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// A status transition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusEvent {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The status from now on.
    pub status: Status,
    /// The status before.
    pub previous: Status,
    /// Why it is `cancelled`.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// A finished step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepEvent {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The step's path in its turn.
    pub key: String,
    /// The step's kind.
    pub kind: String,
    /// What it called.
    pub target: String,
    /// False when it failed.
    pub ok: bool,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// Any event, for those who read them.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A text for the user.
    Reply(Reply),
    /// A status transition.
    Status(StatusEvent),
    /// A finished step.
    Step(StepEvent),
    /// A workflow event.
    Run(Value),
}

impl Event {
    /// Reads a payload of the given type.
    pub fn decode(event_type: EventType, payload: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(match event_type {
            EventType::Reply => Self::Reply(serde_json::from_slice(payload)?),
            EventType::Status => Self::Status(serde_json::from_slice(payload)?),
            EventType::Step => Self::Step(serde_json::from_slice(payload)?),
            EventType::Run => Self::Run(serde_json::from_slice(payload)?),
        })
    }
}

/// Something for channels and watchers: `tw.out.<channel>.<session>.<type>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutEvent {
    /// The channel.
    pub channel: String,
    /// The session (or run).
    pub session_id: String,
    /// The last token of the subject.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// The stream drops a repeat under the same id within its window.
    pub msg_id: Option<String>,
    /// The event as JSON.
    #[serde(with = "text")]
    pub payload: Bytes,
}
