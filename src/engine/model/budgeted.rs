//! Checks the token budgets before each model call.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use async_trait::async_trait;
use std::sync::Arc;

/// Decides whether a model may be called.
#[async_trait]
pub(crate) trait Admission: Send + Sync {
    /// Refuses the call with [`ModelError::Spent`] when a budget is used up. Otherwise returns the task agent whose day
    /// the call counts against, in addition to the turn's agent.
    async fn admit(&self, request: &ModelRequest) -> Result<Option<String>, ModelError>;

    /// Counts an answer, unless the journal of a turn counts it.
    async fn answered(&self, _reply: &ModelReply) {}
}

/// A model that is called only while its budget lasts.
pub(super) struct Budgeted {
    model: Arc<dyn Model>,
    budget: Arc<dyn Admission>,
}

impl Budgeted {
    pub(super) fn new(model: Arc<dyn Model>, budget: Arc<dyn Admission>) -> Self {
        Self { model, budget }
    }
}

#[async_trait]
impl Model for Budgeted {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let charged = self.budget.admit(&request).await?;
        let reply = self.model.complete(request).await?;
        self.budget.answered(&reply).await;
        Ok(ModelReply { charged, ..reply })
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let charged = self.budget.admit(&request).await?;
        let reply = self.model.stream(request, deltas).await?;
        self.budget.answered(&reply).await;
        Ok(ModelReply { charged, ..reply })
    }
}
