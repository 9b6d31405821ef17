//! The end of a run: its final record, the id of its last event, its usage and its execution time.

use crate::execution::CancelReason;
use crate::journal::Journal;
use crate::workflow::orchestration::event::RunEventType;
use std::time::Duration;
use types::excerpt;
use types::run::{RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// Limit in bytes on the output in a run's record. The run's steps have the whole output.
const MAX_OUTPUT: usize = 256 * 1024;

/// Cancel reason of a waiting flow or run: the user has left it, or a message went to another agent.
pub(crate) const FLOW_LEFT: &str = "left";
/// Cancel reason of a waiting flow or run: the user has not answered before the question's `until`.
pub(crate) const FLOW_UNANSWERED: &str = "unanswered";

/// Status of a run that ends without output for this reason: `cancelled` if a user or an operator caused it, else
/// `failed`.
pub(super) fn status_for(reason: &CancelReason) -> RunStatus {
    let by_people = ["operator", FLOW_LEFT, FLOW_UNANSWERED].contains(&reason.word);
    if by_people { RunStatus::Cancelled } else { RunStatus::Failed }
}

/// Execution time so far of a run that started at `at`. For a repeated turn it extends to the last recorded step,
/// because time without a worker must not count against the run's timeout.
pub(super) fn execution_time(journal: &Journal, at: Timestamp, resumed: bool) -> Duration {
    match resumed {
        true => journal.recorded().iter().map(|step| at.until(step.at)).max().unwrap_or_default(),
        false => at.until(journal.clock().now()),
    }
}

/// Sums the model calls and tokens of recorded steps. `stages` is 0, since steps do not show how many stages have
/// started.
pub(super) fn usage_of(steps: &[StepRecord]) -> RunUsage {
    let calls = steps.iter().filter(|step| step.tokens.is_some() || step.kind == "model");
    let tokens = steps.iter().filter_map(|step| step.tokens).map(|tokens| tokens.prompt + tokens.completion).sum();
    RunUsage { stages: 0, model_calls: u64::try_from(calls.count()).unwrap_or(0), tokens }
}

/// Id of the last event in a turn that has resumed the run.
pub(super) fn resumed_event_id(event_id: &str, turn_id: &str) -> String {
    format!("{event_id}@{turn_id}")
}

/// Id of the last event of a run that has ended with an event of this kind.
pub fn last_event_id(run: &RunRecord, kind: RunEventType) -> String {
    let event_id = format!("{}/{}", run.run_id, kind.as_str());
    // The first turn of a run in its own lane has the run's id, so a different turn id means that the run was
    // resumed.
    let goes_on = run.lane == run.run_id && run.turn_id != run.run_id;
    if goes_on { resumed_event_id(&event_id, &run.turn_id) } else { event_id }
}

/// Final record of a completed run. Cuts the output to its limit.
pub(super) fn completed(record: RunRecord, output: &str, usage: RunUsage, now: Timestamp) -> RunRecord {
    let output = Some(excerpt::cut(output, MAX_OUTPUT).into_owned());
    RunRecord { status: RunStatus::Completed, output, usage, ended_at: Some(now), ..record }
}

/// Final record of a failed run.
pub(super) fn failed(record: RunRecord, failure: RunFailure, usage: RunUsage, now: Timestamp) -> RunRecord {
    RunRecord { status: RunStatus::Failed, error: Some(failure), usage, ended_at: Some(now), ..record }
}
