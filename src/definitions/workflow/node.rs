//! The nodes of a dynamic workflow.

/// A node of a dynamic workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// Takes the user's question.
    StoreQuery,
    /// Makes the plan, and revises it after an incomplete review.
    Triage,
    /// Asks the user a question.
    Clarify,
    /// Rejects the user's question with a reason.
    Reject,
    /// Runs the steps of a plan.
    Orchestrator,
    /// Judges the results, and answers if they suffice.
    Review,
    /// Writes an answer from the available results.
    Summary,
}

impl Node {
    /// All nodes, in the order in which a run can first reach them.
    pub const ALL: [Self; 7] =
        [Self::StoreQuery, Self::Triage, Self::Clarify, Self::Reject, Self::Orchestrator, Self::Review, Self::Summary];

    /// The id of the node's stage in events and in the keys of its steps.
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

    /// The node with this id.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|node| node.id() == id)
    }
}
