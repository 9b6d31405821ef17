//! Each transition, and each refusal.

use super::*;
use types::authoring::{ConversationConfig, Language, Origin, Publish, Purpose};

/// A dialogue whose user has just agreed.
fn agreed() -> Dialogue {
    let mut dialogue = Dialogue::new(new());
    dialogue.say("每当Gmail收到邮件就转发到Slack").input(clarified(vec![])).input(negotiated(true));
    dialogue
}

/// A dialogue with a draft that waits for its checks.
fn with_draft() -> Dialogue {
    let mut dialogue = agreed();
    dialogue.input(analysed(&[("mail", true, Some("tool.mail.gmail"))])).input(drafted("h1"));
    dialogue
}

/// A dialogue that offers alternatives.
fn with_alternatives() -> Dialogue {
    let mut dialogue = agreed();
    dialogue.input(analysed(&[("朋友圈", true, None)])).input(offered("朋友圈"));
    dialogue
}

#[test]
fn a_dialogue_without_obstacles_goes_through_the_stages_in_one_turn() {
    let mut dialogue = with_draft();
    assert_eq!(next(&dialogue.stored), Next::Check);
    dialogue.input(checked(true));
    assert_eq!(next(&dialogue.stored), Next::Publish);
    dialogue.input(published("h1"));
    assert!(dialogue.waits());
    let stages = ["clarification", "negotiation", "gap_analysis", "workflow_generation", "debug", "completed"];
    assert_eq!(dialogue.stages(), stages);
    let types = dialogue.types();
    assert_eq!(
        types[types.len() - 7..],
        ["message", "workflow_draft", "status", "workflow_debugging", "workflow_complete", "status", "message"]
    );
    let last = dialogue.last();
    assert_eq!(last["delta"], last["content"]["text"]);
    assert_eq!((last["workflow_id"].as_str(), last["is_final"].as_bool()), (Some("7d0e"), Some(true)));
    assert_eq!(dialogue.stored.state.conversations.len(), 5);
    assert_eq!(dialogue.stored.turns, 1);
}

#[test]
fn a_required_question_waits_and_an_optional_one_does_not() {
    let mut dialogue = Dialogue::new(new());
    dialogue.say("做个工作流").input(clarified(vec![question("trigger_1", true)]));
    assert!(dialogue.waits());
    assert_eq!(dialogue.last()["content"]["message_type"], "question");
    assert_eq!(dialogue.last()["content"]["questions"][0]["id"], "trigger_1");
    dialogue.say("每天");
    let status = serde_json::to_value(&dialogue.events[0]).unwrap();
    assert_eq!(status["content"]["pending_actions"], json!(["trigger_1"]));
    dialogue.input(clarified(vec![question("style", false)]));
    assert_eq!(dialogue.stages(), ["clarification", "negotiation"]);
    assert_eq!(dialogue.stored.state.clarification_context.collected_info["input_source"], "Gmail");
}

#[test]
fn a_new_question_leads_from_the_requirements_back_to_the_clarification_whatever_the_model_says() {
    let mut dialogue = Dialogue::new(new());
    dialogue.say("x").input(clarified(vec![]));
    let answer = Negotiation { agreed: true, questions: vec![question("q", true)], ..Default::default() };
    dialogue.input(Input::Negotiated(answer));
    assert_eq!(dialogue.stages(), ["clarification", "negotiation", "clarification"]);
    assert!(dialogue.waits());
    assert_eq!(dialogue.last()["content"]["text"], "1. q?", "a message without words has those of its questions");
    dialogue.say("答").input(clarified(vec![])).input(negotiated(false));
    assert!(dialogue.waits());
    assert_eq!(dialogue.stored.state.clarification_context.collected_info["requirements"], "读邮件\n发消息");
}

#[test]
fn what_the_catalogue_does_not_have_is_a_gap() {
    let mut dialogue = agreed();
    dialogue.input(analysed(&[("mail", true, Some("tool.mail.invented")), ("日志", false, None)]));
    assert_eq!(dialogue.stored.state.stage, Stage::AlternativeGeneration);
    assert_eq!(dialogue.stored.state.gaps, ["mail", "日志"]);
    assert_eq!(dialogue.stored.state.clarification_context.purpose, Purpose::GapResolution);
    let mut dialogue = agreed();
    dialogue.input(analysed(&[("mail", true, Some("tool.mail.gmail")), ("日志", false, None)]));
    assert_eq!(dialogue.stored.state.stage, Stage::WorkflowGeneration);
    let told = dialogue.events.iter().any(|event| serde_json::to_string(event).unwrap().contains("日志"));
    assert!(told, "an optional gap is named");
}

