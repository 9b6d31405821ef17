//! The display of a trial: its replies, the calls that would have been made, and its end. Pure: takes events, returns
//! the lines to write.

use crate::table::{one_line, printable};
use engine::action::would_call::WouldCall;
use engine::rehearsal::trial::{TrialBegin, TrialEnd, TrialStep};
use serde_json::Value;

/// A line of the display.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The draft says it.
    Said(String),
    /// The engine says it.
    Note(String),
}

/// The lines for an event.
pub fn lines(event: &str, data: &Value) -> Vec<Line> {
    let read = match event {
        "test" => serde_json::from_value(data.clone()).map(begin),
        "end" => serde_json::from_value(data.clone()).map(end),
        "step" => serde_json::from_value(data.clone()).map(call),
        "reply" if data["kind"] != "chunk" => {
            return vec![Line::Said(printable(data["text"].as_str().unwrap_or_default()))];
        }
        _ => return Vec::new(),
    };
    // A step of the engine itself calls nothing.
    read.unwrap_or_default()
}

fn begin(begun: TrialBegin) -> Vec<Line> {
    let TrialBegin { workflow_id, hash, begins, live } = begun;
    let calls = if live { "calls are made" } else { "no call is made" };
    let text = format!("`{workflow_id}` {}, a new test: {calls}", super::short(&hash));
    if begins { vec![Line::Note(text)] } else { Vec::new() }
}

fn call(step: TrialStep) -> Vec<Line> {
    let TrialStep { target, ok, would_call } = step;
    let reached = match would_call {
        WouldCall::Request { method, url, body } => {
            let body = body.map(|body| format!(" {}", one_line(&body.to_string())));
            format!("{method} {url}{}", body.unwrap_or_default())
        }
        WouldCall::Function { function, params } => {
            format!("the function `{function}` with {}", one_line(&params.to_string()))
        }
        WouldCall::Node { node, config } => format!("{node} with {}", one_line(&config.to_string())),
        WouldCall::Refused { problem } => format!("nothing: {problem}"),
    };
    let answered = if ok { "answered" } else { "no answer is given" };
    vec![Line::Note(format!("{target} would call {reached} ({answered})"))]
}

fn end(end: TrialEnd) -> Vec<Line> {
    let TrialEnd { status, reason, output, .. } = end;
    let reason = reason.map(|reason| format!(": {}", one_line(&reason))).unwrap_or_default();
    let output = output.map(|output| Line::Said(printable(&output)));
    output.into_iter().chain([Line::Note(format!("the test is {status}{reason}"))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_test_shows_replies_and_what_would_have_been_called() {
        let note = |text: &str| vec![Line::Note(text.to_owned())];
        let begun = json!({"workflow_id": "shop", "hash": "9f86d081884c7d65", "begins": true, "live": false});
        assert_eq!(lines("test", &begun), note("`shop` 9f86d081, a new test: no call is made"));
        let would_call = json!({"method": "POST", "url": "https://a.example.com/x", "body": {"id": "A1"}});
        let step = json!({"key": "0/act", "target": "order", "ok": false, "would_call": would_call});
        let shown = "order would call POST https://a.example.com/x {\"id\":\"A1\"} (no answer is given)";
        assert_eq!(lines("step", &step), note(shown));
        assert_eq!(lines("step", &json!({"key": "0/decide", "target": "default", "ok": true})), []);
        assert_eq!(lines("reply", &json!({"kind": "response", "text": "好"})), [Line::Said("好".into())]);
        assert_eq!(lines("reply", &json!({"kind": "chunk", "text": "好"})), []);
        assert_eq!(lines("end", &json!({"status": "ready"})), note("the test is ready"));
        let ended = lines("end", &json!({"status": "completed", "output": "3"}));
        assert_eq!(ended, [Line::Said("3".into()), Line::Note("the test is completed".into())]);
    }
}
