//! The users of `deploy/nats-permissions.conf`: each role works with its own user, which has no other permissions.

use crate::away::is_ready;
use crate::scenarios::{answer, sales_with};
use crate::support::engine::{DEADLINE, quick, with_model};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::{ClusterHandles, Server, cluster, free_port};
use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, Context};
use base::config::Settings;
use futures::{FutureExt, StreamExt};
use reqwest::Client;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const PERMISSIONS: &str = include_str!("../../../deploy/nats-permissions.conf");

/// A nats-server with these users, whose passwords are their names, and its log.
struct Guarded {
    server: Server,
    log: PathBuf,
    _dir: TempDir,
}

impl Guarded {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("nats.log");
        let mut text = format!("log_file: {log:?}\n{PERMISSIONS}");
        for (variable, user) in [
            ("$TW_NATS_WORKER", "worker"),
            ("$TW_NATS_GATEWAY", "gateway"),
            ("$TW_NATS_SCHEDULER", "scheduler"),
            ("$TW_NATS_CHANNEL_WEB", "channel-web"),
            ("$TW_NATS_OPERATOR", "operator"),
        ] {
            assert!(text.contains(variable));
            text = text.replace(variable, user);
        }
        Self { server: Server::nats_with(&text), log, _dir: dir }
    }

    fn address(&self, user: &str) -> String {
        self.server.address().replace("://", &format!("://{user}:{user}@"))
    }

    /// Log lines of refused requests so far.
    fn violations(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains("Violation")).map(str::to_owned).collect()
    }

    /// A client with a channel's user. The server does not respond to a request without permission, so it times out.
    async fn channel(&self, timeout: Duration) -> Context {
        let options = ConnectOptions::with_user_and_password("channel-web".into(), "channel-web".into())
            .custom_inbox_prefix("_INBOX_web");
        let mut context = jetstream::new(options.connect(self.server.address()).await.unwrap());
        context.set_timeout(timeout);
        context
    }
}

