//! One attempt of a turn: runs it, gives it up, or releases the lease so that it can be retried.

use super::LaneSession;
use crate::execution::{CancelReason, TurnError};
use crate::journal::Guard;
use crate::worker::intake::{self, RejectedJob};
use crate::worker::stop::Stop;
use crate::worker::work::{Subject, Work};
use base::tasks::panic_text;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use storage::queue::Message;
use storage::store::StoreError;
use storage::store::records::Change;
use tracing::debug;
use types::cause::Cause;
use types::job::Job;
use types::session::Status;

impl LaneSession<'_> {
    fn work_on(&self, subject: Subject, guard: Guard) -> Work {
        subject.work(self.session.clone(), self.resumed, guard)
    }

    pub(super) async fn run(
        &self,
        message: &Message,
        subject: Subject,
        attempt: u32,
    ) -> Result<Option<Box<Change>>, Stop> {
        let services = &self.shared.services;
        let session_id = &self.session.session_id;
        let began_as = self.session.turn.as_ref().map_or(self.session.workflow_state.status, |turn| turn.status);
        let with_human = began_as == Status::Transferred;
        let cancelled = self.shared.lanes.start_turn(session_id, message.seq, with_human);
        let guard = self.guard.clone().cancelled_by(cancelled);
        let work = self.work_on(subject.clone(), guard);
        let turn = AssertUnwindSafe(Box::pin(work.run(services))).catch_unwind();
        let ended = tokio::select! {
            ended = turn => ended,
            () = self.lost.cancelled() => return Err(Stop::Lost),
            () = self.shared.abandoning.cancelled() => return Err(Stop::Stopping),
        };
        let reason = match ended {
            Ok(Ok(change)) => return Ok(change),
            Ok(Err(TurnError::Infrastructure(problem))) => return Err(Stop::Infrastructure(problem)),
            Ok(Err(TurnError::Failed(problem))) => return Err(Stop::Failed(problem, retry_delay(attempt))),
            Ok(Err(TurnError::Overtaken(problem))) => return Err(Stop::Failed(problem, Duration::ZERO)),
            Ok(Err(TurnError::Lost)) => return Err(Stop::Lost),
            Ok(Err(TurnError::NoRoom(problem))) => return Err(Stop::NoRoom(problem)),
            Ok(Err(TurnError::Newer(problem))) => return Err(Stop::Newer(problem)),
            Ok(Err(TurnError::Cancelled)) => {
                let why = self.shared.lanes.cancel_reason(session_id, message.seq);
                why.unwrap_or_else(|| CancelReason::operator(None, None))
            }
            Ok(Err(TurnError::Replay(problem))) => {
                let problem = problem.to_string();
                Box::pin(self.dead_letter(message, subject.jobs(), Cause::Replay, problem.clone(), attempt)).await?;
                CancelReason::new("replay", problem)
            }
            Err(panic) => CancelReason::new("panic", panic_text(panic.as_ref())),
        };
        Box::pin(self.give_up(subject, reason)).await
    }

    pub(super) async fn exhausted(
        &self,
        message: &Message,
        subject: Subject,
        attempt: u32,
    ) -> Result<Option<Box<Change>>, Stop> {
        let tried = attempt - 1;
        let problem = format!("the job was started {tried} times and did not complete");
        self.dead_letter(message, subject.jobs(), Cause::Attempts, problem.clone(), tried).await?;
        self.give_up(subject, CancelReason::new("attempts", problem)).await
    }

    async fn give_up(&self, subject: Subject, reason: CancelReason) -> Result<Option<Box<Change>>, Stop> {
        let work = self.work_on(subject, self.guard.clone());
        match work.give_up(&self.shared.services, reason).await {
            Ok(change) => Ok(Some(Box::new(change))),
            Err(error) => Err(Stop::from_give_up_error(error)),
        }
    }

    async fn dead_letter(
        &self,
        message: &Message,
        jobs: &[Job],
        cause: Cause,
        reason: String,
        attempts: u32,
    ) -> Result<(), Stop> {
        self.check_lease().await?;
        let job_id = jobs.first().map(|job| job.job_id.clone());
        Ok(intake::dead_letter(self.shared, message, RejectedJob { cause, reason, job_id, attempts }).await?)
    }

    /// Releases the lease so that the jobs can be retried. Only failures of the job itself count as attempts. For any
    /// other reason this waits until the store is reachable, and takes back the attempt if another worker has counted
    /// it meanwhile.
    pub(super) async fn release_lease(&self, stop: &Stop) {
        let counts_as_attempt = match stop {
            // The lease expired while the store was unreachable and could not renew it.
            Stop::Lost if self.shared.health.was_unreachable(self.shared.ack_wait * 3) => false,
            Stop::Lost | Stop::Busy(_) => return,
            Stop::Failed(..) | Stop::Refused(_) => true,
            Stop::Infrastructure(_) | Stop::Stopping | Stop::Saturated(_) => false,
            Stop::Unreadable(_) | Stop::Newer(_) | Stop::NoRoom(_) | Stop::OtherStream => false,
        };
        let mut pause = Duration::from_millis(100);
        while let Err(error) = self.try_release(counts_as_attempt).await {
            debug!("could not release the lane yet: {error}");
            if counts_as_attempt || !matches!(error, StoreError::Unavailable(_)) {
                return;
            }
            tokio::select! {
                () = self.shared.clock().sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
                () = self.shared.abandoning.cancelled() => return,
            }
        }
    }

    async fn try_release(&self, counts_as_attempt: bool) -> Result<(), StoreError> {
        let (store, session_id) = (self.shared.store(), &self.session.session_id);
        let freed = store.release(session_id, self.session.epoch, counts_as_attempt).await?;
        match &self.session.turn {
            Some(turn) if !freed && !counts_as_attempt => store.undo_attempt(session_id, turn.at).await,
            _ => Ok(()),
        }
    }
}

fn retry_delay(attempt: u32) -> Duration {
    Duration::from_secs(1 << attempt.min(5)).min(Duration::from_secs(30))
}
