//! Attempts that end before or after any save and any event. The next attempt continues from the saved state.

use super::*;
use types::authoring::Stage;

fn script() -> [Said; 7] {
    [clarified(true), agreed(), analysed(Some("node.HTTP")), written("一"), diagnosed(), written("二"), clarified(true)]
}

/// Runs one turn, whose first attempt makes `life` calls. Returns false if that was enough for the whole turn.
async fn turn_of_two_attempts(life: usize) -> bool {
    let mut dialogue = Dialogue::new(script());
    dialogue.bench.failing = 1;
    dialogue.seen.life = Some(life);
    let begun = dialogue.stored.clone();
    let died = dialogue.attempt(Some("转发")).await.is_err();
    dialogue.seen.life = None;
    if died {
        // A message that was not saved is processed again.
        let saved = dialogue.seen.saved.clone();
        let again = if saved.is_none() { Some("转发") } else { None };
        dialogue.stored = saved.unwrap_or(begun);
        dialogue.attempt(again).await.unwrap();
    }
    let asked = ["clarification", "negotiation", "gap_analysis", "workflow_generation", "debug", "workflow_generation"];
    assert_eq!(dialogue.script.asked(), asked, "no call is repeated, {life} calls");
    assert_eq!(*dialogue.bench.checks.lock().unwrap(), 2, "no check is repeated, {life} calls");
    assert_eq!(dialogue.bench.published.lock().unwrap().len(), 1);
    assert_eq!(dialogue.stored.state.stage, Stage::Completed);
    assert_eq!(dialogue.stored.turns, 1, "the message is counted once, {life} calls");
    let events = dialogue.seen.once();
    assert_eq!(events.iter().filter(|event| event.is_final).count(), 1, "{life} calls");
    let told: Vec<String> = told(&events).into_iter().filter(|name| name != "delta").collect();
    let expected = [
        "clarification",
        "message",
        "negotiation",
        "message",
        "gap_analysis",
        "workflow_generation",
        "workflow_generation_started",
        "message",
        "workflow_draft",
        "debug",
        "workflow_debugging",
        "message",
        "workflow_generation",
        "workflow_generation_started",
        "message",
        "workflow_draft",
        "debug",
        "workflow_debugging",
        "workflow_complete",
        "completed",
        "message",
    ];
    assert_eq!(told, expected, "{life} calls");
    died
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_an_attempt_no_call_is_repeated_and_no_event_is_lost() {
    let mut life = 0;
    while turn_of_two_attempts(life).await {
        life += 1;
    }
    assert!(life > 30, "{life}");
}

#[tokio::test]
async fn a_repeated_attempt_names_the_stream_that_it_replaces() {
    let mut dialogue = Dialogue::new([clarified(false), clarified(false)]);
    dialogue.turns = 1;
    // The process dies at the save after the answer. The journal has lost the answer, too: its write was in flight.
    dialogue.seen.life = Some(4);
    assert!(dialogue.attempt(Some("转发")).await.is_err());
    let shown = dialogue.seen.events.len() as u64;
    let open = json!(dialogue.seen.events.last().unwrap())["stream_id"].clone();
    assert!(open.is_string());
    dialogue.seen.life = None;
    dialogue.stored = dialogue.seen.saved.clone().unwrap();
    dialogue.journal = Journal::unrecorded(dialogue.script.clock.clone(), "s", "m-1");
    dialogue.attempt(None).await.unwrap();
    let events = dialogue.seen.once();
    let next = json!(events.iter().find(|event| event.seq == shown).unwrap());
    assert_eq!(next["supersedes"], open);
    assert!(events.last().unwrap().is_final);
}
