//! Reads a stored state field by field, so that a dialogue with a damaged state can continue.

use super::config::ConversationConfig;
use super::stage::{Artifact, Publish, Stage};
use super::state::{AgentState, StoredState};
use crate::json_kind::json_kind;
use crate::timestamp::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A state that was read from the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The state. A field that could not be read has its default.
    pub state: StoredState,
    /// The fields that could not be read, with the problems. The next save repairs them.
    pub problems: Vec<String>,
}

impl Loaded {
    /// Reads the state of a dialogue. Keeps every field, and every message, that can be read.
    pub fn read(session_id: &str, stored: Value, now: Timestamp) -> Self {
        let mut fields = Fields { found: Map::new(), problems: Vec::new() };
        match stored {
            Value::Object(found) => fields.found = found,
            other => fields.problems.push(format!("the state is {}, not an object", json_kind(&other))),
        }
        let state = stored_state(session_id, &mut fields, now);
        Self { state, problems: fields.problems }
    }

    /// Marks the state as repaired if it was damaged.
    pub fn repaired(mut self, now: Timestamp) -> StoredState {
        if !self.problems.is_empty() {
            self.state.repaired_at = Some(now);
        }
        self.state
    }
}

fn stored_state(session_id: &str, fields: &mut Fields, now: Timestamp) -> StoredState {
    let resume_stage = fields.optional("resume_stage");
    let (config, artifact) = (fields.optional::<ConversationConfig>("config"), fields.optional::<Artifact>("artifact"));
    // If `publish` cannot be determined, the dialogue must not publish without a request.
    let publish = fields.optional("publish").unwrap_or_else(|| match (&config, artifact) {
        (Some(config), Some(artifact)) => config.publish(artifact),
        _ => Publish::Manual,
    });
    StoredState {
        id: fields.required("_id", String::new),
        version: fields.optional("version").unwrap_or_default(),
        turn: fields.optional("turn"),
        questions: fields.items("questions"),
        turns: fields.optional("turns").unwrap_or_default(),
        total_entries: fields.optional("total_entries").unwrap_or_default(),
        config: config.unwrap_or_default(),
        artifact: artifact.unwrap_or_default(),
        publish,
        draft: fields.optional("draft"),
        published: fields.optional("published"),
        previous_stage: fields.optional("previous_stage").unwrap_or_default(),
        gap_rounds: fields.items("gap_rounds"),
        request_hash: fields.optional("request_hash"),
        repaired_at: fields.optional("repaired_at"),
        state: AgentState {
            session_id: session_id.to_owned(),
            user_id: fields.required("user_id", String::new),
            stage: fields.required("stage", || resume_stage.unwrap_or(Stage::Clarification)),
            conversations: fields.items("conversations"),
            intent_summary: fields.optional("intent_summary").unwrap_or_default(),
            gaps: fields.items("gaps"),
            alternatives: fields.items("alternatives"),
            workflow_id: fields.optional("workflow_id"),
            debug_loop_count: fields.optional("debug_loop_count").unwrap_or_default(),
            clarification_context: fields.optional("clarification_context").unwrap_or_default(),
            workflow_context: fields.optional("workflow_context").unwrap_or_default(),
            created_at: fields.required("created_at", || now),
            updated_at: fields.required("updated_at", || now),
        },
        resume_stage,
    }
}

struct Fields {
    found: Map<String, Value>,
    problems: Vec<String>,
}

