//! A conversation with the authoring agent, as it travels between its caller and an author. No protobuf.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;
use types::timestamp::Timestamp;

/// Texts with fixed values.
pub(crate) trait Words: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];
    /// The word in JSON and on the wire.
    fn as_str(self) -> &'static str;
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $word)] $variant,)+
        }

        impl Words for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

words! {
    /// The stage of a conversation.
    Stage {
        /// The author asks what the user wants.
        Clarification = "clarification",
        /// The author and the user agree on requirements.
        Negotiation = "negotiation",
        /// The author compares the requirements with the catalogue.
        GapAnalysis = "gap_analysis",
        /// The author offers other ways, because something is missing.
        AlternativeGeneration = "alternative_generation",
        /// The author writes the document.
        WorkflowGeneration = "workflow_generation",
        /// The author mends a document whose tests failed.
        Debug = "debug",
        /// The document is finished.
        Completed = "completed",
        /// The stage failed. `STAGE_ERROR` on the wire.
        Error = "error",
    }
}

words! {
    /// The beginning of a conversation.
    Origin {
        /// A new document.
        Create = "create",
        /// A change of a document.
        Edit = "edit",
        /// A new document that begins as a copy.
        Copy = "copy",
    }
}

words! {
    /// The reason for questions to the user.
    Purpose {
        /// To learn what the user wants.
        InitialIntent = "initial_intent",
        /// To learn how an existing document has to change.
        TemplateModification = "template_modification",
        /// To fill a gap.
        GapResolution = "gap_resolution",
    }
}

words! {
    /// The speaker of an entry.
    Role {
        /// The user.
        User = "user",
        /// The author.
        Assistant = "assistant",
        /// The engine.
        System = "system",
    }
}

words! {
    /// The topic of a question.
    Category {
        /// The input of the workflow.
        Input = "input",
        /// Its output.
        Output = "output",
        /// The event that starts it.
        Trigger = "trigger",
        /// Its steps and conditions.
        Logic = "logic",
    }
}

words! {
    /// The effort of an alternative.
    Complexity {
        /// Little.
        Simple = "simple",
        /// Between little and much.
        Medium = "medium",
        /// Much.
        Complex = "complex",
    }
}

words! {
    /// The kind of a message.
    MessageType {
        /// A text.
        Text = "text",
        /// Questions.
        Question = "question",
        /// Alternatives to choose from.
        Options = "options",
    }
}

words! {
    /// The language of the author's texts.
    Language {
        /// Chinese.
        Zh = "zh",
        /// English.
        En = "en",
    }
}

/// The whole conversation. Its holder needs nothing else to continue it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Id of the session.
    pub session_id: String,
    /// Id of the user.
    pub user_id: String,
    /// The current stage.
    pub stage: Stage,
    /// The entries, oldest first.
    pub conversations: Vec<Conversation>,
    /// The user's wish in one sentence.
    pub intent_summary: String,
    /// Needs that nothing in the catalogue provides.
    pub gaps: Vec<String>,
    /// The offered alternatives.
    pub alternatives: Vec<AlternativeOption>,
    /// Id of the workflow or agent, as soon as it has one.
    pub workflow_id: Option<String>,
    /// How often the draft was mended.
    pub debug_loop_count: u32,
    /// The answers and open questions.
    pub clarification_context: ClarificationContext,
    /// The source of the document.
    pub workflow_context: WorkflowContext,
    /// When the conversation began.
    pub created_at: Timestamp,
    /// The last change.
    pub updated_at: Timestamp,
}

impl AgentState {
    /// True if an author continues this state without a new message: the last message is the user's, or the stage needs
    /// nothing from the user.
    pub fn continues_by_itself(&self) -> bool {
        let is_working = matches!(self.stage, Stage::GapAnalysis | Stage::WorkflowGeneration | Stage::Debug);
        is_working || self.conversations.last().is_some_and(|last| last.role == Role::User)
    }
}

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The speaker.
    pub role: Role,
    /// The text.
    pub text: String,
    /// When it was said.
    pub timestamp: Timestamp,
    /// Facts about the entry, such as the event that it reports.
    pub metadata: BTreeMap<String, String>,
}

