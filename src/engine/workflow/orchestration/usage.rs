//! Limits of a run, and the counters of its usage.

use base::config::WorkflowLimits;
use definitions::workflow::definition::LimitsConfig;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::duration;
use types::run_outcome::RunUsage;
use types::step::TokenUsage;

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
    /// True if a sub-agent's timeout limits the run, and not that of the workflow.
    pub is_subagent_timeout: bool,
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
        is_subagent_timeout: false,
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
            is_subagent_timeout: false,
        }
    }

    /// These limits for a sub-agent's task, which may take `timeout` at most.
    pub(crate) fn of_subagent(self, timeout: Duration) -> Self {
        if timeout < self.timeout { Self { timeout, is_subagent_timeout: true, ..self } } else { self }
    }
}

/// Usage counters of a run. Each method adds to a counter and fails if its limit is exceeded. The errors are for
/// people.
pub(in crate::workflow) struct UsageCounters {
    limits: Limits,
    stages: AtomicU64,
    model_calls: AtomicU64,
    tokens: AtomicU64,
}

impl UsageCounters {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, stages: AtomicU64::new(0), model_calls: AtomicU64::new(0), tokens: AtomicU64::new(0) }
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
        if self.limits.is_subagent_timeout {
            return format!(
                "the task took longer than {timeout}; give a longer `timeout`, at most that of the agent file's `subagents`"
            );
        }
        format!(
            "the run took longer than {timeout}; raise `limits.timeout` in the file or the setting workflow.timeout"
        )
    }

    pub(super) fn usage(&self) -> RunUsage {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RunUsage { stages: of(&self.stages), model_calls: of(&self.model_calls), tokens: of(&self.tokens) }
    }
}

fn exceeded(what: &str, most: u64, limit: &str) -> String {
    format!("{what} than allowed ({most}); raise `limits.{limit}` in the file or the setting workflow.{limit}")
}
