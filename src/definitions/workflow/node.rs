//! The nodes of a dynamic workflow.

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
