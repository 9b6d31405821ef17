//! Questions from a flow to its user.
//!
//! A flow that asks does not continue in its turn: the turn ends with the question. The turn of the user's next
//! message runs the flow again with its journal. Then the question has its answer, and the flow continues.

use crate::journal::{Done, Durability, Journal, JournalError, Label, StepError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use types::agent::normalized;
use types::canonical;

/// A question to the user: a text, with optional choices and a timeout.
///
/// ```
/// use std::time::Duration;
/// # extern crate turnwheel_engine as turnwheel;
/// use turnwheel::workflow::Question;
///
/// let question = Question::new("哪个订单？").choices(["A1001", "A1002"]).within(Duration::from_secs(3600));
/// assert_eq!(Question::from("哪个订单？").text, question.text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Text that the user reads.
    pub text: String,
    /// Answers that a channel may show as buttons, in the reply's `metadata.choices`. Any other answer is accepted,
    /// too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// How long to wait for the answer, in milliseconds. By default the agent's `flow_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl Question {
    /// Creates a question without choices and with the agent's `flow_timeout`.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), choices: Vec::new(), timeout_ms: None }
    }

    /// Adds choices. An answer that equals a choice, apart from case and punctuation, is returned in the words of
    /// that choice.
    #[must_use]
    pub fn choices<T: Into<String>>(self, choices: impl IntoIterator<Item = T>) -> Self {
        Self { choices: choices.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the timeout, after which the flow is abandoned. A question never waits longer than the setting
    /// `retention.turns` keeps the steps of its flow.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout_ms: Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)), ..self }
    }

    /// Returns the choice that equals `answer`, else the answer itself.
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

/// Returns the choice that equals `answer`, apart from case and punctuation.
pub(crate) fn choice<'c>(choices: &'c [String], answer: &str) -> Option<&'c str> {
    let said = normalized(answer);
    let says = |choice: &&String| choice.trim() == answer.trim() || (!said.is_empty() && normalized(choice) == said);
    choices.iter().find(says).map(String::as_str)
}

/// The user's answer to a question of an earlier turn.
#[derive(Clone, Debug)]
pub(crate) struct UserAnswer {
    /// Key of the question in the flow's journal.
    pub(crate) key: String,
    pub(crate) question: Question,
    pub(crate) text: String,
}

/// Who receives a flow's questions.
enum Recipient {
    /// The session's user, with their answer if an earlier turn has asked.
    User(Option<UserAnswer>),
    /// The people who follow a run in a lane of its own. Only its ASK nodes ask.
    Followers(LaneJob),
    /// The flow belongs to no conversation.
    Nobody,
    /// The flow is only replayed for a timeline.
    Onlooker,
}

/// The job for which a turn of a run in a lane of its own runs, as its questions see it.
#[derive(Clone, Debug, Default)]
pub(crate) enum LaneJob {
    /// The run starts, or its turn is repeated.
    #[default]
    Start,
    /// A timer is due. The time for an answer may be over.
    Timer,
    /// An answer to the question with this key in the run's journal.
    Answer {
        /// The key.
        key: String,
        /// The text.
        text: String,
    },
}

#[derive(Default)]
struct AskingState {
    /// Number of questions asked so far, by part of the journal.
    counts: HashMap<String, u32>,
    /// Keys of the questions that wait for an answer.
    waiting: Vec<String>,
    /// The question that is put to the user: the first of the waiting ones.
    asked: Option<(String, Question)>,
    /// True once the flow has asked the question to which the reply belongs.
    answered: bool,
}

/// Questions of one flow or run in one turn.
pub struct Asking {
    recipient: Recipient,
    state: Mutex<AskingState>,
    asked: Notify,
}

/// State of a question.
pub(crate) enum QuestionState {
    /// The question has an answer, from this turn or an earlier one. [`Asking::answer`] returns it.
    Answered,
    /// The question waits for an answer. True if it is the one that is put to the user.
    Waits(bool),
    /// The flow belongs to no conversation.
    Nobody,
}

impl Asking {
    /// For a flow of a session's turn, with the user's answer if an earlier turn has asked.
    pub(crate) fn for_user(reply: Option<UserAnswer>) -> Self {
        Self::new(Recipient::User(reply))
    }

    /// For a turn of a run in a lane of its own.
    pub(crate) fn for_followers(job: LaneJob) -> Self {
        Self::new(Recipient::Followers(job))
    }

    /// For a run that belongs to no conversation.
    pub(crate) fn without_user() -> Self {
        Self::new(Recipient::Nobody)
    }

    /// For a run that is only replayed for a timeline.
    pub(crate) fn for_replay() -> Self {
        Self::new(Recipient::Onlooker)
    }

