//! The state of a dialogue. [`AgentState`] contains the data that the authoring agent needs. [`StoredState`] adds the
//! data with which the engine resumes a dialogue after a crash. `workflow_agent_states` has one state for each
//! dialogue.

use super::config::ConversationConfig;
use super::draft::{Draft, Published};
use super::message::Event;
use super::stage::{Artifact, Category, Complexity, Origin, Publish, Purpose, Speaker, Stage};
use crate::excerpt::cut;
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest message of a user, in bytes.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// The largest number of entries that `conversations` keeps.
pub const MAX_ENTRIES: usize = 200;
/// The largest size of the entries that `conversations` keeps, in bytes.
pub const MAX_BYTES: usize = 1024 * 1024;
/// The largest number of facts in `collected_info`.
pub const MAX_INFO: usize = 64;
/// The largest size of a fact, in bytes.
pub const MAX_INFO_VALUE: usize = 4 * 1024;
/// The largest size of a fact's name, in bytes.
pub const MAX_INFO_KEY: usize = 256;
/// The largest number of gaps, and of alternatives.
pub const MAX_GAPS: usize = 32;

/// Prefix of the key of the fact that contains the alternative chosen for a gap.
pub const ALTERNATIVE: &str = "alternative:";

/// One message of a dialogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Conversation {
    /// The speaker.
    pub role: Speaker,
    /// The text.
    pub text: String,
    /// The time, in milliseconds since 1970.
    pub timestamp: i64,
    /// Further data.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

impl Conversation {
    fn bytes(&self) -> usize {
        let metadata: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.text.len() + metadata
    }
}

/// A question to the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClarificationQuestion {
    /// The id of the question within the dialogue.
    pub id: String,
    /// The question.
    pub question: String,
    /// The subject of the question.
    #[serde(default)]
    pub category: Category,
    /// True if the dialogue cannot continue without an answer.
    #[serde(default)]
    pub is_required: bool,
    /// Suggested answers.
    #[serde(default)]
    pub options: Vec<String>,
}

/// An alternative for a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlternativeOption {
    /// The id of the alternative within the dialogue.
    pub id: String,
    /// A short title.
    pub title: String,
    /// The description.
    #[serde(default)]
    pub description: String,
    /// The way in which it would be done.
    #[serde(default)]
    pub approach: String,
    /// Its drawbacks.
    #[serde(default)]
    pub trade_offs: Vec<String>,
    /// The amount of work.
    #[serde(default)]
    pub complexity: Complexity,
    /// The gap that it closes, word for word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resolves: String,
}

/// The known facts about the user's wishes, and the open questions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClarificationContext {
    /// The purpose of the clarification.
    pub purpose: Purpose,
    /// The facts, by name, such as `input_source` or `trigger_type`.
    pub collected_info: BTreeMap<String, String>,
    /// Ids of the questions that wait for an answer.
    pub pending_questions: Vec<String>,
    /// The action with which the dialogue began.
    pub origin: Origin,
}

/// The source of the dialogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkflowContext {
    /// The action with which the dialogue began.
    pub origin: Origin,
    /// The id of the workflow or agent to edit or copy; empty for a new artefact.
    pub source_workflow_id: String,
    /// The requested change, in the user's words.
    pub modification_intent: String,
}

