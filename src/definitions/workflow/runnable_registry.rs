//! The runnables that a stage may name: task agents, workflows, and flows registered in Rust. They share one set of
//! ids.

use super::check;
use super::definition::{RoleDefinition, Shape, StageDefinition, Target, Workflow, WorkflowRecord};
use super::read::WorkflowError;
use super::reader::{self, join};
use super::secrets;
use crate::agent::AgentRecord;
use crate::agent::validate::{KnownNames, models, unknown_connector};
use crate::document::{Finding, Report};
use base::config::nearest::question;
use decisions::node_type::NodeType;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::allowed_secrets::AllowedSecrets;
use types::model_names::ModelNames;

/// The runnables and models that exist, to check workflows against.
#[derive(Clone, Debug, Default)]
pub struct RunnableRegistry {
    /// Agents by id. The value is true for a task agent.
    agents: BTreeMap<String, bool>,
    workflows: BTreeMap<String, Arc<Workflow>>,
    flows: BTreeSet<String>,
    /// Names of the models in the settings; `None` if they are unknown.
    models: Option<Vec<String>>,
    /// Names of the connectors in the settings; `None` if they are unknown.
    connectors: Option<Vec<String>>,
    /// The secrets of the settings, with their hosts.
    secrets: AllowedSecrets,
    /// Task agents that cannot run, by id, with the reason.
    unfit: BTreeMap<String, String>,
}

/// The kind of thing that an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An agent with a `system_prompt`.
    TaskAgent,
    /// An agent that takes chats. A stage cannot run it.
    ChatAgent,
    /// A workflow that is registered under its own id.
    Workflow,
    /// A function registered in Rust.
    Flow,
}

impl Kind {
    /// The name in messages for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskAgent => "task agent",
            Self::ChatAgent => "chat agent",
            Self::Workflow => "workflow",
            Self::Flow => "flow",
        }
    }
}

impl RunnableRegistry {
    /// Starts with these flows.
    pub fn new(flows: impl IntoIterator<Item = String>) -> Self {
        Self { flows: flows.into_iter().collect(), ..Self::default() }
    }

    /// Adds the compiled-in agents and workflows.
    pub fn with_builtin(self) -> Self {
        let agents = crate::agent::load::builtin().into_iter().filter_map(|(_, agent)| agent.ok());
        let workflows = super::read::builtin().into_iter().filter_map(|(_, workflow)| workflow.ok());
        let agents: Vec<AgentRecord> = agents.collect();
        self.with_agents(&agents).with_workflows(workflows.map(|record| record.workflow))
    }

