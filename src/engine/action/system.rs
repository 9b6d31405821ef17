//! SYSTEM actions: operations of the engine itself, which neither the user nor the model sees.

use types::action::{Action, ActionKind};

/// A system operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Closes the conversation.
    CloseConversation,
    /// Hands the conversation to a human.
    Handoff,
    /// Merges the params into the session's profile.
    UpdateProfile,
}

impl Operation {
    /// The operation that an action names; `None` if it names none.
    pub(crate) fn from_action(action: &Action) -> Option<Self> {
        if action.kind != ActionKind::System {
            return None;
        }
        match action.target.as_str() {
            "close_conversation" => Some(Self::CloseConversation),
            "handoff" => Some(Self::Handoff),
            "update_profile" => Some(Self::UpdateProfile),
            _ => None,
        }
    }
}
