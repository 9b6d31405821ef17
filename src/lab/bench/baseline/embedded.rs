//! The floor on the embedded file: the same queue as the engine's, and plain table writes instead of the store.

use super::{OUTPUT, REPLY, STATUS, last_announcement, last_events, last_step, steps, think};
use crate::bench::member::MemberProfile;
use anyhow::Context;
use base::clock;
use base::tasks::{OnPanic, Tasks};
use embedded::store::{EmbeddedFile, StoredEvent, Tables};
use futures::{TryFutureExt, join, try_join};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Delivery, Queue};
use tokio_util::sync::CancellationToken;
use tracing::error;
use types::event::{EventType, OutEvent};

/// Deliveries requested with one pull.
const PULL_BATCH: usize = 512;
/// How long one pull waits for a delivery.
const PULL_WAIT: Duration = Duration::from_millis(200);
/// As many bytes as a session without its history has after about forty turns.
const SESSION_BYTES: &[u8] = &[b' '; 770];
/// As many bytes as an open lane has.
const LANE_BYTES: &[u8] = &[b' '; 360];

/// Runs turns until `stop` is cancelled.
pub(in crate::bench) async fn run(
    queue: Arc<dyn Queue>,
    file: Arc<EmbeddedFile>,
    profile: MemberProfile,
    stop: CancellationToken,
) {
    let tasks = Tasks::new();
    while !stop.is_cancelled() {
        let deliveries = match queue.pull(PULL_BATCH, PULL_WAIT).await {
            Ok(deliveries) => deliveries,
            Err(problem) => return error!("the floor cannot pull jobs: {problem}"),
        };
        for delivery in deliveries {
            let (queue, file, profile, hot) = (Arc::clone(&queue), Arc::clone(&file), profile.clone(), profile.hot);
            let turn = async move {
                if let Err(problem) = turn(queue.as_ref(), &file, &profile, &delivery).await {
                    error!("a turn of the floor failed: {problem:#}");
                }
            };
            // The turns of one lane run one after the other.
            if hot { turn.await } else { tasks.spawn("turn", OnPanic::Log, turn) }
        }
    }
    tasks.shutdown(Duration::from_secs(5)).await;
}

async fn turn(
    queue: &dyn Queue,
    file: &EmbeddedFile,
    profile: &MemberProfile,
    delivery: &Delivery,
) -> anyhow::Result<()> {
    let message = &delivery.message;
    let session = message.session_id.clone();
    let job =
        message.msg_id.as_deref().and_then(|id| id.split_once(':')).context("the job has no message id")?.1.to_owned();
    let event = |key: String, payload: &'static str| OutEvent {
        channel: "bench".to_owned(),
        session_id: session.clone(),
        event_type: if payload == REPLY { EventType::Reply } else { EventType::Status },
        msg_id: Some(format!("{session}/{job}/{key}")),
        payload: payload.into(),
    };
    if !profile.hot {
        put_lane(file, &session).await?;
    }
    queue.next_in_lane(&session, message.seq - 1, message.seq).await?;
    for step in steps(profile.actions) {
        // The event is published concurrently with the step, as in the engine.
        let announced = queue.emit([event(format!("event/{step}"), STATUS)].into());
        let (session, job) = (session.clone(), job.clone());
        let recorded = async {
            think(profile, &step).await;
            let write = move |tables: &mut Tables<'_>| {
                tables.steps.insert((session.as_str(), job.as_str(), step.as_str()), OUTPUT.as_bytes())?;
                Ok(())
            };
            Ok(file.write(write).await?)
        };
        try_join!(announced.map_err(anyhow::Error::from), recorded)?;
    }
    let last = last_step(profile.actions);
    if !profile.model_latency.0.is_zero() {
        let (key, payload) = last_announcement(profile.actions);
        let (announced, ()) = join!(queue.emit([event(key, payload)].into()), think(profile, &last));
        announced?;
    }
    let said: Vec<OutEvent> = last_events(profile).into_iter().map(|(key, payload)| event(key, payload)).collect();
    put_turn(file, &session, &job, last, message.seq, said.clone()).await?;
    // The write above has already stored the events. This call reports them to the tap on the queue, from which the
    // load learns about the reply.
    queue.emit(said.into()).await?;
    Ok(queue.ack(&delivery.token).await?)
}

async fn put_lane(file: &EmbeddedFile, session: &str) -> anyhow::Result<()> {
    let session = session.to_owned();
    let write = move |tables: &mut Tables<'_>| {
        tables.lanes.insert(session.as_str(), LANE_BYTES)?;
        Ok(())
    };
    Ok(file.write(write).await?)
}

/// Writes in one transaction: the turn's record with its last step, its history entries, the session, and its last
/// events.
async fn put_turn(
    file: &EmbeddedFile,
    session: &str,
    job: &str,
    last: String,
    seq: u64,
    events: Vec<OutEvent>,
) -> anyhow::Result<()> {
    let publisher = file.publisher().context("the file has no queue")?;
    let (session, job, now, readers) = (session.to_owned(), job.to_owned(), clock::now(), Arc::clone(&publisher));
    let write = move |tables: &mut Tables<'_>| {
        let (id, steps) = (session.as_str(), vec![(last.as_str(), OUTPUT.as_bytes())]);
        tables.turns.insert((id, job.as_str()), (now.as_millis(), REPLY.as_bytes(), steps))?;
        tables.pending_rows.turn(now, id, &job);
        tables.history.insert((id, 2 * seq), vec![STATUS.as_bytes(), REPLY.as_bytes()])?;
        tables.sessions.insert(id, (now.as_millis(), 0, 1, SESSION_BYTES))?;
        tables.lanes.remove(id)?;
        publisher.emit(tables, &events)
    };
    file.write_then(write, move |stored: &Vec<StoredEvent>| readers.notify_emitted(stored)).await?;
    Ok(())
}
