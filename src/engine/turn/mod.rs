//! Turns: the handling of one job of a session, from the acquisition of the lease to the [`Change`] that the commit
//! writes.
//!
//! [`run`] opens a [`state::Turn`], which collects the changes and events of the turn, and dispatches on the job's
//! type:
//!
//! - `user` handles user messages. `opening` checks the agent's hash, makes the plan and sends the greeting;
//!   `iterate` is the decision loop. In each iteration `decide` asks the model for a [`decision`] and `act` executes
//!   its action. `inform` writes the reply from the agent's knowledge, and `speech` publishes a text in chunks while
//!   the model writes it.
//! - `handoff` gives the conversation to a human, `waiting` handles flows that ask the user, and `cancel` ends a turn
//!   with the status `cancelled`.
//! - `fired` handles timers, `control` operator commands, and `told` runs that have completed.
//! - `prompt` and `shown` build the variables of the prompts, and `placeholder` recognises texts that a model has
//!   copied from its prompt.
//! - `published` reads back the events of an earlier attempt of the turn.

mod act;
mod cancel;
mod control;
mod decide;
pub mod decision;
mod fired;
pub mod flow;
mod handoff;
mod inform;
mod iterate;
mod opening;
pub(crate) mod placeholder;
pub mod planner;
mod prompt;
mod published;
mod speaking;
mod state;
mod told;
mod user;
mod waiting;

use crate::execution::{CancelReason, Services, TurnError, TurnId};
pub(crate) use fired::is_obsolete;
pub use handoff::HUMAN_REPLY;

use crate::journal::Guard;
use definitions::agent::AgentRecord;
use std::sync::Arc;
use storage::store::records::Change;
use types::job::{Job, JobBody};
use types::session::Session;

/// Input of [`run`] and [`give_up`].
#[derive(Clone)]
pub struct TurnInput {
    /// The session as the lease holder read it. Its `turn` field marks this turn as started.
    pub session: Session,
    /// The job of the turn, or with `double_text: merge` all its jobs in lane order.
    pub jobs: Arc<[Job]>,
    /// Identity of the turn.
    pub turn: Arc<TurnId>,
    /// Agent configuration that the turn runs with.
    pub agent: Arc<AgentRecord>,
    /// True if an earlier attempt started this turn, so its journal may contain steps.
    pub resumed: bool,
    /// Checks that this worker still holds the lease, and that the turn is not cancelled.
    pub guard: Guard,
}

/// Handles a job and returns the change to commit, or `None` if the job leaves no trace.
///
/// The change's outbox has the events that the turn has not published yet. The worker publishes them after the
/// commit.
pub async fn run(services: &Services, input: Box<TurnInput>) -> Result<Option<Change>, TurnError> {
    let jobs = Arc::clone(&input.jobs);
    let Some(first) = jobs.first() else { return Ok(None) };
    let turn = state::Turn::open(services, input).await?;
    match &first.body {
        JobBody::UserMessage(_) => turn.user_message().await.map(Some),
        // Boxed so that these rare branches do not enlarge the future of every turn.
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

/// Ends a turn that cannot continue: returns a change with the outcome `cancelled`, which apologises to the user.
///
/// This does not replay the journal. It reads back the events that the turn has already published, so that the
/// statuses form one chain and the history has the replies that the user has seen.
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
