//! What a run may run: every definition that it can reach, as it was when the run began.

use super::part::join;
use crate::workflow::orchestration::dynamic;
use crate::workflow::{Flow, Flows};
use async_trait::async_trait;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::{Shape, Stage, Target, Workflow, WorkflowRecord};
use definitions::workflow::known::models_of_stages;
use definitions::workflow::template::InputMapping;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use thiserror::Error;

/// Finds definitions, those that come with the program included.
#[async_trait]
pub trait Definitions: Send + Sync {
    /// The workflow as registered last.
    async fn workflow(&self, id: &str) -> Result<Option<Arc<WorkflowRecord>>, PinError>;
    /// The workflow as it was under `hash`.
    async fn workflow_version(&self, id: &str, hash: &str) -> Result<Option<Arc<WorkflowRecord>>, PinError>;
    /// The agent as applied last.
    async fn agent(&self, id: &str) -> Result<Option<Arc<AgentRecord>>, PinError>;
    /// The agent as it was under `hash`.
    async fn agent_version(&self, id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>, PinError>;
}

/// Why a run cannot begin.
#[derive(Debug, Error)]
pub enum PinError {
    /// The workflow, or one that it names, is not there, or cannot be run. For people.
    #[error("{0}")]
    Unfit(String),
    /// The definitions cannot be read now: the same may succeed later.
    #[error("{0}")]
    Unavailable(String),
}

/// Which definitions a run began with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The workflow that runs.
    pub workflow_id: String,
    /// It and those that it names, with their hashes.
    pub workflows: BTreeMap<String, String>,
    /// The task agents that they name, with their hashes.
    pub agents: BTreeMap<String, String>,
}

impl Manifest {
    /// The hash of the workflow that runs.
    pub fn hash(&self) -> &str {
        let of_agent = || self.agents.get(&self.workflow_id);
        self.workflows.get(&self.workflow_id).or_else(of_agent).map_or("", String::as_str)
    }
}

/// See the module.
#[derive(Clone)]
pub struct Pinned {
    root: Arc<WorkflowRecord>,
    workflows: HashMap<String, Arc<WorkflowRecord>>,
    agents: HashMap<String, Arc<AgentRecord>>,
    flows: HashMap<String, Arc<dyn Flow>>,
}

