//! Streamed texts, for readers that stay connected and for readers that reconnect. [`killed`] has killed processes,
//! [`stalled`] models that stop in the middle, [`said`] the other sources of streamed texts, [`read`] the rules for
//! readers.

mod killed;
mod read;
mod said;
mod stalled;

use crate::scenarios::{acts, answer, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use crate::support::within;
use base::clock;
use definitions::workflow::definition::WorkflowRecord;
use engine::model::paced::Delta;
use futures::StreamExt;
use lab::invariants;
use serde_json::{Value, json};
use sse_stream::SseStream;
use std::future::Future;
use tokio::sync::Mutex;
use types::event::{Event, EventType, Reply, ReplyKind};
use types::texts::{Shown, Texts};

/// A model that first decides for the FLOW `speak` and apologises if it fails. `speaks` responds for the flow's task
/// agent; it gets the number of that agent's earlier calls.
async fn speaker(speaks: impl Fn(usize, &Asked) -> Answer + Send + Sync + 'static) -> ScriptedModel {
    let times = std::sync::atomic::AtomicUsize::new(0);
    ScriptedModel::start(move |asked| {
        let flow = acts("processing", "FLOW", "speak", &json!({}));
        match asked.schema.as_str() {
            "plan_and_decision" => Answer::json(&plan(Value::Null, &flow)),
            "decision" if asked.system.contains("\"ok\"") => Answer::json(&answer("这次讲不完了")),
            "decision" => Answer::json(&flow),
            _ => speaks(times.fetch_add(1, std::sync::atomic::Ordering::SeqCst), asked),
        }
    })
    .await
}

/// A workflow with one streamed stage.
fn speak() -> Value {
    json!({"id": "speak", "stages": [{"id": "say", "runnable": "speaker", "input": "{query}"}]})
}

/// An engine without workers, with the workflow and an agent that routes to it.
async fn speaking(backend: Backend, model: ScriptedModel) -> Engine {
    let engine = Engine::watching(backend, model).await;
    engine.apply(json!({"id": "speaker", "model": "default", "system_prompt": "讲一段"})).await;
    let workflow = WorkflowRecord::from_document(speak(), clock::now()).unwrap();
    engine.store.put_workflow(workflow).await.unwrap();
    engine.apply(agent()).await;
    engine
}

fn agent() -> Value {
    let mut agent = sales_with(&json!({"flows": ["speak"]}));
    agent.as_object_mut().unwrap().remove("greeting");
    agent
}

async fn chunks(engine: &Engine) -> Vec<Reply> {
    chunks_of(&engine.replies("s1").await)
}

fn chunks_of(replies: &[Reply]) -> Vec<Reply> {
    replies.iter().filter(|reply| reply.kind == ReplyKind::Chunk).cloned().collect()
}

/// The streams in order: id, text, and the stream that each supersedes. Checks that the sequences start at 0.
fn streams(chunks: &[Reply]) -> Vec<(String, String, Option<String>)> {
    let mut found: Vec<(String, String, Option<String>)> = Vec::new();
    let mut next = 0;
    for chunk in chunks {
        let id = chunk.stream_id.clone().unwrap();
        match found.last_mut().filter(|(last, ..)| *last == id) {
            Some((_, text, _)) => text.push_str(&chunk.text),
            None => {
                next = 0;
                found.push((id, chunk.text.clone(), chunk.supersedes.clone()));
            }
        }
        assert_eq!(chunk.seq, next, "{chunks:?}");
        assert!(next == 0 || chunk.supersedes.is_none(), "only the first chunk may supersede: {chunk:?}");
        next += 1;
    }
    found
}

/// The streams of the run's own events.
async fn told_streams(engine: &Engine) -> Vec<(String, Option<String>)> {
    let events = invariants::run_events(engine.queue.as_ref(), "s1").await.unwrap();
    let deltas: Vec<Delta> = events.into_iter().filter_map(|event| event.delta).collect();
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    for delta in deltas {
        if found.last().is_none_or(|(last, _)| *last != delta.stream_id) {
            found.push((delta.stream_id, delta.supersedes));
        } else {
            assert_eq!(delta.supersedes, None);
        }
    }
    found
}

/// Reads a session's server-sent events like a channel that shows texts while they grow. It reconnects after the last
/// event that it has seen.
struct StreamReader {
    url: String,
    client: reqwest::Client,
    last_id: u64,
    texts: Texts,
    /// The texts that are shown now.
    display: Vec<String>,
    /// Ids of all received events.
    ids: Vec<u64>,
    replies: Vec<Reply>,
}

impl StreamReader {
    fn of(base: &str) -> Self {
        Self {
            url: format!("{base}/api/v1/sessions/s1/events"),
            client: base::http_client::builder().no_proxy().build().unwrap(),
            last_id: 0,
            texts: Texts::default(),
            display: Vec::new(),
            ids: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Reads until the condition holds, and reconnects if the connection is lost.
    async fn until(&mut self, what: &str, found: impl Fn(&Self) -> bool) {
        let reader = Mutex::new(self);
        let read = within(DEADLINE, || async {
            let mut reader = reader.lock().await;
            found(&reader) || reader.connected(&found).await
        });
        // Without the event, the connection may stay open forever.
        let read = tokio::time::timeout(DEADLINE, read).await;
        assert!(matches!(read, Ok(Some(()))), "not within {DEADLINE:?}: {what}");
    }

    /// Reads up to the whole text of the first turn.
    async fn until_final(&mut self) {
        self.until("the text is whole", |reader| reader.last().is_some_and(|reply| reply.kind == ReplyKind::Final))
            .await;
    }

    fn last(&self) -> Option<&Reply> {
        self.replies.last()
    }

    /// Reads while the connection lasts. Returns false when it is lost.
    async fn connected(&mut self, found: &impl Fn(&Self) -> bool) -> bool {
        let request = self.client.get(&self.url).header("Last-Event-ID", self.last_id.to_string());
        let Ok(response) = request.send().await.and_then(reqwest::Response::error_for_status) else { return false };
        let mut events = SseStream::from_bytes_stream(response.bytes_stream());
        while !found(self) {
            let Some(Ok(event)) = events.next().await else { return false };
            let Some(id) = event.id.and_then(|id| id.parse().ok()) else { continue };
            self.last_id = id;
            self.ids.push(id);
            if event.event.as_deref() == Some("reply") {
                let payload = event.data.unwrap_or_default();
                let Event::Reply(reply) = Event::decode(EventType::Reply, payload.as_bytes()).unwrap() else {
                    continue;
                };
                show(&mut self.texts, &mut self.display, &reply);
                self.replies.push(reply);
            }
        }
        true
    }

    fn assert_each_once(&self) {
        assert!(self.ids.is_sorted() && self.ids.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", self.ids);
    }
}

/// Applies a reply as a channel does: the last text grows, or another one replaces it.
fn show(texts: &mut Texts, display: &mut Vec<String>, reply: &Reply) {
    match texts.take(reply) {
        Shown::Nothing => {}
        Shown::Begins { anew } => {
            if anew {
                display.pop();
            }
            display.push(reply.text.clone());
        }
        Shown::GoesOn => display.last_mut().unwrap().push_str(&reply.text),
        Shown::Whole { known, anew } => {
            if anew {
                display.pop();
            }
            match known {
                0 => display.push(reply.text.clone()),
                _ => display.last_mut().unwrap().push_str(&reply.text[known..]),
            }
        }
    }
}

/// Waits for a condition that a worker fulfils.
async fn eventually<A: crate::support::Condition, F: Future<Output = A>>(
    what: &str,
    condition: impl FnMut() -> F,
) -> A::Found {
    crate::support::eventually(DEADLINE, what, condition).await
}
