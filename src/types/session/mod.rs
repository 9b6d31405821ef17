//! The session document and its rules, without any storage: [`status`] has the legal transitions, [`history`] the
//! bounded conversation, [`transcript`] the same as one text.

pub mod history;

pub mod transcript;

pub use crate::status::{IllegalTransition, Status};
pub use history::{Entry, Role};
pub use transcript::Transcript;

use crate::event::OutEvent;
use crate::timer::Timer;
use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// How many job ids a session remembers to drop repeats (CONTRACT.md).
pub const RECENT_JOBS: usize = 100;

/// The state that the workflow engine keeps for a session (E-01).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkflowState {
    /// md5 of the agent configuration that the session last ran with; empty before its first turn.
    pub hash: String,
    /// True until the greeting of `hash` has been sent.
    pub need_greeting: bool,
    /// Where the session stands.
    pub status: Status,
}

impl Default for WorkflowState {
    fn default() -> Self {
        Self { hash: String::new(), need_greeting: true, status: Status::Ready }
    }
}

/// What a session is for (K-02).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A conversation that comes from the queue.
    #[default]
    Chat,
    /// A dialogue with the workflow authoring agent.
    Authoring,
    /// No conversation: the lane of a workflow's run.
    Run,
}

/// Who holds a session's lane, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The worker process.
    pub owner: String,
    /// When the lease ends unless renewed, by the store's clock.
    pub until: Timestamp,
    /// Tells two acquisitions by one worker apart.
    #[serde(default)]
    pub token: String,
}

/// What the turn in hand began with, so that whoever repeats it begins alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// Sequence of the job that the pinned configuration is for; 0 when nothing is pinned.
    #[serde(default)]
    pub seq: u64,
    /// The agent of that job.
    #[serde(default)]
    pub agent_id: String,
    /// The configuration that the turn runs with.
    #[serde(default)]
    pub hash: String,
    /// The session's status when the turn began.
    pub status: Status,
    /// When it began, by the store's clock.
    pub at: Timestamp,
    /// How often it has been begun without an end; graceful hand-backs do not count.
    pub attempt: u32,
}

/// A human has the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Handoff {
    /// The turn that handed over.
    pub turn_id: String,
    /// When it did.
    pub since: Timestamp,
    /// The summary given to the desk.
    #[serde(default)]
    pub summary: String,
}

/// A flow has asked the user something, and goes on with the next message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// The FLOW target.
    pub flow: String,
    /// The agent that routed to it.
    pub agent_id: String,
    /// The turn that began it, whose journal has its steps.
    pub turn_id: String,
    /// What their keys begin with.
    pub prefix: String,
    /// How many questions it has asked, this one included.
    pub asked: u32,
    /// What the user was asked; of a long question the beginning.
    pub question: String,
    /// Answers that it has named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The run that waits, when the flow is a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// When the flow began.
    pub began_at: Timestamp,
    /// When it asked.
    pub asked_at: Timestamp,
    /// When it is forgotten without an answer.
    pub until: Timestamp,
}

/// One conversation of one user with one agent, as it is stored (CONTRACT.md, `sessions`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Key of the session.
    #[serde(alias = "_id")]
    pub session_id: String,
    /// The agent that answers.
    #[serde(default)]
    pub agent_id: String,
    /// The user, as the channel names them.
    #[serde(default)]
    pub user_id: String,
    /// The channel that replies go to.
    #[serde(default)]
    pub channel: String,
    /// What the session is for.
    #[serde(default)]
    pub kind: Kind,
    /// Configuration hash, greeting flag and status.
    #[serde(default)]
    pub workflow_state: WorkflowState,
    /// Why the status is `cancelled`.
    #[serde(default)]
    pub status_reason: Option<String>,
    /// What `update_profile` has collected.
    #[schema(value_type = Object)]
    #[serde(default)]
    pub profile: Map<String, Value>,
    /// The last entries of the conversation, oldest first; shared, since a turn passes its session on several times.
    #[schema(value_type = Vec<Entry>)]
    #[serde(default)]
    pub history: Arc<Vec<Entry>>,
    /// The same as prompts show it, where it is known.
    #[schema(ignore)]
    #[serde(skip)]
    pub transcript: Transcript,
    /// Pending timers, all of `timer_generation`.
    #[serde(default)]
    pub timers: Vec<Timer>,
    /// Raised by every user turn, which cancels the timers of earlier generations.
    #[serde(default)]
    pub timer_generation: u64,
    /// When the stream was made that `last_seq` and `pending_seq` count in; unknown until a job has been handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Timestamp>,
    /// Everything up to this stream sequence has been handled.
    #[serde(default)]
    pub last_seq: u64,
    /// When the stream took the last message that was handled: none that it took later has been handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// The highest sequence that some worker was woken for.
    #[serde(default)]
    pub pending_seq: u64,
    /// Raised with every acquisition; fences stale workers.
    #[serde(default)]
    pub epoch: u64,
    /// The holder of the lane, if any.
    #[schema(ignore)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The turn in hand, if any.
    #[schema(ignore)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<OpenTurn>,
    /// Set while a human has the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Handoff>,
    /// Set while a flow waits for the user's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Box<Waiting>>,
    /// The ids of the last jobs handled, oldest first.
    #[schema(value_type = Vec<String>)]
    #[serde(default)]
    pub recent_jobs: Arc<Vec<String>>,
    /// When the conversation was closed, until the user writes again.
    #[serde(default)]
    pub closed_at: Option<Timestamp>,
    /// Tokens of prompts and answers that the conversation has used since it was opened.
    #[serde(default)]
    pub tokens: u64,
    /// What the last turn has said at its end: published after its commit, by whoever gets to it.
    #[schema(ignore)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<OutEvent>,
    /// True when `outbox` is left out here, though the store has it: it is seldom needed, and the largest part of many sessions.
    #[schema(ignore)]
    #[serde(skip)]
    pub outbox_unread: bool,
    /// When the first message came.
    pub created_at: Timestamp,
    /// When the document last changed.
    pub updated_at: Timestamp,
}

impl Session {
    /// A session as its first message finds it.
    pub fn new(session_id: impl Into<String>, now: Timestamp) -> Self {
        Self {
            session_id: session_id.into(),
            agent_id: String::new(),
            user_id: String::new(),
            channel: String::new(),
            kind: Kind::Chat,
            workflow_state: WorkflowState::default(),
            status_reason: None,
            profile: Map::new(),
            history: Arc::default(),
            transcript: Transcript::default(),
            timers: Vec::new(),
            timer_generation: 0,
            stream: None,
            last_seq: 0,
            last_at: None,
            pending_seq: 0,
            epoch: 0,
            lease: None,
            turn: None,
            handoff: None,
            waiting: None,
            recent_jobs: Arc::default(),
            closed_at: None,
            tokens: 0,
            outbox: Vec::new(),
            outbox_unread: false,
            created_at: now,
            updated_at: now,
        }
    }

    /// True when the session may have handled jobs that `recent_jobs` has forgotten.
    pub fn forgets_jobs(&self) -> bool {
        self.recent_jobs.len() >= RECENT_JOBS
    }

    /// True when `job_id` is among the jobs handled last.
    pub fn has_handled(&self, job_id: &str) -> bool {
        self.recent_jobs.iter().any(|known| known == job_id)
    }
}

/// Appends job ids, keeping the last [`RECENT_JOBS`].
pub fn remember_jobs(recent: &mut Vec<String>, jobs: &[String]) {
    recent.extend_from_slice(jobs);
    let excess = recent.len().saturating_sub(RECENT_JOBS);
    recent.drain(..excess);
}
