//! Runs in a lane of their own that wait: for the end of a pause, or for an answer to a question of an ASK node.
//!
//! The turn of such a run ends, so that no worker holds it. The session document has the run's [`Waiting`], and the
//! timer of its next turn. The turn of that timer, or of an answer, opens the journal of the turn that started the run,
//! so no recorded step runs again and every idempotency key stays the same.

use super::{LaneState, RunJob, RunTurn, RunTurnOutcome, SuspendedRun};
use crate::execution::{CancelReason, TurnError};
use crate::journal::{Done, Journal, Label};
use crate::run::start_record::BEGIN_KEY;
use crate::workflow::asking::LaneJob;
use crate::workflow::open_question::open_questions;
use crate::workflow::orchestration::pauses::Pauses;
use base::http_client::bounded;
use serde_json::json;
use std::time::Duration;
use types::job::{Command, Control, JobBody};
use types::run::RunRecord;
use types::session::Waiting;
use types::step::StepRecord;
use types::timer::{NewTimer, timer_id};
use types::timestamp::Timestamp;

/// Beginning of the key of the step that a turn records when its run waits. The rest is the epoch, because a repeated
/// turn records another state.
pub(super) const SUSPENDED: &str = "suspended/";
/// Name of the timer that begins the next turn of a run.
pub(super) const RUN_WAITS: &str = "run_waits";
/// Why a waiting run cannot continue.
pub(super) const STEPS_GONE: &str = "the run's steps are no longer stored; raise the setting retention.turns";
/// Limit in bytes on a question in the session document.
const MAX_QUESTION: usize = 4 * 1024;

/// Until when a run may wait whose steps are kept for `keep`: it needs them for some time afterwards, a tenth of that
/// time, at most one hour.
fn latest(began_at: Timestamp, keep: Duration) -> Timestamp {
    began_at.plus(keep.saturating_sub((keep / 10).min(Duration::from_secs(3600))))
}

