//! The session document and the rules for it, without any storage: [`status`](crate::status) has the legal status
//! transitions, [`history`] the bounded conversation, [`transcript`] the conversation as one text for prompts,
//! [`search`] the words that a listing looks for.

pub mod history;
pub mod search;

pub mod transcript;

pub use crate::handoff::{Claim, Handoff};
pub use crate::status::{IllegalTransition, Status};
pub use history::{Entry, Role};
pub use search::Words;
pub use transcript::Transcript;

use crate::event::OutEvent;
use crate::timer::Timer;
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// How many job ids a session remembers, to recognise repeated jobs.
pub const RECENT_JOBS: usize = 100;

/// The engine's state of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowState {
    /// Hash of the agent configuration that the session last ran with; empty before the first turn.
    pub hash: String,
    /// True until the greeting of this configuration has been sent.
    pub need_greeting: bool,
    /// Where the session stands in its current turn.
    pub status: Status,
}

impl Default for WorkflowState {
    fn default() -> Self {
        Self { hash: String::new(), need_greeting: true, status: Status::Ready }
    }
}

/// The purpose of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A conversation with a user through a channel.
    #[default]
    Chat,
    /// A dialogue with the workflow authoring agent.
    Authoring,
    /// The lane of a workflow's run, without a conversation.
    Run,
}

/// The lease of a lane: its holder and its expiry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Id of the worker process that holds the lease.
    pub owner: String,
    /// When the lease expires unless it is renewed, by the store's clock.
    pub until: Timestamp,
    /// Distinguishes two acquisitions by the same worker.
    #[serde(default)]
    pub token: String,
}

/// The state in which the current turn started. An attempt that repeats the turn starts from the same state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// Stream sequence of the job that the configuration is pinned for; 0 if none is pinned.
    #[serde(default)]
    pub seq: u64,
    /// The agent of this job.
    #[serde(default)]
    pub agent_id: String,
    /// Hash of the configuration that the turn runs with.
    #[serde(default)]
    pub hash: String,
    /// The session's status when the turn started.
    pub status: Status,
    /// When the turn started, by the store's clock.
    pub at: Timestamp,
    /// How many attempts have started. An attempt that a worker's stop interrupts does not count.
    pub attempt: u32,
}

/// A flow that has asked the user a question and waits for the answer in the next message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The flow, as named in the FLOW action.
    pub flow: String,
    /// The agent that started the flow.
    pub agent_id: String,
    /// The turn that started the flow. Its journal has the flow's steps.
    pub turn_id: String,
    /// Prefix of the keys of these steps.
    pub prefix: String,
    /// How many questions the flow has asked so far, including this one.
    pub asked: u32,
    /// The question, cut at its limit.
    pub question: String,
    /// The suggested answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The waiting run, if the flow is a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// When the flow started.
    pub began_at: Timestamp,
    /// When the flow asked the question.
    pub asked_at: Timestamp,
    /// When the flow is dropped unless the user answers.
    pub until: Timestamp,
}

/// A task that a coordinator agent has suspended until the user's next message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// The agent that asked.
    pub agent_id: String,
    /// The turn that asked.
    pub turn_id: String,
    /// The question, cut at its limit.
    pub question: String,
    /// The suggested answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Names of the facts that the agent needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_fields: Vec<String>,
    /// The agent's notes about the task.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// Decisions that the question has put off: `{decision_type, payload}`. The agent decides them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<Value>,
    /// Results of the turn that asked: `{name, result}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Value>,
    /// When the agent asked.
    pub asked_at: Timestamp,
    /// When the task is dropped unless the user answers.
    pub until: Timestamp,
}

