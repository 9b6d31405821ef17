//! The definition of a workflow: the parsed file, with parsed templates and conditions.

use super::condition::Condition;
use super::graph::GraphDefinition;
use super::session_plan::PlanState;
use super::template::InputMapping;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use types::model_names::ModelNames;
use types::timestamp::Timestamp;

/// A workflow, outermost or inline.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// Id of the workflow.
    pub id: String,
    /// Description for listings.
    pub description: String,
    /// The type of the workflow, with its stages.
    pub shape: Shape,
    /// Limits of a run. Only those of the outermost workflow count.
    pub limits: LimitsConfig,
}

/// The six types of workflow.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Runs its stages one after the other.
    Pipeline {
        /// The stages, in order.
        stages: Vec<StageDefinition>,
        /// Template of the output; without one, the output is that of the last stage.
        output: Option<InputMapping>,
        /// Outputs of the enclosing workflow that the stages see.
        inherit_keys: Vec<String>,
    },
    /// Repeats its stages while the condition holds.
    Loop {
        /// The stages, in order.
        stages: Vec<StageDefinition>,
        /// Checked after each iteration. If it holds, another iteration follows.
        condition: Condition,
        /// The largest number of iterations, at least 1.
        max_iterations: u32,
        /// Template of the output, filled from the last iteration; without one, the output is that of the last stage.
        output: Option<InputMapping>,
        /// Outputs of the enclosing workflow that the stages see.
        inherit_keys: Vec<String>,
    },
    /// Runs all branches concurrently.
    Parallel {
        /// The branches, in the order of the merged output.
        branches: Vec<StageDefinition>,
        /// Template of the output, filled from the outputs of the branches.
        merge_template: Option<InputMapping>,
        /// How many branches run concurrently; the setting `workflow.max_parallel` unless given.
        max_concurrency: Option<usize>,
    },
    /// Runs the first route whose condition holds.
    Conditional {
        /// The routes, in order.
        routes: Vec<Route>,
        /// The stage that runs if no condition holds.
        default: Option<Box<StageDefinition>>,
    },
    /// Runs a plan that a model makes.
    Dynamic(Box<DynamicDefinition>),
    /// Runs each node as soon as the nodes before it have ended.
    Graph(Box<GraphDefinition>),
}

impl Shape {
    /// The name of the type in files.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pipeline { .. } => "pipeline",
            Self::Loop { .. } => "loop",
            Self::Parallel { .. } => "parallel",
            Self::Conditional { .. } => "conditional",
            Self::Dynamic(_) => "dynamic",
            Self::Graph(_) => "graph",
        }
    }

    /// The output template of a pipeline or loop.
    pub fn output(&self) -> Option<&InputMapping> {
        match self {
            Self::Pipeline { output, .. } | Self::Loop { output, .. } => output.as_ref(),
            Self::Parallel { .. } | Self::Conditional { .. } | Self::Dynamic(_) | Self::Graph(_) => None,
        }
    }

    /// All stages, branches and stages of routes, in the order of the file; for a dynamic workflow the agents of its
    /// plans, for a graph its RUNNABLE nodes.
    pub fn stages(&self) -> Vec<&StageDefinition> {
        match self {
            Self::Pipeline { stages, .. } | Self::Loop { stages, .. } => stages.iter().collect(),
            Self::Parallel { branches, .. } => branches.iter().collect(),
            Self::Conditional { routes, default } => {
                routes.iter().map(|route| &route.stage).chain(default.as_deref()).collect()
            }
            Self::Dynamic(dynamic) => dynamic.agents.iter().map(|agent| &agent.stage).collect(),
            Self::Graph(graph) => graph.level.stages().into_iter().map(|(_, stage)| stage).collect(),
        }
    }
}

/// A dynamic workflow: the task agents in its four roles, and the agents that the steps of a plan may name.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicDefinition {
    /// Makes the plan, asks the user back or rejects the question.
    pub plan: RoleDefinition,
    /// Decides how to continue after an incomplete review.
    pub replan: RoleDefinition,
    /// Judges whether the results are complete.
    pub review: RoleDefinition,
    /// Writes the answer.
    pub summary: RoleDefinition,
    /// The agents that the steps of a plan may name.
    pub agents: Vec<SubAgentDefinition>,
    /// The largest number of node activations, at least 1.
    pub max_iterations: u32,
    /// How many steps run concurrently; the setting `workflow.max_parallel` unless given.
    pub max_concurrency: Option<usize>,
}

