//! Converts the calls of the test's model and API to the checker's evidence.

use crate::support::api::Called;
use crate::support::script::Asked;
use lab::invariants::SeenCall;
use percent_encoding::percent_decode_str;

pub fn called(call: &Called) -> SeenCall {
    let Called { path, body, idempotency_key, at, began, ended, .. } = call.clone();
    SeenCall { key: decoded(&idempotency_key), what: format!("{path} {body}"), at, began, ended }
}

pub fn asked(asked: &Asked) -> SeenCall {
    let Asked { idempotency_key, at, began, ended, user, .. } = asked.clone();
    SeenCall { key: decoded(&idempotency_key), what: user, at, began, ended }
}

/// Decodes a header value, in which non-ASCII characters are percent-encoded.
fn decoded(key: &str) -> String {
    percent_decode_str(key).decode_utf8_lossy().into_owned()
}
