//! What holds after any run, whatever went wrong in it: nothing lost, nothing twice.
//!
//! [`check`] looks at a deployment that has come to rest, through the public traits, and at what the model and the API
//! behind it have seen. The crash-point tests ask it after every fault, and `turnwheel chaos` at the end of a run. It answers every violation in words; none means that all holds. It knows nothing of the backend
//! or of the faults, but for [`Evidence::outlived`].
//!
//! [`evidence`] gathers the state of one lane. [`conversation`] checks replies and history, [`decisions`] compares them with the
//! recorded decisions, [`effects`] checks the calls of actions, [`runs`] the events of workflows.

mod conversation;
mod decisions;
mod effects;
mod evidence;
mod runs;

pub use evidence::{Evidence, Seen, Sent, events, run_events};

use evidence::Lane;
use futures::{FutureExt, StreamExt, TryStreamExt};
use std::collections::BTreeSet;
use std::time::Duration;
use storage::queue::{DeadLetter as Letter, Queue, QueueError};
use storage::store::{Store, StoreError};
use thiserror::Error;
use types::cause::Cause;
use types::session::Status;
use types::turn::{Outcome, TurnRecord};

/// The most dead letters that are looked at.
const LETTERS: usize = 100_000;
/// Sessions looked at side by side.
const READERS: usize = 8;

/// Why it cannot be told whether all holds.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The queue's fault.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The store's fault.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A session's events.
    #[error("the events of session `{0}` cannot be read: {1}")]
    Events(String, String),
}

