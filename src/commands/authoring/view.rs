//! The state of a dialogue, for clients.

use super::Dialogue;
use decisions::authoring::pending_actions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storage::store::authoring::AuthoringSummary;
use types::authoring::{
    AlternativeOption, Artifact, ClarificationQuestion, Conversation, ConversationConfig, Draft, Origin, Published,
    Stage,
};
use types::ids::Id;
use types::timestamp::Timestamp;

/// A dialogue in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DialogueSummary {
    /// The session.
    #[schemars(with = "Id")]
    pub session_id: String,
    /// Its user.
    pub user_id: String,
    /// The current stage.
    pub stage: Stage,
    /// The kind of artefact that the dialogue makes.
    pub artifact: Artifact,
    /// The user's wish, in one sentence.
    pub intent_summary: String,
    /// When it last changed.
    pub last_updated: Timestamp,
    /// True if there is a document.
    pub has_workflow: bool,
}

impl From<AuthoringSummary> for DialogueSummary {
    fn from(found: AuthoringSummary) -> Self {
        let AuthoringSummary { session_id, user_id, stage, artifact, intent_summary, updated_at, has_workflow } = found;
        Self { session_id, user_id, stage, artifact, intent_summary, last_updated: updated_at, has_workflow }
    }
}

/// A dialogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DialogueDetails {
    /// The fields of the listing.
    #[serde(flatten)]
    pub summary: DialogueSummary,
    /// The user's messages so far.
    pub conversation_turns: u32,
    /// How the dialogue began.
    pub action_type: Origin,
    /// The artefact, once it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// The actions that the user may take now: ids of open questions, `confirm_requirements`, `choose_alternative` or
    /// `publish`.
    pub pending_actions: Vec<String>,
    /// The questions that wait for an answer.
    pub questions: Vec<ClarificationQuestion>,
    /// The alternatives that were offered.
    pub alternatives: Vec<AlternativeOption>,
    /// The last document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<Draft>,
    /// The last publication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// In the stage `error`: the stage in which the next message continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_stage: Option<Stage>,
    /// The settings.
    pub config: ConversationConfig,
}

impl From<Dialogue> for DialogueDetails {
    fn from(Dialogue { state, .. }: Dialogue) -> Self {
        Self {
            conversation_turns: state.turns,
            action_type: state.state.workflow_context.origin,
            workflow_id: state.state.workflow_id.clone(),
            pending_actions: pending_actions(&state),
            questions: state.questions.clone(),
            alternatives: state.state.alternatives.clone(),
            draft: state.draft.clone(),
            published: state.published.clone(),
            resume_stage: state.resume_stage,
            config: state.config.clone(),
            summary: AuthoringSummary::from(state).into(),
        }
    }
}

/// The messages of a dialogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatHistory {
    /// The session.
    #[schemars(with = "Id")]
    pub session_id: String,
    /// The last messages, at most 200, oldest first.
    pub conversations: Vec<Conversation>,
    /// The user's wish, in one sentence.
    pub intent_summary: String,
    /// The current stage.
    pub current_stage: Stage,
    /// The user's messages so far.
    pub total_turns: u32,
}

impl From<Dialogue> for ChatHistory {
    fn from(Dialogue { state, .. }: Dialogue) -> Self {
        Self {
            session_id: state.state.session_id,
            conversations: state.state.conversations,
            intent_summary: state.state.intent_summary,
            current_stage: state.state.stage,
            total_turns: state.turns,
        }
    }
}
