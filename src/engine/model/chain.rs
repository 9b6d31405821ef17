//! Several models as one: the next is asked where the one before does not answer after its own retries, refuses the question,
//! or is not asked at all since its circuit is open.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use async_trait::async_trait;
use std::sync::Arc;
use tracing::warn;

/// See the module.
pub(super) struct Chain(Vec<Arc<dyn Model>>);

impl Chain {
    /// Those models, in order.
    pub(super) fn new(links: Vec<Arc<dyn Model>>) -> Self {
        Self(links)
    }

    async fn ask(&self, request: &ModelRequest, deltas: Option<&DeltaSink>) -> Result<ModelReply, ModelError> {
        let mut failures = Vec::new();
        for model in &self.0 {
            let answer = match deltas {
                None => model.complete(request.clone()).await,
                Some(deltas) => {
                    // What another one has said of its answer so far is void.
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
                    warn!("the next model of the agent is asked, if there is one: {failure}");
                    failures.push(failure);
                }
            }
        }
        Err(ModelError::of_all(failures))
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
