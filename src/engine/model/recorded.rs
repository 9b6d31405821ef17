//! Model calls as steps of the journal, with model, tokens and attempts in their records. A failed call is recorded
//! like any other result, so that a turn which has continued without an answer does the same when it is repeated.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest, ModelToolCall, PromptMessage, kept_prompt};
use crate::journal::{Done, Durability, Journal, JournalError, Label, StepError, Stepped};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::sync::Arc;
use types::step::TokenUsage;

/// The recorded output: the answer, or the failure.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Outcome {
    Content(String),
    RecordedReply(RecordedReply),
    Failed(ModelError),
}

/// A model, or several of them, with the names in the settings.
#[derive(Clone, Copy)]
pub struct NamedModel<'m> {
    /// The names, as agents and stages list them.
    pub names: &'m str,
    /// The model.
    pub model: &'m dyn Model,
}

/// The answer of a model that may call tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedReply {
    /// The text. May be empty if there are calls.
    pub content: String,
    /// The tool calls that the model asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ModelToolCall>,
    /// Server-specific fields of an answer with tool calls. Recorded, so that a repeated run sends them back as well.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// Tokens used. Recorded here too, because a repeated run counts them against its limits.
    pub tokens: TokenUsage,
}

/// Calls `model` unless the step is recorded, and returns the text. Like [`ask_last`] for an answer that never ends the
/// turn.
pub async fn ask(
    journal: &Journal,
    key: &str,
    model: NamedModel<'_>,
    input: &(impl Serialize + ?Sized),
    request: ModelRequest,
) -> Result<Stepped<String>, StepError<ModelError>> {
    ask_last(journal, key, model, input, request, |_| false).await
}

/// Calls `model` unless the step is recorded, and returns the text. Of several models the record has the one that
/// answered. `input` is the data on which the prompt depends, not the rendered prompt, so that a prompt file may be
/// edited while turns are in flight. If `is_last` returns true for the answer, the commit writes its record
/// ([`Done::with_commit`]).
pub(crate) async fn ask_last(
    journal: &Journal,
    key: &str,
    model: NamedModel<'_>,
    input: &(impl Serialize + ?Sized),
    mut request: ModelRequest,
    is_last: impl FnOnce(&str) -> bool + Send,
) -> Result<Stepped<String>, StepError<ModelError>> {
    let (NamedModel { names, model }, sent) = (model, Arc::clone(&request.messages));
    let answer = |idempotency_key| async move {
        request.idempotency_key = idempotency_key;
        model.complete(request).await
    };
    record_text(journal, key, names, (input, sent.as_slice()), answer, is_last).await
}

/// Like [`ask_last`], but streams the answer to `deltas`. A recorded step streams nothing.
pub(crate) async fn stream_last(
    journal: &Journal,
    key: &str,
    model: NamedModel<'_>,
    input: &(impl Serialize + ?Sized),
    mut request: ModelRequest,
    deltas: DeltaSink,
    is_last: impl FnOnce(&str) -> bool + Send,
) -> Result<Stepped<String>, StepError<ModelError>> {
    let (NamedModel { names, model }, sent) = (model, Arc::clone(&request.messages));
    let answer = |idempotency_key| async move {
        request.idempotency_key = idempotency_key;
        model.stream(request, deltas).await
    };
    record_text(journal, key, names, (input, sent.as_slice()), answer, is_last).await
}

async fn record_text<Fut: Future<Output = Result<ModelReply, ModelError>>>(
    journal: &Journal,
    key: &str,
    target: &str,
    (input, sent): (&(impl Serialize + ?Sized), &[PromptMessage]),
    answer: impl FnOnce(String) -> Fut,
    is_last: impl FnOnce(&str) -> bool + Send,
) -> Result<Stepped<String>, StepError<ModelError>> {
    let label = Label { kind: "model", target };
    let step = journal.step(key, label, Durability::OnReturn, input, |idempotency_key| async move {
        let done = done(answer(idempotency_key).await, |reply| Outcome::Content(reply.content));
        let with_commit = matches!(&done.output, Outcome::Content(content) if is_last(content));
        Ok::<_, Infallible>(Done { with_commit, prompt: kept(journal, sent), ..done })
    });
    let text = recorded(step.await)?.try_map(|outcome| match outcome {
        Outcome::Content(content) | Outcome::RecordedReply(RecordedReply { content, .. }) => Ok(content),
        Outcome::Failed(error) => Err(error),
    });
    text.map_err(StepError::Operation)
}

