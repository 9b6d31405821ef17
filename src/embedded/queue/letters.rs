//! Dead letters: kept for 30 days with the same fields as in their stream.

use super::state::{DEAD_LAST, State};
use crate::store::{DEAD, EmbeddedFile, Fault, Tables, decode, encode};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use storage::queue::{DeadLetter, KeptLetter, Result};
use types::cause::Cause;
use types::timestamp::Timestamp;

/// What goes with a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Headers {
    /// Why, as a word: the last token of its subject.
    #[serde(rename = "Tw-Cause")]
    cause: Cause,
    /// Why, in words.
    #[serde(rename = "Tw-Reason")]
    reason: String,
    /// The subject that the job came on.
    #[serde(rename = "Tw-Subject")]
    subject: String,
    /// How often it was tried.
    #[serde(rename = "Tw-Attempts")]
    attempts: u32,
    /// Its job id, where known.
    #[serde(rename = "Tw-Job-Id", default, skip_serializing_if = "Option::is_none")]
    job_id: Option<String>,
}

/// Stores a letter unless it is a repeat.
pub(super) fn put(tables: &mut Tables<'_>, state: &State, letter: &DeadLetter) -> std::result::Result<(), Fault> {
    let headers = encode(
        "the dead letter's headers",
        &Headers {
            cause: letter.cause,
            reason: letter.reason.clone(),
            subject: letter.subject.clone(),
            attempts: letter.attempts,
            job_id: letter.job_id.clone(),
        },
    )?;
    let now = tables.clock.now();
    let published = state.lock().dead.next(Some(&letter.msg_id), now);
    if !published.duplicate {
        let row = (now.as_millis(), letter.msg_id.as_str(), headers.as_slice(), &*letter.payload);
        tables.dead.insert(published.seq, row)?;
        tables.meta.insert(DEAD_LAST, published.seq)?;
    }
    Ok(())
}

/// Letters after `after`, oldest first.
pub(super) fn list(file: &EmbeddedFile, after: u64, limit: usize) -> Result<Vec<KeptLetter>> {
    let letters = file.read(|read| {
        let mut letters = Vec::new();
        for row in read.open_table(DEAD)?.range(after.saturating_add(1)..)?.take(limit) {
            let (seq, value) = row?;
            let (seq, (at, msg_id, headers, payload)) = (seq.value(), value.value());
            let Headers { cause, reason, subject, attempts, job_id } =
                decode(|| format!("dead letter {seq}"), headers)?;
            let (msg_id, payload) = (msg_id.to_owned(), Bytes::copy_from_slice(payload));
            let letter = DeadLetter { cause, reason, subject, attempts, job_id, msg_id, payload, cut_from: None };
            letters.push(KeptLetter { seq, at: Timestamp::from_millis(at), letter });
        }
        Ok(letters)
    })?;
    Ok(letters)
}