/// The state that the authoring agent needs. It is complete, because the agent keeps nothing between two calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentState {
    /// The dialogue.
    pub session_id: String,
    /// Its user.
    pub user_id: String,
    /// The current stage.
    pub stage: Stage,
    /// The last messages, oldest first.
    #[serde(default)]
    pub conversations: Vec<Conversation>,
    /// The user's wish, in one sentence.
    #[serde(default)]
    pub intent_summary: String,
    /// The gaps: needs without a provider in the catalogue.
    #[serde(default)]
    pub gaps: Vec<String>,
    /// The alternatives that were offered.
    #[serde(default)]
    pub alternatives: Vec<AlternativeOption>,
    /// The artefact, once it has an id.
    #[serde(default)]
    pub workflow_id: Option<String>,
    /// Failed checks since the requirements were last agreed on.
    #[serde(default)]
    pub debug_loop_count: u32,
    /// Facts and questions.
    #[serde(default)]
    pub clarification_context: ClarificationContext,
    /// The source of the dialogue.
    #[serde(default)]
    pub workflow_context: WorkflowContext,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl AgentState {
    /// True if a turn can continue from this state without a message: the last message is the user's, or the stage
    /// needs no message.
    pub fn goes_on(&self) -> bool {
        let said_last = self.conversations.last().is_some_and(|entry| entry.role == Speaker::User);
        self.stage.works_alone() || (said_last && self.stage != Stage::Completed)
    }

    /// Adds a message, and drops the oldest ones beyond the limits.
    pub fn say(&mut self, role: Speaker, text: &str, metadata: BTreeMap<String, String>, now: Timestamp) {
        let text = cut(text, MAX_MESSAGE).into_owned();
        self.conversations.push(Conversation { role, text, timestamp: now.as_millis(), metadata });
        let (mut bytes, mut kept) = (0, 0);
        for entry in self.conversations.iter().rev().take(MAX_ENTRIES) {
            bytes += entry.bytes();
            if bytes > MAX_BYTES && kept > 0 {
                break;
            }
            kept += 1;
        }
        self.conversations.drain(..self.conversations.len() - kept);
    }

    /// Stores a fact. An empty value removes it. Beyond the limits, only existing facts change. A chosen alternative is
    /// always stored; there are at most as many as gaps.
    pub fn collect(&mut self, key: &str, value: &str) {
        let info = &mut self.clarification_context.collected_info;
        let key = &key[..key.floor_char_boundary(MAX_INFO_KEY)];
        let most = if key.starts_with(ALTERNATIVE) { MAX_INFO + MAX_GAPS } else { MAX_INFO };
        if value.is_empty() {
            info.remove(key);
        } else if !key.is_empty() && (info.len() < most || info.contains_key(key)) {
            info.insert(key.to_owned(), cut(value, MAX_INFO_VALUE).into_owned());
        }
    }
}

/// How often the analysis has found a required gap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GapRounds {
    /// The gap.
    pub gap: String,
    /// The number of times.
    pub rounds: u32,
}

/// The progress of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TurnState {
    /// The turn.
    pub turn_id: String,
    /// The number of the next event.
    pub seq: u64,
    /// The events of the last save. The attempt that resumes the turn publishes them again, because they may not have
    /// been published.
    #[serde(with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub events: Vec<Event>,
    /// True once the turn has ended, and the dialogue waits for the user.
    pub ended: bool,
    /// True once the turn has returned to the requirements. A turn may do this once.
    pub reopened: bool,
}

/// The state of a dialogue, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoredState {
    /// A UUID.
    #[serde(rename = "_id")]
    pub id: String,
    /// The agent's state.
    #[serde(flatten)]
    pub state: AgentState,
    /// The version. Each save raises it.
    #[serde(default)]
    pub version: u64,
    /// The current turn, or the last one.
    #[serde(default)]
    pub turn: Option<TurnState>,
    /// The questions that wait for an answer.
    #[serde(default)]
    pub questions: Vec<ClarificationQuestion>,
    /// The user's messages so far.
    #[serde(default)]
    pub turns: u32,
    /// The number of messages so far, including the messages that `conversations` has dropped.
    #[serde(default)]
    pub total_entries: u32,
    /// The settings of the dialogue.
    #[serde(default)]
    pub config: ConversationConfig,
    /// The kind of artefact that the dialogue makes.
    #[serde(default)]
    pub artifact: Artifact,
    /// Decides who publishes the artefact.
    #[serde(default)]
    pub publish: Publish,
    /// The last document.
    #[serde(default)]
    pub draft: Option<Draft>,
    /// The last publication.
    #[serde(default)]
    pub published: Option<Published>,
    /// In the stage `error`: the stage in which the next message continues.
    #[serde(default)]
    pub resume_stage: Option<Stage>,
    /// The stage before the current one.
    #[serde(default)]
    pub previous_stage: Stage,
    /// How often the analysis has found each required gap.
    #[serde(default)]
    pub gap_rounds: Vec<GapRounds>,
    /// The hash of the request that began the dialogue. A repeat of the request has it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<String>,
    /// When the state was last repaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired_at: Option<Timestamp>,
}

impl StoredState {
    /// A dialogue before its first message. `id` is a UUID.
    pub fn new(id: String, session_id: &str, user_id: &str, context: WorkflowContext, now: Timestamp) -> Self {
        let purpose = match context.origin {
            Origin::Create => Purpose::InitialIntent,
            Origin::Edit | Origin::Copy => Purpose::TemplateModification,
        };
        let clarification = ClarificationContext { purpose, origin: context.origin, ..ClarificationContext::default() };
        let state = AgentState {
            session_id: session_id.to_owned(),
            user_id: user_id.to_owned(),
            clarification_context: clarification,
            workflow_context: context,
            created_at: now,
            updated_at: now,
            ..AgentState::default()
        };
        Self { id, state, ..Self::default() }
    }

