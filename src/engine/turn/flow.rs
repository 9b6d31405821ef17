//! FLOW: a fixed-rule function that takes the turn over (E-24).

use crate::workflow::{Flow, Flows};
use std::sync::Arc;
use types::action::Action;
use types::agent::AgentConfig;

/// The function that `action` names, if the agent may route to it; `None` when it is none, but maybe a workflow. Else why
/// not, for the model to read.
pub fn find(flows: &Flows, agent: &AgentConfig, action: &Action) -> Result<Option<Arc<dyn Flow>>, String> {
    if !agent.flows.contains(&action.target) {
        return Err(format!("there is no flow `{}`; the flows are: {}", action.target, agent.flows.join(", ")));
    }
    Ok(flows.get(&action.target))
}

/// A flow's input: `params.input` if that is a text, else the user's message.
pub fn input(action: &Action, message: &str) -> String {
    action.params.get("input").and_then(|input| input.as_str()).unwrap_or(message).to_owned()
}
