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
