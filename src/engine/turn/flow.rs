//! FLOW actions: find the flow that takes over the turn.

use crate::workflow::{Flow, Flows};
use std::sync::Arc;
use types::action::Action;
use types::agent::AgentConfig;

/// Finds the flow function that `action` names, if the agent may use it. `None` if the flow is not a function; it may
/// be a workflow. The error is a text for the model.
pub fn find(flows: &Flows, agent: &AgentConfig, action: &Action) -> Result<Option<Arc<dyn Flow>>, String> {
    if !agent.flows.contains(&action.target) {
        return Err(format!("there is no flow `{}`; the flows are: {}", action.target, agent.flows.join(", ")));
    }
    Ok(flows.get(&action.target))
}

/// The input of a flow: `params.input` if it is a text, otherwise the user's message.
pub fn input(action: &Action, message: &str) -> String {
    action.params.get("input").and_then(|input| input.as_str()).unwrap_or(message).to_owned()
}
