//! What turns and runs have in common: the [`Services`] that they work with, why one ends early ([`TurnError`],
//! [`CancelReason`]), and which turn it is ([`TurnId`]). [`speech`] publishes a reply while it is made, [`shown`] has the texts
//! of a plan for prompts, [`stored`] finds workflows and task agents, [`mod@read_back`] reads what was published.

pub mod read_back;
pub mod shown;
pub mod speech;
pub mod stored;

use crate::action::http::HttpCaller;
use crate::action::tool::Tools;
use crate::budget::Budgets;
use crate::execution::shown::ShownPlans;
use crate::execution::stored::StoredDefinitions;
use crate::journal::JournalError;
use crate::knowledge::Library;
use crate::model::{ModelError, Models};
use crate::prompt::Prompts;
use crate::workflow::Flows;
use base::clock::Clock;
use base::config::WorkflowLimits;
use base::http_client::bounded;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Queue, QueueError};
use storage::store::{Store, StoreError};
use thiserror::Error;
use types::timestamp::Timestamp;

/// The most bytes of a reason's detail, which the session document carries.
const MAX_DETAIL: usize = 1_000;

/// The reason of a turn that a budget has ended.
pub(crate) const TOKEN_BUDGET: &str = "token_budget";

/// What turns work with; one per process.
pub struct Services {
    /// Where events go.
    pub queue: Arc<dyn Queue>,
    /// Where journal, plans and agents are.
    pub store: Arc<dyn Store>,
    /// Models by name.
    pub models: Models,
    /// All prompts.
    pub prompts: Prompts,
    /// Plans as prompts show them.
    pub shown: ShownPlans,
    /// Calls skills and tools.
    pub http: HttpCaller,
    /// Functions registered as tools.
    pub tools: Tools,
    /// Functions registered as flows.
    pub flows: Flows,
    /// What agents answer from.
    pub knowledge: Library,
    /// Workflows and task agents.
    pub definitions: Arc<StoredDefinitions>,
    /// The most that a run of a workflow may take.
    pub limits: WorkflowLimits,
    /// The tokens that agents may use.
    pub budgets: Arc<Budgets>,
    /// The setting retention.turns: so long a flow that waits has its steps.
    pub keep_turns: Duration,
    /// What turns and their worker go by.
    pub clock: Clock,
}

impl Services {
    /// Where journals are kept, and the clock of their times.
    pub(crate) fn place(&self) -> (Arc<dyn Store>, Clock) {
        (Arc::clone(&self.store), self.clock.clone())
    }
}

/// Which turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnId {
    /// What its records go under: the id of its first job, unless an earlier turn has that.
    pub id: String,
    /// When the stream took that job.
    pub at: Timestamp,
}

/// Why a turn did not come to its end.
#[derive(Debug, Error)]
pub enum TurnError {
    /// Queue or store are away: the turn is repeated later, and no attempt is counted.
    #[error("{0}")]
    Infrastructure(String),
    /// The lane of another session is full, and the turn has to publish a job there: the turn is repeated later, and no attempt
    /// is counted.
    #[error("{0}")]
    NoRoom(String),
    /// The journal does not match the code that repeats it: repeating is of no use.
    #[error("{0}")]
    Replay(String),
    /// Another worker that believed to hold the lane has taken the turn another way, and was first: the turn is repeated,
    /// over what that one has recorded.
    #[error("{0}")]
    Overtaken(String),
    /// The store refuses or cannot read something of this turn, or the queue what it says: repeated, as an attempt.
    #[error("{0}")]
    Failed(String),
    /// The lane is somebody else's by now: nothing more of this turn may be seen.
    #[error("the lane was taken over")]
    Lost,
    /// An operator cancels the turn: it is given up.
    #[error("the turn is cancelled")]
    Cancelled,
}

/// Why a turn has to be cancelled: `reason`, `reason: detail` on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelReason {
    /// One of the words of CONTRACT.md.
    pub word: &'static str,
    /// More, for operators.
    pub detail: String,
}

impl CancelReason {
    /// A reason with detail; an empty one is left out.
    pub fn new(word: &'static str, detail: impl Into<String>) -> Self {
        Self { word, detail: bounded(&detail.into(), MAX_DETAIL) }
    }

    /// No model has answered, or none was to be asked.
    pub fn of_model(error: &ModelError) -> Self {
        let word = if matches!(error, ModelError::Spent { .. }) { TOKEN_BUDGET } else { "model_unavailable" };
        Self::new(word, error.to_string())
    }

    /// An operator has said so.
    pub fn operator(reason: Option<&str>, by: Option<&str>) -> Self {
        Self::new("operator", [by, reason].into_iter().flatten().collect::<Vec<_>>().join(": "))
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
            JournalError::Halted => Self::Infrastructure(error.to_string()),
            JournalError::Cancelled => Self::Cancelled,
            JournalError::Mismatch { .. } | JournalError::Unreadable { .. } => Self::Replay(error.to_string()),
            JournalError::Overtaken { .. } => Self::Overtaken(error.to_string()),
        }
    }
}

impl From<StoreError> for TurnError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Infrastructure(error.to_string()),
            StoreError::Damaged { .. } | StoreError::Refused(_) => Self::Failed(error.to_string()),
        }
    }
}

impl From<QueueError> for TurnError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Unavailable(_) | QueueError::Full(_) => Self::Infrastructure(error.to_string()),
            QueueError::TooLarge { .. } | QueueError::Refused(_) => Self::Failed(error.to_string()),
        }
    }
}
