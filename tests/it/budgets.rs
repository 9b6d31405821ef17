//! Token budgets of a turn, a conversation and a day: each stops further model calls when it is used up, and a repeated
//! turn counts once. Each call of the scripted model uses 18 tokens.

use crate::scenarios::{acts, answer, on_both_backends, sales, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use crate::support::{api, backend, eventually};
use base::clock;
use commands::runs::NewRun;
use definitions::knowledge::source::{Origin, Source};
use definitions::workflow::definition::WorkflowRecord;
use engine::workflow::FlowContext;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::run::RunRecord;
use types::session::Status;
use types::turn::TurnRecord;

/// Tokens of one model call.
const CALL: u64 = 18;

on_both_backends!(
    a_turn_ends_where_its_budget_is_spent,
    a_conversation_ends_where_its_budget_is_spent_and_one_that_is_opened_again_begins_anew,
    a_day_ends_where_its_budget_is_spent_for_all_sessions,
    the_settings_hold_where_a_file_says_nothing,
    a_reply_from_knowledge_is_within_the_budget,
    a_workflow_within_a_turn_is_within_its_budget,
    a_run_of_its_own_counts_against_the_days_of_its_task_agents,
    a_cancelled_turn_counts_what_it_has_used,
    an_answer_to_a_flow_counts_as_its_own_turn,
);

fn with_budget(budget: &Value) -> Value {
    let mut agent = sales_with(&json!({ "budget": budget }));
    agent.as_object_mut().unwrap().remove("greeting");
    agent
}

/// A model that plans, then repeats `decision`.
async fn deciding(decision: Value) -> ScriptedModel {
    ScriptedModel::start(move |asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(json!(null), &decision)),
        _ => Answer::json(&decision),
    })
    .await
}

async fn engine(backend: Backend, decision: Value, budget: &Value) -> Engine {
    let engine = Engine::start(backend, deciding(decision).await, 1).await;
    engine.apply(with_budget(budget)).await;
    engine
}

fn eta() -> Value {
    acts("processing", "TOOL", "now", &json!({}))
}

/// Checks that the turn is cancelled because of its budget, and that the user gets a reply.
async fn is_spent(engine: &Engine, turn: &TurnRecord, why: &str) {
    assert_eq!((turn.outcome, turn.reason.as_deref()), (Outcome::Cancelled, Some(why)), "{turn:?}");
    assert_eq!(turn.statuses.last().map(|last| last.status), Some(Status::Cancelled));
    let (kind, text) = engine.said(&turn.session_id).await.pop().unwrap();
    assert!(kind == ReplyKind::Apology && text.contains("用量已达上限"), "{kind:?} {text}");
}

async fn today(engine: &Engine, agent_id: &str) -> u64 {
    let used = engine.store.tokens_of_day(&clock::now().day(), vec![agent_id.to_owned()]).await.unwrap();
    used.get(agent_id).copied().unwrap_or(0)
}

/// Waits until the day's usage is counted. That happens after the commit, so shortly after the turn is visible.
async fn counted(engine: &Engine, agent_id: &str, tokens: u64) {
    eventually(DEADLINE, &format!("`{agent_id}` has used {tokens} tokens today"), async || {
        (today(engine, agent_id).await == tokens).then_some(())
    })
    .await;
}

async fn a_turn_ends_where_its_budget_is_spent(backend: Backend) {
    let engine = engine(backend, eta(), &json!({"turn": 30})).await;
    let turn = engine.say("s1", "m-1", "几点了？").await;
    is_spent(&engine, &turn, "token_budget: the turn budget of agent `sales` is spent: 36 of 30 tokens").await;
    assert_eq!(engine.model.asked().len(), 2);
    let session = engine.session("s1").await;
    assert_eq!((session.tokens, session.workflow_state.status), (2 * CALL, Status::Cancelled));
    // The next turn has a new budget.
    engine.model.script(|_| Answer::json(&answer("三点")));
    assert_eq!(engine.say("s1", "m-2", "几点了？").await.outcome, Outcome::Answered);
    assert_eq!(engine.session("s1").await.tokens, 3 * CALL);
    assert_eq!(today(&engine, "sales").await, 0, "without a limit, usage of the day is not counted");
}

