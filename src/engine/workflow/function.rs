//! Async functions as flows: of the context alone, or of typed params and the context.

use super::{Flow, FlowContext, FlowError};
use crate::action::function::{Itself, read, schema_of};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::marker::PhantomData;

/// What can be registered as a flow: `async fn(FlowContext) -> Result<String, error>`, the same with typed params before the
/// context, and every [`Flow`]. `Shape` tells them apart and is never named.
///
/// Errors are a [`FlowError`], or a text for the model to read.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no flow",
    label = "has to be an async function of a `FlowContext`, or of params and a `FlowContext`",
    note = "params need `serde::Deserialize` and `schemars::JsonSchema`; it answers `Result<String, FlowError>`"
)]
pub trait IntoFlow<Shape> {
    /// The flow that it becomes.
    type Flow: Flow;
    /// As a flow.
    fn into_flow(self) -> Self::Flow;
}

/// A function, and the schema of its params if it has any.
pub struct Typed<F, Shape> {
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
    type Flow = Typed<F, (FlowContext,)>;

    fn into_flow(self) -> Self::Flow {
        Typed { function: self, schema: None, shape: PhantomData }
    }
}

impl<F, P, Fut, E> IntoFlow<(P, FlowContext)> for F
where
    F: Fn(P, FlowContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, E>> + Send + 'static,
    P: DeserializeOwned + JsonSchema + Send + 'static,
    E: Into<FlowError> + 'static,
{
    type Flow = Typed<F, (P, FlowContext)>;

    fn into_flow(self) -> Self::Flow {
        Typed { function: self, schema: Some(schema_of::<P>()), shape: PhantomData }
    }
}

#[async_trait]
impl<F, Fut, E> Flow for Typed<F, (FlowContext,)>
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
impl<F, P, Fut, E> Flow for Typed<F, (P, FlowContext)>
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
