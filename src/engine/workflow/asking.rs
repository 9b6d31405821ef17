//! Asking the user in the middle of a flow. The flow stays where it asks, its turn ends with the question, and the turn of the
//! next message repeats it over its journal: the question is answered then, and it goes on.

use crate::journal::{Done, Durability, Journal, JournalError, Label, StepError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use types::agent::bare;
use types::canonical;

/// What a flow asks the user: a text, or more.
///
/// ```
/// use std::time::Duration;
/// use turnwheel::workflow::Question;
///
/// let question = Question::new("哪个订单？").choices(["A1001", "A1002"]).within(Duration::from_secs(3600));
/// assert_eq!(Question::from("哪个订单？").text, question.text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// What the user reads.
    pub text: String,
    /// Answers that a channel may show as buttons: the reply has them as `metadata.choices`. Another answer is taken as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// How long it waits, in milliseconds; the agent's `flow_timeout` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl Question {
    /// A question that waits as long as the agent says.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), choices: Vec::new(), timeout_ms: None }
    }

    /// The same, with answers to choose from. An answer that says one of them is answered in these words.
    #[must_use]
    pub fn choices<T: Into<String>>(self, choices: impl IntoIterator<Item = T>) -> Self {
        Self { choices: choices.into_iter().map(Into::into).collect(), ..self }
    }

    /// The same, forgotten when no answer has come by then. No question waits longer than the setting retention.turns
    /// keeps the steps of its flow.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout_ms: Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)), ..self }
    }

    /// The choice that `answer` says, else the answer as it is.
    fn chosen(&self, answer: &str) -> String {
        choice(&self.choices, answer).unwrap_or(answer).to_owned()
    }
}

impl From<&str> for Question {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Question {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// The one of `choices` that `answer` says, whatever its case and punctuation.
pub(crate) fn choice<'c>(choices: &'c [String], answer: &str) -> Option<&'c str> {
    let said = bare(answer);
    let says = |choice: &&String| choice.trim() == answer.trim() || (!said.is_empty() && bare(choice) == said);
    choices.iter().find(says).map(String::as_str)
}

/// What the user has said to a question of an earlier turn.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The question's key in the journal of the flow.
    pub(crate) key: String,
    pub(crate) question: Question,
    pub(crate) text: String,
}

/// Whom a flow may ask.
enum Hearer {
    /// The user of the session; who may have answered a question.
    User(Option<Reply>),
    /// The flow belongs to no conversation.
    Nobody,
    /// It is only looked at.
    Onlooker,
}

#[derive(Default)]
struct State {
    /// Questions asked so far, by part of the journal.
    counts: HashMap<String, u32>,
    /// Keys of those that wait.
    waiting: Vec<String>,
    /// The one that the user is asked: the first of them.
    asked: Option<(String, Question)>,
    /// The reply has met its question.
    answered: bool,
}

/// The questions of one flow or run in one turn.
pub struct Asking {
    hearer: Hearer,
    state: Mutex<State>,
    asked: Notify,
}

/// What becomes of a question.
pub(crate) enum Heard {
    /// It is answered, now or in an earlier turn: see [`Asking::answer`].
    Answered,
    /// It waits; true for the one that the user is asked.
    Waits(bool),
    /// Nobody is there to answer.
    Nobody,
}

impl Asking {
    /// For a flow of a session's turn, with what the user has said if an earlier turn asked.
    pub(crate) fn user(reply: Option<Reply>) -> Self {
        Self::of(Hearer::User(reply))
    }

    /// For a run that belongs to no conversation.
    pub fn nobody() -> Self {
        Self::of(Hearer::Nobody)
    }

    /// For a run that is only looked at.
    pub(crate) fn onlooker() -> Self {
        Self::of(Hearer::Onlooker)
    }

