//! The gateway's endpoints as a channel sees them, over HTTP on the embedded backend. [`operators`] has the endpoints
//! for operators.

mod models;
mod operators;
mod pages;
mod quotas;
mod sessions;

use crate::scenarios::{answer, engine, sales, sales_with};
use crate::support::backend::{embedded, embedded_with};
use crate::support::background;
use crate::support::engine::sandbox;
use crate::support::engine::{Backend, DEADLINE, Engine};
use base::clock;
use base::config::Settings;
use definitions::agent::AgentRecord;
use futures::StreamExt;
use futures::stream::BoxStream;
use gateway::GatewayState;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use sse_stream::{Sse, SseStream};
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::job::Job;
use types::outcome::Outcome;

/// A gateway on its own port. Dropping it stops the gateway.
pub struct Gateway {
    pub base: String,
    pub client: Client,
    pub queue: Arc<dyn Queue>,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Server-sent events of one session.
pub struct SseEvents(pub BoxStream<'static, Sse>);

impl SseEvents {
    async fn next(&mut self) -> Option<Sse> {
        tokio::time::timeout(DEADLINE, self.0.next()).await.expect("an event or the end within the deadline")
    }

    /// Reads up to the next reply.
    pub async fn reply(&mut self) -> Value {
        loop {
            let event = self.next().await.expect("the stream must not end");
            if event.event.as_deref() == Some("reply") {
                return data(&event);
            }
        }
    }

    /// Reads up to the event that ends the turn.
    pub async fn until_end_of(&mut self, turn_id: &str) -> Vec<Sse> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.expect("the stream must not end");
            let last = event.event.as_deref() != Some("reply")
                && data(&event)["turn_id"] == turn_id
                && data(&event)["turn"].is_object();
            events.push(event);
            if last {
                return events;
            }
        }
    }
}

/// Replaces `{api}` by an address. No test calls it.
fn addressed(agent: &Value) -> Value {
    serde_json::from_str(&agent.to_string().replace("{api}", "http://127.0.0.1:9")).unwrap()
}

pub fn data(event: &Sse) -> Value {
    serde_json::from_str(event.data.as_deref().unwrap()).unwrap()
}

fn id(event: &Sse) -> u64 {
    event.id.as_deref().unwrap().parse().unwrap()
}

fn texts(events: &[Sse]) -> Vec<String> {
    let replies = events.iter().filter(|event| event.event.as_deref() == Some("reply"));
    replies.map(|event| data(event)["text"].as_str().unwrap().to_owned()).collect()
}

impl Gateway {
    pub async fn start(queue: &Arc<dyn Queue>, store: &Arc<dyn Store>, settings: &Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = GatewayState::new(Arc::clone(queue), Arc::clone(store), Arc::new(settings.clone()))
            .with_sandbox(Arc::new(sandbox(settings)));
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let (token, over) = (stop.clone(), ended.clone());
        background(async move {
            gateway::serve(listener, state, token).await.unwrap();
            over.cancel();
        });
        let client = base::http_client::builder().no_proxy().build().unwrap();
        Self { base, client, queue: Arc::clone(queue), stop, ended }
    }

    /// A gateway without workers, so that published messages stay in the lane.
    pub async fn idle(backend: &Backend) -> Self {
        let gateway = Self::start(&backend.queue, &backend.store, &backend.settings).await;
        gateway.put_agent(&sales()).await;
        gateway
    }

    pub async fn of(engine: &Engine) -> Self {
        Self::start(&engine.queue, &engine.store, &engine.settings).await
    }

