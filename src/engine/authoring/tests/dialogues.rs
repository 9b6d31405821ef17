//! Whole dialogues, and their faults.

use super::*;
use types::authoring::{ErrorCode, Stage};

#[tokio::test]
async fn a_dialogue_leads_to_a_published_document() {
    let answers = [clarified(false), clarified(true), agreed(), analysed(Some("node.HTTP")), written("一")];
    let mut dialogue = Dialogue::new(answers);
    let first = dialogue.say("把邮件转发到Slack").await;
    assert_eq!(told(&first), ["clarification", "delta", "message"]);
    assert!(first.last().unwrap().is_final);
    let second = dialogue.say("每当收到邮件").await;
    let expected = [
        "clarification",
        "delta",
        "message",
        "negotiation",
        "delta",
        "message",
        "gap_analysis",
        "workflow_generation",
        "workflow_generation_started",
        "delta",
        "message",
        "workflow_draft",
        "debug",
        "workflow_debugging",
        "workflow_complete",
        "completed",
        "message",
    ];
    assert_eq!(told(&second), expected);
    assert_eq!(second.iter().filter(|event| event.is_final).count(), 1);
    assert_eq!(second.iter().map(|event| event.seq).collect::<Vec<_>>(), (0..second.len() as u64).collect::<Vec<_>>());
    let asked = ["clarification", "clarification", "negotiation", "gap_analysis", "workflow_generation"];
    assert_eq!(dialogue.script.asked(), asked);
    let published = dialogue.bench.published.lock().unwrap().clone();
    assert_eq!(published, [dialogue.stored.published.clone().unwrap().hash]);
    let draft = second.iter().find(|event| matches!(event.body, Body::WorkflowDraft { .. })).unwrap();
    assert_eq!(json!(draft)["data"]["definition"], json!({"id": "x", "name": "一"}));
    let kept = dialogue.seen.saved.unwrap().turn.unwrap();
    assert!(!json!(kept.events).to_string().contains("\"name\""), "the state does not have the definition twice");
}

