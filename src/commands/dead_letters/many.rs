//! Replaying many dead letters: all of them, those of one cause, or those of one agent.
//!
//! A call looks at a page of letters, so that it ends soon. The caller continues after the page. Letters that become dead
//! letters again get numbers after `until`, so they are not replayed endlessly. A replay removes its letter, so the
//! same work can be begun again at any time.

use super::{ReplayedLetter, replay_letter, session_of};
use crate::error::{CommandError, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use storage::queue::{DeadLetter, Queue, StoredDeadLetter};
use storage::store::Store;
use types::cause::Cause;

/// The letters that a call looks at, unless `limit` is given.
pub const DEFAULT_LIMIT: usize = 100;
/// The most letters that a call looks at.
pub const MAX_LIMIT: usize = 200;

/// Which dead letters to replay. Without any field: all, from the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LetterFilter {
    /// Only letters of this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Only letters of this agent: the one that the job names, else the one of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only letters with a higher number: `after` of the previous response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only letters up to this number: `until` of the previous response. By default the last letter that exists now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The highest number of letters that the request looks at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    pub limit: Option<usize>,
}

/// A dead letter that was not replayed, and stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLetter {
    /// The number of the letter.
    pub seq: u64,
    /// The session of the letter's job.
    pub session_id: String,
    /// The error code, such as `unfit_letter` or `queue_full`.
    pub code: String,
    /// The reason, as a sentence.
    pub reason: String,
}

/// The result of replaying a page of dead letters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedLetters {
    /// The replayed letters, which are removed.
    pub replayed: Vec<ReplayedLetter>,
    /// The letters that match but were not replayed. They stay.
    pub refused: Vec<RefusedLetter>,
    /// The number of the last letter that the request has looked at: `after` of the next request.
    pub after: u64,
    /// The number of the last letter to look at: `until` of the next request.
    pub until: u64,
    /// False if there are further letters: repeat the request with `after` and `until`.
    pub complete: bool,
}

/// Replays the letters that the filter selects, in the order of their numbers, on one page. Each replay is durable on
/// return. A letter whose job would fail again, or whose lane is full, is refused and stays.
///
/// Fails when the queue or the store is unreachable; the letters replayed before are removed, so the same call can be
/// repeated. Fails with `invalid_request` if `limit` is out of range.
pub async fn replay_many(
    queue: &dyn Queue,
    store: &dyn Store,
    filter: LetterFilter,
) -> Result<ReplayedLetters, CommandError> {
    let limit = filter.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("limit: {limit} is not between 1 and {MAX_LIMIT}");
        return Err(CommandError::invalid("invalid_request", message, format!("the default is {DEFAULT_LIMIT}")));
    }
    let until = match filter.until {
        Some(until) => until,
        None => queue.last_dead_letter_seq().await?,
    };
    let after = filter.after.unwrap_or(0);
    let page = if after < until { queue.dead_letters(after, limit).await? } else { Vec::new() };
    let end = page.last().map_or(until, |last| last.seq.min(until));
    let mut done = ReplayedLetters { after: end.max(after), until, ..ReplayedLetters::default() };
    done.complete = page.len() < limit || end >= until;
    let mut agents = SessionAgents { store, known: HashMap::new() };
    for kept in page.iter().filter(|kept| kept.seq <= until) {
        if !is_selected(&filter, &mut agents, kept).await? {
            continue;
        }
        match replay_letter(queue, store, kept).await {
            Ok(replayed) => done.replayed.push(replayed),
            Err(error) if ends_all(&error) => return Err(error),
            Err(error) => done.refused.push(RefusedLetter {
                seq: kept.seq,
                session_id: session_of(&kept.letter).to_owned(),
                code: error.code.to_owned(),
                reason: error.message,
            }),
        }
    }
    Ok(done)
}

/// Whether an error concerns more than one letter. A full lane is that of one session.
fn ends_all(error: &CommandError) -> bool {
    matches!(error.kind, ErrorKind::Unavailable) && error.code != "queue_full"
}

async fn is_selected(
    filter: &LetterFilter,
    agents: &mut SessionAgents<'_>,
    kept: &StoredDeadLetter,
) -> Result<bool, CommandError> {
    if filter.cause.is_some_and(|cause| cause != kept.letter.cause) {
        return Ok(false);
    }
    let Some(wanted) = &filter.agent_id else { return Ok(true) };
    match agent_of(&kept.letter) {
        Some(agent_id) => Ok(agent_id == *wanted),
        None => Ok(agents.of(session_of(&kept.letter)).await?.as_ref() == Some(wanted)),
    }
}

/// The agent that the job names.
fn agent_of(letter: &DeadLetter) -> Option<String> {
    #[derive(Deserialize)]
    struct OfAgent {
        #[serde(default)]
        agent_id: Option<String>,
    }
    serde_json::from_slice::<OfAgent>(&letter.payload).ok()?.agent_id
}

/// The agents of sessions, each read once.
struct SessionAgents<'s> {
    store: &'s dyn Store,
    known: HashMap<String, Option<String>>,
}

impl SessionAgents<'_> {
    async fn of(&mut self, session_id: &str) -> Result<Option<String>, CommandError> {
        if let Some(known) = self.known.get(session_id) {
            return Ok(known.clone());
        }
        let agent_id = self.store.session(session_id).await?.map(|session| session.agent_id);
        self.known.insert(session_id.to_owned(), agent_id.clone());
        Ok(agent_id)
    }
}
