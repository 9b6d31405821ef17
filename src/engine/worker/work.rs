//! The work for one message of a lane: a turn of a conversation, or a run of a workflow.

use crate::execution::{CancelReason, Services, TurnError, TurnId};
use crate::journal::Guard;
use crate::run::{self, RunInput};
use crate::turn::{self, TurnInput};
use definitions::agent::AgentRecord;
use std::sync::Arc;
use storage::store::records::Change;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Span, info, info_span};
use types::job::Job;
use types::outcome::Outcome;
use types::run::RunStatus;
use types::session::{Session, Status};

/// The work to do, without the session document.
#[derive(Clone)]
pub(super) enum Subject {
    /// A turn of this agent for these jobs.
    Turn { agent: Arc<AgentRecord>, jobs: Arc<[Job]>, turn: Arc<TurnId> },
    /// A run, or an operator's control command to it.
    Run(Box<(Job, TurnId)>),
}

/// A [`Subject`] together with its session: the input of a turn or a run.
pub(super) enum Work {
    Turn(Box<TurnInput>),
    Run(Box<RunInput>),
}

impl Subject {
    pub(super) fn run(job: Job, turn: TurnId) -> Self {
        Self::Run(Box::new((job, turn)))
    }

    /// The jobs that this work processes. The first one names the turn.
    pub(super) fn jobs(&self) -> &[Job] {
        match self {
            Self::Turn { jobs, .. } => jobs,
            Self::Run(run) => std::slice::from_ref(&run.0),
        }
    }

    /// Whether this is a timer that was cancelled or has fired already.
    pub(super) fn is_obsolete(&self, session: &Session) -> bool {
        self.jobs().first().is_some_and(|job| turn::is_obsolete(session, job))
    }

    /// The tracing span of the turn or run. It has no parent: the lane's span would add the session id to each line
    /// again.
    pub(super) fn span(&self, session: &Session, attempt: u32) -> Span {
        let session_id = &session.session_id;
        let turn_id = match self {
            Self::Turn { turn, .. } => turn.id.as_str(),
            Self::Run(run) => run.1.id.as_str(),
        };
        match self {
            Self::Turn { agent, .. } => {
                let (agent_id, hash) = (&agent.config.id, &agent.hash);
                info_span!(parent: None, "turn", session_id, turn_id, agent_id, hash, attempt, outcome = Empty)
            }
            Self::Run(_) => info_span!(parent: None, "run", session_id, turn_id, attempt, outcome = Empty),
        }
    }

    /// Builds the input for `session`.
    pub(super) fn work(self, session: Session, resumed: bool, guard: Guard) -> Work {
        match self {
            Self::Turn { agent, jobs, turn } => {
                Work::Turn(Box::new(TurnInput { session, jobs, turn, agent, resumed, guard }))
            }
            Self::Run(run) => {
                let (job, turn) = *run;
                Work::Run(Box::new(RunInput { session, job, turn, resumed, guard }))
            }
        }
    }
}

/// The log line of a committed turn or run. Built before the commit, because the commit consumes the change.
pub(super) struct LogLine {
    turn: TurnLine,
    run: Option<RunStatus>,
}

struct TurnLine {
    session_id: String,
    turn_id: String,
    agent_id: String,
    status: Status,
    outcome: Outcome,
    reason: Option<String>,
    actions: String,
    tokens: u64,
    ms: u64,
    attempt: u32,
}

impl LogLine {
    /// The line for this change; `None` if the log level is above INFO.
    pub(super) fn from_change(change: &Change) -> Option<Self> {
        if LevelFilter::current() < LevelFilter::INFO {
            return None;
        }
        let turn = &change.turn;
        let took = turn.started_at.until(turn.committed_at).as_millis();
        let turn = TurnLine {
            session_id: turn.session_id.clone(),
            turn_id: turn.turn_id.clone(),
            agent_id: change.agent_id.clone(),
            status: change.workflow_state.status,
            outcome: turn.outcome,
            reason: turn.reason.clone(),
            actions: turn.actions.join(","),
            tokens: turn.tokens,
            ms: u64::try_from(took).unwrap_or(u64::MAX),
            attempt: turn.attempts,
        };
        Some(Self { turn, run: change.run.as_ref().map(|run| run.status) })
    }

    /// Logs the line. It carries all its fields itself and has no span, so that one `grep` finds a whole conversation.
    pub(super) fn write(&self, worker: &str) {
        let TurnLine { session_id, turn_id, agent_id, status, outcome, reason, actions, tokens, ms, attempt } =
            &self.turn;
        let (outcome, reason) = (outcome.as_str(), reason.as_deref());
        match self.run {
            None => {
                let status = status.as_str();
                info!(parent: None, session_id, turn_id, agent_id, status, outcome, reason, actions, tokens, ms, attempt, worker, "turn ended");
            }
            Some(status) => {
                let (run_id, workflow_id, status) = (session_id, agent_id, status.as_str());
                let said = if self.run == Some(RunStatus::Waiting) { "run waits" } else { "run ended" };
                info!(parent: None, run_id, turn_id, workflow_id, status, outcome, reason, tokens, ms, attempt, worker, "{said}");
            }
        }
    }
}

impl Work {
    /// Runs the turn or run and returns the change to commit, or `None` if there is nothing to commit.
    pub(super) async fn run(self, services: &Services) -> Result<Option<Box<Change>>, TurnError> {
        // Boxed so that the future which awaits it does not reserve room for a whole change.
        match self {
            Self::Turn(input) => turn::run(services, input).await.map(|change| change.map(Box::new)),
            Self::Run(input) => Box::pin(run::run(services, input)).await.map(|change| Some(Box::new(change))),
        }
    }

    /// Builds the change that ends the turn or run as cancelled or failed, for a turn that cannot continue.
    pub(super) async fn give_up(self, services: &Services, reason: CancelReason) -> Result<Change, TurnError> {
        match self {
            Self::Turn(input) => turn::give_up(services, input, reason).await,
            Self::Run(input) => run::give_up(services, input, reason).await,
        }
    }
}
