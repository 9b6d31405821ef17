//! Flows that wait for the user's answer: how the session stores one, how the answer continues it, and how it ends
//! without an answer.
//!
//! The steps of a flow stay in the journal of the turn that started it. The turn with the answer opens that journal,
//! so no recorded step runs again and every idempotency key stays the same.

use super::handoff::TIMEOUT_INDEX;
use super::state::Turn;
use crate::execution::{CancelReason, TurnError};
use crate::journal::{Done, Durability, Journal, Label, StepError};
use crate::prompt::is_chinese;
use crate::run::{self, FLOW_LEFT, FLOW_UNANSWERED, SuspendedRun};
use crate::workflow::Question;
use crate::workflow::asking::{self, Asking};
use base::http_client::bounded;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::{Change, TimerChange};
use tracing::{info, warn};
use types::action::{Action, ActionKind};
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::session::{Status, Waiting};
use types::timer::{NewTimer, timer_id};
use types::timestamp::Timestamp;

/// Name of the timer that ends the wait for an answer.
pub(super) const FLOW_TIMEOUT: &str = "flow_timeout";

/// Limit in bytes on a question in the session document. The flow's steps have the whole text.
const MAX_QUESTION: usize = 4 * 1024;

/// A call of a flow: its first one, or one that continues it after an answer.
pub(super) struct FlowCall {
    pub(super) action: Action,
    pub(super) input: String,
    /// The turn that started the flow.
    pub(super) turn_id: String,
    /// Prefix of the flow's keys in that turn's journal.
    pub(super) prefix: String,
    pub(super) journal: Journal,
    pub(super) asking: Arc<Asking>,
    /// Number of questions that the flow has asked in earlier turns.
    pub(super) asked: u32,
    pub(super) began_at: Timestamp,
    pub(super) before: SuspendedRun,
    /// Key of this call in the current turn's journal.
    pub(super) key: String,
}

/// How a call of a flow ends.
pub(super) enum FlowEnd {
    /// The flow has completed with this final text.
    Said(String),
    /// The flow waits for the user's answer.
    Asks(Box<FlowQuestion>),
    /// The flow has failed. The model reads this error.
    Failed(String),
}

/// A question for the user, and the session's record of the flow that asks it.
pub(super) struct FlowQuestion {
    question: Question,
    waiting: Waiting,
}

/// Output of the step that a flow records when it starts to wait. It has everything that is needed to call the flow
/// again.
#[derive(Serialize, Deserialize)]
struct SuspendedFlow {
    /// Key of the question in the journal.
    key: String,
    question: Question,
    input: String,
    params: Map<String, Value>,
    #[serde(flatten)]
    suspended: SuspendedRun,
}

/// Key of the [`SuspendedFlow`] step in the flow's part of the journal.
fn suspended_key(asked: u32) -> String {
    format!("asked[{asked}]")
}

