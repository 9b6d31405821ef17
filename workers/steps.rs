//! `turnwheel sessions show ID --steps`: the last turns of a conversation with their steps.

use crate::table::{one_line, rough, table};
use commands::sessions::TurnDetails;
use serde_json::Value;
use types::step::{StepRecord, TokenUsage};
use types::timestamp::Timestamp;

/// Formats the turns as text, oldest first.
pub fn describe(turns: &[TurnDetails], now: Timestamp) -> String {
    let parts: Vec<String> = turns.iter().map(|details| turn(details, now)).collect();
    parts.join("\n\n")
}

fn turn(details: &TurnDetails, now: Timestamp) -> String {
    let turn = &details.turn;
    let (begun, took) = (turn.started_at, turn.started_at.until(turn.committed_at));
    let ago = rough(turn.committed_at.until(now));
    let reason = turn.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let attempts = if turn.attempts > 1 { format!(", attempt {}", turn.attempts) } else { String::new() };
    let head = format!(
        "turn {} {}{reason}, {begun}, {ago} ago, {} ms, {} tokens{attempts}",
        turn.turn_id,
        turn.outcome.as_str(),
        took.as_millis(),
        turn.tokens,
    );
    let head = one_line(&head);
    if details.steps.is_empty() {
        return format!("{head}\n  no steps");
    }
    let mut rows = table(&["key", "kind", "target", "ok", "ms", "tokens", "error"]);
    for step in in_order(&details.steps) {
        rows.add_row([
            step.key.clone(),
            step.kind.clone(),
            step.target.clone(),
            if step.ok { "ok" } else { "failed" }.to_owned(),
            step.ms.to_string(),
            step.tokens.map(|TokenUsage { prompt, completion }| (prompt + completion).to_string()).unwrap_or_default(),
            if step.ok { String::new() } else { problem(&step.output) },
        ]);
    }
    let rows: Vec<String> = rows.to_string().lines().map(|line| format!("  {line}")).collect();
    format!("{head}\n{}", rows.join("\n"))
}

/// The steps in the order of their recording. The order of keys would put `10/act` before `2/act`.
fn in_order(steps: &[StepRecord]) -> Vec<&StepRecord> {
    let mut steps: Vec<&StepRecord> = steps.iter().collect();
    steps.sort_by_key(|step| step.at);
    steps
}

/// The reason of a failed step: an action's `error`, or the `problem` of a model's failure.
fn problem(output: &Value) -> String {
    let inner = output.as_object().and_then(|failure| failure.values().next()).map(|failure| &failure["problem"]);
    let found = output["error"].as_str().or_else(|| inner?.as_str());
    found.map_or_else(|| output.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_turn_is_told_with_its_steps_in_the_order_they_were_recorded() {
        let step = |key: &str, kind: &str, ok: bool, output: Value, at: i64| {
            json!({"key": key, "kind": kind, "target": "default", "input_hash": "", "output": output, "ok": ok,
                   "ms": 12, "tokens": {"prompt": 3, "completion": 4}, "at": Timestamp::from_millis(at)})
        };
        let at = |ms| json!(Timestamp::from_millis(ms));
        let details = json!({
            "session_id": "s1", "turn_id": "m-1", "statuses": [], "outcome": "cancelled", "reason": "model_unavailable\n: x",
            "job": {"type": "user_message", "session_id": "s1", "job_id": "m-1", "text": "hi"}, "attempts": 2,
            "started_at": at(1_000), "committed_at": at(3_500), "tokens": 7,
            "steps": [
                step("10/decide", "model", false, json!({"unavailable": {"model": "m", "attempts": 1, "problem": "down"}}), 20),
                step("2/act", "skill", false, json!({"ok": false, "error": "HTTP 500"}), 10),
                step("0/decide", "model", true, json!("{}"), 5),
            ],
        });
        let details: TurnDetails = serde_json::from_value(details).unwrap();
        let text = describe(&[details], Timestamp::from_millis(63_500));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("turn m-1 cancelled (model_unavailable : x), 1970-"), "{text}");
        assert!(lines[0].ends_with("1m ago, 2500 ms, 7 tokens, attempt 2"), "{text}");
        let keys: Vec<&str> = lines[2..].iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(keys, ["0/decide", "2/act", "10/decide"]);
        assert!(lines[3].contains("failed") && lines[3].ends_with("HTTP 500"), "{text}");
        assert!(lines[4].ends_with("down"), "{text}");
    }
}
