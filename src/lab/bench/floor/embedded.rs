//! The floor on the embedded file: its queue, and plain writes in place of the store's.

use super::{OUTPUT, REPLY, STATUS, last_announcement, last_events, last_step, steps, think};
use crate::bench::crew::Duty;
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

/// Deliveries asked for at once.
const BATCH: usize = 512;
/// How long one request for deliveries waits.
const WAIT: Duration = Duration::from_millis(200);
/// Bytes of a session without its history, when it has had some forty turns.
const SESSION: &[u8] = &[b' '; 770];
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
        let announced = queue.emit([event(format!("event/{step}"), STATUS)].into());
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
    let last = last_step(duty.actions);
    if !duty.model_latency.0.is_zero() {
        let (key, payload) = last_announcement(duty.actions);
        let (announced, ()) = join!(queue.emit([event(key, payload)].into()), think(duty, &last));
        announced?;
    }
    let said: Vec<OutEvent> = last_events(duty).into_iter().map(|(key, payload)| event(key, payload)).collect();
    put_turn(file, (&session, &job), last, message.seq, said.clone()).await?;
    // They are there; whoever waits for replies learns it here.
    queue.emit(said.into()).await?;
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

/// The turn's record with its last step, its part of the history, the session, and what is said at the end.
async fn put_turn(
    file: &EmbeddedFile,
    (session, job): (&str, &str),
    last: String,
    seq: u64,
    events: Vec<OutEvent>,
) -> anyhow::Result<()> {
    let publisher = file.publisher().context("a file without a queue")?;
    let (session, job, now, readers) = (session.to_owned(), job.to_owned(), clock::now(), Arc::clone(&publisher));
    let write = move |tables: &mut Tables<'_>| {
        let (id, steps) = (session.as_str(), vec![(last.as_str(), OUTPUT.as_bytes())]);
        tables.turns.insert((id, job.as_str()), (now.as_millis(), REPLY.as_bytes(), steps))?;
        tables.gathered.turn(now, id, &job);
        tables.history.insert((id, 2 * seq), vec![STATUS.as_bytes(), REPLY.as_bytes()])?;
        tables.sessions.insert(id, (now.as_millis(), 0, 1, SESSION))?;
        tables.lanes.remove(id)?;
        publisher.emit(tables, &events)
    };
    file.write_then(write, move |stored: &Vec<StoredEvent>| readers.emitted(stored)).await?;
    Ok(())
}
