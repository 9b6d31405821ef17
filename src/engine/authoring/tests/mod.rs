//! The driver over a scripted model, in memory. [`dialogues`] has whole dialogues and faults, [`crashes`] attempts that
//! end anywhere.

mod crashes;
mod dialogues;

use super::catalogue::{Catalogue, Item};
use super::ports::{Interrupted, Outlet, Prepared, Workshop, WorkshopError};
use super::{Driver, Speech};
use crate::execution::TurnError;
use crate::journal::Journal;
use crate::model::{DeltaSink, Model, ModelError, ModelReply, ModelRequest, Models, PromptMessage, PromptRole};
use async_trait::async_trait;
use base::clock::Clock;
use decisions::authoring::answer::Generation;
use decisions::authoring::{Checked, NewDraft, Publication, Question};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use types::authoring::message::Debugging;
use types::authoring::{Body, Event, Published, StoredState, WorkflowContext};

/// An answer of the model.
#[derive(Clone)]
enum Said {
    Json(Value),
    Text(&'static str),
    Away,
    /// Takes longer than the stage's time limit.
    Late,
}

/// A model that returns its answers in order.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<Said>>>,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
    clock: Clock,
}

impl Script {
    fn of(answers: impl IntoIterator<Item = Said>) -> Self {
        let answers = answers.into_iter().collect::<VecDeque<_>>();
        Self { answers: Arc::new(answers.into()), asked: Arc::default(), clock: Clock::movable() }
    }

    fn models(&self) -> Models {
        Models::offline().with("default", Arc::new(self.clone()))
    }

    /// The schemas of the requests so far.
    fn asked(&self) -> Vec<String> {
        let name = |request: &ModelRequest| request.schema.as_ref().unwrap().name.replace("authoring_", "");
        self.asked.lock().unwrap().iter().map(name).collect()
    }
}

#[async_trait]
impl Model for Script {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.asked.lock().unwrap().push(request);
        let said = self.answers.lock().unwrap().pop_front().expect("the script has an answer");
        match said {
            Said::Json(answer) => Ok(ModelReply::text(reply_first(answer), "m")),
            Said::Text(answer) => Ok(ModelReply::text(answer, "m")),
            Said::Away => Err(ModelError::Unavailable { model: "m".into(), attempts: 1, problem: "503".into() }),
            Said::Late => {
                // The caller's time limit starts when it has sent the request.
                tokio::task::yield_now().await;
                self.clock.advance(std::time::Duration::from_secs(31));
                std::future::pending().await
            }
        }
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let reply = self.complete(request).await?;
        let (start, end) = reply.content.split_at(reply.content.floor_char_boundary(reply.content.len() / 2));
        deltas.send(start);
        tokio::task::yield_now().await;
        deltas.send(end);
        Ok(reply)
    }
}

/// Puts the field `reply` of the answer first, as in the schemas.
fn reply_first(mut answer: Value) -> String {
    match answer.as_object_mut().and_then(|answer| answer.remove("reply")) {
        Some(reply) => format!("{{\"reply\":{reply},{}", answer.to_string().trim_start_matches('{')).replace(",}", "}"),
        None => answer.to_string(),
    }
}

/// Documents in memory.
#[derive(Default)]
struct Bench {
    drafts: Mutex<BTreeMap<String, Value>>,
    /// How often drafts were checked.
    checks: Mutex<usize>,
    /// The first checks that fail.
    failing: usize,
    published: Mutex<Vec<String>>,
}

#[async_trait]
impl Workshop for Bench {
    async fn catalogue(&self, _: &StoredState) -> Result<Catalogue, WorkshopError> {
        let item = |id: &str| Item { id: id.into(), kind: "node".into(), line: String::new() };
        Ok(Catalogue { items: vec![item("node.HTTP"), item("node.LLM")] })
    }

    async fn request(
        &self,
        question: Question,
        stored: &StoredState,
        _: &Catalogue,
    ) -> Result<Prepared, WorkshopError> {
        let said = stored.state.conversations.last().map(|entry| entry.text.clone()).unwrap_or_default();
        let schema = crate::model::ResponseSchema {
            name: question.schema_name().into(),
            strict: false,
            schema: Arc::new(json!({"type": "object"})),
        };
        let request = ModelRequest::new(vec![PromptMessage::new(PromptRole::User, said)]).with_schema(schema);
        Ok(Prepared { request, notes: BTreeMap::from([("sources".to_owned(), "guide.md".to_owned())]) })
    }

    fn correction(&self, answer: String, problem: &str) -> Result<[PromptMessage; 2], WorkshopError> {
        let problem = PromptMessage::new(PromptRole::User, problem.to_owned());
        Ok([PromptMessage::new(PromptRole::Assistant, answer), problem])
    }

    async fn keep_draft(&self, stored: &StoredState, answer: &Generation) -> Result<NewDraft, WorkshopError> {
        let document = answer.document(stored.artifact).cloned().unwrap_or_default();
        let hash = types::canonical::hash(&document);
        self.drafts.lock().unwrap().insert(hash.clone(), document);
        Ok(NewDraft { hash, tests: 1, ..NewDraft::default() })
    }

    async fn document(&self, _: &StoredState, hash: &str) -> Result<Option<Value>, WorkshopError> {
        Ok(self.drafts.lock().unwrap().get(hash).cloned())
    }