    /// Adds agents. An agent with the same id is replaced.
    pub fn with_agents<'a>(mut self, agents: impl IntoIterator<Item = &'a AgentRecord>) -> Self {
        let agents = agents.into_iter();
        self.agents.extend(agents.map(|agent| (agent.id().to_owned(), agent.config.is_task_agent())));
        self
    }

    /// Adds workflows. A workflow with the same id is replaced.
    pub fn with_workflows(mut self, workflows: impl IntoIterator<Item = Arc<Workflow>>) -> Self {
        self.workflows.extend(workflows.into_iter().map(|workflow| (workflow.id.clone(), workflow)));
        self
    }

    /// Sets the models of the settings. Stages may then name these models only.
    pub fn with_models(self, models: impl IntoIterator<Item = String>) -> Self {
        Self { models: Some(models.into_iter().collect()), ..self }
    }

    /// Sets the models, connectors and secrets that exist. A DATABASE node that names another connector gets a warning. An
    /// HTTP node that sends a secret to a host for which it is not is an error.
    pub fn with_names(self, names: &KnownNames) -> Self {
        let connectors = names.connectors().map(<[String]>::to_vec);
        let secrets = names.secrets().clone();
        Self { connectors, secrets, ..self.with_models(names.models().iter().cloned()) }
    }

    /// Checks the needs of these task agents, such as their models, against `names`. A task agent that fails the check
    /// cannot run.
    pub fn with_needs<'a>(mut self, agents: impl IntoIterator<Item = &'a AgentRecord>, names: &KnownNames) -> Self {
        for agent in agents.into_iter().filter(|agent| agent.config.is_task_agent()) {
            // The source is dropped, so that the error does not point at lines of another file.
            let checked = names.check(AgentRecord { source: None, ..agent.clone() });
            self.unfit.extend(checked.err().map(|problem| (agent.id().to_owned(), problem.to_string())));
        }
        self
    }

    /// The kind of thing that `id` names; `None` if it names nothing.
    pub fn kind(&self, id: &str) -> Option<Kind> {
        let agent = || self.agents.get(id).map(|task| if *task { Kind::TaskAgent } else { Kind::ChatAgent });
        if self.flows.contains(id) {
            Some(Kind::Flow)
        } else if self.workflows.contains_key(id) {
            Some(Kind::Workflow)
        } else {
            agent()
        }
    }

    /// The workflow with this id.
    pub fn workflow(&self, id: &str) -> Option<&Arc<Workflow>> {
        self.workflows.get(id)
    }

    /// Checks a workflow. Returns it with its warnings, or the errors that keep it from working.
    pub fn check(&self, record: WorkflowRecord) -> Result<(WorkflowRecord, Vec<Finding>), WorkflowError> {
        let report = check::check(&record.workflow, self);
        settle(record, report)
    }

    /// Checks a workflow that was built in code, like [`RunnableRegistry::check`]. An unknown name in a template is no
    /// error here, because it appears in the stage's input.
    pub fn check_built(&self, record: WorkflowRecord) -> Result<(WorkflowRecord, Vec<Finding>), WorkflowError> {
        let mut report = Report::default();
        self.check_runnables(&record.workflow, &mut report);
        settle(record, report)
    }

    /// Checks that every reference names something that can run, and that no chain of references leads back to the
    /// workflow.
    pub(super) fn check_runnables(&self, workflow: &Workflow, report: &mut Report) {
        if let Some(kind @ (Kind::Flow | Kind::TaskAgent)) = self.other(&workflow.id) {
            let problem = format!("there is a {} with the id `{}` already", kind.as_str(), workflow.id);
            report.error(
                "id",
                problem,
                "task agents, workflows and flows share one set of ids: give this one another id",
            );
        }
        stages(workflow).into_iter().for_each(|(path, stage)| self.check_models(&path, stage, report));
        self.check_connectors(workflow, report);
        secrets::check(workflow, &self.secrets, report);
        let mut harmless = BTreeSet::new();
        for (path, id) in references(workflow) {
            if id == workflow.id {
                report.error(path, "a workflow cannot run itself", "a loop repeats stages");
            } else if let Some(way) = self.way(id, &workflow.id, &mut harmless) {
                let way: Vec<String> = way.iter().map(|id| format!("`{id}`")).collect();
                let problem = format!("`{}` runs itself by way of {}", workflow.id, way.join(", then "));
                report.error(path, problem, "remove one of these references");
            } else {
                self.reference(path, id, report);
            }
        }
        for (path, RoleDefinition { agent, model }) in roles(workflow) {
            if let Some(kind @ (Kind::Workflow | Kind::Flow)) = self.kind(agent) {
                let problem = format!("`{agent}` is a {}", kind.as_str());
                report.error(
                    join(&path, "agent"),
                    problem,
                    "a role needs a task agent: an agent with a `system_prompt`",
                );
            }
            if let Some((names, known)) = model.as_ref().zip(self.models.as_ref()) {
                models(names, &join(&path, "model"), known, report);
            }
        }
    }

    /// Checks the models that a stage names: they must exist, and the stage must run something that uses them.
    fn check_models(&self, path: &str, stage: &StageDefinition, report: &mut Report) {
        let Some(names) = &stage.model else { return };
        let path = join(path, "model");
        let asks = |id: &String| !matches!(self.kind(id), Some(Kind::Workflow));
        if !matches!(&stage.runnable, Target::Reference(id) if asks(id)) {
            let hint =
                "only a task agent or a flow asks the model of its stage; write it at the inner stages, or remove it";
            report.warn(&path, "has no effect here", hint);
        }
        if let Some(known) = &self.models {
            models(names, &path, known, report);
        }
    }

    /// Checks that the DATABASE nodes of a graph name connectors that exist.
    fn check_connectors(&self, workflow: &Workflow, report: &mut Report) {
        let (Shape::Graph(graph), Some(known)) = (&workflow.shape, &self.connectors) else { return };
        graph.level.walk("", &mut |path, node| {
            let name = node.spec.config.get("connection").and_then(Value::as_str);
            let is_unknown = |name: &&str| node.kind() == NodeType::Database && known.iter().all(|known| known != name);
            if let Some(name) = name.filter(is_unknown) {
                let (problem, hint) = unknown_connector(name, known);
                report.warn(format!("{path}.config.connection"), problem, hint);
            }
        });
    }

    /// The kind of another thing that has the id of a workflow.
    fn other(&self, id: &str) -> Option<Kind> {
        match self.kind(id) {
            Some(Kind::Workflow) => self.agents.get(id).filter(|task| **task).map(|_| Kind::TaskAgent),
            other => other,
        }
    }

    fn reference(&self, path: String, id: &str, report: &mut Report) {
        match self.kind(id) {
            Some(Kind::TaskAgent) => {
                if let Some(problem) = self.unfit.get(id) {
                    let hint = "correct the agent and apply it again, or change the settings of the workers";
                    report.error(path, format!("the task agent `{id}` cannot run: {problem}"), hint);
                }
            }
            Some(Kind::Workflow | Kind::Flow) => {}
            Some(Kind::ChatAgent) => {
                let hint = format!("`{id}` is an agent that takes chats; a stage needs one with a `system_prompt`");
                report.error(path, format!("Runnable not found: {id}"), hint);
            }
            None => {
                let tasks = self.agents.iter().filter(|(_, task)| **task).map(|(id, _)| id);
                let known = tasks.chain(self.workflows.keys()).chain(&self.flows).map(String::as_str);
                let remedy = "apply a task agent, add a workflow file with that id, or register a flow";
                let hint = format!("{} {remedy}", question(id, known));
                report.error(path, format!("Runnable not found: {id}"), hint.trim());
            }
        }
    }

    /// The chain of references from `from` to `to`, both included. `harmless` collects the workflows that do not lead
    /// to `to`.
    fn way<'a>(&'a self, from: &'a str, to: &str, harmless: &mut BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
        // An explicit stack, because a chain may be long. Each entry has an id and its references that are still to
        // visit.
        let mut way = vec![(from, self.named(from))];
        harmless.insert(from);
        while let Some((_, left)) = way.last_mut() {
            match left.pop() {
                None => drop(way.pop()),
                Some(id) if id == to => {
                    return Some(way.into_iter().map(|(id, _)| id).chain([id]).collect());
                }
                Some(id) if harmless.insert(id) => way.push((id, self.named(id))),
                Some(_) => {}
            }
        }
        None
    }

    fn named<'a>(&'a self, id: &str) -> Vec<&'a str> {
        let workflow = self.workflows.get(id).map(Arc::as_ref);
        workflow.into_iter().flat_map(references).map(|(_, id)| id).collect()
    }
}

