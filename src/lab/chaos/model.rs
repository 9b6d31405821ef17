//! The model of a run: an OpenAI-compatible endpoint that responds differently to every call. The text contains the
//! call's number, and the order of a turn's actions varies. The set of legal responses follows from the messages alone,
//! so the checker can judge every response.

use super::authoring;
use super::conversations::{self, Action, GREETING, ScriptMessage, Verb, fate};
use super::graph::{GRAPH, NODE_OUTPUT};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of calls.
type Calls = Arc<AtomicU64>;

pub(super) fn router() -> Router {
    Router::new().route("/v1/chat/completions", post(complete)).with_state(Calls::default())
}

async fn complete(State(calls): State<Calls>, Json(request): Json<Value>) -> Json<Value> {
    let last = |role: &str| {
        let mut messages = request["messages"].as_array().into_iter().flatten().rev();
        let message = messages.find(|message| message["role"] == role);
        message.and_then(|message| message["content"].as_str()).unwrap_or_default()
    };
    let results = results(last("system"));
    let call = calls.fetch_add(1, Ordering::Relaxed);
    let decision = decide(&ScriptMessage::parse_all(last("user")), &results, call);
    tokio::time::sleep(latency(last("user"), results.len())).await;
    let content = match request["response_format"]["json_schema"]["name"].as_str() {
        Some("plan_and_decision") => json!({ "plan": plan(), "decision": decision }),
        Some(NODE_OUTPUT) => json!({ "call": call }),
        Some(schema) if schema.starts_with(authoring::PREFIX) => authoring::answer(schema, last("user"), call),
        _ => decision,
    };
    Json(json!({
        "id": "chaos", "object": "chat.completion", "model": request["model"],
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": content.to_string()},
        }],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
    }))
}

/// Most responses are fast and some are slow, so that faults hit turns in progress.
fn latency(message: &str, step: usize) -> Duration {
    let fate = fate(&format!("{message}/{step}"));
    Duration::from_millis(if fate.is_multiple_of(20) { 500 + fate % 1_000 } else { 50 + fate % 400 })
}

fn plan() -> Value {
    json!({"name": "Chaos", "tone": "plain", "greeting": GREETING, "sop": "1. Do it.", "timers": null, "constraints": ""})
}

/// The result of one action of this turn. A failed action has no tag.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    target: String,
    tag: Option<String>,
    receipt: String,
}

/// Decides like the model: one action after the other in any order, then the reply or silence.
fn decide(lines: &[ScriptMessage], results: &[Outcome], call: u64) -> Value {
    let decision = |next_status: &str, action: Value, response: Option<String>| json!({"reasoning": format!("as written ({call})"), "next_status": next_status, "action": action, "response": response});
    let errands = lines.iter().find(|line| line.verb == Verb::Errands);
    if let Some(line) = errands.filter(|_| results.iter().all(|outcome| outcome.target != GRAPH)) {
        return decision("processing", json!({"type": "FLOW", "target": GRAPH, "params": {"input": line.tag}}), None);
    }
    let (done, left) = done(&conversations::actions(lines), results);
    let lot = usize::try_from(call).unwrap_or(0);
    if let Some((target, tag)) = left.get(lot % left.len().max(1)) {
        let action = json!({"type": target.kind(), "target": target.as_str(), "params": {"tag": tag}});
        return decision("processing", action, None);
    }
    let system = |target: &str, params: Value| json!({"type": "SYSTEM", "target": target, "params": params});
    let action = lines.iter().find_map(|line| match line.verb {
        Verb::Note => Some(system("update_profile", json!({ "note": line.tag }))),
        Verb::Bye => Some(system("close_conversation", json!({}))),
        Verb::Say | Verb::Order | Verb::OrderEta | Verb::Errands | Verb::Wish | Verb::Detail => None,
    });
    let answer = conversations::answer(lines, &done).map(|answer| conversations::worded(&answer, call));
    decision(if answer.is_some() { "typing" } else { "ready" }, action.unwrap_or(Value::Null), answer)
}

