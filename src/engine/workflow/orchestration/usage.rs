//! Limits of a run, and the counters of its usage.

use base::config::WorkflowLimits;
use definitions::workflow::definition::LimitsConfig;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use types::duration;
use types::run_outcome::RunUsage;
use types::step::TokenUsage;
use types::timestamp::Timestamp;

/// Upper bounds for a run. A limit that the workflow file leaves out has the value of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Stages started, over all iterations and branches.
    pub max_stages: u64,
    /// Nesting depth of workflows.
    pub max_depth: u32,
    /// Execution time. Waiting for the user, and time without a worker, do not count.
    pub timeout: Duration,
    /// Model calls.
    pub max_model_calls: u64,
    /// Tokens of prompts and answers. 0 means no limit.
    pub max_tokens: u64,
    /// Branches of one parallel workflow that run concurrently.
    pub max_parallel: usize,
    /// The origin of `timeout`.
    pub timeout_of: TimeoutOf,
}

/// The origin of a run's timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutOf {
    /// The workflow or the settings.
    Workflow,
    /// The task of a sub-agent.
    Subagent,
    /// A conversation that waits for the run.
    Conversation,
}

impl Limits {
    /// For a timeline, which only replays recorded steps.
    pub(super) const UNLIMITED: Self = Self {
        max_stages: u64::MAX,
        max_depth: u32::MAX,
        timeout: Duration::from_secs(60),
        max_model_calls: u64::MAX,
        max_tokens: 0,
        max_parallel: usize::MAX,
        timeout_of: TimeoutOf::Workflow,
    };

    /// The limits of a workflow file, capped by the settings.
    pub fn resolve(settings: &WorkflowLimits, file: &LimitsConfig) -> Self {
        // 0 means no limit, in the file as in the settings.
        let within = |own: Option<u64>, most: u64| match (own.filter(|own| *own > 0), most) {
            (None, most) => most,
            (Some(own), 0) => own,
            (Some(own), most) => own.min(most),
        };
        Self {
            max_stages: within(file.max_stages, settings.max_stages),
            max_depth: file.max_depth.map_or(settings.max_depth, |own| own.min(settings.max_depth)),
            timeout: file.timeout.map_or(settings.timeout.0, |own| own.min(settings.timeout.0)),
            max_model_calls: within(file.max_model_calls, settings.max_model_calls),
            max_tokens: within(file.max_tokens, settings.max_tokens),
            max_parallel: settings.max_parallel,
            timeout_of: TimeoutOf::Workflow,
        }
    }

    /// These limits for a run that may take `timeout` at most.
    pub(crate) fn within(self, timeout: Duration, timeout_of: TimeoutOf) -> Self {
        if timeout < self.timeout { Self { timeout, timeout_of, ..self } } else { self }
    }
}

/// Usage counters of a run. Each method adds to a counter and fails if its limit is exceeded. The errors are for
/// people.
pub(in crate::workflow) struct UsageCounters {
    limits: Limits,
    stages: AtomicU64,
    model_calls: AtomicU64,
    tokens: AtomicU64,
    http: Mutex<HttpCalls>,
}

/// The HTTP calls of nodes that limits count.
#[derive(Debug, Default)]
struct HttpCalls {
    made: u64,
    /// The times of the calls in the last minute, in order.
    recent: VecDeque<Timestamp>,
}

/// The limit that an HTTP call exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::workflow) enum HttpLimit {
    /// So many calls in the run.
    OfRun(u64),
    /// So many calls in a minute.
    OfMinute(u64),
}

impl UsageCounters {
    pub(super) fn new(limits: Limits) -> Self {
        let (stages, model_calls, tokens) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { limits, stages, model_calls, tokens, http: Mutex::default() }
    }

    /// Counts an HTTP call at this time. A call that exceeds a limit does not count. `None` is no limit.
    pub(in crate::workflow) fn count_http_call(
        &self,
        at: Timestamp,
        of_run: Option<u64>,
        of_minute: Option<u64>,
    ) -> Result<(), HttpLimit> {
        let mut calls = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = at.minus(Duration::from_secs(60));
        calls.recent.retain(|made| *made > begin);
        if let Some(most) = of_run.filter(|most| calls.made >= *most) {
            return Err(HttpLimit::OfRun(most));
        }
        let recent = u64::try_from(calls.recent.len()).unwrap_or(u64::MAX);
        if let Some(most) = of_minute.filter(|most| recent >= *most) {
            return Err(HttpLimit::OfMinute(most));
        }
        calls.made += 1;
        calls.recent.push_back(at);
        Ok(())
    }

    pub(in crate::workflow) fn count_stage(&self, depth: u32) -> Result<(), String> {
        let Limits { max_stages, max_depth, .. } = self.limits;
        if depth > max_depth {
            return Err(exceeded("the run's workflows are nested deeper", max_depth.into(), "max_depth"));
        }
        let begun = self.stages.fetch_add(1, Ordering::Relaxed) + 1;
        if begun > max_stages { Err(exceeded("the run started more stages", max_stages, "max_stages")) } else { Ok(()) }
    }

    pub(super) fn count_model_call(&self) -> Result<(), String> {
        let most = self.limits.max_model_calls;
        let made = self.model_calls.fetch_add(1, Ordering::Relaxed) + 1;
        if made > most { Err(exceeded("the run made more model calls", most, "max_model_calls")) } else { Ok(()) }
    }

    pub(super) fn count_tokens(&self, tokens: TokenUsage) -> Result<(), String> {
        let most = self.limits.max_tokens;
        let now = tokens.prompt + tokens.completion;
        let used = self.tokens.fetch_add(now, Ordering::Relaxed) + now;
        if most > 0 && used > most { Err(exceeded("the run used more tokens", most, "max_tokens")) } else { Ok(()) }
    }

    /// Error of a run that exceeds its timeout.
    pub(super) fn timeout_message(&self) -> String {
        let timeout = duration::format(self.limits.timeout);
        match self.limits.timeout_of {
            TimeoutOf::Subagent => format!(
                "the task took longer than {timeout}; give a longer `timeout`, at most that of the agent file's `subagents`"
            ),
            TimeoutOf::Conversation => format!(
                "the run took longer than {timeout}, and a conversation waits no longer; give `execution_mode` `async`"
            ),
            TimeoutOf::Workflow => format!(
                "the run took longer than {timeout}; raise `limits.timeout` in the file or the setting workflow.timeout"
            ),
        }
    }

    pub(super) fn usage(&self) -> RunUsage {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RunUsage { stages: of(&self.stages), model_calls: of(&self.model_calls), tokens: of(&self.tokens) }
    }
}

fn exceeded(what: &str, most: u64, limit: &str) -> String {
    format!("{what} than allowed ({most}); raise `limits.{limit}` in the file or the setting workflow.{limit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_calls_are_counted_by_run_and_by_minute() {
        let counters = UsageCounters::new(Limits::UNLIMITED);
        let call = |seconds: i64| counters.count_http_call(Timestamp::from_millis(seconds * 1_000), Some(4), Some(2));
        assert_eq!((call(0), call(10)), (Ok(()), Ok(())));
        assert_eq!(call(59), Err(HttpLimit::OfMinute(2)));
        assert_eq!((call(60), call(70)), (Ok(()), Ok(())));
        assert_eq!(call(200), Err(HttpLimit::OfRun(4)));
        assert_eq!(counters.count_http_call(Timestamp::from_millis(200_000), None, None), Ok(()));
    }
}
