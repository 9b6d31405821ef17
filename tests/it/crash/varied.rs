//! A model that uses other words at every call: its texts contain the number of the call.

use crate::support::script::{Answer, Asked};
use serde_json::Value;

/// Texts that workflows compare, so they stay unchanged.
const COMPARED: [&str; 1] = ["CONTINUE"];

/// Texts that people read, in the answers of agents and of coordinators.
const PATHS: [&str; 10] = [
    "/response",
    "/reasoning",
    "/reply",
    "/diagnosis",
    "/decision/response",
    "/decision/reasoning",
    "/decisions/0/payload/response",
    "/decisions/0/payload/question",
    "/answer/decisions/0/payload/response",
    "/answer/decisions/0/payload/question",
];

/// Wraps `script` so that every call gets a different text.
pub fn varied(script: fn(&Asked) -> Answer) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    move |asked| match script(asked) {
        Answer::Content(text) => Answer::Content(worded(&text, asked.index)),
        answer => answer,
    }
}

fn worded(text: &str, call: usize) -> String {
    let Ok(Value::Object(_)) = serde_json::from_str(text) else {
        return if COMPARED.contains(&text) { text.to_owned() } else { format!("{text} ~{call}") };
    };
    let mut answer: Value = serde_json::from_str(text).unwrap();
    for path in PATHS {
        if let Some(Value::String(words)) = answer.pointer_mut(path) {
            words.push_str(&format!(" ~{call}"));
        }
    }
    answer.to_string()
}

/// A text without call numbers.
pub fn plain(text: &str) -> String {
    let mut parts = text.split(" ~");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

#[test]
fn every_call_has_words_of_its_own() {
    let answer = worded(r#"{"response":"好","next_status":"typing"}"#, 12);
    assert!(answer.contains("好 ~12") && plain(&answer).contains(r#""response":"好""#), "{answer}");
    assert_eq!((worded("可行", 3).as_str(), worded("CONTINUE", 3).as_str()), ("可行 ~3", "CONTINUE"));
    assert_eq!(plain("[好 ~3] 和 [坏 ~14]"), "[好] 和 [坏]");
}
