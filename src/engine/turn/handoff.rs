//! Handoff of the conversation to a human, and the turns while the human has it.

use super::interruption::Interruption;
use super::iterate::LoopEnd;
use super::state::{StepName, Turn};
use crate::action::ActionResult;
use crate::action::outcome::{self, CallLabels};
use crate::action::stand_in::HANDOFF_ID;
use crate::action::system::Operation;
use crate::execution::{CancelReason, TurnError};
use crate::journal::{Done, Durability, Label, StepError, Stepped};
use base::http_client::bounded;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::time::Instant;
use storage::store::records::{Change, TimerChange};
use tracing::warn;
use types::action::Action;
use types::agent::HandoffMode;
use types::event::{EventType, HandoffChange, HandoffEvent, ReplyKind};
use types::handoff::NAMELESS;
use types::job::JobBody;
use types::outcome::Outcome;
use types::session::{Entry, Handoff, Role, Status, transcript};
use types::timer::{NewTimer, timer_id};

/// Name of the timer that ends a handoff of the mode `hold`.
pub(super) const HANDOFF_TIMEOUT: &str = "handoff_timeout";

/// Limit in bytes on a summary. The session document stores it during the handoff.
pub(super) const MAX_SUMMARY: usize = 8 * 1024;

/// Journal key of a human's reply, the last part of its `reply_id`.
pub const HUMAN_REPLY: &str = "human";

/// Index in the timer id of [`HANDOFF_TIMEOUT`] and of a waiting flow's timeout. Follow-up timers count from 0.
pub(super) const TIMEOUT_INDEX: usize = usize::MAX;

/// How a turn ends a handoff.
#[derive(Default)]
pub(super) struct HandBack<'h> {
    /// Who hands the conversation back; `None` if no person does.
    pub(super) by: Option<&'h str>,
    /// A note for the agent's model.
    pub(super) note: Option<&'h str>,
}

