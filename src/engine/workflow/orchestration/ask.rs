//! Questions from a run to its user. The run waits for the next message of its session and continues with it.

use super::event::{RunEventType, Snapshot};
use super::failure::Failure;
use super::stage_context::{EventPayload, StageContext};
use crate::journal::{Journal, JournalError};
use crate::workflow::Question;
use crate::workflow::asking::QuestionState;
use serde_json::{Value, json};
use std::future::pending;

/// Result of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskOutcome {
    /// The user's answer.
    Answer(String),
    /// The run belongs to no conversation.
    Nobody,
}

impl StageContext {
    /// Asks the user of the run's conversation. Does not return while the question waits for an answer: concurrent
    /// branches complete, then the run waits for the session's next message.
    pub async fn ask(&self, question: impl Into<Question>) -> Result<AskOutcome, Failure> {
        let question = question.into();
        if question.text.trim().is_empty() {
            return Err(Failure::retryable(self, "the run asks its user an empty question"));
        }
        let answer = self.question(&self.journal(), question).await?;
        Ok(answer.map_or(AskOutcome::Nobody, AskOutcome::Answer))
    }

    /// Asks a question of this part and publishes the question and the answer as events. Returns `None` if the run
    /// belongs to no conversation.
    pub(crate) async fn question(&self, journal: &Journal, question: Question) -> Result<Option<String>, JournalError> {
        let asking = &self.run().asking;
        let key = asking.next_key(journal);
        match asking.resolve(journal, &key, &question)? {
            QuestionState::Nobody => Ok(None),
            QuestionState::Waits(asked) => {
                if asked {
                    self.emit_question(&key, &question);
                }
                pending().await
            }
            QuestionState::Answered => {
                let answer = asking.answer(journal, &key, &question).await?;
                self.emit_question(&key, &question);
                self.emit_answer(&key, &answer);
                Ok(Some(answer))
            }
        }
    }

    pub(super) fn emit_answer(&self, key: &str, answer: &str) {
        self.emit(RunEventType::StepCompleted, message_payload(key.to_owned(), "user", answer));
    }

    pub(super) fn emit_question(&self, key: &str, question: &Question) {
        let mut payload = message_payload(format!("{key}/question"), "assistant", &question.text);
        let mut data = serde_json::Map::from_iter([("awaits".to_owned(), Value::from("answer"))]);
        if !question.choices.is_empty() {
            data.insert("choices".into(), json!(question.choices));
        }
        payload.data = Some(data);
        self.emit(RunEventType::StepCompleted, payload);
    }
}

fn message_payload(step: String, role: &str, text: &str) -> EventPayload {
    let snapshot = Snapshot { role: role.to_owned(), content: text.to_owned(), tool_calls: None };
    EventPayload { step: Some(step), snapshot: Some(snapshot), ..EventPayload::default() }
}
