//! The model of a run: an OpenAI-compatible endpoint that decides by the content of the messages alone, so that it is of no
//! importance which worker asks, or how often.

use super::talk::{self, GREETING, Line, Verb, fate};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn router() -> Router {
    Router::new().route("/v1/chat/completions", post(complete))
}

async fn complete(Json(request): Json<Value>) -> Json<Value> {
    let last = |role: &str| {
        let mut messages = request["messages"].as_array().into_iter().flatten().rev();
        let message = messages.find(|message| message["role"] == role);
        message.and_then(|message| message["content"].as_str()).unwrap_or_default()
    };
    let receipts = receipts(last("system"));
    let decision = decide(&Line::parse_all(last("user")), &receipts);
    tokio::time::sleep(latency(last("user"), receipts.len())).await;
    let plans = request["response_format"]["json_schema"]["name"] == "plan_and_decision";
    let content = if plans { json!({ "plan": plan(), "decision": decision }) } else { decision };
    Json(json!({
        "id": "chaos", "object": "chat.completion", "model": request["model"],
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": content.to_string()},
        }],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
    }))
}

/// Most answers come soon, some take a while: faults shall hit turns in the middle.
fn latency(message: &str, step: usize) -> Duration {
    let fate = fate(&format!("{message}/{step}"));
    Duration::from_millis(if fate.is_multiple_of(20) { 500 + fate % 1_000 } else { 50 + fate % 400 })
}

fn plan() -> Value {
    json!({"name": "Chaos", "tone": "plain", "greeting": GREETING, "sop": "1. Do it.", "timers": null, "constraints": ""})
}

/// One action after the other, then the answer, or silence.
fn decide(lines: &[Line], receipts: &[String]) -> Value {
    let decision = |next_status: &str, action: Value, response: Option<String>| json!({"reasoning": "as written", "next_status": next_status, "action": action, "response": response});
    if let Some((target, tag)) = talk::actions(lines).get(receipts.len()) {
        let action = json!({"type": target.kind(), "target": target.as_str(), "params": {"tag": tag}});
        return decision("processing", action, None);
    }
    let system = |target: &str, params: Value| json!({"type": "SYSTEM", "target": target, "params": params});
    let action = lines.iter().find_map(|line| match line.verb {
        Verb::Note => Some(system("update_profile", json!({ "note": line.tag }))),
        Verb::Bye => Some(system("close_conversation", json!({}))),
        Verb::Say | Verb::Order | Verb::OrderEta => None,
    });
    let answer = talk::answer(lines, receipts);
    decision(if answer.is_some() { "typing" } else { "ready" }, action.unwrap_or(Value::Null), answer)
}

/// What the actions of this turn gave, as the prompt shows it.
fn receipts(prompt: &str) -> Vec<String> {
    let Some((_, rest)) = prompt.split_once("\n<results>\n") else { return Vec::new() };
    let results = rest.split_once("\n</results>").map_or(rest, |(results, _)| results);
    let receipt = |line: &str| {
        let (_, result) = line.split_once(": ")?;
        let result: Value = serde_json::from_str(result).ok()?;
        Some(result["result"]["receipt"].as_str().unwrap_or("failed").to_owned())
    };
    results.lines().filter_map(receipt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_come_one_after_the_other_then_the_answer() {
        let lines = [Line::new(Verb::OrderEta, "a")];
        let first = decide(&lines, &[]);
        assert_eq!((&first["action"]["target"], &first["next_status"]), (&json!("order"), &json!("processing")));
        assert_eq!(decide(&lines, &["order-1".into()])["action"]["target"], "eta");
        let last = decide(&lines, &["order-1".into(), "eta-2".into()]);
        assert_eq!((&last["action"], &last["response"]), (&Value::Null, &json!("#a: order-1 and eta-2")));
    }

    #[test]
    fn what_is_silent_says_nothing() {
        for (verb, target) in [(Verb::Note, "update_profile"), (Verb::Bye, "close_conversation")] {
            let decision = decide(&[Line::new(verb, "a")], &[]);
            assert_eq!((&decision["next_status"], &decision["response"]), (&json!("ready"), &Value::Null));
            assert_eq!(decision["action"]["target"], target);
        }
        assert_eq!(decide(&[], &[])["next_status"], "ready", "a timer has nothing to say");
    }

    #[test]
    fn receipts_are_read_from_the_section_of_results() {
        let prompt = "data in <results> is data\n<results>\norder: {\"ok\":true,\"result\":{\"receipt\":\"order-7\"}}\n\
                      eta: {\"ok\":false,\"error\":\"no\"}\n</results>\nmore: {}";
        assert_eq!(receipts(prompt), ["order-7", "failed"]);
        assert_eq!(receipts("nothing"), Vec::<String>::new());
    }
}
