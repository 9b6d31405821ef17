//! The OpenAI-compatible client with a server on a local port.

mod carried;
mod chain;
mod cut;
mod fields;
mod stream;
mod thoughts;
mod tools;
mod vendors;

use crate::support::model_server::{Answer, ModelServer, PLAIN};
use base::config::{self, Provider, Settings};
use engine::model::{Model, ModelError, ModelReply, ModelRequest, Models, PromptMessage, PromptRole};
use engine::turn::decision::{decision_schema, parse_decision};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::duration::Text;

const KEY: &str = "sk-very-secret-0123456789";

fn settings(base_url: String) -> config::Model {
    config::Model {
        provider: Provider::Openai,
        base_url,
        api_key_env: Some("MODEL_KEY".into()),
        model: "test-model".into(),
        timeout: Text(Duration::from_secs(10)),
        idle_timeout: Text(Duration::from_secs(10)),
        max_retries: 3,
        temperature: None,
        max_tokens: None,
        max_completion_tokens: None,
        extra: serde_json::Map::new(),
        api_key_header: None,
        vision: false,
    }
}

fn model_of(entry: config::Model) -> Arc<dyn Model> {
    let settings = Settings { models: [("default".to_owned(), entry)].into(), ..Settings::default() };
    let models = Models::from_settings(&settings, |name| (name == "MODEL_KEY").then(|| KEY.to_owned())).unwrap();
    models.get("default").unwrap()
}

fn model(server: &ModelServer) -> Arc<dyn Model> {
    model_of(settings(server.base_url()))
}

fn request(structured: bool) -> ModelRequest {
    let messages =
        vec![PromptMessage::new(PromptRole::System, "You decide."), PromptMessage::new(PromptRole::User, "你好")];
    let request = ModelRequest::new(messages).with_key("会话/m-1/0/decide");
    if structured { request.with_schema(decision_schema()) } else { request }
}

async fn ask(model: &Arc<dyn Model>, structured: bool) -> Result<ModelReply, ModelError> {
    model.complete(request(structured)).await
}

#[tokio::test]
async fn pictures_go_to_a_model_that_sees() {
    let server = ModelServer::start().await;
    server.push(crate::support::model_server::PLAIN, [Answer::typing("猫"), Answer::typing("？")]);
    let picture = PromptMessage {
        images: vec!["https://x.example/cat.png".into()],
        ..PromptMessage::new(PromptRole::User, "[image] https://x.example/cat.png")
    };
    for vision in [true, false] {
        let model = model_of(config::Model { vision, ..settings(server.base_url()) });
        model.complete(ModelRequest::new(vec![picture.clone()])).await.unwrap();
    }
    let sent = |at: usize| server.calls()[at].body["messages"][0].clone();
    let text = "[image] https://x.example/cat.png";
    let parts = json!([
        {"type": "text", "text": text},
        {"type": "image_url", "image_url": {"url": "https://x.example/cat.png"}},
    ]);
    assert_eq!(sent(0), json!({"role": "user", "content": parts}));
    assert_eq!(sent(1), json!({"role": "user", "content": text}), "a model without vision gets the address");
}

#[tokio::test]
async fn a_structured_request_has_the_shape_of_the_contract() {
    let server = ModelServer::start().await;
    server.push("decision", [Answer::typing("您好！")]);
    let model = model_of(config::Model {
        temperature: Some(0.5),
        max_tokens: Some(800),
        ..settings(format!("{}/", server.base_url()))
    });
    let reply = ask(&model, true).await.unwrap();
    assert_eq!(parse_decision(&reply.content).unwrap().response.as_deref(), Some("您好！"));
    assert_eq!((reply.model.as_str(), reply.attempts), ("test-model", 1));
    assert_eq!((reply.tokens.prompt, reply.tokens.completion), (11, 7));
    let call = &server.calls()[0];
    assert_eq!(
        call.body,
        json!({
            "model": "test-model", "temperature": 0.5, "max_tokens": 800,
            "messages": [{"role": "system", "content": "You decide."}, {"role": "user", "content": "你好"}],
            "response_format": {"type": "json_schema", "json_schema":
                {"name": "decision", "strict": false, "schema": decision_schema().schema}},
        })
    );
    assert_eq!(call.header("authorization"), format!("Bearer {KEY}"));
    assert_eq!(call.header("idempotency-key"), "%E4%BC%9A%E8%AF%9D/m-1/0/decide");
}

#[tokio::test]
async fn a_call_for_plain_text_sets_no_response_format() {
    let server = ModelServer::start().await;
    server.push(PLAIN, [Answer::Content("一段文字".into())]);
    assert_eq!(ask(&model(&server), false).await.unwrap().content, "一段文字");
    let body = &server.calls()[0].body;
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["messages", "model"]);
}

