//! What happened in a run, read from its steps: its stages, when they ran, and what they took.

use super::Reject;
use crate::clock::Timestamp;
use crate::journal::{StepRecord, Tokens};
use crate::store::{RunRecord, RunStatus, Store};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A stage of a run that has recorded something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TimelineEntry {
    /// Where, such as `outer_loop[2]/parallel_result/verify`.
    pub path: String,
    /// How far it has come.
    pub status: RunStatus,
    /// When its first step began.
    pub started_at: Timestamp,
    /// When its last step was recorded.
    pub ended_at: Timestamp,
    /// From the one to the other, in milliseconds.
    pub ms: u64,
    /// The model that answered.
    pub model: Option<String>,
    /// What that used, over all its calls.
    pub tokens: Option<Tokens>,
    /// Model calls and tool calls.
    pub steps: usize,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it failed.
    pub error: Option<String>,
}

/// The stages of a run in the order of their beginning.
pub(super) async fn of(store: &dyn Store, run: &RunRecord) -> Result<Vec<TimelineEntry>, Reject> {
    if run.lane.is_empty() {
        return Ok(Vec::new());
    }
    let steps = store.steps(&run.lane, &run.turn_id).await?;
    Ok(entries(run, steps))
}

fn entries(run: &RunRecord, mut steps: Vec<StepRecord>) -> Vec<TimelineEntry> {
    steps.sort_by_key(|step| step.at);
    let mut entries: Vec<TimelineEntry> = Vec::new();
    for step in &steps {
        let Some((path, attempt)) = place(&run.prefix, step) else { continue };
        let begun = step.at.minus(Duration::from_millis(step.ms));
        let index = entries.iter().position(|entry| entry.path == path).unwrap_or_else(|| {
            entries.push(TimelineEntry::begun(path, begun));
            entries.len() - 1
        });
        entries[index].add(step, begun, attempt);
    }
    for entry in &mut entries {
        entry.end(run);
    }
    entries.sort_by_key(|entry| entry.started_at);
    entries
}

impl TimelineEntry {
    fn begun(path: String, at: Timestamp) -> Self {
        Self {
            path,
            status: RunStatus::Running,
            started_at: at,
            ended_at: at,
            ms: 0,
            model: None,
            tokens: None,
            steps: 0,
            attempts: 1,
            error: None,
        }
    }