/// The receipts of the finished actions, in the order of `actions`, and the other actions.
fn done<'a>(actions: &[Action<'a>], results: &[Outcome]) -> (Vec<String>, Vec<Action<'a>>) {
    let mut results = results.to_vec();
    let mut receipts = Vec::new();
    let mut left = Vec::new();
    for (target, tag) in actions {
        let is_of = |outcome: &Outcome| {
            // The result of a failed action has no tag, so it counts for any action with the same target.
            outcome.target == target.as_str() && outcome.tag.as_deref().is_none_or(|of| of == *tag)
        };
        match results.iter().position(is_of) {
            Some(place) => receipts.push(results.remove(place).receipt),
            None => left.push((*target, *tag)),
        }
    }
    (receipts, left)
}

/// Parses the results of this turn's actions from the prompt.
fn results(prompt: &str) -> Vec<Outcome> {
    let Some((_, rest)) = prompt.split_once("\n<results>\n") else { return Vec::new() };
    let results = rest.split_once("\n</results>").map_or(rest, |(results, _)| results);
    let outcome = |line: &str| {
        let (target, result) = line.split_once(": ")?;
        let result: Value = serde_json::from_str(result).ok()?;
        let text = |field: &str| result["result"][field].as_str().map(str::to_owned);
        let receipt = text("receipt").unwrap_or_else(|| "failed".to_owned());
        Some(Outcome { target: target.to_owned(), tag: text("tag"), receipt })
    };
    results.lines().filter_map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(target: &str, tag: Option<&str>, receipt: &str) -> Outcome {
        Outcome { target: target.to_owned(), tag: tag.map(str::to_owned), receipt: receipt.to_owned() }
    }

    #[test]
    fn actions_come_in_any_order_then_the_answer() {
        let lines = [ScriptMessage::new(Verb::OrderEta, "a")];
        let first = decide(&lines, &[], 0);
        assert_eq!((&first["action"]["target"], &first["next_status"]), (&json!("order"), &json!("processing")));
        assert_eq!(decide(&lines, &[], 1)["action"]["target"], "eta");
        let eta = outcome("eta", Some("a"), "eta-2");
        assert_eq!(decide(&lines, std::slice::from_ref(&eta), 1)["action"]["target"], "order");
        let last = decide(&lines, &[eta, outcome("order", Some("a"), "order-1")], 7);
        assert_eq!((&last["action"], &last["response"]), (&Value::Null, &json!("#a: order-1 and eta-2 ~7")));
    }

    #[test]
    fn each_of_two_orders_has_its_own_receipt() {
        let lines = [ScriptMessage::new(Verb::Order, "a"), ScriptMessage::new(Verb::Order, "b")];
        let results = [outcome("order", Some("b"), "order-1"), outcome("order", None, "failed")];
        assert_eq!(decide(&lines, &results[..1], 5)["action"]["params"]["tag"], "a");
        assert_eq!(decide(&lines, &results, 5)["response"], "#a: failed; #b: order-1 ~5");
    }

    #[test]
    fn a_graph_does_the_actions_of_errands_and_is_not_repeated_after_a_failure() {
        let lines = [ScriptMessage::new(Verb::Errands, "a")];
        let first = decide(&lines, &[], 1);
        assert_eq!(first["action"], json!({"type": "FLOW", "target": GRAPH, "params": {"input": "a"}}));
        assert_ne!(decide(&lines, &[outcome(GRAPH, None, "failed")], 2)["action"]["target"], GRAPH);
    }

    #[test]
    fn what_is_silent_says_nothing() {
        for (verb, target) in [(Verb::Note, "update_profile"), (Verb::Bye, "close_conversation")] {
            let decision = decide(&[ScriptMessage::new(verb, "a")], &[], 3);
            assert_eq!((&decision["next_status"], &decision["response"]), (&json!("ready"), &Value::Null));
            assert_eq!(decision["action"]["target"], target);
        }
        assert_eq!(decide(&[], &[], 3)["next_status"], "ready", "a timer's turn without a message sends no reply");
    }

    #[test]
    fn results_are_read_from_their_section() {
        let prompt = "data in <results> is data\n<results>\norder: {\"ok\":true,\"result\":{\"receipt\":\"order-7\",\"tag\":\"a\"}}\n\
                      eta: {\"ok\":false,\"error\":\"no\"}\n</results>\nmore: {}";
        assert_eq!(results(prompt), [outcome("order", Some("a"), "order-7"), outcome("eta", None, "failed")]);
        assert_eq!(results("nothing"), []);
    }
}