    fn of(hearer: Hearer) -> Self {
        Self { hearer, state: Mutex::default(), asked: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of the next question in this part of the journal.
    pub(crate) fn next(&self, journal: &Journal) -> String {
        let mut state = self.state();
        let count = state.counts.entry(journal.full_key("")).or_default();
        *count += 1;
        format!("ask[{count}]")
    }

    /// Whether a question has its answer; one that has none is noted.
    pub(crate) fn hear(&self, journal: &Journal, key: &str, question: &Question) -> Result<Heard, JournalError> {
        let full_key = journal.full_key(key);
        if let Some(reply) = self.reply(&full_key) {
            if reply.question.text != question.text {
                return Err(changed(journal, full_key, (&reply.question, question)));
            }
            self.state().answered = true;
            return Ok(Heard::Answered);
        }
        if journal.is_recorded(key) {
            return Ok(Heard::Answered);
        }
        match self.hearer {
            Hearer::Nobody => Ok(Heard::Nobody),
            Hearer::Onlooker => Err(JournalError::Lost),
            Hearer::User(_) => Ok(Heard::Waits(self.wait(full_key, question))),
        }
    }

    fn reply(&self, full_key: &str) -> Option<&Reply> {
        match &self.hearer {
            Hearer::User(reply) => reply.as_ref().filter(|reply| reply.key == full_key),
            Hearer::Nobody | Hearer::Onlooker => None,
        }
    }

    fn wait(&self, full_key: String, question: &Question) -> bool {
        let mut state = self.state();
        let first = state.asked.is_none();
        if first {
            state.asked = Some((full_key.clone(), question.clone()));
        }
        state.waiting.push(full_key);
        drop(state);
        self.asked.notify_one();
        first
    }

    /// The answer, as a step of the flow.
    pub(crate) async fn answer(
        &self,
        journal: &Journal,
        key: &str,
        question: &Question,
    ) -> Result<String, JournalError> {
        let reply = self.reply(&journal.full_key(key));
        let said = reply.map(|reply| question.chosen(&reply.text)).unwrap_or_default();
        let label = Label { kind: "ask", target: key };
        let step = journal.step(key, label, Durability::OnReturn, &question.text, |_| async { Ok::<_, Infallible>(Done::ok(said)) });
        match step.await {
            Ok(stepped) => Ok(stepped.output),
            Err(StepError::Journal(error)) => Err(error),
            Err(StepError::Operation(never)) => match never {},
        }
    }

    /// The answer to a question; `None` when nobody is there to ask. It does not return while the user has not answered.
    pub(crate) async fn ask(&self, journal: &Journal, question: Question) -> Result<Option<String>, JournalError> {
        let key = self.next(journal);
        match self.hear(journal, &key, &question)? {
            Heard::Answered => self.answer(journal, &key, &question).await.map(Some),
            Heard::Waits(_) => pending().await,
            Heard::Nobody => Ok(None),
        }
    }

    /// Returns when a question waits, and all else that was under way in `journal` has come to its end, but for the `outer`
    /// steps that were so before the flow began.
    pub(crate) async fn left(&self, journal: &Journal, outer: usize) {
        while self.state().asked.is_none() {
            self.asked.notified().await;
        }
        journal.idle(outer).await;
    }

    /// What the user is asked, and its key.
    pub(crate) fn question(&self) -> Option<(String, Question)> {
        self.state().asked.clone()
    }

    /// True when a question waits in the part of the flow whose keys begin so.
    pub(crate) fn waits_within(&self, journal: &Journal) -> bool {
        let prefix = journal.full_key("");
        self.state().waiting.iter().any(|key| key.starts_with(&prefix))
    }

    /// An error when the user has answered a question that was not asked again: the flow is another one by now.
    pub(crate) fn check(&self, journal: &Journal) -> Result<(), JournalError> {
        match &self.hearer {
            Hearer::User(Some(reply)) if !self.state().answered => {
                Err(changed(journal, reply.key.clone(), (&reply.question, &Question::new(""))))
            }
            _ => Ok(()),
        }
    }
}

fn changed(journal: &Journal, key: String, (recorded, asked): (&Question, &Question)) -> JournalError {
    let hash = |question: &Question| canonical::hash(&json!(question.text));
    JournalError::Mismatch { turn_id: journal.turn_id().to_owned(), key, recorded: hash(recorded), asked: hash(asked) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_a_choice_is_that_choice() {
        let question = Question::new("继续吗？").choices(["Yes, go on", "取消", "👍"]);
        for (said, chosen) in
            [(" yes go on!", "Yes, go on"), ("取消。", "取消"), ("👍", "👍"), ("也许吧", "也许吧"), ("", "")]
        {
            assert_eq!(question.chosen(said), chosen, "{said}");
        }
    }
}