impl Fields {
    /// A field that may be missing.
    fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.found.remove(name).filter(|value| !value.is_null())?;
        serde_json::from_value(value).map_err(|error| self.problems.push(format!("{name}: {error}"))).ok()
    }

    /// A field that every state has.
    fn required<T: DeserializeOwned>(&mut self, name: &str, default: impl FnOnce() -> T) -> T {
        if self.found.get(name).is_none_or(Value::is_null) {
            self.problems.push(format!("{name} is missing"));
            return default();
        }
        self.optional(name).unwrap_or_else(default)
    }

    /// The readable items of a list.
    fn items<T: DeserializeOwned>(&mut self, name: &str) -> Vec<T> {
        let items = match self.found.remove(name) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.problems.push(format!("{name} is {}, not a list", json_kind(&other)));
                return Vec::new();
            }
        };
        let mut readable = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            match serde_json::from_value(item) {
                Ok(item) => readable.push(item),
                Err(error) => self.problems.push(format!("{name}[{place}]: {error}")),
            }
        }
        readable
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use serde_json::json;

    fn full() -> StoredState {
        let now = Timestamp::from_millis(1_703_001_234_567);
        let mut stored = StoredState::new("7d0e".into(), "s", "u", WorkflowContext::default(), now);
        stored.state.say(Speaker::User, "每当Gmail收到邮件就转发到Slack 😀", [("a.b".into(), "$c".into())].into(), now);
        stored.state.collect("input_source", "Gmail");
        stored.state.gaps = vec!["微信朋友圈发布".into()];
        stored.state.alternatives = vec![AlternativeOption {
            id: "alt_1".into(),
            title: "邮件".into(),
            resolves: "x".into(),
            ..Default::default()
        }];
        stored.questions = vec![ClarificationQuestion { id: "q1".into(), question: "?".into(), ..Default::default() }];
        stored.state.stage = Stage::Error;
        stored.resume_stage = Some(Stage::GapAnalysis);
        stored.draft =
            Some(Draft { hash: "h".into(), ok: Some(false), problems: vec!["p".into()], ..Draft::default() });
        stored.published = Some(Published { hash: "h".into(), at: now, by: "alice".into(), forced: true });
        stored.gap_rounds = vec![GapRounds { gap: "a.b".into(), rounds: 2 }];
        stored.request_hash = Some("r".into());
        let content = MessageContent { text: "好".into(), ..MessageContent::default() };
        let body =
            Body::Message { delta: None, stream_id: None, supersedes: None, content: Some(content), workflow_id: None };
        let event = Event { body, session_id: "s".into(), turn_id: "m-1".into(), seq: 1, timestamp: 2, is_final: true };
        let turn = TurnState { turn_id: "m-1".into(), seq: 2, events: vec![event], ended: true, reopened: true };
        stored.turn = Some(turn);
        stored
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let json = serde_json::to_value(full()).unwrap();
        assert_eq!(json["stage"], "error");
        assert_eq!(json["created_at"], "2023-12-19T15:53:54.567Z");
        let loaded = Loaded::read("s", json.clone(), Timestamp::default());
        assert_eq!(loaded, Loaded { state: full(), problems: vec![] });
        assert_eq!(serde_json::from_value::<StoredState>(json).unwrap(), full());
    }

    #[test]
    fn a_damaged_state_keeps_what_can_be_read() {
        let now = Timestamp::from_millis(9);
        let mut json = serde_json::to_value(full()).unwrap();
        json["stage"] = json!(7);
        json["turn"] = json!("x");
        json["debug_loop_count"] = json!(-1);
        json["conversations"] = json!([{"role": "robot"}, json["conversations"][0]]);
        json["questions"] = json!({});
        let loaded = Loaded::read("s", json, now);
        let names: Vec<_> =
            loaded.problems.iter().map(|problem| problem.split([':', '[', ' ']).next().unwrap()).collect();
        assert_eq!(names, ["turn", "questions", "stage", "conversations", "debug_loop_count"]);
        let state = loaded.repaired(now);
        assert_eq!(state.state.stage, Stage::GapAnalysis, "where it stood before the fault");
        assert_eq!(state.state.conversations, full().state.conversations);
        assert_eq!((state.turn.is_none(), state.repaired_at), (true, Some(now)));
        // If `publish` cannot be determined, the dialogue must not publish without a request.
        for (damaged, expected) in [(["publish"].as_slice(), Publish::Auto), (&["publish", "config"], Publish::Manual)]
        {
            let mut json = serde_json::to_value(StoredState { publish: Publish::Manual, ..full() }).unwrap();
            damaged.iter().for_each(|field| json[*field] = json!(7));
            assert_eq!(Loaded::read("s", json, now).state.publish, expected, "{damaged:?}");
        }
        for stored in [json!({}), json!(1), json!({"conversations": "x"}), json!(null)] {
            let loaded = Loaded::read("s", stored, now);
            assert_eq!((loaded.state.state.stage, loaded.state.state.session_id.as_str()), (Stage::Clarification, "s"));
            assert!(!loaded.problems.is_empty());
        }
    }
}
