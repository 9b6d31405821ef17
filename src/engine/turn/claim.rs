//! Who may write in a conversation that is handed off: claims with their timeout, takeovers and notes for colleagues.

use super::coordinator::{DecisionOutcome, decisions_of_turn};
use super::decision::{parse_decision, parse_plan_and_decision};
use super::handoff::MAX_SUMMARY;
use super::state::Turn;
use crate::execution::{CancelReason, TurnError};
use base::http_client::bounded;
use decisions::kind::DecisionType;
use std::collections::BTreeMap;
use storage::store::records::{Change, TimerChange};
use types::event::HandoffChange;
use types::handoff::{HeldText, MAX_NAME, NAMELESS, Note};
use types::job::Control;
use types::outcome::Outcome;
use types::session::{Entry, Handoff, Kind, Role, Status, transcript};
use types::step::StepRecord;
use types::timer::{NewTimer, timer_id};
use types::timestamp::Timestamp;

/// Name of the timer that ends a claim whose person does not answer.
pub(super) const CLAIM_TIMEOUT: &str = "claim_timeout";

/// Index in the timer id of [`CLAIM_TIMEOUT`].
const CLAIM_INDEX: usize = usize::MAX - 1;

/// How many interrupted turns a takeover searches for texts that were not sent.
const MAX_INTERRUPTED: usize = 5;