    fn add(&mut self, step: &StepRecord, begun: Timestamp, attempt: u32) {
        self.started_at = self.started_at.min(begun);
        self.ended_at = self.ended_at.max(step.at);
        self.ms = u64::try_from(self.started_at.until(self.ended_at).as_millis()).unwrap_or(u64::MAX);
        self.attempts = self.attempts.max(attempt);
        if step.kind == "stage" {
            // How an attempt failed.
            self.status = RunStatus::Failed;
            self.error = step.output["cause"].as_str().map(str::to_owned);
            return;
        }
        self.steps += 1;
        self.error = None;
        self.model = step.model.clone().or(self.model.take());
        if let Some(tokens) = step.tokens {
            let sum = self.tokens.get_or_insert_default();
            sum.prompt += tokens.prompt;
            sum.completion += tokens.completion;
        }
        // An answer that wants no tool called is the stage's output; what a tool says never is.
        let calls = step.output["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        let last = step.ok && step.kind != "tool" && !calls;
        self.status = if last { RunStatus::Completed } else { RunStatus::Running };
    }

    /// What the run's own end says of it.
    fn end(&mut self, run: &RunRecord) {
        if let Some(failure) = run.error.as_ref().filter(|failure| failure.path == self.path) {
            self.status = RunStatus::Failed;
            self.error = Some(failure.cause.clone());
            self.attempts = self.attempts.max(failure.attempts);
        } else if run.status.has_ended() && self.status == RunStatus::Running {
            self.status = run.status;
        }
    }
}

/// The stage of a step, and the attempt that it belongs to; `None` for steps of the run itself.
fn place(prefix: &str, step: &StepRecord) -> Option<(String, u32)> {
    let key = match prefix {
        "" => step.key.as_str(),
        prefix => step.key.strip_prefix(prefix)?.strip_prefix('/')?,
    };
    let parts: Vec<&str> = key.split('/').collect();
    let within = match step.kind.as_str() {
        "model" | "tool" => 2,
        _ => 1,
    };
    let stages = parts.get(..parts.len().checked_sub(within)?).filter(|stages| !stages.is_empty())?;
    // `verify~2` is the second attempt of `verify`.
    let plain = stages.iter().map(|stage| stage.split_once('~').map_or(*stage, |(stage, _)| stage));
    let attempt = stages.last().and_then(|stage| stage.split_once('~')?.1.parse().ok());
    Some((plain.collect::<Vec<_>>().join("/"), attempt.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::orchestration::outcome::RunFailure;
    use serde_json::{Value, json};

    fn run(more: &Value) -> RunRecord {
        let mut run = json!({"run_id": "r", "workflow_id": "w", "status": "running", "lane": "r", "turn_id": "t", "created_at": "2026-01-02T03:04:05Z"});
        for (key, value) in more.as_object().unwrap() {
            run[key] = value.clone();
        }
        serde_json::from_value(run).unwrap()
    }

    fn step(key: &str, kind: &str, at: i64, output: Value) -> StepRecord {
        StepRecord {
            key: key.into(),
            kind: kind.into(),
            target: String::new(),
            input_hash: String::new(),
            output,
            ok: kind != "stage",
            ms: 100,
            model: (kind == "model").then(|| "default".into()),
            tokens: (kind == "model").then_some(Tokens { prompt: 10, completion: 2 }),
            attempts: None,
            at: Timestamp::from_millis(at),
        }
    }

    #[test]
    fn the_steps_of_a_stage_are_one_entry() {
        let calls = json!({"content": "", "tool_calls": [{"id": "1"}]});
        let steps = vec![
            step("begin", "begin", 50, json!({})),
            step("outer[2]/plan/0/model", "model", 200, calls.clone()),
            step("outer[2]/plan/0/tool[0]", "tool", 300, json!({})),
            step("outer[2]/plan/1/model", "model", 400, json!({"content": "好"})),
            step("report/0/model", "model", 500, calls),
        ];
        let entries = entries(&run(&json!({})), steps);
        let found: Vec<_> =
            entries.iter().map(|entry| (entry.path.as_str(), entry.status, entry.ms, entry.steps)).collect();
        assert_eq!(
            found,
            [("outer[2]/plan", RunStatus::Completed, 300, 3), ("report", RunStatus::Running, 100, 1)]
        );
        assert_eq!(entries[0].tokens, Some(Tokens { prompt: 20, completion: 4 }));
    }

    #[test]
    fn attempts_are_counted_and_the_run_s_failure_is_its_stage_s() {
        let failed = json!({"path": "plan", "cause": "no answer", "attempts": 1});
        let steps = vec![
            step("plan/failed", "stage", 100, failed.clone()),
            step("plan~2/0/model", "model", 200, json!({"content": "好"})),
            step("report/failed", "stage", 300, failed),
        ];
        let error = serde_json::to_value(RunFailure { path: "report".into(), cause: "503".into(), attempts: 2 });
        let run = run(&json!({"status": "failed", "error": error.unwrap()}));
        let entries = entries(&run, steps);
        assert_eq!((entries[0].status, entries[0].attempts, &entries[0].error), (RunStatus::Completed, 2, &None));
        assert_eq!((entries[1].status, entries[1].error.as_deref()), (RunStatus::Failed, Some("503")));
    }

    #[test]
    fn a_run_within_a_turn_has_the_steps_below_its_prefix() {
        let of = |key: &str| place("0/research", &step(key, "model", 0, Value::Null));
        assert_eq!(of("0/research/plan/0/model"), Some(("plan".into(), 1)));
        assert_eq!(of("1/research/plan/0/model"), None);
        assert_eq!(of("0/researcher/plan/0/model"), None);
    }
}
