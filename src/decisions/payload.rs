//! The payloads as types, for the code that carries decisions out. Only validated payloads are read.

use crate::kind::DecisionType;
use crate::node_type::NodeType;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The payload of a valid decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action_type", rename_all = "snake_case")]
pub enum Payload {
    /// Repairs a run.
    ErrorRecovery(ErrorRecovery),
    /// Asks the user.
    RequestClarification(Clarification),
    /// Changes a plan.
    ReplanWorkflow(Replan),
    /// Starts a sub-agent.
    SpawnSubagent(SpawnSubagent),
    /// Runs a workflow.
    ExecuteWorkflow(Execute),
    /// Stores a plan.
    CreateWorkflowPlan(Plan),
    /// Changes a node.
    ModifyNode(ModifyNode),
    /// Runs a single node.
    CreateNode(CreateNode),
    /// Replies.
    Respond(Respond),
    /// Thinks.
    Continue(Thought),
}

impl Payload {
    /// Reads a payload that the validator accepted.
    pub fn read(kind: DecisionType, fields: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        // A null is an absent field.
        let present = fields.iter().filter(|(_, value)| !value.is_null());
        let fields: Map<String, Value> = present.map(|(name, value)| (name.clone(), value.clone())).collect();
        let fields = Value::Object(fields);
        match kind {
            DecisionType::ErrorRecovery => serde_json::from_value(fields).map(Self::ErrorRecovery),
            DecisionType::RequestClarification => serde_json::from_value(fields).map(Self::RequestClarification),
            DecisionType::ReplanWorkflow => serde_json::from_value(fields).map(Self::ReplanWorkflow),
            DecisionType::SpawnSubagent => serde_json::from_value(fields).map(Self::SpawnSubagent),
            DecisionType::ExecuteWorkflow => serde_json::from_value(fields).map(Self::ExecuteWorkflow),
            DecisionType::CreateWorkflowPlan => serde_json::from_value(fields).map(Self::CreateWorkflowPlan),
            DecisionType::ModifyNode => serde_json::from_value(fields).map(Self::ModifyNode),
            DecisionType::CreateNode => serde_json::from_value(fields).map(Self::CreateNode),
            DecisionType::Respond => serde_json::from_value(fields).map(Self::Respond),
            DecisionType::Continue => serde_json::from_value(fields).map(Self::Continue),
        }
    }
}

/// A whole number, which models also write as `3.0`.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    if let Some(whole) = number.as_i64() {
        return Ok(Some(whole));
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0);
    #[allow(clippy::cast_possible_truncation, reason = "`as` saturates, and the limits are far below")]
    float.map(|float| Some(float as i64)).ok_or_else(|| D::Error::custom(format!("{number} is no whole number")))
}

/// A list that may be null.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// An object that may be null.
fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    Ok(Option::<Map<String, Value>>::deserialize(deserializer)?.unwrap_or_default())
}

/// Declares a payload or a part of one. Its fields are those of its table in [`crate::table`].
macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $kind:ty),+ $(,)? })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[allow(missing_docs, reason = "the tables describe the fields")]
            pub struct $name { $($(#[$attribute])* pub $field: $kind),+ }
        )+
    };
}