fn consuming(filter: &str) -> pull::Config {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_works_with_the_permissions_that_are_documented_and_may_do_no_more() {
    let guarded = Guarded::start();
    let handles = ClusterHandles { nats_url: guarded.address("operator"), namespace: "tw".into(), ..cluster().await };
    let model = ScriptedModel::start(|asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(json!("您好"), &answer("好的"))),
        _ => Answer::json(&answer("好的")),
    })
    .await;
    let settings = |user: &str| {
        let mut settings = with_model(quick(handles.settings()), &model);
        settings.nats.url = guarded.address(user);
        settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
        settings
    };
    let (dir, of_gateway) = (tempfile::tempdir().unwrap(), settings("gateway"));
    let folder = |name: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    // The first process creates the streams.
    let gateway = Process::start(&folder("gateway"), &of_gateway, &["gateway"]);
    is_ready(&of_gateway).await;
    let worker = Process::start(&folder("worker"), &settings("worker"), &["worker"]);
    let scheduler = Process::start(&folder("scheduler"), &settings("scheduler"), &["scheduler"]);
    let timers = json!([{"name": "follow_up", "delay": "1s", "message": "还需要帮助吗？"}]);
    let http = Http::new(&of_gateway);
    http.put("/api/v1/agents/sales", &sales_with(&json!({"timers": timers}))).await;

    let channel = guarded.channel(DEADLINE).await;
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "m-1", "channel": "web",
                     "text": "你好"});
    channel.publish("tw.jobs.s1", job.to_string().into()).await.unwrap().await.unwrap();
    let stream = channel.get_stream("TW_OUT").await.unwrap();
    let consumer = stream.create_consumer(consuming("tw.out.web.*.reply")).await.unwrap();
    let mut replies = consumer.messages().await.unwrap();
    assert_eq!(reply(&mut replies, "s1", "response").await["text"], "好的");
    assert_eq!(reply(&mut replies, "s1", "timer").await["text"], "还需要帮助吗？", "the reply of worker and scheduler");

    // Through the gateway: a message, its events, a control command, and a replayed dead letter.
    let message = json!({"session_id": "s2", "agent_id": "sales", "job_id": "m-1", "channel": "web", "text": "你好"});
    http.post("/api/v1/messages", &message, 202).await;
    reply(&mut replies, "s2", "response").await;
    let events = http.client.get(http.at("/api/v1/sessions/s2/events")).header("last-event-id", "0");
    let mut events = events.send().await.unwrap();
    let first = tokio::time::timeout(DEADLINE, events.chunk()).await.unwrap().unwrap().unwrap();
    assert!(first.starts_with(b"id:") || first.starts_with(b"event:"), "{first:?}");
    let lost = json!({"type": "user_message", "session_id": "s3", "agent_id": "later", "job_id": "m-1", "text": "x"});
    channel.publish("tw.jobs.s3", lost.to_string().into()).await.unwrap().await.unwrap();
    eventually(DEADLINE, "it is dead-lettered", || async {
        !http.get("/api/v1/dead").await["letters"].as_array().unwrap().is_empty()
    })
    .await;
    let later = sales_with(&json!({"id": "later"}));
    http.put("/api/v1/agents/later", &later).await;
    http.post("/api/v1/dead/1/replay", &json!({}), 202).await;
    http.post("/api/v1/sessions/s2/cancel", &json!({"reason": "try", "by": "li"}), 202).await;
    eventually(DEADLINE, "the dead letter's turn is committed", || async {
        http.get("/api/v1/sessions/s3/turns").await["turns"].as_array().is_some_and(|turns| !turns.is_empty())
    })
    .await;
    let deleted = http.client.delete(http.at("/api/v1/sessions/s2")).send().await.unwrap();
    assert_eq!(deleted.status(), 200, "{}", deleted.text().await.unwrap());
    assert_eq!(guarded.violations(), Vec::<String>::new(), "no role lacks a permission");
    drop((gateway, worker, scheduler));

    // The channel may not read jobs or events of other channels, and may not delete anything.
    let hasty = guarded.channel(Duration::from_secs(1)).await;
    let stream = eventually(DEADLINE, "the stream is shown", || async { hasty.get_stream("TW_OUT").await.ok() }).await;
    assert!(hasty.get_stream("TW_JOBS").await.is_err());
    assert!(stream.create_consumer(consuming("tw.out.>")).await.is_err());
    assert!(stream.purge().await.is_err());
    for subject in ["tw.out.web.s1.reply", "tw.dead.invalid"] {
        assert!(hasty.publish(subject, "{}".into()).await.unwrap().await.is_err(), "{subject}");
    }
    let client = ConnectOptions::with_user_and_password("channel-web".into(), "channel-web".into());
    let client = client.connect(guarded.server.address()).await.unwrap();
    let mut jobs = client.subscribe("tw.jobs.>").await.unwrap();
    let mut inboxes = client.subscribe("_INBOX.>").await.unwrap();
    for subject in ["tw.jobs.>", "_INBOX.>"] {
        let is_refused = |line: &String| line.contains("Subscription Violation") && line.contains(subject);
        let what = format!("the subscription to {subject} is refused");
        eventually(DEADLINE, &what, || async { guarded.violations().iter().any(is_refused) }).await;
    }
    channel.publish("tw.jobs.s1", job.to_string().into()).await.unwrap().await.unwrap();
    assert!(jobs.next().now_or_never().is_none(), "the channel receives no job");
    assert!(inboxes.next().now_or_never().is_none(), "the channel receives no responses for others");
    assert!(guarded.violations().len() >= 6, "{:?}", guarded.violations());
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

    async fn post(&self, path: &str, body: &Value, status: u16) {
        let answer = self.client.post(self.at(path)).json(body).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}: {}", answer.text().await.unwrap());
    }
}
