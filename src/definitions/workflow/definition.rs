//! What a workflow is made of, after reading: its templates and conditions are parsed.

use super::condition::Condition;
use super::template::InputMapping;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use types::model_names::ModelNames;
use types::timestamp::Timestamp;
use utoipa::ToSchema;

/// A workflow, or one within another (O-05).
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// Its id.
    pub id: String,
    /// For listings.
    pub description: String,
    /// What it does with its stages.
    pub shape: Shape,
    /// What its runs may take; those of the outermost workflow count.
    pub limits: LimitsConfig,
}

/// The five types.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// One stage after the other (O-18).
    Pipeline {
        /// In order.
        stages: Vec<Stage>,
        /// Makes its output of those of its stages; without one it is that of the last stage.
        output: Option<InputMapping>,
        /// Outputs of the enclosing workflow that its stages see.
        inherit_keys: Vec<String>,
    },
    /// The stages again and again while the condition holds (O-19).
    Loop {
        /// In order.
        stages: Vec<Stage>,
        /// Asked after each iteration.
        condition: Condition,
        /// At least 1.
        max_iterations: u32,
        /// Makes its output of those of the last iteration; without one it is that of the last stage.
        output: Option<InputMapping>,
        /// Outputs of the enclosing workflow that its stages see.
        inherit_keys: Vec<String>,
    },
    /// All branches at once (O-21).
    Parallel {
        /// In the order of the merged text.
        branches: Vec<Stage>,
        /// Makes the output of those of the branches.
        merge_template: Option<InputMapping>,
        /// How many branches run at once; the setting's number unless given.
        max_concurrency: Option<usize>,
    },
    /// The first route whose condition holds (O-23).
    Conditional {
        /// In order.
        routes: Vec<Route>,
        /// When no route fits.
        default: Option<Box<Stage>>,
    },
    /// A plan that a model makes, and what comes of it (group D).
    Dynamic(Box<Dynamic>),
}

impl Shape {
    /// The name used in files.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pipeline { .. } => "pipeline",
            Self::Loop { .. } => "loop",
            Self::Parallel { .. } => "parallel",
            Self::Conditional { .. } => "conditional",
            Self::Dynamic(_) => "dynamic",
        }
    }

    /// The template of a pipeline's or loop's output, if it has one.
    pub fn output(&self) -> Option<&InputMapping> {
        match self {
            Self::Pipeline { output, .. } | Self::Loop { output, .. } => output.as_ref(),
            Self::Parallel { .. } | Self::Conditional { .. } | Self::Dynamic(_) => None,
        }
    }

    /// Every stage, branch or route's stage, in the order of the file; of a dynamic workflow what its plans may name.
    pub fn stages(&self) -> Vec<&Stage> {
        match self {
            Self::Pipeline { stages, .. } | Self::Loop { stages, .. } => stages.iter().collect(),
            Self::Parallel { branches, .. } => branches.iter().collect(),
            Self::Conditional { routes, default } => {
                routes.iter().map(|route| &route.stage).chain(default.as_deref()).collect()
            }
            Self::Dynamic(dynamic) => dynamic.agents.iter().map(|agent| &agent.stage).collect(),
        }
    }
}

/// What a dynamic workflow is made of (D-04, D-17): who plans, judges and answers, and what the steps of a plan may name.
#[derive(Clone, Debug, PartialEq)]
pub struct Dynamic {
    /// Makes the plan, asks back or rejects.
    pub plan: Role,
    /// Decides what becomes of a review that misses something.
    pub replan: Role,
    /// Judges whether the results answer the question.
    pub review: Role,
    /// Writes the answer.
    pub summary: Role,
    /// What the steps of a plan may name.
    pub agents: Vec<SubAgent>,
    /// The most activations of nodes; at least 1 (OP-D7).
    pub max_iterations: u32,
    /// How many steps run at once; the setting's number unless given.
    pub max_concurrency: Option<usize>,
}

impl Dynamic {
    /// The roles by their names in files.
    pub fn roles(&self) -> [(&'static str, &Role); 4] {
        [("plan", &self.plan), ("replan", &self.replan), ("review", &self.review), ("summary", &self.summary)]
    }

    /// What a step names.
    pub fn agent(&self, name: &str) -> Option<&SubAgent> {
        self.agents.iter().find(|agent| agent.name() == name)
    }
}

/// Who plays a part in a dynamic workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// A task agent.
    pub agent: String,
    /// The model that it asks; its own unless given.
    pub model: Option<ModelNames>,
}

/// What the steps of a plan may name.
#[derive(Clone, Debug, PartialEq)]
pub struct SubAgent {
    /// What runs; its id is the name.
    pub stage: Stage,
    /// What it can find out, for whoever plans.
    pub description: String,
}

impl SubAgent {
    /// What a step calls it.
    pub fn name(&self) -> &str {
        &self.stage.id
    }
}

/// One part of a workflow (O-17).
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The name of its output.
    pub id: String,
    /// What it runs.
    pub runnable: Target,
    /// Makes its input.
    pub input: InputMapping,
    /// Whether it runs; without one it does.
    pub condition: Option<Condition>,
    /// What happens when it fails.
    pub retry: Retry,
    /// The most time of one attempt.
    pub timeout: Option<Duration>,
    /// What its task agent asks, in place of the models that it names itself.
    pub model: Option<ModelNames>,
}

/// A route of a conditional workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// When it is taken.
    pub condition: Condition,
    /// What runs then.
    pub stage: Stage,
}

/// What a stage runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A task agent, a workflow or a function registered in Rust, by id.
    Reference(String),
    /// A workflow written in its place.
    Inline(Box<Workflow>),
}

impl Target {
    /// What runs, by its id.
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
    /// At least 1.
    pub max_attempts: u32,
    /// Before the second attempt; doubled for each further one.
    pub backoff: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 1, backoff: Duration::from_secs(1) }
    }
}

/// What a run may take: of a workflow file's `limits`; what it leaves out is the setting's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Stages begun, over all iterations and branches.
    pub max_stages: Option<u64>,
    /// Workflows within workflows.
    pub max_depth: Option<u32>,
    /// Execution time; waits for a user, and times without a worker, do not count.
    pub timeout: Option<Duration>,
    /// Model calls.
    pub max_model_calls: Option<u64>,
    /// Tokens, of prompts and answers.
    pub max_tokens: Option<u64>,
}

/// A workflow as registered: what is stored, and what was read from it.
#[derive(Clone, Debug)]
pub struct WorkflowRecord {
    /// What runs.
    pub workflow: Arc<Workflow>,
    /// The whole file.
    pub document: Value,
    /// md5 of the canonical JSON of `document`.
    pub hash: String,
    /// When it was registered.
    pub updated_at: Timestamp,
    /// The text that it was read from, if any: what is wrong with it is found there.
    pub source: Option<Arc<str>>,
}

impl WorkflowRecord {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.workflow.id
    }
}

/// A workflow as stored (`workflows`); the key is `workflow_id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoredWorkflow {
    /// Key of the workflow.
    #[serde(alias = "_id")]
    pub workflow_id: String,
    /// md5 of the canonical JSON of `definition`.
    pub hash: String,
    /// The whole file as registered.
    pub definition: Value,
    /// When it was registered.
    pub updated_at: Timestamp,
}
