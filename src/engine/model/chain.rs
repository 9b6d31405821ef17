//! Fallback over several models. The next model is called if the one before fails after its own retries, refuses the
//! request, or has an open circuit.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use async_trait::async_trait;
use std::sync::Arc;
use tracing::warn;

/// Several models that are called in order until one answers.
pub(super) struct Chain(Vec<Arc<dyn Model>>);

impl Chain {
    /// Creates a chain of these models.
    pub(super) fn new(links: Vec<Arc<dyn Model>>) -> Self {
        Self(links)
    }

    async fn ask(&self, request: &ModelRequest, deltas: Option<&DeltaSink>) -> Result<ModelReply, ModelError> {
        let mut failures = Vec::new();
        for model in &self.0 {
            let answer = match deltas {
                None => model.complete(request.clone()).await,
                Some(deltas) => {
                    // The text that an earlier model has streamed no longer counts.
                    deltas.restart();
                    model.stream(request.clone(), deltas.clone()).await
                }
            };
            match answer {
                Ok(reply) => {
                    let before: u32 = failures.iter().map(ModelError::attempts).sum();
                    return Ok(ModelReply { attempts: before.saturating_add(reply.attempts), ..reply });
                }
                Err(failure) => {
                    warn!("model call failed, trying the next model of the agent if it has one: {failure}");
                    failures.push(failure);
                }
            }
        }
        Err(ModelError::combine(failures))
    }
}

#[async_trait]
impl Model for Chain {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.ask(&request, None).await
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        self.ask(&request, Some(&deltas)).await
    }
}