fn settle(record: WorkflowRecord, found: Report) -> Result<(WorkflowRecord, Vec<Finding>), WorkflowError> {
    let (_, mut report) = reader::read(&record.document);
    report.errors.extend(found.errors);
    report.warnings.extend(found.warnings);
    if let Some(text) = &record.source {
        report.find(text);
    }
    if report.is_ok() { Ok((record, report.warnings)) } else { Err(WorkflowError::Invalid(report.errors)) }
}

/// Every id that a workflow and its inline workflows reference, with its path.
pub fn references(workflow: &Workflow) -> Vec<(String, &str)> {
    let mut named = Vec::new();
    for (path, stage) in stages(workflow) {
        if let Target::Reference(id) = &stage.runnable {
            named.push((join(&path, "runnable"), id.as_str()));
        }
    }
    named.extend(roles(workflow).into_iter().map(|(path, role)| (join(&path, "agent"), role.agent.as_str())));
    named
}

/// Every role of a workflow and its inline workflows, with its path in the file.
fn roles(workflow: &Workflow) -> Vec<(String, &RoleDefinition)> {
    let within = stages(workflow).into_iter().filter_map(|(path, stage)| match &stage.runnable {
        Target::Inline(inner) => Some((join(&path, "runnable"), inner.as_ref())),
        Target::Reference(_) => None,
    });
    let mut found = Vec::new();
    for (path, workflow) in std::iter::once((String::new(), workflow)).chain(within) {
        if let Shape::Dynamic(dynamic) = &workflow.shape {
            found.extend(dynamic.roles().map(|(name, role)| (join(&path, name), role)));
        }
    }
    found
}

