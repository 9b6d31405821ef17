//! Ends a dialogue's turn that cannot continue. The last event has the reason. After a fault of the program the stage
//! is `error`; after a cancellation it stays.

use super::outlet::metadata;
use crate::execution::CancelReason;
use crate::turn::state::Turn;
use decisions::authoring;
use storage::store::authoring::{SaveAuthoring, Saved};
use tracing::warn;
use types::authoring::{Body, ErrorCode, Event, StoredState, TurnState};
use types::event::ReplyKind;
use types::session::Role;

/// The reason of an operator's cancellation.
const OPERATOR: &str = "operator";

impl Turn<'_> {
    /// Queues the last events of a dialogue's turn. `shown` are the events that its attempts have shown.
    pub(in crate::turn) async fn leave_dialogue(&mut self, reason: &CancelReason, shown: &[Event]) {
        let code = if reason.word == OPERATOR { ErrorCode::Cancelled } else { ErrorCode::Internal };
        let (now, turn_id) = (self.services.clock.now(), self.turn_id().to_owned());
        let mut stored = match self.services.store.authoring(&self.session.session_id).await {
            Ok(Some(loaded)) => loaded.state,
            Ok(None) => StoredState::default(),
            // A failure of the store may be the reason why the turn is abandoned.
            Err(error) => {
                warn!(session_id = %self.session.session_id, "the state of the dialogue cannot be read: {error}");
                StoredState::default()
            }
        };
        let is_own = stored.turn.as_ref().is_some_and(|turn| turn.turn_id == turn_id);
        let has_ended = is_own && !stored.in_turn();
        if !has_ended {
            if !is_own {
                stored.turn = Some(TurnState { turn_id, ..TurnState::default() });
            }
            stored.state.session_id.clone_from(&self.session.session_id);
            let next = shown.iter().map(|event| event.seq + 1).max().unwrap_or(0);
            authoring::leave(&mut stored, code, &reason.to_string(), next, now);
            self.save_left(&mut stored).await;
        }
        // If the turn had ended and only its commit failed, its own last events are published.
        for event in stored.turn.iter().flat_map(|turn| &turn.events) {
            if let Body::Message { content: Some(content), .. } = &event.body {
                self.remember(Role::Assistant, &content.text, Some(ReplyKind::Response), metadata(content));
            }
            self.publish_authoring(event);
        }
    }

    /// Saves the end of the turn, if the store permits it. The events report the end in any case.
    async fn save_left(&mut self, stored: &mut StoredState) {
        if stored.id.is_empty() {
            return;
        }
        let save = SaveAuthoring { state: stored.clone(), epoch: Some(self.session.epoch) };
        match self.services.store.save_authoring(save).await {
            Ok(Saved::Saved(version)) => stored.version = version,
            Ok(refused) => {
                warn!(session_id = %self.session.session_id, ?refused, "the end of the dialogue's turn is not saved")
            }
            Err(error) => {
                warn!(session_id = %self.session.session_id, "the end of the dialogue's turn is not saved: {error}")
            }
        }
    }
}