#[tokio::test]
async fn a_server_without_json_schema_is_asked_for_json_object_and_remembered() {
    let server = ModelServer::start().await;
    server
        .push("decision", [Answer::status(400, r#"{"error":{"message":"Unknown response_format type json_schema"}}"#)]);
    server.push("json_object", [Answer::typing("一"), Answer::typing("二")]);
    let model = model(&server);
    let first = ask(&model, true).await.unwrap();
    assert_eq!((first.attempts, ask(&model, true).await.unwrap().attempts), (2, 1));
    let calls = server.calls();
    assert_eq!(calls.iter().map(|call| call.schema()).collect::<Vec<_>>(), ["decision", "json_object", "json_object"]);
    let system = calls[1].body["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("You decide.") && system.contains("next_status"), "{system}");
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"));
}

#[tokio::test]
async fn a_server_that_knows_neither_gets_the_schema_in_the_prompt_only() {
    let server = ModelServer::start().await;
    let refusal = || Answer::status(422, r#"{"detail":"response_format is unsupported"}"#);
    server.push("decision", [refusal()]);
    server.push("json_object", [refusal()]);
    server.push(PLAIN, [Answer::typing("好")]);
    ask(&model(&server), true).await.unwrap();
    assert!(server.calls()[2].body.to_string().contains("next_status"));
}

#[tokio::test]
async fn an_error_that_only_sounds_like_the_format_does_not_change_it_for_good() {
    let server = ModelServer::start().await;
    let refusal = || Answer::status(400, r#"{"error":{"message":"this deployment is unsupported"}}"#);
    server.push("decision", [refusal(), Answer::typing("好")]);
    server.push("json_object", [refusal()]);
    server.push(PLAIN, [refusal()]);
    let model = model(&server);
    let error = ask(&model, true).await.unwrap_err();
    assert!(matches!(error, ModelError::Refused { .. }) && error.to_string().contains("unsupported"), "{error}");
    ask(&model, true).await.unwrap();
    assert_eq!(server.calls()[3].schema(), "decision");
}

#[tokio::test]
async fn passing_faults_are_repeated_and_retry_after_is_honoured() {
    let server = ModelServer::start().await;
    server.push(
        PLAIN,
        [
            Answer::Status(429, vec![("retry-after", "1".into())], "slow down".into()),
            Answer::status(529, "overloaded"),
            Answer::Broken,
            Answer::Content("终于".into()),
        ],
    );
    let begun = Instant::now();
    let reply = ask(&model(&server), false).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.attempts), ("终于", 4));
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_that_stays_broken_is_unavailable_and_says_so() {
    let server = ModelServer::start().await;
    server.script(|_| Some(Answer::status(503, r#"{"error":{"message":"维护中"}}"#)));
    let model = model_of(config::Model { max_retries: 1, ..settings(server.base_url()) });
    let error = ask(&model, false).await.unwrap_err().to_string();
    assert_eq!(error, "model `default` is unavailable after 2 attempts: HTTP 503: 维护中");
    assert_eq!(server.calls().len(), 2);
}

#[tokio::test]
async fn the_timeout_bounds_headers_and_body_of_each_attempt() {
    let server = ModelServer::start().await;
    server.push(PLAIN, [Answer::Hang, Answer::Content("好".into())]);
    let limit = Text(Duration::from_millis(200));
    let model = model_of(config::Model { timeout: limit, max_retries: 1, ..settings(server.base_url()) });
    assert_eq!(ask(&model, false).await.unwrap().attempts, 2);
    server.script(|_| Some(Answer::Hang));
    let error = ask(&model, false).await.unwrap_err().to_string();
    assert!(error.contains("no complete answer within 200ms"), "{error}");
}

#[tokio::test]
async fn a_refused_key_is_not_tried_again_and_never_shown() {
    let server = ModelServer::start().await;
    server.script(|call| {
        let key = call.header("authorization").to_owned();
        Some(Answer::status(
            401,
            &json!({"error": {"message": format!("Incorrect API key provided: {key}")}}).to_string(),
        ))
    });
    let error = ask(&model(&server), true).await.unwrap_err();
    assert!(matches!(error, ModelError::Refused { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(text.contains("HTTP 401: Incorrect API key provided: Bearer ***") && !text.contains(KEY), "{text}");
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn nobody_there_is_unavailable_without_the_key() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let model = model_of(config::Model { max_retries: 1, ..settings(format!("http://{address}/v1?key={KEY}")) });
    let error = ask(&model, false).await.unwrap_err();
    assert!(matches!(error, ModelError::Unavailable { attempts: 2, .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
}

#[tokio::test]
async fn answers_without_content_are_clear_errors() {
    let message =
        |message: Value, reason: &str| json!({"choices": [{"message": message, "finish_reason": reason}]}).to_string();
    for (body, part) in [
        (message(json!({"content": null, "refusal": "I cannot help."}), "stop"), "the model declined: I cannot help."),
        (message(json!({"content": ""}), "length"), "`max_tokens`"),
        (message(json!({"content": null}), "content_filter"), "content filter"),
        (message(json!({"role": "assistant"}), "stop"), "no content (finish_reason `stop`)"),
        (json!({"choices": []}).to_string(), "no choices"),
        (json!({"error": {"message": "额度已用完"}}).to_string(), "额度已用完"),
        ("<html>proxy</html>".into(), "not a chat completion"),
        (format!("{{\"choices\": \"{}\"}}", "x".repeat(9 << 20)), "larger than 8 MiB"),
    ] {
        let server = ModelServer::start().await;
        server.script(move |_| Some(Answer::Raw(body.clone())));
        let model = model_of(config::Model { max_retries: 0, ..settings(server.base_url()) });
        let error = ask(&model, true).await.unwrap_err().to_string();
        assert!(error.contains(part) && error.len() < 1_500, "{part}: {error}");
    }
}

#[tokio::test]
async fn a_long_message_of_a_server_is_cut() {
    let server = ModelServer::start().await;
    server.push(PLAIN, [Answer::status(400, &"错".repeat(50_000))]);
    let error = ask(&model(&server), false).await.unwrap_err().to_string();
    assert!(error.contains("HTTP 400") && error.len() < 1_200, "{}", error.len());
}
