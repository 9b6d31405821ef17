//! The machine, driven without a model: [`transitions`] has each transition, [`walks`] random dialogues.

mod transitions;
mod walks;

use super::answer::{
    Alternatives, Capability, Clarification, Diagnosis, Fact, GapAnalysis, Generation, Negotiation, read,
};
use super::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use types::authoring::message::Debugging;
use types::authoring::{
    AlternativeOption, Body, ClarificationQuestion, ErrorCode, Event, Published, Stage, StoredState, WorkflowContext,
};
use types::timestamp::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_703_001_234_567);

fn new() -> StoredState {
    StoredState::new("7d0e".into(), "s", "alice", WorkflowContext::default(), NOW)
}

/// A dialogue with the events of its current turn.
struct Dialogue {
    stored: StoredState,
    turns: u32,
    events: Vec<Event>,
}

impl Dialogue {
    fn new(stored: StoredState) -> Self {
        Self { stored, turns: 0, events: Vec::new() }
    }

    /// Sends a message in a new turn.
    fn say(&mut self, message: &str) -> &mut Self {
        self.turns += 1;
        self.events.clear();
        begin(&mut self.stored, &format!("m-{}", self.turns), message, NOW);
        self.keep()
    }

    fn input(&mut self, input: Input) -> &mut Self {
        advance(&mut self.stored, input, BTreeMap::new(), NOW).unwrap();
        self.keep()
    }

    fn fault(&mut self, code: ErrorCode) -> &mut Self {
        fault(&mut self.stored, code, "…", NOW);
        self.keep()
    }

    /// Acts like a process that dies after each save: writes the state, reads it, continues.
    fn keep(&mut self) -> &mut Self {
        self.events.extend(self.stored.turn.iter().flat_map(|turn| turn.events.clone()));
        let json = serde_json::to_value(&self.stored).unwrap();
        let loaded = types::authoring::Loaded::read("s", json, NOW);
        assert_eq!((&loaded.state, loaded.problems.len()), (&self.stored, 0));
        self.stored = loaded.state;
        self
    }

    /// The stages in the events of the current turn.
    fn stages(&self) -> Vec<&'static str> {
        self.events
            .iter()
            .filter_map(|event| match &event.body {
                Body::Status { content } => Some(content.new_stage.as_str()),
                _ => None,
            })
            .collect()
    }

    fn types(&self) -> Vec<String> {
        let name = |event: &Event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned();
        self.events.iter().map(name).collect()
    }

    fn last(&self) -> Value {
        serde_json::to_value(self.events.last().unwrap()).unwrap()
    }

    fn waits(&self) -> bool {
        next(&self.stored) == Next::Wait && self.events.last().unwrap().is_final
    }
}

fn question(id: &str, is_required: bool) -> ClarificationQuestion {
    ClarificationQuestion { id: id.into(), question: format!("{id}?"), is_required, ..Default::default() }
}

fn clarified(questions: Vec<ClarificationQuestion>) -> Input {
    Input::Clarified(Clarification {
        reply: "好".into(),
        intent_summary: "Gmail → Slack".into(),
        collected_info: vec![Fact { key: "input_source".into(), value: "Gmail".into() }],
        ready: questions.is_empty(),
        questions,
    })
}

fn negotiated(agreed: bool) -> Input {
    let requirements = vec!["读邮件".to_owned(), "发消息".to_owned()];
    Input::Negotiated(Negotiation { reply: "可以吗？".into(), requirements, agreed, ..Default::default() })
}

/// An analysis of these needs: name, required, provider.
fn analysed(needs: &[(&str, bool, Option<&str>)]) -> Input {
    let capability = |(need, required, provided_by): &(&str, bool, Option<&str>)| Capability {
        need: (*need).to_owned(),
        required: *required,
        provided_by: provided_by.map(str::to_owned),
    };
    let capabilities = needs.iter().map(capability).collect();
    Input::Analysed(GapAnalysis { capabilities, reopen: false }, HashSet::from(["tool.mail.gmail".to_owned()]))
}

fn offered(resolves: &str) -> Input {
    let one = |id: &str, title: &str| AlternativeOption {
        id: id.into(),
        title: title.into(),
        approach: "HTTP".into(),
        resolves: resolves.into(),
        ..Default::default()
    };
    let alternatives = vec![one("alt_1", "发邮件"), one("alt_2", "省略这一步")];
    Input::Offered(Alternatives { reply: "请选择".into(), alternatives })
}

fn drafted(hash: &str) -> Input {
    let draft = NewDraft { hash: hash.into(), tests: 2, ..NewDraft::default() };
    Input::Drafted { reply: "写好了".into(), draft }
}

fn checked(ok: bool) -> Input {
    let errors = if ok { vec![] } else { vec![json!({"path": "edges[0].to", "message": "no such node"})] };
    let problems = if ok { vec![] } else { vec!["edges[0].to: no such node".to_owned()] };
    Input::Checked(Checked { report: Debugging { errors, ..Default::default() }, problems })
}

fn diagnosed() -> Input {
    Input::Diagnosed(Diagnosis { diagnosis: "边".into(), changes: vec!["改边".into()], ..Default::default() })
}

fn published(hash: &str) -> Input {
    Input::Published(Publication::Done(Published { hash: hash.into(), at: NOW, by: "alice".into(), forced: false }))
}

#[test]
fn an_answer_is_read_with_what_the_stage_needs() {
    let answer = json!({"reply": "?", "questions": [{"id": "q", "question": "?", "category": "trigger"}], "mood": 1});
    assert_eq!(read::<Clarification>(answer).unwrap().questions[0].category.as_str(), "trigger");
    let wrong = json!({"reply": "?", "questions": [{"id": "q", "question": "?", "category": "weather"}]});
    assert!(read::<Clarification>(wrong).unwrap_err().to_string().contains("weather"));
    assert!(read::<GapAnalysis>(json!("prose")).is_err());
    let generation: Generation = read(json!({"reply": "", "workflow": {"nodes": []}, "agent": null})).unwrap();
    assert!(generation.document(types::authoring::Artifact::Workflow).is_some());
    assert!(generation.document(types::authoring::Artifact::Agent).is_none());
}

#[test]
fn the_schemas_take_the_answers_that_the_contract_lists() {
    let examples = [
        json!({"reply": "", "intent_summary": "", "collected_info": [{"key": "a", "value": "b"}], "questions":
            [{"id": "q", "question": "?", "category": "input", "is_required": true, "options": []}], "ready": false}),
        json!({"reply": "", "collected_info": [], "requirements": ["r"], "questions": [], "agreed": true, "reopen": false}),
        json!({"capabilities": [{"need": "n", "required": true, "provided_by": null}], "reopen": false}),
        json!({"reply": "", "alternatives": [{"id": "a", "title": "t", "description": "", "approach": "", "trade_offs": [],
            "complexity": "simple", "resolves": "n"}]}),
        json!({"reply": "", "workflow": {}, "agent": null, "tests": [], "reopen": false}),
        json!({"diagnosis": "", "changes": ["c"], "give_up": false, "reopen": false}),
    ];
    for (question, example) in Question::ALL.into_iter().zip(examples) {
        let schema = schema::schema(question, types::authoring::Artifact::Workflow);
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&example), "{question:?}");
        assert!(!validator.is_valid(&json!({})), "{question:?}");
        assert_eq!(Question::of_schema(question.schema_name()), Some(question));
    }
}
