//! The events of one recovery or replan.

use super::scope::GraphRun;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::correct::Correction;
use decisions::event::{DecisionEvent, EventBody, Rejection, SCHEMA_VERSION, env_values, without_env};
use decisions::kind::{Decision, DecisionType};

/// The number of events of a recovery.
const EVENTS: u32 = 3;

/// The events of one recovery or replan. Their ids do not change when the run is repeated.
#[derive(Clone)]
pub(super) struct Notices {
    /// The place of the failed node, or of the graph.
    context: StageContext,
    /// The part of the message ids before the number.
    prefix: String,
    /// The number of the first event.
    first: u32,
    decision_id: String,
}

impl Notices {
    /// The events of the `k`th recovery of the node at `context`, from 1.
    pub(super) fn of_recovery(context: &StageContext, k: u32) -> Self {
        let decision_id = context.id_of(&format!("recover[{k}]"));
        Self { context: context.clone(), prefix: "decision".into(), first: (k - 1) * EVENTS, decision_id }
    }

    /// The events of a replan of the graph at `context`, whose step has this key.
    pub(super) fn of_replan(context: &StageContext, key: &str) -> Self {
        let (prefix, decision_id) = (format!("{key}/decision"), context.id_of(key));
        Self { context: context.clone(), prefix, first: 0, decision_id }
    }

    /// Reports that the node has failed for good.
    pub(super) fn failed(&self, scope: &GraphRun<'_>, body: EventBody) {
        self.tell(scope, 0, None, body);
    }

    /// Reports the decision of the coordinator. `step` is the key of its answer.
    pub(super) fn made(&self, scope: &GraphRun<'_>, decision: &Decision, step: &str) {
        let step = self.context.journal().full_key(step);
        // `tell` masks the whole event.
        let body = EventBody::made(decision, &step, &str::to_owned);
        self.tell(scope, 1, Some(decision.decision_type), body);
    }

    /// Reports that the decision is valid. On return this event and all earlier ones are on the stream.
    pub(super) async fn validated(
        &self,
        scope: &GraphRun<'_>,
        kind: DecisionType,
        corrections: Vec<Correction>,
        warnings: Vec<String>,
    ) {
        self.tell(scope, 2, Some(kind), EventBody::DecisionValidated { corrections, warnings });
        self.context.run().event_buffer.wait_until_published().await;
    }

    /// Reports that the decision is not carried out. `attempt` is the number of rejections in a row.
    pub(super) fn rejected(
        &self,
        scope: &GraphRun<'_>,
        kind: DecisionType,
        errors: Vec<String>,
        (attempt, reason): (u32, Rejection),
    ) {
        self.tell(scope, 2, Some(kind), EventBody::DecisionRejected { errors, attempt, reason });
    }

    fn tell(&self, scope: &GraphRun<'_>, number: u32, kind: Option<DecisionType>, body: EventBody) {
        let event = DecisionEvent {
            session_id: String::new(),
            turn_id: None,
            run_id: Some(self.context.run().id.clone()),
            decision_id: self.decision_id.clone(),
            decision_type: kind,
            schema_version: SCHEMA_VERSION,
            at: self.context.journal().clock().now(),
            body,
        };
        let (env, http) = (env_values(&scope.graph.plan), &self.context.services().http);
        let event = event.masked(&|text| http.mask(&without_env(&env, text)));
        self.context.emit_decision(&format!("{}/{}", self.prefix, self.first + number), event);
    }
}
