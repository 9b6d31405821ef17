//! Conversion of async functions into flows. A function takes the context, with or without typed params.

use super::{Flow, FlowContext, FlowError};
use crate::action::function::{Itself, read, schema_of};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::marker::PhantomData;

/// Anything that can be registered as a flow: an `async fn(FlowContext) -> Result<String, E>`, an `async fn(P,
/// FlowContext) -> Result<String, E>` with typed params, and every [`Flow`].
///
/// The error `E` is a [`FlowError`], or a text that the model reads. The type parameter `Shape` distinguishes the
/// implementations, and callers never name it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a flow",
    label = "must be an async function of a `FlowContext`, or of params and a `FlowContext`",
    note = "params must implement `serde::Deserialize` and `schemars::JsonSchema`; returns `Result<String, FlowError>`"
)]
pub trait IntoFlow<Shape> {
    /// Type of the flow.
    type Flow: Flow;
    /// Converts the value into a flow.
    fn into_flow(self) -> Self::Flow;
}

/// A flow made from a function, with the schema of its params.
pub struct FunctionFlow<F, Shape> {
    function: F,
    schema: Option<Value>,
    shape: PhantomData<fn() -> Shape>,
}

impl<T: Flow> IntoFlow<Itself> for T {
    type Flow = T;

    fn into_flow(self) -> T {
        self
    }
}

impl<F, Fut, E> IntoFlow<(FlowContext,)> for F
where
    F: Fn(FlowContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, E>> + Send + 'static,
    E: Into<FlowError> + 'static,
{
    type Flow = FunctionFlow<F, (FlowContext,)>;

    fn into_flow(self) -> Self::Flow {
        FunctionFlow { function: self, schema: None, shape: PhantomData }
    }
}

impl<F, P, Fut, E> IntoFlow<(P, FlowContext)> for F
where
    F: Fn(P, FlowContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, E>> + Send + 'static,
    P: DeserializeOwned + JsonSchema + Send + 'static,
    E: Into<FlowError> + 'static,
{
    type Flow = FunctionFlow<F, (P, FlowContext)>;

    fn into_flow(self) -> Self::Flow {
        FunctionFlow { function: self, schema: Some(schema_of::<P>()), shape: PhantomData }
    }
}

#[async_trait]
impl<F, Fut, E> Flow for FunctionFlow<F, (FlowContext,)>
where
    F: Fn(FlowContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, E>> + Send + 'static,
    E: Into<FlowError> + 'static,
{
    async fn run(&self, context: FlowContext) -> Result<String, FlowError> {
        (self.function)(context).await.map_err(Into::into)
    }
}

#[async_trait]
impl<F, P, Fut, E> Flow for FunctionFlow<F, (P, FlowContext)>
where
    F: Fn(P, FlowContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, E>> + Send + 'static,
    P: DeserializeOwned + JsonSchema + Send + 'static,
    E: Into<FlowError> + 'static,
{
    async fn run(&self, context: FlowContext) -> Result<String, FlowError> {
        let params = read(Value::Object(context.params.clone())).map_err(FlowError::Failed)?;
        (self.function)(params, context).await.map_err(Into::into)
    }

    fn params(&self) -> Option<&Value> {
        self.schema.as_ref()
    }
}