    /// Ends the event streams and accepts no new ones.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub async fn get(&self, path: &str) -> Response {
        self.client.get(format!("{}{path}", self.base)).send().await.unwrap()
    }

    pub async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.client.post(format!("{}{path}", self.base)).json(body).send().await.unwrap()
    }

    pub async fn say(&self, session_id: &str, job_id: &str, text: &str) {
        let body = json!({"session_id": session_id, "agent_id": "sales", "job_id": job_id, "text": text});
        assert_eq!(self.post("/api/v1/messages", &body).await.status(), 202);
    }

    pub async fn put(&self, path: &str, body: &Value) -> Response {
        self.client.put(format!("{}{path}", self.base)).json(body).send().await.unwrap()
    }

    async fn put_agent(&self, agent: &Value) -> Response {
        let agent = &addressed(agent);
        let id = agent["id"].as_str().unwrap();
        self.client.put(format!("{}/api/v1/agents/{id}", self.base)).json(agent).send().await.unwrap()
    }

    pub async fn events(&self, session_id: &str, last_id: Option<u64>) -> SseEvents {
        let mut request = self.client.get(format!("{}/api/v1/sessions/{session_id}/events", self.base));
        if let Some(last_id) = last_id {
            request = request.header("Last-Event-ID", last_id.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let events = SseStream::from_bytes_stream(response.bytes_stream());
        SseEvents(events.filter_map(|event| std::future::ready(event.ok())).boxed())
    }

    async fn first_job(&self, session_id: &str) -> Job {
        self.queue.next_in_lane(session_id, 0, 0).await.unwrap().unwrap().job().unwrap()
    }
}

pub async fn refusal(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    for field in ["message", "hint"] {
        assert!(!body["error"][field].as_str().unwrap().is_empty(), "{body}");
    }
    (status, body["error"]["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_message_is_in_the_lane_when_it_is_accepted_and_a_repeat_adds_nothing() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    let body = json!({
        "session_id": "会话", "agent_id": "sales", "text": "你好", "job_id": "m-1", "user_id": "u1", "channel": "web",
        "metadata": {"k": 1}, "attachments": [{"type": "image", "url": "https://example.com/a.png"}], "unknown": true,
    });
    for _ in 0..2 {
        let response = gateway.post("/api/v1/messages", &body).await;
        assert_eq!(response.status(), 202);
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer, json!({"job_id": "m-1", "session_id": "会话"}));
    }
    let message = backend.queue.next_in_lane("会话", 0, 0).await.unwrap().unwrap();
    assert_eq!(message.msg_id.as_deref(), Some("会话:m-1"));
    let job = message.job().unwrap();
    let user = job.user_message().unwrap();
    assert_eq!((job.job_id.as_str(), user.text.as_str()), ("m-1", "你好"));
    assert_eq!((user.user_id.as_deref(), user.channel.as_deref()), (Some("u1"), Some("web")));
    assert!(user.sent_at.is_some() && user.attachments.len() == 1 && user.metadata["k"] == 1);
    assert!(backend.queue.next_in_lane("会话", message.seq, 0).await.unwrap().is_none(), "the repeat adds no job");
}

#[tokio::test]
async fn a_message_without_an_id_is_given_one() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    let body = json!({"session_id": "s1", "agent_id": "sales", "text": "hi"});
    let answer: Value = gateway.post("/api/v1/messages", &body).await.json().await.unwrap();
    assert_eq!(answer["job_id"], gateway.first_job("s1").await.job_id.as_str());
}

#[tokio::test]
async fn bad_messages_are_refused_with_a_reason() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    assert_eq!(gateway.put_agent(&json!({"id": "summary", "system_prompt": "总结"})).await.status(), 200);
    for (body, expected) in [
        (json!({"session_id": "s1", "agent_id": "nobody", "text": "hi"}), (404, "unknown_agent")),
        (json!({"session_id": "s1", "agent_id": "summary", "text": "hi"}), (400, "task_agent")),
        (json!({"session_id": "s1", "text": "hi"}), (400, "missing_agent")),
        (json!({"session_id": "s1", "agent_id": "sales", "text": " "}), (400, "empty_message")),
        (json!({"session_id": "a.b", "agent_id": "sales", "text": "hi"}), (400, "invalid_id")),
        (json!({"session_id": "s1", "agent_id": "sales", "text": "hi", "job_id": "a b"}), (400, "invalid_id")),
        (json!({"session_id": "s1", "agent_id": "sales", "text": "hi", "job_id": ""}), (400, "invalid_id")),
        (json!({"agent_id": "sales", "text": "hi"}), (400, "invalid_message")),
        (json!({"session_id": "s1", "agent_id": "sales", "text": 7}), (400, "invalid_message")),
        (json!(["not", "an", "object"]), (400, "invalid_json")),
    ] {
        let found = refusal(gateway.post("/api/v1/messages", &body).await).await;
        assert_eq!(found, (expected.0, expected.1.to_owned()), "{body}");
    }
    let url = format!("{}/api/v1/messages", gateway.base);
    let broken =
        gateway.client.post(&url).header("content-type", "application/json").body("{\"a\":").send().await.unwrap();
    assert_eq!(refusal(broken).await, (400, "invalid_json".to_owned()));
    let plain = gateway.client.post(&url).body("{}").send().await.unwrap();
    assert_eq!(refusal(plain).await, (415, "not_json".to_owned()));
    assert!(backend.queue.next_in_lane("s1", 0, 0).await.unwrap().is_none(), "nothing was published");
}