/// Calls `model`, which may call tools, unless the step is recorded, and streams the answer to `deltas`. A recorded
/// step streams nothing. The answer can be used before its record is durable ([`Durability::Deferred`]).
pub(crate) async fn stream_with_tools(
    journal: &Journal,
    key: &str,
    model: NamedModel<'_>,
    input: &(impl Serialize + ?Sized),
    mut request: ModelRequest,
    deltas: DeltaSink,
) -> Result<Stepped<RecordedReply>, StepError<ModelError>> {
    let (NamedModel { names, model }, sent) = (model, Arc::clone(&request.messages));
    let answer = |idempotency_key| async move {
        request.idempotency_key = idempotency_key;
        model.stream(request, deltas).await
    };
    record_reply(journal, key, names, (input, sent.as_slice()), answer).await
}

/// Like [`stream_with_tools`], without streaming.
pub(crate) async fn ask_with_tools(
    journal: &Journal,
    key: &str,
    model: NamedModel<'_>,
    input: &(impl Serialize + ?Sized),
    mut request: ModelRequest,
) -> Result<Stepped<RecordedReply>, StepError<ModelError>> {
    let (NamedModel { names, model }, sent) = (model, Arc::clone(&request.messages));
    let answer = |idempotency_key| async move {
        request.idempotency_key = idempotency_key;
        model.complete(request).await
    };
    record_reply(journal, key, names, (input, sent.as_slice()), answer).await
}

async fn record_reply<Fut: Future<Output = Result<ModelReply, ModelError>>>(
    journal: &Journal,
    key: &str,
    target: &str,
    (input, sent): (&(impl Serialize + ?Sized), &[PromptMessage]),
    answer: impl FnOnce(String) -> Fut,
) -> Result<Stepped<RecordedReply>, StepError<ModelError>> {
    let label = Label { kind: "model", target };
    let step = journal.step(key, label, Durability::Deferred, input, |idempotency_key| async move {
        let spoken = |ModelReply { content, tool_calls, extra, tokens, .. }| {
            Outcome::RecordedReply(RecordedReply { content, tool_calls, extra, tokens })
        };
        let done = done(answer(idempotency_key).await, spoken);
        Ok::<_, Infallible>(Done { prompt: kept(journal, sent), ..done })
    });
    let reply = recorded(step.await)?.try_map(|outcome| match outcome {
        Outcome::RecordedReply(reply) => Ok(reply),
        Outcome::Content(content) => {
            Ok(RecordedReply { content, tool_calls: Vec::new(), extra: Map::new(), tokens: TokenUsage::default() })
        }
        Outcome::Failed(error) => Err(error),
    });
    reply.map_err(StepError::Operation)
}

/// The journal's view of an answer or a failure.
fn done(answer: Result<ModelReply, ModelError>, outcome: impl FnOnce(ModelReply) -> Outcome) -> Done<Outcome> {
    match answer {
        Ok(reply) => {
            let (tokens, attempts) = (Some(reply.tokens), Some(reply.attempts));
            let (target, charged, model) = (reply.name.clone(), reply.charged.clone(), Some(reply.model.clone()));
            Done { model, tokens, attempts, target, charged, ..Done::ok(outcome(reply)) }
        }
        Err(error) => Done { ok: false, ..Done::ok(Outcome::Failed(error)) },
    }
}

/// The prompt for the record, if the journal keeps prompts.
fn kept(journal: &Journal, sent: &[PromptMessage]) -> Option<Arc<[u8]>> {
    journal.prompt_mask().and_then(|mask| kept_prompt::encode(sent, &|text| mask(text)))
}

fn recorded<O>(step: Result<Stepped<O>, StepError<Infallible>>) -> Result<Stepped<O>, JournalError> {
    step.map_err(|error| match error {
        StepError::Journal(error) => error,
        StepError::Operation(never) => match never {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_read_as_they_were_recorded_also_those_of_plain_text() {
        let call = ModelToolCall::new("c1", "eta", "{}");
        let extra = Map::from_iter([("reasoning_content".to_owned(), json!("想"))]);
        let tokens = TokenUsage { prompt: 3, completion: 2 };
        let failed = ModelError::Refused { model: "m".into(), problem: "no".into() };
        for (outcome, record) in [
            (Outcome::Content("好".into()), json!("好")),
            (
                Outcome::RecordedReply(RecordedReply {
                    content: "好".into(),
                    tool_calls: Vec::new(),
                    extra: Map::new(),
                    tokens,
                }),
                json!({"content": "好", "tokens": {"prompt": 3, "completion": 2}}),
            ),
            (
                Outcome::RecordedReply(RecordedReply {
                    content: String::new(),
                    tool_calls: vec![call.clone()],
                    extra,
                    tokens,
                }),
                json!({"content": "", "tool_calls": [json!(call)], "extra": {"reasoning_content": "想"}, "tokens": {"prompt": 3, "completion": 2}}),
            ),
            (Outcome::Failed(failed), json!({"refused": {"model": "m", "problem": "no"}})),
        ] {
            assert_eq!(json!(outcome), record);
            assert_eq!(serde_json::from_value::<Outcome>(record).unwrap(), outcome);
        }
    }
}
