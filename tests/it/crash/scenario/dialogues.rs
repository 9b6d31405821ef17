//! Scenarios of authoring dialogues.

use super::*;
use crate::authoring::answers;

/// The user's message in the dialogue.
fn tells(job_id: &str, text: &str) -> Message {
    let job = json!({"type": "user_message", "session_id": "s1", "job_id": job_id, "text": text, "user_id": "u1", "channel": "web"});
    ("s1", job)
}

/// A question and its answer, which leads to a published workflow.
pub fn dialogue() -> Scenario {
    let scenario = Scenario { dialogue: true, ..Scenario::new("dialogue", answers::script) };
    scenario.wave(vec![tells("m-1", "每天汇总")]).wave(vec![tells("m-2", "八点")])
}

/// A document that fails its checks three times, and then waits for the user.
pub fn failing_dialogue() -> Scenario {
    let scenario = Scenario { dialogue: true, ..Scenario::new("failing dialogue", answers::invalid) };
    scenario.wave(vec![tells("m-1", "八点汇总")])
}
