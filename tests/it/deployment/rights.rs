//! Each role works with its own users of NATS and MongoDB, over TLS. `refusals` has their limits.

use super::guarded::Guarded;
use crate::away::is_ready;
use crate::scenarios::{answer, sales_with};
use crate::support::engine::{DEADLINE, quick, with_model};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::free_port;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use base::config::{Settings, Streams};
use futures::StreamExt;
use reqwest::Client;
use serde_json::{Value, json};
use std::time::Duration;
use types::duration::Text;

pub(super) fn consuming(filter: &str) -> pull::Config {
    pull::Config {
        durable_name: Some("channel-web".into()),
        filter_subject: filter.into(),
        ack_policy: AckPolicy::Explicit,
        ..pull::Config::default()
    }
}

/// Waits for the session's next reply of this kind, and acknowledges all replies.
async fn reply(messages: &mut pull::Stream, session_id: &str, kind: &str) -> Value {
    loop {
        let next = tokio::time::timeout(DEADLINE, messages.next()).await.expect("a reply within the deadline");
        let message = next.unwrap().unwrap();
        message.ack().await.unwrap();
        let reply: Value = serde_json::from_slice(&message.payload).unwrap();
        if reply["kind"] == kind && reply["session_id"] == session_id {
            return reply;
        }
    }
}

/// The three roles with their users, and the address of the gateway.
pub(super) struct Roles {
    pub(super) guarded: Guarded,
    http: Http,
    running: Vec<Process>,
    of_scheduler: Settings,
    _model: ScriptedModel,
}

impl Roles {
    /// Starts the gateway, which creates the streams and collections, then worker and scheduler.
    pub(super) async fn start() -> Self {
        let guarded = Guarded::start();
        let model = ScriptedModel::start(|asked| match asked.schema.as_str() {
            "plan_and_decision" => Answer::json(&plan(json!("您好"), &answer("好的"))),
            _ => Answer::json(&answer("好的")),
        })
        .await;
        let settings = |user: &str| {
            let mut settings = with_model(quick(guarded.settings(user)), &model);
            settings.streams = Streams { jobs_max_mib: 0, out_max_mib: 0, dead_max_mib: 0 };
            settings.retention.closed_sessions = Text(Duration::from_secs(1));
            settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
            settings
        };
        let of_gateway = settings("gateway");
        let mut running = vec![guarded.process(&of_gateway, "gateway")];
        is_ready(&of_gateway).await;
        running.push(guarded.process(&settings("worker"), "worker"));
        let of_scheduler = settings("scheduler");
        running.push(guarded.process(&of_scheduler, "scheduler"));
        Self { http: Http::new(&of_gateway), guarded, running, of_scheduler, _model: model }
    }

    /// Replaces the scheduler. A scheduler looks for expired data as soon as it leads, and then once a minute.
    fn restart_scheduler(&mut self) {
        self.running.pop().unwrap().kill();
        self.running.push(self.guarded.process(&self.of_scheduler, "scheduler"));
    }

    fn assert_no_violation(&self, part: &str) {
        assert_eq!(self.guarded.violations(), Vec::<String>::new(), "no role lacks a right for {part}");
    }

