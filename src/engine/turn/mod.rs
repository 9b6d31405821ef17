//! Turns: the handling of one job of a session, from the acquisition of the lease to the [`Change`] that the commit
//! writes.
//!
//! [`run`] opens a [`state::Turn`], which collects the changes and events of the turn, and dispatches on the job's
//! type:
//!
//! - `user` handles user messages. `plan_and_greet` checks the agent's hash, makes the plan and sends the greeting;
//!   `iterate` is the decision loop. In each iteration `decide` asks the model for a [`decision`] and `act` executes
//!   its action. `knowledge_reply` writes the reply from the agent's knowledge, and `reply_chunks` publishes a text in
//!   chunks while the model writes it.
//! - `coordinator` is the loop of agents with `mode: coordinator`, whose decisions are validated before they are
//!   carried out.
//! - `author` is the turn of an authoring dialogue.
//! - `handoff` gives the conversation to a human, `claim` decides which of several people has it, `pending_flow`
//!   handles flows that ask the user, and `cancel` ends a turn with the status `cancelled`.
//! - `timer_turn` handles timers, `control` operator commands, and `run_result` runs that have ended; `notice` is the
//!   reply for a run that a coordinator has started.
//! - `prompt` builds the variables of the prompts, `planner` makes the plan from the model's draft, and `placeholder`
//!   recognises texts that a model has copied from its prompt.
//! - `interruption` is the reason for which a part of a turn has no result.
//! - `replay_published` reads back the events of an earlier attempt of the turn.

mod act;
mod author;
mod cancel;
mod claim;
mod control;
mod coordinator;
mod decide;
pub mod decision;
pub mod flow;
mod handoff;
mod interruption;
mod iterate;
mod knowledge_reply;
mod notice;
mod pending_flow;
pub(crate) mod placeholder;
mod plan_and_greet;
pub mod planner;
mod prompt;
mod replay_published;
mod reply_chunks;
mod run_result;
mod state;
mod timer_turn;
mod user;

use crate::execution::{CancelReason, Services, TurnError, TurnId};
pub use coordinator::{DecisionOutcome, JudgedWorkflow, RecordedDecision, decisions_of_turn};
pub use handoff::HUMAN_REPLY;
pub(crate) use timer_turn::is_obsolete;

use crate::journal::Guard;
use definitions::agent::AgentRecord;
use std::sync::Arc;
use storage::store::records::Change;
use types::job::{Control, Job, JobBody};
use types::session::{Kind, Session};

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
        // Boxed so that these rare branches do not enlarge the future of every turn.
        JobBody::UserMessage(_) if turn.session.kind == Kind::Authoring => Box::pin(turn.author()).await.map(Some),
        JobBody::UserMessage(_) => turn.user_message().await.map(Some),
        JobBody::Timer { timer_id, generation, .. } => {
            Box::pin(turn.timer_fired(timer_id, *generation)).await.map(Some)
        }
        JobBody::Control(Control { left_at: Some(seq), .. }) if !turn.is_idle_since(*seq) => {
            turn.finish_without_change().map(Some)
        }
        JobBody::Control(order) => Box::pin(turn.control(order)).await.map(Some),
        JobBody::Reply { text, by } => turn.human_reply(text, by.as_deref()).map(Some),
        JobBody::Resume { run_id, outcome } => Box::pin(turn.add_run_result(run_id, outcome)).await.map(Some),
        JobBody::Run { .. } | JobBody::Answer { .. } | JobBody::Wake => Ok(None),
    }
}

/// Ends a turn that cannot continue: returns a change with the outcome `cancelled`, which apologises to the user.
///
/// This does not replay the journal. It reads back the events that the turn has already published, so that the
/// statuses form one chain and the history has the replies that the user has seen.
pub(crate) async fn give_up(
    services: &Services,
    mut input: Box<TurnInput>,
    reason: CancelReason,
) -> Result<Change, TurnError> {
    input.resumed = false;
    let mut turn = state::Turn::open(services, input).await?;
    turn.count_recorded().await?;
    let shown = turn.adopt_published().await?;
    if turn.session.kind == Kind::Authoring && turn.messages().next().is_some() {
        turn.leave_dialogue(&reason, &shown).await;
    }
    turn.end_nested_runs(&reason).await?;
    turn.leave_flow(&reason).await?;
    turn.cancel(&reason)
}
