use super::*;
use crate::testing::{Script, act, say};
use engine::model::{ModelError, ModelReply, ModelRequest};
use engine::rehearsal::DraftKnowledge;
use serde_json::json;
use std::net::TcpListener;
use types::step::TokenUsage;
use types::timestamp::Timestamp;

/// A socket that no rehearsal may connect to.
struct Outside(TcpListener);

impl Outside {
    fn listen() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    fn url(&self) -> String {
        format!("http://{}/x", self.0.local_addr().unwrap())
    }

    fn saw_nothing(&self) {
        let error = self.0.accept().map(|(_, from)| from).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
}

fn rehearsal(model: Option<&Script>) -> Rehearsal {
    let mut settings = Settings::default();
    settings.http.allow_private = vec!["*".into()];
    let mut rehearsal = Rehearsal::new(&settings, &Environment::default());
    rehearsal.models.extend(model.map(|model| ("default".to_owned(), Arc::new(model.clone()) as Arc<dyn Model>)));
    rehearsal
}

fn agent(outside: &Outside) -> Draft {
    let document = json!({
        "id": "shop", "greeting": "您好", "sop": "查询订单", "handoff": {"http": {"method": "POST", "url": outside.url()}},
        "skills": [{"id": "order", "http": {"method": "GET", "url": outside.url()}}],
        "tools": [{"id": "eta", "http": {"method": "POST", "url": outside.url()}}, {"id": "now", "builtin": "now"}],
        "timers": [{"name": "later", "delay": "1s", "message": "还在吗？"}],
    });
    Draft::Agent(AgentRecord::from_document(document, Timestamp::from_millis(0)).unwrap(), DraftKnowledge::default())
}

async fn results(draft: &Draft, model: Option<&Script>, document: Value) -> Rehearsed {
    let tests = engine::rehearsal::tests(&document).unwrap();
    rehearsal(model).rehearse(draft, &tests, Duration::from_secs(60)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_rehearsed_with_the_answers_of_its_tests_and_nothing_leaves_the_process() {
    let outside = Outside::listen();
    let model = Script::by(|asked| match (asked.message.as_str(), &asked.last_action) {
        ("订单？", None) => act("SKILL", "order", json!({})),
        ("Where?", None) => act("TOOL", "eta", json!({})),
        ("human", _) => crate::testing::hand_off("稍等"),
        (_, Some((_, result))) => say(result.to_string()),
        _ => say("?"),
    });
    let turn = |text: &str, expect: Value| json!([{"say": text, "expect": expect}]);
    let report = results(
        &agent(&outside),
        Some(&model),
        json!([
            {"name": "answered", "answers": {"order": {"state": "已发货"}},
             "turns": turn("订单？", json!({"status": "ready", "calls": ["order"], "reply_contains": ["您好", "已发货"]}))},
            {"name": "deviates", "answers": {"eta": {"days": 3}},
             "turns": [{"say": "hi"}, {"say": "Where?", "expect": {"calls": ["eta"], "reply_contains": "4"}}]},
            {"name": "unanswered", "turns": turn("Where?", json!({"not_contains": "no answer is given for `eta`"}))},
            {"name": "handoff without an answer", "turns": turn("human", json!({"status": "transferred"}))},
            {"name": "handoff", "answers": {"handoff": {}}, "turns": turn("human", json!({"status": "transferred"}))},
        ]),
    )
    .await;
    outside.saw_nothing();
    assert_eq!((report.passed, report.failed, report.not_run), (2, 3, 0), "{report:#?}");
    let TestResult::Failed(deviates) = &report.tests[1].result else { panic!("{report:?}") };
    assert_eq!((deviates.turn, deviates.what.as_str(), &deviates.expected), (2, "reply_contains", &json!("4")));
    let TestResult::Failed(unanswered) = &report.tests[2].result else { panic!("{report:?}") };
    assert!(unanswered.unanswered[0].contains("no answer is given for `eta`"), "{unanswered:?}");
    assert!(!report.is_ok());
    let plans = model.asked().iter().filter(|asked| asked.schema == "plan_and_decision").count();
    assert_eq!((plans, report.plan.is_some()), (1, true), "the plan is made once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_reach_outside_are_answered_or_fail_and_nothing_leaves_the_process() {
    let outside = Outside::listen();
    let document = json!({
        "type": "graph", "id": "w", "name": "x", "description": "x",
        "nodes": [
            {"node_id": "fetch", "name": "取", "type": "HTTP", "config": {"url": outside.url(), "method": "GET"}},
            {"node_id": "end", "name": "止", "type": "END", "config": {"output": "got ${fetch.output.data}"}},
        ],
        "edges": [{"source": "fetch", "target": "end"}],
    });
    let record = definitions::workflow::read::text("w.json".as_ref(), &document.to_string());
    let draft = Draft::Workflow(record.unwrap_or_else(|error| panic!("{error}")));
    let report = results(
        &draft,
        None,
        json!([
            {"name": "answered", "input": {}, "answers": {"fetch": {"status": 200, "data": "好"}},
             "expect": {"output_contains": "got 好"}},
            {"name": "unanswered", "input": {}},
        ]),
    )
    .await;
    outside.saw_nothing();
    assert_eq!((report.passed, report.failed), (1, 1), "{report:#?}");
    let TestResult::Failed(failed) = &report.tests[1].result else { panic!("{report:?}") };
    assert_eq!(failed.what, "end");
    assert!(failed.got.to_string().contains("NO_ANSWER"), "{failed:?}");
}

#[tokio::test]
async fn tests_of_the_other_kind_are_refused() {
    let draft = agent(&Outside::listen());
    let tests = engine::rehearsal::tests(&json!([{"name": "x", "input": "a"}])).unwrap();
    let refused = rehearsal(None).rehearse(&draft, &tests, Duration::from_secs(9)).await.unwrap_err();
    assert!(refused.to_string().contains("`x` has no `turns`"), "{refused}");
}

/// A model whose every answer costs 110 tokens.
struct Costly(Script);

#[async_trait]
impl Model for Costly {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let reply = self.0.complete(request).await?;
        Ok(ModelReply { tokens: TokenUsage { prompt: 100, completion: 10 }, ..reply })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_draft_asks_of_models_counts_in_the_day_of_the_authoring_agent_and_ends_with_it() {
    let costly = Costly(Script::by(|_| say("好")));
    let engine = Engine::in_memory().model("default", costly).open().await.unwrap();
    let authoring = json!({"id": "authoring", "system_prompt": "…", "budget": {"day": 400}});
    let at = Timestamp::from_millis(0);
    engine.apply(AgentRecord::from_document(authoring, at).unwrap()).await.unwrap();
    let used = async || {
        let day = engine.clock.now().day();
        engine.store().tokens_of_day(&day, vec![AGENT_ID.into()]).await.unwrap().get(AGENT_ID).copied().unwrap_or(0)
    };
    let draft = json!({"id": "shop", "sop": "查询订单"});
    let draft = Draft::Agent(AgentRecord::from_document(draft, at).unwrap(), DraftKnowledge::default());
    let turn = json!({"say": "hi", "expect": {"status": "ready"}});
    let tests = engine::rehearsal::tests(&json!([{"name": "t", "turns": [turn.clone(), turn]}])).unwrap();
    let rehearsal = LiveRehearsal::of(&engine);
    let rehearse = async || rehearsal.rehearse(&draft, &tests, Duration::from_secs(60)).await.unwrap();
    let report = rehearse().await;
    assert_eq!((report.passed, used().await), (1, 220), "{report:?}");
    let report = rehearse().await;
    assert_eq!((report.passed, used().await), (1, 440), "{report:?}");
    let report = rehearse().await;
    let TestResult::NotRun { reason } = &report.tests[0].result else { panic!("{report:?}") };
    assert!(reason.contains("token budget"), "{reason}");
    assert_eq!(used().await, 440, "no model was asked");
    engine.abandon();
}
