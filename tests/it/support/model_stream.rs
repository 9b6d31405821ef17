//! Answers in pieces: server-sent events of chat completions, cut and delayed as a test says.
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The interval of comments in a stream that stalls: shorter than any idle timeout, so that comments would keep it alive.
const COMMENTS: Duration = Duration::from_millis(20);

/// How the stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As it should.
    Done,
    /// After the last piece, without a word.
    Closed,
    /// The connection breaks.
    Cut,
    /// Nothing more comes.
    Stalled,
}

/// An answer in pieces.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What the events hold.
    events: Vec<String>,
    end: End,
    /// Bytes of one chunk of the network; all events at once unless given.
    chunk: Option<usize>,
    /// Before each chunk.
    pause: Duration,
    /// Each chunk needs a permit.
    gate: Option<Arc<Semaphore>>,
}

impl Stream {
    /// With these pieces of text, and the reason and usage after them.
    pub fn of<'p>(pieces: impl IntoIterator<Item = &'p str>) -> Self {
        Self::default().deltas(pieces.into_iter().map(|piece| json!({"content": piece}))).finished("stop")
    }

    /// With these pieces of text, and no more.
    pub fn unfinished<'p>(pieces: impl IntoIterator<Item = &'p str>) -> Self {
        Self::default().deltas(pieces.into_iter().map(|piece| json!({"content": piece})))
    }

    /// With `delta`s of the test's own.
    pub fn deltas(mut self, deltas: impl IntoIterator<Item = Value>) -> Self {
        self.events
            .extend(deltas.into_iter().map(|delta| chunk_of(&json!([{"index": 0, "delta": delta}])).to_string()));
        self
    }

    /// With an event of the test's own.
    pub fn event(mut self, data: &str) -> Self {
        self.events.push(data.to_owned());
        self
    }

    /// With the reason for its end, and the usage.
    pub fn finished(self, reason: &str) -> Self {
        let last = chunk_of(&json!([{"index": 0, "delta": {}, "finish_reason": reason}]));
        let mut usage = chunk_of(&json!([]));
        usage["usage"] = json!({"prompt_tokens": 11, "completion_tokens": 7});
        self.event(&last.to_string()).event(&usage.to_string())
    }

    /// Sent in chunks of so many bytes, whatever they cut.
    pub fn in_chunks_of(self, bytes: usize) -> Self {
        Self { chunk: Some(bytes), ..self }
    }

    /// With a pause before each chunk; without [`Stream::in_chunks_of`] an event is one.
    pub fn pausing(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Each chunk waits for a permit of `gate`.
    pub fn gated(self, gate: &Arc<Semaphore>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self }
    }

    /// The connection breaks after it.
    pub fn cut(self) -> Self {
        Self { end: End::Cut, ..self }
    }

    /// It ends as if there were no more to say, without `[DONE]`.
    pub fn closed(self) -> Self {
        Self { end: End::Closed, ..self }
    }

    /// Only comments come after it.
    pub fn stalled(self) -> Self {
        Self { end: End::Stalled, ..self }
    }

    pub(super) fn respond(self) -> Response {
        let done = (self.end == End::Done).then(|| "[DONE]".to_owned());
        let events = self.events.into_iter().chain(done).map(|data| format!("data: {data}\n\n"));
        let chunks: Vec<Bytes> = match self.chunk {
            None => events.map(Bytes::from).collect(),
            Some(size) => events.collect::<String>().as_bytes().chunks(size).map(Bytes::copy_from_slice).collect(),
        };
        let (pause, end, gate) = (self.pause, self.end, self.gate);
        let sent = futures::stream::iter(chunks).then(move |chunk| {
            let gate = gate.clone();
            async move {
                if let Some(gate) = &gate {
                    gate.acquire().await.unwrap().forget();
                }
                // So that each chunk is written by itself, also without a pause.
                tokio::task::yield_now().await;
                super::scripted_delay(pause).await;
                Ok::<_, std::io::Error>(chunk)
            }
        });
        let after = futures::stream::unfold((), move |()| async move {
            match end {
                End::Done | End::Closed => None,
                End::Cut => Some((Err(std::io::Error::other("broken off")), ())),
                End::Stalled => {
                    super::scripted_delay(COMMENTS).await;
                    Some((Ok(Bytes::from_static(b": still there\n\n")), ()))
                }
            }
        });
        let mut response = Body::from_stream(sent.chain(after)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, "text/event-stream".parse().unwrap());
        response
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self { events: Vec::new(), end: End::Done, chunk: None, pause: Duration::ZERO, gate: None }
    }
}

fn chunk_of(choices: &Value) -> Value {
    json!({"object": "chat.completion.chunk", "model": "streamed-1", "choices": choices})
}
