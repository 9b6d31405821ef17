//! Listing, showing and replaying dead letters.
//!
//! A replay puts the job of a letter back on its lane and removes the letter. The queue and the session would drop a
//! job with the original id as a duplicate: the queue by its `Nats-Msg-Id`, the session by `recent_jobs`. So the job
//! gets the id `<job_id>-replay-<letter>`. This id is the same for each replay of the letter, so replaying a letter
//! twice yields one turn. [`replay_many`] replays all letters that a filter selects.

mod many;

pub use many::{DEFAULT_LIMIT, LetterFilter, MAX_LIMIT, RefusedLetter, ReplayedLetters, replay_many};

use super::enqueue::enqueue_payload;
use super::messages::takes_chats;
use crate::error::{CommandError, ErrorKind};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use storage::queue::{DeadLetter, Message, Queue, StoredDeadLetter};
use storage::store::Store;
use types::cause::Cause;
use types::ids;
use types::job::{Job, JobBody};
use types::page::{Bounds, Page, PageBuilder};
use types::session::Session;
use types::timestamp::Timestamp;

/// The number of letters that are loaded together. Each may have 1 MiB.
pub(crate) const READ_AHEAD: usize = 16;

/// The text between the job id and the number of the letter.
const REPLAY_MARK: &str = "-replay-";

/// A dead letter in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DeadLetterSummary {
    /// The number of the letter.
    pub seq: u64,
    /// When the job became a dead letter.
    pub at: Timestamp,
    /// The kind of failure.
    pub cause: Cause,
    /// The reason, as a sentence.
    pub reason: String,
    /// The session of the letter's job.
    pub session_id: String,
    /// The id of the letter's job, when it is known.
    pub job_id: Option<String>,
    /// The number of attempts that were made.
    pub attempts: u32,
}

/// A dead letter with its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DeadLetterDetails {
    /// All fields of the listing.
    #[serde(flatten)]
    pub summary: DeadLetterSummary,
    /// The subject on which the job was published.
    pub subject: String,
    /// The job's payload: JSON if it is valid JSON, else text.
    pub payload: Value,
    /// The original size of the payload in bytes. Only present when the payload was too large and `payload` is only its
    /// beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
}

/// A replayed dead letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReplayedLetter {
    /// The number of the letter, which is removed.
    pub seq: u64,
    /// The new id of the job, which is also the id of its turn.
    pub job_id: String,
    /// The session whose lane has the job.
    pub session_id: String,
}

impl From<&StoredDeadLetter> for DeadLetterSummary {
    fn from(kept: &StoredDeadLetter) -> Self {
        let letter = &kept.letter;
        Self {
            seq: kept.seq,
            at: kept.at,
            cause: letter.cause,
            reason: letter.reason.clone(),
            session_id: session_of(letter).to_owned(),
            job_id: letter.job_id.clone(),
            attempts: letter.attempts,
        }
    }
}

impl From<&StoredDeadLetter> for DeadLetterDetails {
    fn from(kept: &StoredDeadLetter) -> Self {
        let bytes = &kept.letter.payload;
        let text = || Value::String(String::from_utf8_lossy(bytes).into_owned());
        Self {
            summary: kept.into(),
            subject: kept.letter.subject.clone(),
            payload: serde_json::from_slice(bytes).unwrap_or_else(|_| text()),
            payload_bytes: kept.letter.cut_from,
        }
    }
}

pub(crate) fn session_of(letter: &DeadLetter) -> &str {
    letter.subject.rsplit('.').next().unwrap_or_default()
}

/// Returns the last `limit` letters, newest first.
pub async fn newest(queue: &dyn Queue, limit: usize) -> Result<Vec<DeadLetterSummary>, CommandError> {
    Ok(letters(queue, &Bounds::first(limit)).await?.items)
}

/// Returns a page of the letters, newest first. A place is the number of a letter.
pub async fn letters(queue: &dyn Queue, bounds: &Bounds<u64>) -> Result<Page<DeadLetterSummary>, CommandError> {
    let behind_last = queue.last_dead_letter_seq().await?.saturating_add(1);
    let mut end = bounds.after.unwrap_or(behind_last).min(behind_last);
    let mut page = PageBuilder::new(bounds.limit, bounds.max_bytes);
    let mut span = bounds.limit.saturating_add(1) as u64;
    while end > 1 {
        let begin = end.saturating_sub(span).max(1);
        for summary in summaries(queue, begin, end).await?.into_iter().rev() {
            if !page.push(summary, 0) {
                return Ok(page.finish());
            }
        }
        // Some numbers are missing, because their letters were replayed or have expired.
        (end, span) = (begin, span.saturating_mul(4));
    }
    Ok(page.finish())
}

