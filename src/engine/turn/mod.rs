//! The turn: the handling of one job, from the lane's grant to the change that the commit writes.
//!
//! The way through: [`run`] picks by job type. A user's message goes through `opening` (hash check, plan, greeting) into
//! `iterate` (the decision loop), which asks `decide` and has `act` execute; `inform` writes the reply from the agent's
//! knowledge; what is said while it is made goes through its `speech`; `handoff`, `cancel` and `waiting`, of a flow that asks
//! its user, are its side exits. `prompt` says what prompts are filled with, `shown` what of it is a plan's.
//! `fired` handles timers, `control` operator commands, `told` runs that have ended. All of them work on one [`state::Turn`], which collects what the
//! turn changes and publishes.

mod act;
mod cancel;
mod control;
mod decide;
pub mod decision;
mod fired;
mod handoff;
mod inform;
mod iterate;
mod opening;
pub(crate) mod placeholder;
mod prompt;
mod published;
mod shown;
mod speech;
mod state;
mod told;
mod user;
mod waiting;

pub(crate) use fired::is_obsolete;
pub use handoff::HUMAN_REPLY;
pub(crate) use published::read_back;
pub use shown::ShownPlans;
pub(crate) use speech::Speech;

use crate::action::http::HttpCaller;
use crate::action::tool::Tools;
use crate::budget::Budgets;
use crate::journal::{Guard, JournalError};
use crate::knowledge::Library;
use crate::model::{ModelError, Models};
use crate::prompt::Prompts;
use crate::run::StoredDefinitions;
use crate::workflow::Flows;
use base::clock::Clock;
use base::config::WorkflowLimits;
use base::http_client::bounded;
use definitions::agent::AgentRecord;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Queue, QueueError};
use storage::store::records::Change;
use storage::store::{Store, StoreError};
use thiserror::Error;
use types::job::{Job, JobBody};
use types::session::Session;
use types::timestamp::Timestamp;

/// The most bytes of a reason's detail, which the session document carries.
const MAX_DETAIL: usize = 1_000;

/// The reason of a turn that a budget has ended.
const TOKEN_BUDGET: &str = "token_budget";

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

/// What a turn starts from.
#[derive(Clone)]
pub struct TurnInput {
    /// The session as the lane's holder knows it; its `turn` marker is this turn's.
    pub session: Session,
    /// The job; with `double_text: merge`, all jobs of the turn in order.
    pub jobs: Arc<[Job]>,
    /// Which turn it is.
    pub turn: Arc<TurnId>,
    /// The configuration that the turn runs with.
    pub agent: Arc<AgentRecord>,
    /// An earlier holder began the turn.
    pub resumed: bool,
    /// Whether the turn may still act.
    pub guard: Guard,
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

/// Handles a job, up to the change that is to be committed. What the turn has to say at its end is in the change's outbox,
/// to be published after the commit, with what it said on the way and had no time to publish. `None`: the job leaves no
/// trace.
pub async fn run(services: &Services, input: Box<TurnInput>) -> Result<Option<Change>, TurnError> {
    let jobs = Arc::clone(&input.jobs);
    let Some(first) = jobs.first() else { return Ok(None) };
    let turn = state::Turn::open(services, input).await?;
    match &first.body {
        JobBody::UserMessage(_) => turn.user_message().await.map(Some),
        // What is rare is not to take room in every turn that waits.
        JobBody::Timer { timer_id, generation, .. } => Box::pin(turn.fired(timer_id, *generation)).await.map(Some),
        JobBody::Control { left_at: Some(seq), .. } if !turn.is_left_alone(*seq) => turn.nothing().map(Some),
        JobBody::Control { command, name, reason, by, .. } => {
            let why = CancelReason::operator(reason.as_deref(), by.as_deref());
            Box::pin(turn.control(*command, name.as_deref(), &why)).await.map(Some)
        }
        JobBody::Reply { text, by } => turn.human_reply(text, by.clone()).map(Some),
        JobBody::Resume { run_id, outcome } => Box::pin(turn.run_told(run_id, outcome)).await.map(Some),
        JobBody::Run { .. } | JobBody::Wake => Ok(None),
    }
}

/// Ends a turn that cannot go on as `cancelled`, with an apology to the user. Its journal is not read, and its code not run
/// again; what it has published is.
pub async fn give_up(
    services: &Services,
    mut input: Box<TurnInput>,
    reason: CancelReason,
) -> Result<Change, TurnError> {
    input.resumed = false;
    let mut turn = state::Turn::open(services, input).await?;
    turn.count_recorded().await?;
    turn.adopt_published().await?;
    turn.break_off_runs(&reason).await?;
    turn.leave_flow(&reason).await?;
    turn.cancel(&reason)
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
