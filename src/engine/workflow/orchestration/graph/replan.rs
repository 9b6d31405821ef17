//! Replans of a graph: at the quiet point, when everything that can run has ended, the coordinator changes the graph.

use super::failure::{NodeError, NodeFailure};
use super::notice::Notices;
use super::question::Question;
use super::recovery::EXHAUSTED;
use super::scope::GraphRun;
use super::trouble::{Trouble, Wish};
use super::values::Sight;
use super::verdict::{self, Verdict};
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::event::Rejection;
use decisions::kind::{Decision, DecisionType};
use decisions::revision;
use definitions::agent::AgentRecord;
use definitions::workflow::graph::GraphDefinition;
use serde_json::{Map, Value, json};
use types::run_outcome::RunFailure;

/// The replans of a run.
const MAX_REPLANS: u32 = 3;

/// A graph at its quiet point.
pub(super) struct Replan<'r> {
    pub(super) context: &'r StageContext,
    pub(super) scope: &'r GraphRun<'r>,
    /// The graph with the changes that recoveries have made to its nodes.
    pub(super) plan: Map<String, Value>,
    pub(super) troubles: Vec<Trouble>,
    pub(super) sight: &'r Sight,
}

/// A decision that is to be judged, and its events.
struct Proposed {
    decision: Decision,
    notices: Notices,
}

impl Replan<'_> {
    /// Changes the graph. `number` is that of the last replan, and becomes that of this one. A replan that is not valid is
    /// decided again, and counts.
    pub(super) async fn revise(mut self, number: &mut u32) -> Result<GraphDefinition, Failure> {
        let Some(agent) = self.scope.coordinator(self.context) else {
            return Err(self.fails("the graph has no coordinator", false));
        };
        let mut errors = Vec::new();
        let mut wish = self.wish();
        for rejections in 1.. {
            if *number >= MAX_REPLANS {
                return Err(self.fails(&format!("{EXHAUSTED}: the run has had {MAX_REPLANS} replans"), true));
            }
            *number += 1;
            let proposed = match wish.take() {
                Some(Wish { decision, notices }) => Ok(Proposed { decision, notices }),
                None => self.ask(*number, &agent, &errors).await?,
            };
            let Proposed { decision, notices } = match proposed {
                Ok(proposed) => proposed,
                Err(problems) => {
                    errors = problems;
                    continue;
                }
            };
            let kind = decision.decision_type;
            let verdict = self.judge(*number, &agent, decision).await?;
            self.note(*number, &agent, &verdict);
            let Verdict { errors: found, corrections, warnings, plan, .. } = verdict;
            let Some(plan) = plan else {
                notices.rejected(self.scope, kind, found.clone(), (rejections, Rejection::Invalid));
                errors = found;
                continue;
            };
            let graph = self.scope.graph.revised(plan).map_err(|error| self.fails(&error.to_string(), true))?;
            notices.validated(self.scope, kind, corrections, warnings).await;
            return Ok(graph);
        }
        Err(self.fails(EXHAUSTED, true))
    }

    /// The replan that the coordinator has decided already, if only one node has failed. Others are superseded, because
    /// they were decided without the later failures.
    fn wish(&mut self) -> Option<Wish> {
        if let [only] = self.troubles.as_mut_slice() {
            return only.wish.take();
        }
        for Wish { decision, notices } in self.troubles.iter_mut().filter_map(|trouble| trouble.wish.take()) {
            let errors = vec!["`replan_workflow` was decided before other nodes failed; decide again".to_owned()];
            notices.rejected(self.scope, decision.decision_type, errors, (1, Rejection::Superseded));
        }
        None
    }

    /// Asks the coordinator. The inner error has the problems of an answer that cannot be read.
    async fn ask(
        &self,
        number: u32,
        agent: &AgentRecord,
        rejected: &[String],
    ) -> Result<Result<Proposed, Vec<String>>, Failure> {
        let told: Vec<Value> = self.troubles.iter().map(Trouble::told).collect();
        let of_nodes = self.troubles.iter().flat_map(|trouble| &trouble.errors);
        let errors: Vec<String> = of_nodes.chain(rejected).cloned().collect();
        let key = format!("replan[{number}]/decide");
        let question = Question {
            here: self.context,
            scope: self.scope,
            agent,
            key: key.clone(),
            input: json!({"replan": number, "failures": told, "errors": errors}),
            kinds: &[DecisionType::ReplanWorkflow],
            plan: &self.plan,
            troubles: &self.troubles,
            sight: self.sight,
            errors: &errors,
            left: MAX_REPLANS - number + 1,
        };
        match Box::pin(question.ask()).await {
            Ok(Ok(decision)) => {
                let notices = Notices::of_replan(self.context, &step_key(number));
                notices.made(self.scope, &decision, &key);
                Ok(Ok(Proposed { decision, notices }))
            }
            Ok(Err(problems)) => Ok(Err(problems)),
            Err(NodeError::Journal(error)) => Err(error.into()),
            Err(NodeError::Failed(NodeFailure { code, message, fatal, .. })) => {
                Err(self.fails(&format!("the coordinator could not be asked for a replan: {code}: {message}"), fatal))
            }
            Err(NodeError::Troubled(_)) => Err(self.fails("the coordinator could not be asked for a replan", true)),
        }
    }

    /// Records the verdict, with the whole revised graph if it is valid.
    async fn judge(&self, number: u32, agent: &AgentRecord, decision: Decision) -> Result<Verdict, Failure> {
        let world = verdict::world(self.context, self.scope, Some(agent), self.plan.clone());
        let complete = |verdict: Verdict| {
            let changes = verdict.payload.get("suggested_changes").and_then(Value::as_object);
            let plan = changes.map_or_else(|| self.plan.clone(), |changes| revision::apply(&self.plan, changes).plan);
            match self.scope.graph.revised(plan.clone()) {
                Ok(_) => Verdict { plan: Some(plan), ..verdict },
                Err(error) => Verdict::rejected(vec![format!("`suggested_changes` {error}; correct it")]),
            }
        };
        match verdict::record(self.context, &step_key(number), &world, decision, complete).await {
            Ok(verdict) => Ok(verdict),
            Err(NodeError::Journal(error)) => Err(error.into()),
            Err(NodeError::Failed(_) | NodeError::Troubled(_)) => Err(self.fails("the replan was not judged", true)),
        }
    }

    /// Notes the replan, if the run is replayed for a timeline.
    fn note(&self, number: u32, agent: &AgentRecord, verdict: &Verdict) {
        let Some(notes) = self.context.run().notes.as_ref() else { return };
        let reason = verdict.payload.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned();
        let ended = if verdict.is_valid() { Ok(reason) } else { Err(verdict.errors.join("; ")) };
        let failed: Vec<String> =
            self.troubles.iter().map(|trouble| format!("{}: {}", trouble.path, trouble.failure.code)).collect();
        notes.note(&self.context.stage(&step_key(number)), (agent.id(), number), &failed.join("; "), ended);
    }

    /// The failure of the run at the first node that needs the replan.
    fn fails(&self, problem: &str, fatal: bool) -> Failure {
        let Some(Trouble { path, failure, attempts, .. }) = self.troubles.first() else {
            return Failure::fatal(self.context, problem);
        };
        let cause = format!("{problem}; {}: {}", failure.code, failure.message);
        Failure::Failed { failure: RunFailure { path: path.clone(), cause, attempts: *attempts }, fatal }
    }
}

/// Key of the step that holds the revised graph.
fn step_key(number: u32) -> String {
    format!("replan[{number}]")
}
