//! What a lane's holder does for a message: a turn of a conversation, or a workflow's run.

use crate::execution::{CancelReason, Services, TurnError, TurnId};
use crate::journal::Guard;
use crate::run::{self, RunInput};
use crate::turn::{self, TurnInput};
use definitions::agent::AgentRecord;
use std::sync::Arc;
use storage::store::records::Change;
use tracing::field::Empty;
use tracing::{Level, Span, enabled, info, info_span};
use types::job::Job;
use types::run::RunStatus;
use types::session::{Session, Status};
use types::turn::Outcome;

/// What is to be done, without the session that it is done for.
#[derive(Clone)]
pub(super) enum Subject {
    /// A turn of this agent.
    Turn { agent: Arc<AgentRecord>, jobs: Arc<[Job]>, turn: Arc<TurnId> },
    /// A run, or an operator's command to it.
    Run(Box<(Job, TurnId)>),
}

/// A subject with all that it needs.
pub(super) enum Work {
    Turn(Box<TurnInput>),
    Run(Box<RunInput>),
}

impl Subject {
    pub(super) fn run(job: Job, turn: TurnId) -> Self {
        Self::Run(Box::new((job, turn)))
    }

    /// Its jobs, the first of which is the turn's.
    pub(super) fn jobs(&self) -> &[Job] {
        match self {
            Self::Turn { jobs, .. } => jobs,
            Self::Run(run) => std::slice::from_ref(&run.0),
        }
    }

    /// True for a timer that has been cancelled, or has fired.
    pub(super) fn is_obsolete(&self, session: &Session) -> bool {
        self.jobs().first().is_some_and(|job| turn::is_obsolete(session, job))
    }

    /// What its log lines and its steps belong to. No child of the lane's, which would name the session in each line again.
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

    /// The work for `session`.
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

/// The log's line for a committed turn. Built before the commit, which consumes the change.
pub(super) struct Line {
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

impl Line {
    /// Of this change; `None` where the log has no such lines.
    pub(super) fn of(change: &Change) -> Option<Self> {
        if !enabled!(Level::INFO) {
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

    /// Writes it. It has all fields of its own and no span: one conversation is one `grep`.
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
                info!(parent: None, run_id, turn_id, workflow_id, status, outcome, reason, tokens, ms, attempt, worker, "run ended");
            }
        }
    }
}

impl Work {
    /// Does it, up to the change that is to be committed.
    pub(super) async fn run(self, services: &Services) -> Result<Option<Box<Change>>, TurnError> {
        // By place: whoever waits for it would hold room for a whole change.
        match self {
            Self::Turn(input) => turn::run(services, input).await.map(|change| change.map(Box::new)),
            Self::Run(input) => Box::pin(run::run(services, input)).await.map(|change| Some(Box::new(change))),
        }
    }

    /// Ends it, since it cannot go on.
    pub(super) async fn give_up(self, services: &Services, reason: CancelReason) -> Result<Change, TurnError> {
        match self {
            Self::Turn(input) => turn::give_up(services, input, reason).await,
            Self::Run(input) => run::give_up(services, input, reason).await,
        }
    }
}