    /// Ends the roles in an orderly way.
    async fn stop(&mut self) {
        for process in &mut self.running {
            process.signal("TERM");
        }
        for process in &mut self.running {
            let deadline = tokio::time::Instant::now() + DEADLINE;
            let ended = loop {
                match process.ended() {
                    Some(ended) => break ended,
                    None => assert!(tokio::time::Instant::now() < deadline, "the role ends"),
                }
                tokio::task::yield_now().await;
            };
            assert!(ended.success(), "{ended}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_works_with_the_rights_of_its_user() {
    let mut roles = Roles::start().await;
    let http = &roles.http;
    let timers = json!([{"name": "follow_up", "delay": "1s", "message": "还需要帮助吗？"}]);
    http.put("/api/v1/agents/sales", &sales_with(&json!({"timers": timers}))).await;

    let channel = roles.guarded.context("channel-web", DEADLINE).await;
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "m-1", "channel": "web",
                     "text": "你好"});
    channel.publish("tw.jobs.s1", job.to_string().into()).await.unwrap().await.unwrap();
    let stream = channel.get_stream("TW_OUT").await.unwrap();
    let consumer = stream.create_consumer(consuming("tw.out.web.*.reply")).await.unwrap();
    let mut replies = consumer.messages().await.unwrap();
    assert_eq!(reply(&mut replies, "s1", "response").await["text"], "好的");
    assert_eq!(reply(&mut replies, "s1", "timer").await["text"], "还需要帮助吗？", "the reply of worker and scheduler");

    let message = json!({"session_id": "s2", "agent_id": "sales", "user_id": "u2", "job_id": "m-1", "channel": "web",
                         "text": "你好"});
    http.post("/api/v1/messages", &message, 202).await;
    reply(&mut replies, "s2", "response").await;
    let events = http.client.get(http.at("/api/v1/sessions/s2/events")).header("last-event-id", "0");
    let mut events = events.send().await.unwrap();
    let first = tokio::time::timeout(DEADLINE, events.chunk()).await.unwrap().unwrap().unwrap();
    assert!(first.starts_with(b"id:") || first.starts_with(b"event:"), "{first:?}");
    roles.assert_no_violation("messages, timers and events");

    let lost = json!({"type": "user_message", "session_id": "s3", "agent_id": "later", "job_id": "m-1", "text": "x"});
    channel.publish("tw.jobs.s3", lost.to_string().into()).await.unwrap().await.unwrap();
    eventually(DEADLINE, "it is dead-lettered", || async {
        !http.get("/api/v1/dead").await["letters"].as_array().unwrap().is_empty()
    })
    .await;
    http.put("/api/v1/agents/later", &sales_with(&json!({"id": "later"}))).await;
    http.post("/api/v1/dead/1/replay", &json!({}), 202).await;
    http.post("/api/v1/sessions/s2/cancel", &json!({"reason": "try", "by": "li"}), 202).await;
    eventually(DEADLINE, "the dead letter's turn is committed", || async {
        http.get("/api/v1/sessions/s3/turns").await["turns"].as_array().is_some_and(|turns| !turns.is_empty())
    })
    .await;
    roles.assert_no_violation("dead letters and commands");

    run_a_graph(http).await;
    http.put("/api/v1/knowledge/sales/returns.md", &json!({"text": "# 退货\n七天内可以退货。"})).await;
    http.delete("/api/v1/knowledge/sales/returns.md").await;
    let read = ["sessions", "sessions/s1", "agents", "workflows", "models", "processes", "audit", "runs", "knowledge"];
    for path in ["/readyz", "/metrics"].map(str::to_owned).into_iter().chain(read.map(|path| format!("/api/v1/{path}")))
    {
        let status = http.client.get(http.at(&path)).send().await.unwrap().status();
        assert_eq!(status, 200, "{path}");
    }
    roles.assert_no_violation("runs, knowledge and reading");

    assert!(messages_of(&roles.guarded, "s1").await > 0);
    http.delete("/api/v1/sessions/s1").await;
    assert_eq!(messages_of(&roles.guarded, "s1").await, 0, "jobs and events are purged");
    http.delete("/api/v1/users/u2").await;
    http.delete("/api/v1/agents/later?force=true").await;
    http.delete("/api/v1/workflows/waits?force=true").await;
    roles.assert_no_violation("deletion");

    let message = json!({"session_id": "s4", "agent_id": "sales", "job_id": "m-1", "channel": "web", "text": "你好"});
    http.post("/api/v1/messages", &message, 202).await;
    reply(&mut replies, "s4", "response").await;
    http.post("/api/v1/sessions/s4/close", &json!({}), 202).await;
    eventually(DEADLINE, "the session is closed", || async {
        !http.get("/api/v1/sessions/s4").await["closed_at"].is_null()
    })
    .await;
    roles.restart_scheduler();
    let http = &roles.http;
    eventually(DEADLINE, "the scheduler deletes the closed session", || async {
        http.client.get(http.at("/api/v1/sessions/s4")).send().await.unwrap().status() == 404
    })
    .await;
    assert_eq!(messages_of(&roles.guarded, "s4").await, 0);
    roles.assert_no_violation("expiry");
    roles.stop().await;
    roles.assert_no_violation("leaving");
}

/// The number of messages of a session in the streams of jobs and events.
async fn messages_of(guarded: &Guarded, session_id: &str) -> usize {
    let context = guarded.context("operator", DEADLINE).await;
    let mut sum = 0;
    for (stream, subject) in
        [("TW_JOBS", format!("tw.jobs.{session_id}")), ("TW_OUT", format!("tw.out.*.{session_id}.*"))]
    {
        let stream = context.get_stream(stream).await.unwrap();
        let subjects = stream.info_with_subjects(subject).await.unwrap();
        sum += subjects.map(|subject| subject.unwrap().1).collect::<Vec<_>>().await.into_iter().sum::<usize>();
    }
    sum
}

/// Runs a graph that waits, so that its run is parked and the scheduler wakes it.
async fn run_a_graph(http: &Http) {
    let node = json!({"node_id": "w", "type": "WAIT", "name": "w", "config": {"seconds": 1}});
    let graph = json!({"type": "graph", "id": "waits", "name": "等", "nodes": [node], "edges": []});
    http.put("/api/v1/workflows/waits", &graph).await;
    let started = http.post("/api/v1/workflows/waits/runs", &json!({"query": "x"}), 202).await;
    let path = format!("/api/v1/runs/{}", started["run_id"].as_str().unwrap());
    eventually(DEADLINE, "the run has ended", || async { http.get(&path).await["status"] == "completed" }).await;
}

/// HTTP requests to a gateway process.
struct Http {
    base: String,
    client: Client,
}

impl Http {
    fn new(settings: &Settings) -> Self {
        let client = base::http_client::builder().no_proxy().build().unwrap();
        Self { base: format!("http://{}", settings.gateway.listen), client }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    async fn get(&self, path: &str) -> Value {
        self.client.get(self.at(path)).send().await.unwrap().json().await.unwrap()
    }

    async fn put(&self, path: &str, body: &Value) {
        let body: Value = serde_json::from_str(&body.to_string().replace("{api}", "http://127.0.0.1:1")).unwrap();
        let answer = self.client.put(self.at(path)).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
    }

    async fn post(&self, path: &str, body: &Value, status: u16) -> Value {
        let answer = self.client.post(self.at(path)).json(body).send().await.unwrap();
        let (found, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(found, status, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn delete(&self, path: &str) {
        let answer = self.client.delete(self.at(path)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text().await.unwrap());
    }
}
