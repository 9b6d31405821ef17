//! What turns and runs have in common: the [`Services`] that they work with, why one ends early ([`TurnError`],
//! [`CancelReason`]), and which turn it is ([`TurnId`]). [`reply_stream`] publishes a reply while it is made,
//! [`prompt_view`] has the texts of a plan for prompts, [`stored`] finds workflows and task agents, [`mod@read_back`]
//! reads a session's published events.

pub mod prompt_view;
pub(crate) mod read_back;
pub(crate) mod reply_stream;
pub mod stored;

pub use crate::scripts;

use crate::action::http::HttpCaller;
use crate::action::tool::Tools;
use crate::budget::Budgets;
use crate::execution::prompt_view::PlanTextCache;
use crate::execution::stored::StoredDefinitions;
use crate::journal::{Guard, JournalError, LeasedTurn};
use crate::knowledge::Library;
use crate::model::{ModelError, Models};
use crate::prompt::Prompts;
use crate::workbench::Workbench;
use crate::workflow::Flows;
use base::clock::Clock;
use base::config::WorkflowLimits;
use base::error::SharedError;
use base::http_client::bounded;
use connectors::Connectors;
use definitions::coordinator::DecisionLimits;
use sandbox::Sandbox;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Queue, QueueError};
use storage::store::{Store, StoreError};
use thiserror::Error;
use types::session::Session;
use types::timestamp::Timestamp;

/// Limit in bytes on [`CancelReason::detail`], which is stored in the session document.
const MAX_DETAIL: usize = 1_000;

/// The reason of a turn that a budget has ended.
pub(crate) const TOKEN_BUDGET: &str = "token_budget";

/// The reason of a turn that ended because a human took the conversation over.
const TAKEN_OVER: &str = "taken_over";

/// Everything that the turns of a process share: connections, registries and settings.
pub struct Services {
    /// Publishes events and jobs.
    pub queue: Arc<dyn Queue>,
    /// Holds sessions, journals, plans and definitions.
    pub store: Arc<dyn Store>,
    /// Models by name.
    pub models: Models,
    /// Prompt templates by name.
    pub prompts: Arc<Prompts>,
    /// Cache of the texts that plans contribute to prompts.
    pub plan_texts: PlanTextCache,
    /// HTTP client for skills, tools and handoff endpoints.
    pub http: HttpCaller,
    /// Rust functions registered as tools.
    pub tools: Tools,
    /// Rust functions registered as flows.
    pub flows: Flows,
    /// Search indexes over the agents' knowledge files.
    pub knowledge: Library,
    /// Finds workflows and task agents by id and hash.
    pub definitions: Arc<StoredDefinitions>,
    /// Upper bounds for every workflow run.
    pub limits: WorkflowLimits,
    /// Token budgets of the agents, and the tokens that they have used.
    pub budgets: Arc<Budgets>,
    /// The setting `retention.turns`: how long the steps of a turn are kept. A waiting flow cannot continue without
    /// its steps.
    pub keep_turns: Duration,
    /// Whether the journal keeps the prompts of model calls: the setting `journal.prompts`.
    pub keeps_prompts: bool,
    /// The limits of the settings on coordinators' decisions.
    pub decisions: Arc<DecisionLimits>,
    /// Runs and checks the scripts of PYTHON nodes.
    pub sandbox: Arc<Sandbox>,
    /// The databases of DATABASE nodes.
    pub connectors: Arc<Connectors>,
    /// What authoring dialogues need: catalogue, checks and rehearsals, publication.
    pub workbench: Arc<Workbench>,
    /// True for turns of a draft that is tried or rehearsed: no metric of the process counts them.
    pub rehearses: bool,
    /// Source of all timestamps and timeouts.
    pub clock: Clock,
}

impl Services {
    /// The turn `turn_id` of a lane that is held under the epoch of `session`, for its journal.
    pub(crate) fn leased_turn<'t>(&self, session: &'t Session, turn_id: &'t str, guard: Guard) -> LeasedTurn<'t> {
        let (store, clock) = (Arc::clone(&self.store), self.clock.clone());
        let prompt_mask = self.keeps_prompts.then(|| self.http.masker());
        let (session_id, epoch) = (session.session_id.as_str(), session.epoch);
        LeasedTurn { store, clock, session_id, turn_id, epoch, guard, prompt_mask }
    }
}

/// Identity of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnId {
    /// Key of the turn's record and steps: the id of its first job, unless an earlier turn already uses that id.
    pub id: String,
    /// Time at which the queue stored that job.
    pub at: Timestamp,
}

