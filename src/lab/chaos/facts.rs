//! What is known about a run when it is over: plain data, for the checker and, after a failure, for a file.

use super::agents::Manner;
use super::talk::Target;
use serde::Serialize;
use types::cause::Cause;
use types::event::{Reply, StatusEvent};
use types::session::Session;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Facts {
    /// Messages, those of one session in the order in which they were published.
    pub(super) sent: Vec<Sent>,
    /// Payloads that are no jobs.
    pub(super) bad: Vec<SentBad>,
    /// Session documents.
    pub(super) sessions: Vec<Session>,
    /// Turns on record.
    pub(super) turns: Vec<TurnRecord>,
    /// Replies in stream order.
    pub(super) replies: Vec<Reply>,
    /// Status events in stream order.
    pub(super) statuses: Vec<SeenStatus>,
    /// Dead letters.
    pub(super) letters: Vec<Letter>,
    /// Calls of actions in the order in which they came.
    pub(super) calls: Vec<Call>,
    /// Jobs left in the stream.
    pub(super) jobs_left: u64,
    /// What went wrong with the run itself, such as a process that ended of its own accord.
    pub(super) troubles: Vec<String>,
}

/// A message as published.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sent {
    pub(super) session_id: String,
    pub(super) job_id: String,
    pub(super) text: String,
    pub(super) manner: Manner,
    /// At least one publish was acknowledged.
    pub(super) accepted: bool,
}

/// A payload that is no job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SentBad {
    pub(super) session_id: String,
    pub(super) payload: String,
    pub(super) cause: Cause,
    /// It was acknowledged.
    pub(super) accepted: bool,
    /// How often it was sent: more than once when an acknowledgement did not come.
    pub(super) sends: u32,
}

/// A status event with the id that it was published under.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SeenStatus {
    pub(super) id: String,
    pub(super) event: StatusEvent,
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
pub(super) struct Call {
    /// Its idempotency key: `<session>/<turn>/<step>`.
    pub(super) key: String,
    /// What was asked for; `None` for a follow-up.
    pub(super) asked: Option<(Target, String)>,
    /// What the effect is known by; `None` when the call was turned away before it had one.
    pub(super) receipt: Option<String>,
    /// The key was known: no second effect.
    pub(super) repeated: bool,
    pub(super) at: Timestamp,
}

impl Call {
    /// The session that the call is for, and its turn.
    pub(super) fn turn(&self) -> (&str, &str) {
        let mut parts = self.key.splitn(3, '/');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }
}
