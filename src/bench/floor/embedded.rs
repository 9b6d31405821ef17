//! The floor on the embedded file: its queue, and plain writes in place of the store's.

use super::{OUTPUT, REPLY, STATUS, last_announcement, last_events, last_step, steps, think};
use crate::bench::crew::Duty;
use crate::clock;
use crate::queue::{Delivery, EventType, OutEvent, Queue};
use crate::store::embedded::{EmbeddedFile, Tables};
use crate::tasks::{OnPanic, Tasks};
use anyhow::Context;
use futures::{TryFutureExt, try_join};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// Deliveries asked for at once.
const BATCH: usize = 512;
/// How long one request for deliveries waits.
const WAIT: Duration = Duration::from_millis(200);
/// Bytes of a session without its history, but with the outbox of its last turn, five events.
const SESSION: &[u8] = &[b' '; 2_430];
/// Bytes of an open lane.
const LANE: &[u8] = &[b' '; 360];

/// Works until `stop`.
pub(in crate::bench) async fn run(queue: Arc<dyn Queue>, file: Arc<EmbeddedFile>, duty: Duty, stop: CancellationToken) {
    let tasks = Tasks::new();
    while !stop.is_cancelled() {
        let deliveries = match queue.pull(BATCH, WAIT).await {
            Ok(deliveries) => deliveries,
            Err(problem) => return error!("the floor gets no jobs: {problem}"),
        };
        for delivery in deliveries {
            let (queue, file, duty, hot) = (Arc::clone(&queue), Arc::clone(&file), duty.clone(), duty.hot);
            let turn = async move {
                if let Err(problem) = turn(queue.as_ref(), &file, &duty, &delivery).await {
                    error!("a turn of the floor fails: {problem:#}");
                }
            };
            // One lane is one turn after the other.
            if hot { turn.await } else { tasks.spawn("turn", OnPanic::Log, turn) }
        }
    }
    tasks.shutdown(Duration::from_secs(5)).await;
}

async fn turn(queue: &dyn Queue, file: &EmbeddedFile, duty: &Duty, delivery: &Delivery) -> anyhow::Result<()> {
    let message = &delivery.message;
    let session = message.session_id.clone();
    let job = message.msg_id.as_deref().and_then(|id| id.split_once(':')).context("a job without an id")?.1.to_owned();
    let event = |key: String, payload: &'static str| OutEvent {
        channel: "bench".to_owned(),
        session_id: session.clone(),
        event_type: if payload == REPLY { EventType::Reply } else { EventType::Status },
        msg_id: Some(format!("{session}/{job}/{key}")),
        payload: payload.into(),
    };
    if !duty.hot {
        put_lane(file, &session).await?;
    }
    queue.next_in_lane(&session, message.seq - 1, message.seq).await?;
    for step in steps(duty.actions) {
        // Beside the step, as in the engine.
        let announced = queue.emit(vec![event(format!("event/{step}"), STATUS)]);
        let (session, job) = (session.clone(), job.clone());
        let recorded = async {
            think(duty, &step).await;
            let write = move |tables: &mut Tables<'_>| {
                tables.steps.insert((session.as_str(), job.as_str(), step.as_str()), OUTPUT.as_bytes())?;
                Ok(())
            };
            Ok(file.write(write).await?)
        };
        try_join!(announced.map_err(anyhow::Error::from), recorded)?;
    }
    let (last, (key, payload)) = (last_step(duty.actions), last_announcement(duty.actions));
    let announced = queue.emit(vec![event(key, payload)]);
    let committed = async {
        think(duty, &last).await;
        put_turn(file, (&session, &job), last.clone(), message.seq).await
    };
    try_join!(announced.map_err(anyhow::Error::from), committed)?;
    queue.emit(last_events(duty.actions).into_iter().map(|(key, payload)| event(key, payload)).collect()).await?;
    Ok(queue.ack(&delivery.token).await?)
}

async fn put_lane(file: &EmbeddedFile, session: &str) -> anyhow::Result<()> {
    let session = session.to_owned();
    let write = move |tables: &mut Tables<'_>| {
        tables.lanes.insert(session.as_str(), LANE)?;
        Ok(())
    };
    Ok(file.write(write).await?)
}

/// The turn's last step, its record, its part of the history, and the session.
async fn put_turn(file: &EmbeddedFile, (session, job): (&str, &str), last: String, seq: u64) -> anyhow::Result<()> {
    let (session, job, now) = (session.to_owned(), job.to_owned(), clock::now().as_millis());
    let write = move |tables: &mut Tables<'_>| {
        let (session, job) = (session.as_str(), job.as_str());
        tables.steps.insert((session, job, last.as_str()), OUTPUT.as_bytes())?;
        tables.turns.insert((session, job), (now, REPLY.as_bytes()))?;
        tables.turn_ages.insert((now, session, job), ())?;
        tables.history.insert((session, 2 * seq), STATUS.as_bytes())?;
        tables.history.insert((session, 2 * seq + 1), REPLY.as_bytes())?;
        tables.sessions.insert(session, (now, 0, SESSION))?;
        tables.lanes.remove(session)?;
        Ok(())
    };
    Ok(file.write(write).await?)
}
