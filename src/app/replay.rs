//! Replays of recorded turns against the draft of an agent, each in an engine in memory that begins with the
//! conversation before the turn.

use super::rehearsal::{CONCURRENT_TESTS, Rehearsal};
use super::{Engine, EngineError, NewMessage};
use definitions::agent::AgentRecord;
use definitions::knowledge::files::NamedText;
use engine::action::stand_in::StandIn;
use engine::rehearsal::{Draft, DraftKnowledge};
use engine::replay::recorded::Replayable;
use engine::replay::{Followed, RecordedTurn, Replayed, ReplayedTurn, TurnEnd};
use futures::{FutureExt, StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use storage::store::StoreError;
use storage::store::records::{Acquire, Acquired, Change, Commit, NewSession, Pin, TimerChange};
use tokio::time::{Instant, timeout_at};
use types::job::{Job, JobBody};
use types::outcome::Outcome;
use types::plan::Plan;
use types::session::{Session, Status, WorkflowState};
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// The lease under which the conversation before a turn is written.
const LEASE: Duration = Duration::from_secs(60);
/// The sequence of the first message in a new queue.
const FIRST_SEQ: u64 = 1;

/// Replays the turns. The first one makes the plan, and the others use it.
pub(super) async fn replay(
    rehearsal: &Rehearsal,
    agent: &AgentRecord,
    texts: &[NamedText],
    turns: &[RecordedTurn],
    until: Instant,
) -> Replayed {
    let draft = Draft::Agent(agent.clone(), DraftKnowledge::texts(texts.to_vec()));
    let Some((first, others)) = turns.split_first() else { return Replayed::default() };
    let (first, plan) = one(rehearsal, agent, &draft, None, first, until).await;
    let others: Vec<_> =
        others.iter().map(|turn| one(rehearsal, agent, &draft, plan.as_ref(), turn, until).boxed()).collect();
    let others: Vec<_> = stream::iter(others).buffered(CONCURRENT_TESTS).collect().await;
    Replayed::new(std::iter::once(first).chain(others.into_iter().map(|(turn, _)| turn)).collect())
}

fn reported(turn: &RecordedTurn, end: TurnEnd) -> ReplayedTurn {
    let (session_id, turn_id, said) = (turn.session_id.clone(), turn.turn_id.clone(), turn.message.text.clone());
    ReplayedTurn { session_id, turn_id, said, end }
}

async fn one(
    rehearsal: &Rehearsal,
    agent: &AgentRecord,
    draft: &Draft,
    plan: Option<&Plan>,
    turn: &RecordedTurn,
    until: Instant,
) -> (ReplayedTurn, Option<Plan>) {
    let recorded = match &turn.replayable {
        Ok(recorded) => recorded,
        Err(reason) => return (reported(turn, TurnEnd::Partial { reason: reason.clone() }), None),
    };
    let replayed = Box::pin(replayed(rehearsal, agent, draft, plan, turn, recorded, until));
    match timeout_at(until, replayed).await {
        Ok(Ok((end, plan))) => (reported(turn, end), plan),
        Ok(Err(error)) => (reported(turn, TurnEnd::Failed { reason: error.to_string() }), None),
        Err(_) => (reported(turn, TurnEnd::Failed { reason: "the time of the replay is over".to_owned() }), None),
    }
}

async fn replayed(
    rehearsal: &Rehearsal,
    agent: &AgentRecord,
    draft: &Draft,
    plan: Option<&Plan>,
    turn: &RecordedTurn,
    recorded: &Replayable,
    until: Instant,
) -> Result<(TurnEnd, Option<Plan>), EngineError> {
    let stand_in = Arc::new(StandIn::recorded(recorded.calls.clone()));
    let patience = until.saturating_duration_since(Instant::now());
    let engine = rehearsal.start(draft, plan, &stand_in, patience).await?;
    if !recorded.before.is_empty() {
        seed(&engine, agent, turn, recorded).await?;
    }
    let answer = engine.ask(message(agent, turn)).await?;
    let end = if answer.turn.outcome == Outcome::Cancelled {
        TurnEnd::Failed { reason: answer.turn.reason.unwrap_or_else(|| "the turn was cancelled".to_owned()) }
    } else {
        let turn_id = &answer.turn.turn_id;
        let steps = engine.store().steps(&turn.session_id, turn_id).await?;
        let session = engine.store().session(&turn.session_id).await?;
        let history = session.map(|session| session.history).unwrap_or_default();
        let now = Followed::read(turn_id, &steps, &history);
        TurnEnd::compare(&recorded.followed, &now, &stand_in.missing())
    };
    let plan = engine.store().plan(agent.id(), &agent.hash).await?;
    engine.abandon();
    Ok((end, plan.map(|plan| Plan::clone(&plan))))
}

fn message(agent: &AgentRecord, turn: &RecordedTurn) -> NewMessage {
    let recorded = &turn.message;
    NewMessage {
        user_id: Some(turn.user_id.clone()).filter(|id| !id.is_empty()),
        channel: Some(turn.channel.clone()).filter(|channel| !channel.is_empty()),
        sent_at: recorded.sent_at,
        metadata: recorded.metadata.clone(),
        attachments: recorded.attachments.clone(),
        ..NewMessage::new(&turn.session_id, agent.id(), &recorded.text)
    }
}

/// Writes the conversation before the turn, as a turn of its own. It handles no message, so the first message of the
/// queue is the recorded one.
async fn seed(
    engine: &Engine,
    agent: &AgentRecord,
    turn: &RecordedTurn,
    recorded: &Replayable,
) -> Result<(), EngineError> {
    let (store, now) = (engine.store(), engine.clock.now());
    let stream = engine.queue().stream().await?.created_at;
    let state = WorkflowState { hash: agent.hash.clone(), need_greeting: false, status: Status::Ready };
    let acquired = store
        .acquire(Acquire {
            session_id: turn.session_id.clone(),
            seq: FIRST_SEQ,
            stream,
            rewind: None,
            job_id: SEED.to_owned(),
            owner: SEED.to_owned(),
            token: SEED.to_owned(),
            lease: LEASE,
            new_session: NewSession {
                agent_id: agent.id().to_owned(),
                user_id: turn.user_id.clone(),
                channel: turn.channel.clone(),
                ..NewSession::default()
            },
            pin: Some(Pin { agent_id: agent.id().to_owned(), hash: agent.hash.clone(), announce: false }),
        })
        .await?;
    let Acquired::Granted(grant) = acquired else {
        return Err(StoreError::refused("the session of the replay is taken").into());
    };
    let (session_id, epoch) = (turn.session_id.clone(), grant.session.epoch);
    let change = Some(Box::new(change(grant.session, state, recorded, now)));
    let commit = Commit { session_id, epoch, last_seq: 0, stream, at: now, lease: LEASE, sure_until: None, change };
    store.commit(commit).await?;
    // The lane is kept after the commit, because of the message that it was acquired for.
    store.release(&turn.session_id, epoch, false).await?;
    Ok(())
}

/// The id of the turn that writes the conversation.
const SEED: &str = "before";

fn change(session: Session, workflow_state: WorkflowState, recorded: &Replayable, now: Timestamp) -> Change {
    let turn = TurnRecord {
        session_id: session.session_id.clone(),
        turn_id: SEED.to_owned(),
        job: Job { session_id: session.session_id.clone(), job_id: SEED.to_owned(), body: JobBody::Wake },
        statuses: Vec::new(),
        outcome: Outcome::Noop,
        reason: None,
        attempts: 1,
        queued_at: Some(now),
        started_at: now,
        committed_at: now,
        hash: workflow_state.hash.clone(),
        actions: Vec::new(),
        tokens: 0,
    };
    Change {
        agent_id: session.agent_id,
        user_id: session.user_id,
        channel: session.channel,
        workflow_state,
        status_reason: None,
        profile: Some(recorded.profile.clone()),
        history: recorded.before.clone(),
        history_drop: 0,
        jobs: Vec::new(),
        timer_generation: session.timer_generation,
        timers: TimerChange::Keep,
        closed_at: None,
        handoff: None,
        tokens: 0,
        days: Vec::new(),
        waiting: None,
        task: None,
        current_workflow: None,
        turn,
        run: None,
        steps: Vec::new(),
        outbox: Arc::default(),
    }
}
