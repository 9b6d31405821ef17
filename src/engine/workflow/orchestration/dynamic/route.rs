//! The choice of the node after triage.

use super::plan::{TriageAction, TriagePlan, TriageReplan};
use definitions::workflow::node::Node;
use serde::Serialize;

/// The nodes to which triage can lead, in the order of [`select_triage_path`].
pub const TARGETS: [Node; 4] = [Node::Clarify, Node::Reject, Node::Orchestrator, Node::Summary];

/// Decision of triage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Triage {
    /// The plan agent's answer to the request.
    Plan(TriagePlan),
    /// The replan agent's answer to a review.
    Replan(TriageReplan),
}

/// Chooses one of the `targets`, usually [`TARGETS`], from the decision of triage.
pub(crate) fn select_triage_path(triage: &Triage, targets: [Node; 4]) -> Node {
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