    async fn check(&self, _: &StoredState, _: std::time::Duration) -> Result<Checked, WorkshopError> {
        let mut checks = self.checks.lock().unwrap();
        *checks += 1;
        if *checks > self.failing {
            return Ok(Checked::default());
        }
        let report = Debugging { errors: vec![json!({"path": "edges", "message": "wrong"})], ..Default::default() };
        Ok(Checked { report, problems: vec!["edges: wrong".into()] })
    }

    async fn publish(&self, stored: &StoredState) -> Result<Publication, WorkshopError> {
        let hash = stored.draft.as_ref().unwrap().hash.clone();
        let mut published = self.published.lock().unwrap();
        if !published.contains(&hash) {
            published.push(hash.clone());
        }
        let by = stored.state.user_id.clone();
        Ok(Publication::Done(Published { hash, at: stored.state.created_at, by, forced: false }))
    }
}

/// The events that a client has received, and the saved state.
#[derive(Default)]
struct Seen {
    saved: Option<StoredState>,
    events: Vec<Event>,
    /// The number of remaining calls until the process dies.
    life: Option<usize>,
}

impl Seen {
    fn lives(&mut self) -> Result<(), Interrupted> {
        match &mut self.life {
            None => Ok(()),
            Some(0) => Err(TurnError::Infrastructure("killed".into()).into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// The events, each once.
    fn once(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for event in &self.events {
            match events.iter().find(|known| known.seq == event.seq) {
                Some(known) => assert_eq!(known, event, "one number, two events"),
                None => events.push(event.clone()),
            }
        }
        events
    }
}

#[async_trait]
impl Outlet for Seen {
    async fn save(&mut self, stored: &mut StoredState) -> Result<(), Interrupted> {
        self.lives()?;
        stored.version += 1;
        self.saved = Some(stored.clone());
        self.lives()
    }

    async fn show(&mut self, _: &StoredState, events: Vec<Event>) -> Result<(), Interrupted> {
        self.lives()?;
        self.events.extend(events);
        self.lives()
    }

    async fn show_piece(&mut self, piece: Event) {
        self.events.push(piece);
    }
}

/// One dialogue.
struct Dialogue {
    script: Script,
    bench: Bench,
    seen: Seen,
    stored: StoredState,
    journal: Journal,
    turns: u32,
}

impl Dialogue {
    fn new(answers: impl IntoIterator<Item = Said>) -> Self {
        let script = Script::of(answers);
        let stored = StoredState::new("7d0e".into(), "s", "alice", WorkflowContext::default(), script.clock.now());
        let journal = Journal::unrecorded(script.clock.clone(), "s", "m-0");
        Self { script, bench: Bench::default(), seen: Seen::default(), stored, journal, turns: 0 }
    }

    async fn attempt(&mut self, message: Option<&str>) -> Result<(), Interrupted> {
        let models = self.script.models();
        let speech = if message.is_some() { Speech::default() } else { Speech::of(&self.seen.events) };
        let mut driver = Driver {
            workshop: &self.bench,
            models: &models,
            model: &"default".into(),
            journal: &self.journal,
            remote: None,
            speech,
        };
        let turn_id = format!("m-{}", self.turns);
        match message {
            Some(message) => driver.begin(&mut self.stored, &turn_id, message, &mut self.seen).await?,
            None => driver.resume(&mut self.stored, &mut self.seen).await?,
        }
        driver.drive(&mut self.stored, &mut self.seen).await
    }

    /// Sends a message in a new turn. Returns the events of the turn.
    async fn say(&mut self, message: &str) -> Vec<Event> {
        self.turns += 1;
        self.seen.events.clear();
        self.journal = Journal::unrecorded(self.script.clock.clone(), "s", &format!("m-{}", self.turns));
        self.attempt(Some(message)).await.unwrap();
        self.seen.once()
    }
}

/// The types of events; a status with its stage, and an error with its code.
fn told(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match &event.body {
        Body::Status { content } => content.new_stage.as_str().to_owned(),
        Body::Error { content } => content.error_code.as_str().to_owned(),
        Body::Message { content: None, .. } => "delta".to_owned(),
        body => json!(body)["type"].as_str().unwrap().to_owned(),
    };
    let mut told: Vec<String> = events.iter().map(name).collect();
    told.dedup_by(|a, b| a == "delta" && b == "delta");
    told
}

fn clarified(ready: bool) -> Said {
    let question =
        json!({"id": "trigger", "question": "何时？", "category": "trigger", "is_required": true, "options": []});
    let questions = if ready { json!([]) } else { json!([question]) };
    Said::Json(
        json!({"reply": "好的，\n我来帮您。", "intent_summary": "Gmail → Slack", "collected_info": [], "questions": questions,
        "ready": ready}),
    )
}

fn agreed() -> Said {
    Said::Json(json!({"reply": "这样可以。", "requirements": ["转发"], "agreed": true}))
}

fn analysed(provider: Option<&str>) -> Said {
    Said::Json(json!({"capabilities": [{"need": "发送", "required": true, "provided_by": provider}]}))
}

fn offered() -> Said {
    let one =
        json!({"id": "alt_1", "title": "改用邮件", "approach": "HTTP", "complexity": "simple", "resolves": "发送"});
    Said::Json(json!({"reply": "请选择。", "alternatives": [one]}))
}

fn written(name: &str) -> Said {
    Said::Json(json!({"reply": "写好了。", "workflow": {"id": "x", "name": name}, "tests": []}))
}

fn diagnosed() -> Said {
    Said::Json(json!({"diagnosis": "边有误", "changes": ["改边"], "give_up": false}))
}
