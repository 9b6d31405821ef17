//! Between the engine's types and BSON.
//!
//! Free-form JSON (a step's output, a profile, an agent file) is stored as it is, unless a key or number in it is none that
//! BSON can hold everywhere (`$…`, `a.b`, NUL, above 2^63): then it is stored as `{"_json": "<text>"}` and read back unchanged.

use super::problem::sentence;
use bson::raw::{BindRawBsonRef, CStr};
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::borrow::Cow;
use storage::store::StoreError;
use types::job::Job;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// Bytes that most documents fit into: one that grows from nothing is copied eight times.
const ROOM: usize = 1_024;
/// The bytes of an empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
/// The wrapper's key.
const WRAPPED: &str = "_json";

/// A document of plain data, as bytes.
pub(super) fn raw(value: &impl Serialize) -> Result<RawDocumentBuf, StoreError> {
    raw_with_room(0, value)
}

/// The same for one that has so many bytes beside what most need.
pub(super) fn raw_with_room(bytes: usize, value: &impl Serialize) -> Result<RawDocumentBuf, StoreError> {
    let refused = |error: bson::error::Error| StoreError::Refused(error.to_string());
    let mut bytes = Vec::with_capacity(ROOM + bytes);
    bson::serialize_to_buffer(value, &mut bytes).map_err(refused)?;
    RawDocumentBuf::from_bytes(bytes).map_err(refused)
}

/// An empty document with room for most.
pub(super) fn roomy() -> RawDocumentBuf {
    let mut bytes = Vec::with_capacity(ROOM);
    bytes.extend_from_slice(EMPTY);
    // An empty document is one.
    RawDocumentBuf::from_bytes(bytes).unwrap_or_default()
}

/// Adds a document of plain data.
pub(super) fn append(document: &mut RawDocumentBuf, key: &CStr, value: &impl Serialize) -> Result<(), StoreError> {
    document.append(key, raw(value)?);
    Ok(())
}

/// Adds a value under a key that is made at run time.
pub fn put(document: &mut RawDocumentBuf, key: &str, value: impl BindRawBsonRef) -> Result<(), StoreError> {
    let key: &CStr = key.try_into().map_err(|error: bson::error::Error| StoreError::Refused(error.to_string()))?;
    document.append(key, value);
    Ok(())
}

/// A document of plain data.
pub(super) fn to_document(value: &impl Serialize) -> Result<Document, StoreError> {
    let bytes = bson::serialize_to_vec(value).map_err(|error| StoreError::Refused(error.to_string()))?;
    bson::deserialize_from_slice(&bytes).map_err(|error| StoreError::Refused(error.to_string()))
}

/// A stored document; `what` names it in the error.
pub(super) fn read<T: DeserializeOwned>(raw: &RawDocumentBuf, what: &str) -> Result<T, StoreError> {
    bson::deserialize_from_slice(raw.as_bytes()).map_err(|error| damaged(what, &error))
}

pub(super) fn damaged(what: &str, problem: &dyn std::fmt::Display) -> StoreError {
    StoreError::Damaged { what: what.to_owned(), problem: problem.to_string() }
}

/// What a failed call means.
#[allow(clippy::needless_pass_by_value)] // The shape that `map_err` wants.
pub(super) fn failed(error: Error) -> StoreError {
    match error.kind.as_ref() {
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::Authentication { .. }
        | ErrorKind::BsonSerialization(_)
        | ErrorKind::BsonDeserialization(_) => StoreError::Refused(sentence(&error)),
        ErrorKind::Command(command) if !is_passing(command.code) => StoreError::Refused(sentence(&error)),
        _ => StoreError::Unavailable(sentence(&error)),
    }
}

/// Codes of elections, shutdowns, interruptions and time limits.
pub(super) fn is_passing(code: i32) -> bool {
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

/// Deeper nesting is stored as text: MongoDB takes 100 levels, of which the document around it needs some.
const MAX_DEPTH: usize = 60;

/// Free-form JSON as it is to be stored.
pub(super) fn sealed(value: &Value) -> Cow<'_, Value> {
    if is_plain(value, MAX_DEPTH) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(Value::Object(wrapped(value.to_string())))
}

/// Fields of free-form JSON as they are to be stored.
pub(super) fn sealed_fields(fields: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    if are_plain(fields, MAX_DEPTH) {
        return Cow::Borrowed(fields);
    }
    Cow::Owned(wrapped(Value::Object(fields.clone()).to_string()))
}

fn wrapped(text: String) -> Map<String, Value> {
    Map::from_iter([(WRAPPED.to_owned(), Value::String(text))])
}

/// Free-form JSON as it was before [`sealed`].
pub(super) fn unseal(value: Value) -> Value {
    let wrapped = match &value {
        Value::Object(fields) if fields.len() == 1 => fields.get(WRAPPED).and_then(Value::as_str),
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
    let plain = |key: &str| key != WRAPPED && !key.starts_with('$') && !key.contains(['.', '\0']);
    fields.iter().all(|(key, value)| plain(key) && is_plain(value, inner))
}

/// Free-form JSON as BSON.
pub(super) fn free(value: &Value) -> Result<Bson, StoreError> {
    bson::serialize_to_bson(sealed(value).as_ref()).map_err(|error| StoreError::Refused(error.to_string()))
}

/// A value as data in a pipeline, where a text may begin with `$`.
pub(super) fn literal(value: impl Into<Bson>) -> Bson {
    Bson::Document(doc! { "$literal": value.into() })
}

pub(super) fn date(at: Timestamp) -> Bson {
    Bson::DateTime(bson::DateTime::from_millis(at.as_millis()))
}

/// A sequence, epoch or generation, which fit into BSON's 64 bits for longer than anybody counts.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A turn as it was stored.
pub(super) fn read_turn(raw: &RawDocumentBuf) -> Result<TurnRecord, StoreError> {
    #[derive(serde::Deserialize)]
    struct Stored {
        session_id: String,
        turn_id: String,
        job: Value,
        statuses: Vec<types::turn::StatusAt>,
        outcome: types::turn::Outcome,
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
    let stored: Stored = read(raw, "a turn")?;
    let job: Job = serde_json::from_value(unseal(stored.job)).map_err(|error| damaged("a turn's job", &error))?;
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
            assert!(sealed.get(WRAPPED).is_some());
            assert_eq!(unseal(sealed), hostile);
        }
    }
}