/// Every stage of a workflow and its inline workflows, with its path in the file.
fn stages(workflow: &Workflow) -> Vec<(String, &StageDefinition)> {
    let mut found = Vec::new();
    collect(workflow, "", &mut found);
    found
}

fn collect<'a>(workflow: &'a Workflow, path: &str, found: &mut Vec<(String, &'a StageDefinition)>) {
    for (at, stage) in paths(&workflow.shape) {
        let path = join(path, &at);
        found.push((path.clone(), stage));
        if let Target::Inline(within) = &stage.runnable {
            collect(within, &join(&path, "runnable"), found);
        }
    }
}

/// The stages and roles that name models, by their ids from the outermost one on, such as `outer_loop/verify`.
pub fn models_of_stages(workflow: &Workflow) -> Vec<(String, &ModelNames)> {
    let mut found = Vec::new();
    collect_models(workflow, "", &mut found);
    found
}

fn collect_models<'a>(workflow: &'a Workflow, path: &str, found: &mut Vec<(String, &'a ModelNames)>) {
    if let Shape::Dynamic(dynamic) = &workflow.shape {
        let named = dynamic.roles().into_iter().filter_map(|(name, role)| Some((name, role.model.as_ref()?)));
        found.extend(named.map(|(name, names)| (below(path, name), names)));
    }
    for stage in workflow.shape.stages() {
        let path = below(path, &stage.id);
        found.extend(stage.model.iter().map(|names| (path.clone(), names)));
        if let Target::Inline(within) = &stage.runnable {
            collect_models(within, &path, found);
        }
    }
}

fn below(path: &str, id: &str) -> String {
    if path.is_empty() { id.to_owned() } else { format!("{path}/{id}") }
}

/// The stages of a workflow with their paths in it.
pub(super) fn paths(shape: &Shape) -> Vec<(String, &StageDefinition)> {
    let numbered = |list: &str, stages: &'_ [StageDefinition]| -> Vec<String> {
        (0..stages.len()).map(|at| format!("{list}[{at}]")).collect()
    };
    let paths = match shape {
        Shape::Pipeline { stages, .. } | Shape::Loop { stages, .. } => numbered("stages", stages),
        Shape::Parallel { branches, .. } => numbered("branches", branches),
        Shape::Conditional { routes, default } => {
            let routes = (0..routes.len()).map(|at| format!("routes[{at}].stage"));
            routes.chain(default.iter().map(|_| "default".to_owned())).collect()
        }
        Shape::Dynamic(dynamic) => (0..dynamic.agents.len()).map(|at| format!("agents[{at}]")).collect(),
        Shape::Graph(graph) => graph.level.stages().into_iter().map(|(path, _)| path).collect(),
    };
    paths.into_iter().zip(shape.stages()).collect()
}