#[test]
fn an_alternative_is_chosen_and_another_message_is_asked_again() {
    for message in ["2", "alt_2", "省略这一步", "第二个"] {
        let mut dialogue = with_alternatives();
        assert!(dialogue.waits());
        assert_eq!(dialogue.last()["content"]["alternatives"][1]["complexity"], "simple");
        dialogue.say(message);
        assert_eq!(dialogue.stages(), ["alternative_generation", "negotiation"], "{message}");
        let info = &dialogue.stored.state.clarification_context.collected_info;
        assert_eq!(info["alternative:朋友圈"], "省略这一步: HTTP");
        assert_eq!(next(&dialogue.stored), Next::Ask(Question::Negotiation));
    }
    let mut dialogue = with_alternatives();
    dialogue.say("随便");
    assert_eq!(next(&dialogue.stored), Next::Ask(Question::AlternativeGeneration));
    dialogue.input(Input::Offered(Alternatives { reply: "请说编号".into(), alternatives: vec![] }));
    assert!(dialogue.waits());
    assert_eq!(dialogue.last()["content"]["alternatives"].as_array().unwrap().len(), 2, "the offer stands");
}

#[test]
fn a_gap_that_nothing_closes_is_said_at_the_third_time() {
    let mut dialogue = with_alternatives();
    dialogue.say("1").input(negotiated(true)).input(analysed(&[("朋友圈", true, None)])).input(offered("朋友圈"));
    dialogue.say("1").input(negotiated(true)).input(analysed(&[("朋友圈", true, None)]));
    assert!(dialogue.waits());
    assert_eq!(dialogue.stored.state.stage, Stage::Negotiation);
    assert!(dialogue.last()["content"]["text"].as_str().unwrap().contains("朋友圈"));
}

#[test]
fn a_document_that_fails_is_written_anew_twice_and_then_negotiated() {
    let mut dialogue = with_draft();
    for count in 1..=2 {
        dialogue.input(checked(false));
        assert_eq!(dialogue.stored.state.debug_loop_count, count);
        assert_eq!(next(&dialogue.stored), Next::Ask(Question::Debug));
        dialogue.input(diagnosed());
        assert_eq!(next(&dialogue.stored), Next::Ask(Question::WorkflowGeneration));
        assert_eq!(dialogue.stored.draft.as_ref().unwrap().changes, ["改边"]);
        dialogue.input(drafted("h2"));
    }
    dialogue.input(checked(false));
    assert!(dialogue.waits());
    assert_eq!((dialogue.stored.state.stage, dialogue.stored.state.debug_loop_count), (Stage::Negotiation, 3));
    assert!(dialogue.last()["content"]["text"].as_str().unwrap().contains("no such node"));
    assert_eq!(dialogue.types().iter().filter(|name| *name == "workflow_debugging").count(), 3);
    dialogue.say("好").input(negotiated(true)).input(analysed(&[]));
    assert_eq!(dialogue.stored.state.debug_loop_count, 0, "a new cycle");
}

#[test]
fn a_model_that_gives_up_leads_back_to_the_requirements() {
    let mut dialogue = with_draft();
    let answer = Diagnosis { diagnosis: "做不到".into(), give_up: true, ..Default::default() };
    dialogue.input(checked(false)).input(Input::Diagnosed(answer));
    assert!(dialogue.waits());
    assert_eq!(dialogue.stored.state.stage, Stage::Negotiation);
    assert!(dialogue.last()["content"]["text"].as_str().unwrap().contains("做不到"));
}

#[test]
fn the_requirements_are_reopened_once_in_a_turn() {
    let reopen = || Input::Analysed(GapAnalysis { capabilities: vec![], reopen: true }, HashSet::new());
    let mut dialogue = agreed();
    dialogue.input(reopen());
    assert_eq!(next(&dialogue.stored), Next::Ask(Question::Negotiation));
    dialogue.input(negotiated(true)).input(reopen());
    assert_eq!(dialogue.stored.state.stage, Stage::WorkflowGeneration, "the second one is not followed");
    let again = Input::Reopened { reply: String::new() };
    let before = dialogue.stored.clone();
    assert!(advance(&mut dialogue.stored, again, BTreeMap::new(), NOW).is_err());
    assert_eq!(dialogue.stored, before, "an answer that cannot be used changes nothing");
}

#[test]
fn an_agent_waits_for_its_publication() {
    let mut dialogue = with_draft();
    dialogue.stored.publish = Publish::Manual;
    dialogue.stored.config.language = Language::En;
    dialogue.input(checked(true));
    assert!(dialogue.waits());
    assert_eq!(dialogue.stored.state.stage, Stage::Completed);
    let status = &dialogue.events[dialogue.events.len() - 2];
    assert_eq!(serde_json::to_value(status).unwrap()["content"]["pending_actions"], json!(["publish"]));
    assert!(dialogue.last()["content"]["text"].as_str().unwrap().contains("Publish it"));
}

