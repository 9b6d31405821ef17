//! The nodes, and the one function that chooses between them (D-09 to D-11).

use super::plan::{TriageAction, TriagePlan, TriageReplan};
use serde::Serialize;

/// A node of a dynamic workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// Takes the question in.
    StoreQuery,
    /// Plans, and plans again.
    Triage,
    /// Asks the user.
    Clarify,
    /// Says why not.
    Reject,
    /// Carries a plan out.
    Orchestrator,
    /// Judges the results, and answers when they suffice.
    Review,
    /// Answers with what there is.
    Summary,
}

impl Node {
    /// All of them, in the order in which a run can come to them first.
    pub const ALL: [Self; 7] =
        [Self::StoreQuery, Self::Triage, Self::Clarify, Self::Reject, Self::Orchestrator, Self::Review, Self::Summary];

    /// The stage that it is in events, and in the keys of its steps.
    pub const fn id(self) -> &'static str {
        match self {
            Self::StoreQuery => "store_query",
            Self::Triage => "triage",
            Self::Clarify => "clarify_executor",
            Self::Reject => "reject_query",
            Self::Orchestrator => "orchestrator",
            Self::Review => "review_executor",
            Self::Summary => "streaming_summary",
        }
    }

    /// The node of that id.
    pub fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|node| node.id() == id)
    }
}

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
