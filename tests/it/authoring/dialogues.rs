//! Whole dialogues.

use super::*;
use crate::support::model_stream::Stream;
use types::authoring::Stage;
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::session::{Kind, Role, Status};

on_both_backends!(
    a_dialogue_leads_to_a_workflow_in_use,
    a_gap_leads_to_alternatives,
    a_failed_check_leads_back_to_the_document,
    a_completed_dialogue_goes_on_with_the_same_workflow,
    a_text_is_shown_while_the_model_writes_it,
);

async fn a_dialogue_leads_to_a_workflow_in_use(backend: Backend) {
    let engine = started(backend, answers::script).await;
    let turn = say(&engine, "m-1", "每天汇总").await;
    assert_eq!((turn.outcome, turn.reason), (Outcome::Answered, None));
    let first = told(&engine, "m-1").await;
    assert_eq!(whole(&first), ["clarification", "message"]);
    ends_once(&first);
    assert_eq!(json!(first.last())["content"]["questions"][0]["id"], "when");
    assert_eq!(state(&engine).await.state.clarification_context.pending_questions, ["when"]);
    say(&engine, "m-2", "八点").await;
    let second = told(&engine, "m-2").await;
    assert_eq!(whole(&second), LEADS_TO_A_DOCUMENT);
    ends_once(&second);
    let last = json!(second.last());
    assert_eq!((&last["workflow_id"], &last["delta"]), (&json!("id-s1"), &last["content"]["text"]));
    let workflow = engine.store.workflow("id-s1").await.unwrap().expect("it is published");
    let stored = state(&engine).await;
    assert_eq!(stored.published.unwrap().hash, workflow.hash);
    assert_eq!((stored.state.stage, stored.turns, stored.turn.unwrap().ended), (Stage::Completed, 2, true));
    let asked_for = ["clarification", "clarification", "negotiation", "gap_analysis", "workflow_generation"];
    assert_eq!(asked(&engine), asked_for);
    let session = engine.session("s1").await;
    assert_eq!((session.kind, session.workflow_state.status), (Kind::Authoring, Status::Ready));
    let roles: Vec<_> = session.history.iter().map(|entry| entry.role).collect();
    assert_eq!(roles.iter().filter(|role| **role == Role::User).count(), 2);
    let said: Vec<_> = engine.said("s1").await;
    assert_eq!(said.len(), roles.len() - 2, "each whole message is a reply");
    assert!(said.iter().all(|(kind, _)| *kind == ReplyKind::Response));
    assert_eq!(engine.replies("s1").await[0].metadata["questions"][0]["id"], "when");
}

async fn a_gap_leads_to_alternatives(backend: Backend) {
    let engine = started(backend, |asked| match asked.schema.as_str() {
        "authoring_gap_analysis" if !asked.system.contains("直接写: 用模型") => {
            answers::analysed(Some("tool.none.such"))
        }
        _ => answers::script(asked),
    })
    .await;
    say(&engine, "m-1", "八点汇总").await;
    let first = told(&engine, "m-1").await;
    assert_eq!(whole(&first)[4..], ["gap_analysis", "alternative_generation", "message"]);
    assert_eq!(json!(first.last())["content"]["alternatives"][0]["id"], "alt_1");
    say(&engine, "m-2", "1").await;
    assert_eq!(whole(&told(&engine, "m-2").await)[..2], ["alternative_generation", "negotiation"]);
    let stored = state(&engine).await;
    assert_eq!(stored.state.clarification_context.collected_info["alternative:汇总"], "直接写: 用模型");
    assert_eq!(stored.state.stage, Stage::Completed);
}

async fn a_failed_check_leads_back_to_the_document(backend: Backend) {
    let engine = started(backend, |asked| match asked.schema.as_str() {
        "authoring_workflow_generation" if asked.index < 4 => answers::written("WEATHER"),
        _ => answers::script(asked),
    })
    .await;
    say(&engine, "m-1", "八点汇总").await;
    let events = told(&engine, "m-1").await;
    let checks: Vec<Value> =
        events.iter().map(|event| json!(event)).filter(|event| event["type"] == "workflow_debugging").collect();
    assert_eq!((&checks[0]["data"]["ok"], &checks[1]["data"]["ok"]), (&json!(false), &json!(true)));
    assert!(!checks[0]["data"]["errors"].as_array().unwrap().is_empty());
    assert_eq!(asked(&engine)[3..], ["workflow_generation", "debug", "workflow_generation"]);
    assert_eq!(state(&engine).await.state.stage, Stage::Completed);
}

async fn a_completed_dialogue_goes_on_with_the_same_workflow(backend: Backend) {
    let engine = started(backend, answers::script).await;
    say(&engine, "m-1", "八点汇总").await;
    let first = state(&engine).await.published.unwrap();
    engine.model.script(|asked| match asked.schema.as_str() {
        "authoring_workflow_generation" => answers::renamed("每周汇总"),
        _ => answers::script(asked),
    });
    say(&engine, "m-2", "改成每周一九点").await;
    let stored = state(&engine).await;
    assert_eq!(whole(&told(&engine, "m-2").await)[0], "negotiation");
    assert_eq!(stored.state.workflow_id.as_deref(), Some("id-s1"));
    let second = stored.published.unwrap();
    assert_ne!(first.hash, second.hash);
    assert_eq!(engine.store.workflow("id-s1").await.unwrap().unwrap().hash, second.hash);
}

async fn a_text_is_shown_while_the_model_writes_it(backend: Backend) {
    let gate = Arc::new(tokio::sync::Semaphore::new(1));
    let rest = Arc::clone(&gate);
    let engine = started(backend, move |_| {
        let pieces = [
            "{\"reply\":\"每天",
            "几点\\n汇总",
            "？\",\"questions\":[{\"id\":\"when\",\"question\":\"几点？\",\"is_required\":true}]}",
        ];
        Answer::Stream(Stream::of(pieces).gated(&rest))
    })
    .await;
    publish(&engine, "m-1", "每天汇总").await;
    eventually(DEADLINE, "the first words are shown", || async {
        names(&told(&engine, "m-1").await).last().is_some_and(|name| name == "delta")
    })
    .await;
    gate.add_permits(100);
    engine.turn("s1", "m-1").await;
    let events: Vec<Value> = told(&engine, "m-1").await.iter().map(|event| json!(event)).collect();
    let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(text, "每天几点\n汇总？");
    assert_eq!(events.last().unwrap()["content"]["text"], text);
}