/// The name of the person who gives a command.
fn name_of(by: Option<&str>) -> String {
    let name = by.map(str::trim).filter(|by| !by.is_empty()).unwrap_or(NAMELESS);
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

impl Turn<'_> {
    /// Gives the claim to the person, unless another person has it.
    pub(super) async fn claim(mut self: Box<Self>, order: &Control) -> Result<Change, TurnError> {
        let name = name_of(order.by.as_deref());
        if self.status() != Status::Transferred {
            return match order.take_over && self.session.kind == Kind::Chat {
                true => Box::pin(self.take_over(&name, order)).await,
                false => self.finish_without_change(),
            };
        }
        let mut handoff = self.current_handoff();
        if handoff.claim_of_another(&name).is_some() {
            return self.finish_without_change();
        }
        self.give_claim(&mut handoff, &name);
        self.change_handoff(handoff, HandoffChange::Claimed, &name);
        let timers = self.restart_claim_timer();
        self.finish(Outcome::Silent, timers)
    }

    /// Hands a conversation of the agent to the person. The turns before the command have ended by now: see
    /// [`CancelReason::takeover`].
    async fn take_over(mut self: Box<Self>, name: &str, order: &Control) -> Result<Change, TurnError> {
        let why = CancelReason::takeover(order.reason.as_deref(), order.by.as_deref());
        self.leave_flow(&why).await?;
        let history = &self.session.history;
        let unread = history.iter().rev().take_while(|entry| entry.role == Role::User).count();
        let last = &history[history.len().saturating_sub(6)..];
        let summary = bounded(&transcript::lines(last), MAX_SUMMARY);
        let begun = Handoff::begin(self.turn_id(), self.services.clock.now(), u32::try_from(unread).unwrap_or(0));
        let mut handoff = Handoff { summary, taken_over: true, ..begun };
        self.held_texts().await?.into_iter().for_each(|text| handoff.hold(text));
        self.give_claim(&mut handoff, name);
        self.session.closed_at = None;
        self.change_handoff(handoff, HandoffChange::Opened, name);
        self.publish_handoff(HandoffChange::Claimed, Some(name));
        self.transition(Status::Processing);
        self.transition(Status::Transferred);
        let timers = vec![self.handoff_timer(), self.claim_timer()];
        self.finish(Outcome::Transferred, TimerChange::Replace(timers))
    }

    /// Ends the claim. Only its person may do so, or an operator.
    pub(super) fn unclaim(mut self: Box<Self>, order: &Control) -> Result<Change, TurnError> {
        let (name, mut handoff) = (name_of(order.by.as_deref()), self.current_handoff());
        let refused = handoff.claim_of_another(&name).is_some() && !order.force;
        if self.status() != Status::Transferred || handoff.claim.is_none() || refused {
            return self.finish_without_change();
        }
        handoff.claim = None;
        self.change_handoff(handoff, HandoffChange::Unclaimed, &name);
        let timers = self.stop_claim_timer();
        self.finish(Outcome::Silent, timers)
    }

    /// Passes the claim on to another person. No one may have it, or the person who gives the command, unless that is
    /// an operator.
    pub(super) fn pass_claim(mut self: Box<Self>, order: &Control) -> Result<Change, TurnError> {
        let (name, mut handoff) = (name_of(order.by.as_deref()), self.current_handoff());
        let refused = handoff.claim_of_another(&name).is_some() && !order.force;
        let to = order.to.as_deref().filter(|to| !to.trim().is_empty());
        let Some(to) = to.filter(|_| self.status() == Status::Transferred && !refused) else {
            return self.finish_without_change();
        };
        if let Some(note) = self.note(order, &name) {
            handoff.add_note(note);
        }
        self.give_claim(&mut handoff, &name_of(Some(to)));
        self.change_handoff(handoff, HandoffChange::Transferred, &name);
        let timers = self.restart_claim_timer();
        self.finish(Outcome::Silent, timers)
    }

    /// Adds a note for colleagues.
    pub(super) fn add_note(mut self: Box<Self>, order: &Control) -> Result<Change, TurnError> {
        let (name, mut handoff) = (name_of(order.by.as_deref()), self.current_handoff());
        let Some(note) = self.note(order, &name).filter(|_| self.status() == Status::Transferred) else {
            return self.finish_without_change();
        };
        handoff.add_note(note);
        self.change_handoff(handoff, HandoffChange::Noted, &name);
        self.finish(Outcome::Silent, TimerChange::Keep)
    }

    /// Ends the claim because its person has not replied before the timeout.
    pub(super) fn expire_claim(mut self: Box<Self>) -> Result<Change, TurnError> {
        let mut handoff = self.current_handoff();
        let timers = self.timer_removal();
        let Some(claim) = handoff.claim.take() else { return self.finish(Outcome::Noop, timers) };
        self.change_handoff(handoff, HandoffChange::Expired, &claim.by);
        self.finish(Outcome::Silent, timers)
    }

    /// Counts this turn's messages, which wait for a human, and returns the change of the timers: the person with the
    /// claim has until its timeout, which further messages do not postpone.
    pub(super) fn message_waits(&mut self) -> TimerChange {
        let (count, at) = (self.messages().count(), self.services.clock.now());
        let until = at.plus(self.agent.config.handoff.claim_timeout());
        let Some(handoff) = &mut self.session.handoff else { return TimerChange::Keep };
        handoff.count_messages(count, at);
        match &mut handoff.claim {
            Some(claim) if claim.until.is_none() => claim.until = Some(until),
            _ => return TimerChange::Keep,
        }
        self.restart_claim_timer()
    }

    /// Holds a text of the agent back if a person has the conversation. Returns false, and holds nothing, otherwise.
    pub(super) fn holds_back(&mut self, text: &str) -> bool {
        let at = self.services.clock.now();
        match &mut self.session.handoff {
            Some(handoff) if handoff.taken_over || handoff.claim.is_some() => {
                handoff.hold(HeldText { text: text.to_owned(), at });
                true
            }
            _ => false,
        }
    }

    /// Records that a human has answered, and returns the change of the timers.
    pub(super) fn human_answered(&mut self) -> TimerChange {
        if let Some(handoff) = &mut self.session.handoff {
            handoff.answered();
        }
        self.stop_claim_timer()
    }

    /// The handoff. Sessions of earlier versions may be `transferred` without one.
    fn current_handoff(&self) -> Handoff {
        let begin = || Handoff::begin(self.turn_id(), self.services.clock.now(), 0);
        self.session.handoff.clone().unwrap_or_else(begin)
    }

    fn change_handoff(&mut self, handoff: Handoff, change: HandoffChange, by: &str) {
        self.session.handoff = Some(handoff);
        self.publish_handoff(change, Some(by));
    }

    fn give_claim(&self, handoff: &mut Handoff, name: &str) {
        let now = self.services.clock.now();
        handoff.give_to(name, now, now.plus(self.agent.config.handoff.claim_timeout()));
    }

    fn note(&self, order: &Control, by: &str) -> Option<Note> {
        let text = order.note.clone().filter(|note| !note.trim().is_empty())?;
        Some(Note { id: self.turn_id().to_owned(), by: by.to_owned(), at: self.services.clock.now(), text })
    }

    fn claim_timer(&self) -> NewTimer {
        NewTimer {
            timer_id: timer_id(&self.session.session_id, self.turn_id(), CLAIM_INDEX),
            name: CLAIM_TIMEOUT.to_owned(),
            delay: self.agent.config.handoff.claim_timeout(),
            action: None,
            message: None,
            traceparent: None,
        }
    }

    /// Ids of the pending timers that end the claim.
    fn claim_timers(&self) -> Vec<String> {
        let timers = self.session.timers.iter().filter(|timer| timer.name == CLAIM_TIMEOUT);
        timers.map(|timer| timer.timer_id.clone()).collect()
    }

    fn restart_claim_timer(&self) -> TimerChange {
        TimerChange::Exchange { removed: self.claim_timers(), added: vec![self.claim_timer()] }
    }

    fn stop_claim_timer(&self) -> TimerChange {
        match self.claim_timers() {
            none if none.is_empty() => TimerChange::Keep,
            timers => TimerChange::Remove(timers),
        }
    }

    /// The last texts that the turns which this takeover has interrupted had decided to send, and did not send.
    async fn held_texts(&self) -> Result<Vec<HeldText>, TurnError> {
        let (store, session_id) = (&self.services.store, &self.session.session_id);
        let mut turns: Vec<&str> = Vec::new();
        for entry in self.session.history.iter().rev() {
            if !turns.contains(&entry.turn_id.as_str()) {
                turns.push(&entry.turn_id);
            }
        }
        let mut held = Vec::new();
        for turn_id in turns.into_iter().take(MAX_INTERRUPTED) {
            let turn = store.turn(session_id, turn_id).await?;
            let reason = turn.and_then(|turn| turn.reason).unwrap_or_default();
            if !CancelReason::was_takeover(&reason) {
                break;
            }
            let steps = store.steps(session_id, turn_id).await?;
            held.extend(unsent(turn_id, &steps, &self.session.history));
        }
        held.reverse();
        Ok(held)
    }
}

