//! A model that is asked only while there is a budget for it.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use crate::budget::Purse;
use async_trait::async_trait;
use std::sync::Arc;

/// See the module.
pub(super) struct Budgeted {
    model: Arc<dyn Model>,
    purse: Arc<Purse>,
}

impl Budgeted {
    pub(super) fn new(model: Arc<dyn Model>, purse: Arc<Purse>) -> Self {
        Self { model, purse }
    }
}

#[async_trait]
impl Model for Budgeted {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let charged = self.purse.admit(&request).await?;
        let reply = self.model.complete(request).await?;
        Ok(ModelReply { charged, ..reply })
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let charged = self.purse.admit(&request).await?;
        let reply = self.model.stream(request, deltas).await?;
        Ok(ModelReply { charged, ..reply })
    }
}