    /// Sets the kind of artefact, and the settings that depend on it.
    pub fn configured(mut self, config: ConversationConfig, artifact: Option<Artifact>) -> Self {
        self.artifact = artifact.or(config.artifact()).unwrap_or_default();
        self.publish = config.publish(self.artifact);
        self.config = config;
        self
    }

    /// Changes the settings of a dialogue that has begun. The kind of artefact stays.
    pub fn reconfigured(mut self, config: ConversationConfig) -> Self {
        let is_new = self.published.is_none() && self.state.workflow_context.origin != Origin::Edit;
        if is_new && config.target_id() != self.config.target_id() {
            // The document contains its id, so the model writes it again under the new one.
            (self.state.workflow_id, self.draft) = (None, None);
        }
        let wish = |config: &ConversationConfig| config.preferences.get("publish").cloned();
        // Nothing is published by itself after a repair, unless somebody asks for it.
        if wish(&config) != wish(&self.config) {
            self.publish = config.publish(self.artifact);
        }
        self.config = config;
        self
    }

    /// True if there is a document.
    pub fn has_workflow(&self) -> bool {
        self.draft.is_some() || self.published.is_some()
    }

    /// True while a turn is open.
    pub fn in_turn(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.ended)
    }

    /// True if the other state comes from the same save, whose response was lost: same turn, same position in it.
    pub fn is_same_save(&self, other: &Self) -> bool {
        let place = |state: &Self| state.turn.as_ref().map(|turn| (turn.turn_id.clone(), turn.seq, turn.ended));
        self.version == other.version && place(self).is_some() && place(self) == place(other)
    }
}

/// Events as JSON texts: as a text, a JSON object may have keys that the store does not permit.
mod texts {
    use super::Event;
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
        let texts: Result<Vec<String>, _> = events.iter().map(serde_json::to_string).collect();
        serializer.collect_seq(texts.map_err(S::Error::custom)?)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| serde_json::from_str(text).map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conversation_keeps_the_newest_within_its_bounds() {
        let mut state = AgentState::default();
        for n in 0..300 {
            state.say(Speaker::User, &n.to_string(), BTreeMap::new(), Timestamp::from_millis(n));
        }
        assert_eq!(state.conversations.len(), MAX_ENTRIES);
        assert_eq!(state.conversations[0].text, "100");
        for _ in 0..40 {
            state.say(Speaker::User, &"长".repeat(MAX_MESSAGE / 3), BTreeMap::new(), Timestamp::default());
        }
        let bytes: usize = state.conversations.iter().map(Conversation::bytes).sum();
        assert!(bytes <= MAX_BYTES && state.conversations.len() == 16, "{bytes}");
    }

    #[test]
    fn facts_are_bounded_and_can_be_forgotten() {
        let mut state = AgentState::default();
        for n in 0..100 {
            state.collect(&format!("k{n:02}"), "v");
        }
        state.collect("k00", &"x".repeat(10_000));
        state.collect("k01", "");
        let info = &state.clarification_context.collected_info;
        assert_eq!(info.len(), MAX_INFO - 1);
        assert!(info["k00"].len() < MAX_INFO_VALUE + 64);
    }

    #[test]
    fn an_edit_begins_with_its_source() {
        let context = WorkflowContext {
            origin: Origin::Edit,
            source_workflow_id: "w1".into(),
            modification_intent: String::new(),
        };
        let config =
            ConversationConfig { preferences: [("artifact".into(), "agent".into())].into(), ..Default::default() };
        let state = StoredState::new("id".into(), "s", "u", context, Timestamp::default()).configured(config, None);
        assert_eq!(state.state.clarification_context.purpose, Purpose::TemplateModification);
        assert_eq!((state.artifact, state.publish), (Artifact::Agent, Publish::Manual));
        assert!(!state.has_workflow() && !state.in_turn());
    }

    #[test]
    fn another_target_id_makes_another_document() {
        let state = StoredState::new("id".into(), "s", "u", WorkflowContext::default(), Timestamp::default());
        let wants = |id: &str| ConversationConfig {
            preferences: [("target_id".to_owned(), id.to_owned())].into(),
            ..Default::default()
        };
        let mut state = state.configured(wants("taken"), None);
        state.state.workflow_id = Some("taken".into());
        state.draft = Some(Draft::default());
        let same = state.clone().reconfigured(ConversationConfig { max_turns: 9, ..wants("taken") });
        assert!(same.draft.is_some() && same.state.workflow_id.is_some());
        let other = state.clone().reconfigured(wants("free"));
        assert!(other.draft.is_none() && other.state.workflow_id.is_none());
        state.published = Some(Published::default());
        assert!(state.reconfigured(wants("free")).draft.is_some(), "what is published keeps its id");
    }
}
