//! Actions: what a decision may have executed. One file per kind; this one holds the match and nothing else.

pub mod function;
pub mod http;
pub(crate) mod outcome;
pub mod params;
pub mod skill;
pub mod system;
pub mod tool;

use base::http_client::bounded;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;

/// The most bytes of a result as JSON that are recorded and shown to the model.
const MAX_RESULT: usize = 256 * 1024;
/// The most bytes of an error.
const MAX_ERROR: usize = 8 * 1024;

/// What an action came to, as handed to the model: `{"ok":true,"result":…}` or `{"ok":false,"error":…}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionResult {
    /// Whether it did what it was asked to.
    pub ok: bool,
    /// What it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// HTTP status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Attempts that were made.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub attempts: u32,
}

impl ActionResult {
    /// A success.
    pub fn ok(result: Value) -> Self {
        Self { ok: true, result: Some(result), error: None, status: None, attempts: 1 }
    }

    /// A failure.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { ok: false, result: None, error: Some(error.into()), status: None, attempts: 1 }
    }
}

impl ActionResult {
    /// The result within its bounds: of a larger one, its beginning as text and how large it was.
    pub fn bounded(mut self) -> Self {
        if self.result.as_ref().is_some_and(|result| !fits(result, MAX_RESULT)) {
            let text = self.result.as_ref().map(Value::to_string).unwrap_or_default();
            let kept = &text[..text.floor_char_boundary(MAX_RESULT)];
            self.result = Some(json!({ "truncated": true, "bytes": text.len(), "beginning": kept }));
        }
        self.error = self.error.map(|error| bounded(&error, MAX_ERROR));
        self
    }
}

/// True when the value's text has no more bytes than `most`; the text is not made for that.
fn fits(value: &Value, most: usize) -> bool {
    struct Room(usize);
    impl io::Write for Room {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(text.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(text.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(most), value).is_ok()
}

fn one() -> u32 {
    1
}
fn is_one(attempts: &u32) -> bool {
    *attempts == 1
}
