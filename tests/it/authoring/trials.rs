//! Tests of a draft by a person, and replays against it, through the gateway of an engine.

use crate::support::api::Api;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use async_trait::async_trait;
use base::clock::{self, Clock};
use base::config::NamedToken;
use decisions::authoring::answer::Generation;
use definitions::agent::AgentRecord;
use engine::authoring::{Workbench, artifact, checks};
use engine::rehearsal::{Draft as Rehearsable, DraftKnowledge, RehearsalTest, Rehearse, Rehearsed, TestError};
use futures::StreamExt;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use sse_stream::SseStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::store::authoring::{NewAuthoring, SaveAuthoring};
use tempfile::TempDir;
use turnwheel::rehearsal::Rehearsal;
use turnwheel::{Engine, NewMessage};
use types::authoring::{
    Artifact, ConfigRequest, ConversationConfig, Draft, Origin, Published, StoredState, WorkflowContext,
};
use types::turn::DayUse;

struct Ground {
    engine: Engine,
    api: Api,
    base: String,
    client: Client,
    _tokens: TempDir,
}

impl Ground {
    async fn start() -> Self {
        let (api, tokens) = (Api::start().await, tempfile::tempdir().unwrap());
        let access =
            [("alice", "author"), ("bob", "author"), ("op", "operator"), ("root", "admin")].map(|(name, role)| {
                let file = tokens.path().join(name);
                std::fs::write(&file, format!("{name}-token\n")).unwrap();
                serde_json::from_value::<NamedToken>(json!({"name": name, "role": role, "token_file": file})).unwrap()
            });
        let engine = Engine::in_memory().configure(|settings| {
            settings.gateway.listen = ([127, 0, 0, 1], 0).into();
            settings.gateway.access = access.into();
            settings.http.allow_private = vec!["*".into()];
        });
        let engine = engine.start().await.unwrap();
        let base = format!("http://{}/api/v1/workflow", engine.start_gateway().await.unwrap());
        Self { engine, api, base, client: Client::new(), _tokens: tokens }
    }

    /// Begins the dialogue d1 of alice.
    async fn begin(&self, artifact: Artifact, origin: Origin, source: &str) {
        self.begin_with(artifact, origin, source, json!({})).await;
    }

    async fn begin_with(&self, artifact: Artifact, origin: Origin, source: &str, config: Value) {
        let context = WorkflowContext { origin, source_workflow_id: source.into(), ..WorkflowContext::default() };
        let config: ConfigRequest = serde_json::from_value(config).unwrap();
        let config = config.apply(&ConversationConfig::default()).unwrap();
        let state =
            StoredState::new("id-d1".into(), "d1", "alice", context, clock::now()).configured(config, Some(artifact));
        let new = NewAuthoring { agent_id: "authoring".into(), channel: "web".into(), state };
        assert!(self.engine.store().create_authoring(new).await.unwrap());
    }

    /// Makes the document the last draft of d1.
    async fn draft(&self, answer: Generation) {
        let store = self.engine.store();
        let mut state = store.authoring("d1").await.unwrap().unwrap().state;
        let draft = artifact::keep(store.as_ref(), &state, &answer).await.unwrap();
        state.draft = Some(Draft { hash: draft.hash, ..Draft::default() });
        store.save_authoring(SaveAuthoring { state, epoch: None }).await.unwrap();
    }

    async fn ask(&self, caller: &str, method: Method, path: &str, body: &Value) -> Response {
        let request = self.client.request(method, format!("{}/{path}", self.base));
        request.bearer_auth(format!("{caller}-token")).json(body).send().await.unwrap()
    }

    async fn refused(&self, caller: &str, path: &str, body: Value) -> (u16, String) {
        let response = self.ask(caller, Method::POST, path, &body).await;
        let status = response.status().as_u16();
        let body: Value = response.json().await.unwrap();
        assert!(!body["error"]["hint"].as_str().unwrap().is_empty(), "{body}");
        (status, body["error"]["code"].as_str().unwrap().to_owned())
    }

