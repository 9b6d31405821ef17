//! Dead letters, for the HTTP handlers and for commands that reach queue and store directly: what they are, and putting
//! them back onto their lanes.
//!
//! A job that has been seen is dropped when it comes again: by the queue within its window for `Nats-Msg-Id`, by the
//! session's `recent_jobs`. So a letter goes back under an id of its own, `<job_id>-replay-<letter>`, which is the same
//! however often it is put back: the letter twice is one turn. Then it is removed.

use super::enqueue::place_payload;
use super::messages::takes_chats;
use crate::error::{CommandError, ErrorKind};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use storage::queue::{DeadLetter, KeptLetter, Message, Queue};
use storage::store::Store;
use types::cause::Cause;
use types::ids;
use types::job::{Job, JobBody};
use types::session::Session;
use types::timestamp::Timestamp;

/// Letters read at once when one is looked for.
const PAGE: usize = 1_000;

/// What stands between a job's id and the number of its letter.
const MARK: &str = "-replay-";

/// What a listing shows of a dead letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LetterSummary {
    /// Its number.
    pub seq: u64,
    /// When it was put there.
    pub at: Timestamp,
    /// Why, as a word.
    pub cause: Cause,
    /// Why, in words.
    pub reason: String,
    /// The session that its job was for.
    pub session_id: String,
    /// Its job, where known.
    pub job_id: Option<String>,
    /// How often that was tried.
    pub attempts: u32,
}

/// A dead letter with its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Letter {
    /// All but the payload.
    #[serde(flatten)]
    pub summary: LetterSummary,
    /// The subject that its job came on.
    pub subject: String,
    /// What came: JSON if it is, else text.
    pub payload: Value,
    /// Its size in bytes, when it was too large and `payload` is only its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
}

/// A letter that is on its lane again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Replayed {
    /// The letter, which is gone.
    pub seq: u64,
    /// The turn that its job becomes.
    pub job_id: String,
    /// The session.
    pub session_id: String,
}

impl From<&KeptLetter> for LetterSummary {
    fn from(kept: &KeptLetter) -> Self {
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

impl From<&KeptLetter> for Letter {
    fn from(kept: &KeptLetter) -> Self {
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

fn session_of(letter: &DeadLetter) -> &str {
    letter.subject.rsplit('.').next().unwrap_or_default()
}

/// The last `limit` letters, newest first.
pub async fn newest(queue: &dyn Queue, limit: usize) -> Result<Vec<LetterSummary>, CommandError> {
    let last = queue.last_letter().await?;
    let mut span = limit as u64;
    loop {
        let after = last.saturating_sub(span);
        let found = queue.dead_letters(after, usize::MAX >> 1).await?;
        if found.len() >= limit || after == 0 {
            return Ok(found.iter().rev().take(limit).map(LetterSummary::from).collect());
        }
        // Some of those numbers are gone: replayed, or expired.
        span = span.saturating_mul(4);
    }
}

/// The letter of a number or a job id.
pub async fn find(queue: &dyn Queue, which: &str) -> Result<KeptLetter, CommandError> {
    if let Ok(seq @ 1..) = which.parse::<u64>()
        && let Some(kept) = queue.dead_letters(seq - 1, 1).await?.into_iter().find(|kept| kept.seq == seq)
    {
        return Ok(kept);
    }
    let mut found: Vec<KeptLetter> = Vec::new();
    let mut after = 0;
    loop {
        let page = queue.dead_letters(after, PAGE).await?;
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
        let hint = "`turnwheel dead list` shows those there are; one that was replayed is gone";
        CommandError::new(ErrorKind::NotFound, "unknown_letter", message, hint)
    })
}

/// Puts a letter's job back onto its lane, as a turn of its own, and removes the letter. Refuses what would only come back.
pub async fn replay(queue: &dyn Queue, store: &dyn Store, which: &str) -> Result<Replayed, CommandError> {
    let kept = find(queue, which).await?;
    let session_id = session_of(&kept.letter).to_owned();
    if let Some(bytes) = kept.letter.cut_from {
        let kept_bytes = kept.letter.payload.len();
        return Err(would_return(kept.seq, &format!("only {kept_bytes} of its {bytes} bytes are kept")));
    }
    let (job_id, payload) = renamed(&kept);
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
    place_payload(queue, &job, payload).await?;
    // Should this fail the letter stays, and putting it back again is dropped as a repeat.
    queue.remove_letter(kept.seq).await?;
    Ok(Replayed { seq: kept.seq, job_id, session_id })
}

/// The id under which a letter's job goes back, and the payload with that id; all else in it is as it came.
fn renamed(kept: &KeptLetter) -> (String, Bytes) {
    let fields = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(&kept.letter.payload);
    let named =
        fields.as_ref().ok().and_then(|fields| serde_json::from_str::<String>(fields.get("job_id")?.get()).ok());
    let known = named.filter(|id| !id.is_empty()).or_else(|| kept.letter.job_id.clone());
    let original = known.unwrap_or_else(|| "letter".to_owned());
    // A letter that came back has such an id already.
    let base = match original.rsplit_once(MARK) {
        Some((base, number)) if number.parse::<u64>().is_ok() => base,
        _ => &original,
    };
    let ending = format!("{MARK}{}", kept.seq);
    let job_id = format!("{}{ending}", &base[..base.floor_char_boundary(ids::MAX_BYTES - ending.len())]);
    let payload = fields.ok().and_then(|mut fields| {
        fields.insert("job_id".into(), RawValue::from_string(json!(job_id).to_string()).ok()?);
        serde_json::to_vec(&fields).ok()
    });
    (job_id, payload.map_or_else(|| kept.letter.payload.clone(), Bytes::from))
}

fn would_return(seq: u64, problem: &str) -> CommandError {
    let message = format!("dead letter {seq} would only come back: {problem}");
    let hint = "have its channel send it anew, corrected; `turnwheel dead show` has the payload";
    CommandError::new(ErrorKind::Unprocessable, "unfit_letter", message, hint)
}

/// Refuses a job that a worker would drop, or give up at once.
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
            if armed {
                Ok(())
            } else {
                Err(would_return(seq, "its timer is cancelled, so that it does nothing any more"))
            }
        }
        JobBody::Resume { .. } | JobBody::Control { .. } | JobBody::Reply { .. } => known(session).map(|_| ()),
        JobBody::Run { .. } | JobBody::Wake => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(seq: u64, job_id: Option<&str>, payload: &str) -> KeptLetter {
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
        KeptLetter { seq, at: Timestamp::from_millis(0), letter }
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
