//! Additional request fields from the settings, and servers that refuse them.

use super::{KEY, ask, model_of, request, settings};
use crate::support::model_server::{Answer, ModelServer, PLAIN};
use base::config;
use engine::model::ModelError;
use serde_json::json;

fn extra(value: &serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    value.as_object().cloned().unwrap()
}

#[tokio::test]
async fn max_completion_tokens_and_extra_fields_are_sent() {
    let server = ModelServer::start().await;
    server.push(PLAIN, [Answer::Content("好".into())]);
    let fields = json!({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false}, "seed": 7});
    let model = model_of(config::Model {
        max_completion_tokens: Some(900),
        extra: extra(&fields),
        ..settings(server.base_url())
    });
    ask(&model, false).await.unwrap();
    let mut expected =
        json!({"model": "test-model", "messages": request(false).messages.as_ref(), "max_completion_tokens": 900});
    expected.as_object_mut().unwrap().extend(extra(&fields));
    assert_eq!(server.calls()[0].body, expected);
}

#[tokio::test]
async fn a_refused_field_of_the_settings_is_asked_for_once_and_the_error_names_the_setting() {
    let entry = |base_url| config::Model {
        temperature: Some(0.3),
        max_tokens: Some(100),
        extra: extra(&json!({"top_k": 3, "thinking": {"type": "enabled"}})),
        ..settings(base_url)
    };
    for (message, param, remedy) in [
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_tokens",
            "remove it, or use `models.default.max_completion_tokens` instead",
        ),
        (
            "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) value is supported.",
            "temperature",
            "`models.default.temperature` sends it; change or remove it",
        ),
        ("Unrecognized request argument supplied: top_k", "", "`models.default.extra` sends `top_k`"),
        ("Unsupported value", "thinking.type", "`models.default.extra` sends `thinking`"),
    ] {
        let server = ModelServer::start().await;
        let body = json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": "unsupported_parameter"}});
        server.script(move |_| Some(Answer::status(400, &body.to_string())));
        let model = model_of(entry(server.base_url()));
        for structured in [true, false] {
            let error = ask(&model, structured).await.unwrap_err();
            assert!(matches!(error, ModelError::Refused { .. }), "{error}");
            assert!(error.to_string().contains(message) && error.to_string().contains(remedy), "{error}");
        }
        assert_eq!(server.calls().len(), 2, "one request each: {message}");
    }
}

#[tokio::test]
async fn a_server_that_only_streams_is_asked_for_a_stream_and_remembered() {
    use crate::support::model_stream::Stream;
    let server = ModelServer::start().await;
    let refusal = "This model only support stream mode, please enable the stream parameter to access the model.";
    let refusal = json!({"error": {"message": refusal, "code": "invalid_parameter_error"}}).to_string();
    server.script(move |call| {
        Some(if call.body["stream"] == true {
            Answer::Stream(Stream::of(["好", "的"]))
        } else {
            Answer::status(400, &refusal)
        })
    });
    let model = model_of(settings(server.base_url()));
    let first = ask(&model, false).await.unwrap();
    assert_eq!((first.content.as_str(), first.attempts, first.tokens.completion), ("好的", 2, 7));
    assert_eq!(ask(&model, false).await.unwrap().attempts, 1);
}

#[tokio::test]
async fn the_key_goes_into_the_header_that_the_server_reads() {
    let server = ModelServer::start().await;
    server.script(|_| Some(Answer::Content("好".into())));
    let azure = |entry: config::Model| config::Model {
        base_url: format!("{}?api-version=2024-10-21", entry.base_url),
        ..entry
    };
    let own = |entry: config::Model| config::Model { api_key_header: Some("X-Api-Key".into()), ..entry };
    let bearer = format!("Bearer {KEY}");
    for (entry, expected) in [
        (settings(server.base_url()), ["", "", bearer.as_str()]),
        (azure(settings(server.base_url())), [KEY, "", ""]),
        (own(settings(server.base_url())), ["", KEY, ""]),
        (own(azure(settings(server.base_url()))), ["", KEY, ""]),
    ] {
        server.forget();
        ask(&model_of(entry), false).await.unwrap();
        let call = &server.calls()[0];
        assert_eq!(["api-key", "x-api-key", "authorization"].map(|name| call.header(name)), expected);
    }
}