#[test]
fn a_refused_publication_keeps_the_draft() {
    let mut dialogue = with_draft();
    let refused = Publication::Refused("the source has moved".into());
    dialogue.input(checked(true)).input(Input::Published(refused));
    assert!(dialogue.waits());
    assert_eq!(dialogue.last()["content"]["error_code"], "publish_refused");
    assert_eq!(dialogue.stored.state.stage, Stage::Negotiation);
    assert!(dialogue.stored.draft.is_some());
}

#[test]
fn a_message_after_the_end_changes_the_same_artefact() {
    let mut dialogue = with_draft();
    dialogue.input(checked(true)).input(published("h1"));
    dialogue.say("再加一个节点");
    assert_eq!(dialogue.stages(), ["negotiation"]);
    let status = serde_json::to_value(&dialogue.events[0]).unwrap();
    assert_eq!(status["content"]["previous_stage"], "completed");
    assert_eq!(dialogue.stored.state.clarification_context.purpose, Purpose::TemplateModification);
    dialogue
        .input(negotiated(true))
        .input(analysed(&[]))
        .input(drafted("h2"))
        .input(checked(true))
        .input(published("h2"));
    assert_eq!(dialogue.last()["workflow_id"], "7d0e");
}

#[test]
fn an_edit_keeps_its_id_and_a_copy_gets_its_own() {
    for (origin, id) in [(Origin::Edit, "w1"), (Origin::Copy, "7d0e")] {
        let context = WorkflowContext { origin, source_workflow_id: "w1".into(), modification_intent: String::new() };
        let mut dialogue = Dialogue::new(StoredState::new("7d0e".into(), "s", "alice", context, NOW));
        dialogue.say("增加一个节点").input(clarified(vec![])).input(negotiated(true)).input(analysed(&[]));
        assert_eq!(dialogue.stored.state.workflow_id.as_deref(), Some(id));
        assert_eq!(dialogue.stored.state.workflow_context.modification_intent, "增加一个节点");
    }
    let preferences = BTreeMap::from([("target_id".to_owned(), "mine".to_owned())]);
    let mut stored = new().configured(ConversationConfig { preferences, ..Default::default() }, None);
    stored.state.stage = Stage::GapAnalysis;
    let mut dialogue = Dialogue::new(stored);
    dialogue.say("好").input(analysed(&[]));
    assert_eq!(dialogue.stored.state.workflow_id.as_deref(), Some("mine"));
}

#[test]
fn a_message_that_is_refused_changes_nothing_but_the_turn() {
    let mut dialogue = Dialogue::new(new());
    dialogue.stored.config.max_turns = 1;
    let before = dialogue.stored.clone();
    for (message, code) in
        [("", "empty_message"), (" \n\u{3000}", "empty_message"), (&"x".repeat(65_537), "message_too_large")]
    {
        dialogue.say(message);
        assert!(dialogue.waits());
        assert_eq!(dialogue.types(), ["status", "error"]);
        assert_eq!(dialogue.last()["content"]["error_code"], code);
        assert_eq!(dialogue.last()["content"]["is_recoverable"], true);
        assert_eq!(dialogue.stored.state, before.state);
    }
    dialogue.say(&"x".repeat(65_536)).input(clarified(vec![question("q", true)]));
    dialogue.say("二");
    assert_eq!(dialogue.last()["content"]["error_code"], "max_turns");
    assert_eq!(dialogue.last()["content"]["is_recoverable"], false);
    assert_eq!((dialogue.stored.turns, dialogue.stored.state.conversations.len()), (1, 2));
    dialogue.stored.config.max_turns = 2;
    dialogue.say("二");
    assert_eq!(next(&dialogue.stored), Next::Ask(Question::Clarification), "a raised limit is enough");
}

#[test]
fn four_failures_change_the_stage_and_the_next_message_goes_on_there() {
    for code in ErrorCode::ALL {
        let mut dialogue = agreed();
        dialogue.fault(code);
        assert!(dialogue.waits());
        assert_eq!(dialogue.last()["content"]["error_code"], code.as_str());
        let changed = dialogue.stored.state.stage == Stage::Error;
        assert_eq!(changed, code.changes_stage(), "{code}");
        assert_eq!(dialogue.stored.resume_stage, changed.then_some(Stage::GapAnalysis));
        dialogue.say("继续");
        assert_eq!(dialogue.stages(), ["gap_analysis"]);
        let previous = serde_json::to_value(&dialogue.events[0]).unwrap()["content"]["previous_stage"].clone();
        assert_eq!(previous == "error", changed);
        assert_eq!((next(&dialogue.stored), dialogue.stored.resume_stage), (Next::Ask(Question::GapAnalysis), None));
    }
}