impl Turn<'_> {
    /// Records that the flow of `call` waits for an answer. Durable on return.
    pub(super) async fn suspend_flow(
        &mut self,
        call: FlowCall,
        suspended: SuspendedRun,
        run_id: Option<String>,
    ) -> Result<FlowEnd, TurnError> {
        let gone = || TurnError::Failed("the flow waits for an answer, but it has not asked a question".into());
        let (key, question) = call.asking.question().ok_or_else(gone)?;
        let asked = call.asked + 1;
        let Action { target: flow, params, .. } = call.action;
        let paused = SuspendedFlow { key, question, input: call.input, params, suspended };
        let label = Label { kind: "asked", target: &flow };
        let journal = call.journal.scope(&call.prefix);
        // Concurrent branches may each have a question. The one recorded first is put to the user.
        let key_of_step = suspended_key(asked);
        let step = journal.step(&key_of_step, label, Durability::OnReturn, &asked, |_| async {
            Ok::<_, Infallible>(Done::ok(paused))
        });
        let SuspendedFlow { question, .. } = match Box::pin(step).await {
            Ok(stepped) => stepped.output,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(never)) => match never {},
        };
        let asked_at = self.services.clock.now();
        let waiting = Waiting {
            agent_id: self.agent.config.id.clone(),
            turn_id: call.turn_id,
            prefix: call.prefix,
            asked,
            question: bounded(&question.text, MAX_QUESTION),
            choices: question.choices.clone(),
            run_id,
            began_at: call.began_at,
            asked_at,
            until: self.wait_ends_at(&flow, &question, call.began_at, asked_at),
            flow,
        };
        Ok(FlowEnd::Asks(Box::new(FlowQuestion { question, waiting })))
    }

    /// Returns the end of the wait for an answer. It lies before the end of the retention of the flow's steps.
    fn wait_ends_at(&self, flow: &str, question: &Question, began_at: Timestamp, asked_at: Timestamp) -> Timestamp {
        let keep = self.services.keep_turns;
        // The flow still needs its steps for some time after the answer: a tenth of the retention, at most one hour.
        let kept = began_at.plus(keep.saturating_sub((keep / 10).min(Duration::from_secs(3600))));
        let wanted = question.timeout_ms.map_or(self.agent.config.flow_timeout(), Duration::from_millis);
        let until = asked_at.plus(wanted);
        if until > kept {
            warn!(flow, %kept, "the wait for the answer is limited by `retention.turns`; raise the setting");
        }
        until.min(kept)
    }

    /// Queues the question as a reply, and marks the session as waiting for the answer.
    pub(super) fn ask_user(&mut self, key: &str, asks: FlowQuestion) {
        let FlowQuestion { question, waiting } = asks;
        let mut metadata = Map::from_iter([
            ("awaits".to_owned(), Value::from("answer")),
            ("flow".to_owned(), Value::from(waiting.flow.as_str())),
        ]);
        if !question.choices.is_empty() {
            metadata.insert("choices".into(), json!(question.choices));
        }
        self.reply_with(ReplyKind::Final, key, &question.text, metadata);
        self.session.waiting = Some(Box::new(waiting));
    }

    /// Returns the timer that abandons the flow at the end of the wait.
    pub(super) fn flow_timer(&self, waiting: &Waiting) -> NewTimer {
        NewTimer {
            timer_id: timer_id(&self.session.session_id, self.turn_id(), TIMEOUT_INDEX),
            name: FLOW_TIMEOUT.to_owned(),
            delay: waiting.asked_at.until(waiting.until).max(Duration::from_millis(1)),
            action: None,
            message: None,
            traceparent: None,
        }
    }

    /// Handles a user's message while a flow waits. It is the flow's answer, unless it is too late, goes to another
    /// agent, or is a cancel word.
    pub(super) async fn answer_flow(mut self: Box<Self>, waiting: Box<Waiting>) -> Result<Change, TurnError> {
        let late = self.started_at() > waiting.until;
        if late || waiting.agent_id != self.agent.config.id {
            let why = if late { "the answer came too late" } else { "a message is for another agent" };
            self.session.waiting = Some(waiting);
            self.leave_flow(&CancelReason::new(if late { FLOW_UNANSWERED } else { FLOW_LEFT }, why)).await?;
            return self.converse().await;
        }
        if self.is_cancel_word(&waiting) {
            return self.leave_by_cancel_word(waiting).await;
        }
        self.transition(Status::Processing);
        match Box::pin(self.continue_flow(&waiting)).await {
            Ok(FlowEnd::Said(text)) => {
                self.reply(ReplyKind::Final, "flow/final", &text);
                self.finish_flow_turn(TimerChange::Replace(Vec::new()))
            }
            Ok(FlowEnd::Asks(asks)) => {
                let timer = self.flow_timer(&asks.waiting);
                self.ask_user("flow/final", *asks);
                self.finish_flow_turn(TimerChange::Replace(vec![timer]))
            }
            Ok(FlowEnd::Failed(error)) => {
                self.initial_results.push(Arc::new((waiting.flow, json!({ "ok": false, "error": error }))));
                self.converse().await
            }
            Err(TurnError::Replay(problem)) => self.abandon_lost_flow(waiting, problem.to_string()).await,
            Err(error) => Err(error),
        }
    }

    fn finish_flow_turn(mut self: Box<Self>, timers: TimerChange) -> Result<Change, TurnError> {
        self.transition(Status::Ready);
        self.finish(Outcome::Flow, timers)
    }

    /// Calls the flow again with its journal and the answer. Returns [`TurnError::Replay`] if the flow or its steps
    /// no longer exist, or if the flow has changed.
    async fn continue_flow(&mut self, waiting: &Waiting) -> Result<FlowEnd, TurnError> {
        let gone = |problem: String| TurnError::Replay(problem.into());
        let flow = &waiting.flow;
        if let Some(problem) = self.lost(waiting) {
            return Err(gone(problem));
        }
        let journal = self.journal.resume_from(&waiting.turn_id).await?;
        let key = format!("{}/{}", waiting.prefix, suspended_key(waiting.asked));
        let mut steps = journal.recorded();
        let paused = steps.iter().find(|step| step.key == key).cloned();
        // Steps recorded after the question belong to an earlier attempt of the current turn, so they count for it.
        steps.retain(|step| paused.as_ref().is_some_and(|paused| step.at > paused.at));
        journal.count(&steps);
        let paused = paused.and_then(|step| serde_json::from_value::<SuspendedFlow>(step.output).ok());
        let Some(SuspendedFlow { key, question, input, params, suspended }) = paused else {
            return Err(gone("the flow's steps are no longer stored; raise the setting retention.turns".to_owned()));
        };
        let label = Label { kind: "answer", target: flow };
        let answers = Done::ok(json!({"turn_id": waiting.turn_id, "key": key}));
        self.journal.note("flow/answer", label, &waiting.turn_id, answers, 0);
        let reply = asking::UserAnswer { key, question, text: self.message_text() };
        let call = FlowCall {
            action: Action { kind: ActionKind::Flow, target: flow.clone(), params },
            input,
            turn_id: waiting.turn_id.clone(),
            prefix: waiting.prefix.clone(),
            journal,
            asking: Arc::new(Asking::for_user(Some(reply))),
            asked: waiting.asked,
            began_at: waiting.began_at,
            before: suspended,
            key: "flow".to_owned(),
        };
        Box::pin(self.call_flow(call)).await
    }

    /// Returns the problem if the agent or this worker no longer has the flow that asked.
    fn lost(&self, waiting: &Waiting) -> Option<String> {
        let (flow, config) = (&waiting.flow, &self.agent.config);
        if !config.flows.contains(flow) {
            return Some(format!("agent `{}` no longer has the flow `{flow}`", config.id));
        }
        match (self.services.flows.get(flow), &waiting.run_id) {
            (Some(_), Some(_)) => Some(format!(
                "the workflow `{flow}` asked the question, and this worker has a registered flow of that name now"
            )),
            (None, None) => Some(format!(
                "no flow `{flow}` is registered on this worker; register it in the program of every worker"
            )),
            _ => None,
        }
    }

    /// True if the last message is one of the agent's cancel words, and not a choice of the question.
    fn is_cancel_word(&self, waiting: &Waiting) -> bool {
        let last = self.messages().last().map(|message| message.text.as_str()).unwrap_or_default();
        self.agent.config.is_cancel_word(last) && asking::choice(&waiting.choices, last).is_none()
    }

    /// Abandons the flow because the user has sent a cancel word.
    async fn leave_by_cancel_word(mut self: Box<Self>, waiting: Box<Waiting>) -> Result<Change, TurnError> {
        let metadata = Map::from_iter([("flow".to_owned(), Value::from(waiting.flow.as_str()))]);
        self.session.waiting = Some(waiting);
        self.leave_flow(&CancelReason::new(FLOW_LEFT, "the user sent a cancel word")).await?;
        self.transition(Status::Processing);
        let text = self.small_talk("flow_left", self.speaks_chinese());
        self.reply_with(ReplyKind::Final, "flow/left", &text, metadata);
        self.finish_flow_turn(TimerChange::Replace(Vec::new()))
    }

    /// Abandons a flow that cannot continue: apologises to the user, then handles the message like any other.
    async fn abandon_lost_flow(
        mut self: Box<Self>,
        waiting: Box<Waiting>,
        problem: String,
    ) -> Result<Change, TurnError> {
        let (session_id, flow) = (&self.session.session_id, &waiting.flow);
        warn!(%session_id, flow, turn_id = waiting.turn_id, "the waiting flow cannot continue: {problem}");
        // The question decides the language: an answer such as an order number has none.
        let text = self.small_talk("flow_lost", is_chinese(&waiting.question));
        self.session.waiting = Some(waiting);
        self.leave_flow(&CancelReason::new("replay", problem)).await?;
        self.reply(ReplyKind::Apology, "flow/lost", &text);
        self.converse().await
    }

    /// Abandons the flow because the timeout has passed, without a reply to the user.
    pub(super) async fn time_out_flow(mut self: Box<Self>) -> Result<Change, TurnError> {
        self.leave_flow(&CancelReason::new(FLOW_UNANSWERED, "no answer before the timeout")).await?;
        self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()))
    }

    /// Abandons the waiting flow and ends its run, or drops the suspended task. Does nothing if no question waits.
    pub(super) async fn leave_flow(&mut self, reason: &CancelReason) -> Result<(), TurnError> {
        self.session.task = None;
        let Some(waiting) = self.session.waiting.take() else { return Ok(()) };
        info!(session_id = %self.session.session_id, flow = waiting.flow, %reason, "waiting flow abandoned");
        if let Some(run_id) = &waiting.run_id {
            let events = run::abandon_run(self.services, run_id, self.session.epoch, reason).await?;
            self.outbox.extend(events);
        }
        Ok(())
    }

    pub(super) fn small_talk(&self, prompt: &str, chinese: bool) -> String {
        let rendered = self.services.prompts.render(prompt, &json!({ "chinese": chinese }));
        rendered.map_or_else(|_| "好的，我们继续。".to_owned(), |text| text.trim().to_owned())
    }
}