    /// The events of a test, with their names.
    async fn test(&self, caller: &str, body: Value) -> Vec<(String, Value)> {
        let response = self.ask(caller, Method::POST, "d1/test", &body).await;
        let status = response.status();
        assert_eq!(status, 200, "{:?}", response.text().await);
        let events = SseStream::from_bytes_stream(response.bytes_stream()).map(|sse| {
            let sse = sse.unwrap();
            (sse.event.unwrap(), serde_json::from_str(&sse.data.unwrap()).unwrap())
        });
        let events: Vec<(String, Value)> =
            tokio::time::timeout(DEADLINE, events.collect()).await.expect("the stream ends");
        assert_eq!(events.first().unwrap().0, "test");
        assert_eq!(events.iter().filter(|(name, _)| name == "end").count(), 1, "{events:?}");
        assert_eq!(events.last().unwrap().0, "end");
        events
    }
}

fn of<'e>(events: &'e [(String, Value)], name: &str) -> Vec<&'e Value> {
    events.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect()
}

fn said(events: &[(String, Value)]) -> String {
    of(events, "reply").iter().map(|reply| reply["text"].as_str().unwrap()).collect()
}

fn calls(events: &[(String, Value)]) -> Vec<Value> {
    of(events, "step").iter().filter(|step| !step["would_call"].is_null()).map(|step| (*step).clone()).collect()
}

/// An agent that asks an API about orders, and says `otherwise` to everything else.
fn shop(api: &Api, otherwise: &str) -> Value {
    json!({
        "id": "shop", "sop": "说订单在哪里。", "greeting": "您好",
        "skills": [{"id": "order", "description": "订单",
            "http": {"method": "POST", "url": format!("{}/orders", api.base_url)}}],
        "rules": [
            {"when": {"result_of": "order"}, "decide": {"next_status": "typing", "response": "{result}"}},
            {"when": {"matches": "(?<id>A\\d+)"}, "decide": {"next_status": "processing",
                "action": {"type": "SKILL", "target": "order", "params": {"order_id": "{id}"}}}},
            {"when": {"always": true}, "decide": {"next_status": "typing", "response": otherwise}},
        ],
    })
}

