//! A model server that streams the same tokens at a steady pace, and records when it gets a request.

use crate::bench::options::StreamOptions;
use anyhow::Context;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base::http_client;
use base::tasks::{OnPanic, Tasks};
use futures::{StreamExt, stream};
use serde_json::json;
use sse_stream::SseStream;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// Name of the model in the settings.
pub(in crate::bench) const MODEL: &str = "speaker";
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The running model server.
pub(super) struct Speaker {
    pub(super) base_url: String,
    inner: Arc<Inner>,
}

struct Inner {
    first_token: Duration,
    token_pause: Duration,
    tokens: usize,
    /// Time of each request, by idempotency key.
    asked: Mutex<HashMap<String, Instant>>,
}

impl Speaker {
    pub(super) async fn start(options: &StreamOptions, tasks: &Tasks) -> anyhow::Result<Self> {
        let StreamOptions { first_token, token_pause, tokens, .. } = *options;
        let inner = Arc::new(Inner { first_token, token_pause, tokens, asked: Mutex::default() });
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::clone(&inner));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        let stop = tasks.stop_token();
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        tasks.spawn("speaker", OnPanic::Log, async move {
            let served = axum::serve(listener, router);
            let _ = stop.run_until_cancelled(served.into_future()).await;
        });
        Ok(Self { base_url, inner })
    }

    /// Time of the first request whose idempotency key begins with `prefix`, the session and turn.
    pub(super) fn asked(&self, prefix: &str) -> Option<Instant> {
        let asked = self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(_, at)| *at).min()
    }

    /// Asks the model directly, one request after the other. Returns the time to the first token of each.
    pub(super) async fn asked_directly(&self, times: usize) -> anyhow::Result<Vec<Duration>> {
        let client = http_client::builder().no_proxy().build()?;
        let mut found = Vec::with_capacity(times);
        for number in 0..=times {
            let question = client.post(format!("{}/chat/completions", self.base_url)).json(&json!({"stream": true}));
            let begun = Instant::now();
            let mut events = SseStream::from_bytes_stream(question.send().await?.error_for_status()?.bytes_stream());
            events.next().await.context("the model has sent no event")??;
            // The first request also opens the connection, so it is not measured.
            if number > 0 {
                found.push(begun.elapsed());
            }
            while events.next().await.is_some() {}
        }
        Ok(found)
    }
}

async fn answer(State(speaker): State<Arc<Inner>>, headers: HeaderMap) -> Response {
    if let Some(key) = headers.get(KEY).and_then(|key| key.to_str().ok()) {
        speaker.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), Instant::now());
    }
    let token = |number: usize| {
        let choices = json!([{"index": 0, "delta": {"content": format!("第{number}句。")}}]);
        event(&json!({"object": "chat.completion.chunk", "model": MODEL, "choices": choices}).to_string())
    };
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string();
    let tokens = stream::iter(0..speaker.tokens).then(move |number| {
        let pause = if number == 0 { speaker.first_token } else { speaker.token_pause };
        async move {
            tokio::time::sleep(pause).await;
            token(number)
        }
    });
    let events = tokens.chain(stream::iter([event(&end), event("[DONE]")])).map(Ok::<_, Infallible>);
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}
