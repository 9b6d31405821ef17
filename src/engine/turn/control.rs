//! Turns for an operator's control command.

use super::handoff::HANDOFF_TIMEOUT;
use super::pending_flow::FLOW_TIMEOUT;
use super::state::Turn;
use crate::execution::{CancelReason, TurnError};
use storage::store::records::{Change, TimerChange};
use types::job::Command;
use types::outcome::Outcome;
use types::session::{Session, Status};

impl Turn<'_> {
    /// Executes a control command. `name` selects timers for `cancel_timers`; `why` is recorded as the reason.
    pub(super) async fn control(
        mut self: Box<Self>,
        command: Command,
        name: Option<&str>,
        why: &CancelReason,
    ) -> Result<Change, TurnError> {
        if matches!(command, Command::Release | Command::Cancel | Command::Close) {
            let waited = self.session.waiting.is_some();
            self.leave_flow(why).await?;
            if waited && command == Command::Release && self.status() != Status::Transferred {
                return self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()));
            }
        }
        match command {
            Command::Release => self.release(),
            Command::Cancel if self.status() == Status::Cancelled => self.finish_without_change(),
            Command::Cancel => self.cancel(why),
            Command::Close if self.session.closed_at.is_some() => self.finish_without_change(),
            Command::Close => {
                self.session.closed_at = Some(self.services.clock.now());
                self.session.handoff = None;
                if self.status() == Status::Transferred {
                    self.transition(Status::Ready);
                }
                self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()))
            }
            Command::CancelTimers => self.cancel_timers(name),
        }
    }

    /// True if the lane has processed no message after `seq`, and the session has neither a timer nor a waiting flow.
    /// Housekeeping closes only such sessions.
    pub(super) fn is_idle_since(&self, seq: u64) -> bool {
        let Session { last_seq, timers, waiting, .. } = &self.session;
        *last_seq == seq && timers.is_empty() && waiting.is_none()
    }

    /// Cancels the timers with this name, or without a name all follow-up timers. The timeouts of a handoff and of a
    /// waiting flow are cancelled only by name.
    fn cancel_timers(self: Box<Self>, name: Option<&str>) -> Result<Change, TurnError> {
        let meant = |timer: &str| name.map_or(![HANDOFF_TIMEOUT, FLOW_TIMEOUT].contains(&timer), |name| timer == name);
        let timers = self.session.timers.iter().filter(|timer| meant(&timer.name));
        let ids: Vec<String> = timers.map(|timer| timer.timer_id.clone()).collect();
        if ids.is_empty() {
            return self.finish_without_change();
        }
        self.finish(Outcome::Silent, TimerChange::Remove(ids))
    }
}
