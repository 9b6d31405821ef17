//! Outputs of workflows: with a model that repeats its prompt, the output of every shipped workflow contains the
//! findings of its stages, and `output` of a loop or pipeline is its text and not the judge's.

use crate::dynamic::{review, three_steps};
use crate::run_streams::{engine, payloads, register, stage, started, writer};
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use crate::support::script::{Answer, Asked, ScriptedModel};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;

on_both_backends!(
    every_shipped_workflow_hands_on_what_its_stages_found,
    a_loop_hands_on_the_text_and_not_what_its_judge_says,
    stages_of_the_last_iteration_can_be_named_after_the_loop,
);

/// Every mark in a text: of a stage, or of the question.
fn marks(text: &str) -> BTreeSet<String> {
    let mark = Regex::new("⟨[^⟩]+⟩").unwrap();
    mark.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// A reply with a new mark and all marks of its prompt. A judge replies with its one word.
fn repeats(asked: &Asked) -> Answer {
    let stage = stage(asked);
    match asked.schema.as_str() {
        "triage_plan" => return Answer::json(&three_steps()),
        "review" => return Answer::json(&review(&[])),
        _ => {}
    }
    let (again, done) = (Answer::Content("CONTINUE".into()), Answer::Content("COMPLETE".into()));
    match stage.rsplit('/').next().unwrap() {
        "reflection" if stage.starts_with("iterative_research[1]") || stage.contains("inner_loop[1]") => return again,
        "meta_reflection" if stage.contains("outer_loop[1]") => return again,
        "reflection" | "meta_reflection" => return done,
        "analysis" if stage.contains("research_loop[1]") => return Answer::Content(format!("⟨{stage}⟩CONTINUE")),
        _ => {}
    }
    let shown = marks(&asked.user).into_iter().collect::<String>();
    Answer::Content(format!("⟨{stage}⟩{shown}"))
}

async fn every_shipped_workflow_hands_on_what_its_stages_found(backend: Backend) {
    let (_engine, gateway) = started(backend, ScriptedModel::start(repeats).await, 1).await;
    let inner = |outer: u32, turn: u32| format!("outer_loop[{outer}]/parallel_result/inner_loop[{turn}]/retrieve");
    let found = [inner(1, 1), inner(1, 2), inner(2, 1), inner(2, 2)];
    let mut research = vec!["intent", "plan", "summary", "report"];
    research.extend(found.iter().map(String::as_str));
    for (id, question, expected) in [
        ("simple_pipeline", "⟨q⟩", vec!["q", "analyze", "process", "format"]),
        ("iterative_research", "⟨q⟩", vec!["q", "iterative_research[1]/research", "iterative_research[2]/research"]),
        ("parallel_analysis", "⟨q⟩", vec!["q", "technical", "business", "risk"]),
        ("smart_router", "⟨q⟩", vec!["q", "general"]),
        ("smart_router", "⟨代码⟩", vec!["代码", "code_expert"]),
        ("smart_router", "⟨数据⟩", vec!["数据", "data_expert"]),
        (
            "nested_research",
            "⟨q⟩",
            vec![
                "q",
                "plan",
                "research_loop[1]/parallel_research/retrieval",
                "research_loop[2]/parallel_research/retrieval",
                "research_loop[2]/parallel_research/analysis",
                "summary",
            ],
        ),
        ("research_workflow", "⟨q⟩", research),
        (
            "dynamic_ops",
            "⟨q⟩",
            vec!["q", "orchestrator/servicenow", "orchestrator/service_health", "orchestrator/log_analytics"],
        ),
    ] {
        let events = payloads(&gateway.run(id, &json!({"query": question})).await.rest().await);
        let output = events.last().unwrap()["data"]["output"].as_str().unwrap_or_else(|| panic!("{id}: {events:#?}"));
        let missing: Vec<_> = expected.iter().filter(|mark| !output.contains(&format!("⟨{mark}⟩"))).collect();
        assert!(missing.is_empty(), "{id} loses {missing:?}: {output}");
        let judges = ["CONTINUE", "COMPLETE"].iter().any(|word| output.contains(word));
        assert!(!judges, "the output of {id} is the judge's word: {output}");
    }
}

async fn a_loop_hands_on_the_text_and_not_what_its_judge_says(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| match stage.rsplit('/').next().unwrap() {
        "judge" if stage.contains("[1]") => "AGAIN".into(),
        "judge" => "GOOD".into(),
        _ => format!("text of {stage}"),
    })
    .await;
    engine.apply(writer("writer")).await;
    let stages = json!([
        {"id": "write", "runnable": "writer", "input": "{query}{loop.last.write}"},
        {"id": "judge", "runnable": "writer", "input": "{write}"},
    ]);
    let condition = "{judge} contains 'AGAIN'";
    register(&engine, json!({"id": "plain", "type": "loop", "condition": condition, "stages": stages})).await;
    register(
        &engine,
        json!({"id": "offer", "type": "loop", "condition": condition, "stages": stages, "output": "{write} ({loop.iteration}: {judge})"}),
    )
    .await;
    register(
        &engine,
        json!({"id": "both", "output": "{skipped}{first} + {second}", "stages": [
            {"id": "first", "runnable": "offer", "input": "{query}"},
            {"id": "skipped", "runnable": "writer", "input": "x", "condition": "false"},
            {"id": "second", "runnable": "writer", "input": "{first}"},
        ]}),
    )
    .await;
    for (id, output) in [
        ("plain", "GOOD"),
        ("offer", "text of offer[2]/write (2: GOOD)"),
        ("both", "text of first[2]/write (2: GOOD) + text of second"),
    ] {
        let events = payloads(&gateway.run(id, &json!({"query": "q"})).await.rest().await);
        let ended = events.last().unwrap();
        assert_eq!((&ended["type"], &ended["data"]["output"]), (&json!("run_completed"), &json!(output)), "{id}");
    }
}