/// The letters with numbers from `begin` to before `end`, oldest first. Holds the payloads of only a few at a time.
async fn summaries(queue: &dyn Queue, begin: u64, end: u64) -> Result<Vec<DeadLetterSummary>, CommandError> {
    let (mut found, mut after) = (Vec::new(), begin - 1);
    loop {
        let some = queue.dead_letters(after, READ_AHEAD).await?;
        let Some(last) = some.last() else { return Ok(found) };
        after = last.seq;
        found.extend(some.iter().filter(|kept| kept.seq < end).map(DeadLetterSummary::from));
        if some.len() < READ_AHEAD || after >= end {
            return Ok(found);
        }
    }
}

/// Returns the letter with this number or job id. Fails with `unknown_letter` when no letter has it, and with
/// `several_letters` when several letters have the job id.
pub async fn find(queue: &dyn Queue, which: &str) -> Result<StoredDeadLetter, CommandError> {
    if let Ok(seq @ 1..) = which.parse::<u64>()
        && let Some(kept) = queue.dead_letters(seq - 1, 1).await?.into_iter().find(|kept| kept.seq == seq)
    {
        return Ok(kept);
    }
    let mut found: Vec<StoredDeadLetter> = Vec::new();
    let mut after = 0;
    loop {
        let page = queue.dead_letters(after, READ_AHEAD).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        found.extend(page.into_iter().filter(|kept| kept.letter.job_id.as_deref() == Some(which)));
    }
    if found.len() > 1 {
        let letters: Vec<_> = found.iter().map(|kept| format!("{} ({})", kept.seq, session_of(&kept.letter))).collect();
        let message = format!("several dead letters have the job id `{which}`: {}", letters.join(", "));
        return Err(CommandError::new(ErrorKind::Conflict, "several_letters", message, "name one by its number"));
    }
    found.pop().ok_or_else(|| {
        let message = format!("there is no dead letter `{which}`, neither by its number nor by its job id");
        let hint = "`turnwheel dead list` shows the dead letters; a replayed letter is removed";
        CommandError::new(ErrorKind::NotFound, "unknown_letter", message, hint)
    })
}

/// Puts a letter's job back on its lane, as a turn of its own, and removes the letter. Durable on return. Fails with
/// `unfit_letter` when the job would become a dead letter again.
pub async fn replay(queue: &dyn Queue, store: &dyn Store, which: &str) -> Result<ReplayedLetter, CommandError> {
    replay_letter(queue, store, &find(queue, which).await?).await
}

/// As [`replay`], for a letter that is read already.
async fn replay_letter(
    queue: &dyn Queue,
    store: &dyn Store,
    kept: &StoredDeadLetter,
) -> Result<ReplayedLetter, CommandError> {
    let session_id = session_of(&kept.letter).to_owned();
    if let Some(bytes) = kept.letter.cut_from {
        let kept_bytes = kept.letter.payload.len();
        return Err(would_return(kept.seq, &format!("only {kept_bytes} of its {bytes} bytes are stored")));
    }
    let (job_id, payload) = renamed(kept);
    let message = Message {
        session_id: session_id.clone(),
        seq: kept.seq,
        stream: kept.at,
        payload: payload.clone(),
        msg_id: None,
        default_id: job_id.clone(),
        at: kept.at,
        trace: None,
    };
    let job = message.job().map_err(|error| would_return(kept.seq, &error.to_string()))?;
    can_be_handled(store, kept.seq, &job).await?;
    enqueue_payload(queue, &job, payload).await?;
    // When this fails the letter stays, and a second replay is dropped as a duplicate.
    queue.remove_dead_letter(kept.seq).await?;
    Ok(ReplayedLetter { seq: kept.seq, job_id, session_id })
}