impl DynamicDefinition {
    /// The roles with their names in files.
    pub fn roles(&self) -> [(&'static str, &RoleDefinition); 4] {
        [("plan", &self.plan), ("replan", &self.replan), ("review", &self.review), ("summary", &self.summary)]
    }

    /// The agent with this name.
    pub fn agent(&self, name: &str) -> Option<&SubAgentDefinition> {
        self.agents.iter().find(|agent| agent.name() == name)
    }
}

/// The task agent in a role of a dynamic workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleDefinition {
    /// Id of the task agent.
    pub agent: String,
    /// The model that the agent uses instead of its own.
    pub model: Option<ModelNames>,
}

/// An agent that the steps of a plan may name.
#[derive(Clone, Debug, PartialEq)]
pub struct SubAgentDefinition {
    /// The runnable with its retries. The id of the stage is the agent's name.
    pub stage: StageDefinition,
    /// The agent's abilities, for the planner.
    pub description: String,
}

impl SubAgentDefinition {
    /// The name that steps use.
    pub fn name(&self) -> &str {
        &self.stage.id
    }
}

/// A stage of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct StageDefinition {
    /// Id of the stage, and name of its output.
    pub id: String,
    /// The runnable of the stage.
    pub runnable: Target,
    /// Template of the stage's input.
    pub input: InputMapping,
    /// The condition under which the stage runs; without one it always runs.
    pub condition: Option<Condition>,
    /// Attempts after a failure.
    pub retry: Retry,
    /// Timeout of one attempt.
    pub timeout: Option<Duration>,
    /// The model that the stage's task agent uses instead of its own.
    pub model: Option<ModelNames>,
}

/// A route of a conditional workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The condition under which the route is taken.
    pub condition: Condition,
    /// The stage that the route runs.
    pub stage: StageDefinition,
}

/// The runnable of a stage.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Id of a task agent, a workflow or a function registered in Rust.
    Reference(String),
    /// An inline workflow.
    Inline(Box<Workflow>),
}

impl Target {
    /// Id of the runnable.
    pub fn id(&self) -> &str {
        match self {
            Self::Reference(id) => id,
            Self::Inline(workflow) => &workflow.id,
        }
    }
}

/// How often a stage is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The largest number of attempts, at least 1.
    pub max_attempts: u32,
    /// Delay before the second attempt. It doubles for each further attempt.
    pub backoff: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 1, backoff: Duration::from_secs(1) }
    }
}

/// Limits of a run, from a workflow file's `limits`. Absent fields take the values of the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsConfig {
    /// The most stages to start, over all iterations and branches.
    pub max_stages: Option<u64>,
    /// The deepest nesting of workflows.
    pub max_depth: Option<u32>,
    /// The most execution time. Waiting for a user, and time in which no worker runs it, do not count.
    pub timeout: Option<Duration>,
    /// The most model calls.
    pub max_model_calls: Option<u64>,
    /// The most tokens of prompts and answers. 0 means no limit in this file, so that the settings' limit applies.
    pub max_tokens: Option<u64>,
}

/// A registered workflow: the document, and the definition parsed from it.
#[derive(Clone, Debug)]
pub struct WorkflowRecord {
    /// The parsed definition.
    pub workflow: Arc<Workflow>,
    /// The whole file.
    pub document: Value,
    /// md5 of the canonical JSON of `document`.
    pub hash: String,
    /// When the workflow was registered.
    pub updated_at: Timestamp,
    /// The text that the document was parsed from, to locate problems; `None` for a stored workflow.
    pub source: Option<Arc<str>>,
    /// The session whose plan this is; `None` for a workflow that an operator registered.
    pub owner_session: Option<Arc<str>>,
}

impl WorkflowRecord {
    /// Id of the workflow.
    pub fn id(&self) -> &str {
        &self.workflow.id
    }

    /// True if a run for this session may execute it. The plan of a session is for its own runs only.
    pub fn is_for(&self, session: Option<&str>) -> bool {
        self.owner_session.as_deref().is_none_or(|owner| session == Some(owner))
    }
}

/// A workflow as stored in `workflows`, under the key `workflow_id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoredWorkflow {
    /// Id of the workflow.
    #[serde(alias = "_id")]
    pub workflow_id: String,
    /// md5 of the canonical JSON of `definition`.
    pub hash: String,
    /// The whole file as registered.
    pub definition: Value,
    /// When the workflow was registered.
    pub updated_at: Timestamp,
    /// The state of a session's plan. A workflow that an operator registered has none, and is always ready.
    #[serde(flatten, default)]
    pub state: Option<PlanState>,
}
