//! Streamed responses.

use super::{KEY, model, model_of, request, settings};
use crate::support::model_server::{Answer, ModelServer, PLAIN};
use crate::support::model_stream::Stream;
use base::config;
use engine::model::delta::{Piece, deltas};
use engine::model::{DeltaSink, Model, ModelError, ModelReply, ToolSpec};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use types::duration::Text;

/// The response, the pieces since the last restart as seen by the reader, and the number of starts.
async fn streamed(model: &Arc<dyn Model>) -> (Result<ModelReply, ModelError>, Vec<String>, usize) {
    streamed_with(model, Vec::new()).await
}

async fn streamed_with(
    model: &Arc<dyn Model>,
    tools: Vec<ToolSpec>,
) -> (Result<ModelReply, ModelError>, Vec<String>, usize) {
    let (sink, mut pieces) = deltas();
    let read = async {
        let (mut seen, mut begun) = (Vec::new(), 1);
        while let Some(Piece { content, anew }) = pieces.next().await {
            if anew {
                seen.clear();
                begun += 1;
            }
            seen.push(content);
        }
        (seen, begun)
    };
    let (reply, (seen, begun)) = tokio::join!(model.stream(request(false).with_tools(tools), sink), read);
    (reply, seen, begun)
}

fn quick(server: &ModelServer, timeout: Duration, max_retries: u32) -> Arc<dyn Model> {
    model_of(config::Model { timeout: Text(timeout), max_retries, ..settings(server.base_url()) })
}

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn pieces_are_handed_on_as_they_come() {
    let server = ModelServer::start().await;
    let gate = Arc::new(Semaphore::new(2));
    server.push(PLAIN, [Answer::Stream(Stream::of(["您好", "，", "请讲。"]).gated(&gate))]);
    let (sink, mut pieces) = deltas();
    let model = model(&server);
    let read = async {
        let mut first = String::new();
        while first.len() < "您好，".len() {
            let Piece { content, anew } = pieces.next().await.unwrap();
            assert!(!anew);
            first.push_str(&content);
        }
        assert_eq!(first, "您好，", "pieces are passed on immediately");
        gate.add_permits(100);
        assert_eq!(pieces.next().await.unwrap().content, "请讲。");
        assert_eq!(pieces.next().await, None);
    };
    let (reply, ()) = tokio::join!(model.stream(request(false), sink), read);
    let reply = reply.unwrap();
    assert_eq!((reply.content.as_str(), reply.model.as_str(), reply.attempts), ("您好，请讲。", "streamed-1", 1));
    assert_eq!((reply.tokens.prompt, reply.tokens.completion), (11, 7));
    let call = &server.calls()[0];
    assert_eq!(call.body["stream"], true);
    assert_eq!(call.body["stream_options"], json!({"include_usage": true}));
    assert_eq!(call.header("idempotency-key"), "%E4%BC%9A%E8%AF%9D/m-1/0/decide");
}

#[tokio::test]
async fn characters_and_events_may_be_cut_anywhere() {
    let server = ModelServer::start().await;
    for size in [1, 2, 3, 5, 7, 64] {
        server.push(PLAIN, [Answer::Stream(Stream::of(["电池", "回收😀", "\n\n第二段"]).in_chunks_of(size))]);
        let (reply, seen, _) = streamed(&model(&server)).await;
        assert_eq!(reply.unwrap().content, "电池回收😀\n\n第二段", "{size}");
        assert_eq!(seen.concat(), "电池回收😀\n\n第二段", "{size}");
    }
}

