//! The ten types of decisions, their priority, and the intents that lead to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of a decision. The variants are declared from the highest priority to the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionType {
    /// Repairs a run whose node failed.
    ErrorRecovery,
    /// Asks the user, and suspends the task until the answer.
    RequestClarification,
    /// Changes a plan that cannot succeed.
    ReplanWorkflow,
    /// Starts a sub-agent and waits for its result.
    SpawnSubagent,
    /// Runs a workflow.
    ExecuteWorkflow,
    /// Stores a plan of several nodes.
    CreateWorkflowPlan,
    /// Changes a node of a stored plan.
    ModifyNode,
    /// Runs a single node.
    CreateNode,
    /// Replies to the user.
    Respond,
    /// Continues to think, without an effect outside.
    Continue,
}

impl DecisionType {
    /// All types, from the highest priority to the lowest.
    pub const ALL: [Self; 10] = [
        Self::ErrorRecovery,
        Self::RequestClarification,
        Self::ReplanWorkflow,
        Self::SpawnSubagent,
        Self::ExecuteWorkflow,
        Self::CreateWorkflowPlan,
        Self::ModifyNode,
        Self::CreateNode,
        Self::Respond,
        Self::Continue,
    ];

    /// The name in all formats, which is also the `action_type` of the payload.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ErrorRecovery => "error_recovery",
            Self::RequestClarification => "request_clarification",
            Self::ReplanWorkflow => "replan_workflow",
            Self::SpawnSubagent => "spawn_subagent",
            Self::ExecuteWorkflow => "execute_workflow",
            Self::CreateWorkflowPlan => "create_workflow_plan",
            Self::ModifyNode => "modify_node",
            Self::CreateNode => "create_node",
            Self::Respond => "respond",
            Self::Continue => "continue",
        }
    }

    /// The type with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// From 1, the highest, to 10.
    pub const fn priority(self) -> u8 {
        self as u8 + 1
    }

    /// True if the decision brings a result from outside, so that a reply written before it is a guess.
    pub const fn has_result(self) -> bool {
        match self {
            Self::ErrorRecovery
            | Self::ReplanWorkflow
            | Self::SpawnSubagent
            | Self::ExecuteWorkflow
            | Self::CreateWorkflowPlan
            | Self::ModifyNode
            | Self::CreateNode => true,
            Self::RequestClarification | Self::Respond | Self::Continue => false,
        }
    }
}

impl std::fmt::Display for DecisionType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The model's reading of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Intent {
    /// A greeting.
    Greeting,
    /// A question, or a task for one tool.
    SimpleQuery,
    /// A task of one or several steps.
    ComplexTask,
    /// A request to run a workflow.
    WorkflowRequest,
    /// The request is unclear.
    Unknown,
}

impl Intent {
    /// All intents.
    pub const ALL: [Self; 5] =
        [Self::Greeting, Self::SimpleQuery, Self::ComplexTask, Self::WorkflowRequest, Self::Unknown];

    /// The name in the model's answer.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greeting => "GREETING",
            Self::SimpleQuery => "SIMPLE_QUERY",
            Self::ComplexTask => "COMPLEX_TASK",
            Self::WorkflowRequest => "WORKFLOW_REQUEST",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The intent with this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|intent| intent.as_str().eq_ignore_ascii_case(name))
    }

    /// The decisions that usually follow from the intent. Another one is worth a warning and is no error.
    pub const fn decisions(self) -> &'static [DecisionType] {
        match self {
            Self::Greeting => &[DecisionType::Respond],
            Self::SimpleQuery => &[DecisionType::Respond, DecisionType::CreateNode],
            Self::ComplexTask => {
                &[DecisionType::CreateNode, DecisionType::CreateWorkflowPlan, DecisionType::SpawnSubagent]
            }
            Self::WorkflowRequest => &[DecisionType::ExecuteWorkflow, DecisionType::CreateWorkflowPlan],
            Self::Unknown => &[DecisionType::RequestClarification],
        }
    }
}

/// A decision as the model wrote it: not validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The type.
    pub decision_type: DecisionType,
    /// How sure the model is, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The payload.
    pub payload: serde_json::Map<String, serde_json::Value>,
}

impl Decision {
    /// A decision without a confidence.
    pub fn new(decision_type: DecisionType, payload: serde_json::Map<String, serde_json::Value>) -> Self {
        Self { decision_type, confidence: None, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_priorities_are_those_of_the_contract() {
        for (place, kind) in DecisionType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.priority()), place + 1);
            assert_eq!(DecisionType::parse(kind.as_str()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert_eq!(DecisionType::parse("RESPOND"), None);
        for intent in Intent::ALL {
            assert_eq!(serde_json::to_value(intent).unwrap(), intent.as_str());
            assert_eq!(Intent::parse(&intent.as_str().to_lowercase()), Some(intent));
        }
    }
}
