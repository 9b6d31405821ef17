//! The invariants of every run, with or without faults: nothing lost, nothing twice.
//!
//! [`check`] reads a deployment at rest through the public traits, and compares it with the calls that model and API
//! have received. It describes each violation in a sentence; an empty result means that all invariants hold. The
//! crash-point tests call it after every fault, and `turnwheel chaos` at the end of a run. Except for
//! [`Evidence::outlived`], it is independent of backend and faults.
//!
//! - [`evidence`]: the state of one lane;
//! - [`conversation`]: replies and history;
//! - [`decisions`]: replies and actions compared with the recorded decisions;
//! - [`effects`]: calls of actions, and timers;
//! - [`ends`]: the event that ends each turn;
//! - [`runs`]: events of workflow runs;
//! - [`authoring`]: states, events and publications of authoring dialogues.

mod authoring;
mod conversation;
mod decisions;
mod effects;
mod ends;
mod evidence;
mod runs;

pub use evidence::{AcceptedMessage, Evidence, SeenCall, events, run_events};

use base::error::SharedError;
use evidence::Lane;
use futures::{FutureExt, StreamExt, TryStreamExt};
use std::collections::BTreeSet;
use std::time::Duration;
use storage::queue::{DeadLetter as Letter, Queue, QueueError};
use storage::store::{Store, StoreError};
use thiserror::Error;
use types::cause::Cause;
use types::outcome::Outcome;
use types::session::Status;
use types::turn::TurnRecord;

/// Maximum of dead letters that are read.
const MAX_DEAD_LETTERS: usize = 100_000;
/// Sessions that are checked concurrently.
const MAX_READERS: usize = 8;

/// The reason why the invariants could not be checked.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The queue returned an error.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The events of a session could not be read.
    #[error("cannot read the events of session `{session_id}`: {source}")]
    Events {
        /// The session.
        session_id: String,
        /// The reason.
        source: SharedError,
    },
}

/// Returns true if no work remains for the sessions of `sent`: each lane is empty and has no lease, and no timer is due
/// within a minute.
///
/// # Errors
/// If queue or store cannot be read.
pub async fn at_rest(queue: &dyn Queue, store: &dyn Store, sent: &[AcceptedMessage]) -> Result<bool, Unreadable> {
    for session_id in sessions(sent) {
        if !evidence::unrest(queue, store, session_id).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks all invariants. Returns a description of each violation.
///
/// # Errors
/// If queue or store cannot be read. Then the result is unknown.
pub async fn check(queue: &dyn Queue, store: &dyn Store, evidence: &Evidence) -> Result<Vec<String>, Unreadable> {
    let kept = queue.dead_letters(0, MAX_DEAD_LETTERS).await?;
    let letters: Vec<Letter> = kept.into_iter().map(|kept| kept.letter).collect();
    let mut looks = Vec::new();
    for session_id in sessions(&evidence.sent) {
        looks.push(of_session(queue, store, evidence, session_id, &letters).boxed());
    }
    let found: Vec<Vec<String>> = futures::stream::iter(looks).buffered(MAX_READERS).try_collect().await?;
    let mut found = found.concat();
    let abandoned = store.abandoned_lanes(Duration::ZERO, 1_000).await?;
    found.extend(
        abandoned.into_iter().map(|lane| format!("{}: the lane has work, but no lease holder", lane.session_id)),
    );
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
    found.extend(ends::check(&lane, evidence.outlived));
    found.extend(runs::check(&lane));
    found.extend(authoring::check(&lane));
    Ok(found.into_iter().map(|violation| format!("{session_id}: {violation}")).collect())
}

fn sessions(sent: &[AcceptedMessage]) -> BTreeSet<&str> {
    sent.iter().map(|sent| sent.session_id.as_str()).collect()
}

/// Checks that every accepted message has exactly one of these: a turn of its own, a part in a merged turn, or a dead
/// letter.
fn answered_once(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    for bad in lane.undecodable() {
        let letters = lane.letters.iter().filter(|letter| letter.payload == bad.payload).count();
        let copies = lane.sent.iter().filter(|sent| sent.payload == bad.payload).count();
        if letters != copies {
            found.push(format!("invalid message {} has {letters} dead letters", bad.seq));
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
            None if handled != 1 => Some(format!("job {job_id} was processed {handled} times, and has no dead letter")),
            None if turn.is_none() && lane.turn_of(job_id).is_none() => Some(format!("job {job_id} has no turn")),
            Some(Cause::Invalid | Cause::UnknownAgent) if handled > 0 || turn.is_some() => {
                Some(format!("job {job_id} has a dead letter, but was also processed"))
            }
            Some(cause @ (Cause::Attempts | Cause::Replay)) if !turn.is_some_and(|turn| given_up(turn, cause)) => {
                Some(format!("job {job_id} has a dead letter ({}), but its turn is not cancelled", cause.as_str()))
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

/// Reports a turn for a user message that was not sent, and a turn with the outcome `answered` without a reply. A
/// dialogue's turn that ends with an error has no reply.
fn unfounded(lane: &Lane, turn: &TurnRecord) -> Option<String> {
    let id = &turn.turn_id;
    if turn.job.user_message().is_some() && !lane.job_ids().into_iter().any(|sent| sent == id) {
        return Some(format!("turn {id} belongs to a message that was not sent"));
    }
    let said = lane.replies().any(|reply| reply.turn_id == *id);
    let failed = lane.dialogue.is_some() && turn.reason.is_some();
    (turn.outcome == Outcome::Answered && !said && !failed)
        .then(|| format!("turn {id} has the outcome answered, but no reply"))
}

/// Checks that messages were processed in stream order.
fn in_order(lane: &Lane) -> Vec<String> {
    let place = |id: &String| lane.handled.iter().position(|handled| handled == id);
    let places: Vec<_> = lane.job_ids().into_iter().filter_map(|id| place(id).map(|place| (place, id))).collect();
    let swapped = places.windows(2).filter(|pair| pair[0].0 > pair[1].0);
    swapped
        .map(|pair| format!("job {} was processed after job {}, which was sent later", pair[0].1, pair[1].1))
        .collect()
}

/// Checks that the statuses are a chain of legal transitions, and that the published statuses match the recorded ones.
fn statuses(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    let mut status = Status::Ready;
    for event in lane.statuses() {
        let to = event.status;
        if event.previous != status {
            found.push(format!(
                "turn {}: status {to} follows {status}, but its event names {} as previous",
                event.turn_id, event.previous
            ));
        }
        if status == to || status.check(to).is_err() {
            found.push(format!("turn {}: {status} → {to} is not a legal transition", event.turn_id));
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
        found.push(format!("published statuses: {published:?}, recorded statuses: {recorded:?}"));
    }
    if let Some(session) = &lane.session
        && session.workflow_state.status != status
    {
        found.push(format!(
            "the session has the status {}, but the last published status is {status}",
            session.workflow_state.status
        ));
    }
    found
}
