//! Models that reason: their reasoning goes back to them, and to no one else.

use super::bench::{Bench, messages, streams};
use super::{clerk, with_count};
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use crate::support::model_server::{Answer, Call, PLAIN};
use crate::support::model_stream::Stream;
use serde_json::{Value, json};

on_both_backends!(reasoning_goes_back_to_the_model_also_from_the_record);

const THOUGHT: &str = "I should look the order up.";

/// A streamed response with reasoning and a call of `query_order`, as models with signed calls send it.
fn signed_call() -> Answer {
    let call = json!({
        "index": 0, "id": "c1", "type": "function",
        "function": {"name": "query_order", "arguments": "{\"order_id\":\"A1\"}"},
        "extra_content": {"google": {"thought_signature": "c2lnbmF0dXJl"}},
    });
    let deltas = [
        json!({"role": "assistant", "content": null, "reasoning_content": THOUGHT}),
        json!({"content": null, "tool_calls": [call]}),
    ];
    Answer::Stream(Stream::default().deltas(deltas).finished("tool_calls"))
}

/// A server that refuses the result of a call without the reasoning and the signature of the response.
fn strict(call: &Call) -> Option<Answer> {
    let messages = call.body["messages"].as_array().unwrap();
    let Some(said) = messages.iter().find(|message| message["role"] == "assistant") else { return Some(signed_call()) };
    let signature = &said["tool_calls"][0]["extra_content"]["google"]["thought_signature"];
    Some(if said["reasoning_content"] != THOUGHT {
        Answer::status(400, r#"{"error":{"message":"Missing `reasoning_content` field in the assistant message"}}"#)
    } else if signature != "c2lnbmF0dXJl" {
        Answer::status(400, r#"[{"error":{"code":400,"message":"Function call is missing a thought_signature"}}]"#)
    } else {
        Answer::Content("已发货。".into())
    })
}

async fn reasoning_goes_back_to_the_model_also_from_the_record(backend: Backend) {
    let bench = with_count(backend).await;
    bench.api.script(|_, _| (200, json!({"status": "已发货"})));
    // The worker dies during the second call.
    bench.server.script(|call| if call.number == 0 { strict(call) } else { Some(Answer::Hang) });
    let asked = eventually(DEADLINE, "the second question is open", || async { bench.server.calls().len() == 2 });
    bench.run_until("A1?", asked).await;
    bench.server.script(strict);
    let (end, events) = bench.run("A1?").await;
    assert_eq!(end.outcome.unwrap(), "已发货。");
    let calls = bench.server.calls();
    assert_eq!(
        (calls.len(), bench.api.calls("/orders").len()),
        (3, 1),
        "the first response is replayed from the record"
    );
    assert_eq!(calls[1].body, calls[2].body, "both requests are identical");
    let told: String = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    assert!(!told.contains(THOUGHT) && !told.contains("c2lnbmF0dXJl"), "readers do not see it: {told}");
    assert!(told.contains("query_order"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thoughts_reach_neither_the_output_nor_any_event() {
    for text in ["<think>CONTINUE or COMPLETE?</think>\n\nCOMPLETE", "<THINK>CONTINUE</think>COMPLETE"] {
        for size in [1, 4, 1_000] {
            let bench = Bench::embedded(clerk()).await;
            let pieces: Vec<String> =
                text.as_bytes().chunks(size).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect();
            let stream = Stream::of(pieces.iter().map(String::as_str));
            bench.server.push(PLAIN, [Answer::Stream(stream)]);
            let (end, events) = bench.run("Go on?").await;
            assert_eq!(end.outcome.unwrap(), "COMPLETE", "conditions and later stages read this");
            assert_eq!(messages(&events), [("assistant", "COMPLETE")]);
            assert_eq!(streams(&events).into_iter().map(|(_, text)| text).collect::<String>(), "COMPLETE");
            let told: Vec<Value> = events.iter().map(|event| json!(event)).collect();
            let recorded = json!(bench.steps().await);
            assert!(!json!([told, recorded]).to_string().contains("CONTINUE"), "{told:?} {recorded}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_cut_off_is_no_output() {
    let bench = Bench::embedded(clerk()).await;
    bench.server.push(PLAIN, [Answer::Stream(Stream::unfinished(["The report ", "begins"]).finished("length"))]);
    let cause = bench.run("Report").await.0.outcome.unwrap_err().cause;
    assert!(cause.contains("was cut off") && cause.contains("`max_tokens`"), "{cause}");
}