impl RunTurn<'_> {
    /// The record of the waiting run that the job continues or cancels; `None` for any other job.
    pub(super) fn continued(&self) -> Option<&RunRecord> {
        self.session.waiting.as_ref()?;
        let is_for_it = match &self.job.body {
            JobBody::Timer { timer_id, generation, .. } => self.session.armed(timer_id, *generation).is_some(),
            JobBody::Answer { .. } | JobBody::Control(Control { command: Command::Cancel, .. }) => true,
            _ => false,
        };
        self.known.as_ref().filter(|_| is_for_it)
    }

    /// The fields of the job that started the waiting run.
    pub(super) fn continued_job(&self) -> Option<RunJob<'_>> {
        self.continued().map(|known| RunJob {
            workflow_id: &known.workflow_id,
            query: &known.query,
            origin_session: known.origin_session.as_deref(),
            user_id: known.user_id.as_deref(),
            channel: Some(&known.channel),
            from_run: None,
            from_stage: None,
        })
    }

    /// The reason if the job is an operator's command that cancels the waiting run.
    pub(super) fn cancels(&self) -> Option<CancelReason> {
        match &self.job.body {
            JobBody::Control(Control { command: Command::Cancel, reason, by, .. }) if self.continued().is_some() => {
                Some(CancelReason::operator(reason.as_deref(), by.as_deref()))
            }
            _ => None,
        }
    }

    /// The turn that has the run's steps.
    pub(super) fn journal_turn(&self) -> &str {
        self.continued().map_or_else(|| self.turn_id(), |known| &known.turn_id)
    }

    /// The job of this turn as the run's questions see it.
    pub(super) fn lane_job(&self) -> LaneJob {
        match &self.job.body {
            JobBody::Timer { .. } => LaneJob::Timer,
            JobBody::Answer { question, text, .. } => LaneJob::Answer { key: question.clone(), text: text.clone() },
            _ => LaneJob::Start,
        }
    }

    /// When the run started, in the turn that has its steps.
    fn began_at(&self) -> Timestamp {
        match (self.continued(), &self.session.waiting) {
            (Some(_), Some(waiting)) => waiting.began_at,
            _ => self.started_at,
        }
    }

    /// Until when the run may wait.
    pub(super) fn waits_until_at_most(&self) -> Timestamp {
        latest(self.began_at(), self.services.keep_turns)
    }

    /// The journal of the run that the turn continues; `None` if its steps are no longer stored.
    pub(super) async fn continued_journal(&self, own: &Journal) -> Result<Option<Journal>, TurnError> {
        let journal = own.resume_from(self.journal_turn()).await?;
        Ok(Some(journal).filter(|journal| journal.is_recorded(BEGIN_KEY)))
    }

    /// The step that recorded the run's state when it began to wait.
    async fn suspended_step(&self) -> Result<Option<StepRecord>, TurnError> {
        let (Some(_), Some(waiting)) = (self.continued(), &self.session.waiting) else { return Ok(None) };
        let steps = self.services.store.steps(self.run_id(), &waiting.turn_id).await?;
        let epoch = |step: &StepRecord| step.key.strip_prefix(SUSPENDED)?.parse::<u64>().ok();
        // A turn that was repeated has one for each attempt, and the last one counts.
        Ok(steps.into_iter().filter(|step| epoch(step).is_some()).max_by_key(epoch))
    }

    /// The run's state from before it waited.
    pub(super) async fn suspended(&self) -> Result<Option<SuspendedRun>, TurnError> {
        let step = self.suspended_step().await?;
        Ok(step.and_then(|step| serde_json::from_value(step.output).ok()))
    }

    /// Counts the steps that an earlier attempt of this turn has recorded.
    pub(super) async fn count_since_suspension(&self, journal: &Journal) -> Result<(), TurnError> {
        if let Some(suspended) = self.suspended_step().await? {
            let since: Vec<_> = journal.recorded().into_iter().filter(|step| step.at > suspended.at).collect();
            journal.exclude_before(Timestamp::from_millis(i64::MAX));
            journal.count(&since);
        }
        Ok(())
    }

    /// Ends the turn of a run that waits. `own` is the journal of this turn, `journal` the run's.
    pub(super) fn suspend(
        &self,
        own: &Journal,
        journal: &Journal,
        pauses: &Pauses,
        suspended: &SuspendedRun,
        record: RunRecord,
    ) -> Result<RunTurnOutcome, TurnError> {
        let gone = || TurnError::Failed("the run waits, but for nothing".into());
        let (due, now) = (pauses.due().ok_or_else(gone)?, self.services.clock.now());
        let label = Label { kind: "suspended", target: &record.workflow_id };
        let key = format!("{SUSPENDED}{}", self.session.epoch);
        own.note(&key, label, &self.turn_id(), Done::ok(json!(suspended)), 0);
        let question = open_questions(&journal.recorded()).into_iter().next();
        let (text, choices) = question.map(|asked| (asked.question, asked.choices)).unwrap_or_default();
        let waiting = Waiting {
            flow: record.workflow_id.clone(),
            agent_id: String::new(),
            turn_id: self.turn_id().to_owned(),
            prefix: String::new(),
            asked: self.session.waiting.as_ref().map_or(0, |waiting| waiting.asked) + 1,
            question: bounded(&text, MAX_QUESTION),
            choices,
            run_id: Some(self.run_id().to_owned()),
            began_at: self.began_at(),
            asked_at: now,
            until: due,
        };
        let timer = NewTimer {
            timer_id: timer_id(self.run_id(), self.turn_id(), 0),
            name: RUN_WAITS.to_owned(),
            delay: now.until(due).max(Duration::from_millis(1)),
            action: None,
            message: None,
            traceparent: None,
        };
        let lane = LaneState::Waits(Box::new(waiting), timer);
        Ok(RunTurnOutcome { record: Some(record), lane, ..RunTurnOutcome::default() })
    }
}
