//! The events of a turn, as clients read them: the `data:` of `/chat/stream`, and the payloads on
//! `tw.out.<channel>.<session>.authoring`.

use super::error_code::ErrorCode;
use super::stage::{Artifact, Origin, Speaker, Stage};
use super::state::{AlternativeOption, ClarificationQuestion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One event of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuthoringEvent")]
pub struct Event {
    /// Type and content.
    #[serde(flatten)]
    pub body: Body,
    /// The dialogue.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The number in the turn, from 0.
    pub seq: u64,
    /// When the event was made, in milliseconds since 1970.
    pub timestamp: i64,
    /// True for the last event of the turn, and for no other.
    pub is_final: bool,
}

/// The types of events with their contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Body {
    /// A text: a piece of it, or the whole of it.
    Message {
        /// A piece of the text. The last event of a turn that completes has the whole text here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delta: Option<String>,
        /// The stream that a piece belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream_id: Option<String>,
        /// An earlier stream that this one replaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        supersedes: Option<String>,
        /// The whole message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<MessageContent>,
        /// The artefact, in the last event of a turn that completes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow_id: Option<String>,
    },
    /// The dialogue enters a stage.
    Status {
        /// The stages.
        content: StatusContent,
    },
    /// The turn failed.
    Error {
        /// Why.
        content: ErrorContent,
    },
    /// The model begins to write a document.
    WorkflowGenerationStarted {
        /// The artefact.
        workflow_id: String,
        /// Details.
        data: GenerationStarted,
    },
    /// The document is written.
    WorkflowDraft {
        /// The artefact.
        workflow_id: String,
        /// Details.
        data: DraftWritten,
    },
    /// The document was checked and rehearsed.
    WorkflowDebugging {
        /// The artefact.
        workflow_id: String,
        /// Details.
        data: Debugging,
    },
    /// The document is ready.
    WorkflowComplete {
        /// The artefact.
        workflow_id: String,
        /// Details.
        data: Complete,
    },
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageType {
    /// Text only.
    #[default]
    Text,
    /// Questions.
    Question,
    /// Alternatives to choose from.
    Options,
}

impl MessageType {
    /// All kinds.
    pub const ALL: &'static [Self] = &[Self::Text, Self::Question, Self::Options];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Question => "question",
            Self::Options => "options",
        }
    }
}

/// A whole message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageContent {
    /// The text.
    pub text: String,
    /// The speaker.
    pub role: Speaker,
    /// Its kind.
    pub message_type: MessageType,
    /// Further data.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The questions of a message of the kind `question`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<ClarificationQuestion>,
    /// The alternatives of a message of the kind `options`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<AlternativeOption>,
}

/// A change of the stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusContent {
    /// The stage that begins.
    pub new_stage: Stage,
    /// The stage before it.
    pub previous_stage: Stage,
    /// The stage in one sentence, in the language of the dialogue.
    pub stage_description: String,
    /// The actions that the user may take: ids of questions, `confirm_requirements`, `choose_alternative` or `publish`.
    pub pending_actions: Vec<String>,
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorContent {
    /// The code.
    pub error_code: ErrorCode,
    /// One sentence for the user.
    pub message: String,
    /// Details for an engineer who investigates the failure.
    pub details: String,
    /// True if the dialogue can continue.
    pub is_recoverable: bool,
}

/// The document that the model begins to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GenerationStarted {
    /// The kind of artefact.
    pub artifact: Artifact,
    /// The `action` with which the dialogue began.
    pub action: Origin,
    /// The number of the attempt, from 1. Each failed check raises it.
    pub attempt: u32,
}

/// A document that was written. The stored event does not contain `definition`: the publisher of the event reads it by
/// its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DraftWritten {
    /// The hash of the document.
    pub hash: String,
    /// The hash of the document from which it was made, if there is one.
    pub base_hash: Option<String>,
    /// The document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
    /// URL of the document, if the document is too large for an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition_url: Option<String>,
    /// The number of its tests.
    pub tests: u32,
    /// The attempt that wrote it.
    pub attempt: u32,
}

/// The result of the checks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Debugging {
    /// The attempt that was checked.
    pub attempt: u32,
    /// True if there is no error and no failed test.
    pub ok: bool,
    /// Findings that make the document unusable.
    pub errors: Vec<Value>,
    /// Findings that do not make it unusable.
    pub warnings: Vec<Value>,
    /// The tests.
    pub tests: TestResults,
}

/// The results of the tests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestResults {
    /// The number of passed tests.
    pub passed: u32,
    /// The failed tests, with the reasons.
    pub failed: Vec<Value>,
    /// The tests that did not run, with the reasons.
    pub not_run: Vec<Value>,
}

/// A document that is ready. The stored event does not contain `definition`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Complete {
    /// The hash of the document.
    pub hash: String,
    /// The document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
    /// URL of the document, if the document is too large for an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition_url: Option<String>,
    /// True if it is in use now.
    pub published: bool,
    /// URL of the artefact.
    pub url: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(body: Body) -> Value {
        let event = Event {
            body,
            session_id: "s".into(),
            turn_id: "m-1".into(),
            seq: 3,
            timestamp: 1_703_001_234_567,
            is_final: true,
        };
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(serde_json::from_value::<Event>(json.clone()).unwrap(), event);
        json
    }

    #[test]
    fn events_have_the_contract_s_form() {
        let status = StatusContent {
            new_stage: Stage::GapAnalysis,
            previous_stage: Stage::Negotiation,
            stage_description: "…".into(),
            pending_actions: vec![],
        };
        assert_eq!(
            event(Body::Status { content: status }),
            json!({"type": "status", "session_id": "s", "turn_id": "m-1", "seq": 3, "timestamp": 1_703_001_234_567_i64,
                "is_final": true, "content": {"new_stage": "gap_analysis", "previous_stage": "negotiation",
                "stage_description": "…", "pending_actions": []}})
        );
        let message = MessageContent { text: "好".into(), role: Speaker::Assistant, ..MessageContent::default() };
        let body =
            Body::Message { delta: None, stream_id: None, supersedes: None, content: Some(message), workflow_id: None };
        let json = event(body);
        assert_eq!(json["content"], json!({"text": "好", "role": "assistant", "message_type": "text", "metadata": {}}));
        assert!(json.get("delta").is_none() && json.get("workflow_id").is_none());
        let data = GenerationStarted { artifact: Artifact::Workflow, action: Origin::Edit, attempt: 2 };
        let json = event(Body::WorkflowGenerationStarted { workflow_id: "w".into(), data });
        assert_eq!(json["type"], "workflow_generation_started");
        assert_eq!(json["data"], json!({"artifact": "workflow", "action": "edit", "attempt": 2}));
    }
}