parts! {
    /// Repairs a run whose node failed.
    ErrorRecovery {
        workflow_id: String,
        failed_node_id: String,
        failure_reason: String,
        #[serde(default)] error_code: Option<String>,
        recovery_plan: RecoveryPlan,
        execution_context: Map<String, Value>,
    }
    /// The plan for a node that failed for good.
    RecoveryPlan {
        action: RecoveryAction,
        #[serde(default)] delay: Option<f64>,
        #[serde(default, deserialize_with = "whole")] max_attempts: Option<i64>,
        #[serde(default)] modifications: Option<Map<String, Value>>,
        #[serde(default)] alternative_node: Option<String>,
    }
    /// Asks the user.
    Clarification {
        question: String,
        #[serde(default)] options: Option<Vec<String>>,
        #[serde(default, deserialize_with = "list")] required_fields: Vec<String>,
        #[serde(default)] context: Option<Map<String, Value>>,
    }
    /// Changes a plan that cannot succeed. `revision` applies the changes.
    Replan {
        workflow_id: String,
        reason: String,
        execution_context: Map<String, Value>,
        #[serde(default)] suggested_changes: Option<Map<String, Value>>,
        #[serde(default, deserialize_with = "list")] preserve_nodes: Vec<String>,
    }
    /// Starts a sub-agent.
    SpawnSubagent {
        subagent_type: String,
        task_payload: Map<String, Value>,
        #[serde(default, deserialize_with = "whole")] priority: Option<i64>,
        #[serde(default)] timeout: Option<f64>,
        #[serde(default)] context_snapshot: Option<Map<String, Value>>,
    }
    /// Runs a workflow.
    Execute {
        workflow_id: String,
        #[serde(default, deserialize_with = "fields")] input_params: Map<String, Value>,
        #[serde(default)] execution_mode: Mode,
        #[serde(default)] notify_on_completion: bool,
    }
    /// Stores a plan of several nodes.
    Plan {
        name: String,
        description: String,
        nodes: Vec<Node>,
        #[serde(default, deserialize_with = "list")] edges: Vec<Edge>,
        #[serde(default)] global_config: Option<GlobalConfig>,
    }
    /// A node of a plan.
    Node {
        node_id: String,
        #[serde(rename = "type")] node_type: NodeType,
        name: String,
        #[serde(default, deserialize_with = "fields")] config: Map<String, Value>,
        #[serde(default)] input_mapping: Option<Map<String, Value>>,
        #[serde(default)] output_mapping: Option<Map<String, Value>>,
        #[serde(default)] retry_config: Option<RetryConfig>,
        #[serde(default)] recovery: Option<RecoveryPlan>,
    }
    /// An edge of a plan.
    Edge {
        source: String,
        target: String,
        #[serde(default)] condition: Option<String>,
    }
    /// Settings of a whole plan.
    #[derive(Default)]
    GlobalConfig {
        #[serde(default)] timeout: Option<f64>,
        #[serde(default)] env: Option<BTreeMap<String, String>>,
        #[serde(default)] inputs: Option<Vec<Input>>,
        #[serde(default)] output: Option<Value>,
    }
    /// A declared input of a plan.
    Input {
        name: String,
        #[serde(rename = "type")] input_type: InputType,
        #[serde(default)] required: Option<bool>,
        #[serde(default)] default: Option<Value>,
    }
    /// Repeated attempts of a node.
    RetryConfig {
        #[serde(default, deserialize_with = "whole")] max_retries: Option<i64>,
        #[serde(default)] retry_delay: Option<f64>,
    }
    /// Changes a node of a stored plan.
    ModifyNode {
        node_id: String,
        updates: Map<String, Value>,
        #[serde(default)] reason: Option<String>,
        #[serde(default)] workflow_id: Option<String>,
    }
    /// Runs a single node.
    CreateNode {
        node_type: NodeType,
        node_name: String,
        config: Map<String, Value>,
        #[serde(default)] description: Option<String>,
        #[serde(default)] retry_config: Option<RetryConfig>,
    }
    /// Replies to the user.
    Respond {
        response: String,
        intent: ReplyIntent,
        confidence: f64,
        #[serde(default)] requires_followup: Option<bool>,
    }
    /// Continues to think.
    Thought {
        thought: String,
        #[serde(default)] next_step: Option<String>,
        #[serde(default)] progress: Option<f64>,
    }
}

/// Declares an enum of words.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident as $case:literal { $($word:ident),+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(rename_all = $case)]
            #[allow(missing_docs, reason = "the tables describe the words")]
            pub enum $name { $($word),+ }
        )+
    };
}

words! {
    /// The action of a recovery plan.
    RecoveryAction as "UPPERCASE" { Retry, Skip, Abort, Modify }
    /// How a workflow runs.
    Mode as "lowercase" { Sync, Async }
    /// The type of an input.
    InputType as "lowercase" { String, Number, Boolean, Object, Array }
    /// The intent of a reply.
    ReplyIntent as "snake_case" { Greeting, SimpleQuery }
}

#[allow(clippy::derivable_impls, reason = "the macro declares no default")]
impl Default for Mode {
    fn default() -> Self {
        Self::Sync
    }
}
