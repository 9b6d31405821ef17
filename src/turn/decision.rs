//! (in the making)
#![allow(missing_docs)]
use crate::action::Action;
use crate::model::ResponseSchema;
use serde_json::Value;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextStatus {
    Processing,
    Typing,
    Ready,
    Transferred,
}
#[derive(Clone, Debug)]
pub struct Decision {
    pub next_status: NextStatus,
    pub action: Option<Action>,
    pub response: Option<String>,
    pub reasoning: Option<String>,
}
pub struct PlanDraft {
    pub name: Option<String>,
    pub tone: Option<String>,
    pub greeting: Option<String>,
    pub sop: Option<String>,
    pub timers: Vec<Value>,
    pub constraints: Option<String>,
}
pub fn parse_decision(_c: &str) -> Result<Decision, String> {
    Err(String::new())
}
pub fn parse_plan_and_decision(_c: &str) -> Result<(PlanDraft, Decision), String> {
    Err(String::new())
}
pub fn decision_schema() -> ResponseSchema {
    ResponseSchema { name: String::new(), strict: false, schema: Value::Null }
}
pub fn plan_and_decision_schema() -> ResponseSchema {
    decision_schema()
}
