//! Turns for an operator's control command.

use super::claim::CLAIM_TIMEOUT;
use super::handoff::{HANDOFF_TIMEOUT, HandBack};
use super::pending_flow::FLOW_TIMEOUT;
use super::state::Turn;
use crate::execution::{CancelReason, TurnError};
use storage::store::records::{Change, TimerChange};
use types::job::{Command, Control};
use types::outcome::Outcome;
use types::session::{Session, Status};

impl Turn<'_> {
    /// Executes a control command.
    pub(super) async fn control(mut self: Box<Self>, order: &Control) -> Result<Change, TurnError> {
        let Control { command, name, reason, by, note, .. } = order;
        let (command, by) = (*command, by.as_deref());
        let why = CancelReason::operator(reason.as_deref(), by);
        if matches!(command, Command::Release | Command::Cancel | Command::Close) {
            let waited = self.session.waiting.is_some();
            self.leave_flow(&why).await?;
            if waited && command == Command::Release && self.status() != Status::Transferred {
                return self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()));
            }
        }
        match command {
            Command::Release => self.release(HandBack { by, note: note.as_deref() }),
            Command::Cancel if self.status() == Status::Cancelled => self.finish_without_change(),
            Command::Cancel => self.cancel(&why),
            Command::Close if self.session.closed_at.is_some() => self.finish_without_change(),
            Command::Close => {
                self.session.closed_at = Some(self.services.clock.now());
                self.end_handoff(by);
                if self.status() == Status::Transferred {
                    self.transition(Status::Ready);
                }
                self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()))
            }
            Command::CancelTimers => self.cancel_timers(name.as_deref()),
            Command::Claim => self.claim(order).await,
            Command::Unclaim => self.unclaim(order),
            Command::Transfer => self.pass_claim(order),
            Command::Note => self.add_note(order),
        }
    }

    /// True if the lane has processed no message after `seq`, and the session has neither a timer nor a waiting flow.
    /// Housekeeping closes only such sessions.
    pub(super) fn is_idle_since(&self, seq: u64) -> bool {
        let Session { last_seq, timers, waiting, .. } = &self.session;
        *last_seq == seq && timers.is_empty() && waiting.is_none()
    }

    /// Cancels the timers with this name, or without a name all follow-up timers. The timeouts of a handoff, of a claim
    /// and of a waiting flow are cancelled only by name.
    fn cancel_timers(self: Box<Self>, name: Option<&str>) -> Result<Change, TurnError> {
        let timeouts = [HANDOFF_TIMEOUT, CLAIM_TIMEOUT, FLOW_TIMEOUT];
        let meant = |timer: &str| name.map_or(!timeouts.contains(&timer), |name| timer == name);
        let timers = self.session.timers.iter().filter(|timer| meant(&timer.name));
        let ids: Vec<String> = timers.map(|timer| timer.timer_id.clone()).collect();
        if ids.is_empty() {
            return self.finish_without_change();
        }
        self.finish(Outcome::Silent, TimerChange::Remove(ids))
    }
}
