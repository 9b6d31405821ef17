//! What a lane's holder does for a message: a turn of a conversation, or a workflow's run.

use crate::agent::AgentRecord;
use crate::journal::Guard;
use crate::queue::Job;
use crate::run::{self, RunInput};
use crate::session::Session;
use crate::store::Change;
use crate::turn::{self, CancelReason, Services, TurnError, TurnId, TurnInput};
use std::sync::Arc;
use tracing::field::Empty;
use tracing::{Span, info_span};

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