async fn a_conversation_ends_where_its_budget_is_spent_and_one_that_is_opened_again_begins_anew(backend: Backend) {
    let engine = engine(backend, answer("好的"), &json!({"session": 2 * CALL})).await;
    for turn in ["m-1", "m-2"] {
        assert_eq!(engine.say("s1", turn, "你好").await.outcome, Outcome::Answered);
    }
    let why = "token_budget: the session budget of agent `sales` is spent: 36 of 36 tokens";
    is_spent(&engine, &engine.say("s1", "m-3", "在吗").await, why).await;
    assert_eq!((engine.model.asked().len(), engine.session("s1").await.tokens), (2, 2 * CALL));
    // Other sessions are not affected, and an operator may raise the limit.
    assert_eq!(engine.say("s2", "m-1", "你好").await.outcome, Outcome::Answered);
    engine.apply(with_budget(&json!({"session": 3 * CALL}))).await;
    assert_eq!(engine.say("s1", "m-4", "在吗").await.outcome, Outcome::Answered);
    assert_eq!(engine.say("s1", "m-5", "在吗").await.outcome, Outcome::Cancelled);
    engine.publish_job("s1", json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": "close"})).await;
    engine.turn("s1", "c-1").await;
    assert_eq!(engine.session("s1").await.tokens, 3 * CALL, "the usage is kept until the next message");
    assert_eq!(engine.say("s1", "m-6", "在吗").await.outcome, Outcome::Answered);
    assert_eq!(engine.session("s1").await.tokens, CALL);
}

async fn a_day_ends_where_its_budget_is_spent_for_all_sessions(backend: Backend) {
    let engine = engine(backend, answer("好的"), &json!({"day": 2 * CALL})).await;
    for session in ["s1", "s2"] {
        assert_eq!(engine.say(session, "m-1", "你好").await.outcome, Outcome::Answered);
    }
    counted(&engine, "sales", 2 * CALL).await;
    let why = "token_budget: the day budget of agent `sales` is spent: 36 of 36 tokens";
    is_spent(&engine, &engine.say("s3", "m-1", "你好").await, why).await;
    // The limit also holds for a worker that has not seen these turns.
    engine.start_worker();
    for session in 4..8 {
        let turn = engine.say(&format!("s{session}"), "m-1", "你好").await;
        is_spent(&engine, &turn, why).await;
    }
    assert_eq!(engine.model.asked().len(), 2);
    counted(&engine, "sales", 2 * CALL).await;
}

async fn the_settings_hold_where_a_file_says_nothing(mut backend: Backend) {
    backend.settings.budget.turn = 1;
    backend.settings.budget.session = 2 * CALL;
    let engine = Engine::start(backend, deciding(answer("好的")).await, 1).await;
    engine.apply(sales()).await;
    engine.apply(sales_with(&json!({"id": "free", "budget": {"session": 0}}))).await;
    let say = async |session: &str, agent: &str, turn: &str| {
        let job =
            json!({"type": "user_message", "session_id": session, "agent_id": agent, "job_id": turn, "text": "你好"});
        engine.publish_job(session, job).await;
        engine.turn(session, turn).await.outcome
    };
    for (session, agent, last) in [("s1", "sales", Outcome::Cancelled), ("s2", "free", Outcome::Answered)] {
        for turn in ["m-1", "m-2"] {
            assert_eq!(say(session, agent, turn).await, Outcome::Answered, "{agent} {turn}");
        }
        assert_eq!(say(session, agent, "m-3").await, last, "{agent}");
    }
}

async fn a_reply_from_knowledge_is_within_the_budget(backend: Backend) {
    let engine = Engine::watching(backend, deciding(answer("我看看。")).await).await;
    engine.apply(with_budget(&json!({"turn": CALL}))).await;
    let source = Source::new("sales", "returns.md", "七天内可以退货。", Origin::Added, clock::now()).unwrap();
    engine.store.put_knowledge(source).await.unwrap();
    engine.start_worker();
    let turn = engine.say("s1", "m-1", "怎么退货？").await;
    is_spent(&engine, &turn, "token_budget: the turn budget of agent `sales` is spent: 18 of 18 tokens").await;
    assert_eq!(engine.model.asked().len(), 1, "only the decision, without a second call for the reply");
}

/// Applies the task agents a, b and c, with `budget` for b, and a pipeline of all three.
async fn workflow(engine: &Engine, budget: &Value) {
    for id in ["a", "b", "c"] {
        let budget = if id == "b" { budget.clone() } else { json!({}) };
        engine.apply(json!({"id": id, "system_prompt": id, "budget": budget})).await;
    }
    let stages = [("first", "a", "{query}"), ("second", "b", "{first}"), ("third", "c", "{second}")];
    let stages = stages.map(|(id, runnable, input)| json!({"id": id, "runnable": runnable, "input": input}));
    let workflow = WorkflowRecord::from_document(json!({"id": "steps", "stages": stages}), clock::now()).unwrap();
    engine.store.put_workflow(workflow).await.unwrap();
}

/// A model that routes to the workflow, and replies for its agents.
async fn routing() -> ScriptedModel {
    ScriptedModel::start(|asked: &Asked| {
        let route = acts("processing", "FLOW", "steps", &json!({}));
        match asked.schema.as_str() {
            "plan_and_decision" => Answer::json(&plan(json!(null), &route)),
            "decision" => Answer::json(&route),
            _ => Answer::Content(format!("{}({})", asked.system, asked.user)),
        }
    })
    .await
}

async fn a_workflow_within_a_turn_is_within_its_budget(backend: Backend) {
    let engine = Engine::watching(backend, routing().await).await;
    workflow(&engine, &json!({})).await;
    let mut agent = with_budget(&json!({"turn": 40, "day": 1_000}));
    agent["flows"] = json!(["steps"]);
    engine.apply(agent).await;
    engine.start_worker();
    let turn = engine.say("s1", "m-1", "分析").await;
    is_spent(&engine, &turn, "token_budget: the turn budget of agent `sales` is spent: 54 of 40 tokens").await;
    let asked: Vec<String> = engine.model.asked().into_iter().map(|asked| asked.system).collect();
    assert_eq!(
        (asked.len(), &asked[1..]),
        (3, &["a".to_owned(), "b".to_owned()][..]),
        "neither c nor the agent is asked"
    );
    assert_eq!(engine.session("s1").await.tokens, 3 * CALL);
    counted(&engine, "sales", 3 * CALL).await;
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    let refused = steps.iter().find(|step| step.key.ends_with("third/0/model")).unwrap();
    assert_eq!(
        (refused.ok, &refused.output["spent"]["limit"]),
        (false, &json!("turn")),
        "a repeated call is refused, too"
    );
}

async fn ended(engine: &Engine, run_id: &str) -> RunRecord {
    eventually(DEADLINE, &format!("run {run_id} has ended"), || async {
        let run = engine.store.run(run_id).await.unwrap().filter(|run| run.status.has_ended())?;
        let session = engine.store.session(run_id).await.unwrap()?;
        (session.lease.is_none() && session.turn.is_none()).then_some(run)
    })
    .await
}

async fn a_run_of_its_own_counts_against_the_days_of_its_task_agents(backend: Backend) {
    let up = Arc::new(AtomicBool::new(false));
    let third = Arc::clone(&up);
    let model = ScriptedModel::start(move |asked| match asked.system.as_str() {
        "c" if !third.load(Ordering::SeqCst) => Answer::status(400, "not now"),
        system => Answer::Content(system.to_owned()),
    })
    .await;
    let engine = Engine::start(backend, model, 1).await;
    workflow(&engine, &json!({"day": 2 * CALL})).await;
    let start = async || {
        let new = NewRun::new("steps", "x");
        commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap().run_id
    };
    let first = start().await;
    assert!(ended(&engine, &first).await.error.is_some());
    counted(&engine, "b", CALL).await;
    up.store(true, Ordering::SeqCst);
    commands::runs::resume_run(engine.queue.as_ref(), engine.store.as_ref(), &first).await.unwrap();
    eventually(DEADLINE, "the run has completed", || async {
        ended(&engine, &first).await.output.is_some_and(|output| output == "c")
    })
    .await;
    // The calls before the failure count once.
    counted(&engine, "b", CALL).await;
    let second = start().await;
    assert_eq!(ended(&engine, &second).await.error, None);
    counted(&engine, "b", 2 * CALL).await;
    let third = start().await;
    let failure = ended(&engine, &third).await.error.unwrap();
    assert_eq!(failure.cause, "the day budget of agent `b` is spent: 36 of 36 tokens");
    assert_eq!((failure.path.as_str(), today(&engine, "b").await, today(&engine, "a").await), ("second", 2 * CALL, 0));
}

async fn a_cancelled_turn_counts_what_it_has_used(backend: Backend) {
    let engine = engine(backend, acts("processing", "TOOL", "eta", &json!({})), &json!({"day": 1_000})).await;
    engine.api.script(|_, _| api::Answer::Hang);
    engine.publish("s1", "m-1", "几天到？").await;
    eventually(DEADLINE, "the action runs", || async { !engine.api.calls("/eta").is_empty() }).await;
    engine
        .publish_job("s1", json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": "cancel"}))
        .await;
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
    assert_eq!(engine.session("s1").await.tokens, CALL);
    counted(&engine, "sales", CALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_a_killed_worker_began_counts_once() {
    let backend = backend::cluster().await;
    let engine = Engine::watching(
        backend,
        ScriptedModel::start(|asked| match asked.schema.as_str() {
            "plan_and_decision" => Answer::json(&plan(json!(null), &acts("processing", "TOOL", "eta", &json!({})))),
            _ => Answer::json(&answer("两天")),
        })
        .await,
    )
    .await;
    engine.apply(with_budget(&json!({"day": 1_000, "session": 1_000}))).await;
    engine.api.script(|_, _| api::Answer::Hang);
    let dir = tempfile::tempdir().unwrap();
    let worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    engine.publish("s1", "m-1", "几天到？").await;
    eventually(DEADLINE, "the action runs", || async { !engine.api.calls("/eta").is_empty() }).await;
    drop(worker);
    engine.api.script(|_, _| (200, json!({"days": 2})));
    engine.start_worker();
    engine.start_scheduler();
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Answered);
    assert_eq!(engine.model.asked().len(), 2, "the recorded plan is not asked for again");
    assert_eq!(engine.session("s1").await.tokens, 2 * CALL);
    counted(&engine, "sales", 2 * CALL).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With any combination of the three limits, the model is called exactly as long as none is used up.
    #[test]
    fn a_spent_budget_never_makes_a_model_call(
        (turn, session, day) in (0_u64..70, 0_u64..120, 0_u64..160),
        // For each message: its session, and the number of actions before its reply.
        messages in prop::collection::vec((0_usize..2, 0_usize..4), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let model = ScriptedModel::start(|asked| {
                let wanted: usize = asked.user.parse().unwrap();
                // `<session>/<turn>/<iteration>/decide`: the iteration is the number of finished actions.
                let done: usize = asked.idempotency_key.split('/').nth(2).unwrap().parse().unwrap();
                let decision = if done < wanted { eta() } else { answer("好的") };
                Answer::json(&if asked.schema == "decision" { decision } else { plan(json!(null), &decision) })
            }).await;
            let engine = Engine::start(backend::embedded().await, model, 1).await;
            engine.apply(with_budget(&json!({"turn": turn, "session": session, "day": day}))).await;
            let (mut of_sessions, mut of_day, mut calls) = ([0, 0], 0, 0);
            for (number, (which, actions)) in messages.into_iter().enumerate() {
                let within = |used: u64, most: u64| most == 0 || used < most;
                let mut asked = 0;
                while asked < actions as u64 + 1
                    && within(asked * CALL, turn)
                    && within(of_sessions[which] + asked * CALL, session)
                    && within(of_day + asked * CALL, day)
                {
                    asked += 1;
                }
                let outcome = if asked == actions as u64 + 1 { Outcome::Answered } else { Outcome::Cancelled };
                let turn = engine.say(&format!("s{which}"), &format!("m-{number}"), &actions.to_string()).await;
                of_sessions[which] += asked * CALL;
                of_day += asked * CALL;
                calls += asked;
                assert_eq!((turn.outcome, engine.model.asked().len() as u64), (outcome, calls), "message {number}");
                assert_eq!(engine.session(&format!("s{which}")).await.tokens, of_sessions[which]);
            }
        });
    }
}

async fn an_answer_to_a_flow_counts_as_its_own_turn(backend: Backend) {
    let decision = acts("processing", "FLOW", "asks", &json!({}));
    let mut engine = Engine::watching(backend, deciding(decision).await).await;
    engine.flows = engine.flows.clone().with("asks", async |flow: FlowContext| {
        flow.ask_model("before", "问", "之前").await?;
        let answer = flow.ask("哪个？").await?;
        flow.ask_model("after", "问", &answer).await
    });
    let mut agent = with_budget(&json!({"turn": 2 * CALL}));
    agent["flows"] = json!(["asks"]);
    engine.apply(agent).await;
    engine.start_worker();
    assert_eq!(engine.say("s1", "m-1", "你好").await.outcome, Outcome::Flow);
    assert_eq!(engine.session("s1").await.tokens, 2 * CALL);
    assert_eq!(engine.say("s1", "m-2", "这个").await.outcome, Outcome::Flow, "the answer has its own budget");
    assert_eq!((engine.session("s1").await.tokens, engine.model.asked().len()), (3 * CALL, 3));
}
