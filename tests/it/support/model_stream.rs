//! Streamed responses: server-sent events of chat completions, cut and held as a test demands.
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Interval, interval_at};

/// Interval of comments in a stalled stream. Shorter than any idle timeout, so that comments would keep the stream
/// alive.
const COMMENTS: Duration = Duration::from_millis(20);
/// Number of times that other tasks run between two packets: more than a packet needs from the server to the reader.
const TURNS_BETWEEN: usize = 20;

/// End of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Complete, with `[DONE]`.
    Done,
    /// Closed after the last piece, without `[DONE]`.
    Closed,
    /// The connection breaks.
    Cut,
    /// No further data arrives, but the connection stays open.
    Stalled,
}

/// A streamed response.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Data of the events.
    events: Vec<String>,
    end: End,
    /// Bytes of each network chunk; `None` sends all events together.
    chunk: Option<usize>,
    /// Interval at which a slow server sends its chunks.
    slow_by: Option<Duration>,
    /// If set, each chunk needs a permit.
    gate: Option<Arc<Semaphore>>,
}

impl Stream {
    /// A stream of these pieces of text, followed by the finish reason and the usage.
    pub fn of<'p>(pieces: impl IntoIterator<Item = &'p str>) -> Self {
        Self::default().deltas(pieces.into_iter().map(|piece| json!({"content": piece}))).finished("stop")
    }

    /// A stream of these pieces of text without a finish reason.
    pub fn unfinished<'p>(pieces: impl IntoIterator<Item = &'p str>) -> Self {
        Self::default().deltas(pieces.into_iter().map(|piece| json!({"content": piece})))
    }

    /// Adds events with these `delta`s.
    pub fn deltas(mut self, deltas: impl IntoIterator<Item = Value>) -> Self {
        self.events
            .extend(deltas.into_iter().map(|delta| chunk_of(&json!([{"index": 0, "delta": delta}])).to_string()));
        self
    }

    /// Adds an event with this data.
    pub fn event(mut self, data: &str) -> Self {
        self.events.push(data.to_owned());
        self
    }

    /// Adds the finish reason and the usage.
    pub fn finished(self, reason: &str) -> Self {
        let last = chunk_of(&json!([{"index": 0, "delta": {}, "finish_reason": reason}]));
        let mut usage = chunk_of(&json!([]));
        usage["usage"] = json!({"prompt_tokens": 11, "completion_tokens": 7});
        self.event(&last.to_string()).event(&usage.to_string())
    }

    /// Sends the stream in chunks of this many bytes, regardless of event boundaries.
    pub fn in_chunks_of(self, bytes: usize) -> Self {
        Self { chunk: Some(bytes), ..self }
    }

    /// A server that sends a chunk at each interval, for tests of time limits and rates. Without
    /// [`Stream::in_chunks_of`], each event is a chunk.
    pub fn slow_by(self, pause: Duration) -> Self {
        Self { slow_by: Some(pause), ..self }
    }

    /// Waits for a permit of `gate` before each chunk.
    pub fn gated(self, gate: &Arc<Semaphore>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self }
    }

    /// Breaks the connection at the end.
    pub fn cut(self) -> Self {
        Self { end: End::Cut, ..self }
    }

    /// Closes the connection at the end without `[DONE]`.
    pub fn closed(self) -> Self {
        Self { end: End::Closed, ..self }
    }

    /// Sends only comments after the last event.
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
        let (end, gate) = (self.end, self.gate);
        let (ticks, comments) = (self.slow_by.map(every), every(COMMENTS));
        let sent = futures::stream::unfold((chunks.into_iter(), ticks), move |(mut chunks, mut ticks)| {
            let gate = gate.clone();
            async move {
                let chunk = chunks.next()?;
                if let Some(gate) = &gate {
                    gate.acquire().await.unwrap().forget();
                }
                // Writes each chunk as a packet of its own.
                for _ in 0..TURNS_BETWEEN {
                    tokio::task::yield_now().await;
                }
                if let Some(ticks) = &mut ticks {
                    ticks.tick().await;
                }
                Some((Ok::<_, std::io::Error>(chunk), (chunks, ticks)))
            }
        });
        let after = futures::stream::unfold(comments, move |mut ticks| async move {
            match end {
                End::Done | End::Closed => None,
                End::Cut => Some((Err(std::io::Error::other("connection lost")), ticks)),
                End::Stalled => {
                    ticks.tick().await;
                    Some((Ok(Bytes::from_static(b": still there\n\n")), ticks))
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
        Self { events: Vec::new(), end: End::Done, chunk: None, slow_by: None, gate: None }
    }
}

fn chunk_of(choices: &Value) -> Value {
    json!({"object": "chat.completion.chunk", "model": "streamed-1", "choices": choices})
}

/// Ticks at this interval, the first after one of it.
fn every(interval: Duration) -> Interval {
    interval_at(Instant::now() + interval, interval)
}
