//! The world of a decision: workflows, sub-agents and the policy. It is a snapshot, so a verdict depends on its inputs
//! only.

use crate::policy::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The status of a session's plan. A workflow that an operator registered is always `READY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum WorkflowStatus {
    /// It is not complete.
    Draft,
    /// It can run.
    #[default]
    Ready,
    /// It runs.
    Running,
    /// Its last run succeeded. It can run again.
    Completed,
    /// Its last run failed. It needs a recovery or a replan.
    Failed,
    /// Its last run was cancelled.
    Cancelled,
}

impl WorkflowStatus {
    /// The name in all formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "DRAFT",
            Self::Ready => "READY",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// True if the workflow may run.
    pub const fn may_run(self) -> bool {
        matches!(self, Self::Ready | Self::Completed)
    }
}

/// A workflow as the validator knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkflowFacts {
    /// The id.
    pub workflow_id: String,
    /// The status.
    pub status: WorkflowStatus,
    /// True for a plan of the session. Only its session may change it.
    pub is_owned: bool,
    /// Nodes, edges and `global_config`, as in `create_workflow_plan`.
    pub definition: Map<String, Value>,
}

/// A type of sub-agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubagentFacts {
    /// JSON Schema of the task.
    pub input: Value,
    /// The longest time in seconds.
    pub timeout: Option<f64>,
}

/// The findings of a compiler about a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeFacts {
    /// The reason for which the script does not compile, with its line and remedy.
    pub error: Option<String>,
    /// Probable mistakes, with their line and remedy.
    pub warnings: Vec<String>,
}

/// Reads a condition in the grammar of workflow files, in which `{r0}` is a variable. The error is the problem with its
/// remedy.
pub type ConditionCheck = fn(&str) -> Result<(), String>;

/// The facts that a verdict depends on, besides the payload.
pub trait World {
    /// The workflow with this id.
    fn workflow(&self, id: &str) -> Option<&WorkflowFacts>;
    /// The session's workflow that was last created, changed or run.
    fn current(&self) -> Option<&WorkflowFacts>;
    /// The sub-agent of this type.
    fn subagent(&self, kind: &str) -> Option<&SubagentFacts>;
    /// The types of sub-agents, for messages.
    fn subagent_types(&self) -> Vec<&str>;
    /// The limits on decisions.
    fn policy(&self) -> &Policy;
    /// Checks a condition.
    fn check_condition(&self, condition: &str) -> Result<(), String>;
    /// The findings about a script; `None` if it was not compiled.
    fn code(&self, code: &str) -> Option<&CodeFacts>;
}

/// A world in memory.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Workflows by id.
    pub workflows: BTreeMap<String, WorkflowFacts>,
    /// Id of the session's current workflow.
    pub current: Option<String>,
    /// Sub-agents by type.
    pub subagents: BTreeMap<String, SubagentFacts>,
    /// The limits on decisions.
    pub policy: Policy,
    /// Findings about scripts by their code. Scripts that are not in it are not judged by a compiler.
    pub codes: BTreeMap<String, CodeFacts>,
    conditions: ConditionCheck,
}

impl Snapshot {
    /// A world without workflows and sub-agents.
    pub fn new(policy: Policy, conditions: ConditionCheck) -> Self {
        let (workflows, subagents, codes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { workflows, current: None, subagents, policy, codes, conditions }
    }

    /// Adds a workflow.
    pub fn add(&mut self, workflow: WorkflowFacts) {
        self.workflows.insert(workflow.workflow_id.clone(), workflow);
    }
}

impl World for Snapshot {
    fn workflow(&self, id: &str) -> Option<&WorkflowFacts> {
        self.workflows.get(id)
    }

    fn current(&self) -> Option<&WorkflowFacts> {
        self.workflows.get(self.current.as_deref()?)
    }

    fn subagent(&self, kind: &str) -> Option<&SubagentFacts> {
        self.subagents.get(kind)
    }

    fn subagent_types(&self) -> Vec<&str> {
        self.subagents.keys().map(String::as_str).collect()
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn check_condition(&self, condition: &str) -> Result<(), String> {
        (self.conditions)(condition)
    }

    fn code(&self, code: &str) -> Option<&CodeFacts> {
        self.codes.get(code)
    }
}