/// The last text among a turn's decisions, unless the user has got it.
fn unsent(turn_id: &str, steps: &[StepRecord], history: &[Entry]) -> Option<HeldText> {
    let mut decided: BTreeMap<u32, &StepRecord> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.ok) {
        let Some((iteration, key)) = step.key.split_once('/') else { continue };
        // A correction replaces the answer before it.
        let is_decision = key == "decide" || key.starts_with("decide/correct[");
        if let Some(number) = iteration.parse().ok().filter(|_| is_decision) {
            let earlier = decided.entry(number).or_insert(step);
            if earlier.at < step.at {
                *earlier = step;
            }
        }
    }
    let decision = decided.values().rev().find_map(|step| Some((text_of(step.output.as_str()?)?, step.at)));
    let (text, at) = decision.or_else(|| text_of_coordinator(turn_id, steps))?;
    let was_sent = history.iter().any(|entry| entry.role == Role::Assistant && entry.text == text);
    (!was_sent).then_some(HeldText { text, at })
}

/// The text for the user in the decision of an ordinary agent.
fn text_of(answer: &str) -> Option<String> {
    let decision = parse_plan_and_decision(answer).map(|(_, decision)| decision).or_else(|_| parse_decision(answer));
    decision.ok()?.response.filter(|text| !text.trim().is_empty())
}

/// The text for the user in a coordinator's last decision to respond.
fn text_of_coordinator(turn_id: &str, steps: &[StepRecord]) -> Option<(String, Timestamp)> {
    let decisions = decisions_of_turn(turn_id, steps);
    let decision = decisions.into_iter().rfind(|decision| {
        decision.decision_type == DecisionType::Respond && decision.outcome == DecisionOutcome::Valid
    })?;
    Some((decision.payload.get("response")?.as_str()?.to_owned(), decision.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(key: &str, output: &str, at: i64) -> StepRecord {
        let record = json!({"key": key, "kind": "model", "target": "m", "input_hash": "h", "output": output, "ok": true,
            "ms": 0, "at": Timestamp::from_millis(at)});
        serde_json::from_value(record).unwrap()
    }

    fn decision(response: &str) -> String {
        json!({"next_status": "typing", "action": null, "response": response}).to_string()
    }

    #[test]
    fn the_last_decided_text_is_held_unless_the_user_has_got_it() {
        let steps = [
            step(
                "0/decide",
                &json!({"plan": {}, "decision": {"next_status": "typing", "response": "一"}}).to_string(),
                1,
            ),
            step("2/decide", "no JSON", 3),
            step("2/decide/correct[1]", &decision("三"), 4),
            step("1/decide", &decision("二"), 2),
            step("3/knowledge", &decision("四"), 5),
        ];
        let held = unsent("m-1", &steps, &[]).unwrap();
        assert_eq!(held, HeldText { text: "三".into(), at: Timestamp::from_millis(4) });
        let sent: Entry = serde_json::from_value(json!({"role": "assistant", "text": "三", "at": held.at})).unwrap();
        assert_eq!(unsent("m-1", &steps, &[sent]), None);
        assert_eq!(unsent("m-1", &steps[4..], &[]), None);
    }

    #[test]
    fn a_person_without_a_name_has_one() {
        assert_eq!([name_of(None), name_of(Some(" ")), name_of(Some(" 李雷 "))], ["local", "local", "李雷"]);
        assert!(name_of(Some(&"李".repeat(200))).len() <= MAX_NAME);
    }
}
