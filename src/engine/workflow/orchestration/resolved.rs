//! The definitions that a run can reach, fixed in the versions of the run's start.

use super::stage_context::join;
use crate::workflow::orchestration::dynamic;
use crate::workflow::{Flow, Flows};
use async_trait::async_trait;
use base::error::SharedError;
use decisions::node_type::NodeType;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::{Shape, StageDefinition, Target, Workflow, WorkflowRecord};
use definitions::workflow::runnable_registry::models_of_stages;
use definitions::workflow::template::InputMapping;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use thiserror::Error;
use types::agent::coordinator::Mode;

/// Lookup of definitions, including the built-in ones.
#[async_trait]
pub trait Definitions: Send + Sync {
    /// Returns the current version of a workflow.
    async fn workflow(&self, id: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError>;
    /// Returns the version of a workflow with this hash.
    async fn workflow_version(&self, id: &str, hash: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError>;
    /// Returns the current version of an agent.
    async fn agent(&self, id: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError>;
    /// Returns the version of an agent with this hash.
    async fn agent_version(&self, id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError>;
}

/// Why the definitions of a run cannot be loaded.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The workflow or a definition that it references is missing or cannot run. The text is for people.
    #[error("{0}")]
    Unfit(#[source] SharedError),
    /// Neither a workflow nor a task agent has the id that is to run.
    #[error("there is no workflow or task agent `{0}`")]
    Unknown(String),
    /// The store cannot be read now. A later attempt may succeed.
    #[error("{0}")]
    Unavailable(#[source] SharedError),
    /// Only a newer version of the program can read a definition.
    #[error("{0}")]
    Newer(#[source] SharedError),
}

/// Ids and hashes of the definitions with which a run started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Id of the workflow that runs, or of a task agent that runs alone.
    pub workflow_id: String,
    /// Hashes of this workflow and of the workflows that it references, by id.
    pub workflows: BTreeMap<String, String>,
    /// Hashes of the task agents that the workflows reference, and of the coordinators of graphs, by id.
    pub agents: BTreeMap<String, String>,
}

impl Manifest {
    /// Hash of the workflow or task agent that runs.
    pub fn hash(&self) -> &str {
        let of_agent = || self.agents.get(&self.workflow_id);
        self.workflows.get(&self.workflow_id).or_else(of_agent).map_or("", String::as_str)
    }
}

/// The definitions that a run can reach, fixed in their versions.
#[derive(Clone)]
pub struct ResolvedDefinitions {
    root: Arc<WorkflowRecord>,
    workflows: HashMap<String, Arc<WorkflowRecord>>,
    agents: HashMap<String, Arc<AgentRecord>>,
    flows: HashMap<String, Arc<dyn Flow>>,
}

/// The definition to which a reference leads.
pub(super) enum Runnable<'a> {
    Workflow(&'a Workflow),
    Agent(&'a Arc<AgentRecord>),
    Flow(&'a Arc<dyn Flow>),
}

impl ResolvedDefinitions {
    /// Collects the current versions of all definitions that a run of `workflow_id` can reach. `flows` are the flows
    /// registered in Rust.
    pub async fn resolve(
        definitions: &dyn Definitions,
        flows: &Flows,
        workflow_id: &str,
    ) -> Result<Self, ResolveError> {
        let Some(root) = definitions.workflow(workflow_id).await? else {
            let agent = definitions.agent(workflow_id).await?.filter(|agent| agent.config.is_task_agent());
            return Self::from_agent(agent.ok_or_else(|| ResolveError::Unknown(workflow_id.to_owned()))?);
        };
        let mut resolved = Self::from_workflow(Arc::clone(&root));
        let mut left = vec![root];
        while let Some(record) = left.pop() {
            for id in coordinators(&record.workflow) {
                let agent = coordinator(definitions.agent(&id).await?, record.id(), &id)?;
                resolved.agents.insert(id, agent);
            }
            for id in references(&record.workflow) {
                if resolved.find(&id).is_some() {
                    continue;
                }
                if let Some(flow) = flows.get(&id) {
                    resolved.flows.insert(id, flow);
                } else if let Some(workflow) = definitions.workflow(&id).await? {
                    resolved.workflows.insert(id, Arc::clone(&workflow));
                    left.push(workflow);
                } else {
                    let agent = definitions.agent(&id).await?;
                    let agent = task_agent(agent, record.id(), &id)?;
                    resolved.agents.insert(id, agent);
                }
            }
        }
        Ok(resolved)
    }

    /// Loads the definitions with which a run has started, for a repeat of the run.
    pub async fn load(definitions: &dyn Definitions, flows: &Flows, manifest: &Manifest) -> Result<Self, ResolveError> {
        let gone = |id: &str, hash: &str| unfit(format!("the version {hash} of `{id}` no longer exists"));
        if let (true, Some(hash)) = (manifest.workflows.is_empty(), manifest.agents.get(&manifest.workflow_id)) {
            let agent = definitions.agent_version(&manifest.workflow_id, hash).await?;
            return Self::from_agent(agent.ok_or_else(|| gone(&manifest.workflow_id, hash))?);
        }
        let mut workflows = HashMap::new();
        for (id, hash) in &manifest.workflows {
            let found = definitions.workflow_version(id, hash).await?;
            workflows.insert(id.clone(), found.ok_or_else(|| gone(id, hash))?);
        }
        let root = workflows.get(&manifest.workflow_id).cloned();
        let root = root.ok_or_else(|| gone(&manifest.workflow_id, manifest.hash()))?;
        let mut resolved = Self { workflows, ..Self::from_workflow(root) };
        for (id, hash) in &manifest.agents {
            let found = definitions.agent_version(id, hash).await?;
            resolved.agents.insert(id.clone(), found.ok_or_else(|| gone(id, hash))?);
        }
        let named: Vec<String> = resolved.workflows.values().flat_map(|record| references(&record.workflow)).collect();
        for id in named {
            if resolved.find(&id).is_none() {
                let flow = flows.get(&id).ok_or_else(|| not_found(&id))?;
                resolved.flows.insert(id, flow);
            }
        }
        Ok(resolved)
    }

    /// A task agent that runs alone, as a pipeline of one stage.
    fn from_agent(agent: Arc<AgentRecord>) -> Result<Self, ResolveError> {
        let root = WorkflowRecord::of_agent(&agent).map_err(unfit)?;
        let (root, agents) = (Arc::new(root), HashMap::from([(agent.id().to_owned(), agent)]));
        Ok(Self { root, workflows: HashMap::new(), agents, flows: HashMap::new() })
    }

    fn from_workflow(root: Arc<WorkflowRecord>) -> Self {
        let workflows = HashMap::from([(root.id().to_owned(), Arc::clone(&root))]);
        Self { root, workflows, agents: HashMap::new(), flows: HashMap::new() }
    }

    /// Returns the workflow that runs.
    pub fn root(&self) -> &Arc<WorkflowRecord> {
        &self.root
    }

    /// Returns all workflows and task agents.
    pub fn definitions(&self) -> (impl Iterator<Item = &Arc<WorkflowRecord>>, impl Iterator<Item = &Arc<AgentRecord>>) {
        (self.workflows.values(), self.agents.values())
    }

    /// Returns the ids and hashes of the workflows and task agents.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            workflow_id: self.root.id().to_owned(),
            workflows: self.workflows.iter().map(|(id, record)| (id.clone(), record.hash.clone())).collect(),
            agents: self.agents.iter().map(|(id, record)| (id.clone(), record.hash.clone())).collect(),
        }
    }

    /// Returns the paths of the stages whose answer is the run's output without changes. Their text can be streamed
    /// to the user.
    pub(crate) fn output_stages(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_output_stages(&self.root.workflow, "", &mut found);
        found
    }

    fn collect_output_stages(&self, workflow: &Workflow, path: &str, found: &mut Vec<String>) {
        let stages = match &workflow.shape {
            Shape::Pipeline { stages, output, .. } => {
                let last = stages.last();
                let unchanged = |stage: &&StageDefinition| {
                    output.as_ref().is_none_or(|output| *output == InputMapping::passthrough(&stage.id))
                };
                last.into_iter().filter(unchanged).collect()
            }
            Shape::Conditional { .. } => workflow.shape.stages(),
            // The last iteration of a loop is known only after it has ended, and a merged text has no single author.
            Shape::Loop { .. } | Shape::Parallel { .. } => Vec::new(),
            Shape::Dynamic(_) => {
                found.extend(dynamic::OUTPUT_NODES.map(|node| join(path, node).to_string()));
                return;
            }
            Shape::Graph(graph) => match graph.speaker() {
                Some(node) if node.kind() == NodeType::Llm => {
                    found.push(join(path, node.id()).to_string());
                    return;
                }
                speaker => speaker.and_then(|node| node.stage.as_ref()).into_iter().collect(),
            },
        };
        for stage in stages {
            let path = join(path, &stage.id);
            match &stage.runnable {
                Target::Inline(inner) => self.collect_output_stages(inner, &path, found),
                Target::Reference(id) => match self.find(id) {
                    Some(Runnable::Workflow(inner)) => self.collect_output_stages(inner, &path, found),
                    Some(Runnable::Agent(_) | Runnable::Flow(_)) => found.push(path.to_string()),
                    None => {}
                },
            }
        }
    }

    /// Returns the model names of the agents, and those with which stages and roles override them.
    pub(super) fn models(&self) -> Vec<String> {
        let own = self.agents.values().flat_map(|agent| agent.config.model.iter().map(str::to_owned));
        own.chain(self.workflows.values().flat_map(|record| named_models(&record.workflow))).collect()
    }

    /// Returns the task agent or the coordinator of a graph with this id.
    pub(in crate::workflow) fn agent(&self, id: &str) -> Option<&Arc<AgentRecord>> {
        self.agents.get(id)
    }

    pub(super) fn workflow(&self, id: &str) -> Option<Arc<Workflow>> {
        self.workflows.get(id).map(|record| Arc::clone(&record.workflow))
    }

    pub(super) fn find(&self, id: &str) -> Option<Runnable<'_>> {
        let workflow = || self.workflows.get(id).map(|record| Runnable::Workflow(&record.workflow));
        let agent = || self.agents.get(id).filter(|agent| agent.config.is_task_agent()).map(Runnable::Agent);
        self.flows.get(id).map(Runnable::Flow).or_else(workflow).or_else(agent)
    }
}

fn task_agent(agent: Option<Arc<AgentRecord>>, workflow_id: &str, id: &str) -> Result<Arc<AgentRecord>, ResolveError> {
    match agent {
        None => Err(not_found(id)),
        Some(agent) if agent.config.is_task_agent() => Ok(agent),
        Some(_) => Err(unfit(format!(
            "workflow `{workflow_id}` names agent `{id}`, which takes chats; a stage needs an agent with a `system_prompt`"
        ))),
    }
}

fn coordinator(agent: Option<Arc<AgentRecord>>, workflow_id: &str, id: &str) -> Result<Arc<AgentRecord>, ResolveError> {
    let remedy = "apply an agent of that id with `mode: coordinator`, or remove `coordinator`";
    match agent {
        Some(agent) if agent.config.mode == Mode::Coordinator => Ok(agent),
        Some(_) => Err(unfit(format!("workflow `{workflow_id}` names agent `{id}` as its coordinator; {remedy}"))),
        None => {
            Err(unfit(format!("workflow `{workflow_id}` names the coordinator `{id}`, which does not exist; {remedy}")))
        }
    }
}

fn unfit(problem: impl Into<SharedError>) -> ResolveError {
    ResolveError::Unfit(problem.into())
}

/// Error for a reference to an unknown id.
fn not_found(id: &str) -> ResolveError {
    unfit(format!(
        "Runnable not found: {id}; apply an agent of that id, put a workflow of that id into workflows_dir, or register a flow"
    ))
}

/// Returns all ids that a workflow and its inline workflows reference.
fn references(workflow: &Workflow) -> Vec<String> {
    let mut found = Vec::new();
    if let Shape::Dynamic(dynamic) = &workflow.shape {
        found.extend(dynamic.roles().map(|(_, role)| role.agent.clone()));
    }
    for stage in workflow.shape.stages() {
        match &stage.runnable {
            Target::Reference(id) => found.push(id.clone()),
            Target::Inline(inner) => found.extend(references(inner)),
        }
    }
    found
}

/// Returns the ids of the coordinators of a graph and of graphs within a workflow.
fn coordinators(workflow: &Workflow) -> Vec<String> {
    let own = match &workflow.shape {
        Shape::Graph(graph) => graph.coordinator.clone(),
        _ => None,
    };
    let inner = workflow.shape.stages().into_iter().flat_map(|stage| match &stage.runnable {
        Target::Inline(inner) => coordinators(inner),
        Target::Reference(_) => Vec::new(),
    });
    own.into_iter().chain(inner).collect()
}

/// Returns all models that the stages and roles of a workflow and its inline workflows name.
fn named_models(workflow: &Workflow) -> Vec<String> {
    models_of_stages(workflow).into_iter().flat_map(|(_, names)| names.iter().map(str::to_owned)).collect()
}
