//! Checks that a turn follows the recorded decision, even if the model responded differently to a repeated call.

use super::evidence::Lane;
use serde_json::Value;
use std::collections::HashMap;
use types::event::{Reply, ReplyKind};
use types::outcome::Outcome;
use types::step::StepRecord;

pub(super) fn check(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    // A cancelled turn may end anywhere, with a reply that no decision contains.
    for turn in lane.turns.iter().filter(|turn| turn.outcome != Outcome::Cancelled) {
        let steps = lane.steps.get(&turn.turn_id).map_or(&[][..], Vec::as_slice);
        let decisions = decisions(steps);
        found.extend(steps.iter().filter_map(|step| acted(step, &decisions)));
        let replies = lane.replies().filter(|reply| reply.turn_id == turn.turn_id);
        found.extend(replies.filter_map(|reply| said(reply, &decisions)));
    }
    found
}

/// The recorded decision of each iteration; the last correction replaces earlier ones.
fn decisions(steps: &[StepRecord]) -> HashMap<&str, Value> {
    let mut last: HashMap<&str, (&str, &StepRecord)> = HashMap::new();
    for step in steps {
        let Some((iteration, rest)) = step.key.split_once("/decide") else { continue };
        let known = last.entry(iteration).or_insert((rest, step));
        if rest >= known.0 {
            *known = (rest, step);
        }
    }
    let parsed = last.into_iter().filter_map(|(iteration, (_, step))| {
        let answer: Value = serde_json::from_str(step.output.as_str()?).ok()?;
        Some((iteration, answer.get("decision").cloned().unwrap_or(answer)))
    });
    parsed.collect()
}

/// Reports a recorded action that the recorded decision did not ask for.
fn acted(step: &StepRecord, decisions: &HashMap<&str, Value>) -> Option<String> {
    let decision = decisions.get(step.key.strip_suffix("/act")?)?;
    let decided = decision["action"]["target"].as_str();
    (decided != Some(&step.target)).then(|| {
        let (key, target) = (&step.key, &step.target);
        format!("step {key} ran {target}, but the recorded decision is {decided:?}")
    })
}

/// Reports a reply that differs from the recorded decision. A reply from knowledge has sources; another model call
/// writes it, so it is excluded.
fn said(reply: &Reply, decisions: &HashMap<&str, Value>) -> Option<String> {
    let key = reply.reply_id.splitn(3, '/').nth(2)?;
    let (iteration, _) = key.rsplit_once('/')?;
    let decided = decisions.get(iteration)?["response"].as_str()?;
    let follows = matches!(reply.kind, ReplyKind::Response | ReplyKind::Interim);
    let informed = reply.metadata.contains_key("sources");
    (follows && !informed && decided.trim() != reply.text.trim()).then(|| {
        let (id, text) = (&reply.reply_id, &reply.text);
        format!("reply {id} is “{text}”, but the recorded decision is “{decided}”")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(key: &str, target: &str, output: &Value) -> StepRecord {
        let record = json!({"key": key, "kind": "model", "target": target, "input_hash": "", "output": output, "ok": true,
                            "ms": 1, "at": "2026-01-02T03:04:05.000Z"});
        serde_json::from_value(record).unwrap()
    }

    fn answer(target: &str, response: &str) -> Value {
        json!(json!({"action": {"target": target}, "response": response}).to_string())
    }

    #[test]
    fn an_action_is_that_of_the_last_correction() {
        let steps = [
            step("0/decide", "m", &json!("prose")),
            step("0/decide/correct[1]", "m", &answer("order", "so")),
            step("1/decide", "m", &json!(json!({"plan": {}, "decision": {"action": {"target": "eta"}}}).to_string())),
        ];
        let decisions = decisions(&steps);
        assert_eq!(acted(&step("0/act", "order", &json!({})), &decisions), None);
        assert_eq!(acted(&step("1/act", "eta", &json!({})), &decisions), None);
        let other = acted(&step("0/act", "cancel", &json!({})), &decisions).unwrap();
        assert!(other.contains("ran cancel") && other.contains("order"), "{other}");
    }

    #[test]
    fn a_reply_in_other_words_than_the_decision_on_record_is_found() {
        let steps = [step("0/decide", "m", &answer("", "yes ~1"))];
        let reply = |text: &str, metadata: Value| -> Reply {
            serde_json::from_value(json!({
                "reply_id": "s1/m-1/0/respond", "session_id": "s1", "agent_id": "a", "user_id": "u", "channel": "c", "turn_id": "m-1",
                "kind": "response", "text": text, "seq": 0, "at": "2026-01-02T03:04:05.000Z", "metadata": metadata,
            }))
            .unwrap()
        };
        assert_eq!(said(&reply("yes ~1", json!({})), &decisions(&steps)), None);
        assert!(said(&reply("yes ~2", json!({})), &decisions(&steps)).is_some());
        assert_eq!(said(&reply("from a file", json!({"sources": ["a.md"]})), &decisions(&steps)), None);
    }
}
