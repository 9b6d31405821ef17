//! The suspended task: a question to the user, and the user's message that continues it.

use super::Round;
use crate::execution::TurnError;
use crate::turn::handoff::TIMEOUT_INDEX;
use crate::turn::iterate::LoopState;
use crate::turn::pending_flow::FLOW_TIMEOUT;
use crate::turn::state::Turn;
use crate::workflow::asking;
use base::http_client::bounded;
use decisions::payload::Clarification;
use serde_json::{Map, Value, json};
use std::time::Duration;
use storage::store::records::{Change, TimerChange};
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::session::{Status, Task};
use types::timer::{NewTimer, timer_id};

/// Limit in bytes on a question in the session document.
const MAX_QUESTION: usize = 4 * 1024;
/// Limit in bytes on the context, the results and the postponed decisions of a task. The turn's steps have all of them.
const MAX_KEPT: usize = 64 * 1024;

impl Turn<'_> {
    /// Queues the question as a reply, and suspends the task until the user's next message.
    pub(super) fn suspend_task(
        &mut self,
        iteration: u32,
        state: &LoopState,
        round: &mut Round,
        clarification: Clarification,
    ) {
        let Clarification { question, options, required_fields, context } = clarification;
        let mut metadata = Map::from_iter([("awaits".to_owned(), Value::from("answer"))]);
        let options = options.unwrap_or_default();
        if !options.is_empty() {
            metadata.insert("choices".into(), json!(options));
        }
        if !required_fields.is_empty() {
            metadata.insert("required_fields".into(), json!(required_fields));
        }
        self.transition(Status::Typing);
        self.reply_with(ReplyKind::Response, &format!("{iteration}/respond"), &question, metadata);
        let mut room = MAX_KEPT;
        let asked_at = self.services.clock.now();
        self.session.task = Some(Box::new(Task {
            agent_id: self.agent.config.id.clone(),
            turn_id: self.turn_id().to_owned(),
            question: bounded(&question, MAX_QUESTION),
            options,
            required_fields,
            context: context.filter(|context| fits(&json!(context), &mut room)).unwrap_or_default(),
            blocked: kept(round.queue.drain(..).map(|decision| json!(decision)), &mut room),
            results: kept(state.results.iter().map(|named| json!({"name": named.0, "result": named.1})), &mut room),
            asked_at,
            until: asked_at.plus(self.agent.config.flow_timeout()),
        }));
    }

    /// The timer that drops the task at the end of the wait.
    pub(in crate::turn) fn task_timer(&self, task: &Task) -> NewTimer {
        NewTimer {
            timer_id: timer_id(&self.session.session_id, self.turn_id(), TIMEOUT_INDEX),
            name: FLOW_TIMEOUT.to_owned(),
            delay: task.asked_at.until(task.until).max(Duration::from_millis(1)),
            action: None,
            message: None,
            traceparent: None,
        }
    }

    /// Handles a user's message while a task is suspended. The message continues the task, unless it is too late, goes
    /// to another agent, or is a cancel word.
    pub(in crate::turn) async fn answer_task(mut self: Box<Self>, task: Box<Task>) -> Result<Change, TurnError> {
        if self.started_at() > task.until || task.agent_id != self.agent.config.id {
            return self.converse().await;
        }
        let last = self.messages().last().map(|message| message.text.as_str()).unwrap_or_default();
        if self.agent.config.is_cancel_word(last) && asking::choice(&task.options, last).is_none() {
            return self.leave_task();
        }
        self.task = Some(task);
        self.converse().await
    }

    fn leave_task(mut self: Box<Self>) -> Result<Change, TurnError> {
        self.transition(Status::Processing);
        let text = self.small_talk("flow_left", self.speaks_chinese());
        self.reply(ReplyKind::Final, "task/left", &text);
        self.transition(Status::Ready);
        self.finish(Outcome::Answered, TimerChange::Replace(Vec::new()))
    }
}

/// True if there is room for the value, which is then used up.
fn fits(value: &Value, room: &mut usize) -> bool {
    let bytes = value.to_string().len();
    let fits = bytes <= *room;
    if fits {
        *room -= bytes;
    }
    fits
}

fn kept(values: impl Iterator<Item = Value>, room: &mut usize) -> Vec<Value> {
    values.filter(|value| fits(value, room)).collect()
}
