//! Reads a streamed answer (server-sent events).
//!
//! There is one limit for the wait until the first text, and one for the wait between two events, so a long answer may
//! take its time. Comments, which only keep the connection open, do not reset the wait. A server that does not know
//! `stream` sends a complete answer, which is accepted.

use super::calls::StreamedCalls;
use super::reply::{ReceivedAnswer, Usage, WireMessage, grow, message_of, or_null, read_whole, reason};
use super::{MAX_ANSWER, too_large};
use crate::model::DeltaSink;
use crate::model::thoughts::{self, Thoughts, VisibleText};
use base::config::mask::Masker;
use base::config::mask::pieces::Pieces;
use base::http_client::retry::HttpFault;
use base::http_client::{self, bounded};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;
use sse_stream::SseStream;
use std::future::Future;
use std::time::Duration;
use types::duration;

/// Data of the last event of a stream.
const END_OF_STREAM: &str = "[DONE]";

/// Limits of the waits. An error names the setting behind the limit that was exceeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamTimeouts {
    /// Limit until the first text or tool call.
    pub(super) first: Duration,
    /// Limit between two events after that.
    pub(super) between: Duration,
}

/// The longest wait for data.
#[derive(Clone, Copy)]
struct StreamLimit {
    time: Duration,
    /// The setting behind the limit.
    setting: &'static str,
}

impl StreamTimeouts {
    fn limit(self, begun: bool) -> StreamLimit {
        if begun && self.between < self.first {
            StreamLimit { time: self.between, setting: "idle_timeout" }
        } else {
            StreamLimit { time: self.first, setting: "timeout" }
        }
    }
}

/// Reads the response to a request for a stream. Sends the pieces to `deltas` and returns the complete answer.
pub(super) async fn read(
    mut response: Response,
    timeouts: StreamTimeouts,
    masker: &Masker,
    deltas: &DeltaSink,
    reader: Reader,
) -> Result<ReceivedAnswer, HttpFault> {
    let (headers, limit) = (response.headers().clone(), timeouts.limit(false));
    let (mut head, mut first) = (Vec::new(), None);
    while first.is_none()
        && let Some(chunk) = within(limit, async { Ok(response.chunk().await?) }).await?
    {
        first = chunk.iter().copied().find(|byte| !byte.is_ascii_whitespace());
        head.extend_from_slice(&chunk);
        if head.len() > MAX_ANSWER {
            return Err(too_large());
        }
    }
    let body = body(head, response);
    // No event starts with these characters, but a JSON document or an HTML page does.
    if matches!(first, None | Some(b'{' | b'[' | b'<')) {
        let bytes = within(
            limit,
            body.try_fold(Vec::new(), async |mut whole, chunk| {
                whole.extend_from_slice(&chunk);
                Ok(whole)
            }),
        );
        let text = masker.mask(&http_client::decode(&headers, bytes.await?).await);
        let found = read_whole(&text, reader.structured)?;
        deltas.whole(&masker.mask(&found.content));
        return Ok(found);
    }
    let mut answer = StreamedAnswer::new(masker, deltas, reader);
    match events(body, timeouts, &mut answer).await {
        // The answer is complete when the finish reason has arrived; some servers send nothing after it.
        Err(_) if answer.found.finish_reason.is_some() => Ok(answer.finish()),
        Err(fault) => Err(fault),
        Ok(()) => Ok(answer.finish()),
    }
}

/// The body with its size limited.
fn body(head: Vec<u8>, response: Response) -> impl Stream<Item = Result<Bytes, HttpFault>> {
    let head = stream::once(async move { Ok(Bytes::from(head)) });
    let mut size = 0;
    head.chain(response.bytes_stream().map_err(HttpFault::from)).map(move |chunk| {
        let chunk = chunk?;
        size += chunk.len();
        if size > MAX_ANSWER { Err(too_large()) } else { Ok(chunk) }
    })
}

/// Reads all events up to the last one. A stream that ends without it has broken off.
async fn events(
    body: impl Stream<Item = Result<Bytes, HttpFault>>,
    timeouts: StreamTimeouts,
    answer: &mut StreamedAnswer<'_>,
) -> Result<(), HttpFault> {
    let mut events = Box::pin(SseStream::from_bytes_stream(body));
    loop {
        let next = within(timeouts.limit(answer.has_begun()), async {
            loop {
                match events.next().await.transpose().map_err(unreadable)? {
                    Some(event) if event.data.as_deref().is_none_or(|data| data.trim().is_empty()) => {}
                    event => return Ok(event.and_then(|event| event.data)),
                }
            }
        });
        match next.await? {
            None => return Err(HttpFault::transient("the stream ended before the answer was complete")),
            Some(data) if data.trim() == END_OF_STREAM => return Ok(()),
            Some(data) => answer.take(&data)?,
        }
    }
}

fn unreadable(error: sse_stream::Error) -> HttpFault {
    match error {
        sse_stream::Error::Body(cause) => match cause.downcast::<HttpFault>() {
            Ok(fault) => *fault,
            Err(cause) => HttpFault::transient(cause.to_string()),
        },
        other => HttpFault::transient(format!("the stream cannot be read: {other}")),
    }
}

