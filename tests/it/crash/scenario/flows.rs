//! Flows within turns, and runs in lanes of their own.

use super::{Message, Scenario, control, decided, echo, says};
use crate::scenarios::{acts, answer};
use crate::support::script::{Answer, Asked};
use serde_json::{Value, json};
use types::job::Command;
use types::session::{Session, Status};

/// A workflow within a turn, with three concurrent model calls.
pub fn flow() -> Scenario {
    let model = |asked: &Asked| match asked.schema.as_str() {
        "" => Answer::Content("可行".into()),
        _ => decided(asked, acts("processing", "FLOW", "parallel_analysis", &json!({}))),
    };
    Scenario::new("flow", model).wave(vec![says("m-1", "分析一下")])
}

/// A model for `research_workflow`: two rounds of the inner loop, one of the outer.
fn researches(asked: &Asked) -> Answer {
    let text = match asked.user.as_str() {
        user if user.contains("当前迭代: 1") => "资料甲",
        user if user.contains("当前迭代") => "资料乙",
        user if user.contains("检索结果: 资料甲") => "CONTINUE",
        _ => "可行",
    };
    Answer::Content(text.into())
}

fn runs(workflow_id: &str) -> Message {
    let job = json!({"type": "run", "session_id": "r1", "job_id": "r1", "workflow_id": workflow_id, "query": "研究量子计算的最新进展"});
    ("r1", job)
}

/// A run with loops and branches in its own lane.
pub fn run() -> Scenario {
    Scenario::new("run", researches).wave(vec![runs("research_workflow")])
}

/// A run in its own lane for a session, whose history gets the output.
pub fn session_run() -> Scenario {
    let model = |asked: &Asked| if asked.schema.is_empty() { Answer::Content("可行".into()) } else { echo(asked) };
    let run = json!({"type": "run", "session_id": "r1", "job_id": "r1", "workflow_id": "smart_router", "query": "你好",
                     "origin_session": "s1", "channel": "web"});
    let remembered = |session: &Session| {
        // The model varies all words after the first one.
        let words = session.history.iter().filter(|entry| entry.turn_id == "resume-r1").map(|entry| &entry.text);
        words.map(|text| text.split(' ').next().unwrap_or_default()).eq(["你好", "可行"])
    };
    Scenario::new("session run", model).after_greeting().wave(vec![("r1", run)]).ending(remembered)
}

/// A model that plans, finds an error, and plans again.
fn plans(asked: &Asked) -> Answer {
    let step = |agent: &str| json!([{"step": 1, "agent": agent, "question": "怎么样？"}]);
    match asked.schema.as_str() {
        "triage_plan" => Answer::json(&json!({"action": "plan", "plan": step("servicenow")})),
        "triage_replan" => Answer::json(&json!({"accept_review": true, "new_plan": step("log_analytics")})),
        "review" => Answer::json(&json!({"is_complete": false, "missing_aspects": ["日志"]})),
        _ => Answer::Content("可行".into()),
    }
}

/// A workflow with model-made plans, on its longest path.
pub fn dynamic_run() -> Scenario {
    Scenario::new("dynamic run", plans).wave(vec![runs("dynamic_ops")])
}

/// A run that an operator cancels while it may be in progress.
pub fn cancelled_run() -> Scenario {
    let cancel =
        json!({"type": "control", "session_id": "r1", "job_id": "c-1", "command": Command::Cancel, "by": "op"});
    let scenario = Scenario { learns: true, same: false, ..Scenario::new("cancelled run", researches) };
    scenario.wave(vec![runs("research_workflow"), ("r1", cancel)])
}

/// A flow whose model refuses one call once; the agent continues without that branch.
pub fn refused_flow() -> Scenario {
    let model = |asked: &Asked| match asked.schema.as_str() {
        // Refuses the last call, so that the other branches have published all their events.
        "" if asked.index <= 3 && asked.idempotency_key.contains("/technical/") => {
            Answer::WhenIdle(Box::new(Answer::status(418, "scripted")))
        }
        "" => Answer::Content("可行".into()),
        _ if asked.system.contains("scripted") => decided(asked, answer("分析不了")),
        _ => decided(asked, acts("processing", "FLOW", "parallel_analysis", &json!({}))),
    };
    // Which branches the failure interrupts depends on timing, and so do their events.
    let scenario = Scenario { same: false, learns: true, ..Scenario::new("refused flow", model) };
    scenario.wave(vec![says("m-1", "分析一下")])
}