/// Returns the job id for a replay, and the payload with this id. All other fields stay unchanged.
fn renamed(kept: &StoredDeadLetter) -> (String, Bytes) {
    let fields = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(&kept.letter.payload);
    let named =
        fields.as_ref().ok().and_then(|fields| serde_json::from_str::<String>(fields.get("job_id")?.get()).ok());
    let known = named.filter(|id| !id.is_empty()).or_else(|| kept.letter.job_id.clone());
    let original = known.unwrap_or_else(|| "letter".to_owned());
    // A replayed job that failed again already has such an ending.
    let base = match original.rsplit_once(REPLAY_MARK) {
        Some((base, number)) if number.parse::<u64>().is_ok() => base,
        _ => &original,
    };
    let ending = format!("{REPLAY_MARK}{}", kept.seq);
    let job_id = format!("{}{ending}", &base[..base.floor_char_boundary(ids::MAX_BYTES - ending.len())]);
    let payload = fields.ok().and_then(|mut fields| {
        fields.insert("job_id".into(), RawValue::from_string(json!(job_id).to_string()).ok()?);
        serde_json::to_vec(&fields).ok()
    });
    (job_id, payload.map_or_else(|| kept.letter.payload.clone(), Bytes::from))
}

fn would_return(seq: u64, problem: &str) -> CommandError {
    let message = format!("dead letter {seq} would fail again: {problem}");
    let hint = "send a corrected message instead; `turnwheel dead show` has the payload";
    CommandError::new(ErrorKind::Unprocessable, "unfit_letter", message, hint)
}

/// Fails for a job that a worker would drop, or make a dead letter immediately.
async fn can_be_handled(store: &dyn Store, seq: u64, job: &Job) -> Result<(), CommandError> {
    let session = store.session(&job.session_id).await?;
    let known = |session: Option<Session>| session.ok_or_else(|| CommandError::unknown_session(&job.session_id));
    match &job.body {
        JobBody::UserMessage(message) => match &message.agent_id {
            Some(agent_id) => takes_chats(store, agent_id).await,
            None => takes_chats(store, &known(session)?.agent_id).await,
        },
        JobBody::Timer { timer_id, generation, .. } => {
            let session = known(session)?;
            let armed =
                session.timers.iter().any(|timer| timer.timer_id == *timer_id && timer.generation == *generation);
            if armed { Ok(()) } else { Err(would_return(seq, "its timer is cancelled, so the job would do nothing")) }
        }
        JobBody::Resume { .. } | JobBody::Control(_) | JobBody::Reply { .. } | JobBody::Answer { .. } => {
            known(session).map(|_| ())
        }
        JobBody::Run { .. } | JobBody::Wake => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(seq: u64, job_id: Option<&str>, payload: &str) -> StoredDeadLetter {
        let letter = DeadLetter {
            cause: Cause::Attempts,
            reason: "x".into(),
            subject: "tw.jobs.会话".into(),
            attempts: 5,
            job_id: job_id.map(str::to_owned),
            msg_id: "1-1/attempts".into(),
            payload: payload.to_owned().into(),
            cut_from: None,
        };
        StoredDeadLetter { seq, at: Timestamp::from_millis(0), letter }
    }

    #[test]
    fn only_the_id_changes_and_always_to_the_same() {
        let (job_id, payload) = renamed(&kept(7, Some("m-1"), r#"{"job_id":"m-1","n":1.10,"text":"你好"}"#));
        assert_eq!(job_id, "m-1-replay-7");
        assert_eq!(payload, r#"{"job_id":"m-1-replay-7","n":1.10,"text":"你好"}"#.as_bytes());
        for (known, text, expected) in [
            (Some("1-9"), r#"{"text":"x"}"#, "1-9-replay-7"),
            (Some("t-1"), r#"{"job_id":""}"#, "t-1-replay-7"),
            (None, r#"{"job_id":"m-1-replay-3"}"#, "m-1-replay-7"),
            (None, r#"{"job_id":"a-replay-b"}"#, "a-replay-b-replay-7"),
            (None, "no json", "letter-replay-7"),
        ] {
            assert_eq!(renamed(&kept(7, known, text)).0, expected, "{text}");
        }
        let long = "消".repeat(ids::MAX_BYTES / 3);
        assert!(ids::is_legal_job(&renamed(&kept(u64::MAX, Some(&long), "{}")).0));
    }
}
