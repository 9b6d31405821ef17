//! The messages between nodes, and the work of each node.

use super::plan::{PlanStep, TriagePlan, TriageReplan};
use super::results::Results;
use super::review::Review;
use super::route::{TARGETS, Triage, select_triage_path};
use super::structured::{NoValidAnswer, ask};
use super::{inputs, orchestrator, schema, summary};
use crate::journal::StepError;
use crate::workflow::orchestration::ask::AskOutcome;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::StageContext;
use definitions::workflow::definition::DynamicDefinition;
use definitions::workflow::node::Node;
use serde_json::json;
use std::sync::Arc;

/// Input of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeMessage {
    /// The request, for the first node.
    Query,
    /// Make a plan for the request.
    PlanRequest,
    /// Make a second plan, because the review found the results incomplete.
    ReplanRequest(Review),
    /// Ask the user this question.
    Clarify(String),
    /// Reject the request, with this text for the user.
    Reject(String),
    /// Execute a plan. `again` is true for the second plan, after a review.
    Execute { plan: Vec<PlanStep>, again: bool },
    /// Judge the results.
    ReviewRequest,
    /// Write the answer from the results without a review. `early` is true if the limit of activations is reached.
    StreamingRequest { early: bool },
}

impl NodeMessage {
    /// The node that handles the message.
    pub(super) fn node(&self) -> Node {
        match self {
            Self::Query => Node::StoreQuery,
            Self::PlanRequest | Self::ReplanRequest(_) => Node::Triage,
            Self::Clarify(_) => Node::Clarify,
            Self::Reject(_) => Node::Reject,
            Self::Execute { .. } => Node::Orchestrator,
            Self::ReviewRequest => Node::Review,
            Self::StreamingRequest { .. } => Node::Summary,
        }
    }

    /// Converts the decision of triage into the message for the next node.
    pub(super) fn routed(triage: Triage, query: &str) -> Self {
        let or = |text: String, default: fn(&str) -> String| {
            if text.trim().is_empty() { default(query) } else { text.trim().to_owned() }
        };
        match (select_triage_path(&triage, TARGETS), triage) {
            (Node::Clarify, Triage::Plan(plan)) => Self::Clarify(or(plan.plan_reason, inputs::vague)),
            (Node::Reject, Triage::Plan(plan)) => Self::Reject(or(plan.reject_reason, inputs::rejected)),
            (Node::Orchestrator, Triage::Plan(plan)) => Self::Execute { plan: plan.plan, again: false },
            (Node::Orchestrator, Triage::Replan(replan)) => Self::Execute { plan: replan.new_plan, again: true },
            _ => Self::StreamingRequest { early: false },
        }
    }
}

/// Result of a node.
pub(super) struct Step {
    /// Output of the node. Without a next message it is the output of the workflow.
    pub(super) output: Arc<str>,
    /// Message for the next node.
    pub(super) next: Option<NodeMessage>,
}

impl Step {
    fn to(output: impl Into<Arc<str>>, next: NodeMessage) -> Self {
        Self { output: output.into(), next: Some(next) }
    }

    fn end(output: impl Into<Arc<str>>) -> Self {
        Self { output: output.into(), next: None }
    }
}

/// State that the nodes share.
pub(super) struct DynamicState<'d> {
    pub(super) dynamic: &'d DynamicDefinition,
    /// The request, with the user's answers since.
    pub(super) query: String,
    pub(super) results: Results,
}

