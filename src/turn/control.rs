//! Operator commands (OP-E2, OP-E11, OP-E19).

use super::state::Turn;
use super::{CancelReason, TurnError};
use crate::clock;
use crate::queue::Command;
use crate::session::Status;
use crate::store::{Change, Outcome, TimerChange};

impl Turn<'_> {
    /// Does what the operator says.
    pub(super) fn control(
        mut self: Box<Self>,
        command: Command,
        reason: Option<String>,
        by: Option<String>,
    ) -> Result<Change, TurnError> {
        match command {
            Command::Release => self.release(),
            Command::Cancel if self.status() == Status::Cancelled => self.nothing(),
            Command::Cancel => {
                let detail = [by, reason].into_iter().flatten().collect::<Vec<_>>().join(": ");
                self.cancel(&CancelReason::new("operator", detail))
            }
            Command::Close if self.session.closed_at.is_some() => self.nothing(),
            Command::Close => {
                self.session.closed_at = Some(clock::now());
                self.session.handoff = None;
                if self.status() == Status::Transferred {
                    self.transition(Status::Ready);
                }
                self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()))
            }
        }
    }
}
