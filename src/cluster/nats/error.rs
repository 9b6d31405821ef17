//! Conversion of the server's errors.

use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use std::error::Error;
use storage::queue::{LANE_RESERVE, QueueError};

/// Parts of the server's error texts for a full stream or full storage.
const FULL_ERRORS: [&str; 4] = ["maximum messages", "maximum bytes", "insufficient resources", "insufficient storage"];

/// The status of an error whose cause is in the request.
const BAD_REQUEST: usize = 400;

/// True when the stream does not exist.
pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Converts the error of a publish. `bytes` is the size of the payload, `limit` the server's limit.
pub(super) fn publish(error: PublishError, bytes: usize, limit: usize) -> QueueError {
    let text = error.to_string();
    let refusal = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => QueueError::TooLarge { bytes, limit },
        _ if refusal.is_some_and(|refusal| refusal.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM) => {
            QueueError::TooLarge { bytes, limit }
        }
        _ if text.contains("maximum messages per subject") => QueueError::full(format!(
            "the session's lane is full: `lane.max_depth` and the {LANE_RESERVE} \
             places beyond it for commands and timers are taken"
        )),
        _ if FULL_ERRORS.iter().any(|part| text.contains(part)) => QueueError::full(error),
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::WrongLastSequence => QueueError::refused(error),
        // The message itself is invalid, so the same one would be refused again.
        _ if refusal.is_some_and(|refusal| refusal.code() == BAD_REQUEST) => QueueError::refused(error),
        _ => QueueError::unavailable(error),
    }
}
