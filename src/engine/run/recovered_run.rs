//! Continues a failed run of a plan in a new run, with another version of the plan.

use super::recorded_end::END_KEY;
use super::start_record::{BEGIN_KEY, StartRecord};
use super::step_reuse;
use crate::execution::Services;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::graph::{GraphDefinition, GraphLevel};
use serde_json::json;
use storage::store::StoreError;
use types::run::{RunQuery, RunRecord, RunStatus};
use types::step::StepRecord;

/// The newest failed run of a plan of this session; `None` if none is stored.
pub(crate) async fn newest_failed(
    services: &Services,
    session_id: &str,
    workflow_id: &str,
) -> Result<Option<RunRecord>, StoreError> {
    let query = RunQuery {
        workflow_id: Some(workflow_id.to_owned()),
        origin_session: Some(session_id.to_owned()),
        status: Some(RunStatus::Failed),
        limit: 1,
        ..RunQuery::default()
    };
    Ok(services.store.runs(query).await?.pop())
}

/// The steps with which a new run of `version` continues `failed`: the first step with this version, and the steps of
/// the nodes that are neither `node` nor behind it, and that have not changed. With `keeps_failure` also the attempts of
/// `node`, so that it fails again without an effect. The first step is the last of them. Returns `None` if the steps of
/// `failed` are no longer stored.
pub(crate) async fn steps_to_keep(
    services: &Services,
    failed: &RunRecord,
    version: &WorkflowRecord,
    node: &str,
    keeps_failure: bool,
) -> Result<Option<Vec<StepRecord>>, StoreError> {
    let steps = services.store.steps(&failed.lane, &failed.turn_id).await?;
    let mut steps = step_reuse::steps_of_run(steps, &failed.prefix);
    let Some(begin) = steps.iter().find(|step| step.key == BEGIN_KEY).cloned() else { return Ok(None) };
    let Some(mut start) = StartRecord::from_steps(&steps, "") else { return Ok(None) };
    let before = services.store.workflow_version(version.id(), start.manifest.hash()).await?;
    let (Some(before), Some(now)) = (before.as_ref().and_then(|before| before.graph()), version.graph()) else {
        return Ok(None);
    };
    let kept = Kept { before, now, node: outermost(&now.level, node), keeps_failure };
    steps.retain(|step| kept.has(&step.key));
    start.manifest.workflows.insert(version.id().to_owned(), version.hash.clone());
    steps.push(StepRecord { output: json!(start), ..begin });
    Ok(Some(steps))
}

/// The id of the node of this level that is, or contains, the node with this id.
fn outermost<'g>(level: &'g GraphLevel, id: &'g str) -> &'g str {
    let contains = |body: &GraphLevel| body.find(id).is_some();
    let around = level.nodes.iter().find(|node| node.body.as_ref().is_some_and(contains));
    around.map_or(id, |node| node.id())
}

/// Which steps are kept.
struct Kept<'g> {
    before: &'g GraphDefinition,
    now: &'g GraphDefinition,
    /// The node that runs again.
    node: &'g str,
    keeps_failure: bool,
}

impl Kept<'_> {
    fn has(&self, key: &str) -> bool {
        if key == BEGIN_KEY || key == END_KEY || self.before.global != self.now.global {
            return false;
        }
        // Other edges may skip other nodes, or lead to other inputs.
        let edges = |graph: &GraphDefinition| graph.plan.get("edges").cloned();
        if edges(self.before) != edges(self.now) {
            return false;
        }
        let id = key.split(['/', '~', '[', '@']).next().unwrap_or_default();
        let level = &self.now.level;
        if level.place(id).is_none() {
            return false;
        }
        if id == self.node {
            return self.keeps_failure && !key.contains("/recover[");
        }
        let changed = level.nodes.iter().map(|node| node.id()).filter(|id| *id == self.node || self.has_changed(id));
        !changed.into_iter().any(|changed| changed == id || level.leads(changed, id))
    }

    fn has_changed(&self, id: &str) -> bool {
        let of = |graph: &GraphDefinition| graph.level.find(id).map(|node| node.spec.clone());
        of(self.before) != of(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn graph(change: impl FnOnce(&mut Value)) -> GraphDefinition {
        let node = |id: &str| json!({"node_id": id, "type": "LLM", "name": id, "config": {"prompt": id}});
        let edge = |source: &str, target: &str| json!({"source": source, "target": target});
        let mut plan = json!({"nodes": [node("a"), node("b"), node("c"), node("d")],
            "edges": [edge("a", "b"), edge("b", "c"), edge("a", "d")]});
        change(&mut plan);
        GraphDefinition::from_plan("g", plan.as_object().cloned().unwrap()).unwrap()
    }

    fn kept(now: &GraphDefinition, keeps_failure: bool) -> Vec<&'static str> {
        let before = graph(|_| ());
        let kept = Kept { before: &before, now, node: "b", keeps_failure };
        let keys = ["a/run", "b/run", "b~2/run", "b/recover[1]", "c/run", "d/0/model", "begin", "end", "x/run"];
        keys.into_iter().filter(|key| kept.has(key)).collect()
    }

    #[test]
    fn nodes_that_depend_on_a_changed_one_run_again() {
        assert_eq!(kept(&graph(|_| ()), false), ["a/run", "d/0/model"]);
        assert_eq!(kept(&graph(|_| ()), true), ["a/run", "b/run", "b~2/run", "d/0/model"]);
        let other = graph(|plan| plan["nodes"][3]["config"]["prompt"] = json!("x"));
        assert_eq!(kept(&other, false), ["a/run"]);
        let first = graph(|plan| plan["nodes"][0]["config"]["prompt"] = json!("x"));
        assert!(kept(&first, false).is_empty());
        let edges = graph(|plan| plan["edges"][2]["condition"] = json!("${a.output.text} > 1"));
        assert!(kept(&edges, false).is_empty());
    }
}
