//! Async functions as tools. The type of the params gives the JSON Schema that the model sees and that is checked
//! before each call.

use super::ActionResult;
use super::tool::ToolFunction;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::future::Future;
use types::depth;

/// The params of a function that takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct NoParams {}

/// The context of a call, for functions that take it as their second parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    key: String,
}

impl ToolCall {
    /// The idempotency key of the call. It stays the same however often the turn is repeated; send it on with every
    /// request whose effect must not happen twice.
    pub fn idempotency_key(&self) -> &str {
        &self.key
    }

    /// The id of the session whose turn makes the call.
    pub fn session_id(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }

    /// The id of the turn that makes the call.
    pub fn turn_id(&self) -> &str {
        self.key.split('/').nth(1).unwrap_or_default()
    }
}

/// A function that can be registered as a tool or skill: `async fn(params) -> Result<answer, error>`, the same with a
/// [`ToolCall`] as second parameter, or any [`ToolFunction`]. `Shape` distinguishes the three; callers never name it.
///
/// The params are any type with serde's `Deserialize` and schemars' [`JsonSchema`]. Their doc comments become
/// descriptions for the model. The returned value becomes JSON, and the error a text for the model.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a tool",
    label = "must be an async function of its params that returns a `Result`",
    note = "params need `serde::Deserialize` and `schemars::JsonSchema`, the returned value `serde::Serialize`, the error `Display`"
)]
pub trait IntoTool<Shape> {
    /// The resulting tool.
    type Tool: ToolFunction;
    /// Converts the function into a tool.
    fn into_tool(self) -> Self::Tool;
}

/// The shape of a type that is a [`ToolFunction`] itself.
pub struct Itself;

/// A function together with the JSON Schema of its params.
pub struct FunctionTool {
    schema: Value,
    call: Box<Call>,
}

type Call = dyn Fn(Value, ToolCall) -> Result<BoxFuture<'static, ActionResult>, String> + Send + Sync;

impl FunctionTool {
    fn new<P, Fut, T, E>(function: impl Fn(P, ToolCall) -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        P: DeserializeOwned + JsonSchema,
        T: Serialize + 'static,
        E: Display + 'static,
    {
        let call = move |params: Value, call: ToolCall| {
            let called = function(read(params)?, call);
            Ok(called.map(result).boxed())
        };
        Self { schema: schema_of::<P>(), call: Box::new(call) }
    }
}

#[async_trait]
impl ToolFunction for FunctionTool {
    async fn call(&self, params: &Map<String, Value>, idempotency_key: &str) -> ActionResult {
        match (self.call)(Value::Object(params.clone()), ToolCall { key: idempotency_key.to_owned() }) {
            Ok(called) => called.await,
            Err(problem) => ActionResult::failed(problem),
        }
    }

    fn params(&self) -> Option<&Value> {
        Some(&self.schema)
    }
}

impl<T: ToolFunction> IntoTool<Itself> for T {
    type Tool = T;

    fn into_tool(self) -> T {
        self
    }
}

impl<F, P, Fut, T, E> IntoTool<(P,)> for F
where
    F: Fn(P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    P: DeserializeOwned + JsonSchema,
    T: Serialize + 'static,
    E: Display + 'static,
{
    type Tool = FunctionTool;

    fn into_tool(self) -> FunctionTool {
        FunctionTool::new(move |params, _| self(params))
    }
}

impl<F, P, Fut, T, E> IntoTool<(P, ToolCall)> for F
where
    F: Fn(P, ToolCall) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    P: DeserializeOwned + JsonSchema,
    T: Serialize + 'static,
    E: Display + 'static,
{
    type Tool = FunctionTool;

    fn into_tool(self) -> FunctionTool {
        FunctionTool::new(self)
    }
}

/// The JSON Schema of a params type. Nested types are inlined, except in a type that contains itself.
pub(crate) fn schema_of<P: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<P>();
    // The name of the Rust type carries no information for the model.
    schema.remove("title");
    schema.to_value()
}

/// Reads the params as their type. The error is a text for the model.
pub(crate) fn read<P: DeserializeOwned>(params: Value) -> Result<P, String> {
    serde_path_to_error::deserialize(params).map_err(|error| match error.path().to_string().as_str() {
        "." => format!("invalid params: {}", error.inner()),
        path => format!("invalid params: {path}: {}", error.inner()),
    })
}

fn result<T: Serialize, E: Display>(outcome: Result<T, E>) -> ActionResult {
    match outcome.map(serde_json::to_value) {
        // A null result means no content, as it does when it is read back from the journal.
        Ok(Ok(Value::Null)) => ActionResult { result: None, ..ActionResult::ok(Value::Null) },
        Ok(Ok(answer)) if depth::is_legal(&answer) => ActionResult::ok(answer),
        Ok(Ok(_)) => ActionResult::failed(format!("its result is nested more than {} levels deep", depth::MAX_DEPTH)),
        Ok(Err(problem)) => ActionResult::failed(format!("its result cannot be written as JSON: {problem}")),
        // The alternate form includes the causes of errors such as `anyhow::Error`.
        Err(error) => ActionResult::failed(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::tool::Tools;
    use serde_json::json;

    /// When a parcel arrives.
    #[derive(Deserialize, JsonSchema)]
    struct Eta {
        /// Such as A1001.
        order_id: String,
        #[serde(default)]
        express: bool,
    }

    async fn eta(eta: Eta) -> Result<Value, String> {
        match eta.order_id.as_str() {
            "A1" => Ok(json!({"days": if eta.express { 1 } else { 2 }})),
            other => Err(format!("there is no order {other}")),
        }
    }

    async fn call(tools: &Tools, id: &str, params: Value) -> ActionResult {
        tools.call(id, &serde_json::from_value(params).unwrap(), "s1/m-1/0/act").await.unwrap()
    }

    #[tokio::test]
    async fn params_are_checked_by_the_type_s_schema_before_the_call() {
        let tools = Tools::default().with("eta", eta);
        assert_eq!(call(&tools, "eta", json!({"order_id": "A1"})).await, ActionResult::ok(json!({"days": 2})));
        assert_eq!(call(&tools, "eta", json!({"order_id": "X"})).await, ActionResult::failed("there is no order X"));
        let refused = call(&tools, "eta", json!({"express": "soon"})).await.error.unwrap();
        assert!(refused.contains("order_id") && refused.contains("express"), "every error is named: {refused}");
        let schema = tools.params("eta").unwrap();
        assert_eq!(schema["properties"]["order_id"]["description"], "Such as A1001.");
        assert_eq!(schema["description"], "When a parcel arrives.");
        assert_eq!(schema["required"], json!(["order_id"]));
        assert!(tools.call("none", &Map::new(), "").await.is_none());
    }

    #[tokio::test]
    async fn a_function_may_ask_who_calls_and_answer_nothing() {
        let tools = Tools::default()
            .with("who", async |_: NoParams, call: ToolCall| {
                Ok::<_, String>(json!([call.session_id(), call.turn_id(), call.idempotency_key()]))
            })
            .with("nothing", async |_: NoParams| Ok::<_, String>(()));
        assert_eq!(call(&tools, "who", json!({})).await.result.unwrap(), json!(["s1", "m-1", "s1/m-1/0/act"]));
        let nothing = call(&tools, "nothing", json!({})).await;
        assert!(nothing.ok && nothing.result.is_none());
    }
}
