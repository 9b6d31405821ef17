use super::*;
use crate::testing::{Script, act, say};
use engine::rehearsal::DraftKnowledge;
use serde_json::json;
use std::net::TcpListener;
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
