//! One run of a graph: its inputs, its nodes and its output.

use super::replan::Replan;
use super::resolved::plain;
use super::reuse::Carried;
use super::revised::RevisedGraph;
use super::schedule::{self, Ended, LevelEnd, LevelRun};
use super::scope::{GraphRun, RecoveryCount};
use super::values::{NodeValues, RunValues, Sight};
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::StageContext;
use crate::workflow::orchestration::workflow::WorkflowOutput;
use decisions::node_type::NodeType;
use decisions::reference::resolve::value;
use decisions::revision;
use definitions::workflow::graph::inputs::inputs_in;
use definitions::workflow::graph::{GraphDefinition, GraphNode};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Executes a graph. `query` is its input text.
pub(in crate::workflow::orchestration) async fn run(
    context: &StageContext,
    workflow_id: &str,
    graph: &GraphDefinition,
    query: &str,
) -> Result<WorkflowOutput, Failure> {
    let given = context.params().cloned().unwrap_or_else(|| inputs_in(query));
    let inputs = graph.inputs(&given).map_err(|errors| Failure::fatal(context, errors.join("\n")))?;
    let env = graph.global.env.iter().flatten().map(|(name, text)| (name.clone(), text.as_str().into()));
    let values = RunValues { query: query.into(), inputs: Value::Object(inputs), env: env.collect() };
    let sight = Sight::root(values);
    let most = graph.max_concurrency.unwrap_or(context.run().max_parallel).max(1);
    let policy = GraphRun::policy(context, graph);
    let (recoveries, mut carried, mut revision) = (RecoveryCount::default(), Carried::default(), 0);
    let mut graph = Cow::Borrowed(graph);
    loop {
        let (policy, recoveries) = (policy.as_ref(), &recoveries);
        let scope = GraphRun { workflow_id, graph: &graph, most, home: context, revision, recoveries, policy };
        let (level, done) = (&graph.level, Arc::default());
        let level = LevelRun { context, scope: &scope, level, sight: sight.clone(), carried: Some(&carried), done };
        let quiet = match schedule::run(level).await? {
            LevelEnd::Ended(ended) => return Ok(text_of(&output(context, &graph, &ended)?).into()),
            LevelEnd::Quiet(quiet) => quiet,
        };
        let plan = with_changes(&graph.plan, &quiet.changed);
        let replan = Replan { context, scope: &scope, plan, troubles: quiet.troubles, sight: &quiet.sight };
        let revised = Box::pin(replan.revise(&mut revision)).await?;
        context.note_revision(RevisedGraph { number: revision, plan: revised.plan.clone() });
        (graph, carried) = (Cow::Owned(revised), quiet.carried);
    }
}

/// The plan with the nodes that recoveries have changed.
fn with_changes(plan: &Map<String, Value>, changed: &[(String, Map<String, Value>)]) -> Map<String, Value> {
    changed.iter().fold(plan.clone(), |plan, (id, node)| revision::with_node(&plan, id, node.clone()).unwrap_or(plan))
}

/// The output of the run: `global_config.output`, else that of the END node, else those of the last nodes that ran.
fn output(context: &StageContext, graph: &GraphDefinition, ended: &Ended) -> Result<Value, Failure> {
    if let Some(written) = &graph.global.output {
        let resolved = value(written, &NodeValues::of(&ended.sight));
        return resolved
            .map(plain)
            .map_err(|unresolved| Failure::fatal(context, format!("`global_config.output`: {unresolved}")));
    }
    let end = graph.level.nodes.iter().enumerate().find(|(at, node)| node.kind() == NodeType::End && ended.ran[*at]);
    Ok(match end {
        Some((_, end)) => ended.sight.outputs.get(end.id()).map_or(Value::Null, |output| output.as_ref().clone()),
        None => of_sinks(&graph.level.nodes, ended),
    })
}

/// The outputs of the last nodes that ran: that of a single one, else an object by node.
pub(super) fn of_sinks(nodes: &[GraphNode], ended: &Ended) -> Value {
    let output = |node: &GraphNode| ended.sight.outputs.get(node.id()).map_or(Value::Null, |one| one.as_ref().clone());
    let last: Vec<&GraphNode> = ended.last.iter().map(|at| &nodes[*at]).collect();
    match last.as_slice() {
        [] => Value::Null,
        [only] => output(only),
        several => several.iter().map(|node| (node.id().to_owned(), output(node))).collect(),
    }
}

/// The text of an output, for events and for the surrounding workflow: that of a model's or a workflow's text as it is,
/// else JSON.
pub(super) fn text_of(output: &Value) -> Arc<str> {
    match output {
        Value::Null => "".into(),
        Value::String(text) => text.as_str().into(),
        Value::Object(fields) => match (fields.len(), fields.get("text"), fields.get("data")) {
            (1, Some(Value::String(text)), None) | (2, Some(Value::String(text)), Some(Value::Null)) => {
                text.as_str().into()
            }
            _ => json!(fields).to_string().into(),
        },
        other => other.to_string().into(),
    }
}
