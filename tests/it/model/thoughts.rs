//! A model's reasoning is not a part of its response.

use super::{ask, model, model_of, request, settings};
use crate::support::model_server::{Answer, ModelServer, PLAIN};
use crate::support::model_stream::Stream;
use base::config;
use engine::model::Model;
use engine::model::delta::{Piece, deltas};
use engine::turn::decision::parse_decision;
use std::sync::Arc;

/// The response, all text that the reader has seen, and the part of it that was not withdrawn.
async fn streamed(model: &Arc<dyn Model>) -> (String, String, String) {
    let (sink, mut pieces) = deltas();
    let read = async {
        let (mut all, mut left) = (String::new(), String::new());
        while let Some(Piece { content, anew }) = pieces.next().await {
            if anew {
                left.clear();
            }
            all.push_str(&content);
            left.push_str(&content);
        }
        (all, left)
    };
    let (reply, (all, left)) = tokio::join!(model.stream(request(false), sink), read);
    (reply.unwrap().content, all, left)
}

/// A streamed response of pieces in separate packets.
fn in_pieces(text: &str, size: usize) -> Answer {
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
    Answer::Stream(Stream::of(pieces.iter().map(String::as_str)))
}

#[tokio::test]
async fn thoughts_are_in_no_answer_and_in_no_piece_of_one() {
    let server = ModelServer::start().await;
    let model = model(&server);
    for text in [
        "<think>\nCONTINUE or COMPLETE?\n</think>\n\nCOMPLETE",
        "<THINK>CONTINUE</THINK>COMPLETE",
        "<thinking>CONTINUE</thinking> COMPLETE",
        "<think></think>COMPLETE",
    ] {
        server.push(PLAIN, [Answer::Content(text.into())]);
        assert_eq!(ask(&model, false).await.unwrap().content.trim(), "COMPLETE", "{text}");
        for size in [1, 3, 100] {
            server.push(PLAIN, [in_pieces(text, size)]);
            let (content, all, left) = streamed(&model).await;
            assert_eq!([content.trim(), all.trim(), left.trim()], ["COMPLETE"; 3], "{text} by {size}");
        }
    }
}

#[tokio::test]
async fn a_thought_without_an_opening_tag_is_void_once_and_then_held_back() {
    let server = ModelServer::start().await;
    let text = "CONTINUE or COMPLETE?\n</think>\n\nCOMPLETE";
    let unknown = model(&server);
    server.push(PLAIN, [in_pieces(text, 4), in_pieces(text, 4), in_pieces("COMPLETE", 2)]);
    let (content, all, left) = streamed(&unknown).await;
    assert_eq!([content.as_str(), left.as_str()], ["COMPLETE"; 2]);
    assert!(all.contains("CONTINUE"), "the first time, the client cannot know: {all}");
    for _ in 0..2 {
        let (content, all, _) = streamed(&unknown).await;
        assert_eq!([content.as_str(), all.as_str()], ["COMPLETE"; 2], "from then on the client holds thoughts back");
    }
    // Models with a telling name, or with an earlier response in one piece, are known from the start.
    let named = model_of(config::Model { model: "qwen3-4b-Thinking-2507".into(), ..settings(server.base_url()) });
    let asked = model(&server);
    server.push(PLAIN, [in_pieces(text, 4), Answer::Content(text.into()), in_pieces(text, 4)]);
    assert_eq!(streamed(&named).await.1, "COMPLETE");
    assert_eq!(ask(&asked, false).await.unwrap().content, "COMPLETE");
    assert_eq!(streamed(&asked).await.1, "COMPLETE");
}

#[tokio::test]
async fn words_of_a_thinker_whose_server_takes_the_thoughts_out_come_at_once() {
    let server = ModelServer::start().await;
    let gate = Arc::new(tokio::sync::Semaphore::new(2));
    let deltas_of = [
        serde_json::json!({"reasoning_content": "hm"}),
        serde_json::json!({"content": "first "}),
        serde_json::json!({"content": "last"}),
    ];
    server.push(PLAIN, [Answer::Stream(Stream::default().deltas(deltas_of).finished("stop").gated(&gate))]);
    let model = model_of(config::Model { model: "deepseek-reasoner".into(), ..settings(server.base_url()) });
    let (sink, mut pieces) = deltas();
    let read = async {
        assert_eq!(pieces.next().await.unwrap().content, "first ");
        gate.add_permits(100);
        while pieces.next().await.is_some() {}
    };
    let (reply, ()) = tokio::join!(model.stream(request(false), sink), read);
    assert_eq!(reply.unwrap().content, "first last");
}

#[tokio::test]
async fn nothing_but_thoughts_is_no_answer() {
    let server = ModelServer::start().await;
    server.script(|_| Some(Answer::Content("<think>CONTINUE".into())));
    let model = model_of(config::Model { max_retries: 1, ..settings(server.base_url()) });
    let error = ask(&model, false).await.unwrap_err().to_string();
    assert!(error.contains("nothing but thoughts (finish_reason `stop`)") && server.calls().len() == 2, "{error}");
}

#[tokio::test]
async fn a_structure_is_found_behind_thoughts_and_its_texts_stay() {
    let server = ModelServer::start().await;
    let decision = r#"{"reasoning":"","next_status":"typing","action":null,"response":"write `</think>`"}"#;
    for before in ["<think>{\"a\"</think>\n", "hm\n</think>\n", ""] {
        server.push("decision", [Answer::Content(format!("{before}{decision}"))]);
        let reply = ask(&model(&server), true).await.unwrap();
        assert_eq!(reply.content.trim(), decision, "the recorded and published content has no thoughts, too");
        assert_eq!(parse_decision(&reply.content).unwrap().response.as_deref(), Some("write `</think>`"));
    }
}