impl DynamicState<'_> {
    fn names(&self) -> Vec<&str> {
        self.dynamic.agents.iter().map(|agent| agent.name()).collect()
    }

    /// Returns the text that the node's agent reads.
    pub(super) fn input(&self, message: &NodeMessage) -> String {
        let (query, agents) = (&self.query, &self.dynamic.agents);
        match message {
            NodeMessage::Query => query.clone(),
            NodeMessage::PlanRequest => inputs::plan(query, agents),
            NodeMessage::ReplanRequest(review) => inputs::replan(query, agents, &self.results, review),
            NodeMessage::Clarify(text) | NodeMessage::Reject(text) => text.clone(),
            NodeMessage::Execute { plan, .. } => json!(plan).to_string(),
            NodeMessage::ReviewRequest => inputs::judged(query, &self.results),
            NodeMessage::StreamingRequest { .. } => inputs::summary(query, &self.results, None),
        }
    }

    /// Executes the node of `message` at `context`. `input` is the text made from the message.
    pub(super) async fn handle(
        &mut self,
        context: &StageContext,
        message: NodeMessage,
        input: &str,
    ) -> Result<Step, Failure> {
        match message {
            NodeMessage::Query => Ok(Step::to(input, NodeMessage::PlanRequest)),
            NodeMessage::PlanRequest => self.plan(context, input).await,
            NodeMessage::ReplanRequest(_) => self.replan(context, input).await,
            NodeMessage::Clarify(question) => Ok(self.asked(&question, context.ask(question.as_str()).await?)),
            NodeMessage::Reject(reason) => Ok(Step::end(reason)),
            NodeMessage::Execute { plan, again } => {
                self.results = orchestrator::run(context, self.dynamic, &plan, &self.results).await?;
                let next =
                    if again { NodeMessage::StreamingRequest { early: false } } else { NodeMessage::ReviewRequest };
                Ok(Step::to(self.results.text(), next))
            }
            NodeMessage::ReviewRequest => self.review(context, input).await,
            NodeMessage::StreamingRequest { early } => {
                let most = self.dynamic.max_iterations;
                let note = early.then(|| inputs::at_limit(&self.query, most, &self.results));
                let text = summary::write(context, self.dynamic, &self.query, &self.results, note).await?;
                Ok(Step::end(text))
            }
        }
    }

    /// Asks for a plan. If the answer is still invalid after its correction, the request is rejected.
    async fn plan(&self, context: &StageContext, input: &str) -> Result<Step, Failure> {
        let names = self.names();
        let parse = |content: &str| TriagePlan::parse(content, &names);
        let plan = match ask(context, &self.dynamic.plan, schema::plan(&names), input, parse).await {
            Ok(plan) => plan,
            Err(NoValidAnswer::Answer(problem)) => TriagePlan::rejected(inputs::no_plan(&self.query, &problem)),
            Err(NoValidAnswer::Model(error)) => {
                return Err(Failure::from_model_error(context, StepError::Operation(error)));
            }
            Err(NoValidAnswer::Failure(failure)) => return Err(failure),
        };
        Ok(self.triaged(Triage::Plan(plan)))
    }

    /// Asks for a second plan. Without a valid answer the results stay as they are.
    async fn replan(&self, context: &StageContext, input: &str) -> Result<Step, Failure> {
        let names = self.names();
        let parse = |content: &str| TriageReplan::parse(content, &names);
        let replan = match ask(context, &self.dynamic.replan, schema::replan(&names), input, parse).await {
            Ok(replan) => replan,
            Err(NoValidAnswer::Answer(problem)) => TriageReplan::refused(problem),
            Err(NoValidAnswer::Model(error)) => TriageReplan::refused(error.to_string()),
            Err(NoValidAnswer::Failure(failure)) => return Err(failure),
        };
        Ok(self.triaged(Triage::Replan(replan)))
    }

    fn triaged(&self, triage: Triage) -> Step {
        let output = json!(triage).to_string();
        Step::to(output, NodeMessage::routed(triage, &self.query))
    }

    /// Continues with the user's answer: the next node plans again. In a run that belongs to no conversation the
    /// question becomes the output.
    pub(super) fn asked(&mut self, question: &str, asked: AskOutcome) -> Step {
        match asked {
            AskOutcome::Nobody => Step::end(question),
            AskOutcome::Answer(answer) => {
                self.query = inputs::answered(&self.query, question, &answer);
                Step::to(answer, NodeMessage::PlanRequest)
            }
        }
    }

    /// Asks for a review, and writes the answer immediately if the results are complete. They count as complete if
    /// there is no valid review.
    async fn review(&self, context: &StageContext, input: &str) -> Result<Step, Failure> {
        let role = &self.dynamic.review;
        match ask(&context.keyed("review"), role, schema::review(), input, Review::parse).await {
            Ok(review) if !review.is_complete => {
                let output = json!(review).to_string();
                Ok(Step::to(output, NodeMessage::ReplanRequest(review)))
            }
            Err(NoValidAnswer::Failure(failure)) => Err(failure),
            Ok(_) | Err(NoValidAnswer::Answer(_) | NoValidAnswer::Model(_)) => {
                let here = context.keyed("summary");
                Ok(Step::end(summary::write(&here, self.dynamic, &self.query, &self.results, None).await?))
            }
        }
    }
}