fn agent(document: Value) -> Generation {
    Generation { agent: Some(document), ..Generation::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_talked_with_before_it_is_in_use_and_calls_nothing() {
    let ground = Ground::start().await;
    ground.begin(Artifact::Agent, Origin::Create, "").await;
    assert_eq!(ground.refused("alice", "d1/test", json!({"text": "hi"})).await, (404, "no_draft".into()));
    ground.draft(agent(shop(&ground.api, "请讲"))).await;

    let first = ground.test("alice", json!({"text": "你好"})).await;
    let begun = of(&first, "test")[0];
    assert_eq!((&begun["begins"], &begun["live"]), (&json!(true), &json!(false)));
    assert!(said(&first).contains("您好") && said(&first).contains("请讲"), "{first:?}");
    assert_eq!(of(&first, "end")[0]["status"], "ready");

    let answered = json!({"text": "A1001 呢？", "answers": {"order": {"state": "已发货"}}});
    let second = ground.test("alice", answered.clone()).await;
    assert_eq!(of(&second, "test")[0]["begins"], false, "the conversation goes on");
    assert!(said(&second).contains("已发货") && !said(&second).contains("您好"), "{second:?}");
    let [call] = calls(&second).try_into().unwrap();
    let would_call =
        json!({"method": "POST", "url": format!("{}/orders", ground.api.base_url), "body": {"order_id": "A1001"}});
    assert_eq!((&call["target"], &call["ok"], &call["would_call"]), (&json!("order"), &json!(true), &would_call));

    let failing = ground.test("alice", json!({"text": "A1002 呢？"})).await;
    assert_eq!(
        (&calls(&failing)[0]["ok"], calls(&failing)[0]["would_call"]["body"]["order_id"].as_str()),
        (&json!(false), Some("A1002"))
    );
    assert!(of(&failing, "end")[0]["unanswered"][0].as_str().unwrap().contains("`order`"), "{failing:?}");
    assert!(!said(&failing).contains("已发货"), "the answers are those of one message: {failing:?}");

    ground.draft(agent(shop(&ground.api, "请说订单号"))).await;
    let anew = ground.test("alice", json!({"text": "你好"})).await;
    assert_eq!(of(&anew, "test")[0]["begins"], true, "another draft begins anew");
    assert!(said(&anew).contains("您好") && said(&anew).contains("请说订单号"), "{anew:?}");

    assert!(ground.api.calls("/").is_empty(), "nothing was called");
    assert!(ground.engine.store().agent("id-d1").await.unwrap().is_none(), "the draft is in use nowhere");

    for (caller, body, status, code) in [
        ("alice", json!({"text": "A1001", "live": true}), 403, "forbidden"),
        ("bob", json!({"text": "A1001"}), 404, "unknown_session"),
        ("alice", json!({"text": " "}), 400, "empty_message"),
        ("alice", json!({"input": {}}), 400, "invalid_request"),
        ("alice", json!({"text": "x".repeat(70_000)}), 413, "message_too_large"),
    ] {
        assert_eq!(ground.refused(caller, "d1/test", body).await, (status, code.into()));
    }
    assert!(ground.api.calls("/").is_empty(), "nothing was called");
    let live = ground.test("op", json!({"text": "A1001 呢？", "live": true})).await;
    assert_eq!((ground.api.calls("/orders").len(), calls(&live).len()), (1, 0), "{live:?}");
    assert!(said(&live).contains("true"), "{live:?}");
    ground.engine.stop().await;
}

/// An agent whose replies are written from what it knows.
fn guide(id: &str) -> Value {
    let decided = json!({"next_status": "typing", "response": "请看资料"});
    json!({"id": id, "sop": "回答问题。", "rules": [{"when": {"always": true}, "decide": decided}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_with_the_id_of_another_agent_does_not_know_what_that_agent_knows() {
    let ground = Ground::start().await;
    let sales = AgentRecord::from_document(guide("sales"), clock::now()).unwrap();
    ground.engine.apply(sales).await.unwrap();
    ground.engine.add_knowledge("sales", "plans.md", "新品的内部代号是海棠，下月发布。").await.unwrap();
    ground.begin_with(Artifact::Agent, Origin::Create, "", json!({"preferences": {"target_id": "sales"}})).await;
    ground.draft(agent(guide("sales"))).await;
    let question = json!({"text": "新品的内部代号是什么？"});

    let foreign = ground.test("alice", question.clone()).await;
    assert!(said(&foreign).contains("请看资料") && !said(&foreign).contains("海棠"), "{foreign:?}");
    let operator = ground.test("op", question.clone()).await;
    assert!(said(&operator).contains("海棠"), "an operator may read the text: {operator:?}");
    let after = ground.test("alice", question.clone()).await;
    assert_eq!(of(&after, "test")[0]["begins"], true, "nobody goes on with what the operator's draft has said");
    assert!(!said(&after).contains("海棠"), "{after:?}");

    let bench = Workbench::of_settings(
        Arc::clone(ground.engine.store()),
        ground.engine.settings(),
        Vec::new(),
        Clock::system(),
    );
    let rehearsal = Arc::new(Seen::default());
    let bench = bench.with_rehearsal(Arc::<Seen>::clone(&rehearsal));
    let mut state = ground.engine.store().authoring("d1").await.unwrap().unwrap().state;
    checks::check(&bench, &state, DEADLINE).await.unwrap();
    state.published = Some(Published::default());
    checks::check(&bench, &state, DEADLINE).await.unwrap();
    assert_eq!(*rehearsal.0.lock().unwrap(), [None, Some("sales".to_owned())]);
    ground.engine.stop().await;
}

/// Notes whose stored texts the drafts read that are rehearsed.
#[derive(Default)]
struct Seen(Mutex<Vec<Option<String>>>);

#[async_trait]
impl Rehearse for Seen {
    async fn rehearse(&self, draft: &Rehearsable, _: &[RehearsalTest], _: Duration) -> Result<Rehearsed, TestError> {
        self.0.lock().unwrap().push(draft.reads_texts_of().map(str::to_owned));
        Ok(Rehearsed::default())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_and_a_replay_are_refused_when_the_authoring_agent_has_spent_its_day() {
    let ground = Ground::start().await;
    let authoring = json!({"id": "authoring", "system_prompt": "…", "budget": {"day": 1}});
    ground.engine.apply(AgentRecord::from_document(authoring, clock::now()).unwrap()).await.unwrap();
    ground.begin(Artifact::Agent, Origin::Create, "").await;
    ground.draft(agent(shop(&ground.api, "请讲"))).await;
    let question = json!({"text": "你好"});
    ground.test("alice", question.clone()).await;
    let used = DayUse { agent_id: "authoring".into(), day: clock::now().day(), tokens: 1 };
    ground.engine.store().use_tokens(used).await.unwrap();
    assert_eq!(ground.refused("alice", "d1/test", question).await, (409, "token_budget".into()));
    let replay = json!({"turns": 1, "agent_id": "authoring"});
    assert_eq!(ground.refused("op", "d1/replay", replay).await, (409, "token_budget".into()));
    ground.engine.stop().await;
}

/// What the process tells of its turns, actions and knowledge.
fn figures() -> Vec<String> {
    let told = |line: &&str| {
        let of = ["turns_total", "reply_latency", "lanes_held", "actions_total", "knowledge_"];
        of.iter().any(|of| line.starts_with(&format!("turnwheel_{of}")))
    };
    base::metrics::encode(&base::metrics::metrics().registry).lines().filter(told).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_metric_counts_what_a_draft_does() {
    let ground = Ground::start().await;
    ground.begin(Artifact::Agent, Origin::Create, "").await;
    ground.draft(agent(shop(&ground.api, "请讲"))).await;
    let before = figures();
    assert!(before.iter().any(|line| line.starts_with("turnwheel_turns_total")), "{before:?}");
    ground.test("alice", json!({"text": "A1001 呢？"})).await;
    ground.test("op", json!({"text": "你好", "live": true})).await;
    let rehearsal = Rehearsal::of(&ground.engine).await.unwrap();
    let record = AgentRecord::from_document(shop(&ground.api, "请讲"), clock::now()).unwrap();
    let cases = engine::rehearsal::tests(&json!([{"name": "asks", "turns": [{"say": "A1001 呢？"}]}])).unwrap();
    let draft = Rehearsable::Agent(record, DraftKnowledge::default());
    assert_eq!(rehearsal.rehearse(&draft, &cases, DEADLINE).await.unwrap().not_run, 0);
    assert_eq!(figures(), before);
    ground.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_run_before_it_is_in_use_and_calls_nothing() {
    let ground = Ground::start().await;
    ground.begin(Artifact::Workflow, Origin::Create, "").await;
    let document = json!({
        "type": "graph", "name": "x", "description": "x",
        "nodes": [
            {"node_id": "fetch", "name": "取", "type": "HTTP", "config":
                {"url": format!("{}/x", ground.api.base_url), "method": "GET", "params": {"day": "today"}}},
            {"node_id": "end", "name": "止", "type": "END", "config": {"output": "got ${fetch.output.data}"}},
        ],
        "edges": [{"source": "fetch", "target": "end"}],
    });
    ground.draft(Generation { workflow: Some(document), ..Generation::default() }).await;
    let answers = json!({"fetch": {"status": 200, "data": "好"}});
    let events = ground.test("alice", json!({"input": {}, "answers": answers})).await;
    let end = of(&events, "end")[0];
    assert_eq!((&end["status"], end["output"].as_str()), (&json!("completed"), Some("got 好")), "{events:?}");
    assert!(!of(&events, "run").is_empty(), "{events:?}");
    let shown = json!({"method": "GET", "url": format!("{}/x?day=today", ground.api.base_url)});
    assert_eq!((calls(&events)[0]["ok"].clone(), calls(&events)[0]["would_call"].clone()), (json!(true), shown));
    let failed = ground.test("alice", json!({})).await;
    let end = of(&failed, "end")[0];
    assert_eq!((&end["status"], &calls(&failed)[0]["ok"]), (&json!("failed"), &json!(false)), "{failed:?}");
    assert!(end["unanswered"][0].as_str().unwrap().contains("`fetch`"), "{failed:?}");
    assert!(ground.api.calls("/").is_empty(), "nothing was called");
    assert_eq!(ground.refused("op", "d1/replay", json!({"turns": 1})).await, (409, "not_an_agent".into()));
    ground.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_names_the_first_other_action_of_the_draft() {
    let ground = Ground::start().await;
    let record = AgentRecord::from_document(shop(&ground.api, "请讲"), clock::now()).unwrap();
    ground.engine.apply(record).await.unwrap();
    for text in ["你好", "A1001 呢？"] {
        ground.engine.ask(NewMessage::new("s1", "shop", text)).await.unwrap();
    }
    assert_eq!(ground.api.calls("/").len(), 1);
    ground.begin(Artifact::Agent, Origin::Edit, "shop").await;
    let mut document = shop(&ground.api, "请讲");
    document["rules"].as_array_mut().unwrap().remove(1);
    ground.draft(agent(document)).await;

    for (caller, body, status, code) in [
        ("alice", json!({"turns": 5}), 403, "forbidden"),
        ("op", json!({"turns": 51}), 400, "invalid_request"),
        ("op", json!({"agent_id": "nobody"}), 404, "unknown_agent"),
    ] {
        assert_eq!(ground.refused(caller, "d1/replay", body).await, (status, code.into()));
    }
    let response = ground.ask("op", Method::POST, "d1/replay", &json!({"turns": 5})).await;
    assert_eq!(response.status(), 202);
    let begun: Value = response.json().await.unwrap();
    let path = format!("d1/replay/{}", begun["replay_id"].as_str().unwrap());
    let report = eventually(DEADLINE, "the replay has ended", || async {
        let report: Value = ground.ask("op", Method::GET, &path, &json!({})).await.json().await.unwrap();
        (report["status"] == "completed").then_some(report)
    })
    .await;
    assert_eq!(
        (&report["agent_id"], &report["same"], &report["actions_differ"]),
        (&json!("shop"), &json!(1), &json!(1))
    );
    let [differs, same] = report["turns"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&same["said"], &same["outcome"]), (&json!("你好"), &json!("same")));
    assert_eq!((&differs["said"], &differs["outcome"]), (&json!("A1001 呢？"), &json!("actions_differ")));
    let first = &differs["first"];
    assert_eq!(
        (&first["was"]["target"], &first["now"], &first["iteration"]),
        (&json!("order"), &Value::Null, &json!(0))
    );
    assert_eq!(ground.api.calls("/").len(), 1, "nothing was called again");
    assert_eq!(ground.ask("alice", Method::GET, &path, &json!({})).await.status(), 403);
    assert_eq!(ground.ask("op", Method::GET, "d1/replay/none", &json!({})).await.status(), 404);
    let erased = ground.ask("root", Method::DELETE, "../sessions/s1", &json!({})).await;
    assert_eq!(erased.status(), 200);
    assert_eq!(ground.ask("op", Method::GET, &path, &json!({})).await.status(), 404, "nobody who is erased is quoted");
    ground.engine.stop().await;
}