/// What a reference names.
pub(super) enum Runnable<'a> {
    Workflow(&'a Workflow),
    Agent(&'a Arc<AgentRecord>),
    Flow(&'a Arc<dyn Flow>),
}

impl Pinned {
    /// What a run of `workflow_id` can reach as of now; `flows` are the functions registered in Rust.
    pub async fn resolve(definitions: &dyn Definitions, flows: &Flows, workflow_id: &str) -> Result<Self, PinError> {
        let Some(root) = definitions.workflow(workflow_id).await? else {
            let agent = definitions.agent(workflow_id).await?.filter(|agent| agent.config.is_task_agent());
            let missing = || PinError::Unfit(format!("there is no workflow `{workflow_id}`, and no task agent"));
            return Self::of_agent(agent.ok_or_else(missing)?);
        };
        let mut pinned = Self::of(Arc::clone(&root));
        let mut left = vec![root];
        while let Some(record) = left.pop() {
            for id in references(&record.workflow) {
                if pinned.find(&id).is_some() {
                    continue;
                }
                if let Some(flow) = flows.get(&id) {
                    pinned.flows.insert(id, flow);
                } else if let Some(workflow) = definitions.workflow(&id).await? {
                    pinned.workflows.insert(id, Arc::clone(&workflow));
                    left.push(workflow);
                } else {
                    let agent = definitions.agent(&id).await?;
                    let agent = task_agent(agent, record.id(), &id)?;
                    pinned.agents.insert(id, agent);
                }
            }
        }
        Ok(pinned)
    }

    /// What a run began with, for its repetition.
    pub async fn load(definitions: &dyn Definitions, flows: &Flows, manifest: &Manifest) -> Result<Self, PinError> {
        let gone =
            |id: &str, hash: &str| PinError::Unfit(format!("`{id}` as it was under {hash} is not there any more"));
        if let (true, Some(hash)) = (manifest.workflows.is_empty(), manifest.agents.get(&manifest.workflow_id)) {
            let agent = definitions.agent_version(&manifest.workflow_id, hash).await?;
            return Self::of_agent(agent.ok_or_else(|| gone(&manifest.workflow_id, hash))?);
        }
        let mut workflows = HashMap::new();
        for (id, hash) in &manifest.workflows {
            let found = definitions.workflow_version(id, hash).await?;
            workflows.insert(id.clone(), found.ok_or_else(|| gone(id, hash))?);
        }
        let root = workflows.get(&manifest.workflow_id).cloned();
        let root = root.ok_or_else(|| gone(&manifest.workflow_id, manifest.hash()))?;
        let mut pinned = Self { workflows, ..Self::of(root) };
        for (id, hash) in &manifest.agents {
            let found = definitions.agent_version(id, hash).await?;
            pinned.agents.insert(id.clone(), found.ok_or_else(|| gone(id, hash))?);
        }
        let named: Vec<String> = pinned.workflows.values().flat_map(|record| references(&record.workflow)).collect();
        for id in named {
            if pinned.find(&id).is_none() {
                let flow = flows.get(&id).ok_or_else(|| not_found(&id))?;
                pinned.flows.insert(id, flow);
            }
        }
        Ok(pinned)
    }

    /// A task agent by itself (O-03): a pipeline of one stage.
    fn of_agent(agent: Arc<AgentRecord>) -> Result<Self, PinError> {
        let root = WorkflowRecord::of_agent(&agent).map_err(|error| PinError::Unfit(error.to_string()))?;
        let (root, agents) = (Arc::new(root), HashMap::from([(agent.id().to_owned(), agent)]));
        Ok(Self { root, workflows: HashMap::new(), agents, flows: HashMap::new() })
    }

    fn of(root: Arc<WorkflowRecord>) -> Self {
        let workflows = HashMap::from([(root.id().to_owned(), Arc::clone(&root))]);
        Self { root, workflows, agents: HashMap::new(), flows: HashMap::new() }
    }

    /// The workflow that runs.
    pub fn root(&self) -> &Arc<WorkflowRecord> {
        &self.root
    }

    /// The workflows and task agents in it, for what keeps their versions.
    pub fn definitions(&self) -> (impl Iterator<Item = &Arc<WorkflowRecord>>, impl Iterator<Item = &Arc<AgentRecord>>) {
        (self.workflows.values(), self.agents.values())
    }

    /// Their ids and hashes.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            workflow_id: self.root.id().to_owned(),
            workflows: self.workflows.iter().map(|(id, record)| (id.clone(), record.hash.clone())).collect(),
            agents: self.agents.iter().map(|(id, record)| (id.clone(), record.hash.clone())).collect(),
        }
    }

    /// The paths of the stages whose answer is the run's output as it is: what they say can be shown while they say it.
    pub fn speakers(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.speaking(&self.root.workflow, "", &mut found);
        found
    }

    fn speaking(&self, workflow: &Workflow, path: &str, found: &mut Vec<String>) {
        let stages = match &workflow.shape {
            Shape::Pipeline { stages, output, .. } => {
                let last = stages.last();
                let unchanged = |stage: &&Stage| {
                    output.as_ref().is_none_or(|output| *output == InputMapping::passthrough(&stage.id))
                };
                last.into_iter().filter(unchanged).collect()
            }
            Shape::Conditional { .. } => workflow.shape.stages(),
            // Which iteration is the last one is known too late, and a merged text is nobody's.
            Shape::Loop { .. } | Shape::Parallel { .. } => Vec::new(),
            Shape::Dynamic(_) => {
                found.extend(dynamic::SPEAKERS.map(|node| join(path, node).to_string()));
                return;
            }
        };
        for stage in stages {
            let path = join(path, &stage.id);
            match &stage.runnable {
                Target::Inline(inner) => self.speaking(inner, &path, found),
                Target::Reference(id) => match self.find(id) {
                    Some(Runnable::Workflow(inner)) => self.speaking(inner, &path, found),
                    Some(Runnable::Agent(_) | Runnable::Flow(_)) => found.push(path.to_string()),
                    None => {}
                },
            }
        }
    }

    /// The models that its agents ask, and those that stages and roles name in place of their agents' own.
    pub(super) fn models(&self) -> Vec<String> {
        let own = self.agents.values().flat_map(|agent| agent.config.model.iter().map(str::to_owned));
        own.chain(self.workflows.values().flat_map(|record| named_models(&record.workflow))).collect()
    }

    /// The task agent of that id.
    pub(in crate::workflow) fn agent(&self, id: &str) -> Option<&Arc<AgentRecord>> {
        self.agents.get(id)
    }

    pub(super) fn workflow(&self, id: &str) -> Option<Arc<Workflow>> {
        self.workflows.get(id).map(|record| Arc::clone(&record.workflow))
    }

    pub(super) fn find(&self, id: &str) -> Option<Runnable<'_>> {
        let workflow = || self.workflows.get(id).map(|record| Runnable::Workflow(&record.workflow));
        let agent = || self.agents.get(id).map(Runnable::Agent);
        self.flows.get(id).map(Runnable::Flow).or_else(workflow).or_else(agent)
    }
}

fn task_agent(agent: Option<Arc<AgentRecord>>, workflow_id: &str, id: &str) -> Result<Arc<AgentRecord>, PinError> {
    match agent {
        None => Err(not_found(id)),
        Some(agent) if agent.config.is_task_agent() => Ok(agent),
        Some(_) => Err(PinError::Unfit(format!(
            "workflow `{workflow_id}` names agent `{id}`, which takes chats; a stage needs an agent with a `system_prompt`"
        ))),
    }
}

/// What is said of a reference that leads nowhere (O-25).
fn not_found(id: &str) -> PinError {
    PinError::Unfit(format!(
        "Runnable not found: {id}; apply an agent of that id, put a workflow of that id into workflows_dir, or register a flow"
    ))
}

/// Every id that a workflow or one within it names.
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

/// Every model that a stage or role names, of a workflow and those written within it.
fn named_models(workflow: &Workflow) -> Vec<String> {
    models_of_stages(workflow).into_iter().flat_map(|(_, names)| names.iter().map(str::to_owned)).collect()
}