/// A flow that panics: the turn is cancelled after it has published replies.
pub fn panicking_flow() -> Scenario {
    let model = |asked: &Asked| match asked.user.as_str() {
        "分析一下" => decided(asked, acts("processing", "FLOW", "broken", &json!({}))),
        _ => echo(asked),
    };
    let scenario = Scenario::new("panicking flow", model).with(json!({"flows": ["broken"]}));
    scenario.wave(vec![says("m-1", "分析一下")]).wave(vec![says("m-2", "在吗")])
}

fn calls_asking(asked: &Asked) -> Answer {
    match asked.user.as_str() {
        _ if asked.schema.is_empty() => Answer::Content(format!("[{}]", asked.user)),
        "售后" => decided(asked, acts("processing", "FLOW", "asking", &json!({}))),
        "退货" => decided(asked, acts("processing", "FLOW", "asks", &json!({}))),
        _ => echo(asked),
    }
}

fn asking(name: &'static str) -> Scenario {
    let stage = |id: &str, input: &str| json!({"id": id, "runnable": "asks", "input": input});
    let workflow = json!({"id": "asking", "stages": [stage("first", "{query}")]});
    let scenario = Scenario { workflows: vec![workflow], ..Scenario::new(name, calls_asking) };
    scenario.with(json!({"flows": ["asks", "asking"]})).ending(|session| {
        session.waiting.is_none() && session.timers.is_empty() && session.workflow_state.status == Status::Ready
    })
}

/// A flow that asks two questions and gets answers.
pub fn answered_flow() -> Scenario {
    asking("answered flow")
        .wave(vec![says("m-1", "退货")])
        .wave(vec![says("m-2", "A1001")])
        .wave(vec![says("m-3", "退款")])
}

/// The same flow as a stage of a workflow, so that its run waits.
pub fn answered_run() -> Scenario {
    asking("answered run")
        .wave(vec![says("m-1", "售后")])
        .wave(vec![says("m-2", "A1001")])
        .wave(vec![says("m-3", "退款")])
}

/// A waiting run that the user leaves, and one that an operator cancels.
pub fn left_run() -> Scenario {
    let scenario = asking("left run").wave(vec![says("m-1", "售后")]).wave(vec![says("m-2", "取消")]);
    scenario.wave(vec![says("m-3", "售后")]).wave(vec![control("c-1", Command::Release)])
}

/// A run of a graph in its own lane that has two open questions, calls an API with each answer, and waits.
pub fn waiting_run() -> Scenario {
    let node = |id: &str, kind: &str, config: Value| json!({"node_id": id, "type": kind, "name": id, "config": config});
    let call =
        |id: &str, text: &str| node(id, "HTTP", json!({"url": "{api}/eta", "method": "POST", "body": {"x": text}}));
    let edge = |source: &str, target: &str| json!({"source": source, "target": target});
    let graph = json!({"type": "graph", "id": "waiting", "name": "等", "nodes": [
        node("start", "START", json!({})), node("one", "ASK", json!({"question": "一？"})),
        node("two", "ASK", json!({"question": "二？"})), call("first", "${one.output.answer}"),
        call("second", "${two.output.answer}"), node("wait", "WAIT", json!({"seconds": 5})), call("last", "last"),
    ], "edges": [edge("start", "one"), edge("start", "two"), edge("one", "first"), edge("two", "second"),
        edge("first", "wait"), edge("wait", "last")]});
    let run = json!({"type": "run", "session_id": "s1", "job_id": "s1", "workflow_id": "waiting", "query": ""});
    let answers = |job_id: &str, node: &str| {
        let question = format!("{node}/ask[1]");
        ("s1", json!({"type": "answer", "session_id": "s1", "job_id": job_id, "question": question, "text": job_id}))
    };
    let scenario = Scenario { workflows: vec![graph], timers: true, ..Scenario::new("waiting run", echo) };
    scenario.wave(vec![("s1", run)]).wave(vec![answers("a-2", "two"), answers("a-1", "one")]).ending(|session| {
        let is_answered = session.has_handled("a-1") && session.has_handled("a-2");
        is_answered && session.waiting.is_none() && session.timers.is_empty()
    })
}