#[tokio::test]
async fn calls_come_in_pieces_by_their_index() {
    let server = ModelServer::start().await;
    let part = |part: Value| json!({"tool_calls": [part]});
    let by_index = [
        json!({"content": "我看看。"}),
        part(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "eta", "arguments": ""}})),
        part(json!({"index": 1, "id": "b", "function": {"name": "eta", "arguments": "{\"o\":"}})),
        part(json!({"index": 0, "function": {"arguments": "{\"o\":\"A"}})),
        part(json!({"index": 1, "function": {"arguments": "2}"}})),
        part(json!({"index": 0, "id": "a", "function": {"name": "eta", "arguments": "1\"}"}})),
    ];
    let by_id = [
        part(json!({"id": "a", "function": {"name": "eta", "arguments": "{\"o\":"}})),
        part(json!({"function": {"arguments": "\"A1\"}"}})),
        part(json!({"id": "b", "function": {"name": "eta", "arguments": {"o": 2}}})),
    ];
    let tool = ToolSpec { name: "eta".into(), description: String::new(), parameters: Arc::new(json!({})) };
    for deltas in [by_index.to_vec(), by_id.to_vec()] {
        server.push(PLAIN, [Answer::Stream(Stream::default().deltas(deltas).finished("tool_calls"))]);
        let (reply, _, _) = streamed_with(&model(&server), vec![tool.clone()]).await;
        let calls = reply.unwrap().tool_calls;
        let calls: Vec<_> = calls.iter().map(|call| (call.id.as_str(), call.arguments.as_str())).collect();
        assert_eq!(calls, [("a", r#"{"o":"A1"}"#), ("b", r#"{"o":2}"#)]);
    }
}

#[tokio::test]
async fn a_server_that_ignores_the_stream_is_read_all_the_same() {
    let server = ModelServer::start().await;
    server.push(PLAIN, [Answer::Content("一段文字".into())]);
    let (reply, seen, _) = streamed(&model(&server)).await;
    assert_eq!(reply.unwrap().content, "一段文字");
    assert!(seen.is_empty(), "a whole response has no pieces: {seen:?}");
    server.script(|_| Some(Answer::Raw("<html>proxy</html>".into())));
    let (reply, _, _) = streamed(&quick(&server, LONG, 0)).await;
    assert!(reply.unwrap_err().to_string().contains("not a chat completion"));
}

#[tokio::test]
async fn a_server_that_refuses_it_is_asked_otherwise_and_remembered() {
    let server = ModelServer::start().await;
    let refusal = |what: &str| Answer::status(422, &json!({"detail": format!("extra field {what}")}).to_string());
    server.push(PLAIN, [refusal("stream_options"), refusal("stream"), Answer::Content("一".into())]);
    let model = model(&server);
    assert_eq!(streamed(&model).await.0.unwrap().content, "一");
    server.push(PLAIN, [Answer::Content("二".into())]);
    assert_eq!(streamed(&model).await.0.unwrap().attempts, 1);
    let asked: Vec<_> = server.calls().iter().map(|call| call.body["stream"] == true).collect();
    assert_eq!(asked, [true, true, false, false]);
}

#[tokio::test]
async fn what_was_sent_before_a_break_is_void_and_the_answer_begins_anew() {
    let server = ModelServer::start().await;
    let begun = |stream: fn(Stream) -> Stream| Answer::Stream(stream(Stream::unfinished(["half ", "of ", "it"])));
    server.push(PLAIN, [begun(Stream::cut), begun(Stream::closed), Answer::Stream(Stream::of(["the ", "whole"]))]);
    let (reply, seen, begun) = streamed(&quick(&server, LONG, 3)).await;
    let reply = reply.unwrap();
    assert_eq!((reply.content.as_str(), reply.attempts), ("the whole", 3));
    assert_eq!((seen.concat().as_str(), begun), ("the whole", 3));
}

#[tokio::test]
async fn a_stream_that_stands_still_fails_but_a_long_one_may_take_its_time() {
    let server = ModelServer::start().await;
    let limit = Duration::from_millis(600);
    server.push(PLAIN, [Answer::Stream(Stream::of(["a"; 12]).slow_by(limit / 10))]);
    let begun = Instant::now();
    assert_eq!(streamed(&quick(&server, limit, 0)).await.0.unwrap().content, "a".repeat(12));
    assert!(begun.elapsed() > limit, "the limit applies to each wait");
    server.push(PLAIN, [Answer::Stream(Stream::unfinished(["a", "b"]).stalled()), Answer::Hang]);
    let error = streamed(&quick(&server, limit, 0)).await.0.unwrap_err().to_string();
    assert!(error.contains("stalled: no data for 600ms"), "comments do not reset the timeout: {error}");
    let error = streamed(&quick(&server, limit, 0)).await.0.unwrap_err().to_string();
    assert!(error.contains("no complete answer within 600ms"), "{error}");
}

#[tokio::test]
async fn a_stream_that_has_begun_is_waited_for_less_than_its_beginning() {
    let server = ModelServer::start().await;
    let entry = config::Model {
        timeout: Text(LONG),
        idle_timeout: Text(Duration::from_millis(300)),
        max_retries: 0,
        ..settings(server.base_url())
    };
    let model = model_of(entry);
    let thinks =
        Stream::default().deltas([json!({"role": "assistant"}), json!({"content": "想好了"})]).finished("stop");
    let stalls = Stream::unfinished(["a", "b"]).stalled();
    server.push(PLAIN, [thinks.slow_by(Duration::from_millis(400)), stalls].map(Answer::Stream));
    let error = streamed(&model).await.0.unwrap_err().to_string();
    assert!(error.contains("`idle_timeout`"), "`idle_timeout` applies only after the first piece: {error}");
    let begun = Instant::now();
    let error = streamed(&model).await.0.unwrap_err().to_string();
    assert!(error.contains("no data for 300ms, the limit `idle_timeout` of the model"), "{error}");
    assert!(begun.elapsed() < LONG);
}

#[tokio::test]
async fn what_comes_after_the_reason_may_be_missing() {
    let server = ModelServer::start().await;
    let complete = || Stream::of(["well ", "said"]);
    let ends = [complete().closed(), complete().cut(), complete().stalled()];
    server.push(PLAIN, ends.map(Answer::Stream));
    for _ in 0..3 {
        let (reply, _, _) = streamed(&quick(&server, Duration::from_millis(300), 0)).await;
        assert_eq!(reply.unwrap().content, "well said");
    }
}

#[tokio::test]
async fn errors_within_a_stream_say_what_is_wrong() {
    let piece = || Stream::unfinished(["a", "b"]);
    for (stream, part) in [
        (piece().event(r#"{"error": {"message": "额度已用完", "code": 403}}"#), "refused the request"),
        (piece().event(r#"{"error": {"message": "overloaded", "code": 503}}"#), "unavailable after 1 attempts"),
        (piece().event("{cut"), "a piece of the stream cannot be read"),
        (Stream::default(), "no content (finish_reason `none`)"),
        (Stream::default().finished("length"), "`max_tokens`"),
        (Stream::default().deltas([json!({"refusal": "I "}), json!({"refusal": "cannot."})]), "declined: I cannot."),
        (Stream::of(["x".repeat(9 << 20).as_str()]), "larger than 8 MiB"),
    ] {
        let server = ModelServer::start().await;
        server.push(PLAIN, [Answer::Stream(stream)]);
        let error = streamed(&quick(&server, LONG, 0)).await.0.unwrap_err().to_string();
        assert!(error.contains(part) && error.len() < 1_500, "{part}: {error}");
    }
}

#[tokio::test]
async fn the_key_is_masked_in_pieces_as_in_the_whole() {
    let server = ModelServer::start().await;
    let said = format!("it is {KEY}, and sk-very-secret-012 is not");
    let pieces: Vec<String> = said.chars().collect::<Vec<_>>().chunks(4).map(|piece| piece.iter().collect()).collect();
    let stream = Stream::of(pieces.iter().map(String::as_str));
    server.push(PLAIN, [Answer::Stream(stream), Answer::Stream(Stream::default().event(&format!("{{\"{KEY}\"")))]);
    let model = quick(&server, LONG, 0);
    let (reply, seen, _) = streamed(&model).await;
    assert_eq!(reply.unwrap().content, "it is ***, and sk-very-secret-012 is not");
    assert_eq!(seen.concat(), "it is ***, and sk-very-secret-012 is not");
    let error = streamed(&model).await.0.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(KEY), "{error}");
}

#[tokio::test]
async fn a_dead_server_opens_the_circuit_for_streams_too() {
    let server = ModelServer::start().await;
    server.script(|_| Some(Answer::status(503, "down")));
    let model = quick(&server, LONG, 0);
    for _ in 0..10 {
        model.stream(request(false), DeltaSink::unread()).await.unwrap_err();
    }
    assert_eq!(server.calls().len(), 5);
}
