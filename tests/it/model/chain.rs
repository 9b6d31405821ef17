//! Chains of models: the next model is asked if one does not respond.

use super::request;
use crate::support::model_server::{Answer, ModelServer, PLAIN};
use crate::support::model_stream::Stream;
use base::config::{self, Settings};
use engine::model::circuit::CircuitState;
use engine::model::delta::{Piece, deltas};
use engine::model::{Model, ModelError, Models};
use std::sync::Arc;
use std::time::Duration;
use types::duration::Text;
use types::model_names::ModelNames;

/// Two servers, as the models `fast` and `default`.
struct Two {
    fast: ModelServer,
    other: ModelServer,
    models: Models,
}

impl Two {
    /// Starts both servers. `retries` is the number of retries of `fast`.
    async fn start(retries: u32) -> Self {
        let (fast, other) = (ModelServer::start().await, ModelServer::start().await);
        let entry = |server: &ModelServer, max_retries| config::Model {
            api_key_env: None,
            timeout: Text(Duration::from_secs(10)),
            max_retries,
            ..super::settings(server.base_url())
        };
        let named = [("fast".to_owned(), entry(&fast, retries)), ("default".to_owned(), entry(&other, 0))];
        let settings = Settings { models: named.into(), ..Settings::default() };
        let models = Models::from_settings(&settings, |_| None).unwrap();
        Self { fast, other, models }
    }

    fn chain(&self) -> Arc<dyn Model> {
        self.models.chain(&ModelNames::from_names(["fast", "default"]).unwrap()).unwrap()
    }

    /// Number of calls of each server.
    fn asked(&self) -> (usize, usize) {
        (self.fast.calls().len(), self.other.calls().len())
    }

    fn circuit(&self, name: &str) -> Option<CircuitState> {
        self.models.names().into_iter().find(|model| model.name == name).unwrap().circuit
    }
}

fn content(text: &str) -> Answer {
    Answer::Content(text.to_owned())
}

#[tokio::test]
async fn the_next_model_is_asked_after_the_retries_of_the_one_before() {
    let two = Two::start(1).await;
    two.fast.script(|_| Some(Answer::status(503, "busy")));
    two.other.push(PLAIN, [content("好的")]);
    let reply = two.chain().complete(request(false)).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.name.as_deref(), reply.attempts), ("好的", Some("default"), 3));
    assert_eq!(two.asked(), (2, 1));
    let keys: Vec<_> =
        two.fast.calls().iter().chain(&two.other.calls()).map(|c| c.header("idempotency-key").to_owned()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "all calls have one key: {keys:?}");
}

#[tokio::test]
async fn a_refused_question_goes_to_the_next_model_at_once() {
    let two = Two::start(3).await;
    for status in [400, 401, 403, 404] {
        two.fast.push(PLAIN, [Answer::status(status, "not for me")]);
        two.other.push(PLAIN, [content("好的")]);
        let reply = two.chain().complete(request(false)).await.unwrap();
        assert_eq!((reply.name.as_deref(), reply.attempts), (Some("default"), 2), "{status}");
    }
    assert_eq!(two.asked(), (4, 4));
    assert_eq!(two.circuit("fast"), Some(CircuitState::Closed), "a refusal does not open the circuit");
}

#[tokio::test]
async fn a_model_whose_circuit_is_open_is_not_waited_for() {
    let two = Two::start(0).await;
    two.fast.script(|_| Some(Answer::status(500, "down")));
    two.other.script(|_| Some(content("好的")));
    for _ in 0..5 {
        two.chain().complete(request(false)).await.unwrap();
    }
    assert_eq!((two.asked(), two.circuit("fast")), ((5, 5), Some(CircuitState::Open)));
    // A call of this model would wait forever.
    two.fast.script(|_| Some(Answer::Hang));
    let reply = two.chain().complete(request(false)).await.unwrap();
    assert_eq!((reply.name.as_deref(), reply.attempts), (Some("default"), 1));
    assert_eq!(two.asked(), (5, 6));
}

#[tokio::test]
async fn a_stream_that_breaks_off_begins_anew_with_the_next_model() {
    let two = Two::start(0).await;
    two.fast.push(PLAIN, [Answer::Stream(Stream::unfinished(["您好，", "我是", "半"]).closed())]);
    two.other.push(PLAIN, [Answer::Stream(Stream::of(["您好", "，请讲。"]))]);
    let (sink, mut pieces) = deltas();
    let read = async {
        let (mut text, mut begun) = (String::new(), 1);
        while let Some(Piece { content, anew }) = pieces.next().await {
            if anew {
                (text, begun) = (String::new(), begun + 1);
            }
            text.push_str(&content);
        }
        (text, begun)
    };
    let chain = two.chain();
    let (reply, (text, begun)) = tokio::join!(chain.stream(request(false), sink), read);
    let reply = reply.unwrap();
    assert_eq!((reply.content.as_str(), reply.name.as_deref()), ("您好，请讲。", Some("default")));
    assert_eq!((text.as_str(), begun), ("您好，请讲。", 2), "the text of the first model is withdrawn");
}

#[tokio::test]
async fn when_none_answers_each_says_why() {
    let two = Two::start(0).await;
    two.fast.push(PLAIN, [Answer::status(503, "busy")]);
    two.other.push(PLAIN, [Answer::status(400, "too long")]);
    let error = two.chain().complete(request(false)).await.unwrap_err();
    let text = error.to_string();
    for part in ["model `fast` is unavailable", "busy", "model `default` refused", "too long"] {
        assert!(text.contains(part), "{text}");
    }
    let written = serde_json::to_value(&error).unwrap();
    assert_eq!(serde_json::from_value::<ModelError>(written).unwrap(), error, "the error survives a round trip");
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_passed_over_where_another_is_known() {
    let two = Two::start(0).await;
    two.other.push(PLAIN, [content("好的")]);
    let names = |list: &[&str]| ModelNames::from_names(list.iter().copied()).unwrap();
    let reply = two.models.chain(&names(&["gone", "default"])).unwrap().complete(request(false)).await.unwrap();
    assert_eq!(reply.name.as_deref(), Some("default"));
    let error = two.models.chain(&names(&["gone", "lost"])).err().unwrap();
    assert_eq!(error, ModelError::Unknown("gone".into()));
}