impl Turn<'_> {
    /// Publishes the response, executes the decision's action if it is not the handoff itself, and calls the handoff
    /// endpoint.
    pub(super) async fn transfer(
        &mut self,
        iteration: u32,
        state: &mut super::iterate::LoopState,
        action: Option<Action>,
        response: Option<String>,
    ) -> Result<LoopEnd, Interruption> {
        self.transition(Status::Transferred);
        if let Some(text) = &response {
            self.reply(ReplyKind::Handoff, &format!("{iteration}/respond"), text);
        }
        self.settle().await?;
        let mut summary = String::new();
        if let Some(action) = action {
            summary = action.params.get("summary").and_then(Value::as_str).unwrap_or_default().to_owned();
            match Operation::from_action(&action) {
                Some(Operation::Handoff) => self.add_action(&action.target),
                // The handoff ends the turn, so the model never reads the result.
                _ => drop(self.execute(iteration, state, &action).await?),
            }
        }
        if summary.is_empty() {
            summary = self.summary();
        }
        summary = bounded(&summary, MAX_SUMMARY);
        self.post("handoff", "handoff", &summary).await?;
        let unread = u32::try_from(self.messages().count()).unwrap_or(u32::MAX);
        let begun = Handoff::begin(self.turn_id(), self.services.clock.now(), unread);
        self.session.handoff = Some(Handoff { summary, ..begun });
        Ok(LoopEnd::Transferred)
    }

    /// Ends the turn after a handoff. In the mode `hold` the session stays `transferred` until an operator releases
    /// it or the timer fires; in the mode `notify` it becomes `ready` immediately.
    pub(super) fn finish_transfer(mut self: Box<Self>) -> Result<Change, TurnError> {
        let timers = match self.agent.config.handoff.mode() {
            HandoffMode::Hold => {
                self.publish_handoff(HandoffChange::Opened, None);
                vec![self.handoff_timer()]
            }
            HandoffMode::Notify => {
                self.session.handoff = None;
                self.transition(Status::Ready);
                Vec::new()
            }
        };
        self.finish(Outcome::Transferred, TimerChange::Replace(timers))
    }

    /// The timer that ends the handoff.
    pub(super) fn handoff_timer(&self) -> NewTimer {
        NewTimer {
            timer_id: timer_id(&self.session.session_id, self.turn_id(), TIMEOUT_INDEX),
            name: HANDOFF_TIMEOUT.to_owned(),
            delay: self.agent.config.handoff.timeout(),
            action: None,
            message: None,
            traceparent: None,
        }
    }

    /// True if a message during a handoff goes to the human: a person has claimed the conversation or taken it over, or
    /// this turn's agent has handed it off in the mode `hold`. A message for another agent never does.
    pub(super) fn is_held(&self) -> bool {
        let hold = self.agent.config.handoff.mode() == HandoffMode::Hold;
        !self.moved && (hold || self.was_taken_over() || self.is_claimed())
    }

    fn was_taken_over(&self) -> bool {
        self.session.handoff.as_ref().is_some_and(|handoff| handoff.taken_over)
    }

    fn is_claimed(&self) -> bool {
        self.session.handoff.as_ref().is_some_and(|handoff| handoff.claim.is_some())
    }

    /// Handles a user's message during a handoff: forwards it to the service desk, without a reply from the agent. A
    /// conversation that a human took over was never announced to the desk, so its messages are not forwarded.
    pub(super) async fn forward(mut self: Box<Self>) -> Result<Change, TurnError> {
        let summary = self.session.handoff.as_ref().map(|handoff| handoff.summary.clone()).unwrap_or_default();
        let posted = if self.was_taken_over() { 0 } else { self.jobs.len() };
        for index in 0..posted {
            match self.post(&format!("forward[{index}]"), "message", &summary).await {
                Ok(()) => {}
                // The person who has the conversation reads the message, whether or not the desk has it.
                Err(Interruption::Cancel(problem)) if self.is_claimed() => {
                    warn!(session_id = %self.session.session_id, turn_id = self.turn_id(), %problem, "not forwarded");
                }
                Err(interruption) => return self.interrupted(interruption),
            }
        }
        let timers = self.message_waits();
        self.finish(Outcome::Transferred, timers)
    }

    /// Publishes a human's reply to the user, unless another person has the claim. It is published even if the
    /// conversation has been released in the meantime.
    pub(super) fn human_reply(mut self: Box<Self>, text: &str, by: Option<&str>) -> Result<Change, TurnError> {
        let name = by.unwrap_or(NAMELESS);
        if self.session.handoff.as_ref().is_some_and(|handoff| handoff.claim_of_another(name).is_some()) {
            self.publish_handoff(HandoffChange::ReplyRefused, Some(name));
            return self.finish_without_change();
        }
        let metadata: Map<String, Value> = by.map(|by| ("by".to_owned(), by.into())).into_iter().collect();
        self.queue_reply(ReplyKind::Handoff, HUMAN_REPLY, text, metadata.clone());
        self.remember(Role::Human, text, Some(ReplyKind::Handoff), metadata);
        let timers = self.human_answered();
        self.finish(Outcome::Answered, timers)
    }

    /// Hands the conversation back to the agent. Does nothing if the session is not `transferred`.
    pub(super) fn release(mut self: Box<Self>, HandBack { by, note }: HandBack<'_>) -> Result<Change, TurnError> {
        if self.status() != Status::Transferred {
            return self.finish_without_change();
        }
        if let Some(text) = note.filter(|note| !note.trim().is_empty()) {
            self.remember_note(text, by);
        }
        self.end_handoff(by);
        self.transition(Status::Ready);
        self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()))
    }

    /// Ends the handoff, if there is one. The event comes before the turn's last status, which ends the turn.
    pub(super) fn end_handoff(&mut self, by: Option<&str>) {
        if self.session.handoff.take().is_some() {
            self.publish_handoff(HandoffChange::Released, by);
        }
    }

    /// Who gave this turn's command.
    pub(super) fn commander(&self) -> Option<String> {
        match self.jobs.first().map(|job| &job.body) {
            Some(JobBody::Control(order)) => order.by.clone(),
            _ => None,
        }
    }

    /// Queues the event of a change of the handoff, with the handoff as it is now.
    pub(super) fn publish_handoff(&mut self, change: HandoffChange, by: Option<&str>) {
        let event = HandoffEvent {
            session_id: self.session.session_id.clone(),
            turn_id: self.turn_id().to_owned(),
            change,
            by: by.map(str::to_owned),
            handoff: self.session.handoff.clone(),
            at: self.services.clock.now(),
        };
        self.publish(EventType::Handoff, &format!("handoff/{}", change.as_str()), &event);
    }

    /// Posts to the agent's handoff endpoint, as a step. A failure of the endpoint cancels the turn. Does nothing if
    /// the agent has no endpoint.
    async fn post(&mut self, key: &str, event: &str, summary: &str) -> Result<(), Interruption> {
        let Some(call) = self.agent.config.handoff.http.clone() else { return Ok(()) };
        let body = self.packet(key, event, summary);
        let (http, journal) = (self.services.http.for_session(self.session_facts()), self.journal.clone());
        let label = Label { kind: "handoff", target: event };
        let name = StepName { kind: "handoff", target: event, key };
        let input = (event, summary);
        let step = journal.step(key, label, Durability::OnReturn, &input, |idempotency_key| async move {
            let begun = Instant::now();
            let result = match http.stand_in() {
                Some(stand_in) => {
                    stand_in.called(HANDOFF_ID, || http.would_send(&call, &Map::new(), Some(&body)));
                    stand_in.call(HANDOFF_ID, &Map::new())
                }
                None => http.post(&call, &Map::new(), &body, &idempotency_key).await,
            };
            outcome::report_result(
                CallLabels { kind: "handoff", target: event, known: true, counted: http.stand_in().is_none() },
                &result,
                begun.elapsed(),
            );
            let (ok, attempts) = (result.ok, Some(result.attempts));
            Ok::<_, Infallible>(Done { ok, attempts, ..Done::ok(result) })
        });
        let stepped: Stepped<ActionResult> = match self.run_while_publishing(name, Box::pin(step)).await? {
            Ok(stepped) => stepped,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(never)) => match never {},
        };
        self.step_finished("handoff", event, &stepped);
        let ActionResult { ok, error, .. } = stepped.output;
        if ok { Ok(()) } else { Err(CancelReason::new("handoff_failed", error.unwrap_or_default()).into()) }
    }

    fn packet(&self, key: &str, event: &str, summary: &str) -> Value {
        let index = key.strip_prefix("forward[").and_then(|rest| rest.trim_end_matches(']').parse::<usize>().ok());
        let job = &self.jobs[index.unwrap_or(0).min(self.jobs.len() - 1)];
        // A forwarded message is posted alone; a handoff includes all messages of its turn.
        let said: Vec<_> = match index {
            Some(_) => job.user_message().into_iter().collect(),
            None => self.messages().collect(),
        };
        let text = said.iter().map(|message| message.words()).collect::<Vec<_>>().join("\n");
        let attachments: Vec<_> = said.iter().flat_map(|message| &message.attachments).collect();
        // Every attempt must post the same body, so the entries of this turn get the turn's start time.
        let said = self.entries.iter().map(|entry| Entry { at: self.started_at(), ..entry.clone() });
        let history: Vec<_> = self.session.history.iter().cloned().chain(said).collect();
        let mut packet = json!({
            "event": event,
            "session_id": self.session.session_id,
            "user_id": self.session.user_id,
            "channel": self.session.channel,
            "text": text,
            "job_id": job.job_id,
            "summary": summary,
            "history": history,
        });
        if !attachments.is_empty() {
            packet["attachments"] = json!(attachments);
        }
        packet
    }

    /// Summary for the human if the model wrote none: the last six entries of the conversation.
    fn summary(&self) -> String {
        let all: Vec<_> = self.session.history.iter().chain(&self.entries).collect();
        let last = &all[all.len().saturating_sub(6)..];
        transcript::lines(last.iter().copied())
    }
}
