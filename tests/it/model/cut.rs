//! Responses that are incomplete.

use super::{ask, model_of, settings};
use crate::support::model_server::{Answer, ModelServer};
use crate::support::model_stream::Stream;
use base::config;
use engine::model::ModelError;
use engine::model::delta::deltas;
use engine::turn::decision::parse_decision;
use serde_json::{Value, json};

fn ended(message: &Value, reason: &str) -> Answer {
    Answer::Raw(json!({"choices": [{"message": message, "finish_reason": reason}]}).to_string())
}

fn content(text: &str, reason: &str) -> Answer {
    ended(&json!({"content": text}), reason)
}

async fn refusal(
    answer: Answer,
    entry: impl FnOnce(config::Model) -> config::Model,
    structured: bool,
) -> (String, usize) {
    let server = ModelServer::start().await;
    server.script(move |_| Some(answer.clone()));
    let error = ask(&model_of(entry(settings(server.base_url()))), structured).await.unwrap_err();
    assert!(matches!(error, ModelError::Refused { .. }), "{error}");
    (error.to_string(), server.calls().len())
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_an_error_with_the_setting_to_raise() {
    let limited = |entry| config::Model { max_tokens: Some(16), ..entry };
    let completion = |entry| config::Model { max_completion_tokens: Some(32), ..entry };
    let (error, asked) = refusal(content("第一章 总", "length"), limited, false).await;
    assert!(
        error.contains("was cut off") && error.contains("raise `max_tokens` of [models.default], which is 16"),
        "{error}"
    );
    assert_eq!(asked, 1, "a cut response is not retried");
    let (error, _) = refusal(content("第一章 总", "length"), completion, false).await;
    assert!(error.contains("raise `max_completion_tokens` of [models.default], which is 32"), "{error}");
    let (error, _) = refusal(content("第一章 总", "length"), |entry| entry, false).await;
    assert!(error.contains("the limit is the server's own"), "{error}");
    let thinking = ended(&json!({"content": "", "reasoning_content": "想"}), "length");
    let (error, _) = refusal(thinking, limited, false).await;
    assert!(error.contains("used up its tokens before its first word"), "{error}");
    let (error, _) = refusal(content("<think>我想", "length"), limited, false).await;
    assert!(error.contains("used up its tokens before its first word"), "{error}");
    let (error, _) = refusal(content("很抱歉，", "content_filter"), limited, false).await;
    assert!(error.contains("content filter cut the answer off"), "{error}");
}

#[tokio::test]
async fn a_structure_that_is_whole_is_taken_whatever_follows_it() {
    let server = ModelServer::start().await;
    let decision = r#"{"reasoning":"","next_status":"typing","action":null,"response":"好"}"#;
    server.push("decision", [content(&format!("{decision}\n\n   \n"), "length")]);
    let reply = ask(&model_of(settings(server.base_url())), true).await.unwrap();
    assert_eq!(reply.content.trim(), decision);
}

#[tokio::test]
async fn a_structure_that_was_cut_off_is_for_its_reader_to_correct() {
    let server = ModelServer::start().await;
    server.push("decision", [content(r#"{"next_status":"typing","response":"很很很很"#, "length")]);
    let reply = ask(&model_of(settings(server.base_url())), true).await.unwrap();
    let problem = parse_decision(&reply.content).unwrap_err();
    assert!(problem.contains("was cut off") && problem.contains("write a shorter one"), "{problem}");
}

#[tokio::test]
async fn a_stream_that_was_cut_off_is_no_answer_either() {
    let server = ModelServer::start().await;
    let cut = || Stream::unfinished(["第一章 ", "总"]).finished("length");
    server.script(move |_| Some(Answer::Stream(cut())));
    let model = model_of(settings(server.base_url()));
    let (sink, _pieces) = deltas();
    let error = model.stream(super::request(false), sink).await.unwrap_err().to_string();
    assert!(error.contains("was cut off") && server.calls().len() == 1, "{error}");
}

#[tokio::test]
async fn an_answer_that_the_server_broke_off_is_asked_for_again() {
    let server = ModelServer::start().await;
    let broken = content("half", "insufficient_system_resource");
    // An empty finish reason does not end a stream.
    let open = Stream::default()
        .event(&json!({"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": ""}]}).to_string());
    server.push(
        "text",
        [broken, content("whole", "stop"), Answer::Stream(open.closed()), Answer::Stream(Stream::of(["all"]))],
    );
    let model = model_of(settings(server.base_url()));
    assert_eq!(ask(&model, false).await.unwrap().content, "whole");
    let (sink, _pieces) = deltas();
    assert_eq!(model.stream(super::request(false), sink).await.unwrap().content, "all");
}
