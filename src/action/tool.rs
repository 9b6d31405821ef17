//! TOOL: an API, a builtin of the engine, or a function registered in Rust (E-27).

use super::{Action, ActionResult, http::HttpCaller, params};
use crate::agent::AgentConfig;
use crate::clock;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tool registered in Rust.
#[async_trait]
pub trait ToolFunction: Send + Sync + 'static {
    /// Runs it. The idempotency key is the same however often the turn is repeated.
    async fn call(&self, params: &Map<String, Value>, idempotency_key: &str) -> ActionResult;
}

/// The registered tools by id.
#[derive(Clone, Default)]
pub struct Tools {
    by_id: BTreeMap<String, Arc<dyn ToolFunction>>,
}

impl Tools {
    /// Adds a tool, or replaces the one of that id.
    pub fn with(mut self, id: impl Into<String>, tool: impl ToolFunction) -> Self {
        self.by_id.insert(id.into(), Arc::new(tool));
        self
    }
}

/// Calls the tool that `action` names. Every failure is a result for the model to read (OP-E18).
pub async fn run(
    http: &HttpCaller,
    tools: &Tools,
    agent: &AgentConfig,
    action: &Action,
    idempotency_key: &str,
) -> ActionResult {
    let Some(tool) = agent.tools.iter().find(|tool| tool.id == action.target) else {
        let known: Vec<&str> = agent.tools.iter().map(|tool| tool.id.as_str()).collect();
        return ActionResult::failed(format!(
            "there is no tool `{}`; the tools are: {}",
            action.target,
            known.join(", ")
        ));
    };
    if let Err(problem) = params::check(&tool.params, &action.params) {
        return ActionResult::failed(format!("invalid params: {problem}"));
    }
    match (&tool.http, tool.builtin.as_deref(), tools.by_id.get(&tool.id)) {
        (Some(call), _, _) => http.call(call, &action.params, idempotency_key).await,
        (None, Some("now"), _) => ActionResult::ok(json!({ "now": clock::now() })),
        (None, Some(other), _) => ActionResult::failed(format!("there is no builtin `{other}`; the builtins are: now")),
        (None, None, Some(function)) => function.call(&action.params, idempotency_key).await,
        (None, None, None) => ActionResult::failed(format!(
            "tool `{}` has neither `http` nor `builtin` in the agent file, and no function is registered under its id",
            tool.id
        )),
    }
}
