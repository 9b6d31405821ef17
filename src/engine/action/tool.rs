//! TOOL actions: call the HTTP API of a tool, a built-in function, or a function registered in Rust.

use super::function::IntoTool;
use super::http::HttpCaller;
use super::outcome::{self, CallLabels};
use super::{ActionResult, params};
use crate::model::ToolSpec;
use async_trait::async_trait;
use base::clock;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use types::action::Action;
use types::agent::{AgentConfig, Tool};

/// A function registered in Rust for the tool or skill with its id. Async functions with a typed parameter implement it
/// by themselves, see [`IntoTool`].
#[async_trait]
pub trait ToolFunction: Send + Sync + 'static {
    /// Executes the function. The idempotency key stays the same however often the turn is repeated. A failure is a
    /// result.
    async fn call(&self, params: &Map<String, Value>, idempotency_key: &str) -> ActionResult;

    /// The JSON Schema of the params. Checked before each call, and shown to the model if the agent file has no schema.
    fn params(&self) -> Option<&Value> {
        None
    }
}

/// The functions registered in Rust, for tools and skills, by id.
#[derive(Clone, Default)]
pub struct Tools {
    by_id: BTreeMap<String, Arc<dyn ToolFunction>>,
}

impl Tools {
    /// Adds a function, or replaces the function with this id.
    pub fn with<Shape>(mut self, id: impl Into<String>, tool: impl IntoTool<Shape>) -> Self {
        self.by_id.insert(id.into(), Arc::new(tool.into_tool()));
        self
    }

    /// The ids of all functions.
    pub fn ids(&self) -> Vec<String> {
        self.by_id.keys().cloned().collect()
    }

    /// The JSON Schema of a function's params; `None` if it has no schema or does not exist.
    pub fn params(&self, id: &str) -> Option<&Value> {
        self.by_id.get(id)?.params()
    }

    /// Calls the function with this id. Params that violate its schema are a failed result. `None` if it does not
    /// exist.
    pub async fn call(&self, id: &str, params: &Map<String, Value>, idempotency_key: &str) -> Option<ActionResult> {
        let function = self.by_id.get(id)?;
        if let Some(Err(problem)) = function.params().map(|schema| params::check(schema, params)) {
            return Some(ActionResult::failed(format!("invalid params: {problem}")));
        }
        Some(function.call(params, idempotency_key).await)
    }
}

/// The tools of the agent as they are described to a model.
pub(crate) fn specs(agent: &AgentConfig, functions: &Tools) -> Vec<ToolSpec> {
    let specs = agent.tools.iter().map(|tool| {
        let function = functions.params(&tool.id).filter(|_| tool.http.is_none() && tool.builtin.is_none());
        let (description, params) = described(&tool.description, &tool.params, function);
        let parameters = Arc::new(params.into_owned());
        ToolSpec { name: tool.id.clone(), description: description.to_owned(), parameters }
    });
    specs.collect()
}

/// Description and params from the agent file. The function registered in Rust provides the missing ones.
pub(crate) fn described<'v>(
    description: &'v str,
    params: &'v Value,
    function: Option<&'v Value>,
) -> (&'v str, Cow<'v, Value>) {
    let Some(schema) = function else { return (description, Cow::Borrowed(params)) };
    let own = schema["description"].as_str().unwrap_or_default();
    let description = if description.is_empty() { own } else { description };
    if params.as_object().is_some_and(|params| !params.is_empty()) {
        return (description, Cow::Borrowed(params));
    }
    let mut schema = schema.clone();
    schema.as_object_mut().map(|schema| schema.remove("description"));
    (description, Cow::Owned(schema))
}

/// Executes the tool that `action` names. Every failure is a result for the model.
pub async fn run(
    http: &HttpCaller,
    tools: &Tools,
    agent: &AgentConfig,
    action: &Action,
    idempotency_key: &str,
) -> ActionResult {
    let (begun, tool) = (Instant::now(), agent.tools.iter().find(|tool| tool.id == action.target));
    let result = match tool {
        Some(tool) => call(http, tools, tool, action, idempotency_key).await,
        None => {
            let known: Vec<&str> = agent.tools.iter().map(|tool| tool.id.as_str()).collect();
            ActionResult::failed(format!("there is no tool `{}`; the tools are: {}", action.target, known.join(", ")))
        }
    };
    let counted = http.stand_in().is_none();
    let called = CallLabels { kind: "tool", target: &action.target, known: tool.is_some(), counted };
    outcome::report_result(called, &result, begun.elapsed());
    result
}

async fn call(http: &HttpCaller, tools: &Tools, tool: &Tool, action: &Action, idempotency_key: &str) -> ActionResult {
    if let Err(problem) = params::check(&tool.params, &action.params) {
        return ActionResult::failed(format!("invalid params: {problem}"));
    }
    if let Some(stand_in) = http.stand_in()
        && (tool.builtin.is_none() || stand_in.has(&tool.id))
    {
        stand_in.called(&tool.id, || http.would_call(tool.http.as_ref(), &tool.id, &action.params));
        return stand_in.call(&tool.id, &action.params);
    }
    match (&tool.http, tool.builtin.as_deref()) {
        (Some(call), _) => http.call(call, &action.params, idempotency_key).await,
        (None, Some("now")) => ActionResult::ok(json!({ "now": clock::now() })),
        (None, Some(other)) => ActionResult::failed(format!("there is no builtin `{other}`; the builtins are: now")),
        (None, None) => tools.call(&tool.id, &action.params, idempotency_key).await.unwrap_or_else(|| {
            ActionResult::failed(format!(
                "tool `{}` has neither `http` nor `builtin` in the agent file, and no function is registered under its id",
                tool.id
            ))
        }),
    }
}