/// One conversation of one user with one agent, as stored in `sessions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Id of the session.
    #[serde(alias = "_id")]
    pub session_id: String,
    /// The agent of the conversation.
    #[serde(default)]
    pub agent_id: String,
    /// The channel's id of the user.
    #[serde(default)]
    pub user_id: String,
    /// The channel under which replies are published.
    #[serde(default)]
    pub channel: String,
    /// The purpose of the session.
    #[serde(default)]
    pub kind: Kind,
    /// Configuration hash, greeting flag and status.
    #[serde(default)]
    pub workflow_state: WorkflowState,
    /// Why the status is `cancelled`.
    #[serde(default)]
    pub status_reason: Option<String>,
    /// The data about the user that `update_profile` has collected.
    #[serde(default)]
    pub profile: Map<String, Value>,
    /// The last entries of the conversation, oldest first.
    // Shared, because a turn hands the session on several times.
    #[serde(default)]
    pub history: Arc<Vec<Entry>>,
    /// The history as one text for prompts, cached while the session is in memory.
    #[serde(skip)]
    pub transcript: Transcript,
    /// Pending timers. All of them belong to `timer_generation`.
    #[serde(default)]
    pub timers: Vec<Timer>,
    /// Each user turn raises it, which cancels the timers of earlier generations.
    #[serde(default)]
    pub timer_generation: u64,
    /// When the stream was created in which `last_seq` and `pending_seq` count. Absent until a job has been handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Timestamp>,
    /// All messages up to this stream sequence have been handled.
    #[serde(default)]
    pub last_seq: u64,
    /// When the stream stored the last handled message. Messages that it stored later have not been handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// The highest stream sequence for which a worker has been woken.
    #[serde(default)]
    pub pending_seq: u64,
    /// Number of the lease. Each acquisition raises it; a write with an older epoch is rejected.
    #[serde(default)]
    pub epoch: u64,
    /// The lease of the lane; absent if no worker holds it.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The current turn; absent between turns.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<OpenTurn>,
    /// The handoff, while a human has the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Handoff>,
    /// The pending question, while a flow waits for the user's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Box<Waiting>>,
    /// The suspended task, while a coordinator agent waits for the user's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<Task>>,
    /// The session's plan that was last created, changed or run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_workflow: Option<String>,
    /// Ids of the last handled jobs, oldest first.
    #[serde(default)]
    pub recent_jobs: Arc<Vec<String>>,
    /// When the conversation was closed. Cleared when the user writes again.
    #[serde(default)]
    pub closed_at: Option<Timestamp>,
    /// Tokens of prompts and answers that the conversation has used since it was opened.
    #[serde(default)]
    pub tokens: u64,
    /// Events of the last turn. A worker publishes them after the commit; after a crash, the next lease holder does.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<OutEvent>,
    /// True if this copy lacks the `outbox` that the store has. Loading skips it where possible: it is seldom needed,
    /// and the largest part of many session documents.
    #[serde(skip)]
    pub outbox_unread: bool,
    /// When the session's first message was handled.
    pub created_at: Timestamp,
    /// When the document last changed.
    pub updated_at: Timestamp,
}

impl Session {
    /// A new session, before its first message.
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
            task: None,
            current_workflow: None,
            recent_jobs: Arc::default(),
            closed_at: None,
            tokens: 0,
            outbox: Vec::new(),
            outbox_unread: false,
            created_at: now,
            updated_at: now,
        }
    }

    /// True if the session may have handled jobs whose ids are no longer in `recent_jobs`.
    pub fn forgets_jobs(&self) -> bool {
        self.recent_jobs.len() >= RECENT_JOBS
    }

    /// The pending timer that a job fires; `None` if it was cancelled, has fired, or belongs to an older generation.
    pub fn armed(&self, timer_id: &str, generation: u64) -> Option<&Timer> {
        self.timers.iter().find(|timer| timer.timer_id == timer_id && timer.generation == generation)
    }

    /// True if `job_id` is in `recent_jobs`.
    pub fn has_handled(&self, job_id: &str) -> bool {
        self.recent_jobs.iter().any(|known| known == job_id)
    }
}

/// Appends job ids to `recent` and keeps the last [`RECENT_JOBS`].
pub fn remember_jobs(recent: &mut Vec<String>, jobs: &[String]) {
    recent.extend_from_slice(jobs);
    let excess = recent.len().saturating_sub(RECENT_JOBS);
    recent.drain(..excess);
}
