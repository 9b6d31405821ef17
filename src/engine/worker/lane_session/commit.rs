//! Commits the result of a message, publishes its outbox and acknowledges it.

use super::LaneSession;
use crate::timer::scheduler::SWEEP_HORIZON;
use crate::worker::lane::acknowledge;
use crate::worker::outbox::publish;
use crate::worker::stop::Stop;
use crate::worker::turn_pinning::LastMessage;
use crate::worker::work::LogLine;
use base::metrics::{metrics, observe};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Message;
use storage::store::records::{Change, Commit, Committed, TimerChange};
use tracing::{Span, debug, warn};
use types::event::EventType;
use types::outcome::Outcome;
use types::session::Session;

impl LaneSession<'_> {
    /// Commits and publishes the result of a message, then acknowledges it. Returns false when the lane is released.
    pub(super) async fn commit_and_publish(
        &mut self,
        message: &Message,
        through: LastMessage,
        change: Option<Box<Change>>,
    ) -> Result<bool, Stop> {
        let session_id = self.session.session_id.clone();
        let hints_scheduler = change.as_deref().is_some_and(arms_before_next_sweep);
        let outbox = change.as_ref().map(|change| Arc::clone(&change.outbox)).unwrap_or_default();
        let outcome = change.as_ref().map(|change| change.turn.outcome);
        if let Some(outcome) = outcome {
            Span::current().record("outcome", outcome.as_str());
        }
        let line = change.as_deref().and_then(LogLine::from_change);
        let answers = outbox.iter().any(|event| event.event_type == EventType::Reply);
        let committed = self.commit(through, change).await?;
        if let Some(line) = line {
            line.write(&self.shared.owner);
        }
        publish(self.shared, message, outbox).await?;
        if !self.shared.services.rehearses {
            count(outcome, answers.then(|| message.at.until(self.shared.clock().now())));
        }
        if hints_scheduler && let Err(error) = self.shared.queue().notify_scheduler().await {
            debug!("could not notify the scheduler of the timer; its sweep will find it: {error}");
        }
        self.session.stream = Some(through.stream);
        self.session.last_seq = through.seq;
        self.session.last_at = self.session.last_at.max(Some(through.at));
        acknowledge(self.shared, &session_id, &self.position()).await;
        match committed {
            Committed::Released => Ok(false),
            Committed::Fenced => Err(Stop::Lost),
            Committed::Held if self.shared.stopping.is_cancelled() => Err(Stop::Stopping),
            Committed::Held => self.refresh().await.map(|()| true),
        }
    }

    async fn commit(&mut self, through: LastMessage, change: Option<Box<Change>>) -> Result<Committed, Stop> {
        // Dropped so that the cache of sessions, which keeps them for the next turn, has the only reference and need
        // not copy them to append.
        self.session.history = Arc::default();
        self.session.recent_jobs = Arc::default();
        let commit = Commit {
            session_id: self.session.session_id.clone(),
            epoch: self.session.epoch,
            last_seq: through.seq,
            stream: through.stream,
            at: through.at,
            lease: self.shared.ack_wait,
            sure_until: self.shared.lanes.lease_certain_until(&self.session.session_id),
            change,
        };
        let until = self.shared.clock().moment() + self.shared.ack_wait;
        // While the commit may release the lease, a failed renewal does not mean that the lease is lost. The commit
        // itself reports a lost lease.
        self.shared.lanes.commit_started(&self.session.session_id);
        let committed = self.shared.store().commit(commit).await?;
        if committed == Committed::Held {
            self.shared.lanes.lease_acquired(&self.session.session_id, self.session.epoch, until);
        }
        if committed == Committed::Fenced {
            warn!(
                epoch = self.session.epoch,
                "lease lost: another worker has taken the lane; dropping this turn's result"
            );
            return Err(Stop::Lost);
        }
        Ok(committed)
    }

    /// Continues with the session as the commit left it.
    async fn refresh(&mut self) -> Result<(), Stop> {
        self.session = Session { outbox: Vec::new(), ..self.stored_session().await? };
        self.resumed = false;
        Ok(())
    }
}

/// Counts a turn that is committed and published. `took` is the time since its message was stored in the stream.
fn count(outcome: Option<Outcome>, took: Option<Duration>) {
    if let Some(outcome) = outcome {
        metrics().turn(outcome);
    }
    if let Some(took) = took {
        observe(&metrics().reply_latency, took);
    }
}

/// Whether a timer of this change may be due before the scheduler's next sweep.
fn arms_before_next_sweep(change: &Change) -> bool {
    match &change.timers {
        TimerChange::Replace(timers) | TimerChange::Exchange { added: timers, .. } => {
            timers.iter().any(|timer| timer.delay < SWEEP_HORIZON)
        }
        TimerChange::Keep | TimerChange::Remove(_) => false,
    }
}