#[tokio::test]
async fn a_session_that_waits_for_a_worker_needs_no_agent_any_more() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    gateway.say("s1", "m-1", "hi").await;
    let second = gateway.post("/api/v1/messages", &json!({"session_id": "s1", "text": "again"})).await;
    assert_eq!(second.status(), 202);
}

#[tokio::test]
async fn a_mebibyte_of_text_passes_and_more_than_the_limit_does_not() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    let text = |bytes: usize| json!({"session_id": "s1", "agent_id": "sales", "text": "x".repeat(bytes)});
    assert_eq!(gateway.post("/api/v1/messages", &text(1024 * 1024)).await.status(), 202);
    let large = gateway.post("/api/v1/messages", &text(gateway::MAX_BODY)).await;
    assert_eq!(refusal(large).await, (413, "too_large".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mebibyte_of_text_is_handled() {
    let engine = engine(embedded().await, answer("收到"), vec![]).await;
    let gateway = Gateway::of(&engine).await;
    let text = "说".repeat(1024 * 1024 / 3);
    gateway.say("s1", "m-1", &text).await;
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Answered);
    assert!(engine.said("s1").await.iter().any(|(_, said)| said == "收到"));
    let asked = engine.model.asked();
    assert!(asked[0].user.contains("说说说"), "{} bytes were shown to the model", asked[0].user.len());
}

#[tokio::test]
async fn a_full_lane_refuses_and_says_when_to_try_again() {
    let mut settings = Settings::default();
    settings.lane.max_depth = 1;
    let gateway = Gateway::idle(&embedded_with(settings).await).await;
    gateway.say("s1", "m-1", "hi").await;
    let body = json!({"session_id": "s1", "agent_id": "sales", "text": "again"});
    let full = gateway.post("/api/v1/messages", &body).await;
    assert!(full.headers().contains_key("retry-after"));
    assert_eq!(refusal(full).await, (503, "queue_full".to_owned()));
    gateway.say("s2", "m-1", "others go on").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_as_published_and_resume_after_the_last_id() {
    let engine = engine(embedded().await, answer("有什么可以帮您"), vec![answer("好的")]).await;
    let gateway = Gateway::of(&engine).await;
    gateway.say("s1", "m-1", "你好").await;
    let first = gateway.events("s1", Some(0)).await.until_end_of("m-1").await;
    assert_eq!(texts(&first), ["您好，我是小智", "有什么可以帮您"]);
    assert!(first.windows(2).all(|pair| id(&pair[0]) < id(&pair[1])), "ids are ascending");
    let reply = first.iter().find(|event| event.event.as_deref() == Some("reply")).unwrap();
    assert_eq!((data(reply)["kind"].as_str(), data(reply)["turn_id"].as_str()), (Some("greeting"), Some("m-1")));

    let seen = id(first.last().unwrap());
    let mut now = gateway.events("s1", None).await;
    let mut resumed = gateway.events("s1", Some(seen)).await;
    let middle = id(&first[first.len() / 2]);
    let rest = gateway.events("s1", Some(middle)).await.until_end_of("m-1").await;
    assert!(rest.iter().all(|event| id(event) > middle) && !rest.is_empty());
    gateway.say("s1", "m-2", "在吗").await;
    for events in [&mut now, &mut resumed] {
        let next = events.until_end_of("m-2").await;
        assert_eq!(texts(&next), ["好的"]);
        assert!(next.iter().all(|event| id(event) > seen));
    }
    let all = gateway.events("s1", Some(u64::MAX)).await.until_end_of("m-2").await;
    assert_eq!(id(&all[0]), id(&first[0]), "an id beyond the end starts at the first retained event");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_gateway_ends_its_event_streams() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    gateway.say("s1", "m-1", "hi").await;
    let mut events = gateway.events("s1", None).await;
    gateway.stop.cancel();
    assert!(events.next().await.is_none());
    tokio::time::timeout(DEADLINE, gateway.ended.cancelled()).await.expect("the gateway stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_and_turns_can_be_read() {
    let engine = engine(embedded().await, answer("您好"), vec![answer("好的")]).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "你好").await;
    engine.say("s1", "m-2", "在吗").await;

    let session = gateway.json("/api/v1/sessions/s1").await;
    assert_eq!((&session["session_id"], &session["workflow_state"]["status"]), (&json!("s1"), &json!("ready")));
    assert!(["lease", "turn", "outbox"].iter().all(|field| session.get(field).is_none()), "{session}");
    assert_eq!(session["history"][0]["text"], "你好");

    let listed = gateway.json("/api/v1/sessions?status=ready&agent_id=sales&limit=5").await;
    assert_eq!(
        (&listed["sessions"][0]["session_id"], &listed["sessions"][0]["status"]),
        (&json!("s1"), &json!("ready"))
    );
    assert_eq!(gateway.json("/api/v1/sessions?status=cancelled").await["sessions"], json!([]));

    let turns = gateway.json("/api/v1/sessions/s1/turns").await;
    let ids: Vec<_> = turns["turns"].as_array().unwrap().iter().map(|turn| turn["turn_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["m-2", "m-1"]);
    let turn = gateway.json("/api/v1/sessions/s1/turns/m-1").await;
    assert_eq!(turn["outcome"], "answered");
    assert!(turn["steps"].as_array().unwrap().iter().any(|step| step["kind"] == "model"), "{turn}");
    let unknown = gateway.get("/api/v1/sessions/s1/turns/m-9").await;
    assert_eq!(refusal(unknown).await, (404, "unknown_turn".to_owned()));
}

#[tokio::test]
async fn agents_are_applied_and_listed() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    let again: Value = gateway.put_agent(&sales()).await.json().await.unwrap();
    let hash = AgentRecord::from_document(addressed(&sales()), clock::now()).unwrap().hash;
    assert_eq!(again, json!({"agent_id": "sales", "hash": hash, "changed": false, "warnings": []}));
    let changed: Value = gateway.put_agent(&sales_with(&json!({"tone": "冷静"}))).await.json().await.unwrap();
    assert_eq!(changed["changed"], true);
    let shown = gateway.json("/api/v1/agents/sales").await;
    assert_eq!((&shown["agent_id"], &shown["config"]["tone"]), (&json!("sales"), &json!("冷静")));
    assert_eq!(gateway.json("/api/v1/agents").await["agents"][0]["name"], "小智");
    let models = gateway.json("/api/v1/models").await;
    assert!(models["models"].as_array().unwrap().iter().any(|model| model["name"] == "offline"), "{models}");
    assert_eq!(models["agents"][0]["agent_id"], "sales");

    let url = format!("{}/api/v1/agents/other", gateway.base);
    let other = gateway.client.put(&url).json(&sales()).send().await.unwrap();
    assert_eq!(refusal(other).await, (400, "other_agent".to_owned()));
    for bad in [json!({"id": "other", "skills": [{"id": 1}]}), json!({"id": "other", "sop": "x", "flows": ["nowhere"]})]
    {
        let refused = gateway.client.put(&url).json(&bad).send().await.unwrap();
        assert_eq!(refusal(refused).await, (422, "invalid_agent".to_owned()));
    }
}

#[tokio::test]
async fn ready_while_queue_and_store_answer() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    assert_eq!(gateway.get("/healthz").await.status(), 200);
    assert_eq!(gateway.get("/readyz").await.status(), 200);
}
