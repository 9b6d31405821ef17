//! The nodes, and the one function that chooses between them (D-09 to D-11).

use super::plan::{TriageAction, TriagePlan, TriageReplan};
use definitions::workflow::node::Node;
use serde::Serialize;

/// Where triage can lead, in this order.
pub const TARGETS: [Node; 4] = [Node::Clarify, Node::Reject, Node::Orchestrator, Node::Summary];

/// What triage came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Triage {
    /// Of the question.
    Plan(TriagePlan),
    /// Of a review.
    Replan(TriageReplan),
}

/// The one of [`TARGETS`] that triage leads to.
pub fn select_triage_path(triage: &Triage, targets: [Node; 4]) -> Node {
    let [clarify, reject, orchestrator, streaming] = targets;
    match triage {
        Triage::Plan(plan) => match plan.action {
            TriageAction::Clarify => clarify,
            TriageAction::Reject => reject,
            TriageAction::Plan => orchestrator,
        },
        Triage::Replan(replan) if replan.accept_review && !replan.new_plan.is_empty() => orchestrator,
        Triage::Replan(_) => streaming,
    }
}
