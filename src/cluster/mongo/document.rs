//! Conversion between the engine's types and BSON.
//!
//! Free-form JSON (a step's output, a profile, an agent file) is stored as it is, unless it has a key or number that
//! BSON cannot hold in every place: `$…`, `a.b`, NUL, numbers above 2^63, or deep nesting. Then it is stored as
//! `{"_json": "<text>"}` and decoded to the same value.

use super::problem::sentence;
use base::error::SharedError;
use bson::raw::{BindRawBsonRef, CStr, cstr};
use bson::{Bson, RawDocumentBuf};
use mongodb::error::{Error, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::borrow::Cow;
use storage::store::StoreError;
use types::format;
use types::job::Job;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// The initial capacity in bytes, enough for most documents. A document that grows from zero is copied eight times.
const INITIAL_CAPACITY: usize = 1_024;
/// The encoding of an empty document.
const EMPTY_DOCUMENT: &[u8] = &[5, 0, 0, 0, 0];
/// The key of the wrapper.
const WRAPPER_KEY: &str = "_json";

/// Encodes plain data as a document.
pub(super) fn raw(value: &impl Serialize) -> Result<RawDocumentBuf, StoreError> {
    raw_with_capacity(0, value)
}

/// Encodes plain data as a document, with a capacity for `bytes` more than most documents need.
pub(super) fn raw_with_capacity(bytes: usize, value: &impl Serialize) -> Result<RawDocumentBuf, StoreError> {
    let mut bytes = Vec::with_capacity(INITIAL_CAPACITY + bytes);
    bson::serialize_to_buffer(value, &mut bytes).map_err(StoreError::refused)?;
    RawDocumentBuf::from_bytes(bytes).map_err(StoreError::refused)
}

/// Adds the stamp of this process' format to a document, if it needs one.
pub(super) fn stamped(mut document: RawDocumentBuf) -> RawDocumentBuf {
    stamp(&mut document);
    document
}

/// The same in place, also for the fields of an update.
pub(super) fn stamp(document: &mut RawDocumentBuf) {
    if let Some(format) = format::stamp() {
        document.append(cstr!("format"), i64::from(format));
    }
}

/// Creates an empty document with enough capacity for most.
pub(super) fn empty_document() -> RawDocumentBuf {
    let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
    bytes.extend_from_slice(EMPTY_DOCUMENT);
    // The bytes of `EMPTY_DOCUMENT` are always valid.
    RawDocumentBuf::from_bytes(bytes).unwrap_or_default()
}

/// Appends plain data as a document.
pub(super) fn append(document: &mut RawDocumentBuf, key: &CStr, value: &impl Serialize) -> Result<(), StoreError> {
    document.append(key, raw(value)?);
    Ok(())
}

/// Appends a value under a key that is known only at run time. Fails with `Refused` when the key contains NUL.
pub fn put(document: &mut RawDocumentBuf, key: &str, value: impl BindRawBsonRef) -> Result<(), StoreError> {
    let key: &CStr = key.try_into().map_err(StoreError::refused)?;
    document.append(key, value);
    Ok(())
}

/// Decodes a stored document. `what` names it in the error. Refuses a document whose stamp says that a newer version wrote
/// it for newer versions only.
pub(super) fn read<T: DeserializeOwned>(raw: &RawDocumentBuf, what: &str) -> Result<T, StoreError> {
    if let Ok(Some(found)) = raw.get(format::FIELD) {
        let found = found.as_i64().or(found.as_i32().map(i64::from)).and_then(|found| u64::try_from(found).ok());
        format::check(found.unwrap_or(0)).map_err(|source| StoreError::Newer { what: what.to_owned(), source })?;
    }
    bson::deserialize_from_slice(raw.as_bytes()).map_err(|error| StoreError::damaged(what, error))
}

/// Converts a driver error: errors of the request become `Refused`, all others `Unavailable`.
pub(super) fn failed(error: Error) -> StoreError {
    let refused = match error.kind.as_ref() {
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::Authentication { .. }
        | ErrorKind::BsonSerialization(_)
        | ErrorKind::BsonDeserialization(_) => true,
        ErrorKind::Command(command) => !is_transient(command.code),
        _ => false,
    };
    let cause = SharedError::explained(sentence(&error), error);
    if refused { StoreError::Refused(cause) } else { StoreError::Unavailable(cause) }
}

/// True for the codes of elections, shutdowns, interruptions and time limits. The same command may succeed later.
pub(super) fn is_transient(code: i32) -> bool {
    matches!(
        code,
        6 | 7
            | 50
            | 63
            | 64
            | 89
            | 91
            | 112
            | 133
            | 134
            | 150
            | 189
            | 234
            | 262
            | 9001
            | 10107
            | 11600
            | 11602
            | 13388
            | 13435
            | 13436
    )
}

/// The nesting depth from which JSON is stored as text. MongoDB accepts 100 levels, and the surrounding document needs
/// some of them.
const MAX_DEPTH: usize = 60;

/// Converts free-form JSON to the form in which it is stored.
pub(super) fn sealed(value: &Value) -> Cow<'_, Value> {
    if is_plain(value, MAX_DEPTH) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(Value::Object(wrapped(value.to_string())))
}

