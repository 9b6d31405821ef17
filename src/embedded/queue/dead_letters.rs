//! Dead letters, stored with the same fields as in the stream of the cluster.

use super::MAX_PAYLOAD;
use super::state::{DEAD_LAST, State};
use crate::store::{DEAD, EmbeddedFile, FileFault, Tables, decode, encode};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use storage::queue::{DeadLetter, Result, StoredDeadLetter};
use types::cause::Cause;
use types::timestamp::Timestamp;

/// The headers of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Headers {
    /// The kind of failure: the last token of the letter's subject on NATS.
    #[serde(rename = "Tw-Cause")]
    cause: Cause,
    /// The reason, as a sentence for operators.
    #[serde(rename = "Tw-Reason")]
    reason: String,
    /// The subject on which the job was published.
    #[serde(rename = "Tw-Subject")]
    subject: String,
    /// The number of attempts.
    #[serde(rename = "Tw-Attempts")]
    attempts: u32,
    /// The job's id, when it is known.
    #[serde(rename = "Tw-Job-Id", default, skip_serializing_if = "Option::is_none")]
    job_id: Option<String>,
    /// The original size of a payload that was cut, in bytes.
    #[serde(rename = "Tw-Payload-Bytes", default, skip_serializing_if = "Option::is_none")]
    payload_bytes: Option<usize>,
}

/// Stores a letter unless it is a duplicate. Cuts a payload that is larger than [`MAX_PAYLOAD`].
pub(super) fn put(tables: &mut Tables<'_>, state: &State, letter: &DeadLetter) -> std::result::Result<(), FileFault> {
    let whole = letter.payload.len();
    let headers = encode(
        "the dead letter's headers",
        &Headers {
            cause: letter.cause,
            reason: letter.reason.clone(),
            subject: letter.subject.clone(),
            attempts: letter.attempts,
            job_id: letter.job_id.clone(),
            payload_bytes: letter.cut_from.or((whole > MAX_PAYLOAD).then_some(whole)),
        },
    )?;
    let payload = &letter.payload[..whole.min(MAX_PAYLOAD)];
    let now = tables.clock.now();
    let published = state.lock().dead.next(Some(&letter.msg_id), now);
    if !published.duplicate {
        let row = (now.as_millis(), letter.msg_id.as_str(), headers.as_slice(), payload);
        tables.dead.insert(published.seq, row)?;
        tables.meta.insert(DEAD_LAST, published.seq)?;
    }
    Ok(())
}

/// Returns up to `limit` letters with a sequence above `after`, oldest first.
pub(super) fn list(file: &EmbeddedFile, after: u64, limit: usize) -> Result<Vec<StoredDeadLetter>> {
    let letters = file.read(|read| {
        let mut letters = Vec::new();
        for row in read.open_table(DEAD)?.range(after.saturating_add(1)..)?.take(limit) {
            let (seq, value) = row?;
            let (seq, (at, msg_id, headers, payload)) = (seq.value(), value.value());
            let Headers { cause, reason, subject, attempts, job_id, payload_bytes: cut_from } =
                decode(|| format!("dead letter {seq}"), headers)?;
            let (msg_id, payload) = (msg_id.to_owned(), Bytes::copy_from_slice(payload));
            let letter = DeadLetter { cause, reason, subject, attempts, job_id, msg_id, payload, cut_from };
            letters.push(StoredDeadLetter { seq, at: Timestamp::from_millis(at), letter });
        }
        Ok(letters)
    })?;
    Ok(letters)
}