/// A question to the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClarificationQuestion {
    /// Id of the question.
    pub id: String,
    /// Its text.
    pub question: String,
    /// Its topic.
    pub category: Category,
    /// True if the author cannot go on without the answer.
    pub is_required: bool,
    /// Answers to choose from; empty for a free answer.
    pub options: Vec<String>,
}

/// Another way to reach the user's aim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlternativeOption {
    /// Id of the alternative.
    pub id: String,
    /// A short name.
    pub title: String,
    /// The description.
    pub description: String,
    /// How it works.
    pub approach: String,
    /// Its disadvantages.
    pub trade_offs: Vec<String>,
    /// The effort.
    pub complexity: Complexity,
}

/// The answers and open questions of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClarificationContext {
    /// The reason for the questions.
    pub purpose: Purpose,
    /// The answers by name.
    pub collected_info: BTreeMap<String, String>,
    /// Ids of the questions without an answer.
    pub pending_questions: Vec<String>,
    /// The beginning of the conversation.
    pub origin: Origin,
}

/// The source of the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowContext {
    /// The beginning of the conversation.
    pub origin: Origin,
    /// Id of the document to change or copy; empty for a new one.
    pub source_workflow_id: String,
    /// The wished change.
    pub modification_intent: String,
}

impl Default for WorkflowContext {
    fn default() -> Self {
        Self { origin: Origin::Create, source_workflow_id: String::new(), modification_intent: String::new() }
    }
}

/// The settings of one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationConfig {
    /// True to send texts in pieces while the model writes them.
    pub enable_streaming: bool,
    /// The most messages of the user, from 1 to 500.
    pub max_turns: u32,
    /// The time limit of one stage in seconds, from 1 to 300.
    pub timeout_seconds: u32,
    /// The language of the author's texts.
    pub language: Language,
    /// True to give the author passages of its knowledge.
    pub enable_rag: bool,
    /// Further wishes. The author reads `artifact`, `publish` and `target_id`.
    pub preferences: BTreeMap<String, String>,
}

impl Default for ConversationConfig {
    fn default() -> Self {
        Self {
            enable_streaming: true,
            max_turns: 50,
            timeout_seconds: 30,
            language: Language::Zh,
            enable_rag: false,
            preferences: BTreeMap::new(),
        }
    }
}

/// The most entries of `preferences`.
const MAX_PREFERENCES: usize = 32;
/// The most bytes of a name or a value in `preferences`.
const MAX_PREFERENCE_BYTES: usize = 200;

/// A value that a message must not have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field} is `{found}`; {remedy}")]
pub struct InvalidField {
    /// Path of the field.
    pub field: String,
    /// The value.
    pub found: String,
    /// The accepted values.
    pub remedy: String,
}

impl InvalidField {
    /// Creates the error.
    pub fn new(field: &str, found: impl ToString, remedy: impl Into<String>) -> Self {
        Self { field: field.to_owned(), found: found.to_string(), remedy: remedy.into() }
    }
}

impl ConversationConfig {
    /// Checks the ranges of all fields.
    pub fn check(&self) -> Result<(), InvalidField> {
        for (field, value, most) in
            [("config.max_turns", self.max_turns, 500), ("config.timeout_seconds", self.timeout_seconds, 300)]
        {
            if !(1..=most).contains(&value) {
                return Err(InvalidField::new(field, value, format!("allowed are 1 to {most}, and 0 for the default")));
            }
        }
        let count = self.preferences.len();
        if count > MAX_PREFERENCES {
            let remedy = format!("at most {MAX_PREFERENCES} entries are allowed");
            return Err(InvalidField::new("config.preferences", format!("{count} entries"), remedy));
        }
        let is_long = |(name, value): &(&String, &String)| name.len().max(value.len()) > MAX_PREFERENCE_BYTES;
        match self.preferences.iter().find(is_long) {
            Some((name, _)) => {
                let shown = &name[..name.floor_char_boundary(MAX_PREFERENCE_BYTES)];
                let remedy = format!("names and values have at most {MAX_PREFERENCE_BYTES} bytes");
                Err(InvalidField::new("config.preferences", shown, remedy))
            }
            None => Ok(()),
        }
    }
}