#[test]
fn a_state_of_an_interrupted_turn_goes_on_without_a_message() {
    let mut dialogue = with_draft();
    assert!(go_on(&mut dialogue.stored, "m-2", NOW));
    assert_eq!(next(&dialogue.stored), Next::Check);
    let mut waiting = Dialogue::new(new());
    assert!(!go_on(&mut waiting.stored, "m-1", NOW), "nothing was said");
    waiting.say("x");
    assert!(go_on(&mut waiting.stored, "m-2", NOW));
    waiting.input(clarified(vec![question("q", true)]));
    assert!(!go_on(&mut waiting.stored, "m-3", NOW), "the user is asked");
}

#[test]
fn a_lost_draft_is_written_again() {
    let mut dialogue = with_draft();
    dialogue.stored.draft = None;
    dialogue.say("继续");
    assert_eq!(next(&dialogue.stored), Next::Ask(Question::WorkflowGeneration));
    dialogue.input(drafted("h9"));
    assert_eq!(next(&dialogue.stored), Next::Check);
}

#[test]
fn answers_that_cannot_be_used_are_named() {
    let refused = |dialogue: &mut Dialogue, input: Input| {
        let before = dialogue.stored.clone();
        let refused = advance(&mut dialogue.stored, input, BTreeMap::new(), NOW).unwrap_err().to_string();
        assert_eq!(dialogue.stored, before);
        refused
    };
    let mut dialogue = Dialogue::new(new());
    dialogue.say("x");
    let six = (0..6).map(|n| question(&n.to_string(), true)).collect();
    assert!(refused(&mut dialogue, clarified(six)).contains("6 questions"));
    assert!(refused(&mut dialogue, clarified(vec![question("a", true), question("a", true)])).contains("not unique"));
    assert!(refused(&mut dialogue, Input::Clarified(Clarification::default())).contains("`reply` is empty"));
    let mut dialogue = agreed();
    assert!(refused(&mut dialogue, analysed(&[(" ", true, None)])).contains("empty `need`"));
    dialogue.input(analysed(&[("a", true, None), ("b", true, None)]));
    assert!(refused(&mut dialogue, offered("c")).contains("`a`, `b`"));
    let nothing = Input::Offered(Alternatives { reply: "…".into(), alternatives: vec![] });
    assert!(refused(&mut dialogue, nothing).contains("`alternatives` is empty"));
}

#[test]
fn a_required_gap_counts_whatever_optional_ones_come_before_it() {
    let mut dialogue = agreed();
    dialogue.input(analysed(&[("mail", false, None), ("mail", true, None)]));
    assert_eq!(dialogue.stored.state.stage, Stage::AlternativeGeneration);
    let mut dialogue = agreed();
    let names: Vec<String> = (0..40).map(|n| format!("gap {n}")).collect();
    let mut many: Vec<(&str, bool, Option<&str>)> = names.iter().map(|name| (name.as_str(), false, None)).collect();
    many.push(("mail", true, None));
    dialogue.input(analysed(&many));
    assert_eq!(dialogue.stored.state.stage, Stage::AlternativeGeneration);
}

#[test]
fn texts_of_the_model_are_bounded_in_the_state_and_in_events() {
    let mut dialogue = Dialogue::new(new());
    let mut long = question("q", true);
    long.question = "长".repeat(500_000);
    let Input::Clarified(mut answer) = clarified(vec![long]) else { unreachable!() };
    (answer.reply, answer.intent_summary) = ("长".repeat(500_000), "长".repeat(500_000));
    dialogue.say("做个工作流").input(Input::Clarified(answer));
    let bytes = serde_json::to_string(&dialogue.stored).unwrap().len();
    assert!(bytes < 400_000, "{bytes}");
    fault(&mut dialogue.stored, ErrorCode::InvalidAnswer, &"x".repeat(1_000_000), Timestamp::from_millis(9));
    let bytes = serde_json::to_string(&dialogue.stored).unwrap().len();
    assert!(bytes < 400_000, "{bytes}");
}

#[test]
fn a_turn_that_is_left_begins_with_its_stage_unless_it_has_shown_something() {
    let mut dialogue = agreed();
    let shown = dialogue.stored.turn.as_ref().unwrap().seq;
    leave(&mut dialogue.stored, ErrorCode::Internal, "gone", 0, Timestamp::from_millis(9));
    let events = &dialogue.stored.turn.as_ref().unwrap().events;
    let types: Vec<_> = events.iter().map(|event| serde_json::to_value(event).unwrap()["type"].clone()).collect();
    assert_eq!(types, ["status", "error"]);
    assert_eq!((events[0].seq, events[1].is_final, dialogue.stored.state.stage), (shown, true, Stage::Error));
    assert_eq!(dialogue.stored.resume_stage, Some(Stage::GapAnalysis));
}