#[tokio::test]
async fn the_pieces_of_a_text_are_the_text() {
    let mut dialogue = Dialogue::new([clarified(false)]);
    let events = dialogue.say("把邮件转发到Slack").await;
    let text: String = events.iter().filter_map(|event| json!(event)["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(text, "好的，\n我来帮您。");
    let whole = json!(events.last().unwrap());
    assert_eq!(
        (&whole["content"]["text"], &whole["content"]["metadata"]["sources"]),
        (&json!(text), &json!("guide.md"))
    );
    let mut silent = Dialogue::new([clarified(false)]);
    silent.stored.config.enable_streaming = false;
    assert_eq!(told(&silent.say("把邮件转发到Slack").await), ["clarification", "message"]);
}

#[tokio::test]
async fn a_gap_leads_to_alternatives_and_a_choice_back_to_the_requirements() {
    let answers =
        [clarified(true), agreed(), analysed(None), offered(), agreed(), analysed(Some("node.HTTP")), written("一")];
    let mut dialogue = Dialogue::new(answers);
    let first = dialogue.say("发朋友圈").await;
    assert_eq!(told(&first)[6..], ["gap_analysis", "alternative_generation", "delta", "message"]);
    let second = dialogue.say("1").await;
    assert_eq!(told(&second)[..2], ["alternative_generation", "negotiation"]);
    assert_eq!(dialogue.stored.state.stage, Stage::Completed);
}

#[tokio::test]
async fn a_failed_check_is_diagnosed_and_written_again() {
    let answers = [clarified(true), agreed(), analysed(Some("node.LLM")), written("一"), diagnosed(), written("二")];
    let mut dialogue = Dialogue::new(answers);
    dialogue.bench.failing = 1;
    let events = dialogue.say("转发").await;
    let attempts: Vec<_> = events.iter().filter(|event| matches!(event.body, Body::WorkflowDebugging { .. })).collect();
    assert_eq!(json!(attempts[0])["data"]["ok"], false);
    assert_eq!((&json!(attempts[1])["data"]["ok"], &json!(attempts[1])["data"]["attempt"]), (&json!(true), &json!(2)));
    assert_eq!(dialogue.stored.state.stage, Stage::Completed);
}

#[tokio::test]
async fn the_third_failed_check_gives_the_problems_to_the_user() {
    let answers = [
        clarified(true),
        agreed(),
        analysed(Some("node.LLM")),
        written("一"),
        diagnosed(),
        written("二"),
        diagnosed(),
        written("三"),
    ];
    let mut dialogue = Dialogue::new(answers);
    dialogue.bench.failing = 3;
    let events = dialogue.say("转发").await;
    assert!(json!(events.last().unwrap())["content"]["text"].as_str().unwrap().contains("edges: wrong"));
    assert_eq!((dialogue.stored.state.stage, dialogue.stored.state.debug_loop_count), (Stage::Negotiation, 3));
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_is_corrected_twice() {
    let mut dialogue = Dialogue::new([Said::Text("当然可以！"), Said::Json(json!({"reply": ""})), clarified(false)]);
    let events = dialogue.say("转发").await;
    assert_eq!(told(&events).last().unwrap(), "message");
    let asked = dialogue.script.asked.lock().unwrap().clone();
    assert_eq!(asked.iter().map(|request| request.messages.len()).collect::<Vec<_>>(), [1, 3, 5]);
    let keys: Vec<_> = asked.iter().map(|request| request.idempotency_key.as_str()).collect();
    assert_eq!(keys[0], "s/m-1/author@1/clarification/model/0");
    assert_eq!(keys[2], "s/m-1/author@1/clarification/model/2");
}

#[tokio::test]
async fn a_third_answer_that_cannot_be_used_is_an_error_and_the_next_message_goes_on() {
    let prose = || Said::Text("当然可以！");
    let mut dialogue = Dialogue::new([prose(), prose(), prose(), clarified(false)]);
    assert_eq!(told(&dialogue.say("转发").await), ["clarification", "error", "invalid_answer"]);
    assert_eq!(dialogue.stored.resume_stage, Some(Stage::Clarification));
    assert_eq!(told(&dialogue.say("再试").await), ["clarification", "delta", "message"]);
}

#[tokio::test]
async fn a_corrected_answer_takes_the_place_of_what_was_shown() {
    let long = json!({"reply": "错", "questions": [{"id": "", "question": ""}]});
    let mut dialogue = Dialogue::new([Said::Json(long), clarified(false)]);
    let events = dialogue.say("转发").await;
    let pieces: Vec<Value> =
        events.iter().map(|event| json!(event)).filter(|event| event["delta"].is_string()).collect();
    let first = pieces[0]["stream_id"].clone();
    let second = pieces.iter().find(|piece| piece["stream_id"] != first).unwrap();
    assert_eq!(second["supersedes"], first);
}

#[tokio::test]
async fn a_stage_that_takes_too_long_ends_the_turn_and_keeps_the_stages_before_it() {
    let mut dialogue = Dialogue::new([clarified(true), Said::Late, agreed(), analysed(None), offered()]);
    let events = dialogue.say("转发").await;
    assert_eq!(told(&events)[3..], ["negotiation", "timeout"]);
    assert_eq!((dialogue.stored.state.stage, dialogue.stored.resume_stage), (Stage::Negotiation, None));
    assert_eq!(told(&dialogue.say("再试").await).last().unwrap(), "message");
}

#[tokio::test]
async fn a_model_that_is_away_is_an_error_of_the_dialogue() {
    let mut dialogue = Dialogue::new([clarified(true), Said::Away, agreed(), analysed(None), offered()]);
    let events = dialogue.say("转发").await;
    assert_eq!(told(&events)[3..], ["negotiation", "error", "model_unavailable"]);
    let error = json!(events.last().unwrap());
    assert_eq!((&error["content"]["is_recoverable"], &error["is_final"]), (&json!(true), &json!(true)));
    assert_eq!(told(&dialogue.say("再试").await)[0], "negotiation");
}

#[tokio::test]
async fn a_refused_message_counts_as_no_turn() {
    let mut dialogue = Dialogue::new([]);
    assert_eq!(told(&dialogue.say("  ").await), ["clarification", ErrorCode::EmptyMessage.as_str()]);
    dialogue.stored.config.max_turns = 1;
    dialogue.stored.turns = 1;
    assert_eq!(told(&dialogue.say("转发").await), ["clarification", ErrorCode::MaxTurns.as_str()]);
    assert_eq!((dialogue.stored.turns, dialogue.script.asked().len()), (1, 0));
}