async fn within<T>(limit: StreamLimit, next: impl Future<Output = Result<T, HttpFault>>) -> Result<T, HttpFault> {
    let StreamLimit { time, setting } = limit;
    match tokio::time::timeout(time, next).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let limit = duration::format(time);
            Err(HttpFault::transient(format!(
                "the stream stalled: no data for {limit}, the limit `{setting}` of the model"
            )))
        }
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default, deserialize_with = "or_null")]
    choices: Vec<ChunkChoice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default, deserialize_with = "or_null")]
    delta: WireMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// How the text of an answer is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    /// The answer must be a JSON structure.
    pub(super) structured: bool,
    /// As far as known, the model's answers start with a thought that has no opening tag.
    pub(super) thinks_first: bool,
}

/// The answer as far as it has arrived.
struct StreamedAnswer<'a> {
    masker: &'a Masker,
    pieces: Pieces<'a>,
    deltas: &'a DeltaSink,
    reader: Reader,
    thoughts: Thoughts,
    /// Text that may still turn out to be a thought.
    held: Option<String>,
    /// All text as received, if the answer must be a JSON structure.
    raw: String,
    found: ReceivedAnswer,
    calls: StreamedCalls,
}

impl<'a> StreamedAnswer<'a> {
    fn new(masker: &'a Masker, deltas: &'a DeltaSink, reader: Reader) -> Self {
        let held = reader.thinks_first.then(String::new);
        let (pieces, thoughts, found, calls) =
            (Pieces::new(masker), Thoughts::default(), ReceivedAnswer::default(), StreamedCalls::default());
        Self { masker, pieces, deltas, reader, thoughts, held, raw: String::new(), found, calls }
    }

    fn has_begun(&self) -> bool {
        !self.found.content.is_empty() || !self.calls.is_empty()
    }

    fn take(&mut self, data: &str) -> Result<(), HttpFault> {
        let chunk: Chunk = serde_json::from_str(data).map_err(|error| {
            let piece = bounded(&self.masker.mask(data), 200);
            HttpFault::transient(format!("a piece of the stream cannot be read ({error}): {piece}"))
        })?;
        if !chunk.error.is_null() {
            return Err(error_event_fault(&chunk.error, &self.masker.mask(data)));
        }
        self.found.usage = chunk.usage.or(self.found.usage.take());
        self.found.model = chunk.model.or(self.found.model.take());
        let Some(ChunkChoice { mut delta, finish_reason }) = chunk.choices.into_iter().next() else { return Ok(()) };
        for (name, piece) in delta.extra() {
            // A server that separates the thoughts itself leaves none in the text.
            if name.contains("reason") {
                self.release_held();
            }
            grow(&mut self.found.extra, name, piece);
        }
        let text = delta.text();
        if self.reader.structured {
            self.raw.push_str(&text);
        }
        let shown = self.thoughts.push(&text);
        self.emit(shown);
        if let Some(refusal) = delta.refusal {
            self.found.refusal.get_or_insert_default().push_str(&refusal);
        }
        delta.tool_calls.into_iter().flatten().for_each(|part| self.calls.take(part));
        self.found.finish_reason = finish_reason.and_then(reason).or(self.found.finish_reason.take());
        Ok(())
    }

    fn emit(&mut self, VisibleText { text, void }: VisibleText) {
        if void {
            self.found.content.clear();
            self.held = None;
            self.pieces = Pieces::new(self.masker);
            self.deltas.restart();
        } else if self.thoughts.found() {
            self.release_held();
        }
        self.found.content.push_str(&text);
        match &mut self.held {
            Some(held) => held.push_str(&text),
            None => self.deltas.send(&self.pieces.push(&text)),
        }
    }

    /// Sends the text that was held back, because it is no thought.
    fn release_held(&mut self) {
        if let Some(held) = self.held.take() {
            self.deltas.send(&self.pieces.push(&held));
        }
    }

    fn finish(mut self) -> ReceivedAnswer {
        let last = self.thoughts.finish();
        self.emit(last);
        self.release_held();
        self.deltas.send(&self.pieces.finish());
        if self.reader.structured {
            self.found.content = thoughts::before_structure(&self.raw).into_owned();
        }
        let refusal = self.found.refusal.map(|refusal| self.masker.mask(&refusal));
        ReceivedAnswer { calls: self.calls.finish(), thoughts: self.thoughts, refusal, ..self.found }
    }
}

/// The fault for an error event. Its code decides whether a retry may help.
fn error_event_fault(error: &Value, data: &str) -> HttpFault {
    let problem = format!("the server ended the stream with an error: {}", message_of(data));
    let code = error["code"].as_u64().or(error["status"].as_u64()).unwrap_or_default();
    if (400..500).contains(&code) && !matches!(code, 408 | 429) {
        HttpFault::permanent(problem)
    } else {
        HttpFault::transient(problem)
    }
}