async fn stages_of_the_last_iteration_can_be_named_after_the_loop(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, asked| match stage.rsplit('/').next().unwrap() {
        "judge" if stage.contains("[1]") => "AGAIN".into(),
        "judge" => "GOOD".into(),
        "end" | "within" => format!("<{}>", asked.user),
        _ => format!("text of {stage}"),
    })
    .await;
    engine.apply(writer("writer")).await;
    let agent = |id: &str, input: &str| json!({"id": id, "runnable": "writer", "input": input});
    let draft = json!({"type": "loop", "id": "l", "condition": "{judge} contains 'AGAIN'",
        "stages": [agent("write", "{query}"), agent("judge", "{write}")]});
    let pair = json!({"type": "parallel", "id": "p", "merge_template": "{a.write}|{b}",
        "branches": [{"id": "a", "input": "x", "runnable": draft}, agent("b", "{query}")]});
    let nested =
        json!({"type": "pipeline", "id": "n", "inherit_keys": ["draft"], "stages": [agent("within", "{draft.judge}")]});
    let document = json!({"id": "w", "stages": [
        {"id": "draft", "input": "{query}", "runnable": draft},
        {"id": "pair", "input": "{query}", "runnable": pair},
        {"id": "nested", "input": "{query}", "runnable": nested},
        agent("end", "{draft}, {draft.write}, {pair}, {a.judge}, {nested.within}"),
    ]});
    register(&engine, document.clone()).await;
    let events = payloads(&gateway.run("w", &json!({"query": "q"})).await.rest().await);
    let expected = "<GOOD, text of draft[2]/write, text of pair/a[2]/write|text of pair/b, GOOD, <GOOD>>";
    assert_eq!(events.last().unwrap()["data"]["output"], expected);

    let put = async |input: &str| -> Value {
        let mut document = document.clone();
        document["stages"][3]["input"] = input.into();
        gateway.put("/api/v1/workflows/w", &document).await.json().await.unwrap()
    };
    let good = put("{draft.write}{pair}{a.write}").await;
    assert_eq!((&good["changed"], &good["warnings"]), (&json!(true), &json!([])), "{good}");
    for (input, problem) in [
        ("{write}", "there is no `{write}` here"),
        ("{write}", "a stage within `a` has it: write `{a.write}`"),
        ("{draft.wrote}", "`draft` has no inner stage `wrote`; it has `judge`, `write`"),
        ("{draft.wrote}", "did you mean `write`?"),
        ("{b.write}", "looks into `b`, which is a text"),
    ] {
        let refused = put(input).await.to_string();
        assert!(refused.contains(problem), "{input}: {refused}");
    }
}