    fn new(recipient: Recipient) -> Self {
        Self { recipient, state: Mutex::default(), asked: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, AskingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key of the next question in this part of the journal.
    pub(crate) fn next_key(&self, journal: &Journal) -> String {
        let mut state = self.state();
        let count = state.counts.entry(journal.full_key("")).or_default();
        *count += 1;
        format!("ask[{count}]")
    }

    /// Returns the state of a question. A question without an answer is registered as waiting.
    pub(crate) fn resolve(
        &self,
        journal: &Journal,
        key: &str,
        question: &Question,
    ) -> Result<QuestionState, JournalError> {
        let full_key = journal.full_key(key);
        if let Some(reply) = self.reply(&full_key) {
            if reply.question.text != question.text {
                return Err(changed(journal, full_key, &reply.question, question));
            }
            self.state().answered = true;
            return Ok(QuestionState::Answered);
        }
        if journal.is_recorded(key) {
            return Ok(QuestionState::Answered);
        }
        match self.recipient {
            Recipient::Nobody | Recipient::Followers(_) => Ok(QuestionState::Nobody),
            Recipient::Onlooker => Err(JournalError::Lost),
            Recipient::User(_) => Ok(QuestionState::Waits(self.wait(full_key, question))),
        }
    }

    fn reply(&self, full_key: &str) -> Option<&UserAnswer> {
        match &self.recipient {
            Recipient::User(reply) => reply.as_ref().filter(|reply| reply.key == full_key),
            Recipient::Followers(_) | Recipient::Nobody | Recipient::Onlooker => None,
        }
    }

    /// The job of this turn, for a run in a lane of its own.
    pub(crate) fn lane_job(&self) -> Option<&LaneJob> {
        match &self.recipient {
            Recipient::Followers(job) => Some(job),
            Recipient::User(_) | Recipient::Nobody | Recipient::Onlooker => None,
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

    /// Records the answer as a step of the flow and returns it. Durable on return.
    pub(crate) async fn answer(
        &self,
        journal: &Journal,
        key: &str,
        question: &Question,
    ) -> Result<String, JournalError> {
        let full_key = journal.full_key(key);
        let said = match &self.recipient {
            Recipient::Followers(LaneJob::Answer { key, text }) if *key == full_key => Some(text.as_str()),
            _ => self.reply(&full_key).map(|reply| reply.text.as_str()),
        };
        let said = said.map(|said| question.chosen(said)).unwrap_or_default();
        let label = Label { kind: "ask", target: key };
        let step = journal
            .step(key, label, Durability::OnReturn, &question.text, |_| async { Ok::<_, Infallible>(Done::ok(said)) });
        match step.await {
            Ok(stepped) => Ok(stepped.output),
            Err(StepError::Journal(error)) => Err(error),
            Err(StepError::Operation(never)) => match never {},
        }
    }

    /// Asks a question and returns the answer, or `None` if the flow belongs to no conversation. Does not return
    /// while the question waits for an answer.
    pub(crate) async fn ask(&self, journal: &Journal, question: Question) -> Result<Option<String>, JournalError> {
        let key = self.next_key(journal);
        match self.resolve(journal, &key, &question)? {
            QuestionState::Answered => self.answer(journal, &key, &question).await.map(Some),
            QuestionState::Waits(_) => pending().await,
            QuestionState::Nobody => Ok(None),
        }
    }

    /// Waits until a question waits for its answer and no more than `outer` steps of `journal` are in flight. `outer`
    /// is the number of steps that were in flight before the flow started.
    pub(crate) async fn wait_until_suspended(&self, journal: &Journal, outer: usize) {
        while self.state().asked.is_none() {
            self.asked.notified().await;
        }
        journal.wait_idle(outer).await;
    }

    /// Returns the question that is put to the user, with its key.
    pub(crate) fn question(&self) -> Option<(String, Question)> {
        self.state().asked.clone()
    }

    /// True if a question waits in this part of the journal.
    pub(crate) fn waits_within(&self, journal: &Journal) -> bool {
        let prefix = journal.full_key("");
        self.state().waiting.iter().any(|key| key.starts_with(&prefix))
    }

    /// Fails if the flow has not repeated the question that the user has answered, which means that the flow's code
    /// has changed.
    pub(crate) fn check_answered(&self, journal: &Journal) -> Result<(), JournalError> {
        match &self.recipient {
            Recipient::User(Some(reply)) if !self.state().answered => {
                Err(changed(journal, reply.key.clone(), &reply.question, &Question::new("")))
            }
            _ => Ok(()),
        }
    }
}

fn changed(journal: &Journal, key: String, recorded: &Question, asked: &Question) -> JournalError {
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