/// Converts the fields of a free-form JSON object to the form in which they are stored.
pub(super) fn sealed_fields(fields: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    if are_plain(fields, MAX_DEPTH) {
        return Cow::Borrowed(fields);
    }
    Cow::Owned(wrapped(Value::Object(fields.clone()).to_string()))
}

fn wrapped(text: String) -> Map<String, Value> {
    Map::from_iter([(WRAPPER_KEY.to_owned(), Value::String(text))])
}

/// Reverses [`sealed`].
pub(super) fn unseal(value: Value) -> Value {
    let wrapped = match &value {
        Value::Object(fields) if fields.len() == 1 => fields.get(WRAPPER_KEY).and_then(Value::as_str),
        _ => None,
    };
    match wrapped.and_then(|text| serde_json::from_str(text).ok()) {
        Some(inner) => inner,
        None => value,
    }
}

pub(super) fn unseal_fields(fields: Map<String, Value>) -> Map<String, Value> {
    match unseal(Value::Object(fields)) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn is_plain(value: &Value, depth: usize) -> bool {
    let Some(inner) = depth.checked_sub(1) else { return false };
    match value {
        Value::Object(fields) => are_plain(fields, depth),
        Value::Array(items) => items.iter().all(|item| is_plain(item, inner)),
        Value::Number(number) => number.is_i64() || number.is_f64(),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn are_plain(fields: &Map<String, Value>, depth: usize) -> bool {
    let Some(inner) = depth.checked_sub(1) else { return false };
    let plain = |key: &str| key != WRAPPER_KEY && !key.starts_with('$') && !key.contains(['.', '\0']);
    fields.iter().all(|(key, value)| plain(key) && is_plain(value, inner))
}

/// Converts free-form JSON to BSON.
pub(super) fn free_form(value: &Value) -> Result<Bson, StoreError> {
    bson::serialize_to_bson(sealed(value).as_ref()).map_err(StoreError::refused)
}

pub(super) fn date(at: Timestamp) -> Bson {
    Bson::DateTime(bson::DateTime::from_millis(at.as_millis()))
}

/// Converts a sequence, epoch or generation to BSON's signed 64 bits.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Decodes a stored turn.
pub(super) fn read_turn(raw: &RawDocumentBuf) -> Result<TurnRecord, StoreError> {
    #[derive(serde::Deserialize)]
    struct StoredTurn {
        session_id: String,
        turn_id: String,
        job: Value,
        statuses: Vec<types::turn::StatusAt>,
        outcome: types::outcome::Outcome,
        reason: Option<String>,
        attempts: u32,
        queued_at: Option<Timestamp>,
        started_at: Timestamp,
        committed_at: Timestamp,
        #[serde(default)]
        hash: String,
        #[serde(default)]
        actions: Vec<String>,
        #[serde(default)]
        tokens: i64,
    }
    let stored: StoredTurn = read(raw, "a turn")?;
    let job: Job =
        serde_json::from_value(unseal(stored.job)).map_err(|error| StoreError::damaged("a turn's job", error))?;
    Ok(TurnRecord {
        session_id: stored.session_id,
        turn_id: stored.turn_id,
        job,
        statuses: stored.statuses,
        outcome: stored.outcome,
        reason: stored.reason,
        attempts: stored.attempts,
        queued_at: stored.queued_at,
        started_at: stored.started_at,
        committed_at: stored.committed_at,
        hash: stored.hash,
        actions: stored.actions,
        tokens: u64::try_from(stored.tokens).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hostile_json_survives_and_plain_json_stays_readable() {
        let plain = json!({"a": [1, -2.5, null, "中"], "b": {"c": true}});
        assert_eq!(*sealed(&plain), plain);
        for hostile in [
            json!({"$set": 1}),
            json!({"a.b": 1}),
            json!([{"x": {"\u{0}": 1}}]),
            json!(u64::MAX),
            json!({"_json": "1"}),
            (0..120).fold(json!(1), |inner, _| json!([inner])),
        ] {
            let sealed = sealed(&hostile).into_owned();
            assert!(sealed.get(WRAPPER_KEY).is_some());
            assert_eq!(unseal(sealed), hostile);
        }
    }
}
