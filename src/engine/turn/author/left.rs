//! A turn of a dialogue that cannot continue: the last event says why, and the state stays as it was saved.

use crate::execution::CancelReason;
use crate::turn::state::Turn;
use decisions::authoring::words;
use tracing::warn;
use types::authoring::message::ErrorContent;
use types::authoring::{Body, ErrorCode, Event, Language};

/// The reason of an operator's cancellation.
const OPERATOR: &str = "operator";

impl Turn<'_> {
    /// Queues the last event of a dialogue's turn. `shown` are the events that its attempts have shown.
    pub(in crate::turn) async fn leave_dialogue(&mut self, reason: &CancelReason, shown: &[Event]) {
        let (mut language, mut seq) = (Language::default(), shown.iter().map(|event| event.seq + 1).max().unwrap_or(0));
        match self.services.store.authoring(&self.session.session_id).await {
            Ok(Some(loaded)) => {
                language = loaded.state.config.language;
                let own = loaded.state.turn.filter(|turn| turn.turn_id == self.turn_id());
                seq = seq.max(own.map_or(0, |turn| turn.seq));
            }
            Ok(None) => {}
            // The failure of the store may be the reason for which the turn is abandoned.
            Err(error) => {
                warn!(session_id = %self.session.session_id, "the state of the dialogue is not read: {error}")
            }
        }
        let error_code = if reason.word == OPERATOR { ErrorCode::Cancelled } else { ErrorCode::Internal };
        let content = ErrorContent {
            error_code,
            message: words::error(error_code, language).to_owned(),
            details: reason.to_string(),
            is_recoverable: error_code.is_recoverable(),
        };
        let event = Event {
            body: Body::Error { content },
            session_id: self.session.session_id.clone(),
            turn_id: self.turn_id().to_owned(),
            seq,
            timestamp: self.services.clock.now().as_millis(),
            is_final: true,
        };
        self.publish_authoring(&event);
    }
}