/// Why a turn has no change to commit.
#[derive(Debug, Error)]
pub enum TurnError {
    /// The queue or the store is unreachable. The turn is repeated later, and the attempt does not count.
    #[error("{0}")]
    Infrastructure(#[source] SharedError),
    /// The turn must publish a job to another session's lane, and that lane is full. The turn is repeated later, and
    /// the attempt does not count.
    #[error("{0}")]
    NoRoom(#[source] SharedError),
    /// A newer version of the program wrote a step or another document that the turn needs. A worker of that version
    /// continues the turn, and the attempt does not count.
    #[error("{0}")]
    Newer(#[source] SharedError),
    /// The journal does not match the code that replays it. Another attempt would fail in the same way.
    #[error("{0}")]
    Replay(#[source] SharedError),
    /// Another worker, which also believed that it held the lease, recorded a different step first. The turn is
    /// repeated and replays that worker's steps.
    #[error("{0}")]
    Overtaken(#[source] SharedError),
    /// The store refuses or cannot read data of this turn, or the queue refuses an event of it. The turn is repeated,
    /// and the attempt counts.
    #[error("{0}")]
    Failed(#[source] SharedError),
    /// Another worker has taken over the lane. This worker must not publish or write anything else for the turn.
    #[error("the lane was taken over")]
    Lost,
    /// An operator has cancelled the turn. The worker ends it with [`give_up`](crate::turn::give_up).
    #[error("the turn is cancelled")]
    Cancelled,
}

/// Why a turn is cancelled. On the wire `word`, or `word: detail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelReason {
    /// Machine-readable reason, one of those listed in `docs/contract/nats.md`.
    pub word: &'static str,
    /// Explanation for operators; may be empty.
    pub detail: String,
}

impl CancelReason {
    /// Creates a reason, and cuts `detail` to its limit. `detail` may be empty.
    pub fn new(word: &'static str, detail: impl Into<String>) -> Self {
        Self { word, detail: bounded(&detail.into(), MAX_DETAIL) }
    }

    /// Reason for a model call that failed: `token_budget` if a budget is spent, else `model_unavailable`.
    pub(crate) fn from_model_error(error: &ModelError) -> Self {
        let word = if matches!(error, ModelError::Spent { .. }) { TOKEN_BUDGET } else { "model_unavailable" };
        Self::new(word, error.to_string())
    }

    /// Reason for an operator's command, with the operator's name and the text that they gave.
    pub fn operator(reason: Option<&str>, by: Option<&str>) -> Self {
        Self::by_person("operator", reason, by)
    }

    /// Reason for the command of a human who takes the conversation over.
    pub fn takeover(reason: Option<&str>, by: Option<&str>) -> Self {
        Self::by_person(TAKEN_OVER, reason, by)
    }

    fn by_person(word: &'static str, reason: Option<&str>, by: Option<&str>) -> Self {
        Self::new(word, [by, reason].into_iter().flatten().collect::<Vec<_>>().join(": "))
    }

    /// True if a human takes the conversation over.
    pub fn is_takeover(&self) -> bool {
        self.word == TAKEN_OVER
    }

    /// True if this is the reason of a turn that a takeover has ended.
    pub(crate) fn was_takeover(reason: &str) -> bool {
        reason.strip_prefix(TAKEN_OVER).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    }
}

impl std::fmt::Display for CancelReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.detail.is_empty() { f.write_str(self.word) } else { write!(f, "{}: {}", self.word, self.detail) }
    }
}

impl From<JournalError> for TurnError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Store(error) => error.into(),
            JournalError::Lost => Self::Lost,
            JournalError::Halted => Self::Infrastructure(error.into()),
            JournalError::Cancelled => Self::Cancelled,
            JournalError::Mismatch { .. } | JournalError::Unreadable { .. } => Self::Replay(error.into()),
            JournalError::Overtaken { .. } => Self::Overtaken(error.into()),
        }
    }
}

impl From<StoreError> for TurnError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Infrastructure(error.into()),
            StoreError::Newer { .. } => Self::Newer(error.into()),
            StoreError::Damaged { .. } | StoreError::Refused(_) => Self::Failed(error.into()),
        }
    }
}

impl From<QueueError> for TurnError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Unavailable(_) | QueueError::Full(_) => Self::Infrastructure(error.into()),
            QueueError::TooLarge { .. } | QueueError::Refused(_) => Self::Failed(error.into()),
        }
    }
}
