//! How runs end: their records, their last events, their usage and their duration.

use crate::execution::CancelReason;
use crate::journal::Journal;
use crate::workflow::orchestration::event::RunEventType;
use std::time::Duration;
use types::run::{RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::session::history;
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// The most bytes of an output in a run's record; its steps have all of it.
const MAX_OUTPUT: usize = 256 * 1024;

/// Why a run that waited is cancelled: its user has left it, or has not answered before the question's `until`.
pub(crate) const LEFT: &str = "left";
/// See [`LEFT`].
pub(crate) const UNANSWERED: &str = "unanswered";

/// The status of a run that ends for this reason without an output: a user or an operator cancels it, all else fails it.
pub(super) fn status_of(reason: &CancelReason) -> RunStatus {
    let by_people = ["operator", LEFT, UNANSWERED].contains(&reason.word);
    if by_people { RunStatus::Cancelled } else { RunStatus::Failed }
}

/// How long workers have executed a run that was begun `at` that time. A run that another worker began counts up to its last
/// recorded step: the time without a worker counts against no limit.
pub(super) fn active(journal: &Journal, at: Timestamp, resumed: bool) -> Duration {
    match resumed {
        true => journal.recorded().iter().map(|step| at.until(step.at)).max().unwrap_or_default(),
        false => at.until(journal.clock().now()),
    }
}

/// The model calls and tokens of the recorded steps. Steps do not show how many stages have begun.
pub(super) fn used(steps: &[StepRecord]) -> RunUsage {
    let calls = steps.iter().filter(|step| step.tokens.is_some() || step.kind == "model");
    let tokens = steps.iter().filter_map(|step| step.tokens).map(|tokens| tokens.prompt + tokens.completion).sum();
    RunUsage { stages: 0, model_calls: u64::try_from(calls.count()).unwrap_or(0), tokens }
}

/// The id of the event that ends a run once more, in a turn that has resumed it.
pub(super) fn again(event_id: &str, turn_id: &str) -> String {
    format!("{event_id}@{turn_id}")
}

/// The id of the last event of a run, which is of this kind.
pub fn last_event_id(run: &RunRecord, kind: RunEventType) -> String {
    let event_id = format!("{}/{}", run.run_id, kind.as_str());
    // The first turn of a run in a lane of its own has the run's id.
    let goes_on = run.lane == run.run_id && run.turn_id != run.run_id;
    if goes_on { again(&event_id, &run.turn_id) } else { event_id }
}

/// The record of a run that ends now, with its output.
pub(super) fn completed(record: RunRecord, (output, usage): (&str, RunUsage), now: Timestamp) -> RunRecord {
    let output = Some(history::cut(output, MAX_OUTPUT).into_owned());
    RunRecord { status: RunStatus::Completed, output, usage, ended_at: Some(now), ..record }
}

/// The record of a run that ends now, with its failure.
pub(super) fn failed(record: RunRecord, (failure, usage): (RunFailure, RunUsage), now: Timestamp) -> RunRecord {
    RunRecord { status: RunStatus::Failed, error: Some(failure), usage, ended_at: Some(now), ..record }
}
