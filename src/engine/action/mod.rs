//! Actions: the operations that a model's decision may execute, one file per kind.
//!
//! - [`skill`] and [`tool`] call an HTTP API ([`http`]), a built-in function or a function registered in Rust
//!   ([`function`]). `turn::flow` finds the flow that takes over the turn. [`system`] has the operations of the engine
//!   itself.
//! - [`call_values`] has the values of a call's placeholders. `http_request` sends the requests of HTTP nodes.
//! - [`params`] checks the params of an action against its JSON Schema. [`template`](crate::template) fills
//!   placeholders in URLs, headers and bodies. `outcome` counts and logs each action.
//! - [`stand_in`] supplies the results of all calls of a rehearsal, so that none is made. [`would_call`] describes the
//!   calls.

pub mod call_values;
pub mod function;
pub mod http;
pub(crate) mod http_request;
pub(crate) mod outcome;
pub mod params;
pub mod skill;
pub mod stand_in;
pub mod system;
pub mod tool;
pub mod would_call;

use base::http_client::bounded;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;

/// Maximum size of a result as JSON, in bytes, that is recorded and shown to the model.
const MAX_RESULT: usize = 256 * 1024;
/// Maximum size of an error in bytes.
const MAX_ERROR: usize = 8 * 1024;

/// The result of an action in the form in which the model sees it: `{"ok":true,"result":…}` or
/// `{"ok":false,"error":…}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionResult {
    /// False if the action failed.
    pub ok: bool,
    /// The result; absent for a failure, and for a success without content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The error, written for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// HTTP status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Number of attempts, retries included.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub attempts: u32,
}

impl ActionResult {
    /// A success with this result.
    pub fn ok(result: Value) -> Self {
        Self { ok: true, result: Some(result), error: None, status: None, attempts: 1 }
    }

    /// A failure with this error.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { ok: false, result: None, error: Some(error.into()), status: None, attempts: 1 }
    }
}

impl ActionResult {
    /// Limits the size of result and error. A larger result is replaced by its first part as text, and its size.
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

/// Whether the value has at most `most` bytes as JSON. Does not build the JSON text.
pub(crate) fn fits(value: &Value, most: usize) -> bool {
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
