//! The verdict on a decision, and the events that report it.

use super::Round;
use super::workflows::{JudgedWorkflow, add_workflows, named};
use crate::execution::TurnError;
use crate::execution::scripts::with_scripts;
use crate::journal::{Done, Durability, Label, StepError};
use crate::turn::state::Turn;
use decisions::correct::Correction;
use decisions::event::{DecisionEvent, EventBody, SCHEMA_VERSION};
use decisions::judge::{Coordinator, Judged};
use decisions::kind::{Decision, DecisionType};
use decisions::payload::Payload;
use decisions::world::Snapshot;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use storage::store::StoreError;
use types::event::EventType;

/// The verdict on a decision.
pub(super) enum Verdict {
    /// The decision may be carried out.
    Valid { accepted: Accepted, corrections: Vec<Correction>, warnings: Vec<String> },
    /// The decision must not be carried out.
    Rejected { errors: Vec<String> },
}

/// A valid decision.
pub(super) struct Accepted {
    pub(super) payload: Box<Payload>,
    /// The same as JSON.
    pub(super) fields: Map<String, Value>,
    /// The workflow that it names.
    pub(super) workflow: Option<JudgedWorkflow>,
}

/// Output of the step that records a verdict. A repeated turn follows it, even if the world has changed.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct RecordedVerdict {
    /// Empty for a valid decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<String>,
    /// The payload if it was corrected. Otherwise the answer's step has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) corrected: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) corrections: Vec<Correction>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// The workflow that the decision names, as it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) workflow: Option<JudgedWorkflow>,
}

impl Turn<'_> {
    /// Judges a decision as one step. The step is durable on return if the decision has an effect outside of the turn.
    pub(super) async fn judge(
        &mut self,
        iteration: u32,
        world: &Snapshot,
        decision: Decision,
    ) -> Result<Verdict, TurnError> {
        let (kind, key, journal) = (decision.decision_type, format!("{iteration}/judge"), self.journal.clone());
        let label = Label { kind: "decision", target: kind.as_str() };
        let (services, input, place) = (self.services, decision.clone(), self.place());
        let step = journal.step(&key, label, Durability::OnReturn, &input, |_| async move {
            let mut world = Cow::Borrowed(world);
            // Only some types depend on workflows. Those are read now, since the decision before may have changed them.
            let workflow = match named(&decision, place.current) {
                Some(_) => add_workflows(services, place, &decision, world.to_mut()).await?,
                None => None,
            };
            let world = with_scripts(&world, &decision.payload, &services.sandbox).await;
            let verdict = match Coordinator::new(world.as_ref()).judge(decision) {
                Judged::Rejected { errors } => RecordedVerdict { errors, workflow, ..RecordedVerdict::default() },
                Judged::Valid { fields, corrections, warnings, .. } => {
                    let corrected = (!corrections.is_empty()).then_some(fields);
                    RecordedVerdict { errors: Vec::new(), corrected, corrections, warnings, workflow }
                }
            };
            let (ok, with_commit) = (verdict.errors.is_empty(), !kind.has_result());
            Ok::<_, StoreError>(Done { ok, with_commit, ..Done::ok(verdict) })
        });
        let RecordedVerdict { errors, corrected, corrections, warnings, workflow } = match Box::pin(step).await {
            Ok(stepped) => stepped.output,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(error)) => return Err(error.into()),
        };
        if !errors.is_empty() {
            return Ok(Verdict::Rejected { errors });
        }
        let fields = corrected.unwrap_or(input.payload);
        let payload = Box::new(Payload::read(kind, &fields).map_err(|error| TurnError::Replay(error.into()))?);
        Ok(Verdict::Valid { accepted: Accepted { payload, fields, workflow }, corrections, warnings })
    }

    /// Reports a new decision. Returns its id, which is the same in every attempt of the turn.
    pub(super) fn decision_made(&mut self, iteration: u32, round: &mut Round, decision: &Decision) -> String {
        let id = format!("{}/{}", self.turn_id(), round.taken);
        round.taken += 1;
        // `tell` masks the whole event.
        let body = EventBody::made(decision, &format!("{iteration}/decide"), &str::to_owned);
        self.tell(round, decision.decision_type, &id, body);
        id
    }

    /// Queues an event of a decision, with secrets masked. A thought has none.
    pub(super) fn tell(&mut self, round: &mut Round, kind: DecisionType, decision_id: &str, body: EventBody) {
        if kind == DecisionType::Continue {
            return;
        }
        let event = DecisionEvent {
            session_id: self.session.session_id.clone(),
            turn_id: Some(self.turn_id().to_owned()),
            run_id: None,
            decision_id: decision_id.to_owned(),
            decision_type: Some(kind),
            schema_version: SCHEMA_VERSION,
            at: self.services.clock.now(),
            body,
        };
        let event = event.masked(&|text| self.services.http.mask(text));
        self.publish(EventType::Decision, &format!("decision/{}", round.events), &event);
        round.events += 1;
    }
}
