//! Recovery of a node that has failed for good: by the fixed plan of the file, else by a decision of the coordinator.

use super::failure::{MAX_MESSAGE, NodeError, NodeFailure};
use super::node::NodeRun;
use super::notice::Notices;
use super::question::{Question, outputs};
use super::round::{Changed, Round};
use super::scope::MAX_RECOVERIES as MAX_RECOVERIES_OF_RUN;
use super::stand_in;
use super::trouble::{Trouble, Wish};
use super::verdict::{self, Verdict};
use crate::journal::{Done, Durability, Label, StepError};
use crate::workflow::orchestration::failure::Failure;
use base::http_client::bounded;
use decisions::event::{EventBody, Rejection};
use decisions::kind::{Decision, DecisionType};
use decisions::payload::{ErrorRecovery, Payload, RecoveryAction, RecoveryPlan};
use decisions::revision;
use definitions::agent::AgentRecord;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use types::run_outcome::RunFailure;

/// The recoveries of one node.
const MAX_RECOVERIES: u32 = 3;
/// The first word of the error of a run that has had all its recoveries.
pub(super) const EXHAUSTED: &str = "recovery_exhausted";

/// The recoveries of a node so far.
#[derive(Debug, Default)]
pub(super) struct Recoveries {
    count: u32,
    /// True once the fixed plan has been carried out.
    is_fixed_used: bool,
}

/// How the run continues after a node has failed for good.
pub(super) enum Rescue {
    /// The node runs again, perhaps with changes.
    Again(Round, Option<Box<Changed>>),
    /// The node is done with this output.
    Skip(Arc<Value>),
    /// The recovery has failed, too. The next one follows, if there is one.
    FailedAgain(NodeFailure),
    /// The graph needs a replan.
    Replan(Box<Trouble>),
}

/// A failed node, its failure and the number of its attempts.
pub(super) struct Failed<'f> {
    pub(super) run: &'f NodeRun<'f>,
    pub(super) failure: NodeFailure,
    pub(super) attempts: u32,
}

/// Recovers from the failure of a node, within the bounds. Without a plan and a coordinator the run fails.
pub(super) async fn rescue(recoveries: &mut Recoveries, failed: &Failed<'_>) -> Result<Rescue, Failure> {
    let Failed { run, failure, .. } = failed;
    if failure.fatal {
        return Err(failed.ends_run(&failure.message, true));
    }
    let k = recoveries.count + 1;
    let notices = Notices::of_recovery(run.context, k);
    notices.failed(run.scope, failed.event());
    let fixed = run.node.spec.recovery.as_ref().or(run.scope.graph.recovery.as_ref());
    let fixed = fixed.filter(|_| !recoveries.is_fixed_used);
    let agent = run.scope.coordinator(run.context);
    if fixed.is_none() && agent.is_none() {
        return Err(failed.ends_run(&failure.message, false));
    }
    failed.begin(k).await?;
    recoveries.count = k;
    match (fixed, agent) {
        (Some(plan), _) => {
            recoveries.is_fixed_used = true;
            failed.follow_fixed(k, plan).await
        }
        (None, Some(agent)) => failed.ask(k, &agent, &notices).await,
        (None, None) => Err(failed.ends_run(&failure.message, false)),
    }
}

fn verdict_key(k: u32) -> String {
    format!("recover[{k}]/judge")
}

