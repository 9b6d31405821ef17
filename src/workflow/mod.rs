//! What a FLOW action can run. A [`Flow`] takes its turn over: what it returns is the final text for the user.
//!
//! [`Flows`] finds the one that an action names; [`parallel_analysis`] ships with the engine.

pub mod parallel_analysis;

use crate::agent::AgentRecord;
use crate::journal::{Journal, JournalError};
use crate::model::{Model, ModelError};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// Why a flow has no result.
#[derive(Debug, Error)]
pub enum FlowError {
    /// The journal's fault: the turn ends or is repeated.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A model did not answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The flow's own.
    #[error("{0}")]
    Failed(String),
}

/// What a flow is given.
pub struct FlowContext {
    /// `params.input` if that is a text, else the user's message.
    pub input: String,
    /// The action's params.
    pub params: Map<String, Value>,
    /// The session that it runs for.
    pub session_id: String,
    /// The agent that routed to it.
    pub agent: Arc<AgentRecord>,
    /// The agent's model.
    pub model: Arc<dyn Model>,
    /// The flow's part of the turn's journal: its one way to the outside.
    pub journal: Journal,
}

/// A fixed-rule function that takes a turn over (E-24, E-28).
#[async_trait]
pub trait Flow: Send + Sync + 'static {
    /// Runs it to the final text; empty when it has nothing to say.
    async fn run(&self, context: FlowContext) -> Result<String, FlowError>;
}

/// The registered flows by id.
#[derive(Clone, Default)]
pub struct Flows {
    by_id: BTreeMap<String, Arc<dyn Flow>>,
}

impl Flows {
    /// Those that ship with the engine.
    pub fn builtin() -> Self {
        Self::default().with("parallel_analysis", parallel_analysis::ParallelAnalysis)
    }

    /// Adds a flow, or replaces the one of that id.
    pub fn with(mut self, id: impl Into<String>, flow: impl Flow) -> Self {
        self.by_id.insert(id.into(), Arc::new(flow));
        self
    }

    /// The flow of that id.
    pub fn get(&self, id: &str) -> Option<Arc<dyn Flow>> {
        self.by_id.get(id).cloned()
    }

    /// All ids.
    pub fn ids(&self) -> Vec<String> {
        self.by_id.keys().cloned().collect()
    }
}
