//! The facts of a finished run: plain data for the checker, and for `facts.json` after a failure.

use super::agents::Manner;
use super::conversations::Target;
use serde::Serialize;
use std::sync::Arc;
use types::authoring;
use types::cause::Cause;
use types::event::{Reply, StatusEvent, TurnEvent};
use types::session::Session;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// All facts of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RunEvidence {
    /// Messages; those of one session in the order of their publication.
    pub(super) sent: Vec<SentMessage>,
    /// Invalid jobs.
    pub(super) bad: Vec<SentInvalidJob>,
    /// Session documents.
    pub(super) sessions: Vec<Session>,
    /// Turn records.
    pub(super) turns: Vec<TurnRecord>,
    /// Replies in stream order.
    pub(super) replies: Vec<Reply>,
    /// Status events in stream order.
    pub(super) statuses: Vec<SeenStatus>,
    /// Ends of turns that are events of their own, in stream order.
    pub(super) ends: Vec<TurnEvent>,
    /// Events of authoring dialogues, in stream order.
    pub(super) authoring: Vec<Arc<authoring::Event>>,
    /// Authoring dialogues.
    pub(super) dialogues: Vec<SeenDialogue>,
    /// Dead letters.
    pub(super) letters: Vec<Letter>,
    /// Calls of actions in the order of their arrival.
    pub(super) calls: Vec<ActionCall>,
    /// Jobs that remain in the stream.
    pub(super) jobs_left: u64,
    /// Problems of the run itself, such as a process that ended unexpectedly.
    pub(super) troubles: Vec<String>,
}

/// A published message.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SentMessage {
    pub(super) session_id: String,
    pub(super) job_id: String,
    pub(super) text: String,
    pub(super) manner: Manner,
    /// At least one publish was acknowledged.
    pub(super) accepted: bool,
}

/// An invalid job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SentInvalidJob {
    pub(super) session_id: String,
    pub(super) payload: String,
    pub(super) cause: Cause,
    /// A publish was acknowledged.
    pub(super) accepted: bool,
    /// Number of publishes; more than one if an acknowledgement was missing.
    pub(super) sends: u32,
}

/// A status event with its message id.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SeenStatus {
    pub(super) id: String,
    pub(super) event: StatusEvent,
}

/// An authoring dialogue as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct SeenDialogue {
    pub(super) session_id: String,
    /// The stage in the session document.
    pub(super) session_stage: String,
    /// The stages in the states of the session, of which there must be one.
    pub(super) stages: Vec<String>,
}

/// A dead letter.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Letter {
    pub(super) session_id: String,
    pub(super) cause: Cause,
    pub(super) job_id: Option<String>,
    pub(super) payload: String,
}

/// One call of an action.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ActionCall {
    /// Idempotency key: `<session>/<turn>/<step>`.
    pub(super) key: String,
    /// Target and tag; `None` for a follow-up.
    pub(super) asked: Option<(Target, String)>,
    /// Identifies the effect; `None` if the API refused the call before it had one.
    pub(super) receipt: Option<String>,
    /// The key was known, so the call had no second effect.
    pub(super) repeated: bool,
    pub(super) at: Timestamp,
}

impl ActionCall {
    /// Session and turn of the call, from its key.
    pub(super) fn turn(&self) -> (&str, &str) {
        let mut parts = self.key.splitn(3, '/');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }
}
