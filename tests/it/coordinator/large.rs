//! The largest payload of a decision, on servers with default limits.

use super::{answer, decision, decisions, engine, respond, told};
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use serde_json::{Value, json};
use types::outcome::Outcome;

on_both_backends!(
    a_payload_of_one_mebibyte_is_judged_and_carried_out,
    a_payload_of_one_byte_more_goes_back_with_the_limit,
);

/// The most bytes of a payload as compact JSON.
const MOST: usize = 1_048_576;

/// The decision for a reply whose payload has this many bytes.
fn large(bytes: usize) -> Value {
    let with = |text: &str| decision("respond", json!({"response": text, "intent": "simple_query", "confidence": 0.9}));
    let rest = bytes - with("")["payload"].to_string().len();
    with(&"数".repeat(rest / 3).chars().chain("x".repeat(rest % 3).chars()).collect::<String>())
}

async fn a_payload_of_one_mebibyte_is_judged_and_carried_out(backend: Backend) {
    let engine = engine(backend, vec![answer(&[large(MOST)]), answer(&[respond("好的")])]).await;
    let turn = engine.say("s1", "m-1", "写得长一点").await;
    assert_eq!((turn.outcome, turn.reason), (Outcome::Answered, None));
    let made = decisions(&engine, "s1").await.remove(0);
    assert_eq!((&made["payload"], &made["payload_bytes"]), (&Value::Null, &json!(MOST)));
    assert_eq!(made["payload_ref"], "0/decide");
    assert_eq!(told(&engine, "s1").await, ["decision_made respond", "decision_validated respond"]);
    let reply = engine.replies("s1").await.pop().unwrap();
    // A reply has at most 256 KiB of the text, and a note.
    assert!(reply.text.starts_with("数数") && reply.text.ends_with("of 1048496 bytes]"), "{}", reply.text.len());
    assert!((262_140..262_200).contains(&reply.text.len()), "{}", reply.text.len());
    assert_eq!((&reply.metadata["truncated"], &reply.metadata["bytes"]), (&json!(true), &json!(1_048_496)));
    assert_eq!(engine.say("s1", "m-2", "在吗").await.outcome, Outcome::Answered, "the session goes on");
}

async fn a_payload_of_one_byte_more_goes_back_with_the_limit(backend: Backend) {
    let engine = engine(backend, vec![answer(&[large(MOST + 1)]), answer(&[respond("好的")])]).await;
    engine.say("s1", "m-1", "写得更长一点").await;
    let rejected = decisions(&engine, "s1").await.remove(1);
    let error = rejected["errors"][0].as_str().unwrap();
    assert!(error.contains("1048577") && error.contains("1048576"), "{error}");
    assert_eq!(engine.replies("s1").await.pop().unwrap().text, "好的");
}
