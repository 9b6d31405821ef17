//! A day of an operator with real servers, real processes and the real commands: deploys two workers, replaces them
//! under load, cancels a session, releases a handoff, replays a dead letter. No message is lost or repeated.

use crate::commands::Folder;
use crate::crash::seen;
use crate::scenarios::{acts, answer, sales_with};
use crate::support::engine::{DEADLINE, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, Asked, ScriptedModel, decision, plan};
use crate::support::{backend, eventually};
use lab::invariants::{self, AcceptedMessage, Evidence};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::queue::Publish;
use tokio::sync::Semaphore;
use types::event::ReplyKind;
use types::session::Status;

const SESSIONS: usize = 6;
/// Message of a worker that ends.
const DRAINING: &str = "finishing the turns in flight";

/// The model responds once the gate has a permit, but never to `慢`.
fn model(asked: &Asked, gate: &Arc<Semaphore>) -> Answer {
    let decided = match asked.user.as_str() {
        "慢" => return Answer::Hang,
        "转人工" => decision("transferred", Value::Null, json!("正在为您转接")),
        text if text.starts_with('查') && !asked.system.contains("shipped") => {
            acts("processing", "SKILL", "query_order", &json!({"order_id": text.replace(' ', "-")}))
        }
        text => answer(&format!("{text}：好的")),
    };
    let content = if asked.schema == "plan_and_decision" { plan(json!("您好"), &decided) } else { decided };
    Answer::json(&content).gated(gate)
}

struct Day {
    engine: Engine,
    folder: Folder,
    /// Open while it has a permit.
    gate: Arc<Semaphore>,
}

impl Day {
    /// Starts servers, and applies the agent from its file.
    async fn begin() -> Self {
        let gate = Arc::new(Semaphore::new(1));
        let held = Arc::clone(&gate);
        let model = ScriptedModel::start(move |asked| model(asked, &held)).await;
        let engine = Engine::watching(backend::cluster().await, model).await;
        engine.api.script(|_, _| (200, json!({"status": "shipped"})));
        let folder = Folder::with(engine.settings.clone());
        let day = Self { engine, folder, gate };
        // The first process that starts writes the settings file.
        drop(day.deploy("scheduler"));
        day.write_agent("sales");
        day.done(&["agents", "apply", "agents"]).await;
        day
    }

    fn deploy(&self, role: &str) -> Process {
        Process::start(self.folder.path(), &self.folder.settings, &[role])
    }

    fn write_agent(&self, id: &str) {
        let agent = sales_with(&json!({"id": id, "handoff": {"mode": "hold"}}));
        let text = agent.to_string().replace("{api}", &self.engine.api.base_url);
        self.folder.write(&format!("agents/{id}.json"), &text);
    }

    /// Output of a command that must succeed.
    async fn done(&self, args: &[&str]) -> String {
        let ended = self.folder.run(args, "").await;
        assert_eq!(ended.code, 0, "{args:?}: {ended:?}");
        ended.out.trim().to_owned()
    }

