//! Asking the user in the middle of a run: it waits for the next message of its session, and goes on with it.

use super::event::{RunEventType, Snapshot};
use super::failure::Failure;
use super::part::{Part, Told};
use crate::journal::{Journal, JournalError};
use crate::workflow::Question;
use crate::workflow::asking::Heard;
use serde_json::{Value, json};
use std::future::pending;

/// What comes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What the user has said.
    Answer(String),
    /// The run belongs to no conversation.
    Nobody,
}

impl Part {
    /// Asks the user of the conversation that the run is a part of. While they have not answered, this does not return:
    /// what runs beside it comes to its end, then the run waits for the next message.
    pub async fn ask(&self, question: impl Into<Question>) -> Result<Asked, Failure> {
        let question = question.into();
        if question.text.trim().is_empty() {
            return Err(Failure::of(self, "it asks its user an empty question"));
        }
        let answer = self.question(&self.journal(), question).await?;
        Ok(answer.map_or(Asked::Nobody, Asked::Answer))
    }

    /// The answer to a question of this part, `None` when nobody is there to ask; with the events of both.
    pub(crate) async fn question(&self, journal: &Journal, question: Question) -> Result<Option<String>, JournalError> {
        let asking = &self.run().asking;
        let key = asking.next(journal);
        match asking.hear(journal, &key, &question)? {
            Heard::Nobody => Ok(None),
            Heard::Waits(asked) => {
                if asked {
                    self.tell_question(&key, &question);
                }
                pending().await
            }
            Heard::Answered => {
                let answer = asking.answer(journal, &key, &question).await?;
                self.tell_question(&key, &question);
                self.tell(RunEventType::StepCompleted, said(key, "user", &answer));
                Ok(Some(answer))
            }
        }
    }

    fn tell_question(&self, key: &str, question: &Question) {
        let mut told = said(format!("{key}/question"), "assistant", &question.text);
        let mut data = serde_json::Map::from_iter([("awaits".to_owned(), Value::from("answer"))]);
        if !question.choices.is_empty() {
            data.insert("choices".into(), json!(question.choices));
        }
        told.data = Some(data);
        self.tell(RunEventType::StepCompleted, told);
    }
}

fn said(step: String, role: &str, text: &str) -> Told {
    let snapshot = Snapshot { role: role.to_owned(), content: text.to_owned(), tool_calls: None };
    Told { step: Some(step), snapshot: Some(snapshot), ..Told::default() }
}