impl Failed<'_> {
    /// Begins the `k`th recovery. Fails if the node or the run has had all its recoveries. Which node gets the last one of
    /// a run depends on the order in which nodes fail, so a refusal is recorded.
    async fn begin(&self, k: u32) -> Result<(), Failure> {
        if k > MAX_RECOVERIES {
            return Err(self.exhausted(&format!("the node has had {MAX_RECOVERIES} recoveries")));
        }
        let (context, scope) = (self.run.context, self.run.scope);
        let (journal, refused) = (context.journal(), format!("recover[{k}]/refused"));
        let key = journal.full_key(&verdict_key(k));
        if !journal.is_recorded(&refused) && scope.recoveries.begin(scope.home, &key) {
            return Ok(());
        }
        let label = Label { kind: "decision", target: EXHAUSTED };
        let step = journal.step(&refused, label, Durability::OnReturn, EXHAUSTED, |_| async {
            Ok::<_, Infallible>(Done { ok: false, ..Done::ok(Value::Null) })
        });
        match Box::pin(step).await {
            Ok(_) => Err(self.exhausted(&format!("the run has had {MAX_RECOVERIES_OF_RUN} recoveries"))),
            Err(StepError::Journal(error)) => Err(error.into()),
            Err(StepError::Operation(never)) => match never {},
        }
    }

    /// Carries out the fixed plan of the file.
    async fn follow_fixed(&self, k: u32, plan: &RecoveryPlan) -> Result<Rescue, Failure> {
        let verdict = self.judge(k, self.fixed(plan), None).await?;
        self.note(k, "recovery", &verdict);
        match self.recovery(&verdict) {
            Some(recovery) => self.carry_out(k, recovery.recovery_plan, &verdict).await,
            None => {
                let errors = verdict.errors.join("; ");
                Ok(self.again(&format!("its `recovery` cannot be carried out: {errors}")))
            }
        }
    }

    /// The same failure, with a reason for which its recovery has failed, too.
    fn again(&self, reason: &str) -> Rescue {
        let message = format!("{}; {reason}", self.failure.message);
        Rescue::FailedAgain(NodeFailure { message: bounded(&message, MAX_MESSAGE), ..self.failure.clone() })
    }

    /// The fixed plan in the form of a decision.
    fn fixed(&self, plan: &RecoveryPlan) -> Decision {
        let payload = json!({
            "action_type": DecisionType::ErrorRecovery.as_str(),
            "workflow_id": self.run.scope.workflow_id,
            "failed_node_id": self.run.node.id(),
            "failure_reason": self.failure.message,
            "error_code": self.failure.code,
            "recovery_plan": plan,
            "execution_context": {},
        });
        let fields = match payload {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Decision::new(DecisionType::ErrorRecovery, fields)
    }

    /// Asks the coordinator for one decision, and carries it out if it is valid. One that is not leads to a replan.
    async fn ask(&self, k: u32, agent: &AgentRecord, notices: &Notices) -> Result<Rescue, Failure> {
        let (run, key, trouble) = (self.run, format!("recover[{k}]"), self.trouble(Vec::new(), None));
        let question = Question {
            here: run.context,
            scope: run.scope,
            agent,
            key: key.clone(),
            input: json!({"node": run.node.id(), "recovery": k, "failure": self.failure}),
            kinds: &[DecisionType::ErrorRecovery, DecisionType::ReplanWorkflow],
            plan: &self.plan(),
            troubles: std::slice::from_ref(&*trouble),
            sight: &run.sight,
            errors: &[],
            left: MAX_RECOVERIES - k + 1,
        };
        let decision = match Box::pin(question.ask()).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(errors)) => return Ok(Rescue::Replan(self.trouble(errors, None))),
            Err(NodeError::Failed(failure)) => return Err(self.unasked(&failure)),
            Err(error) => return Err(error.into_failure(run.context, self.attempts)),
        };
        notices.made(run.scope, &decision, &key);
        if decision.decision_type == DecisionType::ReplanWorkflow {
            let wish = Wish { decision, notices: notices.clone() };
            return Ok(Rescue::Replan(self.trouble(Vec::new(), Some(wish))));
        }
        let verdict = self.judge(k, decision, Some(agent)).await?;
        self.note(k, agent.id(), &verdict);
        let kind = DecisionType::ErrorRecovery;
        let Some(recovery) = self.recovery(&verdict) else {
            notices.rejected(run.scope, kind, verdict.errors.clone(), (1, Rejection::Invalid));
            return Ok(Rescue::Replan(self.trouble(verdict.errors, None)));
        };
        notices.validated(run.scope, kind, verdict.corrections.clone(), verdict.warnings.clone()).await;
        self.carry_out(k, recovery.recovery_plan, &verdict).await
    }

    /// The payload of a valid recovery.
    fn recovery(&self, verdict: &Verdict) -> Option<ErrorRecovery> {
        if !verdict.is_valid() {
            return None;
        }
        match Payload::read(DecisionType::ErrorRecovery, &verdict.payload) {
            Ok(Payload::ErrorRecovery(recovery)) => Some(recovery),
            Ok(_) | Err(_) => None,
        }
    }

    async fn judge(&self, k: u32, decision: Decision, agent: Option<&AgentRecord>) -> Result<Verdict, Failure> {
        let run = self.run;
        let world = verdict::world(run.context, run.scope, agent, self.plan());
        let clock = run.context.journal().clock().clone();
        let (workflow_id, node_id) = (run.scope.workflow_id, run.node.id());
        let complete = |verdict: Verdict| {
            let errors = misplaced(&verdict.payload, workflow_id, node_id);
            if !errors.is_empty() {
                return Verdict::rejected(errors);
            }
            let plan = &verdict.payload["recovery_plan"];
            let delay = plan["delay"].as_f64().and_then(|delay| Duration::try_from_secs_f64(delay).ok());
            let until = delay.filter(|_| plan["action"] == "RETRY").map(|delay| clock.now().plus(delay));
            Verdict { until, ..verdict }
        };
        let verdict = verdict::record(run.context, &verdict_key(k), &world, decision, complete).await;
        verdict.map_err(|error| error.into_failure(run.context, self.attempts))
    }

    async fn carry_out(&self, k: u32, plan: RecoveryPlan, verdict: &Verdict) -> Result<Rescue, Failure> {
        match plan.action {
            RecoveryAction::Retry => {
                self.wait(verdict).await;
                let changed = self.changed(plan.modifications.as_ref())?;
                let most = plan.max_attempts.and_then(|most| u32::try_from(most).ok()).unwrap_or(1).max(1);
                let round = Round::of(changed.as_ref().map_or(self.run.node, |changed| &changed.node));
                let pause = plan.delay.and_then(|delay| Duration::try_from_secs_f64(delay).ok()).unwrap_or(round.pause);
                Ok(Rescue::Again(Round { most, pause }, changed))
            }
            RecoveryAction::Modify => {
                let changed = self.changed(plan.modifications.as_ref())?;
                let round = Round::of(changed.as_ref().map_or(self.run.node, |changed| &changed.node));
                Ok(Rescue::Again(round, changed))
            }
            RecoveryAction::Skip => match plan.alternative_node {
                None => Ok(Rescue::Skip(Arc::new(Value::Null))),
                Some(other) => match Box::pin(stand_in::output(self.run, k, &other)).await {
                    Ok(output) => Ok(Rescue::Skip(output)),
                    Err(NodeError::Failed(failure)) if !failure.fatal => {
                        let NodeFailure { code, message, .. } = failure;
                        Ok(self.again(&format!("its alternative `{other}` failed, too: {code}: {message}")))
                    }
                    Err(error) => Err(error.into_failure(self.run.context, self.attempts)),
                },
            },
            RecoveryAction::Abort => {
                let reason = verdict.payload["failure_reason"].as_str().unwrap_or_default();
                let message = format!("{}; its recovery aborts the run: {reason}", self.failure.message);
                Err(self.ends_run(&message, true))
            }
        }
    }

    /// Waits until the recorded time, unless the node has been tried again before.
    async fn wait(&self, verdict: &Verdict) {
        let context = self.run.context;
        let is_tried = !context.attempt(self.attempts + 1).journal().recorded().is_empty();
        if context.run().notes.is_some() || is_tried {
            return;
        }
        if let Some(until) = verdict.until {
            context.wait_until(until).await;
        }
    }

    /// The node with its modifications, which were judged.
    fn changed(&self, modifications: Option<&Map<String, Value>>) -> Result<Option<Box<Changed>>, Failure> {
        let Some(modifications) = modifications.filter(|changes| !changes.is_empty()) else { return Ok(None) };
        Changed::new(self.run, modifications)
            .map(|changed| Some(Box::new(changed)))
            .map_err(|problem| self.ends_run(&problem, true))
    }

    /// The graph of this revision with the changes of this node so far.
    fn plan(&self) -> Map<String, Value> {
        let plan = &self.run.scope.graph.plan;
        let changed = self.run.fields.and_then(|fields| revision::with_node(plan, self.run.node.id(), fields.clone()));
        changed.unwrap_or_else(|| plan.clone())
    }

    fn trouble(&self, errors: Vec<String>, wish: Option<Wish>) -> Box<Trouble> {
        Box::new(Trouble {
            node_id: self.run.node.id().to_owned(),
            path: self.run.context.path().to_owned(),
            failure: self.failure.clone(),
            attempts: self.attempts,
            errors,
            wish,
        })
    }

    fn event(&self) -> EventBody {
        let outputs = outputs(&self.run.sight);
        let executed: Vec<&String> = outputs.keys().collect();
        let context = json!({"executed_nodes": executed, "node_outputs": outputs, "retry_count": self.attempts.saturating_sub(1)});
        EventBody::NodeExecutionFailed {
            workflow_id: self.run.scope.workflow_id.to_owned(),
            node_id: self.run.node.id().to_owned(),
            node_type: self.run.node.kind(),
            error_code: self.failure.code.clone(),
            failure_reason: self.failure.message.clone(),
            attempts: self.attempts,
            execution_context: match context {
                Value::Object(fields) => fields,
                _ => Map::new(),
            },
        }
    }

    /// Notes the recovery, if the run is replayed for a timeline.
    fn note(&self, k: u32, by: &str, verdict: &Verdict) {
        let Some(notes) = self.run.context.run().notes.as_ref() else { return };
        let here = self.run.context.stage(&format!("recover[{k}]"));
        let input = format!("{}: {}", self.failure.code, self.failure.message);
        let shown = verdict.payload.get("recovery_plan").map(Value::to_string);
        notes.note(&here, (by, k), &input, shown.ok_or_else(|| verdict.errors.join("; ")));
    }

    /// The failure of the run because of this node.
    fn ends_run(&self, message: &str, fatal: bool) -> Failure {
        self.failure_of_run(format!("{}: {message}", self.failure.code), fatal)
    }

    fn exhausted(&self, bound: &str) -> Failure {
        let NodeFailure { code, message, .. } = &self.failure;
        self.failure_of_run(format!("{EXHAUSTED}: {bound}, and the node failed again: {code}: {message}"), true)
    }

    /// The failure of a run whose coordinator could not be asked.
    fn unasked(&self, failure: &NodeFailure) -> Failure {
        let NodeFailure { code, message, fatal, .. } = failure;
        if *fatal {
            return self.failure_of_run(format!("{code}: {message}"), true);
        }
        let unasked = format!("its coordinator could not be asked: {code}: {message}");
        self.ends_run(&format!("{}; {unasked}", self.failure.message), false)
    }

    fn failure_of_run(&self, cause: String, fatal: bool) -> Failure {
        let failure = RunFailure { path: self.run.context.path().to_owned(), cause, attempts: self.attempts };
        Failure::Failed { failure, fatal }
    }
}

/// The errors of a recovery for another node or another workflow than the one that failed.
fn misplaced(payload: &Map<String, Value>, workflow_id: &str, node_id: &str) -> Vec<String> {
    let wrong = |field: &str, expected: &str| {
        let found = payload.get(field).and_then(Value::as_str).unwrap_or_default();
        (found != expected).then(|| format!("`{field}` is `{found:.80}`, and `{expected}` failed; give `{expected}`"))
    };
    [wrong("workflow_id", workflow_id), wrong("failed_node_id", node_id)].into_iter().flatten().collect()
}