    async fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.done(args).await).unwrap()
    }

    async fn publish(&self, session_id: &str, job_id: &str, agent_id: &str, text: &str) -> AcceptedMessage {
        let job = json!({"type": "user_message", "session_id": session_id, "agent_id": agent_id, "job_id": job_id,
                         "text": text, "user_id": "u1", "channel": "web"});
        let payload: bytes::Bytes = job.to_string().into();
        let publish = Publish { session_id: session_id.into(), msg_id: None, payload: payload.clone() };
        let published = self.engine.queue.publish(publish).await.unwrap();
        AcceptedMessage { session_id: session_id.into(), seq: published.seq, payload }
    }

    async fn say(&self, session_id: &str, job_id: &str, text: &str) -> Vec<String> {
        self.publish(session_id, job_id, "sales", text).await;
        self.answered(session_id, job_id).await
    }

    async fn answered(&self, session_id: &str, turn_id: &str) -> Vec<String> {
        self.engine.turn(session_id, turn_id).await;
        let replies = self.engine.replies(session_id).await.into_iter();
        replies.filter(|reply| reply.turn_id == turn_id).map(|reply| reply.text).collect()
    }

    /// Publishes messages to all sessions until the workers are replaced. While the model holds its responses, every
    /// session has a message.
    async fn load(&self, rolled: &AtomicBool) -> Vec<AcceptedMessage> {
        let mut sent = Vec::new();
        let mut round = 0;
        while round < 3 || !rolled.load(Ordering::SeqCst) {
            let is_held = self.is_held();
            for number in 0..SESSIONS {
                let text = format!("查 {number} {round}");
                sent.push(self.publish(&format!("会话-{number}"), &format!("m-{round}"), "sales", &text).await);
            }
            // Waits for one session; the others may lag behind.
            let (session_id, job_id) = (format!("会话-{}", round % SESSIONS), format!("m-{round}"));
            let goes_on = || async {
                let session = self.engine.store.session(&session_id).await.unwrap();
                is_held != self.is_held() || session.is_some_and(|session| session.has_handled(&job_id))
            };
            eventually(DEADLINE, "one session is answered, or the model holds its responses", goes_on).await;
            round += 1;
        }
        sent
    }

    /// True while the model holds its responses.
    fn is_held(&self) -> bool {
        self.gate.available_permits() == 0
    }

    /// Number of calls that wait for the model.
    fn in_flight(&self) -> usize {
        self.engine.model.asked().iter().filter(|asked| asked.ended.is_none()).count()
    }

    /// Replaces both workers, one after the other, while every session has a turn in flight.
    async fn roll(&self, workers: [Process; 2], rolled: &AtomicBool) -> [Process; 2] {
        let mut next = Vec::new();
        for (number, mut old) in workers.into_iter().enumerate() {
            let begun = self.begun();
            next.push(self.deploy("worker"));
            eventually(DEADLINE, "the new worker has begun", || async { self.begun() > begun }).await;
            // From now on the model holds its responses.
            self.gate.acquire().await.unwrap().forget();
            eventually(DEADLINE, "every session waits", || async { self.in_flight() == SESSIONS }).await;
            let draining = self.logged(DRAINING);
            old.signal("TERM");
            // A worker that holds no turn ends without draining.
            let drains = || std::future::ready(self.logged(DRAINING) > draining || old.ended().is_some());
            eventually(DEADLINE, "the old worker drains", drains).await;
            self.gate.add_permits(1);
            let ended = eventually(DEADLINE, "the old worker has ended", || std::future::ready(old.ended())).await;
            assert!(ended.success(), "worker {number}: {}", Process::log(self.folder.path()));
        }
        rolled.store(true, Ordering::SeqCst);
        next.try_into().unwrap_or_else(|_| panic!("two workers"))
    }

    fn begun(&self) -> usize {
        self.logged("worker started")
    }

    /// Number of times that the processes have logged this message.
    fn logged(&self, message: &str) -> usize {
        Process::log(self.folder.path()).matches(message).count()
    }

    /// Checks that every message is answered once and in order, and that every action ran once.
    async fn nothing_is_lost_or_repeated(&self, sent: Vec<AcceptedMessage>) {
        for AcceptedMessage { session_id, payload, .. } in &sent {
            let job: Value = serde_json::from_slice(payload).unwrap();
            let texts = self.answered(session_id, job["job_id"].as_str().unwrap()).await;
            assert_eq!(texts.last().unwrap(), &format!("{}：好的", job["text"].as_str().unwrap()));
        }
        let calls = self.engine.api.calls("/orders");
        let keys: BTreeSet<_> = calls.iter().map(|call| call.idempotency_key.clone()).collect();
        assert_eq!((calls.len(), keys.len()), (sent.len(), sent.len()), "each action once");
        let evidence = Evidence {
            sent,
            events: None,
            model: self.engine.model.asked().iter().map(seen::asked).collect(),
            api: calls.iter().map(seen::called).collect(),
            outlived: false,
        };
        let found = invariants::check(self.engine.queue.as_ref(), self.engine.store.as_ref(), &evidence).await.unwrap();
        assert_eq!(found, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_s_day_loses_and_repeats_nothing() {
    let day = Day::begin().await;
    let _scheduler = day.deploy("scheduler");
    let workers = [day.deploy("worker"), day.deploy("worker")];
    eventually(DEADLINE, "both workers have begun", || async { day.begun() == 2 }).await;

    let rolled = AtomicBool::new(false);
    let (sent, _workers) = tokio::join!(day.load(&rolled), day.roll(workers, &rolled));
    day.nothing_is_lost_or_repeated(sent).await;

    // The operator cancels a hanging session, which then replies again.
    day.publish("卡住", "m-1", "sales", "慢").await;
    eventually(DEADLINE, "the model hangs", || async {
        day.engine.model.asked().iter().any(|asked| asked.user == "慢")
    })
    .await;
    day.done(&["sessions", "cancel", "卡住", "--by", "li"]).await;
    day.answered("卡住", "m-1").await;
    let kinds: Vec<_> = day.engine.said("卡住").await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [ReplyKind::Greeting, ReplyKind::Apology]);
    assert_eq!(day.say("卡住", "m-2", "还在吗").await.last().unwrap(), "还在吗：好的");

    // A human takes over a session and releases it.
    day.say("转接", "m-1", "转人工").await;
    let listed = day.json(&["sessions", "list", "--status", "transferred", "--json"]).await;
    assert_eq!(
        (listed["sessions"].as_array().unwrap().len(), &listed["sessions"][0]["session_id"]),
        (1, &json!("转接"))
    );
    assert_eq!(day.say("转接", "m-2", "有人吗").await, [""; 0], "the agent is silent");
    let released = day.done(&["sessions", "release", "转接", "--by", "li"]).await;
    day.engine.turn("转接", &released).await;
    assert_eq!(day.engine.session("转接").await.workflow_state.status, Status::Ready);
    assert_eq!(day.say("转接", "m-3", "谢谢").await, ["谢谢：好的"]);

    // A message to an agent that does not exist yet.
    day.publish("新", "m-1", "helper", "你好").await;
    let letter = eventually(DEADLINE, "the job is dead-lettered", || async {
        let listed = day.json(&["dead", "list", "--json"]).await;
        listed["letters"].get(0).cloned()
    })
    .await;
    assert_eq!((&letter["cause"], &letter["job_id"]), (&json!("unknown_agent"), &json!("m-1")));
    day.write_agent("helper");
    day.done(&["agents", "apply", "agents/helper.json"]).await;
    let turn_id = day.done(&["dead", "replay", "m-1"]).await;
    assert_eq!(day.answered("新", &turn_id).await, ["您好，我是小智", "你好：好的"]);
    assert_eq!(day.json(&["dead", "list", "--json"]).await["letters"], json!([]));

    // In the evening the doctor finds no problems.
    let doctor = day.json(&["doctor", "--json"]).await;
    assert_eq!(doctor["problems"], 0, "{doctor:#}");
}