/// True when nothing is left to be done for what was sent: every lane empty and free, no timer due soon.
///
/// # Errors
/// When queue or store cannot be read.
pub async fn at_rest(queue: &dyn Queue, store: &dyn Store, sent: &[Sent]) -> Result<bool, Unreadable> {
    for session_id in sessions(sent) {
        if !evidence::unrest(queue, store, session_id).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every violation, in words.
///
/// # Errors
/// When queue or store cannot be read: then nothing is known.
pub async fn check(queue: &dyn Queue, store: &dyn Store, evidence: &Evidence) -> Result<Vec<String>, Unreadable> {
    let kept = queue.dead_letters(0, LETTERS).await?;
    let letters: Vec<Letter> = kept.into_iter().map(|kept| kept.letter).collect();
    let mut looks = Vec::new();
    for session_id in sessions(&evidence.sent) {
        looks.push(of_session(queue, store, evidence, session_id, &letters).boxed());
    }
    let found: Vec<Vec<String>> = futures::stream::iter(looks).buffered(READERS).try_collect().await?;
    let mut found = found.concat();
    let abandoned = store.abandoned_lanes(Duration::ZERO, 1_000).await?;
    found.extend(abandoned.into_iter().map(|lane| format!("{}: the lane has work and no holder", lane.session_id)));
    Ok(found)
}

async fn of_session(
    queue: &dyn Queue,
    store: &dyn Store,
    evidence: &Evidence,
    session_id: &str,
    letters: &[Letter],
) -> Result<Vec<String>, Unreadable> {
    let lane = Lane::read(queue, store, evidence, session_id, letters).await?;
    let mut found = evidence::unrest(queue, store, session_id).await?;
    found.extend(answered_once(&lane));
    found.extend(in_order(&lane));
    found.extend(conversation::check(&lane, evidence.outlived));
    found.extend(statuses(&lane));
    found.extend(decisions::check(&lane));
    found.extend(effects::check(&lane, evidence.outlived));
    found.extend(runs::check(&lane));
    Ok(found.into_iter().map(|violation| format!("{session_id}: {violation}")).collect())
}

fn sessions(sent: &[Sent]) -> BTreeSet<&str> {
    sent.iter().map(|sent| sent.session_id.as_str()).collect()
}

/// Every message accepted has a turn of its own, is part of a merged one, or is among the dead letters: exactly once.
fn answered_once(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    for bad in lane.undecodable() {
        let letters = lane.letters.iter().filter(|letter| letter.payload == bad.payload).count();
        let copies = lane.sent.iter().filter(|sent| sent.payload == bad.payload).count();
        if letters != copies {
            found.push(format!("message {} cannot be read and has {letters} dead letters", bad.seq));
        }
    }
    for job_id in lane.job_ids() {
        let handled = lane.handled.iter().filter(|id| *id == job_id).count();
        let letters: Vec<_> = lane.letters.iter().filter(|letter| letter.job_id.as_ref() == Some(job_id)).collect();
        if letters.len() > 1 {
            found.push(format!("job {job_id} has {} dead letters", letters.len()));
        }
        let turn = lane.turns.iter().find(|turn| turn.turn_id == *job_id);
        found.extend(match letters.first().map(|letter| letter.cause) {
            None if handled != 1 => Some(format!("job {job_id} was handled {handled} times, and is no dead letter")),
            None if turn.is_none() && lane.turn_of(job_id).is_none() => Some(format!("job {job_id} has no turn")),
            Some(Cause::Invalid | Cause::UnknownAgent) if handled > 0 || turn.is_some() => {
                Some(format!("job {job_id} is a dead letter and was handled as well"))
            }
            Some(cause @ (Cause::Attempts | Cause::Replay)) if !turn.is_some_and(|turn| given_up(turn, cause)) => {
                Some(format!("job {job_id} is a dead letter ({}) and its turn is not cancelled", cause.as_str()))
            }
            _ => None,
        });
    }
    found.extend(lane.turns.iter().filter_map(|turn| unfounded(lane, turn)));
    found
}

fn given_up(turn: &TurnRecord, cause: Cause) -> bool {
    turn.outcome == Outcome::Cancelled
        && turn.reason.as_deref().is_some_and(|reason| reason.split(':').next() == Some(cause.as_str()))
}

/// A turn for a user's message that nobody sent, or one that counts as answered without an answer.
fn unfounded(lane: &Lane, turn: &TurnRecord) -> Option<String> {
    let id = &turn.turn_id;
    if turn.job.user_message().is_some() && !lane.job_ids().into_iter().any(|sent| sent == id) {
        return Some(format!("turn {id} is for a message that nobody sent"));
    }
    let said = lane.replies().any(|reply| reply.turn_id == *id);
    (turn.outcome == Outcome::Answered && !said).then(|| format!("turn {id} counts as answered, and nothing was said"))
}

/// Messages were handled in the order in which the stream took them.
fn in_order(lane: &Lane) -> Vec<String> {
    let place = |id: &String| lane.handled.iter().position(|handled| handled == id);
    let places: Vec<_> = lane.job_ids().into_iter().filter_map(|id| place(id).map(|place| (place, id))).collect();
    let swapped = places.windows(2).filter(|pair| pair[0].0 > pair[1].0);
    swapped.map(|pair| format!("job {} was handled after {}, which was sent later", pair[0].1, pair[1].1)).collect()
}

/// The statuses form a chain of legal transitions, as published and as the turns' records have them.
fn statuses(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    let mut status = Status::Ready;
    for event in lane.statuses() {
        let to = event.status;
        if event.previous != status {
            found
                .push(format!("turn {}: {to} follows {status}, and says it follows {}", event.turn_id, event.previous));
        }
        if status == to || status.check(to).is_err() {
            found.push(format!("turn {}: {status} → {to} is no legal transition", event.turn_id));
        }
        status = to;
    }
    let published: Vec<_> = lane.statuses().map(|event| (event.turn_id.as_str(), event.status)).collect();
    let recorded: Vec<_> = lane
        .turns
        .iter()
        .flat_map(|turn| turn.statuses.iter().map(|status| (turn.turn_id.as_str(), status.status)))
        .collect();
    if published != recorded {
        found.push(format!("the statuses published are {published:?}, those recorded {recorded:?}"));
    }
    if let Some(session) = &lane.session
        && session.workflow_state.status != status
    {
        found.push(format!(
            "the session shows {}, the last status published is {status}",
            session.workflow_state.status
        ));
    }
    found
}
